/* rope_kernel.c - rotary position embedding kernel. */
#include "kernels/cpu/rope_kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/f32_blocks.h"

static double position_of(const clv_rope_args *rope, int64_t row)
{
    return (double)(rope->position_offset + (rope->offsets ? rope->offsets[row / rope->seq] : 0) + row % rope->seq);
}

/* The reference: one head, in f64. from, to: index of its first element. */
static void rotate_head_reference(const clv_rope_args *rope, void *out, int64_t to, const void *x, int64_t from,
                                  double position)
{
    int64_t half = rope->rotary / 2;
    for (int64_t i = 0; i < half; i++) {
        int64_t first = rope->interleaved ? 2 * i : i, second = rope->interleaved ? 2 * i + 1 : i + half;
        double angle = (rope->inverse ? -position : position) * rope->inv_freq[i];
        double a = clv_dtype_load(rope->dtype, x, from + first), b = clv_dtype_load(rope->dtype, x, from + second);
        clv_dtype_store(rope->dtype, out, to + first, a * cos(angle) - b * sin(angle));
        clv_dtype_store(rope->dtype, out, to + second, b * cos(angle) + a * sin(angle));
    }
}

static void rotate_head(const clv_rope_args *rope, void *out, int64_t to, const void *x, int64_t from, const float *cos,
                        const float *sin)
{
    float block[CLV_ROPE_MAX_ROTARY];
    const clv_elementwise_loops *math = clv_simd_elementwise();
    const clv_optimizer_dropout_rope_loops *updates = clv_simd_optimizer_dropout_rope();
    const float *x32 = clv_block_load(math, rope->dtype, x, from, rope->rotary, block);
    float *out32 = clv_block_out(rope->dtype, out, to, block);
    (rope->interleaved ? updates->rotate_pairs : updates->rotate_halves)(out32, x32, cos, sin, rope->rotary / 2);
    clv_block_store(math, rope->dtype, out, to, rope->rotary, out32);
}

static void copy_rest(const clv_rope_args *rope, void *out, int64_t to, const void *x, int64_t from)
{
    size_t size = clv_dtype_size(rope->dtype);
    memmove((char *)out + (size_t)(to + rope->rotary) * size, (const char *)x + (size_t)(from + rope->rotary) * size,
            (size_t)(rope->head_dim - rope->rotary) * size);
}

/* All heads of one row. */
static void rotate_row(const clv_rope_args *rope, void *out, int64_t to, const void *x, int64_t from, double position)
{
    float cos[CLV_ROPE_MAX_ROTARY / 2], sin[CLV_ROPE_MAX_ROTARY / 2];
    bool fast = clv_computes_in_f32(rope->dtype);

    if (fast)
        clv_simd_optimizer_dropout_rope()->angles(cos, sin, rope->inv_freq, rope->inverse ? -position : position,
                                                  rope->rotary / 2);
    for (int64_t h = 0; h < rope->heads; h++, to += rope->head_dim, from += rope->head_dim) {
        if (fast)
            rotate_head(rope, out, to, x, from, cos, sin);
        else
            rotate_head_reference(rope, out, to, x, from, position);
        if (rope->head_dim > rope->rotary)
            copy_rest(rope, out, to, x, from);
    }
}

void clv_rope_rotate(const clv_rope_args *rope, void *out, const void *x)
{
    int64_t dense = rope->heads * rope->head_dim, rows = rope->batch * rope->seq;
    int64_t x_stride = rope->x_stride != 0 ? rope->x_stride : dense;
    int64_t out_stride = rope->out_stride != 0 ? rope->out_stride : dense;

    assert(rope->rotary % 2 == 0 && rope->rotary <= rope->head_dim && rope->rotary <= CLV_ROPE_MAX_ROTARY);
    CLV_PARALLEL_FOR_EACH(row, rows, rows * dense,
                          rotate_row(rope, out, row * out_stride, x, row * x_stride, position_of(rope, row)));
}

