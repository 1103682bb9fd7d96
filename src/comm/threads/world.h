/* world.h - struct clv_world and the barrier protocol of rank threads: slots, group sets, failure. Private to
 * src/comm. Private to src/comm.
 *
 * **Meeting.** Each rank owns a slot in every group set. To meet, it writes what it is about to do (a post) into its
 * slot and then publishes the meeting's stamp, a number that only rises. When every member has published that stamp,
 * each may read every post. Slots hold two posts, used in turn: a rank that is already in the next meeting leaves this
 * one's posts alone, and none can be two ahead, because the next meeting needs us. So one meeting is a whole barrier.
 *
 * **Who owns what.** Slots and notes' pointers are the world's, until clv_world_free. Members touch each other's memory
 * only between the meeting that begins a step and the one that ends it. A rank that gives up (time-out, failure, abort)
 * waits until no member is inside a step any more, but not beyond QUIESCE_NS: a step may take long. So after a failure,
 * memory that members share is to be freed only when their threads have returned.
 *
 * All ordering is by release stores and acquire loads of atomics, and sequentially consistent ones where a rank that
 * leaves and a rank that enters must see each other; no fences, which ThreadSanitizer does not model.
 */
#ifndef CLEAVE_COMM_THREADS_WORLD_H
#define CLEAVE_COMM_THREADS_WORLD_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/memory/aligned_memory.h"
#include "base/threads/wait.h"
#include "comm/endpoint.h"
#include "comm/transport.h"

/* What a rank says when it meets its group: all members must say the same. */
typedef struct clv_collective_desc {
    const char *what; /* outlives the world: "all_gather" */
    uint64_t tag;
    const void
        *in; /* where what peers read lies, and what they write, unless windows say it; no part of what is the same */
    void *out;
    int64_t at_ns; /* of a step that flies: when, clv_now_ns */
    bool ends;     /* the meeting that ends a step */
} clv_collective_desc;

/* Stamp and post together: the miss that shows the stamp brings the post. */
typedef struct clv_slot_line {
    alignas(CLV_CACHE_LINE) _Atomic uint32_t word; /* stamp | 1 while someone sleeps on it */
    clv_collective_desc post;
} clv_slot_line;

/* One rank in one group set. Stamps are even and rise by 2 a meeting, wrapping; compared by signed difference. */
typedef struct clv_slot {
    clv_slot_line line[2]; /* by (stamp / 2) & 1 */
    alignas(
        CLV_CACHE_LINE) _Atomic uint32_t left; /* the last stamp whose peers' memory this rank will not touch again */
    uint32_t stamp;                            /* the owner's own copy */
    bool open;                                 /* a step has begun and not ended */
    _Atomic uint64_t steps;                    /* that it has begun */
    _Atomic uint64_t tag;                      /* of the last */
    uint64_t number;                           /* of the last: among the rank's of all sets */
    _Atomic uint64_t ended;                    /* of these */
    uint64_t record;                           /* of the recorder's: that of the open step */
} clv_slot;

/* One group. Worlds that do not spin, and large groups, meet here, so that a rank sleeps at most once a meeting. */
typedef struct clv_barrier_counter {
    alignas(CLV_CACHE_LINE) _Atomic uint32_t arrived; /* members, over all meetings, wrapping */
    alignas(CLV_CACHE_LINE) _Atomic uint32_t word;    /* stamp of the last complete meeting | 1 while someone sleeps */
} clv_barrier_counter;

typedef struct clv_group_set {
    clv_group *view;  /* [ranks] the group as each rank sees it */
    int *members;     /* [ranks] all groups' ranks, group after group */
    clv_group *local; /* [ranks] its members in this process, as each of them sees them: they meet at the same slots */
    int *local_members;
    int *counter_of;           /* [ranks] */
    clv_slot *slots;           /* [ranks] */
    clv_barrier_counter *hubs; /* [groups] */
} clv_group_set;

/* What was to come of a member, and what came until its deadline; expected 0: not known. */
typedef struct clv_byte_progress {
    int64_t expected, came;
} clv_byte_progress;

typedef struct clv_thread_comm {
    alignas(CLV_CACHE_LINE) clv_comm base; /* first: a clv_comm * is one of these */
    clv_world *world;
    _Atomic(const char *) doing;  /* the step in which it was last seen, NULL at first; for messages */
    _Atomic int doing_in;         /* its group set */
    _Atomic uint64_t doing_step;  /* which of those begun */
    _Atomic int meets;            /* 1: it has got its messages there, and waits for ranks of this process */
    _Atomic int part;             /* of what it waits for there, where it comes in parts, the second after the first */
    _Atomic uint64_t begun;       /* steps */
    _Atomic uint64_t waits_begun; /* these, and waits of theirs */
    _Atomic int inside;       /* 1 in a step: from its start until its last wait has returned, but for ops beside it */
    bool *missing;            /* [2 ranks] scratch: the members that did not come, and more */
    clv_byte_progress *bytes; /* [ranks] scratch: what is known of each of these */
} clv_thread_comm;

