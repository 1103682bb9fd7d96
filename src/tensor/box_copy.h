/* box_copy.h - box copy and reduce: moves or combines a sub-box between two shards of one global tensor.
 *
 * A shard [lo, hi) of a tensor is stored contiguously, row-major. All boxes and shards are given in the indices of
 * the global tensor and have its number of dimensions. Buffers are aligned to the element.
 */
#pragma once

#include "cleave/dtype.h"
#include "cleave/layout.h"

/* Returns whether two shards of a tensor have equal bounds. */
bool clv_shard_equal(const clv_shard *a, const clv_shard *b);

/* Copies the elements of box, which lies in both shards, from in to out, by memcpy of the longest runs that are
 * contiguous in both. out and in must not overlap. */
void clv_box_copy(void *out, const clv_shard *out_shard, const void *in, const clv_shard *in_shard,
                  const clv_shard *box, size_t elem_size);

/* Computes out[box] = in[0][box] (+) ... (+) in[n-1][box] over n >= 1 peers that hold the same shard. (+) is the sum,
 * the maximum, the minimum (a NaN wins) or the product; for booleans "or", "or", "and", "and". Elements are combined
 * strictly in the order of the peers; bf16 and f16 in f32, rounded once at the end; integers wrap. out may be one of
 * the inputs if out_shard is in_shard. */
void clv_box_reduce(void *out, const clv_shard *out_shard, const void *const *in, int n, const clv_shard *in_shard,
                    const clv_shard *box, clv_dtype dtype, clv_reduction reduction);

/* The same for one run: out[i] = in[0][at + i] (+) ..., i < count. */
void clv_values_reduce(void *out, const void *const *in, int n, int64_t at, int64_t count, clv_dtype dtype,
                       clv_reduction reduction);

/* Fills count elements with the identity of a reduction: 0 for sums; -infinity, or the smallest integer, for maxima. */
void clv_fill_reduction_identity(void *out, int64_t count, clv_dtype dtype, clv_reduction reduction);
