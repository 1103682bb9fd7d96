/* strategy_cache.h - cache of chosen strategies keyed by op and layouts: a repeated layer is solved once. */
#ifndef CLEAVE_PARTITION_SHARDING_STRATEGY_CACHE_H
#define CLEAVE_PARTITION_SHARDING_STRATEGY_CACHE_H

#include "partition/sharding/op_strategy.h"

typedef struct clv_strategy_cache clv_strategy_cache;

/* Lives in the arena; NULL: out of memory. */
clv_strategy_cache *clv_strategy_cache_new(clv_arena *arena);

/* clv_strategy_choose, or what it gave for an equal problem: the same op kind and attributes on operands of the same
 * types in the same layouts, results wanted in the same layouts. *out stays valid. */
clv_status clv_strategy_cache_choose(const clv_strategy **out, clv_strategy_cache *memo,
                                     const clv_strategy_problem *problem, clv_error *err);

#endif
