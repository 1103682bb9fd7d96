/* stage_programs.c - prices a training step by the program that runs it, or by two with fewer microbatches. */
#include "models/plan/axes/stage_programs.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "program/program.h"

enum { WHOLE = 1024 /* layers times microbatches of a program that compiles in about a second */ };

/* ---- figures of a program ---- */

typedef struct figures {
    clv_prediction predicted;
    clv_prediction_parts parts;
    clv_memory stage[CLV_MAX_STAGES];
    double in_flight[CLV_MAX_STAGES];
    clv_plan_schedule schedule;
} figures;

static clv_status measure(figures *out, const clv_program *program, const clv_machine *machine, int64_t stages,
                          clv_error *err)
{
    out->predicted.size = sizeof out->predicted;
    out->parts.size = sizeof out->parts;
    CLV_TRY(clv_program_predict(program, machine, &out->predicted, err));
    CLV_TRY(clv_program_predict_parts(program, machine, &out->parts, err));
    for (int s = 0; s < stages; s++) {
        out->stage[s].size = sizeof out->stage[s];
        CLV_TRY(stages == 1 ? clv_program_memory_on(program, machine, &out->stage[s], err)
                            : clv_program_stage_memory(&out->stage[s], program, s, err));
        out->stage[s].peak = NULL; /* the program's */
        out->in_flight[s] = program->in_flight[s];
    }
    out->schedule = program->schedule;
    return CLV_OK;
}

static clv_status compile(figures *out, const clv_plan_options *options, int64_t stages, int64_t microbatches,
                          clv_error *err)
{
    clv_plan_options o = *options;
    clv_program *program;
    if (microbatches != o.accumulate) {
        o.batch = o.batch / o.accumulate * microbatches;
        o.accumulate = microbatches;
    }
    *out = (figures){0};
    CLV_TRY(clv_plan_compile_to_price(&program, &o, (clv_plan_part){0}, NULL, err));
    clv_status status = measure(out, program, o.compile.machine, stages, err);
    clv_program_free(program);
    return status;
}

/* ---- more microbatches ---- */

static double line(double few, double more, double steps)
{
    return more + steps * (more - few);
}

static void extend_time(figures *more, const figures *few, double steps)
{
    clv_prediction *p = &more->predicted;
    const double seconds = line(few->predicted.seconds, p->seconds, steps);
    const double at_peak =
        line(few->predicted.utilisation * few->predicted.seconds, p->utilisation * p->seconds, steps);
    const double of_model =
        line(few->predicted.model_utilisation * few->predicted.seconds, p->model_utilisation * p->seconds, steps);
    *p = (clv_prediction){.size = sizeof *p,
                          .seconds = seconds,
                          .communication = line(few->predicted.communication, p->communication, steps),
                          .flops = line(few->predicted.flops, p->flops, steps),
                          .utilisation = at_peak / seconds,
                          .memory_bytes = p->memory_bytes,
                          .overlapped = line(few->predicted.overlapped, p->overlapped, steps),
                          .model_flops = line(few->predicted.model_flops, p->model_flops, steps),
                          .model_utilisation = of_model / seconds};
    clv_prediction_parts *to = &more->parts;
    for (int i = 0; i < CLV_PART_COUNT; i++)
        to->ops[i] = line(few->parts.ops[i], to->ops[i], steps);
    for (int i = 0; i < CLV_PURPOSE_COUNT; i++) {
        to->communication[i] = line(few->parts.communication[i], to->communication[i], steps);
        to->overlapped[i] = line(few->parts.overlapped[i], to->overlapped[i], steps);
        to->bytes[i] = line(few->parts.bytes[i], to->bytes[i], steps);
        to->collectives[i] = llround(line((double)few->parts.collectives[i], (double)to->collectives[i], steps));
    }
    to->waits = line(few->parts.waits, to->waits, steps);
}

/* Of inputs alone where others do not wait for the end of the step. State does not grow. Space between buffers keeps
 * its part of the region: how buffers are packed does not follow a line. */
