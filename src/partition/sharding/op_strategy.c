/* op_strategy.c - sharding strategy of one op: mesh sub-axes to factors; its layouts, reshards and cost. */
#include "partition/sharding/op_strategy.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/operand_checks.h"
#include "partition/reshard/axis_division.h"
#include "partition/sharding/sharding_projection.h"
#include "program/program.h"

void clv_strategy_problem_init(clv_strategy_problem *problem, clv_type *types, const clv_graph *graph, const clv_op *op)
{
    memset(problem, 0, sizeof *problem);
    memset(types, 0, (CLV_MAX_IN + CLV_MAX_OUT) * sizeof *types);
    problem->op = op;
    problem->mesh = &graph->mesh;
    problem->in = types;
    problem->out = types + CLV_MAX_IN;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            types[i] = graph->values[op->in[i]].type;
    for (int o = 0; o < op->n_out; o++)
        types[CLV_MAX_IN + o] = graph->values[op->out[o]].type;
    for (int f = 0; f < CLV_MAX_FACTORS; f++)
        problem->rule.factor[f].overflow = -1;
    op->def->rule(op, problem->in, problem->out, &problem->rule);
}

/* ---- sub-axes ---- */

/* The n-th of a problem's available and then target layouts; NULL after the last. */
static const clv_layout *nth_layout(const clv_strategy_problem *p, int n)
{
    for (int i = 0; i < p->op->n_in; n -= p->n_available[i++])
        if (n < p->n_available[i])
            return p->available[i][n];
    for (int o = 0; o < p->op->n_out; o++)
        if (p->has_target[o] && n-- == 0)
            return &p->target[o];
    return NULL;
}

/* Whether an available or target layout uses the sub-axis; otherwise it is idle. */
static bool in_use(const clv_strategy_problem *p, clv_subaxis subaxis)
{
    const clv_layout *layout;
    for (int i = 0; (layout = nth_layout(p, i)) != NULL; i++)
        if (clv_layout_uses_subaxis(layout, subaxis))
            return true;
    return false;
}

/* x:(1)2 and x:(1)3 of 6 have no common refinement: then there is a division of the axes for each layout. */
int clv_strategy_list_subaxes(clv_subaxis *subaxes, const clv_strategy_problem *p, int division)
{
    clv_axis_division axes[CLV_MAX_AXES];
    const clv_layout *layout = nth_layout(p, division);
    bool nests = true;
    int n = 0;
    if (division > 0 && !layout)
        return -1;
    clv_axis_divisions_init(axes, p->mesh);
    for (int i = -1; i < 0 || layout; layout = nth_layout(p, ++i))
        nests = (!layout || clv_axis_divisions_add_layout(axes, layout)) && nests;
    if (division > 0 && nests)
        return -1;
    for (int a = 0; a < p->mesh->n_axes; a++)
        for (int i = 0; i + 1 < axes[a].n; i++) {
            clv_subaxis subaxis = clv_axis_division_subaxis(&axes[a], a, i);
            if (p->idle_axes || in_use(p, subaxis))
                subaxes[n++] = subaxis;
        }
    return n;
}

/* ---- cost of one assignment ---- */

static double work_seconds(const clv_strategy_problem *p, const clv_strategy *s)
{
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < p->op->n_in; i++)
        if (p->op->in[i] > 0)
            in[i] = clv_largest_shard_type(&p->in[i], &s->in[i]);
    for (int o = 0; o < p->op->n_out; o++)
        out[o] = clv_largest_shard_type(&p->out[o], &s->out[o]);
    return clv_cost_work_seconds(&p->rates, clv_cost_op_work(p->op, in, out));
}

/* Adds the cost of a reshard, of whose bytes `sharers` values each bear a part. */
static void add_reshard(clv_strategy *s, const clv_reshard_plan *plan, int sharers)
{
    s->bytes += plan->bytes / sharers;
    s->moves += plan->moves;
    s->seconds += plan->start_s + (plan->seconds - plan->start_s) / sharers;
}

clv_status clv_strategy_add_operand_reshard(clv_strategy *s, const clv_strategy_problem *p, int i, clv_error *err)
{
    const clv_reshard_plan *plan;
    s->source[i] = -1;
    if (p->n_available[i] == 0)
        return CLV_OK;
    CLV_TRY(clv_reshard_cache_cheapest(&plan, &s->source[i], p->reshards, p->available[i], p->n_available[i], &s->in[i],
                                       p->in[i].shape, p->in[i].dtype, err));
    add_reshard(s, plan, 1);
    return CLV_OK;
}

