/* kernel_dispatch.c - runs an instruction's kernel: the device's, or the host's on copies as fallback; before a run
 * binds the views, workspace and precomputed values of each op call. */
#include "runtime/checks/memory_check.h"
#include "runtime/session/executor.h"

/* ---- selecting ---- */

/* Host memory that an instruction needs as fallback, on the rank that needs most. */
static int64_t host_bytes(const clv_loaded_program *loaded, const clv_instruction *instruction)
{
    int64_t most = 0;
    for (int r = loaded->first_local_rank; r < loaded->first_local_rank + loaded->n_local_ranks; r++) {
        int64_t bytes = instruction->workspace_bytes;
        for (int i = 0; i < instruction->n_in; i++)
            if (instruction->in[i] >= 0)
                bytes += clv_buffer_aligned_bytes(
                    (int64_t)clv_view_byte_size(clv_loaded_program_view(loaded, r, instruction->in[i])));
        for (int o = 0; o < instruction->n_out; o++)
            bytes += clv_buffer_aligned_bytes(
                (int64_t)clv_view_byte_size(clv_loaded_program_view(loaded, r, instruction->out[o])));
        most = bytes > most ? bytes : most;
    }
    return most;
}

static clv_kernel_choice choose_kernel(const clv_loaded_program *loaded, const clv_instruction *instruction)
{
    const clv_device *device = loaded->ranks[0].context.device;
    const clv_op_def *def = instruction->op->def;
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    if (device->backend->is_host)
        return (clv_kernel_choice){.run = def->run};
    clv_loaded_program_operands(in, out, loaded, loaded->first_local_rank, instruction);
    const clv_call call = {.op = instruction->op, .in = in, .out = out, .context = &loaded->ranks[0].context};
    const clv_device_kernel *kernel = clv_device_kernel_for(device, def->name, &call);
    return (clv_kernel_choice){.run = kernel ? kernel->run : def->run, .on_host = !kernel};
}

clv_status clv_kernels_select(clv_loaded_program *loaded, clv_error *err)
{
    const clv_program *program = loaded->program;
    loaded->kernels = clv_arena_alloc(loaded->arena, (size_t)program->n_instructions + 1, sizeof *loaded->kernels);
    if (!loaded->kernels)
        return clv_fail_memory(err, "the kernels of a program",
                               ((size_t)program->n_instructions + 1) * sizeof *loaded->kernels);
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        if (!instruction->op)
            continue;
        loaded->kernels[i] = choose_kernel(loaded, instruction);
        if (loaded->kernels[i].on_host) {
            int64_t bytes = host_bytes(loaded, instruction);
            loaded->host_bytes = bytes > loaded->host_bytes ? bytes : loaded->host_bytes;
        }
    }
    return CLV_OK;
}

/* ---- preparing ---- */

enum { PLAN_ALIGN = 16 };

/* NULL if the op needs none; with memory checks, memory in which a write shows. */
static char *workspace_of(const clv_loaded_program *loaded, const clv_loaded_rank *mine, int i)
{
    const clv_instruction *instruction = &loaded->program->instructions[i];
    if (!instruction->op->def->workspace && !loaded->check)
        return NULL;
    return (char *)mine->region +
           (loaded->check ? clv_memory_check_plan(loaded->check)->workspace[i] : instruction->workspace_offset);
}

