/* isa/attention.c: attention of one block of query rows, of one decoded token, and the gradients of one KV head.
 *
 * Query rows lie along vector lanes: S^T = K Q^T is a block [keys, rows], so that the softmax over keys needs no
 * horizontal sums, and K, V (and for gradients P^T, dS^T) are only ever read one element at a time, to be broadcast,
 * which makes any of their transposes free. What is transposed is Q, d_out and the result, once a block of rows.
 *
 *   forward   S^T = K Q^T      O^T += V^T P^T
 *   backward  S^T = K Q^T      dP^T = V dO^T     dS^T = P^T * (dP^T - delta)
 *             dV += P^T dO     dK += dS^T Q      dQ^T += K^T dS^T
 *   with dropout by Z: P^T in the products with V and dO is Z^T * P^T, and so is the gradient of P
 *
 * Letters: n keys of a block; D, padded to Dp; ROWS lanes, of which `lanes` are computed. q is scaled when loaded.
 */
#include <float.h>

#include "kernels/cpu/isa/attention_blocks.h"

enum {
    TILE = 6,      /* rows of a register tile; its width is up to TILE_VECTORS */
    TILE_REST = 4, /* rows of the tile that takes what is left */
    DOTS = 4       /* keys whose dot products run side by side */
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
    for (; n - j >= 2 * VF_LANES; j += 2 * VF_LANES)
        panel(2, c + j, ldc, a, ai, ap, b + j, ldb, m, k, accumulate);
    for (; n > j; j += VF_LANES)
        panel(1, c + j, ldc, a, ai, ap, b + j, ldb, m, k, accumulate);
}

typedef float quad __attribute__((vector_size(16)));

/* out [cols, rows] = in [rows, cols] transposed; both extents are multiples of 4. */
static void transpose(float *out, int64_t ldo, const float *in, int64_t ldi, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i += 4)
        for (int64_t j = 0; j < cols; j += 4) {
            quad r[4], half[4], t[4];
            for (int x = 0; x < 4; x++)
                memcpy(&r[x], in + (i + x) * ldi + j, sizeof r[x]);
            half[0] = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
            half[1] = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
            half[2] = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
            half[3] = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
            t[0] = __builtin_shufflevector(half[0], half[1], 0, 1, 4, 5);
            t[1] = __builtin_shufflevector(half[0], half[1], 2, 3, 6, 7);
            t[2] = __builtin_shufflevector(half[2], half[3], 0, 1, 4, 5);
            t[3] = __builtin_shufflevector(half[2], half[3], 2, 3, 6, 7);
            for (int x = 0; x < 4; x++)
                memcpy(out + (j + x) * ldo + i, &t[x], sizeof t[x]);
        }
}

/* block [padded, Dp] = scale * rows [s, s + rows) of head h, zeros around them. */
static void load_block(float *block, const clv_attention_args *a, const clv_attention_view *view, int64_t b, int64_t s,
                       int64_t h, int64_t rows, int64_t padded, float scale)
{
    int64_t width = clv_attention_padded(a->head_dim);
    if (width != a->head_dim)
        memset(block, 0, (size_t)(rows * width) * sizeof *block);
    memset(block + rows * width, 0, (size_t)((padded - rows) * width) * sizeof *block);
    rows_load(a->dtype, block, width, element(a, view, b, s, h), view->row_stride, rows, a->head_dim, scale);
}

static void store_block(const clv_attention_args *a, const clv_attention_view *view, int64_t b, int64_t s, int64_t h,
                        int64_t rows, const float *block, float scale)
{
    rows_store(a->dtype, element(a, view, b, s, h), view->row_stride, block, clv_attention_padded(a->head_dim), rows,
               a->head_dim, scale);
}

/* The block's rows of k and v. Those that none of the queries sees read as zeros, whatever a cache holds there: their p
 * is 0, but 0 * NaN is not. */
