/* software_memory.c - clv_program_memory_on: a rank's memory with what the machine's software holds beside the program:
 * copies of the logits in f32, attention scores, and the allocator's rounding and fragmentation.
 */
#include <math.h>
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
    clv_type local = clv_local_type(&buffer->type, &buffer->layout);
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
        clv_type keys = clv_local_type(&kv->type, &kv->layout);
        scores = (double)local_elems(rows) * (double)keys.shape[1];
        held += scores;
        most = fmax(most, held);
    }
    return machine->score_bytes * most;
}

clv_status clv_program_memory_on(const clv_program *program, const clv_machine *machine, clv_memory *out,
                                 clv_error *err)
{
    const clv_machine *m = clv_machine_or_default(machine);
    clv_memory memory = {.size = sizeof memory};
    CLV_TRY(clv_require(program && out, __func__, "a program and out", err));
    CLV_TRY(clv_program_memory(program, &memory, err));
    memory.software =
        (int64_t)(logit_memory(program, m) + score_memory(program, m) + m->fragmentation * (double)memory.region);
    memory.total += memory.software;
    return clv_struct_copy_out(out, sizeof memory, sizeof memory, &memory, __func__, err);
}
