/* isa.h - one source, compiled for several instruction sets, chosen at run time.
 *
 * Files in isa/ are compiled once for each instruction set with -DCLV_ISA=portable, avx2 (AVX2, FMA, F16C) or avx512
 * (F, BW, DQ, VL). They name their non-static functions CLV_ISA_NAME(f); callers outside pick one by CLV_ISA_SELECT(f).
 * So a binary built on one machine runs on the next, and no other file needs special flags.
 *
 *   in x.h:        CLV_ISA_DECLARE(void, clv_scale_f32, (float *x, int64_t n, float by))
 *   in isa/x.c:    void CLV_ISA_NAME(clv_scale_f32)(float *x, int64_t n, float by) { ... }
 *   in x.c:        CLV_ISA_SELECT(clv_scale_f32)(x, n, by);
 */
#ifndef CLEAVE_KERNELS_CPU_ISA_H
#define CLEAVE_KERNELS_CPU_ISA_H

#include <stdbool.h>

/* Ordered: each includes the ones before it. CLV_ISA_AMX (tiles of bf16, and AVX512-BF16) has no copies of its own:
 * those of avx512 ask for it where they use it (isa/bf16_product.h). */
typedef enum clv_isa { CLV_ISA_PORTABLE, CLV_ISA_AVX2, CLV_ISA_AVX512, CLV_ISA_AMX } clv_isa;

/* The best one that this CPU (and its operating system) runs, or what a test has set. */
clv_isa clv_cpu_isa(void);

/* For tests: from now on clv_cpu_isa() gives `isa`, for all threads. Returns 0, or -1 with nothing changed when this
 * CPU lacks it. clv_cpu_isa_reset_for_test() goes back to the best. */
int clv_cpu_set_isa_for_test(clv_isa isa);
void clv_cpu_isa_reset_for_test(void);

/* What the CPU has beside that, whatever a test has set. */
bool clv_cpu_has_avx512_bf16(void);
bool clv_cpu_has_avx512_vnni(void);
bool clv_cpu_is_amd(void);

/* "portable", "avx2", "avx512", "amx". */
const char *clv_isa_text(clv_isa isa);

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

#endif
