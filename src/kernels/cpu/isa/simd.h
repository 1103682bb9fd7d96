/* simd.h - SIMD abstraction: vectors of f32 for AVX-512, AVX2 and portable code.
 *
 * `vf` holds VF_LANES floats. vf_fma(a, b, c) = a*b + c, rounded once if the CPU has FMA. vf_max and vf_min return
 * their second operand if either is NaN. Loads and stores need no alignment. vf_stream writes past the caches: it needs
 * the alignment of a vector, and vf_stream_end before another thread reads. bf16 and f16 stores round to nearest even.
 */
#pragma once

#include <math.h>
#include <string.h>

#include "cleave/dtype.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* CLV_UNROLL unrolls short loops, CLV_UNROLL_LANES loops over as many vectors as a vector has lanes. Sanitizer builds
 * do not unroll, nor force inlining, because they compile twenty times faster without. */
#if defined(CLV_SANITIZED)
#define CLV_UNROLL
#define CLV_UNROLL_LANES
#define CLV_INLINE static inline __attribute__((unused))
#else
#if defined(__clang__)
#define CLV_UNROLL       _Pragma("clang loop unroll(full)")
#define CLV_UNROLL_LANES CLV_UNROLL
#else
#define CLV_UNROLL       _Pragma("GCC unroll 8")
#define CLV_UNROLL_LANES _Pragma("GCC unroll 16")
#endif
#define CLV_INLINE static inline __attribute__((always_inline, unused))
#endif

/* Marks a function that inlines forced-inline functions for one case, such as a dtype. If several cases are inlined
 * into one function, compilers keep sums and pointers of innermost loops in memory, which is up to twice as slow. */
#define CLV_NOINLINE static __attribute__((noinline))

#if defined(__AVX512F__)

enum { VF_LANES = 16 };
typedef __m512 vf;

CLV_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
/* Of each byte the bits that the mask leaves when it is shifted right. */
CLV_INLINE vf vf_load_u8(const uint8_t *p, int shift, int mask)
{
    __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(x, (unsigned)shift), _mm512_set1_epi32(mask)));
}
/* Four floats of each of `line[0]`, `line[4]` and so on, from element i. */
CLV_INLINE vf vf_load_quads(const float *const *line, int64_t i)
{
    vf x = _mm512_castps128_ps512(_mm_loadu_ps(line[0] + i));
    x = _mm512_mask_broadcast_f32x4(x, 0x00f0, _mm_loadu_ps(line[4] + i));
    x = _mm512_mask_broadcast_f32x4(x, 0x0f00, _mm_loadu_ps(line[8] + i));
    return _mm512_mask_broadcast_f32x4(x, 0xf000, _mm_loadu_ps(line[12] + i));
}
/* Of each 128 bits: lanes 0 and 1, or 2 and 3, of both in turn; and both's lanes 0 and 1, or 2 and 3. */
CLV_INLINE vf vf_mix_low(vf a, vf b)
{
    return _mm512_unpacklo_ps(a, b);
}
CLV_INLINE vf vf_mix_high(vf a, vf b)
{
    return _mm512_unpackhi_ps(a, b);
}
CLV_INLINE vf vf_join_low(vf a, vf b)
{
    return _mm512_shuffle_ps(a, b, 0x44);
}
CLV_INLINE vf vf_join_high(vf a, vf b)
{
    return _mm512_shuffle_ps(a, b, 0xee);
}
CLV_INLINE void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
CLV_INLINE void vf_stream(float *p, vf x)
{
    _mm512_stream_ps(p, x);
}
CLV_INLINE vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
CLV_INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
CLV_INLINE vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
CLV_INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
CLV_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
CLV_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
CLV_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* x where !(test < bound), else 0. */
CLV_INLINE vf vf_zero_below(vf x, vf test, vf bound)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(test, bound, _CMP_NLT_UQ), x);
}
/* The float with the bits of x << 23. */
CLV_INLINE vf vf_power_of_two(vf x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
}
CLV_INLINE vf vf_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
/* Bits with bf16 in their upper halves, of values that are not NaN. */
CLV_INLINE __m512i vf_rounded_bf16(vf x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}
CLV_INLINE void vf_store_bf16(uint16_t *p, vf x)
{
    __m512i quiet = _mm512_or_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x400000));
    __m512i top = _mm512_mask_mov_epi32(vf_rounded_bf16(x), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(top, 16)));
}
/* Both, one behind the other. */
CLV_INLINE void vf_store_bf16_two(uint16_t *p, vf first, vf second)
{
    if (_mm512_cmp_ps_mask(first, second, _CMP_UNORD_Q)) {
        vf_store_bf16(p, first);
        vf_store_bf16(p + VF_LANES, second);
        return;
    }
    /* Their places among 16-bit lanes: 1, 3, ..., 63. */
    const __m512i ramp = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i upper =
        _mm512_add_epi32(_mm512_mullo_epi32(ramp, _mm512_set1_epi32(0x40004)), _mm512_set1_epi32(0x30001));
    _mm512_storeu_si512(p, _mm512_permutex2var_epi16(vf_rounded_bf16(first), upper, vf_rounded_bf16(second)));
}
CLV_INLINE vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
CLV_INLINE void vf_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__AVX2__)

