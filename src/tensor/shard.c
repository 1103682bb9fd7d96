/* shard.c - who owns which index range, and how much of what a rank needs it does not have. */
#include <assert.h>

#include "cleave/layout.h"

/* floor(i*n/k) without overflow. */
static int64_t cut_at(int64_t n, int64_t blocks, int64_t i)
{
    int64_t rest = n % blocks;
    return i * (n / blocks) + (rest != 0 ? i * rest / blocks : 0);
}

void clv_cut_block(int64_t size, int64_t granule, int64_t blocks, int64_t block, int64_t *lo, int64_t *hi)
{
    int64_t n = size / granule;
    *lo = cut_at(n, blocks, block) * granule;
    *hi = cut_at(n, blocks, block + 1) * granule;
}

clv_shard clv_layout_shard(const clv_layout *layout, const clv_mesh *mesh, const int64_t *shape, int64_t rank)
{
    clv_shard shard = {.rank = layout->rank};
    for (int d = 0; d < layout->rank; d++)
        clv_cut_block(shape[d], layout->granule[d], clv_layout_blocks(layout, d),
                      clv_layout_block(layout, mesh, d, rank), &shard.lo[d], &shard.hi[d]);
    return shard;
}

int64_t clv_shard_elems(const clv_shard *shard)
{
    int64_t elems = 1;
    for (int d = 0; d < shard->rank; d++)
        elems *= shard->hi[d] - shard->lo[d];
    return elems;
}

int64_t clv_layout_max_elems(const clv_layout *layout, const int64_t *shape)
{
    /* Dimensions are cut by disjoint sub-axes, so some rank holds the largest block of each. */
    int64_t elems = 1;
    for (int d = 0; d < layout->rank; d++) {
        int64_t n = shape[d] / layout->granule[d], blocks = clv_layout_blocks(layout, d);
        elems *= (n / blocks + (n % blocks != 0)) * layout->granule[d];
    }
    return elems;
}

clv_shard clv_shard_intersect(const clv_shard *a, const clv_shard *b)
{
    clv_shard both = {.rank = a->rank};
    for (int d = 0; d < a->rank; d++) {
        both.lo[d] = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
        both.hi[d] = a->hi[d] < b->hi[d] ? a->hi[d] : b->hi[d];
        if (both.hi[d] < both.lo[d])
            both.hi[d] = both.lo[d];
    }
    return both;
}

/* -- missing elements --
 *
 * |to_r \ from_r| = (product over d of |to_r,d|) - (product over d of |to_r,d * from_r,d|): both shards are boxes.
 * Which block of d a rank holds depends only on its coordinates on the *atoms* that cut d: the pieces into which all
 * cuts of both layouts divide the axes. Dimensions that share no axis vary independently, so they are enumerated
 * apart: each set of connected dimensions gives a front of pairs (need, have), of which only those not dominated can
 * reach the maximum of need*N - have*H for whatever N >= H >= 0 the other dimensions contribute. */

enum { MAX_ATOMS = 2 * CLV_MAX_SUBAXES + CLV_MAX_AXES, FRONT = 1 << CLV_MAX_RANK };

typedef struct front {
    int n;
    int64_t need[FRONT];
    int64_t have[FRONT];
} front;

/* A cut of one dimension by one layout. */
typedef struct cut {
    int64_t granules, granule, blocks;
} cut;

typedef struct missing {
    int rank, n_atoms;
    clv_subaxis atom[MAX_ATOMS];
    uint32_t dims[MAX_ATOMS];                   /* bit d: the atom cuts dimension d in either layout */
    int64_t weight[2][CLV_MAX_RANK][MAX_ATOMS]; /* block index of d = sum of coordinate * weight */
    cut cuts[2][CLV_MAX_RANK];
} missing;

/* The factors [pre, end) of a's axis that begin or end some cut, ascending; 1 and the axis' size included. */
static int boundaries(int64_t *out, const clv_layout *const layouts[2], const clv_mesh *mesh, int axis)
{
    int n = 2;
    out[0] = 1;
    out[1] = mesh->axis[axis].size;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < layouts[l]->begin[layouts[l]->rank]; i++) {
            clv_subaxis sub = layouts[l]->axes[i];
            if (sub.axis != axis)
                continue;
            out[n++] = sub.pre;
            out[n++] = (int64_t)sub.pre * sub.size;
        }
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && out[j] < out[j - 1]; j--) {
            int64_t swap = out[j];
            out[j] = out[j - 1];
            out[j - 1] = swap;
        }
    int kept = 1;
    for (int i = 1; i < n; i++)
        if (out[i] != out[kept - 1])
            out[kept++] = out[i];
    return kept;
}

static bool is_chain(const int64_t *factors, int n)
{
    for (int i = 1; i < n; i++)
        if (factors[i] % factors[i - 1] != 0)
            return false;
    return true;
}

