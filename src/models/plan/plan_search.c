/* plan_search.c - clv_plan_search_run: searches meshes, rules and options for a number of devices by predicted price.
 *
 * 1. Each layout is priced with its fastest options (one microbatch, nothing recomputed, weights kept gathered), whose
 *    seconds are a lower bound of the layout's, and with the smallest ones.
 * 2. Layouts are taken by that bound. Of each the fastest options that fit are found, until the bound exceeds what as
 *    many layouts as are wanted reach.
 * 3. What is reported is priced again with all layers, and replaced by the next options where these do not fit.
 */
#include "cleave/plan_search.h"

#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hardware/resource_limits.h"
#include "base/threads/thread.h"
#include "cleave/text.h"
#include "models/plan/search_layouts.h"
#include "models/plan/search_reason.h"
#include "program/cost/cost_model.h"
#include "tensor/parse_print.h"

enum {
    MOST_THREADS = 64,
    MOST_SIZES = 128,     /* of microbatches, or batches */
    LATENCY_BATCH = 4096, /* the largest batch by default */
    CHUNK = 8,            /* layouts that are searched by the same bound, whatever the number of threads */
    MOST_RECOMPUTES = CLV_RECOMPUTE_FULL + 1
};

/* reshard_after_forward, fastest first. */
static const clv_reshard_after_forward reshards[] = {CLV_RESHARD_NONE, CLV_RESHARD_WEIGHTS, CLV_RESHARD_ALL};
enum { RESHARDS = sizeof reshards / sizeof *reshards, MOST_VARIANTS = RESHARDS * MOST_RECOMPUTES };

typedef struct candidate {
    int layout;
    int variant, amount; /* indices into the search's variants and the layout's sizes */
    int64_t batch, accumulate;
    clv_price price;
    bool whole; /* priced with all layers */
    bool fits;
    int front; /* place, from 1; 0: not on it */
    char why[CLV_SEARCH_REASON];
} candidate;

/* Options that a layout is tried with. */
typedef struct variant {
    clv_recompute recompute;
    clv_reshard_after_forward reshard;
} variant;

/* A layout, and what is priced of it. */
typedef struct layout {
    clv_search_layout at;
    int n_sizes;
    int64_t sizes[MOST_SIZES]; /* numbers of microbatches, ascending; with a latency limit: of sequences */
    int n, capacity;
    candidate *item;
    int best;     /* index of the candidate that is fastest and fits; -1: none */
    double bound; /* seconds that its candidates take at least */
    bool skipped; /* the other order of its mesh's axes is faster than that */
    clv_status status;
    clv_error err; /* the last failure */
} layout;

struct clv_plan_search {
    clv_plan_options base;
    clv_machine *machine; /* owned; NULL: the default one */
    clv_search_space space;
    double memory_limit, latency_limit;
    int most, threads;
    bool every_layout, exhaustive;
    int n_variants;
    variant variants[MOST_VARIANTS];
    int n_layouts;
    layout *layouts;
    int n_ranked, n_front;
    candidate **ranked, **front; /* [n_layouts], [priced] */
};

/* ---- running in parallel ---- */

typedef struct job {
    clv_plan_search *search;
    void (*run)(clv_plan_search *search, void *arg, int i);
    void *arg;
    int n;
    atomic_int next;
} job;

static void *work(void *arg)
{
    job *j = arg;
    for (int i = atomic_fetch_add(&j->next, 1); i < j->n; i = atomic_fetch_add(&j->next, 1))
        j->run(j->search, j->arg, i);
    return NULL;
}

static void run_all(clv_plan_search *search, void (*run)(clv_plan_search *, void *, int), void *arg, int n)
{
    pthread_t threads[MOST_THREADS];
    job j = {.search = search, .run = run, .arg = arg, .n = n};
    int started = 0;
    while (started < search->threads - 1 && started < n - 1 && clv_thread_start(&threads[started], NULL, work, &j) == 0)
        started++;
    work(&j);
    for (int t = 0; t < started; t++)
        pthread_join(threads[t], NULL);
}

/* ---- a candidate ---- */

static double tokens_per_s(const clv_plan_search *s, const candidate *c)
{
    int64_t seq = s->base.mode == CLV_PLAN_MODE_DECODE ? 1 : s->base.seq;
    return (double)(c->batch * seq) / c->price.seconds;
}

/* Estimates of memory are lower bounds, or nearly so. */
static bool fits(const clv_plan_search *s, const candidate *c)
{
    return c->price.memory <= s->memory_limit && (s->latency_limit == 0 || c->price.seconds <= s->latency_limit);
}

