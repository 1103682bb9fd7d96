/* parallel_attention.c - tensor-parallel self-attention: heads sharded, KV heads replicated. */
#include <string.h>

#include "graph/graph.h"
#include "nn/kv_cache.h"
#include "nn/layer_layouts.h"
#include "nn/stored_weight.h"

/* Fills in kv_heads and head_dim; false, with an error recorded, if the sizes do not fit. */
static bool fill_in_defaults(clv_graph *graph, clv_self_attention_options *o, const clv_type *x)
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
        clv_graph_fail(graph, CLV_ESHAPE, "%sattention: width %lld is not a multiple of %lld heads; set head_dim",
                       graph->scope, (long long)x->shape[2], (long long)o->heads);
        return false;
    }
    o->head_dim = o->head_dim ? o->head_dim : x->shape[2] / o->heads;
    return true;
}

/* RMSNorm of each head, if there is one. */
static clv_value norm_heads(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *name,
                            const clv_self_attention_options *o)
{
    if (!(o->qk_norm > 0))
        return x;
    clv_value gain = clv_nn_parameter(graph, rules, name, clv_graph_type(graph, x).dtype, 1, &o->head_dim,
                                      (clv_logical_axis[]){CLV_HEAD_DIM}, NULL, (clv_init){CLV_INIT_ONES, 0});
    return clv_rms_norm(graph, x, gain, o->qk_norm);
}

/* The same of the keys of kv [B,S,2,K,D]. */
static clv_value norm_keys(clv_graph *graph, clv_value kv, const clv_axis_rules *rules,
                           const clv_self_attention_options *o)
{
    if (!(o->qk_norm > 0))
        return kv;
    const clv_type type = clv_graph_type(graph, kv);
    const int64_t zeros[5] = {0}, values[5] = {0, 0, 1};
    int64_t end[5];
    memcpy(end, type.shape, sizeof end);
    end[2] = 1;
    const clv_value keys = norm_heads(graph, clv_slice(graph, kv, zeros, end), rules, "k_norm.weight", o);
    const clv_value parts[] = {keys, clv_slice(graph, kv, values, type.shape)};
    return clv_nn_pin_heads(graph, clv_concat(graph, parts, 2, 2), rules, 3, CLV_KV_HEADS);
}

static clv_value queries(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                         const clv_self_attention_options *o)
{
    static const clv_logical_axis names[] = {CLV_EMBED_KERNEL, CLV_HEADS, CLV_HEAD_DIM};
    clv_type type = clv_graph_type(graph, x);
    int64_t shape[] = {type.shape[2], o->heads, o->head_dim};
    clv_layout kernel = clv_named_layout(graph, rules, 3, names), part = clv_named_layout(graph, rules, 2, names + 1);
    clv_layout split = clv_nn_activation_layout(graph, rules, 2, 2, names + 1);
    clv_nn_shard_query_heads(graph, &kernel, 1, o->heads, o->kv_heads);
    clv_nn_shard_query_heads(graph, &part, 0, o->heads, o->kv_heads);
    clv_nn_shard_query_heads(graph, &split, 2, o->heads, o->kv_heads);
    const clv_weight_spec spec = {"q.weight", type.dtype, 3, 1, shape, names, &kernel, o->init, 0};
    clv_stored_weight weight = clv_nn_stored_weight(graph, rules, &spec);
    clv_value q = clv_nn_stored_weight_product(graph, x, rules, &weight, "bs", "m", "mhd", "hd");
    q = clv_nn_pin_heads(graph, q, rules, 2, CLV_HEADS);
    q = clv_nn_constrain(graph, q, &split, rules, "the query tensor", 2, names + 1);
    clv_nn_pin_heads(graph, q, rules, 2, CLV_HEADS);
    if (o->bias)
        q = clv_nn_add_bias(graph, q, rules, "q.bias", 2, shape + 1, names + 1, &part);
    q = norm_heads(graph, q, rules, "q_norm.weight", o);
    q = o->rope.theta != 0 ? clv_rope(graph, q, o->offset, &o->rope) : q;
    return clv_nn_pin_heads(graph, q, rules, 2, CLV_HEADS);
}

