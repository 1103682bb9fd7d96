/* moe_cost.c - prices layers with experts: programs of one rank, state, and what goes between ranks.
 *
 * Experts are on the ranks of the axis expert; each of its ranks has equally many, up to one, and every expert gets
 * equally many tokens. A token goes once to each rank that has experts of it, and its results come back summed, as
 * DeepEP does (deepseek-ai/DeepEP); over the network once to each host. A machine that dispatches copies sends one
 * to each expert, as Megatron's dispatcher alltoall does. Copies of an expert are on the ranks of data, context and
 * model; the rest of a layer is split by model, and copied over data, context and expert.
 */
#include "models/plan/axes/moe_cost.h"

#include <math.h>

#include "base/error.h"
#include "models/plan/axes/moe_layer.h"
#include "nn/axis_rules.h"
#include "program/program.h"

enum { FEW_LAYERS = 2, F32_BYTES = 4 };

typedef struct moe_cost {
    const clv_moe_config *c;
    const clv_mesh_parts *mesh;
    const clv_plan_options *o;
    const clv_machine *machine;
    clv_moe_rank rank;
} moe_cost;

/* ---- ops and activations ---- */

static clv_status measure(clv_figures *out, const moe_cost *m, clv_moe_part part, int64_t layers, clv_error *err)
{
    clv_graph *graph;
    clv_program *program;
    const clv_mesh alone = {0};
    clv_compile_options how = m->o->compile;
    how.overlap = false;
    CLV_TRY(clv_graph_new(&graph, &alone, err));
    clv_moe_layer_build(graph, m->c, &m->rank, part, layers);
    clv_status status = clv_graph_status(graph, err);
    if (status == CLV_OK)
        status = clv_compile(&program, graph, &how, err);
    clv_graph_free(graph);
    CLV_TRY(status);
    status = clv_figures_measure(out, program, m->machine, err);
    clv_program_free(program);
    const double ranks = (double)clv_mesh_rank_count(&m->mesh->stage);
    out->at[CLV_FIGURE_MODEL_FLOPS] *= ranks;
    out->at[CLV_FIGURE_ATTENTION_FLOPS] *= ranks;
    out->at[CLV_FIGURE_REGION] = out->at[CLV_FIGURE_ACTIVATIONS];
    return status;
}

/* One layer more. */
static clv_status measure_layer(clv_figures *out, const moe_cost *m, clv_moe_part part, clv_error *err)
{
    clv_figures few, more;
    CLV_TRY(measure(&few, m, part, FEW_LAYERS, err));
    CLV_TRY(measure(&more, m, part, FEW_LAYERS + 1, err));
    *out = clv_figures_combine(&more, 1, &few, -1);
    return CLV_OK;
}

static clv_status measure_average(clv_figures *out, const moe_cost *m, clv_error *err)
{
    const clv_moe_config *c = m->c;
    const double sparse = (double)(c->layers - c->dense_layers), windowed = c->window ? floor(sparse / 2) : 0;
    const double shares[] = {sparse - windowed, windowed, (double)c->dense_layers};
    *out = (clv_figures){0};
    for (int k = CLV_MOE_EXPERTS; k <= CLV_MOE_DENSE; k++) {
        clv_figures layer;
        if (shares[k] <= 0)
            continue;
        CLV_TRY(measure_layer(&layer, m, (clv_moe_part)k, err));
        *out = clv_figures_combine(out, 1, &layer, shares[k] / (double)c->layers);
    }
    return CLV_OK;
}

/* Heads narrower than those that rates of attention are measured with take as long: exponentials bound them, of which
 * there are as many (Shah et al. 2024, arXiv:2407.08608). */
