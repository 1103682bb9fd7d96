/* moe_layer.c - builds the graph of what one rank computes of layers with experts. */
#include "models/plan/axes/moe_layer.h"

#include <stdio.h>

#include "graph/graph.h"

enum { MOST_PARAMETERS = 128 };

typedef struct builder {
    clv_graph *graph;
    const clv_moe_config *c;
    clv_dtype dtype;
    int64_t batch, seq;   /* of attention */
    int64_t tokens, part; /* of attention, and of the residual stream: a part with SP */
    int64_t heads, kv_heads, model;
    int64_t experts, rows; /* of the rank, and tokens of each */
} builder;

static clv_value weight(const builder *b, const char *name, int rank, const int64_t *shape)
{
    return clv_state(b->graph, name, b->dtype, rank, shape, NULL, (clv_init){CLV_INIT_NORMAL, 0.02});
}

/* x [T,in] times a weight [in,out]. */
static clv_value linear(const builder *b, clv_value x, const char *name, int64_t in, int64_t out)
{
    return clv_einsum(b->graph, "tm,mf->tf", x, weight(b, name, 2, (int64_t[]){in, out}));
}

static clv_value norm(const builder *b, clv_value x, const char *name, int64_t width)
{
    return clv_rms_norm(b->graph, x, weight(b, name, 1, &width), 1e-6);
}

/* The residual stream has a part of the tokens: products of attention take them all, and give the part back. */
static clv_value gather(const builder *b, clv_value x)
{
    clv_value parts[64];
    int n = b->model < 64 ? (int)b->model : 64;
    for (int i = 0; i < n; i++)
        parts[i] = x;
    return b->tokens == b->part ? x : clv_concat(b->graph, parts, n, 0);
}

static clv_value scatter(const builder *b, clv_value x)
{
    return b->tokens == b->part ? x : clv_slice(b->graph, x, (int64_t[]){0, 0}, (int64_t[]){b->part, b->c->hidden});
}

/* ---- attention ---- */

/* Heads of queries and values are unequal; attention has one width that makes as many products. */
static int64_t head_width(const clv_moe_config *c)
{
    return (c->qk_dim + c->v_dim) / 2;
}

static clv_value latent_queries(const builder *b, clv_value x)
{
    const clv_moe_config *c = b->c;
    const int64_t out = b->heads * c->qk_dim, from = c->q_rank ? c->q_rank : c->hidden;
    if (c->q_rank)
        x = norm(b, linear(b, x, "q_a", c->hidden, c->q_rank), "q_norm", c->q_rank);
    clv_value q =
        clv_reshape(b->graph, linear(b, x, "q_b", from, out), 4, (int64_t[]){b->batch, b->seq, b->heads, c->qk_dim});
    return clv_slice(b->graph, q, (int64_t[]){0, 0, 0, 0}, (int64_t[]){b->batch, b->seq, b->heads, head_width(c)});
}

static clv_value latent_keys(const builder *b, clv_value x)
{
    const clv_moe_config *c = b->c;
    const int64_t half = (c->qk_dim - c->rope_dim + c->v_dim) / 2, pad = head_width(c) - half;
    clv_value both = linear(b, x, "kv_a", c->hidden, c->kv_rank + c->rope_dim);
    clv_value low = clv_slice(b->graph, both, (int64_t[]){0, 0}, (int64_t[]){b->tokens, c->kv_rank});
    low = norm(b, low, "kv_norm", c->kv_rank);
    clv_value kv = clv_reshape(b->graph, linear(b, low, "kv_b", c->kv_rank, 2 * b->heads * half), 5,
                               (int64_t[]){b->batch, b->seq, 2, b->heads, half});
    return clv_pad(b->graph, kv, (int64_t[]){0, 0, 0, 0, 0}, (int64_t[]){0, 0, 0, 0, pad});
}

static clv_value grouped_queries(const builder *b, clv_value x)
{
    const int64_t width = b->c->qk_dim;
    clv_value q = clv_reshape(b->graph, linear(b, x, "q", b->c->hidden, b->heads * width), 4,
                              (int64_t[]){b->batch, b->seq, b->heads, width});
    return b->c->qk_norm ? norm(b, q, "q_norm", width) : q;
}

