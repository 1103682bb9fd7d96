/* gemm_skinny_simd.h - skinny GEMM of columns [j, end), one function an instruction set.
 *
 *   c[i, j] = [c[i, j] +] sum over p of x[i, p] * op(B)[p, j],   i < m <= CLV_GEMM_SKINNY_ROWS
 *
 * Numerics: where B is not transposed an element is summed over k in ascending order, from what c held or 0; where it
 *           is, in VF_LANES interleaved parts, which are summed by halves. All in f32, rounded to c's dtype once. So an
 *           element has the same bits however many rows are beside it, and however columns are divided over threads;
 *           which NaN it is, where two meet, may differ.
 * Memory:   nothing is read or written beyond the elements of a, b and c; a part of B may be prefetched, no more.
 */
#ifndef CLEAVE_KERNELS_CPU_ISA_GEMM_SKINNY_SIMD_H
#define CLEAVE_KERNELS_CPU_ISA_GEMM_SKINNY_SIMD_H

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/isa_dispatch.h"

/* CLV_GEMM_ACCUMULATOR_FLOATS: a vector of the longest for each row. */
enum { CLV_GEMM_SKINNY_ROWS = 16, CLV_GEMM_ACCUMULATOR_FLOATS = 16 * CLV_GEMM_SKINNY_ROWS };

/* The rows of op(A) in f32. */
typedef struct clv_gemm_a_rows {
    const float *at;
    int64_t row, step; /* floats between rows, and between elements of a row: 1 where B is transposed */
} clv_gemm_a_rows;

/* Memory for sums that C's dtype does not hold: of the caller's alone, at least CLV_GEMM_ACCUMULATOR_FLOATS floats; a
 * transposed B needs none. */
typedef struct clv_gemm_accumulators {
    float *at;
    int64_t floats;
} clv_gemm_accumulators;

/* What is fastest on this CPU; it changes no bits. */
typedef struct clv_gemm_skinny_tuning {
    int64_t panels; /* columns up to which more rows than four go by panels, and not by chunks */
    int streams;    /* rows of a B [k, n] that lies in memory, which decoding reads side by side: 1, where a call has
                     * whole rows and few sums, or else 4 */
} clv_gemm_skinny_tuning;

/* Columns [j, end) of C. dtype of g: f32, bf16 or f16; its a is not looked at. */
CLV_ISA_DECLARE(void, clv_gemm_skinny_columns,
                (const clv_gemm_args *g, const clv_gemm_a_rows *x, clv_gemm_accumulators own,
                 clv_gemm_skinny_tuning way, int64_t j, int64_t end))

#endif
