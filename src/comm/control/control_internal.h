/* control_internal.h - state, frame format and handshake of the control connections. Private to src/comm/control.
 * Private to src/comm.
 */
#ifndef CLEAVE_COMM_CONTROL_CONTROL_INTERNAL_H
#define CLEAVE_COMM_CONTROL_CONTROL_INTERNAL_H

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "comm/control/failure_detector.h"
#include "comm/job/mpi_job.h"
#include "comm/threads/rank_progress.h"

enum { CLV_CONTROL_TOKEN = 16, CLV_CONTROL_MAX_PENDING = 16 };

/* What both ends of a new connection show, the one that connects first. */
typedef struct clv_control_handshake {
    char is[8]; /* CLV_CONTROL_MAGIC */
    unsigned char token[CLV_CONTROL_TOKEN];
    int32_t from, version;
} clv_control_handshake;

#define CLV_CONTROL_MAGIC "cleave\n"
enum { CLV_CONTROL_VERSION = 2 };

typedef enum clv_peer_state {
    CLV_PEER_AWAITED,
    CLV_PEER_CONNECTED,
    CLV_PEER_LEFT,
    CLV_PEER_FAILED,
    CLV_PEER_LOST
} clv_peer_state;

/* What is said. */
typedef enum clv_control_frame_kind {
    CLV_FRAME_HEARTBEAT = 1,
    CLV_FRAME_FAILURE,
    CLV_FRAME_GOODBYE,
    CLV_FRAME_PROGRESS_QUERY,
    CLV_FRAME_PROGRESS,
    CLV_FRAME_LOSS_REPORTED,
    CLV_FRAME_KIND_COUNT
} clv_control_frame_kind;

/* What is ahead of what is said. */
typedef struct clv_control_frame {
    uint32_t kind, bytes; /* behind this */
    uint64_t world;
} clv_control_frame;

typedef struct clv_control_peer {
    int fd; /* -1: none */
    _Atomic int state;
    _Atomic int64_t idle_ns; /* since something came */
    unsigned char *in, *out; /* what came of a frame; what is to be sent yet */
    size_t in_bytes, out_bytes, in_room, out_room;
} clv_control_peer;

/* Who has connected and not shown a token. */
typedef struct clv_pending_connection {
    int fd; /* -1: none */
    size_t bytes;
    int64_t idle_ns;
    clv_control_handshake hello;
} clv_pending_connection;

struct clv_control {
    clv_job *job;
    int n, me, wake;
    int64_t heartbeat_ns;
    unsigned char token[CLV_CONTROL_TOKEN];     /* that others show */
    unsigned char (*theirs)[CLV_CONTROL_TOKEN]; /* [n] */
    pthread_t thread;
    pthread_mutex_t lock; /* over what follows; taken before a world's */
    pthread_cond_t came;
    int listener; /* -1: all have come */
    int left;     /* that are to come yet */
    bool ends;
    bool accept_paused;    /* until the next beat: who comes cannot be taken in */
    struct pollfd *polled; /* [2 + n + pending_count] the thread's */
    int *who;              /* likewise: the process of a peer's, n and above a stranger's */
    int pending_count;
    clv_pending_connection *pending; /* [pending_count] */
    clv_control_peer *peers;         /* [n] */
    struct clv_world **worlds;
    int n_worlds;
    bool told;                  /* the program: clv_job_options.lost */
    pthread_mutex_t query_lock; /* one asks at a time; taken before the lock */
    uint64_t question;          /* its number: what answers another is late */
    clv_rank_progress *answers; /* [ranks of the world asked for]; NULL: nobody asks */
    int n_answers;
    bool *answered; /* [n] */
    _Atomic int lost;
    clv_error loss; /* then: the first */
    int lost_process;
};

/* Functions of a control that exists are called with its lock held, but for wake, main, free and forget_fork. */

/* ---- control_send.c ---- */

/* Sends what the socket takes now. */
void clv_control_flush(clv_control_peer *peer);
/* A pulse is left out where more is to be sent yet. */
void clv_control_send(clv_control_peer *peer, clv_control_frame_kind what, uint64_t world, const void *data,
                      size_t bytes);
void clv_control_broadcast(clv_control *control, clv_control_frame_kind what, uint64_t world, const void *data,
                           size_t bytes);
void clv_control_disconnect(clv_control_peer *peer);
/* Makes the thread look. */
void clv_control_wake(const clv_control *control);
/* Room for so many bytes; false: there is no memory. */
bool clv_control_reserve(unsigned char **data, size_t *room, size_t bytes);
/* Whether pulses of it are missing. */
bool clv_control_is_unresponsive(const clv_control *control, int process);
/* NULL: it is gone, or not there yet. */
struct clv_world *clv_control_find_world(const clv_control *control, uint64_t number);

/* ---- failure_detector.c ---- */

void *clv_control_thread_main(void *control);
/* Without a thread; NULL is a no-op. */
void clv_control_free(clv_control *control);

/* ---- control_accept.c ---- */

/* A connection to a process, which has shown its token. */
void clv_control_add_peer(clv_control *control, int process, int fd);
/* Takes in who comes; where there is no room the longest-waiting stranger makes some. */
void clv_control_accept(clv_control *control);
/* It shows the token that this process told it, and is shown its own. */
void clv_control_receive_handshake(clv_control *control, clv_pending_connection *stranger);
void clv_pending_connection_close(clv_pending_connection *stranger);

/* ---- control_connect.c ---- */

/* A socket that listens at loopback, at the first port of first to last (0: any) that is free; -1: errno says why. */
int clv_control_listen_loopback(int first_port, int last_port, int backlog);

/* ---- control_atfork.c ---- */

/* In children of this process from here on; until it is about to be freed. */
void clv_control_register_atfork(clv_control *control);
void clv_control_unregister_atfork(const clv_control *control);

/* ---- progress_query.c ---- */

/* Take what another process asks or answers; false: no such frame. */
bool clv_control_answer_query(const clv_control *control, int process, uint64_t world, const void *data, size_t bytes);
bool clv_control_receive_answer(clv_control *control, int process, const unsigned char *data, size_t bytes);

#endif
