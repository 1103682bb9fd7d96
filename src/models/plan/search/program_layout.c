/* program_layout.c - the candidates of a layout that a plan search prices, by the programs that would run. */
#include <math.h>

#include "models/plan/search/search.h"

/* The first with no recomputation and weights kept, with one microbatch; and those that need least memory. */
void clv_search_corners(clv_plan_search *s, void *arg, int i)
{
    (void)arg;
    clv_searched_layout *l = &s->layouts[i];
    if (l->at.planned)
        return;
    int first = clv_search_price(s, l, 0, 0);
    clv_search_price(s, l, s->n_variants - 1, 0);
    clv_search_price(s, l, s->n_variants - 1, l->n_sizes - 1);
    l->bound = first < 0 ? (double)INFINITY : l->item[first].price.seconds / (double)l->item[first].batch;
}

static void price_everything(clv_plan_search *s, clv_searched_layout *l)
{
    for (int v = 0; v < s->n_variants; v++)
        for (int a = 0; a < l->n_sizes; a++)
            clv_search_price(s, l, v, a);
}

/* The fewest microbatches, at least two, with which a variant fits: memory falls with their number. */
static void find_fewest_microbatches(clv_plan_search *s, clv_searched_layout *l, int v)
{
    int low = 1, high = l->n_sizes - 1;
    int last = high >= 1 ? clv_search_price(s, l, v, high) : -1;
    if (last < 0 || !l->item[last].fits)
        return;
    while (low < high) {
        int middle = low + (high - low) / 2, at = clv_search_price(s, l, v, middle);
        if (at >= 0 && l->item[at].fits)
            high = middle;
        else
            low = middle + 1;
    }
}

/* Whether something can fit: one microbatch, or the options that need the least memory, with the most. Recomputing one
 * of a few layers may need more than to keep it. */
static bool may_fit(clv_plan_search *s, clv_searched_layout *l)
{
    enum { FEW_LAYERS = 4 };
    int least = clv_search_price(s, l, s->n_variants - 1, l->n_sizes - 1);
    clv_search_find_best(s, l);
    return s->space.shape.layers < FEW_LAYERS || l->best >= 0 || (least >= 0 && l->item[least].fits);
}

/* Whether a variant with one microbatch costs what candidate `at` does: the options that differ have no effect. */
static bool same_price(const clv_searched_layout *l, int v, int at)
{
    for (int i = 0; i < l->n; i++)
        if (l->item[i].variant == v && l->item[i].amount == 0)
            return l->item[i].price.seconds == l->item[at].price.seconds &&
                   l->item[i].price.memory == l->item[at].price.memory;
    return false;
}

/* The fastest options that fit. A variant with one microbatch is as fast as it can be. */
void clv_search_microbatches(clv_plan_search *s, clv_searched_layout *l)
{
    double least[CLV_SEARCH_VARIANTS];
    for (int v = 0; v < s->n_variants; v++) {
        int at = clv_search_price(s, l, v, 0);
        bool differs = at >= 0 && !(v > 0 && same_price(l, v - 1, at));
        least[v] = differs ? l->item[at].price.seconds : (double)INFINITY;
    }
    for (int done = 0; may_fit(s, l) && done < s->n_variants; done++) {
        int v = 0;
        for (int k = 1; k < s->n_variants; k++)
            v = least[k] < least[v] ? k : v;
        clv_search_find_best(s, l);
        if (isinf(least[v]) || (l->best >= 0 && clv_search_best_of(l)->price.seconds <= least[v]))
            return;
        least[v] = (double)INFINITY;
        find_fewest_microbatches(s, l, v);
    }
}

/* The largest batch within the latency: seconds grow with it. */
static void search_batches(clv_plan_search *s, clv_searched_layout *l)
{
    for (int a = 0; a < l->n_sizes; a++) {
        int at = clv_search_price(s, l, 0, a);
        if (at < 0 || !l->item[at].fits)
            return;
    }
}

void clv_search_one_layout(clv_plan_search *s, void *arg, int i)
{
    clv_searched_layout *l = ((clv_searched_layout **)arg)[i];
    if (l->skipped)
        return;
    if (l->at.planned)
        clv_search_planned_layout(s, l);
    else if (s->exhaustive)
        price_everything(s, l);
    else if (s->latency_limit > 0)
        search_batches(s, l);
    else
        clv_search_microbatches(s, l);
    clv_search_find_best(s, l);
}
