/* session.c - loading programs and running them on the team of ranks. State is in state.c. */
#include "runtime/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pages.h"
#include "base/wait.h"
#include "kernels/cpu/gemm.h"
#include "runtime/check.h"
#include "runtime/finite.h"
#include "runtime/guard.h"
#include "tensor/view.h"

/* ---- opening and closing ---- */

clv_status clv_session_new(clv_session **out, const clv_mesh *mesh, const clv_session_options *options, clv_error *err)
{
    static const clv_session_options defaults = {0};
    options = options ? options : &defaults;
    CLV_TRY(clv_require(out && mesh, "clv_session_new", "out and a mesh", err));
    CLV_TRY(clv_mesh_check(mesh, err));
    CLV_TRY(clv_gemm_prepare(err));
    clv_session *session = calloc(1, sizeof *session);
    if (!session)
        return clv_fail_memory(err, "a session", sizeof *session);
    session->mesh = *mesh;
    session->n_ranks = (int)clv_mesh_ranks(mesh);
    session->seed = options->seed;
    session->source = options->source;
    session->source_arg = options->source_arg;
    session->trace = options->trace != 0;
    session->find_nonfinite = options->find_nonfinite != 0;
    session->check = options->check != 0;
    session->times = calloc((size_t)session->n_ranks, sizeof *session->times);
    clv_team_options team = {.threads_per_rank = options->threads_per_rank > 0 ? options->threads_per_rank : 1,
                             .pin = options->no_pinning ? 0 : -1,
                             .timeout_ms = options->timeout_ms};
    clv_status status = session->times ? clv_team_new(&session->team, session->n_ranks, &team, err)
                                       : clv_fail_memory(err, "a session's times", sizeof *session->times);
    if (status != CLV_OK) {
        clv_session_free(session);
        return status; /* NOLINT(clang-analyzer-unix.Malloc): memory that a late rank may touch is left */
    }
    *out = session;
    return CLV_OK;
}

static void free_loaded(clv_loaded *loaded)
{
    for (int r = 0; loaded->region && r < loaded->n_ranks; r++)
        free(loaded->region[r]);
    free(loaded->region);
    free(loaded->views);
    free(loaded->group_set);
    free(loaded->peers);
    free(loaded->instruction_ns);
    free(loaded->lowest);
    clv_check_free(loaded->check);
    free(loaded);
}

void clv_session_free(clv_session *session)
{
    if (!session)
        return;
    /* After a time-out a late rank may still write to our buffers: then they are left to the process. */
    if (session->team && clv_team_free(session->team, NULL) != CLV_OK)
        return;
    for (int i = 0; i < session->n_loaded; i++)
        free_loaded(session->loaded[i]);
    free(session->loaded);
    clv_session_free_states(session);
    free(session->times);
    free(session);
}

int64_t clv_session_rank_bytes(const clv_session *session)
{
    if (!session)
        return 0;
    return session->rank_bytes;
}

/* ---- loading ---- */

/* Ranks that differ only on these axes form a group, ordered by their coordinates, first axis major. */
static clv_status add_group_set(int *set, clv_session *session, const clv_group_axes *axes, clv_error *err)
{
    int n = session->n_ranks, n_groups = 0;
    int *group_of = malloc((size_t)n * sizeof *group_of);
    int *order = calloc((size_t)n, sizeof *order);
    int64_t *members = calloc((size_t)n, sizeof *members);
    clv_status status = CLV_OK;
    if (!group_of || !order || !members)
        status = clv_fail_memory(err, "a group", (size_t)n * sizeof *group_of);
    for (int r = 0; status == CLV_OK && r < n; r++)
        group_of[r] = -1;
    for (int r = 0; status == CLV_OK && r < n; r++) {
        if (group_of[r] >= 0)
            continue;
        int64_t size = clv_mesh_group(members, &session->mesh, axes->axes, axes->n, r);
        for (int64_t m = 0; m < size; m++) {
            group_of[members[m]] = n_groups;
            order[members[m]] = (int)m;
        }
        n_groups++;
    }
    if (status == CLV_OK)
        status = clv_world_add_groups(set, clv_team_world(session->team), group_of, order, err);
    if (status == CLV_OK && *set >= session->n_group_sets) { /* sets that are equal are one */
        session->n_group_sets = *set + 1;
        session->rank_bytes += CLV_COMM_STAGING_BYTES;
    }
    free(group_of);
    free(order);
    free(members);
    return status;
}

