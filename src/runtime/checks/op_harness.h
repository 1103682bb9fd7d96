/* op_harness.h - runs one op kernel by itself between guard bytes, and the checks of clv_op_check that use it. */
#pragma once

#include "graph/graph.h"

/* ---- op_harness.c ---- */

/* A call of an op. The views of absent operands have no data. */
typedef struct clv_op_harness {
    const clv_op *op;
    clv_view in[CLV_MAX_IN], out[CLV_MAX_OUT];
    int aliases[CLV_MAX_OUT]; /* 1 + the operand whose memory the result takes over; 0: the result has its own */
} clv_op_harness;

/* The view of a whole tensor, without data. */
clv_view clv_op_harness_view(const clv_type *type);

/* Allocates a view filled with the guard pattern (guard_bytes.h), with guard bytes before and after it: after it as
 * many as a kernel could write that mistakes its shard for the whole tensor. `whole`: optional elements of the whole
 * tensor, of which the view gets its own. */
clv_status clv_op_harness_alloc(clv_view *view, const void *whole, clv_error *err);
void clv_op_harness_free(clv_view *view);
/* Allocates all views of a part of a call; operands get their elements from `whole`. After a failure, free what was
 * allocated, too. */
clv_status clv_op_harness_alloc_all(clv_op_harness *part, const clv_op_harness *whole, clv_error *err);
void clv_op_harness_free_all(clv_op_harness *harness);

/* Runs the kernel on views made by clv_op_harness_alloc. `how` names the trial in messages. CLV_ECHECK if the kernel
 * wrote outside its results and workspace, or left an element of a result unwritten. */
clv_status clv_op_harness_run(const clv_op_harness *harness, const char *how, clv_error *err);

/* Runs the kernel with `threads` threads after filling the workspace, the results and the memory around all views with
 * other bytes than the guard pattern. Checks nothing. */
clv_status clv_op_harness_run_poisoned(const clv_op_harness *harness, int threads, const char *how, clv_error *err);

/* Bytes of workspace that the op asks for with these views. */
size_t clv_op_harness_workspace_bytes(const clv_op_harness *harness);

/* The flat index in the whole tensor of element i of the view. */
int64_t clv_op_harness_global_index(const clv_view *view, int64_t i);

enum { CLV_OP_HARNESS_INDEX_TEXT = 24 * CLV_MAX_RANK };
/* Prints a flat index in the whole tensor as "[4,2]". Returns `out`. */
const char *clv_op_harness_print_index(char out[CLV_OP_HARNESS_INDEX_TEXT], const clv_view *view, int64_t i);

/* ---- sharding_rule_check.c ---- */

/* What an op's rule is checked on, and how many trials passed. */
typedef struct clv_sharding_rule_trials {
    const clv_op_harness *whole; /* operands and results of the unsharded op, which has run */
    const clv_rule *rule;
    clv_key key;      /* of random numbers */
    double tolerance; /* 0: by dtype */
    int cuts, partials, in_place;
} clv_sharding_rule_trials;

/* Shards each factor; splits each operand that may be partial into partial sums or maxima; runs in place if the op may.
 * CLV_ECHECK names the trial, the element, and both values. */
clv_status clv_sharding_rule_check(clv_sharding_rule_trials *trials, clv_error *err);

/* ---- gradient_check.c ---- */

/* A scalar function f of a tensor x, and the gradient to check. */
typedef struct clv_numeric_gradient {
    /* *out = f; *size = the sum of the absolute values of f's terms, which bounds rounding. */
    clv_status (*objective)(void *context, double *out, double *size, clv_error *err);
    void *context;
    const clv_view *x;        /* whole; f32 or f64; changed during the check, then restored */
    const clv_view *gradient; /* df/dx, of the same type */
    clv_dtype coarsest;       /* f32 if anything between x and f is, else f64 */
    double tolerance;  /* relative to the gradient's largest element, or to size up to 1; 0: by the coarsest dtype */
    clv_key key;       /* of the random choice of elements */
    int64_t max_elems; /* elements compared at most */
    const char *what;  /* "the gradient by operand 0": for messages */
} clv_numeric_gradient;

/* Compares elements of the gradient with central differences. At a kink, where the one-sided differences disagree, any
 * value between them passes; where x, or f one step away, is not finite, nothing is compared. *compared (optional)
 * grows by the number of comparisons. CLV_ECHECK names the element and both values. */
clv_status clv_numeric_gradient_check(const clv_numeric_gradient *f, int *compared, clv_error *err);

typedef struct clv_gradient_check_options {
    const clv_view *operands; /* whole, with data */
    uint32_t no_in, no_out;   /* bit i: do not compare operand i; no cotangent for result i */
    const char *of;           /* "", or " of result 1 alone": for messages */
    double tolerance;         /* clv_numeric_gradient's */
    clv_key key;
} clv_gradient_check_options;

/* Checks an op's gradient by each f32 or f64 operand: the gradient of the sum of all float results, weighted with
 * random numbers. It is built in the op's graph (op: its index), whose inputs are the operands. Compares nothing if the
 * op has no gradient; if a float has another dtype, the gradient is only built and run. */
clv_status clv_gradient_check(clv_graph *graph, int op, const clv_gradient_check_options *options, int *compared,
                              clv_error *err);
