/* vector_math.h - branch-free f32 exp, log, tanh, sigmoid, erf, sin, cos and activations that vectorize.
 *
 * Error, against libm in f64, over the range where the result is a normal number (tests/test_kernels_elementwise.c):
 * exp, log <= 2 ulp; tanh, sigmoid <= 3 ulp; erf (Juffa's figure) 1 ulp. Infinities, zeros and NaN as in libm; exp
 * gives subnormals, log takes them. gelu_erf's left tail has the error of erf near -1: 1e-7 |x|, as everywhere.
 * Sources: Cephes (Moshier) for exp, log, tanh, sin and cos; N. Juffa for erf.
 */
#pragma once

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

/* a * b + c, rounded once where the instruction set has FMA. Contraction is off, so sources say where to fuse. */
CLV_V_INLINE float clv_v_fma(float a, float b, float c)
{
#if defined(__FMA__)
    return fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* exp(x) = 2^n p: gives p, 1/sqrt(2) <= p <= sqrt(2) or so, and *shifted, with n in its low bits. */
CLV_V_INLINE float clv_v_exp_fraction(float x, float *shifted)
{
    const float magic = 0x1.8p23f; /* adding it rounds to an integer, kept in the low bits */
    *shifted = clv_v_fma(x, 1.44269504089f, magic);
    float n = *shifted - magic;
    float r = clv_v_fma(n, 2.12194440e-4f, clv_v_fma(n, -0.693359375f, x));
    float p = 1.9875691500e-4f;
    p = clv_v_fma(p, r, 1.3981999507e-3f);
    p = clv_v_fma(p, r, 8.3334519073e-3f);
    p = clv_v_fma(p, r, 4.1665795894e-2f);
    p = clv_v_fma(p, r, 1.6666665459e-1f);
    p = clv_v_fma(p, r, 5.0000001201e-1f);
    return clv_v_fma(p, r * r, r) + 1.0f;
}

/* For any x; the power in two factors, so that it may be subnormal or infinite. */
CLV_V_INLINE float clv_v_exp(float x)
{
    float shifted, p = clv_v_exp_fraction(clv_v_clamp(x, -104.0f, 89.0f), &shifted);
    int32_t n = (int32_t)(clv_v_bits(shifted) - clv_v_bits(0x1.8p23f));
    int32_t half = n >> 1;
    float first = clv_v_float((uint32_t)(half + 127) << 23);
    float second = clv_v_float((uint32_t)(n - half + 127) << 23);
    return p * first * second;
}

/* For |x| <= 87 or NaN: the shift drops all of `shifted` but n. */
CLV_V_INLINE float clv_v_exp_near(float x)
{
    float shifted, p = clv_v_exp_fraction(x, &shifted);
    return p * clv_v_float((clv_v_bits(shifted) << 23) + 0x3f800000u);
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
    p = clv_v_fma(p, f, -1.1514610310e-1f);
    p = clv_v_fma(p, f, 1.1676998740e-1f);
    p = clv_v_fma(p, f, -1.2420140846e-1f);
    p = clv_v_fma(p, f, 1.4249322787e-1f);
    p = clv_v_fma(p, f, -1.6668057665e-1f);
    p = clv_v_fma(p, f, 2.0000714765e-1f);
    p = clv_v_fma(p, f, -2.4999993993e-1f);
    p = clv_v_fma(p, f, 3.3333331174e-1f);
    p = p * f * z;
    p = clv_v_fma(e, -2.12194440e-4f, p);
    p = clv_v_fma(z, -0.5f, p);
    float y = clv_v_fma(e, 0.693359375f, f + p);
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    y = x == INFINITY ? x : y;
    return x != x ? x : y;
}

CLV_V_INLINE float clv_v_tanh(float x)
{
    float magnitude = fabsf(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = clv_v_fma(p, z, 2.06390887954e-2f);
    p = clv_v_fma(p, z, -5.37397155531e-2f);
    p = clv_v_fma(p, z, 1.33314422036e-1f);
    p = clv_v_fma(p, z, -3.33332819422e-1f);
    float near = clv_v_fma(p * z, x, x);
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
    float r = clv_v_fma(-1.72853470e-5f, t, 3.83197126e-4f);
    float u = clv_v_fma(-3.88396438e-3f, t, 2.42546219e-2f);
    r = clv_v_fma(r, s, u);
    r = clv_v_fma(r, t, -1.06777877e-1f);
    r = clv_v_fma(r, t, -6.34846687e-1f);
    r = clv_v_fma(r, t, -1.28717512e-1f);
    r = clv_v_fma(r, t, -t);
    float far = 1.0f - clv_v_exp_near(r);
    float q = -5.96761703e-4f;
    q = clv_v_fma(q, s, 4.99119423e-3f);
    q = clv_v_fma(q, s, -2.67681349e-2f);
    q = clv_v_fma(q, s, 1.12819925e-1f);
    q = clv_v_fma(q, s, -3.76125336e-1f);
    q = clv_v_fma(q, s, 1.28379166e-1f);
    float near = clv_v_fma(q, t, t);
    return copysignf(t > 0.927734375f ? far : near, x);
}

#define CLV_V_SQRT_HALF      0.70710678118654752f
#define CLV_V_SQRT_2_OVER_PI 0.79788456080286536f
#define CLV_V_INV_SQRT_2PI   0.39894228040143268f
#define CLV_V_GELU_CUBIC     0.044715f

/* Beyond these, in f32, gelu_tanh and silu are x or 0 and their slopes 1 or 0: arguments are clamped there, so that exp
 * stays finite and 0 * infinity does not arise. */
#define CLV_V_GELU_TANH_FAR 9.98f
#define CLV_V_SIGMOID_FAR   87.0f

CLV_V_INLINE float clv_v_gelu_erf(float x)
{
    return 0.5f * x * (1.0f + clv_v_erf(x * CLV_V_SQRT_HALF));
}

/* s = sigmoid(v) and *rest = 1 - s without cancellation, |v| <= CLV_V_SIGMOID_FAR. */
CLV_V_INLINE float clv_v_sigmoid_rest(float v, float *rest)
{
    float e = clv_v_exp_near(-v), s = 1.0f / (1.0f + e);
    *rest = e * s;
    return s;
}

/* An activation's value and its slope together: they share the exponential. */

CLV_V_INLINE float clv_v_silu_both(float x, float *slope)
{
    float near = clv_v_clamp(x, -CLV_V_SIGMOID_FAR, CLV_V_SIGMOID_FAR), rest;
    float s = clv_v_sigmoid_rest(near, &rest);
    *slope = s * clv_v_fma(near, rest, 1.0f);
    return x * (x < -CLV_V_SIGMOID_FAR ? 0.0f : s);
}

CLV_V_INLINE float clv_v_gelu_erf_both(float x, float *slope)
{
    float phi = 0.5f * (1.0f + clv_v_erf(x * CLV_V_SQRT_HALF)), near = clv_v_clamp(x, -13.0f, 13.0f);
    *slope = clv_v_fma(near * CLV_V_INV_SQRT_2PI, clv_v_exp_near(-0.5f * near * near), phi);
    return x * phi;
}

/* (1 + tanh u) / 2 = sigmoid(2 u), without the cancellation. */
CLV_V_INLINE float clv_v_gelu_tanh_both(float x, float *slope)
{
    float near = clv_v_clamp(x, -CLV_V_GELU_TANH_FAR, CLV_V_GELU_TANH_FAR), z = near * near, rest;
    float twice = near * clv_v_fma(2.0f * CLV_V_SQRT_2_OVER_PI * CLV_V_GELU_CUBIC, z, 2.0f * CLV_V_SQRT_2_OVER_PI);
    float s = clv_v_sigmoid_rest(twice, &rest);
    float d_twice = clv_v_fma(6.0f * CLV_V_SQRT_2_OVER_PI * CLV_V_GELU_CUBIC, z, 2.0f * CLV_V_SQRT_2_OVER_PI);
    *slope = clv_v_fma(near * s * rest, d_twice, s);
    return x * (x < -CLV_V_GELU_TANH_FAR ? 0.0f : s);
}

CLV_V_INLINE float clv_v_silu(float x)
{
    float slope;
    return clv_v_silu_both(x, &slope);
}

CLV_V_INLINE float clv_v_gelu_tanh(float x)
{
    float slope;
    return clv_v_gelu_tanh_both(x, &slope);
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
