/* reshard_volume.c - reshard volume: max over ranks of elements needed but not held, by branch and bound over mesh
 * axes, not over ranks.
 *
 * |to_r \ from_r| = (product over d of |to_r,d|) - (product over d of |to_r,d * from_r,d|): both shards are boxes.
 *
 * **Variables.** A rank's blocks depend on its coordinates on the pieces into which the cuts of both layouts divide the
 * axes. Where the cuts of an axis do not nest (x:(1)2 and x:(1)3 of 6), the piece on which they cross is one variable,
 * of which a sub-axis reads a digit.
 *
 * **What is common.** Variables that cut a dimension alike at the major end in both layouts matter only by where in a
 * alignment they put the blocks: with m units over k blocks, by rho = i*m mod k, which takes all multiples of
 * gcd(m, k). So all of them are one variable, rho, and the sizes of blocks are monotone in it. What is left of the
 * two lists are the tails.
 *
 * **Closed forms.** With no tail in `from`, a rank has what it needs; with none in `to` the blocks of `from` divide one
 * of `to`, and the smallest of s blocks that divide t units follows from t and s.
 *
 * **Search.** Dimensions that share a variable are coupled (an all_to_all cuts one by it before and the other after). A
 * block has one of two sizes; for each choice of them, branch and bound over ranges of variables finds the least that
 * a rank can have. It counts blocks of a size in a range of indices by the two cuts at its ends, so that it goes
 * where there are some; how long it takes depends on how the cuts of the two layouts fall, hardly on how many.
 */
#include "tensor/reshard_volume.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tensor/modular_arithmetic.h"

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

/* -- the problem: variables, and each dimension's cuts in them -- */

/* A part of an index: `value of variable / post % size`. `weight`: what a step of it adds to the index in its tail. */
typedef struct digit {
    int variable;
    int64_t post, size, weight;
} digit;

/* One dimension under one layout. */
typedef struct cut {
    int first, end;          /* the tail: digits [first, end), major to minor */
    int64_t blocks;          /* into which the tail cuts a common block */
    int64_t alignment, fine; /* its alignment, and how many of it make a common one */
    int64_t base;            /* units of the smaller blocks */
    bool even;               /* else some blocks have one unit more */
    bool exact;              /* nothing is rounded where blocks begin */
} cut;

enum { TO, FROM };

/* Block c of a tail begins fine * (rho * blocks + c * m) / (k * blocks) units, rounded down, after a point that is
 * common to both layouts. */
typedef struct dimension {
    int64_t alignment; /* a multiple of both alignments */
    int64_t m, k;
    cut cut[2];
    bool nested;   /* the block of `to` lies inside that of `from` */
    bool inside;   /* the other way round */
    bool constant; /* all ranks need the same and have the same of it */
} dimension;

typedef struct problem {
    const clv_mesh *mesh;
    int rank, n_pieces;
    clv_subaxis piece[PIECES]; /* variable i < n_pieces is the coordinate on it; n_pieces + d is the rho of d */
    int64_t size[VARIABLES];
    uint32_t dims[VARIABLES]; /* bit d: variable matters to dimension d, which is not constant */
    digit digits[2][PIECES];
    int n_digits[2];
    dimension dim[CLV_MAX_RANK];
} problem;

/* The factors of an axis at which some cut begins or ends, ascending; 1 and the axis' size included. */
static int boundaries(int64_t *out, const clv_layout *const layouts[2], int axis, int64_t size)
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

static bool nests(const int64_t *factors, int n, int i)
{
    bool all = true;
    for (int j = 0; j < n; j++)
        all &= factors[j] <= factors[i] ? factors[i] % factors[j] == 0 : factors[j] % factors[i] == 0;
    return all;
}

static void add_factor(problem *p, int axis, int64_t begin, int64_t end)
{
    if (begin == end)
        return;
    p->size[p->n_pieces] = end / begin;
    p->piece[p->n_pieces++] = (clv_subaxis){axis, (int32_t)begin, (int32_t)(end / begin)};
}

