/* reshard_volume.c - reshard volume: max over ranks of elements needed but not held, by branch and bound over mesh
 * axes, not over ranks.
 *
 * |to_r \ from_r| = (product over d of |to_r,d|) - (product over d of |to_r,d * from_r,d|): both shards are boxes.
 *
 * **Variables.** The blocks of a rank depend on its coordinates on pieces of the axes, into which the sub-axes of both
 * layouts divide them. Where sub-axes of an axis do not nest (x:(1)2 and x:(1)3 of 6), the piece on which they cross is
 * one variable, and a sub-axis reads a digit of it.
 *
 * **Common cuts.** Variables that cut a dimension in the same way at the major end of both layouts matter only by how
 * they shift the blocks within an alignment: with m units over k blocks, by rho = i*m mod k, which takes all multiples
 * of gcd(m, k). So all of them are replaced by one variable, rho, in which the sizes of blocks are monotone. The rest
 * of the two lists of sub-axes are the tails.
 *
 * **Search.** Dimensions that share a variable are coupled (an all_to_all cuts one of them by it before and another
 * after). A block has one of two sizes. For each choice of them, branch and bound over ranges of the variables finds
 * the least that a rank can hold of what it needs. It counts the large blocks in a range of indices by the two cuts at
 * its ends. Its time depends on how the cuts of the two layouts fall, hardly on how many there are.
 */
#include "tensor/reshard_volume.h"

#include <math.h>
#include <string.h>

#include "tensor/gcd.h"

enum {
    PIECES = 4 * CLV_MAX_SUBAXES + CLV_MAX_AXES,
    VARIABLES = PIECES + CLV_MAX_RANK, /* and a rho a dimension */
    FRONT = 1 << CLV_MAX_RANK
};

__extension__ typedef __int128 wide;

static int64_t floor_div(wide a, wide b)
{
    if (a >= 0 && a <= UINT32_MAX && b <= UINT32_MAX) /* far faster, and nearly always so */
        return (int64_t)((uint32_t)a / (uint32_t)b);
    if (a >= INT64_MIN && a <= INT64_MAX && b <= INT64_MAX) /* faster, still */
        return (int64_t)a / (int64_t)b - ((int64_t)a % (int64_t)b < 0);
    return (int64_t)(a / b) - (a % b < 0);
}

/* ---- the problem: variables, and the cuts of each dimension in terms of them ---- */

/* A digit of a block index: `variable / post % size`, times `weight` in the index of its tail. */
typedef struct digit {
    int variable;
    int64_t post, size, weight;
} digit;

/* One dimension under one layout. */
typedef struct cut {
    int first, end;    /* the tail: digits [first, end), major to minor */
    int64_t blocks;    /* number of blocks into which the tail cuts a common block */
    int64_t alignment; /* elements of a unit */
    int64_t fine;      /* units of this cut in a unit of the dimension */
    int64_t base;      /* units of the smaller blocks */
    bool even;         /* all blocks are of that size; else some have one unit more */
    bool exact;        /* blocks begin at whole units without rounding */
} cut;

enum { TO, FROM };

/* Block c of a tail begins floor(fine * (rho * blocks + c * m) / (k * blocks)) units after a point that is common to
 * both layouts. */
typedef struct dimension {
    int64_t alignment; /* least common multiple of both alignments */
    int64_t m, k;
    cut cut[2];
    bool to_in_from; /* the block of `to` lies inside the block of `from` */
    bool from_in_to; /* the other way round */
    bool uniform;    /* all ranks need, and hold, the same number of elements of it */
} dimension;

typedef struct problem {
    const clv_mesh *mesh;
    int rank, n_pieces;
    clv_subaxis piece[PIECES]; /* variable i < n_pieces is the coordinate on piece i; n_pieces + d is the rho of d */
    int64_t size[VARIABLES];
    uint32_t dims[VARIABLES]; /* bit d: the variable affects dimension d, which is not uniform */
    digit digits[2][PIECES];
    int n_digits[2];
    dimension dim[CLV_MAX_RANK];
} problem;

