/* mailbox.h - per-rank mailboxes and the world state of the mailbox transport. Private to src/comm. Private to
 * src/comm.
 */
#ifndef CLEAVE_COMM_MAILBOX_MAILBOX_H
#define CLEAVE_COMM_MAILBOX_MAILBOX_H

#include <pthread.h>
#include <stdalign.h>

#include "comm/mailbox/socket_mesh.h"
#include "comm/threads/rank_progress.h"

typedef struct clv_message {
    struct clv_message *next;
    int set, from; /* its group set; the sender's index in the group */
    uint64_t step; /* the sender's count of steps of the set */
    clv_collective_desc desc;
    int looks;      /* that it is to be passed over yet */
    int64_t put_ns; /* when it was put there */
    int64_t bytes;
    unsigned char data[];
} clv_message;

typedef struct clv_mailbox {
    alignas(CLV_CACHE_LINE) pthread_mutex_t lock; /* over the list and the randomness */
    pthread_cond_t filled;
    clv_message *first;
    uint64_t random;
    int n_sets;
    uint64_t *steps; /* [n_sets] that the owner has started; its own */
} clv_mailbox;

/* What messages from other processes say; their own strings. */
typedef struct clv_received_name {
    struct clv_received_name *next;
    char text[];
} clv_received_name;

struct clv_mailbox_world {
    clv_mailbox *boxes;    /* [ranks] of this process's are used */
    clv_socket_mesh *mesh; /* to other processes; NULL: there are none */
    _Atomic int *closed;   /* [processes] nothing comes from there any more */
    pthread_mutex_t names_lock;
    clv_received_name *names;
    pthread_mutex_t query_lock; /* one asks at a time; taken before the next */
    pthread_mutex_t lock;       /* over what follows */
    pthread_cond_t came;
    uint64_t question;          /* what answers another is late */
    clv_rank_progress *answers; /* [ranks]; NULL: nobody asks */
    bool *answered;             /* [processes] */
};

/* Kinds of frames. ASK: number of the question in `step`, of its group set in `set`; STANDING answers it. */
enum { CLV_MAILBOX_MESSAGE, CLV_MAILBOX_FAILURE, CLV_MAILBOX_PROGRESS_QUERY, CLV_MAILBOX_PROGRESS };

/* The transport's open, close, tell and stand. */
clv_status clv_mailbox_open(clv_world *world, const clv_process_links *links, clv_error *err);
void clv_mailbox_close(clv_world *world);
void clv_mailbox_notify_failure(clv_world *world, const clv_error *error);
void clv_mailbox_query_progress(clv_world *world, int set, clv_rank_progress *all);
/* Puts a message into a mailbox, whose it is from then on. */
void clv_mailbox_put(clv_mailbox *box, clv_message *m);

#endif
