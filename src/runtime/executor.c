/* executor.c - runs instructions on a rank. It sees this rank's memory alone; steps that move go through the transport.
 */
#include "runtime/executor.h"

#include "base/wait.h"
#include "runtime/check.h"
#include "runtime/finite.h"
#include "runtime/kernel.h"

typedef struct rank_state {
    const clv_loaded *loaded;
    const clv_loaded_rank *mine;
    int rank;
    clv_rank_times *times;
} rank_state;

static clv_shard shard_of(const clv_view *view)
{
    clv_shard shard = {.rank = view->rank};
    for (int d = 0; d < view->rank; d++) {
        shard.lo[d] = view->lo[d];
        shard.hi[d] = view->lo[d] + view->shape[d];
    }
    return shard;
}

/* Copies to `out` what this rank has of it. */
static clv_status copy_own(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_device *device = r->mine->context.device;
    const clv_view *out = &r->mine->views[instruction->out[0]], *in = &r->mine->views[instruction->in[0]];
    clv_shard to = shard_of(out), from = shard_of(in), box = clv_shard_intersect(&to, &from);
    return device->backend->copy(device, CLV_COPY_ON_DEVICE, out->data, &to, in->data, &from, &box,
                                 clv_dtype_size(out->dtype), err);
}

static clv_status run_moving(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_transport *transport = r->loaded->transport;
    clv_plan *plan = r->mine->plans[instruction - r->loaded->program->instructions];
    CLV_TRY(transport->start(plan, r->mine->staging, err));
    CLV_TRY(transport->wait(plan, CLV_WAIT_OUT, err));
    return transport->wait(plan, CLV_WAIT_IN, err);
}

/* mask: coordinate 0 of the new partial axes keeps the values. */
static clv_status run_mask(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_device *device = r->mine->context.device;
    const clv_view *out = &r->mine->views[instruction->out[0]];
    const clv_reshard_step *step = instruction->step;
    bool keeps = true;
    for (int i = 0; i < step->n_axes; i++)
        keeps = keeps && clv_mesh_coordinate(&r->loaded->program->mesh, step->axes[i], r->rank) == 0;
    if (keeps)
        return copy_own(r, instruction, err);
    return device->backend->fill(device, out->data, clv_view_elems(out), out->dtype, step->to.reduction, err);
}

static clv_status run_step(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    int64_t start = clv_now_ns();
    clv_status status = CLV_OK;
    if (instruction->group >= 0)
        status = run_moving(r, instruction, err);
    else if (instruction->step->kind == CLV_STEP_MASK)
        status = run_mask(r, instruction, err);
    else
        status = copy_own(r, instruction, err);
    r->times->comm_ns += clv_now_ns() - start;
    return status;
}

/* NULL for an op that asks for none; where runs are checked, memory in which it shows. */
static char *workspace_of(const rank_state *r, const clv_instruction *instruction)
{
    int i = (int)(instruction - r->loaded->program->instructions);
    char *region = r->mine->region;
    if (!instruction->op->def->workspace && !r->loaded->check)
        return NULL;
    return region +
           (r->loaded->check ? clv_check_workspace_offset(r->loaded->check, i) : instruction->workspace_offset);
}

static clv_status run_op(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    int i = (int)(instruction - r->loaded->program->instructions);
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    clv_loaded_operands(in, out, r->loaded, r->rank, instruction);
    clv_call call = {.op = instruction->op,
                     .in = in,
                     .out = out,
                     .workspace = workspace_of(r, instruction),
                     .context = &r->mine->context};
    if (r->loaded->kernels[i].on_host)
        return clv_kernel_run_on_host(r->loaded, r->rank, i, &call, r->times, err);
    return clv_kernel_run(r->loaded, r->rank, i, &call, err);
}

void clv_loaded_unmap(clv_loaded *loaded)
{
    for (int r = 0; loaded->ranks && r < loaded->here; r++) {
        clv_loaded_rank *mine = &loaded->ranks[r];
        for (int i = 0; mine->plans && i < loaded->program->n_instructions; i++) {
            loaded->transport->release(mine->plans[i]);
            mine->plans[i] = NULL;
        }
    }
    loaded->mapped = false;
}

clv_status clv_execute(const clv_loaded *loaded, int rank, clv_comm *comm, clv_rank_times *times, clv_error *err)
{
    const clv_program *program = loaded->program;
    const clv_loaded_rank *mine = clv_loaded_on(loaded, rank);
    rank_state r = {.loaded = loaded, .mine = mine, .rank = rank, .times = times};
    (void)clv_comm_take_waited_ns(comm); /* state that was moved is no part of a run */
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        clv_nonfinite before = {.buffer = -1};
        clv_comm_note(comm, instruction->name);
        if (clv_cancel_requested(loaded->cancel))
            return clv_fail_at(err, CLV_ECANCELLED, rank, instruction->name, "the run was cancelled before %s",
                               instruction->name);
        if (loaded->check)
            CLV_TRY(clv_check_before(loaded, rank, i, err));
        if (loaded->lowest)
            CLV_TRY(clv_finite_before(&before, loaded, rank, i, err));
        int64_t start = mine->instruction_ns ? clv_now_ns() : 0;
        CLV_TRY(instruction->op ? run_op(&r, instruction, err) : run_step(&r, instruction, err));
        if (mine->instruction_ns)
            mine->instruction_ns[i] += clv_now_ns() - start;
        if (loaded->lowest)
            CLV_TRY(clv_finite_after(&before, loaded, rank, i, err));
        if (loaded->check)
            CLV_TRY(clv_check_after(loaded, rank, i, err));
    }
    times->wait_ns += clv_comm_take_waited_ns(comm);
    return clv_device_finish(mine->context.device, err);
}
