/* attention_simd.c - flash attention of a block of query rows in f32, and gradients of one KV head.
 *
 * Query rows are along vector lanes: S^T = K Q^T is a block [keys, rows], so that the softmax over keys needs no
 * horizontal sums, and elements of K, V (and for gradients P^T, dS^T) are broadcast, so that their transposes are free.
 * Q, d_out and the result are transposed, once for each block of rows. A few blocks of rows share a block of keys,
 * which is copied once for all of them, because its rows are far apart in memory.
 *
 *   forward   S^T = K Q^T      O^T += V^T P^T
 *   backward  S^T = K Q^T      dP^T = V dO^T     dS^T = P^T * (dP^T - delta)
 *             dV += P^T dO     dK += dS^T Q      dQ^T += K^T dS^T
 *   with dropout by Z: P^T in the products with V and dO is Z^T * P^T, and so is the gradient of P
 *
 * In a block that is partly masked (causal, window), only bands of lanes that see a key are computed.
 *
 * Letters: n keys of a block; D, padded to Dp (of values: Dv, to Dvp); ROWS lanes, of which `lanes` are computed. q is
 * scaled when loaded.
 */
#include <float.h>

#include "kernels/cpu/isa/attention_masking.h"

enum {
    TILE = 6,           /* rows of a register tile; its width is up to TILE_VECTORS */
    TILE_REST = 4,      /* rows of the tile for the remainder */
    LINE = 16,          /* floats of a cache line */
    STREAMED = 1 << 18, /* results of at least so many floats are written past the caches */
    BAND = 16           /* lanes that are computed or skipped together; a multiple of VF_LANES */
};
#if defined(__AVX512F__)
enum { TILE_VECTORS = 4 };
#else
enum { TILE_VECTORS = 2 };
#endif

/* c [rows, width] (+)= sum_p a[i*ai + p*ap] * b[p*ldb + :]; rows <= TILE and width, in vectors, are constants. */
CLV_INLINE void tile(int rows, int width, float *c, int64_t ldc, const float *a, int64_t ai, int64_t ap, const float *b,
                     int64_t ldb, int64_t k, bool accumulate)
{
    vf sum[TILE][TILE_VECTORS];

    CLV_UNROLL for (int i = 0; i < rows; i++) CLV_UNROLL for (int j = 0; j < width; j++) sum[i][j] =
        accumulate ? vf_load(c + i * ldc + j * VF_LANES) : vf_set1(0.0f);
    for (int64_t p = 0; p < k; p++) {
        vf row[TILE_VECTORS];
        CLV_UNROLL for (int j = 0; j < width; j++) row[j] = vf_load(b + p * ldb + j * VF_LANES);
        CLV_UNROLL for (int i = 0; i < rows; i++)
        {
            vf element = vf_set1(a[i * ai + p * ap]);
            CLV_UNROLL for (int j = 0; j < width; j++) sum[i][j] = vf_fma(element, row[j], sum[i][j]);
        }
    }
    CLV_UNROLL for (int i = 0; i < rows; i++) CLV_UNROLL for (int j = 0; j < width; j++)
        vf_store(c + i * ldc + j * VF_LANES, sum[i][j]);
}

/* All m rows of c, `width` vectors wide. */
CLV_INLINE void panel(int width, float *c, int64_t ldc, const float *a, int64_t ai, int64_t ap, const float *b,
                      int64_t ldb, int64_t m, int64_t k, bool accumulate)
{
    int64_t i = 0;
    for (; m - i >= TILE; i += TILE)
        tile(TILE, width, c + i * ldc, ldc, a + i * ai, ai, ap, b, ldb, k, accumulate);
    for (; m - i >= TILE_REST; i += TILE_REST)
        tile(TILE_REST, width, c + i * ldc, ldc, a + i * ai, ai, ap, b, ldb, k, accumulate);
    for (; m > i; i++)
        tile(1, width, c + i * ldc, ldc, a + i * ai, ai, ap, b, ldb, k, accumulate);
}