static clv_value grouped_keys(const builder *b, clv_value x)
{
    const int64_t width = b->c->qk_dim;
    return clv_reshape(b->graph, linear(b, x, "kv", b->c->hidden, 2 * b->kv_heads * width), 5,
                       (int64_t[]){b->batch, b->seq, 2, b->kv_heads, width});
}

static clv_value attention(const builder *b, clv_value x, int64_t window)
{
    const clv_moe_config *c = b->c;
    const bool latent = c->kv_rank > 0;
    const clv_rope_options rope = {.theta = 1e4, .dims = latent ? c->rope_dim : 0};
    const clv_attention_options how = {.size = sizeof how, .causal = true, .window = window};
    clv_value q = clv_rope(b->graph, latent ? latent_queries(b, x) : grouped_queries(b, x), CLV_NONE, &rope);
    clv_value kv = clv_rope(b->graph, latent ? latent_keys(b, x) : grouped_keys(b, x), CLV_NONE, &rope);
    clv_value y = clv_attention(b->graph, q, kv, &how);
    if (latent)
        y = clv_slice(b->graph, y, (int64_t[]){0, 0, 0, 0}, (int64_t[]){b->batch, b->seq, b->heads, c->v_dim});
    y = clv_reshape(b->graph, y, 2, (int64_t[]){b->tokens, b->heads * c->v_dim});
    return linear(b, y, "o", b->heads * c->v_dim, c->hidden);
}

/* ---- feed-forward ---- */

static clv_value dense_mlp(const builder *b, clv_value x, int64_t ffn)
{
    clv_value up = weight(b, "gate_up", 3, (int64_t[]){b->c->hidden, 2, ffn});
    clv_value y = clv_gated(b->graph, clv_einsum(b->graph, "tm,mjf->tjf", x, up), CLV_SILU);
    return linear(b, y, "down", ffn, b->c->hidden);
}

/* Adds a bias of each expert to its rows. */
static clv_value add_bias(const builder *b, clv_value x, const char *name, int rank, const int64_t *shape)
{
    return b->c->expert_bias ? clv_add(b->graph, x, weight(b, name, rank, shape)) : x;
}

/* Rows are put in the order of experts, and summed for each token: a gather, and a sum. */
static clv_value experts(const builder *b, clv_value x)
{
    clv_graph *g = b->graph;
    const clv_moe_config *c = b->c;
    const int64_t all = b->experts * b->rows, copies = b->part * c->top_k; /* all may have a few rows more */
    char name[64];
    snprintf(name, sizeof name, "%sorder", g->scope);
    clv_softmax(g, linear(b, x, "router", c->hidden, c->experts));
    clv_value order = clv_input(g, name, CLV_I32, 1, &all, NULL);
    clv_value sent = clv_embedding(g, x, order);
    clv_value at = clv_reshape(g, sent, 3, (int64_t[]){b->experts, b->rows, c->hidden});
    clv_value up = weight(b, "experts.gate_up", 4, (int64_t[]){b->experts, c->hidden, 2, c->expert_ffn});
    clv_value down = weight(b, "experts.down", 3, (int64_t[]){b->experts, c->expert_ffn, c->hidden});
    clv_value y = clv_einsum(g, "erm,emjf->erjf", at, up);
    y = add_bias(b, y, "experts.gate_up.bias", 4, (int64_t[]){b->experts, 1, 2, c->expert_ffn});
    y = clv_einsum(g, "erf,efm->erm", clv_gated(g, y, CLV_SILU), down);
    y = add_bias(b, y, "experts.down.bias", 3, (int64_t[]){b->experts, 1, c->hidden});
    y = clv_reshape(g, y, 2, (int64_t[]){all, c->hidden});
    y = all == copies ? y : clv_slice(g, y, (int64_t[]){0, 0}, (int64_t[]){copies, c->hidden});
    y = clv_reshape(g, y, 3, (int64_t[]){b->part, c->top_k, c->hidden});
    return clv_reduce(g, CLV_SUM, y, (int[]){1}, 1, false);
}

