/* gemm_x86.h - bf16 GEMMs for x86-64 CPUs with AMX or AVX512-BF16. No extent is 0. */
#ifndef CLEAVE_KERNELS_CPU_X86_GEMM_X86_H
#define CLEAVE_KERNELS_CPU_X86_GEMM_X86_H

#include "kernels/cpu/gemm/gemm.h"

void clv_gemm_amx(const clv_gemm_args *args);
void clv_gemm_avx512_bf16(const clv_gemm_args *args);

#endif