/* What an atom's coordinate adds to that of a sub-axis it is part of, or that is part of it. */
static int64_t coordinate_of(clv_subaxis sub, clv_subaxis atom, int64_t size, int64_t coordinate)
{
    int64_t post = size / ((int64_t)sub.pre * sub.size), atom_post = size / ((int64_t)atom.pre * atom.size);
    return coordinate * atom_post / post % sub.size;
}

static bool inside(clv_subaxis atom, clv_subaxis sub)
{
    return atom.axis == sub.axis && atom.pre % sub.pre == 0 &&
           ((int64_t)sub.pre * sub.size) % ((int64_t)atom.pre * atom.size) == 0;
}

typedef struct walk {
    const clv_layout *layouts[2];
    const clv_mesh *mesh;
    missing *m;
    uint32_t dims;        /* those enumerated here */
    int atoms[MAX_ATOMS]; /* the atoms that cut them */
    int n_atoms;
    int64_t at[MAX_ATOMS]; /* coordinates */
    bool linear; /* every block index is the sum of coordinate * weight: not where the cuts of the two layouts do not
                    nest (x:(1)2 and x:(1)3 of 6), for then the whole axis is one atom */
} walk;

static void make_atoms(missing *m, const clv_layout *const layouts[2], const clv_mesh *mesh, bool *linear)
{
    int64_t factors[4 * CLV_MAX_SUBAXES + 2];
    for (int axis = 0; axis < mesh->n_axes; axis++) {
        int n = boundaries(factors, layouts, mesh, axis);
        if (!is_chain(factors, n)) {
            *linear = false;
            factors[1] = factors[n - 1];
            n = 2;
        }
        for (int i = 0; i + 1 < n; i++)
            m->atom[m->n_atoms++] = (clv_subaxis){axis, (int32_t)factors[i], (int32_t)(factors[i + 1] / factors[i])};
    }
}

static void make_weights(missing *m, const clv_layout *const layouts[2], const int64_t *shape)
{
    for (int l = 0; l < 2; l++)
        for (int d = 0; d < m->rank; d++) {
            int64_t blocks = 1;
            for (int i = layouts[l]->begin[d + 1] - 1; i >= layouts[l]->begin[d]; i--) {
                clv_subaxis sub = layouts[l]->axes[i];
                int64_t end = (int64_t)sub.pre * sub.size;
                for (int a = 0; a < m->n_atoms; a++) {
                    clv_subaxis atom = m->atom[a];
                    if (clv_subaxis_overlap(atom, sub))
                        m->dims[a] |= 1u << d;
                    if (inside(atom, sub))
                        m->weight[l][d][a] = blocks * (end / ((int64_t)atom.pre * atom.size));
                }
                blocks *= sub.size;
            }
            m->cuts[l][d] = (cut){shape[d] / layouts[l]->granule[d], layouts[l]->granule[d], blocks};
        }
}

static int64_t block_at(const walk *w, int l, int d)
{
    int64_t block = 0;
    if (w->linear) {
        for (int i = 0; i < w->n_atoms; i++)
            block += w->at[i] * w->m->weight[l][d][w->atoms[i]];
        return block;
    }
    for (int s = w->layouts[l]->begin[d]; s < w->layouts[l]->begin[d + 1]; s++) {
        clv_subaxis sub = w->layouts[l]->axes[s];
        int64_t coordinate = 0;
        for (int i = 0; i < w->n_atoms; i++) {
            clv_subaxis atom = w->m->atom[w->atoms[i]];
            if (atom.axis == sub.axis)
                coordinate += coordinate_of(sub, atom, w->mesh->axis[sub.axis].size, w->at[i]);
        }
        block = block * sub.size + coordinate;
    }
    return block;
}

/* Adds a pair unless another has at least its need and at most its have. So a front has one pair a need, and there
 * are at most 2^rank needs: the blocks of a dimension have two sizes. */
static void front_add(front *f, int64_t need, int64_t have)
{
    int kept = 0;
    for (int i = 0; i < f->n; i++)
        if (f->need[i] >= need && f->have[i] <= have)
            return;
    for (int i = 0; i < f->n; i++)
        if (!(need >= f->need[i] && have <= f->have[i])) {
            f->need[kept] = f->need[i];
            f->have[kept++] = f->have[i];
        }
    f->n = kept;
    assert(f->n < FRONT);
    f->need[f->n] = need;
    f->have[f->n++] = have;
}

