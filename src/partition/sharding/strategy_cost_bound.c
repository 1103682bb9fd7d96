/* strategy_cost_bound.c - lower bounds on the cost of partly decided strategies, for branch and bound. */
#include "partition/sharding/strategy_cost_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/operand_checks.h"
#include "tensor/reshard_volume.h"

/* Effects of a choice on a tensor, besides sharding one of its dimensions. */
enum {
    CUTS_NOTHING = -1, /* the tensor is replicated */
    CUTS_UNKNOWN = -2, /* it depends on other sub-axes: a factor with an overflow */
    MAKES_PARTIAL = -3 /* the result is partial */
};

/* ---- terms and layouts of a space ---- */

static void read_layout(clv_cost_bound_layout *out, const clv_layout *layout, const clv_type *type,
                        const clv_strategy_space *space)
{
    memset(out, 0, sizeof *out);
    memset(out->dim, CUTS_NOTHING, sizeof out->dim);
    out->rank = layout->rank;
    for (int d = 0; d <= layout->rank; d++) {
        const clv_subaxis *axes;
        int n = clv_layout_axes(&axes, layout, d);
        for (int i = 0; i < n; i++)
            for (int a = 0; a < space->n_subaxes; a++) {
                if (d == layout->rank && clv_subaxis_contains(axes[i], space->subaxis[a]))
                    out->partial |= 1u << a;
                else if (d < layout->rank && clv_subaxis_overlap(axes[i], space->subaxis[a]))
                    out->dim[a] = (int8_t)(clv_subaxis_contains(axes[i], space->subaxis[a]) ? d : CUTS_UNKNOWN);
            }
        if (d == layout->rank)
            continue;
        int64_t blocks = clv_layout_block_count(layout, d);
        out->blocks[d] = (double)blocks;
        int64_t units = type->shape[d] / layout->alignment[d];
        out->imbalance[d] = units > 0 ? (double)((units + blocks - 1) / blocks * blocks) / (double)units : 1;
    }
}

/* A factor may leave sub-axes to its overflow factor: then both dimensions count. */
static int dim_of_choice(const clv_rule *rule, const clv_dim_factors *dims, int rank, int choice)
{
    if (choice < 0)
        return CUTS_NOTHING;
    int d = clv_projection_dim_of_factor(dims, rank, choice), overflow = rule->factor[choice].overflow;
    return overflow < 0 || clv_projection_dim_of_factor(dims, rank, overflow) == d ? d : CUTS_UNKNOWN;
}

static bool passes_through(const clv_strategy_problem *p, int i)
{
    return p->rule.passes_max || (p->rule.linear >> i & 1u);
}

/* 0 for choices that do not shard the tensor. A factor with an overflow shards by both. */
static uint8_t way_of_choice(const clv_rule *rule, const clv_dim_factors *dims, int rank, int choice)
{
    if (choice < 0)
        return 0;
    int overflow = rule->factor[choice].overflow;
    bool cuts = clv_projection_dim_of_factor(dims, rank, choice) >= 0 ||
                (overflow >= 0 && clv_projection_dim_of_factor(dims, rank, overflow) >= 0);
    return (uint8_t)(cuts ? choice + 1 : 0);
}

static void read_choices(clv_cost_bound_term *term, const clv_strategy_space *space, const clv_dim_factors *dims,
                         int rank)
{
    const clv_rule *rule = &space->problem->rule;
    for (int c = CLV_CHOICE_PARTIAL; c < rule->n_factors; c++) {
        int d = dim_of_choice(rule, dims, rank, c);
        bool sums = term->result && (c == CLV_CHOICE_PARTIAL || (c >= 0 && d == CUTS_NOTHING));
        term->cuts[c + 2] = (int8_t)(sums ? MAKES_PARTIAL : d);
        term->way[c + 2] = way_of_choice(rule, dims, rank, c);
    }
    for (int a = 0; a < space->n_subaxes; a++)
        for (int i = 0; i < space->n_choices[a]; i++) {
            int c = space->choice[a][i], d = term->cuts[c + 2];
            term->may_cut |= (uint32_t)(d >= 0 || d == CUTS_UNKNOWN) << a;
            term->may_pass |= (uint32_t)(c == CLV_CHOICE_PARTIAL) << a;
            term->may_cut_dims[a] |= (uint8_t)(d >= 0 ? 1u << d : d == CUTS_UNKNOWN ? 0xffu : 0);
        }
    for (int d = 0; d < rank; d++)
        term->alignment[d] = dims[d].n == 1 ? space->context.alignment[(int)dims[d].factor[0]] : 0;
}

