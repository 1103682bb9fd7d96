/* transpose_kernel.h - copies: permuted dimensions (transpose), and boxes between tensors (slice, concat, reshard).
 *
 * Any dtype: only the element's size counts (1, 2, 4 or 8 bytes). Disjoint buffers.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* out[j0, j1, ...] with out dimension d = in dimension perm[d] (NumPy's transpose). in is contiguous [shape], out
 * contiguous. perm is a permutation of 0..rank-1; rank 0..CLV_MAX_RANK. */
void clv_transpose_tensor(size_t elem_bytes, void *out, const void *in, int rank, const int64_t *shape,
                          const int *perm);

/* out[r, c] = in[c, r], r < rows, c < cols: out's rows are out_stride elements apart, in's in_stride. */
void clv_transpose_matrix(size_t elem_bytes, void *out, int64_t out_stride, const void *in, int64_t in_stride,
                          int64_t rows, int64_t cols);

/* out[out_lo + i] = in[in_lo + i] for i in [0, box): out and in contiguous [out_shape], [in_shape]. A slice has
 * out_shape == box and out_lo == 0; each operand of a concat is a box of the result. */
void clv_copy_slice(size_t elem_bytes, void *out, const int64_t *out_shape, const int64_t *out_lo, const void *in,
                    const int64_t *in_shape, const int64_t *in_lo, int rank, const int64_t *box);
