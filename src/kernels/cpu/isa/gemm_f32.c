/* isa/gemm_f32.c: see gemm_f32.h. A tile's columns lie along vector lanes; elements of A are broadcast. Packing is the
 * same for both operands: a panel's lines are rows of what is stored, or columns, which are turned. */
#include "kernels/cpu/isa/gemm_f32.h"

#include "kernels/cpu/isa/rows.h"

#if defined(__clang__)
#define UNROLL_ROWS _Pragma("clang loop unroll(full)")
#else
#define UNROLL_ROWS _Pragma("GCC unroll 16")
#endif

/* Registers: ROWS x VECTORS sums, VECTORS of B, and an element of A. */
#if defined(__AVX512F__)
enum { ROWS = CLV_GEMM_F32_ROWS };
#else
enum { ROWS = 6 };
#endif
enum {
    VECTORS = 2,
    COLS = VECTORS * VF_LANES,
    REST = 4,         /* rows of the tile for what is left, and the half of that */
    QUAD = 4,         /* lines, and elements of each, that are turned together */
    TURNED_AHEAD = 64 /* elements of a line that are widened before they are turned */
};

_Static_assert((int)ROWS <= (int)CLV_GEMM_F32_ROWS && (int)COLS <= (int)CLV_GEMM_F32_COLS, "as the header says");
_Static_assert((int)CLV_PANEL % (int)VF_LANES == 0, "no vector is of two panels of a packed B");
_Static_assert((int)VF_LANES <= (int)CLV_GEMM_F32_SPILL && (int)COLS % (int)VF_LANES == 0, "only panels of A spill");

/* ------------------------------------------------------------------------------------------------- packing */

/* What is packed, a part of op(A) or op(B): n lines of k. */
typedef struct part {
    clv_dtype dtype;
    const char *at;
    size_t size, ld; /* bytes of an element, and between what is stored as a row */
    bool along_k;    /* a line is stored as a row; else as a column */
    int64_t n, k;
} part;

CLV_INLINE part part_of(clv_dtype dtype, const void *x, int64_t ld, bool along_k, int64_t first, int64_t p, int64_t n,
                        int64_t k)
{
    const size_t size = vf_element_size(dtype);
    const int64_t elems = along_k ? first * ld + p : p * ld + first;
    return (part){dtype, (const char *)x + (size_t)elems * size, size, (size_t)ld * size, along_k, n, k};
}

/* Panels of `width` lines that are stored as columns. A row of what is stored is read through, a vector at a time: what
 * one writes beyond its panel's width, the next k overwrites, or it lies behind the panel. */
CLV_INLINE void pack_straight_as(clv_dtype dtype, int width, float *out, int64_t apart, const part *x)
{
    enum { AHEAD = 16, LINE = 64 };
    const char *row = x->at;
    for (int64_t p = 0; p < x->k; p++, row += x->ld, out += width) {
        if (x->k - p > AHEAD)
            for (size_t b = 0; b < (size_t)x->n * x->size; b += LINE)
                __builtin_prefetch(row + AHEAD * x->ld + b);
        float *to = out;
        for (int64_t j = 0; j < x->n; j += width, to += apart)
            CLV_UNROLL for (int l = 0; l < width; l += VF_LANES)
            {
                const char *from = row + (size_t)(j + l) * x->size;
                const int64_t left = x->n - j - l;
                vf_store(to + l, left >= VF_LANES ? vf_load_dtype(dtype, from)
                                 : left > 0       ? vf_load_part(dtype, from, left)
                                                  : vf_set1(0.0f));
            }
    }
}

/* out[p][0..lines) for all p, of rows of `width` floats, from `lines` lines, rounded up to quads, of k floats each. */
CLV_INLINE void turn_lines(int width, int lines, float *out, const float *const *line, int64_t k)
{
    int64_t p = 0;
    for (; p + QUAD <= k; p += QUAD, out += QUAD * width) {
        quad turned[(CLV_GEMM_F32_COLS + QUAD - 1) / QUAD][QUAD];
        CLV_UNROLL for (int l = 0; l < lines; l += QUAD)
        {
            quad r[QUAD];
            for (int i = 0; i < QUAD; i++)
                memcpy(&r[i], line[l + i] + p, sizeof r[i]);
            quad_transpose(turned[l / QUAD], r);
        }
        CLV_UNROLL for (int q = 0; q < QUAD; q++) CLV_UNROLL for (int l = 0; l < lines; l += QUAD)
            memcpy(out + q * width + l, &turned[l / QUAD][q], sizeof(quad));
    }
    for (; p < k; p++, out += width)
        for (int l = 0; l < lines; l++)
            out[l] = line[l][p];
}

/* out [k][width] from `width` lines. Lines are often a multiple of 4 KiB apart, where L1 has room for eight of them: a
 * panel that can be cut takes no more at a time. */
