/* elementwise_kernel.c - unary, binary, where and cast kernels: one loop over broadcast blocks, and an f64 reference.
 */
#include "kernels/cpu/elementwise_kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "cleave/layout.h"
#include "kernels/cpu/f32_blocks.h"

enum { MAX_OPERANDS = 3 };

/* ---- the reference: each op as one readable formula in f64 ---- */

typedef double reference_fn(double a, double b, double c, double alpha);

#define REFERENCE(name, value)                                                                                         \
    static double reference_##name(double a, double b, double c, double alpha)                                         \
    {                                                                                                                  \
        (void)a, (void)b, (void)c, (void)alpha;                                                                        \
        return (value);                                                                                                \
    }

static const double sqrt_half = 0.70710678118654752440, sqrt_2_over_pi = 0.79788456080286535588,
                    inv_sqrt_2pi = 0.39894228040143267794, gelu_cubic = 0.044715;

static double gelu_tanh_argument(double x)
{
    return sqrt_2_over_pi * (x + gelu_cubic * x * x * x);
}

static double gelu_tanh_slope(double x)
{
    double t = tanh(gelu_tanh_argument(x));
    if (fabs(x) > 32) /* 0 or 1, where the product below is 0 * infinity */
        return x > 0 ? 1 : 0;
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt_2_over_pi * (1 + 3 * gelu_cubic * x * x);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

REFERENCE(exp, exp(a))
REFERENCE(log, log(a))
REFERENCE(tanh, tanh(a))
REFERENCE(sigmoid, sigmoid(a))
REFERENCE(gelu_erf, 0.5 * a * (1 + erf(a * sqrt_half)))
REFERENCE(gelu_tanh, 0.5 * a * (1 + tanh(gelu_tanh_argument(a))))
REFERENCE(silu, a *sigmoid(a))
REFERENCE(relu, a < 0 ? 0 : a)
REFERENCE(rsqrt, 1 / sqrt(a))
REFERENCE(neg, -a)
REFERENCE(scale, a *alpha)
REFERENCE(copy, a)
REFERENCE(sqrt, sqrt(a))

/* a: d_out, b: what the op saved */
REFERENCE(exp_backward, a *b)
REFERENCE(log_backward, a / b)
REFERENCE(tanh_backward, a *(1 - b * b))
REFERENCE(sigmoid_backward, a *b *(1 - b))
REFERENCE(gelu_erf_backward, a *(0.5 * (1 + erf(b * sqrt_half)) + b * inv_sqrt_2pi * exp(-0.5 * b * b)))
REFERENCE(gelu_tanh_backward, a *gelu_tanh_slope(b))
REFERENCE(silu_backward, a *sigmoid(b) * (1 + b * (1 - sigmoid(b))))
REFERENCE(relu_backward, b <= 0 ? 0 : a)
REFERENCE(rsqrt_backward, -0.5 * a * fabs(b) * b * b)
REFERENCE(neg_backward, -a)
REFERENCE(scale_backward, a *alpha)
REFERENCE(copy_backward, a)
REFERENCE(sqrt_backward, a *(0.5 / b))

REFERENCE(add, a + b)
REFERENCE(sub, a - b)
REFERENCE(mul, a *b)
REFERENCE(div, a / b)
REFERENCE(max, a > b || isnan(a) ? a : b)
REFERENCE(min, a < b || isnan(a) ? a : b)

REFERENCE(where, a != 0 ? b : c)
REFERENCE(max_backward, b < c ? 0 : b == c ? 0.5 * a : a)
REFERENCE(min_backward, b > c ? 0 : b == c ? 0.5 * a : a)

/* ---- whole numbers: exact, and what does not fit wraps around (NumPy's and XLA's) ---- */

typedef int64_t whole_fn(int64_t a, int64_t b, int64_t c);

#define WHOLE(name, value)                                                                                             \
    static int64_t whole_##name(int64_t a, int64_t b, int64_t c)                                                       \
    {                                                                                                                  \
        (void)a, (void)b, (void)c;                                                                                     \
        return (int64_t)(value);                                                                                       \
    }

WHOLE(add, (uint64_t)a + (uint64_t)b)
WHOLE(sub, (uint64_t)a - (uint64_t)b)
WHOLE(mul, (uint64_t)a *(uint64_t)b)
WHOLE(max, a > b ? a : b)
WHOLE(min, a < b ? a : b)
WHOLE(where, a != 0 ? b : c)

/* A quotient is the one in f64, which truncates, and saturates where there is none. */
static whole_fn *const whole_binary[CLV_BINARY_COUNT] = {
    [CLV_BINARY_ADD] = whole_add, [CLV_BINARY_SUB] = whole_sub, [CLV_BINARY_MUL] = whole_mul,
    [CLV_BINARY_MAX] = whole_max, [CLV_BINARY_MIN] = whole_min,
};

/* ---- tables ---- */

typedef struct unary_row {
    clv_unary_saved saved;
    reference_fn *forward, *backward;
} unary_row;

static const unary_row unary_table[CLV_UNARY_COUNT] = {
#define UNARY_ROW(code, name, saved) [code] = {saved, reference_##name, reference_##name##_backward},
    CLV_UNARY_TABLE(UNARY_ROW)};

static reference_fn *const binary_table[CLV_BINARY_COUNT] = {
#define BINARY_ROW(code, name) [code] = reference_##name,
    CLV_BINARY_TABLE(BINARY_ROW)};

clv_unary_saved clv_unary_saved_for_backward(clv_unary_op op)
{
    return unary_table[op].saved;
}

/* ---- the loop ---- */

typedef struct job {
    clv_dtype dtype; /* of out and of all operands but bool ones */
    void *out;
    int n_operands;
    const void *operand[MAX_OPERANDS];
    clv_dtype operand_dtype[MAX_OPERANDS];
    int rank; /* after merging dimensions, >= 1 */
    int64_t shape[CLV_MAX_RANK];
    int64_t stride[MAX_OPERANDS][CLV_MAX_RANK]; /* in elements; 0 where broadcast; innermost 0 or 1 */
    double alpha;
    clv_simd_loop *span;
    reference_fn *reference;
    whole_fn *whole; /* of dtypes that are no floats; NULL: the reference */
} job;

static void add_operand(job *j, clv_dtype dtype, const void *data)
{
    j->operand_dtype[j->n_operands] = dtype;
    j->operand[j->n_operands++] = data;
}

/* Strides of the operands over the result's shape, with neighbouring dimensions that all operands walk alike merged. */
static void merge_dims(job *j, int rank, const int64_t *shape, const int64_t *const operand_shape[])
{
    int64_t step[MAX_OPERANDS], strides[MAX_OPERANDS][CLV_MAX_RANK];
    for (int k = 0; k < j->n_operands; k++) {
        step[k] = 1;
        for (int d = rank - 1; d >= 0; d--) {
            assert(operand_shape[k][d] == shape[d] || operand_shape[k][d] == 1);
            strides[k][d] = operand_shape[k][d] == 1 ? 0 : step[k];
            step[k] *= operand_shape[k][d];
        }
    }
    j->rank = 0;
    for (int d = 0; d < rank; d++) {
        int last = j->rank - 1;
        bool merges = last >= 0;
        if (shape[d] == 1)
            continue;
        for (int k = 0; merges && k < j->n_operands; k++)
            merges = j->stride[k][last] == strides[k][d] * shape[d];
        int to = merges ? last : j->rank++;
        j->shape[to] = merges ? j->shape[to] * shape[d] : shape[d];
        for (int k = 0; k < j->n_operands; k++)
            j->stride[k][to] = strides[k][d];
    }
    if (j->rank == 0) {
        j->rank = 1;
        j->shape[0] = 1;
        for (int k = 0; k < j->n_operands; k++)
            j->stride[k][0] = 0;
    }
}

/* Where each operand starts for the given index over all dimensions but the innermost. */
static void row_starts(const job *j, int64_t row, int64_t *start)
{
    for (int k = 0; k < j->n_operands; k++)
        start[k] = 0;
    for (int d = j->rank - 2; d >= 0; d--) {
        int64_t index = row % j->shape[d];
        row /= j->shape[d];
        for (int k = 0; k < j->n_operands; k++)
            start[k] += index * j->stride[k][d];
    }
}

static const float *load_operand(const clv_elementwise_loops *math, const job *j, int k, int64_t i, int64_t n,
                                 float *scratch)
{
    bool scalar = j->stride[k][j->rank - 1] == 0;
    int64_t count = scalar ? 1 : n;
    const float *block = scratch;
    if (j->operand_dtype[k] == CLV_BOOL)
        for (int64_t e = 0; e < count; e++)
            scratch[e] = ((const uint8_t *)j->operand[k])[i + e] != 0 ? 1.0f : 0.0f;
    else
        block = clv_block_load(math, j->operand_dtype[k], j->operand[k], i, count, scratch);
    if (!scalar)
        return block;
    float value = block[0];
    for (int64_t e = 0; e < n; e++)
        scratch[e] = value;
    return scratch;
}

/* Elements [from, to) of one row. */
static void run_row(const clv_elementwise_loops *math, const job *j, int64_t row, int64_t from, int64_t to)
{
    clv_scratch scratch[MAX_OPERANDS + 1];
    const float *block[MAX_OPERANDS] = {0};
    int64_t start[MAX_OPERANDS], inner = j->shape[j->rank - 1];

    row_starts(j, row, start);
    for (int64_t i = from; i < to; i += CLV_BLOCK) {
        int64_t n = clv_min_i64(CLV_BLOCK, to - i);
        for (int k = 0; k < j->n_operands; k++)
            block[k] = load_operand(math, j, k, start[k] + i * j->stride[k][j->rank - 1], n, scratch[k]);
        float *out = clv_block_out(j->dtype, j->out, row * inner + i, scratch[MAX_OPERANDS]);
        j->span(out, block[0], block[1], block[2], (float)j->alpha, n);
        clv_block_store(math, j->dtype, j->out, row * inner + i, n, out);
    }
}

enum { PART = 16 * CLV_BLOCK }; /* elements a thread takes at a time */

static void run_part(const job *j, int64_t rows, int64_t rows_at_once, int64_t pieces, int64_t part)
{
    const clv_elementwise_loops *math = clv_simd_elementwise();
    int64_t inner = j->shape[j->rank - 1], first = part / pieces * rows_at_once, from = part % pieces * PART;
    for (int64_t row = first; row < clv_min_i64(rows, first + rows_at_once); row++)
        run_row(math, j, row, from, clv_min_i64(inner, from + PART));
}

static void run_blocks(const job *j, int64_t rows)
{
    int64_t inner = j->shape[j->rank - 1], pieces = clv_ceil_div(inner, PART);
    int64_t rows_at_once = clv_max_i64(1, PART / inner), groups = clv_ceil_div(rows, rows_at_once);

    CLV_PARALLEL_FOR_EACH(part, groups * pieces, rows * inner, run_part(j, rows, rows_at_once, pieces, part));
}

static void run_reference(const job *j, int64_t rows)
{
    int64_t inner = j->shape[j->rank - 1];

    CLV_PARALLEL_FOR(rows * inner)
    for (int64_t row = 0; row < rows; row++) {
        int64_t start[MAX_OPERANDS];
        row_starts(j, row, start);
        for (int64_t i = 0; i < inner; i++) {
            double value[MAX_OPERANDS] = {0};
            for (int k = 0; k < j->n_operands; k++)
                value[k] = clv_dtype_load(j->operand_dtype[k], j->operand[k], start[k] + i * j->stride[k][j->rank - 1]);
            clv_dtype_store(j->dtype, j->out, row * inner + i, j->reference(value[0], value[1], value[2], j->alpha));
        }
    }
}

/* Elements [i, i + n) of an operand, or n times its one. */
static void load_whole(const job *j, int k, int64_t i, int64_t n, int64_t *block)
{
    bool scalar = j->stride[k][j->rank - 1] == 0;
    const char *from = (const char *)j->operand[k] + i * (int64_t)clv_dtype_size(j->operand_dtype[k]);

    clv_dtype_convert(CLV_I64, block, j->operand_dtype[k], from, scalar ? 1 : n);
    for (int64_t e = 1; scalar && e < n; e++)
        block[e] = block[0];
}

static void run_whole(const job *j, int64_t rows)
{
    int64_t inner = j->shape[j->rank - 1], pieces = clv_ceil_div(inner, CLV_BLOCK);

    CLV_PARALLEL_FOR(rows * inner)
    for (int64_t part = 0; part < rows * pieces; part++) {
        int64_t block[MAX_OPERANDS][CLV_BLOCK], start[MAX_OPERANDS];
        int64_t row = part / pieces, i = part % pieces * CLV_BLOCK, n = clv_min_i64(CLV_BLOCK, inner - i);
        row_starts(j, row, start);
        for (int k = 0; k < j->n_operands; k++)
            load_whole(j, k, start[k] + i * j->stride[k][j->rank - 1], n, block[k]);
        for (int64_t e = 0; e < n; e++)
            block[0][e] = j->whole(block[0][e], block[1][e], j->n_operands > 2 ? block[2][e] : 0);
        char *to = (char *)j->out + (row * inner + i) * (int64_t)clv_dtype_size(j->dtype);
        clv_dtype_convert(j->dtype, to, CLV_I64, block[0], n);
    }
}

static void run(const job *j)
{
    int64_t rows = 1;
    for (int d = 0; d < j->rank - 1; d++)
        rows *= j->shape[d];
    if (rows == 0 || j->shape[j->rank - 1] == 0)
        return;
    bool whole = j->whole && !clv_dtype_is_float(j->dtype);
    (clv_computes_in_f32(j->dtype) ? run_blocks : whole ? run_whole : run_reference)(j, rows);
}

/* ---- the kernels ---- */

void clv_unary_forward(clv_unary_op op, double alpha, clv_dtype dtype, void *out, const void *x, int64_t n)
{
    job j = {.dtype = dtype, .out = out, .alpha = alpha};
    const int64_t *shapes[] = {&n};
    j.span = clv_simd_elementwise()->unary[op];
    j.reference = unary_table[op].forward;
    add_operand(&j, dtype, x);
    merge_dims(&j, 1, &n, shapes);
    run(&j);
}

void clv_unary_backward(clv_unary_op op, double alpha, clv_dtype dtype, void *d_in, const void *d_out,
                        const void *saved, int64_t n)
{
    job j = {.dtype = dtype, .out = d_in, .alpha = alpha};
    const int64_t *shapes[] = {&n, &n};
    j.span = clv_simd_elementwise()->unary_backward[op];
    j.reference = unary_table[op].backward;
    add_operand(&j, dtype, d_out);
    if (unary_table[op].saved != CLV_SAVED_NONE)
        add_operand(&j, dtype, saved);
    merge_dims(&j, 1, &n, shapes);
    run(&j);
}

void clv_binary_forward(clv_binary_op op, clv_dtype dtype, void *out, const void *a, const void *b, int rank,
                        const int64_t *shape, const int64_t *a_shape, const int64_t *b_shape)
{
    job j = {.dtype = dtype, .out = out};
    const int64_t *shapes[] = {a_shape, b_shape};
    j.span = clv_simd_elementwise()->binary[op];
    j.reference = binary_table[op];
    j.whole = whole_binary[op];
    add_operand(&j, dtype, a);
    add_operand(&j, dtype, b);
    merge_dims(&j, rank, shape, shapes);
    run(&j);
}

void clv_where_forward(clv_dtype dtype, void *out, const void *cond, const void *a, const void *b, int rank,
                       const int64_t *shape, const int64_t *cond_shape, const int64_t *a_shape, const int64_t *b_shape)
{
    job j = {.dtype = dtype,
             .out = out,
             .span = clv_simd_elementwise()->where,
             .reference = reference_where,
             .whole = whole_where};
    const int64_t *shapes[] = {cond_shape, a_shape, b_shape};
    add_operand(&j, CLV_BOOL, cond);
    add_operand(&j, dtype, a);
    add_operand(&j, dtype, b);
    merge_dims(&j, rank, shape, shapes);
    run(&j);
}

void clv_max_or_min_backward(int is_max, clv_dtype dtype, void *d_a, const void *d_out, const void *a, const void *b,
                             int rank, const int64_t *shape, const int64_t *a_shape, const int64_t *b_shape)
{
    job j = {.dtype = dtype, .out = d_a};
    const int64_t *shapes[] = {shape, a_shape, b_shape};
    j.span = clv_simd_elementwise()->max_backward[is_max != 0];
    j.reference = is_max ? reference_max_backward : reference_min_backward;
    add_operand(&j, dtype, d_out);
    add_operand(&j, dtype, a);
    add_operand(&j, dtype, b);
    merge_dims(&j, rank, shape, shapes);
    run(&j);
}

void clv_cast_values(clv_dtype to, void *out, clv_dtype from, const void *in, int64_t n)
{
    bool narrow = clv_computes_in_f32(to) && clv_computes_in_f32(from);
    size_t to_bytes = clv_dtype_size(to), from_bytes = clv_dtype_size(from);
    const clv_elementwise_loops *math = clv_simd_elementwise();

    CLV_PARALLEL_FOR(n)
    for (int64_t block = 0; block < clv_ceil_div(n, CLV_BLOCK); block++) {
        clv_scratch scratch;
        int64_t i = block * CLV_BLOCK, count = clv_min_i64(CLV_BLOCK, n - i);
        void *here = (char *)out + (size_t)i * to_bytes;
        if (to == from)
            memcpy(here, (const char *)in + (size_t)i * from_bytes, (size_t)count * to_bytes);
        else if (!narrow)
            clv_dtype_convert(to, here, from, (const char *)in + (size_t)i * from_bytes, count);
        else if (to == CLV_F32)
            (void)(clv_block_load(math, from, in, i, count, here));
        else
            clv_block_store(math, to, out, i, count, clv_block_load(math, from, in, i, count, scratch));
    }
}

void clv_fill_values(clv_dtype dtype, void *out, double value, int64_t n)
{
    size_t bytes = clv_dtype_size(dtype);
    unsigned char pattern[64];
    if (n <= 0)
        return;
    for (int64_t i = 0; i < (int64_t)(sizeof pattern / bytes); i++)
        clv_dtype_store(dtype, pattern, i, value);
    CLV_PARALLEL_FOR(n)
    for (int64_t part = 0; part < clv_ceil_div(n * (int64_t)bytes, (int64_t)sizeof pattern); part++) {
        int64_t at = part * (int64_t)sizeof pattern;
        memcpy((char *)out + at, pattern, (size_t)clv_min_i64((int64_t)sizeof pattern, n * (int64_t)bytes - at));
    }
}
