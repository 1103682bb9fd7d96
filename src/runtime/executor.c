/* executor.c - runs instructions on a rank. Steps read peers' buffers in place: there is no staging copy. A step that does not
 * reduce is "copy what I lack from whoever has it"; a reduction is "each sums its part straight out of every peer". */
#include "runtime/executor.h"

#include <string.h>

#include "base/error.h"
#include "base/wait.h"
#include "runtime/check.h"
#include "runtime/finite.h"
#include "tensor/view.h"

/* Below this many bytes every rank reduces the whole tensor itself: one barrier less than sharing the work. */
enum { SMALL_REDUCE_BYTES = 32768 };

typedef struct rank_state {
    const clv_loaded *loaded;
    int rank;
    clv_comm *comm;
    const clv_comm_backend *backend;
    clv_rank_times *times;
} rank_state;

const clv_view *clv_loaded_view(const clv_loaded *loaded, int rank, int b)
{
    return &loaded->views[(int64_t)rank * loaded->program->n_buffers + b];
}

static const clv_view *view_of(const rank_state *r, int rank, int buffer)
{
    return clv_loaded_view(r->loaded, rank, buffer);
}

static clv_shard shard_of(const clv_view *view)
{
    clv_shard shard = {.rank = view->rank};
    for (int d = 0; d < view->rank; d++) {
        shard.lo[d] = view->lo[d];
        shard.hi[d] = view->lo[d] + view->shape[d];
    }
    return shard;
}

static bool same_shard(const clv_view *a, const clv_view *b)
{
    size_t bytes = (size_t)a->rank * sizeof *a->lo;
    return memcmp(a->lo, b->lo, bytes) == 0 && memcmp(a->shape, b->shape, bytes) == 0;
}

/* Copies to this rank's `out` what member `peer` has of it. */
static void copy_from(const rank_state *r, const clv_instruction *instruction, int peer)
{
    const clv_view *out = view_of(r, r->rank, instruction->out[0]), *in = view_of(r, peer, instruction->in[0]);
    clv_shard to = shard_of(out), from = shard_of(in), box = clv_shard_intersect(&to, &from);
    clv_box_copy(out->data, &to, in->data, &from, &box, clv_dtype_size(out->dtype));
}

/* From myself first, then from the others in turn; replicas of what was copied already are passed over. */
static void copy_lacking(const rank_state *r, const clv_instruction *instruction, const clv_group *group)
{
    for (int i = 0; i < group->n; i++) {
        int peer = group->ranks[(group->me + i) % group->n];
        const clv_view *in = view_of(r, peer, instruction->in[0]);
        bool replica = false;
        for (int before = 0; before < i && !replica; before++) {
            int other = group->ranks[(group->me + before) % group->n];
            replica = same_shard(in, view_of(r, other, instruction->in[0]));
        }
        if (!replica)
            copy_from(r, instruction, peer);
    }
}

static void reduce_scatter(const rank_state *r, const clv_instruction *instruction, int n, const void *const *peers)
{
    const clv_view *out = view_of(r, r->rank, instruction->out[0]), *in = view_of(r, r->rank, instruction->in[0]);
    clv_shard to = shard_of(out), from = shard_of(in);
    clv_box_reduce(out->data, &to, peers, n, &from, &to, out->dtype, instruction->step->from.reduction);
}

/* Each member sums one slice straight out of all inputs and writes it to every member's output. */
static void all_reduce(const rank_state *r, const clv_instruction *instruction, const clv_group *group,
                       const void *const *peers)
{
    const clv_view *out = view_of(r, r->rank, instruction->out[0]);
    int64_t elems = clv_view_elems(out), size = (int64_t)clv_dtype_size(out->dtype), lo = 0, hi = elems;
    bool alone = elems * size <= SMALL_REDUCE_BYTES;
    if (!alone)
        clv_cut_block(elems, 1, group->n, group->me, &lo, &hi);
    char *mine = out->data;
    clv_run_reduce(mine + lo * size, peers, group->n, lo, hi - lo, out->dtype, instruction->step->from.reduction);
    for (int i = 1; !alone && i < group->n && hi > lo; i++) {
        const clv_view *other = view_of(r, group->ranks[(group->me + i) % group->n], instruction->out[0]);
        memcpy((char *)other->data + lo * size, mine + lo * size, (size_t)((hi - lo) * size));
    }
}

static uint64_t tag_of(const rank_state *r, const clv_instruction *instruction)
{
    uint64_t index = (uint64_t)(instruction - r->loaded->program->instructions);
    return index << 8 | (uint64_t)instruction->step->kind;
}

