/* gemm_quantized_simd.c - integer dot products with Q8_0/Q4_0 weights, and their dequantization. */
#include "kernels/cpu/isa/gemm_quantized_simd.h"

#include <float.h>

#include "kernels/cpu/isa/load_store_rows.h"
#include "tensor/float16.h"

enum {
    BLOCK = CLV_QUANT_BLOCK,
    HALF = BLOCK / 2,
    MOST = 8127, /* of a 14-bit integer that is 128 * hi + lo */
    FEWER = 2,   /* rows of weights side by side, of CLV_QUANT_ROWS of x ... */
    WIDE = 4,    /* ... or of one, the most */
#if defined(__AVX512F__)
    AHEAD = 16384, /* bytes of weights that are asked for before they are needed ... */
    NEARNESS = 2   /* ... into the second-level cache */
#else
    AHEAD = 4096,
    NEARNESS = 3 /* into the first */
#endif
};

/* How many times an integer of q4 is what is multiplied: taken where it lies in the high half of a byte it is 16-fold,
 * which costs nothing; as it is, the products of a byte's halves can be added in 16 bits (AVX2). */
#if defined(__AVX2__) && !defined(__AVX512F__)
enum { FOLD = 1 };
#else
enum { FOLD = 16 };
#endif

/* ---- a row of x as integers ---- */

CLV_INLINE float largest(const float *x)
{
    uint32_t most = 0; /* as bits, which order as the values do, NaN last */
    for (int i = 0; i < BLOCK; i++) {
        uint32_t u = clv_bits_of_f32(x[i]) & 0x7fffffffu;
        most = u > most ? u : most;
    }
    return clv_f32_of_bits(most);
}

/* Where element i of block b lies among the integers of x. */
CLV_INLINE int64_t place_of(clv_quant how, int64_t b, int i)
{
    if (how == CLV_QUANT_Q8)
        return b * BLOCK + i;
    return b / CLV_QUANT_GROUP * CLV_QUANT_GROUP * BLOCK + i / HALF * CLV_QUANT_GROUP * HALF +
           b % CLV_QUANT_GROUP * HALF + i % HALF;
}

CLV_INLINE void fill_block(clv_quant how, const clv_quant_row *out, const float *x, int64_t b)
{
    const float most = largest(x);
    const bool finite = most <= FLT_MAX;
    const float scale = finite ? most / MOST : NAN, by = finite && most > 0x1p-100f ? 1 / scale : 0;
    int32_t v[BLOCK];
    for (int i = 0; i < BLOCK; i++) /* rounded to an integer by the last bits of what is added */
        v[i] = finite ? (int32_t)((x[i] * by + 0x1.8p23f) - 0x1.8p23f) : 0;
    out->scale[b] = how == CLV_QUANT_Q4 ? scale / FOLD : scale;
    for (int part = 0; part < 2; part++) {
        int8_t *hi = out->hi + place_of(how, b, part * HALF), *lo = out->lo + place_of(how, b, part * HALF);
        for (int i = 0; i < HALF; i++) {
            int32_t value = v[part * HALF + i], high = (value + 64) >> 7;
            hi[i] = (int8_t)high;
            lo[i] = (int8_t)(value - 128 * high);
        }
    }
    for (int i = 0; how == CLV_QUANT_Q8 && i < BLOCK / 4; i++)
        out->offset[b * 8 + i] = -(v[4 * i] + v[4 * i + 1] + v[4 * i + 2] + v[4 * i + 3]);
    for (int i = 0; how == CLV_QUANT_Q4 && i < HALF / 4; i++) {
        const int32_t *a = v + 4 * i, *c = a + HALF;
        out->offset[b * 4 + i] = -(a[0] + a[1] + a[2] + a[3] + c[0] + c[1] + c[2] + c[3]);
    }
}

