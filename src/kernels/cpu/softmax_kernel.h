/* softmax_kernel.h - softmax over the last dimension, forward and backward.
 *
 *   y[r,c] = exp(x[r,c] - max_c x[r,c]) / sum_c exp(x[r,c] - max)
 *   d_x[r,c] = y[r,c] * (d_y[r,c] - sum_c d_y[r,c] * y[r,c])
 *
 * Numerics: f32 with the sums in f64; fixed order. A row of -inf gives zeros (nothing to attend to), a row
 *           with NaN or +inf gives NaN. Sharding: rows.
 */
#pragma once

#include "cleave/dtype.h"

/* x, y [rows, cols]; y may be x. */
void clv_softmax_forward(clv_dtype dtype, void *y, const void *x, int64_t rows, int64_t cols);

/* d_x may be d_y or y. */
void clv_softmax_backward(clv_dtype dtype, void *d_x, const void *d_y, const void *y, int64_t rows, int64_t cols);
