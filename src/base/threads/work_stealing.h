/* work_stealing.h - work stealing: a rank splits its kernel into tasks, and ranks that wait run some of them.
 *
 * Each member (a thread) of a pool offers one batch of tasks at a time. Tasks are handed out in order, each once; the
 * owner runs tasks too, and returns when all are done. A task runs to its end on the thread that took it. It must not
 * wait for others or fail, its result must not depend on the thread, and it should take no more than some milliseconds,
 * since the owner waits for the last task and a thief is late for what it waited for.
 *
 * Each member calls with its own number, one call at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct clv_task_pool clv_task_pool;

/* A member of a pool; pool NULL: it works alone. */
typedef struct clv_task_pool_member {
    clv_task_pool *pool;
    int member;
} clv_task_pool_member;

enum { CLV_TASK_POOL_POLL_NS = 200000 /* how often a member that sleeps looks for tasks to steal */ };

/* Returns NULL when out of memory. To be freed while no member is in a call. */
clv_task_pool *clv_task_pool_new(int members);
void clv_task_pool_free(clv_task_pool *pool);

/* Runs task `task`. `worker` differs between the threads that run tasks of this batch at the same time: 0 for the
 * owner, below `max_workers` for all. Scratch memory can be indexed by it. */
typedef void clv_task_fn(void *arg, int task, int worker);

enum { CLV_TASK_POOL_ALL = INT32_MAX /* no limit */ };

/* Runs fn(arg, task, worker) for each task in [0, n), on this member and on those that steal. At most max_workers
 * members take part: if that is fewer than there are, the ones with the numbers before its own (modulo their number).
 * Returns when all tasks are done and their writes are visible. */
void clv_task_pool_run(clv_task_pool_member owner, int max_workers, clv_task_fn *fn, void *arg, int n);

/* Runs one task of another member, if there is one, and returns whether there was. Adds the time to *spent_ns, unless
 * spent_ns is NULL. */
bool clv_task_pool_steal_and_run(clv_task_pool_member thief, int64_t *spent_ns);
