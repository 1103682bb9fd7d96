/* activation_kernel.c - kernels of bias + activation and gated linear units, forward and backward. */
#include "kernels/cpu/activation_kernel.h"

#include <assert.h>

#include "kernels/cpu/f32_blocks.h"

/* One element in f64, through the elementwise reference. */
static double act_f64(clv_unary_op act, double x)
{
    clv_unary_forward(act, 1, CLV_F64, &x, &x, 1);
    return x;
}

static double slope_f64(clv_unary_op act, double x)
{
    double one = 1, slope;
    clv_unary_backward(act, 1, CLV_F64, &slope, &one, &x, 1);
    return slope;
}

/* d_x, or with d_out == NULL the activation, of x + bias. */
static void bias_act_reference(clv_unary_op act, clv_dtype dtype, void *out, const void *d_out, const void *x,
                               const void *bias, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows * cols; i++) {
        double sum = clv_dtype_load(dtype, x, i) + clv_dtype_load(dtype, bias, i % cols);
        clv_dtype_store(dtype, out, i,
                        d_out ? clv_dtype_load(dtype, d_out, i) * slope_f64(act, sum) : act_f64(act, sum));
    }
}

static void bias_act_row(clv_unary_op act, clv_dtype dtype, void *out, const void *d_out, const void *x,
                         const void *bias, int64_t row, int64_t cols)
{
    clv_scratch x_block, bias_block, d_block, sum;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    for (int64_t c = 0; c < cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, cols - c), i = row * cols + c;
        const float *x32 = clv_block_load(math, dtype, x, i, n, x_block);
        const float *bias32 = clv_block_load(math, dtype, bias, c, n, bias_block);
        float *to = clv_block_out(dtype, out, i, x_block);
        math->binary[CLV_BINARY_ADD](sum, x32, bias32, NULL, 0, n);
        if (d_out != NULL)
            math->unary_backward[act](to, clv_block_load(math, dtype, d_out, i, n, d_block), sum, NULL, 1, n);
        else
            math->unary[act](to, sum, NULL, NULL, 1, n);
        clv_block_store(math, dtype, out, i, n, to);
    }
}

static void bias_act(clv_unary_op act, clv_dtype dtype, void *out, const void *d_out, const void *x, const void *bias,
                     int64_t rows, int64_t cols)
{
    assert(clv_unary_saved_for_backward(act) == CLV_SAVED_INPUT);
    if (!clv_computes_in_f32(dtype)) {
        bias_act_reference(act, dtype, out, d_out, x, bias, rows, cols);
        return;
    }
    CLV_PARALLEL_FOR_EACH(row, rows, rows * cols, bias_act_row(act, dtype, out, d_out, x, bias, row, cols));
}

void clv_bias_act(clv_unary_op act, clv_dtype dtype, void *out, const void *x, const void *bias, int64_t rows,
                  int64_t cols)
{
    bias_act(act, dtype, out, NULL, x, bias, rows, cols);
}

void clv_bias_act_backward(clv_unary_op act, clv_dtype dtype, void *d_x, const void *d_out, const void *x,
                           const void *bias, int64_t rows, int64_t cols)
{
    bias_act(act, dtype, d_x, d_out, x, bias, rows, cols);
}

static void glu_row(clv_unary_op act, clv_dtype dtype, void *out, const void *gate, const void *up, int64_t stride,
                    int64_t row, int64_t cols)
{
    clv_scratch gate_block, up_block;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    for (int64_t c = 0; c < cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, cols - c), in = row * stride + c, i = row * cols + c;
        const float *gate32 = clv_block_load(math, dtype, gate, in, n, gate_block);
        const float *up32 = clv_block_load(math, dtype, up, in, n, up_block);
        float *to = clv_block_out(dtype, out, i, gate_block);
        math->glu[act](to, gate32, up32, NULL, 1, n);
        clv_block_store(math, dtype, out, i, n, to);
    }
}

static void glu_row_reference(clv_unary_op act, clv_dtype dtype, void *out, const void *gate, const void *up,
                              int64_t stride, int64_t row, int64_t cols)
{
    for (int64_t c = 0; c < cols; c++) {
        double g = clv_dtype_load(dtype, gate, row * stride + c), u = clv_dtype_load(dtype, up, row * stride + c);
        clv_dtype_store(dtype, out, row * cols + c, act_f64(act, g) * u);
    }
}

void clv_glu(clv_unary_op act, clv_dtype dtype, void *out, const void *gate, const void *up, int64_t stride,
             int64_t rows, int64_t cols)
{
    assert(clv_simd_elementwise()->glu[act] != NULL);
    if (clv_computes_in_f32(dtype))
        CLV_PARALLEL_FOR_EACH(row, rows, rows * cols, glu_row(act, dtype, out, gate, up, stride, row, cols));
    else
        CLV_PARALLEL_FOR_EACH(row, rows, rows * cols, glu_row_reference(act, dtype, out, gate, up, stride, row, cols));
}

static void glu_backward_row(clv_unary_op act, clv_dtype dtype, void *d_gate, void *d_up, const void *d_out,
                             const void *gate, const void *up, int64_t stride, int64_t row, int64_t cols)
{
    clv_scratch gate_block, up_block, d_block;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    for (int64_t c = 0; c < cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, cols - c), in = row * stride + c;
        const float *gate32 = clv_block_load(math, dtype, gate, in, n, gate_block);
        const float *up32 = clv_block_load(math, dtype, up, in, n, up_block);
        const float *d32 = clv_block_load(math, dtype, d_out, row * cols + c, n, d_block);
        float *to_gate = clv_block_out(dtype, d_gate, in, gate_block);
        float *to_up = clv_block_out(dtype, d_up, in, up_block);
        math->glu_backward[act](to_gate, to_up, d32, gate32, up32, n);
        clv_block_store(math, dtype, d_up, in, n, to_up);
        clv_block_store(math, dtype, d_gate, in, n, to_gate);
    }
}

void clv_glu_backward(clv_unary_op act, clv_dtype dtype, void *d_gate, void *d_up, const void *d_out, const void *gate,
                      const void *up, int64_t stride, int64_t rows, int64_t cols)
{
    assert(clv_simd_elementwise()->glu_backward[act] != NULL);
    CLV_PARALLEL_FOR(rows * cols)
    for (int64_t row = 0; row < rows; row++) {
        if (clv_computes_in_f32(dtype)) {
            glu_backward_row(act, dtype, d_gate, d_up, d_out, gate, up, stride, row, cols);
            continue;
        }
        for (int64_t c = 0; c < cols; c++) {
            int64_t in = row * stride + c;
            double g = clv_dtype_load(dtype, gate, in), u = clv_dtype_load(dtype, up, in);
            double d = clv_dtype_load(dtype, d_out, row * cols + c);
            clv_dtype_store(dtype, d_gate, in, d * u * slope_f64(act, g));
            clv_dtype_store(dtype, d_up, in, d * act_f64(act, g));
        }
    }
}
