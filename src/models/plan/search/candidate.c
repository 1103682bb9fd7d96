/* candidate.c - a candidate of a plan search: its options, its price, what comes first. */
#include <stdlib.h>

#include "base/error.h"
#include "models/plan/search/search.h"
#include "program/cost/cost_model.h"

/* Of an estimate of zero-bubble, the least that its program needs (test_zero_bubble_estimate): where the head makes the
 * last stage slower, others put off fewer gradients of weights than is estimated. */
static const double zero_bubble_least = 0.87;

double clv_search_tokens_per_s(const clv_plan_search *s, const clv_search_candidate *c)
{
    int64_t seq = s->base.mode == CLV_PLAN_MODE_DECODE ? 1 : s->base.seq;
    return (double)(c->batch * seq) / c->price.seconds;
}

/* Estimates of memory are lower bounds, or nearly so, but for that one. */
bool clv_search_fits(const clv_plan_search *s, const clv_search_candidate *c)
{
    const double least = c->runs && !c->whole && c->schedule == CLV_SCHEDULE_ZERO_BUBBLE ? zero_bubble_least : 1;
    return c->price.memory * least <= s->memory_limit &&
           (s->latency_limit == 0 || c->price.seconds <= s->latency_limit);
}

/* < 0: a comes first. */
int clv_search_compare(const clv_plan_search *s, const clv_search_candidate *a, const clv_search_candidate *b)
{
    double x = clv_search_tokens_per_s(s, a), y = clv_search_tokens_per_s(s, b);
    if (clv_cost_compare(x, y) != 0)
        return x > y ? -1 : 1;
    if (a->price.memory != b->price.memory)
        return a->price.memory < b->price.memory ? -1 : 1;
    if (a->layout != b->layout)
        return a->layout - b->layout;
    return a->variant != b->variant ? a->variant - b->variant : (int)(a->virtual_stages - b->virtual_stages);
}

clv_plan_options clv_search_options_of(const clv_plan_search *s, const clv_search_candidate *c)
{
    const clv_search_variant *v = &s->variants[c->variant];
    clv_plan_options o = s->base;
    o.mesh = &s->layouts[c->layout].at.mesh;
    o.rules = &s->layouts[c->layout].at.rules;
    o.batch = c->batch;
    o.accumulate = c->accumulate;
    o.no_sync = c->no_sync;
    o.compile.schedule = c->schedule;
    o.compile.recompute = v->recompute;
    o.compile.reshard_after_forward = v->reshard;
    return o;
}

void clv_search_find_best(const clv_plan_search *s, clv_searched_layout *l)
{
    l->best = l->best_runs = -1;
    for (int i = 0; i < l->n; i++) {
        const clv_search_candidate *c = &l->item[i];
        if (c->fits && (l->best < 0 || clv_search_compare(s, c, &l->item[l->best]) < 0))
            l->best = i;
        if (c->fits && c->runs && (l->best_runs < 0 || clv_search_compare(s, c, &l->item[l->best_runs]) < 0))
            l->best_runs = i;
    }
}

clv_search_candidate *clv_search_least_memory(const clv_searched_layout *l)
{
    clv_search_candidate *least = &l->item[0];
    for (int i = 1; i < l->n; i++)
        least = l->item[i].price.memory < least->price.memory ? &l->item[i] : least;
    return least;
}

const clv_search_candidate *clv_search_best_of(const clv_searched_layout *l)
{
    return &l->item[l->best];
}

bool clv_search_add(clv_searched_layout *l, const clv_search_candidate *c)
{
    if (l->n == l->capacity) {
        int capacity = l->capacity ? 2 * l->capacity : 16;
        clv_search_candidate *more = realloc(l->item, (size_t)capacity * sizeof *more);
        if (!more) {
            l->status = clv_fail_memory(&l->err, "the candidates of a search", (size_t)capacity * sizeof *more);
            return false;
        }
        l->item = more;
        l->capacity = capacity;
    }
    l->item[l->n++] = *c;
    return true;
}

/* Prices a candidate, unless it is known. Returns its index; -1: it does not compile. */
int clv_search_price(clv_plan_search *s, clv_searched_layout *l, int v, int amount)
{
    for (int i = 0; i < l->n; i++)
        if (l->item[i].variant == v && l->item[i].amount == amount)
            return i;
    clv_search_candidate c = {.layout = (int)(l - s->layouts),
                              .variant = v,
                              .amount = amount,
                              .runs = true,
                              .no_sync = s->base.no_sync,
                              .batch = s->latency_limit > 0 ? l->sizes[amount] : s->space.batch,
                              .accumulate = s->latency_limit > 0 ? 1 : l->sizes[amount]};
    const clv_plan_options o = clv_search_options_of(s, &c);
    if (clv_price_estimate(&c.price, &c.whole, &o, &s->space.shape, &l->err) != CLV_OK) {
        l->status = l->err.code;
        return -1;
    }
    c.fits = clv_search_fits(s, &c);
    return clv_search_add(l, &c) ? l->n - 1 : -1;
}
