/* mpi_world.h - state of a world over MPI and the plans of its collectives. Private to src/comm. Private to src/comm.
 */
#ifndef CLEAVE_COMM_MPI_MPI_WORLD_H
#define CLEAVE_COMM_MPI_MPI_WORLD_H

#include "comm/job/mpi_job.h"
#include "comm/mpi/shm_segment.h"
#include "comm/threads/rank_progress.h"

enum {
    CLV_MPI_HEADER = 128,
    CLV_MPI_EAGER_BYTES = 16 << 10, /* bytes of elements in a first message at most */
    CLV_MPI_FIRST_MESSAGE_BYTES = CLV_MPI_HEADER + CLV_MPI_EAGER_BYTES, /* of it */
    CLV_MPI_NAME_BYTES = 92,                                            /* bytes of a step's name */
    CLV_MPI_PHASES = 2,
};

typedef struct clv_mpi_message {
    clv_transfer_box move;
    int64_t bytes;
    int64_t first; /* in staging: the first message */
    int64_t at;    /* in staging: elements beyond it; -1: they are, or go, where the box is */
    int tag;
    int process;
    int n_requests; /* 1, and one a piece */
    int n_asked;    /* requests that MPI has, or had: the first ones */
    int ended;      /* of these: the first ones */
    bool heard;     /* the header was looked at */
    clv_mpi_request *requests;
} clv_mpi_message;

/* What is read in memory of this process. */
typedef struct clv_mpi_local_read {
    clv_receive_route way; /* by: -1: the operand of `from`; else what was sent to that member */
    int64_t at;            /* in staging, for what is not read where it is; -1: it is */
} clv_mpi_local_read;

/* What a member sends and takes of others at a time. */
typedef struct clv_mpi_phase {
    bool reduces;
    bool slices;           /* its operand is a slice of what becomes the step's result */
    int64_t in_at, out_at; /* bytes behind the plan's in (out, of slices) and out */
    clv_shard in_shard, out_shard;
    bool has_own;
    clv_shard own;  /* what one takes of oneself */
    int64_t own_at; /* in staging; -1: not needed there */
    int n_sends, n_takes, n_near;
    clv_mpi_message *sends, *takes; /* messages */
    clv_mpi_local_read *local;
    const void **ins; /* [members] what is reduced */
    clv_mpi_request *requests;
} clv_mpi_phase;

/* A member of a group that shows cards. */
typedef struct clv_shm_member {
    clv_shard operand, box;   /* its own, and what one takes of that */
    bool gives;               /* one takes anything */
    clv_shard taken;          /* what it takes of one's own */
    bool takes;               /* it takes anything */
    int64_t bytes;            /* of its operand */
    const clv_shm_slot *card; /* of the step that runs; NULL: not seen yet */
} clv_shm_member;

/* What is shown on the host's board in a step. */
typedef struct clv_shm_plan {
    bool shown; /* the members have a board */
    bool hold;  /* their operands are on the cards: no messages are sent */
    bool reduces;
    size_t size;             /* of an element */
    uint32_t number;         /* of the step that runs */
    clv_shm_member *members; /* of the group; NULL: not shown */
    const void **ins;        /* likewise: what is reduced */
} clv_shm_plan;

typedef struct clv_mpi_plan {
    clv_plan base; /* first: a clv_plan * is one of these */
    clv_collective_desc post;
    const clv_group *local; /* the group's members in this process */
    clv_plan *inside;       /* all are: what is done instead, by threads */
    int n_phases;
    clv_mpi_phase phases[CLV_MPI_PHASES];
    clv_shm_plan cards;
    int64_t staging_bytes;
    bool runs;                    /* it was started and has not ended */
    bool beside;                  /* then: its rank computes meanwhile */
    struct clv_mpi_plan *next;    /* then, under the progress' lock: of those that do */
    int came;                     /* likewise: requests of the first phase's takes that had ended, the first ones */
    unsigned char *staging;       /* then */
    struct clv_mpi_plan *running; /* then: the rank's next one that does */
} clv_mpi_plan;

/* What processes tell each other beside steps. */
typedef struct clv_mpi_notice {
    uint64_t world; /* its number among the job's */
    int32_t is_goodbye;
    clv_error failure; /* else */
} clv_mpi_notice;

/* What moves bytes while ranks compute, and sees them come. */
struct clv_mpi_progress {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct clv_mpi_plan *beside; /* plans that run while their ranks compute */
    bool tried, runs;            /* the thread: whether it was to be made, and is */
    bool ends;
    pthread_t thread;
};

