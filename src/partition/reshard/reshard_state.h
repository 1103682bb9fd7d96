/* reshard_state.h - the reshard search's state: a layout as sub-axes per dimension, with byte counts and bounds.
 *
 * Here a sub-axis is a part of a mesh axis that the plan never divides further: a whole axis, unless `from`, `to` or
 * the matching of their block counts needs a part of it (axis_division.h). A state lists the sub-axes that shard each
 * dimension, and those over which the tensor is still partial, by their indices in the problem.
 */
#pragma once

#include "partition/reshard/reshard_planner.h"

enum {
    RESHARD_STEPS = 32,                  /* steps of a plan */
    RESHARD_EXPANSIONS = 2000,           /* partial states that a search visits before it takes the best plan so far */
    RESHARD_MIXED_EXPANSIONS = 40,       /* the same if only some axes cross hosts, where bounds are looser */
    RESHARD_MISSING_ENTRIES = 64,        /* slots of the cache of missing bytes */
    RESHARD_COLLECTIVE_EXPANSIONS = 400, /* steps that a search for named collectives tries before it uses exchange */
    RESHARD_MIXED_MOVES = 2              /* its collectives, if only some axes cross hosts; one more may go first */
};

typedef uint32_t clv_subaxis_set; /* a set of sub-axes, bit by index */

typedef struct clv_reshard_state {
    uint8_t n[CLV_MAX_RANK]; /* number of sub-axes that shard a dimension, major to minor */
    uint8_t subaxis[CLV_MAX_RANK][CLV_MAX_SUBAXES];
    int64_t alignment[CLV_MAX_RANK];
    clv_subaxis_set cut, partial; /* sub-axes that shard some dimension; sub-axes of partial values */
} clv_reshard_state;

/* A sequence of steps: step i leads to state[i], from state[i - 1] or the start, which the caller keeps. */
typedef struct clv_reshard_draft {
    int n;
    clv_step_kind kind[RESHARD_STEPS];
    clv_reshard_state state[RESHARD_STEPS];
    double bytes[RESHARD_STEPS], score[RESHARD_STEPS];
} clv_reshard_draft;

/* A cache slot: a state, and 1 + the missing bytes from there to the target; 0: empty. */
typedef struct clv_reshard_missing_entry {
    clv_reshard_state state;
    int64_t bytes;
} clv_reshard_missing_entry;

/* Memory of the searches, too large for a thread's stack. */
typedef struct clv_reshard_workspace {
    clv_reshard_missing_entry missing[RESHARD_MISSING_ENTRIES];
    clv_reshard_draft path, best, trial; /* of clv_reshard_search_reductions */
    clv_reshard_draft move_path, move_best;
} clv_reshard_workspace;

/* Arguments of one call of the planner. */
typedef struct clv_reshard_problem {
    clv_reshard_workspace *workspace;
    const clv_mesh *mesh;
    const int64_t *shape;
    const clv_cost_model *cost; /* NULL: minimise bytes */
    int rank;                   /* number of dimensions */
    clv_dtype dtype;
    int64_t elem_size;
    clv_reduction reduction; /* of the partial axes of `from` */
    int n_subaxes;
    clv_subaxis subaxis[CLV_MAX_SUBAXES];
    clv_subaxis_set inter_host;      /* sub-axes whose groups span hosts */
    double intra_host;               /* product of the sizes of the others */
    int64_t alignment[CLV_MAX_RANK]; /* of a dimension that gets sharded: that of `to` */
} clv_reshard_problem;

/* Finds the sub-axes of the two layouts. False if they do not nest (x:(1)2 and x:(1)3 of 6). */
bool clv_reshard_find_subaxes(clv_reshard_problem *problem, const clv_layout *from, const clv_layout *to);

/* Converts between layouts and states. */
void clv_reshard_state_from_layout(clv_reshard_state *out, const clv_reshard_problem *problem,
                                   const clv_layout *layout);
