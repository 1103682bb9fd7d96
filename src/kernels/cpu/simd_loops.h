/* simd_loops.h - tables of SIMD inner loops (elementwise, row-wise, updates), one an instruction set.
 *
 * Internal to this folder. Each table is defined in isa/, once for each instruction set. Sums are f64 in 16 fixed
 * lanes, so sums of f32 products have the same bits on every instruction set; other results may differ by FMA
 * contraction. An output may be one of the inputs; other operands must be disjoint.
 */
#pragma once

#include <stdint.h>

#include "kernels/cpu/elementwise_kernel.h"
#include "kernels/cpu/isa_dispatch.h"

enum { CLV_BLOCK = 1024 };

/* out[i] = f(a[i], b[i], c[i]; alpha); NULL for operands that f does not take. */
typedef void clv_simd_loop(float *out, const float *a, const float *b, const float *c, float alpha, int64_t n);

typedef struct clv_elementwise_loops {
    clv_simd_loop *unary[CLV_UNARY_COUNT];          /* (x)                    */
    clv_simd_loop *unary_backward[CLV_UNARY_COUNT]; /* (d_out, saved)         */
    clv_simd_loop *binary[CLV_BINARY_COUNT];        /* (a, b)                 */
    clv_simd_loop *glu[CLV_UNARY_COUNT];            /* (gate, up); for activations only */
    void (*glu_backward[CLV_UNARY_COUNT])(float *d_gate, float *d_up, const float *d_out, const float *gate,
                                          const float *up, int64_t n);
    clv_simd_loop *where;           /* (cond, a, b), cond f32 */
    clv_simd_loop *max_backward[2]; /* [largest](d_out, a, b) */
    void (*widen_bf16)(float *out, const uint16_t *x, int64_t n);
    void (*widen_f16)(float *out, const uint16_t *x, int64_t n);
    void (*narrow_bf16)(uint16_t *out, const float *x, int64_t n);
    void (*narrow_f16)(uint16_t *out, const float *x, int64_t n);
} clv_elementwise_loops;

/* Statistics of a normalized row: xhat = (x - mean) * rstd. */
typedef struct clv_row_norm {
    float mean, rstd;
    float g_mean;     /* sum g / width, 0 for rms         */
    float gxhat_mean; /* sum g*xhat / width               */
} clv_row_norm;

typedef struct clv_rowwise_loops {
    float (*max)(const float *x, int64_t n); /* -inf for n == 0; NaN wins */
    double (*sum)(const float *x, int64_t n);
    double (*dot)(const float *x, const float *y, int64_t n);
    double (*squares)(const float *x, int64_t n);
    void (*moments)(double sum[2], const float *x, int64_t n);                          /* adds sum x and sum x^2 */
    void (*add_columns)(double *sum, const float *x, int64_t n);                        /* sum[i] += x[i] */
    void (*max_columns)(float *max, const float *x, int64_t n);                         /* NaN wins */
    void (*exp_minus)(float *out, const float *x, float minus, float times, int64_t n); /* exp(x - minus) * times */
    void (*softmax_backward)(float *d_x, const float *d_y, const float *y, float dot, int64_t n); /* y (d_y - dot) */
    void (*norm)(float *y, const float *x, const float *gain, const float *bias, clv_row_norm row, int64_t n);
    void (*norm_sums)(double sum[2], const float *d_y, const float *x, const float *gain, clv_row_norm row, int64_t n);
    void (*norm_backward)(float *d_x, const float *d_y, const float *x, const float *gain, clv_row_norm row, int64_t n);
    void (*norm_weights)(double *d_gain, double *d_bias, const float *d_y, const float *x, clv_row_norm row,
                         int64_t n); /* adds */
} clv_rowwise_loops;

typedef struct clv_adamw_factors {
    float beta1, beta2, one_minus_beta1, one_minus_beta2, grad_scale;
    float decay;     /* 1 - lr * weight_decay       */
    float step_size; /* lr / (1 - beta1^step)       */
    float root_bias; /* sqrt(1 - beta2^step)        */
    float eps;
} clv_adamw_factors;

typedef struct clv_sgd_factors {
    float lr, momentum, weight_decay, grad_scale;
} clv_sgd_factors;

typedef struct clv_lion_factors {
    float lr, beta1, one_minus_beta1, beta2, one_minus_beta2, grad_scale;
    float decay; /* 1 - lr * weight_decay */
} clv_lion_factors;

typedef struct clv_optimizer_dropout_rope_loops {
    void (*adamw)(float *p, float *m, float *v, const float *grad, clv_adamw_factors f, int64_t n);
    void (*sgd)(float *p, float *m, const float *grad, clv_sgd_factors f, int64_t n);
    void (*lion)(float *p, float *m, const float *grad, clv_lion_factors f, int64_t n);
    /* out[i] = x[i] / keep if the 23 random bits of index first + i are below `threshold`, else 0 */
    void (*dropout)(float *out, const float *x, const uint32_t key[2], uint64_t first, uint32_t threshold, float keep,
                    int64_t n);
    /* cos, sin of position * inv_freq[i] */
    void (*angles)(float *cos, float *sin, const double *inv_freq, double position, int64_t n);
    void (*rotate_halves)(float *out, const float *x, const float *cos, const float *sin, int64_t half);
    void (*rotate_pairs)(float *out, const float *x, const float *cos, const float *sin, int64_t half);
} clv_optimizer_dropout_rope_loops;

CLV_ISA_DECLARE(const clv_elementwise_loops *, clv_elementwise_loops_of, (void))
CLV_ISA_DECLARE(const clv_rowwise_loops *, clv_rowwise_loops_of, (void))
CLV_ISA_DECLARE(const clv_optimizer_dropout_rope_loops *, clv_optimizer_dropout_rope_loops_of, (void))
