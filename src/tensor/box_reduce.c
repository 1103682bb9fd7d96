/* box_reduce.c - elementwise reduction: sum, max, min or product of several peers' buffers, in rank order, bf16/f16
 * in f32.
 *
 * A run is reduced in chunks that fit the first-level cache: the chunks of the first two peers are combined into an
 * accumulator, then those of each further peer, and the result is stored. So memory is read and written once, each
 * element is combined strictly in the order of the peers, and out may be one of the inputs.
 */
#include <math.h>
#include <string.h>

#include "tensor/box_copy.h"
#include "tensor/float16.h"

enum { CHUNK = 1024 };

/* One combining loop per accumulator type and reduction; written so that it vectorizes. */
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

/* Integers are added and multiplied as unsigned, so that they wrap. */
#define REDUCE_FLOATS(name, stored, held, load, store)                                                                 \
    REDUCE(name##_sum, stored, held, load, SUM, store)                                                                 \
    REDUCE(name##_max, stored, held, load, FLOAT_MAX, store)                                                           \
    REDUCE(name##_min, stored, held, load, FLOAT_MIN, store)                                                           \
    REDUCE(name##_product, stored, held, load, PRODUCT, store)
#define REDUCE_INTEGERS(name, type, wrapping)                                                                          \
    REDUCE(name##_sum, wrapping, wrapping, SAME, SUM, SAME)                                                            \
    REDUCE(name##_max, type, type, SAME, INT_MAXIMUM, SAME)                                                            \
    REDUCE(name##_min, type, type, SAME, INT_MINIMUM, SAME)                                                            \
    REDUCE(name##_product, wrapping, wrapping, SAME, PRODUCT, SAME)

REDUCE_FLOATS(f32, float, float, SAME, SAME)
REDUCE_FLOATS(f64, double, double, SAME, SAME)
REDUCE_FLOATS(bf16, uint16_t, float, clv_f32_of_bf16, clv_bf16_of_f32)
REDUCE_FLOATS(f16, uint16_t, float, clv_f32_of_f16, clv_f16_of_f32)
REDUCE_INTEGERS(i32, int32_t, uint32_t)
REDUCE_INTEGERS(i64, int64_t, uint64_t)
REDUCE_INTEGERS(u8, uint8_t, uint8_t)
REDUCE(bool_or, uint8_t, uint8_t, SAME, OR, SAME)
REDUCE(bool_and, uint8_t, uint8_t, SAME, AND, SAME)

typedef void (*reduce_fn)(void *out, const void *const *in, int n, int64_t at, int64_t count);

#define BY_DTYPE(kind, boolean)                                                                                        \
    {                                                                                                                  \
        [CLV_F32] = reduce_f32_##kind, [CLV_BF16] = reduce_bf16_##kind, [CLV_F64] = reduce_f64_##kind,                 \
        [CLV_F16] = reduce_f16_##kind, [CLV_I32] = reduce_i32_##kind, [CLV_I64] = reduce_i64_##kind,                   \
        [CLV_U8] = reduce_u8_##kind, [CLV_BOOL] = reduce_bool_##boolean                                                \
    }
static const reduce_fn reductions[][CLV_DTYPE_COUNT] = {[CLV_REDUCTION_SUM] = BY_DTYPE(sum, or),
                                                        [CLV_REDUCTION_MAX] = BY_DTYPE(max, or),
                                                        [CLV_REDUCTION_MIN] = BY_DTYPE(min, and),
                                                        [CLV_REDUCTION_PRODUCT] = BY_DTYPE(product, and)};

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
    clv_dtype_store(dtype, out, 0, (double)-INFINITY); /* integers saturate at their minimum */
    for (int64_t done = 1, part; done < count; done += part) {
        part = done < count - done ? done : count - done;
        memcpy((char *)out + (size_t)done * size, out, (size_t)part * size);
    }
}
