/* kv_cache.c - the cache of attention, split over batch, positions and KV heads, and attention to it.
 *
 * With its positions over P ranks, the cache is P caches of the batch, [P B, n / P, ...], each of which begins n / P
 * positions after the one before. New rows and queries are repeated for all of them: rows outside a part are not
 * written, and a part without a key that the query sees has lse -inf. The parts' results are averaged by the sums of
 * their softmax (flash-decoding, over ranks), m being the largest lse:
 *
 *   out = sum_p exp(lse_p - m) out_p / sum_p exp(lse_p - m)
 */
#include <string.h>

#include "graph/graph.h"
#include "nn/kv_cache.h"
#include "ops/builtin_ops.h"

/* Splits heads as attention does. */
static clv_layout named(clv_graph *graph, const clv_cache *cache, int rank, const clv_logical_axis *names)
{
    clv_layout layout = clv_named_layout(graph, cache->rules, rank, names);
    for (int d = 0; d < rank; d++)
        if (clv_logical_axis_equal(names[d], CLV_HEADS))
            clv_nn_shard_query_heads(graph, &layout, d, cache->heads, cache->kv_heads);
        else if (clv_logical_axis_equal(names[d], CLV_KV_HEADS))
            clv_nn_shard_kv_heads(graph, &layout, d, cache->heads, cache->kv_heads);
    return layout;
}

clv_layout clv_nn_cache_layout(clv_graph *graph, const clv_cache *cache, int rank, const clv_logical_axis *names)
{
    const clv_subaxis *positions, *batch;
    clv_subaxis both[CLV_MAX_SUBAXES];
    const clv_layout by_name = named(graph, cache, rank, names);
    const int n = clv_layout_axes(&positions, &by_name, 1), n_batch = clv_layout_axes(&batch, &by_name, 0);
    clv_layout layout = by_name;
    memcpy(both, positions, (size_t)n * sizeof *both);
    memcpy(both + n, batch, (size_t)n_batch * sizeof *both);
    if (cache->parts > 1 && clv_graph_ok(graph)) {
        clv_layout_set_dim(&layout, &graph->mesh, 1, NULL, 0, 1, &graph->error);
        clv_layout_set_dim(&layout, &graph->mesh, 0, both, n + n_batch, 1, &graph->error);
    }
    return layout;
}

/* x [P,B,...], split as its dimensions' names say: [P B,...]. */
static clv_value fold_parts(clv_graph *graph, clv_value x, const clv_layout *layout)
{
    clv_type type = clv_graph_type(graph, x);
    type.shape[1] *= type.shape[0];
    return clv_reshape(graph, clv_constrain(graph, x, layout), type.rank - 1, type.shape + 1);
}

/* x [B,S,...], whose dimensions from 2 on have these names, for each part. */
static clv_value repeat(clv_graph *graph, const clv_cache *cache, clv_value x, const clv_logical_axis *names)
{
    const clv_type type = clv_graph_type(graph, x);
    if (!clv_graph_ok(graph) || !clv_valid(x))
        return CLV_NONE;
    clv_logical_axis of[CLV_MAX_RANK] = {CLV_CACHE_SEQ, CLV_BATCH};
    int64_t shape[CLV_MAX_RANK] = {1};
    memcpy(of + 3, names + 2, (size_t)(type.rank - 2) * sizeof *of);
    memcpy(shape + 1, type.shape, (size_t)type.rank * sizeof *shape);
    const clv_layout layout = named(graph, cache, type.rank + 1, of);
    x = clv_reshape(graph, x, type.rank + 1, shape);
    shape[0] = cache->parts;
    return fold_parts(graph, clv_broadcast(graph, x, shape), &layout);
}

