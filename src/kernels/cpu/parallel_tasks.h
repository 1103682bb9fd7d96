/* parallel_tasks.h - splits a kernel's work into tasks for OpenMP threads and idle ranks (work stealing). Internal to
 * this folder. What a piece does must not depend on who does it.
 */
#ifndef CLEAVE_KERNELS_CPU_PARALLEL_TASKS_H
#define CLEAVE_KERNELS_CPU_PARALLEL_TASKS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/memory/aligned_memory.h"
#include "base/threads/work_stealing.h"
#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/openmp.h"

/* Where piece i begins of n that are cut into `pieces` alike, each a multiple of `unit`; i == pieces: n. */
static inline int64_t clv_task_begin(int64_t n, int64_t unit, int64_t pieces, int64_t i)
{
    return clv_min_i64(clv_ceil_div(n, unit) * i / pieces * unit, n);
}

/* Into how many pieces n columns of `bytes` in all are cut, each a multiple of `unit`, for so many threads, or ranks,
 * to share: few rows are multiplied by them at the speed of memory, which takes some microseconds for one. Each thread
 * has as many. */
static inline int clv_streaming_task_count(int threads, int64_t n, int64_t unit, int64_t bytes)
{
    enum { LEAST = 64 * 1024 };
    const int64_t each = clv_min_i64(bytes / LEAST, clv_ceil_div(n, unit)) / threads;
    return (int)(clv_max_i64(1, each) * threads);
}

/* The next of the pieces that a thread begins with. */
typedef struct clv_task_range {
    _Alignas(CLV_CACHE_LINE) _Atomic int64_t next;
} clv_task_range;

/* fn(arg, piece, who) for each of n pieces. One thread shares them with ranks that wait. Several begin with as many
 * each, side by side, which is how memory is read best; who has done those takes others', so that a thread on a slower
 * core does fewer. Beyond MOST threads two begin with the same. */
static inline void clv_run_tasks(clv_task_pool_member work, int threads, clv_task_fn *fn, void *arg, int n)
{
    enum { MOST = 64 }; /* 8 KiB of stack */
    if (threads == 1) { /* no parallel region, which costs more than a small product (f32_blocks.h) */
        clv_task_pool_run(work, CLV_TASK_POOL_ALL, fn, arg, n);
        return;
    }
    const int64_t parts = threads < MOST ? threads : MOST;
    clv_task_range left[MOST];
    for (int64_t p = 0; p < parts; p++)
        atomic_init(&left[p].next, clv_task_begin(n, 1, parts, p));
    CLV_PRAGMA(omp parallel)
    for (int64_t i = 0; i < parts; i++) {
        const int64_t p = (clv_threads_index() + i) % parts, end = clv_task_begin(n, 1, parts, p + 1);
        while (atomic_load_explicit(&left[p].next, memory_order_relaxed) < end) { /* else its line is not taken */
            const int64_t at = atomic_fetch_add_explicit(&left[p].next, 1, memory_order_relaxed);
            if (at < end)
                fn(arg, (int)at, clv_threads_index());
        }
    }
}

/* Inside a parallel region, by all threads of its team: into how many parts, `most` of them, each of `down` blocks is
 * cut, so that there are some pieces for each thread. A team of one shares whole blocks with ranks. */
static inline int64_t clv_splits_for_team(int64_t down, int64_t most)
{
    enum { EACH = 4 };
    const int team = clv_threads_team();
    return team == 1 ? 1 : clv_min_i64(clv_ceil_div(EACH * team, down), most);
}

/* There, too: fn(arg, piece, who) for each of n pieces that are worth milliseconds, whose operands caches have: in
 * turn. A team of one shares them with ranks that wait. All return when all have ended. */
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

#endif
