/* batch_invariance.h - where rows of a product of f32 have the same bits among few rows and among many: by our own
 * kernel, and by oneDNN's for AVX-512 (src/kernels/cpu/gemm/gemm.h). */
#pragma once

#include <stdbool.h>
#include <stdlib.h>

#include "kernels/cpu/cpu_tuning.h"
#include "kernels/cpu/isa_dispatch.h"

static inline bool rows_are_alike(void)
{
    if (clv_cpu_tuning()->f32 == CLV_GEMM_F32_OWN)
        return true;
#if defined(__x86_64__)
    return clv_cpu_isa() >= CLV_ISA_AVX512 && !getenv("ONEDNN_MAX_CPU_ISA") && !getenv("DNNL_MAX_CPU_ISA");
#else
    return false;
#endif
}
