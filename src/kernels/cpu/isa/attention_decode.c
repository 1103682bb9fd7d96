/* attention_decode.c - decode attention (one query row): split over the keys, as flash-decoding.
 *
 * Keys are split into chunks, and chunks are grouped into parts, which threads can share (clv_attention_decode_split).
 * All scores of a chunk are computed first: dot products of as many keys as a vector has lanes, which a transposing sum
 * turns into a vector of scores. Then the maximum, the exponentials, and the sum of p * v. Keys and values are read in
 * place from the KV cache. Heads of bf16 and f16 have gaps too wide for the hardware prefetcher, so while one is read
 * the next is prefetched; f32 heads are long enough, and were slower with prefetching.
 *
 * Sums of chunks, and of parts, are rescaled to a common maximum in ascending order, so results do not depend on which
 * thread computes them.
 *
 * Letters: D, padded to Dp (of values: Dv, to Dvp); g a query head of those that are computed together.
 */
#include <float.h>

#include "kernels/cpu/isa/attention_masking.h"

enum {
    HEADS = CLV_ATTENTION_HEADS,
    CHUNK = CLV_ATTENTION_CHUNK,
    PARTS = CLV_ATTENTION_PARTS,
    SIDE_BY_SIDE = 4 /* keys with sums of their own, to hide latency, if a head is one vector wide */
};
#if defined(__AVX512F__)
enum { WIDE = 4 }; /* vectors of values that are added up at a time */
#else
enum { WIDE = 2 };
#endif

typedef struct part_sums {
    float *o;   /* [HEADS, Dvp] sum of exp(score - max) * v */
    float *max; /* [HEADS] of the scores                    */
    float *sum; /* [HEADS] of exp(score - max)              */
} part_sums;

static part_sums part_layout(float *at, int64_t part, const clv_attention_args *a)
{
    const int64_t widest = clv_attention_widest(a);
    at += part * clv_attention_decode_split_floats(widest);
    part_sums sums = {.o = at, .max = at + HEADS * clv_attention_pad_to_vector(widest)};
    sums.sum = sums.max + HEADS;
    return sums;
}

typedef struct decode_space {
    float *q;    /* [HEADS, Dp] scaled                                    */
    float *p;    /* [HEADS, CHUNK] scores, then exponentials              */
    float *rows; /* [KEYS, Dp] keys or values, where some of them are hidden */
} decode_space;

static decode_space decode_layout(float *at, const clv_attention_args *a)
{
    decode_space w = {.q = at, .p = at + HEADS * clv_attention_pad_to_vector(clv_attention_widest(a))};
    w.rows = w.p + HEADS * CHUNK;
    return w;
}

/* ---- keys and values of a block */

/* Rows of one head. */
typedef struct block {
    clv_dtype dtype;
    const void *at;
    int64_t stride; /* elements between rows */
    size_t ahead;   /* bytes to the rows that are read next; 0: no prefetch */
} block;

/* dtype: x's, as a constant. */
CLV_INLINE const char *element_of(clv_dtype dtype, block x, int64_t key, int64_t d)
{
    return (const char *)x.at + (size_t)(key * x.stride + d) * vf_element_size(dtype);
}

/* A vector, or its first `lanes` followed by zeros. */
CLV_INLINE vf load(clv_dtype dtype, const void *at, int64_t lanes)
{
    return lanes == VF_LANES ? vf_load_dtype(dtype, at) : vf_load_part(dtype, at, lanes);
}

/* Heads that are read one after the other, and the end of the keys of their chunk. */
typedef struct read_heads {
    int64_t first, last, end;
} read_heads;

/* Elements from a head's rows to those that are read next: the next head's, or the first one's of the next block where
 * that is whole. */
static int64_t ahead_of(const pairs *x, const clv_attention_view *view, const read_heads *of, int64_t c)
{
    if (c < of->last)
        return view->head_stride;
    return x->key + 2 * KEYS <= of->end ? KEYS * view->row_stride - (c - of->first) * view->head_stride : 0;
}

