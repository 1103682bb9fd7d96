/* lowering.c - the program as it grows. */
#include "partition/lowering.h"

#include "base/error.h"

clv_status clv_lowering_add_buffer(int *out, clv_program *program, const clv_buffer *buffer, clv_error *err)
{
    if (clv_arena_grow(program->arena, &program->buffers, &program->buffer_capacity, program->n_buffers,
                       sizeof *buffer) != 0)
        return clv_fail_memory(err, "a buffer", sizeof *buffer);
    if (out)
        *out = program->n_buffers;
    program->buffers[program->n_buffers++] = *buffer;
    return CLV_OK;
}

clv_status clv_lowering_add_instruction(clv_program *program, const clv_instruction *instruction, clv_error *err)
{
    if (clv_arena_grow(program->arena, &program->instructions, &program->instruction_capacity, program->n_instructions,
                       sizeof *instruction) != 0)
        return clv_fail_memory(err, "an instruction", sizeof *instruction);
    if (!instruction->op) {
        if (clv_arena_grow(program->arena, &program->steps, &program->step_capacity, program->n_steps,
                           sizeof *program->steps) != 0)
            return clv_fail_memory(err, "a step", sizeof *program->steps);
        program->steps[program->n_steps++] = program->n_instructions;
    }
    program->instructions[program->n_instructions++] = *instruction;
    return CLV_OK;
}
