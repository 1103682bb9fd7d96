/* gemm.h - the parts of a product of bf16 or f16 that are our own, one set an instruction set. */
#ifndef CLEAVE_KERNELS_CPU_ISA_GEMM_H
#define CLEAVE_KERNELS_CPU_ISA_GEMM_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa.h"

enum { CLV_GEMM_ROW_BLOCK = 1024 }; /* columns of a one-row product that one call computes */

/* Columns [j, min(j + CLV_GEMM_ROW_BLOCK, n)) of a product with m = 1 of bf16 or f16. Each column sums over k in
 * ascending order (B not transposed), or in VF_LANES interleaved parts (B transposed). */
CLV_ISA_DECLARE(void, clv_gemm_row, (const clv_gemm_args *g, int64_t j))

/* out [rows, cols] f32, from bf16, f16 or f32, and back with rounding. ldo, ldi: elements between rows. */
CLV_ISA_DECLARE(void, clv_gemm_widen,
                (clv_dtype dtype, float *out, int64_t ldo, const void *in, int64_t ldi, int64_t rows, int64_t cols))
CLV_ISA_DECLARE(void, clv_gemm_narrow,
                (clv_dtype dtype, void *out, int64_t ldo, const float *in, int64_t ldi, int64_t rows, int64_t cols))

#endif