clv_status clv_cost_bound_make(clv_cost_bound *out, const clv_strategy_space *space, clv_error *err)
{
    const clv_strategy_problem *p = space->problem;
    size_t n = 0;
    memset(out, 0, sizeof *out);
    out->space = space;
    out->ranks = (double)clv_mesh_rank_count(p->mesh);
    out->intra_host = 1;
    for (int a = 0; a < p->mesh->n_axes; a++)
        out->intra_host *= (double)clv_cost_ranks_sharing_host(p->cost, clv_mesh_whole_axis(p->mesh, a));
    for (int a = 0; a < space->n_subaxes; a++)
        out->inter_host[a] =
            (double)space->subaxis[a].size / (double)clv_cost_ranks_sharing_host(p->cost, space->subaxis[a]);
    for (int i = 0; i < p->op->n_in; i++)
        n += (size_t)p->n_available[i];
    out->layouts = malloc((n + CLV_MAX_OUT) * sizeof *out->layouts);
    if (!out->layouts)
        return clv_fail_memory(err, "bounds of a search", (n + CLV_MAX_OUT) * sizeof *out->layouts);
    n = 0;
    for (int i = 0; i < p->op->n_in; i++) {
        if (p->op->in[i] == 0)
            continue;
        clv_cost_bound_term *term = &out->term[out->n_terms++];
        *term = (clv_cost_bound_term){.id = i, .first = (int)n};
        read_choices(term, space, p->rule.in[i], p->in[i].rank);
        if (!passes_through(p, i))
            term->may_pass = 0;
        for (; term->n < p->n_available[i]; term->n++)
            read_layout(&out->layouts[n++], p->available[i][term->n], &p->in[i], space);
    }
    for (int o = 0; o < p->op->n_out; o++) {
        clv_cost_bound_term *term = &out->term[out->n_terms++];
        *term = (clv_cost_bound_term){.result = true, .id = o, .first = (int)n, .n = p->has_target[o]};
        read_choices(term, space, p->rule.out[o], p->out[o].rank);
        if (p->has_target[o])
            read_layout(&out->layouts[n++], &p->target[o], &p->out[o], space);
    }
    out->counts = (clv_missing_counts){.width = p->rule.n_factors + 1, .n = n};
    return CLV_OK;
}

void clv_cost_bound_free(clv_cost_bound *bound)
{
    free(bound->layouts);
    free(bound->counts.slot);
}

/* ---- bytes ---- */

#define ROUNDED 1e-9 /* rounding error of a quotient */

/* A reshard from one layout to another, as products of the sizes of the sub-axes that ... */
typedef struct subaxis_products {
    double cut;                          /* shard `to`, or may */
    double lost;                         /* shard `from` only */
    double reduced;                      /* are reduced */
    double unscattered;                  /* are reduced, and do not shard `to` */
    double kept;                         /* stay partial, or may */
    double far_cut, far_lost;            /* the parts of cut and lost that cross hosts */
    double far_reduced, far_unscattered; /* those of reduced and unscattered */
    double far_moved[CLV_MAX_RANK];      /* those of moved */
    double moved[CLV_MAX_RANK];          /* shard this dimension in the fixed layout, and another by the assignment */
    double along[CLV_MAX_RANK];          /* shard this dimension of `to` */
    double crossed[CLV_MAX_RANK];        /* shard this dimension by the assignment, and another in the fixed layout */
    double reach[CLV_MAX_RANK];          /* shard this dimension by the assignment, or may */
} subaxis_products;

/* Products without a factor yet. */
static subaxis_products empty_products(void)
{
    subaxis_products t = {.cut = 1,
                          .lost = 1,
                          .reduced = 1,
                          .unscattered = 1,
                          .kept = 1,
                          .far_cut = 1,
                          .far_lost = 1,
                          .far_reduced = 1,
                          .far_unscattered = 1};
    for (int d = 0; d < CLV_MAX_RANK; d++)
        t.moved[d] = t.far_moved[d] = t.along[d] = t.crossed[d] = t.reach[d] = 1;
    return t;
}