static clv_status run_moving(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_group *group = clv_comm_group(r->comm, r->loaded->group_set[instruction->group]);
    void **peers = r->loaded->peers + (int64_t)r->rank * r->loaded->n_ranks;
    int64_t start = clv_now_ns();
    CLV_TRY(r->backend->open_views(r->comm, group, view_of(r, r->rank, instruction->in[0])->data,
                                   tag_of(r, instruction), peers, err));
    int64_t opened = clv_now_ns();
    if (instruction->step->kind == CLV_STEP_ALL_REDUCE)
        all_reduce(r, instruction, group, (const void *const *)peers);
    else if (instruction->step->kind == CLV_STEP_REDUCE_SCATTER)
        reduce_scatter(r, instruction, group->n, (const void *const *)peers);
    else
        copy_lacking(r, instruction, group);
    int64_t moved = clv_now_ns();
    CLV_TRY(r->backend->close_views(r->comm, group, err));
    r->times->wait_ns += opened - start + (clv_now_ns() - moved);
    return CLV_OK;
}

/* mask: coordinate 0 of the new partial axes keeps the values. */
static void run_mask(const rank_state *r, const clv_instruction *instruction)
{
    const clv_view *out = view_of(r, r->rank, instruction->out[0]);
    const clv_reshard_step *step = instruction->step;
    bool keeps = true;
    for (int i = 0; i < step->n_axes; i++)
        keeps = keeps && clv_mesh_coordinate(&r->loaded->program->mesh, step->axes[i], r->rank) == 0;
    if (keeps)
        copy_from(r, instruction, r->rank);
    else
        clv_fill_identity(out->data, clv_view_elems(out), out->dtype, step->to.reduction);
}

static clv_status run_step(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    int64_t start = clv_now_ns();
    clv_status status = CLV_OK;
    if (instruction->group >= 0)
        status = run_moving(r, instruction, err);
    else if (instruction->step->kind == CLV_STEP_MASK)
        run_mask(r, instruction);
    else
        copy_from(r, instruction, r->rank);
    r->times->comm_ns += clv_now_ns() - start;
    return status;
}

void clv_loaded_operands(clv_view in[CLV_MAX_IN], clv_view out[CLV_MAX_OUT], const clv_loaded *loaded, int rank,
                         const clv_instruction *instruction)
{
    for (int i = 0; i < instruction->n_in; i++)
        in[i] = instruction->in[i] < 0 ? (clv_view){0} : *clv_loaded_view(loaded, rank, instruction->in[i]);
    for (int o = 0; o < instruction->n_out; o++)
        out[o] = *clv_loaded_view(loaded, rank, instruction->out[o]);
}

static char *workspace_of(const rank_state *r, const clv_instruction *instruction)
{
    int i = (int)(instruction - r->loaded->program->instructions);
    char *region = r->loaded->region[r->rank];
    return region +
           (r->loaded->check ? clv_check_workspace_offset(r->loaded->check, i) : instruction->workspace_offset);
}

static clv_status run_op(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    clv_loaded_operands(in, out, r->loaded, r->rank, instruction);
    clv_call call = {.op = instruction->op, .in = in, .out = out, .workspace = workspace_of(r, instruction)};
    clv_error why = {0};
    clv_status status = instruction->op->def->run[CLV_CPU](&call, &why);
    if (status != CLV_OK)
        return clv_fail_at(err, status, r->rank, instruction->name, "rank %d, %s: %s", r->rank, instruction->name,
                           why.message);
    return CLV_OK;
}

clv_status clv_execute(const clv_loaded *loaded, int rank, clv_comm *comm, clv_rank_times *times, clv_error *err)
{
    const clv_program *program = loaded->program;
    rank_state r = {
        .loaded = loaded, .rank = rank, .comm = comm, .backend = clv_comm_get_backend(comm), .times = times};
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        clv_nonfinite before = {.buffer = -1};
        clv_comm_note(comm, instruction->name);
        if (loaded->check)
            CLV_TRY(clv_check_before(loaded, rank, i, err));
        if (loaded->lowest)
            CLV_TRY(clv_finite_before(&before, loaded, rank, i, err));
        int64_t start = loaded->instruction_ns ? clv_now_ns() : 0;
        CLV_TRY(instruction->op ? run_op(&r, instruction, err) : run_step(&r, instruction, err));
        if (loaded->instruction_ns)
            loaded->instruction_ns[(int64_t)rank * program->n_instructions + i] += clv_now_ns() - start;
        if (loaded->lowest)
            CLV_TRY(clv_finite_after(&before, loaded, rank, i, err));
        if (loaded->check)
            CLV_TRY(clv_check_after(loaded, rank, i, err));
    }
    return CLV_OK;
}
