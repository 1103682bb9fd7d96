/* reduce_gradients_early.h - pass: moves gradient reductions to right after the op that makes the gradient (ZeRO). */
#ifndef CLEAVE_PARTITION_PASSES_REDUCE_GRADIENTS_EARLY_H
#define CLEAVE_PARTITION_PASSES_REDUCE_GRADIENTS_EARLY_H

#include "partition/sharding_table.h"

/* Moves each step that leaves ranks less of a parameter's gradient to right behind the row that made, or read, it last
 * before that. */
clv_status clv_reduce_gradients_early(clv_sharding_table *table, clv_error *err);

#endif
