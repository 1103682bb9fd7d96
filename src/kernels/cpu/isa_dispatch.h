/* isa_dispatch.h - runtime dispatch: sources in isa/ are compiled for portable, AVX2 and AVX-512 and chosen by CPUID.
 *
 * Files in isa/ are compiled once for each instruction set with -DCLV_ISA=portable, avx2 (AVX2, FMA, F16C) or avx512
 * (F, BW, DQ, VL). They name their non-static functions CLV_ISA_NAME(f); callers outside pick one by CLV_ISA_SELECT(f).
 * So a binary runs on any machine, and no other file needs special compiler flags.
 *
 *   in x.h:        CLV_ISA_DECLARE(void, clv_scale_f32, (float *x, int64_t n, float by))
 *   in isa/x.c:    void CLV_ISA_NAME(clv_scale_f32)(float *x, int64_t n, float by) { ... }
 *   in x.c:        CLV_ISA_SELECT(clv_scale_f32)(x, n, by);
 */
#pragma once

#include "base/hardware/cpu_features.h"

#define CLV_ISA_PASTE_(name, isa) name##_##isa
#define CLV_ISA_PASTE(name, isa)  CLV_ISA_PASTE_(name, isa)
/* Inside isa/ only: the name with the suffix of the instruction set being compiled. */
#define CLV_ISA_NAME(name)        CLV_ISA_PASTE(name, CLV_ISA)

#if defined(__x86_64__)
#define CLV_ISA_DECLARE(result, name, arguments)                                                                       \
    result name##_portable arguments;                                                                                  \
    result name##_avx2 arguments;                                                                                      \
    result name##_avx512 arguments;
#define CLV_ISA_SELECT(name)                                                                                           \
    (clv_cpu_isa() >= CLV_ISA_AVX512 ? name##_avx512 : clv_cpu_isa() == CLV_ISA_AVX2 ? name##_avx2 : name##_portable)
#else
#define CLV_ISA_DECLARE(result, name, arguments) result name##_portable arguments;
#define CLV_ISA_SELECT(name)                     (name##_portable)
#endif