/* Bytes that an instruction's host kernel precomputes; 0 if the device's kernel runs. */
static size_t precomputed_bytes(const clv_loaded_program *loaded, int i)
{
    const clv_op *op = loaded->program->instructions[i].op;
    size_t bytes = op && loaded->kernels[i].run == op->def->run ? clv_op_traits_of(op)->precomputed_bytes : 0;
    return (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
}

static clv_status allocate_calls(const clv_loaded_program *loaded, clv_loaded_rank *mine, clv_error *err)
{
    const clv_program *program = loaded->program;
    size_t operands = 1, bytes = 1;
    for (int i = 0; i < program->n_instructions; i++) {
        operands += (size_t)(program->instructions[i].n_in + program->instructions[i].n_out);
        bytes += precomputed_bytes(loaded, i);
    }
    mine->prepared_calls =
        clv_arena_alloc(loaded->arena, (size_t)program->n_instructions + 1, sizeof *mine->prepared_calls);
    mine->operands = clv_arena_alloc(loaded->arena, operands, sizeof *mine->operands);
    mine->precomputed = clv_arena_alloc(loaded->arena, bytes, 1);
    if (!mine->prepared_calls || !mine->operands) /* precomputed says that all are there: else the next run retries */
        mine->precomputed = NULL;
    return mine->precomputed ? CLV_OK
                             : clv_fail_memory(err, "the calls of a program", operands * sizeof *mine->operands);
}

static void make_calls(const clv_loaded_program *loaded, int rank)
{
    const clv_program *program = loaded->program;
    clv_loaded_rank *mine = clv_loaded_program_on_rank(loaded, rank);
    clv_view *operands = mine->operands;
    char *precomputed = mine->precomputed;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        clv_view *in = operands, *out = in + instruction->n_in;
        if (!instruction->op || !clv_stages_have(instruction->stages, mine->stage))
            continue;
        clv_loaded_program_operands(in, out, loaded, rank, instruction);
        mine->prepared_calls[i].call = (clv_call){.op = instruction->op,
                                                  .in = in,
                                                  .out = out,
                                                  .workspace = workspace_of(loaded, mine, i),
                                                  .context = &mine->context};
        if (precomputed_bytes(loaded, i) > 0) {
            mine->prepared_calls[i].precomputed = precomputed;
            instruction->op->def->traits->precompute(precomputed, instruction->op, in, out);
        }
        operands = out + instruction->n_out;
        precomputed += precomputed_bytes(loaded, i);
    }
}

clv_status clv_prepared_calls_make(clv_loaded_program *loaded, clv_error *err)
{
    for (int r = 0; r < loaded->n_local_ranks; r++) {
        if (!loaded->ranks[r].precomputed)
            CLV_TRY(allocate_calls(loaded, &loaded->ranks[r], err));
        make_calls(loaded, loaded->first_local_rank + r);
    }
    return CLV_OK;
}

/* ---- running ---- */

clv_status clv_kernel_run(const clv_loaded_program *loaded, int rank, int instruction, const clv_call *call,
                          clv_error *err)
{
    const void *precomputed = clv_loaded_program_on_rank(loaded, rank)->prepared_calls[instruction].precomputed;
    const char *name = loaded->program->instructions[instruction].name;
    clv_error why = {0};
    clv_status status =
        precomputed ? call->op->def->traits->run_precomputed(precomputed, call, &why)
                    : clv_check_callback_status(&why, loaded->kernels[instruction].run(call, &why), "the kernel");
    if (status != CLV_OK)
        return clv_fail_at(err, status, rank, name, "rank %d, %s: %s", rank, name,
                           why.message[0] ? why.message : clv_status_text(status));
    return CLV_OK;
}

/* Points a view to the next free host memory. */
static void place_on_host(clv_view *view, char **at)
{
    view->data = *at;
    *at += clv_buffer_aligned_bytes((int64_t)clv_view_byte_size(view));
}

clv_status clv_kernel_run_on_host(const clv_loaded_program *loaded, int rank, int instruction, const clv_call *call,
                                  clv_rank_times *times, clv_error *err)
{
    const clv_loaded_rank *mine = clv_loaded_program_on_rank(loaded, rank);
    const clv_device *device = mine->context.device;
    int n_in = loaded->program->instructions[instruction].n_in,
        n_out = loaded->program->instructions[instruction].n_out;
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    char *at = mine->host;
    int64_t moved = 0;
    for (int i = 0; i < n_in; i++) {
        int64_t bytes = call->in[i].data ? (int64_t)clv_view_byte_size(&call->in[i]) : 0;
        in[i] = call->in[i];
        if (!in[i].data)
            continue;
        place_on_host(&in[i], &at);
        CLV_TRY(clv_device_copy_bytes(device, CLV_COPY_TO_HOST, in[i].data, call->in[i].data, bytes, err));
        moved += bytes;
    }
    for (int o = 0; o < n_out; o++) {
        out[o] = call->out[o];
        place_on_host(&out[o], &at);
    }
    const clv_call on_host = {.op = call->op, .in = in, .out = out, .workspace = at, .context = call->context};
    CLV_TRY(clv_kernel_run(loaded, rank, instruction, &on_host, err));
    for (int o = 0; o < n_out; o++) {
        int64_t bytes = (int64_t)clv_view_byte_size(&out[o]);
        CLV_TRY(clv_device_copy_bytes(device, CLV_COPY_FROM_HOST, call->out[o].data, out[o].data, bytes, err));
        moved += bytes;
    }
    times->fallbacks++;
    times->fallback_bytes += moved;
    return CLV_OK;
}
