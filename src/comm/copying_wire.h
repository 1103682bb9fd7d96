/* copying_wire.h - mailboxes of ranks, and what brings messages there from other processes: shared by copying_wire.c
 * and copying.c, which runs steps. Private to src/comm. */
#ifndef CLEAVE_COMM_COPYING_WIRE_H
#define CLEAVE_COMM_COPYING_WIRE_H

#include <pthread.h>
#include <stdalign.h>

#include "comm/links.h"
#include "comm/standing.h"

typedef struct clv_message {
    struct clv_message *next;
    int set, from; /* its group set; the sender's index in the group */
    uint64_t step; /* the sender's count of steps of the set */
    clv_post says;
    int looks;      /* that it is to be passed over yet */
    int64_t put_ns; /* when it was put there */
    int64_t bytes;
    unsigned char data[];
} clv_message;

typedef struct clv_mailbox {
    alignas(CLV_LINE) pthread_mutex_t lock; /* over the list and the randomness */
    pthread_cond_t filled;
    clv_message *first;
    uint64_t random;
    int n_sets;
    uint64_t *steps; /* [n_sets] that the owner has started; its own */
} clv_mailbox;

/* What messages from other processes say; their own strings. */
typedef struct clv_wire_name {
    struct clv_wire_name *next;
    char text[];
} clv_wire_name;

struct clv_wire {
    clv_mailbox *boxes; /* [ranks] of this process's are used */
    clv_lines *lines;   /* to other processes; NULL: there are none */
    _Atomic int *gone;  /* [processes] nothing comes from there any more */
    pthread_mutex_t naming;
    clv_wire_name *names;
    pthread_mutex_t asking; /* one asks at a time; taken before the next */
    pthread_mutex_t lock;   /* over what follows */
    pthread_cond_t came;
    uint64_t question;     /* what answers another is late */
    clv_standing *answers; /* [ranks]; NULL: nobody asks */
    bool *answered;        /* [processes] */
};

/* Kinds of frames. ASK: number of the question in `step`, of its group set in `set`; STANDING answers it. */
enum { CLV_COPYING_MESSAGE, CLV_COPYING_FAILURE, CLV_COPYING_ASK, CLV_COPYING_STANDING };

/* The transport's open, close, tell and stand. */
clv_status clv_copying_open(clv_world *world, const clv_links *links, clv_error *err);
void clv_copying_close(clv_world *world);
void clv_copying_tell(clv_world *world, const clv_error *error);
void clv_copying_stand(clv_world *world, int set, clv_standing *all);
/* Puts a message into a mailbox, whose it is from then on. */
void clv_copying_put(clv_mailbox *box, clv_message *m);

#endif
