/* dtype.c - element types: names, sizes, conversion; names of wire dtypes and quantizations; shape limits. */
#include "cleave/dtype.h"

#include <string.h>

#include "base/error.h"
#include "tensor/float16.h"

#define NAME(code, name, bytes, safetensors) " " name
#define VALID                                CLV_DTYPE_TABLE(NAME)

typedef struct dtype_row {
    const char *name;
    const char *safetensors;
    size_t bytes;
} dtype_row;

static const dtype_row rows[CLV_DTYPE_COUNT] = {
#define ROW(code, name, bytes, safetensors) [code] = {name, safetensors, bytes},
    CLV_DTYPE_TABLE(ROW)
#undef ROW
};

static int valid(clv_dtype dtype)
{
    return (unsigned)dtype < CLV_DTYPE_COUNT;
}

const char *clv_dtype_name(clv_dtype dtype)
{
    return valid(dtype) ? rows[dtype].name : "unknown";
}

size_t clv_dtype_size(clv_dtype dtype)
{
    return valid(dtype) ? rows[dtype].bytes : 0;
}

clv_status clv_dtype_parse(clv_dtype *out, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && name, __func__, "out and name", err));
    for (int i = 0; i < CLV_DTYPE_COUNT; i++)
        if (strcmp(name, rows[i].name) == 0 || strcmp(name, rows[i].safetensors) == 0) {
            *out = (clv_dtype)i;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EDTYPE, "unknown dtype '%.40s'; valid:" VALID, name);
}

/* Parses a name of an enum. `what` and `valid` are for the message. */
static clv_status parse_name(int *out, const char *const *names, int n, const char *name, const char *call,
                             const char *what, const char *valid, clv_error *err)
{
    CLV_TRY(clv_require(out && name, call, "out and name", err));
    for (int i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = i;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EDTYPE, "unknown %s '%.40s'; valid:%s", what, name, valid);
}

#define ENUM_ROW(code, name)  [code] = name,
#define ENUM_NAME(code, name) " " name

static const char *const comm_names[] = {CLV_COMM_DTYPE_TABLE(ENUM_ROW)};
static const char *const quant_names[] = {CLV_QUANT_TABLE(ENUM_ROW)};

const char *clv_comm_dtype_name(clv_comm_dtype dtype)
{
    return (unsigned)dtype < CLV_COMM_DTYPE_COUNT ? comm_names[dtype] : "unknown";
}

clv_status clv_comm_dtype_parse(clv_comm_dtype *out, const char *name, clv_error *err)
{
    return parse_name((int *)out, comm_names, CLV_COMM_DTYPE_COUNT, name, __func__, "wire dtype",
                      CLV_COMM_DTYPE_TABLE(ENUM_NAME), err);
}

const char *clv_quant_name(clv_quant quant)
{
    return (unsigned)quant < CLV_QUANT_COUNT ? quant_names[quant] : "unknown";
}

clv_status clv_quant_parse(clv_quant *out, const char *name, clv_error *err)
{
    return parse_name((int *)out, quant_names, CLV_QUANT_COUNT, name, __func__, "quantization",
                      CLV_QUANT_TABLE(ENUM_NAME), err);
}

int clv_dtype_is_float(clv_dtype dtype)
{
    return dtype == CLV_F32 || dtype == CLV_BF16 || dtype == CLV_F64 || dtype == CLV_F16;
}

/* One pair of load and store per dtype; buffers may be unaligned (a safetensors file). The value types are the widest
 * of their kind, so that i64 to i64, and i64 to i32, lose nothing on the way. */
#define LOAD(suffix, type, value, expression)                                                                          \
    static value load_##suffix(const void *buffer, int64_t i)                                                          \
    {                                                                                                                  \
        type x;                                                                                                        \
        memcpy(&x, (const char *)buffer + i * (int64_t)sizeof x, sizeof x);                                            \
        return (value)(expression);                                                                                    \
    }
