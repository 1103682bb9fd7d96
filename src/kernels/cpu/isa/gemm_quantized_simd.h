/* gemm_quantized_simd.h - inner loops of quantized GEMM, one set an instruction set. */
#ifndef CLEAVE_KERNELS_CPU_ISA_GEMM_QUANTIZED_SIMD_H
#define CLEAVE_KERNELS_CPU_ISA_GEMM_QUANTIZED_SIMD_H

#include "kernels/cpu/gemm/gemm_quantized.h"
#include "kernels/cpu/isa_dispatch.h"

enum {
    CLV_QUANT_ROWS = 4,   /* of x that a pass over weights multiplies                                   */
    CLV_QUANT_GROUP = 4,  /* blocks that integers of x are padded to                                    */
    CLV_QUANT_SCALES = 16 /* blocks that scales of x are padded to                                      */
};

/* A row of x as integers: v = 128 * hi + lo, |hi| <= 64, -64 <= lo < 64, so that no sum of two products of it with
 * bytes leaves 16 bits. The elements lie as those of the weights' bytes do: of q4 a group of 4 blocks has the first
 * halves of all four, then the second halves. Integers of q4 are taken 16-fold, in the high half of a byte, so that of
 * both kinds zero is 128; with AVX2 as they are, and their zero is 8. */
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
CLV_ISA_DECLARE(void, clv_quant_widen,
                (clv_quant how, clv_dtype dtype, void *out, const uint8_t *ints, const uint16_t *scales, int64_t n,
                 int64_t blocks))

#endif
