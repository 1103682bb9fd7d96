/* box_reduce.c - elementwise reduction: sum, max, min or product of several peers' buffers, in rank order, bf16/f16
 * in f32.
 *
 * A run is done in chunks that stay in the first-level cache: the chunks of the first two peers are combined into an
 * accumulator, every further peer's into it, and the result is stored. So memory is read and written once,
 * each element sees its peers strictly in order, and out may be one of the inputs.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "tensor/box_copy.h"
#include "tensor/float16.h"

enum { CHUNK = 1024 };

/* One combining loop per accumulator type and reduction; written so that it vectorises. */
#define SUM(a, b)         ((a) + (b))
#define FLOAT_MAX(a, b)   ((a) > (b) || (a) != (a) ? (a) : (b)) /* NaN wins */
#define INT_MAXIMUM(a, b) ((a) > (b) ? (a) : (b))
#define FLOAT_MIN(a, b)   ((a) < (b) || (a) != (a) ? (a) : (b))
#define INT_MINIMUM(a, b) ((a) < (b) ? (a) : (b))
#define PRODUCT(a, b)     ((a) * (b))
#define OR(a, b)          ((a) | (b))
#define AND(a, b)         ((a) & (b))
#define SAME(x)           (x)

/* Defines reduce_<name>: elements of type `stored`, combined as `held`. */
#define REDUCE(name, stored, held, load, combine, store)                                                               \
    static void reduce_##name(void *out, const void *const *in, int n, int64_t at, int64_t count)                      \
    {                                                                                                                  \
        held sum[CHUNK];                                                                                               \
        for (int64_t start = 0; start < count; start += CHUNK) {                                                       \
            int64_t left = count - start < CHUNK ? count - start : CHUNK;                                              \
            const stored *first = (const stored *)in[0] + at + start;                                                  \
            const stored *second = (const stored *)in[n > 1] + at + start;                                             \
            if (n == 1)                                                                                                \
                for (int64_t i = 0; i < left; i++)                                                                     \
                    sum[i] = load(first[i]);                                                                           \
            else                                                                                                       \
                for (int64_t i = 0; i < left; i++) {                                                                   \
                    held x = load(first[i]), y = load(second[i]);                                                      \
                    sum[i] = (held)combine(x, y);                                                                      \
                }                                                                                                      \
            for (int p = 2; p < n; p++) {                                                                              \
                const stored *peer = (const stored *)in[p] + at + start;                                               \
                for (int64_t i = 0; i < left; i++) {                                                                   \
                    held value = load(peer[i]);                                                                        \
                    sum[i] = (held)combine(sum[i], value);                                                             \
                }                                                                                                      \
            }                                                                                                          \
            stored *result = (stored *)out + start;                                                                    \
            for (int64_t i = 0; i < left; i++)                                                                         \
                result[i] = store(sum[i]);                                                                             \
        }                                                                                                              \
    }

REDUCE(f32_sum, float, float, SAME, SUM, SAME)
REDUCE(f32_max, float, float, SAME, FLOAT_MAX, SAME)
REDUCE(bf16_sum, uint16_t, float, clv_f32_of_bf16, SUM, clv_bf16_of_f32)
REDUCE(bf16_max, uint16_t, float, clv_f32_of_bf16, FLOAT_MAX, clv_bf16_of_f32)
REDUCE(f64_sum, double, double, SAME, SUM, SAME)
REDUCE(f64_max, double, double, SAME, FLOAT_MAX, SAME)
REDUCE(f16_sum, uint16_t, float, clv_f32_of_f16, SUM, clv_f16_of_f32)
REDUCE(f16_max, uint16_t, float, clv_f32_of_f16, FLOAT_MAX, clv_f16_of_f32)
REDUCE(i32_sum, uint32_t, uint32_t, SAME, SUM, SAME) /* unsigned: wraps */
REDUCE(i32_max, int32_t, int32_t, SAME, INT_MAXIMUM, SAME)
REDUCE(i64_sum, uint64_t, uint64_t, SAME, SUM, SAME)
REDUCE(i64_max, int64_t, int64_t, SAME, INT_MAXIMUM, SAME)
REDUCE(u8_sum, uint8_t, uint8_t, SAME, SUM, SAME)
REDUCE(u8_max, uint8_t, uint8_t, SAME, INT_MAXIMUM, SAME)
REDUCE(f32_min, float, float, SAME, FLOAT_MIN, SAME)
REDUCE(f32_product, float, float, SAME, PRODUCT, SAME)
REDUCE(bf16_min, uint16_t, float, clv_f32_of_bf16, FLOAT_MIN, clv_bf16_of_f32)
REDUCE(bf16_product, uint16_t, float, clv_f32_of_bf16, PRODUCT, clv_bf16_of_f32)
REDUCE(f64_min, double, double, SAME, FLOAT_MIN, SAME)
REDUCE(f64_product, double, double, SAME, PRODUCT, SAME)
REDUCE(f16_min, uint16_t, float, clv_f32_of_f16, FLOAT_MIN, clv_f16_of_f32)
REDUCE(f16_product, uint16_t, float, clv_f32_of_f16, PRODUCT, clv_f16_of_f32)
REDUCE(i32_min, int32_t, int32_t, SAME, INT_MINIMUM, SAME)
REDUCE(i32_product, uint32_t, uint32_t, SAME, PRODUCT, SAME)
REDUCE(i64_min, int64_t, int64_t, SAME, INT_MINIMUM, SAME)
REDUCE(i64_product, uint64_t, uint64_t, SAME, PRODUCT, SAME)
REDUCE(u8_min, uint8_t, uint8_t, SAME, INT_MINIMUM, SAME)
REDUCE(u8_product, uint8_t, uint8_t, SAME, PRODUCT, SAME)
REDUCE(bool_or, uint8_t, uint8_t, SAME, OR, SAME)
REDUCE(bool_and, uint8_t, uint8_t, SAME, AND, SAME)

