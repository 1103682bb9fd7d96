/* request.c - what a plan search is asked for: its limits, devices, options and sizes of layouts. */
#include <limits.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/hardware/resource_limits.h"
#include "models/plan/axes/estimate.h"
#include "models/plan/axes/moe_config.h"
#include "models/plan/search/search.h"
#include "program/cost/cost_model.h"

enum {
    MOST_THREADS = 64,
    LATENCY_BATCH = 4096 /* the largest batch by default */
};

/* reshard_after_forward, fastest first. */
static const clv_reshard_after_forward reshards[] = {CLV_RESHARD_NONE, CLV_RESHARD_WEIGHTS, CLV_RESHARD_ALL};
enum { RESHARDS = sizeof reshards / sizeof *reshards };

static clv_status check_devices(clv_plan_search *s, const clv_plan_search_options *o, clv_error *err)
{
    const int64_t of_hosts = o->hosts * o->ranks_per_host,
                  of_mesh = s->base.mesh ? clv_mesh_rank_count(s->base.mesh) : 0;
    s->space.devices = o->devices ? o->devices : of_mesh ? of_mesh : of_hosts;
    if (s->space.devices < 1 || s->space.devices > CLV_PLAN_MAX_RANKS)
        return clv_fail(err, CLV_EINVAL, "%lld devices; valid: 1 to %d", (long long)s->space.devices,
                        CLV_PLAN_MAX_RANKS);
    if (of_mesh && of_mesh != s->space.devices)
        return clv_fail(err, CLV_EINVAL, "%lld devices, and a mesh of %lld; give either", (long long)s->space.devices,
                        (long long)of_mesh);
    return CLV_OK;
}

/* The machine with the hosts that are asked for. */
static clv_status set_machine(clv_plan_search *s, const clv_plan_search_options *o, clv_error *err)
{
    CLV_TRY(clv_machine_with_hosts(&s->machine, s->base.compile.machine, o->hosts, o->ranks_per_host, s->space.devices,
                                   err));
    s->space.both_axis_orders = s->space.devices > s->machine->ranks_per_host && !o->every_layout;
    s->base.compile.machine = s->machine;
    s->memory_limit = o->memory_limit > 0 ? o->memory_limit : s->machine->memory_bytes;
    return CLV_OK;
}

static void set_variants(clv_plan_search *s, const clv_plan_search_options *o)
{
    const clv_compile_options *c = &s->base.compile;
    const bool searched = s->space.trains || s->base.mode == CLV_PLAN_MODE_GRAD;
    const bool keep_recompute = c->recompute || o->keep_recompute;
    const bool keep_reshard = c->reshard_after_forward || o->keep_reshard_after_forward;
    if (!searched) {
        s->variants[s->n_variants++] = (clv_search_variant){c->recompute, c->reshard_after_forward};
        return;
    }
    for (clv_recompute r = CLV_RECOMPUTE_NONE; r <= CLV_RECOMPUTE_FULL; r++)
        for (int k = 0; k < RESHARDS; k++)
            if ((!keep_recompute || c->recompute == r) && (!keep_reshard || c->reshard_after_forward == reshards[k]))
                s->variants[s->n_variants++] = (clv_search_variant){r, reshards[k]};
}

/* The sizes of the model, and whether programs of this library or estimates price it. */
static clv_status set_model(clv_plan_search *s, const clv_plan_search_options *o, clv_error *err)
{
    const clv_plan_options *b = &s->base;
    clv_plan_search_space *space = &s->space;
    clv_machine_info machine = {.size = sizeof machine};
    clv_moe_config *moe = &space->moe;
    CLV_TRY(clv_machine_get_info(b->compile.machine, &machine, err));
    const bool needed = clv_plan_needs_estimate(b->mesh, b->model, machine.software[0]);
    if (b->model)
        CLV_TRY(clv_moe_config_read(moe, b->model, err));
    space->programs = !needed;
    space->planned = space->trains && b->model && !o->every_layout && (needed || !b->mesh);
    space->runnable = o->runnable;
    if (!moe->family || moe->runs)
        CLV_TRY(clv_price_shape_compute(&space->shape, b, err));
    else
        space->shape = (clv_price_shape){.layers = moe->layers + moe->mtp_layers, .heads = moe->heads};
    const bool runs = !b->mesh || clv_mesh_of_model_runs(b->mesh, moe, space->shape.layers, b->compile.machine);
    if (needed && (!space->planned || (o->runnable && (!runs || (moe->family && !moe->runs)))))
        return clv_fail(err, CLV_EINVAL,
                        "a search of stages, or of what is estimated; valid: a training step of a model, without"
                        " `every_layout`, and without `runnable` where nothing runs");
    space->parameters = moe->family ? (double)clv_moe_parameters(moe) : (double)space->shape.parameters;
    return CLV_OK;
}

