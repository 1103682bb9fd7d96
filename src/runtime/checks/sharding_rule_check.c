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

/* ---- results, put together ---- */

typedef struct together {
    clv_reduction how;
    double *sum[CLV_MAX_OUT];
} together;

static void combined_free(together *t)
{
    for (int o = 0; o < CLV_MAX_OUT; o++)
        free(t->sum[o]);
}

/* On failure what there is of it is still the caller's to free. */
static clv_status combined_new(together *t, const clv_op_harness *whole, clv_reduction how, clv_error *err)
{
    *t = (together){.how = how};
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

/* Blocks that do not overlap add up to the whole; those that do are partial sums, or maxima. */
static void combined_add(together *t, const clv_op_harness *part)
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

/* How many numbers an element of a result is the sum of, by the rule. */
static double summed(const clv_rule *rule)
{
    double n = 1;
    for (int f = 0; f < rule->n_factors; f++)
        n *= rule->factor[f].reduction == CLV_REDUCTION_SUM ? (double)rule->factor[f].size : 1;
    return n;
}

/* Operands below f64 are computed in f32. A sum in one row rounds by what it has come to, so in parts otherwise. */
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
    }
    return unit * fmax(1, summed(trials->rule) / few);
}

static clv_status combined_compare(const together *t, const clv_sharding_rule_trials *trials, const char *how,
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
                                   "%s: element %s of result %d comes to %.9g; whole it is %.9g", how,
                                   clv_op_harness_print_index(index, view, i), o, got, want);
        }
    }
    return CLV_OK;
}

/* ---- parts of a call ---- */

/* Changes a part's operands before it runs. */
typedef void change(clv_op_harness *part, const void *arg);

static clv_status add_part(together *t, const clv_op_harness *shapes, const clv_op_harness *whole, change *changes,
                           const void *arg, const char *how, clv_error *err)
{
    clv_op_harness part = *shapes;
    clv_status status = clv_op_harness_alloc_all(&part, whole, err);
    if (status == CLV_OK && changes)
        changes(&part, arg);
    if (status == CLV_OK)
        status = clv_op_harness_run(&part, how, err);
    if (status == CLV_OK)
        combined_add(t, &part);
    clv_op_harness_free_all(&part);
    return status;
}

/* ---- factors cut ---- */