static void add_narrow_heads(clv_figures *layer, const clv_moe_config *c)
{
    enum { MEASURED = 128 };
    const double width = (double)(c->qk_dim + c->v_dim) / 2, more = width < MEASURED ? MEASURED / width - 1 : 0;
    const double seconds = more * layer->at[CLV_FIGURE_ATTENTION];
    const double forward = more * layer->at[CLV_FIGURE_ATTENTION_FORWARD];
    layer->at[CLV_FIGURE_SECONDS] += seconds;
    layer->at[CLV_FIGURE_FORWARD] += forward;
    layer->at[CLV_FIGURE_ATTENTION] += seconds;
    layer->at[CLV_FIGURE_ATTENTION_FORWARD] += forward;
    layer->at[CLV_FIGURE_OPS + CLV_PART_ATTENTION] += seconds;
}

/* ---- between ranks ---- */

/* Ranks of a host among those that are `apart` from each other. */
static int64_t ranks_of_host(const moe_cost *m, int64_t apart)
{
    const int64_t ranks = m->machine->ranks_per_host / apart;
    return ranks < 1 ? 1 : ranks;
}

static bool crosses_hosts(const moe_cost *m, int64_t n, int64_t apart)
{
    return m->machine->hosts != 1 && n > ranks_of_host(m, apart); /* 0: any number */
}

/* Whether ops hide a collective of n ranks. */
static bool may_overlap(const moe_cost *m, bool of_weights, int64_t n, int64_t apart)
{
    return m->o->compile.overlap && clv_machine_may_overlap(m->machine, of_weights, crosses_hosts(m, n, apart));
}

/* Seconds in which a rank receives `bytes` from ranks `apart` from each other, n of them: those of a host give each
 * other what came over the network for all of them. */
static double collect(const moe_cost *m, double bytes, int64_t n, int64_t apart)
{
    const int64_t sharing = ranks_of_host(m, apart);
    const double host = bytes / m->machine->host.bytes_per_s;
    if (n == 1 || bytes <= 0)
        return 0;
    if (!crosses_hosts(m, n, apart))
        return m->machine->host.alpha_s + host;
    return m->machine->network.alpha_s + bytes / (double)sharing / m->machine->network.bytes_per_s +
           (sharing > 1 ? host : 0);
}

/* How often a token goes to another one of n places: once to each that its experts are at, or once for each expert. */
static double others(const moe_cost *m, double n)
{
    const double top_k = (double)m->c->top_k, places = n * (1 - pow(1 - 1 / n, top_k));
    return (m->machine->dispatches_copies ? top_k : places) * (n - 1) / n;
}

/* Seconds of the tokens to their experts, or back. */
static double all_to_all(const moe_cost *m)
{
    const clv_mesh_parts *mesh = m->mesh;
    const double ranks = (double)mesh->expert;
    const double tokens = (double)(m->rank.batch * m->rank.seq) / (double)mesh->model;
    const double row = (double)(m->c->hidden * (int64_t)clv_dtype_size(m->o->dtype));
    const double sharing = fmin(ranks, (double)ranks_of_host(m, mesh->model));
    const double near = tokens * row * others(m, ranks) / m->machine->host.bytes_per_s;
    if (mesh->expert == 1)
        return 0;
    if (!crosses_hosts(m, mesh->expert, mesh->model))
        return m->machine->host.alpha_s + near;
    const double far = tokens * row * others(m, ranks / sharing) / m->machine->network.bytes_per_s;
    return m->machine->network.alpha_s + fmax(near, far);
}

/* Activations are gathered before attention and MLPs that ranks of model split, and scattered after; backward likewise,
 * and gathered once more for the gradients of weights. */
static void add_model_axis(clv_figures *layer, const moe_cost *m)
{
    const double n = (double)m->mesh->model, bytes = (double)(m->rank.batch * m->rank.seq * m->c->hidden) *
                                                     (double)clv_dtype_size(m->o->dtype) * (n - 1) / n;
    const double dense = (double)m->c->dense_layers / (double)m->c->layers;
    const double splits = 1 + (m->c->shared_ffn ? 1 : dense),
                 seconds = 5 * splits * collect(m, bytes, m->mesh->model, 1);
    layer->at[CLV_FIGURE_SECONDS] += seconds;
    layer->at[CLV_FIGURE_COMMUNICATION] += seconds;
    layer->at[CLV_FIGURE_EXPOSED + CLV_PURPOSE_SEQUENCE_PARALLEL] += seconds;
    layer->at[CLV_FIGURE_BYTES + CLV_PURPOSE_SEQUENCE_PARALLEL] += 5 * splits * bytes;
    layer->at[CLV_FIGURE_COLLECTIVES + CLV_PURPOSE_SEQUENCE_PARALLEL] += n > 1 ? 5 * splits : 0;
}

