/* mlp.c - column-parallel in, activation, row-parallel out: no communication between the two products. */
#include "graph/graph.h"
#include "nn/layouts.h"

static clv_value gated(clv_graph *graph, clv_value x, const clv_parallel *parallel, const clv_mlp_options *o)
{
    clv_type type = clv_graph_type(graph, x);
    int64_t shape[] = {type.shape[type.rank - 1], 2, o->ffn};
    clv_layout columns = clv_nn_weight(graph, parallel, 3, 2, 1);
    clv_layout split = clv_nn_activation(graph, parallel, type.rank + 1, type.rank, 1);
    clv_value weight = clv_nn_weight_state(graph, parallel, "gate_up.weight", type.dtype, 3, shape, &columns, o->init);
    clv_value both = clv_nn_product(graph, clv_nn_enter(graph, x, parallel), weight, "m", "mjf", "jf");
    return clv_gated(graph, clv_constrain(graph, both, &split), o->activation);
}

/* The bias joins the gelu in one kernel. */
static clv_value plain(clv_graph *graph, clv_value x, const clv_parallel *parallel, const clv_mlp_options *o)
{
    bool fuse = o->bias && (o->activation == CLV_GELU || o->activation == CLV_GELU_TANH);
    clv_linear_options up = {.name = "up", .bias = o->bias && !fuse, .init = o->init};
    clv_value y = clv_column_parallel_linear(graph, x, o->ffn, parallel, &up);
    if (!fuse)
        return clv_map(graph, o->activation, y);
    clv_layout part = clv_nn_weight(graph, parallel, 1, 0, 1);
    clv_value bias =
        clv_state(graph, "up.bias", clv_graph_type(graph, x).dtype, 1, &o->ffn, &part, (clv_init){CLV_INIT_ZEROS, 0});
    return clv_bias_gelu(graph, y, bias, o->activation);
}

clv_value clv_parallel_mlp(clv_graph *graph, clv_value x, const clv_parallel *parallel, const clv_mlp_options *o)
{
    clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || type.rank < 1)
        return CLV_NONE;
    if (o->gated && (o->bias || o->activation == CLV_TANH))
        return clv_graph_fail(graph, CLV_EUNSUPPORTED,
                              "%smlp: a gated MLP has no biases and takes silu, gelu, gelu_tanh or relu", graph->scope);
    clv_value hidden = o->gated ? gated(graph, x, parallel, o) : plain(graph, x, parallel, o);
    clv_linear_options down = {.name = "down", .bias = o->bias, .input_is_parallel = true, .init = o->output_init};
    return clv_row_parallel_linear(graph, hidden, type.shape[type.rank - 1], parallel, &down);
}
