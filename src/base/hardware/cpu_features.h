/* cpu_features.h - CPU feature detection: the best instruction set (AVX2, AVX-512, AMX) that kernels may use. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Instruction sets, each including the ones before it. CLV_ISA_AMX (bf16 tiles and AVX512-BF16) has no kernel copies of
 * its own: the avx512 copies check for it where they use it (kernels/cpu/isa/bf16_block_gemm.h). */
typedef enum clv_isa { CLV_ISA_PORTABLE, CLV_ISA_AVX2, CLV_ISA_AVX512, CLV_ISA_AMX } clv_isa;

/* Returns the best instruction set that the CPU and the operating system support, or the one that a test has set. */
clv_isa clv_cpu_isa(void);

/* For tests: makes clv_cpu_isa() return `isa` in all threads; returns -1 and changes nothing if the CPU lacks it.
 * clv_cpu_isa_reset_for_test() returns to the best. */
int clv_cpu_set_isa_for_test(clv_isa isa);
void clv_cpu_isa_reset_for_test(void);

/* Further features of the CPU, whatever a test has set. */
bool clv_cpu_has_avx512_bf16(void);
bool clv_cpu_has_avx512_vnni(void);
bool clv_cpu_is_amd(void);

/* Returns all of the above in one number: kernels take the same code paths on CPUs with equal numbers. */
int32_t clv_cpu_feature_bits(void);

/* "portable", "avx2", "avx512", "amx". */
const char *clv_isa_name(clv_isa isa);