/* < 0: a comes first. */
static int compare(const clv_plan_search *s, const candidate *a, const candidate *b)
{
    double x = tokens_per_s(s, a), y = tokens_per_s(s, b);
    if (clv_cost_compare(x, y) != 0)
        return x > y ? -1 : 1;
    if (a->price.memory != b->price.memory)
        return a->price.memory < b->price.memory ? -1 : 1;
    return a->layout != b->layout ? a->layout - b->layout : a->variant - b->variant;
}

static clv_plan_options options_of(const clv_plan_search *s, const candidate *c)
{
    const variant *v = &s->variants[c->variant];
    clv_plan_options o = s->base;
    o.mesh = &s->layouts[c->layout].at.mesh;
    o.rules = &s->layouts[c->layout].at.rules;
    o.batch = c->batch;
    o.accumulate = c->accumulate;
    o.compile.recompute = v->recompute;
    o.compile.reshard_after_forward = v->reshard;
    return o;
}

static void find_best(const clv_plan_search *s, layout *l)
{
    l->best = -1;
    for (int i = 0; i < l->n; i++)
        if (l->item[i].fits && (l->best < 0 || compare(s, &l->item[i], &l->item[l->best]) < 0))
            l->best = i;
}

static candidate *least_memory(const layout *l)
{
    candidate *least = &l->item[0];
    for (int i = 1; i < l->n; i++)
        least = l->item[i].price.memory < least->price.memory ? &l->item[i] : least;
    return least;
}

static const candidate *best_of(const layout *l)
{
    return &l->item[l->best];
}

static bool reserve(layout *l)
{
    if (l->n < l->capacity)
        return true;
    int capacity = l->capacity ? 2 * l->capacity : 16;
    candidate *more = realloc(l->item, (size_t)capacity * sizeof *more);
    if (!more) {
        l->status = clv_fail_memory(&l->err, "the candidates of a search", (size_t)capacity * sizeof *more);
        return false;
    }
    l->item = more;
    l->capacity = capacity;
    return true;
}

/* Prices a candidate, unless it is known. Returns its index; -1: it does not compile. */
static int price(clv_plan_search *s, layout *l, int v, int amount)
{
    for (int i = 0; i < l->n; i++)
        if (l->item[i].variant == v && l->item[i].amount == amount)
            return i;
    if (!reserve(l))
        return -1;
    candidate *c = &l->item[l->n];
    *c = (candidate){.layout = (int)(l - s->layouts),
                     .variant = v,
                     .amount = amount,
                     .batch = s->latency_limit > 0 ? l->sizes[amount] : s->space.batch,
                     .accumulate = s->latency_limit > 0 ? 1 : l->sizes[amount]};
    const clv_plan_options o = options_of(s, c);
    if (clv_price_estimate(&c->price, &c->whole, &o, &s->space.shape, &l->err) != CLV_OK) {
        l->status = l->err.code;
        return -1;
    }
    c->fits = fits(s, c);
    return l->n++;
}

/* ---- a layout ---- */

/* The first with no recomputation and weights kept, with one microbatch; and those that need least memory. */
static void price_corners(clv_plan_search *s, void *arg, int i)
{
    (void)arg;
    layout *l = &s->layouts[i];
    int first = price(s, l, 0, 0);
    price(s, l, s->n_variants - 1, 0);
    price(s, l, s->n_variants - 1, l->n_sizes - 1);
    l->bound = first < 0 ? (double)INFINITY : l->item[first].price.seconds / (double)l->item[first].batch;
}

static void price_everything(clv_plan_search *s, layout *l)
{
    for (int v = 0; v < s->n_variants; v++)
        for (int a = 0; a < l->n_sizes; a++)
            price(s, l, v, a);
}

/* The fewest microbatches, at least two, with which a variant fits: memory falls with their number. */
static void find_fewest_microbatches(clv_plan_search *s, layout *l, int v)
{
    int low = 1, high = l->n_sizes - 1;
    int last = high >= 1 ? price(s, l, v, high) : -1;
    if (last < 0 || !l->item[last].fits)
        return;
    while (low < high) {
        int middle = low + (high - low) / 2, at = price(s, l, v, middle);
        if (at >= 0 && l->item[at].fits)
            high = middle;
        else
            low = middle + 1;
    }
}

/* Whether something can fit: one microbatch, or the options that need the least memory, with the most. Recomputing one
 * of a few layers may need more than to keep it. */
