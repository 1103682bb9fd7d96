/* single_step.h - steps made and run by hand, for tests of what lies below programs. */
#pragma once

#include "comm/transport.h"

/* A window over all ranks' memory; NULL where the world's transport takes none. */
clv_window *hand_window(clv_world *world, void *const *memory);
void hand_window_free(clv_world *world, clv_window *window);

/* Prepares the transfer as a collective and, unless that failed, allocates its staging. */
clv_status hand_prepare(clv_prepared_collective **out, void **staging, clv_world *world, clv_comm *comm,
                        const clv_transfer *transfer, clv_error *err);
/* Releases both. */
void hand_release(clv_world *world, clv_prepared_collective *prepared, void *staging);

/* A step from its preparation to its end. */
clv_status hand_step(clv_world *world, clv_comm *comm, const clv_transfer *transfer, clv_error *err);

/* All members get the sum of their `in`: count elements. */
clv_transfer hand_all_reduce(const clv_group *group, const clv_window *window, void *out, const void *in, int64_t count,
                             clv_dtype dtype, clv_shard shards[]);
