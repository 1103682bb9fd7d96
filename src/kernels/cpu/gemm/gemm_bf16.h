/* gemm_bf16.h - bf16 GEMM by AMX tiles or AVX512-BF16.
 *
 * Kernels:  AMX (tdpbf16ps, 32 x 32 of C in tile registers) and AVX512-BF16 (vdpbf16ps). Which of them a CPU has is
 *           found at run time; neither is compiled for other machines than x86-64.
 * Numerics: an element is summed over pairs of k in ascending order, in f32, and rounded once: its bits depend neither
 *           on m, n or the number of threads nor on where in C it stands. Denormals count as zeros.
 * Memory:   the workspace of clv_gemm holds a block of B, rows of a transposed A, and sums of f32; a thread has less
 *           than CLV_GEMM_MAX_STACK_BYTES of its stack.
 */
#ifndef CLEAVE_KERNELS_CPU_GEMM_GEMM_BF16_H
#define CLEAVE_KERNELS_CPU_GEMM_GEMM_BF16_H

#include "kernels/cpu/gemm/gemm.h"

enum { CLV_GEMM_BF16_WORKSPACE = 3 << 20 };

typedef enum clv_gemm_bf16_kernel { CLV_GEMM_BF16_NONE, CLV_GEMM_BF16_VDP, CLV_GEMM_BF16_AMX } clv_gemm_bf16_kernel;

/* The best that clv_cpu_isa() allows: AMX where it is CLV_ISA_AMX. */
clv_gemm_bf16_kernel clv_gemm_bf16_best(void);

/* One product of bf16 x bf16 -> bf16 or f32, by a kernel that clv_gemm_bf16_best() says is there; no extent is 0. */
void clv_gemm_bf16(const clv_gemm_args *args, clv_gemm_bf16_kernel kernel);

#endif
