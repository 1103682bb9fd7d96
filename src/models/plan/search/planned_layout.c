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
#include "models/plan/search/search.h"

/* ---- schedules ---- */

static clv_status read_estimate(clv_estimate **out, const clv_plan_search *s, const clv_searched_layout *l,
                                const clv_search_candidate *c, clv_error *err)
{
    clv_plan_options o = clv_search_options_of(s, c);
    o.rules = NULL;
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
    c->fits = clv_search_fits(s, c);
}

static void price_schedules(clv_plan_search *s, clv_searched_layout *l, int variant, int amount)
{
    clv_search_candidate c = {.layout = (int)(l - s->layouts),
                              .variant = variant,
                              .amount = amount,
                              .batch = s->space.batch,
                              .accumulate = l->sizes[amount],
                              .whole = true},
                         best = {0}, least = {0};
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
        if (c.price.seconds <= 0)
            continue;
        if (s->exhaustive)
            clv_search_add(l, &c);
        if (c.fits && (!best.whole || clv_search_compare(s, &c, &best) < 0))
            best = c;
        if (!least.whole || c.price.memory < least.price.memory)
            least = c;
    }
    clv_estimate_free(from);
    if (!least.whole)
        l->status =
            clv_fail(&l->err, CLV_EINVAL,
                     "%lld layers on %lld stages: no schedule %s with %lld virtual stages; valid: at most %lld",
                     (long long)s->space.shape.layers, (long long)l->at.stages, clv_plan_schedule_name(s->schedule),
                     (long long)s->virtual_stages, (long long)((s->space.shape.layers + 2) / l->at.stages));
    if (best.whole && !s->exhaustive)
        clv_search_add(l, &best);
    if (least.whole && !s->exhaustive && (!best.whole || least.price.memory < best.price.memory))
        clv_search_add(l, &least);
}

/* ---- a layout ---- */

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
        price_schedules(s, l, pair / l->n_sizes, pair % l->n_sizes);
    }
}
