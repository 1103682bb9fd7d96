/* attention_bf16.c - flash attention with bf16 products (AMX or AVX512-BF16), forward and backward.
 *
 * The products are those of isa/attention_simd.c, also with query rows along lanes; scores, softmax and all sums are
 * f32. The factors are bf16: q, k, v and d_out unchanged; p of the forward pass as two bf16 numbers with 16 bits
 * together, so that the result is rounded only once; p and dS of the backward pass rounded. The second operand of a
 * product consists of words, pairs of bf16 that are adjacent along the sum:
 *
 *   forward   S^T = K [Q^T]      O^T += V^T [P^T]
 *   backward  S^T = K [Q^T]      dP^T = V [dO^T]     dV += P^T [dO]     dK += dS^T [Q]     dQ^T += K^T [dS^T]
 *
 * Along D and rows, pairs are neighbours (2i, 2i + 1). Along keys they are (j, j + 16) within each 32, because V and K
 * are transposed in blocks of 16 words; the columns of V^T and K^T are in the same order.
 *
 * Extents are padded with zeros to multiples of 32: D to W (of values: Dv to Wv), keys and rows within their blocks. A
 * zero (or the second part of p, which may be 0 or negative) does not keep NaN and infinity out of a sum: if k or v
 * contain any, isa/attention_simd.c computes the forward pass, and backward those blocks that contain them and hide or
 * pad pairs.
 */
#include "kernels/cpu/isa/attention_simd.h"

#if defined(__AVX512F__)
#include <float.h>

#include "kernels/cpu/isa/attention_masking.h"
#include "kernels/cpu/isa/bf16_block_gemm.h"
#include "kernels/cpu/isa/bf16_pairs.h"

enum { HALF = 16 }; /* lanes of a vector, words of a tile's row, and the distance of a pair's keys */

static const float LOG2_E = 1.44269504088896341f, LN_2 = 0.69314718055994531f;

/* ----------------------------------------------------------------------------------------------- layouts */

/* Prefetches row s if it is below `end`: rows of one head are too far apart for the hardware prefetcher. */
CLV_INLINE void fetch_row(const clv_attention_args *a, const clv_attention_view *view, int64_t dim, int64_t b,
                          int64_t s, int64_t end, int64_t h)
{
    if (s >= end)
        return;
    const char *row = element(a, view, b, s, h);
    for (int64_t d = 0; d < dim; d += 32)
        __builtin_prefetch(row + 2 * d, 0, 2);
}

/* block [padded, dim padded] = rows [s, s + rows) of head h, zeros around them. As each is read, the one ROWS behind it
 * is fetched, if it is below `end`. Whether all are neither NaN nor infinite. */
static bool load_rows(uint16_t *block, const clv_attention_args *a, const clv_attention_view *view, int64_t dim,
                      int64_t b, int64_t s, int64_t end, int64_t h, int64_t rows, int64_t padded)
{
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    int64_t width = clv_attention_pad_to_tile(dim);
    __mmask32 bad = 0;
    for (int64_t i = 0; i < rows; i++) {
        const char *row = element(a, view, b, s + i, h);
        fetch_row(a, view, dim, b, s + i + ROWS, end, h);
        for (int64_t d = 0; d < width; d += 32) {
            int64_t left = dim - d;
            __mmask32 there = left >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << left) - 1;
            __m512i x = _mm512_maskz_loadu_epi16(there, row + 2 * d);
            bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
            _mm512_storeu_si512(block + i * width + d, x);
        }
    }
    memset(block + rows * width, 0, (size_t)((padded - rows) * width) * sizeof *block);
    return bad == 0;
}

/* The rows [padded, dim padded] of keys [key, key + n), as load_rows. */
static bool load_keys(uint16_t *block, const clv_attention_args *a, const clv_attention_view *view, int64_t dim,
                      int64_t b, int64_t key, int64_t end, int64_t c, int64_t n, int64_t padded)
{
    const int64_t width = clv_attention_pad_to_tile(dim);
    bool finite = true;
    for (int64_t at = 0, count; at < n; at += count) {
        const int64_t row = clv_attention_key_row(a, key + at, end - key - at, &count), last = row + count;
        count = min_of(count, n - at);
        finite = load_rows(block + at * width, a, view, dim, b, row, last, c, count, count) && finite;
    }
    memset(block + n * width, 0, (size_t)((padded - n) * width) * sizeof *block);
    return finite;
}

