/* control_wire.h - what the files of the connections of a job (control*.c) share: control.c watches them, and uses the
 * others but for control_open.c, which makes them. Private to src/comm. */
#ifndef CLEAVE_COMM_CONTROL_WIRE_H
#define CLEAVE_COMM_CONTROL_WIRE_H

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#include "comm/control.h"
#include "comm/job.h"
#include "comm/standing.h"

enum { CLV_CONTROL_TOKEN = 16, CLV_CONTROL_STRANGERS = 16 };

/* What both ends of a new connection show, the one that connects first. */
typedef struct clv_control_hello {
    char is[8]; /* CLV_CONTROL_IS */
    unsigned char token[CLV_CONTROL_TOKEN];
    int32_t from, version;
} clv_control_hello;

#define CLV_CONTROL_IS "cleave\n"
enum { CLV_CONTROL_VERSION = 2 };

typedef enum clv_presence { CLV_NOT_YET, CLV_HERE, CLV_GONE, CLV_FAILED, CLV_LOST } clv_presence;

/* What is said. */
typedef enum clv_control_kind {
    CLV_SAY_PULSE = 1,
    CLV_SAY_FAILURE,
    CLV_SAY_GOODBYE,
    CLV_SAY_ASK,
    CLV_SAY_STANDING,
    CLV_SAY_SPOKEN,
    CLV_SAY_KINDS
} clv_control_kind;

/* What is ahead of what is said. */
typedef struct clv_control_frame {
    uint32_t kind, bytes; /* behind this */
    uint64_t world;
} clv_control_frame;

typedef struct clv_control_peer {
    int fd; /* -1: none */
    _Atomic int presence;
    _Atomic int64_t quiet_ns; /* since something came */
    unsigned char *in, *out;  /* what came of a frame; what is to be sent yet */
    size_t in_bytes, out_bytes, in_room, out_room;
} clv_control_peer;

/* Who has connected and not shown a token. */
typedef struct clv_control_stranger {
    int fd; /* -1: none */
    size_t bytes;
    int64_t quiet_ns;
    clv_control_hello hello;
} clv_control_stranger;

struct clv_control {
    clv_job *job;
    int n, me, wake;
    int64_t pulse_ns;
    unsigned char token[CLV_CONTROL_TOKEN];     /* that others show */
    unsigned char (*theirs)[CLV_CONTROL_TOKEN]; /* [n] */
    pthread_t thread;
    pthread_mutex_t lock; /* over what follows; taken before a world's */
    pthread_cond_t came;
    int listener; /* -1: all have come */
    int left;     /* that are to come yet */
    bool ends;
    bool deaf;             /* until the next beat: who comes cannot be taken in */
    struct pollfd *polled; /* [2 + n + n_strangers] the thread's */
    int *who;              /* likewise: the process of a peer's, n and above a stranger's */
    int n_strangers;
    clv_control_stranger *strangers; /* [n_strangers] */
    clv_control_peer *peers;         /* [n] */
    struct clv_world **worlds;
    int n_worlds;
    bool told;              /* the program: clv_job_options.lost */
    pthread_mutex_t asking; /* one asks at a time; taken before the lock */
    uint64_t question;      /* its number: what answers another is late */
    clv_standing *answers;  /* [ranks of the world asked for]; NULL: nobody asks */
    int n_answers;
    bool *answered; /* [n] */
    _Atomic int lost;
    clv_error loss; /* then: the first */
    int lost_process;
};

/* Functions of a control that exists are called with its lock held, but for wake, main, free and forget_fork. */

/* ---- control_say.c ---- */

/* Sends what the socket takes now. */
void clv_control_flush(clv_control_peer *peer);
/* A pulse is left out where more is to be sent yet. */
void clv_control_say(clv_control_peer *peer, clv_control_kind what, uint64_t world, const void *data, size_t bytes);
void clv_control_say_to_all(clv_control *control, clv_control_kind what, uint64_t world, const void *data,
                            size_t bytes);
void clv_control_hang_up(clv_control_peer *peer);
/* Makes the thread look. */
void clv_control_wake(const clv_control *control);
/* Room for so many bytes; false: there is no memory. */
bool clv_control_make_room(unsigned char **data, size_t *room, size_t bytes);
/* Whether pulses of it are missing. */
bool clv_control_is_silent(const clv_control *control, int process);
/* NULL: it is gone, or not there yet. */
struct clv_world *clv_control_find_world(const clv_control *control, uint64_t number);

/* ---- control.c ---- */

void *clv_control_main(void *control);
/* Without a thread; NULL is a no-op. */
void clv_control_free(clv_control *control);

/* ---- control_come.c ---- */

/* A connection to a process, which has shown its token. */
void clv_control_connected(clv_control *control, int process, int fd);
/* Takes in who comes; where there is no room the longest-waiting stranger makes some. */
void clv_control_take_stranger(clv_control *control);
/* It shows the token that this process told it, and is shown its own. */
void clv_control_hear_stranger(clv_control *control, clv_control_stranger *stranger);
void clv_control_drop(clv_control_stranger *stranger);

/* ---- control_open.c ---- */

/* A socket that listens at loopback, at the first port of first to last (0: any) that is free; -1: errno says why. */
int clv_control_listen_beside(int first_port, int last_port, int backlog);

/* ---- control_fork.c ---- */

/* In children of this process from here on; until it is about to be freed. */
void clv_control_close_at_fork(clv_control *control);
void clv_control_forget_fork(const clv_control *control);

/* ---- control_ask.c ---- */

/* Take what another process asks or answers; false: no such frame. */
bool clv_control_answer(const clv_control *control, int process, uint64_t world, const void *data, size_t bytes);
bool clv_control_take_answer(clv_control *control, int process, const unsigned char *data, size_t bytes);

#endif
