/* gemm_bf16.c - picks the bf16 GEMM that this CPU has: AMX or AVX512-BF16. */
#include "kernels/cpu/gemm/gemm_bf16.h"

#include "kernels/cpu/isa_dispatch.h"

#if defined(__x86_64__)

#include "kernels/cpu/x86/gemm_x86.h"

clv_gemm_bf16_kernel clv_gemm_bf16_best(void)
{
    if (clv_cpu_isa() == CLV_ISA_AMX)
        return CLV_GEMM_BF16_AMX;
    return clv_cpu_isa() == CLV_ISA_AVX512 && clv_cpu_has_avx512_bf16() ? CLV_GEMM_BF16_VDP : CLV_GEMM_BF16_NONE;
}

void clv_gemm_bf16(const clv_gemm_args *g, clv_gemm_bf16_kernel kernel)
{
    if (kernel == CLV_GEMM_BF16_AMX)
        clv_gemm_amx(g);
    else
        clv_gemm_avx512_bf16(g);
}

#else

clv_gemm_bf16_kernel clv_gemm_bf16_best(void)
{
    return CLV_GEMM_BF16_NONE;
}

void clv_gemm_bf16(const clv_gemm_args *g, clv_gemm_bf16_kernel kernel)
{
    (void)g;
    (void)kernel;
}

#endif
