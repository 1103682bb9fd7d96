/* partitioner.h - the compiler's working state, shared by the passes: available layouts, target layouts, options. */
#ifndef CLEAVE_PARTITION_PARTITIONER_H
#define CLEAVE_PARTITION_PARTITIONER_H

#include "graph/graph.h"
#include "partition/reshard/reshard_planner.h"
#include "partition/sharding/strategy_cache.h"
#include "partition/sharding_table.h"
#include "tensor/parse_print.h"

/* Why a value changes layout, as assign knows it; explain_reshards.c makes a clv_reshard_explanation of it. */
typedef struct clv_reshard_reason {
    clv_reshard_need need;
    const char *by;               /* the op that needs it, or the output or state that it becomes */
    const clv_op *reader;         /* the op or constraint */
    const clv_strategy *strategy; /* of reader, an op */
    const clv_rule *rule;         /* of reader, an op: the op in hand */
    int operand;                  /* of reader, an op */
    const clv_layout *to;         /* constraint, output */
    bool stated;                  /* output: its layout was */
    int state;                    /* the value of the state */
} clv_reshard_reason;

/* Where a value is at hand: places, each in its layout. The first is as it was made. */
typedef struct clv_available_layouts {
    int n, capacity;
    int *place;
    int n_forward; /* of those, made by the forward pass */
    uint32_t kept; /* bit a: not to be moved over mesh axis a, as stated of it or of the state that it becomes */
    bool wanted;
    clv_layout target;
    int accumulation_count;              /* addends of the sum that the value goes into, see clv_strategy_problem */
    const char *dim_names[CLV_MAX_RANK]; /* NULL: no name is known */
    int sum;                             /* the outermost sum that the value is an addend of and nothing else; itself */
    int becomes;                         /* the constrained cotangent that the value, or its sum, becomes; 0 */
    bool leaves;                         /* it is an output, or assigned to state */
} clv_available_layouts;

typedef struct clv_partitioner {
    const clv_graph *graph;
    clv_arena *scratch;
    const clv_cost_model *cost;
    clv_reshard_cache *reshards;
    clv_strategy_cache *memo;
    const clv_compile_options *options;
    clv_available_layouts *placements; /* [n_values] */
    bool *live_op;                     /* [n_ops] */
    clv_sharding_table table;
    int *row_of;                               /* [n_ops] in the table; -1: none yet, or a constraint */
    int *first_reader;                         /* [n_values + 1] into readers */
    int *readers;                              /* live ops by the values that they read, once an operand */
    bool backward;                             /* the op in hand is of the backward pass */
    bool update;                               /* or of the update of parameters */
    int block;                                 /* of the op in hand */
    const char *factor_names[CLV_MAX_FACTORS]; /* of the op in hand; NULL: no name is known */
} clv_partitioner;

/* compile.c: whether enums of the options are in range. @return CLV_EDTYPE or CLV_EINVAL, a message that begins with
 * `what` */
clv_status clv_compile_options_check(const clv_compile_options *options, const char *what, clv_error *err);

/* ---- propagate_layouts.c: what is asked of values before any op is split ---- */

clv_status clv_partition_mark_live_ops(clv_partitioner *p, clv_error *err);
void clv_partition_propagate_layouts(clv_partitioner *p);
clv_status clv_partition_find_readers(clv_partitioner *p, clv_error *err);
/* Sums of sums whose inner results nobody else reads: gradients that fan in. */
void clv_partition_count_accumulations(clv_partitioner *p);

/* ---- keep_gradients_partial.c ---- */

/* Whether a result's addends are to stay apart, and in which layout, whatever way the op is split. */
bool clv_partition_keeps_gradient_partial(clv_layout *out, const clv_partitioner *p, const clv_op *op, int result);

/* ---- strategy_problem.c ---- */

/* The problem of an op, without layouts. types: room for its operands and results. */
void clv_partition_init_problem(clv_strategy_problem *problem, clv_type *types, const clv_partitioner *p,
                                const clv_op *op);

/* ---- the pass ---- */

