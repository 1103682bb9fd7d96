/* softmax_kernel.c - softmax of rows, forward and backward. */
#include "kernels/cpu/softmax_kernel.h"

#include <math.h>

#include "kernels/cpu/f32_blocks.h"

static double max_f64(double a, double b)
{
    return a > b || isnan(a) ? a : b;
}

/* ---- reference ---- */

static void softmax_reference(clv_dtype dtype, void *y, const void *x, int64_t first, int64_t cols)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = first; i < first + cols; i++)
        max = max_f64(max, clv_dtype_load(dtype, x, i));
    for (int64_t i = first; i < first + cols; i++)
        sum += exp(clv_dtype_load(dtype, x, i) - max);
    for (int64_t i = first; i < first + cols; i++)
        clv_dtype_store(dtype, y, i, max == -INFINITY ? 0 : exp(clv_dtype_load(dtype, x, i) - max) / sum);
}

static void softmax_backward_reference(clv_dtype dtype, void *d_x, const void *d_y, const void *y, int64_t first,
                                       int64_t cols)
{
    double dot = 0;
    for (int64_t i = first; i < first + cols; i++)
        dot += clv_dtype_load(dtype, d_y, i) * clv_dtype_load(dtype, y, i);
    for (int64_t i = first; i < first + cols; i++)
        clv_dtype_store(dtype, d_x, i, clv_dtype_load(dtype, y, i) * (clv_dtype_load(dtype, d_y, i) - dot));
}

/* ---- f32 ---- */

static void softmax_row(clv_dtype dtype, void *y, const void *x, int64_t first, int64_t cols)
{
    clv_scratch x_block, e_block;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    const clv_rowwise_loops *rows = clv_simd_rowwise();
    float max = -INFINITY;
    double sum = 0;

    for (int64_t c = 0; c < cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, cols - c);
        max = (float)max_f64(max, rows->max(clv_block_load(math, dtype, x, first + c, n, x_block), n));
    }
    for (int64_t c = 0; c < cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, cols - c);
        rows->exp_minus(e_block, clv_block_load(math, dtype, x, first + c, n, x_block), max, 1, n);
        sum += rows->sum(e_block, n);
    }
    for (int64_t c = 0; c < cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, cols - c);
        const float *x32 = clv_block_load(math, dtype, x, first + c, n, x_block);
        float *to = clv_block_out(dtype, y, first + c, e_block);
        if (max == -INFINITY)
            for (int64_t i = 0; i < n; i++)
                to[i] = 0;
        else
            rows->exp_minus(to, x32, max, (float)(1 / sum), n);
        clv_block_store(math, dtype, y, first + c, n, to);
    }
}

static void softmax_backward_row(clv_dtype dtype, void *d_x, const void *d_y, const void *y, int64_t first,
                                 int64_t cols)
{
    clv_scratch y_block, d_block;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    const clv_rowwise_loops *rows = clv_simd_rowwise();
    double dot = 0;

    for (int64_t c = 0; c < cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, cols - c);
        dot += rows->dot(clv_block_load(math, dtype, d_y, first + c, n, d_block),
                         clv_block_load(math, dtype, y, first + c, n, y_block), n);
    }
    for (int64_t c = 0; c < cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, cols - c);
        const float *d32 = clv_block_load(math, dtype, d_y, first + c, n, d_block);
        const float *y32 = clv_block_load(math, dtype, y, first + c, n, y_block);
        float *to = clv_block_out(dtype, d_x, first + c, d_block);
        rows->softmax_backward(to, d32, y32, (float)dot, n);
        clv_block_store(math, dtype, d_x, first + c, n, to);
    }
}

void clv_softmax_forward(clv_dtype dtype, void *y, const void *x, int64_t rows, int64_t cols)
{
    CLV_PARALLEL_FOR(rows * cols)
    for (int64_t row = 0; row < rows; row++)
        (clv_computes_in_f32(dtype) ? softmax_row : softmax_reference)(dtype, y, x, row * cols, cols);
}

void clv_softmax_backward(clv_dtype dtype, void *d_x, const void *d_y, const void *y, int64_t rows, int64_t cols)
{
    CLV_PARALLEL_FOR(rows * cols)
    for (int64_t row = 0; row < rows; row++)
        (clv_computes_in_f32(dtype) ? softmax_backward_row : softmax_backward_reference)(dtype, d_x, d_y, y, row * cols,
                                                                                         cols);
}