static void add_point(front *f, const walk *w)
{
    int64_t need = 1, have = 1;
    for (int d = 0; d < w->m->rank; d++) {
        int64_t lo[2], hi[2];
        if ((w->dims >> d & 1u) == 0)
            continue;
        for (int l = 0; l < 2; l++) {
            const cut *c = &w->m->cuts[l][d];
            int64_t block = block_at(w, l, d);
            lo[l] = cut_at(c->granules, c->blocks, block) * c->granule;
            hi[l] = cut_at(c->granules, c->blocks, block + 1) * c->granule;
        }
        int64_t low = lo[0] > lo[1] ? lo[0] : lo[1], high = hi[0] < hi[1] ? hi[0] : hi[1];
        need *= hi[0] - lo[0];
        have *= high > low ? high - low : 0;
    }
    front_add(f, need, have);
}

/* The front of the dimensions `dims`, which share no atom with any other. `most` is the largest possible need: a
 * point with that and nothing in hand cannot be beaten. */
static void enumerate(front *f, walk *w)
{
    int64_t most = 1;
    f->n = 0;
    w->n_atoms = 0;
    for (int a = 0; a < w->m->n_atoms; a++)
        if ((w->m->dims[a] & w->dims) != 0) {
            w->at[w->n_atoms] = 0;
            w->atoms[w->n_atoms++] = a;
        }
    for (int d = 0; d < w->m->rank; d++)
        if ((w->dims >> d & 1u) != 0) {
            const cut *c = &w->m->cuts[0][d];
            most *= (c->granules / c->blocks + (c->granules % c->blocks != 0)) * c->granule;
        }
    for (;;) {
        int i = 0;
        add_point(f, w);
        if (f->n == 1 && f->need[0] == most && f->have[0] == 0)
            return;
        for (; i < w->n_atoms && ++w->at[i] == w->m->atom[w->atoms[i]].size; i++)
            w->at[i] = 0;
        if (i == w->n_atoms)
            return;
    }
}

/* Whether what d contributes is the same for all ranks: one layout cuts d further than the other does, and evenly. A
 * rank's blocks then lie inside each other. This is the usual case, and spares the enumeration. */
static bool is_constant(const walk *w, int d)
{
    const clv_subaxis *a, *b;
    const cut *to = &w->m->cuts[0][d], *from = &w->m->cuts[1][d];
    int n = clv_layout_axes(&a, w->layouts[0], d), m = clv_layout_axes(&b, w->layouts[1], d);
    if (to->granules % to->blocks != 0 || from->granules % from->blocks != 0)
        return false;
    if (n == 0 || m == 0)
        return true;
    if (to->granule != from->granule)
        return false;
    for (int i = 0; i < n && i < m; i++) {
        if (a[i].axis != b[i].axis || a[i].pre != b[i].pre)
            return false;
        if (a[i].size != b[i].size) /* the shorter list must end inside the other's sub-axis */
            return a[i].size < b[i].size ? i + 1 == n && b[i].size % a[i].size == 0
                                         : i + 1 == m && a[i].size % b[i].size == 0;
    }
    return true;
}

/* All dimensions connected with d through shared atoms. */
static uint32_t connected(const missing *m, int d)
{
    uint32_t dims = 1u << d, before;
    do {
        before = dims;
        for (int a = 0; a < m->n_atoms; a++)
            if ((m->dims[a] & dims) != 0)
                dims |= m->dims[a];
    } while (dims != before);
    return dims;
}

int64_t clv_layout_missing_elems(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh,
                                 const int64_t *shape)
{
    missing m = {.rank = to->rank};
    walk w = {.layouts = {to, from}, .mesh = mesh, .m = &m, .linear = true};
    front total = {.n = 1, .need = {1}, .have = {1}};
    uint32_t done = 0;
    make_atoms(&m, w.layouts, mesh, &w.linear);
    make_weights(&m, w.layouts, shape);
    for (int d = 0; d < m.rank; d++)
        if (is_constant(&w, d))
            for (int a = 0; a < m.n_atoms; a++)
                m.dims[a] &= ~(1u << d);
    for (int d = 0; d < m.rank; d++) {
        front part, product;
        if ((done >> d & 1u) != 0)
            continue;
        if (is_constant(&w, d)) {
            const cut *a = &m.cuts[0][d], *b = &m.cuts[1][d];
            int64_t need = a->granules / a->blocks * a->granule, have = b->granules / b->blocks * b->granule;
            have = need < have ? need : have;
            for (int i = 0; i < total.n; i++) {
                total.need[i] *= need;
                total.have[i] *= have;
            }
            continue;
        }
        w.dims = connected(&m, d);
        done |= w.dims;
        enumerate(&part, &w);
        product.n = 0;
        for (int i = 0; i < total.n; i++)
            for (int j = 0; j < part.n; j++)
                front_add(&product, total.need[i] * part.need[j], total.have[i] * part.have[j]);
        total = product;
    }
    int64_t most = 0;
    for (int i = 0; i < total.n; i++)
        if (total.need[i] - total.have[i] > most)
            most = total.need[i] - total.have[i];
    return most;
}
