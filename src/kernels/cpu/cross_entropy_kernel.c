/* cross_entropy_kernel.c - vocabulary-parallel softmax cross-entropy kernels: max, sums, loss, gradient. */
#include "kernels/cpu/cross_entropy_kernel.h"

#include <math.h>

#include "kernels/cpu/f32_blocks.h"

clv_dtype clv_cross_entropy_stats_dtype(clv_dtype logits)
{
    return logits == CLV_F64 ? CLV_F64 : CLV_F32;
}

static double stat(const clv_cross_entropy_args *ce, const void *stats, int64_t i)
{
    return clv_dtype_load(clv_cross_entropy_stats_dtype(ce->dtype), stats, i);
}

static void set_stat(const clv_cross_entropy_args *ce, void *stats, int64_t i, double value)
{
    clv_dtype_store(clv_cross_entropy_stats_dtype(ce->dtype), stats, i, value);
}

static bool ignored(const clv_cross_entropy_args *ce, const void *labels, int64_t row)
{
    return clv_load_index(ce->label_dtype, labels, row) == ce->ignore;
}

/* The local column of the row's label; -1: none. */
static int64_t label_column(const clv_cross_entropy_args *ce, const void *labels, int64_t row)
{
    int64_t column = clv_load_index(ce->label_dtype, labels, row) - ce->vocab_lo;
    return !ignored(ce, labels, row) && column >= 0 && column < ce->cols ? column : -1;
}

/* ---- one row in f64: the reference ---- */

static double row_max_f64(const double *logits, int64_t cols)
{
    double max = -INFINITY;
    for (int64_t v = 0; v < cols; v++)
        max = max > logits[v] || isnan(max) ? max : logits[v];
    return max;
}

static double row_sum_f64(const double *logits, double max, int64_t cols)
{
    double sum = 0;
    for (int64_t v = 0; v < cols; v++)
        sum += exp(logits[v] - max);
    return sum;
}

static void row_backward_f64(double *d_logits, const double *logits, double max, double times, int64_t cols)
{
    for (int64_t v = 0; v < cols; v++)
        d_logits[v] = exp(logits[v] - max) * times;
}

/* ---- one row in f32 spans ---- */

static double row_max_f32(const clv_cross_entropy_args *ce, const void *logits, int64_t first)
{
    clv_scratch scratch;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    double max = -INFINITY;
    for (int64_t v = 0; v < ce->cols; v += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, ce->cols - v);
        double block = clv_simd_rowwise()->max(clv_block_load(math, ce->dtype, logits, first + v, n, scratch), n);
        max = max > block || isnan(max) ? max : block;
    }
    return max;
}

static double row_sum_f32(const clv_cross_entropy_args *ce, const void *logits, float max, int64_t first)
{
    clv_scratch scratch, e_block;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    double sum = 0;
    for (int64_t v = 0; v < ce->cols; v += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, ce->cols - v);
        clv_simd_rowwise()->exp_minus(e_block, clv_block_load(math, ce->dtype, logits, first + v, n, scratch), max, 1,
                                      n);
        sum += clv_simd_rowwise()->sum(e_block, n);
    }
    return sum;
}

/* The label's column gets its d_label in f32, before rounding to the dtype. label: -1 for none. */
static void row_backward_f32(const clv_cross_entropy_args *ce, void *d_logits, const void *logits, float max,
                             float times, float d_label, int64_t label, int64_t first)
{
    clv_scratch scratch;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    for (int64_t v = 0; v < ce->cols; v += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, ce->cols - v);
        const float *x = clv_block_load(math, ce->dtype, logits, first + v, n, scratch);
        float *to = clv_block_out(ce->dtype, d_logits, first + v, scratch);
        clv_simd_rowwise()->exp_minus(to, x, max, times, n);
        if (label >= v && label < v + n)
            to[label - v] += d_label;
        clv_block_store(math, ce->dtype, d_logits, first + v, n, to);
    }
}

/* ---- all rows ---- */

void clv_cross_entropy_max(const clv_cross_entropy_args *ce, void *max, const void *logits)
{
    CLV_PARALLEL_FOR(ce->rows * ce->cols)
    for (int64_t row = 0; row < ce->rows; row++) {
        int64_t first = row * ce->cols;
        set_stat(ce, max, row,
                 ce->dtype == CLV_F64 ? row_max_f64((const double *)logits + first, ce->cols)
                                      : row_max_f32(ce, logits, first));
    }
}

void clv_cross_entropy_sums(const clv_cross_entropy_args *ce, void *sums, const void *logits, const void *labels,
                            const void *max)
{
    CLV_PARALLEL_FOR(ce->rows * ce->cols)
    for (int64_t row = 0; row < ce->rows; row++) {
        int64_t first = row * ce->cols, label = label_column(ce, labels, row);
        double top = stat(ce, max, row);
        set_stat(ce, sums, 2 * row,
                 ce->dtype == CLV_F64 ? row_sum_f64((const double *)logits + first, top, ce->cols)
                                      : row_sum_f32(ce, logits, (float)top, first));
        set_stat(ce, sums, 2 * row + 1, label < 0 ? 0 : clv_dtype_load(ce->dtype, logits, first + label) - top);
    }
}

void clv_cross_entropy_loss(const clv_cross_entropy_args *ce, void *loss, const void *sums, const void *labels)
{
    for (int64_t row = 0; row < ce->rows; row++)
        set_stat(ce, loss, row,
                 ignored(ce, labels, row) ? 0 : log(stat(ce, sums, 2 * row)) - stat(ce, sums, 2 * row + 1));
}

void clv_cross_entropy_loss_backward(const clv_cross_entropy_args *ce, void *d_sums, const void *sums,
                                     const void *labels, const void *d_loss)
{
    for (int64_t row = 0; row < ce->rows; row++) {
        bool none = ignored(ce, labels, row);
        double d = none ? 0 : stat(ce, d_loss, row);
        set_stat(ce, d_sums, 2 * row, none ? 0 : d / stat(ce, sums, 2 * row));
        set_stat(ce, d_sums, 2 * row + 1, -d);
    }
}

void clv_cross_entropy_backward(const clv_cross_entropy_args *ce, void *d_logits, const void *logits,
                                const void *labels, const void *max, const void *d_sums)
{
    CLV_PARALLEL_FOR(ce->rows * ce->cols)
    for (int64_t row = 0; row < ce->rows; row++) {
        int64_t first = row * ce->cols, label = label_column(ce, labels, row);
        if (ignored(ce, labels, row)) {
            clv_fill_values(ce->dtype, (char *)d_logits + (size_t)first * clv_dtype_size(ce->dtype), 0, ce->cols);
            continue;
        }
        double top = stat(ce, max, row), times = stat(ce, d_sums, 2 * row), d_label = stat(ce, d_sums, 2 * row + 1);
        if (ce->dtype != CLV_F64) {
            row_backward_f32(ce, d_logits, logits, (float)top, (float)times, (float)d_label, label, first);
            continue;
        }
        row_backward_f64((double *)d_logits + first, (const double *)logits + first, top, times, ce->cols);
        if (label >= 0)
            ((double *)d_logits)[first + label] += d_label;
    }
}
