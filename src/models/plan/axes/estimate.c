/* estimate.c - clv_plan_estimate_step: the price of a training step with pipeline stages, context or experts.
 *
 * 1. A layer and the head are priced by programs for the ranks of one stage (stage_cost.c). Ranks that share a sequence
 *    are taken as data ranks with a part of a sequence each, whose attention is corrected to the whole sequence.
 * 2. Each stage's time of a microbatch gives the bubble (pipeline.c), the slowest one the step.
 * 3. Memory is state and activations of a stage's layers, as many microbatches of them as are in flight.
 */
#include "cleave/plan_estimate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/config/model_config.h"
#include "models/plan/axes/context.h"
#include "models/plan/axes/estimate.h"
#include "models/plan/axes/mesh_parts.h"
#include "models/plan/axes/moe_cost.h"
#include "models/plan/axes/pipeline.h"
#include "models/plan/axes/stage_cost.h"
#include "models/plan/axes/stage_programs.h"
#include "nn/axis_rules.h"
#include "partition/partitioner.h"
#include "program/program.h"

struct clv_estimate {
    clv_plan_estimate_options how;
    clv_plan_options plan; /* of a stage: its mesh, its rules, its part of the sequence */
    clv_axis_rules rules;
    clv_mesh_parts mesh;
    clv_model_info model;
    clv_moe_config moe; /* family NULL: no experts */
    clv_pipeline pipeline;
    clv_cost_model links; /* of the whole mesh */
    clv_stage_cost cost;
    clv_context_cost context;     /* of a layer, in a microbatch */
    double attention;             /* seconds of attention that the programs lack, likewise */
    double send;                  /* seconds of a message to the next stage */
    double expert, expert_hidden; /* seconds of all-to-alls of a layer, in a microbatch */
    double offload;               /* seconds of copies of all layers, likewise */
    bool can_run;                 /* by programs of this library */
};

typedef struct clv_estimate estimate;

/* ---- what is asked for ---- */

static void set_experts(estimate *e)
{
    const clv_moe_config *c = &e->moe;
    e->model = (clv_model_info){.size = sizeof e->model,
                                .family = c->family,
                                .hidden = c->hidden,
                                .layers = c->layers,
                                .heads = c->heads,
                                .kv_heads = c->kv_heads,
                                .head_dim = (c->qk_dim + c->v_dim) / 2,
                                .ffn = c->expert_ffn,
                                .vocab = c->vocab,
                                .max_positions = c->max_positions,
                                .parameters = clv_moe_parameters(c),
                                .rotary = true,
                                .tied_embeddings = c->tied};
}

static clv_status read_model(estimate *e, clv_error *err)
{
    clv_model *model;
    const clv_model_options options = {.size = sizeof options, .config_only = true};
    e->model = (clv_model_info){.size = sizeof e->model};
    CLV_TRY(clv_moe_config_read(&e->moe, e->plan.model, err));
    if (e->moe.family) {
        set_experts(e);
        return CLV_OK;
    }
    CLV_TRY(clv_model_open(&model, e->plan.model, &options, err));
    clv_status status = clv_model_get_info(model, &e->model, err);
    clv_model_close(model);
    return status;
}

static clv_status check_plan(const clv_plan_options *plan, clv_error *err)
{
    if (!plan->model || (plan->mode != CLV_PLAN_MODE_DEFAULT && plan->mode != CLV_PLAN_MODE_TRAIN))
        return clv_fail(err, CLV_EINVAL,
                        "stages, context and experts are planned for a model's training step; valid: a "
                        "model, and train");
    if (plan->rules || plan->sp)
        return clv_fail(err, CLV_EINVAL, "stages, context and experts: valid are the rules of a preset, not %s",
                        plan->sp ? "sp" : "others");
    CLV_TRY(clv_mesh_check(plan->mesh, err));
    if (clv_mesh_rank_count(plan->mesh) > CLV_PLAN_MAX_RANKS)
        return clv_fail(err, CLV_ELIMIT, "%lld ranks; valid: at most %d", (long long)clv_mesh_rank_count(plan->mesh),
                        CLV_PLAN_MAX_RANKS);
    return CLV_OK;
}

/* Microbatches, and the part of the sequence of a rank. */
static clv_status set_batch(estimate *e, clv_error *err)
{
    clv_plan_options *o = &e->plan;
    const int64_t context = e->mesh.context, rows = e->mesh.data * e->mesh.expert;
    o->batch = o->batch ? o->batch : CLV_PLAN_BATCH;
    o->seq = o->seq ? o->seq : CLV_PLAN_SEQ;
    const bool others = e->mesh.pipe > 1 && !e->can_run; /* software that runs stages as its users do */
    if (o->accumulate == 0)
        o->accumulate = others && o->batch % rows == 0 ? o->batch / rows : 1;
    if (o->accumulate < 0 || o->batch % o->accumulate != 0)
        return clv_fail(err, CLV_EINVAL, "accumulate %lld does not divide the batch, %lld", (long long)o->accumulate,
                        (long long)o->batch);
    if (o->batch / o->accumulate < rows)
        return clv_fail(err, CLV_EINVAL,
                        "a microbatch of %lld sequences for %lld data ranks; valid: a batch of %lld or "
                        "more, or fewer microbatches",
                        (long long)(o->batch / o->accumulate), (long long)rows, (long long)(rows * o->accumulate));
    if (o->seq > e->model.max_positions)
        return clv_fail(err, CLV_EINVAL, "seq %lld; the model takes 1 to %lld positions", (long long)o->seq,
                        (long long)e->model.max_positions);
    if (o->seq % context != 0)
        return clv_fail(err, CLV_EINVAL, "context %lld does not divide the sequence, %lld tokens", (long long)context,
                        (long long)o->seq);
    o->seq /= context;
    o->batch *= context;
    o->no_sync = o->accumulate > 1 && (o->no_sync || others);
    return CLV_OK;
}

