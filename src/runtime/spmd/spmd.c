/* spmd.c - runs a user function on every rank (like JAX's shard_map): shards its inputs, gathers its outputs. */
#include "runtime/spmd/spmd_internal.h"

#include "base/memory/grow.h"
#include "runtime/session/run_bindings.h"
#include "tensor/box_copy.h"

enum { GROUPED_AXES = 6 /* all subsets of so many axes are group sets from the start */ };

/* ---- context ---- */

void clv_spmd_context_free(clv_spmd_context *context)
{
    if (!context)
        return;
    for (int r = 0; context->ranks && r < context->session->n_local_ranks; r++) {
        clv_spmd_free_allocations(&context->ranks[r]);
        clv_spmd_free_cached_collectives(&context->ranks[r]);
    }
    free(context->job.layouts);
    free(context->job.locals);
    free(context->ranks);
    free(context->groups);
    free(context);
}

static clv_status add_group(clv_spmd_context *context, clv_spmd_group_set *group, clv_error *err)
{
    if (clv_spmd_find_group_set(context, group->axes, group->n))
        return CLV_OK;
    CLV_TRY(clv_grow(&context->groups, &context->groups_capacity, context->n_groups + 1, sizeof *group,
                     "the groups of a function", err));
    CLV_TRY(clv_session_add_groups(&group->group_set, context->session, group->axes, group->n, 0, err));
    context->groups[context->n_groups++] = *group;
    return CLV_OK;
}

/* All subsets of the first axes that have more than one rank. */
static clv_status add_subsets(clv_spmd_context *context, clv_error *err)
{
    const clv_mesh *mesh = &context->session->mesh;
    int axes[GROUPED_AXES], n = 0;
    for (int a = 0; a < mesh->n_axes && n < GROUPED_AXES; a++)
        if (mesh->axis[a].size > 1)
            axes[n++] = a;
    for (int subset = 0; subset < 1 << n; subset++) {
        clv_spmd_group_set group = {0};
        for (int i = 0; i < n; i++)
            if (subset >> i & 1)
                group.axes[group.n++] = clv_mesh_whole_axis(mesh, axes[i]);
        CLV_TRY(add_group(context, &group, err));
    }
    return CLV_OK;
}

static clv_status new_context(clv_session *session, clv_error *err)
{
    clv_spmd_context *context = calloc(1, sizeof *context);
    if (!context)
        return clv_fail_memory(err, "communicators", sizeof *context);
    context->session = session;
    context->ranks = calloc((size_t)session->n_local_ranks, sizeof *context->ranks);
    clv_status status =
        context->ranks ? add_subsets(context, err)
                       : clv_fail_memory(err, "communicators", (size_t)session->n_local_ranks * sizeof *context->ranks);
    if (status != CLV_OK) {
        clv_spmd_context_free(context);
        return status;
    }
    for (int i = 0, r; i < session->n_local_ranks; i++) {
        r = session->first_local_rank + i;
        context->ranks[i] =
            (clv_spmd){.context = context, .comm = clv_world_comm(clv_rank_threads_world(session->team), r), .rank = r};
    }
    session->spmd = context;
    return CLV_OK;
}

static clv_status add_requested_groups(clv_spmd_context *context, const clv_spmd_options *options, clv_error *err)
{
    for (int g = 0; g < options->n_groups; g++) {
        clv_spmd_group_set group;
        CLV_TRY(clv_spmd_parse_axes(&group, &context->session->mesh, options->groups[g], err));
        CLV_TRY(add_group(context, &group, err));
    }
    return CLV_OK;
}

int clv_spmd_collective_count(const clv_session *session)
{
    return session && session->spmd ? session->spmd->ranks[0].n_called : 0;
}

clv_status clv_spmd_collective(const clv_session *session, int i, clv_collective *out, clv_error *err)
{
    CLV_TRY(clv_require(session && out, __func__, "a session and out", err));
    if (i < 0 || i >= clv_spmd_collective_count(session))
        return clv_fail(err, CLV_EINVAL, "%s: there is no collective %d; there are %d", __func__, i,
                        clv_spmd_collective_count(session));
    return clv_struct_copy_out(out, sizeof *out, sizeof *out, &session->spmd->ranks[0].called[i]->info, __func__, err);
}