/* c [m, n] (+)= A [m, k] b [k, n] with A(i, p) = a[i*ai + p*ap]; n is a multiple of VF_LANES. */
static void product(float *c, int64_t ldc, const float *a, int64_t ai, int64_t ap, const float *b, int64_t ldb,
                    int64_t m, int64_t n, int64_t k, bool accumulate)
{
    int64_t j = 0;
    for (; n - j >= TILE_VECTORS * VF_LANES; j += TILE_VECTORS * VF_LANES)
        panel(TILE_VECTORS, c + j, ldc, a, ai, ap, b + j, ldb, m, k, accumulate);
    for (; n - j >= (TILE_VECTORS - 1) * VF_LANES; j += (TILE_VECTORS - 1) * VF_LANES)
        panel(TILE_VECTORS - 1, c + j, ldc, a, ai, ap, b + j, ldb, m, k, accumulate);
    for (; n - j >= 2 * VF_LANES; j += 2 * VF_LANES)
        panel(2, c + j, ldc, a, ai, ap, b + j, ldb, m, k, accumulate);
    for (; n > j; j += VF_LANES)
        panel(1, c + j, ldc, a, ai, ap, b + j, ldb, m, k, accumulate);
}

/* block [padded, dim padded] = scale * rows [s, s + rows) of head h, zeros around them. */
static void load_block(float *block, const clv_attention_args *a, const clv_attention_view *view, int64_t dim,
                       int64_t b, int64_t s, int64_t h, int64_t rows, int64_t padded, float scale)
{
    int64_t width = clv_attention_pad_to_vector(dim);
    if (width != dim)
        memset(block, 0, (size_t)(rows * width) * sizeof *block);
    memset(block + rows * width, 0, (size_t)((padded - rows) * width) * sizeof *block);
    rows_load(a->dtype, block, width, element(a, view, b, s, h), view->row_stride, rows, dim, scale);
}

/* Whether results are more than caches keep until they are read: then lines that are written whole need not be read
 * first. */
static bool streams(const clv_attention_args *a, const float *out, int64_t dim, int64_t row_stride)
{
    return a->dtype == CLV_F32 && a->q_rows > 1 && dim % LINE == 0 && row_stride % LINE == 0 &&
           (uintptr_t)out % (LINE * sizeof *out) == 0 && a->batch * a->q_rows * a->heads * dim >= STREAMED;
}

static void store_block(const clv_attention_args *a, const clv_attention_view *view, int64_t dim, int64_t b, int64_t s,
                        int64_t h, int64_t rows, const float *block, float scale)
{
    int64_t width = clv_attention_pad_to_vector(dim), stride = view->row_stride;
    void *out = element(a, view, b, s, h);
    if (!streams(a, out, dim, stride)) {
        rows_store(a->dtype, out, stride, block, width, rows, dim, scale);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t d = 0; d < width; d += VF_LANES)
            vf_stream((float *)out + i * stride + d, vf_mul(vf_set1(scale), vf_load(block + i * width + d)));
}

/* n rows of k and v. */
static void load_keys(float *k, float *v, const clv_attention_args *a, int64_t b, int64_t c, int64_t key, int64_t n)
{
    const int64_t dim = clv_attention_value_dim(a), width = clv_attention_pad_to_vector(a->head_dim);
    for (int64_t at = 0, count; at < n; at += count) {
        const int64_t row = clv_attention_key_row(a, key + at, n - at, &count);
        load_block(k + at * width, a, &a->k, a->head_dim, b, row, c, count, count, 1.0f);
        load_block(v + at * clv_attention_pad_to_vector(dim), a, &a->v, dim, b, row, c, count, count, 1.0f);
    }
}

/* Gradients of all keys, or values. */
static void store_keys(const clv_attention_args *a, const clv_attention_view *view, int64_t dim, int64_t b, int64_t c,
                       const float *block)
{
    for (int64_t key = 0, n; key < a->k_rows; key += n) {
        const int64_t row = clv_attention_key_row(a, key, a->k_rows - key, &n);
        store_block(a, view, dim, b, row, c, n, block + key * clv_attention_pad_to_vector(dim), 1.0f);
    }
}

