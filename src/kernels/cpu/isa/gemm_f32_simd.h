/* gemm_f32_simd.h - micro-kernel table of the f32-accumulating GEMM: pack A, pack B, multiply, store. One set of
 * functions for each instruction set; gemm/gemm_f32.c divides a product into calls of them.
 *
 * A part [k, n] of op(B) is packed in panels of columns, [n / CLV_PANEL_COLUMNS][k][CLV_PANEL_COLUMNS]; a prepacked f32
 * B is in this order already and is multiplied in place. A part [m, k] of op(A) is packed in panels of `rows` rows,
 * [m / rows][k][rows], CLV_GEMM_F32_A_PANEL_STRIDE floats apart. Panels are padded with zeros.
 */
#pragma once

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/isa_dispatch.h"

enum {
    CLV_GEMM_F32_PASS = 512, /* most k of a part: the panels of a tile fit in L1, or with AVX-512 in L2 */
    CLV_GEMM_F32_ROWS = 14,  /* most rows and columns of a tile of C */
    CLV_GEMM_F32_COLS = 32,
    CLV_GEMM_F32_A_PANEL_STRIDE = 16 /* floats after a panel that packing may overwrite */
};

/* Where the sums of a tile are stored: [rows, cols] floats, rows `ld` apart. */
typedef struct clv_gemm_f32_tile {
    float *at;
    int64_t ld, rows, cols;
    bool add; /* add to what is stored there */
} clv_gemm_f32_tile;

/* The panels of B of a tile: one at `at`, the next `apart` floats later; apart 0: only one. */
typedef struct clv_gemm_f32_b_panels {
    const float *at;
    int64_t apart;
} clv_gemm_f32_b_panels;

typedef struct clv_gemm_f32_kernel {
    int64_t rows, cols; /* of a tile */
    /* Panels of op(B)'s part at (p, j), [k, n], one behind the other; not of an f32 B that is packed. */
    void (*pack_b)(float *out, const clv_gemm_args *g, int64_t p, int64_t j, int64_t k, int64_t n);
    /* op(A)'s part at (i, p), [m, k]: panels are k * rows + CLV_GEMM_F32_A_PANEL_STRIDE floats apart. */
    void (*pack_a)(float *out, const clv_gemm_args *g, int64_t i, int64_t p, int64_t m, int64_t k);
    /* A tile's sums over k, of a panel of A and of B's. */
    void (*multiply)(const clv_gemm_f32_tile *tile, const float *a, const clv_gemm_f32_b_panels *b, int64_t k);
    /* C's elements at (i, j), [rows, n], from sums that lie as a tile of [rows, cols]. */
    void (*finish)(const clv_gemm_args *g, int64_t i, int64_t j, int64_t rows, int64_t n, const float *sums);
} clv_gemm_f32_kernel;

CLV_ISA_DECLARE(const clv_gemm_f32_kernel *, clv_gemm_f32_kernel_of, (void))