/* The embedding and the head may be virtual stages of their own, as Megatron-LM has them. */
enum { ENDS = 2 };

static clv_status set_pipeline(estimate *e, clv_error *err)
{
    const clv_plan_schedule asked = e->how.schedule;
    const int64_t v = e->how.virtual_stages ? e->how.virtual_stages : 1, stages = e->mesh.pipe;
    if ((unsigned)asked >= CLV_SCHEDULE_COUNT || v < 1 || v > e->model.layers + 2)
        return clv_fail(err, CLV_EINVAL,
                        "schedule %d, %lld virtual stages; valid: those of clv_plan_schedule, 1 to %lld", (int)asked,
                        (long long)v, (long long)e->model.layers + 2);
    if (v > 1 && stages == 1)
        return clv_fail(err, CLV_EINVAL, "%lld virtual stages; valid: with an axis pipe in the mesh", (long long)v);
    if (v == 1 && stages > 1 && asked == CLV_SCHEDULE_INTERLEAVED)
        return clv_fail_interleaved(err);
    if (stages == 1 && asked != CLV_SCHEDULE_DEFAULT)
        return clv_fail(err, CLV_EINVAL, "schedule %s; valid: with an axis pipe in the mesh",
                        clv_plan_schedule_name(asked));
    if (v > 1 && stages * v > e->model.layers + ENDS)
        return clv_nn_fail_stages("pipe", stages, v, e->model.layers, ENDS, err);
    e->pipeline = (clv_pipeline){.schedule = asked   ? asked
                                             : v > 1 ? CLV_SCHEDULE_INTERLEAVED
                                                     : CLV_SCHEDULE_1F1B,
                                 .stages = stages,
                                 .virtual_stages = v,
                                 .microbatches = e->plan.accumulate,
                                 .layers = e->model.layers + e->moe.mtp_layers};
    return CLV_OK;
}

/* ---- what goes between ranks ---- */

/* Whether groups over the axis, if the mesh has it, leave a host. */
static bool crosses(const clv_cost_model *model, const char *name)
{
    const int axis = clv_mesh_find_axis_or_negative(&model->mesh, name, (int)strlen(name));
    if (axis < 0)
        return false;
    const clv_subaxis whole = clv_mesh_whole_axis(&model->mesh, axis);
    return clv_cost_crosses_hosts(model, &whole, 1);
}

clv_machine_link clv_estimate_link(const clv_cost_model *model, const char *axis)
{
    return crosses(model, axis) ? model->machine->network : model->machine->host;
}

static bool splits_sequence(const clv_axis_rules *rules)
{
    bool splits = false;
    for (int r = 0; r < rules->n; r++)
        splits |= clv_logical_axis_equal(rules->rule[r].name, CLV_SEQ);
    return splits;
}

/* Tokens of a rank in a microbatch, before SP. */
static double tokens_of(const estimate *e)
{
    const double ranks = (double)(e->mesh.data * e->mesh.context * e->mesh.expert);
    return ceil((double)(e->plan.batch / e->plan.accumulate) / ranks) * (double)e->plan.seq;
}

/* The residual stream goes from rank to rank: with SP a rank has its part of it. */
static double message_bytes(const estimate *e)
{
    const double parts = splits_sequence(&e->rules) ? (double)e->mesh.model : 1;
    return tokens_of(e) * (double)e->model.hidden * (double)clv_dtype_size(e->plan.dtype) / parts;
}

static void set_send(estimate *e)
{
    if (e->mesh.pipe == 1)
        return;
    const clv_machine_link link = clv_estimate_link(&e->links, "pipe");
    e->send = link.alpha_s + message_bytes(e) / link.bytes_per_s;
}

static int64_t share(int64_t of, int64_t ranks)
{
    return of < ranks ? 1 : (of + ranks - 1) / ranks;
}

/* A layer's attention to the whole sequence, of which the programs know a rank's part. */
static clv_context_layer attention_of(const estimate *e)
{
    const clv_figures *layer = &e->cost.layer_micro;
    const double ranks = (double)e->mesh.context, attention = layer->at[CLV_FIGURE_ATTENTION];
    const double forward = layer->at[CLV_FIGURE_ATTENTION_FORWARD];
    return (clv_context_layer){.ranks = e->mesh.context,
                               .tokens = tokens_of(e),
                               .heads = share(e->model.heads, e->mesh.model),
                               .kv_heads = share(e->model.kv_heads, e->mesh.model),
                               .head_dim = e->model.head_dim,
                               .forward = forward * ranks,
                               .backward = (attention - forward) * ranks,
                               .recomputes = e->plan.compile.recompute == CLV_RECOMPUTE_FULL,
                               .link = clv_estimate_link(&e->links, "context"),
                               .memory_bytes_per_s = e->links.machine->memory_bytes_per_s,
                               .ring_efficiency = e->links.machine->ring_efficiency,
                               .element_bytes = (int64_t)clv_dtype_size(e->plan.dtype)};
}

