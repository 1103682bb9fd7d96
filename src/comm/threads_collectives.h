/* threads_collectives.h - the rows of the threads backend, and what they share. Private to src/comm. */
#ifndef CLEAVE_COMM_THREADS_COLLECTIVES_H
#define CLEAVE_COMM_THREADS_COLLECTIVES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "comm/threads.h"

clv_status clv_threads_all_reduce(clv_comm *base, const clv_group *group, void *out, const void *in, int64_t count,
                                  clv_dtype dtype, clv_reduction reduction, clv_error *err);
clv_status clv_threads_reduce_scatter(clv_comm *base, const clv_group *group, void *out, const void *in,
                                      const int64_t *counts, const int64_t *offsets, clv_dtype dtype,
                                      clv_reduction reduction, clv_error *err);

/* Messages up to this many bytes go by the stage. A stage saves a meeting and costs a copy, whose lines the peers hold:
 * where ranks spin, a meeting is the cheaper from 2 KiB on (16 KiB over 2 ranks: 2.1 us against 4.7); where they sleep,
 * it never is. Alike on all ranks. */
static inline size_t clv_stage_limit(const clv_thread_comm *comm)
{
    return comm->world->spins > 0 ? 2048 : CLV_STAGE_BYTES;
}

/* Ends a collective: where any member worked in its own buffer, all meet once more; then leaves. */
clv_status clv_threads_finish(clv_thread_comm *comm, const clv_group *group, clv_error *err);

/* Gathers n runs of `in` one after the other into `out`; returns out. */
void *clv_pack(void *out, const void *in, const int64_t *counts, const int64_t *offsets, int n, size_t size);

int64_t clv_sum_counts(const int64_t *counts, int n);
uint64_t clv_hash_counts(const int64_t *counts, int n);

/* memcpy that allows no bytes at no address, and a buffer onto itself; returns out. */
static inline void *clv_copy(void *out, const void *in, size_t bytes)
{
    return bytes && out != in ? memcpy(out, in, bytes) : out;
}

/* Element i of a buffer, NULL of none. */
static inline const void *clv_at(const void *buffer, int64_t i, size_t size)
{
    return buffer ? (const char *)buffer + (size_t)i * size : NULL;
}

static inline void *clv_at_mutable(void *buffer, int64_t i, size_t size)
{
    return buffer ? (char *)buffer + (size_t)i * size : NULL;
}

#endif
