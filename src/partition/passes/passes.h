/* passes.h - the passes from a graph to a program, in order: each reads and edits the partitioner or its table. */
#pragma once

#include "partition/partitioner.h"
#include "program/program.h"

/* propagate_layouts.c. In: the graph. Out: live_op, readers; of values: weights, target layouts, accumulation
 * counts. */
clv_status clv_partition_propagate_layouts(clv_partitioner *p, clv_error *err);

/* search_layouts.c. In: targets. Out: with clv_compile_options.search_layouts searched, and targets of inputs. */
clv_status clv_partition_search_layouts(clv_partitioner *p, clv_error *err);

/* choose_strategies.c. In: available and target layouts. Out: the table, with a strategy for every live op and the
 * reshards of its operands, outputs and state. */
clv_status clv_partition_choose_strategies(clv_partitioner *p, clv_error *err);

/* compress_collectives.c. Sets wire_dtype of the steps that may be rounded to `dtype`, or to `gradients`, unless that
 * is CLV_COMM_F32, for steps that sum gradients for updates. */
clv_status clv_compress_collectives(clv_sharding_table *table, clv_comm_dtype dtype, clv_comm_dtype gradients,
                                    clv_error *err);

/* recompute_activations.c. Inserts rows that recompute activations before the first row of the backward pass that reads
 * them; reshard_after_forward: as in clv_compile_options. Does nothing for CLV_RECOMPUTE_NONE. */
clv_status clv_recompute_activations(clv_sharding_table *table, clv_recompute mode, bool reshard_after_forward,
                                     clv_error *err);

/* reduce_gradients_early.c. Moves each step that makes a parameter's gradient smaller, or moves a shard of it, to right
 * after the row that last made or read its operand; additions of gradients follow. */
clv_status clv_reduce_gradients_early(clv_sharding_table *table, clv_error *err);

/* place_stages.c. In: the table of one stage's ranks, of a graph with pipeline stages (else nothing is done). Out:
 * stages of rows and layouts, and sends. */
clv_status clv_place_stages(clv_sharding_table *table, clv_error *err);

/* lower_to_program.c. Fills a program, which has an arena and nothing else, with buffers and instructions; it keeps
 * nothing of the table or its graph. CLV_EINVAL for a table that clv_sharding_table_verify refuses,
 * unless the program is priced alone. */
clv_status clv_lower_to_program(clv_program *out, const clv_sharding_table *table, clv_error *err);