static void set_context(estimate *e)
{
    const clv_context_layer of = attention_of(e);
    if (e->mesh.context == 1)
        return;
    e->context = clv_context_cheapest(&of);
    e->attention = e->cost.layer_micro.at[CLV_FIGURE_ATTENTION] * (double)(e->mesh.context - 1) + e->context.ops;
}

/* ---- activations in the host's memory ---- */

enum { BUFFERED_LAYERS = 2 }; /* of those in the host's memory: one that is used, one that is copied */

static int64_t offloaded_layers(const estimate *e)
{
    const int64_t asked = e->how.offload_layers;
    return asked < e->model.layers ? asked : e->model.layers;
}

/* Layers whose activations of a microbatch a stage of so many holds. */
static double held_layers(const estimate *e, double layers)
{
    const double away = (double)offloaded_layers(e);
    return layers - away + fmin(away, BUFFERED_LAYERS);
}

static clv_status set_offload(estimate *e, clv_error *err)
{
    const clv_machine *machine = clv_machine_or_default(e->plan.compile.machine);
    const double away = (double)offloaded_layers(e);
    if (away == 0)
        return CLV_OK;
    if (away < 0 || e->mesh.pipe > 1)
        return clv_fail(err, CLV_EINVAL, "%lld offloaded layers%s; valid: 0 or more, without stages",
                        (long long)e->how.offload_layers, e->mesh.pipe > 1 ? " of stages" : "");
    if (machine->offload_bytes_per_s <= 0)
        return clv_fail(err, CLV_EINVAL,
                        "offloaded layers: the profile %s has no rate for them; valid: one with "
                        "\"offload_bytes_per_s\"",
                        machine->name);
    const clv_figures *layer = &e->cost.layer_micro;
    const double bytes = fmax(e->cost.layer_step.at[CLV_FIGURE_ACTIVATIONS], 0);
    const double once = bytes / machine->offload_bytes_per_s;
    const double ops = layer->at[CLV_FIGURE_SECONDS] - layer->at[CLV_FIGURE_COMMUNICATION] + e->attention;
    const double forward = layer->at[CLV_FIGURE_FORWARD];
    e->offload = away * (fmax(0, once - forward) + fmax(0, once - (ops - forward)));
    return CLV_OK;
}

/* ---- time ---- */

static bool is_last(const estimate *e, int64_t stage)
{
    return stage == e->pipeline.stages - 1;
}

/* What the programs say of a stage's microbatch. */
static clv_figures micro_of(const estimate *e, int64_t stage)
{
    const double layers = (double)clv_pipeline_layers(&e->pipeline, stage);
    const clv_figures f = clv_figures_combine(&e->cost.layer_micro, layers, &e->cost.rest_micro, 1);
    return clv_figures_combine(&f, 1, &e->cost.head_micro, is_last(e, stage) ? 1 : 0);
}

static clv_figures step_of(const estimate *e, int64_t stage)
{
    const double layers = (double)clv_pipeline_layers(&e->pipeline, stage);
    const clv_figures f = clv_figures_combine(&e->cost.layer_step, layers, &e->cost.rest_step, 1);
    return clv_figures_combine(&f, 1, &e->cost.head_step, is_last(e, stage) ? 1 : 0);
}

/* Messages of a microbatch that no op hides: activations to the next stage while gradients come from it, and likewise
 * on the other side. Virtual stages send while another one computes. */
static double sends_of(const estimate *e)
{
    return e->pipeline.virtual_stages > 1 ? 0 : 2 * e->send;
}

static clv_stage_time time_of(const estimate *e, int64_t stage)
{
    const clv_figures f = micro_of(e, stage);
    const double layers = (double)clv_pipeline_layers(&e->pipeline, stage);
    const double ops = f.at[CLV_FIGURE_SECONDS] - f.at[CLV_FIGURE_COMMUNICATION];
    const double whole =
        f.at[CLV_FIGURE_SECONDS] + layers * (e->attention + e->context.exposed + e->expert) + sends_of(e) + e->offload;
    const double forward = ops > 0 ? whole * f.at[CLV_FIGURE_FORWARD] / ops : 0;
    const double backward = ops - f.at[CLV_FIGURE_FORWARD] - f.at[CLV_FIGURE_RECOMPUTED];
    return (clv_stage_time){forward, whole - forward, backward / 2};
}