/* Upper bound of the largest block of a dimension, relative to the mean. */
static double most_excess(const subaxis_products *t, const clv_cost_bound_term *term, const clv_type *type, int d)
{
    double size = (double)type->shape[d], cut = (double)term->alignment[d] * t->reach[d];
    if (cut <= 0 || size <= 0)
        return INFINITY;
    return fmod(size, cut) == 0 ? 1 : 1 + cut / size;
}

/* At most 1/this of the elements are on the same rank in both layouts, for sub-axes that shard different dimensions:
 * wherever one layout has an element by its other dimensions, dimension d of the other layout has it in one block. */
static double moved_fraction_bound(const subaxis_products *t, const clv_cost_bound_term *term,
                                   const clv_cost_bound_layout *layout, const clv_type *type)
{
    double most = 1;
    for (int d = 0; layout && d < layout->rank; d++) {
        if (t->moved[d] > most * layout->imbalance[d])
            most = t->moved[d] / layout->imbalance[d];
        if (t->crossed[d] > most && t->crossed[d] > most * most_excess(t, term, type, d))
            most = t->crossed[d] / most_excess(t, term, type, d);
    }
    return most;
}

/* Ranks that differ only in sub-axes inside hosts hold on average 1/this of what they need. */
static double inter_host_fraction_bound(const subaxis_products *t, const clv_cost_bound_layout *layout)
{
    double most = 1;
    for (int d = 0; layout && d < layout->rank; d++)
        most = fmax(most, t->far_moved[d] / layout->imbalance[d]);
    return t->far_lost * most;
}

/* Multiplies in a sub-axis that shards dimension `made` by the assignment, and `fixed` in the fixed layout. */
static void multiply_in(subaxis_products *t, const clv_cost_bound *b, const clv_cost_bound_term *term, int subaxis,
                        int made, int fixed, bool decided)
{
    double size = b->space->subaxis[subaxis].size;
    if (made >= 0 && fixed >= 0 && made != fixed) {
        t->moved[fixed] *= size;
        t->far_moved[fixed] *= b->inter_host[subaxis];
        t->crossed[made] *= size;
    }
    uint32_t dims = made >= 0 ? 1u << made : made != CUTS_UNKNOWN ? 0 : decided ? 0xffu : term->may_cut_dims[subaxis];
    for (; dims != 0; dims &= dims - 1)
        t->reach[__builtin_ctz(dims)] *= size;
}

/* Lower bound of the largest shard relative to the mean: blocks beyond the elements of a dimension are empty. */
static double shard_imbalance(const subaxis_products *t, const clv_type *type)
{
    double times = 1;
    for (int d = 0; d < type->rank; d++)
        if (type->shape[d] > 0 && t->along[d] > (double)type->shape[d])
            times *= t->along[d] / (double)type->shape[d];
    return times;
}

/* A lower bound of a reshard. */
typedef struct reshard_bound {
    double bytes;
    int moves;
    double all_reduced; /* bytes if it is a single all_reduce; infinity if it cannot be */
    double far_bytes;   /* of bytes, those that cross hosts */
} reshard_bound;

/* Of the ranks that need an element, all that lack it receive it. If it is reduced first, all but one receive the sum,
 * and all if none of them held it. Elements that no rank of a group holds do not come by its reduction, so they need
 * another collective; so do ranks that differ only in the reduced axes, because a reduce_scatter leaves them different
 * elements, unless it is an all_reduce, which moves twice as much. `missing`: exact missing bytes, if known. */
static reshard_bound bound_reshard(const subaxis_products *t, const clv_cost_bound_term *term,
                                   const clv_cost_bound_layout *layout, const clv_type *type, const clv_cost_bound *b,
                                   double missing)
{
    double ranks = b->ranks;
    double moved = moved_fraction_bound(t, term, layout, type), imbalance = shard_imbalance(t, type);
    double size = (double)clv_dtype_size(type->dtype), elems = clv_type_bytes(type) / size, share = elems / t->cut;
    double lacks = share - share / (t->lost * moved), least_move = fmax(missing, lacks * imbalance * size);
    if (t->reduced == 1)
        return (reshard_bound){.bytes = least_move,
                               .moves = least_move > 0,
                               .all_reduced = INFINITY,
                               .far_bytes = elems * size / t->far_cut * (1 - 1 / inter_host_fraction_bound(t, layout)) /
                                            b->intra_host};
    double n = t->reduced, part = elems / ranks * t->kept, most = share * imbalance;
    double rest = fmax(share - part / moved, most - part) * size;
    bool apart = missing > 0 || lacks > ROUNDED * share;
    reshard_bound out = {.moves = elems > 0, .all_reduced = INFINITY};
    out.far_bytes = elems * size / ranks * (t->far_reduced - 1 + t->far_unscattered - 1);
    out.bytes = part * (n - 1) * size + fmax(least_move, rest);
    if (elems > 0 && (apart || t->unscattered > 1))
        out.moves = 2;
    if (elems > 0 && !apart && t->unscattered > 1)
        out.all_reduced = fmax(2 * fmax(part * n, most) * (n - 1) / n * size, out.bytes);
    return out;
}

