/* control_internal.h - state, frame format and handshake of the control connections. Private to src/comm/control. */
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "comm/control/failure_detector.h"
#include "comm/job/mpi_job.h"
#include "comm/world/stall_diagnosis.h"

enum { CLV_CONTROL_TOKEN = 16, CLV_CONTROL_MAX_PENDING = 16 };

/* Sent from both ends of a new connection; the connecting process sends first. */
typedef struct clv_control_handshake {
    char is[8]; /* CLV_CONTROL_MAGIC */
    unsigned char token[CLV_CONTROL_TOKEN];
    int32_t from, version;
} clv_control_handshake;

#define CLV_CONTROL_MAGIC "cleave\n"
enum { CLV_CONTROL_VERSION = 3 };

typedef enum clv_peer_state {
    CLV_PEER_AWAITED,
    CLV_PEER_CONNECTED,
    CLV_PEER_LEFT,
    CLV_PEER_FAILED, /* left because of a failure */
    CLV_PEER_LOST
} clv_peer_state;

typedef enum clv_control_frame_kind {
    CLV_FRAME_HEARTBEAT = 1,
    CLV_FRAME_FAILURE,
    CLV_FRAME_GOODBYE,
    CLV_FRAME_PROGRESS_QUERY,
    CLV_FRAME_PROGRESS,
    CLV_FRAME_LOSS_REPORTED, /* clv_job_options.on_lost was called */
    CLV_FRAME_KIND_COUNT
} clv_control_frame_kind;

/* Header of a frame. */
typedef struct clv_control_frame {
    uint32_t kind;
    uint32_t bytes; /* after this header */
    uint64_t world;
} clv_control_frame;

typedef struct clv_control_peer {
    int fd; /* -1: none */
    _Atomic int state;
    _Atomic int64_t idle_ns; /* time since its last message */
    unsigned char *in, *out; /* received bytes of an incomplete frame; bytes to be sent */
    size_t in_bytes, out_bytes, in_capacity, out_capacity;
} clv_control_peer;

/* A connection whose handshake is not complete. */
typedef struct clv_pending_connection {
    int fd; /* -1: none */
    size_t bytes;
    int64_t idle_ns;
    clv_control_handshake handshake;
} clv_pending_connection;

struct clv_control {
    clv_job *job;
    int n, me;   /* number of processes, and the index of this one */
    int wake_fd; /* eventfd that wakes the thread */
    int64_t heartbeat_ns;
    unsigned char token[CLV_CONTROL_TOKEN];          /* that peers must show */
    unsigned char (*peer_tokens)[CLV_CONTROL_TOKEN]; /* [n] that this process shows to each peer */
    pthread_t thread;
    pthread_mutex_t lock;   /* guards what follows; taken before a world's */
    pthread_cond_t changed; /* a peer connected or answered */
    int listener;           /* -1: all peers are connected */
    int n_awaited;          /* peers that are not connected yet */
    bool closing;
    bool accept_paused;    /* accept failed: not tried again before the next heartbeat */
    struct pollfd *polled; /* [2 + n + n_pending] the thread's */
    int *polled_process;   /* the same: the peer's process; n + i: pending connection i */
    int n_pending;
    clv_pending_connection *pending; /* [n_pending] */
    clv_control_peer *peers;         /* [n] */
    struct clv_world **worlds;
    int n_worlds;
    bool loss_reported;         /* by this process or another: clv_job_options.on_lost was called */
    pthread_mutex_t query_lock; /* held during a progress query; taken before the lock */
    uint64_t query;             /* number of the latest query; answers to earlier ones are dropped */
    clv_rank_progress *answers; /* [ranks of the world]; NULL: no query is running */
    int n_answers;
    bool *answered; /* [n] */
    _Atomic int lost;
    clv_error loss;   /* the first loss, once `lost` is set */
    int lost_process; /* -1: none, or one that left because of a failure */
};

/* The functions below must be called with the control's lock held; those without a lock say so. */

/* ---- control_connections.c ---- */

/* Sends what the socket accepts now. */
void clv_control_flush(clv_control_peer *peer);
/* Queues and sends a frame. A heartbeat is dropped if other bytes are still queued. */
void clv_control_send(clv_control_peer *peer, clv_control_frame_kind what, uint64_t world, const void *data,
                      size_t bytes);
void clv_control_broadcast(clv_control *control, clv_control_frame_kind what, uint64_t world, const void *data,
                           size_t bytes);
void clv_control_disconnect(clv_control_peer *peer);
/* Wakes the thread; without the lock. */
void clv_control_wake(const clv_control *control);
/* Grows a buffer to `bytes` at least; false: out of memory. */
bool clv_control_grow_buffer(unsigned char **data, size_t *capacity, size_t bytes);
/* Whether heartbeats of a process are missing. */
bool clv_control_is_unresponsive(const clv_control *control, int process);
/* NULL: it is freed, or not made yet. */
struct clv_world *clv_control_find_world(const clv_control *control, uint64_t number);
/* Makes an authenticated connection the peer's. */
void clv_control_add_peer(clv_control *control, int process, int fd);
/* Accepts a connection; if there is no free place the oldest pending connection is dropped. */
void clv_control_accept(clv_control *control);
/* Receives a pending connection's handshake; answers it if the token is right, else drops the connection. */
void clv_control_receive_handshake(clv_control *control, clv_pending_connection *pending);
void clv_pending_connection_close(clv_pending_connection *pending);

/* ---- failure_detector.c ---- */

void *clv_control_thread_main(void *control);
/* Frees a control whose thread does not run; without the lock; NULL is a no-op. */
void clv_control_free(clv_control *control);
/* Makes children by fork close the connections, until clv_control_close. */
void clv_control_register_atfork(clv_control *control);

/* ---- control_connect.c ---- */

/* Opens a listening socket at loopback, at the first free port of first to last (0: any); -1: see errno. */
int clv_control_listen_loopback(int first_port, int last_port, int backlog);

/* ---- progress_query.c ---- */

/* Answer a query of another process, or receive its answer; false: the frame is malformed. */
bool clv_control_answer_query(const clv_control *control, int process, uint64_t world, const void *data, size_t bytes);
bool clv_control_receive_answer(clv_control *control, int process, const unsigned char *data, size_t bytes);
