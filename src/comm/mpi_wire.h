/* mpi_wire.h - what a world has over MPI, and the plans of its steps: shared by mpi.c, which runs them, mpi_plan.c,
 * which makes them, mpi_open.c, mpi_close.c and others. Private to src/comm. */
#ifndef CLEAVE_COMM_MPI_WIRE_H
#define CLEAVE_COMM_MPI_WIRE_H

#include "comm/board.h"
#include "comm/job.h"
#include "comm/standing.h"

enum {
    CLV_MPI_HEADER = 128,
    CLV_MPI_ROOM = 16 << 10,                       /* bytes of elements in a first message at most */
    CLV_MPI_FIRST = CLV_MPI_HEADER + CLV_MPI_ROOM, /* of it */
    CLV_MPI_WHAT = 92,                             /* bytes of a step's name */
    CLV_MPI_PHASES = 2,
};

typedef struct clv_mpi_part {
    clv_move move;
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
} clv_mpi_part;

/* What is read in memory of this process. */
typedef struct clv_mpi_near {
    clv_way way; /* by: -1: the operand of `from`; else what was sent to that member */
    int64_t at;  /* in staging, for what is not read where it is; -1: it is */
} clv_mpi_near;

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
    clv_mpi_part *sends, *takes; /* messages */
    clv_mpi_near *near;
    const void **ins; /* [members] what is reduced */
    clv_mpi_request *requests;
} clv_mpi_phase;

/* A member of a group that shows cards. */
typedef struct clv_mpi_member {
    clv_shard operand, box; /* its own, and what one takes of that */
    bool gives;             /* one takes anything */
    clv_shard taken;        /* what it takes of one's own */
    bool takes;             /* it takes anything */
    int64_t bytes;          /* of its operand */
    const clv_card *card;   /* of the step that runs; NULL: not seen yet */
} clv_mpi_member;

/* What is shown on the host's board in a step. */
typedef struct clv_mpi_cards {
    bool shown; /* the members have a board */
    bool hold;  /* their operands are on the cards: no messages are sent */
    bool reduces;
    size_t size;             /* of an element */
    uint32_t number;         /* of the step that runs */
    clv_mpi_member *members; /* of the group; NULL: not shown */
    const void **ins;        /* likewise: what is reduced */
} clv_mpi_cards;

typedef struct clv_mpi_plan {
    clv_plan base; /* first: a clv_plan * is one of these */
    clv_post post;
    const clv_group *near; /* the group's members in this process */
    clv_plan *inside;      /* all are: what is done instead, by threads */
    int n_phases;
    clv_mpi_phase phases[CLV_MPI_PHASES];
    clv_mpi_cards cards;
    int64_t staging_bytes;
    bool runs;                    /* it was started and has not ended */
    bool beside;                  /* then: its rank computes meanwhile */
    struct clv_mpi_plan *next;    /* then, under the progress' lock: of those that do */
    int came;                     /* likewise: requests of the first phase's takes that had ended, the first ones */
    unsigned char *staging;       /* then */
    struct clv_mpi_plan *running; /* then: the rank's next one that does */
} clv_mpi_plan;

/* What processes tell each other beside steps. */
typedef struct clv_mpi_control {
    uint64_t world; /* its number among the job's */
    int32_t is_goodbye;
    clv_error failure; /* else */
} clv_mpi_control;

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
struct clv_mpi_wire {
    clv_job *job;
    clv_mpi_comm comm;
    int widest;             /* ranks of a process, at most */
    int sets;               /* group sets that have tags of their own */
    uint64_t number;        /* of the world */
    bool has_comm, listens; /* what was made */
    clv_board *board;       /* NULL: the processes of this host share no memory */
    int *seat;              /* [ranks] at it; -1: on another host */
    clv_mpi_request hearing;
    clv_mpi_control heard;         /* there */
    clv_error failure;             /* that was heard */
    int goodbyes;                  /* likewise */
    clv_mpi_control told, goodbye; /* each once */
    bool has_told;
    int n_tellings;
    clv_mpi_request *tellings; /* [2 processes] of these; NULL: nothing was told */
    void *unwanted;            /* what is taken because the world failed; NULL: nothing is */
    clv_mpi_request taking;
    struct clv_mpi_progress progress;
    clv_mpi_plan **running;     /* [ranks] of this process's: plans that run */
    char (*said)[CLV_MPI_WHAT]; /* [ranks] of this process's: what another's header says, for messages */
};