/* ---- by tables ---- */

/* Where the elements of pair i are in x, and in tables. */
typedef struct pair_places {
    int64_t a, b, table_a, table_b;
} pair_places;

static inline pair_places places_of(const clv_rotate_args *rotate, int64_t pairs, int64_t i)
{
    const int64_t a = rotate->interleaved ? 2 * i : i, b = rotate->interleaved ? 2 * i + 1 : i + pairs;
    return (pair_places){a, b, rotate->of_pairs ? i : a, rotate->of_pairs ? i : b};
}

#define ROTATE_PAIRS(type)                                                                                             \
    static void rotate_pairs_##type(const clv_rotate_args *rotate, type *out, const type *x, const type *cos,          \
                                    const type *sin, int64_t pairs)                                                    \
    {                                                                                                                  \
        for (int64_t i = 0; i < pairs; i++) {                                                                          \
            const pair_places at = places_of(rotate, pairs, i);                                                        \
            const type a = x[at.a], b = x[at.b];                                                                       \
            const type to_a = rotate->transposed ? sin[at.table_b] : -sin[at.table_a],                                 \
                       to_b = rotate->transposed ? -sin[at.table_a] : sin[at.table_b];                                 \
            out[at.a] = a * cos[at.table_a] + b * to_a;                                                                \
            out[at.b] = b * cos[at.table_b] + a * to_b;                                                                \
        }                                                                                                              \
    }

ROTATE_PAIRS(double)
ROTATE_PAIRS(float)

/* The row of tables that row `row` of x takes. */
static int64_t table_row(const clv_rotate_args *rotate, int64_t row)
{
    int64_t at = 0, stride = 1;
    for (int d = rotate->rank - 2; d >= 0; d--) {
        at += (rotate->table_shape[d] == 1 ? 0 : row % rotate->shape[d]) * stride;
        row /= rotate->shape[d];
        stride *= rotate->table_shape[d];
    }
    return at;
}

static void rotate_row_by(const clv_rotate_args *rotate, void *out, const void *x, const void *cos, const void *sin,
                          int64_t row)
{
    const int64_t width = rotate->shape[rotate->rank - 1], from = row * width,
                  at = table_row(rotate, row) * rotate->table_shape[rotate->rank - 1];
    if (rotate->dtype == CLV_F64) {
        rotate_pairs_double(rotate, (double *)out + from, (const double *)x + from, (const double *)cos + at,
                            (const double *)sin + at, width / 2);
        return;
    }
    float block[CLV_ROPE_MAX_ROTARY];
    const clv_elementwise_loops *math = clv_simd_elementwise();
    const float *x32 = clv_block_load(math, rotate->dtype, x, from, width, block);
    float *out32 = clv_block_out(rotate->dtype, out, from, block);
    const float *cos32 = (const float *)cos + at, *sin32 = (const float *)sin + at;
    const clv_optimizer_dropout_rope_loops *updates = clv_simd_optimizer_dropout_rope();
    if (rotate->of_pairs && !rotate->transposed)
        (rotate->interleaved ? updates->rotate_pairs : updates->rotate_halves)(out32, x32, cos32, sin32, width / 2);
    else
        rotate_pairs_float(rotate, out32, x32, cos32, sin32, width / 2);
    clv_block_store(math, rotate->dtype, out, from, width, out32);
}

void clv_rope_rotate_by(const clv_rotate_args *rotate, void *out, const void *x, const void *cos, const void *sin)
{
    int64_t rows = 1;
    const int64_t width = rotate->shape[rotate->rank - 1];
    for (int d = 0; d < rotate->rank - 1; d++)
        rows *= rotate->shape[d];
    assert(width % 2 == 0 && width <= CLV_ROPE_MAX_ROTARY);
    CLV_PARALLEL_FOR_EACH(row, rows, rows * width, rotate_row_by(rotate, out, x, cos, sin, row));
}