static bool overlaps(const clv_subaxis *axes, int n, clv_subaxis axis)
{
    bool any = false;
    for (int i = 0; i < n; i++)
        any = any || clv_subaxis_overlap(axes[i], axis);
    return any;
}

/* The layout of partial sums that are reduced later: sharded like `like`, except over the axes of which `made` is
 * partial; over axes of `stays` as `like` in any case. */
static clv_layout partial_like(const clv_strategy_problem *p, const clv_layout *like, const clv_layout *made,
                               uint32_t stays)
{
    clv_layout layout = clv_layout_replicated(like->rank);
    const clv_subaxis *axes, *partial;
    int n_partial = clv_layout_axes(&partial, made, made->rank);
    for (int d = 0; d < like->rank; d++) {
        clv_subaxis kept[CLV_MAX_SUBAXES];
        int kept_n = 0, n = clv_layout_axes(&axes, like, d);
        for (int i = 0; i < n; i++)
            if (stays >> axes[i].axis & 1 || !overlaps(partial, n_partial, axes[i]))
                kept[kept_n++] = axes[i];
        if (kept_n > 0 && clv_layout_set_dim(&layout, p->mesh, d, kept, kept_n, like->alignment[d], NULL) != CLV_OK)
            return *made;
    }
    for (int i = 0; i < n_partial; i++)
        if (!overlaps(layout.axes, layout.begin[layout.rank], partial[i]) &&
            clv_layout_add_partial(&layout, p->mesh, made->reduction, partial[i], NULL) != CLV_OK)
            return *made;
    return layout;
}

clv_status clv_strategy_add_result_reshard(clv_strategy *s, const clv_strategy_problem *p, int o, clv_error *err)
{
    clv_layout reduced = clv_layout_without_partial(&s->out[o]);
    const clv_layout *to = p->has_target[o] ? &p->target[o] : &reduced;
    bool reduced_later = p->accumulation_count[o] == CLV_MANY_PARTIAL_SUMS && clv_layout_is_partial(&s->out[o]);
    clv_layout partial_layout = reduced_later ? partial_like(p, to, &s->out[o], p->stays_partial[o]) : reduced;
    to = reduced_later ? &partial_layout : to;
    const clv_reshard_plan *plan;
    CLV_TRY(clv_reshard_cache_plan(&plan, p->reshards, &s->out[o], to, p->out[o].shape, p->out[o].dtype, err));
    add_reshard(s, plan, clv_layout_is_partial(&s->out[o]) && !reduced_later ? p->accumulation_count[o] : 1);
    return CLV_OK;
}

/* Whether the sub-axis overlaps a sub-axis of the layout that does not contain it. */
static bool crosses(const clv_layout *layout, clv_subaxis subaxis)
{
    for (int i = 0; i < layout->begin[layout->rank]; i++)
        if (clv_subaxis_overlap(layout->axes[i], subaxis) && !clv_subaxis_contains(layout->axes[i], subaxis))
            return true;
    return false;
}

int clv_strategy_dim_of(const clv_layout *layout, clv_subaxis subaxis)
{
    for (int d = 0; d <= layout->rank; d++) {
        const clv_subaxis *axes;
        int n = clv_layout_axes(&axes, layout, d);
        for (int i = 0; i < n; i++)
            if (clv_subaxis_overlap(axes[i], subaxis))
                return d;
    }
    return -1;
}

/* Whether no stationary operand is moved. */
static bool keeps_stationary(const clv_strategy *s, const clv_strategy_problem *p)
{
    for (int i = 0; i < p->op->n_in; i++)
        for (int a = 0; p->stationary_axes[i] && a < s->n_subaxes; a++)
            if ((p->stationary_axes[i] >> s->subaxis[a].axis & 1) &&
                (crosses(p->available[i][0], s->subaxis[a]) ||
                 clv_strategy_dim_of(&s->in[i], s->subaxis[a]) !=
                     clv_strategy_dim_of(p->available[i][0], s->subaxis[a])))
                return clv_strategy_refuse(
                    p,
                    (clv_refusal){.kind = CLV_REFUSED_STATIONARY, .operand = i, .axis = s->subaxis[a], .factor = -1});
    return true;
}

