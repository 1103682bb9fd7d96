/* rng.c - random numbers: threefry-2x32, uniform and normal, bit-compatible with jax.random; parameter initializers.
 *
 * jax 0.10, jax/_src/random/threefry2x32.py, jax_threefry_partitionable: element i of a tensor is made from the block
 * threefry(key, [i >> 32, i]), whose two words are XORed to 32 bits; key i of a split is the block itself.
 *
 * Elements are made a chunk at a time by plain loops, which the compiler turns into vector code. Every operation in
 * them is exactly rounded (fmaf where XLA contracts), so body, tail and both compiled copies give the same bits.
 */
#include "cleave/rng.h"

#include <math.h>
#include <string.h>

#include "base/erf_inv.h"

enum { CHUNK = 256 };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE uint32_t rotate_left(uint32_t x, int by)
{
    return x << by | x >> (32 - by);
}

/* Salmon et al. 2011: 20 rounds, a subkey added after every fourth. */
ALWAYS_INLINE void threefry_rounds(const uint32_t subkey[3], uint32_t *x0, uint32_t *x1)
{
    static const int rotation[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    uint32_t a = *x0 + subkey[0];
    uint32_t b = *x1 + subkey[1];

#pragma GCC unroll 5
    for (int group = 0; group < 5; group++) {
#pragma GCC unroll 4
        for (int round = 0; round < 4; round++) {
            a += b;
            b = rotate_left(b, rotation[group % 2][round]) ^ a;
        }
        a += subkey[(group + 1) % 3];
        b += subkey[(group + 2) % 3] + (uint32_t)group + 1;
    }
    *x0 = a;
    *x1 = b;
}

static void key_schedule(clv_key key, uint32_t subkey[3])
{
    subkey[0] = key.word[0];
    subkey[1] = key.word[1];
    subkey[2] = key.word[0] ^ key.word[1] ^ UINT32_C(0x1BD11BDA);
}

void clv_threefry(clv_key key, uint32_t c0, uint32_t c1, uint32_t out[2])
{
    if (!out)
        return;
    uint32_t subkey[3];

    key_schedule(key, subkey);
    threefry_rounds(subkey, &c0, &c1);
    out[0] = c0;
    out[1] = c1;
}

clv_key clv_key_seed(uint64_t seed)
{
    return (clv_key){{0, (uint32_t)seed}};
}

clv_key clv_key_fold_in(clv_key key, uint32_t data)
{
    clv_key folded;

    clv_threefry(key, 0, data, folded.word);
    return folded;
}

clv_key clv_key_split(clv_key key, uint64_t i)
{
    clv_key part;

    clv_threefry(key, (uint32_t)(i >> 32), (uint32_t)i, part.word);
    return part;
}

/* The distribution that random bits are transformed to. */
typedef enum transform { BITS, UNIFORM, NORMAL, TRUNCATED_NORMAL } transform;

typedef struct recipe {
    transform kind;
    float lo, hi;   /* range of the underlying uniform                   */
    float min, max; /* bounds of the result of a (truncated) normal      */
    float scale;    /* factor applied last; unused for BITS              */
} recipe;

ALWAYS_INLINE void chunk_bits(uint32_t *out, const uint32_t subkey[3], uint64_t first, int n)
{
    uint32_t low = (uint32_t)first;
    uint32_t high = (uint32_t)(first >> 32);

    for (int i = 0; i < n; i++) {
        uint32_t x1 = low + (uint32_t)i;
        uint32_t x0 = high + (x1 < low);
        threefry_rounds(subkey, &x0, &x1);
        out[i] = x0 ^ x1;
    }
}

ALWAYS_INLINE float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

ALWAYS_INLINE uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* 23 random bits as the mantissa of a number in [1, 2). */
ALWAYS_INLINE float uniform_of(uint32_t bits, float lo, float hi)
{
    float unit = float_of(bits >> 9 | UINT32_C(0x3F800000)) - 1.0f;
    float value = fmaf(unit, hi - lo, lo);

    return value > lo ? value : lo;
}

/* log of a normal number in (0, 1]; Cephes logf: x = m * 2^e with m in [sqrt(1/2), sqrt(2)). Vectorises, as a call
 * of libm would not. */
ALWAYS_INLINE float log_normal_number(float x)
{
    static const float c[] = {7.0376836292e-2f,  -1.1514610310e-1f, 1.1676998740e-1f,
                              -1.2420140846e-1f, 1.4249322787e-1f,  -1.6668057665e-1f,
                              2.0000714765e-1f,  -2.4999993993e-1f, 3.3333331174e-1f};
    uint32_t shifted = bits_of(x) - UINT32_C(0x3F3504F3); /* sqrt(1/2) becomes 0 */
    float e = (float)((int32_t)shifted >> 23);
    float m = float_of((shifted & UINT32_C(0x007FFFFF)) + UINT32_C(0x3F3504F3)) - 1.0f;
    float p = c[0];

#pragma GCC unroll 8
    for (int k = 1; k < 9; k++)
        p = fmaf(p, m, c[k]);
    /* log(2) in two parts, the first with few bits so that e times it is exact */
    float tail = fmaf(p * m, m * m, e * -2.12194440e-4f);
    tail = fmaf(-0.5f * m, m, tail);
    return fmaf(e, 0.693359375f, m + tail);
}

/* XLA's f32 erf_inv (Giles 2010), contracted as XLA's CPU compiler does. log(1 - x^2) stands in for log1p(-x^2):
 * x^2 is rounded first in both, the difference is then exact where w is large, and its rounding is lost in w - 2.5
 * where w is small. */
ALWAYS_INLINE float erf_inv(float x)
{
    float w = -log_normal_number(1.0f - x * x);
    int near = w < 5.0f;
    float v = near ? w - 2.5f : sqrtf(near ? 1.0f : w) - 3.0f;
    float p = near ? clv_erf_inv_centre[0] : clv_erf_inv_tails[0];

#pragma GCC unroll 8
    for (int k = 1; k < CLV_ERF_INV_TERMS; k++)
        p = fmaf(p, v, near ? clv_erf_inv_centre[k] : clv_erf_inv_tails[k]);
    return fabsf(x) == 1.0f ? x * INFINITY : p * x;
}

ALWAYS_INLINE float clamp(float x, float min, float max)
{
    float above = x > min ? x : min;

    return above < max ? above : max;
}

ALWAYS_INLINE void chunk_floats(float *out, const uint32_t *bits, int n, const recipe *r)
{
    const float root2 = 1.41421356f;
    const float lo = r->lo, hi = r->hi, min = r->min, max = r->max, scale = r->scale;

    if (r->kind == UNIFORM)
        for (int i = 0; i < n; i++)
            out[i] = uniform_of(bits[i], lo, hi) * scale;
    else
        for (int i = 0; i < n; i++)
            out[i] = clamp(root2 * erf_inv(uniform_of(bits[i], lo, hi)), min, max) * scale;
}

ALWAYS_INLINE void fill_inline(void *out, clv_key key, uint64_t first, int64_t count, const recipe *r)
{
    uint32_t subkey[3];
    uint32_t bits[CHUNK];

    key_schedule(key, subkey);
    for (int64_t done = 0; done < count; done += CHUNK) {
        int n = count - done < CHUNK ? (int)(count - done) : CHUNK;
        if (r->kind == BITS) {
            chunk_bits((uint32_t *)out + done, subkey, first + (uint64_t)done, n);
        } else {
            chunk_bits(bits, subkey, first + (uint64_t)done, n);
            chunk_floats((float *)out + done, bits, n, r);
        }
    }
}

static void fill_portable(void *out, clv_key key, uint64_t first, int64_t count, const recipe *r)
{
    fill_inline(out, key, first, count, r);
}

#ifdef __x86_64__
/* The same with fused multiply-add as an instruction: without it fmaf is a call. */
__attribute__((target("avx2,fma"))) static void fill_avx2(void *out, clv_key key, uint64_t first, int64_t count,
                                                          const recipe *r)
{
    fill_inline(out, key, first, count, r);
}
#endif

static void fill(void *out, clv_key key, uint64_t first, int64_t count, const recipe *r)
{
    if (!out || count <= 0)
        return;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        fill_avx2(out, key, first, count, r);
        return;
    }
#endif
    fill_portable(out, key, first, count, r);
}