/* i32 [P B]: the position of row 0 in each part. */
static clv_value offsets_in_parts(clv_graph *graph, const clv_cache *cache, clv_value offset)
{
    const clv_layout layout = clv_named_layout(graph, cache->rules, 2, (clv_logical_axis[]){CLV_CACHE_SEQ, CLV_BATCH});
    const clv_value size = clv_fill(graph, CLV_I32, 0, NULL, (double)cache->positions);
    const clv_value begin = clv_mul(graph, clv_iota(graph, cache->parts, CLV_NONE), size);
    const int64_t given = clv_graph_type(graph, offset).rank == 0 ? 1 : cache->batch; /* one for all rows, or of each */
    const clv_value of_rows =
        clv_broadcast(graph, clv_reshape(graph, offset, 2, (int64_t[]){1, given}), (int64_t[]){1, cache->batch});
    const clv_value in_part = clv_sub(graph, of_rows, clv_reshape(graph, begin, 2, (int64_t[]){cache->parts, 1}));
    return fold_parts(graph, in_part, &layout);
}

clv_cache clv_nn_write_cache(clv_graph *graph, clv_value rows, const clv_logical_axis *names, clv_value offset,
                             int64_t context, const clv_axis_rules *rules, int64_t heads, int64_t kv_heads)
{
    const clv_type type = clv_graph_type(graph, rows);
    if (!clv_graph_ok(graph) || !clv_valid(rows))
        return (clv_cache){
            .rules = rules, .parts = 1, .batch = 1, .positions = 1, .offset = CLV_NONE, .rows = CLV_NONE};
    const clv_layout by_name = clv_named_layout(graph, rules, type.rank, names);
    const int64_t parts = clv_layout_block_count(&by_name, 1);
    clv_cache cache = {
        rules,  heads,   kv_heads, parts, type.shape[0], context, context / parts + (context % parts != 0),
        offset, CLV_NONE};
    const clv_layout layout = clv_nn_cache_layout(graph, &cache, type.rank, names);
    int64_t shape[CLV_MAX_RANK];
    memcpy(shape, type.shape, sizeof shape);
    shape[0] = parts * cache.batch;
    shape[1] = cache.positions;
    const clv_value state = clv_state_with_role(graph, CLV_ROLE_CACHE, "cache", type.dtype, type.rank, shape, &layout,
                                                (clv_init){CLV_INIT_ZEROS, 0});
    clv_nn_annotate(graph, state, rules, NULL, names);
    clv_nn_keep_stationary(graph, state, &layout, names);
    if (parts > 1) {
        const clv_subaxis *axes;
        const int n = clv_layout_axes(&axes, &layout, 0);
        for (int i = 0; i < n; i++)
            clv_keep_stationary(graph, state, graph->mesh.axis[axes[i].axis].name);
        cache.offset = offsets_in_parts(graph, &cache, offset);
        rows = repeat(graph, &cache, rows, names);
    }
    cache.rows = clv_cache_update_parts(graph, state, rows, cache.offset, parts > 1 ? parts : 0, context);
    clv_assign(graph, state, cache.rows);
    return cache;
}

/* A mask [B,context] of positions, as [P B,positions]. */
static clv_value mask_in_parts(clv_graph *graph, const clv_cache *cache, clv_value mask)
{
    static const int parts_first[] = {1, 0, 2};
    const clv_type type = clv_graph_type(graph, mask);
    if (type.rank != 2 || type.shape[0] != cache->batch || type.shape[1] != cache->context)
        return clv_graph_fail(graph, CLV_ESHAPE, "the mask of a cache is %s; [B,context] = [%lld,%lld] is needed",
                              clv_type_string(&type).text, (long long)cache->batch, (long long)cache->context);
    const int64_t begin[2] = {0}, end[] = {0, cache->parts * cache->positions - cache->context};
    const int64_t shape[] = {cache->batch, cache->parts, cache->positions};
    const clv_logical_axis names[] = {CLV_CACHE_SEQ, CLV_BATCH, CLV_UNNAMED};
    const clv_layout layout = clv_named_layout(graph, cache->rules, 3, names);
    mask = clv_reshape(graph, clv_pad(graph, mask, begin, end), 3, shape);
    return fold_parts(graph, clv_transpose(graph, mask, parts_first), &layout);
}

