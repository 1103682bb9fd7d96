/* world.h - struct clv_world, struct clv_comm and the barrier protocol of rank threads: slots, group sets, failure.
 * Private to src/comm.
 *
 * **Barrier.** Each rank owns a slot in every group set. To arrive, it writes a descriptor of its collective into its
 * slot and then publishes the barrier's stamp, a number that only rises. When every member has published that stamp,
 * each may read all descriptors. Slots hold two descriptors, used in turn: a rank that is already at the next barrier
 * leaves this one's descriptors alone, and no rank can be two ahead, because the next barrier needs all members. So one
 * round of stamps is a full barrier.
 *
 * **Ownership.** Slots and activity pointers belong to the world until clv_world_free. Members touch each other's
 * memory only between the barrier that begins a collective and the one that ends it. A rank that gives up (timeout,
 * failure, abort) waits until no member is inside a collective, but not beyond QUIESCE_NS: a collective may take long.
 * So after a failure, memory that members share must not be freed before their threads have returned.
 *
 * All ordering is by release stores and acquire loads of atomics, and sequentially consistent ones where a rank that
 * leaves and a rank that enters must see each other; no fences, which ThreadSanitizer does not model.
 */
#pragma once

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/memory/aligned_memory.h"
#include "base/threads/wait.h"
#include "comm/flight_recorder.h"
#include "comm/transport.h"

/* What a rank publishes when it arrives at a barrier: all members' must be equal. */
typedef struct clv_collective_desc {
    const char *what; /* kind: "all_gather"; must outlive the world */
    uint64_t tag;
    const void *in; /* addresses that peers read and write, where no windows give them; not compared */
    void *out;
    int64_t at_ns;       /* overlapped collectives: start time, clv_now_ns; not compared */
    bool at_end_barrier; /* of the barrier that ends the collective */
} clv_collective_desc;

/* Stamp and descriptor share cache lines: the miss that shows the stamp brings the descriptor. */
typedef struct clv_slot_line {
    alignas(CLV_CACHE_LINE) _Atomic uint32_t word; /* futex word: stamp | 1 while someone sleeps on it */
    clv_collective_desc desc;
} clv_slot_line;

/* One rank in one group set. Stamps are even and rise by 2 at each barrier, wrapping; compared by signed difference. */
typedef struct clv_slot {
    clv_slot_line line[2];                             /* by (stamp / 2) & 1 */
    alignas(CLV_CACHE_LINE) _Atomic uint32_t released; /* last stamp whose peers' memory this rank no longer touches */
    uint32_t stamp;                                    /* last published stamp; the owner's own copy */
    bool open;                                         /* a collective has begun and not ended */
    _Atomic uint64_t begun;                            /* number of collectives begun in this set */
    _Atomic uint64_t ended;                            /* number of collectives ended in this set */
    _Atomic uint64_t tag;                              /* of the collective begun last */
    uint64_t index;                                    /* its index among the rank's collectives of all sets */
    uint64_t record;                                   /* its index in the flight recorder */
} clv_slot;

/* Counts arrivals at the barriers of one group. Worlds that do not spin, and large groups, wait here, so that a rank
 * sleeps at most once per barrier. */
typedef struct clv_barrier_counter {
    alignas(CLV_CACHE_LINE) _Atomic uint32_t arrived; /* arrivals at all barriers so far, wrapping */
    alignas(CLV_CACHE_LINE) _Atomic uint32_t word;    /* stamp of the last complete barrier | 1 while someone sleeps */
} clv_barrier_counter;

typedef struct clv_group_set {
    clv_group *view;               /* [ranks] each rank's group, as the rank sees it */
    int *members;                  /* [ranks] the groups' ranks, group after group */
    clv_group *local;              /* [ranks] the members of its group in this process; they use the group's slots */
    int *local_members;            /* [ranks] what `local` points to */
    int *counter_of;               /* [ranks] index of the group's counter */
    clv_slot *slots;               /* [ranks] */
    clv_barrier_counter *counters; /* [groups] */
} clv_group_set;

/* Bytes expected from a member, and bytes received by the deadline; expected 0: unknown. */
typedef struct clv_byte_progress {
    int64_t expected, received;
} clv_byte_progress;

/* One rank's endpoint. */
struct clv_comm {
    alignas(CLV_CACHE_LINE) clv_world *world;
    int rank;
    _Atomic bool busy;              /* clv_comm_set_busy */
    int64_t waited_ns;              /* time spent waiting for others since the last clv_comm_take_wait_ns */
    int64_t stealing_ns;            /* part of the current wait that was spent on stolen tasks */
    clv_wait_log *waits;            /* clv_comm_set_wait_log; NULL: waits are not logged */
    clv_recorder *recorder;         /* NULL: the rank is in another process */
    _Atomic(const char *) activity; /* clv_comm_set_activity; NULL at first; read by any rank that reports a failure */
    _Atomic(const char *) collective;   /* kind of the collective that it is in, or was in last; NULL at first */
    _Atomic int collective_set;         /* its group set */
    _Atomic uint64_t collective_index;  /* its index among the rank's collectives of all sets, from 1 */
    _Atomic int phase;                  /* its phase, for collectives that receive in several */
    _Atomic int at_local_barrier;       /* 1: it has its messages and waits for ranks of this process */
    _Atomic int in_collective;          /* 1 from start until the last wait has returned, except while ops overlap */
    _Atomic uint64_t collectives_begun; /* over all sets */
    _Atomic uint64_t waits_begun;       /* starts and waits of collectives so far */
    bool *missing;            /* [2 ranks] scratch of the timeout report: members that did not come, and more */
    clv_byte_progress *bytes; /* [ranks] scratch: what is known of the members' bytes */
};