/* The block's rows of k or v of KV head c, where they lie. Those that the query does not see read as zeros, whatever a
 * cache holds there: their p is 0, but 0 * NaN is not. */
static block rows_of(const decode_space *w, const pairs *x, const clv_attention_view *view, int64_t dim,
                     const read_heads *of, int64_t c)
{
    const clv_attention_args *a = x->a;
    const void *at = element(a, view, x->b, x->key, c);
    int64_t width = clv_attention_pad_to_vector(dim);
    if (!x->hidden)
        return (block){a->dtype, at, view->row_stride, (size_t)ahead_of(x, view, of, c) * vf_element_size(a->dtype)};
    rows_load(a->dtype, w->rows, width, at, view->row_stride, x->n, dim, 1.0f);
    for (int64_t j = 0; j < x->n; j++)
        if (x->from[j] == x->to[j])
            memset(w->rows + j * width, 0, (size_t)width * sizeof *w->rows);
    return (block){CLV_F32, w->rows, width, 0};
}

/* ---- scores */

/* sum[x] += q . k[x] of one vector at d, of `lanes` lanes, of VF_LANES keys from `key` on; behind the n-th that one is
 * read again, or of whole vectors of keys n is VF_LANES. */
CLV_INLINE void add_dots(clv_dtype dtype, vf sum[VF_LANES], const float *q, block k, int64_t key, int64_t d, int64_t n,
                         int64_t lanes)
{
    vf x = vf_load(q + d);
    const char *at = element_of(dtype, k, key, d);
    size_t stride = (size_t)k.stride * vf_element_size(dtype);
    CLV_UNROLL_LANES for (int j = 0; j < VF_LANES; j++)
    {
        if (dtype != CLV_F32)
            __builtin_prefetch(at + k.ahead);
        sum[j] = vf_fma(x, load(dtype, at, lanes), sum[j]);
        at += n == VF_LANES || j + 1 < n ? stride : 0;
    }
}

/* s[j] = q . k[key + j] of n <= VF_LANES keys, followed by -inf. */
CLV_INLINE void dots_of_vector(clv_dtype dtype, float *s, const float *q, block k, int64_t key, int64_t n,
                               int64_t head_dim)
{
    vf sum[VF_LANES];
    int64_t d = 0;
    CLV_UNROLL_LANES for (int j = 0; j < VF_LANES; j++) sum[j] = vf_set1(0.0f);
    for (; head_dim - d >= VF_LANES; d += VF_LANES)
        add_dots(dtype, sum, q, k, key, d, n, VF_LANES);
    if (d < head_dim)
        add_dots(dtype, sum, q, k, key, d, n, head_dim - d);
    vf_store(s, vf_sums(sum));
    for (int64_t j = n; j < VF_LANES; j++)
        s[j] = -INFINITY;
}

CLV_INLINE void dots_as(clv_dtype dtype, float *s, const float *q, block k, int64_t n, int64_t head_dim)
{
    int64_t j = 0;
    for (; n - j >= VF_LANES; j += VF_LANES)
        dots_of_vector(dtype, s + j, q, k, j, VF_LANES, head_dim);
    if (j < n)
        dots_of_vector(dtype, s + j, q, k, j, n - j, head_dim);
}

/* s[j] = q . k[j] of n keys, followed by -inf to the end of a vector. */
static void dots(float *s, const float *q, block k, int64_t n, int64_t head_dim)
{
    if (k.dtype == CLV_F32)
        dots_as(CLV_F32, s, q, k, n, head_dim);
    else if (k.dtype == CLV_BF16)
        dots_as(CLV_BF16, s, q, k, n, head_dim);
    else
        dots_as(CLV_F16, s, q, k, n, head_dim);
}