void CLV_ISA_NAME(clv_quant_fill_row)(clv_quant how, const clv_quant_row *out, const float *x, int64_t blocks)
{
    int64_t padded = (blocks + CLV_QUANT_GROUP - 1) / CLV_QUANT_GROUP * CLV_QUANT_GROUP;
    int64_t scales = (blocks + CLV_QUANT_SCALES - 1) / CLV_QUANT_SCALES * CLV_QUANT_SCALES;
    int64_t last = padded - CLV_QUANT_GROUP;
    if (padded > blocks) { /* padding after the last blocks' elements */
        memset(out->hi + last * BLOCK, 0, CLV_QUANT_GROUP * BLOCK);
        memset(out->lo + last * BLOCK, 0, CLV_QUANT_GROUP * BLOCK);
    }
    for (int64_t i = blocks * clv_quant_block_bytes(how) / 4; i < padded * clv_quant_block_bytes(how) / 4; i++)
        out->offset[i] = 0;
    for (int64_t b = blocks; b < scales; b++)
        out->scale[b] = 0;
    for (int64_t b = 0; b < blocks; b++)
        if (how == CLV_QUANT_Q8)
            fill_block(CLV_QUANT_Q8, out, x + b * BLOCK, b);
        else
            fill_block(CLV_QUANT_Q4, out, x + b * BLOCK, b);
}

/* ---- products ---- */

#if defined(__AVX512F__)

/* acc + the products of 4 bytes each, u unsigned. In assembly: the file is compiled for CPUs without VNNI, too. */
CLV_INLINE __m512i dot_bytes(__m512i acc, __m512i u, __m512i s, bool vnni)
{
    if (!vnni)
        return _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(u, s), _mm512_set1_epi16(1)));
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s));
    return acc;
}

/* Sums of 4 (q4: 8) products each of a vector of weights, from block b on, with a row of x; of q4 times 16, as the
 * integers in the high half of a byte are not shifted. */
CLV_INLINE __m512 dot_vector(clv_quant how, const clv_quant_row *x, int64_t b, __m512i w, bool vnni)
{
    const int8_t *hi = x->hi + b * BLOCK, *lo = x->lo + b * BLOCK;
    __m512i sum = _mm512_loadu_si512(x->offset + b * clv_quant_block_bytes(how) / 4);
    if (how == CLV_QUANT_Q8) {
        sum = _mm512_slli_epi32(dot_bytes(sum, w, _mm512_loadu_si512(hi), vnni), 7);
        sum = dot_bytes(sum, w, _mm512_loadu_si512(lo), vnni);
    } else {
        const __m512i high_half = _mm512_set1_epi8((char)0xf0);
        __m512i first = _mm512_and_si512(_mm512_slli_epi16(w, 4), high_half), second = _mm512_and_si512(w, high_half);
        sum = dot_bytes(sum, first, _mm512_loadu_si512(hi), vnni);
        sum = _mm512_slli_epi32(dot_bytes(sum, second, _mm512_loadu_si512(hi + 64), vnni), 7);
        sum = dot_bytes(sum, first, _mm512_loadu_si512(lo), vnni);
        sum = dot_bytes(sum, second, _mm512_loadu_si512(lo + 64), vnni);
    }
    return _mm512_cvtepi32_ps(sum);
}

/* Adds the products of a vector of weights, the i-th and following of 16 blocks from b on, for `wide` rows of them. */
CLV_INLINE void add_vector(clv_quant how, __m512 sum[][WIDE], __m512 scale[][WIDE], const clv_quant_row *x, int rows,
                           const uint8_t *ints, int64_t row, int wide, int64_t b, int i, __mmask64 mask, bool vnni)
{
    const __m512i spread = how == CLV_QUANT_Q8 ? _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)
                                               : _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m512i of = _mm512_add_epi32(spread, _mm512_set1_epi32(i));
    CLV_UNROLL for (int j = 0; j < wide; j++)
    {
        const uint8_t *at = ints + j * row + (b + i) * clv_quant_block_bytes(how);
        __m512i w = mask == ~UINT64_C(0) ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi8(mask, at);
        __builtin_prefetch(at + AHEAD, 0, NEARNESS);
        CLV_UNROLL for (int r = 0; r < rows; r++)
        {
            __m512 part = dot_vector(how, &x[r], b + i, w, vnni);
            sum[r][j] = _mm512_fmadd_ps(part, _mm512_permutexvar_ps(of, scale[r][j]), sum[r][j]);
        }
    }
}