/* x [P B,...] with parts as a dimension of their own, split as the names say. */
static clv_value by_part(clv_graph *graph, const clv_cache *cache, clv_value x, const clv_logical_axis *names)
{
    const clv_type type = clv_graph_type(graph, x);
    int64_t shape[CLV_MAX_RANK] = {cache->parts};
    memcpy(shape + 1, type.shape, (size_t)type.rank * sizeof *shape);
    shape[1] = cache->batch;
    const clv_layout layout = named(graph, cache, type.rank + 1, names);
    x = clv_constrain(graph, clv_reshape(graph, x, type.rank + 1, shape), &layout);
    clv_nn_annotate(graph, x, cache->rules, NULL, names);
    return x;
}

/* The average of out [P,B,S,H,D] by lse [P,B,H,S], computed in f32; 0 for rows that see no key of any part. */
static clv_value merge_parts(clv_graph *graph, clv_value out, clv_value lse)
{
    static const int part[] = {0}, rows_first[] = {0, 1, 3, 2};
    const clv_type type = clv_graph_type(graph, out);
    const int64_t shape[] = {type.shape[0], type.shape[1], type.shape[2], type.shape[3], 1};
    const clv_dtype wide = type.dtype == CLV_F64 ? CLV_F64 : CLV_F32;
    const clv_value finite = clv_fill(graph, wide, 0, NULL, -1e30), one = clv_fill(graph, wide, 0, NULL, 1);
    lse = clv_transpose(graph, clv_cast(graph, lse, wide), rows_first);
    const clv_value most = clv_binary(graph, CLV_MAXIMUM, clv_reduce(graph, CLV_MAX, lse, part, 1, true), finite);
    const clv_value weight = clv_reshape(graph, clv_unary(graph, CLV_EXP, clv_sub(graph, lse, most)), 5, shape);
    const clv_value weighted = clv_mul(graph, clv_cast(graph, out, wide), weight);
    const clv_value sum = clv_reduce(graph, CLV_SUM, weighted, part, 1, false);
    const clv_value weights = clv_binary(graph, CLV_MAXIMUM, clv_reduce(graph, CLV_SUM, weight, part, 1, false), one);
    return clv_cast(graph, clv_div(graph, sum, weights), type.dtype);
}

clv_value clv_nn_attend_to_cache(clv_graph *graph, const clv_cache *cache, clv_value q, clv_value kv,
                                 const clv_attention_options *how)
{
    static const clv_logical_axis of_q[] = {CLV_BATCH, CLV_UNNAMED, CLV_HEADS, CLV_UNNAMED};
    static const clv_logical_axis of_out[] = {CLV_CACHE_SEQ, CLV_BATCH, CLV_UNNAMED, CLV_HEADS, CLV_UNNAMED};
    static const clv_logical_axis of_lse[] = {CLV_CACHE_SEQ, CLV_BATCH, CLV_HEADS, CLV_UNNAMED};
    clv_attention_options each = *how;
    each.offset = cache->offset;
    if (cache->parts == 1)
        return clv_attention(graph, q, kv, &each);
    if (how->dropout > 0)
        return clv_graph_fail(
            graph, CLV_EUNSUPPORTED,
            "dropout of attention to a cache that is split over positions; valid: 0, or a whole cache");
    if (!clv_valid(each.mask) && !how->causal && cache->parts * cache->positions > cache->context)
        each.mask = clv_fill(graph, CLV_U8, 2, (int64_t[]){cache->batch, cache->context}, 1);
    if (clv_valid(each.mask))
        each.mask = mask_in_parts(graph, cache, each.mask);
    const clv_value out = clv_attention(graph, repeat(graph, cache, q, of_q), kv, &each);
    if (!clv_valid(out))
        return out;
    const clv_value lse = clv_op_result(&graph->ops[graph->values[out.id].op], 1);
    return merge_parts(graph, by_part(graph, cache, out, of_out), by_part(graph, cache, lse, of_lse));
}
