/* stage_cost.c - prices what a layer and the head add to a pipeline stage, by programs of a few layers. */
#include "models/plan/axes/stage_cost.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "program/program.h"

enum { FEW_TOKENS = 64 /* of a vocabulary that costs nothing */ };

/* From how many layers, and microbatches, on one more adds the same: overlap splits collectives of the first ones
 * otherwise. */
static int64_t few(const clv_plan_options *options)
{
    return options->compile.overlap ? 3 : 2;
}

clv_figures clv_figures_combine(const clv_figures *a, double x, const clv_figures *b, double y)
{
    clv_figures f;
    for (int i = 0; i < CLV_FIGURE_COUNT; i++)
        f.at[i] = x * a->at[i] + y * b->at[i];
    return f;
}

/* ---- one program ---- */

static void add_parts(clv_figures *f, const clv_prediction_parts *parts)
{
    for (int i = 0; i < CLV_PART_COUNT; i++)
        f->at[CLV_FIGURE_OPS + i] = parts->ops[i];
    for (int i = 0; i < CLV_PURPOSE_COUNT; i++) {
        f->at[CLV_FIGURE_EXPOSED + i] = parts->communication[i];
        f->at[CLV_FIGURE_HIDDEN + i] = parts->overlapped[i];
        f->at[CLV_FIGURE_BYTES + i] = parts->bytes[i];
        f->at[CLV_FIGURE_COLLECTIVES + i] = (double)parts->collectives[i];
    }
}

static void add_ops(clv_figures *f, const clv_program *program, const clv_machine *machine)
{
    clv_cost_model model;
    clv_cost_model_make(&model, &program->mesh, machine);
    const double ranks = (double)clv_mesh_rank_count(&program->mesh);
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *at = &program->instructions[i];
        double seconds = at->op ? clv_instruction_seconds(program, &model, i) : 0;
        bool attends = at->op && strncmp(at->op->def->name, "attention", strlen("attention")) == 0;
        f->at[CLV_FIGURE_FORWARD] += at->backward || at->update ? 0 : seconds;
        f->at[CLV_FIGURE_RECOMPUTED] += at->recomputed ? seconds : 0;
        f->at[CLV_FIGURE_ELEMENTWISE] += at->op && !at->recomputed && !at->op->def->counts_flops ? seconds : 0;
        f->at[CLV_FIGURE_ATTENTION] += attends ? seconds : 0;
        f->at[CLV_FIGURE_ATTENTION_FORWARD] += attends && !at->backward ? seconds : 0;
        if (attends && !at->recomputed)
            f->at[CLV_FIGURE_ATTENTION_FLOPS] +=
                clv_instruction_work(program, i).flops * ranks * (1 - clv_op_traits_of(at->op)->recomputed_flops);
    }
}

/* What is done with a buffer. */
enum { MADE_LATE = 1, READ_LATE = 2, READ_EARLY = 4 };

/* Whether an instruction can be put off: it makes gradients of weights, of the first microbatch, or what such
 * instructions alone read. */
static bool is_late(const clv_program *program, const clv_instruction *at, const uint8_t *uses)
{
    bool makes = at->op && at->backward && at->microbatch <= 1, feeds = at->backward || at->recomputed;
    for (int o = 0; (makes || feeds) && o < at->n_out; o++) {
        const int use = uses[at->out[o]];
        makes = makes && program->buffers[at->out[o]].is_gradient;
        feeds = feeds && (use & READ_LATE) && !(use & READ_EARLY);
    }
    return makes || feeds;
}

/* Bytes that gradients of weights, if they are put off, need of a microbatch. */
static clv_status add_operands(clv_figures *f, const clv_program *program, clv_error *err)
{
    uint8_t *uses = calloc((size_t)program->n_buffers + 1, sizeof *uses);
    if (!uses)
        return clv_fail_memory(err, "the figures of a program", (size_t)program->n_buffers);
    for (int i = program->n_instructions - 1; i >= 0; i--) {
        const clv_instruction *at = &program->instructions[i];
        const bool late = is_late(program, at, uses);
        for (int o = 0; late && o < at->n_out; o++)
            uses[at->out[o]] |= MADE_LATE;
        for (int k = 0; k < at->n_in; k++)
            if (at->in[k] >= 0)
                uses[at->in[k]] |= late ? READ_LATE : READ_EARLY;
    }
    for (int b = 0; b < program->n_buffers; b++)
        if ((uses[b] & READ_LATE) && !(uses[b] & MADE_LATE) && program->buffers[b].kind != CLV_BUFFER_STATE)
            f->at[CLV_FIGURE_PUT_OFF] += (double)program->buffers[b].bytes;
    free(uses);
    return CLV_OK;
}