/* out[r * VF_LANES + j], lanes to be added up by the caller, for `wide` rows of weights, which stream side by side. The
 * scales of 16 blocks fill a vector; each vector of weights takes its own from it. */
CLV_INLINE void dot_rows(clv_quant how, vf *out, const clv_quant_row *x, int rows, const uint8_t *ints,
                         const uint16_t *scales, int wide, int64_t blocks, bool vnni)
{
    const int bytes = (int)clv_quant_block_bytes(how), at_once = 64 / bytes;
    __m512 sum[CLV_QUANT_ROWS][WIDE], scale[CLV_QUANT_ROWS][WIDE];
    CLV_UNROLL for (int r = 0; r < rows; r++) CLV_UNROLL for (int j = 0; j < wide; j++) sum[r][j] = _mm512_setzero_ps();
    for (int64_t b = 0; b < blocks; b += CLV_QUANT_SCALES) {
        const int n = blocks - b < CLV_QUANT_SCALES ? (int)(blocks - b) : CLV_QUANT_SCALES;
        const __mmask16 there = (__mmask16)((1u << n) - 1);
        CLV_UNROLL for (int j = 0; j < wide; j++)
        {
            __m512 d = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(there, scales + j * blocks + b));
            CLV_UNROLL for (int r = 0; r < rows; r++) scale[r][j] = _mm512_mul_ps(d, _mm512_loadu_ps(x[r].scale + b));
        }
        int i = 0;
        for (; i <= n - at_once; i += at_once)
            add_vector(how, sum, scale, x, rows, ints, blocks * bytes, wide, b, i, ~UINT64_C(0), vnni);
        if (i < n)
            add_vector(how, sum, scale, x, rows, ints, blocks * bytes, wide, b, i, (UINT64_C(1) << (n - i) * bytes) - 1,
                       vnni);
    }
    CLV_UNROLL for (int r = 0; r < rows; r++) CLV_UNROLL for (int j = 0; j < wide; j++) out[r * VF_LANES + j] =
        sum[r][j];
}

#elif defined(__AVX2__)

/* The factors of 16 blocks of a row of weights with a row of x: the products of their scales. Of q4, whose vectors have
 * two blocks, a half each, each half of eight has every other one: no factor then has to leave its half. */
typedef struct factors {
    __m256 of[CLV_QUANT_SCALES / 8];
} factors;

CLV_INLINE __m256 eight_scales(const uint16_t *scales, int n)
{
    uint16_t there[8] = {0};
    if (n < 8)
        scales = memcpy(there, scales, (size_t)n * sizeof *scales);
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)scales));
}

CLV_INLINE factors factors_of(clv_quant how, const uint16_t *scales, const float *scale, int n)
{
    factors f = {{eight_scales(scales, n), _mm256_setzero_ps()}};
    if (n > 8)
        f.of[1] = eight_scales(scales + 8, n - 8);
    CLV_UNROLL for (int i = 0; i < CLV_QUANT_SCALES / 8; i++)
    {
        f.of[i] = _mm256_mul_ps(f.of[i], vf_load(scale + 8 * i));
        if (how == CLV_QUANT_Q4)
            f.of[i] = _mm256_permutevar8x32_ps(f.of[i], _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
    }
    return f;
}

CLV_INLINE __m256i products(__m256i u, const int8_t *s)
{
    return _mm256_maddubs_epi16(u, _mm256_loadu_si256((const __m256i *)s));
}

/* 128 * high + low + offset, of pairs of products that 16 bits hold. */
CLV_INLINE __m256 dot(__m256i high, __m256i low, __m256i offset)
{
    __m256i both =
        _mm256_add_epi32(_mm256_madd_epi16(high, _mm256_set1_epi16(128)), _mm256_madd_epi16(low, _mm256_set1_epi16(1)));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(both, offset));
}

