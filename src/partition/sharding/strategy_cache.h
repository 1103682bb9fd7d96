/* strategy_cache.h - cache of chosen strategies keyed by op and layouts: a repeated layer is solved once. */
#pragma once

#include "partition/sharding/op_strategy.h"

typedef struct clv_key_cache clv_strategy_cache;

/* Makes a cache, which lives in the arena. NULL: out of memory. */
clv_strategy_cache *clv_strategy_cache_new(clv_arena *arena);

/* clv_strategy_choose, or its earlier result for an equal problem: the same op kind and attributes on operands of the
 * same types and layouts, with the same target layouts. *out stays valid. */
clv_status clv_strategy_cache_choose(const clv_strategy **out, clv_strategy_cache *cache,
                                     const clv_strategy_problem *problem, clv_error *err);
