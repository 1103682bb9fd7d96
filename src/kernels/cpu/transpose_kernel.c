/* transpose_kernel.c - tiled transpose, and copies of boxes. */
#include "kernels/cpu/transpose_kernel.h"

#include <assert.h>
#include <string.h>

#include "cleave/layout.h"
#include "kernels/cpu/f32_blocks.h"
#include "tensor/box_copy.h"

enum { TILE = 32 }; /* elements a side: both sides of an 8-byte tile stay in L1 */

/* out [rows, cols] with rows out_stride apart = in transposed: in's columns are in_stride apart. */
typedef void tile_fn(void *out, int64_t out_stride, const void *in, int64_t in_stride, int64_t rows, int64_t cols);

#define TILE_FUNCTION(type)                                                                                            \
    static void tile_##type(void *out, int64_t out_stride, const void *in, int64_t in_stride, int64_t rows,            \
                            int64_t cols)                                                                              \
    {                                                                                                                  \
        for (int64_t r = 0; r < rows; r++)                                                                             \
            for (int64_t c = 0; c < cols; c++)                                                                         \
                ((type *)out)[r * out_stride + c] = ((const type *)in)[c * in_stride + r];                             \
    }

TILE_FUNCTION(uint8_t)
TILE_FUNCTION(uint16_t)
TILE_FUNCTION(uint32_t)
TILE_FUNCTION(uint64_t)

static tile_fn *const tile_functions[9] = {
    [1] = tile_uint8_t, [2] = tile_uint16_t, [4] = tile_uint32_t, [8] = tile_uint64_t};

/* Dimensions of the result, outer to inner, neighbours that stay together merged. */
typedef struct plan {
    int rank;
    int64_t size[CLV_MAX_RANK], in_stride[CLV_MAX_RANK], out_stride[CLV_MAX_RANK];
} plan;

static plan plan_of(int rank, const int64_t *shape, const int *perm)
{
    plan p = {0};
    int64_t stride[CLV_MAX_RANK], step = 1;
    for (int d = rank - 1; d >= 0; d--) {
        stride[d] = step;
        step *= shape[d];
    }
    for (int d = 0; d < rank; d++) {
        int64_t size = shape[perm[d]], in = stride[perm[d]];
        if (size == 1)
            continue;
        bool merges = p.rank > 0 && p.in_stride[p.rank - 1] == in * size;
        int to = merges ? p.rank - 1 : p.rank++;
        p.size[to] = merges ? p.size[to] * size : size;
        p.in_stride[to] = in;
    }
    step = 1;
    for (int d = p.rank - 1; d >= 0; d--) {
        p.out_stride[d] = step;
        step *= p.size[d];
    }
    return p;
}

/* Removes dimension d from a plan. */
static void drop(plan *p, int d)
{
    p->rank--;
    for (; d < p->rank; d++) {
        p->size[d] = p->size[d + 1];
        p->in_stride[d] = p->in_stride[d + 1];
        p->out_stride[d] = p->out_stride[d + 1];
    }
}

static int64_t plan_count(const plan *p)
{
    int64_t count = 1;
    for (int d = 0; d < p->rank; d++)
        count *= p->size[d];
    return count;
}

static void offsets_at(const plan *p, int64_t i, int64_t *out, int64_t *in)
{
    *out = *in = 0;
    for (int d = p->rank - 1; d >= 0; d--) {
        *out += i % p->size[d] * p->out_stride[d];
        *in += i % p->size[d] * p->in_stride[d];
        i /= p->size[d];
    }
}

/* The innermost dimension stays innermost: runs. */
static void copy_runs(size_t elem, char *out, const char *in, plan p)
{
    int64_t run = p.size[p.rank - 1];
    drop(&p, p.rank - 1);
    CLV_PARALLEL_FOR(plan_count(&p) * run)
    for (int64_t i = 0; i < plan_count(&p); i++) {
        int64_t to, from;
        offsets_at(&p, i, &to, &from);
        memcpy(out + (size_t)to * elem, in + (size_t)from * elem, (size_t)run * elem);
    }
}

/* One strip of TILE rows of the result. */
static void transpose_strip(size_t elem, char *out, int64_t out_stride, const char *in, int64_t in_stride, int64_t rows,
                            int64_t cols)
{
    for (int64_t c = 0; c < cols; c += TILE)
        tile_functions[elem](out + (size_t)c * elem, out_stride, in + (size_t)(c * in_stride) * elem, in_stride, rows,
                             clv_min_i64(TILE, cols - c));
}

void clv_transpose_matrix(size_t elem_bytes, void *out, int64_t out_stride, const void *in, int64_t in_stride,
                          int64_t rows, int64_t cols)
{
    assert(elem_bytes <= 8 && tile_functions[elem_bytes] != NULL);
    CLV_PARALLEL_FOR(rows * cols)
    for (int64_t r = 0; r < rows; r += TILE)
        transpose_strip(elem_bytes, (char *)out + (size_t)(r * out_stride) * elem_bytes, out_stride,
                        (const char *)in + (size_t)r * elem_bytes, in_stride, clv_min_i64(TILE, rows - r), cols);
}

/* The result's innermost dimension against in's: tiles of the two. */
static void copy_tiles(size_t elem, char *out, const char *in, plan p)
{
    int across = 0; /* the result's dimension that is in's innermost */
    while (p.in_stride[across] != 1)
        across++;
    int64_t rows = p.size[across], cols = p.size[p.rank - 1];
    int64_t out_stride = p.out_stride[across], in_stride = p.in_stride[p.rank - 1];
    drop(&p, p.rank - 1);
    drop(&p, across);
    int64_t strips = clv_ceil_div(rows, TILE);

    CLV_PARALLEL_FOR(plan_count(&p) * rows * cols)
    for (int64_t part = 0; part < plan_count(&p) * strips; part++) {
        int64_t to, from, r = part % strips * TILE;
        offsets_at(&p, part / strips, &to, &from);
        transpose_strip(elem, out + (size_t)(to + r * out_stride) * elem, out_stride, in + (size_t)(from + r) * elem,
                        in_stride, clv_min_i64(TILE, rows - r), cols);
    }
}

void clv_transpose_tensor(size_t elem_bytes, void *out, const void *in, int rank, const int64_t *shape, const int *perm)
{
    assert(elem_bytes <= 8 && tile_functions[elem_bytes] != NULL);
    plan p = plan_of(rank, shape, perm);
    for (int d = 0; d < rank; d++)
        if (shape[d] == 0)
            return;
    if (p.rank == 0)
        memcpy(out, in, elem_bytes);
    else
        (p.in_stride[p.rank - 1] == 1 ? copy_runs : copy_tiles)(elem_bytes, out, in, p);
}

void clv_copy_slice(size_t elem_bytes, void *out, const int64_t *out_shape, const int64_t *out_lo, const void *in,
                    const int64_t *in_shape, const int64_t *in_lo, int rank, const int64_t *box)
{
    clv_shard to = {.rank = rank}, from = {.rank = rank}, both = {.rank = rank};
    for (int d = 0; d < rank; d++) { /* in the indices of out */
        to.hi[d] = out_shape[d];
        from.lo[d] = out_lo[d] - in_lo[d];
        from.hi[d] = from.lo[d] + in_shape[d];
        both.lo[d] = out_lo[d];
        both.hi[d] = out_lo[d] + box[d];
    }
    clv_box_copy(out, &to, in, &from, &both, elem_bytes);
}