static bool may_fit(clv_plan_search *s, layout *l)
{
    enum { FEW_LAYERS = 4 };
    int least = price(s, l, s->n_variants - 1, l->n_sizes - 1);
    find_best(s, l);
    return s->space.shape.layers < FEW_LAYERS || l->best >= 0 || (least >= 0 && l->item[least].fits);
}

/* Whether a variant with one microbatch costs what candidate `at` does: the options that differ have no effect. */
static bool same_price(const layout *l, int v, int at)
{
    for (int i = 0; i < l->n; i++)
        if (l->item[i].variant == v && l->item[i].amount == 0)
            return l->item[i].price.seconds == l->item[at].price.seconds &&
                   l->item[i].price.memory == l->item[at].price.memory;
    return false;
}

/* The fastest options that fit. A variant with one microbatch is as fast as it can be. */
static void search_microbatches(clv_plan_search *s, layout *l)
{
    double least[MOST_VARIANTS];
    for (int v = 0; v < s->n_variants; v++) {
        int at = price(s, l, v, 0);
        bool differs = at >= 0 && !(v > 0 && same_price(l, v - 1, at));
        least[v] = differs ? l->item[at].price.seconds : (double)INFINITY;
    }
    for (int done = 0; may_fit(s, l) && done < s->n_variants; done++) {
        int v = 0;
        for (int k = 1; k < s->n_variants; k++)
            v = least[k] < least[v] ? k : v;
        find_best(s, l);
        if (isinf(least[v]) || (l->best >= 0 && best_of(l)->price.seconds <= least[v]))
            return;
        least[v] = (double)INFINITY;
        find_fewest_microbatches(s, l, v);
    }
}

/* The largest batch within the latency: seconds grow with it. */
static void search_batches(clv_plan_search *s, layout *l)
{
    for (int a = 0; a < l->n_sizes; a++) {
        int at = price(s, l, 0, a);
        if (at < 0 || !l->item[at].fits)
            return;
    }
}

static void search_layout(clv_plan_search *s, void *arg, int i)
{
    layout *l = ((layout **)arg)[i];
    if (l->skipped)
        return;
    if (s->exhaustive)
        price_everything(s, l);
    else if (s->latency_limit > 0)
        search_batches(s, l);
    else
        search_microbatches(s, l);
    find_best(s, l);
}

/* ---- all layouts ---- */

/* Whether they differ in the order of the mesh's axes alone. */
static bool is_reordered(const layout *a, const layout *b)
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
static double best_seconds(const layout *l)
{
    return l->best < 0 ? (double)INFINITY : best_of(l)->price.seconds / (double)best_of(l)->batch;
}

/* Whether the other order of its mesh's axes reaches the seconds a sequence: it is reported instead. */
static bool is_dominated(const clv_plan_search *s, const layout *l, double seconds)
{
    for (int i = 0; s->space.both_axis_orders && i < s->n_layouts; i++) {
        const layout *other = &s->layouts[i];
        if (other != l && is_reordered(l, other) && best_seconds(other) < seconds)
            return true;
    }
    return false;
}

static int by_bound(const void *a, const void *b)
{
    const layout *x = *(layout *const *)a, *y = *(layout *const *)b;
    return x->bound != y->bound ? (x->bound < y->bound ? -1 : 1) : (x < y ? -1 : 1);
}

/* Seconds a sequence that as many of the first n layouts reach as are reported; infinity: fewer fit. */
static double reached(const clv_plan_search *s, layout *const *order, int n)
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

static clv_status search_layouts(clv_plan_search *s, clv_error *err)
{
    size_t n = (size_t)s->n_layouts;
    layout **order = calloc(n, sizeof *order);
    if (!order)
        return clv_fail_memory(err, "the layouts of a search", n * sizeof *order);
    run_all(s, price_corners, NULL, s->n_layouts);
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
        run_all(s, search_layout, order + i, chunk);
    }
    free(order);
    return CLV_OK;
}

/* ---- ranking ---- */

/* Prices candidate i of a list with all layers. */
static void refine_one(clv_plan_search *s, void *arg, int i)
{
    candidate *c = ((candidate **)arg)[i];
    const clv_plan_options o = options_of(s, c);
    if (c->whole)
        return;
    c->whole = true;
    if (clv_price_refine(&c->price, &o, &s->space.shape, NULL) != CLV_OK)
        c->price.memory = (double)INFINITY;
    c->fits = fits(s, c);
}

