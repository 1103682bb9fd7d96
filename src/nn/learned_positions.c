/* learned_positions.c - learned position embeddings: adds row `position` of a table to each activation. */
#include "graph/graph.h"
#include "nn/layer_layouts.h"
#include "ops/builtin_ops.h"

clv_value clv_learned_positions(clv_graph *graph, clv_value x, clv_value offset, int64_t positions,
                                const clv_axis_rules *rules, const char *name, clv_init init)
{
    if (!clv_graph_require(graph, name != NULL, __func__, "a name"))
        return CLV_NONE;
    static const clv_logical_axis names[] = {CLV_UNNAMED, CLV_EMBED_KERNEL};
    clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || type.rank < 2)
        return CLV_NONE;
    int64_t seq = type.shape[type.rank - 2], shape[] = {positions, type.shape[type.rank - 1]};
    if (seq > positions)
        return clv_graph_fail(graph, CLV_ESHAPE, "%s%s: a sequence of %lld; the table has %lld positions", graph->scope,
                              name, (long long)seq, (long long)positions);
    clv_value table = clv_nn_weight(graph, rules, clv_nn_parameter_name(graph, name, "weight"), type.dtype, 2, shape,
                                    names, NULL, init);
    clv_value rows = clv_embedding(graph, table, clv_positions_in_row_order(graph, seq, offset));
    return clv_nn_leave_parallel_region(graph, clv_add(graph, x, rows), rules);
}