/* ---- the run ---- */

static bool is_first_on_partial_axes(const clv_mesh *mesh, const clv_layout *layout, int rank)
{
    const clv_subaxis *subs;
    int n = clv_layout_axes(&subs, layout, layout->rank);
    bool is = true;
    for (int i = 0; i < n; i++)
        is = is && clv_mesh_coordinate(mesh, subs[i], rank) == 0;
    return is;
}

static clv_status shard_input(clv_local_tensor *out, clv_spmd *spmd, const clv_spmd_input *input,
                              const clv_layout *layout, clv_error *err)
{
    clv_local_tensor local = clv_spmd_local_tensor(spmd, &input->type, layout);
    clv_shard whole = clv_box_of_type(&input->type);
    CLV_TRY(clv_spmd_allocate(&local, spmd, false, err));
    if (is_first_on_partial_axes(&spmd->context->session->mesh, layout, spmd->rank))
        clv_box_copy(local.data, &local.shard, input->data, &whole, &local.shard, clv_dtype_size(input->type.dtype));
    else
        clv_fill_reduction_identity(local.data, clv_shard_elems(&local.shard), input->type.dtype, layout->reduction);
    *out = local;
    return CLV_OK;
}

/* Checks the local tensor that the function left, and reduces it if it is partial. */
static clv_status finish_output(clv_local_tensor *local, clv_spmd *spmd, const clv_spmd_output *output,
                                const clv_layout *layout, int i, clv_error *err)
{
    clv_local_tensor stated = clv_spmd_local_tensor(spmd, &output->type, layout);
    const clv_subaxis *subs, *stated_subs;
    int n = clv_layout_axes(&subs, &local->layout, local->layout.rank);
    bool fits = clv_type_equal(&local->type, &output->type) && clv_shard_equal(&local->shard, &stated.shard) &&
                local->layout.reduction == layout->reduction &&
                n == clv_layout_axes(&stated_subs, layout, layout->rank) &&
                memcmp(subs, stated_subs, (size_t)n * sizeof *subs) == 0;
    if (!local->data)
        return clv_fail(err, CLV_EINVAL, "output %d is left without memory on rank %d", i, spmd->rank);
    if (!fits) {
        char got[CLV_LAYOUT_TEXT], want[CLV_LAYOUT_TEXT], type[CLV_TYPE_TEXT];
        clv_layout_print(got, sizeof got, &local->layout, &spmd->context->session->mesh);
        clv_layout_print(want, sizeof want, layout, &spmd->context->session->mesh);
        clv_type_print(type, sizeof type, &local->type);
        return clv_fail(err, CLV_ESHAPE, "output %d is left as %s '%.100s' on rank %d; its layout is '%.100s'", i, type,
                        got, spmd->rank, want);
    }
    if (n == 0)
        return CLV_OK;
    char axes[CLV_LAYOUT_TEXT];
    clv_spmd_partial_axes(axes, sizeof axes, layout, &spmd->context->session->mesh);
    return clv_spmd_all_reduce(local, spmd, local, layout->reduction, axes, err);
}

static clv_status finish_outputs(const clv_spmd_invocation *job, clv_spmd *spmd, clv_local_tensor *out, clv_error *err)
{
    const clv_session *session = spmd->context->session;
    for (int i = 0; i < job->n_outputs; i++) {
        const clv_spmd_output *output = &job->outputs[i];
        CLV_TRY(finish_output(&out[i], spmd, output, &job->layouts[job->n_inputs + i], i, err));
        clv_shard whole = clv_box_of_type(&output->type);
        if (clv_session_shares_memory(session) &&
            clv_rank_is_first_replica(&out[i].layout, &session->mesh, output->type.shape, spmd->rank))
            clv_box_copy(output->data, &whole, out[i].data, &out[i].shard, &out[i].shard,
                         clv_dtype_size(output->type.dtype));
    }
    return CLV_OK;
}

