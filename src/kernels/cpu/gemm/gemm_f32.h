/* gemm_f32.h - GEMM with f32 accumulation for every CPU, of f32, bf16 and f16 operands.
 *
 * Numerics: k is cut into passes, by its extent alone; an element is summed over each in ascending order, in f32, the
 *           passes' sums are added up in order, and the result is rounded once (of f32 it is in C that they are added
 *           up, to what C held where it accumulates). So its bits depend neither on m, n or the number of threads nor
 *           on where in C it stands. They do on whether the CPU has FMA.
 * Memory:   the workspace holds a part of B as floats (none of few rows; an f32 B that comes packed leaves it) and, for
 *           a C of 16 bits, sums where k takes more than one pass; a thread has less than CLV_GEMM_MAX_STACK_BYTES of
 *           its stack.
 */
#ifndef CLEAVE_KERNELS_CPU_GEMM_GEMM_F32_H
#define CLEAVE_KERNELS_CPU_GEMM_GEMM_F32_H

#include "kernels/cpu/gemm/gemm.h"

enum { CLV_GEMM_F32_MOST_WORKSPACE = 3 << 20 };

/* Bytes for a C of f32: what the shape needs, and no more for a smaller one. One of 16 bits takes the most. */
size_t clv_gemm_f32_workspace(const clv_gemm_args *args);

/* f32, bf16 or f16, into the same or f32; no extent is 0, and the batch is 1. */
void clv_gemm_f32(const clv_gemm_args *args);

#endif