/* Makes a partitioner ready that has a graph, scratch, options and cost: an empty table, and what is wanted where. */
clv_status clv_partitioner_init(clv_partitioner *p, clv_error *err);
/* choose_strategies.c: fills the table. */
clv_status clv_partition_choose_strategies(clv_partitioner *p, clv_error *err);

/* ---- insert_reshards.c: where values are while ops are assigned ---- */

static inline const clv_layout *clv_partition_layout_of(const clv_partitioner *p, int place)
{
    return p->table.places[place].layout;
}
/* Notes that a value is at hand in a place. */
clv_status clv_partition_add_available(clv_partitioner *p, int value, int place, clv_error *err);
/* The places that an op may read a value from, at least one, and their layouts. The backward pass, when it is to gather
 * again, does not see what the forward pass made for its own use. */
clv_status clv_partition_available_layouts(const int **places, const clv_layout *const **layouts, int *n,
                                           clv_partitioner *p, int value, clv_error *err);
/* A step of a value from *place, which becomes the new one. The step is borrowed while the table lives. */
clv_status clv_partition_insert_step(int *place, clv_partitioner *p, const clv_reshard_step *step, int value,
                                     const clv_reshard_reason *why, clv_error *err);
/* Brings a value to a layout and notes every layout passed on the way as at hand. */
clv_status clv_partition_insert_reshard(int *out, clv_partitioner *p, int value, const clv_layout *to,
                                        const clv_reshard_reason *why, clv_error *err);

/* ---- dimension_names.c: what dimensions are called ---- */

/* Fills p->factor_names for the op in hand. */
void clv_partition_name_factors(clv_partitioner *p, const clv_op *op, const clv_rule *rule);
/* Names the dimensions of the op's results by them. */
void clv_partition_name_results(clv_partitioner *p, const clv_op *op, const clv_rule *rule);
/* Names the dimensions of a value by what was stated of it, else as those of `like` (0: none). */
void clv_partition_name_as_stated(clv_partitioner *p, int value, int like);

/* ---- explain_reshards.c: sentences ---- */

/* "heads"; "batch over data, heads over model"; "gradient of mlp.down.weight". Of the op in hand. */
void clv_partition_put_factor(clv_text *t, const clv_partitioner *p, const clv_op *op, const clv_rule *rule, int f);
void clv_partition_put_split(clv_text *t, const clv_partitioner *p, const clv_op *op, const clv_rule *rule,
                             const clv_strategy *strategy);
/* "the residual stream", "input x", "mlp.up.weight", "the result of mlp.dot_general", "the gradient of mlp.up.bias". */
void clv_partition_put_value(clv_text *t, const clv_partitioner *p, int value);
void clv_partition_put_result(clv_text *t, const clv_partitioner *p, const clv_op *op);
/* Why an op is split as it is: the statements that its axes come from. */
void clv_partition_put_choice(clv_text *t, const clv_partitioner *p, const clv_strategy_problem *problem,
                              const clv_strategy *strategy);
/* The cause of a step of a value; of a constraint without one, what it states. */
clv_status clv_partition_explain_step(clv_reshard_explanation *out, const clv_partitioner *p,
                                      const clv_reshard_reason *why, const clv_reshard_step *step, int value,
                                      clv_error *err);

/* ---- explain_candidates.c: what was considered, and what was chosen ---- */

bool clv_partition_is_explained(const clv_partitioner *p, const clv_op *op);
/* Keeps what a constraint states; the table's rows from first_row on are the steps that it took. */
clv_status clv_partition_explain_constraint(clv_partitioner *p, const clv_op *op, const clv_reshard_reason *why,
                                            int first_row, clv_error *err);
/* Keeps what can be done with the op, with prices. */
clv_status clv_partition_record_candidates(clv_partitioner *p, const clv_strategy_problem *problem,
                                           const clv_strategy *chosen, clv_error *err);
/* Fills what a row tells of an op. */
clv_status clv_partition_record_decision(clv_sharding_row *row, clv_partitioner *p, const clv_strategy_problem *problem,
                                         clv_error *err);

#endif
