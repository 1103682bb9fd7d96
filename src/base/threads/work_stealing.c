/* work_stealing.c - work stealing: one lock-free task counter per member; the owner and idle members take tasks by
 * compare-and-swap. One is taken by lowering the counter from what was seen, so that of a later work is not lowered
 * unseen; and until a taken piece has ended the member does not return from sharing, so what its work consists of
 * stays as it is. Who takes part is known by its distance from the member, so that no two have the same number.
 */
#include "base/threads/work_stealing.h"

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/memory/cache_line.h"
#include "base/threads/wait.h"

enum { SPINS = 20000 }; /* pauses, half a millisecond, before the core is given to others */

typedef struct work_queue {
    alignas(CLV_CACHE_LINE) _Atomic uint64_t left; /* number of the work << 32 | pieces that nobody has taken */
    _Atomic(void *) arg;
    _Atomic(clv_task_fn *) fn;
    _Atomic int n, most;
    alignas(CLV_CACHE_LINE) _Atomic int ended; /* pieces of the work */
} work_queue;

struct clv_task_pool {
    int members;
    _Atomic int open; /* works: who waits looks here first */
    work_queue work_queues[];
};

clv_task_pool *clv_task_pool_new(int members)
{
    clv_task_pool *pool = clv_cache_line_alloc(1, sizeof *pool + (size_t)members * sizeof *pool->work_queues);
    if (pool)
        pool->members = members;
    return pool;
}

void clv_task_pool_free(clv_task_pool *pool)
{
    free(pool);
}

/* A piece of the work_queue's work, or -1. That `most` is of the work that was seen is sure once the piece is taken. */
static int take_task(work_queue *d, int who)
{
    uint64_t seen = atomic_load_explicit(&d->left, memory_order_acquire);
    while ((uint32_t)seen > 0 && who < atomic_load_explicit(&d->most, memory_order_relaxed))
        if (atomic_compare_exchange_weak_explicit(&d->left, &seen, seen - 1, memory_order_acquire,
                                                  memory_order_acquire))
            return atomic_load_explicit(&d->n, memory_order_relaxed) - (int)(uint32_t)seen;
    return -1;
}

/* Takes a piece and does it. */
static bool run_one_task(work_queue *d, int who, int64_t *took_ns)
{
    const int piece = take_task(d, who);
    if (piece < 0)
        return false;
    const int64_t began = took_ns ? clv_now_ns() : 0;
    clv_task_fn *fn = atomic_load_explicit(&d->fn, memory_order_relaxed);
    fn(atomic_load_explicit(&d->arg, memory_order_relaxed), piece, who);
    atomic_fetch_add_explicit(&d->ended, 1, memory_order_release);
    if (took_ns)
        *took_ns += clv_now_ns() - began;
    return true;
}

void clv_task_pool_run(clv_task_pool_member place, int most, clv_task_fn *fn, void *arg, int n)
{
    if (!place.pool || place.pool->members < 2 || n < 2) {
        for (int i = 0; i < n; i++)
            fn(arg, i, 0);
        return;
    }
    work_queue *d = &place.pool->work_queues[place.member];
    atomic_fetch_add_explicit(&place.pool->open, 1, memory_order_relaxed);
    const uint64_t number = (atomic_load_explicit(&d->left, memory_order_relaxed) >> 32) + 1;
    atomic_store_explicit(&d->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&d->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&d->n, n, memory_order_relaxed);
    atomic_store_explicit(&d->most, most, memory_order_relaxed);
    atomic_store_explicit(&d->ended, 0, memory_order_relaxed);
    atomic_store_explicit(&d->left, number << 32 | (uint32_t)n, memory_order_release);
    while (run_one_task(d, 0, NULL))
        continue;
    for (int spins = 0; atomic_load_explicit(&d->ended, memory_order_acquire) < n; spins++)
        if (spins < SPINS)
            clv_cpu_pause();
        else
            sched_yield(); /* who has the last piece may want this core */
    atomic_fetch_sub_explicit(&place.pool->open, 1, memory_order_relaxed);
}

bool clv_task_pool_steal(clv_task_pool_member place, int64_t *took_ns)
{
    const clv_task_pool *pool = place.pool;
    if (!pool || atomic_load_explicit(&pool->open, memory_order_relaxed) == 0)
        return false;
    for (int i = 1; i < pool->members; i++)
        if (run_one_task(&place.pool->work_queues[(place.member + i) % pool->members], i, took_ns))
            return true;
    return false;
}