/* Whether an estimate may be of what does not fit. All others would take minutes. */
static bool is_doubtful(const clv_plan_search *s, const candidate *c)
{
    return !c->whole && c->price.memory > 0.9 * s->memory_limit;
}

static void refine_doubtful(clv_plan_search *s, void *arg, int i)
{
    if (is_doubtful(s, ((candidate **)arg)[i]))
        refine_one(s, arg, i);
}

/* The same of a layout's best, in whose place another one may come. */
static void refine(clv_plan_search *s, void *arg, int i)
{
    candidate *c = ((candidate **)arg)[i];
    layout *l = &s->layouts[c->layout];
    if (c->whole)
        return;
    refine_one(s, arg, i);
    if (!c->fits && !s->exhaustive && s->latency_limit == 0)
        search_microbatches(s, l); /* c may have moved */
    find_best(s, l);
}

/* qsort has no argument. */
static void sort(const clv_plan_search *s, candidate **list, int n)
{
    for (int i = 1; i < n; i++) {
        candidate *c = list[i];
        int k = i;
        for (; k > 0 && compare(s, c, list[k - 1]) < 0; k--)
            list[k] = list[k - 1];
        list[k] = c;
    }
}

/* Of a sorted list those that are reported: of a mesh only its better order. */
static void keep_ranked(clv_plan_search *s)
{
    int kept = 0;
    for (int i = 0; i < s->n_ranked && kept < s->most; i++) {
        int k = 0;
        while (k < kept && !is_reordered(&s->layouts[s->ranked[k]->layout], &s->layouts[s->ranked[i]->layout]))
            k++;
        if (k == kept)
            s->ranked[kept++] = s->ranked[i];
    }
    s->n_ranked = kept;
}

/* Of a layout in which nothing fits: the candidate that needs the least memory is priced with all layers. */
static void refine_least(clv_plan_search *s, void *arg, int i)
{
    (void)arg;
    layout *l = &s->layouts[i];
    for (candidate *c; l->best < 0 && l->n > 0 && !(c = least_memory(l))->whole; find_best(s, l))
        refine_one(s, &c, 0);
}

/* Of layouts in which nothing fits the candidate that needs the least memory, after the others. */
static void add_unfit(clv_plan_search *s)
{
    int first = s->n_ranked;
    for (int i = 0; i < s->n_layouts; i++) {
        const layout *l = &s->layouts[i];
        if (l->best >= 0 || l->n == 0)
            continue;
        candidate *least = least_memory(l);
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
static void rank(clv_plan_search *s)
{
    for (bool again = true; again;) {
        s->n_ranked = 0;
        for (int i = 0; i < s->n_layouts; i++)
            if (s->layouts[i].best >= 0)
                s->ranked[s->n_ranked++] = &s->layouts[i].item[s->layouts[i].best];
        sort(s, s->ranked, s->n_ranked);
        keep_ranked(s);
        again = false;
        for (int i = 0; i < s->n_ranked; i++)
            again = again || !s->ranked[i]->whole;
        if (again)
            run_all(s, refine, s->ranked, s->n_ranked);
    }
    for (int i = 1; i < s->n_ranked; i++) {
        const candidate *best = s->ranked[0], *c = s->ranked[i];
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
        candidate *c = s->front[i];
        if (!c->fits || c->price.memory >= least)
            continue;
        least = c->price.memory;
        s->front[kept++] = c;
        c->front = kept;
    }
    s->n_front = kept;
}

static clv_status find_front(clv_plan_search *s, clv_error *err)
{
    size_t n = 0;
    for (int i = 0; i < s->n_layouts; i++)
        n += (size_t)s->layouts[i].n;
    s->front = calloc(n + 1, sizeof(candidate *));
    if (!s->front)
        return clv_fail_memory(err, "the front of a search", n * sizeof(candidate *));
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
            run_all(s, refine_doubtful, s->front, s->n_front);
    }
    for (int i = 0; i < s->n_front; i++) {
        candidate *c = s->front[i];
        if (s->n_ranked > 0 && c != s->ranked[0] && !c->why[0])
            clv_search_reason(c->why, &c->price, c->batch, &s->ranked[0]->price, s->ranked[0]->batch);
    }
    return CLV_OK;
}

/* ---- what is asked for ---- */

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
        s->variants[s->n_variants++] = (variant){c->recompute, c->reshard_after_forward};
        return;
    }
    for (clv_recompute r = CLV_RECOMPUTE_NONE; r <= CLV_RECOMPUTE_FULL; r++)
        for (int k = 0; k < RESHARDS; k++)
            if ((!keep_recompute || c->recompute == r) && (!keep_reshard || c->reshard_after_forward == reshards[k]))
                s->variants[s->n_variants++] = (variant){r, reshards[k]};
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
    return clv_price_shape_read(&s->space.shape, b, err);
}

