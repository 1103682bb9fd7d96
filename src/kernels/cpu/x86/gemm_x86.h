/* gemm_x86.h - products of bf16 by instructions that some CPUs of x86-64 have; see gemm_bf16.h. No extent is 0. */
#ifndef CLEAVE_KERNELS_CPU_X86_GEMM_X86_H
#define CLEAVE_KERNELS_CPU_X86_GEMM_X86_H

#include "kernels/cpu/gemm.h"

void clv_gemm_amx(const clv_gemm_args *args);
void clv_gemm_vdp(const clv_gemm_args *args);

#endif
