/* balance_stages.c - balances pipeline stages: finds the time of a model's head in layers, from the predicted times of
 * the forward pass and loss of two layers on two stages; and layers of stages that fit a limit of memory. */
#include <math.h>

#include "models/model.h"
#include "nn/axis_rules.h"
#include "partition/partitioner.h"
#include "program/program.h"

enum { SEQ = 512 };

static clv_status compile_two_layers(clv_program **out, const clv_model *m, int axis, clv_error *err)
{
    clv_model_config config = m->config;
    clv_mesh mesh = m->mesh;
    clv_graph *graph;
    clv_model_build_options build = {.batch = clv_mesh_rank_count(&mesh) / mesh.axis[axis].size,
                                     .seq = config.max_positions < SEQ ? config.max_positions : SEQ,
                                     .rules = m->rules,
                                     .dtype = m->dtype,
                                     .quant = m->quant};
    build.rules.virtual_stages = build.rules.n_stage_layers = 0;
    config.layers = mesh.axis[axis].size = 2;
    CLV_TRY(clv_graph_new(&graph, &mesh, err));
    clv_build_loss(graph, &config, &build);
    const clv_status status = clv_compile(out, graph, &(clv_compile_options){.machine = m->machine}, err);
    clv_graph_free(graph);
    return status;
}

void clv_model_balance_stages(clv_model *m)
{
    const int axis = clv_axis_rules_stage_axis(&m->rules);
    clv_stage_info first = {.size = sizeof first}, last = first;
    clv_program *program = NULL;
    if (axis < 0 || m->mesh.axis[axis].size < 2 || m->config.headless || m->rules.n_stage_layers > 0 ||
        compile_two_layers(&program, m, axis, NULL) != CLV_OK) /* the model's own graphs say what fails */
        return;
    if (clv_program_stage(program, m->machine, 0, &first, NULL) == CLV_OK &&
        clv_program_stage(program, m->machine, 1, &last, NULL) == CLV_OK && first.busy_seconds > 0 &&
        last.busy_seconds > first.busy_seconds)
        m->rules.head_layers = last.busy_seconds / first.busy_seconds - 1;
    clv_program_free(program);
}

/* ---- by memory ---- */

/* Memory grows about linearly with the layers of a stage: a line says how many have room. Not quite, as it depends on
 * when other stages send, so that what a split needs is known when its step is compiled. */
enum { MOST_ATTEMPTS = 8 };
static const double hopeless = 1.3; /* of all stages' memory together: no way to share it fits */

/* What is known of a stage: what it needed for its layers, and for one more. */
typedef struct stage_line {
    double layers, bytes, of_layer;
} stage_line;

typedef struct split {
    int layers[CLV_MAX_VIRTUAL_STAGES]; /* of each run */
    double most_bytes, seconds;         /* that it needs, once tried */
} split;

typedef struct stage_fit {
    int stages, runs;
    int64_t layers;
    double limit, head;
    clv_axis_rules *rules;
    clv_plan_schedule schedule;
    clv_try_stages *attempt;
    void *arg;
    stage_line line[CLV_MAX_STAGES];
    int n_tried, best;              /* best: the fastest that fits; -1: none */
    split tried[MOST_ATTEMPTS + 2]; /* with the first, and the chosen one again */
} stage_fit;

clv_status clv_stage_needs_read(clv_stage_needs *out, const clv_program *program, const clv_machine *machine,
                                clv_error *err)
{
    clv_prediction predicted = {.size = sizeof predicted};
    CLV_TRY(clv_program_predict(program, machine, &predicted, err));
    out->seconds = predicted.seconds;
    for (int s = 0; s < clv_program_stage_count(program); s++) {
        clv_memory memory = {.size = sizeof memory};
        CLV_TRY(clv_program_stage_memory(&memory, program, s, err));
        out->bytes[s] = (double)memory.total;
    }
    return CLV_OK;
}

static double layers_of(const stage_fit *f, const split *at, int stage)
{
    return (double)clv_nn_layers_of_stage(at->layers, f->runs, stage, f->stages);
}

/* The longest stage, in layers. */
static double longest(const stage_fit *f, const split *at)
{
    double most = 0;
    for (int s = 0; s < f->stages; s++)
        most = fmax(most, layers_of(f, at, s) + (s == f->stages - 1 ? f->head : 0));
    return most;
}

/* Notes what a split needs; returns whether it fits. */
static bool learn(stage_fit *f, const split *at, const clv_stage_needs *needs)
{
    bool fits = true;
    for (int s = 0; s < f->stages; s++) {
        stage_line *line = &f->line[s];
        const double layers = layers_of(f, at, s), slope = (needs->bytes[s] - line->bytes) / (layers - line->layers);
        line->of_layer = f->n_tried > 1 && isfinite(slope) && slope > 0 ? slope : needs->bytes[s] / layers;
        line->layers = layers;
        line->bytes = needs->bytes[s];
        fits &= needs->bytes[s] <= f->limit;
    }
    return fits;
}

