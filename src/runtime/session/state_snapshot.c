/* state_snapshot.c - copies session state so that a checkpoint is saved in the background; reloads state in place. */
#include "base/hardware/resource_limits.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/session_internal.h"

/* ---- tasks that may fail without poisoning the session ---- */

typedef struct rank_task {
    const clv_session *session;
    clv_status (*run)(const struct rank_task *task, int rank, clv_error *err);
    const clv_session *snapshot; /* of a snapshot */
    clv_state_values from;       /* of a reload */
    clv_error *failures;         /* [n_local_ranks] */
} rank_task;

static clv_status run_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    const rank_task *task = arg;
    clv_error *why = &task->failures[rank - task->session->first_local_rank];
    why->code = task->run(task, rank, why);
    return CLV_OK;
}

/* Runs the task on every local rank; a failure is that of the first rank that failed. */
static clv_status run_task(rank_task task, const char *what, clv_error *err)
{
    const clv_session *session = task.session;
    task.failures = calloc((size_t)session->n_local_ranks, sizeof *task.failures);
    if (!task.failures)
        return clv_fail_memory(err, what, (size_t)session->n_local_ranks * sizeof *task.failures);
    clv_status status = clv_rank_threads_run(session->team, run_rank, &task, err);
    for (int i = 0; status == CLV_OK && i < session->n_local_ranks; i++) {
        status = task.failures[i].code;
        if (status != CLV_OK && err)
            *err = task.failures[i];
    }
    free(task.failures);
    return status;
}

/* ---- reload ---- */

static clv_status reload_rank(const rank_task *task, int rank, clv_error *err)
{
    for (int i = 0; i < task->session->n_states; i++) {
        const clv_named_state *state = &task->session->states[i];
        const clv_state_values from = {task->from.source, task->from.source_arg, state->name, NULL};
        CLV_TRY(clv_session_fill_state(task->session, state, &from, rank, err));
    }
    return CLV_OK;
}

clv_status clv_session_reload_local(clv_session *session, clv_state_source *source, void *source_arg, clv_error *err)
{
    const rank_task task = {.session = session, .run = reload_rank, .from = {source, source_arg, NULL, NULL}};
    CLV_TRY(clv_session_try_lock(session, "clv_session_reload", err));
    clv_status status = run_task(task, "the values of state", err);
    clv_session_unlock(session);
    return status;
}

/* ---- snapshot ---- */

/* Memory that is granted beyond what is available would kill the process when it is filled. */
static clv_status check_available_memory(const clv_session *session, clv_state_filter *wants, const void *arg,
                                         clv_error *err)
{
    int64_t bytes = 0, available = clv_available_memory();
    for (int k = 0; k < session->n_states; k++) {
        const clv_named_state *state = &session->states[k];
        int first = session->first_local_rank;
        for (int r = first; wants(arg, state->name) && r < first + session->n_local_ranks; r++)
            if (clv_rank_is_first_replica(&state->layout, &session->mesh, state->type.shape, r))
                bytes += clv_largest_shard_bytes(&state->type, &state->layout);
    }
    return available < 0 || bytes <= available ? CLV_OK : clv_fail_memory(err, "a copy of state", (size_t)bytes);
}

/* A session without a team, so nothing can run in it; all memory is the host's. */
static clv_status new_snapshot(clv_session **out, const clv_session *session, clv_error *err)
{
    clv_session *snapshot = calloc(1, sizeof *snapshot);
    if (!snapshot)
        return clv_fail_memory(err, "a copy of state", sizeof *snapshot);
    *out = snapshot;
    snapshot->mesh = session->mesh;
    snapshot->n_ranks = session->n_ranks;
    snapshot->first_local_rank = session->first_local_rank;
    snapshot->n_local_ranks = session->n_local_ranks;
    snapshot->backend = clv_device_host.backend;
    snapshot->in_use = calloc(1, sizeof *snapshot->in_use);
    snapshot->devices = calloc((size_t)session->n_local_ranks, sizeof *snapshot->devices);
    snapshot->states = calloc((size_t)session->n_states + 1, sizeof *snapshot->states);
    if (!snapshot->in_use || !snapshot->states || !snapshot->devices)
        return clv_fail_memory(err, "a copy of state", (size_t)session->n_states * sizeof *snapshot->states);
    for (int i = 0; i < session->n_local_ranks; i++)
        snapshot->devices[i] = &clv_device_host;
    return CLV_OK;
}

static clv_status make_states(clv_session *snapshot, const clv_session *session, clv_state_filter *wants,
                              const void *arg, clv_error *err)
{
    CLV_TRY(check_available_memory(session, wants, arg, err));
    for (int i = 0; i < session->n_states; i++) {
        const clv_named_state *state = &session->states[i];
        if (!wants(arg, state->name))
            continue;
        CLV_TRY(clv_session_allocate_state(&snapshot->states[snapshot->n_states], snapshot, state->name, &state->type,
                                           &state->layout, true, err));
        snapshot->n_states++;
    }
    return CLV_OK;
}

static clv_status copy_rank(const rank_task *task, int rank, clv_error *err)
{
    int i = rank - task->session->first_local_rank;
    for (int k = 0; k < task->snapshot->n_states; k++) {
        const clv_named_state *to = &task->snapshot->states[k];
        clv_shard shard = clv_layout_shard(&to->layout, &task->session->mesh, to->type.shape, rank);
        clv_named_state *from;
        if (!to->data[i])
            continue;
        CLV_TRY(clv_session_find_state(&from, task->session, to->name, err));
        CLV_TRY(clv_device_copy_bytes(task->session->devices[i], CLV_COPY_TO_HOST, to->data[i], from->data[i],
                                      clv_shard_elems(&shard) * (int64_t)clv_dtype_size(to->type.dtype), err));
    }
    return CLV_OK;
}

clv_status clv_session_snapshot(clv_session **out, const clv_session *session, clv_state_filter *wants, const void *arg,
                                clv_error *err)
{
    clv_session *snapshot = NULL;
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    clv_status status = new_snapshot(&snapshot, session, err);
    if (status == CLV_OK)
        status = make_states(snapshot, session, wants, arg, err);
    const rank_task task = {.session = session, .run = copy_rank, .snapshot = snapshot};
    if (status == CLV_OK)
        status = run_task(task, "a copy of state", err);
    clv_session_unlock(session);
    if (status == CLV_OK)
        *out = snapshot;
    else
        clv_session_free(snapshot);
    return status;
}