/* Whether n floats, a multiple of CLV_ATTENTION_PAD, are finite: 0 * x is 0 only for finite x. */
static bool all_finite(const float *block, int64_t n)
{
    enum { SIDE_BY_SIDE = CLV_ATTENTION_PAD / VF_LANES };
    vf sum[2 * SIDE_BY_SIDE];
    int64_t i = 0;
    CLV_UNROLL for (int s = 0; s < 2 * SIDE_BY_SIDE; s++) sum[s] = vf_set1(0.0f);
    for (; n - i >= 2 * CLV_ATTENTION_PAD; i += 2 * CLV_ATTENTION_PAD)
        CLV_UNROLL for (int s = 0; s < 2 * SIDE_BY_SIDE; s++) sum[s] =
            vf_fma(vf_load(block + i + s * VF_LANES), vf_set1(0.0f), sum[s]);
    for (; i < n; i += VF_LANES)
        sum[0] = vf_fma(vf_load(block + i), vf_set1(0.0f), sum[0]);
    CLV_UNROLL for (int s = 1; s < 2 * SIDE_BY_SIDE; s++) sum[0] = vf_add(sum[0], sum[s]);
    return vf_sum(sum[0]) == 0.0f;
}

/* Of the pairs of a block of keys and a block of query rows: keys [key, key + n) and lanes [lane, lane + lanes). */
typedef struct band {
    int64_t key, n, lane, lanes;
} band;

/* Parts that hold all pairs of the block that see each other, keys ascending: what else is hidden is not computed, BAND
 * lanes at a time. A key that mask hides belongs to the part around it. */
typedef struct bands {
    int count;
    band of[KEYS];
} bands;

static void bands_find(bands *out, const pairs *x)
{
    out->count = x->hidden ? 0 : 1;
    out->of[0] = (band){0, x->n, 0, x->lanes};
    for (int64_t j = 0; x->hidden && j < x->n; j++) {
        int64_t lane = x->from[j] / BAND * BAND, lanes = round_up(x->to[j], BAND) - lane;
        band *last = out->of + out->count - 1;
        if (x->from[j] == x->to[j])
            continue;
        if (out->count > 0 && last->lane == lane && last->lanes == lanes)
            last->n = j + 1 - last->key;
        else
            out->of[out->count++] = (band){j, 1, lane, lanes};
    }
}

/* The pairs of query rows [row, row + rows) and a block of keys from `key` on, and their parts; false where there are
 * none. */
static bool find_parts(bands *out, pairs *seen, const clv_attention_args *a, int64_t b, int64_t row, int64_t rows,
                       int64_t key)
{
    int64_t keys = clv_attention_visible_keys(a, b, row + rows);
    if (key < clv_attention_first_key(a, b, row) || key >= keys)
        return false;
    pairs_find(seen, a, b, row, round_up(rows, BAND), key, keys);
    bands_find(out, seen);
    return true;
}

/* st = value in the parts where the row of a lane does not see the key. */
static void hide_in_bands(float *st, float value, const pairs *x, const bands *parts)
{
    for (const band *p = parts->of; x->hidden && p < parts->of + parts->count; p++)
        for (int64_t j = p->key; j < p->key + p->n; j++)
            hide_key(st + j * ROWS, value, p->lane, p->lane + p->lanes, x->from[j], x->to[j]);
}

/* st [n, ROWS] = k [n, D] qt [D, ROWS]. */
static void multiply_keys(float *st, const float *k, const float *qt, int64_t head_dim, const bands *parts)
{
    int64_t width = clv_attention_pad_to_vector(head_dim);
    for (const band *p = parts->of; p < parts->of + parts->count; p++)
        product(st + p->key * ROWS + p->lane, ROWS, k + p->key * width, width, 1, qt + p->lane, ROWS, p->n, p->lanes,
                head_dim, false);
}

/* The zeros that P^T and dS^T have for hidden pairs keep finite factors out of a product, but not NaN and infinity.
 * Where a block has both, each key takes the rows that see it alone; every sum has the order that `product` gives it.
 */

