/* attention_masking.h - masking, dropout and softmax sums of a block, shared by attention kernels. */
#pragma once

#include "kernels/cpu/dropout_kernel.h"
#include "kernels/cpu/isa/attention_simd.h"
#include "kernels/cpu/isa/load_store_rows.h"
#include "kernels/cpu/isa/threefry.h"

/* Short names of the block sizes. */
enum { ROWS = CLV_ATTENTION_ROWS, KEYS = CLV_ATTENTION_KEYS };

static inline int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static inline char *element(const clv_attention_args *a, const clv_attention_view *view, int64_t b, int64_t s,
                            int64_t h)
{
    size_t size = vf_element_size(a->dtype);
    return (char *)view->data + (size_t)(b * view->batch_stride + s * view->row_stride + h * view->head_stride) * size;
}

/* ---------------------------------------------------------------------------------------- masking */

/* Pairs of keys [key, key + n) and query rows [row, row + lanes) of batch row b. Lanes [from[j], to[j]) see key j. */
typedef struct pairs {
    const clv_attention_args *a;
    int64_t b, row, lanes, key, n;
    bool hidden; /* some pairs are masked; else from and to are not set */
    int32_t from[KEYS], to[KEYS];
} pairs;

static inline int64_t clamp(int64_t n, int64_t hi)
{
    n = n < hi ? n : hi;
    return n > 0 ? n : 0;
}

static inline void find_lanes(pairs *x)
{
    const clv_attention_args *a = x->a;
    const uint8_t *mask = clv_attention_mask_at(a, x->b, x->key);
    int64_t ahead = x->key - clv_attention_query_position(a, x->b, x->row); /* of the first row */
    int64_t reach = a->window ? min_of(a->window, INT64_MAX / 2) : INT64_MAX / 2;
    for (int64_t j = 0; j < x->n; j++) {
        int64_t from = a->causal ? clamp(ahead + j, x->lanes) : 0;
        int64_t to = clamp(ahead + j + reach, x->lanes);
        x->from[j] = (int32_t)from;
        x->to[j] = (int32_t)(to > from && (!mask || mask[j]) ? to : from);
    }
}

/* The pairs of a block of keys that begins at `key`; there are `keys` keys. */
static inline void pairs_find(pairs *x, const clv_attention_args *a, int64_t b, int64_t row, int64_t lanes, int64_t key,
                              int64_t keys)
{
    int64_t place = clv_attention_query_position(a, b, row);
    x->a = a;
    x->b = b;
    x->row = row;
    x->lanes = lanes;
    x->key = key;
    x->n = min_of(KEYS, keys - key);
    x->hidden = (a->causal && key + x->n - 1 > place) || (a->window && key <= place + lanes - 1 - a->window) ||
                (a->key_mask && memchr(clv_attention_mask_at(a, b, key), 0, (size_t)x->n));
    if (x->hidden)
        find_lanes(x);
}

/* Sets lanes [lane, end) of one key's row of st to value if they do not see the key. */
static inline void hide_key(float *st, float value, int64_t lane, int64_t end, int64_t from, int64_t to)
{
    for (int64_t i = lane; i < from; i++)
        st[i] = value;
    for (int64_t i = to; i < end; i++)
        st[i] = value;
}

/* Sets st [n, ROWS] to value for masked pairs. */
static inline void hide(float *st, float value, const pairs *x)
{
    for (int64_t j = 0; x->hidden && j < x->n; j++)
        hide_key(st + j * ROWS, value, 0, x->lanes, x->from[j], x->to[j]);
}

/* ------------------------------------------------------------------------------------------------ dropout */

/* Dropout of a block of query rows. */
typedef struct drops {
    bool any; /* false: no dropout, the rest is not set */
    clv_key key;
    uint32_t threshold;
    float factor;                   /* of kept elements */
    uint32_t high[ROWS], low[ROWS]; /* random counter of key 0 for each lane */
} drops;

static inline void dropout_begin(drops *x, const clv_attention_args *a, int64_t b, int64_t h, int64_t row)
{
    x->any = a->dropout > 0;
    for (int64_t i = 0; x->any && i < ROWS; i++) {
        uint64_t first = clv_attention_dropout_index(a, b, h, row + i);
        x->high[i] = (uint32_t)(first >> 32);
        x->low[i] = (uint32_t)first;
    }
    x->key = a->dropout_key;
    x->threshold = clv_dropout_threshold(1 - a->dropout);
    x->factor = (float)(1 / (1 - a->dropout));
}

/* factor [lanes] = x->factor (kept) or 0 (dropped) for a key and the lanes from `first` on. */
static inline void dropout_factors(float *factor, const drops *x, int64_t key, int64_t first, int64_t lanes)
{
    uint32_t k0 = x->key.word[0], k1 = x->key.word[1], on = (uint32_t)key;
    uint32_t high = (uint32_t)((uint64_t)key >> 32), threshold = x->threshold;
    const uint32_t *from_high = x->high + first, *from_low = x->low + first;
    float kept = x->factor;
    int32_t count = (int32_t)lanes;
    CLV_INDEPENDENT
    for (int32_t l = 0; l < count; l++) {
        uint32_t word = from_low[l] + on;
        uint32_t bits = threefry_bits(k0, k1, from_high[l] + high + (word < on ? 1u : 0u), word) >> 9;
        factor[l] = bits < threshold ? kept : 0.0f;
    }
}

/* 0 for dropped elements, even if they are NaN. */
CLV_INLINE vf drop(vf x, vf factor)
{
    return vf_zero_below(vf_mul(x, factor), factor, vf_set1(1.0f));
}

/* ------------------------------------------------------------------------------------------------ sums */

/* score - log(sum of its row), at most 0: for scores in the billions rounding could make it so large that exp
 * overflows. NaN stays NaN. */
CLV_INLINE vf at_most_zero(vf difference)
{
    return vf_min(vf_set1(0.0f), difference);
}

/* The sum of exp(score - max) is 0 where a row sees nothing, and where all that it sees scores -inf: there p is 0 / 0.
 */
static inline float sum_of(float sum, const clv_attention_args *a, int64_t b, int64_t row)
{
    pairs x;
    int64_t keys = sum == 0.0f ? clv_attention_visible_keys(a, b, row + 1) : 0;
    for (int64_t key = clv_attention_first_key(a, b, row); key < keys; key += KEYS) {
        pairs_find(&x, a, b, row, 1, key, keys);
        for (int64_t j = 0; j < x.n; j++)
            if (!x.hidden || x.from[j] < x.to[j])
                return NAN;
    }
    return sum;
}

static inline float log_sum(float max, float sum)
{
    return sum == 0.0f ? -INFINITY : max + logf(sum);
}

static inline float inverse(float sum)
{
    return sum == 0.0f ? 0.0f : 1.0f / sum;
}
