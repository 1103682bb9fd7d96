/* load_program.c - loads a program: allocates memory, registers groups, prepares each rank's collectives. */
#include "runtime/checks/guard_bytes.h"
#include "runtime/checks/memory_check.h"
#include "runtime/checks/nonfinite_check.h"
#include "runtime/session/expert_rows.h"
#include "runtime/session/session_internal.h"

/* ---- groups ---- */

/* Whether a rank is a member of groups over these axes, of pipeline stages on the first axis; stages 0: of all. */
static bool is_member(const clv_session *session, const clv_subaxis *axes, uint32_t stages, int64_t rank)
{
    return stages == 0 || (stages >> clv_mesh_coordinate(&session->mesh, axes[0], rank) & 1);
}

clv_status clv_session_add_groups(int *set, const clv_session *session, const clv_subaxis *axes, int n_axes,
                                  uint32_t stages, clv_error *err)
{
    int n = session->n_ranks;
    CLV_FREED int *group_of = malloc((size_t)n * sizeof *group_of);
    CLV_FREED int *order = calloc((size_t)n, sizeof *order);
    CLV_FREED int64_t *members = calloc((size_t)n, sizeof *members);
    if (!group_of || !order || !members)
        return clv_fail_memory(err, "a group", (size_t)n * sizeof *group_of);
    for (int r = 0; r < n; r++) {
        (void)clv_mesh_group(members, &session->mesh, axes, n_axes, r);
        group_of[r] = r; /* alone, unless it is a member */
        for (int k = 0, first = -1; is_member(session, axes, stages, r) && group_of[r] == r && k < n; k++) {
            if (!is_member(session, axes, stages, members[k]))
                continue;
            first = first < 0 ? (int)members[k] : first;
            group_of[r] = members[k] == r ? first : r;
            if (members[k] == r)
                break;
            order[r]++;
        }
    }
    return clv_world_add_groups(set, clv_rank_threads_world(session->team), group_of, order, err);
}

/* ---- memory ---- */

void clv_loaded_program_free(clv_loaded_program *loaded)
{
    clv_loaded_program_release_collectives(loaded);
    for (int r = 0; loaded->ranks && r < loaded->n_local_ranks; r++) {
        clv_loaded_rank *mine = &loaded->ranks[r];
        if (mine->region)
            mine->context.device->backend->free(mine->context.device, mine->region);
        for (int s = 0; mine->staging && s <= loaded->program->n_groups; s++)
            free(mine->staging[s]);
        free(mine->host);
    }
    if (loaded->window)
        loaded->transport->free_window(loaded->window);
    free(loaded->minus_infinity_allowed);
    clv_memory_check_free(loaded->check);
    clv_arena_free(loaded->arena);
    free(loaded);
}

/* The kernels' context on local rank i. */
static clv_context context_of(const clv_session *session, int i)
{
    return (clv_context){.device = session->devices[i],
                         .rank = session->first_local_rank + i,
                         .threads = session->options.threads_per_rank,
                         .work = clv_rank_threads_task_pool_member(session->team, session->first_local_rank + i),
                         .cancel = session->options.cancel,
                         .failed = clv_world_failure_flag(clv_rank_threads_world(session->team))};
}

static clv_status allocate_rank(clv_loaded_program *loaded, clv_loaded_rank *mine, bool trace, clv_error *err)
{
    const clv_program *program = loaded->program;
    size_t n_buffers = (size_t)program->n_buffers + 1, n_instructions = (size_t)program->n_instructions + 1,
           n_groups = (size_t)program->n_groups + 1;
    mine->staging = clv_arena_alloc(loaded->arena, n_groups, sizeof *mine->staging);
    mine->in_flight = clv_arena_alloc(loaded->arena, n_groups, sizeof *mine->in_flight);
    mine->views = clv_arena_alloc(loaded->arena, n_buffers, sizeof *mine->views);
    mine->collectives = clv_arena_alloc(loaded->arena, n_instructions, sizeof *mine->collectives);
    mine->rows = clv_arena_alloc(loaded->arena, n_instructions, sizeof *mine->rows);
    if (trace)
        mine->instruction_ns = clv_arena_alloc(loaded->arena, n_instructions, sizeof *mine->instruction_ns);
    if (!mine->staging || !mine->in_flight || !mine->views || !mine->collectives || !mine->rows ||
        (trace && !mine->instruction_ns))
        return clv_fail_memory(err, "a loaded program", n_buffers * sizeof *mine->views);
    int64_t planned = loaded->check ? clv_memory_check_plan(loaded->check)->bytes
                                    : clv_program_stage_region_bytes(program, mine->stage);
    size_t bytes = planned > 0 ? (size_t)planned : CLV_REGION_ALIGN;
    /* not written here: NUMA places pages near the rank that writes them first */
    mine->region = mine->context.device->backend->alloc(mine->context.device, CLV_REGION_ALIGN, bytes);
    if (!mine->region)
        return clv_fail_memory(err, "a rank's region of buffers", bytes);
    if (loaded->check)
        clv_guard_bytes_fill(mine->region, planned);
    return CLV_OK;
}

