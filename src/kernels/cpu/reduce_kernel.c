/* reduce_kernel.c - sum and max over any set of dimensions. */
#include "kernels/cpu/reduce_kernel.h"

#include <assert.h>
#include <math.h>

#include "kernels/cpu/f32_blocks.h"
#include "tensor/box_copy.h"

/* A set of dimensions, with neighbours merged where possible; its element i is at offset_of(walk, i). */
typedef struct walk {
    int rank;
    int64_t count; /* product of the sizes */
    int64_t size[CLV_MAX_RANK], stride[CLV_MAX_RANK];
} walk;

typedef struct job {
    clv_reduction kind;
    double scale;
    clv_dtype out_dtype, dtype;
    void *out;
    const void *x;
    walk kept, reduced;
    int64_t run; /* contiguous elements: innermost reduced dims (rows), or innermost kept dims (columns) */
} job;

static void append(walk *w, int64_t size, int64_t stride)
{
    w->count *= size;
    if (w->rank > 0 && w->stride[w->rank - 1] == size * stride) {
        w->size[w->rank - 1] *= size;
        w->stride[w->rank - 1] = stride;
        return;
    }
    w->size[w->rank] = size;
    w->stride[w->rank++] = stride;
}

/* Removes the innermost merged dimension of a walk and returns its size. */
static int64_t take_inner(walk *w)
{
    int64_t size = w->size[--w->rank];
    w->count /= size;
    return size;
}

static int64_t offset_of(const walk *w, int64_t i)
{
    int64_t offset = 0;
    for (int d = w->rank - 1; d >= 0; d--) {
        offset += i % w->size[d] * w->stride[d];
        i /= w->size[d];
    }
    return offset;
}

static double combine(clv_reduction kind, double a, double b)
{
    if (kind == CLV_REDUCTION_SUM)
        return a + b;
    return a > b || isnan(a) ? a : b;
}

/* The reference: one result after another, in f64. */
static void reduce_reference(const job *j)
{
    CLV_PARALLEL_FOR(j->kept.count * j->reduced.count)
    for (int64_t o = 0; o < j->kept.count; o++) {
        int64_t base = offset_of(&j->kept, o);
        double total = clv_dtype_load(j->dtype, j->x, base);
        for (int64_t r = 1; r < j->reduced.count; r++)
            total = combine(j->kind, total, clv_dtype_load(j->dtype, j->x, base + offset_of(&j->reduced, r)));
        clv_dtype_store(j->out_dtype, j->out, o, total * j->scale);
    }
}

/* The innermost dimension is reduced: sums of contiguous runs. */
static void reduce_runs(const job *j)
{
    const clv_elementwise_loops *math = clv_simd_elementwise();
    const clv_rowwise_loops *rows = clv_simd_rowwise();

    CLV_PARALLEL_FOR(j->kept.count * j->reduced.count * j->run)
    for (int64_t o = 0; o < j->kept.count; o++) {
        clv_scratch scratch;
        int64_t base = offset_of(&j->kept, o);
        double total = j->kind == CLV_REDUCTION_SUM ? 0 : -INFINITY;
        for (int64_t r = 0; r < j->reduced.count; r++) {
            int64_t start = base + offset_of(&j->reduced, r);
            for (int64_t i = 0; i < j->run; i += CLV_BLOCK) {
                int64_t n = clv_min_i64(CLV_BLOCK, j->run - i);
                const float *x = clv_block_load(math, j->dtype, j->x, start + i, n, scratch);
                total =
                    combine(j->kind, total, j->kind == CLV_REDUCTION_SUM ? rows->sum(x, n) : (double)rows->max(x, n));
            }
        }
        clv_dtype_store(j->out_dtype, j->out, o, total * j->scale);
    }
}

