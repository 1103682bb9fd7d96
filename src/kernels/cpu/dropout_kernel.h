/* dropout_kernel.h - dropout with a counter-based mask (threefry) by global index: equal on every mesh.
 *
 *   out[i] = keep(i) ? x[i] / (1 - rate) : 0,   keep(i) = uniform(key, flat global index of i) < 1 - rate
 *
 * So each rank computes its part of the mask, which is the same on every mesh; it equals
 * jax.random.bernoulli(key, 1 - rate, global shape) with partitionable threefry. The backward pass is the same call on
 * d_out: no mask is stored. Source: Srivastava et al. 2014; rng.h.
 */
#pragma once

#include <math.h>

#include "cleave/dtype.h"
#include "cleave/rng.h"

/* uniform is k * 2^-23 with k the upper 23 random bits, so uniform < keep is k below this. */
static inline uint32_t clv_dropout_threshold(double keep)
{
    return (uint32_t)ceil((double)(float)keep * 0x1p23);
}

/* x, out: contiguous [shape], the box at lo[rank] of a tensor of global[rank]; rate in [0, 1]. out may be x. An element
 * that is dropped is 0 whatever x is (also NaN). */
void clv_dropout_forward(clv_dtype dtype, void *out, const void *x, double rate, clv_key key, int rank,
                         const int64_t *shape, const int64_t *lo, const int64_t *global);
