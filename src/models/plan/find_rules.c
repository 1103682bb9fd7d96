/* find_rules.c - clv_plan_find_rules: axis rules by search over what each mesh axis splits, priced by programs.
 *
 * Descent from the best of several starts: the presets that fit the mesh, and every role (rule_places.h) on all axes. A
 * sweep changes the role of one axis, the next one toggles one axis of one place; both until nothing is faster. All
 * candidates stay listed: a candidate is priced once, and the runner-up and the best other axes of each name are found
 * in the list.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hardware/resource_limits.h"
#include "base/threads/thread.h"
#include "models/plan/plan_price.h"
#include "models/plan/rule_places.h"
#include "program/cost/cost_model.h"

enum {
    MOST_PRICED = 600,
    MOST_SWEEPS = 16, /* each gains something, so this is not reached */
    MOST_THREADS = 16
};

typedef struct candidate {
    clv_rule_places places;
    const char *preset; /* the first preset that it is; NULL: none */
    bool exact, fits;
    clv_status status;
    clv_price price;
} candidate;

/* A thread, with the reshard plans that its candidates share. */
typedef struct worker {
    struct search *search;
    pthread_t thread;
    clv_arena *arena;
    clv_reshard_cache *reshards;
} worker;

typedef struct search {
    clv_plan_options base;
    clv_price_shape shape;
    double memory_limit;
    unsigned useful; /* bit p: place p has an effect */
    int n, n_priced; /* the first n_priced are priced */
    candidate item[MOST_PRICED];
    atomic_int next;
    clv_cost_model cost;
    int n_workers;
    worker worker[MOST_THREADS]; /* the first is the caller */
    clv_error err;               /* of the first candidate */
} search;

/* ---- prices ---- */

/* < 0: a is better: it fits, is faster, needs less memory. */
static int compare(const candidate *a, const candidate *b)
{
    if ((a->status == CLV_OK) != (b->status == CLV_OK))
        return a->status == CLV_OK ? -1 : 1;
    if (a->fits != b->fits)
        return a->fits ? -1 : 1;
    int order = a->fits ? clv_cost_compare(a->price.seconds, b->price.seconds) : 0;
    return order != 0 ? order : clv_cost_compare(a->price.memory, b->price.memory);
}

/* The best, the first of equals. */
static candidate *best_of(search *s)
{
    candidate *best = &s->item[0];
    for (int i = 1; i < s->n_priced; i++)
        best = compare(&s->item[i], best) < 0 ? &s->item[i] : best;
    return best;
}

static clv_plan_options options_of(const search *s, const candidate *c, clv_axis_rules *rules)
{
    clv_plan_options o = s->base;
    clv_rule_places_to_rules(rules, &c->places);
    o.rules = rules;
    return o;
}

static void price(search *s, int i, clv_reshard_cache *reshards)
{
    candidate *c = &s->item[i];
    clv_axis_rules rules;
    clv_price_shape shape = s->shape;
    const clv_plan_options o = options_of(s, c, &rules);
    shape.reshards = reshards;
    c->status = clv_price_estimate(&c->price, &c->exact, &o, &shape, i == 0 ? &s->err : NULL);
    c->fits = c->status == CLV_OK && c->price.memory <= s->memory_limit;
}

static void *work(void *arg)
{
    worker *w = arg;
    search *s = w->search;
    for (int i = atomic_fetch_add(&s->next, 1); i < s->n; i = atomic_fetch_add(&s->next, 1))
        price(s, i, w->reshards);
    return NULL;
}

/* Prices what was added. What is found does not depend on the number of threads. */
static void price_new(search *s)
{
    int started = 1;
    atomic_store(&s->next, s->n_priced);
    while (started < s->n_workers && started < s->n - s->n_priced &&
           clv_thread_start(&s->worker[started].thread, NULL, work, &s->worker[started]) == 0)
        started++;
    work(&s->worker[0]);
    for (int t = 1; t < started; t++)
        pthread_join(s->worker[t].thread, NULL);
    s->n_priced = s->n;
}

