/* mpi_world.c - opens a world over MPI (rendezvous, own communicator) and exchanges failure notices between
 * processes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/mpi/mpi_world.h"

#define COPY_NS INT64_C(30000000000) /* timeout of making a communicator */

static clv_status find_tags(struct clv_mpi_world *state, const clv_world *world, clv_error *err)
{
    int max_tag = state->job->info.max_tag;
    for (int p = 0; p < world->processes; p++) {
        int n = world->first_ranks[p + 1] - world->first_ranks[p];
        state->max_local_ranks = n > state->max_local_ranks ? n : state->max_local_ranks;
    }
    state->n_tagged_sets = (int)((max_tag - 1) / ((int64_t)state->max_local_ranks * state->max_local_ranks));
    if (state->n_tagged_sets >= 1)
        return CLV_OK;
    return clv_fail(err, CLV_ELIMIT, "a process has %d ranks, for whose pairs this MPI has too few tags: %d",
                    state->max_local_ranks, max_tag);
}

/* Meets all processes; the number of the rendezvous becomes the world's. */
static clv_status rendezvous(clv_world *world, clv_error *err)
{
    const clv_job_rendezvous_info mine = {
        .action = world->ranks,
        .detail = clv_hash_bytes(world->first_ranks, (size_t)(world->processes + 1) * sizeof *world->first_ranks)};
    return clv_job_rendezvous(&world->mpi->number, world->mpi->job, &mine, world->timeout_ns, err);
}

/* Makes the world's communicator; all processes are here. */
static clv_status copy_comm(clv_world *world, clv_error *err)
{
    struct clv_mpi_world *state = world->mpi;
    clv_job *job = state->job;
    clv_deadline deadline = clv_deadline_after(COPY_NS);
    clv_mpi_request request;
    int ended = 0;
    pthread_mutex_lock(&job->lock);
    int code = job->mpi->copy(&request, &state->comm, job->comm);
    pthread_mutex_unlock(&job->lock);
    clv_status status = code == 0 ? clv_job_wait_requests(job, &request, &ended, 1, false, &deadline, err)
                                  : clv_job_fail_mpi(job, code, "making a session", err);
    state->has_comm = status == CLV_OK;
    if (status == CLV_OK)
        return CLV_OK;
    job->poisoned = 1; /* MPI's collectives cannot be canceled */
    if (status == CLV_ETIMEOUT)
        return clv_fail(err, status, "process %d waited %d s for MPI to make a communicator of all %d processes",
                        world->me, (int)(COPY_NS / 1000000000), world->processes);
    return status;
}

static int post_notice_receive(struct clv_mpi_world *state)
{
    int code = state->job->mpi->receive(&state->notice_request, state->comm, &state->notice, sizeof state->notice,
                                        CLV_MPI_ANY_SOURCE, 0);
    state->listening = code == 0;
    return code;
}

static clv_status start_listening(struct clv_mpi_world *state, clv_error *err)
{
    pthread_mutex_lock(&state->job->lock);
    int code = post_notice_receive(state);
    pthread_mutex_unlock(&state->job->lock);
    return code == 0 ? CLV_OK : clv_job_fail_mpi(state->job, code, "making a session", err);
}

bool clv_mpi_receive_notices(struct clv_mpi_world *state)
{
    int done = 0;
    bool failed = false;
    while (state->listening && state->job->mpi->test(&state->notice_request, &done) == 0 && done) {
        bool ours = state->notice.world == state->number; /* a late notice may be of a world that is closed */
        state->goodbyes += ours && state->notice.is_goodbye;
        if (ours && !state->notice.is_goodbye && !failed) {
            state->failure = state->notice.failure;
            failed = true;
        }
        (void)post_notice_receive(state);
    }
    return failed;
}