static clv_strategy_cost cost_of(const clv_strategy_space *space, const clv_type *type, reshard_bound l)
{
    const clv_cost_model *cost = space->problem->cost;
    double seconds = clv_cost_step_seconds_bound(cost, type->dtype, l.bytes, l.moves, l.far_bytes);
    if (l.all_reduced == INFINITY)
        return (clv_strategy_cost){.bytes = l.bytes, .moves = l.moves, .seconds = seconds};
    double at_once =
        clv_cost_step_seconds_bound(cost, type->dtype, l.all_reduced, 1, l.far_bytes > 0 ? l.all_reduced : 0);
    return (clv_strategy_cost){.bytes = l.bytes, .moves = 1, .seconds = fmin(seconds, at_once)};
}

/* Missing elements of an operand from available layout k, or of a result's target; 0 if the assignment is illegal. */
static int64_t count_missing(const clv_strategy_space *space, const clv_cost_bound_term *term, int k,
                             const int8_t *choice)
{
    const clv_strategy_problem *p = space->problem;
    clv_sharding_projection splits;
    clv_layout made;
    int i = term->id;
    if (!clv_sharding_projection_make(&splits, p, &space->context, space->subaxis, choice, space->n_subaxes))
        return 0;
    if (term->result)
        return clv_projection_result_layout(&made, p, &splits, i)
                   ? clv_max_received_elems(&p->target[i], &made, p->mesh, p->out[i].shape)
                   : 0;
    return clv_projection_operand_layout(&made, p, &splits, i)
               ? clv_max_received_elems(&made, p->available[i][k], p->mesh, p->in[i].shape)
               : 0;
}

static bool reserve(clv_missing_counts *c, size_t nodes)
{
    size_t bytes = (size_t)c->width * sizeof *c->slot;
    if (c->slot != NULL && c->capacity >= nodes)
        return true;
    size_t capacity = 2 * nodes + 64;
    int64_t *grown = realloc(c->slot, capacity * bytes);
    if (grown == NULL)
        return false;
    memset((char *)grown + c->capacity * bytes, 0, (capacity - c->capacity) * bytes);
    c->slot = grown;
    c->capacity = capacity;
    return true;
}

/* The slot below a root that way[0 .. n) leads to, n > 0; NULL: out of memory. Valid until the next call. */
static int64_t *missing_count_at(clv_missing_counts *c, int root, const uint8_t *way, int n)
{
    size_t node = (size_t)root, width = (size_t)c->width;
    if (!reserve(c, c->n + (size_t)n)) /* before slots are pointed to */
        return NULL;
    for (int a = 0; a + 1 < n; a++) {
        int64_t *next = &c->slot[node * width + way[a]];
        if (*next == 0)
            *next = (int64_t)c->n++;
        node = (size_t)*next;
    }
    return &c->slot[node * width + way[n - 1]];
}

static double missing_bytes(clv_cost_bound *b, const clv_cost_bound_term *term, int k, const int8_t *choice,
                            const clv_type *type)
{
    uint8_t way[CLV_MAX_SUBAXES];
    int n = b->space->n_subaxes;
    for (int a = 0; a < n; a++)
        way[a] = term->way[choice[a] + 2];
    int64_t *known = n > 0 ? missing_count_at(&b->counts, term->first + k, way, n) : NULL;
    int64_t count = known && *known ? *known - 1 : count_missing(b->space, term, k, choice);
    if (known)
        *known = count + 1;
    return (double)(count * (int64_t)clv_dtype_size(type->dtype));
}

