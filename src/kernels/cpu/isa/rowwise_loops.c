/* rowwise_loops.c - SIMD row loops: sums, dot products, max, moments, norm and softmax. */
#include "kernels/cpu/isa/vector_math.h"
#include "kernels/cpu/simd_loops.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

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

/* Lanes as vectors: gcc keeps arrays of them in memory, if there are two, or products are added. How wide these are
 * changes no result. */
#if defined(__AVX512F__)
enum { WIDE = 8, VECTORS = LANES / WIDE };
#else
enum { WIDE = 4, VECTORS = LANES / WIDE };
#endif
typedef float f32_wide __attribute__((vector_size(4 * WIDE)));
typedef double f64_wide __attribute__((vector_size(8 * WIDE)));

typedef struct two_sums {
    f64_wide first[VECTORS], second[VECTORS];
} two_sums;

/* By pointer: passing vectors by value depends on the instruction set. */
static inline __attribute__((always_inline)) void load(f32_wide *out, const float *x)
{
    memcpy(out, x, sizeof *out);
}

/* gcc 12 takes vectors of 8 apart to convert them. */
static inline __attribute__((always_inline)) void widen(f64_wide *out, const f32_wide *x)
{
#if defined(__AVX512F__)
    *out = (f64_wide)_mm512_cvtps_pd((__m256)*x);
#else
    *out = __builtin_convertvector(*x, f64_wide);
#endif
}

static inline __attribute__((always_inline)) void load_wide(f64_wide *out, const float *x)
{
    f32_wide narrow;
    load(&narrow, x);
    widen(out, &narrow);
}

static double span_dot(const float *x, const float *y, int64_t n)
{
    f64_wide lanes[VECTORS] = {0};
    double lane[LANES];
    int64_t i = 0;
    for (; n - i >= LANES; i += LANES)
        for (int h = 0; h < VECTORS; h++) {
            f64_wide a, b;
            load_wide(&a, x + i + WIDE * h), load_wide(&b, y + i + WIDE * h);
            lanes[h] += a * b;
        }
    memcpy(lane, lanes, sizeof lane);
    for (int k = 0; i < n; i++, k++)
        lane[k] += (double)x[i] * (double)y[i];
    return sum_lanes(lane);
}

/* In twice as many lanes: long sums run at the speed of memory. */
static double span_squares(const float *x, int64_t n)
{
    f64_wide lanes[2 * VECTORS] = {0};
    double lane[2 * LANES];
    int64_t i = 0;
    for (; n - i >= 2 * LANES; i += 2 * LANES)
        for (int h = 0; h < 2 * VECTORS; h++) {
            f64_wide value;
            load_wide(&value, x + i + WIDE * h);
            lanes[h] += value * value;
        }
    memcpy(lane, lanes, sizeof lane);
    for (int k = 0; i < n; i++, k++)
        lane[k] += (double)x[i] * (double)x[i];
    for (int k = 0; k < LANES; k++)
        lane[k] += lane[k + LANES];
    return sum_lanes(lane);
}

/* Adds the remainder after the whole vectors, then the lanes. */
static void finish_sums(double sum[2], const two_sums *lanes, const double *first, const double *second, int rest)
{
    double a[LANES], b[LANES];
    memcpy(a, lanes->first, sizeof a);
    memcpy(b, lanes->second, sizeof b);
    for (int k = 0; k < rest; k++) {
        a[k] += first[k];
        b[k] += second[k];
    }
    sum[0] += sum_lanes(a);
    sum[1] += sum_lanes(b);
}

static void span_moments(double sum[2], const float *x, int64_t n)
{
    two_sums lanes = {0};
    double first[LANES], second[LANES];
    int64_t i = 0;
    int rest = 0;
    for (; n - i >= LANES; i += LANES)
        for (int h = 0; h < VECTORS; h++) {
            f64_wide value;
            load_wide(&value, x + i + WIDE * h);
            lanes.first[h] += value;
            lanes.second[h] += value * value;
        }
    for (; i < n; i++, rest++) {
        first[rest] = (double)x[i];
        second[rest] = first[rest] * first[rest];
    }
    finish_sums(sum, &lanes, first, second, rest);
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
    two_sums lanes = {0};
    double first[LANES], second[LANES];
    int64_t i = 0;
    int rest = 0;
    for (; n - i >= LANES; i += LANES)
        for (int h = 0; h < VECTORS; h++) {
            f32_wide xs;
            f64_wide dys, xhats, gains;
            load_wide(&dys, d_y + i + WIDE * h), load(&xs, x + i + WIDE * h), load_wide(&gains, gain + i + WIDE * h);
            xs = (xs - row.mean) * row.rstd;
            widen(&xhats, &xs);
            lanes.first[h] += dys * gains;
            lanes.second[h] += dys * gains * xhats;
        }
    for (; i < n; i++, rest++) {
        first[rest] = (double)d_y[i] * (double)gain[i];
        second[rest] = first[rest] * (double)((x[i] - row.mean) * row.rstd);
    }
    finish_sums(sum, &lanes, first, second, rest);
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

const clv_rowwise_loops *CLV_ISA_NAME(clv_rowwise_loops_of)(void)
{
    static const clv_rowwise_loops table = {
        .max = span_max,
        .sum = span_sum,
        .dot = span_dot,
        .squares = span_squares,
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
