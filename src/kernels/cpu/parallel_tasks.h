/* parallel_tasks.h - splits a kernel's work into tasks for OpenMP threads and idle ranks (work stealing). Internal to
 * this folder. The result of a task must not depend on the thread or rank that runs it.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/memory/aligned_memory.h"
#include "base/threads/work_stealing.h"
#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/openmp.h"

/* Where task i begins if n is split into equal tasks, each a multiple of `unit`; i == tasks: n. */
static inline int64_t clv_task_begin(int64_t n, int64_t unit, int64_t tasks, int64_t i)
{
    return clv_min_i64(clv_ceil_div(n, unit) * i / tasks * unit, n);
}

/* Number of tasks for a loop that streams `bytes` of memory once (a skinny GEMM): n columns, in multiples of `unit`,
 * the same number for each of `threads` threads or ranks, each task large enough to take some microseconds. */
static inline int clv_streaming_task_count(int threads, int64_t n, int64_t unit, int64_t bytes)
{
    enum { MIN_BYTES = 64 * 1024 };
    const int64_t each = clv_min_i64(bytes / MIN_BYTES, clv_ceil_div(n, unit)) / threads;
    return (int)(clv_max_i64(1, each) * threads);
}

/* The next task of a thread's own range. */
typedef struct clv_task_range {
    _Alignas(CLV_CACHE_LINE) _Atomic int64_t next;
} clv_task_range;

/* Runs fn(arg, task, worker) for each of n tasks. A single thread shares them with idle ranks. Several threads each
 * have a range of consecutive tasks, which is how memory is read fastest; a thread that has finished its range takes
 * tasks of others, so that a thread on a slower core runs fewer. Above MAX_RANGES threads two share a range. */
static inline void clv_run_tasks(clv_task_pool_member work, int threads, clv_task_fn *fn, void *arg, int n)
{
    enum { MAX_RANGES = 64 }; /* 8 KiB of stack */
    if (threads == 1) {       /* a parallel region costs more than a small product (f32_blocks.h) */
        clv_task_pool_run(work, CLV_TASK_POOL_ALL, fn, arg, n);
        return;
    }
    const int64_t parts = threads < MAX_RANGES ? threads : MAX_RANGES;
    clv_task_range left[MAX_RANGES];
    for (int64_t p = 0; p < parts; p++)
        atomic_init(&left[p].next, clv_task_begin(n, 1, parts, p));
    CLV_PRAGMA(omp parallel)
    for (int64_t i = 0; i < parts; i++) {
        const int64_t p = (clv_threads_index() + i) % parts, end = clv_task_begin(n, 1, parts, p + 1);
        /* check before the fetch_add, which takes the cache line */
        while (atomic_load_explicit(&left[p].next, memory_order_relaxed) < end) {
            const int64_t at = atomic_fetch_add_explicit(&left[p].next, 1, memory_order_relaxed);
            if (at < end)
                fn(arg, (int)at, clv_threads_index());
        }
    }
}

/* Inside a parallel region: number of parts, at most `most`, into which to split each of `blocks` blocks, so that each
 * thread gets some. A single thread shares whole blocks with ranks. */
static inline int64_t clv_splits_for_team(int64_t blocks, int64_t most)
{
    enum { TASKS_PER_THREAD = 4 };
    const int team = clv_threads_team();
    return team == 1 ? 1 : clv_min_i64(clv_ceil_div(TASKS_PER_THREAD * team, blocks), most);
}

/* Inside a parallel region, called by all its threads: runs fn(arg, task, worker) for each of n tasks in order. For
 * tasks of milliseconds whose operands are in cache. A single thread shares them with idle ranks. Returns when all are
 * done. */
static inline void clv_run_tasks_in_region(clv_task_pool_member work, clv_task_fn *fn, void *arg, int n)
{
    if (clv_threads_team() == 1) {
        clv_task_pool_run(work, CLV_TASK_POOL_ALL, fn, arg, n);
        return;
    }
    CLV_PRAGMA(omp for schedule(dynamic, 1))
    for (int i = 0; i < n; i++)
        fn(arg, i, clv_threads_index());
}