/* Lists the factors of an axis at which a sub-axis begins or ends, ascending, including 1 and the size of the axis. */
static int list_boundaries(int64_t *out, const clv_layout *const layouts[2], int axis, int64_t size)
{
    int n = 2, kept = 1;
    out[0] = 1;
    out[1] = size;
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < layouts[l]->begin[layouts[l]->rank]; i++)
            if (layouts[l]->axes[i].axis == axis) {
                out[n++] = layouts[l]->axes[i].pre;
                out[n++] = (int64_t)layouts[l]->axes[i].pre * layouts[l]->axes[i].size;
            }
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && out[j] < out[j - 1]; j--) {
            int64_t swap = out[j];
            out[j] = out[j - 1];
            out[j - 1] = swap;
        }
    for (int i = 1; i < n; i++)
        if (out[i] != out[kept - 1])
            out[kept++] = out[i];
    return kept;
}

/* Whether factor i divides, or is divided by, all others. */
static bool nests_with_all(const int64_t *factors, int n, int i)
{
    bool all = true;
    for (int j = 0; j < n; j++)
        all &= factors[j] <= factors[i] ? factors[i] % factors[j] == 0 : factors[j] % factors[i] == 0;
    return all;
}

static void add_piece(problem *p, int axis, int64_t begin, int64_t end)
{
    if (begin == end)
        return;
    p->size[p->n_pieces] = end / begin;
    p->piece[p->n_pieces++] = (clv_subaxis){axis, (int32_t)begin, (int32_t)(end / begin)};
}

/* Divides the axes into pieces at the factors that nest with all others. Factors that do not lie between their gcd and
 * their least common multiple, which bound the piece of one variable. */
static void split_axes(problem *p, const clv_layout *const layouts[2])
{
    int64_t factors[4 * CLV_MAX_SUBAXES + 2];
    p->n_pieces = 0;
    for (int axis = 0; axis < p->mesh->n_axes; axis++) {
        int n = list_boundaries(factors, layouts, axis, p->mesh->axis[axis].size);
        int64_t begin = 1, divisor = 0, multiple = 1;
        for (int i = 1; i < n; i++) {
            if (!nests_with_all(factors, n, i)) {
                divisor = clv_gcd(divisor, factors[i]);
                multiple = multiple / clv_gcd(multiple, factors[i]) * factors[i];
                continue;
            }
            if (divisor != 0) {
                add_piece(p, axis, begin, divisor);
                add_piece(p, axis, divisor, multiple);
                begin = multiple;
            }
            add_piece(p, axis, begin, factors[i]);
            begin = factors[i];
            divisor = 0;
            multiple = 1;
        }
    }
}

static bool is_whole(const problem *p, const digit *g)
{
    return g->post == 1 && g->size == p->size[g->variable];
}

/* Lists the digits of dimension d under layout l. */
static void make_digits(problem *p, const clv_layout *layout, int l, int d)
{
    cut *c = &p->dim[d].cut[l];
    c->first = p->n_digits[l];
    for (int i = layout->begin[d]; i < layout->begin[d + 1]; i++) {
        clv_subaxis sub = layout->axes[i];
        int64_t sub_end = (int64_t)sub.pre * sub.size;
        for (int v = 0; v < p->n_pieces; v++) {
            int64_t pre = p->piece[v].pre, end = pre * p->piece[v].size;
            int64_t lo = pre > sub.pre ? pre : sub.pre, hi = end < sub_end ? end : sub_end;
            if (p->piece[v].axis == sub.axis && lo < hi)
                p->digits[l][p->n_digits[l]++] = (digit){.variable = v, .post = end / hi, .size = hi / lo};
        }
    }
    c->end = p->n_digits[l];
}

/* Removes the digits that both lists have in common at their major ends; returns the number of blocks that they make.
 * */
static int64_t strip_common(problem *p, int d)
{
    cut *to = &p->dim[d].cut[TO], *from = &p->dim[d].cut[FROM];
    int64_t blocks = 1;
    while (to->first < to->end && from->first < from->end) {
        const digit *a = &p->digits[TO][to->first], *b = &p->digits[FROM][from->first];
        if (a->variable != b->variable || !is_whole(p, a) || !is_whole(p, b))
            break;
        blocks *= a->size;
        to->first++;
        from->first++;
    }
    return blocks;
}

