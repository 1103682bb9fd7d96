/* mpi_world_close.c - closes a world over MPI: cancels or drains pending requests, also after a failed collective. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "comm/mpi/mpi_world.h"

enum {
    CLOSE_NS = 2000000000, /* timeout until all processes have closed a world that failed */
    POLLS = 200,           /* MPI delivers about one message per poll */
};

int clv_mpi_test_message(const clv_job *job, clv_mpi_message *p)
{
    int code = 0;
    for (int done = 1; code == 0 && done && p->n_ended < p->n_posted; p->n_ended += done)
        code = job->mpi->test(&p->requests[p->n_ended], &done);
    return code;
}

void clv_mpi_prepared_collective_finish(clv_mpi_prepared_collective *prepared)
{
    clv_mpi_prepared_collective **at = &prepared->base.comm->world->mpi->running[prepared->base.comm->rank];
    while (*at != prepared)
        at = &(*at)->next_running;
    *at = prepared->next_running;
    prepared->running = false;
    clv_mpi_end_overlap(prepared);
}

void clv_mpi_cancel_receives(clv_mpi_prepared_collective *prepared)
{
    clv_job *job = prepared->base.comm->world->mpi->job;
    pthread_mutex_lock(&job->lock);
    for (int k = 0; k < prepared->n_phases; k++)
        for (int i = 0; i < prepared->phases[k].n_receives && !job->poisoned; i++) {
            clv_mpi_message *p = &prepared->phases[k].receives[i];
            if (!clv_job_end_requests(job, p->requests + p->n_ended, p->n_posted - p->n_ended, true, CLV_MPI_CANCEL_NS))
                job->poisoned = 1;
            p->n_ended = p->n_posted;
        }
    pthread_mutex_unlock(&job->lock);
}

/* Under the lock: whether all sends of a prepared collective have been received. */
static bool is_sent(const clv_mpi_prepared_collective *prepared)
{
    const clv_job *job = prepared->base.comm->world->mpi->job;
    bool all = true;
    for (int k = 0; k < prepared->n_phases; k++)
        for (int i = 0; i < prepared->phases[k].n_sends; i++) {
            clv_mpi_message *p = &prepared->phases[k].sends[i];
            if (clv_mpi_test_message(job, p) != 0)
                p->n_ended = p->n_posted; /* a failed request has ended, too */
            all = all && p->n_ended == p->n_posted;
        }
    return all;
}

/* Under the lock: receives and discards messages of failed collectives, so that their senders can close. Returns
 * whether there was, or still is, such a message. */
static bool drain_unwanted(struct clv_mpi_world *state)
{
    const clv_mpi *mpi = state->job->mpi;
    int found = 0, from, tag, done = 0;
    int64_t bytes;
    (void)clv_mpi_receive_notices(state);
    if (state->discarded && mpi->test(&state->discard_request, &done) == 0 && !done)
        return true;
    free(state->discarded);
    state->discarded = NULL;
    if (mpi->probe(state->comm, &found, &from, &tag, &bytes) != 0 || !found)
        return false;
    if (tag == 0) /* a notice, which is received next */
        return true;
    state->discarded = malloc((size_t)bytes + 1);
    if (state->discarded &&
        mpi->receive(&state->discard_request, state->comm, state->discarded, bytes, from, tag) != 0) {
        free(state->discarded);
        state->discarded = NULL;
    }
    return true;
}

void clv_mpi_prepared_collective_abandon(clv_mpi_prepared_collective *prepared)
{
    if (!prepared->running)
        return;
    struct clv_mpi_world *state = prepared->base.comm->world->mpi;
    clv_job *job = state->job;
    clv_deadline deadline = clv_deadline_after(CLV_MPI_CANCEL_NS);
    clv_mpi_cancel_receives(prepared);
    for (bool over = false; !over;) {
        pthread_mutex_lock(&job->lock);
        over = job->poisoned || is_sent(prepared);
        if (!over)
            (void)drain_unwanted(state);
        if (!over && clv_deadline_remaining(&deadline) == 0)
            job->poisoned = 1;
        pthread_mutex_unlock(&job->lock);
        sched_yield();
    }
    clv_mpi_prepared_collective_finish(prepared);
}

/* Under the lock: whether all sends of this process have been received. */
static bool has_sent_all(const clv_world *world)
{
    bool all = true;
    for (int r = world->first_local; r < world->first_local + world->n_local; r++)
        for (const clv_mpi_prepared_collective *prepared = world->mpi->running[r]; prepared;
             prepared = prepared->next_running)
            all = is_sent(prepared) && all;
    return all;
}

/* Ends the messages in flight of a world that failed; all processes do. */
static void send_goodbye(clv_world *world)
{
    struct clv_mpi_world *state = world->mpi;
    clv_job *job = state->job;
    clv_deadline deadline = clv_deadline_after(CLOSE_NS);
    state->goodbye_notice = (clv_mpi_notice){.world = state->number, .is_goodbye = 1};
    for (bool over = false, said = false; !over;) {
        pthread_mutex_lock(&job->lock);
        if (!said && !job->poisoned && has_sent_all(world)) {
            clv_mpi_broadcast_notice(world, &state->goodbye_notice);
            said = true;
        }
        bool all_said =
            said && state->goodbyes == world->processes - 1; /* everything that was sent before has arrived */
        over = job->poisoned || (!drain_unwanted(state) && all_said);
        if (!over && clv_deadline_remaining(&deadline) == 0)
            job->poisoned = 1;
        pthread_mutex_unlock(&job->lock);
        if (!over && !state->discarded)
            nanosleep(&(struct timespec){.tv_nsec = CLV_MPI_POLL_NS}, NULL);
    }
}

void clv_mpi_leak(clv_world *world)
{
    if (world->mpi)
        clv_control_remove_world(world->mpi->job->control, world);
}

void clv_mpi_close(clv_world *world)
{
    struct clv_mpi_world *state = world->mpi;
    if (!state)
        return;
    clv_job *job = state->job;
    clv_mpi_leak(world);
    for (int i = 0; state->listening && i < POLLS && !clv_world_has_failed(world, NULL); i++)
        (void)clv_mpi_poll_failure(world);
    if (state->listening && clv_world_has_failed(world, NULL))
        send_goodbye(world);
    for (int r = 0; state->running && r < world->ranks; r++)
        while (state->running[r])
            clv_mpi_prepared_collective_abandon(state->running[r]);
    clv_mpi_stop_progress_thread(state);
    pthread_mutex_lock(&job->lock);
    bool over = !job->poisoned;
    if (over && state->notice_sends)
        over = clv_job_end_requests(job, state->notice_sends, state->n_notice_sends, false, CLV_MPI_CANCEL_NS);
    if (over && state->listening)
        over = clv_job_end_requests(job, &state->notice_request, 1, true, CLV_MPI_CANCEL_NS);
    if (over && state->has_comm)
        (void)job->mpi->free(state->comm);
    if (!over)
        job->poisoned = 1;
    job->n_worlds--;
    pthread_mutex_unlock(&job->lock);
    clv_shm_segment_free(state->segment);
    free(state->shm_index);
    free(state->running);
    free(state->peer_what);
    if (!over)
        return; /* MPI may still use the memory */
    free(state->notice_sends);
    free(state);
}