/* Adds the products of block i of the 16 from b on, for `wide` rows of weights. */
CLV_INLINE void add_q8(__m256 sum[][WIDE], factors f[][WIDE], const clv_quant_row *x, int rows, const uint8_t *ints,
                       int64_t row, int wide, int64_t b, int i)
{
    CLV_UNROLL for (int r = 0; r < rows; r++)
    {
        const int8_t *hi = x[r].hi + (b + i) * BLOCK, *lo = x[r].lo + (b + i) * BLOCK;
        __m256i offset =
            _mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)(x[r].offset + (b + i) * (BLOCK / 4))), 7);
        CLV_UNROLL for (int j = 0; j < wide; j++)
        {
            const uint8_t *at = ints + j * row + (b + i) * BLOCK;
            __m256i w = _mm256_loadu_si256((const __m256i *)at);
            if (r == 0)
                __builtin_prefetch(at + AHEAD, 0, NEARNESS);
            sum[r][j] = _mm256_fmadd_ps(dot(products(w, hi), products(w, lo), offset),
                                        _mm256_set1_ps(((const float *)f[r][j].of)[i]), sum[r][j]);
        }
    }
}

/* The same of two blocks, or of one and zeros. */
CLV_INLINE void add_q4(__m256 sum[][WIDE], factors f[][WIDE], const clv_quant_row *x, int rows, const uint8_t *ints,
                       int64_t row, int wide, int64_t b, int i, bool pair)
{
    const __m256i low_half = _mm256_set1_epi8(15), of = _mm256_set1_epi32(i % 8 / 2);
    CLV_UNROLL for (int r = 0; r < rows; r++)
    {
        const int64_t place = place_of(CLV_QUANT_Q4, b + i, 0);
        const int8_t *hi = x[r].hi + place, *lo = x[r].lo + place;
        __m256i offset = _mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)(x[r].offset + (b + i) * 4)), 3);
        CLV_UNROLL for (int j = 0; j < wide; j++)
        {
            const uint8_t *at = ints + j * row + (b + i) * HALF;
            __m256i w = pair ? _mm256_loadu_si256((const __m256i *)at)
                             : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)at));
            __m256i first = _mm256_and_si256(w, low_half);
            __m256i second = _mm256_and_si256(_mm256_srli_epi16(w, 4), low_half);
            __m256 factor = _mm256_permutevar_ps(f[r][j].of[i / 8], of);
            if (r == 0)
                __builtin_prefetch(at + AHEAD, 0, NEARNESS);
            sum[r][j] = _mm256_fmadd_ps(
                dot(_mm256_add_epi16(products(first, hi), products(second, hi + CLV_QUANT_GROUP * HALF)),
                    _mm256_add_epi16(products(first, lo), products(second, lo + CLV_QUANT_GROUP * HALF)), offset),
                factor, sum[r][j]);
        }
    }
}

/* out[r * VF_LANES + j], lanes to be added up by the caller, for `wide` rows of weights, which stream side by side. */
CLV_INLINE void dot_rows(clv_quant how, vf *out, const clv_quant_row *x, int rows, const uint8_t *ints,
                         const uint16_t *scales, int wide, int64_t blocks, bool vnni)
{
    const int64_t row = blocks * clv_quant_block_bytes(how);
    __m256 sum[CLV_QUANT_ROWS][WIDE];
    factors f[CLV_QUANT_ROWS][WIDE];
    CLV_UNROLL for (int r = 0; r < rows; r++) CLV_UNROLL for (int j = 0; j < wide; j++) sum[r][j] = _mm256_setzero_ps();
    for (int64_t b = 0; b < blocks; b += CLV_QUANT_SCALES) {
        const int n = blocks - b < CLV_QUANT_SCALES ? (int)(blocks - b) : CLV_QUANT_SCALES;
        CLV_UNROLL for (int r = 0; r < rows; r++) CLV_UNROLL for (int j = 0; j < wide; j++) f[r][j] =
            factors_of(how, scales + j * blocks + b, x[r].scale + b, n);
        for (int i = 0; how == CLV_QUANT_Q8 && i < n; i++)
            add_q8(sum, f, x, rows, ints, row, wide, b, i);
        for (int i = 0; how == CLV_QUANT_Q4 && i < n - 1; i += 2)
            add_q4(sum, f, x, rows, ints, row, wide, b, i, true);
        if (how == CLV_QUANT_Q4 && n % 2)
            add_q4(sum, f, x, rows, ints, row, wide, b, n - 1, false);
    }
    CLV_UNROLL for (int r = 0; r < rows; r++) CLV_UNROLL for (int j = 0; j < wide; j++) out[r * VF_LANES + j] =
        sum[r][j];
}

