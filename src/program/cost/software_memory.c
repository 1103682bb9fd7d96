/* software_memory.c - clv_program_memory_on: a rank's memory with what the machine's software holds beside the program:
 * copies of the logits in f32, attention scores, state, and the allocator's rounding and fragmentation; and with what
 * it keeps in another dtype (gradients, operands of matmuls) or recomputes (matmuls).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "program/cost/machine.h"
#include "program/program.h"

static bool is_op(const clv_instruction *instruction, const char *name)
{
    return instruction->op && strcmp(instruction->op->def->name, name) == 0;
}

static int64_t local_elems(const clv_buffer *buffer)
{
    clv_type local = clv_largest_shard_type(&buffer->type, &buffer->layout);
    return clv_type_elems(&local);
}

/* Of a rank's logits, the largest operand of a loss. */
static double logit_memory(const clv_program *program, const clv_machine *machine)
{
    double most = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        if (!is_op(instruction, "xent_sums"))
            continue;
        const clv_buffer *logits = &program->buffers[instruction->in[0]];
        bool is_split = clv_layout_block_count(&logits->layout, logits->type.rank - 1) > 1;
        double bytes = is_split ? machine->split_logit_bytes : machine->logit_bytes;
        most = fmax(most, bytes * (double)local_elems(logits));
    }
    return most;
}

static bool recomputes_attention(const clv_program *program)
{
    for (int i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].recomputed && is_op(&program->instructions[i], "attention"))
            return true;
    return false;
}

/* Of a rank's attention scores [B, heads, S, S], from the attention that the backward pass reads to its gradient; the
 * most that are held at once. */
static double score_memory(const clv_program *program, const clv_machine *machine)
{
    const bool again = recomputes_attention(program);
    double held = 0, most = 0, scores = 0;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        if (is_op(instruction, "attention_gradient"))
            held -= scores;
        if (!is_op(instruction, "attention") || instruction->recomputed != again)
            continue;
        const clv_buffer *rows = &program->buffers[instruction->out[1]], *kv = &program->buffers[instruction->in[1]];
        clv_type keys = clv_largest_shard_type(&kv->type, &kv->layout);
        scores = (double)local_elems(rows) * (double)keys.shape[1];
        held += scores;
        most = fmax(most, held);
    }
    return machine->score_bytes * most;
}

/* ---- what is kept in another dtype, or recomputed ---- */

/* Of the value that the forward pass leaves in a buffer. */
typedef struct kept_value {
    bool matmuls, others; /* read it in the backward pass. What a collective gathers again is for matmuls */
} kept_value;

static bool is_made_forward(const clv_program *program, int b)
{
    const int first = program->buffers[b].first;
    return first < 0 || !program->instructions[first].backward;
}

static void find_readers(kept_value *values, const clv_program *program)
{
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        const bool matmul = is_op(instruction, "dot_general") || !instruction->op;
        for (int k = 0; instruction->backward && k < instruction->n_in; k++) {
            if (instruction->in[k] < 0 || !is_made_forward(program, instruction->in[k]))
                continue;
            kept_value *value = &values[clv_program_owning_buffer(program, instruction->in[k])];
            value->matmuls |= matmul;
            value->others |= !matmul;
        }
    }
}

/* Bytes an element that a buffer of this entry takes more than planned. */
static double added_bytes(const clv_memory *memory, const int64_t *figure, const kept_value *value, double bytes,
                          const clv_machine *machine)
{
    if (figure == &memory->gradients)
        return machine->gradient_bytes > 0 && bytes == sizeof(float) ? machine->gradient_bytes - bytes : 0;
    if (figure != &memory->activations && figure != &memory->gathered)
        return 0;
    return machine->operand_bytes > 0 && value->matmuls ? machine->operand_bytes - (value->others ? 0 : bytes) : 0;
}

static void add_values(clv_memory *memory, const clv_program *program, const clv_machine *machine, kept_value *values,
                       double *parts)
{
    const int64_t before = memory->activations + memory->gathered + memory->gradients;
    find_readers(values, program);
    memory->activations += clv_software_recomputed_values(parts, program, machine);
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        if (!clv_buffer_holds_memory_at(buffer, memory->stage, memory->peak_instruction))
            continue;
        int64_t *figure = clv_memory_figure(memory, program, buffer);
        const double bytes = (double)clv_dtype_size(buffer->type.dtype);
        const double more = added_bytes(memory, figure, &values[b], bytes, machine);
        const bool kept = figure == &memory->activations || figure == &memory->gathered;
        *figure += llround((more - (kept ? parts[b] * (bytes + more) : 0)) * (double)local_elems(buffer));
    }
    const int64_t added = memory->activations + memory->gathered + memory->gradients - before;
    memory->region += added;
    memory->total += added;
}