/* ---- candidates ---- */

/* Adds a candidate, unless it is listed. Only places with an effect count; and of positions those that sequences leave:
 * every activation has both. */
static candidate *add(search *s, const clv_rule_places *places)
{
    clv_rule_places kept = *places;
    for (int p = 0; p < CLV_PLACE_COUNT; p++)
        kept.axes[p] = s->useful >> p & 1 ? kept.axes[p] : 0;
    kept.axes[CLV_PLACE_SEQ] &= (uint16_t)~kept.axes[CLV_PLACE_BATCH];
    for (int i = 0; i < s->n; i++)
        if (clv_rule_places_equal(&s->item[i].places, &kept))
            return &s->item[i];
    if (s->n == MOST_PRICED)
        return NULL;
    s->item[s->n] = (candidate){.places = kept};
    return &s->item[s->n++];
}

static void add_presets(search *s)
{
    for (int i = 0; clv_axis_rules_preset_name(i); i++) {
        clv_axis_rules rules;
        clv_rule_places places;
        if (clv_axis_rules_preset(&rules, clv_axis_rules_preset_name(i), s->base.mesh, NULL) != CLV_OK)
            continue;
        clv_rule_places_from_rules(&places, &rules);
        candidate *c = add(s, &places);
        if (c && !c->preset)
            c->preset = clv_axis_rules_preset_name(i);
    }
}

/* Nothing split, the presets, and each pair of roles of which one is for the last axis, where groups stay inside hosts,
 * and the other for the axes before. */
static void add_starts(search *s)
{
    clv_rule_places places = {0};
    add(s, &places);
    add_presets(s);
    for (int o = 0; clv_axis_role_at(o); o++)
        for (int i = 0; clv_axis_role_at(i); i++) {
            const clv_axis_role *outer = clv_axis_role_at(o), *inner = clv_axis_role_at(i);
            for (int a = 0; a < s->base.mesh->n_axes; a++)
                clv_rule_places_set_axis(&places, a, a < s->base.mesh->n_axes - 1 ? outer->places : inner->places);
            if (outer->is_outer && inner->is_inner)
                add(s, &places);
        }
}

static void add_other_roles(search *s, const clv_rule_places *from)
{
    for (int a = 0; a < s->base.mesh->n_axes; a++)
        for (int r = 0; s->base.mesh->axis[a].size > 1 && clv_axis_role_at(r); r++) {
            clv_rule_places places = *from;
            clv_rule_places_set_axis(&places, a, clv_axis_role_at(r)->places);
            add(s, &places);
        }
}

/* KV heads go with heads, or alone. */
static void add_toggles(search *s, const clv_rule_places *from)
{
    for (int a = 0; a < s->base.mesh->n_axes; a++)
        for (int p = 0; s->base.mesh->axis[a].size > 1 && p < CLV_PLACE_COUNT; p++) {
            clv_rule_places places = *from;
            places.axes[p] ^= (uint16_t)(1U << a);
            if (p == CLV_PLACE_HEADS)
                places.axes[CLV_PLACE_KV_HEADS] = places.axes[p];
            add(s, &places);
        }
}

static void descend(search *s, void (*add_neighbours)(search *, const clv_rule_places *))
{
    for (int sweep = 0; sweep < MOST_SWEEPS; sweep++) {
        const clv_rule_places from = best_of(s)->places;
        add_neighbours(s, &from);
        price_new(s);
        if (clv_rule_places_equal(&best_of(s)->places, &from))
            return;
    }
}

/* Prices a candidate with all layers: large programs are packed less well, and with overlap estimates are off by some
 * percent. */
static void refine(search *s, candidate *c)
{
    clv_axis_rules rules;
    const clv_plan_options o = options_of(s, c, &rules);
    clv_price price = c->price;
    if (c->exact || c->status != CLV_OK)
        return;
    c->exact = true;
    c->status = clv_price_refine(&price, &o, &s->shape, NULL);
    c->price.memory = price.memory;
    if (o.compile.overlap)
        c->price.seconds = price.seconds;
    c->fits = c->status == CLV_OK && c->price.memory <= s->memory_limit;
}

