/* sharding_rule_check.c - runs an op's kernel on shards, combines the results, compares with the unsharded op. */
#include "runtime/checks/op_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tensor/parse_print.h"
#include "tensor/gcd.h"

enum { HOW = 160 };

/* ---- combined results ---- */

typedef struct combined {
    clv_reduction how;
    double *sum[CLV_MAX_OUT];
} combined;

static void combined_free(combined *t)
{
    for (int o = 0; o < CLV_MAX_OUT; o++)
        free(t->sum[o]);
}

/* Free it, also after a failure. */
static clv_status combined_new(combined *t, const clv_op_harness *whole, clv_reduction how, clv_error *err)
{
    *t = (combined){.how = how};
    for (int o = 0; o < whole->op->n_out; o++) {
        int64_t elems = clv_view_elems(&whole->out[o]);
        t->sum[o] = malloc((size_t)(elems + 1) * sizeof(double));
        if (!t->sum[o])
            return clv_fail_memory(err, "results of an op that is tried", (size_t)elems * sizeof(double));
        for (int64_t i = 0; i < elems; i++)
            t->sum[o][i] = how == CLV_REDUCTION_MAX ? -INFINITY : 0;
    }
    return CLV_OK;
}

/* Disjoint blocks add up to the whole; overlapping ones are partial sums or maxima. */
static void combined_add(combined *t, const clv_op_harness *part)
{
    for (int o = 0; o < part->op->n_out; o++) {
        const clv_view *view = &part->out[o];
        int64_t elems = clv_view_elems(view);
        for (int64_t i = 0; i < elems; i++) {
            double x = clv_dtype_load(view->dtype, view->data, i);
            double *to = &t->sum[o][clv_op_harness_global_index(view, i)];
            *to = t->how == CLV_REDUCTION_MAX ? (x > *to || isnan(x) ? x : *to) : *to + x;
        }
    }
}

/* The number of terms that an element of a result sums, by the rule. */
static double term_count(const clv_rule *rule)
{
    double n = 1;
    for (int f = 0; f < rule->n_factors; f++)
        n *= rule->factor[f].reduction == CLV_REDUCTION_SUM ? (double)rule->factor[f].size : 1;
    return n;
}

/* Operands below f64 are computed in f32. Rounding of a long sum depends on how it is split, so tolerance grows with
 * it. */
static double tolerance_of(const clv_sharding_rule_trials *trials, clv_dtype result)
{
    const double single = 2e-6, narrow = 3e-2, few = 1 << 13;
    if (trials->tolerance > 0)
        return trials->tolerance;
    double unit = result == CLV_F64 ? 1e-12 : result == CLV_F32 ? single : narrow;
    for (int i = 0; i < trials->whole->op->n_in; i++) {
        const clv_view *in = &trials->whole->in[i];
        if (in->data && clv_dtype_is_float(in->dtype) && in->dtype != CLV_F64)
            unit = fmax(unit, single);
        if (in->data && clv_dtype_is_float(in->dtype) && clv_dtype_size(in->dtype) < 4 &&
            clv_op_traits_of(trials->whole->op)->rounds_inside)
            unit = narrow;
    }
    return unit * fmax(1, term_count(trials->rule) / few);
}

static clv_status combined_compare(const combined *t, const clv_sharding_rule_trials *trials, const char *how,
                                   clv_error *err)
{
    const clv_op *op = trials->whole->op;
    for (int o = 0; o < op->n_out; o++) {
        const clv_view *view = &trials->whole->out[o];
        int64_t elems = clv_view_elems(view);
        double largest = 1, unit = tolerance_of(trials, view->dtype);
        char index[CLV_OP_HARNESS_INDEX_TEXT];
        for (int64_t i = 0; i < elems; i++) {
            double x = fabs(clv_dtype_load(view->dtype, view->data, i));
            largest = isfinite(x) && x > largest ? x : largest;
        }
        for (int64_t i = 0; i < elems; i++) {
            double want = clv_dtype_load(view->dtype, view->data, i), got = t->sum[o][i];
            if (got != want && !(fabs(got - want) <= unit * largest))
                return clv_fail_at(err, CLV_ECHECK, -1, op->name,
                                   "%s: element %s of result %d is %.9g; unsharded it is %.9g", how,
                                   clv_op_harness_print_index(index, view, i), o, got, want);
        }
    }
    return CLV_OK;
}