static void add_step(clv_plan_estimate *out, const estimate *e, int64_t stage)
{
    const double m = (double)e->pipeline.microbatches, layers = (double)clv_pipeline_layers(&e->pipeline, stage);
    const clv_figures micro = micro_of(e, stage), step = step_of(e, stage);
    const clv_figures all = clv_figures_combine(&micro, m, &step, 1);
    clv_prediction_parts *parts = &out->parts;
    for (int i = 0; i < CLV_PART_COUNT; i++)
        parts->ops[i] = all.at[CLV_FIGURE_OPS + i];
    for (int i = 0; i < CLV_PURPOSE_COUNT; i++) {
        parts->communication[i] = all.at[CLV_FIGURE_EXPOSED + i];
        parts->overlapped[i] = all.at[CLV_FIGURE_HIDDEN + i];
        parts->bytes[i] = all.at[CLV_FIGURE_BYTES + i];
        parts->collectives[i] = llround(all.at[CLV_FIGURE_COLLECTIVES + i]);
    }
    parts->ops[CLV_PART_ATTENTION] += m * layers * e->attention;
    out->layers = (int64_t)layers;
    out->context = m * layers * e->context.exposed;
    out->expert = m * layers * e->expert;
    out->send = e->pipeline.stages > 1 ? m * sends_of(e) : 0;
    out->offload = m * e->offload;
    clv_prediction *p = &out->predicted;
    const double moved = out->context + out->expert + out->send + out->offload;
    p->seconds = all.at[CLV_FIGURE_SECONDS] + m * layers * e->attention + moved + out->bubble;
    p->communication = all.at[CLV_FIGURE_COMMUNICATION] + moved;
    p->overlapped = all.at[CLV_FIGURE_OVERLAPPED] + m * layers * (e->context.hidden + e->expert_hidden);
    p->flops = all.at[CLV_FIGURE_FLOPS] + m * layers * e->cost.layer_micro.at[CLV_FIGURE_ATTENTION_FLOPS] *
                                              (double)(e->mesh.context - 1) /
                                              (double)clv_mesh_rank_count(&e->mesh.stage);
}

static void add_utilisation(clv_plan_estimate *out, const estimate *e)
{
    const double m = (double)e->pipeline.microbatches, layers = (double)e->pipeline.layers;
    const clv_figures blocks = clv_figures_combine(&e->cost.layer_micro, layers, &e->cost.rest_micro, 1);
    const clv_figures all = clv_figures_combine(&blocks, 1, &e->cost.head_micro, 1);
    const clv_machine *machine = e->links.machine;
    const double ranks = (double)clv_mesh_rank_count(&e->links.mesh), peak = machine->flops_per_s[e->plan.dtype];
    clv_prediction *p = &out->predicted;
    p->model_flops = m * (all.at[CLV_FIGURE_MODEL_FLOPS] +
                          layers * e->cost.layer_micro.at[CLV_FIGURE_ATTENTION_FLOPS] * (double)(e->mesh.context - 1));
    p->model_utilisation = p->model_flops / (ranks * peak * p->seconds);
    p->utilisation = p->flops / (peak * p->seconds);
    p->memory_bytes = floor(machine->memory_bytes / e->links.oversubscription);
}

/* Ranks that share cores take turns: what a stage's programs do not know of the other stages. */
static void add_oversubscription(clv_plan_estimate *out, const estimate *e)
{
    clv_cost_model stage;
    clv_cost_model_make(&stage, &e->mesh.stage, e->links.machine);
    const double factor = e->links.oversubscription / stage.oversubscription;
    double *const seconds[] = {&out->parts.waits,
                               &out->predicted.seconds,
                               &out->predicted.communication,
                               &out->predicted.overlapped,
                               &out->bubble,
                               &out->send,
                               &out->context,
                               &out->expert,
                               &out->offload};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
        *seconds[i] *= factor;
    for (int i = 0; i < CLV_PART_COUNT; i++)
        out->parts.ops[i] *= factor;
    for (int i = 0; i < CLV_PURPOSE_COUNT; i++) {
        out->parts.communication[i] *= factor;
        out->parts.overlapped[i] *= factor;
    }
}

static clv_status add_time(clv_plan_estimate *out, const estimate *e, clv_error *err)
{
    const int64_t stages = e->pipeline.stages;
    int64_t slowest = 0;
    const size_t n = stages > 0 && stages < CLV_MAX_LAYERS ? (size_t)stages : CLV_MAX_LAYERS;
    clv_stage_time *time = calloc(n, sizeof *time);
    if (!time)
        return clv_fail_memory(err, "the stages of a plan", n * sizeof *time);
    for (int64_t s = 0; s < stages; s++) {
        time[s] = time_of(e, s);
        if (time[s].forward + time[s].backward > time[slowest].forward + time[slowest].backward)
            slowest = s;
    }
    out->bubble = clv_pipeline_bubble(&e->pipeline, time);
    out->parts.waits = out->bubble;
    out->time_stage = slowest;
    free(time);
    out->parts.stage = slowest;
    add_step(out, e, slowest);
    add_oversubscription(out, e);
    add_utilisation(out, e);
    return CLV_OK;
}

/* ---- memory ---- */

/* Weights that a layer keeps gathered for its backward passes: one copy, whatever is in flight. */
static double gathered_weights(const estimate *e)
{
    const bool kept = e->plan.compile.reshard_after_forward == CLV_RESHARD_NONE;
    double ranks = 1;
    for (int r = 0; r < e->rules.n; r++)
        for (int k = 0; clv_logical_axis_equal(e->rules.rule[r].name, CLV_EMBED_KERNEL) && k < e->rules.rule[r].n_axes;
             k++)
            ranks *= (double)e->plan.mesh->axis[e->rules.rule[r].axis[k]].size;
    return kept && ranks > 1 ? e->cost.layer_step.at[CLV_FIGURE_PARAMETERS] * ranks : 0;
}

