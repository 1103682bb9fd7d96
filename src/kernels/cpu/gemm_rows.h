/* gemm_rows.h - products of few rows of f32, bf16 or f16 over the caller's threads, or with ranks that wait. */
#ifndef CLEAVE_KERNELS_CPU_GEMM_ROWS_H
#define CLEAVE_KERNELS_CPU_GEMM_ROWS_H

#include "kernels/cpu/gemm.h"

/* Makes a single product, of an extent of k of at least 1, with g's workspace of `bytes`; false: it has too many rows,
 * lies otherwise, or wants more workspace, and nothing was done. */
bool clv_gemm_rows(const clv_gemm_args *g, size_t bytes);

#endif