/* ct [dim, ROWS] += sum over keys of k^T [dim, n] st [n, ROWS]. */
static void sum_keys(float *ct, const float *k, const float *st, int64_t dim, const pairs *x, const bands *parts)
{
    int64_t width = clv_attention_pad_to_vector(dim);
    if (!x->hidden || all_finite(k, x->n * width)) {
        for (const band *p = parts->of; p < parts->of + parts->count; p++)
            product(ct + p->lane, ROWS, k + p->key * width, 1, width, st + p->key * ROWS + p->lane, ROWS, dim, p->lanes,
                    p->n, true);
        return;
    }
    for (int64_t j = 0; j < x->n; j++) {
        for (int64_t d = 0; x->from[j] < x->to[j] && d < dim; d++) {
            float sum[ROWS], *to = ct + d * ROWS;
            for (int64_t l = 0; l < x->lanes; l += VF_LANES)
                vf_store(sum + l, vf_fma(vf_set1(k[j * width + d]), vf_load(st + j * ROWS + l), vf_load(to + l)));
            memcpy(to + x->from[j], sum + x->from[j], (size_t)(x->to[j] - x->from[j]) * sizeof *sum);
        }
    }
}

/* c [n, width] += sum over rows of st [n, rows] q [rows, width]. */
static void sum_rows(float *c, const float *st, const float *q, int64_t width, int64_t rows, bool finite,
                     const pairs *x, const bands *parts)
{
    if (!x->hidden || finite) {
        for (const band *p = parts->of; p < parts->of + parts->count; p++)
            product(c + p->key * width, width, st + p->key * ROWS + p->lane, ROWS, 1, q + p->lane * width, width, p->n,
                    width, min_of(p->lanes, rows - p->lane), true);
        return;
    }
    for (int64_t j = 0; j < x->n; j++)
        product(c + j * width, width, st + j * ROWS + x->from[j], ROWS, 1, q + x->from[j] * width, width, 1, width,
                min_of(x->to[j], rows) - x->from[j], true);
}

/* ------------------------------------------------------------------------------------------------ forward */

/* st [n, ROWS], of keys from `key` on. */
static void drop_block(float *st, const drops *x, int64_t key, const bands *parts)
{
    float factor[ROWS];
    for (const band *p = parts->of; x->any && p < parts->of + parts->count; p++)
        for (int64_t j = p->key; j < p->key + p->n; j++) {
            float *row = st + j * ROWS + p->lane;
            dropout_factors(factor, x, key + j, p->lane, p->lanes);
            for (int64_t l = 0; l < p->lanes; l += VF_LANES)
                vf_store(row + l, drop(vf_load(row + l), vf_load(factor + l)));
        }
}

/* State of a block of query rows during the loop over keys. */
typedef struct forward_block {
    float *qt;  /* [Dp, ROWS] scaled queries  */
    float *ot;  /* [Dvp, ROWS] sum of p * v   */
    float *max; /* [ROWS] of the scores so far */
    float *sum; /* [ROWS] of exp(score - max)  */
    int64_t row, rows, lanes;
    drops dropped;
} forward_block;

typedef struct forward_space {
    float *k;  /* [KEYS, Dp]                 */
    float *v;  /* [KEYS, Dvp]                */
    float *st; /* [KEYS, ROWS] scores, then p */
    forward_block block[CLV_ATTENTION_BLOCKS];
} forward_space;

static void forward_layout(forward_space *w, float *at, int64_t widest, int64_t blocks)
{
    int64_t width = clv_attention_pad_to_vector(widest);
    w->k = at;
    w->v = w->k + KEYS * width;
    w->st = w->v + KEYS * width;
    at = w->st + KEYS * ROWS;
    for (int64_t i = 0; i < blocks; i++) {
        forward_block *x = w->block + i;
        x->qt = at;
        x->ot = x->qt + width * ROWS;
        x->max = x->ot + width * ROWS;
        x->sum = x->max + ROWS;
        at = x->sum + ROWS;
    }
}