struct clv_world {
    const clv_transport *transport;
    struct clv_mailbox_world *wire; /* mailbox_transport.c; NULL: another transport */
    struct clv_mpi_world *mpi;      /* mpi_transport.c; likewise */
    uint64_t seed;
    int ranks;
    int first, here; /* the ranks of this process */
    int processes, me;
    int *firsts;                /* [processes + 1] the first rank of each */
    int spins;                  /* pauses before a waiter sleeps; 0: more ranks than cores */
    struct clv_task_pool *pool; /* as clv_world_options has it */
    bool opened;                /* by the transport, be it in vain */
    int64_t timeout_ns;
    int n_sets;
    clv_group_set **sets;
    clv_thread_comm *comms; /* [ranks] */
    pthread_mutex_t lock;   /* over the first failure, which wakes who sleeps, the list of sets, and notes that go */
    alignas(CLV_CACHE_LINE) _Atomic int failed; /* 1 once `error` is written; both never change again */
    clv_error error;
    atomic_bool broadcast_failure; /* `error`, to other processes */
    clv_copied_name *kept;         /* recorded */
};

/* The process that has a rank. */
static inline int clv_world_process_of(const clv_world *world, int rank)
{
    int process = 0;

    while (world->firsts[process + 1] <= rank)
        process++;
    return process;
}

/* The group's members in this process, as the caller's rank sees them. */
static inline const clv_group *clv_group_in_process(const clv_comm *comm, const clv_group *group)
{
    return &((const clv_thread_comm *)comm)->world->sets[group->set]->local[comm->rank];
}

/* ---- barrier.c ---- */

/* Publishes the post; never waits. Until clv_barrier_release, peers may be in this rank's memory. On failure (the world
 * has failed) they are not: err holds the world's first failure. */
clv_status clv_barrier_arrive(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *post,
                              clv_error *err);
/* Waits until all members of the group have published the post that this rank has. On failure (time-out, abort, posts
 * that do not match) nobody is in this rank's memory: err holds the world's first failure. */
clv_status clv_barrier_wait(clv_thread_comm *comm, const clv_group *group, clv_error *err);
/* Both. */
clv_status clv_barrier_arrive_and_wait(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *post,
                                       clv_error *err);
/* Member i's post of the meeting in progress. */
const clv_collective_desc *clv_barrier_peer_desc(const clv_thread_comm *comm, const clv_group *group, int i);
/* Says that this rank will touch no peer's memory any more. */
void clv_barrier_release(clv_thread_comm *comm, const clv_group *group);

/* A step of a group begins, unless another has not ended or the world has failed; and ends. */
clv_status clv_collective_begin(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *post,
                                clv_error *err);
void clv_collective_end(clv_thread_comm *comm, const clv_group *group);
/* A transport's beside, where bytes need nobody to move. */
void clv_collective_mark_overlapped(clv_plan *plan);
/* For the flight recorder: the rank waits in the step since `now`, for bytes of others; lacks: as
 * clv_recorder_expect_bytes has it. Where it has begun other instructions since it began the step, that is recorded
 * again. */
void clv_collective_record_wait(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *post,
                                int64_t bytes, uint64_t lacks, int64_t now);
void clv_collective_record_end_wait(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *post,
                                    int64_t now);

/* ---- world_failure.c ---- */

/* Records the world's first failure (later ones are dropped) and wakes all who sleep; tells other processes. */
void clv_world_set_failure(clv_world *world, const clv_error *error);
/* The same for a failure that another process told of. Returns whether it is the first. */
bool clv_world_record_failure(clv_world *world, const clv_error *error);
/* Fails the world because the members in comm->missing did not come to what this rank's post says in time. */
clv_status clv_world_fail_timeout(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *post,
                                  clv_error *err);
/* Fails the world because two members, world ranks a and b, do not say the same; blames the one with which fewer of the
 * others agree, b where they are as many. */
clv_status clv_world_fail_mismatch(clv_thread_comm *comm, const clv_group *group, int a,
                                   const clv_collective_desc *desc_a, int b, const clv_collective_desc *desc_b,
                                   clv_error *err);
/* Fails the world because of member `peer`, which is in the same step, other bytes came than this rank expects: blames
 * it, as what a step moves follows from layouts, which this rank has checked. */
clv_status clv_world_fail_wrong_size(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *post,
                                     int peer, int64_t expected, int64_t came, clv_error *err);
bool clv_collective_desc_equal(const clv_collective_desc *a, const clv_collective_desc *b);
/* Leaves every meeting, waits for peers that may be in this rank's memory, and returns the first failure. */
clv_status clv_collective_give_up(clv_thread_comm *comm, clv_error *err);
/* The comm's abort. */
void clv_threads_comm_abort(clv_comm *comm, const clv_error *error);
/* Whether a rank is between a meeting and its leave in this set. */
int clv_slot_in_collective(const clv_slot *slot);

#endif