/* What torch.distributed.pipelining keeps to the end of a step: of each microbatch a buffer for the activations that
 * come in, one for the gradients, and what goes out; the last stage its logits, which it joins in the end. */
static double kept_messages(const estimate *e, int64_t stage, double in_flight)
{
    const double m = (double)e->pipeline.microbatches, message = message_bytes(e);
    const double parts = splits_sequence(&e->rules) ? 1 : (double)e->mesh.model; /* of the vocabulary, of a message */
    if (!e->links.machine->keeps_messages || e->pipeline.stages == 1)
        return 0;
    if (is_last(e, stage))
        return (m - in_flight + 2 * (double)e->model.vocab / (double)e->model.hidden / parts * m) * message;
    return (stage == 0 ? 2 * m : 3 * m - in_flight) * message;
}

/* Bytes that a stage holds of a layer, of which a microbatch keeps so many, beside those of microbatches in flight: our
 * zero-bubble begins as many as there are stages, while gradients of weights of others wait for their operands. */
static double waiting_of_layer(const estimate *e, int64_t stage, double kept)
{
    const double each = fmax(e->cost.layer_step.at[CLV_FIGURE_PUT_OFF], 0);
    if (e->pipeline.schedule != CLV_SCHEDULE_ZERO_BUBBLE || e->links.machine->software[0])
        return 0;
    return fmax(each - kept, 0) +
           each * (clv_pipeline_begun(&e->pipeline, stage) - clv_pipeline_in_flight(&e->pipeline, stage));
}

static clv_memory memory_of(const estimate *e, int64_t stage)
{
    const clv_figures *layer = &e->cost.layer_step, *rest = &e->cost.rest_step, *head = &e->cost.head_step;
    const double layers = (double)clv_pipeline_layers(&e->pipeline, stage);
    const double in_flight = clv_pipeline_in_flight(&e->pipeline, stage);
    const bool first = stage == 0, last = is_last(e, stage);
    /* the embedding and the head are equally large; tied ones are one, of which the first and the last stage have a
     * copy each */
    const double tables = e->model.tied_embeddings ? (first || last) : (first + last) / 2.0;
    const double gradients = fmax(layer->at[CLV_FIGURE_GRADIENTS], 0), weights = gathered_weights(e);
    const double gathered = fmax(layer->at[CLV_FIGURE_GATHERED] - weights, 0);
    const double kept = fmax(layer->at[CLV_FIGURE_REGION] - gradients - weights, 0); /* of a microbatch */
    const double held = e->how.offload_layers ? held_layers(e, layers) : layers * in_flight;
    const double waiting = layers * waiting_of_layer(e, stage, kept);
    const double bytes = e->links.machine->gathered_weight_bytes, own = (double)clv_dtype_size(e->plan.dtype);
    const double kept_weights = bytes > 0 ? weights * bytes / own : weights;
    const double of_tables = fmax(head->at[CLV_FIGURE_GRADIENTS], 0);
    const double at_head = last ? fmax(head->at[CLV_FIGURE_REGION] - of_tables, 0) : 0; /* when few gradients wait */
    const double region = layers * (gradients + kept_weights) + kept * held + rest->at[CLV_FIGURE_REGION] +
                          tables * of_tables + fmax(at_head, waiting);
    clv_memory m = {
        .size = sizeof m,
        .stage = (int)stage,
        .parameters = llround(layers * layer->at[CLV_FIGURE_PARAMETERS] + tables * head->at[CLV_FIGURE_PARAMETERS]),
        .optimizer = llround(layers * layer->at[CLV_FIGURE_OPTIMIZER] + tables * head->at[CLV_FIGURE_OPTIMIZER]),
        .gradients = llround(layers * gradients + tables * of_tables),
        .gathered = llround(layers * kept_weights + fmin(gathered, kept) * held),
        .activations = llround(fmax(kept - gathered, 0) * held + waiting),
        .region = llround(region)};
    m.temporaries = m.region - m.gradients - m.gathered - m.activations;
    if (m.temporaries < 0) { /* the peak of the program of few layers was another one */
        m.region -= m.temporaries;
        m.temporaries = 0;
    }
    m.software = llround(e->links.machine->fragmentation * (double)m.region + kept_messages(e, stage, in_flight) +
                         (last ? rest->at[CLV_FIGURE_LOGITS] + head->at[CLV_FIGURE_LOGITS] : 0));
    m.total = m.parameters + m.optimizer + m.region + m.software;
    m.checkpoint_copy = m.parameters + m.optimizer;
    return m;
}

static void add_memory(clv_plan_estimate *out, const estimate *e)
{
    for (int64_t s = 0; s < e->pipeline.stages; s++) {
        const clv_memory m = memory_of(e, s);
        if (m.total <= out->memory.total)
            continue;
        out->memory = m;
        out->memory_stage = s;
        out->in_flight = clv_pipeline_in_flight(&e->pipeline, s);
    }
}

