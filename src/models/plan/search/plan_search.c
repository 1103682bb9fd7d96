/* plan_search.c - clv_plan_search_run: searches meshes, rules and options for a number of devices by predicted price.
 *
 * 1. Each layout that runs is priced with its fastest options (one microbatch, nothing recomputed, weights kept
 *    gathered), whose seconds are a lower bound of the layout's, and with the smallest ones. Those that are planned,
 *    not run, are bounded by what a sequence takes on the ranks that split the model alone.
 * 2. Layouts are taken by that bound. Of each the fastest options that fit are found, until the bound exceeds what as
 *    many layouts as are wanted reach.
 * 3. What is reported is priced again with all layers, and replaced by the next options where these do not fit.
 */
#include <stdlib.h>

#include "base/error.h"
#include "models/plan/search/search.h"
#include "program/cost/cost_model.h"

static clv_status search(clv_plan_search *s, const clv_plan_search_options *options, clv_error *err)
{
    CLV_TRY(clv_search_set_up(s, options, err));
    CLV_TRY(clv_search_list_layouts(s, err));
    CLV_TRY(clv_search_all_layouts(s, err));
    clv_search_rank(s);
    if (s->every_layout) {
        clv_search_run_all(s, clv_search_refine_least, NULL, s->n_layouts);
        clv_search_rank(s); /* something may fit after all */
        clv_search_add_unfit(s);
    }
    if (s->n_ranked == 0)
        return clv_search_fail_unfit(s, err);
    return clv_search_find_front(s, err);
}

clv_status clv_plan_search_run(clv_plan_search **out, const clv_plan_search_options *options, clv_error *err)
{
    static const char call[] = "clv_plan_search_run";
    clv_plan_search_options o;
    CLV_TRY(clv_require(out && options, call, "out and options", err));
    CLV_TRY(clv_options_copy_in(&o, sizeof o, sizeof o, options, call, err));
    CLV_TRY(clv_require(o.base != NULL, call, "a base", err));
    clv_plan_search *s = calloc(1, sizeof *s);
    if (!s)
        return clv_fail_memory(err, "a search", sizeof *s);
    clv_status status = search(s, &o, err);
    if (status != CLV_OK) {
        clv_plan_search_free(s);
        return status;
    }
    *out = s;
    return CLV_OK;
}

void clv_plan_search_free(clv_plan_search *search)
{
    if (!search)
        return;
    for (int i = 0; i < search->n_layouts; i++)
        free(search->layouts[i].item);
    free(search->layouts);
    free(search->planned_costs);
    free(search->ranked);
    free(search->front);
    clv_machine_free(search->machine);
    free(search);
}

static clv_status describe(clv_plan_candidate *out, const clv_plan_search *s, const clv_search_candidate *c,
                           const char *call, clv_error *err)
{
    const clv_searched_layout *l = &s->layouts[c->layout];
    const clv_plan_candidate info = {.mesh = &l->at.mesh,
                                     .rules = &l->at.rules,
                                     .batch = c->batch,
                                     .accumulate = c->accumulate,
                                     .recompute = s->variants[c->variant].recompute,
                                     .reshard_after_forward = s->variants[c->variant].reshard,
                                     .can_run = c->runs,
                                     .schedule = c->schedule,
                                     .virtual_stages = c->virtual_stages > 1 ? c->virtual_stages : 1,
                                     .fits = c->fits,
                                     .front = c->front,
                                     .memory = c->price.memory,
                                     .seconds = c->price.seconds,
                                     .tokens_per_s = clv_search_tokens_per_s(s, c),
                                     .mfu = c->price.model_seconds / c->price.seconds,
                                     .comm_share = c->price.communication / c->price.seconds,
                                     .bubble_share = c->price.part[CLV_TIME_BUBBLE] / c->price.seconds,
                                     .why = c->why,
                                     .no_sync = c->no_sync};
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, call, err);
}

static clv_status describe_at(clv_plan_candidate *out, const clv_plan_search *s, clv_search_candidate *const *list,
                              int n, int i, const char *call, clv_error *err)
{
    CLV_TRY(clv_require(s && out, call, "a search and out", err));
    if (i < 0 || i >= n)
        return clv_fail(err, CLV_EINVAL, "%s: there is no candidate %d; there are %d", call, i, n);
    return describe(out, s, list[i], call, err);
}

int clv_plan_search_count(const clv_plan_search *search)
{
    return search ? search->n_ranked : 0;
}

clv_status clv_plan_search_at(const clv_plan_search *search, int i, clv_plan_candidate *out, clv_error *err)
{
    return describe_at(out, search, search ? search->ranked : NULL, clv_plan_search_count(search), i,
                       "clv_plan_search_at", err);
}

int clv_plan_search_front_count(const clv_plan_search *search)
{
    return search ? search->n_front : 0;
}

clv_status clv_plan_search_front_at(const clv_plan_search *search, int i, clv_plan_candidate *out, clv_error *err)
{
    return describe_at(out, search, search ? search->front : NULL, clv_plan_search_front_count(search), i,
                       "clv_plan_search_front_at", err);
}

int clv_plan_search_priced_count(const clv_plan_search *search)
{
    int n = 0;
    for (int i = 0; search && i < search->n_layouts; i++)
        n += search->layouts[i].n;
    return n;
}

clv_status clv_plan_search_priced_at(const clv_plan_search *search, int i, clv_plan_candidate *out, clv_error *err)
{
    static const char call[] = "clv_plan_search_priced_at";
    CLV_TRY(clv_require(search && out, call, "a search and out", err));
    for (int l = 0, at = i; at >= 0 && l < search->n_layouts; at -= search->layouts[l++].n)
        if (at < search->layouts[l].n)
            return describe(out, search, &search->layouts[l].item[at], call, err);
    return clv_fail(err, CLV_EINVAL, "%s: there is no candidate %d; there are %d", call, i,
                    clv_plan_search_priced_count(search));
}

double clv_plan_search_memory_limit(const clv_plan_search *search)
{
    return search ? search->memory_limit : 0;
}
