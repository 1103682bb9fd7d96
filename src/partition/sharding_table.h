/* sharding_table.h - the sharded graph: each op's strategy, each value's layout, each reshard. Passes edit it.
 *
 * A place is a value in one layout. Rows are in order of execution. The table and its graph are all that a program is
 * made of (lower_to_program.h): whoever fills a table by hand needs no partitioner. It knows nothing of memory or
 * collectives' groups, and takes nothing from a program: a pass that changes what was decided (recomputation, overlap,
 * stages) works on it, between the two.
 */
#ifndef CLEAVE_PARTITION_SHARDING_TABLE_H
#define CLEAVE_PARTITION_SHARDING_TABLE_H

#include "base/memory/arena.h"
#include "cleave/program.h"
#include "graph/graph.h"
#include "partition/sharding/op_strategy.h"
#include "tensor/parse_print.h"

/* Why a value changes layout. */
typedef enum clv_reshard_need {
    CLV_NEEDED_BY_OP,         /* its strategy splits the operand otherwise */
    CLV_NEEDED_BY_CONSTRAINT, /* the layout is stated */
    CLV_NEEDED_BY_GRADIENT,   /* a gradient is laid out as its primal */
    CLV_NEEDED_BY_OUTPUT,
    CLV_NEEDED_BY_STATE, /* it is assigned to state */
    CLV_NEEDED_AS_COPY,  /* state whose present value must outlive the run's assignments */
    CLV_NEED_COUNT
} clv_reshard_need;
/* "operand", "constraint", ...: clv_collective.reason. */
const char *clv_reshard_need_name(clv_reshard_need need);

/* The same for people. */
typedef struct clv_reshard_explanation {
    clv_reshard_need need;
    const char *by;                /* the op that needs it, or the output or state that it becomes */
    const char *text;              /* a sentence */
    const char *statement, *rules; /* behind it; NULL: none */
    bool implicit;                 /* nobody asked for it */
} clv_reshard_explanation;

typedef struct clv_sharded_value {
    int value;
    const clv_layout *layout; /* lives as long as the table */
    bool is_graph_input;      /* an input or a state, as it is given */
    int alias_of;             /* the place of the same elements, under a layout that cuts alike; -1: none */
    bool is_gradient;         /* of a parameter */
} clv_sharded_value;

/* What is told of a row, for clv_program_decision. Of a step the rest is in its cause. */
typedef struct clv_row_decision {
    const char *purpose, *split, *why; /* of an op */
    double seconds;
} clv_row_decision;

/* An op, or a step of a change of layout. */
typedef struct clv_sharding_row {
    const clv_op *op;             /* NULL: a step */
    const clv_strategy *strategy; /* of the op */
    int in[CLV_MAX_IN];           /* places; -1: an absent operand */
    int out[CLV_MAX_OUT];
    const clv_reshard_step *step;
    int value, from, to;                 /* of the step: what is brought from place to place */
    clv_reshard_explanation explanation; /* of the step */
    clv_comm_dtype wire_dtype;           /* how the step carries its tensor: CLV_COMM_F32: as it is. Of f32 alone */
    bool backward;                       /* of the backward pass */
    bool update;                         /* of the update of parameters */
    bool recomputed;                     /* what another row made and was not kept (recompute_activations.h) */
    int block;                           /* of the op, or of whom the step is for: clv_op.block */
    clv_row_decision decision;           /* if the table tells */
} clv_sharding_row;

/* What becomes of a state. */
typedef struct clv_state_update {
    int state;   /* the place of the state as it is given; -1: it is assigned nothing */
    int becomes; /* of what it becomes */
    clv_reshard_explanation explanation;
} clv_state_update;

typedef struct clv_sharding_table {
    clv_arena *arena;
    const clv_graph *graph;
    int n_sharded, sharded_capacity;
    clv_sharded_value *sharded;
    int n_rows, row_capacity;
    clv_sharding_row *rows;
    int *output;                /* [graph->n_outputs] places */
    clv_state_update *update;   /* [graph->n_values] */
    bool keeps_decisions;       /* clv_compile_options.keep_decisions */
    const clv_cost_model *cost; /* what is told goes by it; NULL: the default one. Borrowed */
    int n_candidates, candidate_capacity;
    clv_strategy_candidate *candidates; /* clv_compile_options.explain */
} clv_sharding_table;

/* An empty table; it lives in the arena. The graph is borrowed. */
clv_status clv_sharding_table_init(clv_sharding_table *out, clv_arena *arena, const clv_graph *graph, clv_error *err);

/* *out: the new place; alias_of is taken from `place`. */
clv_status clv_sharding_table_add_value(int *out, clv_sharding_table *table, const clv_sharded_value *place,
                                        clv_error *err);
/* Copies the row. */
clv_status clv_sharding_table_add_row(clv_sharding_table *table, const clv_sharding_row *row, clv_error *err);

/* Verifies what lowering relies on: places are of values that there are, each is made before it is read, ops and steps
 * are on the places that their strategies and layouts say, strategies are as the ops' rules allow, and outputs and
 * states become what the graph says. CLV_EINVAL names the row. */
clv_status clv_sharding_table_verify(const clv_sharding_table *table, clv_error *err);

/* Whether a place is, or is the same as, that of a state as it is given. */
bool clv_sharding_table_is_state(const clv_sharding_table *table, int place);

/* Writes the table as text, a line a place that is given and a row: "p3 = mlp.dot_general(p1, p2): model->factor 1"; as
 * snprintf does. */
size_t clv_sharding_table_print(char *out, size_t size, const clv_sharding_table *table);

#endif
