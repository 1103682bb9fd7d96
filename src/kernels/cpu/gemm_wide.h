/* gemm_wide.h - products of bf16 and f16 in f32, for every CPU: what they take where it does not multiply them itself.
 *
 * Numerics: an element is summed over k in ascending order, in f32, and rounded once: its bits depend neither on m, n
 *           or the number of threads nor on where in C it stands. They do on whether the CPU has FMA.
 * Memory:   the workspace holds a part of B in f32, and sums of f32 where k takes more than one pass; a thread has
 *           about 140 KiB of its stack.
 */
#ifndef CLEAVE_KERNELS_CPU_GEMM_WIDE_H
#define CLEAVE_KERNELS_CPU_GEMM_WIDE_H

#include "kernels/cpu/gemm.h"

enum { CLV_GEMM_WIDE_WORKSPACE = 3 << 20 };

/* bf16 or f16, into the same or f32; no extent is 0, and the batch is 1. */
void clv_gemm_wide(const clv_gemm_args *args);

#endif