/* Four rows of four words each, row i in lanes 4i on. */
CLV_INLINE __m512i four_rows(const uint32_t *in, int64_t step)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)in));
    x = _mm512_mask_broadcast_i32x4(x, 0x00f0, _mm_loadu_si128((const __m128i *)(in + step)));
    x = _mm512_mask_broadcast_i32x4(x, 0x0f00, _mm_loadu_si128((const __m128i *)(in + 2 * step)));
    return _mm512_mask_broadcast_i32x4(x, 0xf000, _mm_loadu_si128((const __m128i *)(in + 3 * step)));
}

/* out [16, 16] = in [16, 16] transposed, words. */
CLV_INLINE void turn_tile(uint32_t *out, int64_t ldo, const uint32_t *in, int64_t ldi)
{
    for (int64_t j = 0; j < HALF; j += 4) {
        __m512i r0 = four_rows(in + j, 4 * ldi), r1 = four_rows(in + ldi + j, 4 * ldi);
        __m512i r2 = four_rows(in + 2 * ldi + j, 4 * ldi), r3 = four_rows(in + 3 * ldi + j, 4 * ldi);
        __m512i low = _mm512_unpacklo_epi32(r0, r1), high = _mm512_unpackhi_epi32(r0, r1);
        __m512i low2 = _mm512_unpacklo_epi32(r2, r3), high2 = _mm512_unpackhi_epi32(r2, r3);
        _mm512_storeu_si512(out + j * ldo, _mm512_unpacklo_epi64(low, low2));
        _mm512_storeu_si512(out + (j + 1) * ldo, _mm512_unpackhi_epi64(low, low2));
        _mm512_storeu_si512(out + (j + 2) * ldo, _mm512_unpacklo_epi64(high, high2));
        _mm512_storeu_si512(out + (j + 3) * ldo, _mm512_unpackhi_epi64(high, high2));
    }
}

/* out [cols, rows] = in [rows, cols] transposed, words; extents are multiples of 16. */
static void turn_words(uint32_t *out, int64_t ldo, const uint32_t *in, int64_t ldi, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i += HALF)
        for (int64_t j = 0; j < cols; j += HALF)
            turn_tile(out + j * ldo + i, ldo, in + i * ldi + j, ldi);
}

/* out [W, keys], bf16 with keys in the order of pairs, = in [keys, W] transposed; keys a multiple of 32. */
static void turn_keys(uint16_t *out, int64_t ldo, const uint16_t *in, int64_t keys, int64_t width)
{
    const uint32_t *words = (const uint32_t *)in;
    int64_t step = width / 2;
    for (int64_t key = 0; key < keys; key += 32)
        for (int64_t d = 0; d < step; d += HALF) {
            uint32_t first[HALF * HALF], second[HALF * HALF];
            turn_tile(first, HALF, words + key * step + d, step);
            turn_tile(second, HALF, words + (key + HALF) * step + d, step);
            for (int64_t i = 0; i < HALF; i++) {
                __m512i x = _mm512_loadu_si512(first + i * HALF), y = _mm512_loadu_si512(second + i * HALF);
                uint16_t *to = out + 2 * (d + i) * ldo + key;
                _mm512_storeu_si512(to, _mm512_mask_blend_epi16(0xaaaaaaaa, x, _mm512_slli_epi32(y, 16)));
                _mm512_storeu_si512(to + ldo, _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(x, 16), y));
            }
        }
}

/* out [rows / 2, W] words = in [rows, W], rows 2i and 2i + 1 together. */
static void pair_rows(uint32_t *out, const uint16_t *in, int64_t rows, int64_t width)
{
    const __m512i front = clv_pair_order(0), back = clv_pair_order(HALF);
    for (int64_t i = 0; i < rows; i += 2)
        for (int64_t d = 0; d < width; d += 32) {
            __m512i x = _mm512_loadu_si512(in + i * width + d), y = _mm512_loadu_si512(in + (i + 1) * width + d);
            uint32_t *to = out + i / 2 * width + d;
            clv_store_pairs(to, to + HALF, x, y, front, back);
        }
}

