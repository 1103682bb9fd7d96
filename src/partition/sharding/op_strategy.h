/* op_strategy.h - sharding strategy of one op: mesh sub-axes to factors; its layouts, reshards and cost.
 *
 * An assignment gives each subaxis (a sub-axis that nothing at hand splits further) to a factor of the op's rule, to
 * none (the op is repeated over it), or lets operands that are partial over it pass. It fixes the layout that each
 * operand must have and that each result gets; its price is the operands' reshards, the results' way to where they are
 * wanted, and the busiest rank's work.
 */
#ifndef CLEAVE_PARTITION_SHARDING_OP_STRATEGY_H
#define CLEAVE_PARTITION_SHARDING_OP_STRATEGY_H

#include "base/memory/arena.h"
#include "cleave/graph.h"
#include "graph/op.h"
#include "partition/reshard/reshard_planner.h"
#include "program/cost/cost_model.h"
#include "tensor/parse_print.h"

enum { CLV_MAX_ATOMS = CLV_MAX_SUBAXES };

/* An subaxis's choice: a factor's index, or one of these. */
enum { CLV_CHOICE_NONE = -1, CLV_CHOICE_PARTIAL = -2 };

/* Why an assignment is not taken, whatever its price. */
typedef enum clv_refusal_kind {
    CLV_REFUSED_NONE,
    CLV_REFUSED_WHOLE,    /* `factor` must be whole */
    CLV_REFUSED_OVERFLOW, /* `factor` is cut by what spills from another factor alone, or the spilt blocks do not divide
                             */
    CLV_REFUSED_MINOR_FACTOR, /* `factor` is cut, and a more major one of its dimension is not cut down to its elements
                                 */
    CLV_REFUSED_REDUCTION,    /* a result lacks `factor`, and its parts cannot be combined (or not beside other sums) */
    CLV_REFUSED_PARTIAL,      /* partial operands do not pass over the axis */
    CLV_REFUSED_LAYOUT,       /* a dimension would need more sub-axes than a layout has */
    CLV_REFUSED_STATIONARY    /* `operand` is to stay in place over the axis */
} clv_refusal_kind;

typedef struct clv_refusal {
    clv_refusal_kind kind;
    int factor, operand;
    clv_subaxis axis;
} clv_refusal;

/* The fan-in of what is added up over parts of a step: it is reduced once, whatever becomes of this addend. */
enum { CLV_MANY_PARTIAL_SUMS = 1 << 16 };

/* What is known when an op's strategy is chosen. */
typedef struct clv_strategy_problem {
    const clv_op *op;
    const clv_mesh *mesh;
    const clv_type *in, *out; /* whole types */
    clv_rule rule;
    int n_available[CLV_MAX_IN]; /* layouts that operand i is at hand in; >= 1, 0 for an absent operand */
    const clv_layout *const *available[CLV_MAX_IN];
    uint32_t stationary_axes[CLV_MAX_IN]; /* bit a: operand i stays as available[i][0] has it over mesh axis a */
    bool has_target[CLV_MAX_OUT];         /* result o is wanted in target[o] */
    clv_layout target[CLV_MAX_OUT];
    int accumulation_count
        [CLV_MAX_OUT]; /* addends of the sum that result o goes into, itself among them: while they stay partial
                                one reduction serves all, so each bears its part of the price; >= 1 */
    uint32_t stays_partial
        [CLV_MAX_OUT]; /* of CLV_MANY_PARTIAL_SUMS: bit a: where it is wanted cut over mesh axis a, each is */
    bool idle_axes;    /* consider axes, and parts of axes, that no operand or target uses */
    bool by_bytes;     /* bytes, then work; else seconds */
    const clv_cost_model *cost;
    clv_work_rates rates; /* of the op */
    clv_reshard_cache *reshards;
    clv_refusal *refusal; /* told why an assignment is illegal; NULL: nobody asks */
} clv_strategy_problem;