bool clv_strategy_fill_layouts(clv_strategy *s, const clv_strategy_problem *p, const clv_projection_context *context,
                               bool keep)
{
    clv_sharding_projection splits;
    bool legal = clv_sharding_projection_make(&splits, p, context, s->subaxis, s->choice, s->n_subaxes);
    for (int i = 0; legal && i < p->op->n_in; i++)
        legal = p->op->in[i] == 0 || clv_projection_operand_layout(&s->in[i], p, &splits, i);
    for (int o = 0; legal && o < p->op->n_out; o++)
        legal = clv_projection_result_layout(&s->out[o], p, &splits, o);
    if (!legal || (keep && !keeps_stationary(s, p)))
        return false;
    s->bytes = 0;
    s->moves = 0;
    s->seconds = s->work_seconds = work_seconds(p, s);
    return true;
}

clv_status clv_strategy_fill_cost(clv_strategy *s, bool *legal, const clv_strategy_problem *p,
                                  const clv_projection_context *context, bool keep, clv_error *err)
{
    *legal = clv_strategy_fill_layouts(s, p, context, keep);
    for (int i = 0; *legal && i < p->op->n_in; i++)
        CLV_TRY(clv_strategy_add_operand_reshard(s, p, i, err));
    for (int o = 0; *legal && o < p->op->n_out; o++)
        CLV_TRY(clv_strategy_add_result_reshard(s, p, o, err));
    return CLV_OK;
}

int clv_strategy_cost_compare(const clv_strategy_cost *a, const clv_strategy_cost *b, bool by_bytes)
{
    int order = by_bytes ? 0 : clv_cost_compare(a->seconds, b->seconds);
    if (order == 0)
        order = clv_cost_compare(a->bytes, b->bytes);
    if (order == 0)
        order = clv_cost_compare(a->work_seconds, b->work_seconds);
    return order != 0 ? order : (a->moves > b->moves) - (a->moves < b->moves);
}

clv_strategy_cost clv_strategy_cost_of(const clv_strategy *s)
{
    return (clv_strategy_cost){s->seconds, s->bytes, s->work_seconds, s->moves};
}

/* ---- choices ---- */

static bool some_partial(const clv_strategy_problem *p)
{
    for (int i = 0; i < p->op->n_in; i++)
        for (int k = 0; k < p->n_available[i]; k++)
            if (clv_layout_is_partial(p->available[i][k]))
                return true;
    return false;
}

/* The largest number of blocks of a factor, with its overflow. */
static int64_t cuttable_size(const clv_rule *rule, int f)
{
    int overflow = rule->factor[f].overflow;
    return rule->factor[f].size * (overflow < 0 ? 1 : rule->factor[overflow].size);
}

/* Partial, none, each factor that can be split. Of equal costs the first one wins, so partial values stay partial as
 * long as that costs nothing. */
int clv_strategy_list_choices(int8_t *choices, const clv_strategy_problem *p)
{
    int n = 0;
    if (some_partial(p) && (p->rule.linearity != CLV_NOT_LINEAR || p->rule.passes_max))
        choices[n++] = CLV_CHOICE_PARTIAL;
    choices[n++] = CLV_CHOICE_NONE;
    for (int f = 0; f < p->rule.n_factors; f++)
        if ((!p->rule.factor[f].whole || p->rule.factor[f].or_single) && cuttable_size(&p->rule, f) > 1)
            choices[n++] = (int8_t)f;
    return n;
}

int clv_strategy_print(char *out, size_t size, const clv_strategy *s, const clv_mesh *mesh)
{
    clv_text text = {.out = out, .size = size};
    for (int a = 0; a < s->n_subaxes; a++) {
        if (s->choice[a] == CLV_CHOICE_NONE)
            continue;
        clv_text_add(&text, "%s", text.length ? ", " : "");
        clv_text_add_subaxis(&text, s->subaxis[a], mesh);
        if (s->choice[a] == CLV_CHOICE_PARTIAL)
            clv_text_add(&text, " passes partial");
        else
            clv_text_add(&text, "->factor %d", s->choice[a]);
    }
    if (text.length == 0)
        clv_text_add(&text, "repeated on every rank");
    return clv_text_finish(&text);
}

void clv_strategy_put_layouts(clv_text *t, const clv_op *op, const clv_strategy *s, const clv_mesh *mesh)
{
    char layout[CLV_LAYOUT_TEXT];
    for (int i = 0, n = 0; i < op->n_in; i++) {
        if (op->in[i] <= 0)
            continue;
        clv_layout_print(layout, sizeof layout, &s->in[i], mesh);
        clv_text_add(t, "%s{%s}", n++ ? ", " : "", layout);
    }
    for (int o = 0; o < op->n_out; o++) {
        clv_layout_print(layout, sizeof layout, &s->out[o], mesh);
        clv_text_add(t, "%s{%s}", o ? ", " : " -> ", layout);
    }
}
