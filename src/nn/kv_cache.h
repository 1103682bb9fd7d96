/* kv_cache.h - the KV cache of attention, split over batch, positions and KV heads, and attention to it. */
#pragma once

#include "nn/layer_layouts.h"

/* Writes kv [B,S,2,K,D] into the state "cache", at the offset of `how`, and attends to it: as clv_attention. */
clv_value clv_nn_attention_to_cache(clv_graph *graph, clv_value q, clv_value kv, const clv_axis_rules *rules,
                                    const clv_self_attention_options *options, const clv_attention_options *how);