/* The largest of max and n scores of VF_LANES lanes; several are compared at a time to hide latency. */
CLV_INLINE vf largest(const float *st, int64_t n, vf max)
{
    vf two[4] = {max, max, max, max};
    int64_t j = 0;
    for (; n - j >= 4; j += 4)
        CLV_UNROLL for (int i = 0; i < 4; i++) two[i] = vf_max(two[i], vf_load(st + (j + i) * ROWS));
    for (; j < n; j++)
        two[0] = vf_max(two[0], vf_load(st + j * ROWS));
    return vf_max(vf_max(two[0], two[1]), vf_max(two[2], two[3]));
}

/* Turns n scores of VF_LANES lanes into p, and gives sum and what they add to it. */
CLV_INLINE vf exponentials(float *st, int64_t n, vf max, vf sum)
{
    for (int64_t j = 0; j < n; j++) {
        vf p = vf_exp(vf_sub(vf_load(st + j * ROWS), max));
        vf_store(st + j * ROWS, p);
        sum = vf_add(sum, p);
    }
    return sum;
}

/* Turns scores into p, and brings max, sum and ot to the new maximum. A row with no visible key so far has max -inf:
 * its p and correction are exp(-inf + FLT_MAX) = 0. */
static void softmax_step(float *st, const forward_block *x, int64_t width, const bands *parts)
{
    const band *end = parts->of + parts->count;
    for (int64_t l = 0; l < x->lanes; l += VF_LANES) {
        vf before = vf_load(x->max + l), max = before, sum = vf_set1(0.0f);
        for (const band *p = parts->of; p < end; p++)
            if (p->lane <= l && l < p->lane + p->lanes)
                max = largest(st + p->key * ROWS + l, p->n, max);
        vf finite = vf_max(vf_set1(-FLT_MAX), max), correction = vf_exp(vf_sub(before, finite));
        for (const band *p = parts->of; p < end; p++)
            if (p->lane <= l && l < p->lane + p->lanes)
                sum = exponentials(st + p->key * ROWS + l, p->n, finite, sum);
        vf_store(x->max + l, max);
        vf_store(x->sum + l, vf_fma(vf_load(x->sum + l), correction, sum));
        for (int64_t d = 0; d < width; d++)
            vf_store(x->ot + d * ROWS + l, vf_mul(vf_load(x->ot + d * ROWS + l), correction));
    }
}

static void forward_begin(const forward_space *w, forward_block *x, const clv_attention_args *a, int64_t b, int64_t h,
                          int64_t row)
{
    int64_t width = clv_attention_pad_to_vector(a->head_dim);
    int64_t of_values = clv_attention_pad_to_vector(clv_attention_value_dim(a));
    x->row = row;
    x->rows = min_of(ROWS, a->q_rows - row);
    x->lanes = round_up(x->rows, BAND);
    load_block(w->k, a, &a->q, a->head_dim, b, row, h, x->rows, x->lanes, a->scale);
    rows_transpose(x->qt, ROWS, w->k, width, x->lanes, width);
    dropout_begin(&x->dropped, a, b, h, row);
    memset(x->ot, 0, (size_t)(of_values * ROWS) * sizeof *x->ot);
    for (int64_t i = 0; i < ROWS; i++) {
        x->max[i] = -INFINITY;
        x->sum[i] = 0.0f;
    }
}

/* Adds the keys from `key` on, which w holds, that the block's rows see. */
static void forward_keys(const forward_space *w, const forward_block *x, const clv_attention_args *a, int64_t b,
                         int64_t key)
{
    pairs seen;
    bands parts;
    if (!find_parts(&parts, &seen, a, b, x->row, x->rows, key))
        return;
    multiply_keys(w->st, w->k, x->qt, a->head_dim, &parts);
    hide_in_bands(w->st, -INFINITY, &seen, &parts);
    softmax_step(w->st, x, clv_attention_pad_to_vector(clv_attention_value_dim(a)), &parts);
    drop_block(w->st, &x->dropped, key, &parts);
    sum_keys(x->ot, w->v, w->st, clv_attention_value_dim(a), &seen, &parts);
}

