/* dropout_kernel.c - dropout kernel keyed by an element's global index. */
#include "kernels/cpu/dropout_kernel.h"

#include <assert.h>

#include "cleave/layout.h"
#include "kernels/cpu/f32_blocks.h"

/* Flat index in the whole tensor of the first element of a row of the box. */
static uint64_t global_start(int rank, const int64_t *shape, const int64_t *lo, const int64_t *global, int64_t row)
{
    uint64_t index = rank > 0 ? (uint64_t)lo[rank - 1] : 0, stride = rank > 0 ? (uint64_t)global[rank - 1] : 1;
    for (int d = rank - 2; d >= 0; d--) {
        index += (uint64_t)(lo[d] + row % shape[d]) * stride;
        stride *= (uint64_t)global[d];
        row /= shape[d];
    }
    return index;
}

/* The reference: element by element, from the generator itself. */
static void dropout_reference(clv_dtype dtype, void *out, const void *x, double keep, clv_key key, uint64_t first,
                              int64_t from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float uniform;
        clv_random_uniform(&uniform, key, first + (uint64_t)i, 1, 0, 1);
        clv_dtype_store(dtype, out, from + i, uniform < (float)keep ? clv_dtype_load(dtype, x, from + i) / keep : 0);
    }
}

static void dropout_span(clv_dtype dtype, void *out, const void *x, double keep, clv_key key, uint64_t first,
                         int64_t from, int64_t n)
{
    clv_scratch x_block;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    uint32_t threshold = clv_dropout_threshold(keep);
    for (int64_t i = 0; i < n; i += CLV_BLOCK) {
        int64_t count = clv_min_i64(CLV_BLOCK, n - i);
        const float *x32 = clv_block_load(math, dtype, x, from + i, count, x_block);
        float *to = clv_block_out(dtype, out, from + i, x_block);
        clv_simd_optimizer_dropout_rope()->dropout(to, x32, key.word, first + (uint64_t)i, threshold, (float)keep,
                                                   count);
        clv_block_store(math, dtype, out, from + i, count, to);
    }
}

void clv_dropout_forward(clv_dtype dtype, void *out, const void *x, double rate, clv_key key, int rank,
                         const int64_t *shape, const int64_t *lo, const int64_t *global)
{
    int64_t rows = 1, inner = rank > 0 ? shape[rank - 1] : 1;

    assert(rate >= 0 && rate <= 1 && rank <= CLV_MAX_RANK);
    for (int d = 0; d < rank - 1; d++)
        rows *= shape[d];
    CLV_PARALLEL_FOR(rows * inner)
    for (int64_t row = 0; row < rows; row++)
        (clv_computes_in_f32(dtype) ? dropout_span : dropout_reference)(
            dtype, out, x, 1 - rate, key, global_start(rank, shape, lo, global, row), row * inner, inner);
}
