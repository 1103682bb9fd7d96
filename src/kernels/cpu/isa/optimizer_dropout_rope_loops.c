/* optimizer_dropout_rope_loops.c - SIMD loops of AdamW, SGD, Lion, dropout and rotary embedding. */
#include "kernels/cpu/isa/threefry.h"
#include "kernels/cpu/isa/vector_math.h"
#include "kernels/cpu/simd_loops.h"

static void span_adamw(float *p, float *m, float *v, const float *grad, clv_adamw_factors f, int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * f.grad_scale;
        float first = f.beta1 * m[i] + f.one_minus_beta1 * g;
        float second = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
        m[i] = first;
        v[i] = second;
        p[i] = p[i] * f.decay - f.step_size * first / (sqrtf(second) / f.root_bias + f.eps);
    }
}

static void span_sgd(float *p, float *m, const float *grad, clv_sgd_factors f, int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        float moment = f.momentum * m[i] + (grad[i] * f.grad_scale + f.weight_decay * p[i]);
        m[i] = moment;
        p[i] -= f.lr * moment;
    }
}

static void span_lion(float *p, float *m, const float *grad, clv_lion_factors f, int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * f.grad_scale, update = f.beta1 * m[i] + f.one_minus_beta1 * g;
        float sign = update > 0 ? 1.0f : update < 0 ? -1.0f : update; /* zero, or NaN */
        p[i] = p[i] * f.decay - f.lr * sign;
        m[i] = f.beta2 * m[i] + f.one_minus_beta2 * g;
    }
}

static void span_dropout(float *out, const float *x, const uint32_t key[2], uint64_t first, uint32_t threshold,
                         float keep, int64_t n)
{
    uint32_t k0 = key[0], k1 = key[1], hi = (uint32_t)(first >> 32), lo = (uint32_t)first;
    int32_t count = (int32_t)n;
    CLV_INDEPENDENT
    for (int32_t i = 0; i < count; i++) {
        uint32_t word = lo + (uint32_t)i;
        uint32_t bits = threefry_bits(k0, k1, hi + (word < lo ? 1u : 0u), word) >> 9;
        float kept = x[i] / keep;
        out[i] = bits < threshold ? kept : 0.0f;
    }
}

/* Reduced by multiples of pi/2, the first part of which has 33 bits, so that the product is exact below 2^20. */
static void span_angles(float *cos, float *sin, const double *inv_freq, double position, int64_t n)
{
    const double magic = 0x1.8p52; /* adding it rounds to an integer, kept in the low bits */
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++) {
        double angle = position * inv_freq[i];
        double shifted = angle * 0.63661977236758134 + magic, turns = shifted - magic;
        uint64_t quadrant;
        memcpy(&quadrant, &shifted, sizeof quadrant);
        double r = (angle - turns * 1.57079632673412561417) - turns * 6.07710050650619224932e-11;
        double z = r * r;
        double s = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * r + r;
        double c = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1;
        double swapped_s = quadrant & 1 ? c : s, swapped_c = quadrant & 1 ? s : c;
        sin[i] = (float)(quadrant & 2 ? -swapped_s : swapped_s);
        cos[i] = (float)((quadrant + 1) & 2 ? -swapped_c : swapped_c);
    }
}

static void span_rotate_halves(float *out, const float *x, const float *cos, const float *sin, int64_t half)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        out[i] = a * cos[i] - b * sin[i];
        out[i + half] = b * cos[i] + a * sin[i];
    }
}

static void span_rotate_pairs(float *out, const float *x, const float *cos, const float *sin, int64_t half)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        out[2 * i] = a * cos[i] - b * sin[i];
        out[2 * i + 1] = b * cos[i] + a * sin[i];
    }
}

const clv_optimizer_dropout_rope_loops *CLV_ISA_NAME(clv_optimizer_dropout_rope_loops_of)(void)
{
    static const clv_optimizer_dropout_rope_loops table = {
        .adamw = span_adamw,
        .sgd = span_sgd,
        .lion = span_lion,
        .dropout = span_dropout,
        .angles = span_angles,
        .rotate_halves = span_rotate_halves,
        .rotate_pairs = span_rotate_pairs,
    };
    return &table;
}