static void forward_end(const forward_block *x, const clv_attention_args *a, int64_t b, int64_t h)
{
    int64_t dim = clv_attention_value_dim(a), width = clv_attention_pad_to_vector(dim);
    for (int64_t i = 0; i < x->rows; i++) {
        x->sum[i] = sum_of(x->sum[i], a, b, x->row + i);
        if (a->lse)
            a->lse[clv_attention_lse_index(a, b, h, x->row + i)] = log_sum(x->max[i], x->sum[i]);
        x->sum[i] = inverse(x->sum[i]);
    }
    for (int64_t d = 0; d < width; d++)
        for (int64_t l = 0; l < x->lanes; l += VF_LANES)
            vf_store(x->ot + d * ROWS + l, vf_mul(vf_load(x->ot + d * ROWS + l), vf_load(x->sum + l)));
    rows_transpose(x->qt, width, x->ot, ROWS, width, x->lanes);
    store_block(a, &a->out, dim, b, x->row, h, x->rows, x->qt, 1.0f);
}

/* Query rows [row, end), at most as many as w has blocks for. */
static void forward_blocks(forward_space *w, const clv_attention_args *a, int64_t b, int64_t h, int64_t row,
                           int64_t end)
{
    int64_t blocks = (end - row + ROWS - 1) / ROWS, keys = clv_attention_visible_keys(a, b, end);
    int64_t c = (a->head_offset + h) / a->group - a->kv_offset;
    for (int64_t i = 0; i < blocks; i++)
        forward_begin(w, w->block + i, a, b, h, row + i * ROWS);
    for (int64_t key = clv_attention_first_key(a, b, row); key < keys; key += KEYS) {
        load_keys(w->k, w->v, a, b, c, key, min_of(KEYS, keys - key));
        for (int64_t i = 0; i < blocks; i++)
            forward_keys(w, w->block + i, a, b, key);
    }
    for (int64_t i = 0; i < blocks; i++)
        forward_end(w->block + i, a, b, h);
}

void CLV_ISA_NAME(clv_attention_forward_rows)(const clv_attention_args *a, float *workspace, int64_t b, int64_t h,
                                              int64_t row, int64_t end)
{
#if defined(__AVX512F__)
    if (clv_attention_uses_bf16(a) && clv_attention_try_forward_bf16(a, workspace, b, h, row, end))
        return;
#endif
    forward_space w;
    int64_t blocks = clv_attention_blocks_per_key_pass(a);
    forward_layout(&w, workspace, clv_attention_widest(a), blocks);
    for (; row < end; row += blocks * ROWS)
        forward_blocks(&w, a, b, h, row, min_of(row + blocks * ROWS, end));
    vf_stream_end();
}

/* ----------------------------------------------------------------------------------------------- backward */

/* State of a block of query rows during the loop over keys. */
typedef struct backward_block {
    float *q, *qt;       /* [ROWS, Dp], [Dp, ROWS] scaled   */
    float *d_out, *d_ot; /* [ROWS, Dvp], [Dvp, ROWS]        */
    float *dqt;          /* [Dp, ROWS]                      */
    float *lse, *delta;  /* [ROWS]                          */
    int64_t row, rows, lanes;
    bool finite; /* q and d_out */
    drops dropped;
} backward_block;

typedef struct backward_space {
    float *k, *v;    /* [KEYS, Dp], [KEYS, Dvp]         */
    float *pt, *dst; /* [KEYS, ROWS] P^T, dS^T          */
    float *dk, *dv;  /* [Sk, Dp], [Sk, Dvp]             */
    backward_block block[CLV_ATTENTION_BLOCKS];
} backward_space;

static void backward_layout(backward_space *w, float *at, int64_t widest, int64_t k_rows, int64_t blocks)
{
    int64_t width = clv_attention_pad_to_vector(widest);
    w->k = at;
    w->v = w->k + KEYS * width;
    w->pt = w->v + KEYS * width;
    w->dst = w->pt + KEYS * ROWS;
    w->dk = w->dst + KEYS * ROWS;
    w->dv = w->dk + k_rows * width;
    at = w->dv + k_rows * width;
    for (int64_t i = 0; i < blocks; i++) {
        backward_block *x = w->block + i;
        x->q = at;
        x->qt = x->q + ROWS * width;
        x->d_out = x->qt + ROWS * width;
        x->d_ot = x->d_out + ROWS * width;
        x->dqt = x->d_ot + ROWS * width;
        x->lse = x->dqt + ROWS * width;
        x->delta = x->lse + ROWS;
        at = x->delta + ROWS;
    }
}

