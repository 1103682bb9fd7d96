/* gradient_check.h - numerical gradient check of an op, or of any scalar function, by central finite differences. */
#ifndef CLEAVE_RUNTIME_CHECKS_GRADIENT_CHECK_H
#define CLEAVE_RUNTIME_CHECKS_GRADIENT_CHECK_H

#include "runtime/checks/op_harness.h"

/* A number f made of `x`, which is changed meanwhile, and what is said to be its gradient. */
typedef struct clv_numeric_gradient {
    /* *out = f; *size = the sum of the absolute values of what f is the sum of, by which rounding is judged. */
    clv_status (*objective)(void *context, double *out, double *size, clv_error *err);
    void *context;
    const clv_view *x;  /* whole; f32 or f64 */
    const clv_view *d;  /* of the same type */
    clv_dtype coarsest; /* f32 where anything between x and f is; else f64 */
    double tolerance;   /* relative to the largest of d, or size up to 1; 0: by the coarsest dtype */
    clv_key key;        /* of which elements are compared, */
    int64_t most;       /* where there are more than so many */
    const char *what;   /* "the gradient by operand 0": for messages */
} clv_numeric_gradient;

/* Elements of d against central differences. Where those from the left and from the right differ, as at a kink, what
 * lies between them will do; where x, or f a step away, is not finite, nothing is compared. *compared, if given, grows
 * by each. CLV_ECHECK names the element and both values. */
clv_status clv_numeric_gradient_check(const clv_numeric_gradient *slopes, int *compared, clv_error *err);

/* How an op's gradient is tried. */
typedef struct clv_gradient_check_options {
    const clv_view *operands; /* whole, with data */
    uint32_t no_in, no_out;   /* bit i: nothing is compared of operand i; nothing flows back from result i */
    const char *of;           /* "", or " of result 1 alone": for messages */
    double tolerance;         /* as of clv_numeric_gradient */
    clv_key key;
} clv_gradient_check_options;

/* The gradient of an op, by each operand that is f32 or f64: of the sum of all results that are floats, times random
 * numbers. Builds it into the graph that holds the op (its number), whose operands are inputs. Nothing is compared
 * where the op has no gradient; where a float is of another dtype, it is only built and run. */
clv_status clv_gradient_check(clv_graph *graph, int op, const clv_gradient_check_options *trial, int *compared,
                              clv_error *err);

#endif