/* Experts of the rank that has most of them. */
static int64_t most_experts(const clv_moe_config *c, const clv_mesh_parts *mesh)
{
    return (c->experts + mesh->expert - 1) / mesh->expert;
}

/* Products of experts start one after the other: up and down, each forward and twice backward. */
static void add_starts(clv_figures *layer, const moe_cost *m, double sparse)
{
    const double more = (double)(most_experts(m->c, m->mesh) - 1), seconds = sparse * more * m->machine->instruction_s;
    layer->at[CLV_FIGURE_SECONDS] += 6 * seconds;
    layer->at[CLV_FIGURE_FORWARD] += 2 * seconds;
    layer->at[CLV_FIGURE_OPS + CLV_PART_FEED_FORWARD] += 6 * seconds;
}

/* Of kernels that move rows of experts and do little else. */
static double row_bytes_per_s(const clv_machine *machine)
{
    return machine->expert_rows_bytes_per_s > 0 ? machine->expert_rows_bytes_per_s : machine->memory_bytes_per_s;
}

/* Copies arrive by rank, and are sorted by expert; results go back the other way; likewise backward. */
static void add_sorts(clv_figures *layer, const moe_cost *m, double sparse)
{
    enum { PASSES = 2 }; /* forward, each of which reads rows and writes them */
    const double rows = (double)(m->rank.batch * m->rank.seq * m->c->top_k) / (double)m->rank.model;
    const double bytes = 2 * rows * (double)(m->c->hidden * (int64_t)clv_dtype_size(m->o->dtype));
    const double seconds = sparse * PASSES * bytes / row_bytes_per_s(m->machine);
    if (!m->machine->dispatches_copies || m->mesh->expert == 1 || m->c->experts == m->mesh->expert)
        return;
    layer->at[CLV_FIGURE_SECONDS] += 2 * seconds;
    layer->at[CLV_FIGURE_FORWARD] += seconds;
    layer->at[CLV_FIGURE_OPS + CLV_PART_FEED_FORWARD] += 2 * seconds;
}

/* Biases and clamps that are kernels of their own. */
static void add_biases(clv_figures *layer, const moe_cost *m, double sparse)
{
    const clv_expert_bias *bytes = &m->machine->expert_bias;
    const double rows = (double)(m->rank.batch * m->rank.seq * m->c->top_k) / (double)m->rank.model;
    const double seconds = sparse * rows * (double)m->c->expert_ffn / row_bytes_per_s(m->machine);
    const bool again = m->o->compile.recompute != CLV_RECOMPUTE_NONE;
    const double all = (bytes->forward + bytes->backward + (again ? bytes->recomputed : 0)) * seconds;
    if (!m->c->expert_bias)
        return;
    layer->at[CLV_FIGURE_SECONDS] += all;
    layer->at[CLV_FIGURE_FORWARD] += bytes->forward * seconds;
    layer->at[CLV_FIGURE_OPS + CLV_PART_FEED_FORWARD] += all;
}

/* ---- state, and its collectives ---- */

typedef struct sharding {
    bool optimizer, weights; /* split over the copies */
} sharding;

static sharding sharding_of(const clv_axis_rules *rules)
{
    sharding s = {.optimizer = rules->n_optimizer > 0};
    for (int r = 0; r < rules->n; r++)
        s.weights |= clv_logical_axis_equal(rules->rule[r].name, CLV_EMBED_KERNEL) && rules->rule[r].n_axes > 0;
    s.optimizer |= s.weights;
    return s;
}