static const candidate *refined_best(search *s)
{
    candidate *best;
    for (int i = 0; i < s->n_priced; i++)
        if (s->base.compile.overlap && s->item[i].preset)
            refine(s, &s->item[i]);
    while ((best = best_of(s))->status == CLV_OK && !best->exact)
        refine(s, best);
    return best;
}

/* ---- results ---- */

/* Whether two candidates differ in place p and nowhere else, but that KV heads go with heads. */
static bool differ_in(const candidate *a, const candidate *b, int p)
{
    clv_rule_places alike = a->places;
    alike.axes[p] = b->places.axes[p];
    if (p == CLV_PLACE_HEADS)
        alike.axes[CLV_PLACE_KV_HEADS] = b->places.axes[CLV_PLACE_KV_HEADS];
    return a->places.axes[p] != b->places.axes[p] && clv_rule_places_equal(&alike, &b->places);
}

/* The best candidate that differs from the given one, and not only in rules without effect; in place p alone, or
 * anywhere (p < 0). NULL: none fits. */
static const candidate *best_other(const search *s, const candidate *than, int p)
{
    const candidate *best = NULL;
    for (int i = 0; i < s->n_priced; i++) {
        const candidate *c = &s->item[i];
        if (c->fits && compare(c, than) != 0 && (p < 0 || differ_in(c, than, p)))
            best = !best || compare(c, best) < 0 ? c : best;
    }
    return best;
}

static void describe_rule(clv_found_rules *out, const search *s, const candidate *found, clv_rule_place p)
{
    const candidate *other = best_other(s, found, (int)p);
    clv_found_rule *rule = &out->rule[out->n_rules++];
    *rule = (clv_found_rule){.instead_seconds = other ? other->price.seconds : (double)INFINITY};
    snprintf(rule->name, sizeof rule->name, "%s", clv_rule_place_name(p));
    clv_rule_places_print(rule->axes, sizeof rule->axes, &found->places, p, s->base.mesh);
    if (other)
        clv_rule_places_print(rule->instead, sizeof rule->instead, &other->places, p, s->base.mesh);
}

static void describe(clv_found_rules *out, const search *s, const candidate *found)
{
    const candidate *next = best_other(s, found, -1), *preset = NULL;
    *out = (clv_found_rules){.seconds = found->price.seconds,
                             .memory = found->price.memory,
                             .fits = found->fits,
                             .next_seconds = next ? next->price.seconds : 0,
                             .priced = s->n_priced};
    clv_rule_places_to_rules(&out->rules, &found->places);
    clv_rule_places_describe(out->like, sizeof out->like, &found->places, s->useful, s->base.mesh);
    if (next)
        clv_rule_places_describe(out->next, sizeof out->next, &next->places, s->useful, s->base.mesh);
    for (int i = 0; i < s->n_priced; i++)
        if (s->item[i].preset && s->item[i].fits && (!preset || compare(&s->item[i], preset) < 0))
            preset = &s->item[i];
    if (preset)
        snprintf(out->preset, sizeof out->preset, "%s", preset->preset);
    out->preset_seconds = preset ? preset->price.seconds : 0;
    for (int p = 0; p < CLV_PLACE_COUNT; p++)
        if (s->useful >> p & 1)
            describe_rule(out, s, found, (clv_rule_place)p);
}

/* ---- setting up ---- */

/* The places that this step has a use for: a generated sequence is whole on all ranks, and only training has an
 * optimizer. */