/* Runs shards of a call, combines their results, and compares them with the unsharded ones. *passed counts. */
typedef clv_status run_shards(combined *t, const clv_op_harness *whole, const void *arg, clv_error *err);
static clv_status run_trial(clv_sharding_rule_trials *trials, clv_reduction reduction, run_shards *run, const void *arg,
                            const char *how, int *passed, clv_error *err)
{
    combined t;
    clv_status status = combined_new(&t, trials->whole, reduction, err);
    if (status == CLV_OK)
        status = run(&t, trials->whole, arg, err);
    if (status == CLV_OK)
        status = combined_compare(&t, trials, how, err);
    combined_free(&t);
    *passed += status == CLV_OK;
    return status;
}

/* ---- sharded calls ---- */

/* Changes the operands of a shard's call before it runs. */
typedef void change(clv_op_harness *part, const void *arg);

static clv_status add_part(combined *t, const clv_op_harness *shapes, const clv_op_harness *whole, change *changes,
                           const void *arg, const char *how, clv_error *err)
{
    CLV_CLEANUP(clv_op_harness_free_all) clv_op_harness part = *shapes;
    CLV_TRY(clv_op_harness_alloc_all(&part, whole, err));
    if (changes)
        changes(&part, arg);
    CLV_TRY(clv_op_harness_run(&part, how, err));
    combined_add(t, &part);
    return CLV_OK;
}

/* ---- sharded factors ---- */

typedef struct factor_cut {
    const clv_rule *rule;
    int factor;
    int64_t blocks, kept; /* kept < blocks: the factor is split `kept` ways, and its overflow factor the rest */
    bool first_empty;     /* two blocks, the first of them empty */
    const struct factor_cut *also; /* a second factor, in other dimensions; NULL: none */
} factor_cut;

static int position_of(const clv_dim_factors *dim, int factor)
{
    int at = -1;
    for (int j = 0; j < dim->n; j++)
        at = dim->factor[j] == factor ? j : at;
    return at;
}

static bool holds(const clv_dim_factors *dims, int rank, int factor)
{
    bool any = false;
    for (int d = 0; d < rank; d++)
        any = any || position_of(&dims[d], factor) >= 0;
    return any;
}

/* Narrows a view to its shard of `block`; false if that is not contiguous (a minor factor of several). */
static bool narrow(clv_view *view, const clv_dim_factors *dims, const factor_cut *cut, int64_t block)
{
    for (int d = 0; d < view->rank; d++) {
        int at = position_of(&dims[d], cut->factor);
        int64_t alignment = 1, blocks = cut->blocks, index = block, hi;
        if (at < 0)
            continue;
        for (int j = 0; j < at; j++)
            if (cut->rule->factor[dims[d].factor[j]].size != 1)
                return false;
        for (int j = at + 1; j < dims[d].n; j++)
            alignment *= cut->rule->factor[dims[d].factor[j]].size;
        if (cut->kept < cut->blocks) {
            bool both = position_of(&dims[d], cut->rule->factor[cut->factor].overflow) >= 0;
            alignment = both ? 1 : alignment;
            blocks = both ? cut->blocks : cut->kept;
            index = both ? block : block / (cut->blocks / cut->kept);
        }
        if (cut->first_empty)
            view->lo[d] = 0, hi = index == 0 ? 0 : view->global[d];
        else
            clv_block_range(view->global[d], alignment, blocks, index, &view->lo[d], &hi);
        view->shape[d] = hi - view->lo[d];
    }
    return true;
}

