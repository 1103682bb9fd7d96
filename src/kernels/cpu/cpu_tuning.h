/* cpu_tuning.h - tuning table: which kernel variant is fastest on each kind of CPU.
 *
 * One row for each kind of CPU. The variants are described in the kernels' headers. A row changes speed and, for GEMM
 * and bf16 attention, the last bits of results. The measurements and their commands are in cpu_tuning.c. To add a kind:
 * a name here, ordered by features; a row in cpu_tuning.c, detection in kind_of there, and what tests need of the CPU
 * in clv_tuning_set_for_test.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/gemm/gemm.h"

typedef enum clv_cpu_kind {
    CLV_CPU_PORTABLE,    /* none of the features below */
    CLV_CPU_AVX2,        /* AVX2, FMA, F16C */
    CLV_CPU_AVX512,      /* also AVX-512, with bf16 no faster than f32 (Intel without AMX) */
    CLV_CPU_AVX512_BF16, /* the same with bf16 twice as fast (AMD since Zen 4) */
    CLV_CPU_AMX,         /* also AMX tiles */
    CLV_CPU_KINDS
} clv_cpu_kind;

typedef struct clv_tuning {
    clv_gemm_f32_path f32;   /* f32 products of more than 16 rows */
    clv_gemm_half_path bf16; /* bf16 products of more than 16 rows */
    bool attention_in_bf16;  /* attention multiplies bf16 (isa/attention_bf16.c); false: converts it to f32 */
    /* Products of 5 to 16 rows, f32 and 16-bit: columns of a thread up to which they go by panels instead of chunks
     * (isa/gemm_skinny_simd.c). */
    int64_t skinny_panel_columns_f32, skinny_panel_columns_16bit;
    int dense_streams;          /* rows of dense weights that decoding reads side by side, 1 or 4 */
    int q8_streams, q4_streams; /* the same for quantized weights (isa/gemm_quantized_simd.h) */
    bool prepack_weights;       /* decoding uses prepacked weights (isa/gemm_prepacked.c) */
} clv_tuning;

/* The row of this CPU, limited to what clv_cpu_isa() allows. Any thread may call it. */
const clv_tuning *clv_cpu_tuning(void);

/* For tests: uses the row and instruction set of another kind from now on, in all threads. Returns -1, and changes
 * nothing, if this CPU lacks a feature that the kind needs. clv_tuning_reset_for_test() undoes it. */
int clv_tuning_set_for_test(clv_cpu_kind kind);
void clv_tuning_reset_for_test(void);
