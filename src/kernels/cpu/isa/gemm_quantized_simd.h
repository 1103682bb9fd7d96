/* gemm_quantized_simd.h - inner loops of quantized GEMM, one set for each instruction set. */
#pragma once

#include "kernels/cpu/gemm/gemm_quantized.h"
#include "kernels/cpu/isa_dispatch.h"

enum {
    CLV_QUANT_ROWS = 4,   /* rows of x that are multiplied in one pass over weights */
    CLV_QUANT_GROUP = 4,  /* integers of x are padded to a multiple of so many blocks */
    CLV_QUANT_SCALES = 16 /* scales of x are padded to a multiple of so many blocks */
};

/* A row of x as integers: v = 128 * hi + lo, |hi| <= 64, -64 <= lo < 64, so that the sum of two of their products with
 * bytes fits in 16 bits. They are in the order of the weights' bytes: for q4, a group of 4 blocks has the first halves
 * of all four, then the second halves. q4 integers are used times 16, as they are in the high half of a byte, so that
 * the zero of both formats is 128; with AVX2 they are used unscaled, and their zero is 8. */
typedef struct clv_quant_row {
    int8_t *hi, *lo; /* [32 * blocks], padded with zeros to CLV_QUANT_GROUP blocks                    */
    int32_t *offset; /* -the sum of the v that meet in 4 bytes of weights: [8 (q4: 4) a block]; times their zero */
    float *scale;    /* s (q4, where 16-fold: s / 16) [blocks], padded with zeros to CLV_QUANT_SCALES */
} clv_quant_row;

/* Fills out from x [32 * blocks] f32. */
CLV_ISA_DECLARE(void, clv_quant_fill_row, (clv_quant how, const clv_quant_row *out, const float *x, int64_t blocks))

/* y[r * ldy + j] = row r of x times row j of the weights, for `rows` <= CLV_QUANT_ROWS and n rows of weights from those
 * at `ints` and `scales` on. streams: how many of these a row of x reads side by side, 1 or else 4 (CLV_QUANT_ROWS rows
 * of x read two); it changes no bits. vnni: the CPU has AVX512-VNNI; only avx512 asks. */
CLV_ISA_DECLARE(void, clv_quant_dots,
                (clv_quant how, float *y, int64_t ldy, const clv_quant_row *x, int rows, const uint8_t *ints,
                 const uint16_t *scales, int64_t n, int streams, int64_t blocks, bool vnni))

/* out [n, 32 * blocks] in f32, bf16 or f16, from n rows of weights. */
CLV_ISA_DECLARE(void, clv_dequantize_rows,
                (clv_quant how, clv_dtype dtype, void *out, const uint8_t *ints, const uint16_t *scales, int64_t n,
                 int64_t blocks))
