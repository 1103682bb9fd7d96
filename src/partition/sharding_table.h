/* sharding_table.h - the partitioner's IR: rows of ops with their strategies, and of steps that reshard values.
 *
 * A sharded value is a value of the graph in one layout; rows are in order of execution and name sharded values by
 * index. A program is made from the table and its graph alone (clv_lower_to_program), so tests may fill a table without
 * a partitioner. The table knows nothing of memory or groups of collectives.
 */
#pragma once

#include "base/memory/arena.h"
#include "cleave/program.h"
#include "graph/graph.h"
#include "partition/sharding/op_strategy.h"

/* What needs a value in another layout. */
typedef enum clv_reshard_need {
    CLV_NEEDED_BY_OP,         /* an operand of an op */
    CLV_NEEDED_BY_CONSTRAINT, /* a stated layout */
    CLV_NEEDED_BY_GRADIENT,   /* a gradient, which is laid out as its primal */
    CLV_NEEDED_BY_OUTPUT,
    CLV_NEEDED_BY_STATE, /* the value is assigned to state */
    CLV_NEEDED_AS_COPY,  /* state that is returned, or assigned to other state: this run may overwrite it */
    CLV_NEED_COUNT
} clv_reshard_need;
/* "operand", "constraint", ...: clv_collective.reason. */
const char *clv_reshard_need_name(clv_reshard_need need);

/* Why a value is resharded, for people. */
typedef struct clv_reshard_explanation {
    clv_reshard_need need;
    const char *by;                 /* the op, output or state that needs it */
    const char *text;               /* a sentence: clv_collective.cause */
    const char *statement, *rules;  /* as in clv_collective; NULL: none */
    bool implicit;                  /* as in clv_collective */
    clv_collective_purpose purpose; /* likewise */
} clv_reshard_explanation;

/* A value in one layout. */
typedef struct clv_sharded_value {
    int value;
    const clv_layout *layout; /* lives as long as the table */
    bool is_graph_input;      /* an input or state */
    int alias_of;             /* the sharded value of the same elements in an equivalent layout; -1: none */
    bool is_gradient;         /* of a parameter */
} clv_sharded_value;

/* Texts and time of a row for clv_partition_decision; of a step only the time. */
typedef struct clv_row_decision {
    const char *purpose, *split, *why;
    double seconds;
} clv_row_decision;

/* An op with its strategy, or one step of a reshard. */
typedef struct clv_sharding_row {
    const clv_op *op; /* NULL: a step */
    const clv_strategy *strategy;
    int in[CLV_MAX_IN]; /* sharded values; -1: an absent operand */
    int out[CLV_MAX_OUT];
    const clv_reshard_step *step;
    int value, from, to;                 /* of a step: the value, and its sharded values before and after */
    clv_reshard_explanation explanation; /* of a step */
    clv_comm_dtype wire_dtype;           /* of a step, of f32: CLV_COMM_F32 is not compressed */
    bool backward, update;               /* the row's pass */
    bool recomputed;                     /* repeats a row of the forward pass */
    int block;                           /* clv_op.block of the op, or of the reader of the step */
    uint32_t stages;                     /* bit s: ranks of pipeline stage s run it; 0: all ranks do */
    clv_row_decision decision;           /* if the table keeps decisions */
} clv_sharding_row;

/* The new value of a state. */
typedef struct clv_state_update {
    int state;   /* sharded value of the state before the run; -1: it is not assigned */
    int becomes; /* sharded value that is assigned */
    clv_reshard_explanation explanation;
} clv_state_update;

typedef struct clv_sharding_table {
    clv_arena *arena;
    const clv_graph *graph;
    int n_sharded, sharded_capacity;
    clv_sharded_value *sharded;
    int n_rows, row_capacity;
    clv_sharding_row *rows;
    int *output;                /* [graph->n_outputs] sharded values */
    clv_state_update *update;   /* [graph->n_values] */
    bool keeps_decisions;       /* clv_compile_options.keep_decisions */
    bool is_priced;             /* of a program that nobody gets: it is not verified, and explanations have no texts */
    const clv_cost_model *cost; /* for the times of decisions; NULL: the default one. Borrowed */
    int n_candidates, candidate_capacity;
    clv_strategy_candidate *candidates; /* clv_compile_options.explain */
} clv_sharding_table;

/* Makes an empty table, which lives in the arena. The graph is borrowed. */
clv_status clv_sharding_table_init(clv_sharding_table *out, clv_arena *arena, const clv_graph *graph, clv_error *err);

/* Adds a sharded value; *out: its index. */
clv_status clv_sharding_table_add_value(int *out, clv_sharding_table *table, const clv_sharded_value *value,
                                        clv_error *err);
/* Appends a copy of the row. */
clv_status clv_sharding_table_add_row(clv_sharding_table *table, const clv_sharding_row *row, clv_error *err);

/* The sharded values that a row reads (some may be -1), and that it makes. */
static inline const int *clv_sharding_row_reads(int *n, const clv_sharding_row *row)
{
    *n = row->op ? row->op->n_in : 1;
    return row->op ? row->in : &row->from;
}
static inline const int *clv_sharding_row_makes(int *n, const clv_sharding_row *row)
{
    *n = row->op ? row->op->n_out : 1;
    return row->op ? row->out : &row->to;
}
/* The sharded value that this one is an alias of; itself. */
static inline int clv_sharding_table_root(const clv_sharding_table *table, int sharded)
{
    return table->sharded[sharded].alias_of >= 0 ? table->sharded[sharded].alias_of : sharded;
}
/* Whether it is state before the run, or an alias of that. */
bool clv_sharding_table_is_state(const clv_sharding_table *table, int sharded);

/* verify_sharding_table.c. Verifies what lowering relies on: sharded values are made once and before they are read,
 * layouts are as strategies and steps say, strategies are legal by the ops' rules, and outputs and state become what
 * the graph says. CLV_EINVAL names the row. */
clv_status clv_sharding_table_verify(const clv_sharding_table *table, clv_error *err);

/* Prints the table as snprintf does, a line for each graph input and each row: "%3 {x,_} = mlp.dot_general(%1, %2):
 * model->factor 1". */
size_t clv_sharding_table_print(char *out, size_t size, const clv_sharding_table *table);
