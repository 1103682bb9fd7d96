/* executor.c - runs instructions on a rank. It sees this rank's memory alone; steps that move go through the transport.
 */
#include "runtime/executor.h"

#include "base/wait.h"
#include "runtime/check.h"
#include "runtime/finite.h"
#include "runtime/kernel.h"
#include "runtime/tracer.h"

typedef struct rank_state {
    const clv_loaded *loaded;
    const clv_loaded_rank *mine;
    int rank;
    clv_comm *comm;
    clv_rank_times *times;
    clv_rank_trace *trace; /* NULL: nothing is recorded */
    int n_flying;
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

/* Says what this rank does from here on. */
static void begin(const rank_state *r, int i)
{
    const clv_instruction *instruction = &r->loaded->program->instructions[i];
    clv_comm_begin(r->comm, instruction->name,
                   instruction->op ? instruction->op->def->name : clv_step_name(instruction->step->kind), i);
}

static clv_status wait_for(const rank_state *r, int i, clv_error *err)
{
    const clv_transport *transport = r->loaded->transport;
    CLV_TRY(transport->wait(r->mine->plans[i], CLV_WAIT_OUT, err));
    return transport->wait(r->mine->plans[i], CLV_WAIT_IN, err);
}

/* What of the rank's time until now was not in steps, from a time that stays. */
static int64_t ops_ns(const rank_state *r, int64_t now)
{
    return now - r->times->comm_ns;
}

/* Since when all of a step that the rank waits for from `now` on has been here, or until when it moved beside ops. */
static int64_t there_ns(const clv_plan *plan, int64_t now)
{
    return plan->there_ns > 0 && plan->there_ns < now ? plan->there_ns : now;
}

/* How long it has moved beside them. */
static int64_t hidden_ns(const rank_state *r, const clv_plan *plan, int64_t now)
{
    int64_t moved = there_ns(plan, now) - plan->begun_ns, ops = ops_ns(r, now) - plan->begun_ops_ns;
    int64_t hidden = moved < ops ? moved : ops;
    return hidden > 0 ? hidden : 0;
}

/* What a step that flew took beside ops, and waiting for it. */
static void record_landing(const rank_state *r, int i, int64_t begun_ns, int64_t ended_ns)
{
    const clv_plan *plan = r->mine->plans[i];
    int64_t there = there_ns(plan, begun_ns);
    clv_rank_trace_add_waits(r->trace, CLV_TRACE_LANDS, i, begun_ns, ended_ns);
    clv_rank_trace_add(r->trace, CLV_TRACE_FLIES, i, plan->begun_ns, there > plan->begun_ns ? there : plan->begun_ns);
}

/* What the rank finds first is kept, where it is to be; else it fails the run. */
static clv_status keep_finding(const rank_state *r, int i, clv_status status, clv_error *why, clv_error *err)
{
    clv_finding *finding = r->mine->finding;
    if (status == CLV_OK)
        return CLV_OK;
    if (finding)
        *finding = (clv_finding){i, *why};
    else if (err && err->code == CLV_OK)
        *err = *why;
    return finding ? CLV_OK : status;
}

/* Whether it looks for what is not finite, and has found nothing yet. */
static bool looks(const rank_state *r)
{
    return r->loaded->lowest && (!r->mine->finding || r->mine->finding->instruction < 0);
}

static clv_status look_before(const rank_state *r, clv_nonfinite *out, int i, clv_error *err)
{
    if (!looks(r))
        return CLV_OK;
    clv_error why = {.rank = -1};
    return keep_finding(r, i, clv_finite_before(out, r->loaded, r->rank, i, &why), &why, err);
}

static clv_status look_behind(const rank_state *r, const clv_nonfinite *before, int i, clv_error *err)
{
    if (!looks(r))
        return CLV_OK;
    clv_error why = {.rank = -1};
    return keep_finding(r, i, clv_finite_after(before, r->loaded, r->rank, i, &why), &why, err);
}

/* Waits for the step that flies in place k of the list; behind: the instruction that ran last. */
static clv_status land(rank_state *r, int k, int behind, clv_error *err)
{
    int i = r->mine->flying[k];
    int64_t start = clv_now_ns();
    begin(r, i);
    CLV_TRY(wait_for(r, i, err));
    int64_t took = clv_now_ns() - start;
    int64_t hidden = hidden_ns(r, r->mine->plans[i], start);
    r->times->hidden_ns += hidden;
    r->times->comm_ns += took;
    if (r->mine->spent) {
        r->mine->spent[i].ns += took;
        r->mine->spent[i].hidden_ns += hidden;
    }
    if (r->trace)
        record_landing(r, i, start, start + took);
    r->n_flying--;
    for (; k < r->n_flying; k++)
        r->mine->flying[k] = r->mine->flying[k + 1];
    CLV_TRY(look_behind(r, &(clv_nonfinite){.buffer = -1}, i, err));
    return r->loaded->check ? clv_check_landed(r->loaded, r->rank, i, behind, err) : CLV_OK;
}

/* Groups that are the same set have one step in progress at most. */
static clv_status clear_set(rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_instruction *instructions = r->loaded->program->instructions;
    const int *set = r->loaded->group_set;
    for (int k = r->n_flying - 1; k >= 0; k--)
        if (set[instructions[r->mine->flying[k]].group] == set[instruction->group])
            CLV_TRY(land(r, k, (int)(instruction - instructions) - 1, err));
    return CLV_OK;
}

static clv_status run_moving(rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    const clv_program *program = r->loaded->program;
    int i = (int)(instruction - program->instructions);
    void *staging = r->mine->staging[clv_staging_slot(instruction)];
    clv_plan *plan = r->mine->plans[i];
    plan->flies = instruction->beside > 0;
    CLV_TRY(r->loaded->transport->start(plan, staging, err));
    if (instruction->beside == 0)
        return wait_for(r, i, err);
    r->mine->flying[r->n_flying++] = i;
    r->loaded->transport->beside(plan);
    plan->begun_ns = clv_now_ns();
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

static clv_status run_step(rank_state *r, const clv_instruction *instruction, clv_error *err)
{
    int64_t start = clv_now_ns();
    clv_status status = CLV_OK;
    if (instruction->group >= 0)
        status = run_moving(r, instruction, err);
    else if (instruction->step->kind == CLV_STEP_MASK)
        status = run_mask(r, instruction, err);
    else
        status = copy_own(r, instruction, err);
    int64_t now = clv_now_ns();
    r->times->comm_ns += now - start;
    if (instruction->beside > 0)
        r->mine->plans[instruction - r->loaded->program->instructions]->begun_ops_ns = ops_ns(r, now);
    return status;
}

static clv_status run_op(const rank_state *r, int i, clv_error *err)
{
    const clv_call *call = &r->mine->ready[i].call;
    if (r->loaded->kernels[i].on_host)
        return clv_kernel_run_on_host(r->loaded, r->rank, i, call, r->times, err);
    return clv_kernel_run(r->loaded, r->rank, i, call, err);
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

/* What is looked at once an instruction, and the steps that end behind it, are done. */
static clv_status look_after(const rank_state *r, const clv_nonfinite *before, int i, clv_error *err)
{
    if (r->loaded->program->instructions[i].beside == 0)
        CLV_TRY(look_behind(r, before, i, err));
    return r->loaded->check ? clv_check_after(r->loaded, r->rank, i, err) : CLV_OK;
}

static void note_time(const rank_state *r, int i, int64_t begun_ns)
{
    int64_t now = clv_now_ns();
    if (r->mine->spent)
        r->mine->spent[i].ns += now - begun_ns;
    if (r->trace)
        clv_rank_trace_add_waits(r->trace, CLV_TRACE_INSTRUCTION, i, begun_ns, now);
}

/* A wait that failed was none to who waits: of a step that failed the rank has waited all the time. */
static void note_failed_wait(const rank_state *r, const clv_instruction *instruction, int64_t begun_ns)
{
    if (!r->trace || instruction->group < 0 || r->trace->waits.n > 0)
        return;
    r->trace->waits.of[0].begun_ns = begun_ns;
    r->trace->waits.of[0].ended_ns = clv_now_ns();
    r->trace->waits.of[0].helped_ns = 0;
    r->trace->waits.n = 1;
}

static clv_status run_instruction(rank_state *r, int i, clv_error *err)
{
    const clv_loaded *loaded = r->loaded;
    const clv_instruction *instruction = &loaded->program->instructions[i];
    clv_nonfinite before = {.buffer = -1};
    if (instruction->group >= 0)
        CLV_TRY(clear_set(r, instruction, err)); /* whose time is not this one's */
    begin(r, i);
    if (clv_cancel_requested(loaded->cancel))
        return clv_fail_at(err, CLV_ECANCELLED, r->rank, instruction->name, "the run was cancelled before %s",
                           instruction->name);
    CLV_TRY(clv_comm_look(r->comm, err)); /* not only where it waits for others: there may be long ops before */
    if (loaded->check)
        CLV_TRY(clv_check_before(loaded, r->rank, i, err));
    CLV_TRY(look_before(r, &before, i, err));
    int64_t start = r->mine->spent || r->trace ? clv_now_ns() : 0;
    clv_status status = instruction->op ? run_op(r, i, err) : run_step(r, instruction, err);
    if (status != CLV_OK)
        note_failed_wait(r, instruction, start);
    if (r->mine->spent || r->trace)
        note_time(r, i, start);
    CLV_TRY(status);
    CLV_TRY(look_after(r, &before, i, err));
    for (int k = r->n_flying - 1; k >= 0; k--)
        if (clv_program_ends(loaded->program, r->mine->flying[k]) == i)
            CLV_TRY(land(r, k, i, err));
    return CLV_OK;
}

/* Whether an instruction is run where products alone are. */
static bool is_product(const clv_instruction *instruction)
{
    return instruction->op && clv_op_is_product(instruction->op);
}

static clv_status run_all(rank_state *r, clv_error *err)
{
    const clv_program *program = r->loaded->program;
    for (int i = 0; i < program->n_instructions; i++)
        if (!r->loaded->products_alone || is_product(&program->instructions[i]))
            CLV_TRY(run_instruction(r, i, err));
    return CLV_OK;
}

static clv_status run_recorded(rank_state *r, clv_error *err)
{
    int64_t begun_ns = clv_now_ns();
    clv_comm_keep_waits(r->comm, &r->trace->waits);
    clv_status status = run_all(r, err);
    clv_comm_keep_waits(r->comm, NULL);
    clv_rank_trace_add(r->trace, CLV_TRACE_RUN, -1, begun_ns, clv_now_ns());
    return status;
}

clv_status clv_execute(const clv_loaded *loaded, int rank, clv_comm *comm, clv_rank_times *times, clv_rank_trace *trace,
                       clv_error *err)
{
    const clv_loaded_rank *mine = clv_loaded_on(loaded, rank);
    rank_state r = {.loaded = loaded, .mine = mine, .rank = rank, .comm = comm, .times = times, .trace = trace};
    (void)clv_comm_take_waited_ns(comm); /* state that was moved is no part of a run */
    CLV_TRY(trace ? run_recorded(&r, err) : run_all(&r, err));
    clv_comm_rest(comm);
    times->wait_ns += clv_comm_take_waited_ns(comm);
    return clv_device_finish(mine->context.device, err);
}
