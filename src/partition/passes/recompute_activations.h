/* recompute_activations.h - pass: activation checkpointing, full or selective, block by block. */
#ifndef CLEAVE_PARTITION_PASSES_RECOMPUTE_ACTIVATIONS_H
#define CLEAVE_PARTITION_PASSES_RECOMPUTE_ACTIVATIONS_H

#include "partition/sharding_table.h"

/* Adds the rows that make it again, before the first row that reads it; of CLV_RECOMPUTE_NONE it does nothing.
 * reshard_after_forward: as in clv_compile_options. */
clv_status clv_recompute_activations(clv_sharding_table *table, clv_recompute mode, bool reshard_after_forward,
                                     clv_error *err);

#endif
