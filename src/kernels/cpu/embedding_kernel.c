/* embedding_kernel.c - embedding gather, and scatter-add of its gradient. */
#include "kernels/cpu/embedding_kernel.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu/f32_blocks.h"

static bool is_local(const clv_embedding_args *e, int64_t id)
{
    return id >= e->lo && id < e->hi;
}

static void gather_row(const clv_embedding_args *e, clv_dtype out_dtype, void *out, clv_dtype table_dtype,
                       const void *table, const void *ids, int64_t i)
{
    size_t out_row = (size_t)e->width * clv_dtype_size(out_dtype);
    size_t table_row = (size_t)e->width * clv_dtype_size(table_dtype);
    int64_t id = clv_load_index(e->id_dtype, ids, i);
    void *to = (char *)out + (size_t)i * out_row;
    if (is_local(e, id))
        clv_cast_values(out_dtype, to, table_dtype, (const char *)table + (size_t)(id - e->lo) * table_row, e->width);
    else
        memset(to, 0, out_row);
}

void clv_embedding_gather(const clv_embedding_args *e, clv_dtype out_dtype, void *out, clv_dtype table_dtype,
                          const void *table, const void *ids)
{
    CLV_PARALLEL_FOR_EACH(i, e->count, e->count * e->width, gather_row(e, out_dtype, out, table_dtype, table, ids, i));
}

/* d_table[row, c..c+n) += d_out[i, c..c+n) for an f32 or f64 table. */
static void add_row(const clv_embedding_args *e, clv_dtype table_dtype, void *d_table, int64_t row, clv_dtype out_dtype,
                    const void *d_out, int64_t i, int64_t c, int64_t n)
{
    clv_scratch scratch;
    int64_t from = i * e->width + c, to = row * e->width + c;
    if (table_dtype == CLV_F32 && clv_computes_in_f32(out_dtype)) {
        const clv_elementwise_loops *math = clv_simd_elementwise();
        float *sum = (float *)d_table + to;
        math->binary[CLV_BINARY_ADD](sum, sum, clv_block_load(math, out_dtype, d_out, from, n, scratch), NULL, 0, n);
        return;
    }
    for (int64_t k = 0; k < n; k++)
        clv_dtype_store(table_dtype, d_table, to + k,
                        clv_dtype_load(table_dtype, d_table, to + k) + clv_dtype_load(out_dtype, d_out, from + k));
}

/* Threads own columns, so each element is summed by one of them in the order of i. */
static void scatter_wide(const clv_embedding_args *e, clv_dtype table_dtype, void *d_table, clv_dtype out_dtype,
                         const void *d_out, const void *ids)
{
    int64_t width = clv_column_width(e->width);

    CLV_PARALLEL_FOR(e->count * e->width)
    for (int64_t piece = 0; piece < clv_ceil_div(e->width, width); piece++) {
        int64_t c = piece * width, n = clv_min_i64(width, e->width - c);
        for (int64_t i = 0; i < e->count; i++) {
            int64_t id = clv_load_index(e->id_dtype, ids, i);
            if (is_local(e, id))
                add_row(e, table_dtype, d_table, id - e->lo, out_dtype, d_out, i, c, n);
        }
    }
}

static bool seen_before(const clv_embedding_args *e, const void *ids, int64_t i, int64_t id)
{
    bool seen = false;
    for (int64_t k = 0; k < i && !seen; k++)
        seen = clv_load_index(e->id_dtype, ids, k) == id;
    return seen;
}

/* For 16-bit tables: the first occurrence of an id adds all its occurrences in f32, then rounds. */
static void scatter_narrow(const clv_embedding_args *e, clv_dtype table_dtype, void *d_table, clv_dtype out_dtype,
                           const void *d_out, const void *ids)
{
    clv_embedding_args one = *e;
    CLV_PARALLEL_FOR(e->count * e->width)
    for (int64_t i = 0; i < e->count; i++) {
        clv_scratch sum;
        int64_t id = clv_load_index(e->id_dtype, ids, i), row = id - e->lo;
        if (!is_local(e, id) || seen_before(e, ids, i, id))
            continue;
        for (int64_t c = 0; c < e->width; c += CLV_BLOCK) {
            int64_t n = clv_min_i64(CLV_BLOCK, e->width - c);
            (void)clv_block_load(clv_simd_elementwise(), table_dtype, d_table, row * e->width + c, n, sum);
            for (int64_t k = i; k < e->count; k++)
                if (clv_load_index(e->id_dtype, ids, k) == id)
                    add_row(&one, CLV_F32, sum - c, 0, out_dtype, d_out, k, c, n);
            clv_block_store(clv_simd_elementwise(), table_dtype, d_table, row * e->width + c, n, sum);
        }
    }
}

void clv_embedding_scatter(const clv_embedding_args *e, clv_dtype table_dtype, void *d_table, clv_dtype out_dtype,
                           const void *d_out, const void *ids)
{
    bool wide = table_dtype == CLV_F32 || table_dtype == CLV_F64;
    assert(clv_dtype_is_float(table_dtype) && clv_dtype_is_float(out_dtype));
    (wide ? scatter_wide : scatter_narrow)(e, table_dtype, d_table, out_dtype, d_out, ids);
}
