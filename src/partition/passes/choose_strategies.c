/* choose_strategies.c - pass: picks the cheapest sharding strategy for each op and inserts the reshards it needs.
 *
 * In: target layouts (propagate_layouts.c). Out: the sharding table. Ops are visited in order. Each gets the cheapest
 * strategy (op_strategy.h) for the available layouts of its operands and the target layouts of its results, and the
 * reshards that it needs come before it. A resharded value stays available, so all readers share one gather. Partial
 * results stay partial until a reader needs them whole: gradients are accumulated first and reduced once.
 */
#include "base/error.h"
#include "partition/explain/explain.h"
#include "partition/passes/passes.h"

/* ---- ops ---- */

/* The target layout of a cotangent: its primal's, without partial axes; false if it has none. */
static bool primal_layout(clv_layout *out, const clv_partitioner *p, int value)
{
    int primal = p->graph->values[value].primal;
    if (primal == 0 || p->available[primal].n == 0)
        return false;
    *out = clv_layout_without_partial(clv_partition_made_layout(p, primal));
    return true;
}

static clv_status load_layouts(clv_strategy_problem *problem, clv_partitioner *p, const clv_op *op, clv_error *err)
{
    const int *sharded;
    for (int i = 0; i < op->n_in; i++) {
        if (op->in[i] <= 0)
            continue;
        CLV_TRY(clv_partition_available_layouts(&sharded, &problem->available[i], &problem->n_available[i], p,
                                                op->in[i], err));
        problem->stationary_axes[i] = p->available[op->in[i]].stationary_axes;
    }
    for (int o = 0; o < op->n_out; o++) {
        const clv_available_layouts *at = &p->available[op->out[o]];
        problem->accumulation_count[o] = at->accumulation_count;
        problem->stays_partial[o] =
            at->accumulation_count == CLV_MANY_PARTIAL_SUMS ? p->available[at->outermost_sum].stationary_axes : 0;
        problem->has_target[o] = true;
        if (at->has_target)
            problem->target[o] = at->target;
        else if (clv_partition_keeps_gradient_partial(&problem->target[o], p, op, o))
            problem->accumulation_count[o] = 1;
        else
            problem->has_target[o] =
                primal_layout(&problem->target[o], p, at->constrained_as > 0 ? at->constrained_as : op->out[o]);
    }
    return CLV_OK;
}

/* Makes the partial axes of a cotangent that is made in its target layout stationary: its readers do not split them. */
static void keep_partial_sums(clv_partitioner *p, int value, const clv_layout *made, const clv_layout *target)
{
    const clv_subaxis *axes;
    int n = clv_layout_axes(&axes, made, made->rank);
    for (int i = 0; i < n && clv_layout_equal(made, target); i++)
        p->available[value].stationary_axes |= 1u << axes[i].axis;
}

/* Takes the strategy that was found, with its costs here. */
static clv_status take_searched(const clv_strategy **out, clv_partitioner *p, const clv_strategy_problem *problem,
                                const clv_op *op, clv_error *err)
{
    clv_strategy *s = clv_arena_copy(p->scratch, p->searched[op->id], sizeof *s);
    if (!s)
        return clv_fail_memory(err, "a strategy", sizeof *s);
    *out = s;
    s->bytes = 0;
    s->moves = 0;
    s->seconds = s->work_seconds;
    for (int i = 0; i < op->n_in; i++)
        CLV_TRY(clv_strategy_add_operand_reshard(s, problem, i, err));
    for (int o = 0; o < op->n_out; o++)
        CLV_TRY(clv_strategy_add_result_reshard(s, problem, o, err));
    return CLV_OK;
}

static clv_status choose_strategy(clv_partitioner *p, const clv_op *op, clv_error *err)
{
    clv_strategy_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    clv_partition_init_problem(&problem, types, p, op);
    CLV_TRY(load_layouts(&problem, p, op, err));
    clv_sharding_row row = {.op = op, .backward = op->backward, .update = op->update, .block = op->block};
    CLV_TRY(p->searched ? take_searched(&row.strategy, p, &problem, op, err)
                        : clv_strategy_cache_choose(&row.strategy, p->strategies, &problem, err));
    clv_explain_name_factors(p, op, &problem.rule);
    if (clv_explain_is_requested(p, op))
        CLV_TRY(clv_explain_candidates(p, &problem, row.strategy, err));
    for (int i = 0; i < op->n_in; i++) {
        row.in[i] = -1;
        clv_reshard_reason why = {.need = CLV_NEEDED_BY_OP,
                                  .by = op->name,
                                  .reader = op,
                                  .strategy = row.strategy,
                                  .rule = &problem.rule,
                                  .operand = i};
        if (op->in[i] > 0)
            CLV_TRY(clv_partition_insert_reshard(&row.in[i], p, op->in[i], &row.strategy->in[i], &why, err));
    }
    for (int o = 0; o < op->n_out; o++) {
        clv_sharded_value sharded = {.value = op->out[o], .layout = &row.strategy->out[o], .alias_of = -1};
        CLV_TRY(clv_sharding_table_add_value(&row.out[o], &p->table, &sharded, err));
        CLV_TRY(clv_partition_add_available(p, op->out[o], row.out[o], err));
        if (problem.has_target[o])
            keep_partial_sums(p, op->out[o], &row.strategy->out[o], &problem.target[o]);
    }
    clv_explain_name_results(p, op, &problem.rule);
    if (p->table.keeps_decisions)
        CLV_TRY(clv_explain_decision(&row, p, &problem, err));
    p->row_of[op->id] = p->table.n_rows;
    return clv_sharding_table_add_row(&p->table, &row, err);
}