clv_status clv_mpi_open(clv_world *world, const clv_process_links *links, clv_error *err)
{
    size_t ranks = (size_t)world->ranks;
    if (!links || !links->job)
        return clv_fail(err, CLV_EINVAL, "the transport 'mpi' is for sessions of a job (clv_session_options.job)");
    clv_job *job = links->job;
    if (world->processes != job->info.processes || world->me != job->info.process)
        return clv_fail(err, CLV_EINVAL,
                        "the ranks are those of process %d of %d; the job has %d processes, and this is %d", world->me,
                        world->processes, job->info.processes, job->info.process);
    if (job->poisoned)
        return clv_job_fail_poisoned(job, err);
    world->mpi = calloc(1, sizeof *world->mpi);
    if (!world->mpi)
        return clv_fail_memory(err, "a world's state", sizeof *world->mpi);
    world->mpi->job = job;
    pthread_mutex_init(&world->mpi->progress.lock, NULL);
    pthread_cond_init(&world->mpi->progress.changed, NULL);
    pthread_mutex_lock(&job->lock);
    job->n_worlds++;
    pthread_mutex_unlock(&job->lock);
    world->mpi->running = calloc(ranks, sizeof *world->mpi->running);
    world->mpi->peer_what = calloc(ranks, sizeof *world->mpi->peer_what);
    if (!world->mpi->running || !world->mpi->peer_what)
        return clv_fail_memory(err, "a world's state", ranks * sizeof *world->mpi->peer_what);
    CLV_TRY(find_tags(world->mpi, world, err));
    if (clv_job_core_share(job) < world->mpi->max_local_ranks)
        world->spins = 0; /* waiters let others run */
    CLV_TRY(rendezvous(world, err));
    CLV_TRY(copy_comm(world, err));
    CLV_TRY(start_listening(world->mpi, err));
    CLV_TRY(clv_mpi_open_shm(world, err));
    clv_control_add_world(job->control, world);
    return CLV_OK;
}

void clv_mpi_broadcast_notice(clv_world *world, const clv_mpi_notice *notice)
{
    struct clv_mpi_world *state = world->mpi;
    if (!state->notice_sends)
        state->notice_sends = calloc(2 * (size_t)world->processes, sizeof *state->notice_sends);
    for (int p = 0; state->notice_sends && p < world->processes; p++)
        if (p != world->me)
            state->n_notice_sends += state->job->mpi->send(&state->notice_sends[state->n_notice_sends], state->comm,
                                                           notice, sizeof *notice, p, 0) == 0;
}

void clv_mpi_notify_failure(clv_world *world, const clv_error *error)
{
    struct clv_mpi_world *state = world->mpi;
    clv_control_notify_failure(state->job->control, state->number, error);
    pthread_mutex_lock(&state->job->lock);
    if (state->has_comm && !state->has_notified && !state->job->poisoned) {
        state->failure_notice = (clv_mpi_notice){.world = state->number, .failure = *error};
        clv_mpi_broadcast_notice(world, &state->failure_notice);
        state->has_notified = true;
    }
    pthread_mutex_unlock(&state->job->lock);
}

void clv_mpi_query_progress(clv_world *world, int group_set, clv_rank_progress *all)
{
    clv_control_query_progress(world->mpi->job->control, world, group_set, all);
}

void clv_mpi_describe_process(char *out, size_t size, const clv_world *world, int rank)
{
    clv_job_describe_process(out, size, world->mpi->job, clv_world_process_of(world, rank));
}

bool clv_mpi_poll_failure(clv_world *world)
{
    clv_job *job = world->mpi->job;
    pthread_mutex_lock(&job->lock);
    bool failed = !job->poisoned && clv_mpi_receive_notices(world->mpi);
    clv_error error = world->mpi->failure;
    pthread_mutex_unlock(&job->lock);
    error.op[sizeof error.op - 1] = error.message[sizeof error.message - 1] = '\0';
    if (failed)
        clv_world_record_remote_failure(world, &error);
    return failed;
}

clv_status clv_mpi_check_peer(const clv_mpi_prepared_collective *prepared, int member, bool same_phase, uint64_t tag,
                              const char *what, int64_t expected, int64_t bytes, clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    const clv_group *group = prepared->base.group;
    if (same_phase && tag == prepared->desc.tag && strncmp(what, prepared->desc.what, CLV_MPI_NAME_BYTES - 1) == 0)
        return bytes == expected
                   ? CLV_OK
                   : clv_world_fail_wrong_size(comm, group, &prepared->desc, member, expected, bytes, err);
    char *copy = comm->world->mpi->peer_what[comm->rank];
    snprintf(copy, CLV_MPI_NAME_BYTES, "%.*s", CLV_MPI_NAME_BYTES - 1, what);
    return clv_world_fail_mismatch(comm, group, comm->rank, &prepared->desc, group->ranks[member],
                                   &(clv_collective_desc){.what = copy, .tag = tag}, err);
}
