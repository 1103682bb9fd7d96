/* reshard_state.h - the reshard search's state: a layout as sub-axes per dimension, with byte counts and bounds.
 *
 * An subaxis is a piece of a mesh axis that the plan never divides further: a whole axis, unless `from`, `to` or the
 * matching of their block counts needs a part of it (an axis of 256 has no 8 binary subaxes by itself). A state lists,
 * for each dimension, the subaxes that cut it, and the subaxes over which the tensor is still partial.
 */
#ifndef CLEAVE_PARTITION_RESHARD_RESHARD_STATE_H
#define CLEAVE_PARTITION_RESHARD_RESHARD_STATE_H

#include "partition/reshard/reshard_planner.h"

enum {
    RESHARD_SUBAXES = CLV_MAX_SUBAXES, /* so every state is a layout; ranks allow no more */
    RESHARD_STEPS = 32,                /* steps a plan */
    RESHARD_EXPANSIONS = 2000,         /* partial states that a plan tries; then it keeps the best it has */
    RESHARD_MIXED_EXPANSIONS =
        40, /* the same where some of the axes cross hosts and some do not: bounds are less close there */
    RESHARD_MISSING_ENTRIES = 64,        /* states whose count is remembered */
    RESHARD_COLLECTIVE_EXPANSIONS = 400, /* steps that a search for named moves tries; then an exchange does it */
    RESHARD_MIXED_MOVES =
        2 /* moving steps where some of the axes that talk cross hosts: one that does, one that does not */
};

typedef uint32_t clv_subaxis_set; /* a set of subaxes, bit by index */

typedef struct clv_reshard_state {
    uint8_t n[CLV_MAX_RANK]; /* subaxes that cut a dimension, major to minor */
    uint8_t subaxis[CLV_MAX_RANK][RESHARD_SUBAXES];
    int64_t alignment[CLV_MAX_RANK];
    clv_subaxis_set cut, partial;
} clv_reshard_state;

/* Steps being planned: state[i] is what step i makes; state of the start is kept by the caller. */
typedef struct clv_reshard_draft {
    int n;
    clv_step_kind kind[RESHARD_STEPS];
    clv_reshard_state state[RESHARD_STEPS];
} clv_reshard_draft;

/* A state, and 1 more than the bytes that the neediest rank lacks of where a plan leads; 0: not counted. */
typedef struct clv_reshard_missing_entry {
    clv_reshard_state state;
    int64_t bytes;
} clv_reshard_missing_entry;

/* What the searches work in, too large for a thread's stack. */
typedef struct clv_reshard_workspace {
    clv_reshard_missing_entry missing[RESHARD_MISSING_ENTRIES];
    clv_reshard_draft path, best, trial; /* of clv_reshard_search_reductions */
    clv_reshard_draft move_path, move_best;
} clv_reshard_workspace;

/* One call of the planner. */
typedef struct clv_reshard_problem {
    clv_reshard_workspace *workspace;
    const clv_mesh *mesh;
    const int64_t *shape;
    const clv_cost_model *cost; /* NULL: bytes */
    int rank;                   /* dimensions */
    clv_dtype dtype;
    int64_t elem_size;
    clv_reduction reduction; /* how `from` is partial */
    int n_subaxes;
    clv_subaxis subaxis[RESHARD_SUBAXES];
    clv_subaxis_set inter_host;      /* whose groups cross hosts */
    double intra_host;               /* product of the sizes of the others */
    int64_t alignment[CLV_MAX_RANK]; /* of a dimension that is cut anew: that of `to` */
} clv_reshard_problem;

/* Finds the subaxes of the two layouts. False when their cuts of an axis do not nest (x:(1)2 against x:(1)3 of 6). */
bool clv_reshard_find_subaxes(clv_reshard_problem *problem, const clv_layout *from, const clv_layout *to);

/* A layout in subaxes; `partial` are only those that are subaxes of its partial axes. */
void clv_reshard_state_from_layout(clv_reshard_state *out, const clv_reshard_problem *problem,
                                   const clv_layout *layout);
clv_layout clv_reshard_state_to_layout(const clv_reshard_problem *problem, const clv_reshard_state *state);

/* Cuts dimension d by one more subaxis, as the most minor. */
void clv_reshard_append(clv_reshard_state *state, const clv_reshard_problem *problem, int d, int subaxis);
/* Takes the last `count` subaxes off dimension d. */
void clv_reshard_truncate(clv_reshard_state *state, int d, int count);

/* Whether the cuts of d are nested in the plain way: the lists of a start those of b, over the same alignment. */
bool clv_reshard_is_prefix(const clv_reshard_state *a, const clv_reshard_state *b, int d);
bool clv_reshard_equal(const clv_reshard_problem *problem, const clv_reshard_state *a, const clv_reshard_state *b);

int64_t clv_reshard_group_size(const clv_reshard_problem *problem,
                               clv_subaxis_set subaxes); /* product of their sizes */
int64_t clv_reshard_blocks(const clv_reshard_problem *problem, const clv_reshard_state *state, int d);
/* Bytes of the largest shard. */
int64_t clv_reshard_local_bytes(const clv_reshard_problem *problem, const clv_reshard_state *state);
/* Bytes that the neediest rank lacks. */
int64_t clv_reshard_missing_bytes(const clv_reshard_problem *problem, const clv_reshard_state *to,
                                  const clv_reshard_state *from);

/* Bytes of a step (docs/reshard.md has the table). */
double clv_reshard_step_bytes(const clv_reshard_problem *problem, clv_step_kind kind, const clv_reshard_state *from,
                              const clv_reshard_state *to);

/* Whether some of the subaxes whose groups talk in a step cross hosts, and others do not. */
bool clv_reshard_mixes_links(const clv_reshard_problem *problem, const clv_reshard_state *from,
                             const clv_reshard_state *to);
/* How many subaxes both cut a dimension by from the major end on. */
int clv_reshard_common_prefix(const clv_reshard_state *a, const clv_reshard_state *b, int d);

/* What is minimised, seconds or bytes: of a step of so many bytes, */
double clv_reshard_score(const clv_reshard_problem *problem, clv_step_kind kind, double bytes,
                         const clv_reshard_state *from, const clv_reshard_state *to);
/* of `bytes` in `moves` steps at the least; far: each of them crosses hosts; */
double clv_reshard_score_bound(const clv_reshard_problem *problem, double bytes, int moves, bool far);
/* and so where at least so many of the bytes do. */
double clv_reshard_score_bound_mixed_links(const clv_reshard_problem *problem, double bytes, int moves,
                                           double far_bytes);
/* Bytes a rank that come from other hosts at the least, when cuts change. Ranks that differ only in what stays inside
 * hosts, `near` of them, hold 1/n of what they are to have, on average, if `from` is cut by far subaxes of size n that
 * `to` is not cut by. */
double clv_reshard_inter_host_bytes_bound(const clv_reshard_problem *problem, clv_subaxis_set from_cut,
                                          clv_subaxis_set to_cut);

/* reshard_reduction_search.c: the best plan; both states may be partial, `to` only over what `from` is. */
void clv_reshard_search_reductions(clv_reshard_draft *draft, const clv_reshard_problem *problem,
                                   const clv_reshard_state *from, const clv_reshard_state *to);

/* reshard_collective_search.c: changes cuts only (both states partial alike): the fewest named collectives that reach
 * the lower bound, else an exchange. Appends to draft. */
void clv_reshard_search_collectives(clv_reshard_draft *draft, const clv_reshard_problem *problem,
                                    const clv_reshard_state *from, const clv_reshard_state *to);

#endif
