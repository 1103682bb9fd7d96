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
    return whole ? buffer->type : clv_largest_shard_type(&buffer->type, &buffer->layout);
}

/* Work on a rank (maximum), or of the whole. */
static clv_op_work work_of(const clv_program *program, int i, bool whole)
{
    const clv_instruction *instruction = &program->instructions[i];
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    if (!instruction->op)
        return (clv_op_work){0};
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            in[k] = type_of(&program->buffers[instruction->in[k]], whole);
    for (int k = 0; k < instruction->n_out; k++)
        out[k] = type_of(&program->buffers[instruction->out[k]], whole);
    return clv_cost_op_work(instruction->op, in, out);
}

clv_op_work clv_instruction_work(const clv_program *program, int i)
{
    return work_of(program, i, false);
}

static double predict_step(const clv_program *program, const clv_cost_model *model, const clv_instruction *instruction)
{
    const clv_reshard_step *step = instruction->step;
    const clv_buffer *out = &program->buffers[instruction->out[0]];
    if (!clv_step_moves(step->kind))
        return clv_cost_copy_seconds(model, (double)out->bytes);
    clv_step_route route = clv_cost_route(model, step->kind, step->axes, step->n_axes);
    return clv_cost_step(model, step->kind, out->type.dtype, step->bytes, route).seconds;
}

double clv_instruction_seconds(const clv_program *program, const clv_cost_model *model, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    if (!instruction->op)
        return predict_step(program, model, instruction);
    clv_work_rates rates;
    clv_cost_work_rates(&rates, model, instruction->op->def, clv_instruction_dtype(program, i));
    if (model->machine->attention_start_s > 0 && clv_instruction_part(instruction) == CLV_PART_ATTENTION)
        rates.start_s = model->machine->attention_start_s;
    const double again = clv_software_recomputed_part(program, clv_machine_or_default(model->machine), i);
    return (1 + again) * clv_cost_work_seconds(&rates, clv_instruction_work(program, i));
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

/* A run as it is added up, on the ranks of a pipeline stage. */
typedef struct running_time {
    clv_prediction all;
    clv_prediction_parts parts;
    double rank_at_peak;  /* seconds of a rank's flops (maximum) at the peak rate */
    double model_at_peak; /* of the model's flops on a single rank */
} running_time;

/* Waits for a collective in flight. */
static void wait_for_flight(running_time *t, const flight *f)
{
    const bool sends = f->step->step->kind == CLV_STEP_SEND;
    double wait = fmax(0, f->seconds - (t->all.seconds - f->began));
    t->all.seconds += wait;
    t->all.communication += sends ? 0 : wait;
    t->all.overlapped += fmax(0, f->seconds - wait);
    *(sends ? &t->parts.waits : &t->parts.communication[f->step->purpose]) += wait;
    t->parts.overlapped[f->step->purpose] += fmax(0, f->seconds - wait);
}

/* Waits for the collectives that complete at instruction i. t: [stages] */
static void wait_for_completed(running_time *t, flight *flights, const clv_program *program, int i)
{
    for (int g = 0; g < program->n_groups; g++) {
        flight *f = &flights[g];
        if (!f->step || clv_program_completes_at(program, (int)(f->step - program->instructions)) != i)
            continue;
        for (int s = 0; s < clv_program_stage_count(program); s++)
            if (clv_stages_have(f->step->stages, s))
                wait_for_flight(&t[s], f);
        f->step = NULL;
    }
}

static void add_flops(running_time *t, const clv_program *program, const clv_machine *machine, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    const double peak = machine->flops_per_s[clv_instruction_dtype(program, i)];
    double flops = clv_instruction_work(program, i).flops * (1 + clv_software_recomputed_part(program, machine, i));
    t->all.flops += flops;
    t->rank_at_peak += flops / peak;
    if (instruction->recomputed)
        return;
    double of_model = work_of(program, i, true).flops * (1 - clv_op_traits_of(instruction->op)->recomputed_flops);
    t->all.model_flops += of_model;
    t->model_at_peak += of_model / peak;
}

bool clv_instruction_may_overlap(const clv_cost_model *model, const clv_instruction *instruction)
{
    const clv_reshard_step *step = instruction->step;
    const bool of_weights =
        instruction->purpose == CLV_PURPOSE_WEIGHT_GATHER || instruction->purpose == CLV_PURPOSE_GRADIENT_REDUCTION;
    return clv_machine_may_overlap(model->machine, of_weights,
                                   step->kind == CLV_STEP_SEND ||
                                       clv_cost_crosses_hosts(model, step->axes, step->n_axes));
}

static void begin_collective(running_time *t, flight *flights, const clv_instruction *instruction,
                             const clv_cost_model *model, double seconds)
{
    clv_collective_purpose purpose = instruction->purpose;
    t->parts.bytes[purpose] += instruction->step->bytes;
    t->parts.collectives[purpose]++;
    if (clv_instruction_may_overlap(model, instruction)) {
        flights[instruction->group] = (flight){instruction, t->all.seconds, seconds};
        return;
    }
    t->all.seconds += seconds;
    t->all.communication += seconds;
    t->parts.communication[purpose] += seconds;
}

/* A send leaves when its operand is there. */
static void begin_send(running_time *t, flight *flights, const clv_program *program, int i, double seconds)
{
    const clv_instruction *instruction = &program->instructions[i];
    double began = 0;
    for (int s = 0; s < clv_program_stage_count(program); s++) {
        if (clv_stages_have(instruction->step->from.stages, s))
            began = fmax(began, t[s].all.seconds);
        if (!clv_stages_have(instruction->stages, s))
            continue;
        t[s].parts.bytes[instruction->purpose] += instruction->step->bytes;
        t[s].parts.collectives[instruction->purpose]++;
    }
    flights[instruction->group] = (flight){instruction, began, seconds};
}

static void run_on_stage(running_time *t, flight *flights, const clv_program *program, const clv_cost_model *model,
                         int i, double seconds)
{
    const clv_instruction *instruction = &program->instructions[i];
    if (instruction->group >= 0) {
        begin_collective(t, flights, instruction, model, seconds);
    } else {
        t->all.seconds += seconds;
        t->parts.ops[clv_instruction_part(instruction)] += seconds;
    }
    if (instruction->op && instruction->op->def->counts_flops)
        add_flops(t, program, model->machine, i);
}

/* t: [stages], flights: [n_groups] */
static void run(running_time *t, flight *flights, const clv_program *program, const clv_cost_model *model)
{
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        double seconds = clv_instruction_seconds(program, model, i);
        bool sends = !instruction->op && instruction->step->kind == CLV_STEP_SEND;
        if (sends)
            begin_send(t, flights, program, i, seconds);
        for (int s = 0; !sends && s < clv_program_stage_count(program); s++)
            if (clv_stages_have(instruction->stages, s))
                run_on_stage(&t[s], flights, program, model, i, seconds);
        wait_for_completed(t, flights, program, i);
    }
}