static void make_dimension(problem *p, const clv_layout *const layouts[2], int d, int64_t size)
{
    dimension *dim = &p->dim[d];
    int64_t common = strip_common(p, d), a = layouts[TO]->alignment[d], b = layouts[FROM]->alignment[d];
    dim->alignment = a / clv_gcd(a, b) * b;
    int64_t divisor = clv_gcd(common, size / dim->alignment);
    dim->m = size / dim->alignment / divisor;
    dim->k = common / divisor;
    for (int l = 0; l < 2; l++) {
        cut *c = &dim->cut[l];
        c->blocks = 1;
        for (int i = c->end - 1; i >= c->first; i--) {
            p->digits[l][i].weight = c->blocks;
            c->blocks *= p->digits[l][i].size;
        }
        c->alignment = layouts[l]->alignment[d];
        c->fine = dim->alignment / c->alignment;
        c->base = size / c->alignment / (common * c->blocks);
        c->even = size / c->alignment % (common * c->blocks) == 0;
        c->exact = dim->k == 1 && c->fine * dim->m % c->blocks == 0;
    }
    cut *to = &dim->cut[TO], *from = &dim->cut[FROM];
    dim->to_in_from = from->first == from->end && (a == b || common == 1);
    dim->from_in_to = to->first == to->end && (a == b || common == 1);
    dim->uniform = (dim->to_in_from && to->even) || (dim->from_in_to && from->even);
    p->size[p->n_pieces + d] = dim->k;
    p->dims[p->n_pieces + d] = 1u << d;
    for (int l = 0; l < 2 && !dim->uniform; l++)
        for (int i = dim->cut[l].first; i < dim->cut[l].end; i++)
            p->dims[p->digits[l][i].variable] |= 1u << d;
}

static void make_problem(problem *p, const clv_layout *const layouts[2], const clv_mesh *mesh, const int64_t *shape)
{
    p->mesh = mesh;
    p->rank = layouts[TO]->rank;
    p->n_digits[TO] = p->n_digits[FROM] = 0;
    split_axes(p, layouts);
    for (int v = 0; v < p->n_pieces; v++)
        p->dims[v] = 0;
    for (int d = 0; d < p->rank; d++) {
        make_digits(p, layouts[TO], TO, d);
        make_digits(p, layouts[FROM], FROM, d);
        make_dimension(p, layouts, d, shape[d]);
    }
}

/* Returns the set of dimensions that are coupled with d through shared variables. */
static uint32_t coupled_dims(const problem *p, int d)
{
    uint32_t dims = 1u << d, before;
    do {
        before = dims;
        for (int v = 0; v < p->n_pieces; v++)
            if ((p->dims[v] & dims) != 0)
                dims |= p->dims[v];
    } while (dims != before);
    return dims;
}

/* ---- Pareto fronts of (elements needed, elements held) of coupled dimensions ---- */

typedef struct pareto_front {
    int n;
    int64_t need[FRONT], have[FRONT];
} pareto_front;

/* Adds a pair unless it is dominated: for all N >= H >= 0 that the other dimensions may contribute, need*N - have*H is
 * no larger than another pair's. It suffices to compare H = 0 and H = N. */
static void pareto_add(pareto_front *f, int64_t need, int64_t have)
{
    int kept = 0;
    for (int i = 0; i < f->n; i++)
        if (f->need[i] >= need && f->need[i] - f->have[i] >= need - have)
            return;
    for (int i = 0; i < f->n; i++)
        if (need < f->need[i] || need - have < f->need[i] - f->have[i]) {
            f->need[kept] = f->need[i];
            f->have[kept++] = f->have[i];
        }
    f->n = kept;
    f->need[f->n] = need;
    f->have[f->n++] = have;
}

/* Elements of a small or a large block. */
static int64_t block_size(const cut *c, bool large)
{
    return (c->base + large) * c->alignment;
}

/* ---- search ---- */

typedef struct range {
    int64_t lo, hi;
} range;

typedef struct search {
    const problem *p;
    uint32_t dims;  /* the coupled dimensions */
    uint32_t large; /* those of which a large block is needed */
    int n;
    int variable[VARIABLES]; /* [n] that affect them */
    range at[VARIABLES];     /* by variable */
    int64_t best;            /* the least that a rank holds, so far */
} search;

static range read_digit(const digit *g, range at)
{
    if (g->post == 1 && at.hi < g->size) /* nearly always: the digit is the whole variable */
        return at;
    int64_t lo = at.lo / g->post, hi = at.hi / g->post;
    if (lo / g->size != hi / g->size)
        return (range){0, g->size - 1};
    return (range){lo % g->size, hi % g->size};
}

static range index_range(const problem *p, int l, const cut *c, const range *at)
{
    range index = {0, 0};
    for (int i = c->first; i < c->end; i++) {
        const digit *g = &p->digits[l][i];
        range r = read_digit(g, at[g->variable]);
        index.lo += r.lo * g->weight;
        index.hi += r.hi * g->weight;
    }
    return index;
}