/* The problem of an op, without layouts and prices. types: room for its operands and results. */
void clv_strategy_problem_init(clv_strategy_problem *problem, clv_type *types, const clv_graph *graph,
                               const clv_op *op);

typedef struct clv_strategy {
    int n_subaxes;
    clv_subaxis subaxis[CLV_MAX_ATOMS];
    int8_t choice[CLV_MAX_ATOMS];
    clv_layout in[CLV_MAX_IN]; /* what operands must have */
    clv_layout out[CLV_MAX_OUT];
    int source[CLV_MAX_IN]; /* the cheapest of available to start from; -1 for an absent operand */
    double bytes;           /* moved for operands, and to bring results where they are wanted */
    int moves;              /* collectives for that */
    double seconds;         /* of moves and of the busiest rank's work */
    double work_seconds;
} clv_strategy;

/* The cheapest strategy; ties by fewer bytes, then less work, then fewer moves, then the first in order. */
clv_status clv_strategy_choose(clv_strategy *out, const clv_strategy_problem *problem, clv_error *err);

/* ---- assignments one by one: the search's, and explain's ---- */

struct clv_projection_context;

/* Atoms in mesh order, major to minor, [CLV_MAX_ATOMS]; returns how many. One division serves all layouts, unless
 * sub-axes of some do not nest: then each division takes the parts of one layout, and of the others in order what
 * nests; -1 after the last. */
int clv_strategy_list_subaxes(clv_subaxis *subaxes, const clv_strategy_problem *problem, int division);
/* What an subaxis may do, [CLV_MAX_FACTORS + 2]; returns how many. */
int clv_strategy_list_choices(int8_t *choices, const clv_strategy_problem *problem);
/* Fills layouts and price of the assignment that s holds (n_subaxes, subaxis, choice); *legal = false when it has none,
 * or (keep) moves an operand that is to stay in place. */
clv_status clv_strategy_fill_cost(clv_strategy *s, bool *legal, const clv_strategy_problem *problem,
                                  const struct clv_projection_context *context, bool keep, clv_error *err);
/* The same in parts: layouts and work, false when there are none; then the change of layout of each operand, and the
 * way of each result to where it is wanted. */
bool clv_strategy_fill_layouts(clv_strategy *s, const clv_strategy_problem *problem,
                               const struct clv_projection_context *context, bool keep);
clv_status clv_strategy_add_operand_reshard(clv_strategy *s, const clv_strategy_problem *problem, int i,
                                            clv_error *err);
clv_status clv_strategy_add_result_reshard(clv_strategy *s, const clv_strategy_problem *problem, int o, clv_error *err);
/* The dimension that an subaxis cuts; the rank where the tensor is partial over it; -1: none. */
int clv_strategy_dim_of(const clv_layout *layout, clv_subaxis subaxis);

/* What a strategy costs, or costs at the least. */
typedef struct clv_strategy_cost {
    double seconds, bytes, work_seconds;
    int moves;
} clv_strategy_cost;

clv_strategy_cost clv_strategy_cost_of(const clv_strategy *strategy);
/* < 0: a is cheaper: by seconds (unless by_bytes), bytes, work, moves. Sums that differ by rounding are equal. */
int clv_strategy_cost_compare(const clv_strategy_cost *a, const clv_strategy_cost *b, bool by_bytes);

/* Notes why an assignment is not taken, for who asks; returns false. */
static inline bool clv_strategy_refuse(const clv_strategy_problem *problem, clv_refusal why)
{
    if (problem->refusal)
        *problem->refusal = why;
    return false;
}

/* "model->h, data->b" as snprintf does: the subaxes and what they do. */
int clv_strategy_print(char *out, size_t size, const clv_strategy *strategy, const clv_mesh *mesh);

/* "{…}, {…} -> {…}": what operands must have, and what results get. */
void clv_strategy_put_layouts(clv_text *text, const clv_op *op, const clv_strategy *strategy, const clv_mesh *mesh);

#endif