static void extend_memory(clv_memory *more, const clv_memory *few, double steps, bool inputs_alone)
{
    static const size_t kinds[] = {offsetof(clv_memory, gradients),     offsetof(clv_memory, activations),
                                   offsetof(clv_memory, gathered),      offsetof(clv_memory, inputs),
                                   offsetof(clv_memory, communication), offsetof(clv_memory, temporaries),
                                   offsetof(clv_memory, workspace)};
    const int64_t state = more->total - more->region, held = more->region - more->fragments;
    int64_t now = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int64_t *to = (int64_t *)((char *)more + kinds[i]);
        if (!inputs_alone || kinds[i] == offsetof(clv_memory, inputs))
            *to = llround(line((double)*(const int64_t *)((const char *)few + kinds[i]), (double)*to, steps));
        now += *to;
    }
    more->fragments = held > 0 ? llround((double)more->fragments / (double)held * (double)now) : more->fragments;
    more->region = now + more->fragments;
    more->total = state + more->region;
}

/* ---- the price ---- */

/* From how many microbatches on one more adds the same seconds: those of zero-bubble, which puts gradients off, are
 * still filling up where others are not. */
static int64_t first_steady(clv_plan_schedule schedule, int64_t stages)
{
    enum { MORE = 2 };
    return schedule == CLV_SCHEDULE_ZERO_BUBBLE && stages > MORE ? 2 * stages : stages + MORE;
}

bool clv_virtual_stages_are_compiled(int64_t virtual_stages, int64_t stages, int64_t microbatches, int64_t layers)
{
    const bool whole = (microbatches > 1 ? microbatches : 1) * layers <= WHOLE;
    return virtual_stages <= 1 ||
           (whole && stages * virtual_stages <= layers && stages * virtual_stages <= CLV_MAX_VIRTUAL_STAGES);
}

typedef struct pricing {
    const clv_plan_options *options; /* with numbers of microbatches and sequences */
    int64_t stages, layers;
    clv_program_price price;
} pricing;

static clv_status price_by_rules(clv_stage_needs *needs, void *arg, const clv_axis_rules *rules,
                                 clv_plan_schedule schedule, clv_error *err)
{
    pricing *p = arg;
    clv_plan_options o = *p->options;
    figures few, more;
    o.rules = rules;
    const int64_t stages = p->stages;
    o.compile.schedule = schedule;
    const int64_t first = first_steady(schedule, stages), cheap = WHOLE / p->layers;
    const int64_t last = stages > 1 && cheap > first ? cheap : first + 1;
    const bool whole =
        o.accumulate <= (cheap > last ? cheap : last) || o.batch % o.accumulate != 0; /* which is refused */
    CLV_TRY(compile(&more, &o, stages, whole ? o.accumulate : last, err));
    if (!whole) {
        CLV_TRY(compile(&few, &o, stages, first, err));
        const double steps = (double)(o.accumulate - last) / (double)(last - first);
        extend_time(&more, &few, steps);
        const bool all_wait = schedule == CLV_SCHEDULE_GPIPE;
        for (int64_t s = 0; s < stages; s++) {
            extend_memory(&more.stage[s], &few.stage[s], steps, !all_wait);
            if (all_wait)
                more.in_flight[s] = line(few.in_flight[s], more.in_flight[s], steps);
        }
    }
    p->price = (clv_program_price){.predicted = more.predicted,
                                   .parts = more.parts,
                                   .memory = more.stage[0],
                                   .schedule = more.schedule,
                                   .runs = rules->n_stage_layers,
                                   .whole = whole};
    memcpy(p->price.layers, rules->stage_layers, sizeof p->price.layers);
    for (int64_t s = 0; s < stages; s++) {
        needs->bytes[s] = (double)more.stage[s].total;
        if (more.stage[s].total > p->price.memory.total)
            p->price.memory = more.stage[s];
    }
    needs->seconds = more.predicted.seconds;
    p->price.in_flight = more.in_flight[p->price.memory.stage];
    return CLV_OK;
}

clv_status clv_program_price_compute(clv_program_price *out, const clv_plan_options *options, int64_t stages,
                                     int64_t layers, clv_error *err)
{
    clv_plan_options o = *options;
    clv_axis_rules rules;
    clv_stage_needs needs;
    pricing p = {.options = &o, .stages = stages, .layers = layers};
    o.accumulate = o.accumulate ? o.accumulate : 1;
    o.batch = o.batch ? o.batch : CLV_PLAN_BATCH;
    CLV_TRY(stages > 1 ? clv_plan_fit_stages(&rules, &o, price_by_rules, &p, err)
                       : price_by_rules(&needs, &p, o.rules, o.compile.schedule, err));
    *out = p.price;
    return CLV_OK;
}