/* Adds `elements` parameters of a rank, which `copies` ranks have, each `apart` from the next one. */
static void add_state(clv_figures *step, clv_figures *micro, const moe_cost *m, double elements, int64_t copies,
                      int64_t apart)
{
    const sharding s = sharding_of(m->o->rules);
    const double n = (double)copies, bytes = elements * (double)clv_dtype_size(m->o->dtype);
    const double gradient_bytes = m->machine->gradient_bytes > 0 ? m->machine->gradient_bytes : F32_BYTES;
    const double own = m->o->dtype == CLV_F32 ? 2 * F32_BYTES : 3 * F32_BYTES; /* AdamW's moments, and a copy in f32 */
    const double optimizer =
        m->machine->state_bytes > 0 ? m->machine->state_bytes - (double)clv_dtype_size(m->o->dtype) : own;
    const double moved = bytes * (n - 1) / n, once = collect(m, moved, copies, apart);
    const int hidden =
        may_overlap(m, true, copies, apart) ? CLV_FIGURE_HIDDEN : CLV_FIGURE_EXPOSED; /* hide exposes what ops leave */
    step->at[CLV_FIGURE_PARAMETERS] += bytes / (s.weights ? n : 1);
    step->at[CLV_FIGURE_OPTIMIZER] += elements * optimizer / (s.optimizer ? n : 1);
    if (m->machine->state_bytes <= 0 || s.weights != s.optimizer) /* state_bytes has them, where they are split alike */
        step->at[CLV_FIGURE_GRADIENTS] += elements * gradient_bytes / (s.weights ? n : 1);
    step->at[hidden + CLV_PURPOSE_GRADIENT_REDUCTION] += s.optimizer ? once : 2 * once;
    step->at[CLV_FIGURE_BYTES + CLV_PURPOSE_GRADIENT_REDUCTION] += s.optimizer ? moved : 2 * moved;
    clv_figures *gathers = s.weights ? micro : step;
    gathers->at[hidden + CLV_PURPOSE_WEIGHT_GATHER] += s.weights ? 2 * once : s.optimizer ? once : 0;
    gathers->at[CLV_FIGURE_BYTES + CLV_PURPOSE_WEIGHT_GATHER] += s.weights ? 2 * moved : s.optimizer ? moved : 0;
}

/* Of what may overlap, what a layer's ops do not hide is exposed: FSDP's gathers overlap, and gradients are reduced
 * beside the last microbatch's backward pass. */
static void hide(clv_figures *f, const clv_figures *ops)
{
    double left = fmax(ops->at[CLV_FIGURE_SECONDS] - ops->at[CLV_FIGURE_COMMUNICATION], 0);
    for (int p = CLV_PURPOSE_WEIGHT_GATHER; p <= CLV_PURPOSE_GRADIENT_REDUCTION; p++) {
        double *exposed = &f->at[CLV_FIGURE_EXPOSED + p], *hidden = &f->at[CLV_FIGURE_HIDDEN + p];
        const double more = fmax(*hidden - left, 0);
        *exposed += more;
        *hidden -= more;
        left -= *hidden;
        f->at[CLV_FIGURE_OVERLAPPED] += *hidden;
        f->at[CLV_FIGURE_SECONDS] += *exposed;
        f->at[CLV_FIGURE_COMMUNICATION] += *exposed;
    }
}

static void add_layer_state(clv_stage_cost *out, const moe_cost *m)
{
    const clv_moe_config *c = m->c;
    const clv_mesh_parts *mesh = m->mesh;
    const double all = (double)c->layers, sparse = (double)(c->layers - c->dense_layers) / all;
    const double dense =
        (sparse * (double)clv_moe_common_parameters(c) + (1 - sparse) * (double)clv_moe_dense_parameters(c)) /
        (double)mesh->model;
    const double experts = sparse * (double)(clv_moe_expert_parameters(c) * most_experts(c, mesh));
    add_state(&out->layer_step, &out->layer_micro, m, dense, mesh->data * mesh->context * mesh->expert, mesh->model);
    add_state(&out->layer_step, &out->layer_micro, m, experts, mesh->data * mesh->context * mesh->model,
              mesh->expert * mesh->model);
}