/* Units before block c. */
static int64_t units_before(const dimension *dim, const cut *c, int64_t rho, int64_t block)
{
    return floor_div((wide)c->fine * ((wide)rho * c->blocks + (wide)block * dim->m), (wide)dim->k * c->blocks);
}

/* Sets can_be[large]: whether some block in a range of indices is small, or large, by bounds on the units in the range.
 * */
static void possible_sizes(bool can_be[2], const dimension *dim, const cut *c, range index, range rho)
{
    int64_t count = index.hi - index.lo + 1;
    int64_t most = units_before(dim, c, rho.hi, index.hi + 1) - units_before(dim, c, rho.lo, index.lo);
    int64_t least = most;
    if (rho.lo != rho.hi) {
        int64_t rounded = units_before(dim, c, 0, count); /* for every rho it is this or one more */
        least = units_before(dim, c, rho.lo, index.hi + 1) - units_before(dim, c, rho.hi, index.lo);
        least = least > rounded ? least : rounded;
        most = most < rounded + 1 ? most : rounded + 1;
    }
    can_be[false] = least < count * (c->base + 1);
    can_be[true] = most > count * c->base;
}

/* Bounds how far the tail index of `to` is ahead of that of `from`: the range of
 * (index of to) * (blocks of from) - (index of from) * (blocks of to). A variable that both read counts once. */
static range index_lead(const problem *p, const dimension *dim, const range *at)
{
    const cut *to = &dim->cut[TO], *from = &dim->cut[FROM];
    range sum = {0, 0};
    for (int l = 0; l < 2; l++)
        for (int i = dim->cut[l].first; i < dim->cut[l].end; i++) {
            const digit *g = &p->digits[l][i], *twin = NULL;
            const cut *other = l == TO ? from : to;
            for (int j = other->first; j < other->end && is_whole(p, g); j++)
                if (p->digits[!l][j].variable == g->variable)
                    twin = &p->digits[!l][j];
            if (twin != NULL && l == FROM)
                continue;
            int64_t step = (l == TO ? 1 : -1) * g->weight * other->blocks;
            step -= twin != NULL ? twin->weight * to->blocks : 0;
            range r = read_digit(g, at[g->variable]);
            sum.lo += step * (step > 0 ? r.lo : r.hi);
            sum.hi += step * (step > 0 ? r.hi : r.lo);
        }
    return sum;
}

/* Bounds from below by how much the block of layout l ends after the block of the other layout begins. `ahead`: the
 * lead of the end over the begin, as index_lead counts. */
static int64_t min_overlap(const dimension *dim, int l, int64_t ahead, range index, range other_index, range rho)
{
    const cut *c = &dim->cut[l], *other = &dim->cut[!l];
    int64_t unit = clv_gcd(c->alignment, other->alignment);
    int64_t by_ends = units_before(dim, c, rho.lo, index.lo + 1) * c->alignment -
                      units_before(dim, other, rho.hi, other_index.hi) * other->alignment;
    wide reach = (wide)ahead * dim->alignment * dim->m, scale = (wide)dim->k * c->blocks * other->blocks;
    int64_t by_lead = c->exact ? -floor_div(-reach, scale * unit) * unit
                               : (floor_div(floor_div(reach, scale) - c->alignment, unit) + 1) * unit;
    return by_ends > by_lead ? by_ends : by_lead;
}

/* Bounds from below what a rank holds of the block of dimension d that it needs, of the size that s->large says, with
 * variables in these ranges; -1: no rank needs such a block. Exact where each range is a single value. */
static int64_t min_held(const search *s, int d, const range *at)
{
    const problem *p = s->p;
    const dimension *dim = &p->dim[d];
    const cut *to = &dim->cut[TO], *from = &dim->cut[FROM];
    bool large = (s->large >> d & 1u) != 0, can_be[2];
    if (dim->to_in_from && to->even) /* uniform: the variables of its digits have no ranges */
        return block_size(to, false);
    range rho = at[p->n_pieces + d], needed = index_range(p, TO, to, at);
    possible_sizes(can_be, dim, to, needed, rho);
    if (!can_be[large])
        return -1;
    int64_t least = block_size(to, large);
    if (dim->to_in_from)
        return least;
    if (dim->from_in_to && from->even)
        return block_size(from, false);
    range available = index_range(p, FROM, from, at);
    possible_sizes(can_be, dim, from, available, rho);
    int64_t smallest = block_size(from, !can_be[false]);
    if (dim->from_in_to)
        return smallest;
    range ahead = index_lead(p, dim, at);
    int64_t after = min_overlap(dim, TO, ahead.lo + from->blocks, needed, available, rho);
    int64_t before = min_overlap(dim, FROM, to->blocks - ahead.hi, available, needed, rho);
    least = smallest < least ? smallest : least;
    least = after < least ? after : least;
    least = before < least ? before : least;
    return least > 0 ? least : 0;
}