static void load_keys(float *k, float *v, const pairs *x, int64_t c)
{
    size_t width = (size_t)clv_attention_padded(x->a->head_dim);
    load_block(k, x->a, &x->a->k, x->b, x->key, c, x->n, round_up(x->n, DOTS), 1.0f);
    load_block(v, x->a, &x->a->v, x->b, x->key, c, x->n, x->n, 1.0f);
    for (int64_t j = 0; x->hidden && j < x->n; j++)
        if (x->from[j] == x->to[j]) {
            memset(k + (size_t)j * width, 0, width * sizeof *k);
            memset(v + (size_t)j * width, 0, width * sizeof *v);
        }
}

/* Whether n floats, a multiple of CLV_ATTENTION_PAD, are neither NaN nor infinite: 0 * x is 0 for such alone. */
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

/* The zeros that P^T and dS^T have for hidden pairs keep finite factors out of a product, but not NaN and infinity.
 * Where a block has both, each key takes the rows that see it alone; every sum has the order that `product` gives it.
 */

/* ct [D, ROWS] += sum over keys of k^T [D, n] st [n, ROWS]. */
static void sum_keys(float *ct, const float *k, const float *st, const pairs *x)
{
    int64_t width = clv_attention_padded(x->a->head_dim);
    if (!x->hidden || all_finite(k, x->n * width)) {
        product(ct, ROWS, k, 1, width, st, ROWS, x->a->head_dim, x->lanes, x->n, true);
        return;
    }
    for (int64_t j = 0; j < x->n; j++) {
        for (int64_t d = 0; x->from[j] < x->to[j] && d < x->a->head_dim; d++) {
            float sum[ROWS], *to = ct + d * ROWS;
            for (int64_t l = 0; l < x->lanes; l += VF_LANES)
                vf_store(sum + l, vf_fma(vf_set1(k[j * width + d]), vf_load(st + j * ROWS + l), vf_load(to + l)));
            memcpy(to + x->from[j], sum + x->from[j], (size_t)(x->to[j] - x->from[j]) * sizeof *sum);
        }
    }
}

/* c [n, Dp] += sum over rows of st [n, rows] q [rows, Dp]. */
static void sum_rows(float *c, const float *st, const float *q, int64_t rows, bool finite, const pairs *x)
{
    int64_t width = clv_attention_padded(x->a->head_dim);
    if (!x->hidden || finite) {
        product(c, width, st, ROWS, 1, q, width, x->n, width, rows, true);
        return;
    }
    for (int64_t j = 0; j < x->n; j++)
        product(c + j * width, width, st + j * ROWS + x->from[j], ROWS, 1, q + x->from[j] * width, width, 1, width,
                min_of(x->to[j], rows) - x->from[j], true);
}

/* ------------------------------------------------------------------------------------------------ forward */

/* st [n, ROWS], of keys from `key` on. */
static void drop_block(float *st, const drops *x, int64_t key, int64_t n, int64_t lanes)
{
    float factor[ROWS];
    for (int64_t j = 0; x->any && j < n; j++) {
        drops_find(factor, x, key + j, 0, lanes);
        for (int64_t l = 0; l < lanes; l += VF_LANES)
            vf_store(st + j * ROWS + l, drop(vf_load(st + j * ROWS + l), vf_load(factor + l)));
    }
}

typedef struct forward_space {
    float *qt;  /* [Dp, ROWS] scaled queries  */
    float *ot;  /* [Dp, ROWS] sum of p * v    */
    float *k;   /* [KEYS, Dp]                 */
    float *v;   /* [KEYS, Dp]                 */
    float *st;  /* [KEYS, ROWS] scores, then p */
    float *max; /* [ROWS] of the scores so far */
    float *sum; /* [ROWS] of exp(score - max)  */
} forward_space;

static forward_space forward_layout(float *at, int64_t head_dim)
{
    int64_t width = clv_attention_padded(head_dim);
    forward_space w;
    w.qt = at;
    w.ot = w.qt + width * ROWS;
    w.k = w.ot + width * ROWS;
    w.v = w.k + KEYS * width;
    w.st = w.v + KEYS * width;
    w.max = w.st + KEYS * ROWS;
    w.sum = w.max + ROWS;
    return w;
}