/* x then y, rounded to bf16. */
CLV_INLINE __m512i to_bf16(vf x, vf y)
{
    __m512i both;
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(x), "v"(y));
    return both;
}

/* What rounding x and y to bf16 lost, rounded to bf16: together the two parts have 16 bits. */
CLV_INLINE __m512i rest_of(vf x, vf y, __m512i both)
{
    __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
    __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
    return to_bf16(vf_sub(x, _mm512_castsi512_ps(_mm512_slli_epi32(low, 16))),
                   vf_sub(y, _mm512_castsi512_ps(_mm512_slli_epi32(high, 16))));
}

/* st [n, ROWS] = value for masked pairs and for rows from `from` on, which are padding. */
static void hide_and_pad(float *st, float value, const pairs *x, int64_t padded)
{
    hide(st, value, x);
    for (int64_t i = x->n * ROWS; i < padded * ROWS; i += VF_LANES)
        vf_store(st + i, vf_set1(value));
}

/* Lanes [lane, lane + lanes) of a block of rows, which see `keys` of a block of keys at most, a multiple of 32. */
typedef struct part {
    int64_t lane, lanes, keys;
} part;

/* Lanes by what they see of a block of keys, of which `padded` are multiplied: on the diagonal of causal attention the
 * first half of 64 sees less than the other, or nothing, and has no part then. The lanes of a second part see all keys
 * that those of the first do. p of what is left out would be 0: nothing changes but the sign of a zero that a flushed
 * denormal left. */
static int find_parts(part out[2], const pairs *x, int64_t padded)
{
    const int64_t reach = clv_attention_query_position(x->a, x->b, x->row) + BF16_BLOCK - x->key;
    const int64_t near = reach > 0 ? round_up(reach, BF16_BLOCK) : 0;
    int n = 0;
    if (!x->a->causal || x->lanes <= BF16_BLOCK || near >= padded) {
        out[0] = (part){0, x->lanes, padded};
        return 1;
    }
    if (near > 0)
        out[n++] = (part){0, BF16_BLOCK, near};
    out[n++] = (part){BF16_BLOCK, x->lanes - BF16_BLOCK, padded};
    return n;
}

/* 2^x for x <= 127, to 2 ulp; 0 below -126; NaN stays NaN. Polynomial of Cephes' exp2f. */
CLV_INLINE vf power(vf x)
{
    vf r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT); /* x less the integer next to it; 0 of infinity */
    vf p = vf_set1(1.535336188319500e-4f);
    p = vf_fma(p, r, vf_set1(1.339887440266574e-3f));
    p = vf_fma(p, r, vf_set1(9.618437357674640e-3f));
    p = vf_fma(p, r, vf_set1(5.550332471162809e-2f));
    p = vf_fma(p, r, vf_set1(2.402264791363012e-1f));
    p = vf_fma(p, r, vf_set1(6.931472028550421e-1f));
    p = vf_fma(p, r, vf_set1(1.0f));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, vf_set1(-126.0f), _CMP_NLT_UQ), p, vf_sub(x, r));
}

/* ----------------------------------------------------------------------------------------------- forward */

typedef struct forward_space {
    uint16_t *rows; /* [ROWS, W] q or v as they are; with qt the result [ROWS, Wv] in f32        */
    uint32_t *qt;   /* [W/2, ROWS] words of Q^T                                                  */
    float *ot;      /* [Wv, ROWS] sum of p * v                                                   */
    float *st;      /* [KEYS, ROWS] scores, then P^T as words of bf16 in two parts              */
    float *max;     /* [ROWS] of the scores so far, times scale and log2(e)                      */
    float *sum;     /* [ROWS] of 2^(score - max)                                                 */
    uint16_t *k;    /* [Sk, W] k as it is                                                        */
    uint16_t *vt;   /* [Wv, Sk] V^T                                                              */
} forward_space;

/* width: the larger of W and Wv; k_rows: a multiple of KEYS. */
static forward_space forward_layout(float *at, int64_t width, int64_t k_rows)
{
    forward_space w;
    w.rows = (uint16_t *)at;
    w.qt = (uint32_t *)(w.rows + ROWS * width);
    w.ot = (float *)(w.qt + width / 2 * ROWS);
    w.st = w.ot + width * ROWS;
    w.max = w.st + KEYS * ROWS;
    w.sum = w.max + ROWS;
    w.k = (uint16_t *)(w.sum + ROWS);
    w.vt = w.k + k_rows * width;
    return w;
}