static clv_status allocate(clv_loaded_program *loaded, const clv_session *session, const clv_program *program,
                           clv_error *err)
{
    size_t n = (size_t)session->n_local_ranks, n_groups = (size_t)program->n_groups + 1;
    loaded->arena = clv_arena_new();
    if (!loaded->arena)
        return clv_fail_memory(err, "a loaded program", sizeof *loaded);
    loaded->program = program;
    loaded->transport = session->transport;
    loaded->first_local_rank = session->first_local_rank;
    loaded->n_local_ranks = session->n_local_ranks;
    loaded->cancel = session->options.cancel;
    loaded->ranks = clv_arena_alloc(loaded->arena, n, sizeof *loaded->ranks);
    loaded->group_set = clv_arena_alloc(loaded->arena, n_groups, sizeof *loaded->group_set);
    loaded->staging_bytes = clv_arena_alloc(loaded->arena, n_groups, sizeof *loaded->staging_bytes);
    void **regions = clv_arena_alloc(loaded->arena, n, sizeof *regions);
    if (session->options.find_nonfinite)
        loaded->minus_infinity_allowed = clv_negative_infinity_allowed(program);
    if (!loaded->ranks || !loaded->group_set || !loaded->staging_bytes || !regions ||
        (session->options.find_nonfinite && !loaded->minus_infinity_allowed))
        return clv_fail_memory(err, "a loaded program", n * sizeof *loaded->ranks);
    if (session->options.check)
        CLV_TRY(clv_memory_check_new(&loaded->check, program, session->n_local_ranks, err));
    for (int r = 0; r < session->n_local_ranks; r++) {
        loaded->ranks[r].context = context_of(session, r);
        loaded->ranks[r].stage = clv_program_stage_of(program, session->first_local_rank + r);
        CLV_TRY(allocate_rank(loaded, &loaded->ranks[r], session->options.trace, err));
        regions[r] = loaded->ranks[r].region;
    }
    return clv_session_register_memory(&loaded->window, session, regions, err);
}

/* ---- views and prepared collectives ---- */

/* The state that holds a buffer; NULL: the region does. */
static clv_status find_state(clv_named_state **out, const clv_session *session, const clv_program *program, int b,
                             clv_error *err)
{
    const clv_buffer *root = &program->buffers[clv_program_owning_buffer(program, b)];
    *out = NULL;
    return root->kind == CLV_BUFFER_STATE ? clv_session_find_state(out, session, root->name, err) : CLV_OK;
}

/* Points every rank's views to its memory. */
static clv_status make_views(const clv_session *session, clv_loaded_program *loaded, clv_error *err)
{
    const clv_program *program = loaded->program;
    for (int b = 0; b < program->n_buffers; b++) {
        int root = clv_program_owning_buffer(program, b);
        clv_named_state *state;
        CLV_TRY(find_state(&state, session, program, b, err));
        int64_t offset =
            loaded->check ? clv_memory_check_plan(loaded->check)->buffer[root] : program->buffers[root].offset;
        for (int r = 0; r < session->n_local_ranks; r++) {
            int rank = session->first_local_rank + r;
            char *base = state ? state->data[r] : (char *)loaded->ranks[r].region + offset;
            base += clv_program_shard_offset(program, b, rank);
            loaded->ranks[r].views[b] = clv_buffer_view(&program->buffers[b], &session->mesh, rank, base);
        }
    }
    return CLV_OK;
}

/* A scalar is a dimension of one element, or of none on ranks of other pipeline stages. */
static void find_shards(clv_shard *out, const clv_program *program, int b, const clv_group *group)
{
    const clv_buffer *buffer = &program->buffers[b];
    for (int m = 0; m < group->n; m++) {
        out[m] = clv_program_shard(program, b, group->ranks[m]);
        if (buffer->type.rank == 0 && program->stage_axis > 0)
            out[m] =
                (clv_shard){.rank = 1, .hi = {clv_layout_has_rank(&buffer->layout, &program->mesh, group->ranks[m])}};
    }
}

/* Of a permute: each member gets the shard of another, or an empty one. */
static void permute_shards(clv_shard *out, const clv_shard *in, int n, const clv_reshard_step *step)
{
    const int dim = step->permuted_dim;
    for (int m = 0; m < n; m++) {
        const int64_t source = step->sources[in[m].lo[dim]];
        out[m] = in[m];
        out[m].lo[dim] = source < 0 ? in[m].hi[dim] : source;
        out[m].hi[dim] = source < 0 ? in[m].hi[dim] : source + 1;
    }
}

