/* vector_math.h - exp, log, tanh, sigmoid, erf and the activations of them in f32, free of branches, so that loops over
 * them vectorise on any instruction set.
 *
 * Error, against libm in f64, over the range where the result is a normal number (tests/test_kernels_elementwise.c):
 * exp, log <= 2 ulp; tanh, sigmoid <= 3 ulp; erf (Juffa's figure) 1 ulp. Infinities, zeros and NaN as in libm; exp
 * gives subnormals, log takes them. gelu_erf's left tail has the error of erf near -1: 1e-7 |x|, as everywhere.
 * Sources: Cephes (Moshier) for exp, log, tanh, sin and cos; N. Juffa for erf.
 */
#ifndef CLEAVE_KERNELS_CPU_ISA_VECTOR_MATH_H
#define CLEAVE_KERNELS_CPU_ISA_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Promises that iterations do not depend on each other, so that in-place loops vectorise too. */
#if defined(__clang__)
#define CLV_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define CLV_INDEPENDENT _Pragma("GCC ivdep")
#else
#define CLV_INDEPENDENT
#endif

/* A call that is not inlined stops its loop from vectorising. */
#if defined(__GNUC__)
#define CLV_V_INLINE static inline __attribute__((always_inline))
#else
#define CLV_V_INLINE static inline
#endif

CLV_V_INLINE uint32_t clv_v_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

CLV_V_INLINE float clv_v_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* NaN stays. */
CLV_V_INLINE float clv_v_clamp(float x, float lo, float hi)
{
    x = x > hi ? hi : x;
    return x < lo ? lo : x;
}

/* exp(x) = 2^n exp(r), |r| <= ln 2 / 2; the power in two factors, so that it may be subnormal or infinite. */
CLV_V_INLINE float clv_v_exp(float x)
{
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, kept in the low bits */
    x = clv_v_clamp(x, -104.0f, 89.0f);
    float shifted = x * 1.44269504089f + magic;
    int32_t n = (int32_t)(clv_v_bits(shifted) - clv_v_bits(magic));
    float whole = shifted - magic;
    float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    int32_t half = n >> 1;
    float first = clv_v_float((uint32_t)(half + 127) << 23);
    float second = clv_v_float((uint32_t)(n - half + 127) << 23);
    return p * first * second;
}