#else

CLV_INLINE void dot_row(clv_quant how, vf *out, int j, const clv_quant_row *x, int rows, const uint8_t *ints,
                        const uint16_t *scales, int64_t blocks)
{
    const int64_t bytes = clv_quant_block_bytes(how);
    for (int r = 0; r < rows; r++) {
        float sum = 0;
        for (int64_t b = 0; b < blocks; b++) {
            const uint8_t *u = ints + b * bytes;
            int64_t at = place_of(how, b, 0), second = place_of(how, b, HALF);
            const int8_t *hi = x[r].hi, *lo = x[r].lo;
            int32_t high = 0, low = 0;
            for (int64_t i = 0; i < bytes / 4; i++)
                high += x[r].offset[b * bytes / 4 + i];
            for (int i = 0; i < HALF; i++) {
                int first_u = how == CLV_QUANT_Q8 ? u[i] : u[i] << 4 & 0xf0;
                int second_u = how == CLV_QUANT_Q8 ? u[HALF + i] : u[i] & 0xf0;
                high += first_u * hi[at + i] + second_u * hi[second + i];
                low += first_u * lo[at + i] + second_u * lo[second + i];
            }
            sum += (float)(128 * high + low) * (clv_f32_of_f16(scales[b]) * x[r].scale[b]);
        }
        out[r * VF_LANES + j] = (vf){sum};
    }
}

CLV_INLINE void dot_rows(clv_quant how, vf *out, const clv_quant_row *x, int rows, const uint8_t *ints,
                         const uint16_t *scales, int wide, int64_t blocks, bool vnni)
{
    for (int j = 0; j < wide; j++)
        dot_row(how, out, j, x, rows, ints + j * blocks * clv_quant_block_bytes(how), scales + j * blocks, blocks);
}
#endif

/* y[r * ldy + j], of as many rows of weights at a time as a vector has lanes. */
CLV_INLINE void dots(clv_quant how, float *y, int64_t ldy, const clv_quant_row *x, int rows, const uint8_t *ints,
                     const uint16_t *scales, int64_t n, int wide, int64_t blocks, bool vnni)
{
    const int64_t row = blocks * clv_quant_block_bytes(how);
    for (int64_t from = 0; from < n; from += VF_LANES) {
        const int here = n - from < VF_LANES ? (int)(n - from) : VF_LANES;
        vf sum[CLV_QUANT_ROWS * VF_LANES];
        int j = 0;
        for (; here - j >= wide; j += wide)
            dot_rows(how, sum + j, x, rows, ints + (from + j) * row, scales + (from + j) * blocks, wide, blocks, vnni);
        for (; j < here; j++)
            dot_rows(how, sum + j, x, rows, ints + (from + j) * row, scales + (from + j) * blocks, 1, blocks, vnni);
        for (int r = 0; r < rows; r++) {
            vf *lanes = sum + r * VF_LANES;
            for (j = here; j < VF_LANES; j++)
                lanes[j] = vf_set1(0.0f);
            if (here == VF_LANES)
                vf_store(y + r * ldy + from, vf_sums(lanes));
            else
                vf_store_part(CLV_F32, y + r * ldy + from, vf_sums(lanes), here);
        }
    }
}

