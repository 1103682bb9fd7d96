/* work_stealing.c - work stealing: one lock-free task counter per member; the owner and idle members take tasks by
 * compare-and-swap. The counter includes the number of the batch, so a task of a later batch is never taken by mistake.
 * The owner does not return until every taken task is done, so the batch stays valid meanwhile. A member's worker
 * number is its distance from the owner, so no two are equal.
 */
#include "base/threads/work_stealing.h"

#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory/aligned_memory.h"
#include "base/threads/wait.h"

enum { SPINS = 20000 }; /* pauses (half a millisecond) before the owner yields its core */

typedef struct work_queue {
    alignas(CLV_CACHE_LINE) _Atomic uint64_t remaining; /* number of the batch << 32 | tasks not taken yet */
    _Atomic(void *) arg;
    _Atomic(clv_task_fn *) fn;
    _Atomic int n, max_workers;
    alignas(CLV_CACHE_LINE) _Atomic int done; /* tasks of the batch */
} work_queue;

struct clv_task_pool {
    int members;
    _Atomic int open; /* batches with owners inside clv_task_pool_run: members that wait check this first */
    work_queue queues[];
};

clv_task_pool *clv_task_pool_new(int members)
{
    clv_task_pool *pool = clv_cache_line_alloc(1, sizeof *pool + (size_t)members * sizeof *pool->queues);
    if (pool)
        pool->members = members;
    return pool;
}

void clv_task_pool_free(clv_task_pool *pool)
{
    free(pool);
}

/* Takes a task and returns its number, or -1. If it succeeds, max_workers was that of the same batch. */
static int take_task(work_queue *q, int worker)
{
    uint64_t seen = atomic_load_explicit(&q->remaining, memory_order_acquire);
    while ((uint32_t)seen > 0 && worker < atomic_load_explicit(&q->max_workers, memory_order_relaxed))
        if (atomic_compare_exchange_weak_explicit(&q->remaining, &seen, seen - 1, memory_order_acquire,
                                                  memory_order_acquire))
            return atomic_load_explicit(&q->n, memory_order_relaxed) - (int)(uint32_t)seen;
    return -1;
}

/* Takes a task and runs it. */
static bool run_one_task(work_queue *q, int worker, int64_t *spent_ns)
{
    const int task = take_task(q, worker);
    if (task < 0)
        return false;
    const int64_t began = spent_ns ? clv_now_ns() : 0;
    clv_task_fn *fn = atomic_load_explicit(&q->fn, memory_order_relaxed);
    fn(atomic_load_explicit(&q->arg, memory_order_relaxed), task, worker);
    atomic_fetch_add_explicit(&q->done, 1, memory_order_release);
    if (spent_ns)
        *spent_ns += clv_now_ns() - began;
    return true;
}

void clv_task_pool_run(clv_task_pool_member owner, int max_workers, clv_task_fn *fn, void *arg, int n)
{
    if (!owner.pool || owner.pool->members < 2 || n < 2) {
        for (int i = 0; i < n; i++)
            fn(arg, i, 0);
        return;
    }
    work_queue *q = &owner.pool->queues[owner.member];
    atomic_fetch_add_explicit(&owner.pool->open, 1, memory_order_relaxed);
    const uint64_t batch = (atomic_load_explicit(&q->remaining, memory_order_relaxed) >> 32) + 1;
    atomic_store_explicit(&q->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&q->arg, arg, memory_order_relaxed);
    atomic_store_explicit(&q->n, n, memory_order_relaxed);
    atomic_store_explicit(&q->max_workers, max_workers, memory_order_relaxed);
    atomic_store_explicit(&q->done, 0, memory_order_relaxed);
    atomic_store_explicit(&q->remaining, batch << 32 | (uint32_t)n, memory_order_release);
    while (run_one_task(q, 0, NULL))
        continue;
    for (int spins = 0; atomic_load_explicit(&q->done, memory_order_acquire) < n; spins++)
        if (spins < SPINS)
            clv_cpu_pause();
        else
            sched_yield(); /* the thread with the last task may need this core */
    atomic_fetch_sub_explicit(&owner.pool->open, 1, memory_order_relaxed);
}

bool clv_task_pool_steal_and_run(clv_task_pool_member thief, int64_t *spent_ns)
{
    clv_task_pool *pool = thief.pool;
    if (!pool || atomic_load_explicit(&pool->open, memory_order_relaxed) == 0)
        return false;
    for (int i = 1; i < pool->members; i++)
        if (run_one_task(&pool->queues[(thief.member + i) % pool->members], i, spent_ns))
            return true;
    return false;
}
