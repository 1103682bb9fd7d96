/* gemm_skinny_simd.h - skinny GEMM of columns [j, end), one function for each instruction set.
 *
 *   c[i, j] = [c[i, j] +] sum over p of x[i, p] * op(B)[p, j],   i < m <= CLV_GEMM_SKINNY_ROWS
 *
 * Numerics: an element is summed over k in ascending order, starting with the old c or 0; if B is transposed, in
 *           VF_LANES interleaved sums, which are added by halves. Sums are f32 and rounded to c's dtype once. So the
 *           bits of an element do not depend on the number of rows or on how columns are divided over threads (only
 *           which NaN a NaN is).
 * Memory:   reads and writes only elements of a, b and c.
 */
#pragma once

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/isa_dispatch.h"

/* CLV_GEMM_ACCUMULATOR_FLOATS: a vector of the longest for each row. */
enum { CLV_GEMM_SKINNY_ROWS = 16, CLV_GEMM_ACCUMULATOR_FLOATS = 16 * CLV_GEMM_SKINNY_ROWS };

/* The rows of op(A) in f32. */
typedef struct clv_gemm_a_rows {
    const float *at;
    int64_t row, step; /* floats between rows, and between elements of a row: 1 where B is transposed */
} clv_gemm_a_rows;

/* Memory of the caller for f32 sums of a 16-bit C: at least CLV_GEMM_ACCUMULATOR_FLOATS floats; none for a transposed
 * B.
 */
typedef struct clv_gemm_accumulators {
    float *at;
    int64_t floats;
} clv_gemm_accumulators;

/* The fastest variant on this CPU; it changes no bits. */
typedef struct clv_gemm_skinny_tuning {
    int64_t panels; /* columns up to which more rows than four go by panels, and not by chunks */
    int streams;    /* rows of a B [k, n] that lies in memory, which decoding reads side by side: 1, where a call has
                     * whole rows and few sums, or else 4 */
} clv_gemm_skinny_tuning;

/* Columns [j, end) of C. dtype of g: f32, bf16 or f16; its a is not read. */
CLV_ISA_DECLARE(void, clv_gemm_skinny_columns,
                (const clv_gemm_args *g, const clv_gemm_a_rows *x, clv_gemm_accumulators own,
                 clv_gemm_skinny_tuning way, int64_t j, int64_t end))

/* The same with a prepacked B, with the same bits. Columns [j, end) of C, both multiples of CLV_PANEL_COLUMNS. dtype of
 * g: f32, bf16 or f16; its a is not read. */
CLV_ISA_DECLARE(void, clv_gemm_packed, (const clv_gemm_args *g, const clv_gemm_a_rows *x, int64_t j, int64_t end))

/* Converts rows of bf16, f16 or f32 to f32: out [rows, cols]; rows are ldo and ldi elements apart. */
CLV_ISA_DECLARE(void, clv_gemm_widen,
                (clv_dtype dtype, float *out, int64_t ldo, const void *in, int64_t ldi, int64_t rows, int64_t cols))
/* Converts back, rounding to nearest even. */
CLV_ISA_DECLARE(void, clv_gemm_narrow,
                (clv_dtype dtype, void *out, int64_t ldo, const float *in, int64_t ldi, int64_t rows, int64_t cols))