/* Compiles the step by a split, and keeps the best that fits. */
static clv_status try_split(stage_fit *f, const split *at, clv_error *err)
{
    clv_stage_needs needs = {0};
    f->rules->n_stage_layers = f->runs;
    memcpy(f->rules->stage_layers, at->layers, (size_t)f->runs * sizeof *at->layers);
    CLV_TRY(f->attempt(&needs, f->arg, f->rules, f->schedule, err));
    f->tried[f->n_tried] = *at;
    for (int s = 0; s < f->stages; s++)
        f->tried[f->n_tried].most_bytes = fmax(s ? f->tried[f->n_tried].most_bytes : 0, needs.bytes[s]);
    f->tried[f->n_tried].seconds = needs.seconds;
    f->n_tried++;
    if (learn(f, at, &needs) && (f->best < 0 || longest(f, at) < longest(f, &f->tried[f->best])))
        f->best = f->n_tried - 1;
    return CLV_OK;
}

static bool was_tried(const stage_fit *f, const split *at)
{
    for (int i = 0; i < f->n_tried; i++)
        if (memcmp(f->tried[i].layers, at->layers, (size_t)f->runs * sizeof *at->layers) == 0)
            return true;
    return false;
}

/* A split that the lines have room for. Returns whether it is worth a try. */
static bool propose(split *out, const stage_fit *f)
{
    double all = 0;
    int64_t most[CLV_MAX_STAGES];
    for (int s = 0; s < f->stages; s++) {
        const stage_line *line = &f->line[s];
        all += line->bytes;
        most[s] = (int64_t)(line->layers + floor((f->limit - line->bytes) / line->of_layer));
    }
    return all <= hopeless * f->stages * f->limit &&
           clv_nn_balance_within(out->layers, f->runs, f->layers, f->head, f->stages, most) && !was_tried(f, out) &&
           (f->best < 0 || longest(f, out) < longest(f, &f->tried[f->best]));
}

/* A split like the one that needs the least so far, but for a layer that is on another run; false: all were tried. */
static bool propose_beside(split *out, const stage_fit *f)
{
    const split *least = &f->tried[0];
    for (int i = 1; i < f->n_tried; i++)
        least = f->tried[i].most_bytes < least->most_bytes ? &f->tried[i] : least;
    for (int from = 0; least->most_bytes <= hopeless * f->limit && from < f->runs; from++)
        for (int to = f->runs - 1; to >= 0; to--) {
            *out = *least;
            out->layers[from]--;
            out->layers[to]++;
            if (out->layers[from] > 0 && !was_tried(f, out))
                return true;
        }
    return false;
}

/* Returns the split that is left, as it was tried. */
static clv_status find_split(split *left, stage_fit *f, const split *first, clv_error *err)
{
    split next;
    f->n_tried = 0;
    f->best = -1;
    CLV_TRY(try_split(f, first, err));
    while (f->best != 0 && f->n_tried < MOST_ATTEMPTS &&
           (propose(&next, f) || (f->best < 0 && propose_beside(&next, f))))
        CLV_TRY(try_split(f, &next, err));
    const int chosen = f->best < 0 ? 0 : f->best;
    *left = f->tried[chosen];
    return chosen == f->n_tried - 1 ? CLV_OK : try_split(f, left, err);
}

/* CLV_SCHEDULE_AUTO. */
static clv_status find_split_and_schedule(stage_fit *f, const split *first, clv_error *err)
{
    split best = {0}, left;
    int at = 0;
    for (int i = 0; i < CLV_SCHEDULES_OF_AUTO; i++) {
        f->schedule = clv_schedules_of_auto[i];
        CLV_TRY(find_split(&left, f, first, err));
        if (i == 0 || clv_step_is_better(left.seconds, left.most_bytes, best.seconds, best.most_bytes, f->limit)) {
            best = left;
            at = i;
        }
    }
    f->schedule = clv_schedules_of_auto[at];
    f->n_tried = 0;
    return at == CLV_SCHEDULES_OF_AUTO - 1 ? CLV_OK : try_split(f, &best, err);
}

clv_status clv_model_fit_stages(clv_axis_rules *out, const clv_model *model, clv_try_stages *attempt, void *arg,
                                clv_error *err)
{
    split first = {0}, left;
    int runs = 0;
    clv_stage_needs needs;
    *out = model->rules;
    CLV_TRY(clv_nn_stage_layers(first.layers, &runs, out, &model->mesh, model->config.layers, err));
    const int stages = runs > 0 ? (int)model->mesh.axis[clv_axis_rules_stage_axis(out)].size : 1;
    if (stages == 1 || stages > CLV_MAX_STAGES || out->n_stage_layers > 0)
        return attempt(&needs, arg, out, model->compile.schedule, err);
    stage_fit f = {.stages = stages,
                   .runs = runs,
                   .layers = model->config.layers,
                   .limit = clv_compile_memory_limit(&model->compile, &model->mesh),
                   .head = out->head_layers,
                   .rules = out,
                   .schedule = model->compile.schedule,
                   .attempt = attempt,
                   .arg = arg};
    return f.schedule == CLV_SCHEDULE_AUTO ? find_split_and_schedule(&f, &first, err)
                                           : find_split(&left, &f, &first, err);
}
