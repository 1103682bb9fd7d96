/* threads_reduce.c - all_reduce and reduce_scatter over threads.
 *
 * Small messages: each rank copies its values to its stage, all meet once, and each sums everything itself. Large ones:
 * all meet, each rank sums its slice straight out of every member's buffer (and, for all_reduce, writes it to every
 * member's), all meet again. Both sum members 0..n-1 in that order, so the bits are the same either way. */
#include <string.h>

#include "base/error.h"
#include "comm/threads_collectives.h"
#include "tensor/view.h"

enum { BLOCK_BYTES = 8192 };

/* Slice i of n, cut so that no two ranks write one cache line (of buffers that start on one). */
static int64_t slice_start(int64_t count, size_t size, int i, int n)
{
    int64_t line = (int64_t)(CLV_LINE / size);
    int64_t lines = (count + line - 1) / line;
    int64_t start = lines * i / n * line;

    return start < count ? start : count;
}

static clv_status check_reduction(clv_reduction reduction, clv_error *err)
{
    if (reduction != CLV_REDUCE_SUM && reduction != CLV_REDUCE_MAX)
        return clv_fail(err, CLV_EINVAL, "a reduction is a sum or a maximum, not %d", (int)reduction);
    return CLV_OK;
}

/* Sums slice `me` of all members and writes it to all, a block at a time: the block's copies come from the first
 * cache. */
static void reduce_slice(const clv_thread_comm *comm, const clv_group *group, int64_t count, clv_dtype dtype,
                         clv_reduction reduction)
{
    size_t size = clv_dtype_size(dtype);
    int64_t block = BLOCK_BYTES / (int64_t)size;
    int64_t end = slice_start(count, size, group->me + 1, group->n);

    for (int64_t at = slice_start(count, size, group->me, group->n); at < end; at += block) {
        int64_t n = end - at < block ? end - at : block;
        void *mine = clv_at_mutable(comm->outs[group->me], at, size);

        clv_run_reduce(mine, comm->ins, group->n, at, n, dtype, reduction);
        for (int i = 0; i < group->n; i++)
            clv_copy(clv_at_mutable(comm->outs[i], at, size), mine, (size_t)n * size);
    }
}

clv_status clv_threads_all_reduce(clv_comm *base, const clv_group *group, void *out, const void *in, int64_t count,
                                  clv_dtype dtype, clv_reduction reduction, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    size_t size = clv_dtype_size(dtype);
    size_t bytes = (size_t)count * size;
    int direct = bytes > clv_stage_limit(comm);
    clv_post post = {.in = in,
                     .out = out,
                     .count = count,
                     .op = CLV_OP_ALL_REDUCE,
                     .dtype = (uint8_t)dtype,
                     .reduction = (uint8_t)reduction,
                     .direct = (uint8_t)direct};

    CLV_TRY(check_reduction(reduction, err));
    if (!direct)
        post.in = clv_copy(clv_threads_stage(comm, group), in, bytes);
    CLV_TRY(clv_threads_meet(comm, group, &post, err));
    for (int i = 0; i < group->n; i++) {
        comm->ins[i] = clv_threads_post(comm, group, i)->in;
        comm->outs[i] = clv_threads_post(comm, group, i)->out;
    }
    if (direct)
        reduce_slice(comm, group, count, dtype, reduction);
    else
        clv_run_reduce(out, comm->ins, group->n, 0, count, dtype, reduction);
    return clv_threads_finish(comm, group, err);
}

clv_status clv_threads_reduce_scatter(clv_comm *base, const clv_group *group, void *out, const void *in,
                                      const int64_t *counts, const int64_t *offsets, clv_dtype dtype,
                                      clv_reduction reduction, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    size_t size = clv_dtype_size(dtype);
    int64_t total = clv_sum_counts(counts, group->n);
    int64_t before = clv_sum_counts(counts, group->me);
    int direct = (size_t)total * size > clv_stage_limit(comm);
    clv_post post = {.in = in,
                     .offsets = offsets,
                     .tag = clv_hash_counts(counts, group->n),
                     .count = total,
                     .op = CLV_OP_REDUCE_SCATTER,
                     .dtype = (uint8_t)dtype,
                     .reduction = (uint8_t)reduction,
                     .direct = (uint8_t)direct};

    CLV_TRY(check_reduction(reduction, err));
    if (!direct)
        post.in = clv_pack(clv_threads_stage(comm, group), in, counts, offsets, group->n, size);
    CLV_TRY(clv_threads_meet(comm, group, &post, err));
    for (int i = 0; i < group->n; i++) {
        const clv_post *peer = clv_threads_post(comm, group, i);
        int64_t first = direct ? peer->offsets[group->me] : before;

        comm->ins[i] = clv_at(peer->in, first, size);
    }
    clv_run_reduce(out, comm->ins, group->n, 0, counts[group->me], dtype, reduction);
    return clv_threads_finish(comm, group, err);
}