static clv_status add_kept_values(clv_memory *memory, const clv_program *program, const clv_machine *machine,
                                  clv_error *err)
{
    const size_t n = (size_t)program->n_buffers + 1;
    if (machine->gradient_bytes <= 0 && machine->operand_bytes <= 0 && !machine->recomputes_matmuls)
        return CLV_OK;
    kept_value *values = calloc(n, sizeof *values);
    double *parts = calloc(n, sizeof *parts);
    if (values && parts)
        add_values(memory, program, machine, values, parts);
    clv_status status = values && parts ? CLV_OK : clv_fail_memory(err, "what software keeps", n * sizeof *parts);
    free(values);
    free(parts);
    return status;
}

/* ---- state ---- */

/* Whether it is a gradient that is split as one of these n buffers, the optimizer's state; of its sum a rank may have a
 * part. */
static bool is_gradient_of_state(const clv_program *program, const clv_buffer *gradient, const int *states, int n)
{
    clv_type part = clv_largest_shard_type(&gradient->type, &gradient->layout);
    bool found = false;
    for (int i = 0; gradient->is_gradient && !found && i < n; i++) {
        const clv_buffer *state = &program->buffers[states[i]];
        const clv_type shard = clv_largest_shard_type(&state->type, &state->layout);
        part.dtype = shard.dtype;
        found = clv_type_equal(&shard, &part);
    }
    return found;
}

/* Takes out the gradients that state_bytes has. */
static clv_status take_gradients(clv_memory *memory, const clv_program *program, clv_error *err)
{
    CLV_FREED int *states = calloc((size_t)program->n_buffers + 1, sizeof *states);
    int n = 0;
    if (!states)
        return clv_fail_memory(err, "a report of memory", (size_t)program->n_buffers * sizeof *states);
    for (int b = 0; b < program->n_buffers; b++)
        if (program->buffers[b].role == CLV_ROLE_OPTIMIZER)
            states[n++] = b;
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *held = &program->buffers[b];
        if (!clv_buffer_holds_memory_at(held, memory->stage, memory->peak_instruction) ||
            !is_gradient_of_state(program, held, states, n))
            continue;
        const int64_t bytes = held->bytes < memory->gradients ? held->bytes : memory->gradients;
        memory->gradients -= bytes;
        memory->region -= bytes;
        memory->total -= bytes;
    }
    return CLV_OK;
}

/* What updated parameters take more than here, with AdamW's moments and f32 copy; of other optimizers as much more.
 * Their gradients are in it. */
static clv_status add_state(clv_memory *memory, const clv_program *program, const clv_machine *machine, clv_error *err)
{
    if (machine->state_bytes <= 0)
        return CLV_OK;
    CLV_TRY(take_gradients(memory, program, err));
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        const bool is_f32 = buffer->type.dtype == CLV_F32;
        if (buffer->role != CLV_ROLE_PARAMETER || !buffer->updated || buffer->shares_with >= 0)
            continue;
        const double more = machine->state_bytes - (is_f32 ? sizeof(float) + 8 : 2 + 12);
        memory->optimizer += llround(more * (double)local_elems(buffer));
        memory->total += llround(more * (double)local_elems(buffer));
    }
    return CLV_OK;
}

clv_status clv_program_memory_on(const clv_program *program, const clv_machine *machine, clv_memory *out,
                                 clv_error *err)
{
    const clv_machine *m = clv_machine_or_default(machine);
    clv_memory memory = {.size = sizeof memory};
    CLV_TRY(clv_require(program && out, __func__, "a program and out", err));
    CLV_TRY(clv_program_memory(program, &memory, err));
    CLV_TRY(add_kept_values(&memory, program, m, err));
    CLV_TRY(add_state(&memory, program, m, err));
    memory.software =
        (int64_t)(logit_memory(program, m) + score_memory(program, m) + m->fragmentation * (double)memory.region);
    memory.total += memory.software;
    return clv_struct_copy_out(out, sizeof memory, sizeof memory, &memory, __func__, err);
}
