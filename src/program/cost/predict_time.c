/* predict_time.c - predicts the time of a program: adds up instruction costs, with overlap; HFU and MFU. */
#include "program/program.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/error.h"

clv_dtype clv_instruction_dtype(const clv_program *program, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    int b = instruction->n_in > 0 ? instruction->in[0] : instruction->out[0];
    return program->buffers[b].type.dtype;
}

static clv_type type_of(const clv_buffer *buffer, bool whole)
{
    return whole ? buffer->type : clv_local_type(&buffer->type, &buffer->layout);
}

/* Cost on a rank (maximum), or of the whole. */
static clv_op_cost cost_of(const clv_program *program, int i, bool whole)
{
    const clv_instruction *instruction = &program->instructions[i];
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    if (!instruction->op)
        return (clv_op_cost){0};
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            in[k] = type_of(&program->buffers[instruction->in[k]], whole);
    for (int k = 0; k < instruction->n_out; k++)
        out[k] = type_of(&program->buffers[instruction->out[k]], whole);
    return clv_cost_of_op(instruction->op, in, out);
}

clv_op_cost clv_instruction_cost(const clv_program *program, int i)
{
    return cost_of(program, i, false);
}

static double predict_step(const clv_program *program, const clv_cost_model *model, const clv_instruction *instruction)
{
    const clv_reshard_step *step = instruction->step;
    const clv_buffer *out = &program->buffers[instruction->out[0]];
    if (!clv_step_moves(step->kind))
        return clv_cost_copy(model, (double)out->bytes);
    bool far = clv_cost_crosses_hosts(model, step->axes, step->n_axes);
    return clv_cost_step(model, step->kind, out->type.dtype, step->bytes, far).seconds;
}

double clv_instruction_seconds(const clv_program *program, const clv_cost_model *model, int i)
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
    return clv_instruction_seconds(program, &model, i);
}

/* A collective in flight in a group. */
typedef struct flight {
    const clv_instruction *step; /* NULL: none */
    double began, seconds;
} flight;

/* Waits for the collectives that complete at instruction i. */
static void wait_for_completed(clv_prediction *all, flight *flights, const clv_program *program, int i)
{
    for (int g = 0; g < program->n_groups; g++) {
        flight *f = &flights[g];
        if (!f->step || clv_program_completes_at(program, (int)(f->step - program->instructions)) != i)
            continue;
        double wait = fmax(0, f->seconds - (all->seconds - f->began));
        all->seconds += wait;
        all->communication += wait;
        all->overlapped += f->seconds - wait;
        f->step = NULL;
    }
}

/* Seconds at the peak rate. */
typedef struct peak_seconds {
    double rank;  /* of a rank's flops (maximum) */
    double model; /* of the model's flops on a single rank */
} peak_seconds;

static void add_flops(clv_prediction *all, peak_seconds *at_peak, const clv_program *program, double peak, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    double flops = clv_instruction_cost(program, i).flops;
    all->flops += flops;
    at_peak->rank += flops / peak;
    if (instruction->recomputed)
        return;
    double of_model = cost_of(program, i, true).flops * (1 - clv_op_traits_of(instruction->op)->recomputed_flops);
    all->model_flops += of_model;
    at_peak->model += of_model / peak;
}

/* flights: [n_groups] */
static peak_seconds run(clv_prediction *all, flight *flights, const clv_program *program, const clv_cost_model *model)
{
    peak_seconds at_peak = {0};
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        double seconds = clv_instruction_seconds(program, model, i);
        if (instruction->group >= 0)
            flights[instruction->group] = (flight){instruction, all->seconds, seconds};
        else
            all->seconds += seconds;
        if (instruction->op && instruction->op->def->counts_flops)
            add_flops(all, &at_peak, program, model->machine->flops_per_s[clv_instruction_dtype(program, i)], i);
        wait_for_completed(all, flights, program, i);
    }
    return at_peak;
}

clv_status clv_program_predict(const clv_program *program, const clv_machine *machine, clv_prediction *out,
                               clv_error *err)
{
    CLV_TRY(clv_require(program && out, "clv_program_predict", "the program and out", err));
    clv_cost_model model;
    clv_cost_model_make(&model, &program->mesh, machine);
    flight *flights = calloc((size_t)program->n_groups + 1, sizeof *flights);
    if (!flights)
        return clv_fail_memory(err, "a prediction", (size_t)program->n_groups * sizeof *flights);
    clv_prediction all = {0};
    peak_seconds at_peak = run(&all, flights, program, &model);
    free(flights);
    all.utilisation = all.seconds > 0 ? at_peak.rank / all.seconds : 0;
    all.model_utilisation =
        all.seconds > 0 ? at_peak.model / ((double)clv_mesh_rank_count(&program->mesh) * all.seconds) : 0;
    all.memory_bytes = floor(model.machine->memory_bytes / model.oversubscription);
    return clv_struct_copy_out(out, sizeof all, offsetof(clv_prediction, overlapped), &all, "clv_program_predict", err);
}