static void add_head_state(clv_stage_cost *out, const moe_cost *m)
{
    const clv_mesh_parts *mesh = m->mesh;
    const double tables = (double)((m->c->tied ? 1 : 2) * m->c->vocab * m->c->hidden) / (double)mesh->model;
    add_state(&out->head_step, &out->head_micro, m, tables + (double)m->c->hidden,
              mesh->data * mesh->context * mesh->expert, mesh->model);
}

/* ---- the call ---- */

static clv_status check(const clv_moe_config *c, const clv_mesh_parts *mesh, const clv_plan_options *o, clv_error *err)
{
    if (mesh->expert > c->experts)
        return clv_fail(err, CLV_EINVAL, "expert %lld; valid: 1 to %lld, the experts", (long long)mesh->expert,
                        (long long)c->experts);
    if (mesh->model > c->heads || mesh->model > 64)
        return clv_fail(err, CLV_EINVAL, "model %lld; valid: 1 to %lld, the heads", (long long)mesh->model,
                        (long long)(c->heads < 64 ? c->heads : 64));
    if (o->lora)
        return clv_fail(err, CLV_EUNSUPPORTED, "lora of a mixture of experts is not planned");
    return CLV_OK;
}

clv_status clv_moe_cost_compute(clv_moe_cost *out, const clv_moe_config *c, const clv_mesh_parts *mesh,
                                const clv_plan_options *o, clv_error *err)
{
    const int64_t ranks = mesh->data * mesh->context * mesh->expert, rows = o->batch / o->accumulate;
    const moe_cost m = {.c = c,
                        .mesh = mesh,
                        .o = o,
                        .machine = clv_machine_or_default(o->compile.machine),
                        .rank = {.dtype = o->dtype,
                                 .batch = (rows + ranks - 1) / ranks,
                                 .seq = o->seq,
                                 .model = mesh->model,
                                 .expert = mesh->expert}};
    clv_stage_cost *stage = &out->stage;
    *out = (clv_moe_cost){0};
    CLV_TRY(check(c, mesh, o, err));
    CLV_TRY(measure_average(&stage->layer_micro, &m, err));
    CLV_TRY(measure(&stage->head_micro, &m, CLV_MOE_HEAD, 0, err));
    const double sparse = (double)(c->layers - c->dense_layers) / (double)c->layers;
    add_narrow_heads(&stage->layer_micro, c);
    add_starts(&stage->layer_micro, &m, sparse);
    add_sorts(&stage->layer_micro, &m, sparse);
    add_biases(&stage->layer_micro, &m, sparse);
    const clv_figures layer = stage->layer_micro, head = stage->head_micro;
    for (int i = CLV_FIGURE_PARAMETERS; i < CLV_FIGURE_COUNT; i++) { /* memory is the step's */
        const bool kept = i >= CLV_FIGURE_ACTIVATIONS;
        stage->layer_step.at[i] = kept ? layer.at[i] : 0;
        stage->head_step.at[i] = kept ? head.at[i] : 0;
        stage->layer_micro.at[i] = stage->head_micro.at[i] = 0;
    }
    add_model_axis(&stage->layer_micro, &m);
    add_layer_state(stage, &m);
    add_head_state(stage, &m);
    hide(&stage->layer_micro, &layer);
    hide(&stage->layer_step, &layer);
    hide(&stage->head_micro, &head);
    hide(&stage->head_step, &head);
    stage->layer_step.at[CLV_FIGURE_REGION] += stage->layer_step.at[CLV_FIGURE_GRADIENTS];
    stage->head_step.at[CLV_FIGURE_REGION] += stage->head_step.at[CLV_FIGURE_GRADIENTS];
    const bool overlaps = may_overlap(&m, false, mesh->expert, mesh->model) && o->accumulate > 1;
    const double moved = sparse * (o->compile.recompute == CLV_RECOMPUTE_FULL ? 5 : 4) * all_to_all(&m);
    out->hidden = overlaps ? fmin(moved, layer.at[CLV_FIGURE_SECONDS]) : 0;
    out->exposed = moved - out->hidden;
    return CLV_OK;
}
