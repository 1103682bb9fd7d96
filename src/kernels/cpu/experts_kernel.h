/* experts_kernel.h - the gated feed-forward networks of a mixture of experts: products grouped by expert, forward and
 * backward.
 *
 *   y[r] = sum over j of weights[r,j] * (act(x[r] G[e]) * (x[r] U[e])) D[e],   e = ids[r,j],  [G[e], U[e]] = gate_up[e]
 *
 * Rows are sorted by expert (a counting sort: within an expert they keep their order) and go through clv_gemm in tiles
 * of at most CLV_EXPERTS_TILE rows of one expert, so nothing is padded or dropped, and the workspace does not depend on
 * how evenly rows are spread.
 *
 * Sharding: a caller has experts [first, first + experts) of all and any part of ffn: y, d_x and d_weights are its part
 *           of a sum over callers. An id outside of its experts adds nothing. Rows may be split.
 * Numerics: 16-bit: products are accumulated in f32, x G, x U, their activation and the gradients of these are rounded,
 *           y and d_x are summed in f32 by ascending expert and rounded once. Bits do not depend on threads beyond
 *           gemm.h's. Up to 16 rows of an expert, a row has the same bits among any number of them.
 * Blocks:   forward, gate_up and down may be quantized (gemm_quantized.h): gate_up u8 [experts, 2, ffn, width / 32, B],
 *           down u8 [experts, width, ffn / 32, B], B = 32 or 16, scales f16 without the last dimension. 16-bit hidden
 *           elements are then multiplied in f32.
 * Packed:   x, y, d_y and d_x may have the rows of the caller's experts alone, in their order, and after them anything
 *           in operands and zeros in results. ids and weights have all rows.
 * Zeros:    rows, experts or ffn = 0 write zeros.
 */
#pragma once

#include "base/threads/work_stealing.h"
#include "cleave/status.h"
#include "kernels/cpu/elementwise_kernel.h"
#include "tensor/quant_block.h"

enum { CLV_EXPERTS_TILE = 256 };

typedef struct clv_experts_args {
    clv_unary_op act; /* SILU, GELU_ERF, GELU_TANH or RELU */
    clv_dtype dtype;  /* of x, gate_up, down and y; f32, bf16, f16 or f64 */
    int64_t rows, width, top_k, first, experts, ffn;
    bool packed;
    int64_t room;        /* rows of x and y: of packed ones at least those of the caller's experts; else `rows` */
    const void *x;       /* [room, width]                                */
    const int32_t *ids;  /* [rows, top_k]                                */
    const void *weights; /* [rows, top_k], f64 for f64, else f32         */
    const void *gate_up; /* [experts, width, 2, ffn]                     */
    const void *down;    /* [experts, ffn, width]                        */
    clv_quant quant;     /* CLV_QUANT_NONE: gate_up and down are floats */
    int64_t global_rows; /* of blocks: rows on all ranks, as in clv_gemm_quantized_args */
    const uint16_t *gate_up_scales, *down_scales;
    void *workspace; /* clv_experts_workspace() bytes, aligned to 64 */
    clv_task_pool_member work;
} clv_experts_args;

typedef struct clv_experts_gradients {
    const void *d_y; /* [room, width]                                                  */
    void *d_x;       /* [room, width]                                                  */
    void *d_weights; /* [rows, top_k]                                                  */
    void *d_gate_up; /* [experts, width, 2, ffn], as d_down of f64 for f64, else of f32 */
    void *d_down;    /* [experts, ffn, width]                                          */
} clv_experts_gradients;

/* Bytes of workspace; never less for a larger extent. */
size_t clv_experts_workspace(const clv_experts_args *args, bool backward);

/* @return errors of clv_gemm */
clv_status clv_experts_forward(const clv_experts_args *args, void *y, clv_error *err);
clv_status clv_experts_backward(const clv_experts_args *args, const clv_experts_gradients *gradients, clv_error *err);
