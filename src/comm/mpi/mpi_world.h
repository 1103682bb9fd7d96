/* mpi_world.h - state of a world over MPI and its prepared collectives. Private to src/comm/mpi and control. */
#pragma once

#include "comm/job/mpi_job.h"
#include "comm/mpi/shm_segment.h"
#include "comm/world/stall_diagnosis.h"

enum {
    CLV_MPI_HEADER = 128,           /* bytes reserved for a first message's header */
    CLV_MPI_EAGER_BYTES = 16 << 10, /* bytes of elements in a first message, at most */
    CLV_MPI_FIRST_MESSAGE_BYTES = CLV_MPI_HEADER + CLV_MPI_EAGER_BYTES,
    CLV_MPI_NAME_BYTES = 92, /* bytes of a collective's name in a header */
    CLV_MPI_PHASES = 2,
};

/* A box that is sent to, or received from, a rank of another process. */
typedef struct clv_mpi_message {
    clv_transfer_box move;
    int64_t bytes;
    int64_t first; /* offset in staging of the first message */
    int64_t at; /* offset in staging of the elements that do not fit into it; -1: they stay in the operand or result */
    int tag;
    int process;
    int n_requests; /* 1 for the first message, and 1 for each further piece */
    int n_posted;   /* number of requests given to MPI, from the first */
    int n_ended;    /* number of requests that have ended, from the first */
    bool header_checked;
    clv_mpi_request *requests;
} clv_mpi_message;

/* A box that is read in memory of this process. */
typedef struct clv_mpi_local_read {
    clv_receive_route route; /* route.by -1: read in the operand of route.from; else what was sent to member route.by */
    int64_t at;              /* offset in staging of a copy; -1: none, it is read in place */
} clv_mpi_local_read;

/* Messages and reads of a member that may proceed at the same time. */
typedef struct clv_mpi_phase {
    bool reduces;
    bool slices;           /* the operand is a slice of the result (second phase of an all-reduce) */
    int64_t in_at, out_at; /* offsets in bytes from the prepared collective's in (out, if slices) and out */
    clv_shard in_shard, out_shard;
    bool has_own;
    clv_shard own;  /* box that the member gets from itself */
    int64_t own_at; /* its offset in staging; -1: it is not staged */
    int n_sends, n_receives, n_local;
    clv_mpi_message *sends, *receives;
    clv_mpi_local_read *local;
    const void **ins; /* [members] addends of a reduction */
    clv_mpi_request *requests;
} clv_mpi_phase;

/* A member of a group whose ranks are all on this host. */
typedef struct clv_shm_member {
    clv_shard operand;        /* the member's */
    clv_shard receive, send;  /* box that this rank receives from it, and sends to it */
    bool receives, sends;     /* whether there is such a box */
    int64_t bytes;            /* of the member's operand */
    const clv_shm_slot *slot; /* its slot in the running collective; NULL: not published yet */
} clv_shm_member;

/* The part of a prepared collective that uses the host's shared-memory segment. */
typedef struct clv_shm_prepared_collective {
    bool publishes; /* all members are on this host: each publishes a slot */
    bool in_slots;  /* the slots hold the operands, and no messages are sent */
    bool reduces;
    size_t size;             /* of an element */
    uint32_t number;         /* slot number of the running collective */
    clv_shm_member *members; /* [members]; NULL unless publishes */
    const void **ins;        /* [members] addends of a reduction; NULL unless publishes */
} clv_shm_prepared_collective;

typedef struct clv_mpi_prepared_collective {
    clv_prepared_collective base; /* first: a clv_prepared_collective * is one of these */
    clv_collective_desc desc;
    const clv_group *local;           /* the group's members in this process */
    clv_prepared_collective *threads; /* of the threads transport, if all members are in this process; else NULL */
    int n_phases;
    clv_mpi_phase phases[CLV_MPI_PHASES];
    clv_shm_prepared_collective shm;
    int64_t staging_bytes;
    /* While it runs: */
    bool running;
    struct clv_mpi_prepared_collective *next_running; /* in the list of the rank's running prepared collectives */
    unsigned char *staging;
    bool overlapped;                                     /* its rank runs ops meanwhile */
    struct clv_mpi_prepared_collective *next_overlapped; /* in the progress thread's list; under its lock */
    int n_arrived; /* number of receive requests of the first phase that have ended, from the first; under its lock */
} clv_mpi_prepared_collective;

/* What a process sends to all others outside of collectives: its world has failed, or (goodbye) has nothing under way
 * any more. */
typedef struct clv_mpi_notice {
    uint64_t world; /* its number in the job */
    int32_t is_goodbye;
    clv_error failure; /* unless is_goodbye */
} clv_mpi_notice;

/* The progress thread (mpi_progress_thread.c). */
struct clv_mpi_progress {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct clv_mpi_prepared_collective *overlapped; /* prepared collectives that run while their ranks compute */
    bool tried, started;                            /* whether starting the thread was tried, and succeeded */
    bool stop;
    pthread_t thread;
};

