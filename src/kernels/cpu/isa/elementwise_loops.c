/* elementwise_loops.c - SIMD elementwise loops (unary, binary, GLU, where) and bf16/f16 conversion. */
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/vector_math.h"
#include "kernels/cpu/simd_loops.h"
#include "tensor/float16.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* One loop: `value` computes an element from a[i], b[i], c[i] and alpha. */
#define SPAN(name, value)                                                                                              \
    static void span_##name(float *out, const float *a, const float *b, const float *c, float alpha, int64_t n)        \
    {                                                                                                                  \
        (void)a, (void)b, (void)c, (void)alpha;                                                                        \
        CLV_INDEPENDENT                                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                                \
            out[i] = (value);                                                                                          \
    }

SPAN(exp, clv_v_exp(a[i]))
SPAN(log, clv_v_log(a[i]))
SPAN(tanh, clv_v_tanh(a[i]))
SPAN(sigmoid, clv_v_sigmoid(a[i]))
SPAN(gelu_erf, clv_v_gelu_erf(a[i]))
SPAN(gelu_tanh, clv_v_gelu_tanh(a[i]))
SPAN(silu, clv_v_silu(a[i]))
SPAN(relu, a[i] < 0.0f ? 0.0f : a[i])
SPAN(rsqrt, 1.0f / sqrtf(a[i]))
SPAN(neg, -a[i])
SPAN(scale, a[i] * alpha)
SPAN(copy, a[i])
SPAN(sqrt, sqrtf(a[i]))

/* a: d_out, b: what the op saved */
SPAN(exp_backward, a[i] * b[i])
SPAN(log_backward, a[i] / b[i])
SPAN(tanh_backward, a[i] * (1.0f - b[i] * b[i]))
SPAN(sigmoid_backward, a[i] * (b[i] * (1.0f - b[i])))
SPAN(relu_backward, b[i] <= 0.0f ? 0.0f : a[i])
SPAN(rsqrt_backward, a[i] * (-0.5f * fabsf(b[i]) * b[i] * b[i]))
SPAN(neg_backward, -a[i])
SPAN(scale_backward, a[i] * alpha)
SPAN(copy_backward, a[i])
SPAN(sqrt_backward, a[i] * (0.5f / b[i]))

SPAN(add, a[i] + b[i])
SPAN(sub, a[i] - b[i])
SPAN(mul, a[i] * b[i])
SPAN(div, a[i] / b[i])
SPAN(max, clv_v_max(a[i], b[i]))
SPAN(min, clv_v_min(a[i], b[i]))

SPAN(where, a[i] != 0.0f ? b[i] : c[i])
SPAN(max_backward, b[i] < c[i] ? 0.0f : b[i] == c[i] ? 0.5f * a[i] : a[i])
SPAN(min_backward, b[i] > c[i] ? 0.0f : b[i] == c[i] ? 0.5f * a[i] : a[i])

/* a: d_out, b: the activation's argument */
#define SLOPE_SPAN(name)                                                                                               \
    static void span_##name##_backward(float *out, const float *a, const float *b, const float *c, float alpha,        \
                                       int64_t n)                                                                      \
    {                                                                                                                  \
        (void)c, (void)alpha;                                                                                          \
        CLV_INDEPENDENT                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float slope;                                                                                               \
            (void)clv_v_##name##_both(b[i], &slope);                                                                   \
            out[i] = a[i] * slope;                                                                                     \
        }                                                                                                              \
    }

SLOPE_SPAN(silu)
SLOPE_SPAN(gelu_erf)
SLOPE_SPAN(gelu_tanh)

/* Gated units: a: gate, b: up. */
SPAN(silu_glu, clv_v_silu(a[i]) * b[i])
SPAN(gelu_erf_glu, clv_v_gelu_erf(a[i]) * b[i])
SPAN(gelu_tanh_glu, clv_v_gelu_tanh(a[i]) * b[i])
SPAN(relu_glu, (a[i] < 0.0f ? 0.0f : a[i]) * b[i])

#define GLU_BACKWARD_SPAN(name)                                                                                        \
    static void span_##name##_glu_backward(float *d_gate, float *d_up, const float *d_out, const float *gate,          \
                                           const float *up, int64_t n)                                                 \
    {                                                                                                                  \
        CLV_INDEPENDENT                                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float slope, active = clv_v_##name##_both(gate[i], &slope), d = d_out[i], u = up[i];                       \
            d_up[i] = d * active;                                                                                      \
            d_gate[i] = d * u * slope;                                                                                 \
        }                                                                                                              \
    }

GLU_BACKWARD_SPAN(silu)
GLU_BACKWARD_SPAN(gelu_erf)
GLU_BACKWARD_SPAN(gelu_tanh)
GLU_BACKWARD_SPAN(relu)

static void widen_bf16(float *out, const uint16_t *x, int64_t n)
{
    CLV_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        out[i] = clv_v_float((uint32_t)x[i] << 16);
}

/* Two vectors at a time where there are intrinsics for it: compilers unpack and pack more than they need. */
static void narrow_bf16(uint16_t *out, const float *x, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX2__)
    for (; n - i >= 2 * VF_LANES; i += 2 * VF_LANES)
        vf_store_bf16_two(out + i, vf_load(x + i), vf_load(x + i + VF_LANES));
#endif
    CLV_INDEPENDENT
    for (; i < n; i++)
        out[i] = clv_bf16_of_f32(x[i]);
}

/* f16: eight at a time where there is an instruction for it. */
static void widen_f16(float *out, const uint16_t *x, int64_t n)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; n - i >= 8; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#endif
    for (; i < n; i++)
        out[i] = clv_f32_of_f16(x[i]);
}

static void narrow_f16(uint16_t *out, const float *x, int64_t n)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; n - i >= 8; i += 8)
        _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        out[i] = clv_f16_of_f32(x[i]);
}

const clv_elementwise_loops *CLV_ISA_NAME(clv_elementwise_loops_of)(void)
{
    static const clv_elementwise_loops table = {
#define FORWARD(code, name, saved)  [code] = span_##name,
#define BACKWARD(code, name, saved) [code] = span_##name##_backward,
#define BINARY(code, name)          [code] = span_##name,
        .unary = {CLV_UNARY_TABLE(FORWARD)},
        .unary_backward = {CLV_UNARY_TABLE(BACKWARD)},
        .binary = {CLV_BINARY_TABLE(BINARY)},
#define GLU(code, name) .glu[code] = span_##name##_glu, .glu_backward[code] = span_##name##_glu_backward
        GLU(CLV_UNARY_SILU, silu),
        GLU(CLV_UNARY_GELU_ERF, gelu_erf),
        GLU(CLV_UNARY_GELU_TANH, gelu_tanh),
        GLU(CLV_UNARY_RELU, relu),
        .where = span_where,
        .max_backward = {span_min_backward, span_max_backward},
        .widen_bf16 = widen_bf16,
        .widen_f16 = widen_f16,
        .narrow_bf16 = narrow_bf16,
        .narrow_f16 = narrow_f16,
    };
    return &table;
}
