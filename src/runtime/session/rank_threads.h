/* rank_threads.h - thread pool: one persistent, pinned thread per local rank.
 *
 * One thread of the caller uses a team at a time; that thread is not a rank and sleeps while the ranks work.
 */
#ifndef CLEAVE_RUNTIME_SESSION_RANK_THREADS_H
#define CLEAVE_RUNTIME_SESSION_RANK_THREADS_H

#include "base/threads/work_stealing.h"
#include "cleave/cancel.h"
#include "comm/comm.h"

typedef struct clv_rank_threads clv_rank_threads;

enum {
    CLV_MAX_THREADS_PER_RANK = 1024 /* of a rank */,
    CLV_MAX_THREADS_OF_ALL_RANKS = 16384 /* of all ranks here, where a rank has several */
};

typedef struct clv_rank_threads_options {
    int threads_per_rank; /* OpenMP threads inside a rank; 0: 1; at most CLV_MAX_THREADS_PER_RANK */
    int pin;            /* 0 no; -1: each rank to cores of its own if there are enough for all; 1: to cores, in turn */
    int64_t timeout_ms; /* deadline of one wait for other ranks; 0: the world's default */
    const char *transport; /* as clv_world_options has it, and seed */
    uint64_t seed;
    const struct clv_process_links *links; /* as clv_world_options has it */
} clv_rank_threads_options;

/* What each rank runs. err is the rank's own, empty at first. A rank that returns a failure aborts the world, so that
 * its peers return too. */
typedef clv_status clv_rank_fn(void *arg, int rank, clv_comm *comm, clv_error *err);

/* options NULL: one thread a rank, pin -1. CLV_EINVAL; CLV_ENOMEM; CLV_ELIMIT when a thread cannot be started, or
 * OpenMP's have stacks of less than 256 KiB. */
clv_status clv_rank_threads_new(clv_rank_threads **out, int ranks, const clv_rank_threads_options *options,
                                clv_error *err);

/* Runs fn on every rank of this process and returns when all have. On failure returns that of the rank that failed
 * first, err->rank saying which. The world is then poisoned: later runs return the first failure at once; make a new
 * team. When a rank does not return within the deadline after the world failed: CLV_ETIMEOUT naming it; what fn uses
 * must then stay until clv_rank_threads_free has returned CLV_OK. */
clv_status clv_rank_threads_run(clv_rank_threads *team, clv_rank_fn *fn, void *arg, clv_error *err);

/* The same for a function that may never return, being the caller's. Once a rank has returned, or cancel (NULL: none)
 * is requested, every other is to return or to begin a step within twice the deadline, again and again: one for what it
 * computes, one for a wait, which ends by itself. Else CLV_ETIMEOUT naming those that did not, as when a rank does not
 * return after a failure. */
clv_status clv_rank_threads_run_user_function(clv_rank_threads *team, clv_rank_fn *fn, void *arg,
                                              const clv_cancel *cancel, clv_error *err);

/* Stops and joins the threads. CLV_EINVAL in a child of fork, which has none of them: what there is is left.
 * CLV_ETIMEOUT, naming the rank, when one is still stuck: the team, its world and that thread are then leaked, because
 * it may yet touch them. NULL is a no-op. */
clv_status clv_rank_threads_free(clv_rank_threads *team, clv_error *err);

/* Whether rank number i of this process has returned from the last run. */
bool clv_rank_threads_has_returned(const clv_rank_threads *team, int i);

/* For registering group sets, between runs. Owned by the team. */
clv_world *clv_rank_threads_world(clv_rank_threads *team);
int clv_rank_threads_count(const clv_rank_threads *team);
/* Where a rank of this process shares its work, and takes part in others' while it waits; without a pool where there
 * are more threads than cores. */
clv_task_pool_member clv_rank_threads_workplace(const clv_rank_threads *team, int rank);
/* Whether the ranks are pinned to cores. */
int clv_rank_threads_are_pinned(const clv_rank_threads *team);

#endif
