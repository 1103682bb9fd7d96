/* control_wire.h - what control.c, which watches the connections, and control_open.c, which makes them, share. Private
 * to src/comm. */
#ifndef CLEAVE_COMM_CONTROL_WIRE_H
#define CLEAVE_COMM_CONTROL_WIRE_H

#include <netinet/in.h>
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

/* Under the lock: a connection to a process, which has shown its token. */
void clv_control_connected(clv_control *control, int process, int fd);
/* A socket that listens at loopback, at the first port of first to last (0: any) that is free; -1: errno says why. */
int clv_control_listen_beside(int first_port, int last_port, int backlog);
/* Makes the thread look. */
void clv_control_wake(const clv_control *control);
void *clv_control_main(void *control);
/* Without a thread; NULL is a no-op. */
void clv_control_free(clv_control *control);

#endif
