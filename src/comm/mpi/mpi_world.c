/* mpi_world.c - opens a world over MPI (rendezvous, own communicator) and exchanges failure notices between
 * processes.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/hash.h"
#include "comm/mpi/mpi_world.h"

#define COPY_NS INT64_C(30000000000)

static clv_status find_tags(struct clv_mpi_world *wire, const clv_world *world, clv_error *err)
{
    int most = wire->job->place.most_tag;
    for (int p = 0; p < world->processes; p++) {
        int n = world->firsts[p + 1] - world->firsts[p];
        wire->widest = n > wire->widest ? n : wire->widest;
    }
    wire->sets = (int)((most - 1) / ((int64_t)wire->widest * wire->widest));
    if (wire->sets >= 1)
        return CLV_OK;
    return clv_fail(err, CLV_ELIMIT, "a process has %d ranks, and this MPI has tags for fewer: no more than %d in all",
                    wire->widest, most);
}

/* All processes make this world; it is numbered as their meeting is. */
static clv_status rendezvous(clv_world *world, clv_error *err)
{
    const clv_job_rendezvous_info mine = {
        .ranks = world->ranks,
        .spread = clv_hash_bytes(world->firsts, (size_t)(world->processes + 1) * sizeof *world->firsts)};
    return clv_job_rendezvous(&world->mpi->number, world->mpi->job, &mine, world->timeout_ns, err);
}

/* All are here. */
static clv_status copy_comm(clv_world *world, clv_error *err)
{
    struct clv_mpi_world *wire = world->mpi;
    clv_job *job = wire->job;
    clv_deadline deadline = clv_deadline_after(COPY_NS);
    clv_mpi_request request;
    int ended = 0;
    pthread_mutex_lock(&job->lock);
    int code = job->mpi->copy(&request, &wire->comm, job->comm);
    pthread_mutex_unlock(&job->lock);
    clv_status status = code == 0 ? clv_job_wait_requests(job, &request, &ended, 1, false, &deadline, err)
                                  : clv_job_fail_mpi(job, code, "making a session", err);
    wire->has_comm = status == CLV_OK;
    if (status == CLV_OK)
        return CLV_OK;
    job->broken = 1; /* a collective cannot be called back */
    if (status == CLV_ETIMEOUT)
        return clv_fail(err, status, "process %d waited %d s for MPI to make a communicator of all %d processes",
                        world->me, (int)(COPY_NS / 1000000000), world->processes);
    return status;
}

static int listen(struct clv_mpi_world *wire)
{
    int code = wire->job->mpi->receive(&wire->notice_request, wire->comm, &wire->heard, sizeof wire->heard,
                                       CLV_MPI_ANY_SOURCE, 0);
    wire->listens = code == 0;
    return code;
}

static clv_status post_notice_receive(struct clv_mpi_world *wire, clv_error *err)
{
    pthread_mutex_lock(&wire->job->lock);
    int code = listen(wire);
    pthread_mutex_unlock(&wire->job->lock);
    return code == 0 ? CLV_OK : clv_job_fail_mpi(wire->job, code, "making a session", err);
}

/* Under the lock: whether another process told of a failure. */
bool clv_mpi_receive_notices(struct clv_mpi_world *wire)
{
    int done = 0;
    bool failed = false;
    while (wire->listens && wire->job->mpi->test(&wire->notice_request, &done) == 0 && done) {
        bool ours = wire->heard.world == wire->number; /* one that was late may speak of a world that is gone */
        wire->goodbyes += ours && wire->heard.is_goodbye;
        if (ours && !wire->heard.is_goodbye && !failed) {
            wire->failure = wire->heard.failure;
            failed = true;
        }
        (void)listen(wire);
    }
    return failed;
}

