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
