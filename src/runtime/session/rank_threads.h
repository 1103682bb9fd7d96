/* rank_threads.h - thread pool (team): one persistent, pinned thread per local rank.
 *
 * One caller's thread uses a team at a time. It is not a rank, and sleeps while the ranks work.
 */
#pragma once

#include "base/threads/work_stealing.h"
#include "cleave/cancel.h"
#include "comm/comm.h"

typedef struct clv_rank_threads clv_rank_threads;

enum {
    CLV_MAX_THREADS_PER_RANK = 1024,
    CLV_MAX_THREADS_OF_ALL_RANKS = 16384 /* of all local ranks, if a rank has several */
};

typedef struct clv_rank_threads_options {
    int threads_per_rank;  /* OpenMP threads of a rank; default 1, at most CLV_MAX_THREADS_PER_RANK */
    int pin;               /* 0: no; -1: if there are cores for all ranks; 1: also round robin over fewer cores */
    int64_t timeout_ms;    /* deadline of one wait for other ranks; 0: the world's default */
    const char *transport; /* clv_world_options's, as the next two */
    uint64_t seed;
    const struct clv_process_links *links;
} clv_rank_threads_options;

/* The function that each rank runs. err is the rank's own, empty at first. If it fails, the world is aborted, so that
 * the other ranks return, too. */
typedef clv_status clv_rank_fn(void *arg, int rank, clv_comm *comm, clv_error *err);

/* options NULL: one thread per rank, pin -1. CLV_EINVAL; CLV_ENOMEM; CLV_ELIMIT for too many threads, or OpenMP stacks
 * of less than 256 KiB. */
clv_status clv_rank_threads_new(clv_rank_threads **out, int ranks, const clv_rank_threads_options *options,
                                clv_error *err);

/* Runs fn on every rank of this process and returns when all have returned. A failure is that of the rank that failed
 * first (err->rank). The world is then poisoned: later runs return the first failure at once; make a new team.
 * CLV_ETIMEOUT names a rank that does not return within the deadline after a failure; the memory that fn uses must then
 * stay until clv_rank_threads_free has returned CLV_OK. */
clv_status clv_rank_threads_run(clv_rank_threads *team, clv_rank_fn *fn, void *arg, clv_error *err);

/* clv_rank_threads_run for a user's function, which may never return. Once a rank has returned, or cancel (NULL: none)
 * is requested, every other rank must return or begin a collective at least every two deadlines: one to compute, one to
 * wait, which ends by itself. CLV_ETIMEOUT names ranks that do not. */
clv_status clv_rank_threads_run_user_function(clv_rank_threads *team, clv_rank_fn *fn, void *arg,
                                              const clv_cancel *cancel, clv_error *err);

/* Stops and joins the threads. NULL is a no-op. CLV_EINVAL in a child of fork, which has no such threads: frees
 * nothing. CLV_ETIMEOUT names a rank that is still stuck: the team, its world and the thread leak, as it may still use
 * them. */
clv_status clv_rank_threads_free(clv_rank_threads *team, clv_error *err);

/* Whether local rank i has returned from the last run. */
bool clv_rank_threads_has_returned(const clv_rank_threads *team, int i);

/* The team's world, for registering group sets between runs. */
clv_world *clv_rank_threads_world(clv_rank_threads *team);
/* The rank's place in the work-stealing pool; none if there are more threads than cores. */
clv_task_pool_member clv_rank_threads_task_pool_member(const clv_rank_threads *team, int rank);
/* Whether the ranks are pinned to cores. */
int clv_rank_threads_are_pinned(const clv_rank_threads *team);
