/* mpi_world_close.c - closes a world over MPI: cancels or drains pending requests, also after a failed collective. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "comm/mpi/mpi_world.h"

enum {
    CLOSE_NS = 2000000000, /* until all processes of a world that failed have come to its end */
    LOOKS = 200,           /* MPI brings what is there a message or so a look */
};

/* Looks at a part's requests, under the lock. */
int clv_mpi_test_message(const clv_job *job, clv_mpi_message *p)
{
    int code = 0;
    for (int done = 1; code == 0 && done && p->ended < p->n_asked; p->ended += done)
        code = job->mpi->test(&p->requests[p->ended], &done);
    return code;
}

/* Takes a plan that runs out of the list of its rank's. */
void clv_mpi_plan_finish(clv_mpi_plan *plan)
{
    clv_mpi_plan **at = &clv_mpi_world_of(plan->base.comm)->running[plan->base.comm->rank];
    while (*at != plan)
        at = &(*at)->running;
    *at = plan->running;
    plan->runs = false;
    clv_mpi_end_overlap(plan);
}

/* What was sent is with MPI yet. */
void clv_mpi_cancel_receives(clv_mpi_plan *plan)
{
    clv_job *job = clv_mpi_world_of(plan->base.comm)->job;
    pthread_mutex_lock(&job->lock);
    for (int k = 0; k < plan->n_phases; k++)
        for (int i = 0; i < plan->phases[k].n_takes && !job->broken; i++) {
            clv_mpi_message *p = &plan->phases[k].takes[i];
            if (!clv_job_end_requests(job, p->requests + p->ended, p->n_asked - p->ended, true, CLV_MPI_CANCEL_NS))
                job->broken = 1;
            p->ended = p->n_asked;
        }
    pthread_mutex_unlock(&job->lock);
}

/* Under the lock: whether all that a plan sent has been taken. */
static bool is_sent(const clv_mpi_plan *plan)
{
    const clv_job *job = clv_mpi_world_of(plan->base.comm)->job;
    bool all = true;
    for (int k = 0; k < plan->n_phases; k++)
        for (int i = 0; i < plan->phases[k].n_sends; i++) {
            clv_mpi_message *p = &plan->phases[k].sends[i];
            if (clv_mpi_test_message(job, p) != 0)
                p->ended = p->n_asked; /* it failed, which is an end, too */
            all = all && p->ended == p->n_asked;
        }
    return all;
}

/* Under the lock: takes what others sent of steps that failed, so that they are rid of it. Returns whether there was,
 * or is, anything. */
static bool drain_unwanted(struct clv_mpi_world *wire)
{
    const clv_mpi *mpi = wire->job->mpi;
    int found = 0, from, tag, done = 0;
    int64_t bytes;
    (void)clv_mpi_receive_notices(wire);
    if (wire->unwanted && mpi->test(&wire->taking, &done) == 0 && !done)
        return true;
    free(wire->unwanted);
    wire->unwanted = NULL;
    if (mpi->probe(wire->comm, &found, &from, &tag, &bytes) != 0 || !found)
        return false;
    if (tag == 0) /* it is heard next */
        return true;
    wire->unwanted = malloc((size_t)bytes + 1);
    if (wire->unwanted && mpi->receive(&wire->taking, wire->comm, wire->unwanted, bytes, from, tag) != 0) {
        free(wire->unwanted);
        wire->unwanted = NULL;
    }
    return true;
}

/* Waits until what a plan that runs has sent is taken, and ends it. */
void clv_mpi_plan_abandon(clv_mpi_plan *plan)
{
    if (!plan->runs)
        return;
    struct clv_mpi_world *wire = clv_mpi_world_of(plan->base.comm);
    clv_job *job = wire->job;
    clv_deadline deadline = clv_deadline_after(CLV_MPI_CANCEL_NS);
    clv_mpi_cancel_receives(plan);
    for (bool over = false; !over;) {
        pthread_mutex_lock(&job->lock);
        over = job->broken || is_sent(plan);
        if (!over)
            (void)drain_unwanted(wire);
        if (!over && clv_deadline_remaining(&deadline) == 0)
            job->broken = 1;
        pthread_mutex_unlock(&job->lock);
        sched_yield();
    }
    clv_mpi_plan_finish(plan);
}

/* Under the lock: whether nothing is under way any more that this process sent. */
static bool has_sent_all(const clv_world *world)
{
    bool all = true;
    for (int r = world->first; r < world->first + world->here; r++)
        for (const clv_mpi_plan *plan = world->mpi->running[r]; plan; plan = plan->running)
            all = is_sent(plan) && all;
    return all;
}

/* Ends what a world that failed has under way, as all processes do. */
static void send_goodbye(clv_world *world)
{
    struct clv_mpi_world *wire = world->mpi;
    clv_job *job = wire->job;
    clv_deadline deadline = clv_deadline_after(CLOSE_NS);
    wire->goodbye = (clv_mpi_notice){.world = wire->number, .is_goodbye = 1};
    for (bool over = false, said = false; !over;) {
        pthread_mutex_lock(&job->lock);
        if (!said && !job->broken && has_sent_all(world)) {
            clv_mpi_broadcast_notice(world, &wire->goodbye);
            said = true;
        }
        bool all_said = said && wire->goodbyes == world->processes - 1; /* then all is here that was sent before */
        over = job->broken || (!drain_unwanted(wire) && all_said);
        if (!over && clv_deadline_remaining(&deadline) == 0)
            job->broken = 1;
        pthread_mutex_unlock(&job->lock);
        if (!over && !wire->unwanted)
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
    struct clv_mpi_world *wire = world->mpi;
    if (!wire)
        return;
    clv_job *job = wire->job;
    clv_mpi_leak(world);
    for (int i = 0; wire->listens && i < LOOKS && !clv_world_failed(world, NULL); i++)
        (void)clv_mpi_poll_failure(world);
    if (wire->listens && clv_world_failed(world, NULL))
        send_goodbye(world);
    for (int r = 0; wire->running && r < world->ranks; r++)
        while (wire->running[r])
            clv_mpi_plan_abandon(wire->running[r]);
    clv_mpi_stop_progress_thread(wire);
    pthread_mutex_lock(&job->lock);
    bool over = !job->broken;
    if (over && wire->notice_sends)
        over = clv_job_end_requests(job, wire->notice_sends, wire->n_notice_sends, false, CLV_MPI_CANCEL_NS);
    if (over && wire->listens)
        over = clv_job_end_requests(job, &wire->notice_request, 1, true, CLV_MPI_CANCEL_NS);
    if (over && wire->has_comm)
        (void)job->mpi->free(wire->comm);
    if (!over)
        job->broken = 1;
    job->worlds--;
    pthread_mutex_unlock(&job->lock);
    clv_shm_segment_free(wire->board);
    free(wire->seat);
    free(wire->running);
    free(wire->said);
    if (!over)
        return; /* MPI may still read or write what is there */
    free(wire->notice_sends);
    free(wire);
}
