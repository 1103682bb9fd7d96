/* propagate_layouts.c - pass: marks live ops and weights, propagates stated layouts backward as targets, counts
 * accumulations.
 *
 * In: the graph. Out: live_op, readers, and of each value its target layout, stationary axes and accumulation count. A
 * target is a layout that the user stated (constraint, output, assigned state), propagated backward through ops that
 * only move elements. The target of a cotangent, its primal's layout, is found when strategies are chosen.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "partition/passes/passes.h"

static clv_status mark_live_ops(clv_partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    bool *live = clv_arena_alloc(p->scratch, (size_t)graph->n_values, sizeof *live);
    if (!live)
        return clv_fail_memory(err, "live values", (size_t)graph->n_values * sizeof *live);
    for (int o = 0; o < graph->n_outputs; o++)
        live[graph->outputs[o].value] = true;
    for (int v = 1; v < graph->n_values; v++)
        if (graph->values[v].assigned > 0)
            live[graph->values[v].assigned] = true;
    for (int o = graph->n_ops - 1; o >= 0; o--) {
        const clv_op *op = &graph->ops[o];
        for (int r = 0; r < op->n_out; r++)
            p->live_op[o] = p->live_op[o] || live[op->out[r]];
        for (int i = 0; p->live_op[o] && i < op->n_in; i++)
            if (op->in[i] > 0)
                live[op->in[i]] = true;
    }
    return CLV_OK;
}

/* Counts the readers of each value; then (list) stores them from next[value] on. */
static void walk_readers(clv_partitioner *p, int *next, bool list)
{
    for (int o = 0; o < p->graph->n_ops; o++) {
        const clv_op *op = &p->graph->ops[o];
        for (int i = 0; p->live_op[o] && i < op->n_in; i++) {
            if (op->in[i] <= 0)
                continue;
            if (list)
                p->readers[next[op->in[i]]] = o;
            next[op->in[i]]++;
        }
    }
}

static clv_status find_readers(clv_partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    size_t n = (size_t)graph->n_values;
    int *next = clv_arena_alloc(p->scratch, n, sizeof *next);
    p->first_reader = clv_arena_alloc(p->scratch, n + 1, sizeof *p->first_reader);
    if (!next || !p->first_reader)
        return clv_fail_memory(err, "readers", n * sizeof *next);
    walk_readers(p, next, false);
    for (size_t v = 0; v < n; v++) {
        p->first_reader[v + 1] = p->first_reader[v] + next[v];
        next[v] = p->first_reader[v];
    }
    p->readers = clv_arena_alloc(p->scratch, (size_t)p->first_reader[n] + 1, sizeof *p->readers);
    if (!p->readers)
        return clv_fail_memory(err, "readers", (size_t)p->first_reader[n] * sizeof *p->readers);
    walk_readers(p, next, true);
    for (int o = 0; o < graph->n_outputs; o++)
        p->available[graph->outputs[o].value].is_output = true;
    for (size_t v = 1; v < n; v++)
        if (graph->values[v].assigned > 0)
            p->available[graph->values[v].assigned].is_output = true;
    return CLV_OK;
}

static void set_target_layout(clv_partitioner *p, int value, const clv_layout *layout)
{
    clv_available_layouts *at = &p->available[value];
    if (at->has_target)
        return;
    at->has_target = true;
    at->target = *layout;
}

static bool same_factors(const clv_dim_factors *a, const clv_dim_factors *b)
{
    return a->n == b->n && memcmp(a->factor, b->factor, (size_t)a->n) == 0;
}

/* The layout of operand i for which result 0 has layout `target`; false unless the op only moves elements, that is
 * each dimension of the operand has the factors of one of the result. */
static bool propagate_backward(clv_layout *out, const clv_strategy_problem *problem, int i, const clv_layout *target)
{
    const clv_rule *rule = &problem->rule;
    *out = clv_layout_replicated(problem->in[i].rank);
    for (int d = 0; d < out->rank; d++) {
        int match = -1;
        for (int r = 0; match < 0 && r < target->rank; r++)
            if (rule->in[i][d].n > 0 && same_factors(&rule->in[i][d], &rule->out[0][r]))
                match = r;
        if (match < 0 && problem->in[i].shape[d] != 1)
            return false;
        const clv_subaxis *axes = NULL;
        int n = match < 0 ? 0 : clv_layout_axes(&axes, target, match);
        if (n > 0 && clv_layout_set_dim(out, problem->mesh, d, axes, n, target->alignment[match], NULL) != CLV_OK)
            return false;
    }
    return true;
}

