/* parallel_norm.c - LayerNorm and RMSNorm with their parameters. With sequence parallelism rows are split, and
 * gradients of gain and bias are partial sums, which the layout of the parameter reduces.
 */
#include "graph/graph.h"
#include "nn/layer_layouts.h"

static clv_value vector(clv_graph *graph, const clv_axis_rules *rules, const char *name, const char *part, clv_value x,
                        clv_init_kind kind)
{
    clv_type type = clv_graph_type(graph, x);
    if (type.rank < 1)
        return CLV_NONE;
    return clv_nn_parameter(graph, rules, clv_nn_parameter_name(graph, name, part), type.dtype, 1,
                            &type.shape[type.rank - 1], (clv_logical_axis[]){CLV_EMBED}, NULL, (clv_init){kind, 0});
}

clv_value clv_parallel_rms_norm(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name,
                                double eps)
{
    if (!clv_graph_require(graph, name != NULL, __func__, "a name"))
        return CLV_NONE;
    return clv_rms_norm(graph, x, vector(graph, rules, name, "weight", x, CLV_INIT_ONES), eps);
}

clv_value clv_parallel_layer_norm(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name,
                                  double eps, bool bias)
{
    if (!clv_graph_require(graph, name != NULL, __func__, "a name"))
        return CLV_NONE;
    clv_value gain = vector(graph, rules, name, "weight", x, CLV_INIT_ONES);
    return clv_layer_norm(graph, x, gain, bias ? vector(graph, rules, name, "bias", x, CLV_INIT_ZEROS) : CLV_NONE, eps);
}