/* The largest of st [n, ROWS] in each of 16 lanes; n is a multiple of 32. */
CLV_INLINE vf largest(const float *st, int64_t n)
{
    vf max[4];
    CLV_UNROLL for (int i = 0; i < 4; i++) max[i] = vf_load(st + i * ROWS);
    for (int64_t j = 4; j < n; j += 4)
        CLV_UNROLL for (int i = 0; i < 4; i++) max[i] = vf_max(max[i], vf_load(st + (j + i) * ROWS));
    return vf_max(vf_max(max[0], max[1]), vf_max(max[2], max[3]));
}

/* The indices by which _mm512_permutexvar_epi16 pairs x0 x1 ... and y0 y1 ... into words. */
static __m512i word_order(void)
{
    uint16_t order[32];
    for (int i = 0; i < 32; i++)
        order[i] = (uint16_t)(i / 2 + i % 2 * HALF);
    return _mm512_loadu_si512(order);
}

/* Of 16 lanes from l on: turns scores into words of p, of what is kept of it unless `dropped` is NULL, 16 rows of the
 * pairs of 32 keys and then 16 of what rounding left; returns the sum of p = 2^(by * score - max). The products
 * are rounded as the maximum was, so that its p is 1 however large it is. */
CLV_INLINE vf exponentials(float *st, int64_t n, int64_t l, float by, vf max, const drops *dropped, int64_t key)
{
    const __m512i order = word_order();
    vf sum[2] = {vf_set1(0.0f), vf_set1(0.0f)};
    for (int64_t pair = 0; pair < n / 2; pair++) {
        int64_t j = pair / HALF * 32 + pair % HALF;
        vf p[2];
        CLV_UNROLL for (int i = 0; i < 2; i++)
        {
            p[i] = power(vf_sub(vf_mul(vf_load(st + (j + i * HALF) * ROWS + l), vf_set1(by)), max));
            sum[i] = vf_add(sum[i], p[i]);
            if (dropped) {
                float factor[VF_LANES];
                dropout_factors(factor, dropped, key + j + i * HALF, l, VF_LANES);
                p[i] = drop(p[i], vf_load(factor));
            }
        }
        __m512i both = to_bf16(p[0], p[1]), rest = rest_of(p[0], p[1], both);
        _mm512_storeu_si512(st + j * ROWS + l, _mm512_permutexvar_epi16(order, both));
        _mm512_storeu_si512(st + (j + HALF) * ROWS + l, _mm512_permutexvar_epi16(order, rest));
    }
    return vf_add(sum[0], sum[1]);
}

/* Turns scores into words of p, and brings max, sum and ot to the new maximum. A row with no visible key so far has max
 * -inf: its p and correction are 2^(-inf + FLT_MAX) = 0. */
static void softmax_step(const forward_space *w, float by, const part *of, int64_t width, const drops *dropped,
                         int64_t key)
{
    for (int64_t l = of->lane; l < of->lane + of->lanes; l += VF_LANES) {
        vf before = vf_load(w->max + l), max = vf_max(before, vf_mul(largest(w->st + l, of->keys), vf_set1(by)));
        vf finite = vf_max(vf_set1(-FLT_MAX), max), correction = power(vf_sub(before, finite));
        vf sum = dropped->any ? exponentials(w->st, of->keys, l, by, finite, dropped, key)
                              : exponentials(w->st, of->keys, l, by, finite, NULL, key);
        vf_store(w->max + l, max);
        vf_store(w->sum + l, vf_fma(vf_load(w->sum + l), correction, sum));
        if (_mm512_cmp_ps_mask(correction, vf_set1(1.0f), _CMP_NEQ_UQ) == 0)
            continue;
        for (int64_t d = 0; d < width; d++)
            vf_store(w->ot + d * ROWS + l, vf_mul(vf_load(w->ot + d * ROWS + l), correction));
    }
}

