/* gemm_quantized.h - weights quantized in blocks of 32 (GGUF's Q8_0, Q4_0): quantize, dequantize, GEMM.
 *
 *   W[j, 32 b + i] = d[j, b] * (u[j, b, i] - zero)          y = x W^T,  x [m, k], W [n, k], k = 32 * blocks
 *
 * The formats are GGUF's (ggml-org/ggml; the Python package gguf quantizes to the same bits):
 *   q8   Q8_0: d = max |w| / 127, u - 128 = w / d rounded to nearest, halves away from 0; one byte per integer
 *   q4   Q4_0: d = (the w of largest magnitude, the first of them) / -8, u = min(15, floor(w / d + 8.5)), zero = 8;
 *        byte i of a block has element i in its low half and element i + 16 in its high half
 * The division by d is in f32; d is stored in f16. A block with an infinite or NaN element has such a d, and so gives
 * such results.
 *
 * Products: up to CLV_QUANT_SKINNY_ROWS rows on all ranks (decoding) are integer products: each block of 32 elements of
 *           a row of x becomes 14-bit integers, x = s * v with |v| <= 8127 and s = max |x| / 8127 (llama.cpp uses 8
 *           bits). Products of a block are summed exactly, blocks are summed in f32. More rows: W is converted to
 *           panels of x's dtype (rounded to bf16 if x is bf16), which clv_gemm multiplies. f64: a plain product, for
 *           tests.
 * Numerics: few rows: the order of each sum does not depend on threads or other rows. More rows: as gemm.h.
 * Zeros:    m or n = 0 does nothing; blocks = 0 writes zeros.
 * Traffic:  few rows: n * blocks * (34 or 18 bytes) + x and y.
 */
#pragma once

#include <stdbool.h>

#include "base/threads/work_stealing.h"
#include "cleave/status.h"
#include "tensor/quant_block.h"

enum { CLV_QUANT_SKINNY_ROWS = 16 };

/* Quantizes blocks of 32 elements; scales are f16. ints or scales may be NULL. */
void clv_quantize(clv_quant how, uint8_t *ints, uint16_t *scales, const float *x, int64_t blocks);
/* Dequantizes to x [32 * blocks]. */
void clv_dequantize(clv_quant how, float *x, const uint8_t *ints, const uint16_t *scales, int64_t blocks);

typedef struct clv_gemm_quantized_args {
    clv_quant how;
    clv_dtype dtype;           /* of x and y                                              */
    int64_t m, n, blocks;      /* >= 0                                                    */
    int64_t global_m;          /* >= m: rows on all ranks, which decide between the kernels */
    const void *x;             /* [m, 32 * blocks]                                        */
    const uint8_t *ints;       /* [n, blocks, 32 or 16]                                   */
    const uint16_t *scales;    /* [n, blocks] f16                                         */
    void *y;                   /* [m, n]; disjoint from the others                        */
    void *workspace;           /* clv_gemm_quantized_workspace() bytes, aligned to 64, not shared */
    clv_task_pool_member work; /* as in clv_gemm_args */
} clv_gemm_quantized_args;

/* Bytes of workspace; never less for a larger extent. */
size_t clv_gemm_quantized_workspace(const clv_gemm_quantized_args *args);
/* @return errors of clv_gemm, for many rows */
clv_status clv_gemm_quantized(const clv_gemm_quantized_args *args, clv_error *err);

/* For tests: false disables the CPU's AVX512-VNNI, true uses it if it is there. */
void clv_quant_use_vnni_for_test(bool use);
