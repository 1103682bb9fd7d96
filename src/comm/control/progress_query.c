/* progress_query.c - asks other processes for their ranks' progress over the control connections, and answers them.
 * See failure_detector.h.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/control/control_internal.h"
#include "comm/mpi/mpi_world.h"

enum {
    ANSWER_MS = 80, /* timeout of a query */
    SOON_MS = 20,   /* the same for processes that are unresponsive */
};

/* Payload of a query. */
typedef struct query {
    uint64_t number;
    int64_t group_set;
} query;

/* ---- answering ---- */

/* Under the lock: sends the progress of this process's ranks; not of a world that has failed, as its ranks have gone on
 * and its failure is on its way. */
static void answer(const clv_control *c, int process, uint64_t number, const query *q)
{
    clv_world *world = clv_control_find_world(c, number);
    int n = world ? world->n_local : 0;
    size_t bytes = sizeof q->number + (size_t)n * sizeof(clv_rank_progress);
    if (world && clv_world_has_failed(world, NULL))
        return;
    unsigned char *data = malloc(bytes);
    if (!data)
        return;
    memcpy(data, &q->number, sizeof q->number);
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&world->lock); /* keeps the activity's memory */
        const clv_rank_progress s = clv_local_rank_progress(world, world->first_local + i, q->group_set);
        pthread_mutex_unlock(&world->lock);
        memcpy(data + sizeof q->number + (size_t)i * sizeof s, &s, sizeof s);
    }
    clv_control_send(&c->peers[process], CLV_FRAME_PROGRESS, number, data, bytes);
    free(data);
}

bool clv_control_answer_query(const clv_control *c, int process, uint64_t world, const void *data, size_t bytes)
{
    query q;
    if (bytes != sizeof q)
        return false;
    memcpy(&q, data, sizeof q);
    answer(c, process, world, &q);
    return true;
}

bool clv_control_receive_answer(clv_control *c, int process, const unsigned char *data, size_t bytes)
{
    uint64_t number;
    if (bytes < sizeof number)
        return false;
    memcpy(&number, data, sizeof number);
    if (!c->answers || number != c->query)
        return true;
    for (size_t at = sizeof number; at + sizeof(clv_rank_progress) <= bytes; at += sizeof(clv_rank_progress)) {
        clv_rank_progress s;
        memcpy(&s, data + at, sizeof s);
        s.what[sizeof s.what - 1] = s.activity[sizeof s.activity - 1] = '\0';
        if (s.rank >= 0 && s.rank < c->n_answers)
            c->answers[s.rank] = s;
    }
    c->answered[process] = true;
    pthread_cond_broadcast(&c->changed);
    return true;
}

/* Under the lock: whether no more answers are expected, ms after the query. */
static bool all_answered(const clv_control *c, int64_t ms)
{
    for (int p = 0; p < c->n; p++)
        if (c->peers[p].fd >= 0 && !c->answered[p] && (ms < SOON_MS || !clv_control_is_unresponsive(c, p)))
            return false;
    return true;
}

void clv_control_query_progress(clv_control *c, clv_world *world, int group_set, clv_rank_progress *all)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->query_lock);
    pthread_mutex_lock(&c->lock);
    int64_t began = clv_now_ns(), ms = 0;
    c->query++;
    c->answers = all;
    c->n_answers = world->ranks;
    memset(c->answered, 0, (size_t)c->n * sizeof *c->answered);
    const query q = {.number = c->query, .group_set = group_set};
    clv_control_broadcast(c, CLV_FRAME_PROGRESS_QUERY, world->mpi->number, &q, sizeof q);
    while (!all_answered(c, ms) && ms < ANSWER_MS && !clv_world_has_failed(world, NULL)) {
        struct timespec until = clv_wall_time_after(5000000);
        pthread_cond_timedwait(&c->changed, &c->lock, &until);
        ms = (clv_now_ns() - began) / 1000000;
    }
    c->answers = NULL;
    for (int r = 0; r < world->ranks; r++) {
        int process = clv_world_process_of(world, r);
        all[r].unresponsive = process != c->me && !c->answered[process] && clv_control_is_unresponsive(c, process);
    }
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_unlock(&c->query_lock);
}