/* Divides by the sums and writes out and lse of the block's rows. */
static void forward_end(const forward_space *w, const clv_attention_args *a, int64_t b, int64_t h, int64_t row,
                        int64_t rows)
{
    int64_t dim = clv_attention_value_dim(a), width = clv_attention_pad_to_tile(dim);
    float *out = (float *)w->rows;
    for (int64_t i = 0; i < rows; i++) {
        w->sum[i] = sum_of(w->sum[i], a, b, row + i);
        if (a->lse)
            a->lse[clv_attention_lse_index(a, b, h, row + i)] = log_sum(w->max[i] * LN_2, w->sum[i]);
        w->sum[i] = inverse(w->sum[i]);
    }
    for (int64_t d = 0; d < width; d++)
        for (int64_t l = 0; l < ROWS; l += VF_LANES)
            vf_store(w->ot + d * ROWS + l, vf_mul(vf_load(w->ot + d * ROWS + l), vf_load(w->sum + l)));
    turn_words((uint32_t *)out, width, (const uint32_t *)w->ot, ROWS, width, ROWS);
    rows_store(CLV_BF16, element(a, &a->out, b, row, h), a->out.row_stride, out, width, rows, dim, 1.0f);
}

/* out and lse of the block of rows from `row` on; w.k and w.vt hold keys from `first` on. */
static void forward_block(const forward_space *w, const clv_attention_args *a, int64_t b, int64_t h, int64_t row,
                          int64_t first, int64_t k_rows)
{
    pairs x;
    drops dropped;
    int64_t width = clv_attention_pad_to_tile(a->head_dim);
    int64_t of_values = clv_attention_pad_to_tile(clv_attention_value_dim(a));
    int64_t rows = min_of(ROWS, a->q_rows - row), lanes = round_up(rows, BF16_BLOCK);
    int64_t keys = clv_attention_visible_keys(a, b, row + rows);

    load_rows(w->rows, a, &a->q, a->head_dim, b, row, a->q_rows, h, rows, lanes);
    turn_words(w->qt, ROWS, (const uint32_t *)w->rows, width / 2, lanes, width / 2);
    dropout_begin(&dropped, a, b, h, row);
    memset(w->ot, 0, (size_t)(of_values * ROWS) * sizeof *w->ot);
    for (int64_t i = 0; i < ROWS; i++) {
        w->max[i] = -INFINITY;
        w->sum[i] = 0.0f;
    }
    for (int64_t key = clv_attention_first_key(a, b, row); key < keys; key += KEYS) {
        pairs_find(&x, a, b, row, lanes, key, keys);
        int64_t padded = round_up(x.n, BF16_BLOCK);
        part parts[2];
        const int n = find_parts(parts, &x, padded);
        for (const part *p = parts; p < parts + n; p++)
            bf16_product(w->st + p->lane, ROWS, w->k + (key - first) * width, width, w->qt + p->lane, ROWS, p->keys,
                         p->lanes, width, 1, false);
        hide_and_pad(w->st, -INFINITY, &x, padded);
        for (const part *p = parts; p < parts + n; p++) {
            softmax_step(w, (float)a->scale * LOG2_E, p, of_values, &dropped, key);
            bf16_product(w->ot + p->lane, ROWS, w->vt + (key - first), k_rows, (const uint32_t *)w->st + p->lane, ROWS,
                         of_values, p->lanes, 2 * p->keys, 2, true);
        }
    }
    forward_end(w, a, b, h, row, rows);
}

bool clv_attention_try_forward_bf16(const clv_attention_args *a, float *workspace, int64_t b, int64_t h, int64_t row,
                                    int64_t end)
{
    int64_t width = clv_attention_pad_to_tile(a->head_dim), k_rows = round_up(a->k_rows, KEYS);
    int64_t value_dim = clv_attention_value_dim(a), of_values = clv_attention_pad_to_tile(value_dim);
    int64_t first = clv_attention_first_key(a, b, row), seen = clv_attention_visible_keys(a, b, end);
    int64_t c = (a->head_offset + h) / a->group - a->kv_offset;
    forward_space w = forward_layout(workspace, clv_attention_pad_to_tile(clv_attention_widest(a)), k_rows);
    bool finite = true;
    for (int64_t key = first; key < seen; key += KEYS) {
        int64_t n = min_of(KEYS, seen - key);
        finite = load_keys(w.k + (key - first) * width, a, &a->k, a->head_dim, b, key, seen, c, n, KEYS) && finite;
        finite = load_keys(w.rows, a, &a->v, value_dim, b, key, seen, c, n, KEYS) && finite;
        turn_keys(w.vt + (key - first), k_rows, w.rows, KEYS, of_values);
    }
    if (!finite)
        return false;
    bf16_begin();
    for (; row < end; row += ROWS)
        forward_block(&w, a, b, h, row, first, k_rows);
    bf16_end();
    return true;
}

