/* layout_search.h - search for the layouts of a whole graph: a strategy for every op, and layouts of unstated inputs.
 *
 * choose_strategies.c is greedy: of each op alone it takes what is cheapest with its reshards. Here ops are taken in
 * the same order, but every legal strategy of each is followed, from every state that the ops before may have left:
 * which layouts of the values that are still to be read are available. Of the ways to one state only the cheapest goes
 * on (dynamic programming), and none that costs more than what the greedy pass found. So the result is the cheapest of
 * all as long as no states are dropped. Stated layouts, and weights that stay in place, are as they are.
 */
#pragma once

#include "partition/partitioner.h"

typedef struct clv_found_layouts {
    bool found; /* something costs less than the limit */
    bool exact; /* all states were followed: nothing costs less */
    double seconds, bytes;
    const clv_strategy **strategy; /* [n_ops]; NULL for constraints and ops that are not live */
    const clv_layout **input;      /* [n_values]; NULL but for unstated inputs that are read */
} clv_found_layouts;

/* Searches. p: a partitioner of its own, after propagate_layouts; what it returns lives in p->scratch.
 * limit_seconds, limit_bytes: the cost of what is known, of which only less is looked for; infinity: nothing is.
 * most_states: after each op the cheapest so many states are followed; 0: as many as the graph's size allows. */
clv_status clv_layout_search_run(clv_found_layouts *out, clv_partitioner *p, double limit_seconds, double limit_bytes,
                                 int most_states, clv_error *err);
