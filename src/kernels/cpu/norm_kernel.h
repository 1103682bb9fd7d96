/* norm_kernel.h - LayerNorm and RMSNorm of whole or sharded rows: partial moments, apply, gradients.
 *
 *   layer: xhat = (x - mean) * rstd,  rstd = 1 / sqrt(mean(x^2) - mean^2 + eps)
 *   rms:   xhat = x * rstd,           rstd = 1 / sqrt(mean(x^2) + eps)
 *   y = xhat * gain + bias
 *
 * Source:   Ba, Kiros & Hinton 2016, arXiv:1607.06450; Zhang & Sennrich 2019, arXiv:1910.07467.
 * Sharding: a row of `width` elements may be split over ranks, each with `cols` of them. What ranks *sum* is two f64 a
 *           row: moments (sum x, sum x^2), and in the backward pass sums (sum g, sum g*xhat) with g = d_y * gain. They
 *           are f64 because mean(x^2) - mean^2 cancels. Whole rows are the case cols == width; they agree with split
 *           rows to rounding of f64.
 *   d_x = rstd * (g - [layer: sum g / width] - xhat * sum(g*xhat) / width)
 *   d_gain[c] = sum over rows of d_y * xhat,  d_bias[c] = sum over rows of d_y: partial sums if rows are split.
 * Numerics: f32, bf16 and f16 are computed in f32 with f64 sums in a fixed order. NaN fills its row.
 */
#pragma once

#include "cleave/dtype.h"

typedef enum clv_norm_kind { CLV_NORM_RMS, CLV_NORM_LAYER } clv_norm_kind;

typedef struct clv_norm {
    clv_norm_kind kind;
    clv_dtype dtype;        /* of x, y and their gradients                   */
    clv_dtype weight_dtype; /* of gain, bias and their gradients             */
    int64_t rows;           /* >= 0                                          */
    int64_t cols;           /* local columns of a row, >= 0 */
    int64_t width;          /* of the whole row, >= cols, >= 1               */
    double eps;             /* > 0; units of x squared                       */
} clv_norm;

/* moments [rows,2] = (sum x, sum x^2) over this rank's columns. */
void clv_norm_moments(const clv_norm *norm, double *moments, const void *x);

/* y from x and the *summed* moments. gain, bias [cols], NULL for ones and zeros. y may be x. */
void clv_norm_apply(const clv_norm *norm, void *y, const void *x, const double *moments, const void *gain,
                    const void *bias);

/* sums [rows,2] = (sum g, sum g*xhat) over this rank's columns; moments are the summed ones. gain may be NULL. */
void clv_norm_backward_sums(const clv_norm *norm, double *sums, const void *d_y, const void *x, const double *moments,
                            const void *gain);

/* d_x from the summed moments and sums. d_x may be d_y or x. */
void clv_norm_backward_apply(const clv_norm *norm, void *d_x, const void *d_y, const void *x, const double *moments,
                             const double *sums, const void *gain);

/* d_gain, d_bias [cols] of weight_dtype; either may be NULL. Rows are summed in order, in f64. */
void clv_norm_backward_weights(const clv_norm *norm, void *d_gain, void *d_bias, const void *d_y, const void *x,
                               const double *moments);
