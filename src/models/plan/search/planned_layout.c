/* planned_layout.c - the candidates of a layout with stages, context or experts that a plan search prices, by
 * estimates.
 *
 * Options and a number of microbatches make an estimate, which compiles for the ranks of a stage; all schedules are
 * priced by it, and of these the fastest that fits is kept, and the one that needs the least memory. They are taken by
 * their lower bounds (planned_bounds.c), until these exceed what the layout, or as many others as are wanted, reach.
 */
#include <math.h>

#include "base/error.h"
#include "models/plan/axes/estimate.h"
#include "models/plan/axes/stage_programs.h"
#include "models/plan/search/search.h"

enum { CHEAP = 64 }; /* layers times microbatches of a program that takes no longer to compile than an estimate */

/* ---- schedules ---- */

/* Parts keep their shares of what is not the bubble. */
clv_status clv_search_refine_planned(const clv_plan_search *s, clv_search_candidate *c)
{
    const clv_searched_layout *l = &s->layouts[c->layout];
    clv_plan_options o = clv_search_options_of(s, c);
    clv_axis_rules rules = l->at.rules;
    clv_program_price p;
    clv_price *price = &c->price;
    if (c->virtual_stages > 1)
        CLV_TRY(clv_axis_rules_set_stages(&rules, &l->at.mesh, (int)c->virtual_stages, NULL, 0, NULL));
    o.rules = &rules;
    o.compile.memory_limit = INT64_MAX; /* stages by time alone: other splits take programs of their own */
    CLV_TRY(clv_program_price_compute(&p, &o, l->at.stages, s->space.shape.layers, NULL));
    const double busy = price->seconds - price->part[CLV_TIME_BUBBLE];
    for (int i = 0; i < CLV_TIME_COUNT; i++)
        price->part[i] *= busy > 0 ? (p.predicted.seconds - p.parts.waits) / busy : 0;
    price->part[CLV_TIME_BUBBLE] = p.parts.waits;
    price->memory = (double)p.memory.total;
    price->seconds = p.predicted.seconds;
    price->communication = p.predicted.communication;
    price->overlapped = p.predicted.overlapped;
    price->model_seconds = p.predicted.model_utilisation * p.predicted.seconds;
    return CLV_OK;
}

static clv_status read_estimate(clv_estimate **out, const clv_plan_search *s, const clv_searched_layout *l,
                                const clv_search_candidate *c, clv_error *err)
{
    clv_plan_options o = clv_search_options_of(s, c);
    o.rules = NULL;
    o.compile.schedule = CLV_SCHEDULE_DEFAULT;
    return clv_estimate_new(
        out, &(clv_plan_estimate_options){.plan = &o, .rules = l->at.rules.name[0] ? l->at.rules.name : NULL}, err);
}

static void price_schedule(clv_search_candidate *c, const clv_plan_search *s, const clv_estimate *from,
                           clv_plan_schedule schedule, int64_t virtual_stages)
{
    clv_plan_estimate priced;
    c->schedule = CLV_SCHEDULE_DEFAULT;
    if (clv_estimate_price(&priced, from, schedule, virtual_stages, NULL) != CLV_OK)
        return;
    clv_estimate_parts(&c->price, from, &priced);
    c->schedule = priced.schedule;
    c->virtual_stages = priced.virtual_stages;
    c->runs = s->layouts[c->layout].at.runs &&
              clv_virtual_stages_are_compiled(virtual_stages, s->layouts[c->layout].at.stages, c->accumulate,
                                              s->space.shape.layers);
    c->whole =
        !c->runs || (s->space.shape.layers * c->accumulate <= CHEAP && clv_search_refine_planned(s, c) == CLV_OK);
    c->fits = clv_search_fits(s, c);
}

/* Of the schedules with the same options: the fastest that fits, the fastest of these that runs, the one that needs the
 * least memory; batch 0: none. */
typedef struct found {
    clv_search_candidate best, runs, least;
} found;

static bool comes_before(const clv_plan_search *s, const clv_search_candidate *c, const clv_search_candidate *other)
{
    return !other->batch || clv_search_compare(s, c, other) < 0;
}

static void consider(found *of, const clv_plan_search *s, clv_searched_layout *l, const clv_search_candidate *c)
{
    if (s->exhaustive)
        clv_search_add(l, c);
    if (c->fits && comes_before(s, c, &of->best))
        of->best = *c;
    if (c->fits && c->runs && comes_before(s, c, &of->runs))
        of->runs = *c;
    if (!of->least.batch || c->price.memory < of->least.price.memory)
        of->least = *c;
}