static clv_status set_up(clv_plan_search *s, const clv_plan_search_options *o, clv_error *err)
{
    CLV_TRY(set_base(s, o, err));
    CLV_TRY(check_devices(s, o, err));
    CLV_TRY(set_machine(s, o, err));
    set_variants(s, o);
    s->most = o->most > 0 ? o->most : CLV_PLAN_SEARCH_MOST;
    s->threads = o->threads > 0 ? o->threads : clv_usable_cores();
    s->threads = s->threads < MOST_THREADS ? s->threads : MOST_THREADS;
    s->exhaustive = o->exhaustive;
    s->every_layout = o->every_layout;
    s->most = o->every_layout ? INT_MAX : s->most;
    return CLV_OK;
}

/* Numbers of microbatches of equally many rows for each rank, or batches within a latency limit. */
static void set_sizes(const clv_plan_search *s, layout *l)
{
    const int64_t rows = l->at.rows, batch = s->space.batch, given = s->base.accumulate;
    if (s->latency_limit > 0) {
        for (int64_t b = 1; b <= batch && l->n_sizes < MOST_SIZES; b *= 2)
            if (b >= rows)
                l->sizes[l->n_sizes++] = b;
        return;
    }
    for (int64_t n = 1; s->space.trains && given == 0 && batch % rows == 0 && n <= batch / rows; n++)
        if (batch / rows % n == 0 && l->n_sizes < MOST_SIZES)
            l->sizes[l->n_sizes++] = n;
    if (l->n_sizes == 0)
        l->sizes[l->n_sizes++] = given ? given : 1;
}

static clv_status list_layouts(clv_plan_search *s, clv_error *err)
{
    clv_search_layout *found;
    int n;
    CLV_TRY(clv_search_layouts_list(&found, &n, &s->space, err));
    s->layouts = calloc((size_t)n, sizeof *s->layouts);
    s->ranked = calloc((size_t)n, sizeof(candidate *));
    for (int i = 0; s->layouts && i < n; i++) {
        s->layouts[i] = (layout){.at = found[i], .best = -1};
        set_sizes(s, &s->layouts[i]);
    }
    free(found);
    if (!s->layouts || !s->ranked)
        return clv_fail_memory(err, "the layouts of a search", (size_t)n * sizeof *s->layouts);
    s->n_layouts = n;
    return CLV_OK;
}

/* ---- nothing fits ---- */

static const candidate *find_smallest(const clv_plan_search *s)
{
    const candidate *least = NULL;
    for (int i = 0; i < s->n_layouts; i++) {
        const candidate *c = s->layouts[i].n > 0 ? least_memory(&s->layouts[i]) : NULL;
        least = c && (!least || c->price.memory < least->price.memory) ? c : least;
    }
    return least;
}

/* Of those within the limit of memory, one of which there is, the one with the least latency. */
static const candidate *find_fastest(const clv_plan_search *s)
{
    const candidate *fastest = NULL;
    for (int i = 0; i < s->n_layouts; i++)
        for (int k = 0; k < s->layouts[i].n; k++) {
            const candidate *c = &s->layouts[i].item[k];
            if (c->price.memory <= s->memory_limit && (!fastest || c->price.seconds < fastest->price.seconds))
                fastest = c;
        }
    return fastest;
}

/* The smallest number of devices, doubled again and again, at which a candidate fits; 0: none up to 1024 times. */
static int64_t find_enough_devices(const clv_plan_search *s)
{
    for (int64_t devices = 2 * s->space.devices; devices <= CLV_PLAN_MAX_RANKS && devices <= 1024 * s->space.devices;
         devices *= 2) {
        clv_plan_search more = {.base = s->base,
                                .space = s->space,
                                .memory_limit = s->memory_limit,
                                .threads = s->threads,
                                .n_variants = s->n_variants};
        memcpy(more.variants, s->variants, sizeof more.variants);
        more.space.devices = devices;
        more.space.both_axis_orders = false;
        more.space.base = &more.base;
        if (list_layouts(&more, NULL) != CLV_OK)
            return 0;
        run_all(&more, price_corners, NULL, more.n_layouts);
        const candidate *least = find_smallest(&more);
        bool enough = least && least->price.memory <= s->memory_limit;
        for (int i = 0; i < more.n_layouts; i++)
            free(more.layouts[i].item);
        free(more.layouts);
        free(more.ranked);
        if (enough)
            return devices;
    }
    return 0;
}