static int64_t blocks_of(const factor_cut *cut)
{
    return cut->also ? cut->blocks * cut->also->blocks : cut->blocks;
}

static bool slice_all_views(clv_op_harness *part, const factor_cut *cut, int64_t block)
{
    int64_t inner = cut->also ? cut->also->blocks : 1;
    bool contiguous = !cut->also || slice_all_views(part, cut->also, block % inner);
    for (int i = 0; i < part->op->n_in; i++)
        contiguous = contiguous && (!part->in[i].data || narrow(&part->in[i], cut->rule->in[i], cut, block / inner));
    for (int o = 0; o < part->op->n_out; o++)
        contiguous = contiguous && narrow(&part->out[o], cut->rule->out[o], cut, block / inner);
    return contiguous;
}

static void print_cut(char how[HOW], const factor_cut *cut, int64_t block)
{
    clv_text text = {.out = how, .size = HOW};
    for (const factor_cut *c = cut; c; c = c->also) {
        const char *name = c->rule->factor[c->factor].name;
        clv_text_add(&text, "%sfactor %d%s%.40s%s in %lld blocks%s", c == cut ? "" : ", ", c->factor, name ? " (" : "",
                     name ? name : "", name ? ")" : "", (long long)c->blocks,
                     c->first_empty ? ", the first of them empty" : "");
    }
    if (block >= 0)
        clv_text_add(&text, ", block %lld", (long long)block);
    clv_text_finish(&text);
}

static void grow(clv_view *largest, const clv_view *part)
{
    for (int d = 0; d < part->rank; d++)
        largest->shape[d] = part->shape[d] > largest->shape[d] ? part->shape[d] : largest->shape[d];
}

/* The workspace that is planned: of the largest shards. */
static size_t planned_workspace(const clv_op_harness *whole, const factor_cut *cut)
{
    clv_op_harness largest = *whole;
    slice_all_views(&largest, cut, 0);
    for (int64_t block = 1; block < blocks_of(cut); block++) {
        clv_op_harness part = *whole;
        slice_all_views(&part, cut, block);
        for (int i = 0; i < whole->op->n_in; i++)
            grow(&largest.in[i], &part.in[i]);
        for (int o = 0; o < whole->op->n_out; o++)
            grow(&largest.out[o], &part.out[o]);
    }
    return clv_op_harness_workspace_bytes(&largest);
}

static clv_type type_of(const clv_view *view)
{
    clv_type type = {.dtype = view->dtype, .rank = view->rank};
    memcpy(type.shape, view->shape, sizeof type.shape);
    return type;
}

static clv_status cost_of(clv_op_cost *out, const clv_op_harness *part, clv_error *err)
{
    clv_type in[CLV_MAX_IN] = {0}, results[CLV_MAX_OUT] = {0};
    for (int i = 0; i < part->op->n_in; i++)
        in[i] = part->in[i].data ? type_of(&part->in[i]) : in[i];
    for (int o = 0; o < part->op->n_out; o++)
        results[o] = type_of(&part->out[o]);
    return clv_op_cost_check(out, part->op, in, results, err);
}

/* A shard needs no more workspace than is planned, and costs no more than the whole, else it would not be sharded. */
static clv_status check_shard(const clv_op_harness *part, size_t planned, const clv_op_cost *whole, const char *how,
                              clv_error *err)
{
    const char *name = part->op->name;
    size_t needed = clv_op_harness_workspace_bytes(part);
    clv_error why = {0};
    clv_op_cost cost;
    if (needed > planned)
        return clv_fail_at(err, CLV_ECHECK, -1, name,
                           "%s: it needs a workspace of %zu bytes, and of %zu for the largest shard; valid: one that "
                           "does not fall when a local extent grows",
                           how, needed, planned);
    if (cost_of(&cost, part, &why) != CLV_OK)
        return clv_fail_at(err, why.code, -1, name, "%s: %s", how, why.message);
    if (cost.flops > whole->flops || cost.bytes > whole->bytes)
        return clv_fail_at(err, CLV_ECHECK, -1, name,
                           "%s: it costs %g flops and %g bytes, and unsharded %g and %g; valid: no more than unsharded",
                           how, cost.flops, cost.bytes, whole->flops, whole->bytes);
    return CLV_OK;
}

