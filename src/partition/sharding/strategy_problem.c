/* strategy_problem.c - input of the strategy search for one op: fills in its types and sharding rule. */
#include <string.h>

#include "graph/graph.h"
#include "partition/partitioner.h"

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