/* The KV head of query head h. */
static int64_t kv_head(const clv_attention_args *a, int64_t h)
{
    return (a->head_offset + h) / a->group - a->kv_offset;
}

/* How many of n query heads from h on share its KV head. */
static int64_t sharing(const clv_attention_args *a, int64_t h, int64_t n)
{
    return min_of(n, a->group - (a->head_offset + h) % a->group);
}

/* The KV heads of n query heads from h on; their keys end at `end`. */
static read_heads heads_of(const clv_attention_args *a, int64_t h, int64_t n, int64_t end)
{
    return (read_heads){kv_head(a, h), kv_head(a, h + n - 1), end};
}

/* Of the chunk's keys [key, end), for n heads from h on: block by block, for heads lie side by side in memory. */
static void find_scores(const decode_space *w, const clv_attention_args *a, int64_t b, int64_t h, int64_t n,
                        int64_t key, int64_t end)
{
    const read_heads of = heads_of(a, h, n, end);
    int64_t width = clv_attention_pad_to_vector(a->head_dim);
    pairs x;
    block k;
    for (int64_t at = 0; key + at < end; at += KEYS) {
        pairs_find(&x, a, b, 0, 1, key + at, end);
        for (int64_t g = 0, shared = 0; g < n; g++, shared--) {
            float *s = w->p + g * CHUNK + at;
            if (shared == 0) {
                k = rows_of(w, &x, &a->k, a->head_dim, &of, kv_head(a, h + g));
                shared = sharing(a, h + g, n - g);
            }
            dots(s, w->q + g * width, k, x.n, a->head_dim);
            for (int64_t j = 0; x.hidden && j < x.n; j++)
                if (x.from[j] == x.to[j])
                    s[j] = -INFINITY;
        }
    }
}

/* ---- exponentials */

/* What sums of exp(score - before) are to be multiplied by where `max` is the maximum. A head that has seen no key has
 * the maximum -inf: exp(-inf + FLT_MAX) = 0. */
static float correction(float before, float max)
{
    float lane[VF_LANES];
    vf_store(lane, vf_exp(vf_set1(before - (max == -INFINITY ? -FLT_MAX : max))));
    return lane[0];
}

/* Turns n scores into p; brings max and sum to the new maximum, and returns what o is to be multiplied by. */
static float softmax_step(float *p, int64_t n, float *max, float *sum)
{
    vf largest = vf_set1(*max);
    for (int64_t j = 0; j < n; j += VF_LANES)
        largest = vf_max(largest, vf_load(p + j));
    float before = *max;
    *max = vf_largest(largest);
    vf finite = vf_set1(*max == -INFINITY ? -FLT_MAX : *max), added = vf_set1(0.0f);
    for (int64_t j = 0; j < n; j += VF_LANES) {
        vf e = vf_exp(vf_sub(vf_load(p + j), finite));
        vf_store(p + j, e);
        added = vf_add(added, e);
    }
    float by = correction(before, *max);
    *sum = *sum * by + vf_sum(added);
    return by;
}

/* ---- values */

/* o[g, :] += sum over n keys of p[g, j] v[j, d ...], of `heads` heads and `width` vectors, the last with `lanes` lanes
 * in v; keys with the same remainder by `side` are added up by themselves. dtype, heads, width and side are constants,
 * and so is lanes where it is VF_LANES. */