/* What a world keeps. */
struct clv_mpi_world {
    clv_job *job;
    clv_mpi_comm comm;
    int widest;             /* ranks of a process, at most */
    int sets;               /* group sets that have tags of their own */
    uint64_t number;        /* of the world */
    bool has_comm, listens; /* what was made */
    clv_shm_segment *board; /* NULL: the processes of this host share no memory */
    int *seat;              /* [ranks] at it; -1: on another host */
    clv_mpi_request notice_request;
    clv_mpi_notice heard;         /* there */
    clv_error failure;            /* that was heard */
    int goodbyes;                 /* likewise */
    clv_mpi_notice told, goodbye; /* each once */
    bool has_notified;
    int n_notice_sends;
    clv_mpi_request *notice_sends; /* [2 processes] of these; NULL: nothing was told */
    void *unwanted;                /* what is taken because the world failed; NULL: nothing is */
    clv_mpi_request taking;
    struct clv_mpi_progress progress;
    clv_mpi_plan **running;           /* [ranks] of this process's: plans that run */
    char (*said)[CLV_MPI_NAME_BYTES]; /* [ranks] of this process's: what another's header says, for messages */
};

static inline struct clv_mpi_world *clv_mpi_world_of(const clv_comm *comm)
{
    return ((const clv_thread_comm *)comm)->world->mpi;
}

/* Functions that are said to be under the lock are called with the job's held. */

/* ---- mpi_backoff.c ---- */

/* How long a rank waits, and how. */
typedef struct clv_mpi_backoff {
    clv_deadline deadline;
    int spins; /* looks before it lets others run */
    int looks; /* so far */
} clv_mpi_backoff;

/* Between two looks; false: the deadline has passed. */
bool clv_mpi_backoff_pause(clv_mpi_backoff *patience);

/* ---- mpi_world.c ---- */

clv_status clv_mpi_open(clv_world *world, const struct clv_process_links *links, clv_error *err);
/* Under the lock: takes in what other processes tell; whether a failure was among it, which wire->failure is then. */
bool clv_mpi_receive_notices(struct clv_mpi_world *wire);
/* The same without the lock; the failure is recorded as the world's. */
bool clv_mpi_poll_failure(clv_world *world);
/* Under the lock: sends what was said, which stays, to all other processes. */
void clv_mpi_broadcast_notice(clv_world *world, const clv_mpi_notice *said);
/* The transport's tell, stand and whose. */
void clv_mpi_notify_failure(clv_world *world, const clv_error *error);
void clv_mpi_query_progress(clv_world *world, int set, clv_rank_progress *all);
void clv_mpi_describe_process(char *out, size_t size, const clv_world *world, int rank);

/* ---- mpi_world_close.c ---- */

/* Under the lock: looks at a part's requests. Returns MPI's code. */
int clv_mpi_test_message(const clv_job *job, clv_mpi_message *p);
/* Takes a plan that runs out of the list of its rank's. */
void clv_mpi_plan_finish(clv_mpi_plan *plan);
/* Calls back the receives of a step that failed. What it sent is with MPI yet. */
void clv_mpi_cancel_receives(clv_mpi_plan *plan);
/* Waits until what a plan has sent is taken, and ends it, if it runs. */
void clv_mpi_plan_abandon(clv_mpi_plan *plan);
void clv_mpi_close(clv_world *world);
void clv_mpi_leak(clv_world *world);

/* ---- mpi_progress_thread.c ---- */

/* The transport's beside. */
void clv_mpi_overlap(clv_plan *plan);
/* Its rank waits for it, or it is over. */
void clv_mpi_end_overlap(clv_mpi_plan *plan);
void clv_mpi_stop_progress_thread(struct clv_mpi_world *wire);

/* ---- shm_setup.c ---- */

/* All processes of the world do it: those of a host make a board, if they can share memory, and the others none. */
clv_status clv_mpi_open_shm(clv_world *world, clv_error *err);
/* Whether a failure was told there; it is recorded as the world's. */
bool clv_shm_poll_failure(clv_world *world);

/* ---- shm_transport.c ---- */

/* Sets plan->cards; *staging: bytes that the plan wants for them. */
clv_status clv_shm_prepare(clv_mpi_plan *plan, const clv_transfer *transfer, int64_t *staging, clv_error *err);
void clv_shm_plan_free(clv_shm_plan *cards);
clv_status clv_shm_start(clv_mpi_plan *plan, void *staging, clv_error *err);
/* Waits until all members have shown theirs of this step. */
clv_status clv_shm_await_members(clv_mpi_plan *plan, clv_error *err);
/* The transport's wait, where cards hold what is to move. */
clv_status clv_shm_wait(clv_mpi_plan *plan, clv_wait what, clv_error *err);

/* ---- mpi_plan.c ---- */

clv_status clv_mpi_prepare(clv_plan **out, clv_comm *comm, const clv_transfer *transfer, int64_t *staging,
                           clv_error *err);
void clv_mpi_release(clv_plan *plan);
/* Where the first element of a box is in a shard, in elements. */
int64_t clv_box_offset(const clv_shard *box, const clv_shard *shard);

#endif