/* Columns [c, c + n) of result block o: [..., reduced, ..., kept]. */
static void reduce_column_block(const job *j, int64_t o, int64_t c, int64_t n)
{
    clv_scratch scratch, max;
    double sum[CLV_BLOCK];
    const clv_elementwise_loops *math = clv_simd_elementwise();
    const clv_rowwise_loops *rows = clv_simd_rowwise();
    int64_t base = offset_of(&j->kept, o) + c;

    for (int64_t i = 0; i < n; i++)
        sum[i] = 0, max[i] = -INFINITY;
    for (int64_t r = 0; r < j->reduced.count; r++) {
        const float *x = clv_block_load(math, j->dtype, j->x, base + offset_of(&j->reduced, r), n, scratch);
        if (j->kind == CLV_REDUCTION_SUM)
            rows->add_columns(sum, x, n);
        else
            rows->max_columns(max, x, n);
    }
    for (int64_t i = 0; i < n; i++)
        clv_dtype_store(j->out_dtype, j->out, o * j->run + c + i,
                        (j->kind == CLV_REDUCTION_SUM ? sum[i] : (double)max[i]) * j->scale);
}

static void reduce_columns(const job *j)
{
    int64_t width = clv_column_width(j->run), pieces = clv_ceil_div(j->run, width);

    CLV_PARALLEL_FOR(j->kept.count * j->reduced.count * j->run)
    for (int64_t part = 0; part < j->kept.count * pieces; part++) {
        int64_t c = part % pieces * width;
        reduce_column_block(j, part / pieces, c, clv_min_i64(width, j->run - c));
    }
}

void clv_reduce_forward(clv_reduction kind, double scale, clv_dtype out_dtype, void *out, clv_dtype dtype,
                        const void *x, int rank, const int64_t *shape, const bool *reduced)
{
    job j = {.kind = kind, .scale = scale, .out_dtype = out_dtype, .dtype = dtype, .out = out, .x = x};
    int64_t strides[CLV_MAX_RANK], stride = 1;
    bool rows = false; /* whether the innermost dimension is reduced */

    assert(kind == CLV_REDUCTION_SUM || kind == CLV_REDUCTION_MAX);
    j.kept.count = j.reduced.count = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= shape[d];
    }
    for (int d = 0; d < rank; d++) {
        if (shape[d] == 1)
            continue;
        append(reduced[d] ? &j.reduced : &j.kept, shape[d], strides[d]);
        rows = reduced[d];
    }
    if (j.kept.count == 0)
        return;
    if (j.reduced.count == 0) {
        clv_fill_reduction_identity(out, j.kept.count, out_dtype, kind);
        return;
    }
    if (!clv_computes_in_f32(dtype)) {
        reduce_reference(&j);
        return;
    }
    walk *inner = rows ? &j.reduced : &j.kept;
    j.run = inner->rank > 0 ? take_inner(inner) : 1;
    (rows ? reduce_runs : reduce_columns)(&j);
}

/* Sum of squares of elements [first, end). Prefetches, which doubles the bandwidth of a single reader. */
static double squares_between(clv_dtype dtype, const void *x, int64_t first, int64_t end)
{
    enum { AHEAD = 4096, LINE = 64 };
    const int64_t size = (int64_t)clv_dtype_size(dtype);
    double total = 0;
    clv_scratch scratch;
    for (int64_t i = first; i < end; i += CLV_BLOCK) {
        int64_t count = clv_min_i64(CLV_BLOCK, end - i);
        const char *here = (const char *)x + i * size;
        for (int64_t at = 0; at < count * size; at += LINE)
            __builtin_prefetch(here + AHEAD + at);
        total +=
            clv_simd_rowwise()->squares(clv_block_load(clv_simd_elementwise(), dtype, x, i, count, scratch), count);
    }
    return total;
}

double clv_sum_squares(clv_dtype dtype, const void *x, int64_t n)
{
    enum { PARTS = 64 }; /* partial sums, whatever the number of threads */
    double total = 0, part[PARTS];
    if (!clv_computes_in_f32(dtype)) {
        for (int64_t i = 0; i < n; i++)
            total += clv_dtype_load(dtype, x, i) * clv_dtype_load(dtype, x, i);
        return total;
    }
    int64_t blocks = clv_ceil_div(n, CLV_BLOCK), each = clv_ceil_div(blocks, PARTS) * CLV_BLOCK;
    CLV_PARALLEL_FOR(n)
    for (int64_t k = 0; k < PARTS; k++)
        part[k] = squares_between(dtype, x, clv_min_i64(k * each, n), clv_min_i64((k + 1) * each, n));
    for (int k = 0; k < PARTS; k++)
        total += part[k];
    return total;
}