struct clv_world {
    const clv_transport *transport;
    struct clv_mpi_world *mpi; /* state of the MPI transport; NULL with another */
    void *transport_state;     /* state of a registered transport (clv_transport_register); NULL with another */
    uint64_t seed;
    int ranks;
    int first_local, n_local; /* the ranks of this process */
    int processes, me;
    int *first_ranks;           /* [processes + 1] the first rank of each process */
    int spins;                  /* pauses before a waiter sleeps; 0: there are more ranks than cores */
    struct clv_task_pool *pool; /* clv_world_options.pool */
    bool opened;                /* the transport's open was called */
    int64_t timeout_ns;
    int n_sets;
    clv_group_set **sets;
    clv_comm *comms;      /* [ranks] */
    pthread_mutex_t lock; /* guards the first failure, the list of sets and the memory of activities */
    alignas(CLV_CACHE_LINE) _Atomic int failed; /* 1 once `error` is written; both never change again */
    clv_error error;
    atomic_bool broadcast_failure; /* `error` was sent to other processes */
    clv_copied_name *copied_names; /* copies of recorded names */
};

/* Logs that this rank has waited for others since `began`, clv_now_ns. */
static inline void clv_comm_add_wait(clv_comm *comm, int64_t began)
{
    const int64_t now = clv_now_ns(), stealing = comm->stealing_ns;
    clv_wait_log *waits = comm->waits;
    comm->stealing_ns = 0;
    comm->waited_ns += now - began;
    if (waits && waits->n < CLV_WAIT_LOG_SIZE) {
        waits->of[waits->n].begun_ns = began;
        waits->of[waits->n].stealing_ns = stealing < now - began ? stealing : now - began;
        waits->of[waits->n++].ended_ns = now;
    }
}

/* The process that has a rank. */
static inline int clv_world_process_of(const clv_world *world, int rank)
{
    int process = 0;

    while (world->first_ranks[process + 1] <= rank)
        process++;
    return process;
}

static inline bool clv_world_is_local(const clv_world *world, int rank)
{
    return rank >= world->first_local && rank < world->first_local + world->n_local;
}

/* The group's members in this process, as the caller's rank sees them. */
static inline const clv_group *clv_group_in_process(const clv_comm *comm, const clv_group *group)
{
    return &comm->world->sets[group->group_set]->local[comm->rank];
}

/* ---- barrier.c ---- */

/* Publishes the descriptor; never waits. Until clv_barrier_release, peers may access this rank's memory. On failure
 * (the world has failed) they do not: err holds the world's first failure. */
clv_status clv_barrier_arrive(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc, clv_error *err);
/* Waits until all members of the group have arrived with the same descriptor. On failure (timeout, abort, mismatch) no
 * peer accesses this rank's memory: err holds the world's first failure. */
clv_status clv_barrier_wait(clv_comm *comm, const clv_group *group, clv_error *err);
/* clv_barrier_arrive, then clv_barrier_wait. */
clv_status clv_barrier_arrive_and_wait(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                       clv_error *err);
/* Member i's descriptor at the current barrier. */
const clv_collective_desc *clv_barrier_peer_desc(const clv_comm *comm, const clv_group *group, int i);
/* Declares that this rank no longer touches any peer's memory. */
void clv_barrier_release(clv_comm *comm, const clv_group *group);

/* Begins a collective of a group; fails if another of the same set has not ended, or the world has failed. */
clv_status clv_collective_begin(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                clv_error *err);
void clv_collective_end(clv_comm *comm, const clv_group *group);
/* A transport's overlap function where bytes move without help. */
void clv_collective_mark_overlapped(clv_prepared_collective *prepared);
/* Records in the flight recorder that the rank waits since `now`, for `bytes` of others; awaited: members whose data it
 * awaits, as bits. Makes a new record if the rank has begun other instructions since the collective began. */
void clv_collective_record_wait(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc, int64_t bytes,
                                uint64_t awaited, int64_t now);
/* The same for the wait at a collective's end. */
void clv_collective_record_end_wait(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                    int64_t now);

/* ---- world_failure.c ---- */

/* Records the world's first failure (later ones are dropped), wakes all sleeping ranks and notifies other processes. */
void clv_world_record_local_failure(clv_world *world, const clv_error *error);
/* The same for a failure that another process sent; notifies nobody. Returns whether it is the first. */
bool clv_world_record_remote_failure(clv_world *world, const clv_error *error);
/* Fails the world with a timeout of this rank's collective: the members in comm->missing did not come. */
clv_status clv_world_fail_timeout(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                  clv_error *err);
/* Fails the world because the descriptors of two members, world ranks a and b, differ. The culprit is the one with
 * which fewer of the other members agree; b in a tie. */
clv_status clv_world_fail_mismatch(clv_comm *comm, const clv_group *group, int a, const clv_collective_desc *desc_a,
                                   int b, const clv_collective_desc *desc_b, clv_error *err);
/* Fails the world because member `peer` sent another number of bytes than this rank expects in the same collective. The
 * culprit is the peer: sizes follow from layouts, which this rank has checked. */
clv_status clv_world_fail_wrong_size(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc, int peer,
                                     int64_t expected, int64_t received, clv_error *err);
/* Copies what member `peer`, of this process, sends to this rank; fails the world as above for another size. */
clv_status clv_world_copy_span(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc, int peer,
                               const clv_span *to, const clv_span *from, clv_error *err);
bool clv_collective_desc_equal(const clv_collective_desc *a, const clv_collective_desc *b);
/* Leaves all barriers, waits for peers that may be in this rank's memory, and returns the world's first failure. */
clv_status clv_collective_give_up(clv_comm *comm, clv_error *err);
/* Whether a rank has arrived at a barrier of this set and not released it. */
bool clv_slot_is_in_collective(const clv_slot *slot);