/* The product of min_held over the dimensions; -1: no rank needs such blocks. */
static int64_t bound(const search *s, const range *at)
{
    int64_t have = 1;
    for (int d = 0; d < s->p->rank; d++)
        if ((s->dims >> d & 1u) != 0) {
            int64_t least = min_held(s, d, at);
            if (least < 0)
                return -1;
            have *= least;
        }
    return have;
}

/* Tries one rank, with all variables at one end of their ranges. */
static void try_end(search *s, bool high)
{
    range at[VARIABLES];
    for (int i = 0; i < s->n; i++) {
        int v = s->variable[i];
        int64_t value = high ? s->at[v].hi : s->at[v].lo;
        at[v] = (range){value, value};
    }
    int64_t have = bound(s, at);
    if (have >= 0 && have < s->best)
        s->best = have;
}

/* The share of a dimension by which a variable, in its range, can shift blocks: the largest over all cuts. */
static double max_shift(const search *s, int v)
{
    const problem *p = s->p;
    double most = 0, width = (double)(s->at[v].hi - s->at[v].lo);
    if (v >= p->n_pieces)
        return width / fmax((double)p->dim[v - p->n_pieces].m, 1);
    for (int d = 0; d < p->rank && width > 0; d++)
        for (int l = 0; l < 2 && (p->dims[v] >> d & 1u) != 0; l++) {
            const cut *c = &p->dim[d].cut[l];
            for (int i = c->first; i < c->end; i++)
                if (p->digits[l][i].variable == v)
                    most = fmax(most, width * (double)p->digits[l][i].weight / (double)c->blocks);
        }
    return most;
}

/* Returns the variable to split: the one that shifts blocks most; -1: each range is a single value. */
static int split_variable(const search *s)
{
    int v = -1;
    double widest = 0;
    for (int i = 0; i < s->n; i++) {
        double shift = max_shift(s, s->variable[i]);
        if (shift > widest) {
            widest = shift;
            v = s->variable[i];
        }
    }
    return v;
}

/* Lowers s->best to the least that some rank holds, if that is less. `least` is the bound of the current ranges, >= 0.
 * */
static void descend(search *s, int64_t least)
{
    if (least >= s->best)
        return;
    try_end(s, false);
    try_end(s, true);
    int v = least < s->best ? split_variable(s) : -1;
    if (v < 0)
        return;
    range *at = &s->at[v], whole = *at;
    int64_t middle = whole.lo + (whole.hi - whole.lo) / 2, bounds[2];
    const range half[2] = {{whole.lo, middle}, {middle + 1, whole.hi}};
    for (int i = 0; i < 2; i++) {
        *at = half[i];
        bounds[i] = bound(s, s->at);
    }
    for (int turn = 0; turn < 2; turn++) { /* the better half first */
        int i = bounds[1] >= 0 && (bounds[0] < 0 || bounds[1] < bounds[0]) ? !turn : turn;
        *at = half[i];
        if (bounds[i] >= 0)
            descend(s, bounds[i]);
    }
    *at = whole;
}

static void list_variables(search *s)
{
    const problem *p = s->p;
    s->n = 0;
    for (int v = 0; v < p->n_pieces + p->rank; v++)
        if ((p->dims[v] & s->dims) != 0) {
            s->variable[s->n++] = v;
            s->at[v] = (range){0, p->size[v] - 1};
        }
}