static void price_schedules(clv_plan_search *s, clv_searched_layout *l, int variant, int amount)
{
    clv_search_candidate c = {.layout = (int)(l - s->layouts),
                              .variant = variant,
                              .amount = amount,
                              .batch = s->space.batch,
                              .accumulate = l->sizes[amount],
                              .no_sync = l->sizes[amount] > 1 && (s->base.no_sync || l->at.stages > 1)};
    found of = {0};
    clv_plan_schedule schedule;
    int64_t virtual_stages;
    clv_estimate *from;
    if (read_estimate(&from, s, l, &c, &l->err) != CLV_OK) {
        l->status = l->err.code;
        return;
    }
    for (int64_t i = 0; clv_search_schedule_at(&schedule, &virtual_stages, s, l, i); i++) {
        c.price.seconds = 0;
        if (clv_search_has_schedule(s, schedule, virtual_stages))
            price_schedule(&c, s, from, schedule, virtual_stages);
        if (c.price.seconds > 0 && (c.runs || !s->space.runnable))
            consider(&of, s, l, &c);
    }
    clv_estimate_free(from);
    if (!of.least.batch)
        l->status =
            clv_fail(&l->err, CLV_EINVAL,
                     "%lld layers on %lld stages: no schedule%s%s with %lld virtual stages; valid: at most %lld",
                     (long long)s->space.shape.layers, (long long)l->at.stages, s->schedule ? " " : "",
                     s->schedule ? clv_plan_schedule_name(s->schedule) : "", (long long)s->virtual_stages,
                     (long long)(s->space.shape.layers / l->at.stages));
    if (s->exhaustive)
        return;
    if (of.best.batch)
        clv_search_add(l, &of.best);
    clv_search_find_best(s, l);
    const bool add_runs = of.runs.batch && !of.best.runs &&
                          (l->best_runs < 0 || clv_search_compare(s, &of.runs, &l->item[l->best_runs]) < 0);
    if (add_runs)
        clv_search_add(l, &of.runs);
    const bool is_runs =
        add_runs && of.least.schedule == of.runs.schedule && of.least.virtual_stages == of.runs.virtual_stages;
    if (of.least.batch && !is_runs && (!of.best.batch || of.least.price.memory < of.best.price.memory))
        clv_search_add(l, &of.least);
}

/* ---- a layout ---- */

static bool is_priced(const clv_searched_layout *l, int variant, int amount)
{
    bool priced = false;
    for (int i = 0; i < l->n; i++)
        priced |= l->item[i].variant == variant && l->item[i].amount == amount;
    return priced;
}

void clv_search_planned_least(clv_plan_search *s, clv_searched_layout *l)
{
    price_schedules(s, l, s->n_variants - 1, l->n_sizes - 1);
}

/* The pair with the least bound above that of the last one; false: there is none. Pairs are numbered. */
static bool next_pair(int *pair, double *bound, const double *bounds, int n)
{
    const double last = *bound;
    const int from = *pair;
    *bound = (double)INFINITY;
    for (int i = 0; i < n; i++)
        if ((bounds[i] > last || (bounds[i] == last && i > from)) && bounds[i] < *bound) {
            *bound = bounds[i];
            *pair = i;
        }
    return !isinf(*bound);
}

void clv_search_planned_layout(clv_plan_search *s, clv_searched_layout *l)
{
    double bounds[CLV_SEARCH_VARIANTS * CLV_SEARCH_SIZES], bound = -1;
    const int n = s->n_variants * l->n_sizes;
    int pair = -1;
    for (int i = 0; i < n; i++)
        bounds[i] = clv_search_has_variant(s, l, i / l->n_sizes)
                        ? clv_search_planned_bound(s, l, i / l->n_sizes, i % l->n_sizes)
                        : (double)INFINITY;
    for (int i = 0; s->exhaustive && i < n; i++)
        if (clv_search_has_variant(s, l, i / l->n_sizes))
            price_schedules(s, l, i / l->n_sizes, i % l->n_sizes);
    while (!s->exhaustive && next_pair(&pair, &bound, bounds, n) && bound <= s->reached) {
        clv_search_find_best(s, l);
        if (l->best >= 0 && clv_search_best_of(l)->price.seconds / (double)s->space.batch <= bound)
            break;
        if (!is_priced(l, pair / l->n_sizes, pair % l->n_sizes))
            price_schedules(s, l, pair / l->n_sizes, pair % l->n_sizes);
    }
}