static void propagate_targets(clv_partitioner *p)
{
    const clv_graph *graph = p->graph;
    for (int o = 0; o < graph->n_outputs; o++)
        if (graph->outputs[o].stated)
            set_target_layout(p, graph->outputs[o].value, &graph->outputs[o].layout);
    for (int v = 1; v < graph->n_values; v++) {
        const clv_value_info *info = &graph->values[v];
        p->available[v].stationary_axes |=
            info->stationary_axes | (info->primal > 0 ? p->available[info->primal].stationary_axes : 0);
        if (info->assigned <= 0)
            continue;
        set_target_layout(p, info->assigned, &info->layout);
        p->available[info->assigned].stationary_axes |= info->stationary_axes;
    }
    for (int o = graph->n_ops - 1; o >= 0; o--) {
        const clv_op *op = &graph->ops[o];
        if (!p->live_op[o] || clv_op_traits_of(op)->follows_primal)
            continue;
        if (clv_op_constraint_of(op)) {
            set_target_layout(p, op->in[0], clv_op_constraint_of(op));
            continue;
        }
        const clv_available_layouts *result = &p->available[op->out[0]];
        if (!result->has_target || op->n_out != 1 || !op->def->rule)
            continue;
        clv_strategy_problem problem;
        clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
        clv_partition_init_problem(&problem, types, p, op);
        for (int i = 0; i < op->n_in; i++) {
            clv_layout layout;
            if (op->in[i] > 0 && clv_type_elems(&problem.in[i]) == clv_type_elems(&problem.out[0]) &&
                propagate_backward(&layout, &problem, i, &result->target))
                set_target_layout(p, op->in[i], &layout);
        }
    }
}

static bool is_sum(const clv_partitioner *p, int o)
{
    const clv_op *op = &p->graph->ops[o];
    return p->live_op[o] && clv_op_is_sum(op) && op->in[0] != op->in[1];
}

static bool has_one_reader(const clv_partitioner *p, int value)
{
    return p->first_reader[value + 1] - p->first_reader[value] == 1 && !p->available[value].is_output;
}

/* The operand of a linear op whose result is one of many partial sums is one, too. */
static void mark_many_partial_sums(clv_partitioner *p, const clv_op *op)
{
    clv_strategy_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    if (!op->def->rule || op->n_out != 1 || p->available[op->out[0]].accumulation_count != CLV_MANY_PARTIAL_SUMS)
        return;
    clv_partition_init_problem(&problem, types, p, op);
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0 && problem.rule.linearity == CLV_MULTILINEAR && (problem.rule.linear >> i & 1) &&
            has_one_reader(p, op->in[i]))
            p->available[op->in[i]].accumulation_count = CLV_MANY_PARTIAL_SUMS;
}

/* Operands that only a sum, or a constrained cotangent, reads inherit its accumulation. */
static void inherit_accumulation(clv_partitioner *p, int o)
{
    const clv_op *op = &p->graph->ops[o];
    bool sum = is_sum(p, o);
    if (!sum && p->live_op[o])
        mark_many_partial_sums(p, op);
    if (!sum && !(p->live_op[o] && clv_op_traits_of(op)->follows_primal))
        return;
    const clv_available_layouts *result = &p->available[op->out[0]];
    for (int i = 0; i < op->n_in; i++) {
        clv_available_layouts *operand = &p->available[op->in[i]];
        if (!has_one_reader(p, op->in[i]))
            continue;
        operand->constrained_as = sum ? result->constrained_as : op->out[0];
        if (sum) {
            operand->accumulation_count = result->accumulation_count;
            operand->outermost_sum = result->outermost_sum;
        }
    }
}

/* Sums of sums whose inner results have no other reader: gradients that accumulate. */
static void count_accumulations(clv_partitioner *p)
{
    const clv_graph *graph = p->graph;
    for (int v = 1; v < graph->n_values; v++) {
        p->available[v].accumulation_count = 1;
        p->available[v].outermost_sum = v;
    }
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        if (!is_sum(p, o))
            continue;
        clv_available_layouts *sum = &p->available[op->out[0]];
        sum->accumulation_count = 0;
        for (int i = 0; i < 2; i++)
            sum->accumulation_count += has_one_reader(p, op->in[i]) ? p->available[op->in[i]].accumulation_count : 1;
    }
    for (int v = 1; v < graph->n_values; v++)
        if (graph->values[v].many_partial_sums)
            p->available[v].accumulation_count = CLV_MANY_PARTIAL_SUMS;
    for (int o = graph->n_ops - 1; o >= 0; o--)
        inherit_accumulation(p, o);
}

/* Parameters, and values computed from nothing else but constants. */
static void mark_weights(clv_partitioner *p)
{
    const clv_graph *graph = p->graph;
    for (int v = 1; v < graph->n_values; v++)
        p->available[v].is_weight =
            graph->values[v].source == CLV_FROM_STATE && graph->values[v].role == CLV_ROLE_PARAMETER;
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        bool any = false, all = true;
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] > 0) {
                const clv_value_info *in = &graph->values[op->in[i]];
                bool constant = in->source == CLV_FROM_OP && graph->ops[in->op].n_in == 0;
                any = any || p->available[op->in[i]].is_weight;
                all = all && (p->available[op->in[i]].is_weight || constant);
            }
        for (int r = 0; any && all && r < op->n_out; r++)
            p->available[op->out[r]].is_weight = true;
    }
}

clv_status clv_partition_propagate_layouts(clv_partitioner *p, clv_error *err)
{
    CLV_TRY(mark_live_ops(p, err));
    mark_weights(p);
    propagate_targets(p);
    CLV_TRY(find_readers(p, err));
    count_accumulations(p);
    return CLV_OK;
}
