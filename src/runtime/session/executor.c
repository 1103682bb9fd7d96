/* executor.c - interpreter of one rank: runs instructions, starts and completes collectives. */
#include "runtime/session/executor.h"

#include "base/threads/wait.h"
#include "runtime/checks/memory_check.h"
#include "runtime/checks/nonfinite_check.h"
#include "runtime/diagnostics/trace_recorder.h"
#include "runtime/session/expert_rows.h"

typedef struct rank_state {
    const clv_loaded_program *loaded;
    const clv_loaded_rank *mine;
    int rank;
    clv_comm *comm;
    clv_rank_times *times;
    clv_rank_trace *trace; /* NULL: not recorded */
    int n_in_flight;
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

/* Copies the elements that this rank has from the operand to the result. */
static clv_status copy_own(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_device *device = r->mine->context.device;
    const clv_view *out = &r->mine->views[instruction->out[0]], *in = &r->mine->views[instruction->in[0]];
    clv_shard to = shard_of(out), from = shard_of(in), box = clv_shard_intersect(&to, &from);
    return device->backend->copy(device, CLV_COPY_ON_DEVICE, out->data, &to, in->data, &from, &box,
                                 clv_dtype_size(out->dtype), err);
}

/* Starts a record in the flight recorder. */
static void begin(const rank_state *r, int i)
{
    const clv_instruction *instruction = &r->loaded->program->instructions[i];
    clv_comm_begin_instruction(r->comm, instruction->name,
                               instruction->op ? instruction->op->def->name : clv_step_name(instruction->step->kind),
                               i);
}

static clv_status wait_for(const rank_state *r, int i, clv_error *err)
{
    const clv_transport *transport = r->loaded->transport;
    CLV_TRY(transport->wait(r->mine->collectives[i], CLV_WAIT_OUTPUT_READY, err));
    CLV_TRY(transport->wait(r->mine->collectives[i], CLV_WAIT_INPUT_REUSABLE, err));
    return r->mine->rows[i] ? clv_expert_rows_end(r->mine->rows[i], err) : CLV_OK;
}

/* The rank's time outside of collectives until now, plus a constant. */
static int64_t ops_ns(const rank_state *r, int64_t now)
{
    return now - r->times->comm_ns;
}

/* When the data of a collective that the rank waits for from `now` on had arrived, at the latest now. */
static int64_t arrived_ns(const clv_prepared_collective *prepared, int64_t now)
{
    return prepared->arrived_ns > 0 && prepared->arrived_ns < now ? prepared->arrived_ns : now;
}

/* How long it overlapped with ops. */
static int64_t overlapped_ns(const rank_state *r, const clv_prepared_collective *prepared, int64_t now)
{
    int64_t moved = arrived_ns(prepared, now) - prepared->begun_ns,
            ops = ops_ns(r, now) - prepared->compute_ns_at_start;
    int64_t overlapped = moved < ops ? moved : ops;
    return overlapped > 0 ? overlapped : 0;
}

/* Records the transfer of an overlapped collective, and the wait for its completion. */
static void record_completion(const rank_state *r, int i, int64_t begun_ns, int64_t ended_ns)
{
    const clv_prepared_collective *prepared = r->mine->collectives[i];
    int64_t arrived = arrived_ns(prepared, begun_ns);
    clv_rank_trace_add_waits(r->trace, CLV_TRACE_COMPLETION, i, begun_ns, ended_ns);
    clv_rank_trace_add(r->trace, CLV_TRACE_TRANSFER, i, prepared->begun_ns,
                       arrived > prepared->begun_ns ? arrived : prepared->begun_ns);
}

/* Checks for NaN and infinity before or after an instruction, unless the rank has found one. The first finding is
 * stored where the loaded program asks for it; else it fails the run. */
static clv_status check_nonfinite(const rank_state *r, clv_nonfinite_element *before, int i, bool after, clv_error *err)
{
    clv_nonfinite_finding *finding = r->mine->finding;
    if (!r->loaded->minus_infinity_allowed || (finding && finding->instruction >= 0))
        return CLV_OK;
    clv_error why = {.rank = -1};
    clv_status status = after ? clv_nonfinite_check_after(before, r->loaded, r->rank, i, &why)
                              : clv_nonfinite_check_before(before, r->loaded, r->rank, i, &why);
    if (status == CLV_OK)
        return CLV_OK;
    if (finding)
        *finding = (clv_nonfinite_finding){i, why};
    else if (err && err->code == CLV_OK)
        *err = why;
    return finding ? CLV_OK : status;
}

/* Waits for collective k of those in flight; last_run: the last instruction that ran. */
static clv_status complete_step(rank_state *r, int k, int last_run, clv_error *err)
{
    int i = r->mine->in_flight[k];
    int64_t start = clv_now_ns();
    begin(r, i);
    CLV_TRY(wait_for(r, i, err));
    int64_t took = clv_now_ns() - start;
    r->times->overlapped_ns += overlapped_ns(r, r->mine->collectives[i], start);
    r->times->comm_ns += took;
    if (r->mine->instruction_ns)
        r->mine->instruction_ns[i] += took;
    if (r->trace)
        record_completion(r, i, start, start + took);
    r->n_in_flight--;
    for (; k < r->n_in_flight; k++)
        r->mine->in_flight[k] = r->mine->in_flight[k + 1];
    CLV_TRY(check_nonfinite(r, &(clv_nonfinite_element){.buffer = -1}, i, true, err));
    return r->loaded->check ? clv_memory_check_after_overlapped(r->loaded, r->rank, i, last_run, err) : CLV_OK;
}

/* Completes the collective in flight in the group set of an instruction: a set has one at a time. */
static clv_status complete_same_set(rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_instruction *instructions = r->loaded->program->instructions;
    const int *set = r->loaded->group_set;
    for (int k = r->n_in_flight - 1; k >= 0; k--)
        if (set[instructions[r->mine->in_flight[k]].group] == set[instruction->group])
            CLV_TRY(complete_step(r, k, (int)(instruction - instructions) - 1, err));
    return CLV_OK;
}

static clv_status run_moving(rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_program *program = r->loaded->program;
    int i = (int)(instruction - program->instructions);
    void *staging = r->mine->staging[clv_staging_slot(instruction)];
    clv_prepared_collective *prepared = r->mine->collectives[i];
    prepared->overlapped = instruction->n_overlapped > 0;
    if (r->mine->rows[i])
        CLV_TRY(clv_expert_rows_begin(r->mine->rows[i], err));
    CLV_TRY(r->loaded->transport->start(prepared, staging, err));
    if (instruction->n_overlapped == 0)
        return wait_for(r, i, err);
    r->mine->in_flight[r->n_in_flight++] = i;
    r->loaded->transport->overlap(prepared);
    prepared->begun_ns = clv_now_ns();
    return CLV_OK;
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

/* A rank to which a permute sends nothing gets zeros. */
static clv_status fill_unsent(const rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_reshard_step *step = instruction->step;
    const clv_device *device = r->mine->context.device;
    const clv_view *out = &r->mine->views[instruction->out[0]];
    if (!step->sources || step->sources[out->lo[step->permuted_dim]] >= 0)
        return CLV_OK;
    return device->backend->fill(device, out->data, clv_view_elems(out), out->dtype, CLV_REDUCTION_SUM, err);
}

static clv_status run_step(rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    int64_t start = clv_now_ns();
    clv_status status = fill_unsent(r, instruction, err);
    if (status == CLV_OK && instruction->group >= 0)
        status = run_moving(r, instruction, err);
    else if (instruction->step->kind == CLV_STEP_MASK)
        status = run_mask(r, instruction, err);
    else if (instruction->group < 0)
        status = copy_own(r, instruction, err);
    int64_t now = clv_now_ns();
    r->times->comm_ns += now - start;
    if (instruction->n_overlapped > 0)
        r->mine->collectives[instruction - r->loaded->program->instructions]->compute_ns_at_start = ops_ns(r, now);
    return status;
}

static clv_status run_op(const rank_state *r, int i, clv_error *err)
{
    const clv_call *call = &r->mine->prepared_calls[i].call;
    if (r->loaded->kernels[i].on_host)
        return clv_kernel_run_on_host(r->loaded, r->rank, i, call, r->times, err);
    return clv_kernel_run(r->loaded, r->rank, i, call, err);
}

void clv_loaded_program_release_collectives(clv_loaded_program *loaded)
{
    for (int r = 0; loaded->ranks && r < loaded->n_local_ranks; r++) {
        clv_loaded_rank *mine = &loaded->ranks[r];
        for (int i = 0; mine->collectives && mine->rows && i < loaded->program->n_instructions; i++) {
            loaded->transport->release(mine->collectives[i]);
            clv_expert_rows_free(mine->rows[i]);
            mine->collectives[i] = NULL;
            mine->rows[i] = NULL;
        }
    }
    loaded->mapped = false;
}

static clv_status check_after(const rank_state *r, clv_nonfinite_element *before, int i, clv_error *err)
{
    if (r->loaded->program->instructions[i].n_overlapped == 0)
        CLV_TRY(check_nonfinite(r, before, i, true, err));
    return r->loaded->check ? clv_memory_check_after(r->loaded, r->rank, i, err) : CLV_OK;
}

static void note_time(const rank_state *r, int i, int64_t begun_ns)
{
    int64_t now = clv_now_ns();
    if (r->mine->instruction_ns)
        r->mine->instruction_ns[i] += now - begun_ns;
    if (r->trace)
        clv_rank_trace_add_waits(r->trace, CLV_TRACE_INSTRUCTION, i, begun_ns, now);
}

/* A failed wait is not in the log of waits: records that the rank waited during the whole collective. */
static void note_failed_wait(const rank_state *r, const clv_instruction *instruction, int64_t begun_ns)
{
    if (!r->trace || instruction->group < 0 || r->trace->waits.n > 0)
        return;
    r->trace->waits.of[0].begun_ns = begun_ns;
    r->trace->waits.of[0].ended_ns = clv_now_ns();
    r->trace->waits.of[0].stealing_ns = 0;
    r->trace->waits.n = 1;
}

/* Completes the collectives that are waited for after instruction i. */
static clv_status complete_after(rank_state *r, int i, clv_error *err)
{
    for (int k = r->n_in_flight - 1; k >= 0; k--)
        if (clv_program_completes_at(r->loaded->program, r->mine->in_flight[k]) == i)
            CLV_TRY(complete_step(r, k, i, err));
    return CLV_OK;
}

/* An instruction of other pipeline stages. */
static clv_status skip_instruction(rank_state *r, int i, clv_error *err)
{
    if (r->loaded->check)
        clv_memory_check_skipped(r->loaded, r->rank, i);
    return complete_after(r, i, err);
}

static clv_status run_instruction(rank_state *r, int i, clv_error *err)
{
    const clv_loaded_program *loaded = r->loaded;
    const clv_instruction *instruction = &loaded->program->instructions[i];
    if (!clv_stages_have(instruction->stages, r->mine->stage))
        return skip_instruction(r, i, err);
    clv_nonfinite_element before = {.buffer = -1};
    if (instruction->group >= 0)
        CLV_TRY(complete_same_set(r, instruction, err)); /* before this instruction is timed */
    begin(r, i);
    if (clv_cancel_requested(loaded->cancel))
        return clv_fail_at(err, CLV_ECANCELLED, r->rank, instruction->name, "the run was cancelled before %s",
                           instruction->name);
    CLV_TRY(clv_comm_check(r->comm, err)); /* another rank may have failed, and the next wait be far */
    if (loaded->check)
        CLV_TRY(clv_memory_check_before(loaded, r->rank, i, err));
    CLV_TRY(check_nonfinite(r, &before, i, false, err));
    int64_t start = r->mine->instruction_ns || r->trace ? clv_now_ns() : 0;
    clv_status status = instruction->op ? run_op(r, i, err) : run_step(r, instruction, err);
    if (status != CLV_OK)
        note_failed_wait(r, instruction, start);
    if (r->mine->instruction_ns || r->trace)
        note_time(r, i, start);
    CLV_TRY(status);
    CLV_TRY(check_after(r, &before, i, err));
    return complete_after(r, i, err);
}

static clv_status run_all(rank_state *r, clv_error *err)
{
    const clv_program *program = r->loaded->program;
    for (int i = 0; i < program->n_instructions; i++)
        if (!r->loaded->matmuls_only ||
            (program->instructions[i].op && clv_op_traits_of(program->instructions[i].op)->is_product))
            CLV_TRY(run_instruction(r, i, err));
    return CLV_OK;
}

static clv_status run_recorded(rank_state *r, clv_error *err)
{
    int64_t begun_ns = clv_now_ns();
    clv_comm_set_wait_log(r->comm, &r->trace->waits);
    clv_status status = run_all(r, err);
    clv_comm_set_wait_log(r->comm, NULL);
    clv_rank_trace_add(r->trace, CLV_TRACE_RUN, -1, begun_ns, clv_now_ns());
    return status;
}

clv_status clv_execute_program(const clv_loaded_program *loaded, int rank, clv_comm *comm, clv_rank_times *times,
                               clv_rank_trace *trace, clv_error *err)
{
    const clv_loaded_rank *mine = clv_loaded_program_on_rank(loaded, rank);
    rank_state r = {.loaded = loaded, .mine = mine, .rank = rank, .comm = comm, .times = times, .trace = trace};
    (void)clv_comm_take_wait_ns(comm); /* waits before the run do not count */
    CLV_TRY(trace ? run_recorded(&r, err) : run_all(&r, err));
    clv_comm_end_instruction(comm);
    times->wait_ns += clv_comm_take_wait_ns(comm);
    return clv_device_synchronize(mine->context.device, err);
}