/* log(x) = e ln 2 + log(m), sqrt(1/2) <= m < sqrt(2). */
CLV_V_INLINE float clv_v_log(float x)
{
    float scaled = x * 0x1p23f;
    int subnormal = x < 0x1p-126f;
    uint32_t bits = clv_v_bits(subnormal ? scaled : x) + (0x3f800000u - 0x3f3504f3u);
    int32_t exponent = (int32_t)(bits >> 23) - 127 - (subnormal ? 23 : 0);
    float f = clv_v_float((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float e = (float)exponent, z = f * f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    p = p * f * z;
    p = p - e * 2.12194440e-4f;
    p = p - 0.5f * z;
    float y = (f + p) + e * 0.693359375f;
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    y = x == INFINITY ? x : y;
    return x != x ? x : y;
}

CLV_V_INLINE float clv_v_tanh(float x)
{
    float magnitude = fabsf(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float near = p * z * x + x;
    float far = 1.0f - 2.0f / (clv_v_exp(2.0f * magnitude) + 1.0f);
    return magnitude < 0.625f ? near : copysignf(far, x);
}

CLV_V_INLINE float clv_v_sigmoid(float x)
{
    return 1.0f / (1.0f + clv_v_exp(-x));
}

CLV_V_INLINE float clv_v_erf(float x)
{
    float t = fabsf(x);
    t = t > 4.0f ? 4.0f : t;
    float s = t * t;
    float r = -1.72853470e-5f * t + 3.83197126e-4f;
    float u = -3.88396438e-3f * t + 2.42546219e-2f;
    r = r * s + u;
    r = r * t - 1.06777877e-1f;
    r = r * t - 6.34846687e-1f;
    r = r * t - 1.28717512e-1f;
    r = r * t - t;
    float far = 1.0f - clv_v_exp(r);
    float q = -5.96761703e-4f;
    q = q * s + 4.99119423e-3f;
    q = q * s - 2.67681349e-2f;
    q = q * s + 1.12819925e-1f;
    q = q * s - 3.76125336e-1f;
    q = q * s + 1.28379166e-1f;
    float near = q * t + t;
    return copysignf(t > 0.927734375f ? far : near, x);
}

#define CLV_V_SQRT_HALF      0.70710678118654752f
#define CLV_V_SQRT_2_OVER_PI 0.79788456080286536f
#define CLV_V_INV_SQRT_2PI   0.39894228040143268f
#define CLV_V_GELU_CUBIC     0.044715f

CLV_V_INLINE float clv_v_gelu_erf(float x)
{
    return 0.5f * x * (1.0f + clv_v_erf(x * CLV_V_SQRT_HALF));
}

/* (1 + tanh u) / 2 = sigmoid(2 u), without the cancellation. */
CLV_V_INLINE float clv_v_gelu_tanh(float x)
{
    float u = CLV_V_SQRT_2_OVER_PI * (x + CLV_V_GELU_CUBIC * x * x * x);
    return x * clv_v_sigmoid(2.0f * u);
}

/* s = sigmoid(v) and *rest = 1 - s without cancellation; |v| is at most 80, so that exp stays finite. */
CLV_V_INLINE float clv_v_sigmoid_rest(float v, float *rest)
{
    float e = clv_v_exp(-clv_v_clamp(v, -80.0f, 80.0f)), s = 1.0f / (1.0f + e);
    *rest = e * s;
    return s;
}

CLV_V_INLINE float clv_v_silu(float x)
{
    return x * clv_v_sigmoid(x);
}

/* An activation's value and its slope together: they share the exponential. Arguments of slopes are clamped where the
 * slope is 0 or 1 (silu: beyond 80, gelu_tanh: 32), so that 0 * infinity does not arise. */

CLV_V_INLINE float clv_v_silu_both(float x, float *slope)
{
    float rest, s = clv_v_sigmoid_rest(x, &rest);
    *slope = s * (1.0f + clv_v_clamp(x, -80.0f, 80.0f) * rest);
    return clv_v_clamp(x, -80.0f, INFINITY) * s;
}

CLV_V_INLINE float clv_v_gelu_erf_both(float x, float *slope)
{
    float phi = 0.5f * (1.0f + clv_v_erf(x * CLV_V_SQRT_HALF));
    *slope = phi + x * CLV_V_INV_SQRT_2PI * clv_v_exp(-0.5f * x * x);
    return x * phi;
}

CLV_V_INLINE float clv_v_gelu_tanh_both(float x, float *slope)
{
    float near = clv_v_clamp(x, -32.0f, 32.0f);
    float u = CLV_V_SQRT_2_OVER_PI * (near + CLV_V_GELU_CUBIC * near * near * near), rest;
    float du = CLV_V_SQRT_2_OVER_PI * (1.0f + 3.0f * CLV_V_GELU_CUBIC * near * near);
    float s = clv_v_sigmoid_rest(2.0f * u, &rest);
    *slope = s + near * s * rest * 2.0f * du;
    return clv_v_clamp(x, -32.0f, INFINITY) * s;
}

CLV_V_INLINE float clv_v_relu_both(float x, float *slope)
{
    *slope = x <= 0.0f ? 0.0f : 1.0f;
    return x < 0.0f ? 0.0f : x;
}

/* NaN if either is. */
CLV_V_INLINE float clv_v_max(float a, float b)
{
    return a > b || a != a ? a : b;
}

CLV_V_INLINE float clv_v_min(float a, float b)
{
    return a < b || a != a ? a : b;
}

#endif
