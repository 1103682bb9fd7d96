/* gemm_kernels.h - the GEMM kernels that gemm.c dispatches to: skinny, f32, oneDNN and bf16. Each computes a single
 * product (batch 1) of which no extent is 0.
 */
#pragma once

#include "kernels/cpu/gemm/gemm.h"

/* The workspace of a product with 16-bit operands or results. */
enum { CLV_GEMM_MOST_WORKSPACE = 3 << 20 };

/* Up to 16 rows (decoding), bound by memory bandwidth; `bytes` is the size of g's workspace. Returns false, and does
 * nothing, for more rows, for two transposed operands, or if the workspace is too small. */
bool clv_gemm_try_skinny(const clv_gemm_args *g, size_t bytes);

/* f32, bf16 or f16 operands into the same dtype or f32, accumulated in f32, on every CPU.
 *
 * Numerics: k is divided into passes, which depend on k alone. An element is summed in f32 over each pass in ascending
 *           order, the sums of passes are added in order, and the result is rounded once (an f32 C holds the sums, and
 *           they are added to what it held if it accumulates). So bits do not depend on m, n, the number of threads or
 *           the position in C. They depend on whether the CPU has FMA.
 * Memory:   the workspace holds a part of B as f32 (not for few rows, nor for a prepacked f32 B) and, for a 16-bit C,
 *           sums if k takes more than one pass. */
void clv_gemm_f32(const clv_gemm_args *g);
/* Bytes of workspace for an f32 C; a smaller shape needs no more. */
size_t clv_gemm_f32_workspace(const clv_gemm_args *g);

/* f32 by oneDNN. clv_onednn_jit_compile generates its code, which is otherwise done by the first product. */
clv_status clv_onednn_sgemm(const clv_gemm_args *g, clv_error *err);
clv_status clv_onednn_jit_compile(clv_error *err);

#if defined(__x86_64__)
/* bf16 operands into bf16 or f32, for CPUs with AMX (tdpbf16ps, 32 x 32 of C in tile registers) or AVX512-BF16
 * (vdpbf16ps).
 *
 * Numerics: an element is summed over pairs of k in ascending order, in f32, and rounded once: its bits do not depend
 * on
 *           m, n, the number of threads or the position in C. Denormals count as zeros.
 * Memory:   the workspace holds a block of B, rows of a transposed A, and f32 sums. */
void clv_gemm_amx(const clv_gemm_args *g);
void clv_gemm_avx512_bf16(const clv_gemm_args *g);
#endif
