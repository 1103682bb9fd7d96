/* cpu_features.h - CPU feature detection: the best instruction set (AVX2, AVX-512, AMX) that kernels may use. */
#ifndef CLEAVE_BASE_HARDWARE_CPU_FEATURES_H
#define CLEAVE_BASE_HARDWARE_CPU_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

/* Ordered: each includes the ones before it. CLV_ISA_AMX (tiles of bf16, and AVX512-BF16) has no copies of its own:
 * those of avx512 ask for it where they use it (kernels/cpu/isa/bf16_block_gemm.h). */
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

/* All of the above in one number: kernels go the same ways on two CPUs that have the same. */
int32_t clv_cpu_feature_bits(void);

/* "portable", "avx2", "avx512", "amx". */
const char *clv_isa_name(clv_isa isa);

#endif