static clv_status set_base(clv_plan_search *s, const clv_plan_search_options *o, clv_error *err)
{
    static const char call[] = "clv_plan_search_run";
    CLV_TRY(clv_plan_parse_options(&s->base, o->base, call, err));
    clv_plan_options *b = &s->base;
    if (b->rules || b->sp)
        return clv_fail(err, CLV_EINVAL, "%s: the base has %s, which is searched; valid: a preset in `rules`", call,
                        b->sp ? "sp" : "rules");
    b->compile.explain = NULL;
    b->compile.keep_decisions = false;
    if (b->mode == CLV_PLAN_MODE_DEFAULT)
        b->mode = b->model ? CLV_PLAN_MODE_TRAIN : CLV_PLAN_MODE_FORWARD;
    s->space.trains = b->mode == CLV_PLAN_MODE_TRAIN;
    s->space.generates = b->mode == CLV_PLAN_MODE_PREFILL || b->mode == CLV_PLAN_MODE_DECODE;
    s->latency_limit = o->latency_limit;
    if (o->latency_limit < 0 || (o->latency_limit > 0 && !s->space.generates))
        return clv_fail(err, CLV_EINVAL, "latency_limit is for prefill and decode; valid there: seconds above 0");
    s->space.batch = b->batch ? b->batch : s->latency_limit > 0 ? LATENCY_BATCH : CLV_PLAN_BATCH;
    b->seq = b->seq ? b->seq : CLV_PLAN_SEQ;
    s->space.base = b;
    s->space.rules = o->rules;
    return set_model(s, o, err);
}

clv_status clv_search_set_up(clv_plan_search *s, const clv_plan_search_options *o, clv_error *err)
{
    CLV_TRY(set_base(s, o, err));
    CLV_TRY(check_devices(s, o, err));
    CLV_TRY(set_machine(s, o, err));
    set_variants(s, o);
    s->most = o->most > 0 ? o->most : CLV_PLAN_SEARCH_MOST;
    s->threads = o->threads > 0 ? o->threads : clv_usable_cores();
    s->threads = s->threads < MOST_THREADS ? s->threads : MOST_THREADS;
    s->exhaustive = o->exhaustive;
    s->schedule = o->schedule == CLV_SCHEDULE_AUTO ? CLV_SCHEDULE_DEFAULT : o->schedule; /* all are tried */
    s->virtual_stages = o->virtual_stages;
    if (!s->space.planned && (o->schedule || o->virtual_stages))
        return clv_fail(err, CLV_EINVAL, "schedule and virtual_stages are of stages; valid: where these are searched");
    s->every_layout = o->every_layout;
    s->most = o->every_layout ? INT_MAX : s->most;
    return CLV_OK;
}

/* Numbers of microbatches of equally many rows for each rank, or batches within a latency limit. */
static void set_sizes(const clv_plan_search *s, clv_searched_layout *l)
{
    const int64_t rows = l->at.rows, batch = s->space.batch, given = s->base.accumulate;
    if (s->latency_limit > 0) {
        for (int64_t b = 1; b <= batch && l->n_sizes < CLV_SEARCH_SIZES; b *= 2)
            if (b >= rows)
                l->sizes[l->n_sizes++] = b;
        return;
    }
    for (int64_t n = 1; s->space.trains && given == 0 && batch % rows == 0 && n <= batch / rows; n++)
        if (batch / rows % n == 0 && l->n_sizes < CLV_SEARCH_SIZES)
            l->sizes[l->n_sizes++] = n;
    if (l->n_sizes == 0)
        l->sizes[l->n_sizes++] = given ? given : 1;
}

clv_status clv_search_list_layouts(clv_plan_search *s, clv_error *err)
{
    clv_plan_search_layout *found;
    int n;
    CLV_TRY(clv_plan_search_space_list(&found, &n, &s->space, err));
    s->layouts = calloc((size_t)n, sizeof *s->layouts);
    s->ranked = calloc((size_t)n + CLV_SEARCH_AT_ONCE, sizeof(clv_search_candidate *));
    for (int i = 0; s->layouts && i < n; i++) {
        s->layouts[i] = (clv_searched_layout){.at = found[i], .best = -1, .best_runs = -1};
        set_sizes(s, &s->layouts[i]);
    }
    free(found);
    if (!s->layouts || !s->ranked)
        return clv_fail_memory(err, "the layouts of a search", (size_t)n * sizeof *s->layouts);
    s->n_layouts = n;
    return CLV_OK;
}
