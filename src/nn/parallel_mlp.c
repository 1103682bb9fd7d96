/* parallel_mlp.c - tensor-parallel MLP: column-parallel up (and gate), activation, row-parallel down. */
#include "graph/graph.h"
#include "nn/layer_layouts.h"
#include "nn/stored_weight.h"

static clv_value gated(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_mlp_options *o)
{
    clv_type type = clv_graph_type(graph, x);
    int64_t shape[] = {type.shape[type.rank - 1], 2, o->ffn};
    static const clv_logical_axis names[] = {CLV_EMBED_KERNEL, CLV_UNNAMED, CLV_MLP};
    clv_layout split = clv_nn_activation_layout(graph, rules, type.rank - 1, 2, names + 1);
    const clv_weight_spec spec = {"gate_up.weight", type.dtype, 3, 1, shape, names, NULL, o->init, 0};
    clv_stored_weight weight = clv_nn_stored_weight(graph, rules, &spec);
    x = clv_nn_enter_parallel_region(graph, x, rules, CLV_MLP);
    clv_value both = clv_nn_stored_weight_product(graph, x, rules, &weight, NULL, "m", "mjf", "jf");
    both = clv_nn_constrain(graph, both, &split, rules, "the MLP activation", 2, names + 1);
    if (o->bias)
        both = clv_nn_add_bias(graph, both, rules, "gate_up.bias", 2, shape + 1, names + 1, NULL);
    return clv_gated(graph, both, o->activation);
}

/* Bias and GELU are one fused op. */
static clv_value plain(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_mlp_options *o)
{
    bool fuse = o->bias && (o->activation == CLV_GELU || o->activation == CLV_GELU_TANH);
    clv_linear_options up = {.name = "up", .bias = o->bias && !fuse, .init = o->init};
    clv_value y = clv_column_parallel_linear(graph, x, o->ffn, rules, &up);
    if (!fuse)
        return clv_unary(graph, o->activation, y);
    clv_value bias = clv_nn_parameter(graph, rules, "up.bias", clv_graph_type(graph, x).dtype, 1, &o->ffn,
                                      (clv_logical_axis[]){CLV_MLP}, NULL, (clv_init){CLV_INIT_ZEROS, 0});
    return clv_bias_gelu(graph, y, bias, o->activation);
}

clv_value clv_parallel_mlp(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_mlp_options *o)
{
    if (!clv_graph_require(graph, o != NULL, __func__, "options") ||
        !clv_graph_require_zeros(graph, o->reserved, sizeof o->reserved / sizeof *o->reserved, __func__))
        return CLV_NONE;
    clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || type.rank < 1)
        return CLV_NONE;
    if (o->ffn < 1)
        return clv_graph_fail(graph, CLV_EINVAL, "%smlp: ffn is %lld; valid: 1 and above", graph->scope,
                              (long long)o->ffn);
    clv_value hidden = o->gated ? gated(graph, x, rules, o) : plain(graph, x, rules, o);
    clv_linear_options down = {.name = "down", .bias = o->bias, .input_is_parallel = true, .init = o->output_init};
    return clv_row_parallel_linear(graph, hidden, type.shape[type.rank - 1], rules, &down);
}
