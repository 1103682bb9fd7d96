/* comm.h - communicator API: worlds of ranks, group sets (process groups), one endpoint per rank, failure
 * propagation. What they say to each other is transport.h.
 *
 * One clv_comm is one rank's endpoint of a world; only that rank's thread uses it. A group is named by a group set: a
 * partition of the world's ranks into disjoint groups (what "over mesh axes X" means), registered before the ranks
 * start.
 *
 * A failed world is poisoned: every later wait returns the first failure; make a new one.
 */
#ifndef CLEAVE_COMM_COMM_H
#define CLEAVE_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"

typedef struct clv_comm clv_comm;

/* A group as one of its members sees it; owned by the world. */
typedef struct clv_group {
    int set;          /* id of the group set, the same on every rank */
    int n;            /* members */
    int me;           /* my index among them */
    const int *ranks; /* [n] world ranks in group order */
} clv_group;

int clv_comm_rank(const clv_comm *comm);
int clv_comm_size(const clv_comm *comm);

/* This rank's view of a registered group set; NULL for an id out of range. */
const clv_group *clv_comm_group(const clv_comm *comm, int set);

/* What this rank is doing now, named in others' messages; the string must outlive the world (it is not copied). */
void clv_comm_set_activity(clv_comm *comm, const char *op);

/* An instruction of a program begins, and the one before has ended: clv_comm_set_activity, and a record of the flight
 * recorder. kind: of an op or a step, and outlives the world; `name` until clv_world_copy_names. */
void clv_comm_begin_instruction(clv_comm *comm, const char *name, const char *kind, int instruction);
/* The last has ended, and none follows for now. */
void clv_comm_end_instruction(clv_comm *comm);
/* This rank is given something to do, and has done it. One that failed at it stays there: others ask where it was. */
void clv_comm_set_busy(clv_comm *comm, bool working);

/* Nanoseconds that this rank spent waiting for others since the last call. */
int64_t clv_comm_fetch_wait_ns(clv_comm *comm);

/* When a rank waited for others, oldest first; of more than there is room for the rest is left out. */
enum { CLV_WAIT_LOG_SIZE = 16 };
typedef struct clv_wait_log {
    int n;
    struct {
        int64_t begun_ns, ended_ns; /* clv_now_ns */
        int64_t stealing_ns;        /* of that time: at pieces of others' work (work_stealing.h) */
    } of[CLV_WAIT_LOG_SIZE];
} clv_wait_log;

/* Keeps this rank's waits from here on; NULL: no more. Who reads them sets n back to 0. */
void clv_comm_record_waits(clv_comm *comm, clv_wait_log *waits);

/* Poisons the world with this rank's failure; the first one wins. Ends this rank's part of steps in progress. Waits,
 * but not beyond 80 ms, until no peer is in a step: memory that a peer may still read after that is to be freed only
 * when its thread has returned. The same holds for a wait that returns a failure. */
void clv_comm_abort(clv_comm *comm, const clv_error *error);

/* Between ops: CLV_OK, or the world's first failure, as a wait returns it. */
clv_status clv_comm_check(clv_comm *comm, clv_error *err);

/* ---- a world of ranks that are threads, of this process or of several (world.c) ---- */

typedef struct clv_world clv_world;

/* Which process has which ranks: process p has [first[p], first[p + 1]). Borrowed until the world is freed. */
typedef struct clv_process_links {
    int processes, me;
    const int *first;    /* [processes + 1] */
    struct clv_job *job; /* the processes are those of this job */
    const int *sockets;  /* [processes] for transports that tests register: a stream socket to each other process; NULL
                            with a job */
    int cores;           /* cores that this process may use; 0: all that it may run on */
} clv_process_links;

typedef struct clv_world_options {
    int64_t timeout_ms;    /* deadline of one wait; 0: CLV_DEFAULT_TIMEOUT_MS */
    int spin;              /* spin before sleeping: 1 yes, 0 no (more ranks than cores), -1: decide by the cores here */
    const char *transport; /* by name; NULL: the first */
    uint64_t seed;         /* of the order in which messages are delivered, where it is left to chance */
    const clv_process_links *links; /* NULL: all ranks are in this process */
    struct clv_task_pool
        *pool; /* work_stealing.h: of whose work ranks take pieces while they wait; its members are the ranks
                                * of this process, and it outlives the world; NULL: they only wait */
} clv_world_options;

clv_status clv_world_new(clv_world **out, int ranks, const clv_world_options *options, clv_error *err);
/* After all rank threads have made their last call. Should one be inside a call all the same, waits for it as long as
 * the deadline of a wait, then leaks the world. NULL is a no-op. */
void clv_world_free(clv_world *world);
/* Registers a partition of the ranks: group_of[r] in [0, n_groups); members in ascending rank order unless order[r]
 * (may be NULL) gives each rank's index inside its group. Not while ranks run. Equal partitions share an id. */
clv_status clv_world_add_groups(int *set, clv_world *world, const int *group_of, const int *order, clv_error *err);
/* The ranks of this process are [first, first + here). */
int clv_world_first_local_rank(const clv_world *world);
int clv_world_local_rank_count(const clv_world *world);
/* Whether a rank is the first of its process. */
bool clv_world_is_process_root(const clv_world *world, int rank);
/* Processes that have ranks, and the number of this one. */
int clv_world_process_count(const clv_world *world);
int clv_world_process_index(const clv_world *world);
/* A rank's endpoint, owned by the world; NULL for a rank out of range, or of another process. */
clv_comm *clv_world_comm(clv_world *world, int rank);
/* Poisons the world from a thread that is no rank's. */
void clv_world_fail(clv_world *world, const clv_error *error);
/* Tells other processes of the first failure, once, wherever it was: those that hear of it late would else find that
 * this process has ended, and take that for the failure. Not from a rank. */
void clv_world_broadcast_failure(clv_world *world);
/* Whether a rank of this process has something to do, or failed at it. */
bool clv_world_is_busy(const clv_world *world, int rank);
/* What a rank of this process did last. */
const struct clv_recorder *clv_world_recorder(const clv_world *world, int rank);
/* Group sets so far, the group of any rank in one, and the steps of it that a rank of this process has begun and ended.
 */
int clv_world_group_set_count(const clv_world *world);
const clv_group *clv_world_group(const clv_world *world, int set, int rank);
void clv_world_group_set_progress(uint64_t *begun, uint64_t *ended, const clv_world *world, int set, int rank);
/* Copies the names that were noted and recorded: what they were in may go. Not while ranks run. */
void clv_world_copy_names(clv_world *world);
/* Steps that a rank of this process has begun so far. */
uint64_t clv_world_collectives_begun(const clv_world *world, int rank);
/* Whether the world is poisoned; fills error (may be NULL) with the first failure. */
int clv_world_failed(const clv_world *world, clv_error *error);
/* Turns 1 when it is; lives as long as the world. */
const _Atomic int *clv_world_failure_flag(const clv_world *world);

#endif