static clv_status run_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    const clv_spmd_invocation *job = arg;
    const clv_session *session = job->context->session;
    clv_spmd *spmd = &job->context->ranks[rank - session->first_local_rank];
    clv_local_tensor *in = job->locals +
                           (size_t)(rank - session->first_local_rank) * (size_t)(job->n_inputs + job->n_outputs),
                     *out = in + job->n_inputs;
    clv_comm_set_activity(comm, "clv_spmd_run");
    for (int i = 0; i < job->n_inputs; i++)
        CLV_TRY(shard_input(&in[i], spmd, &job->inputs[i], &job->layouts[i], err));
    for (int i = 0; i < job->n_outputs; i++) {
        out[i] = clv_spmd_local_tensor(spmd, &job->outputs[i].type, &job->layouts[job->n_inputs + i]);
        CLV_TRY(clv_spmd_allocate(&out[i], spmd, true, err));
    }
    clv_error why = {.rank = -1};
    clv_status status = clv_check_callback_status(&why, job->function(job->arg, spmd, in, out, &why), "the function");
    if (status == CLV_OK && clv_session_has_failed(session)) /* the caller may have returned, and freed its memory */
        return CLV_EPEER;
    if (status == CLV_OK)
        return finish_outputs(job, spmd, out, err);
    if (why.rank >= 0) { /* the failure of the world */
        *err = why;
        return status;
    }
    return clv_fail_at(err, status, rank, why.op, "rank %d: %s", rank,
                       why.message[0] ? why.message : clv_status_text(status));
}

/* Copies outputs from ranks whose memory this thread cannot read. */
static clv_status fetch_outputs(const clv_spmd_invocation *job, clv_error *err)
{
    const clv_session *session = job->context->session;
    int n = session->n_local_ranks, n_locals = job->n_inputs + job->n_outputs;
    CLV_FREED void **data = malloc((size_t)n * sizeof *data);
    if (!data)
        return clv_fail_memory(err, "a function's outputs", (size_t)n * sizeof *data);
    for (int i = 0; i < job->n_outputs; i++) {
        const clv_spmd_output *output = &job->outputs[i];
        clv_shard whole = clv_box_of_type(&output->type);
        for (int r = 0; r < n; r++)
            data[r] = job->locals[r * n_locals + job->n_inputs + i].data;
        const clv_named_state tensor = {
            .type = output->type, .layout = job->locals[job->n_inputs + i].layout, .data = data};
        CLV_TRY(clv_session_fetch(session, (uint64_t)i, &tensor, NULL, &whole, output->data, err));
    }
    return CLV_OK;
}

/* ---- arguments ---- */

static clv_status read_layout(clv_layout *out, const clv_mesh *mesh, const clv_type *type, const char *text, bool data,
                              const char *what, int i, clv_error *err)
{
    clv_error why = {0};
    clv_status status = text && data ? CLV_OK : clv_fail(&why, CLV_EINVAL, "it needs a layout and data");
    if (status == CLV_OK)
        status = clv_layout_parse(out, text, mesh, type->rank, &why);
    if (status == CLV_OK)
        status = clv_spmd_check_tensor(type, out, mesh, &why);
    return status == CLV_OK ? CLV_OK : clv_fail(err, status, "clv_spmd_run: %s %d: %s", what, i, why.message);
}

