/* mpi_progress_thread.c - progress thread: calls MPI while ranks compute, so that overlapped collectives advance. Large
 * messages only move while MPI is called, and a rank that runs ops does not call it: the world's progress thread does,
 * as long as an overlapped collective runs. It is started by the first such collective.
 */
#include <sched.h>
#include <time.h>

#include "base/threads/thread.h"
#include "comm/mpi/mpi_world.h"

enum {
    NAP_NS = 100000, /* between polls, which cost a rank's core some microseconds */
    YIELDS = 500,    /* polls with a yield before a waiting rank sleeps */
};

static bool await_overlapped(struct clv_mpi_progress *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->overlapped && !p->stop)
        pthread_cond_wait(&p->changed, &p->lock);
    bool go_on = !p->stop;
    pthread_mutex_unlock(&p->lock);
    return go_on;
}

/* Whether all messages of a prepared collective's first phase have arrived. */
static bool has_arrived(clv_mpi_prepared_collective *prepared, const clv_mpi *mpi)
{
    const clv_mpi_phase *ph = &prepared->phases[0];
    int n = 0, done = 1;
    for (int i = 0; i < ph->n_receives; i++)
        n += ph->receives[i].n_posted;
    for (; done && prepared->n_arrived < n; prepared->n_arrived += done)
        if (mpi->peek(&ph->receives[0].requests[prepared->n_arrived], &done) != 0)
            done = 0; /* its rank will report the error */
    return prepared->n_arrived == n;
}

static void test_receives(clv_world *world)
{
    struct clv_mpi_progress *p = &world->mpi->progress;
    clv_job *job = world->mpi->job;
    pthread_mutex_lock(&job->lock);
    pthread_mutex_lock(&p->lock);
    for (clv_mpi_prepared_collective *prepared = p->overlapped; prepared && !job->poisoned;
         prepared = prepared->next_overlapped)
        if (prepared->base.arrived_ns == 0 && has_arrived(prepared, job->mpi))
            prepared->base.arrived_ns = clv_now_ns();
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&job->lock);
}

static void *progress_main(void *arg)
{
    clv_world *world = arg;
    while (await_overlapped(&world->mpi->progress) &&
           !clv_world_has_failed(world, NULL)) { /* a failed world moves nothing */
        (void)clv_mpi_poll_failure(world);       /* any call of MPI moves all messages */
        test_receives(world);
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    return NULL;
}

/* If it cannot be started, messages move when the ranks wait. */
static void start_thread(clv_world *world)
{
    struct clv_mpi_progress *p = &world->mpi->progress;
    p->started = clv_thread_start(&p->thread, NULL, progress_main, world) == 0;
    p->tried = true;
}

void clv_mpi_overlap(clv_prepared_collective *base)
{
    clv_mpi_prepared_collective *prepared = (clv_mpi_prepared_collective *)base;
    clv_world *world = base->comm->world;
    struct clv_mpi_progress *p = &world->mpi->progress;
    clv_collective_mark_overlapped(base);
    if (prepared->threads || prepared->shm.in_slots)
        return;
    pthread_mutex_lock(&p->lock);
    if (!p->tried)
        start_thread(world);
    prepared->overlapped = true;
    prepared->n_arrived = 0;
    prepared->next_overlapped = p->overlapped;
    p->overlapped = prepared;
    if (!prepared->next_overlapped)
        pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void clv_mpi_end_overlap(clv_mpi_prepared_collective *prepared)
{
    struct clv_mpi_progress *p = &prepared->base.comm->world->mpi->progress;
    if (!prepared->overlapped)
        return;
    pthread_mutex_lock(&p->lock);
    clv_mpi_prepared_collective **at = &p->overlapped;
    while (*at != prepared)
        at = &(*at)->next_overlapped;
    *at = prepared->next_overlapped;
    pthread_mutex_unlock(&p->lock);
    prepared->overlapped = false;
}

void clv_mpi_stop_progress_thread(struct clv_mpi_world *state)
{
    struct clv_mpi_progress *p = &state->progress;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->started)
        pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
}

/* ---- polling of ranks ---- */

bool clv_mpi_backoff_pause(clv_mpi_backoff *w)
{
    int polls = w->polls++ - w->spins;
    if (polls < 0) {
        clv_cpu_pause();
        return true;
    }
    if (polls < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = CLV_MPI_POLL_NS}, NULL);
    return clv_deadline_remaining(&w->deadline) > 0;
}
