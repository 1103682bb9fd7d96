/* op_strategy.h - sharding strategy of one op: mesh sub-axes to factors; its layouts, reshards and cost.
 *
 * A strategy assigns each sub-axis (a part of a mesh axis that no available layout divides further) to a factor of the
 * op's rule, to none (the op is replicated over it), or keeps operands partial over it. This fixes the layout that each
 * operand must have and that each result gets. The cost is that of the operands' reshards from the available layouts,
 * of the results' reshards to their target layouts, and of the work of the slowest rank.
 */
#pragma once

#include "base/memory/arena.h"
#include "cleave/graph.h"
#include "graph/op.h"
#include "partition/reshard/reshard_planner.h"
#include "program/cost/cost_model.h"
#include "tensor/parse_print.h"

/* The choice for a sub-axis: index of a factor, or one of these. */
enum { CLV_CHOICE_NONE = -1, CLV_CHOICE_PARTIAL = -2 };

/* Why an assignment is illegal. */
typedef enum clv_refusal_kind {
    CLV_REFUSED_NONE,
    CLV_REFUSED_WHOLE,        /* `factor` must not be split */
    CLV_REFUSED_OVERFLOW,     /* `factor` only takes the remainder of another factor, or that does not divide */
    CLV_REFUSED_MINOR_FACTOR, /* `factor` is split, but the one before it in a dimension not into single elements */
    CLV_REFUSED_REDUCTION,    /* a result lacks `factor`, and its parts have no reduction, or another than other factors
                                 */
    CLV_REFUSED_PARTIAL,      /* the op does not keep operands partial over the axis */
    CLV_REFUSED_LAYOUT,       /* a dimension would need more sub-axes than a layout has */
    CLV_REFUSED_STATIONARY    /* `operand` is stationary over the axis */
} clv_refusal_kind;

typedef struct clv_refusal {
    clv_refusal_kind kind;
    int factor, operand;
    clv_subaxis axis;
} clv_refusal;

/* An accumulation count: the sum has so many other terms, such as microbatches, that the reduction costs this one
 * nothing. */
enum { CLV_MANY_PARTIAL_SUMS = 1 << 16 };

/* Input of the search for an op's strategy. */
typedef struct clv_strategy_problem {
    const clv_op *op;
    const clv_mesh *mesh;
    const clv_type *in, *out; /* global types */
    clv_rule rule;
    int n_available[CLV_MAX_IN]; /* layouts in which operand i is available; >= 1, 0 for an absent operand */
    const clv_layout *const *available[CLV_MAX_IN];
    uint32_t stationary_axes[CLV_MAX_IN]; /* bit a: over mesh axis a operand i stays as in available[i][0] */
    bool has_target[CLV_MAX_OUT];
    clv_layout target[CLV_MAX_OUT];
    int accumulation_count[CLV_MAX_OUT]; /* terms of the sum that result o is part of, itself included: they share the
                                            cost of one reduction while they stay partial; >= 1 */
    uint32_t stays_partial[CLV_MAX_OUT]; /* for CLV_MANY_PARTIAL_SUMS, bit a: the target's sharding over mesh axis a is
                                            kept by every partial sum */
    bool idle_axes;                      /* consider axes, and parts of axes, that no operand or target uses */
    bool by_bytes;                       /* minimise bytes, then work; else seconds */
    const clv_cost_model *cost;
    clv_work_rates rates; /* of the op */
    clv_reshard_cache *reshards;
    clv_refusal *refusal; /* out: why an assignment is illegal; may be NULL */
} clv_strategy_problem;

/* Makes the problem of an op, without layouts and costs. types: room for its operands and results. */
void clv_strategy_problem_init(clv_strategy_problem *problem, clv_type *types, const clv_graph *graph,
                               const clv_op *op);

typedef struct clv_strategy {
    int n_subaxes;
    clv_subaxis subaxis[CLV_MAX_SUBAXES];
    int8_t choice[CLV_MAX_SUBAXES];
    clv_layout in[CLV_MAX_IN]; /* the layouts that operands must have */
    clv_layout out[CLV_MAX_OUT];
    int source[CLV_MAX_IN]; /* the available layout from which the reshard is cheapest; -1 for an absent operand */
    double bytes;           /* of the reshards of operands and results */
    int moves;              /* collectives of these */
    double seconds;         /* of these and of the work */
    double work_seconds;
} clv_strategy;

/* The cheapest strategy; of equals that with fewer bytes, less work, fewer collectives, the first in order. */
clv_status clv_strategy_choose(clv_strategy *out, const clv_strategy_problem *problem, clv_error *err);

/* ---- single assignments, for the search and for explanations ---- */

struct clv_projection_context;

/* Lists the sub-axes in mesh order, major to minor, [CLV_MAX_SUBAXES]. @return their number; -1 after the last
 * division. One division serves all layouts, unless their sub-axes do not nest: then each division takes the sub-axes
 * of one layout, and of the others those that nest. */
int clv_strategy_list_subaxes(clv_subaxis *subaxes, const clv_strategy_problem *problem, int division);
/* Lists the choices for a sub-axis, [CLV_MAX_FACTORS + 2]. @return their number */
int clv_strategy_list_choices(int8_t *choices, const clv_strategy_problem *problem);
/* Fills layouts and cost of the assignment in s (n_subaxes, subaxis, choice); *legal: false if it is illegal, or (keep)
 * moves a stationary operand. */
clv_status clv_strategy_fill_cost(clv_strategy *s, bool *legal, const clv_strategy_problem *problem,
                                  const struct clv_projection_context *context, bool keep, clv_error *err);
/* The same in parts: layouts and work (false: illegal); then the reshard of each operand, and of each result to its
 * target. */
bool clv_strategy_fill_layouts(clv_strategy *s, const clv_strategy_problem *problem,
                               const struct clv_projection_context *context, bool keep);
clv_status clv_strategy_add_operand_reshard(clv_strategy *s, const clv_strategy_problem *problem, int i,
                                            clv_error *err);
clv_status clv_strategy_add_result_reshard(clv_strategy *s, const clv_strategy_problem *problem, int o, clv_error *err);
/* The dimension that a sub-axis shards; the rank if the tensor is partial over it; -1: none. */
int clv_strategy_dim_of(const clv_layout *layout, clv_subaxis subaxis);

/* Cost of a strategy, or a lower bound of it. */
typedef struct clv_strategy_cost {
    double seconds, bytes, work_seconds;
    int moves;
} clv_strategy_cost;

clv_strategy_cost clv_strategy_cost_of(const clv_strategy *strategy);
/* < 0: a is cheaper: by seconds (unless by_bytes), bytes, work, moves. Costs that differ by rounding are equal. */
int clv_strategy_cost_compare(const clv_strategy_cost *a, const clv_strategy_cost *b, bool by_bytes);

/* Reports why an assignment is illegal; returns false. */
static inline bool clv_strategy_refuse(const clv_strategy_problem *problem, clv_refusal why)
{
    if (problem->refusal)
        *problem->refusal = why;
    return false;
}

/* Prints the assignment, "model->factor 1, data->factor 0", as snprintf does. */
int clv_strategy_print(char *out, size_t size, const clv_strategy *strategy, const clv_mesh *mesh);

/* Appends the layouts of operands and results: "{…}, {…} -> {…}". */
void clv_strategy_put_layouts(clv_text *text, const clv_op *op, const clv_strategy *strategy, const clv_mesh *mesh);