enum { VF_LANES = 8 };
typedef __m256 vf;

CLV_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
CLV_INLINE vf vf_load_u8(const uint8_t *p, int shift, int mask)
{
    __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(x, shift), _mm256_set1_epi32(mask)));
}
CLV_INLINE vf vf_load_quads(const float *const *line, int64_t i)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(line[0] + i)), _mm_loadu_ps(line[4] + i), 1);
}
CLV_INLINE vf vf_mix_low(vf a, vf b)
{
    return _mm256_unpacklo_ps(a, b);
}
CLV_INLINE vf vf_mix_high(vf a, vf b)
{
    return _mm256_unpackhi_ps(a, b);
}
CLV_INLINE vf vf_join_low(vf a, vf b)
{
    return _mm256_shuffle_ps(a, b, 0x44);
}
CLV_INLINE vf vf_join_high(vf a, vf b)
{
    return _mm256_shuffle_ps(a, b, 0xee);
}
CLV_INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
CLV_INLINE void vf_stream(float *p, vf x)
{
    _mm256_stream_ps(p, x);
}
CLV_INLINE vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
CLV_INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
CLV_INLINE vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
CLV_INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
CLV_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
CLV_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
CLV_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
CLV_INLINE vf vf_zero_below(vf x, vf test, vf bound)
{
    return _mm256_and_ps(x, _mm256_cmp_ps(test, bound, _CMP_NLT_UQ));
}
CLV_INLINE vf vf_power_of_two(vf x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
}
CLV_INLINE vf vf_load_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
CLV_INLINE __m256i vf_rounded_bf16(vf x)
{
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}
CLV_INLINE __m256i vf_pack_upper(__m256i first, __m256i second)
{
    __m256i packed = _mm256_packus_epi32(_mm256_srli_epi32(first, 16), _mm256_srli_epi32(second, 16));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}
CLV_INLINE void vf_store_bf16(uint16_t *p, vf x)
{
    __m256i quiet = _mm256_or_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i top = _mm256_blendv_epi8(vf_rounded_bf16(x), quiet, nan);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(vf_pack_upper(top, top)));
}
CLV_INLINE void vf_store_bf16_two(uint16_t *p, vf first, vf second)
{
    if (_mm256_movemask_ps(_mm256_cmp_ps(first, second, _CMP_UNORD_Q))) {
        vf_store_bf16(p, first);
        vf_store_bf16(p + VF_LANES, second);
        return;
    }
    _mm256_storeu_si256((__m256i *)p, vf_pack_upper(vf_rounded_bf16(first), vf_rounded_bf16(second)));
}
CLV_INLINE vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
CLV_INLINE void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