CLV_INLINE void add_values(clv_dtype dtype, int heads, int width, int side, int64_t lanes, float *o, int64_t ldo,
                           const float *p, block v, int64_t n, int64_t d)
{
    vf sum[2][WIDE][SIDE_BY_SIDE];
    int64_t j = 0;
    CLV_UNROLL for (int g = 0; g < heads; g++) CLV_UNROLL for (int i = 0; i < width; i++)
        CLV_UNROLL for (int s = 0; s < side; s++) sum[g][i][s] =
            s == 0 ? vf_load(o + g * ldo + d + i * VF_LANES) : vf_set1(0.0f);
    for (; n - j >= side; j += side)
        CLV_UNROLL for (int s = 0; s < side; s++) CLV_UNROLL for (int i = 0; i < width; i++)
        {
            const char *at = element_of(dtype, v, j + s, d + i * VF_LANES);
            if (dtype != CLV_F32)
                __builtin_prefetch(at + v.ahead);
            vf value = load(dtype, at, lanes);
            CLV_UNROLL for (int g = 0; g < heads; g++) sum[g][i][s] =
                vf_fma(vf_set1(p[g * CHUNK + j + s]), value, sum[g][i][s]);
        }
    for (; j < n; j++)
        CLV_UNROLL for (int i = 0; i < width; i++)
        {
            vf value = load(dtype, element_of(dtype, v, j, d + i * VF_LANES), lanes);
            CLV_UNROLL for (int g = 0; g < heads; g++) sum[g][i][0] =
                vf_fma(vf_set1(p[g * CHUNK + j]), value, sum[g][i][0]);
        }
    CLV_UNROLL for (int g = 0; g < heads; g++) CLV_UNROLL for (int i = 0; i < width; i++)
    {
        CLV_UNROLL for (int s = 1; s < side; s++) sum[g][i][0] = vf_add(sum[g][i][0], sum[g][i][s]);
        vf_store(o + g * ldo + d + i * VF_LANES, sum[g][i][0]);
    }
}

/* The same for all D. */
CLV_INLINE void add_heads(clv_dtype dtype, int heads, float *o, int64_t ldo, const float *p, block v, int64_t n,
                          int64_t head_dim)
{
    int64_t d = 0;
    for (; head_dim - d >= WIDE * VF_LANES; d += WIDE * VF_LANES)
        add_values(dtype, heads, WIDE, 1, VF_LANES, o, ldo, p, v, n, d);
    for (; head_dim - d >= VF_LANES; d += VF_LANES)
        add_values(dtype, heads, 1, SIDE_BY_SIDE, VF_LANES, o, ldo, p, v, n, d);
    if (d < head_dim)
        add_values(dtype, heads, 1, SIDE_BY_SIDE, head_dim - d, o, ldo, p, v, n, d);
}

CLV_INLINE void values_as(clv_dtype dtype, int heads, float *o, int64_t ldo, const float *p, block v, int64_t n,
                          int64_t head_dim)
{
    if (heads == 2)
        add_heads(dtype, 2, o, ldo, p, v, n, head_dim);
    else
        add_heads(dtype, 1, o, ldo, p, v, n, head_dim);
}

/* Attention of 1 or 2 heads. */
static void add_block(int heads, float *o, int64_t ldo, const float *p, block v, int64_t n, int64_t head_dim)
{
    if (v.dtype == CLV_F32)
        values_as(CLV_F32, heads, o, ldo, p, v, n, head_dim);
    else if (v.dtype == CLV_BF16)
        values_as(CLV_BF16, heads, o, ldo, p, v, n, head_dim);
    else
        values_as(CLV_F16, heads, o, ldo, p, v, n, head_dim);
}

/* Attention over the chunk's keys [key, end), for n heads from h on. */
static void sum_values(const decode_space *w, float *o, const clv_attention_args *a, int64_t b, int64_t h, int64_t n,
                       int64_t key, int64_t end)
{
    const read_heads of = heads_of(a, h, n, end);
    int64_t dim = clv_attention_value_dim(a), width = clv_attention_pad_to_vector(dim);
    pairs x;
    for (int64_t at = 0; key + at < end; at += KEYS) {
        pairs_find(&x, a, b, 0, 1, key + at, end);
        for (int64_t g = 0; g < n;) {
            block v = rows_of(w, &x, &a->v, dim, &of, kv_head(a, h + g));
            int64_t last = g + sharing(a, h + g, n - g);
            for (; last - g >= 2; g += 2)
                add_block(2, o + g * width, width, w->p + g * CHUNK + at, v, x.n, dim);
            if (g < last)
                add_block(1, o + g * width, width, w->p + g * CHUNK + at, v, x.n, dim);
            g = last;
        }
    }
}

