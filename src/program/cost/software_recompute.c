/* software_recompute.c - what selective recomputation of a machine's software recomputes and this library's does not:
 * every second matmul of a block.
 *
 * torchtitan's checkpointing by op keeps results of attention and of the first, third, fifth ... matmul of a block
 * (pytorch/torchtitan 9dec370, _get_custom_policy). Its layers have a matmul for each of keys,
 * values, gate and up-projection; here one weight [in, 2, ...] holds two of them. The last of a block is kept although
 * nothing of the backward pass reads it.
 */
#include <string.h>

#include "program/program.h"

static bool is_matmul_of_block(const clv_instruction *instruction)
{
    const clv_op *op = instruction->op;
    return op && op->block > 0 && !instruction->backward && strcmp(op->def->name, "dot_general") == 0;
}

/* Matmuls that the software has in its place. */
static int parts_of(const clv_program *program, const clv_instruction *instruction)
{
    const clv_type *weight = &program->buffers[instruction->in[1]].type;
    return weight->rank > 2 && weight->shape[1] == 2 ? 2 : 1;
}

bool clv_software_recomputes_matmuls(const clv_program *program, const clv_machine *machine)
{
    return machine->recomputes_matmuls && program->recompute == CLV_RECOMPUTE_SELECTIVE;
}

double clv_software_recomputed_part(const clv_program *program, const clv_machine *machine, int i)
{
    const clv_instruction *at = &program->instructions[i];
    int before = 0;
    if (!clv_software_recomputes_matmuls(program, machine) || !is_matmul_of_block(at))
        return 0;
    for (int k = i - 1; k >= 0; k--) {
        const clv_instruction *other = &program->instructions[k];
        if (other->op && other->op->block != at->op->block)
            break;
        if (is_matmul_of_block(other))
            before += parts_of(program, other);
    }
    return parts_of(program, at) == 2 ? 0.5 : before % 2;
}

/* Whether no matmul of its block comes after matmul i. */
static bool is_last_of_block(const clv_program *program, int i)
{
    const int block = program->instructions[i].op->block;
    for (int k = i + 1; k < program->n_instructions; k++) {
        const clv_instruction *other = &program->instructions[k];
        if (other->op && other->op->block != block)
            return true;
        if (is_matmul_of_block(other))
            return false;
    }
    return true;
}

/* The operand that was made last. */
static int last_operand(const clv_program *program, const clv_instruction *at)
{
    int last = -1;
    for (int k = 0; k < at->n_in; k++)
        if (at->in[k] >= 0 && (last < 0 || program->buffers[at->in[k]].first > program->buffers[last].first))
            last = at->in[k];
    return last;
}

int64_t clv_software_recomputed_values(double *parts, const clv_program *program, const clv_machine *machine)
{
    int64_t added = 0;
    if (!clv_software_recomputes_matmuls(program, machine))
        return 0;
    for (int i = 0; i < program->n_instructions && !program->instructions[i].backward; i++) {
        const clv_instruction *at = &program->instructions[i];
        if (!at->op || at->op->block == 0)
            continue;
        const int out = clv_program_owning_buffer(program, at->out[0]), in = last_operand(program, at);
        if (is_matmul_of_block(at))
            parts[out] = clv_software_recomputed_part(program, machine, i);
        else
            parts[out] = at->op->def->counts_flops || in < 0 ? 0 : parts[clv_program_owning_buffer(program, in)];
        if (is_matmul_of_block(at) && parts[out] == 0 && is_last_of_block(program, i))
            added += program->buffers[out].bytes;
    }
    return added;
}
