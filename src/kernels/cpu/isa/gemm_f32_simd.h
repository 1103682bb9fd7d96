/* gemm_f32_simd.h - micro-kernel table of the f32-accumulating GEMM: pack A, pack B, multiply, store. One set of
 * functions an instruction set; gemm_f32_simd.c in the folder above cuts a product into their work.
 *
 * A part of op(B), [k, n], lies in panels of CLV_PANEL_COLUMNS columns, [n / CLV_PANEL_COLUMNS][k][CLV_PANEL_COLUMNS],
 * as a B that comes packed does: one of f32 is multiplied where it is. A part of op(A), [m, k], lies in panels of
 * `rows` rows, [m / rows][k][rows], CLV_GEMM_F32_A_PANEL_STRIDE floats apart. What n or m do not fill is zeros.
 */
#ifndef CLEAVE_KERNELS_CPU_ISA_GEMM_F32_SIMD_H
#define CLEAVE_KERNELS_CPU_ISA_GEMM_F32_SIMD_H

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/isa_dispatch.h"

enum {
    CLV_GEMM_F32_PASS = 512, /* most k of a part: a tile's panels lie in L1, or with AVX-512 in L2 */
    CLV_GEMM_F32_ROWS = 14,  /* most rows and columns of a tile of C */
    CLV_GEMM_F32_COLS = 32,
    CLV_GEMM_F32_A_PANEL_STRIDE = 16 /* floats behind a panel that packing may write */
};

/* Where a tile's sums go: [rows, cols] floats, `ld` from row to row. */
typedef struct clv_gemm_f32_tile {
    float *at;
    int64_t ld, rows, cols;
    bool add; /* to what is there */
} clv_gemm_f32_tile;

/* A tile's part of B: columns from `at` on, in its panel; the next panel is `apart` floats behind, or there is none,
 * and `apart` is 0. */
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

#endif
