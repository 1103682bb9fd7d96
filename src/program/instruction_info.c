/* instruction_info.c - clv_program_instruction: public description of one instruction (kind, flops, bytes, axes). */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "program/program.h"

/* Adds the sub-axes that shard a tensor. */
static void add_axes(clv_instruction_info *info, const clv_layout *layout)
{
    for (int k = 0; k < layout->begin[layout->rank]; k++) {
        bool known = false;
        for (int j = 0; j < info->n_axes; j++)
            known = known || clv_subaxis_overlap(info->axes[j], layout->axes[k]);
        if (!known && info->n_axes < CLV_MAX_SUBAXES)
            info->axes[info->n_axes++] = layout->axes[k];
    }
}

/* Elements of an operand or result on a rank, maximum over ranks. */
static double elements(const clv_program *program, int buffer)
{
    const clv_buffer *b = &program->buffers[buffer];
    clv_type local = clv_largest_shard_type(&b->type, &b->layout);
    return (double)clv_type_elems(&local);
}

/* Finds batch, m, n and k of [m, k] by [k, n] from the numbers of elements and from flops = 2 batch m n k. */
static void describe_product(clv_instruction_info *info, const clv_program *program, const clv_instruction *product)
{
    double left = elements(program, product->in[0]), right = elements(program, product->in[1]);
    double result = elements(program, product->out[0]), all = info->flops / 2;
    if (!(left > 0 && right > 0 && result > 0))
        return;
    info->m = llround(all / right);
    info->n = llround(all / left);
    info->k = llround(all / result);
    info->batch = llround(left * right * result / all / all);
}

static void describe_op(clv_instruction_info *info, const clv_program *program, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    clv_op_work work = clv_instruction_work(program, i);
    info->kind = instruction->op->def->name;
    info->collective = -1;
    info->flops = work.flops;
    info->bytes = work.bytes;
    info->work = instruction->op->def->counts_flops ? work.flops : work.bytes;
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            add_axes(info, &program->buffers[instruction->in[k]].layout);
    for (int k = 0; k < instruction->n_out; k++)
        add_axes(info, &program->buffers[instruction->out[k]].layout);
    if (clv_op_traits_of(instruction->op)->is_product)
        describe_product(info, program, instruction);
}

/* Index of instruction i among the steps. */
static int step_index(const clv_program *program, int i)
{
    int low = 0, high = program->n_steps;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (program->steps[middle] < i)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void describe_step(clv_instruction_info *info, const clv_program *program, int i)
{
    const clv_reshard_step *step = program->instructions[i].step;
    info->kind = clv_step_name(step->kind);
    info->collective = step_index(program, i);
    info->moves = clv_step_moves(step->kind);
    info->bytes = info->work = step->bytes;
    info->n_axes = step->n_axes;
    memcpy(info->axes, step->axes, sizeof info->axes);
}

clv_status clv_program_instruction(const clv_program *program, int i, clv_instruction_info *out, clv_error *err)
{
    CLV_TRY(clv_require(program && out, __func__, "the program and out", err));
    if (i < 0 || i >= program->n_instructions)
        return clv_fail(err, CLV_EINVAL, "clv_program_instruction: index %d; valid: below %d", i,
                        program->n_instructions);
    const clv_instruction *instruction = &program->instructions[i];
    clv_instruction_info info = {.name = instruction->name,
                                 .backward = instruction->backward,
                                 .dtype = clv_instruction_dtype(program, i),
                                 .part = clv_instruction_part(instruction)};
    instruction->op ? describe_op(&info, program, i) : describe_step(&info, program, i);
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}
