/* search.h - what a plan search has found so far: layouts, and candidates that are priced of each.
 *
 * A layout is a mesh with rules, a candidate is a layout with options. Files of this folder, in the order of the
 * search: request.c (what is asked for), layouts.c and planned_layouts.c (which layouts there are), candidate.c (the
 * price of one), program_layout.c and planned_layout.c (the candidates of a layout that are priced), planned_bounds.c
 * and bounds.c (the layouts that are searched), ranking.c (the list and the front), reason.c (why one lost), unfit.c
 * (nothing fits), plan_search.c (the call and its result).
 */
#ifndef CLEAVE_MODELS_PLAN_SEARCH_SEARCH_H
#define CLEAVE_MODELS_PLAN_SEARCH_SEARCH_H

#include "cleave/plan_search.h"
#include "models/plan/search/layouts.h"
#include "models/plan/search/reason.h"

enum {
    CLV_SEARCH_SIZES = 128, /* of microbatches, or batches */
    CLV_SEARCH_AT_ONCE = 2, /* candidates that are priced with all layers before it is known which is needed */
    CLV_SEARCH_VARIANTS = 3 * (CLV_RECOMPUTE_FULL + 1)
};

typedef struct clv_search_candidate {
    int layout;
    int variant, amount; /* indices into the search's variants and the layout's sizes */
    int64_t batch, accumulate;
    bool no_sync;
    clv_plan_schedule schedule; /* of stages; as the next one */
    int64_t virtual_stages;
    clv_price price;
    bool runs;  /* clv_plan_compile makes its program */
    bool whole; /* priced with all layers; of one that does not run by the estimate, which it has */
    bool fits;
    int front; /* place, from 1; 0: not on it */
    char why[CLV_SEARCH_REASON];
} clv_search_candidate;

/* Options that a layout is tried with. */
typedef struct clv_search_variant {
    clv_recompute recompute;
    clv_reshard_after_forward reshard;
} clv_search_variant;

typedef struct clv_planned_cost clv_planned_cost; /* planned_bounds.c */

/* A layout, and what is priced of it. */
typedef struct clv_searched_layout {
    clv_plan_search_layout at;
    int n_sizes;
    int64_t sizes[CLV_SEARCH_SIZES]; /* numbers of microbatches, ascending; with a latency limit: of sequences */
    int n, capacity;
    clv_search_candidate *item;
    int best;      /* index of the candidate that is fastest and fits; -1: none */
    int best_runs; /* of those that run */
    double bound;  /* seconds that its candidates take at least */
    bool skipped;  /* the other order of its mesh's axes is faster than that */
    clv_status status;
    clv_error err; /* the last failure */
} clv_searched_layout;

struct clv_plan_search {
    clv_plan_options base;
    clv_machine *machine; /* owned; NULL: the default one */
    clv_plan_search_space space;
    double memory_limit, latency_limit;
    int most, threads;
    bool every_layout, exhaustive;
    clv_plan_schedule schedule; /* DEFAULT: each; as virtual_stages 0 */
    int64_t virtual_stages;
    int n_variants;
    clv_search_variant variants[CLV_SEARCH_VARIANTS]; /* the fastest first, what needs the least memory last */
    int n_layouts;
    clv_searched_layout *layouts;
    int n_planned_costs;
    clv_planned_cost *planned_costs;
    double reached; /* seconds a sequence above which a layout is not reported; infinity: not known yet */
    int n_ranked, n_front;
    clv_search_candidate **ranked, **front; /* [n_layouts + CLV_SEARCH_AT_ONCE], [priced] */
};

/* ---- request.c ---- */

/* Fills the search with what the options ask for; its layouts are listed by the second call. */
clv_status clv_search_set_up(clv_plan_search *search, const clv_plan_search_options *options, clv_error *err);
clv_status clv_search_list_layouts(clv_plan_search *search, clv_error *err);

/* ---- parallel.c ---- */

/* Calls run(search, arg, i) for i = 0..n-1, on the search's threads. */
void clv_search_run_all(clv_plan_search *search, void (*run)(clv_plan_search *, void *, int), void *arg, int n);

/* ---- candidate.c ---- */

