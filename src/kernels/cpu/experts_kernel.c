/* experts_kernel.c - the experts of a mixture: rows sorted by expert, products in tiles, sums by row; and gradients. */
#include "kernels/cpu/experts_kernel.h"

#include <string.h>

#include "base/error.h"
#include "kernels/cpu/activation_kernel.h"
#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/gemm_quantized.h"

enum { ALIGN = 64 };

/* The dtype of sums. */
static clv_dtype wide_of(clv_dtype dtype)
{
    return dtype == CLV_F64 ? CLV_F64 : CLV_F32;
}

/* ---- workspace ---- */

typedef struct buffers {
    int64_t *start; /* [experts + 1] where the rows of an expert begin in `order` */
    int64_t *order; /* [rows * top_k] row * top_k + choice, by expert */
    int64_t *place; /* [rows] of a row with experts here, where it is among packed ones; NULL: rows are not packed */
    void *sum;      /* [room, width] sums of a 16-bit result, NULL: they are in the result */
    char *x, *d_y;  /* [tile, width] */
    char *h;        /* [tile, 2, ffn] gate and up, then their gradients */
    char *g, *d;    /* [tile, ffn] act(gate) * up, and its gradient */
    float *wide;    /* [tile, ffn] g of blocks, in f32 */
    char *y;        /* [tile, width], wide */
    void *gemm;
} buffers;

static size_t aligned(int64_t elems, size_t size)
{
    return ((size_t)elems * size + ALIGN - 1) / ALIGN * ALIGN;
}

/* The next of the workspace's buffers; NULL if there is no workspace yet. */
static void *take(void *workspace, size_t *used, int64_t elems, size_t size)
{
    void *taken = workspace ? (char *)workspace + *used : NULL;
    *used += aligned(elems, size);
    return taken;
}

static int64_t tile_of(const clv_experts_args *a)
{
    return clv_min_i64(a->rows, CLV_EXPERTS_TILE);
}

/* A product of a tile of `rows` rows, without pointers. */
typedef enum product { UP, DOWN, D_HIDDEN, D_X, D_UP, D_DOWN, N_PRODUCTS } product;

static clv_gemm_args gemm_of(const clv_experts_args *a, product which, int64_t rows)
{
    const int64_t m = a->width, f = a->ffn;
    const struct {
        int64_t m, n, k, lda, ldb;
        bool trans_a, trans_b, wide;
    } sizes[N_PRODUCTS] = {
        [UP] = {rows, 2 * f, m, m, 2 * f, false, false, false},    /* x gate_up */
        [DOWN] = {rows, m, f, f, m, false, false, true},           /* g down */
        [D_HIDDEN] = {rows, f, m, m, m, false, true, false},       /* d_y down^T */
        [D_X] = {rows, m, 2 * f, 2 * f, 2 * f, false, true, true}, /* d_h gate_up^T */
        [D_UP] = {m, 2 * f, rows, m, 2 * f, true, false, true},    /* x^T d_h */
        [D_DOWN] = {f, m, rows, f, m, true, false, true},          /* (w g)^T d_y */
    };
    return (clv_gemm_args){.m = sizes[which].m,
                           .n = sizes[which].n,
                           .k = sizes[which].k,
                           .lda = sizes[which].lda,
                           .ldb = sizes[which].ldb,
                           .ldc = sizes[which].n,
                           .trans_a = sizes[which].trans_a,
                           .trans_b = sizes[which].trans_b,
                           .batch = 1,
                           .dtype = a->dtype,
                           .c_dtype = sizes[which].wide ? wide_of(a->dtype) : a->dtype,
                           .accumulate = which == D_UP || which == D_DOWN,
                           .work = a->work};
}

/* The same of quantized weights: UP in the dtype of x, DOWN in that of sums. */
static clv_gemm_quantized_args quantized_of(const clv_experts_args *a, product which, int64_t rows)
{
    const int64_t n = which == UP ? 2 * a->ffn : a->width, k = which == UP ? a->width : a->ffn;
    return (clv_gemm_quantized_args){.how = a->quant,
                                     .dtype = which == UP ? a->dtype : wide_of(a->dtype),
                                     .m = rows,
                                     .n = n,
                                     .blocks = k / CLV_QUANT_BLOCK,
                                     .global_m = a->global_rows,
                                     .work = a->work};
}

static size_t product_workspace(const clv_experts_args *a, product which, int64_t rows)
{
    const clv_gemm_args g = gemm_of(a, which, rows);
    const clv_gemm_quantized_args q = quantized_of(a, which, rows);
    return a->quant != CLV_QUANT_NONE ? clv_gemm_quantized_workspace(&q) : clv_gemm_workspace(&g);
}

