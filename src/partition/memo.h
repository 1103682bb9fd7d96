/* memo.h - strategies chosen before: a repeated layer is solved once. */
#ifndef CLEAVE_PARTITION_MEMO_H
#define CLEAVE_PARTITION_MEMO_H

#include "partition/strategy.h"

typedef struct clv_memo clv_memo;

/* Lives in the arena; NULL: out of memory. */
clv_memo *clv_memo_new(clv_arena *arena);

/* clv_strategy_choose, or what it gave for an equal problem: the same op kind and attributes on operands of the same
 * types in the same layouts, results wanted in the same layouts. *out stays valid. */
clv_status clv_memo_choose(const clv_strategy **out, clv_memo *memo, const clv_problem *problem, clv_error *err);

#endif