static clv_status read_layouts(clv_spmd_invocation *job, clv_error *err)
{
    const clv_mesh *mesh = &job->context->session->mesh;
    for (int i = 0; i < job->n_inputs; i++)
        CLV_TRY(read_layout(&job->layouts[i], mesh, &job->inputs[i].type, job->inputs[i].layout,
                            job->inputs[i].data != NULL, "input", i, err));
    for (int i = 0; i < job->n_outputs; i++) {
        clv_layout *layout = &job->layouts[job->n_inputs + i];
        const clv_subaxis *subs;
        CLV_TRY(read_layout(layout, mesh, &job->outputs[i].type, job->outputs[i].layout, job->outputs[i].data != NULL,
                            "output", i, err));
        clv_spmd_group_set group = {.n = clv_layout_axes(&subs, layout, layout->rank)};
        memcpy(group.axes, subs, (size_t)group.n * sizeof *subs);
        CLV_TRY(add_group(job->context, &group, err));
    }
    return CLV_OK;
}

static void free_job(clv_spmd_context *context)
{
    for (int r = 0; r < context->session->n_local_ranks; r++)
        clv_spmd_free_allocations(&context->ranks[r]);
    free(context->job.layouts);
    free(context->job.locals);
    context->job = (clv_spmd_invocation){0};
}

/* `given`: the caller's arguments, without the context. */
static clv_status run(clv_session *session, const clv_spmd_invocation *given, const clv_spmd_options *options,
                      clv_error *err)
{
    if (clv_session_has_failed(session))
        return clv_rank_threads_run(session->team, NULL, NULL, err);
    if (clv_cancel_requested(session->options.cancel))
        return clv_fail(err, CLV_ECANCELLED, "cancelled before it began");
    if (!session->spmd)
        CLV_TRY(new_context(session, err));
    CLV_TRY(add_requested_groups(session->spmd, options, err));
    size_t n = (size_t)(given->n_inputs + given->n_outputs) + 1;
    clv_spmd_invocation *job = &session->spmd->job;
    *job = *given;
    job->context = session->spmd;
    job->layouts = calloc(n, sizeof *job->layouts);
    job->locals = calloc(n * (size_t)session->n_local_ranks, sizeof *job->locals);
    clv_status status =
        job->layouts && job->locals
            ? read_layouts(job, err)
            : clv_fail_memory(err, "a function's shards", n * (size_t)session->n_local_ranks * sizeof *job->locals);
    for (int r = 0; r < session->n_local_ranks; r++)
        session->spmd->ranks[r].n_called = 0;
    if (status == CLV_OK)
        status = clv_rank_threads_run_user_function(session->team, run_rank, job, session->options.cancel, err);
    if (status == CLV_OK && !clv_session_shares_memory(session))
        status = fetch_outputs(job, err);
    if (!clv_session_has_failed(session)) /* else a late rank may use them: they stay until the session is freed */
        free_job(session->spmd);
    return status;
}

clv_status clv_spmd_run(clv_session *session, clv_spmd_function *function, void *arg, const clv_spmd_input *inputs,
                        int n_inputs, const clv_spmd_output *outputs, int n_outputs, const clv_spmd_options *options,
                        clv_error *err)
{
    clv_spmd_options o;
    CLV_TRY(clv_require(session && function, __func__, "a session and a function", err));
    if (n_inputs < 0 || n_outputs < 0)
        return clv_fail(err, CLV_EINVAL, "%s: %d inputs and %d outputs; valid: 0 or more", __func__, n_inputs,
                        n_outputs);
    CLV_TRY(clv_require((n_inputs == 0 || inputs) && (n_outputs == 0 || outputs), __func__,
                        "all of its inputs and outputs", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, __func__, err));
    if (o.n_groups < 0)
        return clv_fail(err, CLV_EINVAL, "%s: %d groups; valid: 0 or more", __func__, o.n_groups);
    CLV_TRY(clv_require(o.n_groups == 0 || o.groups, __func__, "all of its groups", err));
    const clv_spmd_invocation job = {.function = function,
                                     .arg = arg,
                                     .n_inputs = n_inputs,
                                     .n_outputs = n_outputs,
                                     .inputs = inputs,
                                     .outputs = outputs};
    clv_error why = {.rank = -1};
    CLV_TRY(clv_session_try_lock(session, __func__, err));
    clv_status status = run(session, &job, &o, &why);
    clv_session_unlock(session);
    return clv_session_finish_call(session, __func__, status, &why, err);
}
