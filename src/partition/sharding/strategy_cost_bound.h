/* strategy_cost_bound.h - lower bounds on the cost of partly decided strategies, for branch and bound.
 *
 * Work: the bound assumes that the undecided sub-axes split all of it. Bytes, by counting elements: of a tensor of T
 * bytes, a layout of P blocks has T/P a rank on average, and at most 1/Q of these are there already if the other layout
 * is sharded by further sub-axes of size Q. So at least T/P * (1 - 1/Q) bytes move, whatever the shapes: a mean over
 * ranks is no more than the maximum. Of T bytes that are partial over n ranks, at least T/ranks * (n - 1) are reduced.
 */
#pragma once

#include "partition/sharding/op_strategy.h"
#include "partition/sharding/sharding_projection.h"

/* Memo of exact counts: a trie with a level for each sub-axis. Strategies that shard a tensor alike share a count. */
typedef struct clv_missing_counts {
    int width;          /* slots of a node, one for each way that a sub-axis may shard the tensor */
    size_t n, capacity; /* nodes; the first ones are roots, one for each fixed layout */
    int64_t *slot;      /* the next sub-axis's node, or the count and 1; 0: none yet */
} clv_missing_counts;

/* The assignments of one problem under one division of the mesh axes. */
typedef struct clv_strategy_space {
    const clv_strategy_problem *problem;
    clv_projection_context context;
    bool keep_stationary; /* only assignments that move no stationary operand */
    int n_subaxes;
    clv_subaxis subaxis[CLV_MAX_SUBAXES];
    int n_choices[CLV_MAX_SUBAXES]; /* choices for each sub-axis, in order of preference among equal costs */
    int8_t choice[CLV_MAX_SUBAXES][CLV_MAX_FACTORS + 2];
} clv_strategy_space;

/* A fixed layout of a tensor: available, or a target. */
typedef struct clv_cost_bound_layout {
    int rank;
    int8_t dim[CLV_MAX_SUBAXES];    /* the dimension that each sub-axis shards */
    uint32_t partial;               /* bit a: partial over sub-axis a */
    double imbalance[CLV_MAX_RANK]; /* largest block of a dimension, relative to the mean */
    double blocks[CLV_MAX_RANK];
} clv_cost_bound_layout;

/* A term of the cost: the reshard of one operand or result. */
typedef struct clv_cost_bound_term {
    bool result;
    int id;       /* index of the operand or result */
    int first, n; /* its fixed layouts, of which the cheapest counts; none for a result without a target */
    int8_t cuts[CLV_MAX_FACTORS + 2];      /* by choice + 2: the dimension that it shards */
    uint8_t way[CLV_MAX_FACTORS + 2];      /* by choice + 2: equal for choices that shard the tensor alike */
    uint32_t may_cut, may_pass;            /* bit a: sub-axis a may shard the tensor; may leave it partial */
    uint8_t may_cut_dims[CLV_MAX_SUBAXES]; /* by sub-axis, bit d: it may shard dimension d */
    int64_t alignment[CLV_MAX_RANK];       /* of each dimension; 0: it depends on the choices */
} clv_cost_bound_term;

typedef struct clv_cost_bound {
    const clv_strategy_space *space;
    double ranks;
    double intra_host;                  /* ranks that differ only in sub-axes inside hosts */
    double inter_host[CLV_MAX_SUBAXES]; /* by sub-axis: how many of its ranks are on different hosts */
    int n_terms;
    clv_cost_bound_term term[CLV_MAX_IN + CLV_MAX_OUT];
    clv_cost_bound_layout *layouts;
    clv_missing_counts counts; /* of missing elements, by fixed layout */
} clv_cost_bound;

clv_status clv_cost_bound_make(clv_cost_bound *out, const clv_strategy_space *space, clv_error *err);
void clv_cost_bound_free(clv_cost_bound *bound);

/* Lower bounds over all assignments that begin with choice[0 .. n): of the work, and of the reshard of a term. */
clv_strategy_cost clv_cost_bound_work(const clv_cost_bound *bound, const int8_t *choice, int n);
clv_strategy_cost clv_cost_bound_reshard(clv_cost_bound *bound, int term, const int8_t *choice, int n);
/* A better bound for a complete assignment, from the exact count of missing elements. */
clv_strategy_cost clv_cost_bound_exact_reshard(clv_cost_bound *bound, int term, const int8_t *choice);