static clv_status allocate(clv_loaded *loaded, const clv_session *session, const clv_program *program, clv_error *err)
{
    int n_ranks = session->n_ranks;
    loaded->program = program;
    loaded->n_ranks = n_ranks;
    size_t n_views = (size_t)n_ranks * (size_t)program->n_buffers + 1;
    loaded->region = calloc((size_t)n_ranks, sizeof *loaded->region);
    loaded->views = calloc(n_views, sizeof *loaded->views);
    loaded->group_set = calloc((size_t)program->n_groups + 1, sizeof *loaded->group_set);
    loaded->peers = calloc((size_t)n_ranks * (size_t)n_ranks, sizeof *loaded->peers);
    if (session->trace)
        loaded->instruction_ns =
            calloc((size_t)n_ranks * (size_t)program->n_instructions + 1, sizeof *loaded->instruction_ns);
    if (session->find_nonfinite)
        loaded->lowest = clv_finite_lowest(program);
    if (!loaded->region || !loaded->views || !loaded->group_set || !loaded->peers ||
        (session->trace && !loaded->instruction_ns) || (session->find_nonfinite && !loaded->lowest))
        return clv_fail_memory(err, "a loaded program", n_views * sizeof *loaded->views);
    if (session->check)
        CLV_TRY(clv_check_new(&loaded->check, program, n_ranks, err));
    int64_t planned = loaded->check ? clv_check_region_bytes(loaded->check) : program->region_bytes;
    size_t bytes = planned > 0 ? (size_t)planned : CLV_REGION_ALIGN;
    for (int r = 0; r < n_ranks; r++) { /* not touched here: pages go where the rank that writes them first runs */
        loaded->region[r] = clv_pages_alloc(CLV_REGION_ALIGN, bytes);
        if (!loaded->region[r])
            return clv_fail_memory(err, "a rank's region of buffers", bytes);
        if (loaded->check)
            clv_guard_fill(loaded->region[r], planned);
    }
    return CLV_OK;
}

clv_status clv_session_map(clv_session *session, clv_loaded *loaded, clv_error *err)
{
    const clv_program *program = loaded->program;
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b], *root = &program->buffers[clv_program_root(program, b)];
        clv_named_state *state = NULL;
        if (root->kind == CLV_BUFFER_STATE)
            CLV_TRY(clv_session_find_state(&state, session, root->name, err));
        int64_t offset =
            loaded->check ? clv_check_buffer_offset(loaded->check, (int)(root - program->buffers)) : root->offset;
        for (int r = 0; r < session->n_ranks; r++) {
            void *base = state ? state->data[r] : (char *)loaded->region[r] + offset;
            loaded->views[(int64_t)r * program->n_buffers + b] = clv_buffer_view(buffer, &session->mesh, r, base);
        }
    }
    return CLV_OK;
}

static bool same_mesh(const clv_mesh *a, const clv_mesh *b)
{
    bool same = a->n_axes == b->n_axes;
    for (int i = 0; same && i < a->n_axes; i++)
        same = a->axis[i].size == b->axis[i].size && strcmp(a->axis[i].name, b->axis[i].name) == 0;
    return same;
}

static clv_status load_new(clv_loaded **out, clv_session *session, const clv_program *program, clv_error *err)
{
    if (!same_mesh(&session->mesh, &program->mesh)) {
        char ours[CLV_MESH_TEXT], theirs[CLV_MESH_TEXT];
        clv_mesh_print(ours, sizeof ours, &session->mesh);
        clv_mesh_print(theirs, sizeof theirs, &program->mesh);
        return clv_fail(err, CLV_EINVAL, "the program was compiled for the mesh '%s', the session has '%s'", theirs,
                        ours);
    }
    clv_loaded **grown = realloc(session->loaded, ((size_t)session->n_loaded + 1) * sizeof *grown);
    clv_loaded *loaded = calloc(1, sizeof *loaded);
    if (grown)
        session->loaded = grown;
    if (!grown || !loaded) {
        free(loaded);
        return clv_fail_memory(err, "a loaded program", sizeof *loaded);
    }
    clv_status status = allocate(loaded, session, program, err);
    for (int g = 0; status == CLV_OK && g < program->n_groups; g++)
        status = add_group_set(&loaded->group_set[g], session, &program->groups[g], err);
    if (status == CLV_OK)
        status = clv_session_bring_states(session, program, err);
    if (status == CLV_OK)
        status = clv_session_map(session, loaded, err);
    if (status != CLV_OK) {
        free_loaded(loaded);
        return status;
    }
    session->loaded[session->n_loaded++] = loaded;
    session->rank_bytes += program->region_bytes;
    *out = loaded;
    return CLV_OK;
}

