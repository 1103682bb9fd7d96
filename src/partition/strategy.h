/* strategy.h - which axes split which factors of one op.
 *
 * An assignment gives each atom (a sub-axis that nothing at hand splits further) to a factor of the op's rule, to none
 * (the op is repeated over it), or lets operands that are partial over it pass. It fixes the layout that each operand
 * must have and that each result gets; its price is the operands' reshards, the results' way to where they are
 * wanted, and the busiest rank's work.
 */
#ifndef CLEAVE_PARTITION_STRATEGY_H
#define CLEAVE_PARTITION_STRATEGY_H

#include "base/arena.h"
#include "graph/op.h"
#include "partition/reshard.h"
#include "program/cost.h"

enum { CLV_MAX_ATOMS = 10, CLV_MAX_AVAILABLE = 6 };

/* An atom's choice: a factor's index, or one of these. */
enum { CLV_CHOICE_NONE = -1, CLV_CHOICE_PARTIAL = -2 };

struct clv_strategy;

/* What is known when an op's strategy is chosen. */
typedef struct clv_problem {
    const clv_op *op;
    const clv_mesh *mesh;
    const clv_type *in, *out; /* whole types */
    clv_rule rule;
    int n_available[CLV_MAX_IN]; /* layouts that operand i is at hand in; >= 1, 0 for an absent operand */
    clv_layout available[CLV_MAX_IN][CLV_MAX_AVAILABLE];
    uint32_t kept[CLV_MAX_IN]; /* bit a: operand i stays as available[i][0] has it over mesh axis a */
    bool wanted[CLV_MAX_OUT];  /* result o is wanted in target[o] */
    clv_layout target[CLV_MAX_OUT];
    int fan_in
        [CLV_MAX_OUT]; /* addends of the sum that result o goes into, itself among them: while they stay partial one
                                reduction serves all, so each bears its part of the price; >= 1 */
    bool idle_axes;    /* consider axes that no operand or target uses */
    bool by_bytes;     /* bytes, then work; else seconds */
    const clv_cost_model *cost;
    clv_reshard_cache *reshards;
    void (*note)(void *arg,
                 const struct clv_strategy *candidate); /* told of every legal assignment priced; may be NULL */
    void *note_arg;
} clv_problem;

typedef struct clv_strategy {
    int n_atoms;
    clv_subaxis atom[CLV_MAX_ATOMS];
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
clv_status clv_strategy_choose(clv_strategy *out, const clv_problem *problem, clv_error *err);

/* "model->h, data->b" as snprintf does: the atoms and what they do. */
int clv_strategy_print(char *out, size_t size, const clv_strategy *strategy, const clv_mesh *mesh);

#endif
