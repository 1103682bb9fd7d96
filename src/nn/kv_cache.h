/* kv_cache.h - the cache of attention, split over batch, positions and KV heads, and attention to it. */
#pragma once

#include "nn/layer_layouts.h"

/* A cache in parts of so many positions; parts 1: it is whole. */
typedef struct clv_cache {
    const clv_axis_rules *rules;
    int64_t heads, kv_heads; /* how attention splits heads */
    int64_t parts, batch;
    int64_t context, positions; /* of all parts, and of each */
    clv_value offset;           /* [] or [B], or in each part [parts B]: of row 0 of the queries */
    clv_value rows;             /* [parts B,positions,...] */
} clv_cache;

/* Writes rows [B,S,...] at the offset into the state "cache". names: of its dimensions, [0] batch, [1] positions. */
clv_cache clv_nn_write_cache(clv_graph *graph, clv_value rows, const clv_logical_axis *names, clv_value offset,
                             int64_t context, const clv_axis_rules *rules, int64_t heads, int64_t kv_heads);
/* The layout of a tensor [parts B,positions,...] with such names. */
clv_layout clv_nn_cache_layout(clv_graph *graph, const clv_cache *cache, int rank, const clv_logical_axis *names);
/* Attends from q [B,S,H,D] to kv, the cache's rows or what is made of them: as clv_attention, but for the offset. */
clv_value clv_nn_attend_to_cache(clv_graph *graph, const clv_cache *cache, clv_value q, clv_value kv,
                                 const clv_attention_options *how);
