#include "program/predict.h"

#include <math.h>

#include "base/error.h"
#include "base/options.h"

clv_dtype clv_instruction_dtype(const clv_program *program, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    int b = instruction->n_in > 0 ? instruction->in[0] : instruction->out[0];
    return program->buffers[b].type.dtype;
}

clv_op_cost clv_instruction_cost(const clv_program *program, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    if (!instruction->op)
        return (clv_op_cost){0};
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            in[k] = clv_local_type(&program->buffers[instruction->in[k]].type,
                                   &program->buffers[instruction->in[k]].layout);
    for (int k = 0; k < instruction->n_out; k++)
        out[k] =
            clv_local_type(&program->buffers[instruction->out[k]].type, &program->buffers[instruction->out[k]].layout);
    return clv_cost_of_op(instruction->op, in, out);
}

static double predict_step(const clv_program *program, const clv_cost_model *model, const clv_instruction *instruction)
{
    const clv_reshard_step *step = instruction->step;
    const clv_buffer *out = &program->buffers[instruction->out[0]];
    if (!clv_step_moves(step->kind))
        return clv_cost_copy(model, (double)out->bytes);
    bool far = clv_cost_is_far(model, step->axes, step->n_axes);
    return clv_cost_step(model, step->kind, out->type.dtype, step->bytes, far).seconds;
}

static double predict(const clv_program *program, const clv_cost_model *model, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    if (!instruction->op)
        return predict_step(program, model, instruction);
    clv_work_rates rates;
    clv_cost_work_rates(&rates, model, instruction->op->def, clv_instruction_dtype(program, i));
    return clv_cost_work(&rates, clv_instruction_cost(program, i));
}

double clv_program_predict_instruction(const clv_program *program, const clv_machine *machine, int i)
{
    if (!program || i < 0 || i >= program->n_instructions)
        return 0;
    clv_cost_model model;
    clv_cost_model_make(&model, &program->mesh, machine);
    return predict(program, &model, i);
}

clv_status clv_program_predict(const clv_program *program, const clv_machine *machine, clv_prediction *out,
                               clv_error *err)
{
    CLV_TRY(clv_require(program && out, "clv_program_predict", "the program and out", err));
    clv_cost_model model;
    clv_cost_model_make(&model, &program->mesh, machine);
    clv_prediction all = {0};
    double at_peak = 0; /* seconds that the products would take at the peak rate */
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        double seconds = predict(program, &model, i);
        all.seconds += seconds;
        if (!instruction->op) {
            all.communication += clv_step_moves(instruction->step->kind) ? seconds : 0;
        } else if (instruction->op->def->counts_flops) {
            double flops = clv_instruction_cost(program, i).flops;
            all.flops += flops;
            at_peak += flops / model.machine->flops_per_s[clv_instruction_dtype(program, i)];
        }
    }
    all.utilisation = all.seconds > 0 ? at_peak / all.seconds : 0;
    all.memory_bytes = floor(model.machine->memory_bytes / model.crowding);
    return clv_give_struct(out, sizeof all, sizeof all, &all, "clv_program_predict", err);
}
