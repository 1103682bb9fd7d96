/* threads.h - the parts of a world of threads: who publishes what, who waits for whom. Private to src/comm.
 *
 * **Meeting.** Each rank owns a slot in every group set. To meet, it writes what it is about to do (a post) into its
 * slot and then publishes the meeting's stamp, a number that only rises. When every member has published that stamp,
 * each may read every post. Slots hold two posts, used in turn: a rank that is already in the next meeting leaves this
 * one's posts alone, and none can be two ahead, because the next meeting needs us. So one meeting is a whole barrier,
 * and data that is copied into the slot's stage needs no second one.
 *
 * **Who owns what.** Slots, stages and notes' pointers are the world's, until clv_world_free. Buffers named by a post
 * belong to the caller: peers touch them only between the meeting and the poster's return (for views: close_views).
 * A rank that gives up (time-out, failure, abort) waits until no member is inside a collective or between open_views
 * and close_views any more, but not beyond QUIESCE_NS: a view may be in use for as long as a kernel takes. So after a
 * failure, views' buffers are to be freed only when their users' threads have returned.
 *
 * All ordering is by release stores and acquire loads of atomics, and sequentially consistent ones where a rank that
 * leaves and a rank that enters must see each other; no fences, which ThreadSanitizer does not model.
 */
#ifndef CLEAVE_COMM_THREADS_H
#define CLEAVE_COMM_THREADS_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/wait.h"
#include "comm/endpoint.h"

enum {
    CLV_LINE = 128,                               /* two cache lines: the adjacent-line prefetcher takes pairs */
    CLV_STAGE_BYTES = CLV_COMM_STAGING_BYTES / 2, /* a stage: what fits takes one meeting, see clv_stage_limit */
};

typedef enum clv_thread_op {
    CLV_OP_BARRIER,
    CLV_OP_ALL_REDUCE,
    CLV_OP_REDUCE_SCATTER,
    CLV_OP_ALL_GATHER,
    CLV_OP_ALL_TO_ALL,
    CLV_OP_PERMUTE,
    CLV_OP_BROADCAST,
    CLV_OP_OPEN_VIEWS,
    CLV_OP_CLOSE_VIEWS,
    CLV_OP_FINISH, /* the closing meeting of a collective that worked in its members' own buffers */
} clv_thread_op;

/* What a rank says when it meets its group. Most used first: they share a cache line with the stamp. */
typedef struct clv_post {
    const void *in;
    void *out;
    uint64_t tag;      /* checked. open_views: the caller's; v-forms: a hash of the counts */
    int64_t count;     /* checked. elements, or their sum; 0 where members differ */
    int32_t root;      /* checked */
    uint8_t op;        /* checked; clv_thread_op */
    uint8_t dtype;     /* checked */
    uint8_t reduction; /* checked */
    uint8_t direct;    /* peers read `in` or write `out` in the caller's own buffers, so a closing meeting is needed */
    const int64_t *counts;
    const int64_t *offsets;
    int64_t size; /* permute: elements in `in` */
} clv_post;

/* Stamp and post together: the miss that shows the stamp brings the post. */
typedef struct clv_line {
    alignas(CLV_LINE) _Atomic uint32_t word; /* stamp | 1 while someone sleeps on it */
    clv_post post;
} clv_line;

/* One rank in one group set. Stamps are even and rise by 2 a meeting, wrapping; compared by signed difference. */
typedef struct clv_slot {
    clv_line line[2];                        /* by (stamp / 2) & 1 */
    alignas(CLV_LINE) _Atomic uint32_t left; /* the last stamp whose peers' buffers this rank will not touch again */
    uint32_t stamp;                          /* the owner's own copy */
    int views;                               /* open_views not yet closed */
} clv_slot;

/* One group. Worlds that do not spin, and large groups, meet here, so that a rank sleeps at most once a meeting. */
typedef struct clv_hub {
    alignas(CLV_LINE) _Atomic uint32_t arrived; /* members, over all meetings, wrapping */
    alignas(CLV_LINE) _Atomic uint32_t word;    /* stamp of the last complete meeting | 1 while someone sleeps */
} clv_hub;

typedef struct clv_group_set {
    clv_group *view;      /* [ranks] the group as each rank sees it */
    int *members;         /* [ranks] all groups' ranks, group after group */
    int *hub_of;          /* [ranks] */
    clv_slot *slots;      /* [ranks] */
    clv_hub *hubs;        /* [groups] */
    unsigned char *stage; /* [ranks][2][CLV_STAGE_BYTES] */
} clv_group_set;

typedef struct clv_thread_comm {
    alignas(CLV_LINE) clv_comm base; /* first: a clv_comm * is one of these */
    clv_world *world;
    _Atomic int doing; /* clv_thread_op << 16 | set & 0xffff: where it was last seen, -1 at first; for messages */
    void **outs;       /* [ranks] scratch for the collective in progress */
    const void **ins;  /* [ranks] */
} clv_thread_comm;

struct clv_world {
    int ranks;
    int spins; /* pauses before a waiter sleeps; 0: more ranks than cores */
    int64_t timeout_ns;
    int n_sets;
    clv_group_set **sets;
    clv_thread_comm *comms;               /* [ranks] */
    pthread_mutex_t lock;                 /* over recording the first failure, nothing else */
    alignas(CLV_LINE) _Atomic int failed; /* 1 once `error` is written; both never change again */
    clv_error error;
};

extern const clv_comm_backend clv_threads_backend;

/* ---- threads_meet.c ---- */

/* Publishes the post and waits until all members of the group have. On success peers' posts are readable, peers may be
 * reading this rank's buffers, and clv_threads_leave must follow. On failure (time-out, abort, posts that do not
 * match) nobody is: err holds the world's first failure. */
clv_status clv_threads_meet(clv_thread_comm *comm, const clv_group *group, const clv_post *post, clv_error *err);
/* Member i's post of the meeting in progress. */
const clv_post *clv_threads_post(const clv_thread_comm *comm, const clv_group *group, int i);
/* This rank's stage for its next meeting. */
void *clv_threads_stage(const clv_thread_comm *comm, const clv_group *group);
/* Says that this rank will touch no peer's buffer any more (while it has no open views). */
void clv_threads_leave(clv_thread_comm *comm, const clv_group *group);
/* Fails the world because member i's arguments do not fit this rank's: "... <what>". Returns the first failure. */
clv_status clv_threads_mismatch(clv_thread_comm *comm, const clv_group *group, int i, const char *what, clv_error *err);

/* ---- threads_fail.c ---- */

/* Records the world's first failure (later ones are dropped) and wakes all who sleep. */
void clv_threads_fail(clv_world *world, const clv_error *error);
/* Leaves every meeting, waits for peers that may be in this rank's buffers, and returns the first failure. */
clv_status clv_threads_give_up(clv_thread_comm *comm, clv_error *err);
/* The comm's abort. */
void clv_threads_abort(clv_comm *comm, const clv_error *error);
/* Whether a rank is between a meeting and its leave in this set. */
int clv_threads_inside(const clv_slot *slot);
/* Writes "rank 3 (in all_gather of group set 1, noted 'layer 2 mlp')". */
void clv_threads_describe(const clv_world *world, int rank, char *out, size_t size);
const char *clv_threads_op_name(int op);

#endif
