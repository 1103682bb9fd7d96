/* activation_kernel.h - kernels of bias + activation and gated linear units (SwiGLU, GeGLU), forward and backward.
 *
 *   bias_act:  out[r,f] = act(x[r,f] + bias[f])         (GPT-2, ESM-2: gelu)
 *   glu:       out[r,f] = act(gate[r,f]) * up[r,f]      (Shazeer 2020, arXiv:2002.05202: swiglu, geglu, reglu)
 *
 * act: CLV_UNARY_SILU, GELU_ERF, GELU_TANH or RELU.
 * Sharding: rows and f may both be split; elements are independent. One dtype for all operands.
 */
#pragma once

#include "cleave/dtype.h"
#include "kernels/cpu/elementwise_kernel.h"

/* x, out [rows, cols]; bias [cols]. out may be x. */
void clv_bias_act(clv_unary_op act, clv_dtype dtype, void *out, const void *x, const void *bias, int64_t rows,
                  int64_t cols);

/* d_x[r,f] = d_out[r,f] * act'(x[r,f] + bias[f]); d_bias is d_x's sum over rows (clv_reduce_forward). d_x may be d_out
 * or x. */
void clv_bias_act_backward(clv_unary_op act, clv_dtype dtype, void *d_x, const void *d_out, const void *x,
                           const void *bias, int64_t rows, int64_t cols);

/* Rows of gate and up start `stride` elements apart (>= cols): two buffers [rows, cols] have stride = cols; one packed
 * buffer [rows, 2, cols] has up = gate + cols and stride = 2 * cols. out [rows, cols] contiguous; may be gate or up
 * when stride == cols. */
void clv_glu(clv_unary_op act, clv_dtype dtype, void *out, const void *gate, const void *up, int64_t stride,
             int64_t rows, int64_t cols);

/* d_gate = d_out * up * act'(gate), d_up = d_out * act(gate), both with rows `stride` apart, as gate and up, which they
 * may be (in place). d_out [rows, cols]. */
void clv_glu_backward(clv_unary_op act, clv_dtype dtype, void *d_gate, void *d_up, const void *d_out, const void *gate,
                      const void *up, int64_t stride, int64_t rows, int64_t cols);
