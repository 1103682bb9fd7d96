/* bounds.c - which layouts a plan search looks into: those whose lower bound of the seconds is below what as many
 * layouts as are wanted reach.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/plan/search/search.h"
#include "tensor/parse_print.h"

enum { CHUNK = 8 }; /* layouts that are searched by the same bound, whatever the number of threads */

/* Whether they differ in the order of the mesh's axes alone. */
bool clv_search_is_reordered(const clv_searched_layout *a, const clv_searched_layout *b)
{
    const clv_mesh *x = &a->at.mesh, *y = &b->at.mesh;
    bool same = x->n_axes == y->n_axes && strcmp(a->at.rules.name, b->at.rules.name) == 0;
    for (int i = 0; same && i < x->n_axes; i++) {
        int k = clv_mesh_find_axis_or_negative(y, x->axis[i].name, (int)strlen(x->axis[i].name));
        same = k >= 0 && y->axis[k].size == x->axis[i].size;
    }
    return same;
}

/* Seconds a sequence of its best; infinity: nothing fits. */
static double best_seconds(const clv_searched_layout *l)
{
    return l->best < 0 ? (double)INFINITY : clv_search_best_of(l)->price.seconds / (double)clv_search_best_of(l)->batch;
}

/* Whether the other order of its mesh's axes reaches the seconds a sequence: it is reported instead. */
static bool is_dominated(const clv_plan_search *s, const clv_searched_layout *l, double seconds)
{
    for (int i = 0; s->space.both_axis_orders && !l->at.planned && i < s->n_layouts; i++) {
        const clv_searched_layout *other = &s->layouts[i];
        if (other != l && !other->at.planned && clv_search_is_reordered(l, other) && best_seconds(other) < seconds)
            return true;
    }
    return false;
}

/* Those that are priced by programs come first: what they reach saves programs of stages, which take seconds. */
static int by_bound(const void *a, const void *b)
{
    const clv_searched_layout *x = *(clv_searched_layout *const *)a, *y = *(clv_searched_layout *const *)b;
    if (x->at.planned != y->at.planned)
        return x->at.planned ? 1 : -1;
    return x->bound != y->bound ? (x->bound < y->bound ? -1 : 1) : (x < y ? -1 : 1);
}

/* Of a list: seconds a sequence that as many of the first n layouts reach as are reported; infinity:
 * fewer fit. */
static double reached(const clv_plan_search *s, clv_searched_layout *const *order, int n)
{
    double seconds = 0;
    for (int found = 0; found < s->most; found++) {
        double next = (double)INFINITY;
        for (int i = 0; i < n; i++) {
            const double its = best_seconds(order[i]);
            if (its > seconds && its < next && !is_dominated(s, order[i], its))
                next = its;
        }
        seconds = next;
    }
    return seconds;
}

/* Seconds a sequence of the best one that runs. */
static double reached_by_programs(clv_searched_layout *const *order, int n)
{
    double least = (double)INFINITY;
    for (int i = 0; i < n; i++)
        if (order[i]->best_runs >= 0) {
            const clv_search_candidate *c = &order[i]->item[order[i]->best_runs];
            least = fmin(least, c->price.seconds / (double)c->batch);
        }
    return least;
}

/* Searches the next CHUNK layouts, from order[i] on, whose bounds allow it; returns where to go on. The best one that
 * runs is found, whatever is faster and does not run. */
static int search_chunk(clv_plan_search *s, clv_searched_layout **order, int i, bool bounded)
{
    clv_searched_layout *chunk[CHUNK];
    const double limit = bounded ? reached(s, order, i) : (double)INFINITY;
    const double by_programs = bounded ? reached_by_programs(order, i) : (double)INFINITY;
    int n = 0;
    s->reached = limit;
    for (; i < s->n_layouts && n < CHUNK; i++) {
        clv_searched_layout *l = order[i];
        if (l->bound > (l->at.planned ? limit : fmax(limit, by_programs)))
            continue;
        l->skipped = bounded && is_dominated(s, l, l->bound);
        chunk[n++] = l;
    }
    clv_search_run_all(s, clv_search_one_layout, chunk, n);
    return i;
}

/* Of no layout the state alone fits: the smallest is priced, so that an error has what it needs. */
static void price_smallest(clv_plan_search *s)
{
    clv_searched_layout *least = NULL;
    for (int i = 0; i < s->n_layouts; i++) {
        clv_searched_layout *l = &s->layouts[i];
        if (l->n > 0)
            return;
        least = l->at.planned && (!least || l->at.state < least->at.state) ? l : least;
    }
    if (least)
        clv_search_planned_least(s, least);
}

clv_status clv_search_all_layouts(clv_plan_search *s, clv_error *err)
{
    size_t n = (size_t)s->n_layouts;
    clv_searched_layout **order = calloc(n, sizeof *order);
    if (!order)
        return clv_fail_memory(err, "the layouts of a search", n * sizeof *order);
    clv_search_run_all(s, clv_search_corners, NULL, s->n_layouts);
    clv_status status = clv_search_bound_planned(s, err);
    for (int i = 0; i < s->n_layouts; i++)
        order[i] = &s->layouts[i];
    qsort(order, n, sizeof *order, by_bound);
    bool bounded =
        !s->exhaustive && !s->every_layout && s->latency_limit == 0; /* a larger batch has a bound of its own */
    for (int i = 0; status == CLV_OK && i < s->n_layouts;)
        i = search_chunk(s, order, i, bounded);
    if (status == CLV_OK)
        price_smallest(s);
    free(order);
    return status;
}