static size_t lay_out(buffers *b, const clv_experts_args *a, bool backward)
{
    const size_t size = clv_dtype_size(a->dtype), wide = clv_dtype_size(wide_of(a->dtype));
    const int64_t tile = tile_of(a), twice = backward ? tile : 0;
    size_t used = 0, gemm = 0;
    b->start = take(a->workspace, &used, a->experts + 1, sizeof *b->start);
    b->order = take(a->workspace, &used, a->rows * a->top_k, sizeof *b->order);
    b->place = a->packed ? take(a->workspace, &used, a->rows, sizeof *b->place) : NULL;
    b->sum = size < wide ? take(a->workspace, &used, a->room * a->width, wide) : NULL;
    b->x = take(a->workspace, &used, tile * a->width, size);
    b->d_y = take(a->workspace, &used, twice * a->width, size);
    b->h = take(a->workspace, &used, tile * 2 * a->ffn, size);
    b->g = take(a->workspace, &used, tile * a->ffn, size);
    b->d = take(a->workspace, &used, twice * a->ffn, size);
    b->y = take(a->workspace, &used, tile * a->width, wide);
    b->wide = a->quant != CLV_QUANT_NONE && size < wide ? take(a->workspace, &used, tile * a->ffn, wide) : NULL;
    for (product p = 0; p < (backward ? N_PRODUCTS : D_HIDDEN); p++) {
        const size_t its = product_workspace(a, p, tile);
        gemm = its > gemm ? its : gemm;
    }
    b->gemm = take(a->workspace, &used, (int64_t)gemm, 1);
    return used;
}

size_t clv_experts_workspace(const clv_experts_args *given, bool backward)
{
    clv_experts_args a = *given;
    buffers b;
    a.workspace = NULL;
    return lay_out(&b, &a, backward);
}

/* ---- sorting ---- */

static bool is_local(const clv_experts_args *a, int64_t id)
{
    return id >= a->first && id < a->first + a->experts;
}

static void sort_by_expert(const clv_experts_args *a, const buffers *b)
{
    const int64_t n = a->rows * a->top_k;
    memset(b->start, 0, (size_t)(a->experts + 1) * sizeof *b->start);
    for (int64_t i = 0; i < n; i++)
        if (is_local(a, a->ids[i]))
            b->start[a->ids[i] - a->first + 1]++;
    for (int64_t e = 0; e < a->experts; e++)
        b->start[e + 1] += b->start[e];
    for (int64_t i = 0; i < n; i++) /* start[e] becomes the end of expert e, the start of e + 1 */
        if (is_local(a, a->ids[i]))
            b->order[b->start[a->ids[i] - a->first]++] = i;
    for (int64_t e = a->experts; e > 0; e--)
        b->start[e] = b->start[e - 1];
    b->start[0] = 0;
}

static clv_status place_rows(const clv_experts_args *a, const buffers *b, clv_error *err)
{
    int64_t n = 0;
    for (int64_t i = 0; a->packed && i < a->rows; i++) {
        bool here = false;
        for (int64_t j = 0; j < a->top_k; j++)
            here = here || is_local(a, a->ids[i * a->top_k + j]);
        b->place[i] = n;
        n += here;
    }
    return n <= a->room ? CLV_OK
                        : clv_fail(err, CLV_EINVAL, "experts: %lld packed rows; there is room for %lld", (long long)n,
                                   (long long)a->room);
}

/* ---- rows ---- */

/* Some rows of one expert. */
typedef struct tile {
    const clv_experts_args *a;
    const buffers *b;
    int64_t expert;       /* among the caller's */
    const int64_t *order; /* [rows] */
    int64_t rows;
} tile;

/* The row of x and y that the tile's i-th is. */
static int64_t row_of(const tile *t, int64_t i)
{
    const int64_t row = t->order[i] / t->a->top_k;
    return t->b->place ? t->b->place[row] : row;
}

static void gather(const tile *t, char *to, const void *from)
{
    const size_t bytes = (size_t)t->a->width * clv_dtype_size(t->a->dtype);
    CLV_PARALLEL_FOR_EACH(i, t->rows, t->rows * t->a->width,
                          memcpy(to + (size_t)i * bytes, (const char *)from + (size_t)row_of(t, i) * bytes, bytes));
}