static clv_status fail_unfit(clv_plan_search *s, clv_error *err)
{
    const candidate *least = find_smallest(s);
    char needs[CLV_QUANTITY_TEXT], limit[CLV_QUANTITY_TEXT], seconds[CLV_QUANTITY_TEXT], mesh[CLV_MESH_TEXT],
        enough[96] = "";
    for (int i = 0; !least && i < s->n_layouts; i++)
        if (s->layouts[i].status != CLV_OK)
            return clv_fail(err, s->layouts[i].err.code, "%s", s->layouts[i].err.message);
    if (!least)
        return clv_fail(err, CLV_EINVAL, "no candidate compiles");
    const layout *l = &s->layouts[least->layout];
    clv_print_bytes(needs, sizeof needs, least->price.memory);
    clv_print_bytes(limit, sizeof limit, s->memory_limit);
    clv_mesh_print(mesh, sizeof mesh, &l->at.mesh);
    if (s->latency_limit > 0 && least->price.memory <= s->memory_limit) {
        const candidate *fastest = find_fastest(s);
        clv_print_seconds(seconds, sizeof seconds, fastest->price.seconds);
        clv_mesh_print(mesh, sizeof mesh, &s->layouts[fastest->layout].at.mesh);
        return clv_fail(err, CLV_ELIMIT, "no candidate takes at most %g s in %s; the least is %s: %s, %s, batch %lld",
                        s->latency_limit, limit, seconds, mesh, s->layouts[fastest->layout].at.rules.name,
                        (long long)fastest->batch);
    }
    const int64_t devices = s->base.mesh ? 0 : find_enough_devices(s);
    if (devices > 0)
        snprintf(enough, sizeof enough, "; %lld devices would do", (long long)devices);
    return clv_fail(
        err, CLV_ELIMIT,
        "nothing fits %s a rank on %lld device%s; the least is %s: %s, %s, recompute %s, %lld microbatch%s%s", limit,
        (long long)s->space.devices, s->space.devices == 1 ? "" : "s", needs, mesh, l->at.rules.name,
        clv_recompute_name(s->variants[least->variant].recompute), (long long)least->accumulate,
        least->accumulate == 1 ? "" : "es", enough);
}

/* ---- the call, and its result ---- */

static clv_status search(clv_plan_search *s, const clv_plan_search_options *options, clv_error *err)
{
    CLV_TRY(set_up(s, options, err));
    CLV_TRY(list_layouts(s, err));
    CLV_TRY(search_layouts(s, err));
    rank(s);
    if (s->every_layout) {
        run_all(s, refine_least, NULL, s->n_layouts);
        rank(s); /* something may fit after all */
        add_unfit(s);
    }
    if (s->n_ranked == 0)
        return fail_unfit(s, err);
    return find_front(s, err);
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
    free(search->ranked);
    free(search->front);
    clv_machine_free(search->machine);
    free(search);
}

static clv_status describe(clv_plan_candidate *out, const clv_plan_search *s, const candidate *c, const char *call,
                           clv_error *err)
{
    const layout *l = &s->layouts[c->layout];
    const clv_plan_candidate info = {.mesh = &l->at.mesh,
                                     .rules = &l->at.rules,
                                     .batch = c->batch,
                                     .accumulate = c->accumulate,
                                     .recompute = s->variants[c->variant].recompute,
                                     .reshard_after_forward = s->variants[c->variant].reshard,
                                     .fits = c->fits,
                                     .front = c->front,
                                     .memory = c->price.memory,
                                     .seconds = c->price.seconds,
                                     .tokens_per_s = tokens_per_s(s, c),
                                     .mfu = c->price.model_seconds / c->price.seconds,
                                     .comm_share = c->price.communication / c->price.seconds,
                                     .why = c->why};
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, call, err);
}

static clv_status describe_at(clv_plan_candidate *out, const clv_plan_search *s, candidate *const *list, int n, int i,
                              const char *call, clv_error *err)
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

int clv_plan_search_priced(const clv_plan_search *search)
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
                    clv_plan_search_priced(search));
}

double clv_plan_search_memory_limit(const clv_plan_search *search)
{
    return search ? search->memory_limit : 0;
}