/* delta = rowsum(d_out * out), and lse; lanes that hold no row, or a row that sees nothing, get lse = +inf: p = 0. */
static void row_terms(const backward_block *x, float *out, const clv_attention_args *a, int64_t b, int64_t h)
{
    int64_t dim = clv_attention_value_dim(a), width = clv_attention_pad_to_vector(dim);
    const float *lse = a->lse + clv_attention_lse_index(a, b, h, x->row);

    load_block(out, a, &a->out, dim, b, x->row, h, x->rows, x->rows, 1.0f);
    for (int64_t i = 0; i < ROWS; i++) {
        vf sum = vf_set1(0.0f);
        for (int64_t d = 0; i < x->rows && d < width; d += VF_LANES)
            sum = vf_fma(vf_load(x->d_out + i * width + d), vf_load(out + i * width + d), sum);
        x->delta[i] = vf_sum(sum);
        x->lse[i] = i < x->rows && lse[i] != -INFINITY ? lse[i] : INFINITY;
    }
}

/* A key's p and dS of lanes [lane, end); p are dropped by factors, of lanes from `lane` on, unless these are NULL. */
CLV_INLINE void probability_row(float *pt, float *dst, const backward_block *x, int64_t lane, int64_t end,
                                const float *factor)
{
    for (int64_t l = lane; l < end; l += VF_LANES) {
        vf p = vf_exp(at_most_zero(vf_sub(vf_load(pt + l), vf_load(x->lse + l))));
        vf dp = vf_load(dst + l);
        dp = vf_sub(factor ? drop(dp, vf_load(factor + l - lane)) : dp, vf_load(x->delta + l));
        vf_store(pt + l, factor ? drop(p, vf_load(factor + l - lane)) : p);
        vf_store(dst + l, vf_mul(p, dp));
    }
}

/* pt holds scores, dst dP^T, of what of P is kept: they become P^T, so dropped, and dS^T. */
static void probability_step(const backward_space *w, const backward_block *x, int64_t key, const bands *parts)
{
    float factor[ROWS];
    for (const band *p = parts->of; p < parts->of + parts->count; p++)
        for (int64_t j = p->key; j < p->key + p->n; j++) {
            float *pt = w->pt + j * ROWS, *dst = w->dst + j * ROWS;
            if (x->dropped.any) {
                dropout_factors(factor, &x->dropped, key + j, p->lane, p->lanes);
                probability_row(pt, dst, x, p->lane, p->lane + p->lanes, factor);
            } else {
                probability_row(pt, dst, x, p->lane, p->lane + p->lanes, NULL);
            }
        }
}

static void backward_begin(const backward_space *w, backward_block *x, const clv_attention_args *a, int64_t b,
                           int64_t h, int64_t row)
{
    int64_t width = clv_attention_pad_to_vector(a->head_dim), value_dim = clv_attention_value_dim(a);
    int64_t of_values = clv_attention_pad_to_vector(value_dim);
    x->row = row;
    x->rows = min_of(ROWS, a->q_rows - row);
    x->lanes = round_up(x->rows, BAND);
    load_block(x->q, a, &a->q, a->head_dim, b, row, h, x->rows, x->lanes, a->scale);
    load_block(x->d_out, a, &a->d_out, value_dim, b, row, h, x->rows, x->lanes, 1.0f);
    rows_transpose(x->qt, ROWS, x->q, width, x->lanes, width);
    rows_transpose(x->d_ot, ROWS, x->d_out, of_values, x->lanes, of_values);
    row_terms(x, w->k, a, b, h);
    dropout_begin(&x->dropped, a, b, h, row);
    memset(x->dqt, 0, (size_t)(width * ROWS) * sizeof *x->dqt);
    x->finite = all_finite(x->q, x->rows * width) && all_finite(x->d_out, x->rows * of_values);
}

