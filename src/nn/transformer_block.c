/* transformer_block.c - transformer block: pre-norm (Llama, GPT) or post-norm (BERT). */
#include "graph/graph.h"
#include "nn/layer_layouts.h"

clv_block_options clv_block_defaults(clv_block_form form, int64_t heads, int64_t kv_heads, int64_t ffn)
{
    clv_init normal = {CLV_INIT_NORMAL, 0.02};
    bool llama = form == CLV_BLOCK_LLAMA;
    return (clv_block_options){
        .form = form,
        .eps = 1e-5,
        .norm_bias = !llama,
        .attention = {.heads = heads,
                      .kv_heads = kv_heads,
                      .rope.theta = llama ? 10000.0 : 0.0,
                      .bidirectional = form == CLV_BLOCK_BERT,
                      .bias = !llama,
                      .output_bias = !llama,
                      .init = normal,
                      .output_init = normal},
        .mlp = {.ffn = ffn,
                .activation = llama                   ? CLV_SILU
                              : form == CLV_BLOCK_GPT ? CLV_GELU_TANH
                                                      : CLV_GELU,
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

/* x + dropout(y); each dropout of a block has its own random key. */
static clv_value residual(clv_graph *graph, clv_value x, clv_value y, const clv_block_options *o, uint32_t which)
{
    if (o->dropout > 0)
        y = clv_dropout(graph, y, o->dropout, clv_key_fold_in(o->dropout_key, which), o->dropout_step);
    return clv_add(graph, x, y);
}

static clv_value attention(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_block_options *o)
{
    return o->latent_attention ? clv_parallel_latent_attention(graph, x, rules, o->latent_attention)
                               : clv_parallel_attention(graph, x, rules, &o->attention);
}

/* Adds attention (which = 0) or the MLP (which = 1) to the residual stream. */
static clv_value add_sublayer(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_block_options *o,
                              uint32_t which)
{
    bool post = o->form == CLV_BLOCK_BERT;
    clv_graph_push_scope(graph, which == 0 ? "attention" : "mlp");
    clv_value in = post ? x : norm(graph, x, rules, "norm", o);
    clv_value y = which == 0   ? attention(graph, in, rules, o)
                  : o->experts ? clv_parallel_experts(graph, in, rules, o->experts)
                               : clv_parallel_mlp(graph, in, rules, &o->mlp);
    x = residual(graph, x, y, o, which);
    x = post ? norm(graph, x, rules, "norm", o) : x;
    clv_graph_pop_scope(graph);
    return x;
}

clv_value clv_transformer_block(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_block_options *o)
{
    static const clv_enum_name forms[] = {
        CLV_ENUM_NAME(CLV_BLOCK_LLAMA), CLV_ENUM_NAME(CLV_BLOCK_GPT), CLV_ENUM_NAME(CLV_BLOCK_BERT), {0}};
    if (!clv_graph_require(graph, o != NULL, __func__, "options") ||
        !clv_graph_require_enum(graph, "block", (int)o->form, forms) ||
        !clv_graph_require_zeros(graph, o->reserved, sizeof o->reserved / sizeof *o->reserved, __func__))
        return CLV_NONE;
    x = clv_nn_leave_parallel_region(graph, x, rules);
    clv_begin_block(graph);
    x = add_sublayer(graph, x, rules, o, 0);
    x = add_sublayer(graph, x, rules, o, 1);
    clv_end_block(graph);
    return x;
}
