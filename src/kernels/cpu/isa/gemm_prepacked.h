/* gemm_prepacked.h - skinny GEMM with a prepacked B: same bits as gemm_skinny_simd.h.
 *
 *   c[i, j] = [c[i, j] +] sum over p of x[i, p] * b[j / 16, p, j % 16],   i < m <= CLV_GEMM_SKINNY_ROWS
 */
#ifndef CLEAVE_KERNELS_CPU_ISA_GEMM_PREPACKED_H
#define CLEAVE_KERNELS_CPU_ISA_GEMM_PREPACKED_H

#include "kernels/cpu/isa/gemm_skinny_simd.h"

/* Columns [j, end) of C, both multiples of CLV_PANEL_COLUMNS. dtype of g: f32, bf16 or f16; its a is not looked at. */
CLV_ISA_DECLARE(void, clv_gemm_packed, (const clv_gemm_args *g, const clv_gemm_a_rows *x, int64_t j, int64_t end))

#endif
