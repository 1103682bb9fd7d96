/* assignment.h - what the first pass of clv_compile decides, as a table that the second reads: for each op a strategy
 * and places of its operands and results, and each change of layout between.
 *
 * A place is a value in one layout. Rows are in order of execution. The table knows nothing of memory or collectives'
 * groups, and takes nothing from a program: a pass that changes what was decided (recomputation, overlap, stages) works
 * on it, between the two.
 */
#ifndef CLEAVE_PARTITION_ASSIGNMENT_H
#define CLEAVE_PARTITION_ASSIGNMENT_H

#include "base/arena.h"
#include "graph/graph.h"
#include "partition/strategy.h"
#include "tensor/text.h"

/* Why a value changes layout. */
typedef enum clv_need {
    CLV_NEEDED_BY_OP,         /* its strategy splits the operand otherwise */
    CLV_NEEDED_BY_CONSTRAINT, /* the layout is stated */
    CLV_NEEDED_BY_GRADIENT,   /* a gradient is laid out as its primal */
    CLV_NEEDED_BY_OUTPUT,
    CLV_NEEDED_BY_STATE, /* it is assigned to state */
    CLV_NEEDED_AS_COPY   /* state whose present value must outlive the run's assignments */
} clv_need;

typedef struct clv_reason {
    clv_need kind;
    const char *op;               /* that needs it, or the output or state that it becomes */
    const clv_op *reader;         /* the op or constraint */
    const clv_strategy *strategy; /* of reader, an op */
    const clv_rule *rule;         /* of reader, an op, once it is told */
    int operand;                  /* of reader, an op */
    const clv_layout *to;         /* constraint, output */
    bool stated;                  /* output: its layout was */
    int state;                    /* the value of the state */
} clv_reason;

typedef struct clv_place {
    int value;
    const clv_layout *layout; /* lives as long as the table */
    bool named;               /* an input or a state, as it is given */
    int same_as;              /* the place of the same elements, under a layout that cuts alike; -1: none */
    bool gradient;            /* of a parameter */
} clv_place;

/* A row: an op, or a step of a change of layout. */
typedef struct clv_assigned {
    const clv_op *op;             /* NULL: a step */
    const clv_strategy *strategy; /* of the op */
    int in[CLV_MAX_IN];           /* places; -1: an absent operand */
    int out[CLV_MAX_OUT];
    const clv_reshard_step *step;
    int value, from, to; /* of the step: what is brought from place to place */
    clv_reason why;      /* of the step */
    bool backward;       /* of the backward pass */
} clv_assigned;

typedef struct clv_assignment {
    clv_arena *arena;
    const clv_graph *graph;
    int n_places, place_capacity;
    clv_place *places;
    int n_rows, row_capacity;
    clv_assigned *rows;
    int *output; /* [graph->n_outputs] places */
    int *update; /* [graph->n_values] the place of what becomes of a state; -1: it is assigned nothing */
} clv_assignment;

/* An empty table; it lives in the arena. The graph is borrowed. */
clv_status clv_assignment_make(clv_assignment *out, clv_arena *arena, const clv_graph *graph, clv_error *err);

/* *out: the new place; same_as is taken from `place`. */
clv_status clv_assignment_add_place(int *out, clv_assignment *table, const clv_place *place, clv_error *err);
/* Copies the row. */
clv_status clv_assignment_add_row(clv_assignment *table, const clv_assigned *row, clv_error *err);

/* Whether a place is, or is the same as, that of a state as it is given. */
bool clv_assignment_is_state(const clv_assignment *table, int place);

/* Writes the table as text, a line a place that is given and a row: "p3 = mlp.dot_general(p1, p2): model->factor 1"; as
 * snprintf does. */
size_t clv_assignment_print(char *out, size_t size, const clv_assignment *table);

#endif