static clv_status find_loaded(clv_loaded **out, clv_session *session, const clv_program *program, clv_error *err)
{
    for (int i = 0; i < session->n_loaded; i++)
        if (session->loaded[i]->program == program) {
            *out = session->loaded[i];
            return clv_session_bring_states(session, program, err);
        }
    return load_new(out, session, program, err);
}

clv_status clv_session_load(clv_session *session, const clv_program *program, clv_error *err)
{
    CLV_TRY(clv_require(session && program, "clv_session_load", "a session and a program", err));
    clv_loaded *loaded;
    return find_loaded(&loaded, session, program, err);
}

void clv_session_unload(clv_session *session, const clv_program *program)
{
    if (!session || !program)
        return;
    int kept = 0;
    for (int i = 0; i < session->n_loaded; i++) {
        if (session->loaded[i]->program != program) {
            session->loaded[kept++] = session->loaded[i];
            continue;
        }
        session->rank_bytes -= program->region_bytes;
        free_loaded(session->loaded[i]);
    }
    session->n_loaded = kept;
}

/* ---- running ---- */

typedef struct run_job {
    clv_session *session;
    const clv_loaded *loaded;
    const clv_binding *inputs, *outputs;
    int n_inputs, n_outputs;
} run_job;

static void *bound(const clv_binding *bindings, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(bindings[i].name, name) == 0)
            return bindings[i].data;
    return NULL;
}

static clv_shard whole_of(const clv_type *type)
{
    clv_shard whole = {.rank = type->rank};
    for (int d = 0; d < type->rank; d++)
        whole.hi[d] = type->shape[d];
    return whole;
}

static void bind_inputs(const run_job *job, int rank)
{
    const clv_program *program = job->loaded->program;
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        if (buffer->kind != CLV_BUFFER_INPUT)
            continue;
        clv_shard whole = whole_of(&buffer->type);
        clv_shard shard = clv_layout_shard(&buffer->layout, &program->mesh, buffer->type.shape, rank);
        clv_box_copy(clv_loaded_view(job->loaded, rank, b)->data, &shard,
                     bound(job->inputs, job->n_inputs, buffer->name), &whole, &shard,
                     clv_dtype_size(buffer->type.dtype));
    }
}

/* Each box is copied out by the first rank that holds it. */
static void copy_outputs(const run_job *job, int rank)
{
    const clv_program *program = job->loaded->program;
    for (int o = 0; o < program->n_outputs; o++) {
        void *data = bound(job->outputs, job->n_outputs, program->outputs[o].name);
        const clv_buffer *buffer = &program->buffers[program->outputs[o].buffer];
        if (!data || !clv_session_first_holder(&buffer->layout, &program->mesh, buffer->type.shape, rank))
            continue;
        clv_shard whole = whole_of(&buffer->type);
        clv_shard shard = clv_layout_shard(&buffer->layout, &program->mesh, buffer->type.shape, rank);
        clv_box_copy(data, &whole, clv_loaded_view(job->loaded, rank, program->outputs[o].buffer)->data, &shard, &shard,
                     clv_dtype_size(buffer->type.dtype));
    }
}

static clv_status run_rank(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    const run_job *job = arg;
    bool check = job->loaded->check != NULL;
    if (check)
        CLV_TRY(clv_check_idle(job->loaded, rank, err));
    bind_inputs(job, rank);
    if (check)
        CLV_TRY(clv_check_begin(job->loaded, rank, err));
    CLV_TRY(clv_execute(job->loaded, rank, comm, &job->session->times[rank], err));
    if (check)
        CLV_TRY(clv_check_end(job->loaded, rank, err));
    copy_outputs(job, rank);
    return CLV_OK;
}