static subaxis_products operand_products(const clv_cost_bound *b, const clv_cost_bound_term *term,
                                         const clv_cost_bound_layout *at, const int8_t *choice, int n)
{
    const clv_strategy_space *space = b->space;
    subaxis_products t = empty_products();
    for (int a = 0; a < space->n_subaxes; a++) {
        double size = space->subaxis[a].size;
        bool decided = a < n;
        int to = decided ? term->cuts[choice[a] + 2] : term->may_cut >> a & 1u ? CUTS_UNKNOWN : CUTS_NOTHING;
        if (to == CUTS_NOTHING) {
            t.lost *= at->dim[a] >= 0 ? size : 1;
            t.far_lost *= at->dim[a] >= 0 ? b->inter_host[a] : 1;
        } else {
            t.cut *= size;
            t.far_cut *= b->inter_host[a];
        }
        if (to >= 0)
            t.along[to] *= size;
        multiply_in(&t, b, term, a, to, at->dim[a], decided);
        bool passes = (term->may_pass >> a & 1u) && (!decided || choice[a] == CLV_CHOICE_PARTIAL);
        if ((at->partial >> a & 1u) && !passes) {
            t.reduced *= size;
            t.unscattered *= to == CUTS_NOTHING ? size : 1;
            t.far_reduced *= b->inter_host[a];
            t.far_unscattered *= to == CUTS_NOTHING ? b->inter_host[a] : 1;
        } else if ((at->partial >> a & 1u) && decided)
            t.kept *= size;
    }
    return t;
}

/* Whether a is no less than b in anything: of two sources, b is taken. */
static bool is_no_less(const clv_strategy_cost *a, const clv_strategy_cost *b)
{
    return a->seconds >= b->seconds && a->bytes >= b->bytes && a->moves >= b->moves;
}

/* Less than either in nothing that either is less in: whichever of two sources is taken costs that. */
static clv_strategy_cost lesser(const clv_strategy_cost *a, const clv_strategy_cost *b)
{
    return (clv_strategy_cost){.seconds = fmin(a->seconds, b->seconds),
                               .bytes = fmin(a->bytes, b->bytes),
                               .moves = a->moves < b->moves ? a->moves : b->moves};
}

static clv_strategy_cost bound_operand(clv_cost_bound *b, const clv_cost_bound_term *term, const int8_t *choice, int n,
                                       bool counted)
{
    const clv_type *type = &b->space->problem->in[term->id];
    clv_strategy_cost best = {0};
    for (int k = 0; k < term->n && (k == 0 || best.moves > 0); k++) {
        const clv_cost_bound_layout *at = &b->layouts[term->first + k];
        subaxis_products t = operand_products(b, term, at, choice, n);
        clv_strategy_cost cost_so_far = cost_of(b->space, type, bound_reshard(&t, term, at, type, b, 0));
        if (counted && (k == 0 || !is_no_less(&cost_so_far, &best)))
            cost_so_far =
                cost_of(b->space, type, bound_reshard(&t, term, at, type, b, missing_bytes(b, term, k, choice, type)));
        best = k == 0 ? cost_so_far : lesser(&best, &cost_so_far);
    }
    return best;
}

/* `to`: the target layout; NULL: none, the result is only reduced. */
static subaxis_products result_products(const clv_cost_bound *b, const clv_cost_bound_term *term,
                                        const clv_cost_bound_layout *to, const int8_t *choice, int n)
{
    const clv_strategy_space *space = b->space;
    subaxis_products t = empty_products();
    for (int d = 0; to && d < to->rank; d++) {
        t.along[d] = to->blocks[d];
        t.cut *= to->blocks[d];
    }
    for (int a = 0; a < space->n_subaxes; a++) {
        double size = space->subaxis[a].size;
        int from = a < n ? term->cuts[choice[a] + 2] : CUTS_UNKNOWN;
        if (!to && (from >= 0 || (from == CUTS_UNKNOWN && (term->may_cut >> a & 1u))))
            t.cut *= size;
        if (to && from >= 0 && to->dim[a] == CUTS_NOTHING) {
            t.lost *= size;
            t.far_lost *= b->inter_host[a];
        }
        if (to && to->dim[a] != CUTS_NOTHING)
            t.far_cut *= b->inter_host[a];
        multiply_in(&t, b, term, a, from, to ? to->dim[a] : CUTS_NOTHING, a < n);
        if (from == MAKES_PARTIAL && to && (to->partial >> a & 1u))
            t.kept *= size;
        else if (from == MAKES_PARTIAL) {
            t.reduced *= size;
            t.unscattered *= !to || to->dim[a] == CUTS_NOTHING ? size : 1;
            t.far_reduced *= b->inter_host[a];
            t.far_unscattered *= !to || to->dim[a] == CUTS_NOTHING ? b->inter_host[a] : 1;
        }
    }
    return t;
}

