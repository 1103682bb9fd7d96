/* planned_bounds.c - lower bounds of what layouts with stages, context and experts take, before a plan search prices
 * them.
 *
 * A microbatch of one sequence and of four, on the ranks that split a model and no others, says what layers take for
 * any number of tokens: their seconds are affine in it, their activations are proportional to it. So layouts that
 * differ in stages, data, context, microbatches and schedule share these costs. What a layout takes besides is counted:
 * the bubble, messages between stages, the exchange along the sequence, parameters and optimizer, and collectives over
 * the data ranks by the links' bandwidth, of those that may overlap what is longer than the ops.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/plan/axes/estimate.h"
#include "models/plan/axes/pipeline.h"
#include "models/plan/search/search.h"
#include "program/cost/cost_model.h"

enum { FEW = 4 }; /* sequences */

/* What is taken of the figures: packing, strategies and what overlaps differ a little from one size to another. */
static const double slack = 0.98, overlap_slack = 0.95, memory_slack = 0.9;

/* Microbatches of 1 and FEW sequences on ranks that split a model, with one variant. */
struct clv_planned_cost {
    int64_t model, expert;
    int variant;
    clv_estimate_micro one, few;
};

/* ---- options ---- */

static bool gathers_weights(const clv_plan_search_layout *at)
{
    return strncmp(at->rules.name, "fsdp", 4) == 0;
}

static bool is_searched(const clv_plan_search *s, clv_recompute recompute, clv_reshard_after_forward reshard)
{
    for (int v = 0; v < s->n_variants; v++)
        if (s->variants[v].recompute == recompute && s->variants[v].reshard == reshard)
            return true;
    return false;
}

/* Of variants that are alike the one with CLV_RESHARD_WEIGHTS counts: weights that are not split are not gathered, and
 * without SP nothing else is. */
bool clv_search_has_variant(const clv_plan_search *s, const clv_searched_layout *l, int v)
{
    const clv_search_variant *of = &s->variants[v];
    const bool alike = (of->reshard == CLV_RESHARD_NONE && !gathers_weights(&l->at)) ||
                       (of->reshard == CLV_RESHARD_ALL && !strstr(l->at.rules.name, "-sp"));
    return !alike || !is_searched(s, of->recompute, CLV_RESHARD_WEIGHTS);
}

bool clv_search_has_schedule(const clv_plan_search *s, clv_plan_schedule schedule, int64_t virtual_stages)
{
    return (!s->schedule || schedule == s->schedule || schedule == CLV_SCHEDULE_DEFAULT) &&
           (!s->virtual_stages || virtual_stages == s->virtual_stages || schedule == CLV_SCHEDULE_DEFAULT);
}

bool clv_search_schedule_at(clv_plan_schedule *schedule, int64_t *virtual_stages, const clv_plan_search *s,
                            const clv_searched_layout *l, int64_t i)
{
    const int64_t most = l->at.stages > 1 ? s->space.shape.layers / l->at.stages : 1;
    *virtual_stages = i > 1 ? i : 1;
    *schedule = l->at.stages == 1 ? CLV_SCHEDULE_DEFAULT
                : i == 0          ? CLV_SCHEDULE_ZERO_BUBBLE
                : i == 1          ? CLV_SCHEDULE_1F1B
                                  : CLV_SCHEDULE_INTERLEAVED;
    if (l->at.stages > 1 && i == 0 && s->schedule == CLV_SCHEDULE_GPIPE)
        *schedule = CLV_SCHEDULE_GPIPE;
    return l->at.stages == 1 ? i == 0 : i <= most;
}

/* ---- costs of a model's ranks ---- */