/* Whether a buffer begins at the same offset on all ranks; chunks do not if shards are uneven. */
static bool has_same_offset_everywhere(const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b];
    bool even = true;
    for (int d = 0; d < buffer->type.rank; d++) {
        int64_t units = buffer->type.shape[d] / buffer->layout.alignment[d];
        even = even && units % clv_layout_block_count(&buffer->layout, d) == 0;
    }
    return even || buffer->first_row == 0;
}

static void note_staging(const clv_loaded_program *loaded, const clv_instruction *instruction, int64_t bytes)
{
    int64_t *most = &loaded->staging_bytes[clv_staging_slot(instruction)];
    *most = bytes > *most ? bytes : *most;
}

/* Plans a rank's collective; shards: scratch for two per rank. */
static clv_status prepare_collective(const clv_session *session, clv_loaded_program *loaded, int rank, int i,
                                     clv_shard *shards, clv_error *err)
{
    const clv_program *program = loaded->program;
    const clv_instruction *instruction = &program->instructions[i];
    clv_loaded_rank *mine = clv_loaded_program_on_rank(loaded, rank);
    clv_comm *comm = clv_world_comm(clv_rank_threads_world(session->team), rank);
    const clv_group *group = clv_comm_group(comm, loaded->group_set[instruction->group]);
    clv_step_kind kind = instruction->step->kind;
    clv_named_state *in_state, *out_state;
    int64_t staging = 0;
    if (instruction->experts > 0) {
        CLV_TRY(clv_expert_rows_prepare(&mine->rows[i], &mine->collectives[i], loaded, comm, rank, i, &staging, err));
        note_staging(loaded, instruction, staging);
        return CLV_OK;
    }
    CLV_TRY(find_state(&in_state, session, program, instruction->in[0], err));
    CLV_TRY(find_state(&out_state, session, program, instruction->out[0], err));
    find_shards(shards, program, instruction->in[0], group);
    if (instruction->step->sources)
        permute_shards(shards + group->n, shards, group->n, instruction->step);
    else
        find_shards(shards + group->n, program, instruction->out[0], group);
    clv_transfer transfer = {
        .what = clv_step_name(kind),
        .tag = loaded->digest << 32 | (uint64_t)i << 8 | (uint64_t)kind,
        .group = group,
        .dtype = mine->views[instruction->in[0]].dtype,
        .reduction = clv_step_reduces(kind) ? instruction->step->from.reduction : CLV_REDUCTION_NONE,
        .parts = {.n = group->n, .reduces = clv_step_reduces(kind), .in = shards, .out = shards + group->n},
        .in = mine->views[instruction->in[0]].data,
        .out = mine->views[instruction->out[0]].data,
        .in_device = mine->context.device,
        .out_device = mine->context.device,
        .in_window = in_state ? in_state->window : loaded->window,
        .out_window = out_state ? out_state->window : loaded->window};
    if (!has_same_offset_everywhere(program, instruction->in[0]) ||
        !has_same_offset_everywhere(program, instruction->out[0]))
        transfer.in_window = transfer.out_window = NULL; /* offsets differ: ranks exchange addresses */
    CLV_TRY(loaded->transport->prepare(&mine->collectives[i], comm, &transfer, &staging, err));
    note_staging(loaded, instruction, staging);
    return CLV_OK;
}

static clv_status prepare_collectives(const clv_session *session, clv_loaded_program *loaded, clv_error *err)
{
    CLV_FREED clv_shard *shards = malloc(2 * (size_t)session->n_ranks * sizeof *shards);
    if (!shards)
        return clv_fail_memory(err, "the shards of a step", 2 * (size_t)session->n_ranks * sizeof *shards);
    for (int r = session->first_local_rank; r < session->first_local_rank + session->n_local_ranks; r++)
        for (int i = 0; i < loaded->program->n_instructions; i++)
            if (loaded->program->instructions[i].group >= 0 &&
                clv_stages_have(loaded->program->instructions[i].stages, clv_loaded_program_on_rank(loaded, r)->stage))
                CLV_TRY(prepare_collective(session, loaded, r, i, shards, err));
    return CLV_OK;
}

/* Allocates host memory, unless there is some or none is needed. */
static clv_status allocate_staging(void **memory, int64_t bytes, const char *what, clv_error *err)
{
    if (*memory || bytes == 0)
        return CLV_OK;
    *memory = clv_staging_alloc(bytes);
    return *memory ? CLV_OK : clv_fail_memory(err, what, (size_t)bytes);
}

