/* ranking.c - what a plan search reports: the best of each layout, and the front of time and memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cleave/text.h"
#include "models/plan/search/search.h"

/* Rounds of programs by which the best one that runs is looked for: a program with all layers takes seconds, and where
 * it is slower than its estimate the next one would be better, and so on. */
enum { MOST_ROUNDS = 4 };

/* Prices candidate i of a list with all layers. */
static void refine_one(clv_plan_search *s, void *arg, int i)
{
    clv_search_candidate *c = ((clv_search_candidate **)arg)[i];
    const clv_plan_options o = clv_search_options_of(s, c);
    if (c->whole)
        return;
    c->whole = true;
    if ((s->layouts[c->layout].at.planned ? clv_search_refine_planned(s, c)
                                          : clv_price_refine(&c->price, &o, &s->space.shape, NULL)) != CLV_OK)
        c->price.memory = (double)INFINITY;
    c->fits = clv_search_fits(s, c);
}

/* Whether an estimate may be of what does not fit. All others would take minutes. */
static bool is_doubtful(const clv_plan_search *s, const clv_search_candidate *c)
{
    return !c->whole && c->price.memory > 0.9 * s->memory_limit;
}

static void refine_doubtful(clv_plan_search *s, void *arg, int i)
{
    if (is_doubtful(s, ((clv_search_candidate **)arg)[i]))
        refine_one(s, arg, i);
}

/* The same of a layout's best, in whose place another one may come. */
static void refine(clv_plan_search *s, void *arg, int i)
{
    clv_search_candidate *c = ((clv_search_candidate **)arg)[i];
    clv_searched_layout *l = &s->layouts[c->layout];
    refine_one(s, arg, i);
    if (!c->fits && !s->exhaustive && s->latency_limit == 0)
        (l->at.planned ? clv_search_planned_layout : clv_search_microbatches)(s, l); /* c may have moved */
    clv_search_find_best(s, l);
}

/* qsort has no argument. */
static void sort(const clv_plan_search *s, clv_search_candidate **list, int n)
{
    for (int i = 1; i < n; i++) {
        clv_search_candidate *c = list[i];
        int k = i;
        for (; k > 0 && clv_search_compare(s, c, list[k - 1]) < 0; k--)
            list[k] = list[k - 1];
        list[k] = c;
    }
}

/* The best one that runs of the layouts, behind `after` (NULL: of all); NULL: there is none. */
static clv_search_candidate *next_runnable(const clv_plan_search *s, const clv_search_candidate *after)
{
    clv_search_candidate *best = NULL;
    for (int i = 0; i < s->n_layouts; i++) {
        const clv_searched_layout *l = &s->layouts[i];
        clv_search_candidate *c = l->best_runs >= 0 ? &l->item[l->best_runs] : NULL;
        if (c && (!after || clv_search_compare(s, after, c) < 0) && (!best || clv_search_compare(s, c, best) < 0))
            best = c;
    }
    return best;
}

/* The best one that runs of those that were priced with all layers; NULL: there is none. */
static clv_search_candidate *best_priced_runnable(const clv_plan_search *s)
{
    clv_search_candidate *best = NULL;
    for (int i = 0; i < s->n_layouts; i++)
        for (int k = 0; k < s->layouts[i].n; k++) {
            clv_search_candidate *c = &s->layouts[i].item[k];
            if (c->runs && c->whole && c->fits && (!best || clv_search_compare(s, c, best) < 0))
                best = c;
        }
    return best;
}

/* Adds the best one that runs, of layouts whose best does not, if the list has none. */
static void add_runnable(clv_plan_search *s, int rounds)
{
    for (int i = 0; i < s->n_ranked; i++)
        if (s->ranked[i]->runs)
            return;
    clv_search_candidate *priced = rounds < MOST_ROUNDS ? NULL : best_priced_runnable(s);
    clv_search_candidate *best = priced ? priced : next_runnable(s, NULL);
    if (best)
        s->ranked[s->n_ranked++] = best;
}

/* Adds those that come in place of the last one, if that does not fit: they are priced beside it. */
static void add_further_runnable(clv_plan_search *s)
{
    clv_search_candidate *last = s->n_ranked > 0 ? s->ranked[s->n_ranked - 1] : NULL;
    const bool alone = last && last->runs && !last->whole && (s->n_ranked == 1 || !s->ranked[s->n_ranked - 2]->runs);
    for (int i = 1; alone && last && i < CLV_SEARCH_AT_ONCE; i++)
        if ((last = next_runnable(s, last)))
            s->ranked[s->n_ranked++] = last;
}

/* Leaves those to be priced, one of a layout, as what does not run is priced already: pricing one may move the others
 * of its layout, which no thread may look at then. */
static void drop_priced(clv_plan_search *s)
{
    int kept = 0;
    for (int i = 0; i < s->n_ranked; i++)
        if (!s->ranked[i]->whole)
            s->ranked[kept++] = s->ranked[i];
    s->n_ranked = kept;
}