static void price_few(clv_estimate_micro *out, const clv_plan_search *s, const clv_planned_cost *of, int64_t sequences)
{
    enum { MICROBATCHES = 2 };
    clv_plan_options o = s->base;
    clv_estimate *from;
    clv_mesh mesh = {.n_axes = 2, .axis = {{.name = "expert"}, {.name = "model"}}};
    mesh.axis[0].size = of->expert;
    mesh.axis[1].size = of->model;
    o.mesh = &mesh;
    o.batch = MICROBATCHES * sequences * of->expert;
    o.accumulate = MICROBATCHES;
    o.no_sync = true;
    o.compile.recompute = s->variants[of->variant].recompute;
    o.compile.reshard_after_forward = s->variants[of->variant].reshard;
    *out = (clv_estimate_micro){0}; /* bounds nothing */
    const clv_plan_estimate_options how = {.plan = &o, .rules = of->model > 1 ? "megatron-sp" : NULL};
    if (clv_estimate_new(&from, &how, NULL) != CLV_OK)
        return;
    *out = clv_estimate_microbatch(from);
    clv_estimate_free(from);
}

static void price_cost(clv_plan_search *s, void *costs, int i)
{
    clv_planned_cost *of = (clv_planned_cost *)costs + i;
    price_few(&of->one, s, of, 1);
    price_few(&of->few, s, of, FEW);
}

/* The variant whose cost one has on ranks that split a model alone: there weights are never gathered. */
static int variant_of(const clv_plan_search *s, int v)
{
    while (v > 0 && s->variants[v].reshard == CLV_RESHARD_WEIGHTS &&
           s->variants[v - 1].recompute == s->variants[v].recompute)
        v--;
    return v;
}

static const clv_planned_cost *find_cost(const clv_plan_search *s, const clv_plan_search_layout *at, int variant)
{
    for (int i = 0; i < s->n_planned_costs; i++) {
        const clv_planned_cost *of = &s->planned_costs[i];
        if (of->model == at->model && of->expert == at->expert && of->variant == variant_of(s, variant))
            return of;
    }
    return NULL;
}

/* What x sequences take, by what 1 and FEW do. */
static double affine(double one, double few, double x)
{
    const double more = (few - one) / (FEW - 1);
    return fmax(one - more, 0) + more * x;
}

/* The same of all figures. */
static clv_estimate_micro microbatch_of(const clv_planned_cost *of, double x)
{
    const clv_estimate_micro *one = &of->one, *few = &of->few;
    clv_estimate_micro micro = {.layer = affine(one->layer, few->layer, x),
                                .head = affine(one->head, few->head, x),
                                .rest = fmax(affine(one->rest, few->rest, x), 0),
                                .layer_fixed = affine(one->layer_fixed, few->layer_fixed, x),
                                .head_fixed = affine(one->head_fixed, few->head_fixed, x),
                                .message = few->message / FEW * x,
                                .kept = memory_slack * (few->kept / FEW) * x,
                                .weights = one->weights,
                                .gradients = memory_slack * one->gradients,
                                .attention = one->attention};
    micro.attention.tokens *= x;
    micro.attention.forward = affine(one->attention.forward, few->attention.forward, x);
    micro.attention.backward = affine(one->attention.backward, few->attention.backward, x);
    return micro;
}

/* ---- bounds ---- */

/* Seconds in which a rank gathers its part of so many bytes of weights, or reduces their gradients, at least: hosts get
 * each byte once from others, and pass it on. */
static double collective(const clv_plan_search *s, const clv_plan_search_layout *at, double bytes)
{
    const clv_machine *machine = clv_machine_or_default(s->machine);
    const double n = (double)(at->rows * at->context);
    const double here = fmin(n, fmax(1, floor((double)machine->ranks_per_host / (double)at->model)));
    const double far = machine->hosts == 1 ? 0 : bytes / here * (1 - here / n) / machine->network.bytes_per_s;
    return s->base.compile.comm_dtype ? 0 : fmax(far, bytes / here * (here - 1) / machine->host.bytes_per_s);
}