/* State of a world. */
struct clv_mpi_world {
    clv_job *job;
    clv_mpi_comm comm;
    int max_local_ranks; /* ranks of a process, at most */
    int n_tagged_sets;   /* group sets that have tags of their own */
    uint64_t number;     /* of the world in the job */
    bool has_comm;
    clv_shm_segment *segment; /* NULL: the processes of this host share no memory */
    int *shm_index;           /* [ranks] index in the segment; -1: on another host */
    bool listening;           /* notice_request is posted */
    clv_mpi_request notice_request;
    clv_mpi_notice notice;                         /* received into */
    clv_error failure;                             /* received in a notice */
    int goodbyes;                                  /* received in notices */
    clv_mpi_notice failure_notice, goodbye_notice; /* sent, each once */
    bool has_notified;
    int n_notice_sends;
    clv_mpi_request *notice_sends; /* [2 processes] requests of the notices that were sent; NULL: none was */
    void *discarded;               /* a message of a failed collective that is being received; NULL: none */
    clv_mpi_request discard_request;
    struct clv_mpi_progress progress;
    clv_mpi_prepared_collective **running; /* [ranks] running prepared collectives of this process's ranks */
    char (*peer_what)[CLV_MPI_NAME_BYTES]; /* [ranks] per rank of this process: a peer's collective, for messages */
};

/* "Under the lock" means with the job's lock held. */

/* ---- mpi_progress_thread.c ---- */

/* A rank's polling backoff: spin, yield, sleep. */
typedef struct clv_mpi_backoff {
    clv_deadline deadline;
    int spins; /* polls before it yields */
    int polls; /* so far */
} clv_mpi_backoff;

/* Pauses between two polls; false: the deadline has passed. */
bool clv_mpi_backoff_pause(clv_mpi_backoff *backoff);
/* The transport's overlap. */
void clv_mpi_overlap(clv_prepared_collective *prepared);
/* Ends the overlap: the prepared collective's rank waits for it, or it has ended. */
void clv_mpi_end_overlap(clv_mpi_prepared_collective *prepared);
void clv_mpi_stop_progress_thread(struct clv_mpi_world *state);

/* ---- mpi_prepared_collective.c ---- */

/* Sets the sizes of messages to those of the spans. */
void clv_mpi_set_span_sizes(clv_mpi_prepared_collective *prepared);

/* ---- mpi_world.c ---- */

clv_status clv_mpi_open(clv_world *world, const clv_process_links *links, clv_error *err);
/* Under the lock: receives notices; returns whether a failure was among them, which is in state->failure then. */
bool clv_mpi_receive_notices(struct clv_mpi_world *state);
/* The same without the lock; records the failure as the world's. */
bool clv_mpi_poll_failure(clv_world *world);
/* Under the lock: sends a notice to all other processes; it must not be changed after. */
void clv_mpi_broadcast_notice(clv_world *world, const clv_mpi_notice *notice);
/* Compares the collective that a member announces with this one; fails the world if they differ, or if
 * it announces another number of bytes than this rank expects. what: CLV_MPI_NAME_BYTES at most, cut. */
clv_status clv_mpi_check_peer(const clv_mpi_prepared_collective *prepared, int member, bool same_phase, uint64_t tag,
                              const char *what, int64_t expected, int64_t bytes, clv_error *err);
/* Functions of the transport's table. */
void clv_mpi_notify_failure(clv_world *world, const clv_error *error);
void clv_mpi_query_progress(clv_world *world, int group_set, clv_rank_progress *all);
void clv_mpi_describe_process(char *out, size_t size, const clv_world *world, int rank);

/* ---- mpi_world_close.c ---- */

/* Under the lock: tests a message's requests. Returns MPI's code. */
int clv_mpi_test_message(const clv_job *job, clv_mpi_message *message);
/* Removes a running prepared collective from its rank's list. */
void clv_mpi_prepared_collective_finish(clv_mpi_prepared_collective *prepared);
/* Cancels the receives of a collective that failed. Its sends stay with MPI. */
void clv_mpi_cancel_receives(clv_mpi_prepared_collective *prepared);
/* Waits until the sends of a prepared collective, if it runs, have been received, and ends it. */
void clv_mpi_prepared_collective_abandon(clv_mpi_prepared_collective *prepared);
void clv_mpi_close(clv_world *world);
void clv_mpi_leak(clv_world *world);

/* ---- shm_setup.c ---- */

/* Called by all processes of the world alike: those of a host map a segment if they can share memory, else none. */
clv_status clv_mpi_open_shm(clv_world *world, clv_error *err);

/* ---- shm_transport.c ---- */

/* Sets plan->shm; *staging: bytes that it needs. */
clv_status clv_shm_prepare(clv_mpi_prepared_collective *prepared, const clv_transfer *transfer, int64_t *staging,
                           clv_error *err);
void clv_shm_prepared_collective_free(clv_shm_prepared_collective *shm);
clv_status clv_shm_start(clv_mpi_prepared_collective *prepared, void *staging, clv_error *err);
/* Waits until all members have published their slots of this collective. */
clv_status clv_shm_await_members(clv_mpi_prepared_collective *prepared, clv_error *err);
/* The transport's wait for prepared collectives with shm.in_slots. */
clv_status clv_shm_wait(clv_mpi_prepared_collective *prepared, clv_wait what, clv_error *err);

/* ---- mpi_prepared_collective.c ---- */

clv_status clv_mpi_prepare(clv_prepared_collective **out, clv_comm *comm, const clv_transfer *transfer,
                           int64_t *staging, clv_error *err);
void clv_mpi_release(clv_prepared_collective *prepared);
/* Offset in elements of a box's first element in a shard. */
int64_t clv_box_offset(const clv_shard *box, const clv_shard *shard);
