/* sharding_projection.c - factor shardings to operand and result layouts (projection, as in Shardy). */
#include "partition/sharding/sharding_projection.h"
#include "tensor/gcd.h"

#include <string.h>

/* ---- what is fixed for a problem ---- */

static int subaxis_index(const clv_subaxis *subaxes, int n_subaxes, clv_subaxis sub, int first)
{
    for (int a = first; a < n_subaxes; a++)
        if (clv_subaxis_contains(sub, subaxes[a]))
            return a;
    return -1;
}

static void append_once(int *order, int *n, int subaxis)
{
    for (int i = 0; i < *n; i++)
        if (order[i] == subaxis)
            return;
    order[(*n)++] = subaxis;
}

typedef struct context_builder {
    clv_projection_context *context;
    int n_ordered[CLV_MAX_FACTORS];
    bool fixed[CLV_MAX_FACTORS]; /* the alignment is that of a stationary operand */
} context_builder;

/* Adds the order of sub-axes and the alignments of a layout to the factors of its dimensions. */
static void add_layout_order(context_builder *l, const clv_strategy_problem *p, const clv_layout *layout,
                             const clv_dim_factors *dims, const clv_subaxis *subaxes, int n_subaxes)
{
    clv_projection_context *out = l->context;
    for (int d = 0; d < layout->rank; d++) {
        const clv_subaxis *axes;
        int n = clv_layout_axes(&axes, layout, d);
        for (int j = 0; n > 0 && j < dims[d].n; j++) {
            int f = (unsigned char)dims[d].factor[j];
            for (int i = 0; i < n; i++)
                for (int a = subaxis_index(subaxes, n_subaxes, axes[i], 0); a >= 0;
                     a = subaxis_index(subaxes, n_subaxes, axes[i], a + 1))
                    append_once(out->order[f], &l->n_ordered[f], a);
            int64_t minor = 1;
            for (int k = j + 1; k < dims[d].n; k++)
                minor *= p->rule.factor[dims[d].factor[k]].size;
            if (l->fixed[f] || minor == 0 || layout->alignment[d] % minor != 0)
                continue;
            int64_t alignment = layout->alignment[d] / minor;
            int64_t joint = out->alignment[f] / clv_gcd(out->alignment[f], alignment) * alignment;
            if (alignment > 0 && p->rule.factor[f].size % joint == 0)
                out->alignment[f] = joint;
        }
    }
}

/* A stationary operand keeps its blocks: alignments of other layouts must not move its borders. */
static void add_stationary_blocks(context_builder *l, const clv_strategy_problem *p, int i, const clv_subaxis *subaxes,
                                  int n_subaxes)
{
    const clv_layout *layout = p->available[i][0];
    add_layout_order(l, p, layout, p->rule.in[i], subaxes, n_subaxes);
    for (int d = 0; d < layout->rank; d++) {
        const clv_subaxis *axes;
        bool kept = false;
        int n = clv_layout_axes(&axes, layout, d);
        for (int k = 0; k < n; k++)
            kept = kept || (p->stationary_axes[i] >> axes[k].axis & 1);
        for (int j = 0; kept && j < p->rule.in[i][d].n; j++)
            l->fixed[p->rule.in[i][d].factor[j]] = true;
    }
}

void clv_projection_context_make(clv_projection_context *out, const clv_strategy_problem *p, const clv_subaxis *subaxes,
                                 int n_subaxes)
{
    context_builder l = {.context = out};
    for (int f = 0; f < p->rule.n_factors; f++)
        out->alignment[f] = 1;
    for (int i = 0; i < p->op->n_in; i++)
        if (p->stationary_axes[i] && p->n_available[i] > 0)
            add_stationary_blocks(&l, p, i, subaxes, n_subaxes);
    for (int i = 0; i < p->op->n_in; i++)
        for (int k = 0; k < p->n_available[i]; k++)
            add_layout_order(&l, p, p->available[i][k], p->rule.in[i], subaxes, n_subaxes);
    for (int o = 0; o < p->op->n_out; o++)
        if (p->has_target[o])
            add_layout_order(&l, p, &p->target[o], p->rule.out[o], subaxes, n_subaxes);
    for (int f = 0; f < p->rule.n_factors; f++)
        for (int a = 0; a < n_subaxes; a++)
            append_once(out->order[f], &l.n_ordered[f], a);
}

/* ---- one assignment ---- */

static bool refuse(const clv_strategy_problem *p, clv_refusal_kind kind, int factor)
{
    return clv_strategy_refuse(p, (clv_refusal){.kind = kind, .factor = factor, .operand = -1});
}

static bool refuse_partial(const clv_strategy_problem *p, clv_subaxis axis)
{
    return clv_strategy_refuse(p,
                               (clv_refusal){.kind = CLV_REFUSED_PARTIAL, .factor = -1, .operand = -1, .axis = axis});
}