/* Turns scores into p, and brings max, sum and ot to the new maximum. A row with no visible key so far has max -inf:
 * its p and correction are exp(-inf + FLT_MAX) = 0. */
static void softmax_step(const forward_space *w, int64_t n, int64_t lanes, int64_t width)
{
    for (int64_t l = 0; l < lanes; l += VF_LANES) {
        vf before = vf_load(w->max + l);
        vf max = before;
        for (int64_t j = 0; j < n; j++)
            max = vf_max(max, vf_load(w->st + j * ROWS + l));
        vf finite = vf_max(vf_set1(-FLT_MAX), max);
        vf correction = vf_exp(vf_sub(before, finite));
        vf sum = vf_set1(0.0f);
        for (int64_t j = 0; j < n; j++) {
            vf p = vf_exp(vf_sub(vf_load(w->st + j * ROWS + l), finite));
            vf_store(w->st + j * ROWS + l, p);
            sum = vf_add(sum, p);
        }
        vf_store(w->max + l, max);
        vf_store(w->sum + l, vf_fma(vf_load(w->sum + l), correction, sum));
        for (int64_t d = 0; d < width; d++)
            vf_store(w->ot + d * ROWS + l, vf_mul(vf_load(w->ot + d * ROWS + l), correction));
    }
}

static void forward_block(const clv_attention_args *a, float *workspace, int64_t b, int64_t h, int64_t row)
{
    pairs x;
    drops dropped;
    forward_space w = forward_layout(workspace, a->head_dim);
    int64_t width = clv_attention_padded(a->head_dim);
    int64_t rows = min_of(ROWS, a->q_rows - row);
    int64_t lanes = round_up(rows, VF_LANES);
    int64_t c = (a->head_offset + h) / a->group - a->kv_offset;
    int64_t keys = clv_attention_visible(a, b, row + rows);

    load_block(w.k, a, &a->q, b, row, h, rows, lanes, a->scale);
    transpose(w.qt, ROWS, w.k, width, lanes, width);
    drops_begin(&dropped, a, b, h, row);
    memset(w.ot, 0, (size_t)(width * ROWS) * sizeof *w.ot);
    for (int64_t i = 0; i < ROWS; i++) {
        w.max[i] = -INFINITY;
        w.sum[i] = 0.0f;
    }
    for (int64_t key = clv_attention_first(a, b, row); key < keys; key += KEYS) {
        pairs_find(&x, a, b, row, lanes, key, keys);
        load_keys(w.k, w.v, &x, c);
        product(w.st, ROWS, w.k, width, 1, w.qt, ROWS, x.n, lanes, a->head_dim, false);
        hide(w.st, -INFINITY, &x);
        softmax_step(&w, x.n, lanes, width);
        drop_block(w.st, &dropped, key, x.n, lanes);
        sum_keys(w.ot, w.v, w.st, &x);
    }
    for (int64_t i = 0; i < rows; i++) {
        w.sum[i] = sum_of(w.sum[i], a, b, row + i);
        if (a->lse)
            a->lse[(b * a->heads + h) * a->q_rows + row + i] = log_sum(w.max[i], w.sum[i]);
        w.sum[i] = inverse(w.sum[i]);
    }
    for (int64_t d = 0; d < width; d++)
        for (int64_t l = 0; l < lanes; l += VF_LANES)
            vf_store(w.ot + d * ROWS + l, vf_mul(vf_load(w.ot + d * ROWS + l), vf_load(w.sum + l)));
    transpose(w.qt, width, w.ot, ROWS, width, lanes);
    store_block(a, &a->out, b, row, h, rows, w.qt, 1.0f);
}

void CLV_ISA_NAME(clv_attention_forward_rows)(const clv_attention_args *a, float *workspace, int64_t b, int64_t h,
                                              int64_t row, int64_t end)
{
#if defined(__AVX512F__)
    if (clv_attention_by_tiles(a) && clv_attention_forward_tiles(a, workspace, b, h, row, end))
        return;
#endif
    for (; row < end; row += ROWS)
        forward_block(a, workspace, b, h, row);
}