static clv_value keys_values(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                             const clv_self_attention_options *o)
{
    static const clv_logical_axis names[] = {CLV_EMBED_KERNEL, CLV_UNNAMED, CLV_KV_HEADS, CLV_HEAD_DIM};
    clv_type type = clv_graph_type(graph, x);
    int64_t shape[] = {type.shape[2], 2, o->kv_heads, o->head_dim};
    clv_layout kernel = clv_named_layout(graph, rules, 4, names), part = clv_named_layout(graph, rules, 3, names + 1);
    clv_layout split = clv_nn_activation_layout(graph, rules, 2, 3, names + 1);
    clv_nn_shard_kv_heads(graph, &kernel, 2, o->heads, o->kv_heads);
    clv_nn_shard_kv_heads(graph, &part, 1, o->heads, o->kv_heads);
    clv_nn_shard_kv_heads(graph, &split, 3, o->heads, o->kv_heads);
    const clv_weight_spec spec = {"kv.weight", type.dtype, 4, 1, shape, names, &kernel, o->init, 0};
    clv_stored_weight weight = clv_nn_stored_weight(graph, rules, &spec);
    clv_value kv = clv_nn_stored_weight_product(graph, x, rules, &weight, "bs", "m", "mjkd", "jkd");
    kv = clv_nn_pin_heads(graph, kv, rules, 3, CLV_KV_HEADS);
    kv = clv_nn_constrain(graph, kv, &split, rules, "the key/value tensor", 3, names + 1);
    clv_nn_pin_heads(graph, kv, rules, 3, CLV_KV_HEADS);
    if (o->bias)
        kv = clv_nn_add_bias(graph, kv, rules, "kv.bias", 3, shape + 1, names + 1, &part);
    kv = norm_keys(graph, kv, rules, o);
    if (o->rope.theta != 0)
        kv = clv_rope(graph, kv, o->offset, &o->rope);
    return clv_nn_pin_heads(graph, kv, rules, 3, CLV_KV_HEADS);
}

static clv_value attend_to_cache(clv_graph *graph, clv_value q, clv_value kv, const clv_axis_rules *rules,
                                 const clv_self_attention_options *o, const clv_attention_options *how)
{
    static const clv_logical_axis names[] = {CLV_BATCH, CLV_CACHE_SEQ, CLV_UNNAMED, CLV_KV_HEADS, CLV_UNNAMED};
    const clv_cache cache = clv_nn_write_cache(graph, kv, names, o->offset, o->context, rules, o->heads, o->kv_heads);
    return clv_nn_attend_to_cache(graph, &cache, q, cache.rows, how);
}

clv_value clv_parallel_attention(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                 const clv_self_attention_options *options)
{
    if (!clv_graph_require(graph, options != NULL, __func__, "options") ||
        !clv_graph_require_zeros(graph, options->reserved, sizeof options->reserved / sizeof *options->reserved,
                                 __func__))
        return CLV_NONE;
    clv_type type = clv_graph_type(graph, x);
    clv_self_attention_options o = *options;
    if (!clv_valid(x) || !fill_in_defaults(graph, &o, &type))
        return CLV_NONE;
    clv_value inside = clv_nn_enter_parallel_region(graph, x, rules, CLV_HEADS);
    clv_value q = queries(graph, inside, rules, &o), kv = keys_values(graph, inside, rules, &o);
    clv_attention_options how = {.size = sizeof how,
                                 .causal = !o.bidirectional,
                                 .mask = o.mask,
                                 .offset = CLV_NONE,
                                 .window = o.window,
                                 .dropout = o.dropout,
                                 .dropout_key = o.dropout_key,
                                 .dropout_step = o.dropout_step};
    clv_value y = o.context ? attend_to_cache(graph, q, kv, rules, &o, &how) : clv_attention(graph, q, kv, &how);
    clv_nn_pin_heads(graph, y, rules, 2, CLV_HEADS);
    static const clv_logical_axis names[] = {CLV_HEADS, CLV_HEAD_DIM, CLV_EMBED_KERNEL};
    int64_t shape[] = {o.heads, o.head_dim, type.shape[2]};
    clv_layout kernel = clv_named_layout(graph, rules, 3, names);
    clv_nn_shard_query_heads(graph, &kernel, 0, o.heads, o.kv_heads);
    const clv_weight_spec spec = {"o.weight", type.dtype, 3, 2, shape, names, &kernel, o.output_init, 0};
    clv_stored_weight weight = clv_nn_stored_weight(graph, rules, &spec);
    clv_value out = clv_nn_stored_weight_product(graph, y, rules, &weight, "bs", "hd", "hdm", "m");
    out = clv_nn_leave_parallel_region(graph, out, rules);
    if (!o.output_bias)
        return out;
    return clv_nn_add_bias(graph, out, rules, "o.bias", 1, shape + 2, (clv_logical_axis[]){CLV_EMBED}, NULL);
}
