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
        int k = clv_mesh_find_name(y, x->axis[i].name, (int)strlen(x->axis[i].name));
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
    for (int i = 0; s->space.both_axis_orders && i < s->n_layouts; i++) {
        const clv_searched_layout *other = &s->layouts[i];
        if (other != l && clv_search_is_reordered(l, other) && best_seconds(other) < seconds)
            return true;
    }
    return false;
}

static int by_bound(const void *a, const void *b)
{
    const clv_searched_layout *x = *(clv_searched_layout *const *)a, *y = *(clv_searched_layout *const *)b;
    return x->bound != y->bound ? (x->bound < y->bound ? -1 : 1) : (x < y ? -1 : 1);
}

/* Seconds a sequence that as many of the first n layouts reach as are reported; infinity: fewer fit. */
static double reached(const clv_plan_search *s, clv_searched_layout *const *order, int n)
{
    double seconds = 0;
    for (int found = 0; found < s->most; found++) {
        double next = (double)INFINITY;
        for (int i = 0; i < n; i++)
            if (best_seconds(order[i]) > seconds && !is_dominated(s, order[i], best_seconds(order[i])))
                next = fmin(next, best_seconds(order[i]));
        seconds = next;
    }
    return seconds;
}

clv_status clv_search_all_layouts(clv_plan_search *s, clv_error *err)
{
    size_t n = (size_t)s->n_layouts;
    clv_searched_layout **order = calloc(n, sizeof *order);
    if (!order)
        return clv_fail_memory(err, "the layouts of a search", n * sizeof *order);
    clv_search_run_all(s, clv_search_corners, NULL, s->n_layouts);
    for (int i = 0; i < s->n_layouts; i++)
        order[i] = &s->layouts[i];
    qsort(order, n, sizeof *order, by_bound);
    bool bounded =
        !s->exhaustive && !s->every_layout && s->latency_limit == 0; /* a larger batch has a bound of its own */
    for (int i = 0; i < s->n_layouts; i += CHUNK) {
        if (bounded && order[i]->bound > reached(s, order, i))
            break;
        int chunk = s->n_layouts - i < CHUNK ? s->n_layouts - i : CHUNK;
        for (int k = i; k < i + chunk; k++)
            order[k]->skipped = bounded && is_dominated(s, order[k], order[k]->bound);
        clv_search_run_all(s, clv_search_one_layout, order + i, chunk);
    }
    free(order);
    return CLV_OK;
}