static clv_status apply_constraint(clv_partitioner *p, const clv_op *op, clv_error *err)
{
    clv_layout to;
    if (clv_op_constraint_of(op))
        to = *clv_op_constraint_of(op);
    else if (!clv_partition_keeps_gradient_partial(&to, p, op, 0) && !primal_layout(&to, p, op->out[0]))
        to = clv_layout_without_partial(clv_partition_made_layout(p, op->in[0]));
    if (!clv_op_constraint_of(op))
        keep_partial_sums(p, op->out[0], &to, &to);
    clv_reshard_reason why = {.need = clv_op_constraint_of(op) ? CLV_NEEDED_BY_CONSTRAINT : CLV_NEEDED_BY_GRADIENT,
                              .by = op->name,
                              .reader = op,
                              .to = clv_arena_copy(p->scratch, &to, sizeof to)};
    if (!why.to)
        return clv_fail_memory(err, "a constraint", sizeof to);
    int sharded, first = p->table.n_rows;
    clv_explain_name_dims(p, op->out[0], op->in[0]);
    CLV_TRY(clv_partition_insert_reshard(&sharded, p, op->in[0], &to, &why, err));
    CLV_TRY(clv_partition_add_available(p, op->out[0], sharded, err));
    return clv_explain_is_requested(p, op) ? clv_explain_constraint(p, op, &why, first, err) : CLV_OK;
}

/* ---- inputs, outputs, state ---- */

static clv_status add_graph_input(clv_partitioner *p, int value, clv_error *err)
{
    const clv_value_info *info = &p->graph->values[value];
    const clv_available_layouts *at = &p->available[value];
    clv_sharded_value sharded = {.value = value,
                                 .layout = info->stated || !at->has_target ? &info->layout : &at->target,
                                 .is_graph_input = true,
                                 .alias_of = -1};
    int made;
    CLV_TRY(clv_sharding_table_add_value(&made, &p->table, &sharded, err));
    CLV_TRY(clv_partition_add_available(p, value, made, err));
    clv_explain_name_dims(p, value, 0);
    return CLV_OK;
}

/* An output or assigned value that is state itself is copied: this run may overwrite the state. */
static clv_status copy_state(int *sharded, clv_partitioner *p, int value, const clv_layout *to, clv_reshard_reason why,
                             clv_error *err)
{
    if (!clv_sharding_table_is_state(&p->table, *sharded))
        return CLV_OK;
    clv_reshard_step *copy = clv_arena_alloc(p->scratch, 1, sizeof *copy);
    if (!copy)
        return clv_fail_memory(err, "a copy of state", sizeof *copy);
    *copy = (clv_reshard_step){.kind = CLV_STEP_SLICE, .from = *clv_partition_layout_of(p, *sharded), .to = *to};
    why.need = CLV_NEEDED_AS_COPY;
    return clv_partition_insert_step(sharded, p, copy, value, &why, err);
}

static clv_status insert_outputs(clv_partitioner *p, clv_error *err)
{
    for (int o = 0; o < p->graph->n_outputs; o++) {
        const clv_graph_output *output = &p->graph->outputs[o];
        const clv_layout *made = clv_partition_made_layout(p, output->value);
        clv_layout to = output->stated ? output->layout : clv_layout_without_partial(made);
        clv_reshard_reason why = {.need = CLV_NEEDED_BY_OUTPUT,
                                  .by = output->name,
                                  .to = clv_arena_copy(p->scratch, &to, sizeof to),
                                  .stated = output->stated};
        if (!why.to)
            return clv_fail_memory(err, "an output", sizeof to);
        CLV_TRY(clv_partition_insert_reshard(&p->table.output[o], p, output->value, &to, &why, err));
        CLV_TRY(copy_state(&p->table.output[o], p, output->value, &to, why, err));
    }
    return CLV_OK;
}

/* Whether the update of parameters makes the value. */
static bool is_of_update(const clv_partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    return info->source == CLV_FROM_OP && p->graph->ops[info->op].update;
}

static clv_status insert_updates(clv_partitioner *p, clv_error *err)
{
    for (int v = 1; v < p->graph->n_values; v++) {
        const clv_value_info *info = &p->graph->values[v];
        if (info->assigned == 0)
            continue;
        clv_reshard_reason why = {.need = CLV_NEEDED_BY_STATE, .by = info->name, .state = v};
        clv_state_update *update = &p->table.update[v];
        p->update = is_of_update(p, info->assigned);
        CLV_TRY(clv_partition_insert_reshard(&update->becomes, p, info->assigned, &info->layout, &why, err));
        CLV_TRY(copy_state(&update->becomes, p, info->assigned, &info->layout, why, err));
        CLV_TRY(clv_explain_step(&update->explanation, p, &why, NULL, info->assigned, err));
        update->state = p->available[v].sharded[0];
    }
    return CLV_OK;
}

clv_status clv_partition_choose_strategies(clv_partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    for (int v = 1; v < graph->n_values; v++)
        if (graph->values[v].source != CLV_FROM_OP)
            CLV_TRY(add_graph_input(p, v, err));
    p->expert_axes = clv_explain_find_expert_axes(p);
    p->stationary_axes = clv_explain_find_stationary_axes(graph);
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        if (!p->live_op[o])
            continue;
        p->phase += op->backward != p->backward;
        p->backward = op->backward;
        p->update = op->update;
        p->block = op->block;
        CLV_TRY(clv_op_is_constraint(op) ? apply_constraint(p, op, err) : choose_strategy(p, op, err));
    }
    p->backward = p->update = false;
    p->block = 0;
    CLV_TRY(insert_outputs(p, err));
    return insert_updates(p, err);
}