/* Computes the front of coupled dimensions: for each choice of large and small blocks, the least that a rank holds. */
static void search_dims(pareto_front *f, const problem *p, uint32_t dims)
{
    search s = {.p = p, .dims = dims};
    uint32_t uneven = 0;
    list_variables(&s);
    for (int d = 0; d < p->rank; d++)
        if ((dims >> d & 1u) != 0 && !p->dim[d].cut[TO].even)
            uneven |= 1u << d;
    s.large = uneven;
    for (;;) {
        int64_t need = 1, beaten = -1;
        for (int d = 0; d < p->rank; d++)
            need *= (dims >> d & 1u) != 0 ? block_size(&p->dim[d].cut[TO], (s.large >> d & 1u) != 0) : 1;
        for (int i = 0; i < f->n; i++)
            if (f->need[i] >= need && f->need[i] - f->have[i] > beaten)
                beaten = f->need[i] - f->have[i];
        int64_t worse = need - beaten; /* as much or more is dominated */
        s.best = worse;
        int64_t least = bound(&s, s.at);
        if (least >= 0)
            descend(&s, least);
        if (s.best < worse)
            pareto_add(f, need, s.best);
        if (s.large == 0)
            return;
        s.large = (s.large - 1) & uneven;
    }
}

/* The common cases of one dimension d in closed form. */
static void dims_front(pareto_front *f, const problem *p, uint32_t dims, int d)
{
    const cut *to = &p->dim[d].cut[TO], *from = &p->dim[d].cut[FROM];
    bool single = dims == 1u << d, divides = single && p->dim[d].from_in_to;
    for (int i = from->first; i < from->end && divides; i++)
        divides = is_whole(p, &p->digits[FROM][i]);
    f->n = 0;
    if (single && p->dim[d].to_in_from)
        pareto_add(f, block_size(to, !to->even), block_size(to, !to->even));
    else if (!divides)
        search_dims(f, p, dims);
    else
        for (int large = 0; large <= !to->even; large++) {
            int64_t need = block_size(to, large); /* blocks of `from` in it are all large only if it has enough units */
            pareto_add(f, need, block_size(from, need / from->alignment / from->blocks > from->base));
        }
}

int64_t clv_max_received_elems(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh, const int64_t *shape)
{
    int64_t even = clv_max_received_elems_even(to, from, shape);
    if (even >= 0)
        return even;
    problem p;
    pareto_front total = {.n = 1, .need = {1}, .have = {1}}, part, product;
    uint32_t done = 0;
    int64_t most = 0;
    make_problem(&p, (const clv_layout *[2]){to, from}, mesh, shape);
    for (int d = 0; d < p.rank; d++) {
        if ((done >> d & 1u) != 0)
            continue;
        uint32_t dims = coupled_dims(&p, d);
        done |= dims;
        dims_front(&part, &p, dims, d);
        product.n = 0;
        for (int i = 0; i < total.n; i++)
            for (int j = 0; j < part.n; j++)
                pareto_add(&product, total.need[i] * part.need[j], total.have[i] * part.have[j]);
        total.n = product.n;
        memcpy(total.need, product.need, (size_t)product.n * sizeof *product.need);
        memcpy(total.have, product.have, (size_t)product.n * sizeof *product.have);
    }
    for (int i = 0; i < total.n; i++)
        if (total.need[i] - total.have[i] > most)
            most = total.need[i] - total.have[i];
    return most;
}

int64_t clv_layout_max_received_elems(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh,
                                      const int64_t *shape)
{
    if (clv_layout_check(to, mesh, NULL, NULL) != CLV_OK || clv_layout_check(from, mesh, NULL, NULL) != CLV_OK ||
        to->rank != from->rank || (!shape && to->rank > 0))
        return 0;
    return clv_max_received_elems(to, from, mesh, shape);
}

static bool same_partial(const clv_layout *a, const clv_layout *b)
{
    const clv_subaxis *x, *y;
    int n = clv_layout_axes(&x, a, a->rank), m = clv_layout_axes(&y, b, b->rank);
    return a->reduction == b->reduction && n == m && (n == 0 || memcmp(x, y, (size_t)n * sizeof *x) == 0);
}

bool clv_layout_same_shards(const clv_layout *a, const clv_layout *b, const clv_mesh *mesh, const int64_t *shape)
{
    if (!a || !b || !mesh || (!shape && a->rank > 0))
        return false;
    if (clv_layout_check(a, mesh, NULL, NULL) != CLV_OK || clv_layout_check(b, mesh, NULL, NULL) != CLV_OK)
        return false;
    if (a->rank != b->rank || a->stages != b->stages || !same_partial(a, b))
        return false;
    return clv_layout_equal(a, b) ||
           (clv_max_received_elems(a, b, mesh, shape) == 0 && clv_max_received_elems(b, a, mesh, shape) == 0);
}
