/* kv_cache.c - the KV cache of attention, split over batch, positions and KV heads, and attention to it.
 *
 * With its positions over P ranks, the cache is P caches of the batch, [P B, n / P, 2, K, D], each of which begins
 * n / P positions after the one before. Keys, values and queries are repeated for all of them: rows outside a part are
 * not written, and a part without a key that the query sees has lse -inf. The parts' results are averaged by the sums
 * of their softmax (flash-decoding, over ranks), m being the largest lse:
 *
 *   out = sum_p exp(lse_p - m) out_p / sum_p exp(lse_p - m)
 */
#include <string.h>

#include "graph/graph.h"
#include "nn/kv_cache.h"
#include "ops/builtin_ops.h"

static const clv_logical_axis names[] = {CLV_BATCH, CLV_CACHE_SEQ, CLV_UNNAMED, CLV_KV_HEADS, CLV_UNNAMED};

/* The parts of the cache, and their layout: the first dimension is split as positions, then as the batch. */
static int64_t find_parts(clv_layout *out, clv_graph *graph, const clv_axis_rules *rules,
                          const clv_self_attention_options *o)
{
    const clv_subaxis *positions, *batch;
    clv_subaxis both[CLV_MAX_SUBAXES];
    const clv_layout by_name = clv_named_layout(graph, rules, 5, names);
    const int64_t parts = clv_layout_block_count(&by_name, 1);
    const int n = clv_layout_axes(&positions, &by_name, 1), n_batch = clv_layout_axes(&batch, &by_name, 0);
    memcpy(both, positions, (size_t)n * sizeof *both);
    memcpy(both + n, batch, (size_t)n_batch * sizeof *both);
    *out = by_name;
    if (parts > 1 && clv_graph_ok(graph)) {
        clv_layout_set_dim(out, &graph->mesh, 1, NULL, 0, 1, &graph->error);
        clv_layout_set_dim(out, &graph->mesh, 0, both, n + n_batch, 1, &graph->error);
    }
    clv_nn_shard_kv_heads(graph, out, 3, o->heads, o->kv_heads);
    return parts;
}

/* x [P,B,...], split as its dimensions' names say: [P B,...]. */
static clv_value fold_parts(clv_graph *graph, clv_value x, const clv_layout *layout)
{
    clv_type type = clv_graph_type(graph, x);
    type.shape[1] *= type.shape[0];
    return clv_reshape(graph, clv_constrain(graph, x, layout), type.rank - 1, type.shape + 1);
}

/* q [B,S,H,D] or kv [B,S,2,K,D] for each part. */
static clv_value repeat(clv_graph *graph, clv_value x, int64_t parts, const clv_axis_rules *rules,
                        const clv_self_attention_options *o)
{
    const clv_type type = clv_graph_type(graph, x);
    const bool queries = type.rank == 4;
    clv_logical_axis of[6] = {CLV_CACHE_SEQ, CLV_BATCH};
    int64_t shape[6] = {1};
    of[type.rank - 1] = queries ? CLV_HEADS : CLV_KV_HEADS;
    clv_layout layout = clv_named_layout(graph, rules, type.rank + 1, of);
    (queries ? clv_nn_shard_query_heads : clv_nn_shard_kv_heads)(graph, &layout, type.rank - 1, o->heads, o->kv_heads);
    memcpy(shape + 1, type.shape, (size_t)type.rank * sizeof *shape);
    x = clv_reshape(graph, x, type.rank + 1, shape);
    shape[0] = parts;
    return fold_parts(graph, clv_broadcast(graph, x, shape), &layout);
}

/* i32 [P B]: the position of row 0 in each part of so many positions. */
static clv_value offsets_in_parts(clv_graph *graph, clv_value offset, int64_t batch, int64_t parts, int64_t positions,
                                  const clv_axis_rules *rules)
{
    const clv_layout layout = clv_named_layout(graph, rules, 2, (clv_logical_axis[]){CLV_CACHE_SEQ, CLV_BATCH});
    const clv_value size = clv_fill(graph, CLV_I32, 0, NULL, (double)positions);
    const clv_value begin = clv_mul(graph, clv_iota(graph, parts, CLV_NONE), size);
    const clv_value in_part = clv_sub(graph, clv_reshape(graph, offset, 2, (int64_t[]){1, batch}),
                                      clv_reshape(graph, begin, 2, (int64_t[]){parts, 1}));
    return fold_parts(graph, in_part, &layout);
}

