/* session.c - session: creates ranks, runs programs, binds inputs and outputs, keeps statistics. */
#include <stdio.h>

#include "base/hash.h"
#include "base/threads/wait.h"
#include "comm/job/mpi_job.h"
#include "comm/comm.h"
#include "kernels/cpu/gemm/gemm.h"
#include "runtime/checks/memory_check.h"
#include "runtime/diagnostics/trace_recorder.h"
#include "runtime/multi_process/multi_process.h"
#include "runtime/session/run_bindings.h"
#include "runtime/spmd/spmd_internal.h"

/* ---- opening and closing ---- */

/* One group of all ranks, for moving state. */
static clv_status add_group_of_all_ranks(clv_session *session, clv_error *err)
{
    clv_world *world = clv_rank_threads_world(session->team);
    int *all_one = calloc((size_t)session->n_ranks, sizeof *all_one);
    clv_status status = all_one ? clv_world_add_groups(&session->all_ranks_set, world, all_one, NULL, err)
                                : clv_fail_memory(err, "a group", (size_t)session->n_ranks * sizeof *all_one);
    session->transport = clv_world_transport(world);
    free(all_one);
    return status;
}

/* Checks that read tensors need them in host memory. */
static clv_status check_device(const clv_device_backend *backend, const clv_session_options *options, clv_error *err)
{
    if (backend->is_host || (!options->check && !options->find_nonfinite))
        return CLV_OK;
    return clv_fail(err, CLV_EUNSUPPORTED, "a session on the device '%s' cannot %s; valid: without, or the device '%s'",
                    backend->name, options->check ? "check" : "find_nonfinite", clv_device_cpu.name);
}

/* Spreads the ranks of a mesh in blocks over the processes of a job; first: [processes + 1]. */
static clv_status assign_ranks(clv_process_links *out, int *first, const clv_mesh *mesh, clv_job *job, clv_error *err)
{
    int64_t ranks = clv_mesh_rank_count(mesh), n = clv_job_process_count(job);
    if (ranks < n)
        return clv_fail(err, CLV_EINVAL,
                        "a mesh of %lld ranks for a job of %lld processes; valid: a rank for each, or more",
                        (long long)ranks, (long long)n);
    for (int64_t p = 0; p <= n; p++)
        first[p] = (int)(p * ranks / n);
    *out = (clv_process_links){.processes = (int)n,
                               .me = clv_job_process_index(job),
                               .first = first,
                               .job = job,
                               .cores = clv_job_core_count(job)};
    return CLV_OK;
}

static clv_status new_session_in_job(clv_session **out, const clv_mesh *mesh, clv_session_options *o, clv_error *err)
{
    clv_process_links links;
    size_t n = (size_t)clv_job_process_count(o->job) + 1;
    if (o->transport && strcmp(o->transport, "mpi") != 0)
        return clv_fail(err, CLV_EINVAL, "the transport '%.40s' for a job; valid: 'mpi', or NULL", o->transport);
    o->transport = "mpi";
    CLV_TRY(clv_mesh_check(mesh, err));
    CLV_FREED int *first = malloc(n * sizeof *first);
    if (!first)
        return clv_fail_memory(err, "a job's ranks", n * sizeof *first);
    CLV_TRY(assign_ranks(&links, first, mesh, o->job, err));
    return clv_session_new_with_links(out, mesh, o, &links, err);
}

