/* state_reload.c - reload of session state in place from a source, each rank its own shard (checkpoint restore). */
#include <stdlib.h>

#include "base/error.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/session_internal.h"

typedef struct reload_job {
    const clv_session *session;
    clv_state_source *source;
    void *source_arg;
    clv_error *failures; /* [n_local_ranks]; a rank that cannot read has not failed: the session goes on */
} reload_job;

static clv_status reload_into(const reload_job *job, const clv_named_state *state, int rank, void *data, clv_error *err)
{
    const clv_session *session = job->session;
    clv_shard shard = clv_layout_shard(&state->layout, &session->mesh, state->type.shape, rank);
    int known = 0;
    if (clv_cancel_requested(session->cancel))
        return clv_fail(err, CLV_ECANCELLED, "loading was cancelled before %s", state->name);
    CLV_TRY(job->source(job->source_arg, state->name, &state->type, &shard, data, &known, err));
    return known ? CLV_OK : clv_fail(err, CLV_ENOTFOUND, "state '%.100s' is not there", state->name);
}

static clv_status reload_state(const reload_job *job, const clv_named_state *state, int rank, clv_error *err)
{
    int i = rank - job->session->first_local_rank;
    const clv_device *device = job->session->devices[i];
    if (device->backend->is_host)
        return reload_into(job, state, rank, state->data[i], err);
    int64_t bytes = clv_shard_bytes(&state->type, &state->layout);
    void *host = clv_staging_alloc(bytes > 0 ? bytes : 1);
    if (!host)
        return clv_fail_memory(err, "the values of a state", (size_t)bytes);
    clv_status status = reload_into(job, state, rank, host, err);
    if (status == CLV_OK)
        status = clv_device_copy_bytes(device, CLV_COPY_FROM_HOST, state->data[i], host, bytes, err);
    free(host);
    return status;
}

static clv_status reload_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    (void)comm, (void)err;
    const reload_job *job = arg;
    clv_error *why = &job->failures[rank - job->session->first_local_rank];
    for (int i = 0; i < job->session->n_states && why->code == CLV_OK; i++) {
        clv_status status = reload_state(job, &job->session->states[i], rank, why);
        if (status != CLV_OK && why->code == CLV_OK)
            why->code = status;
    }
    return CLV_OK;
}

static clv_status reload(const clv_session *session, clv_state_source *source, void *source_arg, clv_error *err)
{
    reload_job job = {.session = session, .source = source, .source_arg = source_arg};
    job.failures = calloc((size_t)session->n_local_ranks, sizeof *job.failures);
    if (!job.failures)
        return clv_fail_memory(err, "the values of state", (size_t)session->n_local_ranks * sizeof *job.failures);
    clv_status status = clv_rank_threads_run(session->team, reload_rank, &job, err);
    for (int i = 0; status == CLV_OK && i < session->n_local_ranks; i++) {
        status = job.failures[i].code;
        if (status != CLV_OK && err)
            *err = job.failures[i];
    }
    free(job.failures);
    return status;
}

clv_status clv_session_reload_local(clv_session *session, clv_state_source *source, void *source_arg, clv_error *err)
{
    CLV_TRY(clv_session_acquire(session, "clv_session_reload", err));
    clv_status status = reload(session, source, source_arg, err);
    clv_session_release(session);
    return status;
}
