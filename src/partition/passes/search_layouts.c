/* search_layouts.c - pass: looks ahead over the whole graph for strategies that cost less than greedy ones.
 *
 * In: the graph, targets. Out: with clv_compile_options.search_layouts, a strategy for every op and layouts of unstated
 * inputs, which choose_strategies takes over; nothing, where the greedy choice is as good. Both choices are compared by
 * the tables that they make, so that what is searched never costs more.
 */
#include "base/error.h"
#include "partition/passes/passes.h"
#include "partition/search/layout_search.h"

/* What the rows of a table cost. */
static clv_strategy_cost cost_of(const clv_partitioner *p)
{
    clv_strategy_cost cost = {0};
    for (int i = 0; i < p->table.n_rows; i++) {
        const clv_sharding_row *row = &p->table.rows[i];
        if (row->op) {
            cost.seconds += row->strategy->work_seconds;
            cost.work_seconds += row->strategy->work_seconds;
            continue;
        }
        const clv_type *type = &p->graph->values[row->value].type;
        cost.seconds += clv_reshard_step_cost(p->cost, row->step, type->shape, type->dtype).seconds;
        cost.bytes += row->step->bytes;
    }
    return cost;
}

static void take(clv_partitioner *p, const clv_found_layouts *found)
{
    p->searched = found->strategy;
    for (int v = 1; v < p->graph->n_values; v++)
        if (found->input[v]) {
            p->available[v].has_target = true;
            p->available[v].target = *found->input[v];
        }
}

/* A partitioner of the same graph, before its strategies are chosen. */
static clv_status begin_again(clv_partitioner *out, const clv_partitioner *p, const clv_compile_options *options,
                              clv_error *err)
{
    *out = (clv_partitioner){
        .graph = p->graph, .scratch = p->scratch, .options = options, .cost = p->cost, .reshards = p->reshards};
    CLV_TRY(clv_partitioner_init(out, err));
    return clv_partition_propagate_layouts(out, err);
}

static clv_status choose_again(clv_strategy_cost *cost, const clv_partitioner *p, const clv_compile_options *options,
                               const clv_found_layouts *found, clv_error *err)
{
    clv_partitioner again;
    CLV_TRY(begin_again(&again, p, options, err));
    if (found)
        take(&again, found);
    CLV_TRY(clv_partition_choose_strategies(&again, err));
    *cost = cost_of(&again);
    return CLV_OK;
}

clv_status clv_partition_search_layouts(clv_partitioner *p, clv_error *err)
{
    clv_compile_options plain = *p->options;
    clv_partitioner searched;
    clv_found_layouts found;
    clv_strategy_cost greedy, cost;
    if (!p->options->search_layouts)
        return CLV_OK;
    plain.explain = NULL;
    plain.keep_decisions = false;
    plain.max_implicit_bytes = 0;
    CLV_TRY(choose_again(&greedy, p, &plain, NULL, err));
    CLV_TRY(begin_again(&searched, p, &plain, err));
    CLV_TRY(clv_layout_search_run(&found, &searched, greedy.seconds, greedy.bytes, 0, err));
    if (!found.found)
        return CLV_OK;
    CLV_TRY(choose_again(&cost, p, &plain, &found, err));
    if (clv_strategy_cost_compare(&cost, &greedy, plain.by_bytes) < 0)
        take(p, &found);
    return CLV_OK;
}