static unsigned useful_places(const search *s)
{
    const clv_plan_options *o = &s->base;
    const bool generates = o->mode == CLV_PLAN_MODE_PREFILL || o->mode == CLV_PLAN_MODE_DECODE;
    unsigned places = (1U << CLV_PLACE_COUNT) - 1;
    if (!o->model || generates)
        places &= ~(1U << CLV_PLACE_OPTIMIZER);
    if (generates && !s->shape.bidirectional)
        places &= ~(1U << CLV_PLACE_SEQ);
    if (!o->model)
        places &= ~(1U << CLV_PLACE_VOCAB);
    if (o->block == CLV_PLAN_BLOCK_FFN)
        places &= ~(1U << CLV_PLACE_HEADS | 1U << CLV_PLACE_KV_HEADS);
    if (o->block == CLV_PLAN_BLOCK_ATTENTION)
        places &= ~(1U << CLV_PLACE_MLP);
    return places;
}

static clv_status set_up(search *s, const clv_plan_options *options, int64_t memory_limit, const clv_mesh *alone,
                         clv_error *err)
{
    static const char call[] = "clv_plan_find_rules";
    CLV_TRY(clv_plan_parse_options(&s->base, options, call, err));
    clv_plan_options *b = &s->base;
    if (b->rules || b->sp)
        return clv_fail(err, CLV_EINVAL, "%s: the options have %s, which are searched; valid: NULL", call,
                        b->sp ? "sp" : "rules");
    if (memory_limit < 0)
        return clv_fail(err, CLV_EINVAL, "%s: memory_limit is %lld; valid: 0 (the machine's) and above", call,
                        (long long)memory_limit);
    b->mesh = b->mesh ? b->mesh : alone;
    b->batch = b->batch ? b->batch : CLV_PLAN_BATCH;
    b->accumulate = b->accumulate > 0 ? b->accumulate : 1;
    b->compile.explain = NULL;
    b->compile.keep_decisions = false;
    s->memory_limit =
        memory_limit > 0 ? (double)memory_limit : clv_machine_or_default(b->compile.machine)->memory_bytes;
    CLV_TRY(clv_price_shape_compute(&s->shape, b, err));
    s->useful = useful_places(s);
    return CLV_OK;
}

static clv_status set_up_workers(search *s, clv_error *err)
{
    const clv_plan_options *o = &s->base;
    const int most = clv_usable_cores();
    CLV_TRY(clv_mesh_check(o->mesh, err));
    clv_cost_model_make(&s->cost, o->mesh, o->compile.machine);
    for (; s->n_workers < (most < MOST_THREADS ? most : MOST_THREADS); s->n_workers++) {
        worker *w = &s->worker[s->n_workers];
        w->search = s;
        w->arena = clv_arena_new();
        w->reshards = w->arena ? clv_reshard_cache_new(w->arena, o->mesh, &s->cost, o->compile.by_bytes) : NULL;
        if (!w->reshards)
            return clv_fail_memory(err, "a search for rules", sizeof *w);
    }
    return CLV_OK;
}

static clv_status run(clv_found_rules *out, search *s, clv_error *err)
{
    add_starts(s);
    price_new(s);
    if (s->item[0].status != CLV_OK)
        return clv_fail(err, s->item[0].status, "%s", s->err.message);
    const candidate *before;
    do {
        before = best_of(s);
        descend(s, add_other_roles);
        descend(s, add_toggles);
    } while (best_of(s) != before && s->n < MOST_PRICED);
    describe(out, s, refined_best(s));
    return CLV_OK;
}

clv_status clv_plan_find_rules(clv_found_rules *out, const clv_plan_options *options, int64_t memory_limit,
                               clv_error *err)
{
    const clv_mesh alone = {0};
    clv_found_rules found;
    CLV_TRY(clv_require(out && options, __func__, "out and options", err));
    search *s = calloc(1, sizeof *s);
    if (!s)
        return clv_fail_memory(err, "a search for rules", sizeof *s);
    clv_status status = set_up(s, options, memory_limit, &alone, err);
    if (status == CLV_OK)
        status = set_up_workers(s, err);
    if (status == CLV_OK)
        status = run(&found, s, err);
    for (int t = 0; t < MOST_THREADS; t++)
        clv_arena_free(s->worker[t].arena);
    free(s);
    return status == CLV_OK ? clv_struct_copy_out(out, sizeof found, sizeof found, &found, __func__, err) : status;
}
