/* layout_states.h - states of the search for layouts: in which layouts each value is available after an op.
 *
 * Sharded values are interned: two states that hold a value in the same layouts hold the same ids. Of two ways to one
 * state the cheaper one is kept, which makes the search dynamic programming.
 */
#pragma once

#include "partition/key_cache.h"
#include "partition/partitioner.h"

/* Layouts of one value: those of clv_available_layouts. */
typedef struct clv_held_value {
    int value, n, phase, n_earlier;
    const int *sharded; /* [n] */
} clv_held_value;

/* What was decided on the way from the state before. */
typedef struct clv_search_decision {
    const clv_strategy *strategy; /* of the op; NULL: a constraint, or the layout of an input */
    int input;                    /* the input whose layout was decided; 0: none */
    const clv_layout *layout;     /* its layout */
} clv_search_decision;

typedef struct clv_search_state {
    double seconds, bytes;
    const struct clv_search_state *before;
    clv_search_decision decision;
    int n_held;
    const clv_held_value *held;
} clv_search_state;

/* States after the same op. */
typedef struct clv_search_states {
    clv_key_cache index; /* by what they hold: a pointer to the state */
    int n, capacity;
    clv_search_state **item;
} clv_search_states;

/* < 0: a is cheaper: by seconds (by_bytes: bytes), then the other. */
int clv_search_state_compare(const clv_search_state *a, const clv_search_state *b, bool by_bytes);

/* Adds the state that the partitioner is in, of the values for which last_use[v] > at; or lowers the cost of the one
 * that is listed. Copies what it keeps to the arena. */
clv_status clv_search_states_add(clv_search_states *states, clv_arena *arena, const clv_partitioner *p,
                                 const int *last_use, int at, const clv_search_state *made, clv_error *err);
/* Keeps the cheapest `most` states; *dropped: whether there were more. */
void clv_search_states_keep(clv_search_states *states, int most, bool by_bytes, bool *dropped);
/* Puts the partitioner into the state. */
clv_status clv_search_state_load(clv_partitioner *p, const clv_search_state *state, clv_error *err);

/* The sharded value of the partitioner's table that is this value in this layout, added if it is new. */
clv_status clv_search_intern(int *out, clv_partitioner *p, clv_key_cache *interned, int value, const clv_layout *layout,
                             clv_error *err);