static clv_status run_blocks(combined *t, const clv_op_harness *whole, const void *arg, clv_error *err)
{
    const factor_cut *cut = arg;
    size_t planned = planned_workspace(whole, cut);
    clv_op_cost cost;
    char how[HOW];
    CLV_TRY(cost_of(&cost, whole, err));
    for (int64_t block = 0; block < blocks_of(cut); block++) {
        clv_op_harness part = *whole;
        slice_all_views(&part, cut, block);
        print_cut(how, cut, block);
        CLV_TRY(check_shard(&part, planned, &cost, how, err));
        CLV_TRY(add_part(t, &part, whole, NULL, NULL, how, err));
    }
    return CLV_OK;
}

/* How shards combine over the factors: of a pair, one reduction is none or both are equal. */
static clv_reduction reduction_of(const factor_cut *cut)
{
    clv_reduction own = cut->rule->factor[cut->factor].reduction;
    return own == CLV_REDUCTION_NONE && cut->also ? cut->rule->factor[cut->also->factor].reduction : own;
}

static clv_status try_cut(clv_sharding_rule_trials *trials, const factor_cut *cut, clv_error *err)
{
    clv_op_harness part = *trials->whole;
    char how[HOW];
    if (!slice_all_views(&part, cut, 0))
        return CLV_OK;
    print_cut(how, cut, -1);
    return run_trial(trials, reduction_of(cut), run_blocks, cut, how, &trials->cuts, err);
}

/* A factor that is missing in a result needs a reduction, else no mesh may shard it. */
static bool may_split(const clv_sharding_rule_trials *trials, int factor)
{
    const clv_factor *f = &trials->rule->factor[factor];
    bool may = !f->whole;
    for (int o = 0; o < trials->whole->op->n_out; o++)
        may = may &&
              (f->reduction != CLV_REDUCTION_NONE || holds(trials->rule->out[o], trials->whole->out[o].rank, factor));
    return may;
}

/* In two and three blocks; in a number of blocks that does not divide it, if it is large enough; with an empty block.
 * */
static clv_status try_factor(clv_sharding_rule_trials *trials, int f, clv_error *err)
{
    enum { MAX_OVERFLOW = 8 };
    const clv_rule *rule = trials->rule;
    const clv_factor *factor = &rule->factor[f];
    if (!may_split(trials, f))
        return CLV_OK;
    for (int64_t blocks = 2; blocks <= 3; blocks++)
        CLV_TRY(try_cut(trials, &(factor_cut){rule, f, blocks, blocks, false, NULL}, err));
    int64_t uneven = 4;
    while (uneven <= factor->size && factor->size % uneven == 0)
        uneven++;
    if (uneven <= factor->size && factor->size % 6 == 0)
        CLV_TRY(try_cut(trials, &(factor_cut){rule, f, uneven, uneven, false, NULL}, err));
    if (factor->size >= 3) /* with fewer elements, three blocks have an empty one already */
        CLV_TRY(try_cut(trials, &(factor_cut){rule, f, 2, 2, true, NULL}, err));
    if (factor->overflow < 0 || rule->factor[factor->overflow].size <= 1 || factor->size < 1)
        return CLV_OK;
    for (int64_t blocks = factor->size + 1; blocks <= MAX_OVERFLOW; blocks++)
        CLV_TRY(try_cut(trials, &(factor_cut){rule, f, blocks, clv_gcd(blocks, factor->size), false, NULL}, err));
    return CLV_OK;
}