typedef void (*reduce_fn)(void *out, const void *const *in, int n, int64_t at, int64_t count);

static const reduce_fn reductions[][CLV_DTYPE_COUNT] = {
    [CLV_REDUCTION_SUM] = {[CLV_F32] = reduce_f32_sum,
                           [CLV_BF16] = reduce_bf16_sum,
                           [CLV_F64] = reduce_f64_sum,
                           [CLV_F16] = reduce_f16_sum,
                           [CLV_I32] = reduce_i32_sum,
                           [CLV_I64] = reduce_i64_sum,
                           [CLV_U8] = reduce_u8_sum,
                           [CLV_BOOL] = reduce_bool_or},
    [CLV_REDUCTION_MAX] = {[CLV_F32] = reduce_f32_max,
                           [CLV_BF16] = reduce_bf16_max,
                           [CLV_F64] = reduce_f64_max,
                           [CLV_F16] = reduce_f16_max,
                           [CLV_I32] = reduce_i32_max,
                           [CLV_I64] = reduce_i64_max,
                           [CLV_U8] = reduce_u8_max,
                           [CLV_BOOL] = reduce_bool_or},
    [CLV_REDUCTION_MIN] = {[CLV_F32] = reduce_f32_min,
                           [CLV_BF16] = reduce_bf16_min,
                           [CLV_F64] = reduce_f64_min,
                           [CLV_F16] = reduce_f16_min,
                           [CLV_I32] = reduce_i32_min,
                           [CLV_I64] = reduce_i64_min,
                           [CLV_U8] = reduce_u8_min,
                           [CLV_BOOL] = reduce_bool_and},
    [CLV_REDUCTION_PRODUCT] = {[CLV_F32] = reduce_f32_product,
                               [CLV_BF16] = reduce_bf16_product,
                               [CLV_F64] = reduce_f64_product,
                               [CLV_F16] = reduce_f16_product,
                               [CLV_I32] = reduce_i32_product,
                               [CLV_I64] = reduce_i64_product,
                               [CLV_U8] = reduce_u8_product,
                               [CLV_BOOL] = reduce_bool_and},
};

void clv_values_reduce(void *out, const void *const *in, int n, int64_t at, int64_t count, clv_dtype dtype,
                       clv_reduction reduction)
{
    reductions[reduction][dtype](out, in, n, at, count);
}

void clv_fill_reduction_identity(void *out, int64_t count, clv_dtype dtype, clv_reduction reduction)
{
    size_t size = clv_dtype_size(dtype);
    if (count <= 0)
        return;
    memset(out, 0, (size_t)count * size);
    if (reduction != CLV_REDUCTION_MAX || dtype == CLV_U8 || dtype == CLV_BOOL)
        return;
    clv_dtype_store(dtype, out, 0, (double)-INFINITY); /* integers saturate at their least */
    for (int64_t done = 1, part; done < count; done += part) {
        part = done < count - done ? done : count - done;
        memcpy((char *)out + (size_t)done * size, out, (size_t)part * size);
    }
}
