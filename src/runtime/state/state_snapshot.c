/* state_snapshot.c - copies session state so that a checkpoint is saved in the background. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hardware/resource_limits.h"
#include "base/memory/aligned_memory.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/session_internal.h"

/* ---- room ---- */

void clv_session_snapshot_free(clv_session *capture)
{
    if (!capture)
        return;
    for (int i = 0; i < capture->n_states; i++) {
        clv_named_state *state = &capture->states[i];
        for (int r = 0; state->data && r < capture->here; r++)
            free(state->data[r]);
        free(state->data);
        free(state->name);
    }
    free(capture->states);
    free(capture->in_use);
    free(capture);
}

static bool copies(const clv_session *session, const clv_named_state *state, int i)
{
    return clv_rank_is_first_replica(&state->layout, &session->mesh, state->type.shape, session->first + i);
}

static clv_status make_state(clv_named_state *out, const clv_session *session, const clv_named_state *state,
                             clv_error *err)
{
    size_t bytes = (size_t)clv_shard_bytes(&state->type, &state->layout);
    *out = (clv_named_state){.name = strdup(state->name), .type = state->type, .layout = state->layout};
    out->data = calloc((size_t)session->here, sizeof *out->data);
    if (!out->name || !out->data)
        return clv_fail_memory(err, "a copy of state", (size_t)session->here * sizeof *out->data);
    for (int i = 0; i < session->here; i++) {
        if (!copies(session, state, i))
            continue;
        out->data[i] = clv_huge_pages_alloc(CLV_BUFFER_ALIGN, bytes > 0 ? bytes : CLV_BUFFER_ALIGN);
        if (!out->data[i])
            return clv_fail_memory(err, "a copy of state", bytes);
    }
    return CLV_OK;
}

/* Filling what is granted beyond what there is would end the process. */
static clv_status check_room(const clv_session *session, clv_state_filter *wants, const void *arg, clv_error *err)
{
    int64_t bytes = 0, available = clv_available_memory();
    for (int k = 0; k < session->n_states; k++) {
        const clv_named_state *state = &session->states[k];
        for (int i = 0; wants(arg, state->name) && i < session->here; i++)
            bytes += copies(session, state, i) ? clv_shard_bytes(&state->type, &state->layout) : 0;
    }
    return available < 0 || bytes <= available ? CLV_OK : clv_fail_memory(err, "a copy of state", (size_t)bytes);
}

static clv_status make_states(clv_session *capture, const clv_session *session, clv_state_filter *wants,
                              const void *arg, clv_error *err)
{
    for (int i = 0; i < session->n_states; i++) {
        const clv_named_state *state = &session->states[i];
        if (!wants(arg, state->name))
            continue;
        CLV_TRY(make_state(&capture->states[capture->n_states++], session, state, err));
        capture->rank_bytes += clv_shard_bytes(&state->type, &state->layout);
    }
    return CLV_OK;
}

/* No team and no devices: nothing can run, and all is the host's. */
static clv_status make_capture(clv_session **out, const clv_session *session, clv_error *err)
{
    clv_session *capture = calloc(1, sizeof *capture);
    if (!capture)
        return clv_fail_memory(err, "a copy of state", sizeof *capture);
    *out = capture;
    capture->mesh = session->mesh;
    capture->n_ranks = session->n_ranks;
    capture->first = session->first;
    capture->here = session->here;
    capture->in_use = calloc(1, sizeof *capture->in_use);
    capture->states = calloc((size_t)session->n_states + 1, sizeof *capture->states);
    if (!capture->in_use || !capture->states)
        return clv_fail_memory(err, "a copy of state", (size_t)session->n_states * sizeof *capture->states);
    return CLV_OK;
}

/* ---- copying ---- */

typedef struct capture_job {
    const clv_session *session;
    const clv_session *capture;
    clv_error *failures; /* [here]; a rank that cannot copy has not failed: the session goes on */
} capture_job;

static clv_status copy_state(const capture_job *job, const clv_named_state *to, int i, clv_error *err)
{
    clv_named_state *from;
    clv_shard shard = clv_layout_shard(&to->layout, &job->session->mesh, to->type.shape, job->session->first + i);
    int64_t bytes = clv_shard_elems(&shard) * (int64_t)clv_dtype_size(to->type.dtype);
    CLV_TRY(clv_session_find_state(&from, job->session, to->name, err));
    return clv_device_copy_bytes(job->session->devices[i], CLV_COPY_TO_HOST, to->data[i], from->data[i], bytes, err);
}

/* A clv_rank_fn. */
static clv_status copy_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    (void)comm, (void)err;
    const capture_job *job = arg;
    int i = rank - job->session->first;
    clv_status status = CLV_OK;
    for (int k = 0; status == CLV_OK && k < job->capture->n_states; k++)
        if (job->capture->states[k].data[i])
            status = copy_state(job, &job->capture->states[k], i, &job->failures[i]);
    job->failures[i].code = status;
    return CLV_OK;
}

static clv_status copy_states(const clv_session *capture, const clv_session *session, clv_error *err)
{
    capture_job job = {.session = session, .capture = capture};
    job.failures = calloc((size_t)session->here, sizeof *job.failures);
    if (!job.failures)
        return clv_fail_memory(err, "a copy of state", (size_t)session->here * sizeof *job.failures);
    clv_status status = clv_rank_threads_run(session->team, copy_rank, &job, err);
    for (int i = 0; status == CLV_OK && i < session->here; i++) {
        status = job.failures[i].code;
        if (status != CLV_OK && err)
            *err = job.failures[i];
    }
    free(job.failures);
    return status;
}

clv_status clv_session_snapshot(clv_session **out, const clv_session *session, clv_state_filter *wants, const void *arg,
                                clv_error *err)
{
    clv_session *capture = NULL;
    CLV_TRY(clv_session_acquire(session, "clv_session_snapshot", err));
    clv_status status = make_capture(&capture, session, err);
    if (status == CLV_OK)
        status = check_room(session, wants, arg, err);
    if (status == CLV_OK)
        status = make_states(capture, session, wants, arg, err);
    if (status == CLV_OK)
        status = copy_states(capture, session, err);
    clv_session_release(session);
    if (status == CLV_OK)
        *out = capture;
    else
        clv_session_snapshot_free(capture);
    return status;
}
