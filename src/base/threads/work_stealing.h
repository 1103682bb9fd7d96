/* work_stealing.h - work stealing: a rank splits its kernel into tasks, ranks that wait run some of them. What a
 * piece does must not depend on who does it.
 *
 * A member shares one work at a time. Its pieces are handed out in order, each once; who shares it takes part, and goes
 * on when all have ended. A piece runs to its end wherever it was begun: it neither waits for others nor fails, and
 * should take no longer than a member may be kept, by the last of them or from what it waited for: some milliseconds.
 *
 * Members are threads; each calls with its own number, one call at a time.
 */
#ifndef CLEAVE_BASE_THREADS_WORK_STEALING_H
#define CLEAVE_BASE_THREADS_WORK_STEALING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct clv_task_pool clv_task_pool;

/* A member's place in a pool; pool NULL: it works alone. */
typedef struct clv_task_pool_member {
    clv_task_pool *pool;
    int member;
} clv_task_pool_member;

enum { CLV_TASK_POOL_POLL_NS = 200000 /* a member that waits, and sleeps, looks for work this often */ };

/* NULL: no memory. Freed when no member is in a call. */
clv_task_pool *clv_task_pool_new(int members);
void clv_task_pool_free(clv_task_pool *pool);

/* Does a piece. `who` is another number for each that is at pieces of the work meanwhile: 0 for who shares it, and less
 * than `most` for all. What it needs for itself can be kept by that. */
typedef void clv_task_fn(void *arg, int piece, int who);

enum { CLV_TASK_POOL_ALL = INT32_MAX /* as many as there are */ };

/* fn(arg, piece, who) for each piece in [0, n), by this member and those that help: of `most` in all, which are fewer
 * than there are, those whose numbers come before its own, round about. Returns when all have ended, and what they
 * wrote is there. */
void clv_task_pool_run(clv_task_pool_member place, int most, clv_task_fn *fn, void *arg, int n);

/* Takes one piece of another member's work, if there is one, and returns whether there was. took_ns, where it is not
 * NULL, grows by the time of that. */
bool clv_task_pool_steal(clv_task_pool_member place, int64_t *took_ns);

#endif
