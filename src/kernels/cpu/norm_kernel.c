/* norm_kernel.c - LayerNorm and RMSNorm kernels, forward and backward: plain loops for f64, f32 blocks for the others.
 */
#include "kernels/cpu/norm_kernel.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/f32_blocks.h"

/* Statistics of a row. g_mean and gxhat_mean are for the backward pass. */
typedef struct row_stats {
    double mean, rstd, g_mean, gxhat_mean;
} row_stats;

/* From the summed moments and, unless NULL, the sums of the backward pass. */
static row_stats stats_of(const clv_norm *norm, const double *moments, const double *sums, int64_t row)
{
    double width = (double)norm->width;
    bool layer = norm->kind == CLV_NORM_LAYER;
    row_stats s = {.mean = layer ? moments[2 * row] / width : 0};
    double variance = moments[2 * row + 1] / width - s.mean * s.mean;
    variance = variance < 0 ? 0 : variance; /* rounding; NaN stays */
    s.rstd = 1 / sqrt(variance + norm->eps);
    if (sums != NULL) {
        s.g_mean = layer ? sums[2 * row] / width : 0;
        s.gxhat_mean = sums[2 * row + 1] / width;
    }
    return s;
}

static clv_row_norm narrow(row_stats s)
{
    return (clv_row_norm){(float)s.mean, (float)s.rstd, (float)s.g_mean, (float)s.gxhat_mean};
}

/* A block of gain or bias as f32; weight NULL: filled with `absent`. */
static const float *load_weight(const clv_elementwise_loops *math, clv_dtype dtype, const void *weight, float absent,
                                int64_t c, int64_t n, float *scratch)
{
    if (weight == NULL) {
        for (int64_t i = 0; i < n; i++)
            scratch[i] = absent;
        return scratch;
    }
    if (clv_computes_in_f32(dtype))
        return clv_block_load(math, dtype, weight, c, n, scratch);
    for (int64_t i = 0; i < n; i++)
        scratch[i] = (float)clv_dtype_load(dtype, weight, c + i);
    return scratch;
}

static double weight_at(clv_dtype dtype, const void *weight, double absent, int64_t c)
{
    return weight != NULL ? clv_dtype_load(dtype, weight, c) : absent;
}

/* Rows that are computed together: they share the loaded weights, and their statistics are computed first. */
enum { MAX_GROUP = 8 };

typedef struct group {
    int64_t first, rows;
} group;

/* ---- a group in f64: the reference ---- */

static void apply_f64(const clv_norm *norm, void *y, const void *x, const double *moments, const void *gain,
                      const void *bias, group of)
{
    for (int64_t row = of.first; row < of.first + of.rows; row++) {
        row_stats s = stats_of(norm, moments, NULL, row);
        for (int64_t c = 0, i = row * norm->cols; c < norm->cols; c++, i++)
            ((double *)y)[i] = (((const double *)x)[i] - s.mean) * s.rstd * weight_at(norm->weight_dtype, gain, 1, c) +
                               weight_at(norm->weight_dtype, bias, 0, c);
    }
}

static void sums_f64(const clv_norm *norm, double *sums, const void *d_y, const void *x, const double *moments,
                     const void *gain, group of)
{
    for (int64_t row = of.first; row < of.first + of.rows; row++) {
        row_stats s = stats_of(norm, moments, NULL, row);
        sums[2 * row] = sums[2 * row + 1] = 0;
        for (int64_t c = 0, i = row * norm->cols; c < norm->cols; c++, i++) {
            double g = ((const double *)d_y)[i] * weight_at(norm->weight_dtype, gain, 1, c);
            sums[2 * row] += g;
            sums[2 * row + 1] += g * (((const double *)x)[i] - s.mean) * s.rstd;
        }
    }
}

static void backward_f64(const clv_norm *norm, void *d_x, const void *d_y, const void *x, const double *moments,
                         const double *sums, const void *gain, group of)
{
    for (int64_t row = of.first; row < of.first + of.rows; row++) {
        row_stats s = stats_of(norm, moments, sums, row);
        for (int64_t c = 0, i = row * norm->cols; c < norm->cols; c++, i++) {
            double g = ((const double *)d_y)[i] * weight_at(norm->weight_dtype, gain, 1, c);
            double xhat = (((const double *)x)[i] - s.mean) * s.rstd;
            ((double *)d_x)[i] = s.rstd * (g - s.g_mean - xhat * s.gxhat_mean);
        }
    }
}