/* ------------------------------------------------------------------------------------------------- decode */

typedef struct decode_space {
    float *q;   /* [HEADS, Dp] scaled   */
    float *o;   /* [HEADS, Dp]          */
    float *k;   /* [KEYS, Dp]           */
    float *v;   /* [KEYS, Dp]           */
    float *p;   /* [HEADS, KEYS]        */
    float *max; /* [HEADS]              */
    float *sum; /* [HEADS]              */
} decode_space;

static decode_space decode_layout(float *at, int64_t head_dim)
{
    int64_t width = clv_attention_padded(head_dim);
    decode_space w;
    w.q = at;
    w.o = w.q + CLV_ATTENTION_HEADS * width;
    w.k = w.o + CLV_ATTENTION_HEADS * width;
    w.v = w.k + KEYS * width;
    w.p = w.v + KEYS * width;
    w.max = w.p + CLV_ATTENTION_HEADS * KEYS;
    w.sum = w.max + CLV_ATTENTION_HEADS;
    return w;
}

/* s [KEYS] = q [width] . k [n, width]; -inf from n on. DOTS keys at a time hide the latency of the sums. */
static void dots(float *s, const float *q, const float *k, int64_t n, int64_t width)
{
    for (int64_t j = 0; j < n; j += DOTS) {
        vf sum[DOTS] = {vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f)};
        for (int64_t d = 0; d < width; d += VF_LANES)
            CLV_UNROLL for (int x = 0; x < DOTS; x++) sum[x] =
                vf_fma(vf_load(q + d), vf_load(k + (j + x) * width + d), sum[x]);
        CLV_UNROLL for (int x = 0; x < DOTS; x++) s[j + x] = vf_sum(sum[x]);
    }
    for (int64_t j = n; j < KEYS; j++)
        s[j] = -INFINITY;
}

/* The softmax step of head g, with keys along lanes. */
static void decode_step(const decode_space *w, int64_t g, int64_t width)
{
    float *p = w->p + g * KEYS;
    vf largest = vf_set1(w->max[g]);
    for (int64_t j = 0; j < KEYS; j += VF_LANES)
        largest = vf_max(largest, vf_load(p + j));
    float max = vf_largest(largest);
    vf finite = vf_set1(max == -INFINITY ? -FLT_MAX : max);
    vf correction = vf_exp(vf_sub(vf_set1(w->max[g]), finite));
    vf sum = vf_set1(0.0f);

    for (int64_t j = 0; j < KEYS; j += VF_LANES) {
        vf e = vf_exp(vf_sub(vf_load(p + j), finite));
        vf_store(p + j, e);
        sum = vf_add(sum, e);
    }
    for (int64_t d = 0; d < width; d += VF_LANES)
        vf_store(w->o + g * width + d, vf_mul(vf_load(w->o + g * width + d), correction));
    float lane[VF_LANES];
    vf_store(lane, correction);
    w->sum[g] = w->sum[g] * lane[0] + vf_sum(sum);
    w->max[g] = max;
}

