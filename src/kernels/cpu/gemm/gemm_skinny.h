/* gemm_skinny.h - skinny GEMM: products of up to 16 rows (decoding), bound by memory bandwidth. */
#ifndef CLEAVE_KERNELS_CPU_GEMM_GEMM_SKINNY_H
#define CLEAVE_KERNELS_CPU_GEMM_GEMM_SKINNY_H

#include "kernels/cpu/gemm/gemm.h"

/* Makes a single product, of an extent of k of at least 1, with g's workspace of `bytes`; false: it has too many rows,
 * lies otherwise, or wants more workspace, and nothing was done. */
bool clv_gemm_skinny(const clv_gemm_args *g, size_t bytes);

#endif