typedef struct factor_cut {
    const clv_rule *rule;
    int factor;
    int64_t blocks, kept; /* kept < blocks: the factor is cut into `kept`, and the rest cuts the factor it spills to */
    bool first_empty;     /* of two blocks, of which the other has all */
    const struct factor_cut *also; /* of another factor, whose dimensions are others, at once; NULL: none */
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

/* Narrows a view to its part for `block`; false where that is not a contiguous cut (a minor factor of several). */
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

/* What is planned for the largest shards must do for each. */
static void grow(clv_view *largest, const clv_view *part)
{
    for (int d = 0; d < part->rank; d++)
        largest->shape[d] = part->shape[d] > largest->shape[d] ? part->shape[d] : largest->shape[d];
}

static clv_status check_workspaces(const clv_op_harness *whole, const factor_cut *cut, clv_error *err)
{
    clv_op_harness largest = *whole;
    char how[HOW];
    slice_all_views(&largest, cut, 0);
    for (int64_t block = 1; block < blocks_of(cut); block++) {
        clv_op_harness part = *whole;
        slice_all_views(&part, cut, block);
        for (int i = 0; i < whole->op->n_in; i++)
            grow(&largest.in[i], &part.in[i]);
        for (int o = 0; o < whole->op->n_out; o++)
            grow(&largest.out[o], &part.out[o]);
    }
    size_t planned = clv_op_harness_workspace_bytes(&largest);
    for (int64_t block = 0; block < blocks_of(cut); block++) {
        clv_op_harness part = *whole;
        slice_all_views(&part, cut, block);
        size_t wanted = clv_op_harness_workspace_bytes(&part);
        print_cut(how, cut, block);
        if (wanted > planned)
            return clv_fail_at(err, CLV_ECHECK, -1, whole->op->name,
                               "%s: it wants a workspace of %zu bytes, and of %zu for the largest shard; valid: one "
                               "that does not fall when a local extent grows",
                               how, wanted, planned);
    }
    return CLV_OK;
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

/* A part that is said to cost more than the whole keeps an op from being split. */
static clv_status check_costs(const clv_op_harness *whole, const factor_cut *cut, clv_error *err)
{
    clv_op_cost all, some;
    char how[HOW];
    CLV_TRY(cost_of(&all, whole, err));
    for (int64_t block = 0; block < blocks_of(cut); block++) {
        clv_op_harness part = *whole;
        clv_error why = {0};
        slice_all_views(&part, cut, block);
        print_cut(how, cut, block);
        if (cost_of(&some, &part, &why) != CLV_OK)
            return clv_fail_at(err, why.code, -1, whole->op->name, "%s: %s", how, why.message);
        if (some.flops > all.flops || some.bytes > all.bytes)
            return clv_fail_at(err, CLV_ECHECK, -1, whole->op->name,
                               "%s: it costs %g flops and %g bytes, and whole %g and %g; valid: no more than whole",
                               how, some.flops, some.bytes, all.flops, all.bytes);
    }
    return CLV_OK;
}

static clv_status run_blocks(together *t, const clv_op_harness *whole, const factor_cut *cut, clv_error *err)
{
    char how[HOW];
    for (int64_t block = 0; block < blocks_of(cut); block++) {
        clv_op_harness part = *whole;
        slice_all_views(&part, cut, block);
        print_cut(how, cut, block);
        CLV_TRY(add_part(t, &part, whole, NULL, NULL, how, err));
    }
    return CLV_OK;
}

/* How parts combine over the factors that are cut: of those of pairs one is none, or both are the same. */
static clv_reduction reduction_of(const factor_cut *cut)
{
    clv_reduction own = cut->rule->factor[cut->factor].reduction;
    return own == CLV_REDUCTION_NONE && cut->also ? cut->rule->factor[cut->also->factor].reduction : own;
}

static clv_status try_cut(clv_sharding_rule_trials *trials, const factor_cut *cut, clv_error *err)
{
    const clv_op_harness *whole = trials->whole;
    clv_op_harness part = *whole;
    together t;
    char how[HOW];
    if (!slice_all_views(&part, cut, 0))
        return CLV_OK;
    CLV_TRY(check_workspaces(whole, cut, err));
    CLV_TRY(check_costs(whole, cut, err));
    clv_status status = combined_new(&t, whole, reduction_of(cut), err);
    if (status == CLV_OK)
        status = run_blocks(&t, whole, cut, err);
    print_cut(how, cut, -1);
    if (status == CLV_OK)
        status = combined_compare(&t, trials, how, err);
    combined_free(&t);
    trials->cuts += status == CLV_OK;
    return status;
}

/* A result without the factor must say how it combines, else no mesh may split it. */
static bool may_split(const clv_sharding_rule_trials *trials, int factor)
{
    const clv_factor *f = &trials->rule->factor[factor];
    bool may = !f->whole;
    for (int o = 0; o < trials->whole->op->n_out; o++)
        may = may &&
              (f->reduction != CLV_REDUCTION_NONE || holds(trials->rule->out[o], trials->whole->out[o].rank, factor));
    return may;
}

/* In two and three blocks, in as many as do not divide it, where it has so many elements, and so that one is empty. */
static clv_status try_factor(clv_sharding_rule_trials *trials, int f, clv_error *err)
{
    enum { MOST_SPILT = 8 };
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
    if (factor->size >= 3) /* in fewer elements three blocks left one empty */
        CLV_TRY(try_cut(trials, &(factor_cut){rule, f, 2, 2, true, NULL}, err));
    if (factor->overflow < 0 || rule->factor[factor->overflow].size <= 1 || factor->size < 1)
        return CLV_OK;
    for (int64_t blocks = factor->size + 1; blocks <= MOST_SPILT; blocks++)
        CLV_TRY(try_cut(trials, &(factor_cut){rule, f, blocks, clv_gcd(blocks, factor->size), false, NULL}, err));
    return CLV_OK;
}

/* Whether a dimension of the tensor holds both. */
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
    bool apart = a == b || a == CLV_REDUCTION_NONE || b == CLV_REDUCTION_NONE;
    for (int i = 0; i < whole->op->n_in; i++)
        apart = apart && !dim_has_both(rule->in[i], whole->in[i].rank, f, g);
    for (int o = 0; o < whole->op->n_out; o++)
        apart = apart && !dim_has_both(rule->out[o], whole->out[o].rank, f, g);
    return apart;
}

/* Two factors at once, as meshes of two axes split them. */
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

/* Two ranks' parts of operands. */
typedef struct parts {
    clv_key key;
    int turn;                 /* 0 and 1 */
    uint32_t partial, masked; /* bit i: operand i */
} parts;

static uint32_t drawn(clv_key key, int i, int64_t e)
{
    uint32_t bits;
    clv_random_bits(&bits, clv_key_fold_in(key, (uint32_t)i), (uint64_t)e, 1);
    return bits;
}

/* Shares of either sign that vary over elements and are exact in every dtype; or, masked, all or nothing. */
static void make_terms(clv_op_harness *part, const void *arg)
{
    static const double shares[] = {2, -1, 0.5, 0, 1};
    const parts *p = arg;
    for (int i = 0; i < part->op->n_in; i++) {
        clv_view *in = &part->in[i];
        int64_t elems = in->data && ((p->partial | p->masked) >> i & 1) ? clv_view_elems(in) : 0;
        for (int64_t e = 0; e < elems; e++) {
            double share = p->masked >> i & 1 ? 1 : shares[drawn(p->key, i, e) % 5];
            double x = clv_dtype_load(in->dtype, in->data, e), mine = p->turn == 0 ? share : 1 - share;
            if (!isfinite(x)) /* whole on one rank: it has no shares */
                mine = share > 0.5 ? 1 - p->turn : p->turn;
            clv_dtype_store(in->dtype, in->data, e, mine == 0 ? 0 : x * mine);
        }
    }
}

/* An element is whole on one rank, and less on the other, or nothing. */
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
            x -= (int)(bits & 1) == p->turn ? 0 : nothing ? INFINITY : (double)less;
            clv_dtype_store(in->dtype, in->data, e, x);
        }
    }
}