static recipe uniform_recipe(float lo, float hi, float scale)
{
    return (recipe){.kind = UNIFORM, .lo = lo, .hi = hi, .scale = scale};
}

static recipe normal_recipe(float scale)
{
    return (recipe){
        .kind = NORMAL, .lo = nextafterf(-1.0f, 0.0f), .hi = 1.0f, .min = -INFINITY, .max = INFINITY, .scale = scale};
}

/* XLA's f32 erf, a quotient of polynomials in x^2: the bounds of the uniform must be its very bits. */
static float xla_erf(float x)
{
    static const float alpha[] = {2.2905065861350646e-4f, 3.4082910107109506e-3f, 5.0955695062380861e-2f,
                                  1.8520832239976145e-1f, 1.128379143519084f};
    static const float beta[] = {-1.1791602954361697e-7f,
                                 2.3547966471313185e-5f,
                                 1.0179625278914885e-3f,
                                 1.4070470171167667e-2f,
                                 1.1098505178285362e-1f,
                                 4.9746925110067538e-1f,
                                 1.0f};
    float square = x * x;
    float above = alpha[0];
    float below = beta[0];

    for (int k = 1; k < 5; k++)
        above = fmaf(above, square, alpha[k]);
    for (int k = 1; k < 7; k++)
        below = fmaf(below, square, beta[k]);
    return fabsf(x) >= 3.8325069f ? copysignf(1.0f, x) : x * above / below;
}