/* ---------------------------------------------------------------------------------------------- backward */

typedef struct backward_space {
    uint16_t *rows;      /* [ROWS, W] q or d_out as they are; with qt the result [ROWS, W] in f32  */
    uint32_t *qt, *dot;  /* [W/2, ROWS] words of Q^T, [Wv/2, ROWS] of dO^T                         */
    uint32_t *q, *d_out; /* [ROWS/2, W] words of Q, [ROWS/2, Wv] of dO                             */
    float *dqt;          /* [W, ROWS]                                                              */
    float *st, *dst;     /* [KEYS, ROWS] scores and dP^T, then P^T and dS^T in bf16                */
    uint32_t *ds;        /* [KEYS/2, ROWS] words of dS^T                                           */
    float *lse, *delta;  /* [ROWS] lse times log2(e)                                               */
    uint16_t *k, *v;     /* [Sk, W], [Sk, Wv] as they are                                          */
    uint16_t *kt;        /* [W, Sk] K^T                                                            */
    float *dk, *dv;      /* [Sk, W], [Sk, Wv]                                                      */
} backward_space;

/* width: the larger of W and Wv; k_rows: a multiple of KEYS. */
static backward_space backward_layout(float *at, int64_t width, int64_t k_rows)
{
    backward_space w;
    w.rows = (uint16_t *)at;
    w.qt = (uint32_t *)(w.rows + ROWS * width);
    w.dot = w.qt + width / 2 * ROWS;
    w.q = w.dot + width / 2 * ROWS;
    w.d_out = w.q + ROWS / 2 * width;
    w.dqt = (float *)(w.d_out + ROWS / 2 * width);
    w.st = w.dqt + width * ROWS;
    w.dst = w.st + KEYS * ROWS;
    w.ds = (uint32_t *)(w.dst + KEYS * ROWS);
    w.lse = (float *)(w.ds + KEYS / 2 * ROWS);
    w.delta = w.lse + ROWS;
    w.k = (uint16_t *)(w.delta + ROWS);
    w.v = w.k + k_rows * width;
    w.kt = w.v + k_rows * width;
    w.dk = (float *)(w.kt + k_rows * width);
    w.dv = w.dk + k_rows * width;
    return w;
}

/* Sum of the products of n elements of bf16, n a multiple of 32. */
static float dot_of(const uint16_t *x, const uint16_t *y, int64_t n)
{
    vf sum = vf_set1(0.0f);
    for (int64_t d = 0; d < n; d += VF_LANES)
        sum = vf_fma(vf_load_bf16(x + d), vf_load_bf16(y + d), sum);
    return vf_sum(sum);
}

/* Words of the block's q and d_out, both ways, delta = rowsum(d_out * out), and lse; lanes that hold no row, or a row
 * that sees nothing, get lse = +inf: p = 0. Whether all that is finite. */
static bool load_queries(const backward_space *w, const clv_attention_args *a, int64_t b, int64_t h, int64_t row,
                         int64_t rows, int64_t lanes)
{
    int64_t width = clv_attention_pad_to_tile(a->head_dim), value_dim = clv_attention_value_dim(a);
    int64_t of_values = clv_attention_pad_to_tile(value_dim);
    const float *lse = a->lse + clv_attention_lse_index(a, b, h, row);
    uint16_t *out = (uint16_t *)w->dqt;
    bool finite = load_rows(w->rows, a, &a->d_out, value_dim, b, row, a->q_rows, h, rows, lanes);
    turn_words(w->dot, ROWS, (const uint32_t *)w->rows, of_values / 2, lanes, of_values / 2);
    pair_rows(w->d_out, w->rows, lanes, of_values);
    finite = load_rows(out, a, &a->out, value_dim, b, row, a->q_rows, h, rows, rows) && finite;
    for (int64_t i = 0; i < ROWS; i++) {
        w->delta[i] = i < rows ? dot_of(w->rows + i * of_values, out + i * of_values, of_values) : 0.0f;
        w->lse[i] = i < rows && lse[i] != -INFINITY ? lse[i] * LOG2_E : INFINITY;
        finite = finite && isfinite(w->delta[i]) && (i >= rows || lse[i] < INFINITY);
    }
    finite = load_rows(w->rows, a, &a->q, a->head_dim, b, row, a->q_rows, h, rows, lanes) && finite;
    turn_words(w->qt, ROWS, (const uint32_t *)w->rows, width / 2, lanes, width / 2);
    pair_rows(w->q, w->rows, lanes, width);
    return finite;
}