CLV_INLINE void turn(int width, float *out, const float *const *line, int64_t k)
{
    enum { WAYS = 8 };
    const int together = width % WAYS == 0 ? WAYS : width;
    for (int l = 0; l < width; l += together)
        turn_lines(width, together, out + l, line + l, k);
}

/* A panel of fewer lines, or of elements that are not floats: they are widened first. */
CLV_INLINE void turn_widened(int width, float *out, const part *x, int64_t j, int64_t lines)
{
    float block[(CLV_GEMM_F32_COLS + QUAD) * TURNED_AHEAD];
    const float *line[CLV_GEMM_F32_COLS + QUAD];
    memset(block, 0, sizeof block);
    for (int l = 0; l < width + QUAD; l++)
        line[l] = block + l * TURNED_AHEAD;
    for (int64_t p = 0; p < x->k; p += TURNED_AHEAD, out += TURNED_AHEAD * width) {
        const int64_t n = x->k - p < TURNED_AHEAD ? x->k - p : TURNED_AHEAD;
        rows_load(x->dtype, block, TURNED_AHEAD, x->at + (size_t)j * x->ld + (size_t)p * x->size,
                  (int64_t)(x->ld / x->size), lines, n, 1.0f);
        turn(width, out, line, n);
    }
}

/* Panels of `width` lines that are stored as rows. */
CLV_INLINE void pack_turned(int width, float *out, int64_t apart, const part *x)
{
    for (int64_t j = 0; j < x->n; j += width, out += apart) {
        const int64_t lines = x->n - j < width ? x->n - j : width;
        const float *line[CLV_GEMM_F32_COLS + QUAD];
        if (lines < width || x->dtype != CLV_F32) {
            turn_widened(width, out, x, j, lines);
            continue;
        }
        for (int l = 0; l < width + QUAD; l++) /* beyond the panel any: what they leave is overwritten */
            line[l] = (const float *)(const void *)(x->at + (size_t)(j + (l < width ? l : 0)) * x->ld);
        turn(width, out, line, x->k);
    }
}

CLV_INLINE void pack(int width, float *out, int64_t apart, const part *x)
{
    if (x->along_k)
        pack_turned(width, out, apart, x);
    else if (x->dtype == CLV_F32)
        pack_straight_as(CLV_F32, width, out, apart, x);
    else if (x->dtype == CLV_BF16)
        pack_straight_as(CLV_BF16, width, out, apart, x);
    else
        pack_straight_as(CLV_F16, width, out, apart, x);
}

/* The same of a B that is packed already, in panels of another width. */
CLV_INLINE void widen_panels_as(clv_dtype dtype, float *out, const clv_gemm_args *g, int64_t p, int64_t j, int64_t k,
                                int64_t end)
{
    enum { PANEL = CLV_PANEL, PIECE = (int)COLS < (int)PANEL ? (int)COLS : (int)PANEL };
    const size_t size = vf_element_size(dtype);
    for (; j < end; j += COLS, out += k * COLS)
        for (int64_t l = 0; l < COLS; l += PIECE) {
            const bool there = j + l < end;
            const char *from = g->b;
            if (there)
                from += (size_t)(((j + l) / PANEL * g->k + p) * PANEL + (j + l) % PANEL) * size;
            for (int64_t q = 0; q < k; q++, from += there ? PANEL * size : 0)
                CLV_UNROLL for (int v = 0; v < PIECE; v += VF_LANES) vf_store(
                    out + q * COLS + l + v, there ? vf_load_dtype(dtype, from + (size_t)v * size) : vf_set1(0.0f));
        }
}

static void widen_panels(float *out, const clv_gemm_args *g, int64_t p, int64_t j, int64_t k, int64_t end)
{
    if (g->dtype == CLV_F32)
        widen_panels_as(CLV_F32, out, g, p, j, k, end);
    else if (g->dtype == CLV_BF16)
        widen_panels_as(CLV_BF16, out, g, p, j, k, end);
    else
        widen_panels_as(CLV_F16, out, g, p, j, k, end);
}

static void pack_b(float *out, const clv_gemm_args *g, int64_t p, int64_t j, int64_t k, int64_t n, int64_t from,
                   int64_t to)
{
    const int64_t end = to * COLS < n ? to * COLS : n;
    if (from >= to)
        return;
    if (g->packed_b) {
        widen_panels(out, g, p, j + from * COLS, k, j + end);
        return;
    }
    const part x = part_of(g->dtype, g->b, g->ldb, g->trans_b, j + from * COLS, p, end - from * COLS, k);
    pack(COLS, out, k * COLS, &x);
}

static void pack_a(float *out, const clv_gemm_args *g, int64_t i, int64_t p, int64_t m, int64_t k)
{
    const part x = part_of(g->dtype, g->a, g->lda, !g->trans_a, i, p, m, k);
    pack(ROWS, out, k * ROWS + CLV_GEMM_F32_SPILL, &x);
}