static recipe truncated_normal_recipe(float lo, float hi, float scale)
{
    const float root2 = 1.41421356f;

    return (recipe){.kind = TRUNCATED_NORMAL,
                    .lo = xla_erf(lo / root2),
                    .hi = xla_erf(hi / root2),
                    .min = nextafterf(lo, INFINITY),
                    .max = nextafterf(hi, -INFINITY),
                    .scale = scale};
}

void clv_random_bits(uint32_t *out, clv_key key, uint64_t first, int64_t count)
{
    fill(out, key, first, count, &(recipe){.kind = BITS});
}

void clv_random_uniform(float *out, clv_key key, uint64_t first, int64_t count, float lo, float hi)
{
    recipe r = uniform_recipe(lo, hi, 1.0f);

    fill(out, key, first, count, &r);
}

void clv_random_normal(float *out, clv_key key, uint64_t first, int64_t count)
{
    recipe r = normal_recipe(1.0f);

    fill(out, key, first, count, &r);
}

void clv_random_truncated_normal(float *out, clv_key key, uint64_t first, int64_t count, float lo, float hi)
{
    recipe r = truncated_normal_recipe(lo, hi, 1.0f);

    fill(out, key, first, count, &r);
}

/* jax.nn.initializers.variance_scaling(1, "fan_in", "truncated_normal"): the constant is the standard deviation of a
 * normal truncated to [-2, 2]. */
static recipe lecun_normal_recipe(double fan_in)
{
    float deviation = sqrtf((float)(1.0 / fan_in)) / 0.87962566103423978f;

    return truncated_normal_recipe(-2.0f, 2.0f, deviation);
}

static void fill_constant(float *out, int64_t count, float value)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = value;
}

void clv_init_fill(float *out, clv_init init, clv_key key, uint64_t first, int64_t count)
{
    if (!out)
        return;
    double scale = init.scale == 0 ? 1 : init.scale;
    recipe r = {0};

    switch (init.kind) {
    case CLV_INIT_ZEROS:
        fill_constant(out, count, 0.0f);
        return;
    case CLV_INIT_ONES:
        fill_constant(out, count, 1.0f);
        return;
    case CLV_INIT_NORMAL:
        r = normal_recipe((float)scale);
        break;
    case CLV_INIT_LECUN_NORMAL:
        r = lecun_normal_recipe(scale);
        break;
    case CLV_INIT_UNIFORM:
        r = uniform_recipe(-(float)scale, (float)scale, 1.0f);
        break;
    default:
        fill_constant(out, count, NAN);
        return;
    }
    fill(out, key, first, count, &r);
}