typedef struct bounds {
    clv_estimate_micro micro;
    double send;  /* seconds of a microbatch's messages between stages that follow each other */
    double step;  /* seconds of a step besides */
    double state; /* bytes of a rank besides what microbatches keep */
} bounds;

/* Of a layer: the exchange along the sequence, and the gathers of FSDP, which layers may overlap. */
static double add_to_layer(const clv_plan_search *s, const clv_plan_search_layout *at, const clv_cost_model *links,
                           clv_estimate_micro *micro, clv_reshard_after_forward reshard)
{
    micro->attention.ranks = at->context;
    micro->attention.link = clv_estimate_link(links, "context");
    const clv_context_cost context = micro->layer > 0 ? clv_context_cheapest(&micro->attention) : (clv_context_cost){0};
    const double once = collective(s, at, micro->weights), passes = reshard != CLV_RESHARD_NONE ? 2 : 0;
    const double gathers = gathers_weights(at) ? once * (passes + (at->stages == 1 ? 1 : 0)) : 0; /* 1: gradients */
    const double alone = context.exposed + context.ops;
    return s->base.compile.overlap ? fmax(alone, gathers - micro->layer) : alone + gathers;
}

/* Of a step: gradients are reduced, in f32 if they are accumulated, and updated weights are gathered, or by FSDP those
 * that are kept. What ops may overlap does not count. */
static double step_of(const clv_plan_search *s, const clv_plan_search_layout *at, double weights, double m,
                      clv_reshard_after_forward reshard)
{
    enum { F32_BYTES = 4 };
    const bool splits = gathers_weights(at), once = !splits || at->stages > 1;
    const double wide = m > 1 && once ? F32_BYTES / (double)clv_dtype_size(s->base.dtype) : 1;
    const double each = collective(s, at, weights);
    if (s->base.compile.overlap)
        return splits ? 0 : each;
    return (once && !s->base.compile.grad_reduce_dtype ? each * fmax(wide, 1) : 0) +
           (!splits || reshard == CLV_RESHARD_NONE ? each : 0);
}

static double most_layers(const clv_plan_search *s, const clv_plan_search_layout *at)
{
    return ceil((double)s->space.shape.layers / (double)at->stages);
}

static bounds bounds_of(const clv_plan_search *s, const clv_searched_layout *l, int variant, int amount)
{
    const clv_plan_search_layout *at = &l->at;
    const clv_reshard_after_forward reshard = s->variants[variant].reshard;
    const double m = (double)l->sizes[amount], n = (double)(at->rows * at->context);
    const double layers = most_layers(s, at);
    bounds b = {.micro = microbatch_of(find_cost(s, at, variant), (double)s->space.batch / m / n), .state = at->state};
    clv_cost_model links;
    clv_cost_model_make(&links, &at->mesh, s->machine);
    const double more = add_to_layer(s, at, &links, &b.micro, reshard);
    b.micro.layer += more;
    b.micro.layer_fixed += more;
    const clv_machine_link next = clv_estimate_link(&links, "pipe");
    b.send = at->stages > 1 ? 2 * (next.alpha_s + b.micro.message / next.bytes_per_s) : 0;
    b.step = n > 1 ? step_of(s, at, layers * b.micro.weights, m, reshard) : 0;
    if (gathers_weights(at) && reshard == CLV_RESHARD_NONE)
        b.state += memory_slack * layers * b.micro.weights * (1 - 1 / n);
    if (m > 1 && (at->stages > 1 || !gathers_weights(at))) /* whole gradients are reduced once a step */
        b.state += layers * b.micro.gradients;
    return b;
}