/* ---- the call ---- */

/* Whether programs have the model's layers; those of experts only as this library runs them. */
static bool has_programs(const clv_moe_config *moe, const clv_machine *machine)
{
    return !moe->family || (moe->runs && !clv_machine_or_default(machine)->software[0]);
}

/* A stage's mesh with the axis expert apart from data, as programs have it. */
static clv_mesh with_expert_axis(const clv_mesh_parts *parts)
{
    clv_mesh mesh = {0};
    for (int a = 0; a < parts->stage.n_axes; a++) {
        clv_axis axis = parts->stage.axis[a];
        const bool data = strcmp(axis.name, "data") == 0;
        axis.size /= data ? parts->expert : 1;
        if (axis.size > 1)
            mesh.axis[mesh.n_axes++] = axis;
        if (data && parts->expert > 1)
            mesh.axis[mesh.n_axes++] = (clv_axis){.name = "expert", .size = parts->expert};
    }
    return mesh;
}

static clv_status read_cost(estimate *e, clv_error *err)
{
    clv_moe_cost cost;
    if (has_programs(&e->moe, e->plan.compile.machine))
        return clv_stage_cost_compute(&e->cost, &e->plan, err);
    CLV_TRY(clv_moe_cost_compute(&cost, &e->moe, &e->mesh, &e->plan, err));
    e->cost = cost.stage;
    e->expert = cost.exposed;
    e->expert_hidden = cost.hidden;
    /* layers that predict further tokens are one more of the others, with a head each */
    const double further = (double)e->moe.mtp_layers;
    e->cost.head_micro = clv_figures_combine(&e->cost.head_micro, 1 + further, &e->cost.head_micro, 0);
    return CLV_OK;
}

static clv_status read_stages(estimate *e, clv_error *err)
{
    CLV_TRY(read_model(e, err));
    CLV_TRY(clv_mesh_parts_split(&e->mesh, e->plan.mesh, e->model.layers, err));
    if (e->mesh.expert > 1 && !e->moe.family)
        return clv_fail(err, CLV_EINVAL, "an axis expert, and %s has no experts; valid: pipe, data, context, model",
                        e->model.family);
    CLV_TRY(set_batch(e, err));
    CLV_TRY(set_pipeline(e, err));
    if (e->moe.family && has_programs(&e->moe, e->plan.compile.machine))
        e->mesh.stage = with_expert_axis(&e->mesh);
    CLV_TRY(clv_axis_rules_preset(&e->rules, e->how.rules, &e->mesh.stage, err));
    clv_cost_model_make(&e->links, e->plan.mesh, e->plan.compile.machine);
    e->plan.mesh = &e->mesh.stage;
    e->plan.rules = &e->rules;
    CLV_TRY(read_cost(e, err));
    set_send(e);
    set_context(e);
    return set_offload(e, err);
}

static clv_status price_stages(clv_plan_estimate *out, const estimate *e, clv_error *err)
{
    *out = (clv_plan_estimate){.model = e->model,
                               .active_parameters =
                                   e->moe.family ? clv_moe_active_parameters(&e->moe) : e->model.parameters,
                               .experts = e->moe.experts,
                               .stages = e->pipeline.stages,
                               .virtual_stages = e->pipeline.virtual_stages,
                               .microbatches = e->pipeline.microbatches,
                               .schedule = e->pipeline.stages > 1 ? e->pipeline.schedule : CLV_SCHEDULE_DEFAULT,
                               .exchange = e->context.exchange,
                               .predicted.size = sizeof out->predicted,
                               .parts.size = sizeof out->parts};
    add_memory(out, e);
    return add_time(out, e, err);
}

static bool has_experts(clv_moe_config *out, const char *model)
{
    return model && clv_moe_config_read(out, model, NULL) == CLV_OK && out->family;
}

bool clv_plan_needs_estimate(const clv_mesh *mesh, const char *model, bool other_software)
{
    clv_moe_config config = {0};
    return clv_mesh_is_split_over(mesh, "pipe") || (other_software && clv_mesh_is_split_over(mesh, "context")) ||
           (has_experts(&config, model) && (other_software || !config.runs));
}

/* ---- what runs ---- */

static int64_t axis_size(const clv_mesh *mesh, const char *name)
{
    const int axis = clv_mesh_find_axis_or_negative(mesh, name, (int)strlen(name));
    return axis < 0 ? 1 : mesh->axis[axis].size;
}

bool clv_mesh_of_model_runs(const clv_mesh *mesh, const clv_moe_config *moe, int64_t layers, const clv_machine *machine)
{
    const int64_t stages = axis_size(mesh, "pipe");
    const bool estimated = stages > 1 || clv_mesh_is_split_over(mesh, "context");
    return stages <= CLV_MAX_STAGES && stages <= layers && has_programs(moe, machine) &&
           !(estimated && clv_machine_or_default(machine)->software[0]);
}