clv_status clv_figures_measure(clv_figures *out, const clv_program *program, const clv_machine *machine, clv_error *err)
{
    clv_memory m = {.size = sizeof m};
    clv_prediction p = {.size = sizeof p};
    clv_prediction_parts parts = {.size = sizeof parts};
    CLV_TRY(clv_program_memory_on(program, machine, &m, err));
    CLV_TRY(clv_program_predict(program, machine, &p, err));
    CLV_TRY(clv_program_predict_parts(program, machine, &parts, err));
    const double fragments = clv_machine_or_default(machine)->fragmentation * (double)m.region;
    *out = (clv_figures){{[CLV_FIGURE_SECONDS] = p.seconds,
                          [CLV_FIGURE_COMMUNICATION] = p.communication,
                          [CLV_FIGURE_OVERLAPPED] = p.overlapped,
                          [CLV_FIGURE_FLOPS] = p.flops,
                          [CLV_FIGURE_MODEL_FLOPS] = p.model_flops,
                          [CLV_FIGURE_PARAMETERS] = (double)(m.parameters + m.other_state),
                          [CLV_FIGURE_OPTIMIZER] = (double)m.optimizer,
                          [CLV_FIGURE_GRADIENTS] = (double)m.gradients,
                          [CLV_FIGURE_ACTIVATIONS] = (double)m.activations,
                          [CLV_FIGURE_GATHERED] = (double)m.gathered,
                          [CLV_FIGURE_REGION] = (double)m.region,
                          [CLV_FIGURE_LOGITS] = (double)m.software - fragments}};
    add_parts(out, &parts);
    add_ops(out, program, machine);
    return add_operands(out, program, err);
}

static clv_status measure_part(clv_figures *out, const clv_plan_options *options, clv_plan_part part,
                               int64_t microbatches, clv_error *err)
{
    clv_plan_options changed = *options;
    clv_program *program;
    changed.batch = options->batch / options->accumulate * microbatches;
    changed.accumulate = microbatches;
    changed.no_sync = options->no_sync && microbatches > 1;
    CLV_TRY(clv_plan_compile_to_price(&program, &changed, part, NULL, err));
    clv_status status = clv_figures_measure(out, program, options->compile.machine, err);
    clv_program_free(program);
    return status;
}

static bool is_memory(int figure)
{
    return figure >= CLV_FIGURE_PARAMETERS;
}

/* With overlap, which needs a little more memory, what layers need is not alike: memory is that without. */
static clv_status measure_memory(clv_figures *inout, const clv_plan_options *options, clv_plan_part part,
                                 int64_t microbatches, clv_error *err)
{
    clv_plan_options plain = *options;
    clv_figures f;
    if (!options->compile.overlap)
        return CLV_OK;
    plain.compile.overlap = false;
    CLV_TRY(measure_part(&f, &plain, part, microbatches, err));
    for (int i = 0; i < CLV_FIGURE_COUNT; i++)
        inout->at[i] = is_memory(i) ? f.at[i] : inout->at[i];
    return CLV_OK;
}

/* ---- what repeats ---- */

/* In a microbatch, and in a step beside its microbatches; memory is that of the step. */
static clv_status measure_steps(clv_figures *micro, clv_figures *step, const clv_plan_options *options,
                                clv_plan_part part, clv_error *err)
{
    clv_figures more;
    const int64_t least = few(options);
    if (options->accumulate == 1) {
        CLV_TRY(measure_part(&more, options, part, 1, err));
        CLV_TRY(measure_memory(&more, options, part, 1, err));
        for (int i = 0; i < CLV_FIGURE_COUNT; i++) {
            micro->at[i] = is_memory(i) ? 0 : more.at[i];
            step->at[i] = is_memory(i) ? more.at[i] : 0;
        }
        return CLV_OK;
    }
    CLV_TRY(measure_part(step, options, part, least, err));
    CLV_TRY(measure_part(&more, options, part, least + 1, err));
    CLV_TRY(measure_memory(&more, options, part, least + 1, err));
    for (int i = 0; i < CLV_FIGURE_COUNT; i++) {
        micro->at[i] = is_memory(i) ? 0 : more.at[i] - step->at[i];
        step->at[i] = is_memory(i) ? more.at[i] : step->at[i] - (double)least * micro->at[i];
    }
    return CLV_OK;
}

clv_status clv_stage_cost_compute(clv_stage_cost *out, const clv_plan_options *options, clv_error *err)
{
    clv_figures micro[3], step[3];
    const int64_t layers = few(options);
    const clv_plan_part parts[] = {{layers, FEW_TOKENS}, {layers + 1, FEW_TOKENS}, {layers, 0}};
    for (int i = 0; i < 3; i++)
        CLV_TRY(measure_steps(&micro[i], &step[i], options, parts[i], err));
    out->layer_micro = clv_figures_combine(&micro[1], 1, &micro[0], -1);
    out->layer_step = clv_figures_combine(&step[1], 1, &step[0], -1);
    out->rest_micro = clv_figures_combine(&micro[0], 1, &out->layer_micro, -(double)layers);
    out->rest_step = clv_figures_combine(&step[0], 1, &out->layer_step, -(double)layers);
    out->head_micro = clv_figures_combine(&micro[2], 1, &micro[0], -1);
    out->head_step = clv_figures_combine(&step[2], 1, &step[0], -1);
    return CLV_OK;
}
