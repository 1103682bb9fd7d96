/* attention.c - multi-head attention with heads split: q, k, v column-parallel, the output product row-parallel. */
#include "graph/graph.h"
#include "nn/layouts.h"

/* Fills in what options leave to be derived; false (recorded) when they do not fit. */
static bool complete(clv_graph *graph, clv_self_attention_options *o, const clv_type *x)
{
    if (x->rank != 3) {
        clv_graph_fail(graph, CLV_ESHAPE, "%sattention takes [B,S,M], not %d dimensions", graph->scope, x->rank);
        return false;
    }
    o->kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    if (o->heads < 1 || o->kv_heads < 1 || o->heads % o->kv_heads != 0) {
        clv_graph_fail(graph, CLV_EINVAL, "%sattention: %lld heads and %lld KV heads; KV heads must divide heads",
                       graph->scope, (long long)o->heads, (long long)o->kv_heads);
        return false;
    }
    if (o->head_dim == 0 && x->shape[2] % o->heads != 0) {
        clv_graph_fail(graph, CLV_ESHAPE, "%sattention: width %lld is not a multiple of %lld heads; state head_dim",
                       graph->scope, (long long)x->shape[2], (long long)o->heads);
        return false;
    }
    o->head_dim = o->head_dim ? o->head_dim : x->shape[2] / o->heads;
    return true;
}

static clv_value add_bias(clv_graph *graph, clv_value y, const char *name, int rank, const int64_t *shape,
                          const clv_layout *layout, bool bias)
{
    if (!bias)
        return y;
    clv_dtype dtype = clv_graph_type(graph, y).dtype;
    return clv_add(graph, y, clv_state(graph, name, dtype, rank, shape, layout, (clv_init){CLV_INIT_ZEROS, 0}));
}

static clv_value queries(clv_graph *graph, clv_value x, const clv_parallel *parallel,
                         const clv_self_attention_options *o, const clv_head_cut *cut)
{
    clv_type type = clv_graph_type(graph, x);
    int64_t shape[] = {type.shape[2], o->heads, o->head_dim};
    clv_layout columns = clv_layout_replicated(3), part = clv_layout_replicated(2);
    clv_layout split = clv_nn_activation(graph, parallel, 4, -1, 1);
    clv_nn_cut(graph, &columns, 1, &cut->query, cut->n, cut->query_granule);
    clv_nn_cut(graph, &part, 0, &cut->query, cut->n, cut->query_granule);
    clv_nn_cut(graph, &split, 2, &cut->query, cut->n, cut->query_granule);
    clv_value weight = clv_nn_weight_state(graph, parallel, "q.weight", type.dtype, 3, shape, &columns, o->init);
    clv_value q = clv_constrain(graph, clv_einsum(graph, "bsm,mhd->bshd", x, weight), &split);
    q = add_bias(graph, q, "q.bias", 2, shape + 1, &part, o->bias);
    return o->rope_theta > 0 ? clv_rope(graph, q, o->offset, o->rope_theta, 0, o->rope_interleaved) : q;
}

static clv_value keys_values(clv_graph *graph, clv_value x, const clv_parallel *parallel,
                             const clv_self_attention_options *o, const clv_head_cut *cut)
{
    clv_type type = clv_graph_type(graph, x);
    int64_t shape[] = {type.shape[2], 2, o->kv_heads, o->head_dim};
    clv_layout columns = clv_layout_replicated(4), part = clv_layout_replicated(3);
    clv_layout split = clv_nn_activation(graph, parallel, 5, -1, 1);
    clv_nn_cut(graph, &columns, 2, &cut->kv, cut->n_kv, 1);
    clv_nn_cut(graph, &part, 1, &cut->kv, cut->n_kv, 1);
    clv_nn_cut(graph, &split, 3, &cut->kv, cut->n_kv, 1);
    clv_value weight = clv_nn_weight_state(graph, parallel, "kv.weight", type.dtype, 4, shape, &columns, o->init);
    clv_value kv = clv_constrain(graph, clv_einsum(graph, "bsm,mjkd->bsjkd", x, weight), &split);
    kv = add_bias(graph, kv, "kv.bias", 3, shape + 1, &part, o->bias);
    if (o->rope_theta > 0)
        kv = clv_rope(graph, kv, o->offset, o->rope_theta, 0, o->rope_interleaved);
    if (o->context == 0)
        return kv;
    int64_t kept[] = {type.shape[0], o->context, 2, o->kv_heads, o->head_dim};
    clv_value cache = clv_state(graph, "cache", type.dtype, 5, kept, &split, (clv_init){CLV_INIT_ZEROS, 0});
    clv_value updated = clv_cache_update(graph, cache, kv, o->offset);
    clv_assign(graph, cache, updated);
    return updated;
}

clv_value clv_parallel_attention(clv_graph *graph, clv_value x, const clv_parallel *parallel,
                                 const clv_self_attention_options *options)
{
    clv_type type = clv_graph_type(graph, x);
    clv_self_attention_options o = *options;
    if (!clv_valid(x) || !complete(graph, &o, &type))
        return CLV_NONE;
    clv_head_cut cut = clv_nn_head_cut(graph, parallel, o.heads, o.kv_heads);
    clv_value inside = clv_nn_enter(graph, x, parallel);
    clv_value q = queries(graph, inside, parallel, &o, &cut);
    clv_value kv = keys_values(graph, inside, parallel, &o, &cut);
    clv_attention_options how = {.causal = !o.bidirectional, .mask = o.mask, .offset = o.context ? o.offset : CLV_NONE};
    clv_value y = clv_attention(graph, q, kv, &how);
    int64_t shape[] = {o.heads, o.head_dim, type.shape[2]};
    clv_layout rows = clv_layout_replicated(3), whole = clv_layout_replicated(1);
    clv_nn_cut(graph, &rows, 0, &cut.query, cut.n, cut.query_granule);
    clv_value weight = clv_nn_weight_state(graph, parallel, "o.weight", type.dtype, 3, shape, &rows, o.output_init);
    clv_value out = clv_nn_leave(graph, clv_einsum(graph, "bshd,hdm->bsm", y, weight), parallel);
    return add_bias(graph, out, "o.bias", 1, shape + 2, &whole, o.bias);
}