clv_status clv_session_new(clv_session **out, const clv_mesh *mesh, const clv_session_options *options, clv_error *err)
{
    clv_session_options o;
    CLV_TRY(clv_require(out && mesh, __func__, "out and a mesh", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    if (!o.job)
        return clv_session_new_with_links(out, mesh, &o, NULL, err);
    uint64_t met = o.job->rendezvous_count;
    clv_error why = {0};
    clv_status status = new_session_in_job(out, mesh, &o, &why);
    if (status != CLV_OK && o.job->rendezvous_count == met) /* other processes wait for this one, which failed before */
        (void)clv_job_agree(o.job, status, &why);
    if (status != CLV_OK && err && err->code == CLV_OK)
        *err = why;
    return status;
}

clv_status clv_session_new_with_links(clv_session **out, const clv_mesh *mesh, const clv_session_options *o,
                                      const clv_process_links *links, clv_error *err)
{
    CLV_TRY(clv_mesh_check(mesh, err));
    const clv_device_backend *backend;
    CLV_TRY(clv_device_find(&backend, o->device, err));
    CLV_TRY(check_device(backend, o, err));
    CLV_TRY(clv_gemm_jit_compile(err));
    clv_session *session = calloc(1, sizeof *session);
    if (!session)
        return clv_fail_memory(err, "a session", sizeof *session);
    session->mesh = *mesh;
    session->n_ranks = (int)clv_mesh_rank_count(mesh);
    session->options = *o;
    session->options.threads_per_rank = o->threads_per_rank > 0 ? o->threads_per_rank : 1;
    session->n_local_ranks = links ? links->first[links->me + 1] - links->first[links->me] : session->n_ranks;
    session->first_local_rank = links ? links->first[links->me] : 0;
    session->backend = backend;
    session->devices = calloc((size_t)session->n_local_ranks, sizeof *session->devices);
    session->times = calloc((size_t)session->n_local_ranks, sizeof *session->times);
    clv_rank_threads_options team = {.threads_per_rank = o->threads_per_rank,
                                     .pin = o->no_pinning ? 0 : -1,
                                     .timeout_ms = o->timeout_ms,
                                     .transport = o->transport,
                                     .seed = o->seed,
                                     .links = links};
    session->abandoned = calloc(1, sizeof *session->abandoned);
    session->in_use = calloc(1, sizeof *session->in_use);
    clv_status status =
        session->times && session->abandoned && session->devices && session->in_use
            ? clv_rank_threads_new(&session->team, session->n_ranks, &team, err)
            : clv_fail_memory(err, "the ranks of a session", (size_t)session->n_local_ranks * sizeof *session->times);
    for (int i = 0; status == CLV_OK && i < session->n_local_ranks; i++)
        status = backend->open(&session->devices[i], i, err);
    if (status == CLV_OK)
        status = add_group_of_all_ranks(session, err);
    if (status != CLV_OK) {
        clv_session_free(session);
        return status; /* NOLINT(clang-analyzer-unix.Malloc): memory that a late rank may touch is left */
    }
    session->run = o->job ? o->job->id : links ? 0 : clv_unique_id();
    *out = session;
    return CLV_OK;
}

void clv_session_free(clv_session *session)
{
    if (!session)
        return;
    if (session->team)
        clv_flight_dump_on_end(session);
    /* After a time-out a late rank may still write to the session's memory, which then leaks. */
    if (session->team && clv_rank_threads_free(session->team, NULL) != CLV_OK)
        return;
    for (int i = 0; i < session->n_loaded; i++)
        clv_loaded_program_free(session->loaded[i]);
    free(session->loaded);
    clv_session_free_abandoned(session);
    clv_session_free_states(session);
    free(session->abandoned);
    clv_spmd_context_free(session->spmd);
    clv_trace_recorder_free(session->tracer);
    for (int i = 0; session->devices && session->backend->close && i < session->n_local_ranks; i++)
        if (session->devices[i])
            session->backend->close(session->devices[i]);
    free(session->devices);
    free(session->times);
    free(session->in_use);
    free(session);
}

int64_t clv_session_rank_bytes(const clv_session *session)
{
    int64_t most = 0;
    for (int r = 0; session && r < session->n_ranks; r++) {
        int64_t bytes = 0;
        for (int s = 0; s < session->n_states; s++)
            if (clv_layout_has_rank(&session->states[s].layout, &session->mesh, r))
                bytes += clv_largest_shard_bytes(&session->states[s].type, &session->states[s].layout);
        for (int i = 0; i < session->n_loaded; i++) {
            const clv_program *program = session->loaded[i]->program;
            bytes += clv_program_stage_region_bytes(program, clv_program_stage_of(program, r));
        }
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- loading ---- */

/* A cancellation before the call began does not poison the session. */
static clv_status check_cancelled(const clv_session *session, clv_error *err)
{
    if (clv_cancel_requested(session->options.cancel))
        return clv_fail(err, CLV_ECANCELLED, "cancelled before it began");
    return CLV_OK;
}

clv_status clv_session_load(clv_session *session, const clv_program *program, clv_error *err)
{
    CLV_TRY(clv_require(session && program, __func__, "a session and a program", err));
    clv_loaded_program *loaded;
    clv_error why = {.rank = -1};
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    clv_status status = check_cancelled(session, &why);
    if (status == CLV_OK)
        status = clv_session_find_or_load(&loaded, session, program, &why);
    clv_session_unlock(session);
    return clv_session_finish_call(session, __func__, status, &why, err);
}

void clv_session_unload(clv_session *session, const clv_program *program)
{
    if (!session || !program || clv_session_try_lock(session, __func__, NULL) != CLV_OK)
        return;
    int kept = 0;
    clv_world_copy_names(clv_rank_threads_world(session->team));
    for (int i = 0; i < session->n_loaded; i++) {
        if (session->loaded[i]->program != program) {
            session->loaded[kept++] = session->loaded[i];
            continue;
        }
        clv_loaded_program_free(session->loaded[i]);
        if (session->tracer)
            clv_trace_recorder_forget(session->tracer, program);
    }
    session->n_loaded = kept;
    clv_session_unlock(session);
}

/* ---- running ---- */

typedef struct run_job {
    clv_session *session;
    const clv_loaded_program *loaded;
    const clv_run *run;
    clv_rank_trace *traces; /* [n_local_ranks]; NULL: the run is not recorded */
} run_job;

/* Copies between the boxes bound to a tensor and a rank's shard of it. */
static clv_status copy_boxes(const run_job *job, int rank, clv_binding_kind kind, const char *name, int b,
                             clv_error *err)
{
    const clv_buffer *buffer = &job->loaded->program->buffers[b];
    const clv_device *device = job->session->devices[rank - job->session->first_local_rank];
    clv_shard shard = clv_layout_shard(&buffer->layout, &job->session->mesh, buffer->type.shape, rank);
    void *data = clv_loaded_program_view(job->loaded, rank, b)->data;
    size_t size = clv_dtype_size(buffer->type.dtype);
    clv_bound_box bound;
    if (!clv_layout_has_rank(&buffer->layout, &job->session->mesh, rank)) /* a scalar has no empty shard */
        return CLV_OK;
    for (int i = 0; clv_run_next_box(&bound, &i, job->run, kind, name, &buffer->type);) {
        clv_shard both = clv_shard_intersect(&shard, &bound.box);
        if (kind == CLV_BOUND_INPUTS)
            CLV_TRY(device->backend->copy(device, CLV_COPY_FROM_HOST, data, &shard, bound.data, &bound.box, &both, size,
                                          err));
        else
            CLV_TRY(device->backend->copy(device, CLV_COPY_TO_HOST, bound.data, &bound.box, data, &shard, &both, size,
                                          err));
    }
    return CLV_OK;
}

static clv_status bind_inputs(const run_job *job, int rank, clv_error *err)
{
    const clv_program *program = job->loaded->program;
    for (int b = 0; b < program->n_buffers; b++)
        if (program->buffers[b].kind == CLV_BUFFER_INPUT)
            CLV_TRY(copy_boxes(job, rank, CLV_BOUND_INPUTS, program->buffers[b].name, b, err));
    return CLV_OK;
}

/* Each box is copied out by the first rank that holds it. */
static clv_status copy_outputs(const run_job *job, int rank, clv_error *err)
{
    const clv_program *program = job->loaded->program;
    for (int o = 0; o < program->n_outputs; o++) {
        const clv_buffer *buffer = &program->buffers[program->outputs[o].buffer];
        clv_bound_box bound;
        int i = 0;
        if (clv_run_next_box(&bound, &i, job->run, CLV_BOUND_OUTPUTS, program->outputs[o].name, &buffer->type) &&
            clv_rank_is_first_replica(&buffer->layout, &program->mesh, buffer->type.shape, rank))
            CLV_TRY(
                copy_boxes(job, rank, CLV_BOUND_OUTPUTS, program->outputs[o].name, program->outputs[o].buffer, err));
    }
    return CLV_OK;
}

static clv_status run_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    const run_job *job = arg;
    bool check = job->loaded->check != NULL;
    if (check)
        CLV_TRY(clv_memory_check_between_runs(job->loaded, rank, err));
    CLV_TRY(bind_inputs(job, rank, err));
    if (check)
        CLV_TRY(clv_memory_check_begin_run(job->loaded, rank, err));
    int i = rank - job->session->first_local_rank;
    CLV_TRY(clv_execute_program(job->loaded, rank, comm, &job->session->times[i], job->traces ? &job->traces[i] : NULL,
                                err));
    if (check)
        CLV_TRY(clv_memory_check_end_run(job->loaded, rank, err));
    return clv_session_shares_memory(job->session) ? copy_outputs(job, rank, err) : CLV_OK;
}

/* Copies outputs from ranks whose memory this thread cannot read. */
static clv_status fetch_outputs(const run_job *job, clv_error *err)
{
    const clv_session *session = job->session;
    const clv_program *program = job->loaded->program;
    int n = session->n_local_ranks;
    CLV_FREED void **data = malloc((size_t)n * sizeof *data);
    if (!data)
        return clv_fail_memory(err, "a program's outputs", (size_t)n * sizeof *data);
    for (int o = 0; o < program->n_outputs; o++) {
        const clv_program_output *output = &program->outputs[o];
        const clv_buffer *buffer = &program->buffers[output->buffer];
        const clv_named_state tensor = {
            .name = (char *)output->name, .type = buffer->type, .layout = buffer->layout, .data = data};
        clv_bound_box bound;
        for (int r = 0; r < n; r++)
            data[r] = job->loaded->ranks[r].views[output->buffer].data;
        for (int i = 0; clv_run_next_box(&bound, &i, job->run, CLV_BOUND_OUTPUTS, output->name, &buffer->type);)
            CLV_TRY(clv_session_is_multi_process(session) && i > job->run->n_outputs
                        ? clv_session_copy_local(session, &tensor, session->devices, &bound.box, bound.data, err)
                        : clv_session_fetch(session, job->loaded->digest ^ clv_hash_text(output->name), &tensor,
                                            session->devices, &bound.box, bound.data, err));
    }
    return CLV_OK;
}

/* Boxes of outputs get only what the ranks of this process hold. */
static clv_status check_output_boxes(const clv_session *session, const clv_program *program, const clv_run *run,
                                     clv_error *err)
{
    for (int o = 0; clv_session_is_multi_process(session) && run->n_output_boxes > 0 && o < program->n_outputs; o++) {
        const clv_buffer *buffer = &program->buffers[program->outputs[o].buffer];
        const char *name = program->outputs[o].name;
        clv_bound_box bound;
        for (int i = run->n_outputs; clv_run_next_box(&bound, &i, run, CLV_BOUND_OUTPUTS, name, &buffer->type);)
            CLV_TRY(clv_session_check_local(session, name, &buffer->type, &buffer->layout, &bound.box, err));
    }
    return CLV_OK;
}

/* Adds to the message which pipeline stage the rank that failed has. */
static clv_status name_stage(const clv_program *program, clv_status status, clv_error *err)
{
    const size_t used = strlen(err->message);
    if (status != CLV_OK && err->rank >= 0 && program->stage_axis > 0)
        snprintf(err->message + used, sizeof err->message - used, "; rank %d has stage %d of axis '%s'", err->rank,
                 clv_program_stage_of(program, err->rank), program->mesh.axis[program->stage_axis - 1].name);
    return status;
}

static clv_status run(clv_session *session, const clv_program *program, const clv_run *run, clv_error *err)
{
    clv_loaded_program *loaded;
    CLV_TRY(check_cancelled(session, err));
    CLV_TRY(clv_session_find_or_load(&loaded, session, program, err));
    CLV_TRY(clv_run_check_bindings(run, program, session->first_local_rank, session->n_local_ranks, err));
    CLV_TRY(check_output_boxes(session, program, run, err));
    loaded->matmuls_only = run->matmuls_only != 0;
    run_job job = {.session = session, .loaded = loaded, .run = run};
    if (session->tracer && clv_trace_recorder_begin_run(session->tracer, program))
        job.traces = session->tracer->ranks;
    double start = clv_now_seconds();
    CLV_TRY(name_stage(program, clv_rank_threads_run(session->team, run_rank, &job, err), err));
    if (!clv_session_shares_memory(session))
        CLV_TRY(fetch_outputs(&job, err));
    session->stats.seconds += clv_now_seconds() - start;
    session->stats.runs++;
    loaded->runs++;
    return CLV_OK;
}

static clv_status check_and_run(clv_session *session, const clv_program *program, const clv_run *given, clv_error *err)
{
    clv_run own;
    CLV_TRY(clv_options_copy_in(&own, sizeof own, sizeof own, given, "clv_session_run_boxes", err));
    CLV_TRY(clv_run_check_names(&own, err));
    if (own.matmuls_only && (session->options.check || session->options.find_nonfinite))
        return clv_fail(err, CLV_EUNSUPPORTED, "matmuls_only is not supported with check or find_nonfinite");
    return run(session, program, &own, err);
}

clv_status clv_session_run_boxes(clv_session *session, const clv_program *program, const clv_run *given, clv_error *err)
{
    clv_error why = {.rank = -1};
    CLV_TRY(clv_require(session && program && given, __func__, "a session, a program and a run", err));
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    clv_status status = check_and_run(session, program, given, &why);
    clv_session_unlock(session);
    return clv_session_finish_call(session, __func__, status, &why, err);
}

clv_status clv_session_run(clv_session *session, const clv_program *program, const clv_input_binding *inputs,
                           int n_inputs, const clv_output_binding *outputs, int n_outputs, clv_error *err)
{
    CLV_TRY(clv_require(session && program, __func__, "a session and a program", err));
    const clv_run run = {
        .size = sizeof run, .n_inputs = n_inputs, .n_outputs = n_outputs, .inputs = inputs, .outputs = outputs};
    return clv_session_run_boxes(session, program, &run, err);
}

clv_status clv_session_fetch_output(clv_session *session, const clv_program *program, const char *name, void *out,
                                    clv_error *err)
{
    static const char call[] = "an output of the last run";
    const clv_output_binding binding = {name, out};
    const clv_run asked = {.size = sizeof asked, .n_outputs = 1, .outputs = &binding};
    clv_loaded_program *loaded;
    clv_error why = {.rank = -1};
    CLV_TRY(clv_session_try_lock(session, call, err));
    clv_status status = clv_session_find_or_load(&loaded, session, program, &why);
    if (status == CLV_OK)
        status = fetch_outputs(&(run_job){.session = session, .loaded = loaded, .run = &asked}, &why);
    clv_session_unlock(session);
    return clv_session_finish_call(session, call, status, &why, err);
}

double clv_session_instruction_seconds(const clv_session *session, const clv_program *program, int instruction)
{
    for (int l = 0; session && program && session->options.trace && l < session->n_loaded; l++) {
        const clv_loaded_program *loaded = session->loaded[l];
        if (loaded->program != program || loaded->runs == 0 || instruction < 0 ||
            instruction >= program->n_instructions)
            continue;
        int64_t ns = 0;
        for (int r = 0; r < session->n_local_ranks; r++)
            ns += loaded->ranks[r].instruction_ns[instruction];
        return 1e-9 * (double)ns / (double)loaded->runs / session->n_local_ranks;
    }
    return 0;
}

clv_status clv_session_take_stats(clv_session *session, clv_session_stats *out, clv_error *err)
{
    CLV_TRY(clv_require(session != NULL, __func__, "a session", err));
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    for (int l = 0; l < session->n_loaded; l++) {
        clv_loaded_program *loaded = session->loaded[l];
        loaded->runs = 0;
        for (int r = 0; session->options.trace && r < loaded->n_local_ranks; r++)
            memset(loaded->ranks[r].instruction_ns, 0,
                   (size_t)loaded->program->n_instructions * sizeof *loaded->ranks[r].instruction_ns);
    }
    clv_session_stats stats = session->stats;
    session->stats = (clv_session_stats){0};
    for (int r = 0; r < session->n_local_ranks; r++) {
        stats.comm_seconds += 1e-9 * (double)session->times[r].comm_ns / session->n_local_ranks;
        stats.wait_seconds += 1e-9 * (double)session->times[r].wait_ns / session->n_local_ranks;
        stats.overlapped_seconds += 1e-9 * (double)session->times[r].overlapped_ns / session->n_local_ranks;
        stats.fallbacks += session->times[r].fallbacks;
        stats.fallback_bytes += session->times[r].fallback_bytes;
    }
    memset(session->times, 0, (size_t)session->n_local_ranks * sizeof *session->times);
    clv_session_unlock(session);
    return out ? clv_struct_copy_out(out, sizeof stats, sizeof stats, &stats, __func__, err) : CLV_OK;
}
