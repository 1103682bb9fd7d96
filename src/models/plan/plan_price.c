/* plan_price.c - predicts memory and seconds of a plan, by part; of a deep model from programs of a few layers. */
#include "models/plan/plan_price.h"

#include <stdlib.h>

#include "base/error.h"
#include "models/families/model_family.h"
#include "models/model.h"
#include "program/program.h"

enum {
    FEW_LAYERS = 2, /* from here on a layer more adds the same */
    FEW_MICROBATCHES = 4,
    REFINED_LAYERS = 400 /* layers times microbatches of the program of clv_price_refine */
};

/* ---- one program ---- */

/* Whether a step moves parameters: one of the state itself, or of what such a step made. */
static bool moves_weights(const clv_program *program, const clv_instruction *step, bool *is_weight)
{
    const clv_buffer *from = &program->buffers[step->in[0]];
    bool moves = is_weight[step->in[0]] || (from->kind == CLV_BUFFER_STATE && from->role == CLV_ROLE_PARAMETER);
    is_weight[step->out[0]] = moves;
    return moves;
}

static clv_time_part part_of_step(const clv_program *program, const clv_cost_model *model, const clv_instruction *step,
                                  bool *is_weight)
{
    bool weights = moves_weights(program, step, is_weight);
    bool gradients =
        step->update || program->buffers[step->in[0]].is_gradient || program->buffers[step->out[0]].is_gradient;
    if (!clv_step_moves(step->step->kind))
        return CLV_TIME_OTHER_OPS;
    clv_time_part part = gradients ? CLV_TIME_GRADIENTS : weights ? CLV_TIME_WEIGHTS : CLV_TIME_ACTIVATIONS;
    return part + clv_cost_crosses_hosts(model, step->step->axes, step->step->n_axes);
}

static clv_time_part part_of_op(const clv_instruction *op)
{
    if (op->recomputed)
        return CLV_TIME_RECOMPUTED;
    return op->op->def->counts_flops ? CLV_TIME_PRODUCTS : CLV_TIME_OTHER_OPS;
}

static clv_status add_parts(clv_price *price, const clv_program *program, const clv_machine *machine, clv_error *err)
{
    clv_cost_model model;
    bool *is_weight = calloc((size_t)program->n_buffers + 1, sizeof *is_weight);
    if (!is_weight)
        return clv_fail_memory(err, "a price", (size_t)program->n_buffers);
    clv_cost_model_make(&model, &program->mesh, machine);
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *at = &program->instructions[i];
        clv_time_part part = at->op ? part_of_op(at) : part_of_step(program, &model, at, is_weight);
        price->part[part] += clv_instruction_seconds(program, &model, i);
    }
    free(is_weight);
    return CLV_OK;
}

static clv_status measure(clv_price *out, const clv_program *program, const clv_machine *machine, clv_error *err)
{
    clv_memory memory = {.size = sizeof memory};
    clv_prediction predicted = {.size = sizeof predicted};
    CLV_TRY(clv_program_memory_on(program, machine, &memory, err));
    CLV_TRY(clv_program_predict(program, machine, &predicted, err));
    *out = (clv_price){.memory = (double)memory.total,
                       .seconds = predicted.seconds,
                       .communication = predicted.communication,
                       .overlapped = predicted.overlapped,
                       .model_seconds = predicted.model_utilisation * predicted.seconds};
    return add_parts(out, program, machine, err);
}

/* The price with so many layers (0: all) and microbatches of the given one's size. */
static clv_status price(clv_price *out, const clv_plan_options *options, int64_t layers, int64_t microbatches,
                        clv_reshard_cache *reshards, clv_error *err)
{
    clv_plan_options changed = *options;
    clv_program *program;
    if (microbatches != options->accumulate) {
        changed.batch = options->batch / options->accumulate * microbatches;
        changed.accumulate = microbatches;
    }
    CLV_TRY(clv_plan_compile_to_price(&program, &changed, (clv_plan_part){.layers = layers}, reshards, err));
    clv_status status = measure(out, program, options->compile.machine, err);
    clv_program_free(program);
    return status;
}

clv_status clv_price_whole(clv_price *out, const clv_plan_options *options, clv_error *err)
{
    return price(out, options, 0, options->accumulate, NULL, err);
}

/* ---- what repeats ---- */

/* x a + y b */
static clv_price combine(const clv_price *a, double x, const clv_price *b, double y)
{
    clv_price p = {.memory = x * a->memory + y * b->memory,
                   .seconds = x * a->seconds + y * b->seconds,
                   .communication = x * a->communication + y * b->communication,
                   .overlapped = x * a->overlapped + y * b->overlapped,
                   .model_seconds = x * a->model_seconds + y * b->model_seconds};
    for (int i = 0; i < CLV_TIME_COUNT; i++)
        p.part[i] = x * a->part[i] + y * b->part[i];
    return p;
}

