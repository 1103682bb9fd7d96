/* mailbox.h - a rank's mailbox, the world's state and the prepared collectives of the mailbox transport
 * (mailbox_transport.c). */
#ifndef MAILBOX_H
#define MAILBOX_H

#include <pthread.h>
#include <stdalign.h>

#include "comm/world/stall_diagnosis.h"
#include "socket_mesh.h"

typedef struct message {
    struct message *next;
    int group_set, from; /* group set; the sender's index in the group */
    uint64_t step;       /* number of the collective, counted by the sender in this group set */
    clv_collective_desc desc;
    int deliver_after; /* number of times that the receiver still passes it over */
    int64_t put_ns;    /* when it was put into the mailbox */
    int64_t bytes;
    unsigned char data[];
} message;

typedef struct mailbox {
    alignas(CLV_CACHE_LINE) pthread_mutex_t lock; /* guards the list and `random` */
    pthread_cond_t filled;
    message *first;
    uint64_t random; /* state of the random generator */
    int n_sets;
    uint64_t *steps; /* [n_sets] collectives that the owner has started; used by the owner alone */
} mailbox;

/* A name that came in a message of another process; lives as long as the world. */
typedef struct received_name {
    struct received_name *next;
    char text[];
} received_name;

typedef struct mailbox_state {
    mailbox *boxes;      /* [ranks]; only those of this process's ranks are used */
    socket_mesh *mesh;   /* NULL: no other processes */
    _Atomic int *closed; /* [processes] 1: its connection has ended */
    pthread_mutex_t names_lock;
    received_name *names;
    pthread_mutex_t query_lock; /* held during a query; taken before `lock` */
    pthread_mutex_t lock;       /* guards what follows */
    pthread_cond_t came;
    uint64_t question;          /* number of the latest query; answers to earlier ones are dropped */
    clv_rank_progress *answers; /* [ranks]; NULL: no query is running */
    bool *answered;             /* [processes] */
} mailbox_state;

/* A box of a prepared collective, and its place. */
typedef struct part {
    clv_transfer_box move;
    int64_t at; /* offset in staging */
    bool came;
} part;

typedef struct mailbox_prepared_collective {
    clv_prepared_collective base; /* first: a clv_prepared_collective * is one of these */
    clv_collective_desc desc;
    int n_sends, n_receives;     /* parts that hold elements; the empty ones come after them */
    int all_sends, all_receives; /* all parts */
    part *sends, *receives;      /* [members] each */
    const void **ins;            /* [members] addends */
    int64_t staging_bytes;
    unsigned char *staging; /* set while the prepared collective runs */
    uint64_t step;
} mailbox_prepared_collective;

/* Kinds of frames. A query has its number in `step` and the group set in `set`; the answer has the same number. */
enum { MAILBOX_MESSAGE, MAILBOX_FAILURE, MAILBOX_PROGRESS_QUERY, MAILBOX_PROGRESS };

extern const clv_transport mailbox_transport;

static inline mailbox_state *mailbox_of(const clv_world *world)
{
    return world->transport_state;
}

/* Functions of the transport's table. */
clv_status mailbox_open(clv_world *world, const clv_process_links *links, clv_error *err);
void mailbox_close(clv_world *world);
void mailbox_notify_failure(clv_world *world, const clv_error *error);
void mailbox_query_progress(clv_world *world, int group_set, clv_rank_progress *all);
/* Puts a message into a mailbox, which frees it. */
void mailbox_put(mailbox *box, message *m);

#endif