#else

enum { VF_LANES = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

CLV_INLINE vf vf_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
CLV_INLINE vf vf_load_u8(const uint8_t *p, int shift, int mask)
{
    return __builtin_convertvector((vi){p[0], p[1], p[2], p[3]} >> shift & mask, vf);
}
CLV_INLINE vf vf_load_quads(const float *const *line, int64_t i)
{
    return vf_load(line[0] + i);
}
CLV_INLINE vf vf_mix_low(vf a, vf b)
{
    return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
CLV_INLINE vf vf_mix_high(vf a, vf b)
{
    return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
CLV_INLINE vf vf_join_low(vf a, vf b)
{
    return __builtin_shufflevector(a, b, 0, 1, 4, 5);
}
CLV_INLINE vf vf_join_high(vf a, vf b)
{
    return __builtin_shufflevector(a, b, 2, 3, 6, 7);
}
CLV_INLINE void vf_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}
CLV_INLINE void vf_stream(float *p, vf x)
{
    vf_store(p, x);
}
CLV_INLINE vf vf_set1(float x)
{
    return (vf){x, x, x, x};
}
CLV_INLINE vf vf_add(vf a, vf b)
{
    return a + b;
}
CLV_INLINE vf vf_sub(vf a, vf b)
{
    return a - b;
}
CLV_INLINE vf vf_mul(vf a, vf b)
{
    return a * b;
}
CLV_INLINE vf vf_max(vf a, vf b)
{
    vi greater = (vi)(a > b);
    return (vf)(((vi)a & greater) | ((vi)b & ~greater));
}
CLV_INLINE vf vf_min(vf a, vf b)
{
    vi less = (vi)(a < b);
    return (vf)(((vi)a & less) | ((vi)b & ~less));
}
CLV_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
CLV_INLINE vf vf_zero_below(vf x, vf test, vf bound)
{
    return (vf)((vi)x & ~(vi)(test < bound));
}
CLV_INLINE vf vf_power_of_two(vf x)
{
    return (vf)((vi)x << 23);
}
CLV_INLINE vf vf_load_as(clv_dtype dtype, const uint16_t *p)
{
    float x[VF_LANES];
    clv_dtype_convert(CLV_F32, x, dtype, p, VF_LANES);
    return vf_load(x);
}
CLV_INLINE void vf_store_as(clv_dtype dtype, uint16_t *p, vf x)
{
    float y[VF_LANES];
    vf_store(y, x);
    clv_dtype_convert(dtype, p, CLV_F32, y, VF_LANES);
}
CLV_INLINE vf vf_load_bf16(const uint16_t *p)
{
    vi bits = {(int32_t)((uint32_t)p[0] << 16), (int32_t)((uint32_t)p[1] << 16), (int32_t)((uint32_t)p[2] << 16),
               (int32_t)((uint32_t)p[3] << 16)};
    return (vf)bits;
}
CLV_INLINE void vf_store_bf16(uint16_t *p, vf x)
{
    vf_store_as(CLV_BF16, p, x);
}
CLV_INLINE void vf_store_bf16_two(uint16_t *p, vf first, vf second)
{
    vf_store_bf16(p, first);
    vf_store_bf16(p + VF_LANES, second);
}
CLV_INLINE vf vf_load_f16(const uint16_t *p)
{
    return vf_load_as(CLV_F16, p);
}
CLV_INLINE void vf_store_f16(uint16_t *p, vf x)
{
    vf_store_as(CLV_F16, p, x);
}

#endif

CLV_INLINE void vf_stream_end(void)
{
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

/* Sum of the lanes, always by halves: lane i + lane i+n/2, and so on. */
CLV_INLINE float vf_sum(vf x)
{
#if defined(__AVX2__)
#if defined(__AVX512F__)
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
#else
    __m256 y = x;
#endif
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_shuffle_ps(z, z, 1)));
#else
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

/* Lane 4 g + i of x[q] becomes lane 4 g + q of x[i]. */
CLV_INLINE void vf_transpose_quads(vf x[4])
{
    const vf a = vf_mix_low(x[0], x[1]), b = vf_mix_low(x[2], x[3]);
    const vf c = vf_mix_high(x[0], x[1]), d = vf_mix_high(x[2], x[3]);
    x[0] = vf_join_low(a, b);
    x[1] = vf_join_high(a, b);
    x[2] = vf_join_low(c, d);
    x[3] = vf_join_high(c, d);
}

/* Lane 4 g + i: the sum of lanes 4 g to 4 g + 3 of x[i]. */
CLV_INLINE vf vf_sum_quads(const vf x[4])
{
    vf a = vf_add(vf_mix_low(x[0], x[1]), vf_mix_high(x[0], x[1]));
    vf b = vf_add(vf_mix_low(x[2], x[3]), vf_mix_high(x[2], x[3]));
    return vf_add(vf_join_low(a, b), vf_join_high(a, b));
}

/* Lane i: the sum of x[i]'s lanes. Transposes as it sums, so that VF_LANES sums take VF_LANES - 1 additions. */
CLV_INLINE vf vf_sums(const vf x[VF_LANES])
{
    vf four[VF_LANES / 4]; /* 128-bit pieces hold sums of the same four */
    CLV_UNROLL for (int i = 0; i < VF_LANES / 4; i++) four[i] = vf_sum_quads(x + 4 * i);
#if defined(__AVX512F__)
    vf two[2];
    CLV_UNROLL for (int i = 0; i < 2; i++) two[i] =
        _mm512_add_ps(_mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0x88),
                      _mm512_shuffle_f32x4(four[2 * i], four[2 * i + 1], 0xdd));
    return _mm512_add_ps(_mm512_shuffle_f32x4(two[0], two[1], 0x88), _mm512_shuffle_f32x4(two[0], two[1], 0xdd));
#elif defined(__AVX2__)
    return _mm256_add_ps(_mm256_permute2f128_ps(four[0], four[1], 0x20),
                         _mm256_permute2f128_ps(four[0], four[1], 0x31));
#else
    return four[0];
#endif
}

/* The largest lane; NaN lanes may be passed over. */
CLV_INLINE float vf_largest(vf x)
{
    float lane[VF_LANES];
    vf_store(lane, x);
    for (int half = VF_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
}

/* exp(x) for x <= 88, to 1 ulp and |x| * 1.4e-8, what rounding log2(e) leaves (1e-7 where the CPU has no FMA); 0 below
 * -86, where exp is under 5e-38; NaN stays NaN. x log2(e) = n + r, |r| <= 1/2; minimax polynomial of 2^r, 3e-9 off. */
CLV_INLINE vf vf_exp(vf x)
{
    const vf log2_e = vf_set1(1.44269504088896341f);
    const vf magic = vf_set1(12583039.0f); /* 1.5 * 2^23 + 127: adding it rounds, and leaves 2^n's exponent below */
    vf shifted = vf_fma(x, log2_e, magic);
    vf r = vf_fma(x, log2_e, vf_sub(magic, shifted));
    vf p = vf_set1(1.559467816e-4f);
    p = vf_fma(p, r, vf_set1(1.340664390e-3f));
    p = vf_fma(p, r, vf_set1(9.617692973e-3f));
    p = vf_fma(p, r, vf_set1(5.550310551e-2f));
    p = vf_fma(p, r, vf_set1(2.402265278e-1f));
    p = vf_fma(p, r, vf_set1(6.931472150e-1f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return vf_zero_below(vf_mul(p, vf_power_of_two(shifted)), x, vf_set1(-86.0f));
}