/* x [P,...], whose part is a dimension of its own, split as the names say. */
static clv_value by_part(clv_graph *graph, clv_value x, int rank, const int64_t *shape, const clv_logical_axis *of,
                         const clv_axis_rules *rules, const clv_self_attention_options *o)
{
    clv_layout layout = clv_named_layout(graph, rules, rank, of);
    for (int d = 0; d < rank; d++)
        if (of[d] && clv_logical_axis_equal(of[d], CLV_HEADS))
            clv_nn_shard_query_heads(graph, &layout, d, o->heads, o->kv_heads);
    x = clv_constrain(graph, clv_reshape(graph, x, rank, shape), &layout);
    clv_nn_annotate(graph, x, rules, NULL, of);
    return x;
}

/* The average of out [P,B,S,H,D] by lse [P,B,H,S], computed in f32. */
static clv_value merge_parts(clv_graph *graph, clv_value out, clv_value lse)
{
    static const int part[] = {0}, rows_first[] = {0, 1, 3, 2};
    const clv_type type = clv_graph_type(graph, out);
    const int64_t shape[] = {type.shape[0], type.shape[1], type.shape[2], type.shape[3], 1};
    const clv_dtype wide = type.dtype == CLV_F64 ? CLV_F64 : CLV_F32;
    lse = clv_transpose(graph, clv_cast(graph, lse, wide), rows_first);
    const clv_value most = clv_reduce(graph, CLV_MAX, lse, part, 1, true);
    const clv_value weight = clv_reshape(graph, clv_unary(graph, CLV_EXP, clv_sub(graph, lse, most)), 5, shape);
    const clv_value weighted = clv_mul(graph, clv_cast(graph, out, wide), weight);
    const clv_value sum = clv_reduce(graph, CLV_SUM, weighted, part, 1, false);
    return clv_cast(graph, clv_div(graph, sum, clv_reduce(graph, CLV_SUM, weight, part, 1, false)), type.dtype);
}

clv_value clv_nn_attention_to_cache(clv_graph *graph, clv_value q, clv_value kv, const clv_axis_rules *rules,
                                    const clv_self_attention_options *o, const clv_attention_options *how)
{
    clv_layout layout;
    const clv_type query = clv_graph_type(graph, q), rows = clv_graph_type(graph, kv);
    const int64_t parts = find_parts(&layout, graph, rules, o), b = rows.shape[0];
    const int64_t shape[] = {parts * b, (o->context + parts - 1) / parts, 2, o->kv_heads, o->head_dim};
    clv_attention_options each = *how;
    clv_value cache = clv_state_with_role(graph, CLV_ROLE_CACHE, "cache", rows.dtype, 5, shape, &layout,
                                          (clv_init){CLV_INIT_ZEROS, 0});
    clv_nn_annotate(graph, cache, rules, NULL, names);
    clv_nn_keep_stationary(graph, cache, &layout, names);
    if (parts > 1) {
        const clv_subaxis *axes;
        const int n = clv_layout_axes(&axes, &layout, 0);
        for (int i = 0; i < n; i++)
            clv_keep_stationary(graph, cache, graph->mesh.axis[axes[i].axis].name);
        each.offset = offsets_in_parts(graph, how->offset, b, parts, shape[1], rules);
        q = repeat(graph, q, parts, rules, o);
        kv = repeat(graph, kv, parts, rules, o);
    }
    const clv_value updated = clv_cache_update_parts(graph, cache, kv, each.offset, parts > 1 ? parts : 0, o->context);
    clv_assign(graph, cache, updated);
    const clv_value out = clv_attention(graph, q, updated, &each);
    if (parts == 1 || !clv_valid(out))
        return out;
    const clv_value lse = clv_op_result(&graph->ops[graph->values[out.id].op], 1);
    static const clv_logical_axis of_out[] = {CLV_CACHE_SEQ, CLV_BATCH, CLV_UNNAMED, CLV_HEADS, CLV_UNNAMED};
    static const clv_logical_axis of_lse[] = {CLV_CACHE_SEQ, CLV_BATCH, CLV_HEADS, CLV_UNNAMED};
    const int64_t s = query.shape[1], h = query.shape[2];
    const int64_t out_shape[] = {parts, b, s, h, o->head_dim}, lse_shape[] = {parts, b, h, s};
    return merge_parts(graph, by_part(graph, out, 5, out_shape, of_out, rules, o),
                       by_part(graph, lse, 4, lse_shape, of_lse, rules, o));
}
