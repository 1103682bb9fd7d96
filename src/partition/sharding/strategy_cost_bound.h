/* strategy_cost_bound.h - lower bounds on the cost of partly decided strategies, for branch and bound.
 *
 * Work: what it is when the undecided subaxes split all of it. Bytes, for each operand and result, by counting
 * elements: of T bytes, a layout cut into P blocks has T/P a rank on average, and of these a rank holds at most 1/Q if
 * the other layout is cut by subaxes of size Q besides. So at least T/P * (1 - 1/Q) bytes move, whatever the shapes: a
 * mean over ranks is no more than the most. Of T bytes that are partial over n ranks, at least T/ranks * (n - 1) are
 * combined.
 */
#ifndef CLEAVE_PARTITION_SHARDING_STRATEGY_COST_BOUND_H
#define CLEAVE_PARTITION_SHARDING_STRATEGY_COST_BOUND_H

#include "partition/sharding/op_strategy.h"
#include "partition/sharding/sharding_projection.h"

/* Memo of exact counts: a trie with a level for each sub-axis. Strategies that shard a tensor alike share a count. */
typedef struct clv_missing_counts {
    int width;          /* slots of a node, one for each way that a sub-axis may shard the tensor */
    size_t n, capacity; /* nodes; the first ones are roots, one for each fixed layout */
    int64_t *slot;      /* the next sub-axis's node, or the count and 1; 0: none yet */
} clv_missing_counts;

/* The assignments of one problem under one division of the mesh axes into subaxes. */
typedef struct clv_strategy_space {
    const clv_strategy_problem *problem;
    clv_projection_context context;
    bool keep_stationary; /* operands stay in place where that is asked for */
    int n_subaxes;
    clv_subaxis subaxis[CLV_MAX_ATOMS];
    int n_choices[CLV_MAX_ATOMS]; /* what each subaxis may do, in order of preference among equal prices */
    int8_t choice[CLV_MAX_ATOMS][CLV_MAX_FACTORS + 2];
} clv_strategy_space;

/* A layout that a tensor has, or is wanted in, whatever the assignment. */
typedef struct clv_cost_bound_layout {
    int rank;
    int8_t dim[CLV_MAX_ATOMS];      /* that each subaxis cuts */
    uint32_t partial;               /* bit a: partial over subaxis a */
    double imbalance[CLV_MAX_RANK]; /* how much larger the largest block of a dimension is than the mean */
    double blocks[CLV_MAX_RANK];
} clv_cost_bound_layout;

/* One operand or result. */
typedef struct clv_cost_bound_term {
    bool result;
    int id;                           /* which operand or result */
    int first, n;                     /* its layouts: the cheapest counts; a result that is wanted nowhere has none */
    int8_t cuts[CLV_MAX_FACTORS + 2]; /* by choice + 2: the dimension that it cuts */
    uint8_t way[CLV_MAX_FACTORS + 2]; /* by choice + 2: equal for those that cut the tensor alike */
    uint32_t may_cut, may_pass;       /* bit a: subaxis a may cut the tensor; may leave it partial */
    uint8_t may_cut_dims[CLV_MAX_ATOMS]; /* by subaxis, bit d: it may cut dimension d */
    int64_t alignment[CLV_MAX_RANK];     /* that a dimension is cut by; 0: it depends on which factors are split */
} clv_cost_bound_term;

typedef struct clv_cost_bound {
    const clv_strategy_space *space;
    double ranks;
    double intra_host;                /* ranks that differ only in what stays inside hosts */
    double inter_host[CLV_MAX_ATOMS]; /* by subaxis: how many of its ranks are on different hosts */
    int n_terms;
    clv_cost_bound_term term[CLV_MAX_IN + CLV_MAX_OUT];
    clv_cost_bound_layout *layouts;
    clv_missing_counts counts; /* of missing elements, by the layout that they are, or are to be, brought from or to */
} clv_cost_bound;

clv_status clv_cost_bound_make(clv_cost_bound *out, const clv_strategy_space *space, clv_error *err);
void clv_cost_bound_free(clv_cost_bound *bound);

/* The least that assignments which begin with choice[0 .. n) cost: work, and what a term moves. */
clv_strategy_cost clv_cost_bound_work(const clv_cost_bound *bound, const int8_t *choice, int n);
clv_strategy_cost clv_cost_bound_reshard(clv_cost_bound *bound, int term, const int8_t *choice, int n);
/* All subaxes are decided: better, by counting the elements that the neediest rank lacks. */
clv_strategy_cost clv_cost_bound_exact_reshard(clv_cost_bound *bound, int term, const int8_t *choice);

#endif