/* Computes P^T and dS^T in bf16 of key j of the block, in 32 lanes from l on; returns dS^T. */
CLV_INLINE __m512i probability_lanes(const backward_space *w, float by, int64_t j, int64_t l, const float *factor)
{
    vf p[2], ds[2];
    CLV_UNROLL for (int i = 0; i < 2; i++)
    {
        int64_t at = l + i * VF_LANES;
        vf dp = vf_load(w->dst + j * ROWS + at);
        p[i] = power(at_most_zero(vf_sub(vf_mul(vf_load(w->st + j * ROWS + at), vf_set1(by)), vf_load(w->lse + at))));
        dp = factor ? drop(dp, vf_load(factor + at)) : dp;
        ds[i] = vf_mul(p[i], vf_sub(dp, vf_load(w->delta + at)));
        p[i] = factor ? drop(p[i], vf_load(factor + at)) : p[i];
    }
    __m512i both = to_bf16(ds[0], ds[1]);
    _mm512_storeu_si512((uint16_t *)(w->st + j * ROWS) + l, to_bf16(p[0], p[1]));
    _mm512_storeu_si512((uint16_t *)(w->dst + j * ROWS) + l, both);
    return both;
}

/* st holds scores, dst dP^T, of what of P is kept: those of a part become P^T, so dropped, and dS^T, of which ds are
 * the words. */
static void probability_step(const backward_space *w, float by, const part *of, const drops *dropped, int64_t key)
{
    const __m512i front = clv_pair_order(0), back = clv_pair_order(HALF);
    float factor[2][ROWS];
    for (int64_t pair = 0; pair < of->keys / 2; pair++) {
        int64_t j = pair / HALF * 32 + pair % HALF;
        for (int64_t i = 0; dropped->any && i < 2; i++)
            dropout_factors(factor[i] + of->lane, dropped, key + j + i * HALF, of->lane, of->lanes);
        for (int64_t l = of->lane; l < of->lane + of->lanes; l += 32) {
            __m512i x = probability_lanes(w, by, j, l, dropped->any ? factor[0] : NULL);
            __m512i y = probability_lanes(w, by, j + HALF, l, dropped->any ? factor[1] : NULL);
            uint32_t *to = w->ds + pair * ROWS + l;
            clv_store_pairs(to, to + HALF, x, y, front, back);
        }
    }
}

/* Adds to dk and dv of keys from `key` on: of those that a part sees beyond the part before, by its lanes and those
 * behind. */
static void keys_step(const backward_space *w, const part *parts, int n, int64_t key, int64_t lanes, int64_t width,
                      int64_t of_values)
{
    int64_t from = 0;
    for (const part *p = parts; p < parts + n; from = p->keys, p++) {
        const int64_t at = from * 2 * ROWS + p->lane, to = key + from, row = p->lane / 2;
        bf16_product(w->dv + to * of_values, of_values, (const uint16_t *)w->st + at, 2 * ROWS,
                     w->d_out + row * of_values, of_values, p->keys - from, of_values, lanes - p->lane, 1, true);
        bf16_product(w->dk + to * width, width, (const uint16_t *)w->dst + at, 2 * ROWS, w->q + row * width, width,
                     p->keys - from, width, lanes - p->lane, 1, true);
    }
}

/* dq of a block of rows of head h; adds to dk and dv of KV head c, of which `finite` says whether k and v are. False,
 * with nothing of use done, when the block is not one for tiles. */