/* ---- a group in f32 blocks ---- */

static void moments_f32(const clv_norm *norm, double moments[2], const void *x, int64_t row)
{
    clv_scratch scratch;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    moments[0] = moments[1] = 0;
    for (int64_t c = 0; c < norm->cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, norm->cols - c);
        clv_simd_rowwise()->moments(moments, clv_block_load(math, norm->dtype, x, row * norm->cols + c, n, scratch), n);
    }
}

static void group_stats(const clv_norm *norm, clv_row_norm *out, const double *moments, const double *sums, group of)
{
    for (int64_t r = 0; r < of.rows; r++)
        out[r] = narrow(stats_of(norm, moments, sums, of.first + r));
}

static void apply_f32(const clv_norm *norm, void *y, const void *x, const double *moments, const void *gain,
                      const void *bias, group of)
{
    clv_scratch x_block, gain_block, bias_block;
    clv_row_norm row[MAX_GROUP];
    const clv_elementwise_loops *math = clv_simd_elementwise();
    group_stats(norm, row, moments, NULL, of);
    for (int64_t c = 0; c < norm->cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, norm->cols - c), i = of.first * norm->cols + c;
        const float *gain32 = load_weight(math, norm->weight_dtype, gain, 1, c, n, gain_block);
        const float *bias32 = load_weight(math, norm->weight_dtype, bias, 0, c, n, bias_block);
        for (int64_t r = 0; r < of.rows; r++, i += norm->cols) {
            const float *x32 = clv_block_load(math, norm->dtype, x, i, n, x_block);
            float *to = clv_block_out(norm->dtype, y, i, x_block);
            clv_simd_rowwise()->norm(to, x32, gain32, bias32, row[r], n);
            clv_block_store(math, norm->dtype, y, i, n, to);
        }
    }
}

static void sums_f32(const clv_norm *norm, double *sums, const void *d_y, const void *x, const double *moments,
                     const void *gain, group of)
{
    clv_scratch x_block, d_block, gain_block;
    clv_row_norm row[MAX_GROUP];
    const clv_elementwise_loops *math = clv_simd_elementwise();
    group_stats(norm, row, moments, NULL, of);
    memset(sums + 2 * of.first, 0, (size_t)(2 * of.rows) * sizeof *sums);
    for (int64_t c = 0; c < norm->cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, norm->cols - c), i = of.first * norm->cols + c;
        const float *gain32 = load_weight(math, norm->weight_dtype, gain, 1, c, n, gain_block);
        for (int64_t r = 0; r < of.rows; r++, i += norm->cols)
            clv_simd_rowwise()->norm_sums(sums + 2 * (of.first + r),
                                          clv_block_load(math, norm->dtype, d_y, i, n, d_block),
                                          clv_block_load(math, norm->dtype, x, i, n, x_block), gain32, row[r], n);
    }
}

static void backward_f32(const clv_norm *norm, void *d_x, const void *d_y, const void *x, const double *moments,
                         const double *sums, const void *gain, group of)
{
    clv_scratch x_block, d_block, gain_block;
    clv_row_norm row[MAX_GROUP];
    const clv_elementwise_loops *math = clv_simd_elementwise();
    group_stats(norm, row, moments, sums, of);
    for (int64_t c = 0; c < norm->cols; c += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, norm->cols - c), i = of.first * norm->cols + c;
        const float *gain32 = load_weight(math, norm->weight_dtype, gain, 1, c, n, gain_block);
        for (int64_t r = 0; r < of.rows; r++, i += norm->cols) {
            const float *x32 = clv_block_load(math, norm->dtype, x, i, n, x_block);
            const float *d32 = clv_block_load(math, norm->dtype, d_y, i, n, d_block);
            float *to = clv_block_out(norm->dtype, d_x, i, d_block);
            clv_simd_rowwise()->norm_backward(to, d32, x32, gain32, row[r], n);
            clv_block_store(math, norm->dtype, d_x, i, n, to);
        }
    }
}

static void row_moments(const clv_norm *norm, double moments[2], const void *x, int64_t row)
{
    if (norm->dtype != CLV_F64) {
        moments_f32(norm, moments, x, row);
        return;
    }
    moments[0] = moments[1] = 0;
    for (int64_t i = row * norm->cols; i < (row + 1) * norm->cols; i++) {
        moments[0] += ((const double *)x)[i];
        moments[1] += ((const double *)x)[i] * ((const double *)x)[i];
    }
}

