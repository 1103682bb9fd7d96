/* gemm_packed.h - products of few rows with a B that lies in panels (gemm.h): as gemm_rows.h, with the same bits.
 *
 *   c[i, j] = [c[i, j] +] sum over p of x[i, p] * b[j / 16, p, j % 16],   i < m <= CLV_GEMM_ROWS
 */
#ifndef CLEAVE_KERNELS_CPU_ISA_GEMM_PACKED_H
#define CLEAVE_KERNELS_CPU_ISA_GEMM_PACKED_H

#include "kernels/cpu/isa/gemm_rows.h"

/* Columns [j, end) of C, both multiples of CLV_PANEL. dtype of g: f32, bf16 or f16; its a is not looked at. */
CLV_ISA_DECLARE(void, clv_gemm_packed, (const clv_gemm_args *g, const clv_gemm_x *x, int64_t j, int64_t end))

#endif