static clv_status try_parts(clv_sharding_rule_trials *trials, clv_reduction reduction, uint32_t partial,
                            uint32_t masked, const char *how, clv_error *err)
{
    parts p = {.key = clv_key_fold_in(trials->key, (uint32_t)trials->partials), .partial = partial, .masked = masked};
    together t;
    clv_status status = combined_new(&t, trials->whole, reduction, err);
    for (p.turn = 0; p.turn < 2 && status == CLV_OK; p.turn++)
        status = add_part(&t, trials->whole, trials->whole, reduction == CLV_REDUCTION_MAX ? make_maxima : make_terms,
                          &p, how, err);
    if (status == CLV_OK)
        status = combined_compare(&t, trials, how, err);
    combined_free(&t);
    trials->partials += status == CLV_OK;
    return status;
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
        snprintf(how, sizeof how, "operand %d in two addends%s", i, others ? ", the others on one rank alone" : "");
        CLV_TRY(try_parts(trials, CLV_REDUCTION_SUM, 1u << i, others, how, err));
    }
    if (additive && rule->linear)
        CLV_TRY(try_parts(trials, CLV_REDUCTION_SUM, rule->linear, 0, "all operands in two addends", err));
    if (rule->passes_max)
        CLV_TRY(try_parts(trials, CLV_REDUCTION_MAX, 0, 0, "all operands as partial maxima", err));
    return CLV_OK;
}

/* ---- results in place ---- */

static clv_status run_in_place(clv_sharding_rule_trials *trials, clv_op_harness *part, clv_error *err)
{
    static const char how[] = "in place";
    together t;
    clv_status status = combined_new(&t, trials->whole, CLV_REDUCTION_SUM, err);
    if (status == CLV_OK)
        status = clv_op_harness_run(part, how, err);
    if (status == CLV_OK) {
        combined_add(&t, part);
        status = combined_compare(&t, trials, how, err);
    }
    combined_free(&t);
    trials->in_place += status == CLV_OK;
    return status;
}

static clv_status try_in_place(clv_sharding_rule_trials *trials, clv_error *err)
{
    clv_op_harness part = *trials->whole;
    bool any = false;
    clv_status status = clv_op_harness_alloc_all(&part, trials->whole, err);
    for (int o = 0; o < part.op->n_out && status == CLV_OK; o++) {
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
        status = run_in_place(trials, &part, err);
    clv_op_harness_free_all(&part);
    return status;
}

clv_status clv_sharding_rule_check(clv_sharding_rule_trials *trials, clv_error *err)
{
    for (int f = 0; f < trials->rule->n_factors; f++)
        CLV_TRY(try_factor(trials, f, err));
    CLV_TRY(try_pairs(trials, err));
    CLV_TRY(try_linearity(trials, err));
    return try_in_place(trials, err);
}
