/* block.c - the pre-norm transformer block, Llama's form and GPT's. */
#include "graph/graph.h"
#include "nn/layouts.h"

clv_block_options clv_block_defaults(clv_block_form form, int64_t heads, int64_t kv_heads, int64_t ffn)
{
    clv_init normal = {CLV_INIT_NORMAL, 0.02};
    bool llama = form == CLV_BLOCK_LLAMA;
    return (clv_block_options){
        .form = form,
        .eps = 1e-5,
        .norm_bias = !llama,
        .dropout_step = CLV_NONE,
        .attention = {.heads = heads,
                      .kv_heads = kv_heads,
                      .rope.theta = llama ? 10000.0 : 0.0,
                      .bias = !llama,
                      .output_bias = !llama,
                      .mask = CLV_NONE,
                      .offset = CLV_NONE,
                      .init = normal,
                      .output_init = normal},
        .mlp = {.ffn = ffn,
                .activation = llama ? CLV_SILU : CLV_GELU_TANH,
                .gated = llama,
                .bias = !llama,
                .init = normal,
                .output_init = normal},
    };
}

static clv_value norm(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name,
                      const clv_block_options *o)
{
    double eps = o->eps > 0 ? o->eps : 1e-5;
    return o->form == CLV_BLOCK_LLAMA ? clv_parallel_rms_norm(graph, x, rules, name, eps)
                                      : clv_parallel_layer_norm(graph, x, rules, name, eps, o->norm_bias);
}

/* x + dropout(y); each dropout of a model draws from a key of its own. */
static clv_value residual(clv_graph *graph, clv_value x, clv_value y, const clv_block_options *o, uint32_t which)
{
    if (o->dropout > 0)
        y = clv_dropout(graph, y, o->dropout, clv_key_fold_in(o->dropout_key, which), o->dropout_step);
    return clv_add(graph, x, y);
}

clv_value clv_transformer_block(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_block_options *o)
{
    x = clv_nn_leave(graph, x, rules);
    clv_graph_push(graph, "attention");
    clv_value y = clv_parallel_attention(graph, norm(graph, x, rules, "norm", o), rules, &o->attention);
    x = residual(graph, x, y, o, 0);
    clv_graph_pop(graph);
    clv_graph_push(graph, "mlp");
    y = clv_parallel_mlp(graph, norm(graph, x, rules, "norm", o), rules, &o->mlp);
    x = residual(graph, x, y, o, 1);
    clv_graph_pop(graph);
    return x;
}