/* t: [stages] */
static clv_status add_up_stages(running_time *t, const clv_program *program, const clv_cost_model *model,
                                clv_error *err)
{
    flight *flights = calloc((size_t)program->n_groups + 1, sizeof *flights);
    if (!flights)
        return clv_fail_memory(err, "a prediction", (size_t)program->n_groups * sizeof *flights);
    run(t, flights, program, model);
    free(flights);
    return CLV_OK;
}

static double busy_seconds(const running_time *t)
{
    return t->all.seconds - t->parts.waits;
}

/* Of pipeline stages the busiest, until the last one ends, with the flops of all. */
static clv_status add_up(running_time *t, const clv_program *program, const clv_cost_model *model, clv_error *err)
{
    running_time stages[CLV_MAX_STAGES] = {0};
    const int n = clv_program_stage_count(program);
    CLV_TRY(add_up_stages(stages, program, model, err));
    double last = 0;
    *t = stages[0];
    for (int s = 0; s < n; s++) {
        last = fmax(last, stages[s].all.seconds);
        if (busy_seconds(&stages[s]) <= busy_seconds(t))
            continue;
        *t = stages[s];
        t->parts.stage = s;
    }
    t->parts.waits += last - t->all.seconds;
    t->all.seconds = last;
    t->all.flops = t->all.model_flops = t->rank_at_peak = t->model_at_peak = 0;
    for (int s = 0; s < n; s++) {
        t->all.flops = fmax(t->all.flops, stages[s].all.flops);
        t->rank_at_peak = fmax(t->rank_at_peak, stages[s].rank_at_peak);
        t->all.model_flops += stages[s].all.model_flops;
        t->model_at_peak += stages[s].model_at_peak;
    }
    return CLV_OK;
}

int clv_program_stages(const clv_program *program)
{
    return program ? clv_program_stage_count(program) : 0;
}

clv_status clv_program_stage(const clv_program *program, const clv_machine *machine, int stage, clv_stage_info *out,
                             clv_error *err)
{
    CLV_TRY(clv_require(program && out, __func__, "the program and out", err));
    const int n = clv_program_stage_count(program);
    if (stage < 0 || stage >= n)
        return clv_fail(err, CLV_EINVAL, "%s: stage %d; valid: 0 to %d", __func__, stage, n - 1);
    running_time stages[CLV_MAX_STAGES] = {0};
    clv_cost_model model;
    double last = 0;
    clv_cost_model_make(&model, &program->mesh, machine);
    CLV_TRY(add_up_stages(stages, program, &model, err));
    for (int s = 0; s < n; s++)
        last = fmax(last, stages[s].all.seconds);
    clv_stage_info info = {.seconds = last,
                           .busy_seconds = busy_seconds(&stages[stage]),
                           .schedule = program->schedule,
                           .in_flight = program->in_flight[stage]};
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        const bool sends = !instruction->op && instruction->step->kind == CLV_STEP_SEND;
        info.sends += sends && clv_stages_have(instruction->step->from.stages, stage);
    }
    info.memory.size = sizeof info.memory;
    CLV_TRY(clv_program_stage_memory(&info.memory, program, stage, err));
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

clv_status clv_program_predict(const clv_program *program, const clv_machine *machine, clv_prediction *out,
                               clv_error *err)
{
    CLV_TRY(clv_require(program && out, __func__, "the program and out", err));
    clv_cost_model model;
    clv_cost_model_make(&model, &program->mesh, machine);
    running_time t = {0};
    CLV_TRY(add_up(&t, program, &model, err));
    clv_prediction *all = &t.all;
    if (all->seconds > 0) {
        all->utilisation = t.rank_at_peak / all->seconds;
        all->model_utilisation = t.model_at_peak / ((double)clv_mesh_rank_count(&program->mesh) * all->seconds);
    }
    all->memory_bytes = floor(model.machine->memory_bytes / model.oversubscription);
    return clv_struct_copy_out(out, sizeof *all, sizeof *all, all, __func__, err);
}

clv_status clv_program_predict_parts(const clv_program *program, const clv_machine *machine, clv_prediction_parts *out,
                                     clv_error *err)
{
    CLV_TRY(clv_require(program && out, __func__, "the program and out", err));
    clv_cost_model model;
    clv_cost_model_make(&model, &program->mesh, machine);
    running_time t = {0};
    CLV_TRY(add_up(&t, program, &model, err));
    return clv_struct_copy_out(out, sizeof t.parts, sizeof t.parts, &t.parts, __func__, err);
}
