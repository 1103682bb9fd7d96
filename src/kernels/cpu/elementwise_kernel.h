/* elementwise_kernel.h - elementwise kernels with NumPy broadcasting, and their derivatives.
 *
 * dtype: any; f32, bf16 and f16 in f32, the others in f64 (i64 is exact up to 2^53; integers round toward zero).
 * Numerics: exp, log to 2 ulp of f32, tanh, sigmoid to 3. Order: elements are independent.
 * Traffic:  each operand and the result once.
 */
#pragma once

#include "cleave/dtype.h"

/* What clv_unary_backward needs besides d_out. */
typedef enum clv_unary_saved { CLV_SAVED_NONE, CLV_SAVED_INPUT, CLV_SAVED_OUTPUT } clv_unary_saved;

/* X(code, name, saved for backward). gelu_erf is x * Phi(x); gelu_tanh Hendrycks & Gimpel's approximation
 * (arXiv:1606.08415); silu x * sigmoid(x). scale multiplies by alpha; copy is the identity. */
#define CLV_UNARY_TABLE(X)                                                                                             \
    X(CLV_UNARY_EXP, exp, CLV_SAVED_OUTPUT)                                                                            \
    X(CLV_UNARY_LOG, log, CLV_SAVED_INPUT)                                                                             \
    X(CLV_UNARY_TANH, tanh, CLV_SAVED_OUTPUT)                                                                          \
    X(CLV_UNARY_SIGMOID, sigmoid, CLV_SAVED_OUTPUT)                                                                    \
    X(CLV_UNARY_GELU_ERF, gelu_erf, CLV_SAVED_INPUT)                                                                   \
    X(CLV_UNARY_GELU_TANH, gelu_tanh, CLV_SAVED_INPUT)                                                                 \
    X(CLV_UNARY_SILU, silu, CLV_SAVED_INPUT)                                                                           \
    X(CLV_UNARY_RELU, relu, CLV_SAVED_INPUT)                                                                           \
    X(CLV_UNARY_RSQRT, rsqrt, CLV_SAVED_OUTPUT)                                                                        \
    X(CLV_UNARY_NEG, neg, CLV_SAVED_NONE)                                                                              \
    X(CLV_UNARY_SCALE, scale, CLV_SAVED_NONE)                                                                          \
    X(CLV_UNARY_COPY, copy, CLV_SAVED_NONE)                                                                            \
    X(CLV_UNARY_SQRT, sqrt, CLV_SAVED_OUTPUT)

typedef enum clv_unary_op {
#define CLV_UNARY_ENUM(code, name, saved) code,
    CLV_UNARY_TABLE(CLV_UNARY_ENUM)
#undef CLV_UNARY_ENUM
        CLV_UNARY_COUNT
} clv_unary_op;

/* X(code, name). max and min give NaN if either side is NaN. */
#define CLV_BINARY_TABLE(X)                                                                                            \
    X(CLV_BINARY_ADD, add)                                                                                             \
    X(CLV_BINARY_SUB, sub)                                                                                             \
    X(CLV_BINARY_MUL, mul)                                                                                             \
    X(CLV_BINARY_DIV, div)                                                                                             \
    X(CLV_BINARY_MAX, max)                                                                                             \
    X(CLV_BINARY_MIN, min)

typedef enum clv_binary_op {
#define CLV_BINARY_ENUM(code, name) code,
    CLV_BINARY_TABLE(CLV_BINARY_ENUM)
#undef CLV_BINARY_ENUM
        CLV_BINARY_COUNT
} clv_binary_op;

clv_unary_saved clv_unary_saved_for_backward(clv_unary_op op);

/* out[i] = op(x[i]), i < n. alpha is scale's factor, unused by the others. out may be x. */
void clv_unary_forward(clv_unary_op op, double alpha, clv_dtype dtype, void *out, const void *x, int64_t n);

/* d_in[i] = d_out[i] * op'(...). saved is the op's x or its output, as clv_unary_saved_for_backward says, or NULL for
 * none. d_in may be d_out or saved. relu'(0) = 0. */
void clv_unary_backward(clv_unary_op op, double alpha, clv_dtype dtype, void *d_in, const void *d_out,
                        const void *saved, int64_t n);

/* out[i] = in[i], converted: to nearest even; float to integer truncates. Disjoint. */
void clv_cast_values(clv_dtype to, void *out, clv_dtype from, const void *in, int64_t n);

void clv_fill_values(clv_dtype dtype, void *out, double value, int64_t n);

/* out = op(a, b). Integers are exact and wrap around. Shapes of operands have the rank of the result (pad with leading
 * 1s), and each size is that of the result or 1. All contiguous, rank 0..CLV_MAX_RANK. out may be an operand of the
 * same shape. */
void clv_binary_forward(clv_binary_op op, clv_dtype dtype, void *out, const void *a, const void *b, int rank,
                        const int64_t *shape, const int64_t *a_shape, const int64_t *b_shape);

/* out = cond ? a : b; cond is of dtype bool (one byte, nonzero is true). Shapes as above; out may be a or b. */
void clv_where_forward(clv_dtype dtype, void *out, const void *cond, const void *a, const void *b, int rank,
                       const int64_t *shape, const int64_t *cond_shape, const int64_t *a_shape, const int64_t *b_shape);

/* The gradient of max (is_max nonzero) or min (0) by a, in the result's shape: d_out where a is chosen, half of it
 * where a == b (as JAX), else 0, whatever d_out is; where either is NaN d_out goes to both. For the gradient by b swap
 * a and b. Sum over a's broadcast dims afterwards. d_out has the result's shape; d_a may be d_out. */
void clv_max_or_min_backward(int is_max, clv_dtype dtype, void *d_a, const void *d_out, const void *a, const void *b,
                             int rank, const int64_t *shape, const int64_t *a_shape, const int64_t *b_shape);