clv_layout clv_reshard_state_to_layout(const clv_reshard_problem *problem, const clv_reshard_state *state);

/* Shards dimension d by one more sub-axis, as the innermost. */
void clv_reshard_state_append(clv_reshard_state *state, const clv_reshard_problem *problem, int d, int subaxis);
/* Removes the innermost `count` sub-axes of dimension d. */
void clv_reshard_state_truncate(clv_reshard_state *state, int d, int count);

/* Whether dimension d of `a` is sharded by a prefix of the sub-axes of `b`, over the same alignment. */
bool clv_reshard_state_is_prefix(const clv_reshard_state *a, const clv_reshard_state *b, int d);
bool clv_reshard_state_equal(const clv_reshard_problem *problem, const clv_reshard_state *a,
                             const clv_reshard_state *b);
/* Length of the common prefix of the sub-axes of dimension d. */
int clv_reshard_state_common_prefix(const clv_reshard_state *a, const clv_reshard_state *b, int d);

/* Product of the sizes of a set of sub-axes. */
int64_t clv_reshard_group_size(const clv_reshard_problem *problem, clv_subaxis_set subaxes);
/* Number of blocks of dimension d. */
int64_t clv_reshard_blocks(const clv_reshard_problem *problem, const clv_reshard_state *state, int d);
/* Bytes of the largest shard. */
int64_t clv_reshard_local_bytes(const clv_reshard_problem *problem, const clv_reshard_state *state);
/* Bytes of `to` that a rank lacks under `from`, maximum over ranks. */
int64_t clv_reshard_missing_bytes(const clv_reshard_problem *problem, const clv_reshard_state *to,
                                  const clv_reshard_state *from);

/* Bytes of a step (docs/reshard.md has the table). */
double clv_reshard_step_bytes(const clv_reshard_problem *problem, clv_step_kind kind, const clv_reshard_state *from,
                              const clv_reshard_state *to);
/* Whether some of the sub-axes of a step's groups cross hosts, and others do not. */
bool clv_reshard_mixes_links(const clv_reshard_problem *problem, const clv_reshard_state *from,
                             const clv_reshard_state *to);

/* The minimised quantity, seconds or bytes, of a step of so many bytes. */
double clv_reshard_score(const clv_reshard_problem *problem, clv_step_kind kind, double bytes,
                         const clv_reshard_state *from, const clv_reshard_state *to);
/* A lower bound of it for `bytes` in at least `moves` steps, of which network_bytes or more cross hosts. */
double clv_reshard_score_bound(const clv_reshard_problem *problem, double bytes, int moves, double network_bytes);
/* A lower bound of the bytes that a rank receives from other hosts when sharding changes. Ranks that differ only in
 * sub-axes inside hosts, intra_host of them, hold on average 1/n of what they need, if `from` is sharded by inter-host
 * sub-axes of size n that `to` lacks. */
double clv_reshard_inter_host_bytes_bound(const clv_reshard_problem *problem, clv_subaxis_set from_cut,
                                          clv_subaxis_set to_cut);

/* Appends a step of so many bytes from the state `from`, the last one of the draft. */
void clv_reshard_draft_push(clv_reshard_draft *draft, const clv_reshard_problem *problem, clv_step_kind kind,
                            const clv_reshard_state *from, const clv_reshard_state *to, double bytes);

/* reshard_reduction_search.c: the best plan; both states may be partial, `to` only over sub-axes of `from`. */
void clv_reshard_search_reductions(clv_reshard_draft *draft, const clv_reshard_problem *problem,
                                   const clv_reshard_state *from, const clv_reshard_state *to);

/* reshard_collective_search.c: appends to a draft, which begins at `start`, the fewest named collectives that reach the
 * lower bound, else an exchange; the draft's last state and `to` are partial over the same sub-axes. */
void clv_reshard_search_collectives(clv_reshard_draft *draft, const clv_reshard_problem *problem,
                                    const clv_reshard_state *start, const clv_reshard_state *to);