#define STORE(suffix, type, value, expression)                                                                         \
    static void store_##suffix(void *buffer, int64_t i, value v)                                                       \
    {                                                                                                                  \
        type x = (type)(expression);                                                                                   \
        memcpy((char *)buffer + i * (int64_t)sizeof x, &x, sizeof x);                                                  \
    }

/* Float to integer truncates; out of range saturates and NaN gives 0 (C leaves both undefined). */
static int64_t truncate(double v, double lo, double hi, int64_t least, int64_t most)
{
    if (isnan(v))
        return 0;
    return v <= lo ? least : v >= hi ? most : (int64_t)v;
}

LOAD(f32, float, double, x)
LOAD(bf16, uint16_t, double, clv_f32_of_bf16(x))
LOAD(f64, double, double, x)
LOAD(f16, uint16_t, double, clv_f32_of_f16(x))
LOAD(i32, int32_t, double, x)
LOAD(i64, int64_t, double, x)
LOAD(u8, uint8_t, double, x)
STORE(f32, float, double, v)
STORE(bf16, uint16_t, double, clv_bf16_of_f32(clv_f32_round_to_odd(v)))
STORE(f64, double, double, v)
STORE(f16, uint16_t, double, clv_f16_of_f32(clv_f32_round_to_odd(v)))
STORE(i32, int32_t, double, truncate(v, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX))
STORE(i64, int64_t, double, truncate(v, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX))
STORE(u8, uint8_t, double, truncate(v, 0, UINT8_MAX, 0, UINT8_MAX))
STORE(bool, uint8_t, double, v != 0)

LOAD(i32_exact, int32_t, int64_t, x)
LOAD(i64_exact, int64_t, int64_t, x)
LOAD(u8_exact, uint8_t, int64_t, x)
STORE(i32_exact, int32_t, int64_t, (uint32_t)v)
STORE(i64_exact, int64_t, int64_t, v)
STORE(u8_exact, uint8_t, int64_t, v)
STORE(bool_exact, uint8_t, int64_t, v != 0)

typedef struct dtype_access {
    double (*load)(const void *, int64_t);
    void (*store)(void *, int64_t, double);
    int64_t (*load_exact)(const void *, int64_t); /* integers only: NULL for floats */
    void (*store_exact)(void *, int64_t, int64_t);
} dtype_access;

static const dtype_access accesses[CLV_DTYPE_COUNT] = {
    [CLV_F32] = {load_f32, store_f32, NULL, NULL},
    [CLV_BF16] = {load_bf16, store_bf16, NULL, NULL},
    [CLV_F64] = {load_f64, store_f64, NULL, NULL},
    [CLV_F16] = {load_f16, store_f16, NULL, NULL},
    [CLV_I32] = {load_i32, store_i32, load_i32_exact, store_i32_exact},
    [CLV_I64] = {load_i64, store_i64, load_i64_exact, store_i64_exact},
    [CLV_U8] = {load_u8, store_u8, load_u8_exact, store_u8_exact},
    [CLV_BOOL] = {load_u8, store_bool, load_u8_exact, store_bool_exact},
};

double clv_dtype_load(clv_dtype dtype, const void *buffer, int64_t i)
{
    if (!valid(dtype) || !buffer)
        return 0;
    return accesses[dtype].load(buffer, i);
}

void clv_dtype_store(clv_dtype dtype, void *buffer, int64_t i, double value)
{
    if (!valid(dtype) || !buffer)
        return;
    accesses[dtype].store(buffer, i, value);
}