static clv_value feed_forward(const builder *b, clv_value x, clv_moe_part part)
{
    const clv_moe_config *c = b->c;
    if (part == CLV_MOE_DENSE)
        return scatter(b, dense_mlp(b, gather(b, x), (c->ffn + b->model - 1) / b->model));
    clv_value y = experts(b, x);
    if (c->shared_ffn == 0)
        return y;
    clv_graph_push_scope(b->graph, "shared");
    clv_value shared = scatter(b, dense_mlp(b, gather(b, x), (c->shared_ffn + b->model - 1) / b->model));
    clv_graph_pop_scope(b->graph);
    return clv_add(b->graph, y, shared);
}

/* ---- layers, head, gradients ---- */

static clv_value layer(const builder *b, clv_value x, clv_moe_part part)
{
    clv_begin_block(b->graph);
    clv_graph_push_scope(b->graph, "attention");
    clv_value in = gather(b, norm(b, x, "norm", b->c->hidden));
    const int64_t window = part == CLV_MOE_WINDOWED ? b->c->window : 0;
    x = clv_add(b->graph, x, scatter(b, attention(b, in, window)));
    clv_graph_pop_scope(b->graph);
    clv_graph_push_scope(b->graph, "mlp");
    x = clv_add(b->graph, x, feed_forward(b, norm(b, x, "norm", b->c->hidden), part));
    clv_graph_pop_scope(b->graph);
    clv_end_block(b->graph);
    return x;
}

/* The loss, summed. */
static clv_value head(const builder *b, clv_value x)
{
    clv_value labels = clv_input(b->graph, "labels", CLV_I32, 1, &b->tokens, NULL);
    x = gather(b, norm(b, x, "final_norm", b->c->hidden));
    clv_value logits = linear(b, x, "lm_head", b->c->hidden, (b->c->vocab + b->model - 1) / b->model);
    return clv_reduce(b->graph, CLV_SUM, clv_cross_entropy(b->graph, logits, labels, -100), (int[]){0}, 1, false);
}

static void add_gradients(clv_graph *graph, clv_value x, clv_value y, clv_value seed)
{
    clv_value wrt[MOST_PARAMETERS + 1], d[MOST_PARAMETERS + 1];
    int n = clv_graph_parameters(graph, wrt, MOST_PARAMETERS);
    wrt[n] = x;
    clv_gradients(graph, y, seed, wrt, n + 1, d);
    for (int i = 0; i <= n; i++) {
        char name[300];
        snprintf(name, sizeof name, "d.%s", clv_value_name(graph, wrt[i]));
        clv_output(graph, name, d[i], NULL);
    }
}

void clv_moe_layer_build(clv_graph *graph, const clv_moe_config *c, const clv_moe_rank *rank, clv_moe_part part,
                         int64_t layers)
{
    const int64_t tokens = rank->batch * rank->seq;
    builder b = {.graph = graph,
                 .c = c,
                 .dtype = rank->dtype,
                 .batch = rank->batch,
                 .seq = rank->seq,
                 .tokens = tokens,
                 .part = tokens % rank->model == 0 ? tokens / rank->model : tokens,
                 .heads = (c->heads + rank->model - 1) / rank->model,
                 .model = rank->model,
                 .experts = (c->experts + rank->expert - 1) / rank->expert};
    b.kv_heads = c->kv_heads > rank->model ? c->kv_heads / rank->model : 1;
    b.rows = (b.part * c->top_k + b.experts - 1) / b.experts;
    const int64_t shape[] = {b.part, c->hidden};
    clv_value x = clv_input(graph, "x", rank->dtype, 2, shape, NULL), y = x, seed = CLV_NONE;
    for (int64_t i = 0; i < layers; i++) {
        clv_graph_push_scope(graph, "layers.%d", (int)i);
        y = layer(&b, y, part);
        clv_graph_pop_scope(graph);
    }
    if (part == CLV_MOE_HEAD)
        y = head(&b, y);
    else
        seed = clv_input(graph, "dy", rank->dtype, 2, shape, NULL);
    add_gradients(graph, x, y, seed);
}