/* Splits a factor into more blocks than it has elements (KV-head replication): gcd(blocks, size) blocks, by the outer
 * sub-axes (one of which may be divided), and the rest splits the overflow factor. False if the sub-axes do not divide
 * so. */
static bool overflow(clv_sharding_projection *out, const clv_factor *factor, int f)
{
    clv_factor_sharding whole = out->factor[f];
    clv_factor_sharding *major = &out->factor[f], *minor = &out->factor[factor->overflow];
    int64_t keep = clv_gcd(whole.blocks, factor->size);
    *major = (clv_factor_sharding){.blocks = 1, .alignment = 1};
    *minor = (clv_factor_sharding){.blocks = 1, .alignment = 1, .remainder = true};
    for (int i = 0; i < whole.n; i++) {
        clv_subaxis sub = whole.axes[i];
        int64_t here = clv_gcd(sub.size, keep / major->blocks);
        if (minor->n > 0)
            here = 1;
        if (here > 1) {
            major->axes[major->n++] = (clv_subaxis){sub.axis, sub.pre, (int32_t)here};
            major->blocks *= here;
        }
        if (here < sub.size) {
            minor->axes[minor->n++] = (clv_subaxis){sub.axis, (int32_t)(sub.pre * here), (int32_t)(sub.size / here)};
            minor->blocks *= sub.size / here;
        }
    }
    return minor->n < CLV_MAX_SUBAXES;
}

bool clv_sharding_projection_make(clv_sharding_projection *out, const clv_strategy_problem *p,
                                  const clv_projection_context *context, const clv_subaxis *subaxes,
                                  const int8_t *choice, int n_subaxes)
{
    memset(out, 0, sizeof *out);
    for (int f = 0; f < p->rule.n_factors; f++) {
        clv_factor_sharding *split = &out->factor[f];
        split->blocks = 1;
        split->alignment = context->alignment[f];
        for (int i = 0; i < n_subaxes; i++) {
            int a = context->order[f][i];
            if (choice[a] != f)
                continue;
            split->axes[split->n++] = subaxes[a];
            split->blocks *= subaxes[a].size;
        }
        const clv_factor *factor = &p->rule.factor[f];
        if (split->n > 0 && factor->whole &&
            !(factor->or_single && split->blocks == factor->size && split->alignment == 1))
            return refuse(p, CLV_REFUSED_WHOLE, f);
    }
    for (int f = 0; f < p->rule.n_factors; f++) {
        const clv_factor *factor = &p->rule.factor[f];
        if (factor->overflow < 0)
            continue;
        if (out->factor[factor->overflow].n > 0)
            return refuse(p, CLV_REFUSED_OVERFLOW, factor->overflow);
        if (out->factor[f].blocks > factor->size && p->rule.factor[factor->overflow].size > 1 &&
            !overflow(out, factor, f))
            return refuse(p, CLV_REFUSED_OVERFLOW, f);
    }
    for (int a = 0; a < n_subaxes; a++)
        if (choice[a] == CLV_CHOICE_PARTIAL)
            out->partial[out->n_partial++] = subaxes[a];
    return true;
}

static int64_t factor_size(const clv_strategy_problem *p, int f)
{
    return p->rule.factor[f].size;
}

/* Shards dimension d by the shardings of its factors; false if its blocks would not be contiguous and equal. */
static bool cut_dim(clv_layout *layout, const clv_strategy_problem *p, const clv_sharding_projection *splits,
                    const clv_dim_factors *dim, int d)
{
    clv_subaxis axes[CLV_MAX_SUBAXES];
    int n = 0;
    int64_t alignment = 1;
    bool open = false; /* an outer factor is not split into single elements */
    for (int j = 0; j < dim->n; j++) {
        int f = (unsigned char)dim->factor[j];
        const clv_factor_sharding *split = &splits->factor[f];
        if (split->n == 0) {
            alignment *= factor_size(p, f);
            open = open || factor_size(p, f) != 1;
            continue;
        }
        if (open && !split->remainder)
            return refuse(p, CLV_REFUSED_MINOR_FACTOR, f);
        if (n + split->n > CLV_MAX_SUBAXES)
            return refuse(p, CLV_REFUSED_LAYOUT, f);
        memcpy(axes + n, split->axes, (size_t)split->n * sizeof *axes);
        n += split->n;
        alignment = split->alignment;
        open = split->alignment != 1 || split->blocks != factor_size(p, f);
    }
    if (n == 0)
        return true;
    if (alignment < 1)
        alignment = 1; /* a minor factor of size 0: nothing to keep together */
    return clv_layout_set_dim(layout, p->mesh, d, axes, n, alignment, NULL) == CLV_OK ||
           refuse(p, CLV_REFUSED_LAYOUT, -1);
}

