/* graph_interpreter.h - what the op tests share: a graph run on one rank, op by op on whole tensors by the ops' own
 * kernels, with no partitioner and no program in between; and each op's sharding rule tried against that. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "graph/graph.h"

typedef struct graph_eval graph_eval;

/* Buffers of exact size for every value (the graph is complete, borrowed and without failure), inputs and state filled
 * with random values from `seed`: floats in [-1, 1), integers 0. The test fails when memory runs out. */
graph_eval *graph_eval_new(const clv_graph *graph, uint64_t seed);
void graph_eval_free(graph_eval *eval);

void *graph_eval_data(graph_eval *eval, clv_value value);
double graph_eval_get(graph_eval *eval, clv_value value, int64_t i);
void graph_eval_set(graph_eval *eval, clv_value value, int64_t i, double x);
/* All elements, from doubles. */
void graph_eval_fill(graph_eval *eval, clv_value value, const double *x);

/* From here on the floats of every result, and those of inputs and state, are put off by a unit or three in the last
 * place, as `seed` (not 0) says, and so are addends of sums, by what adding rounds: what results then differ by is what
 * rounding alone may do to them. A value is always put off alike, so what was equal stays so; zeros and NaN are kept,
 * and Inf unless it is to be NaN: so it becomes where it multiplies the parts of a sum. */
void graph_eval_nudge(graph_eval *eval, uint64_t seed, bool inf_is_nan);

/* From here on one sum, which `seed` chooses, takes one element of an operand `times` times: a fault that comparisons
 * should notice. Not beside graph_eval_nudge. */
void graph_eval_spoil(graph_eval *eval, uint64_t seed, double times);

/* Runs ops [0, n_ops); n_ops < 0: all. */
clv_status graph_eval_run(graph_eval *eval, int n_ops, clv_error *err);
/* The same; the test fails with the message when an op does. */
void graph_eval_must_run(graph_eval *eval, int n_ops);

/* After a run: clv_op_check of an op, or of every op, on what operands are here. The test fails with the op and what it
 * did not keep. Returns the number of comparisons but for those of gradients, so that a test can see that there were
 * some. */
int graph_eval_check_op(graph_eval *eval, const clv_op *op);
int graph_eval_check_rules(graph_eval *eval);

/* Central differences of <seed, f(inputs)> in f64 against clv_gradients, for every element of every wrt (f64 inputs or
 * state), with values in [-1, 1) and in [-4, 4): for f of any shape. Builds the gradient into the graph; `prepare` sets
 * inputs that random values do not suit (may be NULL). Then checks the rules of all ops, those of the gradient among
 * them; returns what graph_eval_check_rules returns. */
int check_gradient(clv_graph *graph, clv_value f, const clv_value *wrt, int n,
                   void (*prepare)(graph_eval *eval, void *context), void *context);