/* --------------------------------------------------------------------------------------------------- tiles */

/* What counts of a tile at C's edge. */
static __attribute__((noinline)) void put_part(const clv_gemm_f32_tile *t, const float *sums)
{
    float *to = t->at;
    for (int64_t i = 0; i < t->rows; i++, to += t->ld, sums += COLS)
        for (int64_t j = 0; j < t->cols; j += VF_LANES) {
            const int64_t n = t->cols - j;
            const vf x = vf_load(sums + j);
            if (n >= VF_LANES)
                vf_store(to + j, t->add ? vf_add(vf_load(to + j), x) : x);
            else
                vf_store_part(CLV_F32, to + j, t->add ? vf_add(vf_load_part(CLV_F32, to + j, n), x) : x, n);
        }
}

CLV_INLINE void put(int rows, float *to, int64_t ld, bool add, vf sum[ROWS][VECTORS])
{
    UNROLL_ROWS for (int i = 0; i < rows; i++, to += ld) CLV_UNROLL for (int v = 0; v < VECTORS; v++)
        vf_store(to + v * VF_LANES, add ? vf_add(vf_load(to + v * VF_LANES), sum[i][v]) : sum[i][v]);
}

/* The first `rows` rows of a panel of A, a constant, of which t->rows count. */
CLV_INLINE void multiply_rows(int rows, const clv_gemm_f32_tile *t, const float *a, const float *b, int64_t k)
{
    vf sum[ROWS][VECTORS];
    UNROLL_ROWS for (int i = 0; i < rows; i++)
    {
        CLV_UNROLL for (int v = 0; v < VECTORS; v++) sum[i][v] = vf_set1(0.0f);
        __builtin_prefetch(t->at + (i < t->rows ? i : 0) * t->ld, 1);
    }
    for (int64_t p = 0; p < k; p++, a += ROWS, b += COLS) {
        vf of_b[VECTORS];
        CLV_UNROLL for (int v = 0; v < VECTORS; v++) of_b[v] = vf_load(b + v * VF_LANES);
        UNROLL_ROWS for (int i = 0; i < rows; i++)
        {
            vf of_a = vf_set1(a[i]);
            CLV_UNROLL for (int v = 0; v < VECTORS; v++) sum[i][v] = vf_fma(of_a, of_b[v], sum[i][v]);
        }
    }
    if (t->rows < rows || t->cols < COLS) {
        float sums[ROWS * COLS];
        put(rows, sums, COLS, false, sum);
        put_part(t, sums);
    } else if (t->add) {
        put(rows, t->at, t->ld, true, sum);
    } else {
        put(rows, t->at, t->ld, false, sum);
    }
}

static void multiply(const clv_gemm_f32_tile *t, const float *a, const float *b, int64_t k)
{
    if (t->rows > REST)
        multiply_rows(ROWS, t, a, b, k);
    else if (t->rows > REST / 2)
        multiply_rows(REST, t, a, b, k);
    else
        multiply_rows(REST / 2, t, a, b, k);
}

/* ------------------------------------------------------------------------------------------------- results */

CLV_INLINE void finish_as(clv_dtype dtype, char *out, int64_t ldo, bool accumulate, int64_t rows, int64_t cols,
                          const float *sums)
{
    size_t size = vf_element_size(dtype);
    for (int64_t i = 0; i < rows; i++, out += (size_t)ldo * size, sums += COLS)
        for (int64_t j = 0; j < cols; j += VF_LANES) {
            char *to = out + (size_t)j * size;
            vf x = vf_load(sums + j);
            if (cols - j >= VF_LANES) {
                vf_store_dtype(dtype, to, accumulate ? vf_add(x, vf_load_dtype(dtype, to)) : x);
                continue;
            }
            if (accumulate)
                x = vf_add(x, vf_load_part(dtype, to, cols - j));
            vf_store_part(dtype, to, x, cols - j);
        }
}

static void finish(const clv_gemm_args *g, int64_t i, int64_t j, int64_t rows, int64_t n, const float *sums)
{
    char *out = (char *)g->c + (size_t)(i * g->ldc + j) * clv_dtype_size(g->c_dtype);
    if (g->c_dtype == CLV_BF16)
        finish_as(CLV_BF16, out, g->ldc, g->accumulate, rows, n, sums);
    else
        finish_as(CLV_F16, out, g->ldc, g->accumulate, rows, n, sums);
}

const clv_gemm_f32_kernel *CLV_ISA_NAME(clv_gemm_f32_kernel_of)(void)
{
    static const clv_gemm_f32_kernel kernel = {ROWS, COLS, pack_b, pack_a, multiply, finish};
    return &kernel;
}