static clv_status check_bindings(const clv_program *program, const clv_binding *inputs, int n_inputs,
                                 const clv_binding *outputs, int n_outputs, clv_error *err)
{
    for (int b = 0; b < program->n_buffers; b++)
        if (program->buffers[b].kind == CLV_BUFFER_INPUT && !bound(inputs, n_inputs, program->buffers[b].name))
            return clv_fail(err, CLV_ENOTFOUND, "the program's input '%s' is not bound", program->buffers[b].name);
    for (int i = 0; i < n_inputs; i++) {
        bool known = false;
        for (int b = 0; b < program->n_buffers; b++)
            known = known || (program->buffers[b].kind == CLV_BUFFER_INPUT &&
                              strcmp(program->buffers[b].name, inputs[i].name) == 0);
        if (!known)
            return clv_fail(err, CLV_ENOTFOUND, "the program has no input '%s'", inputs[i].name);
    }
    for (int i = 0; i < n_outputs; i++) {
        bool known = false;
        for (int o = 0; o < program->n_outputs; o++)
            known = known || strcmp(program->outputs[o].name, outputs[i].name) == 0;
        if (!known)
            return clv_fail(err, CLV_ENOTFOUND, "the program has no output '%s'", outputs[i].name);
    }
    return CLV_OK;
}

static clv_status check_given(const clv_binding *bindings, int n, clv_error *err)
{
    if (n < 0)
        return clv_fail(err, CLV_EINVAL, "clv_session_run: %d bindings; valid: 0 or more", n);
    CLV_TRY(clv_require(n == 0 || bindings, "clv_session_run", "the bindings that it is told of", err));
    for (int i = 0; i < n; i++)
        CLV_TRY(clv_require(bindings[i].name && bindings[i].data, "clv_session_run", "a name and data in each binding",
                            err));
    return CLV_OK;
}

clv_status clv_session_run(clv_session *session, const clv_program *program, const clv_binding *inputs, int n_inputs,
                           const clv_binding *outputs, int n_outputs, clv_error *err)
{
    CLV_TRY(clv_require(session && program, "clv_session_run", "a session and a program", err));
    CLV_TRY(check_given(inputs, n_inputs, err));
    CLV_TRY(check_given(outputs, n_outputs, err));
    clv_loaded *loaded;
    CLV_TRY(find_loaded(&loaded, session, program, err));
    CLV_TRY(check_bindings(program, inputs, n_inputs, outputs, n_outputs, err));
    run_job job = {.session = session,
                   .loaded = loaded,
                   .inputs = inputs,
                   .outputs = outputs,
                   .n_inputs = n_inputs,
                   .n_outputs = n_outputs};
    double start = clv_now_seconds();
    CLV_TRY(clv_team_run(session->team, run_rank, &job, err));
    session->stats.seconds += clv_now_seconds() - start;
    session->stats.runs++;
    loaded->runs++;
    return CLV_OK;
}

double clv_session_instruction_seconds(const clv_session *session, const clv_program *program, int instruction)
{
    if (!session || !program)
        return 0;
    for (int l = 0; l < session->n_loaded; l++) {
        const clv_loaded *loaded = session->loaded[l];
        if (loaded->program != program || !loaded->instruction_ns || loaded->runs == 0 || instruction < 0 ||
            instruction >= program->n_instructions)
            continue;
        int64_t ns = 0;
        for (int r = 0; r < session->n_ranks; r++)
            ns += loaded->instruction_ns[(int64_t)r * program->n_instructions + instruction];
        return 1e-9 * (double)ns / (double)loaded->runs / session->n_ranks;
    }
    return 0;
}

clv_session_stats clv_session_take_stats(clv_session *session)
{
    if (!session)
        return (clv_session_stats){0};
    for (int l = 0; l < session->n_loaded; l++) {
        clv_loaded *loaded = session->loaded[l];
        loaded->runs = 0;
        if (loaded->instruction_ns)
            memset(loaded->instruction_ns, 0,
                   (size_t)loaded->n_ranks * (size_t)loaded->program->n_instructions * sizeof *loaded->instruction_ns);
    }
    clv_session_stats stats = session->stats;
    for (int r = 0; r < session->n_ranks; r++) {
        stats.comm_seconds += 1e-9 * (double)session->times[r].comm_ns / session->n_ranks;
        stats.wait_seconds += 1e-9 * (double)session->times[r].wait_ns / session->n_ranks;
    }
    memset(session->times, 0, (size_t)session->n_ranks * sizeof *session->times);
    session->stats = (clv_session_stats){0};
    return stats;
}
