/* row_spans.c: sums over rows in fixed lanes, normalisation and softmax, f32. */
#include "kernels/cpu/isa/vector_math.h"
#include "kernels/cpu/spans.h"

enum { LANES = 16 }; /* order of summation: changing it changes results */

static double sum_lanes(double lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

static double span_sum(const float *x, int64_t n)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; n - i >= LANES; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)x[i + k];
    for (int k = 0; i < n; i++, k++)
        lane[k] += (double)x[i];
    return sum_lanes(lane);
}

static double span_dot(const float *x, const float *y, int64_t n)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; n - i >= LANES; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] += (double)x[i + k] * (double)y[i + k];
    for (int k = 0; i < n; i++, k++)
        lane[k] += (double)x[i] * (double)y[i];
    return sum_lanes(lane);
}

static void span_moments(double sum[2], const float *x, int64_t n)
{
    double lane[LANES] = {0}, square[LANES] = {0};
    int64_t i = 0;
    for (; n - i >= LANES; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double value = (double)x[i + k];
            lane[k] += value;
            square[k] += value * value;
        }
    for (int k = 0; i < n; i++, k++) {
        lane[k] += (double)x[i];
        square[k] += (double)x[i] * (double)x[i];
    }
    sum[0] += sum_lanes(lane);
    sum[1] += sum_lanes(square);
}

/* Floats ordered as integers: a maximum in any order, without branches. NaN is what exceeds infinity in magnitude. */
static float span_max(const float *x, int64_t n)
{
    int32_t best = (int32_t)(0xff800000u ^ 0x7fffffffu), largest = 0; /* best: -inf */
    for (int64_t i = 0; i < n; i++) {
        int32_t bits = (int32_t)clv_v_bits(x[i]), magnitude = bits & 0x7fffffff;
        int32_t key = bits ^ ((bits >> 31) & 0x7fffffff);
        largest = magnitude > largest ? magnitude : largest;
        best = key > best ? key : best;
    }
    return largest > 0x7f800000 ? NAN : clv_v_float((uint32_t)(best ^ ((best >> 31) & 0x7fffffff)));
}

static void span_add_columns(double *sum, const float *x, int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)x[i];
}

static void span_max_columns(float *max, const float *x, int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        max[i] = clv_v_max(max[i], x[i]);
}

static void span_exp_minus(float *out, const float *x, float minus, float times, int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        out[i] = clv_v_exp(x[i] - minus) * times;
}

static void span_softmax_backward(float *d_x, const float *d_y, const float *y, float dot, int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        d_x[i] = y[i] * (d_y[i] - dot);
}

static void span_norm(float *y, const float *x, const float *gain, const float *bias, clv_row_norm row, int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - row.mean) * row.rstd * gain[i] + bias[i];
}

static void span_norm_sums(double sum[2], const float *d_y, const float *x, const float *gain, clv_row_norm row,
                           int64_t n)
{
    double lane_g[LANES] = {0}, lane_gx[LANES] = {0};
    int64_t i = 0;
    for (; n - i >= LANES; i += LANES)
        for (int k = 0; k < LANES; k++) {
            double g = (double)d_y[i + k] * (double)gain[i + k];
            lane_g[k] += g;
            lane_gx[k] += g * (double)((x[i + k] - row.mean) * row.rstd);
        }
    for (int k = 0; i < n; i++, k++) {
        double g = (double)d_y[i] * (double)gain[i];
        lane_g[k] += g;
        lane_gx[k] += g * (double)((x[i] - row.mean) * row.rstd);
    }
    sum[0] += sum_lanes(lane_g);
    sum[1] += sum_lanes(lane_gx);
}

static void span_norm_backward(float *d_x, const float *d_y, const float *x, const float *gain, clv_row_norm row,
                               int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        float xhat = (x[i] - row.mean) * row.rstd;
        d_x[i] = row.rstd * (d_y[i] * gain[i] - row.g_mean - xhat * row.gxhat_mean);
    }
}

static void span_norm_weights(double *d_gain, double *d_bias, const float *d_y, const float *x, clv_row_norm row,
                              int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        d_gain[i] += (double)d_y[i] * (double)((x[i] - row.mean) * row.rstd);
        d_bias[i] += (double)d_y[i];
    }
}

const clv_row_spans *CLV_ISA_NAME(clv_row_spans_of)(void)
{
    static const clv_row_spans table = {
        .max = span_max,
        .sum = span_sum,
        .dot = span_dot,
        .moments = span_moments,
        .add_columns = span_add_columns,
        .max_columns = span_max_columns,
        .exp_minus = span_exp_minus,
        .softmax_backward = span_softmax_backward,
        .norm = span_norm,
        .norm_sums = span_norm_sums,
        .norm_backward = span_norm_backward,
        .norm_weights = span_norm_weights,
    };
    return &table;
}