static bool backward_block(const backward_space *w, const clv_attention_args *a, int64_t b, int64_t h, int64_t row,
                           int64_t k_rows, bool finite)
{
    pairs x;
    drops dropped;
    int64_t width = clv_attention_pad_to_tile(a->head_dim);
    int64_t of_values = clv_attention_pad_to_tile(clv_attention_value_dim(a));
    int64_t rows = min_of(ROWS, a->q_rows - row), lanes = round_up(rows, BF16_BLOCK);
    int64_t keys = clv_attention_visible_keys(a, b, row + rows);

    finite = load_queries(w, a, b, h, row, rows, lanes) && finite;
    dropout_begin(&dropped, a, b, h, row);
    memset(w->dqt, 0, (size_t)(width * ROWS) * sizeof *w->dqt);
    for (int64_t key = clv_attention_first_key(a, b, row); key < keys; key += KEYS) {
        pairs_find(&x, a, b, row, lanes, key, keys);
        int64_t padded = round_up(x.n, BF16_BLOCK);
        if (!finite && (x.hidden || x.n < padded || rows < lanes))
            return false;
        part parts[2];
        const int n = find_parts(parts, &x, padded);
        for (const part *p = parts; p < parts + n; p++) {
            bf16_product(w->st + p->lane, ROWS, w->k + key * width, width, w->qt + p->lane, ROWS, p->keys, p->lanes,
                         width, 1, false);
            bf16_product(w->dst + p->lane, ROWS, w->v + key * of_values, of_values, w->dot + p->lane, ROWS, p->keys,
                         p->lanes, of_values, 1, false);
        }
        hide_and_pad(w->st, -INFINITY, &x, padded);
        hide_and_pad(w->dst, 0.0f, &x, padded);
        for (const part *p = parts; p < parts + n; p++) {
            probability_step(w, (float)a->scale * LOG2_E, p, &dropped, key);
            bf16_product(w->dqt + p->lane, ROWS, w->kt + key, k_rows, w->ds + p->lane, ROWS, width, p->lanes, p->keys,
                         1, true);
        }
        keys_step(w, parts, n, key, lanes, width, of_values);
    }
    turn_words((uint32_t *)w->rows, width, (const uint32_t *)w->dqt, ROWS, width, lanes);
    rows_store(CLV_BF16, element(a, &a->dq, b, row, h), a->dq.row_stride, (const float *)w->rows, width, rows,
               a->head_dim, (float)a->scale);
    return true;
}

bool clv_attention_try_backward_bf16(const clv_attention_args *a, float *workspace, int64_t b, int64_t c, int64_t h,
                                     int64_t n)
{
    int64_t width = clv_attention_pad_to_tile(a->head_dim), k_rows = round_up(a->k_rows, KEYS);
    int64_t value_dim = clv_attention_value_dim(a), widest = clv_attention_pad_to_tile(clv_attention_widest(a));
    int64_t seen = a->zigzag ? a->k_rows : clv_attention_visible_keys(a, b, a->q_rows);
    clv_attention_args run;
    backward_space w = backward_layout(workspace, widest, k_rows);
    bool finite = load_keys(w.k, a, &a->k, a->head_dim, b, 0, seen, c, seen, k_rows), done = true;
    finite = load_keys(w.v, a, &a->v, value_dim, b, 0, seen, c, seen, k_rows) && finite;
    turn_keys(w.kt, k_rows, w.k, k_rows, width);
    memset(w.dk, 0, (size_t)(2 * k_rows * widest) * sizeof *w.dk);
    bf16_begin();
    for (int64_t head = h; done && head < h + n; head++)
        for (int64_t at = 0; done && clv_attention_next_run(&run, a, at); at += run.q_rows)
            for (int64_t row = 0; done && row < run.q_rows; row += ROWS)
                done = backward_block(&w, &run, b, head, row, k_rows, finite);
    bf16_end();
    for (int which = 0; done && which < 2; which++) {
        const clv_attention_view *view = which ? &a->dv : &a->dk;
        const int64_t dim = which ? value_dim : a->head_dim, padded = clv_attention_pad_to_tile(dim);
        for (int64_t key = 0, count; key < a->k_rows; key += count) {
            const int64_t row = clv_attention_key_row(a, key, a->k_rows - key, &count);
            rows_store(CLV_BF16, element(a, view, b, row, c), view->row_stride, (which ? w.dv : w.dk) + key * padded,
                       padded, count, dim, which ? 1.0f : (float)a->scale);
        }
    }
    return done;
}
#endif
