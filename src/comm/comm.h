/* comm.h - communicator API: worlds of ranks, group sets (process groups), one endpoint per rank, failure
 * propagation. Collectives are in transport.h.
 *
 * A clv_comm is one rank's endpoint in a world; only that rank's thread uses it. A group set is a partition of the
 * world's ranks into disjoint groups ("over mesh axes X"), registered before the ranks start; a group is named by its
 * set.
 *
 * A world that has failed stays failed: every later wait returns the first failure. Make a new world to go on.
 */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

typedef struct clv_comm clv_comm;

/* A group as one of its members sees it; owned by the world. */
typedef struct clv_group {
    int group_set;    /* id of the group set, the same on every rank */
    int n;            /* number of members */
    int me;           /* this rank's index among them */
    const int *ranks; /* [n] world ranks in group order */
} clv_group;

/* This rank's view of a registered group set; NULL for an id out of range. */
const clv_group *clv_comm_group(const clv_comm *comm, int group_set);

/* Sets what this rank is doing, which error messages of other ranks name; the string must outlive the world (it is not
 * copied). */
void clv_comm_set_activity(clv_comm *comm, const char *op);

/* Begins an instruction of a program and ends the one before: sets the activity and writes a record of the flight
 * recorder. kind: the kind of op or collective; must outlive the world; `name` must live until clv_world_copy_names. */
void clv_comm_begin_instruction(clv_comm *comm, const char *name, const char *kind, int instruction);
/* Ends the last instruction of a run. */
void clv_comm_end_instruction(clv_comm *comm);
/* Marks this rank as busy or idle. A rank that failed stays busy, so that stall diagnosis sees where it was. */
void clv_comm_set_busy(clv_comm *comm, bool busy);

/* Returns the nanoseconds that this rank has waited for others since the last call. */
int64_t clv_comm_take_wait_ns(clv_comm *comm);

/* The times at which a rank waited for others, oldest first; waits beyond CLV_WAIT_LOG_SIZE are dropped. */
enum { CLV_WAIT_LOG_SIZE = 16 };
typedef struct clv_wait_log {
    int n;
    struct {
        int64_t begun_ns, ended_ns; /* clv_now_ns */
        int64_t stealing_ns;        /* part of that time spent on stolen tasks (work_stealing.h) */
    } of[CLV_WAIT_LOG_SIZE];
} clv_wait_log;

/* Logs this rank's waits from here on; NULL: stops. The reader resets n to 0. */
void clv_comm_set_wait_log(clv_comm *comm, clv_wait_log *waits);

/* Fails the world with this rank's error (the first error wins) and ends this rank's part in running collectives.
 * Waits, at most 80 ms, until no peer is in a collective: memory that a peer may still read after that must not be
 * freed before the peer's thread has returned. The same holds for a wait that returns a failure. */
void clv_comm_abort(clv_comm *comm, const clv_error *error);

/* Returns the world's first failure, as a wait does; CLV_OK while there is none. */
clv_status clv_comm_check(clv_comm *comm, clv_error *err);

/* ---- worlds: ranks that are threads of one process or of several (world.c) ---- */

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
    int64_t timeout_ms;             /* deadline of one wait; 0: CLV_DEFAULT_TIMEOUT_MS */
    int spin;                       /* 1: waiters spin before they sleep, 0: they do not (more ranks than cores), -1: by
                                       the number of cores */
    const char *transport;          /* by name; NULL: "threads" */
    uint64_t seed;                  /* for transports that deliver messages in random order */
    const clv_process_links *links; /* NULL: all ranks are in this process */
    struct clv_task_pool *pool;     /* work_stealing.h: tasks that ranks take while they wait; member i is local rank i;
                                       must outlive the world; NULL: they only wait */
} clv_world_options;

clv_status clv_world_new(clv_world **out, int ranks, const clv_world_options *options, clv_error *err);
/* Must be called after the last call of all rank threads. If one is still inside a call, waits for it as long as a
 * wait's deadline and then leaks the world. NULL is a no-op. */
void clv_world_free(clv_world *world);
/* Registers a partition of the ranks: group_of[r] in [0, n_groups); members in ascending rank order unless order[r]
 * (may be NULL) gives each rank's index inside its group. Not while ranks run. Equal partitions share an id. */
clv_status clv_world_add_groups(int *group_set, clv_world *world, const int *group_of, const int *order,
                                clv_error *err);
/* Whether a rank is the first of its process. */
bool clv_world_is_process_leader(const clv_world *world, int rank);
/* Number of processes that have ranks, and the index of this one. */
int clv_world_process_count(const clv_world *world);
int clv_world_process_index(const clv_world *world);
/* The endpoint of a rank, owned by the world; NULL for a rank out of range or of another process. */
clv_comm *clv_world_comm(clv_world *world, int rank);
/* Fails the world from a thread that is not a rank's. */
void clv_world_fail(clv_world *world, const clv_error *error);
/* Sends the world's first failure to the other processes, once, wherever it occurred: a process that has not received
 * it would later see this process end and report that as the failure. Not from a rank's thread. */
void clv_world_broadcast_failure(clv_world *world);
/* Whether a rank of this process is busy (clv_comm_set_busy). */
bool clv_world_is_busy(const clv_world *world, int rank);
/* The flight recorder of a rank of this process. */
const struct clv_recorder *clv_world_recorder(const clv_world *world, int rank);
/* Number of group sets; the group of a rank in one; the numbers of its collectives that a rank of this process has
 * begun and ended. */
int clv_world_group_set_count(const clv_world *world);
const clv_group *clv_world_group(const clv_world *world, int group_set, int rank);
void clv_world_group_set_progress(uint64_t *begun, uint64_t *ended, const clv_world *world, int group_set, int rank);
/* Copies the names that were recorded and the activities, so that their memory may be freed. Not while ranks run. */
void clv_world_copy_names(clv_world *world);
/* Number of collectives that a rank of this process has begun, over all group sets. */
uint64_t clv_world_collectives_begun(const clv_world *world, int rank);
/* Whether the world has failed; fills error (may be NULL) with the first failure. */
int clv_world_has_failed(const clv_world *world, clv_error *error);
/* A flag that becomes 1 when the world fails; lives as long as the world. */
const _Atomic int *clv_world_failure_flag(const clv_world *world);
