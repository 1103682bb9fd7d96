/* partitioner.c - prepares the partitioner: an empty table and caches; sets up strategy problems of ops. */
#include "base/error.h"
#include "partition/partitioner.h"

clv_status clv_partitioner_init(clv_partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    p->available = clv_arena_alloc(p->scratch, (size_t)graph->n_values + 1, sizeof *p->available);
    p->live_op = clv_arena_alloc(p->scratch, (size_t)graph->n_ops + 1, sizeof *p->live_op);
    p->row_of = clv_arena_alloc(p->scratch, (size_t)graph->n_ops + 1, sizeof *p->row_of);
    if (!p->reshards)
        p->reshards = clv_reshard_cache_new(p->scratch, &graph->mesh, p->cost, p->options->by_bytes);
    p->strategies = clv_strategy_cache_new(p->scratch);
    if (!p->available || !p->live_op || !p->row_of || !p->reshards || !p->strategies)
        return clv_fail_memory(err, "the partitioner", (size_t)graph->n_values * sizeof *p->available);
    for (int o = 0; o < graph->n_ops; o++)
        p->row_of[o] = -1;
    CLV_TRY(clv_sharding_table_init(&p->table, p->scratch, graph, err));
    p->table.keeps_decisions = p->options->keep_decisions;
    p->table.is_priced = p->is_priced;
    p->table.cost = p->cost;
    return CLV_OK;
}

void clv_partition_init_problem(clv_strategy_problem *problem, clv_type *types, const clv_partitioner *p,
                                const clv_op *op)
{
    clv_strategy_problem_init(problem, types, p->graph, op);
    problem->cost = p->cost;
    problem->reshards = p->reshards;
    problem->by_bytes = p->options->by_bytes;
    problem->idle_axes = p->options->use_idle_axes;
    clv_cost_work_rates(&problem->rates, p->cost, op->def, types[op->n_in > 0 ? 0 : CLV_MAX_IN].dtype);
}