static bool add_partials(clv_layout *layout, const clv_strategy_problem *p, const clv_subaxis *axes, int n,
                         clv_reduction how)
{
    for (int i = 0; i < n; i++) {
        if (layout->reduction != CLV_REDUCTION_NONE && layout->reduction != how)
            return false;
        if (clv_layout_add_partial(layout, p->mesh, how, axes[i], NULL) != CLV_OK)
            return false;
    }
    return true;
}

static bool partial_over(const clv_layout *layout, clv_subaxis subaxis)
{
    const clv_subaxis *axes;
    int n = clv_layout_axes(&axes, layout, layout->rank);
    for (int i = 0; i < n; i++)
        if (clv_subaxis_contains(axes[i], subaxis))
            return true;
    return false;
}

static bool available_partial(const clv_strategy_problem *p, int i, clv_subaxis subaxis, clv_reduction how)
{
    for (int k = 0; k < p->n_available[i]; k++)
        if (p->available[i][k]->reduction == how && partial_over(p->available[i][k], subaxis))
            return true;
    return false;
}

/* The reduction under which operands may stay partial over the sub-axis; NONE if they may not. */
static clv_reduction passing(const clv_strategy_problem *p, clv_subaxis subaxis)
{
    if (p->rule.linearity != CLV_NOT_LINEAR)
        for (int i = 0; i < p->op->n_in; i++)
            if ((p->rule.linear >> i & 1) && available_partial(p, i, subaxis, CLV_REDUCTION_SUM))
                return CLV_REDUCTION_SUM;
    if (!p->rule.passes_max)
        return CLV_REDUCTION_NONE;
    for (int i = 0; i < p->op->n_in; i++)
        if (p->op->in[i] > 0 && !available_partial(p, i, subaxis, CLV_REDUCTION_MAX))
            return CLV_REDUCTION_NONE;
    return CLV_REDUCTION_MAX;
}

bool clv_projection_may_stay_partial(const clv_strategy_problem *p, clv_subaxis subaxis)
{
    return passing(p, subaxis) != CLV_REDUCTION_NONE;
}

/* Whether operand i is partial over a sub-axis over which operands stay partial. */
static bool carries_partial(const clv_strategy_problem *p, int i, clv_subaxis subaxis, clv_reduction how)
{
    if (how == CLV_REDUCTION_MAX)
        return true;
    if (!(p->rule.linear >> i & 1))
        return false;
    if (p->rule.linearity == CLV_ADDITIVE)
        return true;
    for (int before = 0; before < i; before++)
        if ((p->rule.linear >> before & 1) && available_partial(p, before, subaxis, CLV_REDUCTION_SUM))
            return false;
    return available_partial(p, i, subaxis, CLV_REDUCTION_SUM);
}

bool clv_projection_operand_layout(clv_layout *out, const clv_strategy_problem *p,
                                   const clv_sharding_projection *splits, int i)
{
    *out = clv_layout_replicated(p->in[i].rank);
    for (int d = 0; d < out->rank; d++)
        if (!cut_dim(out, p, splits, &p->rule.in[i][d], d))
            return false;
    for (int a = 0; a < splits->n_partial; a++) {
        clv_reduction how = passing(p, splits->partial[a]);
        if (how == CLV_REDUCTION_NONE)
            return refuse_partial(p, splits->partial[a]);
        if (carries_partial(p, i, splits->partial[a], how) && !add_partials(out, p, &splits->partial[a], 1, how))
            return refuse_partial(p, splits->partial[a]);
    }
    return true;
}

int clv_projection_dim_of_factor(const clv_dim_factors *dims, int rank, int f)
{
    for (int d = 0; d < rank; d++)
        for (int j = 0; j < dims[d].n; j++)
            if (dims[d].factor[j] == f)
                return d;
    return -1;
}

bool clv_projection_result_layout(clv_layout *out, const clv_strategy_problem *p, const clv_sharding_projection *splits,
                                  int o)
{
    *out = clv_layout_replicated(p->out[o].rank);
    for (int d = 0; d < out->rank; d++)
        if (!cut_dim(out, p, splits, &p->rule.out[o][d], d))
            return false;
    for (int f = 0; f < p->rule.n_factors; f++) {
        const clv_factor_sharding *split = &splits->factor[f];
        if (split->n == 0 || clv_projection_dim_of_factor(p->rule.out[o], out->rank, f) >= 0)
            continue;
        if (p->rule.factor[f].reduction == CLV_REDUCTION_NONE ||
            !add_partials(out, p, split->axes, split->n, p->rule.factor[f].reduction))
            return refuse(p, CLV_REFUSED_REDUCTION, f);
    }
    for (int a = 0; a < splits->n_partial; a++)
        if (!add_partials(out, p, &splits->partial[a], 1, passing(p, splits->partial[a])))
            return refuse_partial(p, splits->partial[a]);
    return true;
}