static void add_columns(const tile *t, void *sum, bool weighted, int64_t c, int64_t n)
{
    const clv_dtype wide = wide_of(t->a->dtype);
    for (int64_t i = 0; i < t->rows; i++) {
        const double w = weighted ? clv_dtype_load(wide, t->a->weights, t->order[i]) : 1;
        const int64_t to = row_of(t, i) * t->a->width + c, from = i * t->a->width + c;
        if (wide == CLV_F64)
            for (int64_t k = 0; k < n; k++)
                ((double *)sum)[to + k] += w * ((const double *)t->b->y)[from + k];
        else
            for (int64_t k = 0; k < n; k++)
                ((float *)sum)[to + k] += (float)w * ((const float *)t->b->y)[from + k];
    }
}

/* Adds the tile's y, times the rows' weights, to the sums of their rows. Threads own columns, because one row may
 * choose an expert twice. */
static void scatter(const tile *t, void *sum, bool weighted)
{
    const int64_t width = t->a->width, part = clv_column_width(width);
    CLV_PARALLEL_FOR_EACH(p, clv_ceil_div(width, part), t->rows * width,
                          add_columns(t, sum, weighted, p * part, clv_min_i64(part, width - p * part)));
}

static void scale_row(const tile *t, void *x, int64_t i)
{
    const clv_dtype dtype = t->a->dtype;
    const double w = clv_dtype_load(wide_of(dtype), t->a->weights, t->order[i]);
    const int64_t f = t->a->ffn;
    clv_scratch scratch, scaled;
    for (int64_t c = 0; c < f && dtype == CLV_F64; c++)
        ((double *)x)[i * f + c] *= w;
    for (int64_t c = 0; c < f && dtype != CLV_F64; c += CLV_BLOCK) {
        const int64_t n = clv_min_i64(CLV_BLOCK, f - c);
        const float *from = clv_block_load(clv_simd_elementwise(), dtype, x, i * f + c, n, scratch);
        float *to = clv_block_out(dtype, x, i * f + c, scaled);
        for (int64_t k = 0; k < n; k++)
            to[k] = from[k] * (float)w;
        clv_block_store(clv_simd_elementwise(), dtype, x, i * f + c, n, to);
    }
}

/* x [rows, ffn] times the rows' weights. */
static void scale_rows(const tile *t, void *x)
{
    CLV_PARALLEL_FOR_EACH(i, t->rows, t->rows * t->a->ffn, scale_row(t, x, i));
}

static void weight_gradient(const tile *t, void *d_weights, int64_t i)
{
    const int64_t f = t->a->ffn;
    double sum = 0;
    for (int64_t c = 0; c < f; c++)
        sum += clv_dtype_load(t->a->dtype, t->b->g, i * f + c) * clv_dtype_load(t->a->dtype, t->b->d, i * f + c);
    clv_dtype_store(wide_of(t->a->dtype), d_weights, t->order[i], sum);
}

/* ---- products ---- */

static clv_status multiply(const tile *t, product which, void *c, const void *a, const void *b, clv_error *err)
{
    clv_gemm_args g = gemm_of(t->a, which, t->rows);
    g.a = a;
    g.b = b;
    g.c = c;
    g.workspace = t->b->gemm;
    return clv_gemm(&g, err);
}

/* By the tile's expert's blocks. */
static clv_status multiply_blocks(const tile *t, product which, void *y, const void *x, clv_error *err)
{
    clv_gemm_quantized_args q = quantized_of(t->a, which, t->rows);
    const int64_t blocks = t->expert * q.n * q.blocks;
    q.x = x;
    q.ints = (const uint8_t *)(which == UP ? t->a->gate_up : t->a->down) + blocks * clv_quant_block_bytes(q.how);
    q.scales = (which == UP ? t->a->gate_up_scales : t->a->down_scales) + blocks;
    q.y = y;
    q.workspace = t->b->gemm;
    return clv_gemm_quantized(&q, err);
}

/* Weight `which` of the tile's expert; per: elements of one expert. */
static void *of_expert(const tile *t, const void *all, int64_t per, clv_dtype dtype)
{
    return (char *)(uintptr_t)all + (size_t)(t->expert * per) * clv_dtype_size(dtype);
}

static const void *gate_up_of(const tile *t)
{
    return of_expert(t, t->a->gate_up, t->a->width * 2 * t->a->ffn, t->a->dtype);
}

static const void *down_of(const tile *t)
{
    return of_expert(t, t->a->down, t->a->ffn * t->a->width, t->a->dtype);
}