/* Pieces end where every cut nests. Those that do not lie between their common divisor and their common multiple. */
static void split_axes(problem *p, const clv_layout *const layouts[2])
{
    int64_t factors[4 * CLV_MAX_SUBAXES + 2];
    p->n_pieces = 0;
    for (int axis = 0; axis < p->mesh->n_axes; axis++) {
        int n = boundaries(factors, layouts, axis, p->mesh->axis[axis].size);
        int64_t begin = 1, divisor = 0, multiple = 1;
        for (int i = 1; i < n; i++) {
            if (!nests(factors, n, i)) {
                divisor = clv_gcd(divisor, factors[i]);
                multiple = multiple / clv_gcd(multiple, factors[i]) * factors[i];
                continue;
            }
            if (divisor != 0) {
                add_factor(p, axis, begin, divisor);
                add_factor(p, axis, divisor, multiple);
                begin = multiple;
            }
            add_factor(p, axis, begin, factors[i]);
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

/* The digits of dimension d under layout l. */
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

/* Takes what is common to the two lists off their major ends; returns into how many blocks it cuts the dimension. */
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
    dim->nested = from->first == from->end && (a == b || common == 1);
    dim->inside = to->first == to->end && (a == b || common == 1);
    dim->constant = (dim->nested && to->even) || (dim->inside && from->even);
    p->size[p->n_pieces + d] = dim->k;
    p->dims[p->n_pieces + d] = 1u << d;
    for (int l = 0; l < 2 && !dim->constant; l++)
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

/* All dimensions connected with d through shared variables. */
static uint32_t connected(const problem *p, int d)
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

/* -- fronts: what the dimensions of a part can contribute -- */

typedef struct pareto_front {
    int n;
    int64_t need[FRONT];
    int64_t have[FRONT];
} pareto_front;

/* Adds a pair unless another is as good: whatever N >= H >= 0 the other dimensions contribute, need*N - have*H is no
 * larger. That is so for all of them if it is for H = 0 and H = N. */
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

/* Elements of the smaller blocks, or of those with a unit more. */
static int64_t block_size(const cut *c, bool large)
{
    return (c->base + large) * c->alignment;
}

/* Every block of `to` that has t units of `from` is cut into all `blocks` of them: some are small unless t is enough
 * for all to be large. */
static void divided_block(pareto_front *f, const dimension *dim)
{
    const cut *to = &dim->cut[TO], *from = &dim->cut[FROM];
    for (int large = 0; large <= !to->even; large++) {
        int64_t need = block_size(to, large);
        pareto_add(f, need, block_size(from, need / from->alignment / from->blocks > from->base));
    }
}

/* -- search -- */

typedef struct range {
    int64_t lo, hi;
} range;

typedef struct search {
    const problem *p;
    uint32_t dims, large; /* the dimensions of this part; those of which a large block is needed */
    int n;
    int variable[VARIABLES]; /* that matter to them */
    range at[VARIABLES];     /* by variable */
    int64_t best;
    int64_t steps; /* ranges that were looked at */
} search;

static range read_digit(const digit *g, range at)
{
    if (g->post == 1 && at.hi < g->size) /* as it is nearly always: the whole of its variable */
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

/* Whether blocks in a range of indices can be large, and small. There are at most, and at least, so many units in
 * them. */
static void sizes_in(bool can_be[2], const dimension *dim, const cut *c, range index, range rho)
{
    int64_t count = index.hi - index.lo + 1;
    int64_t most = units_before(dim, c, rho.hi, index.hi + 1) - units_before(dim, c, rho.lo, index.lo);
    int64_t least = most;
    if (rho.lo != rho.hi) {
        int64_t rounded = units_before(dim, c, 0, count); /* it is so many or one more, whatever rho is */
        least = units_before(dim, c, rho.lo, index.hi + 1) - units_before(dim, c, rho.hi, index.lo);
        least = least > rounded ? least : rounded;
        most = most < rounded + 1 ? most : rounded + 1;
    }
    can_be[false] = least < count * (c->base + 1);
    can_be[true] = most > count * c->base;
}

/* How far the tail index of `to` lies before that of `from`: the least and the most of
 * (index of to) * (blocks of from) - (index of from) * (blocks of to). Variables that both read count once. */
static range lead(const problem *p, const dimension *dim, const range *at)
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

/* The least by which the block of `a` can end after the block of the other layout begins, of which both ends are
 * multiples of the alignments' common divisor. `ahead`: at least so much, as lead() counts. */
static int64_t least_reach(const dimension *dim, int l, int64_t ahead, range index, range other_index, range rho)
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

/* The least that a rank can have of a dimension, of which it needs a block of the wanted size, with variables in these
 * ranges; -1 if no rank needs such a block. What it is if each range is a single value. */
static int64_t least_have(const search *s, int d, const range *at)
{
    const problem *p = s->p;
    const dimension *dim = &p->dim[d];
    const cut *to = &dim->cut[TO], *from = &dim->cut[FROM];
    bool large = (s->large >> d & 1u) != 0, can_be[2];
    range rho = at[p->n_pieces + d], needed = index_range(p, TO, to, at);
    sizes_in(can_be, dim, to, needed, rho);
    if (!can_be[large])
        return -1;
    int64_t least = block_size(to, large);
    if (dim->nested)
        return least;
    range held = index_range(p, FROM, from, at);
    sizes_in(can_be, dim, from, held, rho);
    int64_t smallest = block_size(from, !can_be[false]);
    if (dim->inside)
        return smallest;
    range ahead = lead(p, dim, at);
    int64_t after = least_reach(dim, TO, ahead.lo + from->blocks, needed, held, rho);
    int64_t before = least_reach(dim, FROM, to->blocks - ahead.hi, held, needed, rho);
    least = smallest < least ? smallest : least;
    least = after < least ? after : least;
    least = before < least ? before : least;
    return least > 0 ? least : 0;
}

static int64_t bound(const search *s, const range *at)
{
    int64_t have = 1;
    for (int d = 0; d < s->p->rank; d++)
        if ((s->dims >> d & 1u) != 0) {
            int64_t least = least_have(s, d, at);
            if (least < 0)
                return -1;
            have *= least;
        }
    return have;
}

/* Tries one rank: with all variables at one end of their ranges. */
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

/* Of all blocks, in how many ranks out of one they are large. */
static double large_share(const dimension *dim, const cut *c)
{
    return (double)c->fine * (double)dim->m / ((double)dim->k * (double)c->blocks) - (double)c->base;
}

/* What decides is split first: rho, once it is all that decides on the size of a block. */
static bool rho_decides(const search *s, int d)
{
    for (int l = 0; l < 2; l++) {
        bool can_be[2];
        const cut *c = &s->p->dim[d].cut[l];
        range index = index_range(s->p, l, c, s->at), rho = s->at[s->p->n_pieces + d];
        sizes_in(can_be, &s->p->dim[d], c, index, rho);
        if (index.lo == index.hi && rho.lo < rho.hi && can_be[false] && can_be[true])
            return true;
    }
    return false;
}

/* By what share of all that is cut a variable, in its range, can shift blocks: the most of all cuts. */
static double spread(const search *s, int v)
{
    const problem *p = s->p;
    double most = 0, width = (double)(s->at[v].hi - s->at[v].lo);
    if (v >= p->n_pieces)
        return rho_decides(s, v - p->n_pieces) ? 2 : width / fmax((double)p->dim[v - p->n_pieces].m, 1);
    for (int d = 0; d < p->rank && width > 0; d++)
        for (int l = 0; l < 2 && (p->dims[v] >> d & 1u) != 0; l++) {
            const cut *c = &p->dim[d].cut[l];
            for (int i = c->first; i < c->end; i++)
                if (p->digits[l][i].variable == v)
                    most = fmax(most, width * (double)p->digits[l][i].weight / (double)c->blocks);
        }
    return most;
}

/* The variable to split, or -1. Where blocks of the wanted size are rare, most major first, for where those are is
 * known of ranges of indices; else what moves blocks most. */
static int split_variable(const search *s)
{
    const problem *p = s->p;
    int v = -1;
    double rarest = 0.25, widest = 0;
    for (int d = 0; d < p->rank; d++) {
        const cut *c = &p->dim[d].cut[TO];
        bool large = (s->large >> d & 1u) != 0, can_be[2];
        if ((s->dims >> d & 1u) == 0 || c->even)
            continue;
        double share = large_share(&p->dim[d], c);
        share = large ? share : 1 - share;
        sizes_in(can_be, &p->dim[d], c, index_range(p, TO, c, s->at), s->at[p->n_pieces + d]);
        for (int i = c->first - 1; i < c->end && share < rarest && can_be[!large]; i++) {
            int variable = i < c->first ? p->n_pieces + d : p->digits[TO][i].variable;
            if (s->at[variable].lo < s->at[variable].hi) {
                rarest = share;
                v = variable;
            }
        }
    }
    for (int i = 0; i < s->n && rarest == 0.25; i++) {
        double width = spread(s, s->variable[i]);
        if (width > widest) {
            widest = width;
            v = s->variable[i];
        }
    }
    return v;
}

/* Lowers `best` to the least that some rank has, if that is less. `least` is the bound, >= 0. */
static void descend(search *s, int64_t least)
{
    s->steps++;
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

/* How many values of a variable differ in what they do. Where a block of one layout lies in a block of the other
 * whatever the variable is, it only shifts the units that are rounded, and that repeats. */
static int64_t distinct_values(const problem *p, int v)
{
    int64_t period = 1, size = p->size[v];
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < p->n_digits[l]; i++) {
            const digit *g = &p->digits[l][i];
            int d = 0;
            while (d < p->rank && !(i >= p->dim[d].cut[l].first && i < p->dim[d].cut[l].end))
                d++;
            if (g->variable != v || d == p->rank || (p->dims[v] >> d & 1u) == 0)
                continue;
            const dimension *dim = &p->dim[d];
            if (!is_whole(p, g) || !(dim->nested || dim->inside))
                return size;
            int64_t scale = dim->k * dim->cut[l].blocks, step = (int64_t)((wide)g->weight * dim->m % scale);
            int64_t one = scale / clv_gcd(step, scale);
            if (one > size)
                return size;
            period = period / clv_gcd(period, one) * one;
            if (period >= size)
                return size;
        }
    return period;
}

/* The usual all_to_all of one variable: `to` cuts dimension a by it alone and `from` dimension b, each without the
 * other. A rank with a large block of a that has a small one of b lacks most. */
static bool is_exchange(const problem *p, uint32_t dims, int *a, int *b)
{
    int n = 0;
    *a = *b = -1;
    for (int d = 0; d < p->rank; d++) {
        const dimension *dim = &p->dim[d];
        if ((dims >> d & 1u) == 0)
            continue;
        n++;
        if (dim->nested && dim->k == 1 && dim->cut[TO].end == dim->cut[TO].first + 1)
            *a = d;
        else if (dim->inside && dim->k == 1 && dim->cut[FROM].end == dim->cut[FROM].first + 1)
            *b = d;
    }
    return n == 2 && *a >= 0 && *b >= 0 && is_whole(p, &p->digits[TO][p->dim[*a].cut[TO].first]) &&
           is_whole(p, &p->digits[FROM][p->dim[*b].cut[FROM].first]);
}

static void exchange_front(pareto_front *f, const problem *p, int a, int b)
{
    const cut *to = &p->dim[a].cut[TO], *from = &p->dim[b].cut[FROM];
    int64_t whole = block_size(&p->dim[b].cut[TO], false), large = block_size(to, true), small = block_size(to, false);
    if (clv_uneven_blocks_meet(p->dim[a].m, p->dim[b].m, to->blocks)) {
        pareto_add(f, large * whole, large * block_size(from, false));
    } else { /* where a block of a is large, that of b is too */
        pareto_add(f, large * whole, large * block_size(from, true));
        pareto_add(f, small * whole, small * block_size(from, false));
    }
}

static void list_variables(search *s)
{
    const problem *p = s->p;
    s->n = 0;
    for (int v = 0; v < p->n_pieces + p->rank; v++)
        if ((p->dims[v] & s->dims) != 0) {
            s->variable[s->n++] = v;
            s->at[v] = (range){0, (v < p->n_pieces ? distinct_values(p, v) : p->size[v]) - 1};
        }
}

/* For each choice of large and small blocks, what a rank has at least. Returns how many steps it took. */
static int64_t search_part(pareto_front *f, const problem *p, uint32_t dims)
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
        int64_t worse = need - beaten; /* of no interest, as pareto_add knows */
        s.best = worse;
        int64_t least = bound(&s, s.at);
        if (least >= 0)
            descend(&s, least);
        if (s.best < worse)
            pareto_add(f, need, s.best);
        if (s.large == 0)
            return s.steps;
        s.large = (s.large - 1) & uneven;
    }
}

static int64_t part_front(pareto_front *f, const problem *p, uint32_t dims, int d)
{
    const dimension *dim = &p->dim[d];
    const cut *to = &dim->cut[TO], *from = &dim->cut[FROM];
    bool alone = dims == 1u << d, plain = alone && dim->inside;
    int a, b;
    for (int i = from->first; i < from->end && plain; i++)
        plain = is_whole(p, &p->digits[FROM][i]);
    f->n = 0;
    if (alone && dim->nested)
        pareto_add(f, block_size(to, !to->even), block_size(to, !to->even));
    else if (dim->constant)
        pareto_add(f, block_size(to, false), block_size(from, false));
    else if (plain)
        divided_block(f, dim);
    else if (is_exchange(p, dims, &a, &b))
        exchange_front(f, p, a, b);
    else
        return search_part(f, p, dims);
    return 0;
}

int64_t clv_max_received_elems_counted(int64_t *steps, const clv_layout *to, const clv_layout *from,
                                       const clv_mesh *mesh, const int64_t *shape)
{
    int64_t even = clv_max_received_elems_even(to, from, shape);
    *steps = 0;
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
        uint32_t dims = connected(&p, d);
        done |= dims;
        *steps += part_front(&part, &p, dims, d);
        product.n = 0;
        for (int i = 0; i < total.n; i++)
            for (int j = 0; j < part.n; j++)
                pareto_add(&product, total.need[i] * part.need[j], total.have[i] * part.have[j]);
        total.n = product.n;
        for (int i = 0; i < product.n; i++) {
            total.need[i] = product.need[i];
            total.have[i] = product.have[i];
        }
    }
    for (int i = 0; i < total.n; i++)
        if (total.need[i] - total.have[i] > most)
            most = total.need[i] - total.have[i];
    return most;
}

int64_t clv_max_received_elems(const clv_layout *to, const clv_layout *from, const clv_mesh *mesh, const int64_t *shape)
{
    int64_t steps;
    return clv_max_received_elems_counted(&steps, to, from, mesh, shape);
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
    if (a->rank != b->rank || !same_partial(a, b))
        return false;
    return clv_layout_equal(a, b) ||
           (clv_max_received_elems(a, b, mesh, shape) == 0 && clv_max_received_elems(b, a, mesh, shape) == 0);
}