/* ---- a part, and all of them */

void CLV_ISA_NAME(clv_attention_decode_part)(const clv_attention_args *a, float *workspace, float *parts, int64_t part,
                                             int64_t b, int64_t h, int64_t n)
{
    decode_space w = decode_layout(workspace, a);
    part_sums sums = part_layout(parts, part, a);
    int64_t width = clv_attention_pad_to_vector(a->head_dim), end;
    int64_t of_values = clv_attention_pad_to_vector(clv_attention_value_dim(a));
    int64_t key = clv_attention_decode_split(a, b, part, &end);

    if (key >= end)
        return;
    memset(w.q, 0, (size_t)(n * width) * sizeof *w.q);
    rows_load(a->dtype, w.q, width, element(a, &a->q, b, 0, h), a->q.head_stride, n, a->head_dim, (float)a->scale);
    memset(sums.o, 0, (size_t)(n * of_values) * sizeof *sums.o);
    for (int64_t g = 0; g < n; g++) {
        sums.max[g] = -INFINITY;
        sums.sum[g] = 0.0f;
    }
    for (; key < end; key += CHUNK) {
        int64_t keys = min_of(CHUNK, end - key);
        find_scores(&w, a, b, h, n, key, key + keys);
        for (int64_t g = 0; g < n; g++) {
            vf by = vf_set1(softmax_step(w.p + g * CHUNK, keys, &sums.max[g], &sums.sum[g]));
            for (int64_t d = 0; d < of_values; d += VF_LANES)
                vf_store(sums.o + g * of_values + d, vf_mul(vf_load(sums.o + g * of_values + d), by));
        }
        sum_values(&w, sums.o, a, b, h, n, key, key + keys);
    }
}

/* Adds a further part to to[g, :], max and sum. */
static void add_part(part_sums to, part_sums part, int64_t g, int64_t width)
{
    float max = part.max[g] > to.max[g] ? part.max[g] : to.max[g];
    float old = correction(to.max[g], max), new = correction(part.max[g], max);
    to.sum[g] = to.sum[g] * old + part.sum[g] * new;
    to.max[g] = max;
    for (int64_t d = 0; d < width; d += VF_LANES) {
        vf o = vf_mul(vf_load(to.o + g * width + d), vf_set1(old));
        vf_store(to.o + g * width + d, vf_fma(vf_load(part.o + g * width + d), vf_set1(new), o));
    }
}

void CLV_ISA_NAME(clv_attention_decode_combine)(const clv_attention_args *a, float *parts, int64_t b, int64_t h,
                                                int64_t n)
{
    int64_t dim = clv_attention_value_dim(a), width = clv_attention_pad_to_vector(dim), end, last = PARTS - 1;
    part_sums all = part_layout(parts, last, a); /* has keys if any part has */
    bool any = clv_attention_decode_split(a, b, last, &end) < end;

    for (int64_t g = 0; g < n; g++) {
        if (!any) {
            memset(all.o + g * width, 0, (size_t)width * sizeof *all.o);
            all.max[g] = -INFINITY;
            all.sum[g] = 0.0f;
        }
        for (int64_t part = last - 1; part >= 0; part--)
            if (clv_attention_decode_split(a, b, part, &end) < end)
                add_part(all, part_layout(parts, part, a), g, width);
        float sum = sum_of(all.sum[g], a, b, 0);
        if (a->lse)
            a->lse[clv_attention_lse_index(a, b, h + g, 0)] = log_sum(all.max[g], sum);
        rows_store(a->dtype, element(a, &a->out, b, 0, h + g), a->out.row_stride, all.o + g * width, width, 1, dim,
                   inverse(sum));
    }
}