/* Whether clv_plan_compile makes the program that is asked for; fills *info, and e->moe, then. */
static bool runs(estimate *e, clv_model_info *info)
{
    clv_model *model;
    const clv_model_options options = {.size = sizeof options, .config_only = true};
    const int64_t stages = axis_size(e->plan.mesh, "pipe"), v = e->how.virtual_stages > 1 ? e->how.virtual_stages : 1;
    const bool of_stages = stages > 1 || (e->how.schedule == CLV_SCHEDULE_DEFAULT && v == 1);
    *info = (clv_model_info){.size = sizeof *info};
    if (!of_stages || e->how.offload_layers || clv_model_open(&model, e->plan.model, &options, NULL) != CLV_OK)
        return false;
    const bool known = clv_model_get_info(model, info, NULL) == CLV_OK;
    clv_model_close(model);
    (void)has_experts(&e->moe, e->plan.model);
    return known && stages * v <= info->layers &&
           clv_mesh_of_model_runs(e->plan.mesh, &e->moe, info->layers, e->plan.compile.machine);
}

/* By the program that would run. */
static clv_status price_program(clv_plan_estimate *out, estimate *e, const clv_model_info *info, clv_error *err)
{
    clv_program_price price;
    const clv_mesh mesh = clv_mesh_without_axes_of_one_rank(e->plan.mesh);
    const int64_t stages = axis_size(&mesh, "pipe");
    const int64_t v = e->how.virtual_stages > 1 ? e->how.virtual_stages : 1;
    CLV_TRY(clv_axis_rules_preset(&e->rules, e->how.rules, &mesh, err));
    if (v > 1)
        CLV_TRY(clv_axis_rules_set_stages(&e->rules, &mesh, (int)v, NULL, 0, err));
    e->plan.mesh = &mesh;
    e->plan.rules = &e->rules;
    e->plan.compile.schedule = e->how.schedule;
    CLV_TRY(clv_program_price_compute(&price, &e->plan, stages, info->layers, err));
    *out =
        (clv_plan_estimate){.can_run = true,
                            .compiled = true,
                            .model = *info,
                            .active_parameters = e->moe.family ? clv_moe_active_parameters(&e->moe) : info->parameters,
                            .experts = info->experts,
                            .stages = stages,
                            .virtual_stages = v,
                            .microbatches = e->plan.accumulate > 1 ? e->plan.accumulate : 1,
                            .schedule = price.schedule,
                            .time_stage = price.parts.stage,
                            .in_flight = price.in_flight,
                            .memory_stage = price.memory.stage,
                            .bubble = price.parts.waits,
                            .predicted = price.predicted,
                            .parts = price.parts,
                            .memory = price.memory,
                            .runs = price.runs,
                            .extrapolated = !price.whole};
    memcpy(out->run_layers, price.layers, sizeof out->run_layers);
    return CLV_OK;
}

/* The options as given, checked. */
static clv_status read_options(estimate *e, const clv_plan_estimate_options *options, const char *call, clv_error *err)
{
    static const clv_mesh alone = {0};
    CLV_TRY(clv_options_copy_in(&e->how, sizeof e->how, sizeof e->how, options, call, err));
    CLV_TRY(clv_require(e->how.plan != NULL, call, "a plan", err));
    CLV_TRY(clv_plan_parse_options(&e->plan, e->how.plan, call, err));
    e->plan.mesh = e->plan.mesh ? e->plan.mesh : &alone;
    CLV_TRY(check_plan(&e->plan, err));
    e->plan.compile.explain = NULL;
    e->plan.compile.keep_decisions = false;
    e->how.schedule = e->how.schedule ? e->how.schedule : e->plan.compile.schedule;
    e->plan.compile.schedule = CLV_SCHEDULE_DEFAULT;
    return CLV_OK;
}

/* By one schedule. info: of what can run. */
static clv_status price_step(clv_plan_estimate *out, const estimate *asked, const clv_model_info *info,
                             clv_plan_schedule schedule, clv_error *err)
{
    estimate e = *asked;
    e.how.schedule = schedule;
    if (e.can_run && clv_virtual_stages_are_compiled(e.how.virtual_stages, axis_size(e.plan.mesh, "pipe"),
                                                     e.plan.accumulate, info->layers))
        return price_program(out, &e, info, err);
    CLV_TRY(read_stages(&e, err));
    CLV_TRY(price_stages(out, &e, err));
    out->can_run = e.can_run;
    return CLV_OK;
}

/* CLV_SCHEDULE_AUTO. */
static clv_status price_step_by_best_schedule(clv_plan_estimate *out, const estimate *asked, const clv_model_info *info,
                                              clv_error *err)
{
    for (int i = 0; i < CLV_SCHEDULES_OF_AUTO; i++) {
        clv_plan_estimate other = *out;
        CLV_TRY(price_step(&other, asked, info, clv_schedules_of_auto[i], err));
        if (i == 0 || clv_step_is_better(other.predicted.seconds, (double)other.memory.total, out->predicted.seconds,
                                         (double)out->memory.total,
                                         clv_compile_memory_limit(&asked->plan.compile, asked->plan.mesh)))
            *out = other;
    }
    return CLV_OK;
}