/* Keys from `key` on, which w holds, as far as the block's rows see them: adds to dqt, and to these keys' dk and dv. */
static void backward_keys(const backward_space *w, const backward_block *x, const clv_attention_args *a, int64_t b,
                          int64_t key)
{
    pairs seen;
    bands parts;
    int64_t width = clv_attention_pad_to_vector(a->head_dim), value_dim = clv_attention_value_dim(a);
    int64_t of_values = clv_attention_pad_to_vector(value_dim);
    if (!find_parts(&parts, &seen, a, b, x->row, x->rows, key))
        return;
    multiply_keys(w->pt, w->k, x->qt, a->head_dim, &parts);
    multiply_keys(w->dst, w->v, x->d_ot, value_dim, &parts);
    probability_step(w, x, key, &parts);
    hide_in_bands(w->pt, 0.0f, &seen, &parts); /* exp(-inf - NaN) and 0 * (NaN - delta) would be NaN */
    hide_in_bands(w->dst, 0.0f, &seen, &parts);
    sum_rows(w->dv + key * of_values, w->pt, x->d_out, of_values, x->rows, x->finite, &seen, &parts);
    sum_rows(w->dk + key * width, w->dst, x->q, width, x->rows, x->finite, &seen, &parts);
    sum_keys(x->dqt, w->k, w->dst, a->head_dim, &seen, &parts);
}

/* dq of query rows [row, end) of head h, which are no more than w has blocks for; adds to dk and dv of KV head c. */
static void backward_blocks(backward_space *w, const clv_attention_args *a, int64_t b, int64_t c, int64_t h,
                            int64_t row, int64_t end)
{
    int64_t blocks = (end - row + ROWS - 1) / ROWS, keys = clv_attention_visible_keys(a, b, end);
    int64_t width = clv_attention_pad_to_vector(a->head_dim);
    for (int64_t i = 0; i < blocks; i++)
        backward_begin(w, w->block + i, a, b, h, row + i * ROWS);
    for (int64_t key = clv_attention_first_key(a, b, row); key < keys; key += KEYS) {
        load_keys(w->k, w->v, a, b, c, key, min_of(KEYS, keys - key));
        for (int64_t i = 0; i < blocks; i++)
            backward_keys(w, w->block + i, a, b, key);
    }
    for (int64_t i = 0; i < blocks; i++) {
        const backward_block *x = w->block + i;
        rows_transpose(x->qt, width, x->dqt, ROWS, width, x->lanes);
        store_block(a, &a->dq, a->head_dim, b, x->row, h, x->rows, x->qt, a->scale);
    }
}

void CLV_ISA_NAME(clv_attention_backward_head)(const clv_attention_args *a, float *workspace, int64_t b, int64_t c,
                                               int64_t h, int64_t n)
{
#if defined(__AVX512F__)
    if (clv_attention_uses_bf16(a) && clv_attention_try_backward_bf16(a, workspace, b, c, h, n))
        return;
#endif
    backward_space w;
    clv_attention_args run;
    int64_t blocks = clv_attention_blocks_per_key_pass(a);
    size_t bytes = (size_t)(a->k_rows * clv_attention_pad_to_vector(clv_attention_widest(a))) * sizeof *w.dk;

    backward_layout(&w, workspace, clv_attention_widest(a), a->k_rows, blocks);
    memset(w.dk, 0, bytes);
    memset(w.dv, 0, bytes);
    for (int64_t head = h; head < h + n; head++)
        for (int64_t at = 0; clv_attention_next_run(&run, a, at); at += run.q_rows)
            for (int64_t row = 0; row < run.q_rows; row += blocks * ROWS)
                backward_blocks(&w, &run, b, c, head, row, min_of(row + blocks * ROWS, run.q_rows));
    store_keys(a, &a->dk, a->head_dim, b, c, w.dk);
    store_keys(a, &a->dv, clv_attention_value_dim(a), b, c, w.dv);
    vf_stream_end();
}