/* ---- all rows ---- */

/* Rows of a group: fewer if threads would be idle. No result depends on it. */
static int64_t group_rows(const clv_norm *norm)
{
    if (!clv_is_worth_parallel(norm->rows * norm->cols))
        return MAX_GROUP;
    return clv_min_i64(MAX_GROUP, clv_ceil_div(norm->rows, clv_threads_max()));
}

static group group_at(const clv_norm *norm, int64_t each, int64_t i)
{
    return (group){i * each, clv_min_i64(each, norm->rows - i * each)};
}

void clv_norm_moments(const clv_norm *norm, double *moments, const void *x)
{
    CLV_PARALLEL_FOR_EACH(row, norm->rows, norm->rows * norm->cols, row_moments(norm, moments + 2 * row, x, row));
}

void clv_norm_apply(const clv_norm *norm, void *y, const void *x, const double *moments, const void *gain,
                    const void *bias)
{
    const int64_t each = group_rows(norm);
    CLV_PARALLEL_FOR_EACH(
        i, clv_ceil_div(norm->rows, each), norm->rows * norm->cols,
        (norm->dtype == CLV_F64 ? apply_f64 : apply_f32)(norm, y, x, moments, gain, bias, group_at(norm, each, i)));
}

void clv_norm_backward_sums(const clv_norm *norm, double *sums, const void *d_y, const void *x, const double *moments,
                            const void *gain)
{
    const int64_t each = group_rows(norm);
    CLV_PARALLEL_FOR_EACH(
        i, clv_ceil_div(norm->rows, each), norm->rows * norm->cols,
        (norm->dtype == CLV_F64 ? sums_f64 : sums_f32)(norm, sums, d_y, x, moments, gain, group_at(norm, each, i)));
}

void clv_norm_backward_apply(const clv_norm *norm, void *d_x, const void *d_y, const void *x, const double *moments,
                             const double *sums, const void *gain)
{
    const int64_t each = group_rows(norm);
    CLV_PARALLEL_FOR_EACH(i, clv_ceil_div(norm->rows, each), norm->rows * norm->cols,
                          (norm->dtype == CLV_F64 ? backward_f64 : backward_f32)(norm, d_x, d_y, x, moments, sums, gain,
                                                                                 group_at(norm, each, i)));
}

/* Gradients of columns [c, c + n), n <= CLV_BLOCK, summed over all rows in order. */
static void weights_block(const clv_norm *norm, double *d_gain, double *d_bias, const void *d_y, const void *x,
                          const double *moments, int64_t c, int64_t n)
{
    clv_scratch x_block, d_block;
    const clv_elementwise_loops *math = clv_simd_elementwise();

    for (int64_t i = 0; i < n; i++)
        d_gain[i] = d_bias[i] = 0;
    for (int64_t row = 0; row < norm->rows; row++) {
        row_stats s = stats_of(norm, moments, NULL, row);
        int64_t at = row * norm->cols + c;
        if (norm->dtype != CLV_F64) {
            clv_simd_rowwise()->norm_weights(d_gain, d_bias, clv_block_load(math, norm->dtype, d_y, at, n, d_block),
                                             clv_block_load(math, norm->dtype, x, at, n, x_block), narrow(s), n);
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            double d = ((const double *)d_y)[at + i];
            d_gain[i] += d * (((const double *)x)[at + i] - s.mean) * s.rstd;
            d_bias[i] += d;
        }
    }
}

void clv_norm_backward_weights(const clv_norm *norm, void *d_gain, void *d_bias, const void *d_y, const void *x,
                               const double *moments)
{
    int64_t width = clv_column_width(norm->cols);

    CLV_PARALLEL_FOR(norm->rows * norm->cols)
    for (int64_t piece = 0; piece < clv_ceil_div(norm->cols, width); piece++) {
        double gain[CLV_BLOCK], bias[CLV_BLOCK];
        int64_t c = piece * width, n = clv_min_i64(width, norm->cols - c);
        weights_block(norm, gain, bias, d_y, x, moments, c, n);
        for (int64_t i = 0; i < n; i++) {
            if (d_gain != NULL)
                clv_dtype_store(norm->weight_dtype, d_gain, c + i, gain[i]);
            if (d_bias != NULL)
                clv_dtype_store(norm->weight_dtype, d_bias, c + i, bias[i]);
        }
    }
}
