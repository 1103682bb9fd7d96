/* gemm_quantized.h - weights quantized in blocks of 32 (GGUF's Q8_0, Q4_0): quantize, dequantize, GEMM.
 *
 *   W[j, 32 b + i] = d[j, b] * (u[j, b, i] - zero)          y = x W^T,  x [m, k], W [n, k], k = 32 * blocks
 *
 * Values are those of GGUF's formats (ggml-org/ggml; its Python package gguf quantises alike, to the bit):
 *   q8   Q8_0: d = max |w| / 127, u - 128 = w / d rounded to nearest, halves away from 0; a byte an integer
 *   q4   Q4_0: d = (the w of largest magnitude, the first of them) / -8, u = min(15, floor(w / d + 8.5)), zero 8; byte
 *        i of a block has element i in its low half, element i + 16 in the high one
 * d is divided by in f32 and kept in f16. A block with what is infinite or NaN has such a d, and so such results.
 *
 * Products: up to CLV_QUANT_SKINNY_ROWS rows on all ranks, as in decoding, multiply integers: each block of 32 elements
 * of a
 *           row of x becomes 14-bit integers, x = s * v with |v| <= 8127 and s = max |x| / 8127 (llama.cpp takes 8
 *           bits), and products of a block are summed exactly. Blocks are summed in f32. More rows go through panels of
 *           W in x's dtype (so weights are rounded to bf16 beside x of bf16) and clv_gemm. f64: the plain product of W,
 *           the oracle.
 * Numerics: few rows: each result's sum has an order of its own, whatever the threads and rows beside it. More: gemm.h.
 * Zeros:    m or n = 0 is a no-op; blocks = 0 writes zeros.
 * Traffic:  few rows: n * blocks * (34 or 18 bytes) + x and y.
 */
#ifndef CLEAVE_KERNELS_CPU_GEMM_GEMM_QUANTIZED_H
#define CLEAVE_KERNELS_CPU_GEMM_GEMM_QUANTIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/threads/work_stealing.h"
#include "cleave/status.h"
#include "tensor/quant_block.h"

enum { CLV_QUANT_SKINNY_ROWS = 16 };

/* Quantises blocks of 32 elements; scales are f16, either of the two may be NULL. */
void clv_quantize(clv_quant how, uint8_t *ints, uint16_t *scales, const float *x, int64_t blocks);
/* And back: x [32 * blocks]. */
void clv_dequantize(clv_quant how, float *x, const uint8_t *ints, const uint16_t *scales, int64_t blocks);

typedef struct clv_gemm_quantized_args {
    clv_quant how;
    clv_dtype dtype;           /* of x and y                                              */
    int64_t m, n, blocks;      /* >= 0                                                    */
    int64_t global_m;          /* >= m: rows on all ranks, by which products are of few    */
    const void *x;             /* [m, 32 * blocks]                                        */
    const uint8_t *ints;       /* [n, blocks, 32 or 16]                                   */
    const uint16_t *scales;    /* [n, blocks] f16                                         */
    void *y;                   /* [m, n]; disjoint from the others                        */
    void *workspace;           /* clv_gemm_quantized_workspace() bytes, aligned to 64; one a caller */
    clv_task_pool_member work; /* as clv_gemm_args has it */
} clv_gemm_quantized_args;

/* Bytes of workspace; it does not fall when an extent grows. */
size_t clv_gemm_quantized_workspace(const clv_gemm_quantized_args *args);
/* @return clv_gemm's, where there are many rows */
clv_status clv_gemm_quantized(const clv_gemm_quantized_args *args, clv_error *err);

/* For tests: from now on the AVX-512 kernels do without the CPU's VNNI; true goes back to what the CPU has. */
void clv_quant_use_vnni_for_test(bool use);

#endif