/* The pairs that training converts in every step, as loops that vectorize. */
static int convert_fast(clv_dtype to, void *out, clv_dtype from, const void *in, int64_t count)
{
    uintptr_t aligned = (uintptr_t)out % rows[to].bytes | (uintptr_t)in % rows[from].bytes;
    if (aligned != 0)
        return 0;
    if (to == CLV_BF16 && from == CLV_F32) {
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)out)[i] = clv_bf16_of_f32(((const float *)in)[i]);
        return 1;
    }
    if (to == CLV_F32 && from == CLV_BF16) {
        for (int64_t i = 0; i < count; i++)
            ((float *)out)[i] = clv_f32_of_bf16(((const uint16_t *)in)[i]);
        return 1;
    }
    return 0;
}

void clv_dtype_convert(clv_dtype to, void *out, clv_dtype from, const void *in, int64_t count)
{
    if (count <= 0 || !out || !in || !valid(to) || !valid(from))
        return;
    const dtype_access *a = &accesses[from], *b = &accesses[to];
    if (to == from)
        memcpy(out, in, (size_t)count * rows[to].bytes);
    else if (a->load_exact != NULL && b->store_exact != NULL)
        for (int64_t i = 0; i < count; i++)
            b->store_exact(out, i, a->load_exact(in, i));
    else if (!convert_fast(to, out, from, in, count))
        for (int64_t i = 0; i < count; i++)
            b->store(out, i, a->load(in, i));
}

clv_status clv_shape_check(const int64_t *shape, int rank, clv_dtype dtype, clv_error *err)
{
    CLV_TRY(clv_require(shape || rank <= 0, __func__, "a shape", err));
    if (!valid(dtype))
        return clv_fail(err, CLV_EDTYPE, "there is no dtype %d; valid:" VALID, (int)dtype);
    int64_t bytes = (int64_t)clv_dtype_size(dtype);
    for (int d = 0; d < rank; d++) {
        if (shape[d] < 0)
            return clv_fail(err, CLV_ESHAPE, "dimension %d has size %lld; sizes are 0 or more", d, (long long)shape[d]);
        if (__builtin_mul_overflow(bytes, shape[d] ? shape[d] : 1, &bytes) || bytes > CLV_MAX_TENSOR_BYTES)
            return clv_fail(err, CLV_ELIMIT, "a tensor of more than 2^60 bytes (a size of 0 counts as 1)");
    }
    return CLV_OK;
}

/* Whether any element's exponent is all ones, which says infinite or NaN; a loop that vectorizes. */
#define ANY_NONFINITE(dtype, type, exponent)                                                                           \
    static int any_nonfinite_##dtype(const void *buffer, int64_t count)                                                \
    {                                                                                                                  \
        type any = 0;                                                                                                  \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            type x;                                                                                                    \
            memcpy(&x, (const char *)buffer + i * (int64_t)sizeof x, sizeof x);                                        \
            any |= (type)((x & (exponent)) == (exponent));                                                             \
        }                                                                                                              \
        return any != 0;                                                                                               \
    }

ANY_NONFINITE(f32, uint32_t, UINT32_C(0x7f800000))
ANY_NONFINITE(bf16, uint16_t, 0x7f80)
ANY_NONFINITE(f64, uint64_t, UINT64_C(0x7ff0000000000000))
ANY_NONFINITE(f16, uint16_t, 0x7c00)

int64_t clv_dtype_first_nonfinite(clv_dtype dtype, const void *buffer, int64_t count)
{
    if (!valid(dtype) || !buffer)
        return -1;
    enum { CHUNK = 1024 };
    static int (*const any[CLV_DTYPE_COUNT])(const void *, int64_t) = {[CLV_F32] = any_nonfinite_f32,
                                                                       [CLV_BF16] = any_nonfinite_bf16,
                                                                       [CLV_F64] = any_nonfinite_f64,
                                                                       [CLV_F16] = any_nonfinite_f16};
    if (!any[dtype])
        return -1;
    for (int64_t at = 0; at < count; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        if (!any[dtype]((const char *)buffer + at * (int64_t)rows[dtype].bytes, n))
            continue;
        while (isfinite(clv_dtype_load(dtype, buffer, at)))
            at++;
        return at;
    }
    return -1;
}