/* Whether a dimension of the tensor has both factors. */
static bool dim_has_both(const clv_dim_factors *dims, int rank, int f, int g)
{
    bool any = false;
    for (int d = 0; d < rank; d++)
        any = any || (position_of(&dims[d], f) >= 0 && position_of(&dims[d], g) >= 0);
    return any;
}

static bool may_split_together(const clv_sharding_rule_trials *trials, int f, int g)
{
    const clv_rule *rule = trials->rule;
    const clv_op_harness *whole = trials->whole;
    clv_reduction a = rule->factor[f].reduction, b = rule->factor[g].reduction;
    bool may = a == b || a == CLV_REDUCTION_NONE || b == CLV_REDUCTION_NONE;
    for (int i = 0; i < whole->op->n_in; i++)
        may = may && !dim_has_both(rule->in[i], whole->in[i].rank, f, g);
    for (int o = 0; o < whole->op->n_out; o++)
        may = may && !dim_has_both(rule->out[o], whole->out[o].rank, f, g);
    return may;
}

/* Two factors at once, as a mesh of two axes shards them. */
static clv_status try_pairs(clv_sharding_rule_trials *trials, clv_error *err)
{
    const clv_rule *rule = trials->rule;
    for (int f = 0; f < rule->n_factors; f++)
        for (int g = f + 1; g < rule->n_factors; g++) {
            const factor_cut second = {rule, g, 2, 2, false, NULL}, both = {rule, f, 2, 2, false, &second};
            if (may_split(trials, f) && may_split(trials, g) && may_split_together(trials, f, g))
                CLV_TRY(try_cut(trials, &both, err));
        }
    return CLV_OK;
}

/* ---- partial operands ---- */

/* How operands are split over two ranks. */
typedef struct parts {
    clv_reduction reduction;
    const char *how;
    clv_key key;
    int rank;                 /* 0 or 1 */
    uint32_t partial, masked; /* bit i: operand i */
} parts;

static uint32_t drawn(clv_key key, int i, int64_t e)
{
    uint32_t bits;
    clv_random_bits(&bits, clv_key_fold_in(key, (uint32_t)i), (uint64_t)e, 1);
    return bits;
}

/* Partial sums of either sign, exact in every dtype; masked operands are whole on one rank and 0 on the other. */
static void make_terms(clv_op_harness *part, const void *arg)
{
    static const double shares[] = {2, -1, 0.5, 0, 1};
    const parts *p = arg;
    for (int i = 0; i < part->op->n_in; i++) {
        clv_view *in = &part->in[i];
        int64_t elems = in->data && ((p->partial | p->masked) >> i & 1) ? clv_view_elems(in) : 0;
        for (int64_t e = 0; e < elems; e++) {
            double share = p->masked >> i & 1 ? 1 : shares[drawn(p->key, i, e) % 5];
            share = clv_dtype_is_float(in->dtype) ? share : floor(share); /* half of an odd number is no integer */
            double x = clv_dtype_load(in->dtype, in->data, e), mine = p->rank == 0 ? share : 1 - share;
            if (!isfinite(x)) /* infinity and NaN are whole on one rank */
                mine = share > 0.5 ? 1 - p->rank : p->rank;
            clv_dtype_store(in->dtype, in->data, e, mine == 0 ? 0 : x * mine);
        }
    }
}

/* An element is whole on one rank, and less or minus infinity on the other. */
static void make_maxima(clv_op_harness *part, const void *arg)
{
    const parts *p = arg;
    for (int i = 0; i < part->op->n_in; i++) {
        clv_view *in = &part->in[i];
        int64_t elems = in->data ? clv_view_elems(in) : 0;
        for (int64_t e = 0; e < elems; e++) {
            uint32_t bits = drawn(p->key, i, e), less = bits >> 1 & 3;
            double x = clv_dtype_load(in->dtype, in->data, e);
            bool nothing = less == 0 && clv_dtype_is_float(in->dtype);
            x -= (int)(bits & 1) == p->rank ? 0 : nothing ? INFINITY : (double)less;
            clv_dtype_store(in->dtype, in->data, e, x);
        }
    }
}