/* Seconds by a schedule; infinity: it does not fit. As clv_pipeline_bubble, for stages of which one has most_layers. */
static double bound_schedule(const clv_plan_search *s, const clv_searched_layout *l, const bounds *b, double m,
                             clv_plan_schedule schedule, int64_t virtual_stages)
{
    const clv_pipeline p = {.schedule = schedule,
                            .stages = l->at.stages,
                            .virtual_stages = virtual_stages,
                            .microbatches = (int64_t)m,
                            .layers = s->space.shape.layers};
    const clv_estimate_micro *t = &b->micro;
    const double stages = (double)p.stages, rounds = (double)virtual_stages, layers = most_layers(s, &l->at);
    const double last = (double)clv_pipeline_layers(&p, p.stages - 1), first = (double)clv_pipeline_layers(&p, 0);
    const double each = t->rest + (virtual_stages > 1 ? 0 : b->send);
    const double slowest = fmax(layers * t->layer, last * t->layer + t->head) + each;
    const bool puts_off = schedule == CLV_SCHEDULE_ZERO_BUBBLE;
    const double layer = puts_off ? t->layer_fixed : t->layer, head = puts_off ? t->head_fixed : t->head;
    const double all = (double)p.layers * layer + head + stages * each;
    const double bubble = (all - fmax(layers * layer, last * layer + head) - each) / rounds;
    const double waits = m < stages ? (stages - m) * (rounds - 1) * slowest / rounds : 0;
    const double memory = b->state + first * t->kept * clv_pipeline_in_flight(&p, 0);
    const double seconds = slowest * m + fmax(bubble, 0) + waits + b->step;
    return memory > s->memory_limit ? (double)INFINITY : seconds * (s->base.compile.overlap ? overlap_slack : slack);
}

double clv_search_planned_bound(const clv_plan_search *s, const clv_searched_layout *l, int variant, int amount)
{
    const bounds b = bounds_of(s, l, variant, amount);
    double least = (double)INFINITY;
    clv_plan_schedule schedule;
    int64_t virtual_stages;
    if (b.state > s->memory_limit)
        return (double)INFINITY;
    for (int64_t i = 0; clv_search_schedule_at(&schedule, &virtual_stages, s, l, i); i++)
        if (clv_search_has_schedule(s, schedule, virtual_stages))
            least = fmin(least, bound_schedule(s, l, &b, (double)l->sizes[amount], schedule, virtual_stages));
    return least / (double)s->space.batch;
}

static void bound_layout(clv_plan_search *s, void *arg, int i)
{
    (void)arg;
    clv_searched_layout *l = &s->layouts[i];
    if (!l->at.planned)
        return;
    l->bound = (double)INFINITY;
    for (int v = 0; v < s->n_variants; v++)
        for (int a = 0; clv_search_has_variant(s, l, v) && a < l->n_sizes; a++)
            l->bound = fmin(l->bound, clv_search_planned_bound(s, l, v, a));
}

/* Lists what find_cost finds. */
static clv_status list_costs(clv_plan_search *s, clv_error *err)
{
    int n = 0, capacity = 0;
    for (int i = 0; i < s->n_layouts; i++)
        for (int v = 0; s->layouts[i].at.planned && v < s->n_variants; v++) {
            const clv_plan_search_layout *at = &s->layouts[i].at;
            s->n_planned_costs = n;
            if (find_cost(s, at, v))
                continue;
            if (n == capacity) {
                capacity = capacity ? 2 * capacity : 64;
                clv_planned_cost *more = realloc(s->planned_costs, (size_t)capacity * sizeof *more);
                if (!more)
                    return clv_fail_memory(err, "the bounds of a search", (size_t)capacity * sizeof *more);
                s->planned_costs = more;
            }
            s->planned_costs[n++] =
                (clv_planned_cost){.model = at->model, .expert = at->expert, .variant = variant_of(s, v)};
        }
    s->n_planned_costs = n;
    return CLV_OK;
}

clv_status clv_search_bound_planned(clv_plan_search *s, clv_error *err)
{
    CLV_TRY(list_costs(s, err));
    clv_search_run_all(s, price_cost, s->planned_costs, s->n_planned_costs);
    clv_search_run_all(s, bound_layout, NULL, s->n_layouts);
    return CLV_OK;
}
