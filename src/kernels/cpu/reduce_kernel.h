/* reduce_kernel.h - sum and max over any set of dimensions, and sum of squares, in a fixed order.
 *
 * A mean is a sum with scale = 1 / (elements of the *whole* tensor reduced), so that means of shards add up.
 * Numerics: f32, bf16, f16 are summed in f64 and rounded once, at any length; each result in one fixed order (rows in
 *           16 lanes, columns from first to last). The sum of nothing is 0, the maximum of nothing -inf (the lowest
 *           value for integers). NaN wins a maximum.
 */
#pragma once

#include "cleave/dtype.h"
#include "cleave/layout.h"

/* out[kept dims] = scale * (sum or max over the dims d with reduced[d]) of x[shape]. out is contiguous over the kept
 * dims in order (whether the reduced ones stay as size 1 is a matter of names), of dtype out_dtype; disjoint from x.
 * kind: CLV_REDUCTION_SUM or CLV_REDUCTION_MAX. rank 0..CLV_MAX_RANK. */
void clv_reduce_forward(clv_reduction kind, double scale, clv_dtype out_dtype, void *out, clv_dtype dtype,
                        const void *x, int rank, const int64_t *shape, const bool *reduced);

/* Sum of squares of n elements, in f64, in an order that depends on n alone: for clipping by the global norm. */
double clv_sum_squares(clv_dtype dtype, const void *x, int64_t n);