static clv_status run_parts(combined *t, const clv_op_harness *whole, const void *arg, clv_error *err)
{
    parts p = *(const parts *)arg;
    for (p.rank = 0; p.rank < 2; p.rank++)
        CLV_TRY(add_part(t, whole, whole, p.reduction == CLV_REDUCTION_MAX ? make_maxima : make_terms, &p, p.how, err));
    return CLV_OK;
}

static clv_status try_parts(clv_sharding_rule_trials *trials, clv_reduction reduction, uint32_t partial,
                            uint32_t masked, const char *how, clv_error *err)
{
    const parts p = {.reduction = reduction,
                     .how = how,
                     .key = clv_key_fold_in(trials->key, (uint32_t)trials->partials),
                     .partial = partial,
                     .masked = masked};
    return run_trial(trials, reduction, run_parts, &p, how, &trials->partials, err);
}

static clv_status try_linearity(clv_sharding_rule_trials *trials, clv_error *err)
{
    const clv_rule *rule = trials->rule;
    char how[HOW];
    bool additive = rule->linearity == CLV_ADDITIVE;
    for (int i = 0; i < trials->whole->op->n_in && rule->linearity != CLV_NOT_LINEAR; i++) {
        uint32_t others = additive ? rule->linear & ~(1u << i) : 0;
        if (!(rule->linear >> i & 1))
            continue;
        snprintf(how, sizeof how, "operand %d in two partial sums%s", i, others ? ", the others on one rank only" : "");
        CLV_TRY(try_parts(trials, CLV_REDUCTION_SUM, 1u << i, others, how, err));
    }
    if (additive && rule->linear)
        CLV_TRY(try_parts(trials, CLV_REDUCTION_SUM, rule->linear, 0, "all operands in two partial sums", err));
    if (rule->passes_max)
        CLV_TRY(try_parts(trials, CLV_REDUCTION_MAX, 0, 0, "all operands as partial maxima", err));
    return CLV_OK;
}

/* ---- results in place ---- */

static const char in_place[] = "in place";

static clv_status run_in_place(combined *t, const clv_op_harness *whole, const void *arg, clv_error *err)
{
    CLV_TRY(clv_op_harness_run(arg, in_place, err));
    combined_add(t, arg);
    return CLV_OK;
}

static clv_status try_in_place(clv_sharding_rule_trials *trials, clv_error *err)
{
    CLV_CLEANUP(clv_op_harness_free_all) clv_op_harness part = *trials->whole;
    bool any = false;
    CLV_TRY(clv_op_harness_alloc_all(&part, trials->whole, err));
    for (int o = 0; o < part.op->n_out; o++) {
        int i = part.op->def->in_place[o] - 1;
        if (i < 0 || i >= part.op->n_in || !part.in[i].data ||
            clv_view_byte_size(&part.in[i]) != clv_view_byte_size(&part.out[o]))
            continue;
        clv_op_harness_free(&part.out[o]);
        part.out[o].data = part.in[i].data;
        part.aliases[o] = 1 + i;
        any = true;
    }
    if (any)
        CLV_TRY(run_trial(trials, CLV_REDUCTION_SUM, run_in_place, &part, in_place, &trials->in_place, err));
    return CLV_OK;
}

clv_status clv_sharding_rule_check(clv_sharding_rule_trials *trials, clv_error *err)
{
    for (int f = 0; f < trials->rule->n_factors; f++)
        CLV_TRY(try_factor(trials, f, err));
    CLV_TRY(try_pairs(trials, err));
    CLV_TRY(try_linearity(trials, err));
    return try_in_place(trials, err);
}