/* x, gate and up, and their activation. */
static clv_status hidden(const tile *t, clv_error *err)
{
    const int64_t f = t->a->ffn;
    gather(t, t->b->x, t->a->x);
    if (t->a->quant != CLV_QUANT_NONE)
        CLV_TRY(multiply_blocks(t, UP, t->b->h, t->b->x, err));
    else
        CLV_TRY(multiply(t, UP, t->b->h, t->b->x, gate_up_of(t), err));
    clv_glu(t->a->act, t->a->dtype, t->b->g, t->b->h, t->b->h + (size_t)f * clv_dtype_size(t->a->dtype), 2 * f, t->rows,
            f);
    return CLV_OK;
}

/* `out` is the sums of rows. */
static clv_status forward_tile(const tile *t, void *sum, const clv_experts_gradients *unused, clv_error *err)
{
    CLV_TRY(hidden(t, err));
    if (t->b->wide)
        clv_cast_values(CLV_F32, t->b->wide, t->a->dtype, t->b->g, t->rows * t->a->ffn);
    if (t->a->quant != CLV_QUANT_NONE)
        CLV_TRY(multiply_blocks(t, DOWN, t->b->y, t->b->wide ? (const void *)t->b->wide : t->b->g, err));
    else
        CLV_TRY(multiply(t, DOWN, t->b->y, t->b->g, down_of(t), err));
    scatter(t, sum, true);
    return CLV_OK;
}

static clv_status backward_tile(const tile *t, void *sum, const clv_experts_gradients *out, clv_error *err)
{
    const clv_experts_args *a = t->a;
    const buffers *b = t->b;
    const clv_dtype wide = wide_of(a->dtype);
    char *up = b->h + (size_t)a->ffn * clv_dtype_size(a->dtype);
    CLV_TRY(hidden(t, err));
    gather(t, b->d_y, out->d_y);
    CLV_TRY(multiply(t, D_HIDDEN, b->d, b->d_y, down_of(t), err));
    CLV_PARALLEL_FOR_EACH(i, t->rows, t->rows * a->ffn, weight_gradient(t, out->d_weights, i));
    scale_rows(t, b->d);
    scale_rows(t, b->g);
    clv_glu_backward(a->act, a->dtype, b->h, up, b->d, b->h, up, 2 * a->ffn, t->rows, a->ffn);
    CLV_TRY(multiply(t, D_DOWN, of_expert(t, out->d_down, a->ffn * a->width, wide), b->g, b->d_y, err));
    CLV_TRY(multiply(t, D_UP, of_expert(t, out->d_gate_up, a->width * 2 * a->ffn, wide), b->x, b->h, err));
    CLV_TRY(multiply(t, D_X, b->y, b->h, gate_up_of(t), err));
    scatter(t, sum, false);
    return CLV_OK;
}

/* ---- all experts ---- */

typedef clv_status tile_function(const tile *t, void *sum, const clv_experts_gradients *gradients, clv_error *err);

/* Runs each tile, and writes the sums of rows to `out`. */
static clv_status run_tiles(const clv_experts_args *a, const buffers *b, tile_function *run, void *out,
                            const clv_experts_gradients *gradients, clv_error *err)
{
    void *sum = b->sum ? b->sum : out;
    CLV_TRY(place_rows(a, b, err));
    clv_fill_values(wide_of(a->dtype), sum, 0, a->room * a->width);
    sort_by_expert(a, b);
    for (int64_t e = 0; e < a->experts; e++)
        for (int64_t at = b->start[e]; at < b->start[e + 1]; at += tile_of(a)) {
            const int64_t rows = clv_min_i64(tile_of(a), b->start[e + 1] - at);
            const tile t = {.a = a, .b = b, .expert = e, .order = b->order + at, .rows = rows};
            CLV_TRY(run(&t, sum, gradients, err));
        }
    if (b->sum)
        clv_cast_values(a->dtype, out, wide_of(a->dtype), b->sum, a->room * a->width);
    return CLV_OK;
}

clv_status clv_experts_forward(const clv_experts_args *a, void *y, clv_error *err)
{
    buffers b;
    lay_out(&b, a, false);
    return run_tiles(a, &b, forward_tile, y, NULL, err);
}

clv_status clv_experts_backward(const clv_experts_args *a, const clv_experts_gradients *out, clv_error *err)
{
    const clv_dtype wide = wide_of(a->dtype);
    buffers b;
    lay_out(&b, a, true);
    clv_fill_values(wide, out->d_weights, 0, a->rows * a->top_k);
    clv_fill_values(wide, out->d_gate_up, 0, a->experts * a->width * 2 * a->ffn);
    clv_fill_values(wide, out->d_down, 0, a->experts * a->ffn * a->width);
    return run_tiles(a, &b, backward_tile, out->d_x, out, err);
}