double clv_search_tokens_per_s(const clv_plan_search *search, const clv_search_candidate *c);
/* Whether it is within the limits. Estimates of memory are lower bounds, or nearly so. */
bool clv_search_fits(const clv_plan_search *search, const clv_search_candidate *c);
/* < 0: a comes first. */
int clv_search_compare(const clv_plan_search *search, const clv_search_candidate *a, const clv_search_candidate *b);
clv_plan_options clv_search_options_of(const clv_plan_search *search, const clv_search_candidate *c);
/* Of a layout in which something fits. */
const clv_search_candidate *clv_search_best_of(const clv_searched_layout *layout);
/* Sets layout->best and best_runs. */
void clv_search_find_best(const clv_plan_search *search, clv_searched_layout *layout);
/* Of a layout with candidates. */
clv_search_candidate *clv_search_least_memory(const clv_searched_layout *layout);
/* Adds a candidate to the layout; false: there is no memory for it, which the layout says. */
bool clv_search_add(clv_searched_layout *layout, const clv_search_candidate *c);
/* Prices a candidate of a program, unless it is known. Returns its index; -1: it does not compile. */
int clv_search_price(clv_plan_search *search, clv_searched_layout *layout, int variant, int amount);

/* ---- program_layout.c ---- */

/* Prices those of layout i by which it is bounded: with no recomputation, weights kept and one microbatch; and those
 * that need the least memory. */
void clv_search_corners(clv_plan_search *search, void *unused, int i);
/* Prices what could be the fastest that fits. */
void clv_search_microbatches(clv_plan_search *search, clv_searched_layout *layout);
/* The same of layout i of a list, by batches or exhaustively if that is asked for. */
void clv_search_one_layout(clv_plan_search *search, void *layouts, int i);

/* ---- planned_layout.c ---- */

/* Prices what could be the fastest that fits, or all if that is asked for. */
void clv_search_planned_layout(clv_plan_search *search, clv_searched_layout *layout);
/* Prices the options that need the least memory. */
void clv_search_planned_least(clv_plan_search *search, clv_searched_layout *layout);
/* Prices a candidate that runs by its program. */
clv_status clv_search_refine_planned(const clv_plan_search *search, clv_search_candidate *c);

/* ---- planned_bounds.c ---- */

/* Sets the bounds of all planned layouts. */
clv_status clv_search_bound_planned(clv_plan_search *search, clv_error *err);
/* Seconds a sequence at least, with a variant and a number of microbatches; infinity: it does not fit. */
double clv_search_planned_bound(const clv_plan_search *search, const clv_searched_layout *layout, int variant,
                                int amount);
/* Whether it is another one than those before, of a planned layout. */
bool clv_search_has_variant(const clv_plan_search *search, const clv_searched_layout *layout, int variant);
/* The schedules that are tried of a layout: 1F1B, interleaved with each number of virtual stages, ZB-H1; GPipe is no
 * faster than 1F1B and needs more memory, so that it is one of them only where it is asked for. False behind the last.
 */
bool clv_search_schedule_at(clv_plan_schedule *schedule, int64_t *virtual_stages, const clv_plan_search *search,
                            const clv_searched_layout *layout, int64_t i);
/* Whether it is asked for, or nothing is. */
bool clv_search_has_schedule(const clv_plan_search *search, clv_plan_schedule schedule, int64_t virtual_stages);

/* ---- bounds.c ---- */

/* Searches the layouts that may be among those that are reported. */
clv_status clv_search_all_layouts(clv_plan_search *search, clv_error *err);
/* Whether two layouts differ in the order of the mesh's axes alone. */
bool clv_search_is_reordered(const clv_searched_layout *a, const clv_searched_layout *b);

/* ---- ranking.c ---- */

/* Ranks the best of each layout, until those that are reported have been priced with all layers. */
void clv_search_rank(clv_plan_search *search);
/* With all layers: of layout i, in which nothing fits, the candidate that needs the least memory. */
void clv_search_refine_least(clv_plan_search *search, void *unused, int i);
/* Adds those to the ranked ones. */
void clv_search_add_unfit(clv_plan_search *search);
clv_status clv_search_find_front(clv_plan_search *search, clv_error *err);

/* ---- unfit.c ---- */

/* Nothing fits: the error, with the least memory or time found, and how many devices would do. */
clv_status clv_search_fail_unfit(clv_plan_search *search, clv_error *err);

#endif
