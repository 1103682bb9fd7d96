/* box_copy.h - box copy and reduce: moves or combines a sub-box between two shards of one global tensor.
 *
 * A shard [lo, hi) of a tensor is stored contiguously, row-major. All boxes and shards are in the indices of the
 * global tensor and have its rank. Buffers are aligned to the element.
 */
#ifndef CLEAVE_TENSOR_BOX_COPY_H
#define CLEAVE_TENSOR_BOX_COPY_H

#include <stddef.h>

#include "cleave/dtype.h"
#include "cleave/layout.h"

/* Whether two shards of one tensor are the same elements, as written. */
bool clv_shard_equal(const clv_shard *a, const clv_shard *b);

/* Copies the elements of box, which lies in both shards, from in to out: memcpy of the longest runs that are
 * contiguous in both. An empty box copies nothing. out and in do not overlap. */
void clv_box_copy(void *out, const clv_shard *out_shard, const void *in, const clv_shard *in_shard,
                  const clv_shard *box, size_t elem_size);

/* out[box] = in[0][box] (+) in[1][box] (+) ... (+) in[n-1][box], n >= 1 peers that hold the same shard; (+) is the sum,
 * the maximum or minimum (a NaN wins), or the product; of booleans "or", "or", "and", "and". Replaces what out held.
 * Elements are combined strictly in the peers' order; bf16 and f16 in f32, rounded once at the end; integers wrap. out
 * may be one of the inputs if its shard is in_shard. */
void clv_box_reduce(void *out, const clv_shard *out_shard, const void *const *in, int n, const clv_shard *in_shard,
                    const clv_shard *box, clv_dtype dtype, clv_reduction reduction);

/* The same on plain runs: out[i] = in[0][at + i] (+) ..., i < count. */
void clv_values_reduce(void *out, const void *const *in, int n, int64_t at, int64_t count, clv_dtype dtype,
                       clv_reduction reduction);

/* Fills count elements with what changes nothing when combined: 0 for sums; -infinity, or the least integer, for
 * maxima. */
void clv_fill_reduction_identity(void *out, int64_t count, clv_dtype dtype, clv_reduction reduction);

#endif