clv_status clv_plan_estimate_step(clv_plan_estimate *out, const clv_plan_estimate_options *options, clv_error *err)
{
    static const char call[] = "clv_plan_estimate_step";
    estimate e = {0};
    clv_plan_estimate result = {.predicted.size = sizeof result.predicted};
    clv_model_info info;
    CLV_TRY(clv_require(out && options, call, "out and options", err));
    CLV_TRY(read_options(&e, options, call, err));
    e.can_run = runs(&e, &info);
    if (e.how.schedule == CLV_SCHEDULE_AUTO && axis_size(e.plan.mesh, "pipe") > 1)
        CLV_TRY(price_step_by_best_schedule(&result, &e, &info, err));
    else
        CLV_TRY(price_step(&result, &e, &info, e.how.schedule, err));
    return clv_struct_copy_out(out, sizeof result, sizeof result, &result, call, err);
}

/* ---- in two parts ---- */

clv_status clv_estimate_new(clv_estimate **out, const clv_plan_estimate_options *options, clv_error *err)
{
    clv_estimate *e = calloc(1, sizeof *e);
    if (!e)
        return clv_fail_memory(err, "an estimate", sizeof *e);
    clv_status status = read_options(e, options, "clv_plan_estimate_step", err);
    if (status == CLV_OK) {
        e->how.schedule = CLV_SCHEDULE_DEFAULT;
        e->how.virtual_stages = 0;
        status = read_stages(e, err);
    }
    if (status == CLV_OK)
        *out = e;
    else
        clv_estimate_free(e);
    return status;
}

void clv_estimate_free(clv_estimate *e)
{
    free(e);
}

clv_status clv_estimate_price(clv_plan_estimate *out, const clv_estimate *read, clv_plan_schedule schedule,
                              int64_t virtual_stages, clv_error *err)
{
    clv_estimate e = *read;
    e.how.schedule = schedule;
    e.how.virtual_stages = virtual_stages;
    CLV_TRY(set_pipeline(&e, err));
    return price_stages(out, &e, err);
}

void clv_estimate_parts(clv_price *out, const clv_estimate *e, const clv_plan_estimate *priced)
{
    const clv_figures micro = micro_of(e, priced->time_stage), step = step_of(e, priced->time_stage);
    const clv_figures all = clv_figures_combine(&micro, (double)e->pipeline.microbatches, &step, 1);
    const double programs = all.at[CLV_FIGURE_SECONDS] - all.at[CLV_FIGURE_COMMUNICATION];
    const clv_prediction *p = &priced->predicted;
    const double ops = p->seconds - p->communication - priced->bubble;
    const int data = crosses(&e->links, "data") || crosses(&e->links, "context") || crosses(&e->links, "expert");
    const int model = crosses(&e->links, "model");
    double *part = out->part;
    *out = (clv_price){.memory = (double)priced->memory.total,
                       .seconds = p->seconds,
                       .communication = p->communication,
                       .model_seconds = p->model_utilisation * p->seconds};
    part[CLV_TIME_RECOMPUTED] = programs > 0 ? ops * all.at[CLV_FIGURE_RECOMPUTED] / programs : 0;
    part[CLV_TIME_OTHER_OPS] = programs > 0 ? ops * all.at[CLV_FIGURE_ELEMENTWISE] / programs : 0;
    part[CLV_TIME_PRODUCTS] = ops - part[CLV_TIME_RECOMPUTED] - part[CLV_TIME_OTHER_OPS];
    for (int i = 0; i < CLV_PURPOSE_COUNT; i++) {
        const bool gradients = i == CLV_PURPOSE_GRADIENT_REDUCTION || i == CLV_PURPOSE_SCALAR;
        const int to = i == CLV_PURPOSE_WEIGHT_GATHER ? CLV_TIME_WEIGHTS + data
                       : gradients                    ? CLV_TIME_GRADIENTS + data
                                                      : CLV_TIME_ACTIVATIONS + model;
        part[to] += priced->parts.communication[i];
    }
    part[CLV_TIME_BUBBLE] = priced->bubble;
    part[CLV_TIME_SENDS] = priced->send;
    part[CLV_TIME_CONTEXT] = priced->context;
    part[CLV_TIME_EXPERTS] = priced->expert;
}

/* What ZB-H1's bubble has of a part of a microbatch. */
static double fixed(const clv_figures *f)
{
    return f->at[CLV_FIGURE_COMMUNICATION] + f->at[CLV_FIGURE_FORWARD] + f->at[CLV_FIGURE_RECOMPUTED];
}

clv_estimate_micro clv_estimate_microbatch(const clv_estimate *e)
{
    const clv_figures *layer = &e->cost.layer_micro, *head = &e->cost.head_micro, *step = &e->cost.layer_step;
    const double gradients = fmax(step->at[CLV_FIGURE_GRADIENTS], 0);
    const double more = e->attention + e->context.exposed + e->expert;
    return (clv_estimate_micro){.layer = layer->at[CLV_FIGURE_SECONDS] + more,
                                .head = head->at[CLV_FIGURE_SECONDS],
                                .rest = e->cost.rest_micro.at[CLV_FIGURE_SECONDS],
                                .layer_fixed = fixed(layer) + more,
                                .head_fixed = fixed(head),
                                .message = message_bytes(e),
                                .kept = fmax(step->at[CLV_FIGURE_REGION] - gradients - gathered_weights(e), 0),
                                .weights = step->at[CLV_FIGURE_PARAMETERS],
                                .gradients = gradients,
                                .attention = attention_of(e)};
}
