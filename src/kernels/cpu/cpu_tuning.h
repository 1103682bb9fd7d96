/* cpu_tuning.h - tuning table: which kernel variant is fastest on each kind of CPU.
 *
 * One table, a row a kind. The ways are those that the kernels' headers describe; what a row says changes speed and, of
 * products and of attention of bf16, last bits. Figures and the commands that gave them stand in cpu_tuning.c. A new
 * kind takes a name here, in order of what it takes of the CPU; in cpu_tuning.c a row, what it is known by (kind_of),
 * and what tests of it take (clv_tuning_set_for_test).
 */
#ifndef CLEAVE_KERNELS_CPU_CPU_TUNING_H
#define CLEAVE_KERNELS_CPU_CPU_TUNING_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/gemm/gemm.h"

typedef enum clv_cpu_kind {
    CLV_CPU_PORTABLE,    /* nothing of the below */
    CLV_CPU_AVX2,        /* AVX2, FMA, F16C */
    CLV_CPU_AVX512,      /* and AVX-512, which multiplies bf16 no faster than f32 (Intel's without AMX) */
    CLV_CPU_AVX512_BF16, /* or twice as fast (AMD's since Zen 4) */
    CLV_CPU_AMX,         /* or in tiles */
    CLV_CPU_KINDS
} clv_cpu_kind;

typedef struct clv_tuning {
    clv_gemm_f32_path f32;              /* products of more than 16 rows */
    clv_gemm_half_path bf16;            /* the same */
    bool attention_in_bf16;             /* attention multiplies bf16 (isa/attention_bf16.c), else the same widened */
    int64_t skinny_panel_columns_f32;   /* a thread's columns up to which 5 to 16 rows go by panels, not chunks
                                     (isa/gemm_skinny_simd.c) */
    int64_t skinny_panel_columns_16bit; /* the same of bf16 and f16 */
    int dense_streams;                  /* rows of weights that decoding reads side by side, 1 or 4
                                           (isa/gemm_skinny_simd.h) */
    int q8_streams, q4_streams;         /* the same of weights in blocks (isa/gemm_quantized_simd.h) */
    bool prepack_weights;               /* decoding holds weights in panels (isa/gemm_prepacked.h) */
} clv_tuning;

/* This CPU's row, of what clv_cpu_isa() allows. Any thread. */
const clv_tuning *clv_cpu_tuning(void);

/* For tests: the row of another kind from now on, for all threads, and its instruction set. Returns 0, or -1 with
 * nothing changed where this CPU lacks what it takes. clv_tuning_reset_for_test() goes back, of both. */
int clv_tuning_set_for_test(clv_cpu_kind kind);
void clv_tuning_reset_for_test(void);

/* "portable", "avx2", "avx512", "avx512_bf16", "amx". */
const char *clv_cpu_kind_text(clv_cpu_kind kind);

#endif