CLV_INLINE void dots_of_one(clv_quant how, float *y, const clv_quant_row *x, const uint8_t *ints,
                            const uint16_t *scales, int64_t n, int streams, int64_t blocks, bool vnni)
{
    if (streams == 1)
        dots(how, y, 0, x, 1, ints, scales, n, 1, blocks, vnni);
    else
        dots(how, y, 0, x, 1, ints, scales, n, WIDE, blocks, vnni);
}

/* All rows at once, so that weights are read once; what else is left one by one. */
CLV_INLINE void dots_of_rows(clv_quant how, float *y, int64_t ldy, const clv_quant_row *x, int rows,
                             const uint8_t *ints, const uint16_t *scales, int64_t n, int streams, int64_t blocks,
                             bool vnni)
{
    if (rows == CLV_QUANT_ROWS)
        dots(how, y, ldy, x, CLV_QUANT_ROWS, ints, scales, n, FEWER, blocks, vnni);
    else
        for (int r = 0; r < rows; r++)
            dots_of_one(how, y + r * ldy, x + r, ints, scales, n, streams, blocks, vnni);
}

void CLV_ISA_NAME(clv_quant_dots)(clv_quant how, float *y, int64_t ldy, const clv_quant_row *x, int rows,
                                  const uint8_t *ints, const uint16_t *scales, int64_t n, int streams, int64_t blocks,
                                  bool vnni)
{
    if (how == CLV_QUANT_Q8 && vnni)
        dots_of_rows(CLV_QUANT_Q8, y, ldy, x, rows, ints, scales, n, streams, blocks, true);
    else if (how == CLV_QUANT_Q8)
        dots_of_rows(CLV_QUANT_Q8, y, ldy, x, rows, ints, scales, n, streams, blocks, false);
    else if (vnni)
        dots_of_rows(CLV_QUANT_Q4, y, ldy, x, rows, ints, scales, n, streams, blocks, true);
    else
        dots_of_rows(CLV_QUANT_Q4, y, ldy, x, rows, ints, scales, n, streams, blocks, false);
}

/* ---- panels ---- */

CLV_INLINE void widen(clv_quant how, clv_dtype dtype, void *out, const uint8_t *ints, const uint16_t *scales,
                      int64_t blocks)
{
    const bool q8 = how == CLV_QUANT_Q8;
    const size_t size = vf_element_size(dtype);
    for (int64_t b = 0; b < blocks; b++) {
        const uint8_t *u = ints + b * clv_quant_block_bytes(how);
        const vf d = vf_set1(clv_f32_of_f16(scales[b]));
        CLV_UNROLL for (int i = 0; i < BLOCK; i += VF_LANES)
        {
            vf whole = q8 ? vf_load_u8(u + i, 0, 255) : vf_load_u8(u + i % HALF, i < HALF ? 0 : 4, 15);
            whole = vf_sub(whole, vf_set1(q8 ? 128 : 8));
            vf_store_dtype(dtype, (char *)out + (size_t)(b * BLOCK + i) * size, vf_mul(d, whole));
        }
    }
}

void CLV_ISA_NAME(clv_dequantize_rows)(clv_quant how, clv_dtype dtype, void *out, const uint8_t *ints,
                                       const uint16_t *scales, int64_t n, int64_t blocks)
{
    const bool q8 = how == CLV_QUANT_Q8;
    if (dtype == CLV_F32)
        q8 ? widen(CLV_QUANT_Q8, CLV_F32, out, ints, scales, n * blocks)
           : widen(CLV_QUANT_Q4, CLV_F32, out, ints, scales, n * blocks);
    else if (dtype == CLV_BF16)
        q8 ? widen(CLV_QUANT_Q8, CLV_BF16, out, ints, scales, n * blocks)
           : widen(CLV_QUANT_Q4, CLV_BF16, out, ints, scales, n * blocks);
    else
        q8 ? widen(CLV_QUANT_Q8, CLV_F16, out, ints, scales, n * blocks)
           : widen(CLV_QUANT_Q4, CLV_F16, out, ints, scales, n * blocks);
}