clv_status clv_mpi_open(clv_world *world, const clv_process_links *links, clv_error *err)
{
    size_t ranks = (size_t)world->ranks;
    if (!links || !links->job)
        return clv_fail(err, CLV_EINVAL, "the transport 'mpi' is for sessions of a job (clv_session_options.job)");
    clv_job *job = links->job;
    if (world->processes != job->place.processes || world->me != job->place.process)
        return clv_fail(err, CLV_EINVAL,
                        "the ranks are those of process %d of %d; the job has %d processes, and this is %d", world->me,
                        world->processes, job->place.processes, job->place.process);
    if (job->broken)
        return clv_job_fail_broken(job, err);
    world->mpi = calloc(1, sizeof *world->mpi);
    if (!world->mpi)
        return clv_fail_memory(err, "a world's wire", sizeof *world->mpi);
    world->mpi->job = job;
    pthread_mutex_init(&world->mpi->progress.lock, NULL);
    pthread_cond_init(&world->mpi->progress.changed, NULL);
    pthread_mutex_lock(&job->lock);
    job->worlds++;
    pthread_mutex_unlock(&job->lock);
    world->mpi->running = calloc(ranks, sizeof *world->mpi->running);
    world->mpi->said = calloc(ranks, sizeof *world->mpi->said);
    if (!world->mpi->running || !world->mpi->said)
        return clv_fail_memory(err, "a world's wire", ranks * sizeof *world->mpi->said);
    CLV_TRY(find_tags(world->mpi, world, err));
    if (clv_job_core_share(job) < world->mpi->widest)
        world->spins = 0; /* who waits lets others run */
    CLV_TRY(rendezvous(world, err));
    CLV_TRY(copy_comm(world, err));
    CLV_TRY(post_notice_receive(world->mpi, err));
    CLV_TRY(clv_mpi_open_shm(world, err));
    clv_control_add_world(job->control, world);
    return CLV_OK;
}

void clv_mpi_broadcast_notice(clv_world *world, const clv_mpi_notice *said)
{
    struct clv_mpi_world *wire = world->mpi;
    if (!wire->notice_sends)
        wire->notice_sends = calloc(2 * (size_t)world->processes, sizeof *wire->notice_sends);
    for (int p = 0; wire->notice_sends && p < world->processes; p++)
        if (p != world->me)
            wire->n_notice_sends += wire->job->mpi->send(&wire->notice_sends[wire->n_notice_sends], wire->comm, said,
                                                         sizeof *said, p, 0) == 0;
}

void clv_mpi_notify_failure(clv_world *world, const clv_error *error)
{
    struct clv_mpi_world *wire = world->mpi;
    if (wire->board)
        clv_shm_publish_failure(wire->board, error);
    clv_control_notify_failure(wire->job->control, wire->number, error);
    pthread_mutex_lock(&wire->job->lock);
    if (wire->has_comm && !wire->has_notified && !wire->job->broken) {
        wire->told = (clv_mpi_notice){.world = wire->number, .failure = *error};
        clv_mpi_broadcast_notice(world, &wire->told);
        wire->has_notified = true;
    }
    pthread_mutex_unlock(&wire->job->lock);
}

void clv_mpi_query_progress(clv_world *world, int set, clv_rank_progress *all)
{
    clv_control_query_progress(world->mpi->job->control, world, set, all);
}

void clv_mpi_describe_process(char *out, size_t size, const clv_world *world, int rank)
{
    clv_job_describe_process(out, size, world->mpi->job, clv_world_process_of(world, rank));
}

bool clv_mpi_poll_failure(clv_world *world)
{
    clv_job *job = world->mpi->job;
    pthread_mutex_lock(&job->lock);
    bool failed = !job->broken && clv_mpi_receive_notices(world->mpi);
    clv_error error = world->mpi->failure;
    pthread_mutex_unlock(&job->lock);
    error.op[sizeof error.op - 1] = error.message[sizeof error.message - 1] = '\0';
    if (failed)
        clv_world_record_failure(world, &error);
    return failed;
}