void CLV_ISA_NAME(clv_attention_decode)(const clv_attention_args *a, float *workspace, int64_t b, int64_t h, int64_t n)
{
    pairs x;
    decode_space w = decode_layout(workspace, a->head_dim);
    int64_t width = clv_attention_padded(a->head_dim);
    int64_t c = (a->head_offset + h) / a->group - a->kv_offset;
    int64_t keys = clv_attention_visible(a, b, 1);
    clv_attention_view by_head = a->q;

    by_head.row_stride = a->q.head_stride; /* the block's rows are heads */
    memset(w.p, 0, (size_t)(CLV_ATTENTION_HEADS * KEYS) * sizeof *w.p);
    memset(w.o, 0, (size_t)(CLV_ATTENTION_HEADS * width) * sizeof *w.o);
    load_block(w.q, a, &by_head, b, h, 0, n, n, a->scale);
    for (int64_t g = 0; g < n; g++) {
        w.max[g] = -INFINITY;
        w.sum[g] = 0.0f;
    }
    for (int64_t key = clv_attention_first(a, b, 0); key < keys; key += KEYS) {
        pairs_find(&x, a, b, 0, 1, key, keys);
        load_keys(w.k, w.v, &x, c);
        for (int64_t g = 0; g < n; g++) {
            dots(w.p + g * KEYS, w.q + g * width, w.k, x.n, width);
            for (int64_t j = 0; x.hidden && j < x.n; j++)
                if (x.from[j] == x.to[j])
                    w.p[g * KEYS + j] = -INFINITY;
            decode_step(&w, g, width);
        }
        product(w.o, width, w.p, KEYS, 1, w.v, width, n, width, x.n, true);
    }
    for (int64_t g = 0; g < n; g++) {
        w.sum[g] = sum_of(w.sum[g], a, b, 0);
        if (a->lse)
            a->lse[b * a->heads + h + g] = log_sum(w.max[g], w.sum[g]);
        store_block(a, &a->out, b, 0, h + g, 1, w.o + g * width, inverse(w.sum[g]));
    }
}

/* ----------------------------------------------------------------------------------------------- backward */

typedef struct backward_space {
    float *q, *qt;       /* [ROWS, Dp], [Dp, ROWS] scaled   */
    float *d_out, *d_ot; /* [ROWS, Dp], [Dp, ROWS]          */
    float *dqt;          /* [Dp, ROWS]                      */
    float *k, *v;        /* [KEYS, Dp]                      */
    float *pt, *dst;     /* [KEYS, ROWS] P^T, dS^T          */
    float *lse, *delta;  /* [ROWS]                          */
    float *dk, *dv;      /* [Sk, Dp]                        */
} backward_space;

static backward_space backward_layout(float *at, int64_t head_dim, int64_t k_rows)
{
    int64_t width = clv_attention_padded(head_dim);
    backward_space w;
    w.q = at;
    w.qt = w.q + ROWS * width;
    w.d_out = w.qt + ROWS * width;
    w.d_ot = w.d_out + ROWS * width;
    w.dqt = w.d_ot + ROWS * width;
    w.k = w.dqt + ROWS * width;
    w.v = w.k + KEYS * width;
    w.pt = w.v + KEYS * width;
    w.dst = w.pt + KEYS * ROWS;
    w.lse = w.dst + KEYS * ROWS;
    w.delta = w.lse + ROWS;
    w.dk = w.delta + ROWS;
    w.dv = w.dk + k_rows * width;
    return w;
}

/* delta = rowsum(d_out * out), and lse; lanes that hold no row, or a row that sees nothing, get lse = +inf: p = 0. */
static void row_terms(const backward_space *w, const clv_attention_args *a, int64_t b, int64_t h, int64_t row,
                      int64_t rows)
{
    int64_t width = clv_attention_padded(a->head_dim);
    const float *lse = a->lse + (b * a->heads + h) * a->q_rows + row;

    load_block(w->k, a, &a->out, b, row, h, rows, rows, 1.0f);
    for (int64_t i = 0; i < ROWS; i++) {
        vf sum = vf_set1(0.0f);
        for (int64_t d = 0; i < rows && d < width; d += VF_LANES)
            sum = vf_fma(vf_load(w->d_out + i * width + d), vf_load(w->k + i * width + d), sum);
        w->delta[i] = vf_sum(sum);
        w->lse[i] = i < rows && lse[i] != -INFINITY ? lse[i] : INFINITY;
    }
}

/* Key j of the block, whose p are dropped by factors unless these are NULL. */
CLV_INLINE void probability_row(const backward_space *w, int64_t j, int64_t lanes, const float *factor)
{
    for (int64_t l = 0; l < lanes; l += VF_LANES) {
        vf p = vf_exp(at_most_zero(vf_sub(vf_load(w->pt + j * ROWS + l), vf_load(w->lse + l))));
        vf dp = vf_load(w->dst + j * ROWS + l);
        dp = vf_sub(factor ? drop(dp, vf_load(factor + l)) : dp, vf_load(w->delta + l));
        vf_store(w->pt + j * ROWS + l, factor ? drop(p, vf_load(factor + l)) : p);
        vf_store(w->dst + j * ROWS + l, vf_mul(p, dp));
    }
}