/* a + steps (b - a) */
static clv_price extrapolate(const clv_price *a, const clv_price *b, double steps)
{
    return combine(a, 1 - steps, b, steps);
}

/* With so many layers, for any number of microbatches. Their inputs alone add to memory: too little to count. */
static clv_status price_microbatches(clv_price *out, const clv_plan_options *options, int64_t layers,
                                     clv_reshard_cache *reshards, clv_error *err)
{
    clv_price more;
    if (options->accumulate <= FEW_MICROBATCHES + 1)
        return price(out, options, layers, options->accumulate, reshards, err);
    CLV_TRY(price(out, options, layers, FEW_MICROBATCHES, reshards, err));
    CLV_TRY(price(&more, options, layers, FEW_MICROBATCHES + 1, reshards, err));
    *out = extrapolate(out, &more, (double)(options->accumulate - FEW_MICROBATCHES));
    out->memory = more.memory;
    return CLV_OK;
}

static bool has_many_layers(const clv_price_shape *shape)
{
    return shape->layers_repeat && shape->layers > FEW_LAYERS + 1;
}

static clv_status price_layers(clv_price *out, const clv_plan_options *options, const clv_price_shape *shape,
                               clv_error *err)
{
    clv_price more;
    bool repeats = has_many_layers(shape);
    CLV_TRY(price_microbatches(out, options, repeats ? FEW_LAYERS : 0, shape->reshards, err));
    if (!repeats)
        return CLV_OK;
    CLV_TRY(price_microbatches(&more, options, FEW_LAYERS + 1, shape->reshards, err));
    *out = extrapolate(out, &more, (double)(shape->layers - FEW_LAYERS));
    return CLV_OK;
}

/* With overlap, which needs a little more memory, what layers need is not alike: it is estimated without. */
clv_status clv_price_estimate(clv_price *out, bool *exact, const clv_plan_options *options,
                              const clv_price_shape *shape, clv_error *err)
{
    clv_plan_options plain = *options;
    clv_price without_overlap;
    *exact = !has_many_layers(shape) && options->accumulate <= FEW_MICROBATCHES + 1;
    CLV_TRY(price_layers(out, options, shape, err));
    if (*exact || !options->compile.overlap)
        return CLV_OK;
    plain.compile.overlap = false;
    CLV_TRY(price_layers(&without_overlap, &plain, shape, err));
    out->memory = without_overlap.memory;
    return CLV_OK;
}

clv_status clv_price_refine(clv_price *inout, const clv_plan_options *options, const clv_price_shape *shape,
                            clv_error *err)
{
    clv_plan_options fewer = *options;
    clv_price whole, estimate;
    bool exact;
    if (shape->layers * options->accumulate > REFINED_LAYERS) {
        int64_t most = REFINED_LAYERS / shape->layers;
        fewer.accumulate = most > FEW_MICROBATCHES ? most : FEW_MICROBATCHES + 1;
        fewer.accumulate = fewer.accumulate < options->accumulate ? fewer.accumulate : options->accumulate;
        fewer.batch = options->batch / options->accumulate * fewer.accumulate;
    }
    CLV_TRY(clv_price_whole(&whole, &fewer, err));
    CLV_TRY(clv_price_estimate(&estimate, &exact, &fewer, shape, err));
    /* whole + (what is refined - estimate) */
    whole = combine(&whole, 1, inout, 1);
    *inout = combine(&whole, 1, &estimate, -1);
    return CLV_OK;
}

clv_status clv_price_shape_compute(clv_price_shape *out, const clv_plan_options *o, clv_error *err)
{
    clv_model *model;
    const clv_model_options options = {.size = sizeof options, .config_only = true};
    *out = (clv_price_shape){.heads = o->heads ? o->heads : CLV_PLAN_HEADS};
    if (!o->model)
        return CLV_OK;
    clv_model_info info = {.size = sizeof info};
    CLV_TRY(clv_model_open(&model, o->model, &options, err));
    (void)clv_model_get_info(model, &info, NULL);
    const clv_model_config *c = &model->config;
    *out = (clv_price_shape){.layers = c->layers,
                             .layers_repeat = !c->family->is_custom,
                             .bidirectional = c->bidirectional,
                             .heads = c->heads,
                             .parameters = info.parameters};
    for (int64_t i = 1; i < c->layers; i++)
        out->layers_repeat &= clv_model_config_window(c, i) == clv_model_config_window(c, 0);
    clv_model_close(model);
    return CLV_OK;
}