static clv_status map(clv_session *session, clv_loaded_program *loaded, clv_error *err)
{
    CLV_TRY(make_views(session, loaded, err));
    if (!loaded->kernels)
        CLV_TRY(clv_kernels_select(loaded, err));
    CLV_TRY(clv_prepared_calls_make(loaded, err));
    clv_status status = prepare_collectives(session, loaded, err);
    for (int r = 0; status == CLV_OK && r < loaded->n_local_ranks; r++) {
        for (int s = 0; status == CLV_OK && s <= loaded->program->n_groups; s++)
            status = allocate_staging(&loaded->ranks[r].staging[s], loaded->staging_bytes[s], "a rank's staging", err);
        if (status == CLV_OK)
            status = allocate_staging(&loaded->ranks[r].host, loaded->host_bytes, "a rank's ops on the host", err);
    }
    if (status != CLV_OK)
        clv_loaded_program_release_collectives(loaded);
    loaded->mapped = status == CLV_OK;
    return status;
}

/* ---- workspaces ---- */

/* The workspace planned for the largest shard is too small only if the def's workspace() falls as extents grow. Checks
 * the ranks of all processes, so that all report the same. */
static clv_status check_workspace(const clv_program *program, const clv_instruction *instruction, int64_t rank,
                                  clv_error *err)
{
    clv_view in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < instruction->n_in; i++)
        if (instruction->in[i] >= 0)
            in[i] = clv_buffer_view(&program->buffers[instruction->in[i]], &program->mesh, rank, NULL);
    for (int o = 0; o < instruction->n_out; o++)
        out[o] = clv_buffer_view(&program->buffers[instruction->out[o]], &program->mesh, rank, NULL);
    size_t needed = instruction->op->def->workspace(instruction->op, in, out);
    if (needed <= (size_t)instruction->workspace_bytes)
        return CLV_OK;
    return clv_fail_at(err, CLV_ECHECK, (int)rank, instruction->name,
                       "rank %lld, %s: it needs a workspace of %zu bytes on this rank, %lld are planned; its "
                       "workspace() must not fall when a local extent grows (op.h)",
                       (long long)rank, instruction->name, needed, (long long)instruction->workspace_bytes);
}

static clv_status check_workspaces(const clv_program *program, clv_error *err)
{
    int64_t ranks = clv_mesh_rank_count(&program->mesh);
    for (int i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].op && program->instructions[i].op->def->workspace)
            for (int64_t r = 0; r < ranks; r++)
                CLV_TRY(check_workspace(program, &program->instructions[i], r, err));
    return CLV_OK;
}

/* ---- loading ---- */

static clv_status load_new(clv_loaded_program **out, clv_session *session, const clv_program *program, clv_error *err)
{
    if (!clv_mesh_equal(&session->mesh, &program->mesh)) {
        char ours[CLV_MESH_TEXT], theirs[CLV_MESH_TEXT];
        clv_mesh_print(ours, sizeof ours, &session->mesh);
        clv_mesh_print(theirs, sizeof theirs, &program->mesh);
        return clv_fail(err, CLV_EINVAL, "the program was compiled for the mesh '%s', the session has '%s'", theirs,
                        ours);
    }
    CLV_TRY(check_workspaces(program, err));
    uint64_t digest = clv_program_digest(program);
    CLV_TRY(clv_session_check_same_program(session, digest, err)); /* groups are added in the same order everywhere */
    clv_loaded_program **grown = realloc(session->loaded, ((size_t)session->n_loaded + 1) * sizeof *grown);
    clv_loaded_program *loaded = calloc(1, sizeof *loaded);
    if (grown)
        session->loaded = grown;
    if (!grown || !loaded) {
        free(loaded);
        return clv_fail_memory(err, "a loaded program", sizeof *loaded);
    }
    loaded->digest = digest;
    clv_status status = allocate(loaded, session, program, err);
    for (int g = 0; status == CLV_OK && g < program->n_groups; g++)
        status = clv_session_add_groups(&loaded->group_set[g], session, program->groups[g].axes, program->groups[g].n,
                                        program->groups[g].from | program->groups[g].to, err);
    if (status == CLV_OK)
        status = clv_session_prepare_states(session, program, err);
    if (status == CLV_OK)
        status = map(session, loaded, err);
    if (status != CLV_OK) {
        clv_loaded_program_free(loaded);
        return status;
    }
    session->loaded[session->n_loaded++] = loaded;
    *out = loaded;
    return CLV_OK;
}

clv_status clv_session_find_or_load(clv_loaded_program **out, clv_session *session, const clv_program *program,
                                    clv_error *err)
{
    if (clv_session_has_failed(session))
        return clv_rank_threads_run(session->team, NULL, NULL, err);
    for (int i = 0; i < session->n_loaded; i++)
        if (session->loaded[i]->program == program) {
            *out = session->loaded[i];
            if ((*out)->mapped) /* resharded state unmaps programs */
                return CLV_OK;
            CLV_TRY(clv_session_prepare_states(session, program, err));
            return map(session, *out, err);
        }
    return load_new(out, session, program, err);
}