/* Whether a result may be partial, judged by single choices. */
static bool may_be_partial(const clv_strategy_space *space, const clv_cost_bound_term *term, const int8_t *choice)
{
    for (int a = 0; a < space->n_subaxes; a++) {
        int cuts = term->cuts[choice[a] + 2];
        if (cuts == MAKES_PARTIAL || cuts == CUTS_UNKNOWN)
            return true;
    }
    return false;
}

static clv_strategy_cost bound_result(clv_cost_bound *b, const clv_cost_bound_term *term, const int8_t *choice, int n,
                                      bool counted)
{
    const clv_strategy_problem *p = b->space->problem;
    const clv_type *type = &p->out[term->id];
    const clv_cost_bound_layout *to = term->n > 0 ? &b->layouts[term->first] : NULL;
    if (p->accumulation_count[term->id] == CLV_MANY_PARTIAL_SUMS &&
        (!counted || may_be_partial(b->space, term, choice)))
        return (clv_strategy_cost){0};
    subaxis_products t = result_products(b, term, to, choice, n);
    double missing = counted && to ? missing_bytes(b, term, 0, choice, type) : 0;
    bool shared = !counted || may_be_partial(b->space, term, choice);
    reshard_bound l = bound_reshard(&t, term, to, type, b, missing);
    if (shared) {
        l.bytes /= p->accumulation_count[term->id];
        l.all_reduced /= p->accumulation_count[term->id];
        l.far_bytes /= p->accumulation_count[term->id];
    }
    return cost_of(b->space, type, l);
}

clv_strategy_cost clv_cost_bound_reshard(clv_cost_bound *b, int term, const int8_t *choice, int n)
{
    const clv_cost_bound_term *t = &b->term[term];
    return t->result ? bound_result(b, t, choice, n, false) : bound_operand(b, t, choice, n, false);
}

clv_strategy_cost clv_cost_bound_exact_reshard(clv_cost_bound *b, int term, const int8_t *choice)
{
    const clv_cost_bound_term *t = &b->term[term];
    int n = b->space->n_subaxes;
    return t->result ? bound_result(b, t, choice, n, true) : bound_operand(b, t, choice, n, true);
}

/* ---- work ---- */

/* Lower bound of the largest shard if only the decided sub-axes split. */
static clv_type local_type(const clv_type *type, const clv_dim_factors *dims, const clv_rule *rule,
                           const int64_t *blocks)
{
    clv_type local = *type;
    for (int d = 0; d < type->rank; d++) {
        int64_t cuts = 1;
        for (int j = 0; j < dims[d].n; j++) {
            int f = dims[d].factor[j];
            cuts *= blocks[f];
            for (int g = 0; g < rule->n_factors; g++) /* the remainder of another factor */
                if (rule->factor[g].overflow == f && clv_projection_dim_of_factor(dims, type->rank, g) != d)
                    cuts *= blocks[g];
        }
        local.shape[d] = (type->shape[d] + cuts - 1) / cuts;
    }
    return local;
}

clv_strategy_cost clv_cost_bound_work(const clv_cost_bound *b, const int8_t *choice, int n)
{
    const clv_strategy_problem *p = b->space->problem;
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    int64_t blocks[CLV_MAX_FACTORS];
    double left = 1;
    for (int f = 0; f < CLV_MAX_FACTORS; f++)
        blocks[f] = 1;
    for (int a = 0; a < b->space->n_subaxes; a++) {
        if (a >= n)
            left *= b->space->subaxis[a].size;
        else if (choice[a] >= 0)
            blocks[choice[a]] *= b->space->subaxis[a].size;
    }
    for (int i = 0; i < p->op->n_in; i++)
        if (p->op->in[i] > 0)
            in[i] = local_type(&p->in[i], p->rule.in[i], &p->rule, blocks);
    for (int o = 0; o < p->op->n_out; o++)
        out[o] = local_type(&p->out[o], p->rule.out[o], &p->rule, blocks);
    double seconds = clv_cost_work_seconds_bound(&p->rates, clv_cost_op_work(p->op, in, out), left);
    return (clv_strategy_cost){.seconds = seconds, .work_seconds = seconds};
}