static inline struct clv_mpi_wire *clv_mpi_wire_of(const clv_comm *comm)
{
    return ((const clv_thread_comm *)comm)->world->mpi;
}

/* Functions that are said to be under the lock are called with the job's held. */

/* ---- mpi_wait.c ---- */

/* How long a rank waits, and how. */
typedef struct clv_mpi_patience {
    clv_deadline deadline;
    int spins; /* looks before it lets others run */
    int looks; /* so far */
} clv_mpi_patience;

/* Between two looks; false: the deadline has passed. */
bool clv_mpi_wait_a_little(clv_mpi_patience *patience);

/* ---- mpi_open.c ---- */

clv_status clv_mpi_open(clv_world *world, const struct clv_links *links, clv_error *err);
/* Under the lock: takes in what other processes tell; whether a failure was among it, which wire->failure is then. */
bool clv_mpi_hear(struct clv_mpi_wire *wire);
/* The same without the lock; the failure is recorded as the world's. */
bool clv_mpi_hear_failure(clv_world *world);
/* Under the lock: sends what was said, which stays, to all other processes. */
void clv_mpi_tell_all(clv_world *world, const clv_mpi_control *said);
/* The transport's tell, stand and whose. */
void clv_mpi_tell(clv_world *world, const clv_error *error);
void clv_mpi_stand(clv_world *world, int set, clv_standing *all);
void clv_mpi_whose(char *out, size_t size, const clv_world *world, int rank);

/* ---- mpi_close.c ---- */

/* Under the lock: looks at a part's requests. Returns MPI's code. */
int clv_mpi_look(const clv_job *job, clv_mpi_part *p);
/* Takes a plan that runs out of the list of its rank's. */
void clv_mpi_end_plan(clv_mpi_plan *plan);
/* Calls back the receives of a step that failed. What it sent is with MPI yet. */
void clv_mpi_call_back_receives(clv_mpi_plan *plan);
/* Waits until what a plan has sent is taken, and ends it, if it runs. */
void clv_mpi_abandon(clv_mpi_plan *plan);
void clv_mpi_close(clv_world *world);
void clv_mpi_forget(clv_world *world);

/* ---- mpi_progress.c ---- */

/* The transport's beside. */
void clv_mpi_beside(clv_plan *plan);
/* Its rank waits for it, or it is over. */
void clv_mpi_attend(clv_mpi_plan *plan);
void clv_mpi_end_progress(struct clv_mpi_wire *wire);

/* ---- mpi_share.c ---- */

/* All processes of the world do it: those of a host make a board, if they can share memory, and the others none. */
clv_status clv_mpi_share_board(clv_world *world, clv_error *err);
/* Whether a failure was told there; it is recorded as the world's. */
bool clv_mpi_hear_board(clv_world *world);

/* ---- mpi_cards.c ---- */

/* Sets plan->cards; *staging: bytes that the plan wants for them. */
clv_status clv_mpi_prepare_cards(clv_mpi_plan *plan, const clv_transfer *transfer, int64_t *staging, clv_error *err);
void clv_mpi_free_cards(clv_mpi_cards *cards);
clv_status clv_mpi_show_card(clv_mpi_plan *plan, void *staging, clv_error *err);
/* Waits until all members have shown theirs of this step. */
clv_status clv_mpi_await_cards(clv_mpi_plan *plan, clv_error *err);
/* The transport's wait, where cards hold what is to move. */
clv_status clv_mpi_wait_cards(clv_mpi_plan *plan, clv_wait what, clv_error *err);

/* ---- mpi_plan.c ---- */

clv_status clv_mpi_prepare(clv_plan **out, clv_comm *comm, const clv_transfer *transfer, int64_t *staging,
                           clv_error *err);
void clv_mpi_release(clv_plan *plan);
/* Where the first element of a box is in a shard, in elements. */
int64_t clv_mpi_place_of(const clv_shard *box, const clv_shard *shard);

#endif