/* pt holds scores, dst dP^T, of what of P is kept: they become P^T, so dropped, and dS^T. */
static void probability_step(const backward_space *w, const drops *dropped, int64_t key, int64_t n, int64_t lanes)
{
    float factor[ROWS];
    for (int64_t j = 0; dropped->any && j < n; j++) {
        drops_find(factor, dropped, key + j, 0, lanes);
        probability_row(w, j, lanes, factor);
    }
    for (int64_t j = 0; !dropped->any && j < n; j++)
        probability_row(w, j, lanes, NULL);
}

/* dq of a block of rows of head h; adds to dk and dv of KV head c. */
static void backward_block(const backward_space *w, const clv_attention_args *a, int64_t b, int64_t c, int64_t h,
                           int64_t row)
{
    pairs x;
    drops dropped;
    int64_t width = clv_attention_padded(a->head_dim);
    int64_t rows = min_of(ROWS, a->q_rows - row);
    int64_t lanes = round_up(rows, VF_LANES);
    int64_t keys = clv_attention_visible(a, b, row + rows);

    load_block(w->q, a, &a->q, b, row, h, rows, lanes, a->scale);
    load_block(w->d_out, a, &a->d_out, b, row, h, rows, lanes, 1.0f);
    transpose(w->qt, ROWS, w->q, width, lanes, width);
    transpose(w->d_ot, ROWS, w->d_out, width, lanes, width);
    row_terms(w, a, b, h, row, rows);
    drops_begin(&dropped, a, b, h, row);
    memset(w->dqt, 0, (size_t)(width * ROWS) * sizeof *w->dqt);
    bool finite = all_finite(w->q, rows * width) && all_finite(w->d_out, rows * width);
    for (int64_t key = clv_attention_first(a, b, row); key < keys; key += KEYS) {
        pairs_find(&x, a, b, row, lanes, key, keys);
        load_keys(w->k, w->v, &x, c);
        product(w->pt, ROWS, w->k, width, 1, w->qt, ROWS, x.n, lanes, a->head_dim, false);
        product(w->dst, ROWS, w->v, width, 1, w->d_ot, ROWS, x.n, lanes, a->head_dim, false);
        probability_step(w, &dropped, key, x.n, lanes);
        hide(w->pt, 0.0f, &x); /* exp(-inf - NaN) and 0 * (NaN - delta) would be NaN */
        hide(w->dst, 0.0f, &x);
        sum_rows(w->dv + key * width, w->pt, w->d_out, rows, finite, &x);
        sum_rows(w->dk + key * width, w->dst, w->q, rows, finite, &x);
        sum_keys(w->dqt, w->k, w->dst, &x);
    }
    transpose(w->qt, width, w->dqt, ROWS, width, lanes);
    store_block(a, &a->dq, b, row, h, rows, w->qt, a->scale);
}

void CLV_ISA_NAME(clv_attention_backward_head)(const clv_attention_args *a, float *workspace, int64_t b, int64_t c,
                                               int64_t h, int64_t n)
{
#if defined(__AVX512F__)
    if (clv_attention_by_tiles(a) && clv_attention_backward_tiles(a, workspace, b, c, h, n))
        return;
#endif
    backward_space w = backward_layout(workspace, a->head_dim, a->k_rows);
    size_t bytes = (size_t)(a->k_rows * clv_attention_padded(a->head_dim)) * sizeof *w.dk;

    memset(w.dk, 0, bytes);
    memset(w.dv, 0, bytes);
    for (int64_t head = h; head < h + n; head++)
        for (int64_t row = 0; row < a->q_rows; row += ROWS)
            backward_block(&w, a, b, c, head, row);
    store_block(a, &a->dk, b, 0, c, a->k_rows, w.dk, 1.0f);
    store_block(a, &a->dv, b, 0, c, a->k_rows, w.dv, 1.0f);
}