/* Of a sorted list those that are reported: of a mesh only its better order; and the best one that runs. */
static void keep_ranked(clv_plan_search *s, int rounds)
{
    int kept = 0;
    for (int i = 0; i < s->n_ranked && kept < s->most; i++) {
        const clv_searched_layout *l = &s->layouts[s->ranked[i]->layout];
        int k = 0;
        while (k < kept && !clv_search_is_reordered(&s->layouts[s->ranked[k]->layout], l))
            k++;
        if (k < kept)
            continue;
        s->ranked[kept++] = s->ranked[i];
    }
    s->n_ranked = kept;
    add_runnable(s, rounds);
}

/* Of a layout in which nothing fits: the candidate that needs the least memory is priced with all layers. */
void clv_search_refine_least(clv_plan_search *s, void *arg, int i)
{
    (void)arg;
    clv_searched_layout *l = &s->layouts[i];
    for (clv_search_candidate *c; l->best < 0 && l->n > 0 && !(c = clv_search_least_memory(l))->whole;
         clv_search_find_best(s, l))
        refine_one(s, &c, 0);
}

/* Of layouts in which nothing fits the candidate that needs the least memory, after the others. */
void clv_search_add_unfit(clv_plan_search *s)
{
    int first = s->n_ranked;
    for (int i = 0; i < s->n_layouts; i++) {
        const clv_searched_layout *l = &s->layouts[i];
        if (l->best >= 0 || l->n == 0)
            continue;
        clv_search_candidate *least = clv_search_least_memory(l);
        char bytes[CLV_QUANTITY_TEXT];
        clv_print_bytes(bytes, sizeof bytes, least->price.memory - s->memory_limit);
        snprintf(least->why, sizeof least->why, "%s too much", bytes);
        int k = s->n_ranked++;
        for (; k > first && s->ranked[k - 1]->price.memory > least->price.memory; k--)
            s->ranked[k] = s->ranked[k - 1];
        s->ranked[k] = least;
    }
}

/* The best of each layout, until those that are reported have been priced with all layers. */
void clv_search_rank(clv_plan_search *s)
{
    bool again = true;
    for (int rounds = 0; again; rounds++) {
        s->n_ranked = 0;
        for (int i = 0; i < s->n_layouts; i++)
            if (s->layouts[i].best >= 0)
                s->ranked[s->n_ranked++] = &s->layouts[i].item[s->layouts[i].best];
        sort(s, s->ranked, s->n_ranked);
        keep_ranked(s, rounds);
        again = false;
        for (int i = 0; i < s->n_ranked; i++)
            again = again || !s->ranked[i]->whole;
        if (again) {
            add_further_runnable(s);
            drop_priced(s);
            clv_search_run_all(s, refine, s->ranked, s->n_ranked);
        }
    }
    for (int i = 1; i < s->n_ranked; i++) {
        const clv_search_candidate *best = s->ranked[0], *c = s->ranked[i];
        clv_search_reason(s->ranked[i]->why, &c->price, c->batch, &best->price, best->batch);
    }
}

/* In order of speed, those that need less memory than all before. */
static void keep_front(clv_plan_search *s)
{
    int kept = 0;
    double least = (double)INFINITY;
    sort(s, s->front, s->n_front);
    for (int i = 0; i < s->n_front; i++) {
        clv_search_candidate *c = s->front[i];
        if (!c->fits || c->price.memory >= least)
            continue;
        least = c->price.memory;
        s->front[kept++] = c;
        c->front = kept;
    }
    s->n_front = kept;
}

clv_status clv_search_find_front(clv_plan_search *s, clv_error *err)
{
    size_t n = 0;
    for (int i = 0; i < s->n_layouts; i++)
        n += (size_t)s->layouts[i].n;
    s->front = calloc(n + 1, sizeof(clv_search_candidate *));
    if (!s->front)
        return clv_fail_memory(err, "the front of a search", n * sizeof(clv_search_candidate *));
    for (bool again = true; again;) {
        s->n_front = 0;
        for (int i = 0; i < s->n_layouts; i++)
            for (int k = 0; k < s->layouts[i].n; k++) {
                s->layouts[i].item[k].front = 0;
                s->front[s->n_front++] = &s->layouts[i].item[k];
            }
        keep_front(s);
        again = false;
        for (int i = 0; i < s->n_front; i++)
            again = again || is_doubtful(s, s->front[i]);
        if (again)
            clv_search_run_all(s, refine_doubtful, s->front, s->n_front);
    }
    for (int i = 0; i < s->n_front; i++) {
        clv_search_candidate *c = s->front[i];
        if (s->n_ranked > 0 && c != s->ranked[0] && !c->why[0])
            clv_search_reason(c->why, &c->price, c->batch, &s->ranked[0]->price, s->ranked[0]->batch);
    }
    return CLV_OK;
}
