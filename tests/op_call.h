/* op_call.h - what graph_interpreter.c and rounding_bounds.c share: values and an op called on them. */
#pragma once

#include <stddef.h>

#include "graph_interpreter.h"

struct graph_eval {
    const clv_graph *graph;
    void **data; /* a value */
    uint64_t random, nudge;
    bool inf_is_nan;
    int spoilt; /* 1 + the op; 0: none */
    uint64_t spoilt_seed;
    double spoilt_times;
};

/* A call of an op: views of operands and results. */
typedef struct op_call {
    const clv_op *op;
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
} op_call;

/* splitmix64; and [-1, 1). */
uint64_t graph_next(uint64_t *state);
double graph_uniform(uint64_t *state);

/* Exact size where the address sanitizer sees every overrun, else with a guard behind, which is looked at after each
 * op; poisoned, so that what is not written shows. */
void *graph_take(size_t bytes);

clv_rule graph_rule(const graph_eval *eval, const clv_op *op);
bool graph_holds(const clv_dim_factors *dims, int rank, int factor);

/* ---- rounding_bounds.c: nothing is done unless graph_eval_nudge, or graph_eval_spoil, asked for it ---- */

/* Puts a value off by the rounding of its last places. */
void graph_nudge_value(graph_eval *eval, int value);
/* Gives the call operands that are put off by the rounding of its sums, or spoilt, in copies (the caller frees them).
 */
void graph_nudge_operands(const graph_eval *eval, op_call *call, void *copies[CLV_MAX_IN]);
