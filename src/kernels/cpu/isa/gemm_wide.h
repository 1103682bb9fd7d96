/* gemm_wide.h - products of bf16 and f16 in f32: parts of both operands are widened as they are packed, a tile of C is
 * summed in registers, and rounded once. One set of functions an instruction set; gemm_wide.c in the folder above cuts
 * a product into their work.
 *
 * A part of op(B), [k, n], is packed in panels of `cols` columns, [n / cols][k][cols], what n does not fill with
 * zeros. Of op(A) rows are only widened, in the order in which they are stored: those of each tile into
 * CLV_GEMM_WIDE_A floats, of several tiles at a time, for where rows of op(A) are columns of what is stored, each is
 * part of a line. */
#ifndef CLEAVE_KERNELS_CPU_ISA_GEMM_WIDE_H
#define CLEAVE_KERNELS_CPU_ISA_GEMM_WIDE_H

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa.h"

enum {
    CLV_GEMM_WIDE_PASS = 512, /* most k of a part: its rows of A lie in L1 */
    CLV_GEMM_WIDE_ROWS = 14,  /* most rows and columns of a tile of C */
    CLV_GEMM_WIDE_COLS = 32,
    CLV_GEMM_WIDE_A = (CLV_GEMM_WIDE_PASS + 16) * 16
};

typedef struct clv_gemm_wide_kernel {
    int64_t rows, cols; /* of a tile */
    /* Panels [from, to) of op(B)'s part at (p, j), [k, n]. */
    void (*pack_b)(float *out, const clv_gemm_args *g, int64_t p, int64_t j, int64_t k, int64_t n, int64_t from,
                   int64_t to);
    /* op(A)'s part at (i, p), [rows, k]: the last tile may have fewer rows than others. */
    void (*widen_a)(float *out, const clv_gemm_args *g, int64_t i, int64_t p, int64_t rows, int64_t k);
    /* sums, a tile's [rows of it, cols], by a panel of B: they go on from what they are, or from nothing where fresh.
     * `rows` are those that count: at least so many are computed. */
    void (*multiply)(float *sums, bool fresh, int64_t rows, const float *a, bool trans_a, const float *panel,
                     int64_t k);
    /* C's elements at (i, j), [rows, n], from a tile's sums. */
    void (*finish)(const clv_gemm_args *g, int64_t i, int64_t j, int64_t rows, int64_t n, const float *sums);
} clv_gemm_wide_kernel;

CLV_ISA_DECLARE(const clv_gemm_wide_kernel *, clv_gemm_wide_kernel_of, (void))

#endif
