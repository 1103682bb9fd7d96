/* gemm_f32_simd.c - packing and register-tile micro-kernel of the f32-accumulating GEMM. The columns of a
 * tile are along vector lanes; elements of A are broadcast. Packing is the same for both operands: the lines of a panel
 * are stored rows, or stored columns, which are transposed.
 */
#include "kernels/cpu/isa/gemm_f32_simd.h"

#include "kernels/cpu/isa/load_store_rows.h"

#if defined(__clang__)
#define UNROLL_ROWS _Pragma("clang loop unroll(full)")
#else
#define UNROLL_ROWS _Pragma("GCC unroll 16")
#endif

/* Registers: ROWS x VECTORS sums, VECTORS of B, and an element of A. TURNED: of k, together; where there are registers
 * for it a line of the cache, or lines that fall into the same sets of it would push each other out. */
#if defined(__AVX512F__)
enum { ROWS = CLV_GEMM_F32_ROWS, TURNED = 16 };
#else
enum { ROWS = 6, TURNED = 4 };
#endif
enum {
    VECTORS = 2,
    COLS = VECTORS * VF_LANES,
    REST = 4,         /* rows of the tile for what is left, and the half of that */
    QUAD = 4,         /* lines, and elements of each, that are turned together */
    LINE = 16,        /* floats of a line of the cache */
    LINES = 16,       /* of a panel of A or B, at most, in whole vectors */
    TURNED_AHEAD = 64 /* elements of a line that are widened before they are turned */
};

_Static_assert((int)ROWS <= (int)CLV_GEMM_F32_ROWS && (int)COLS <= (int)CLV_GEMM_F32_COLS, "as the header says");
_Static_assert((int)CLV_PANEL_COLUMNS % (int)VF_LANES == 0,
               "no vector is of two panels of B, and only panels of A spill");
_Static_assert((int)CLV_GEMM_F32_COLS % (int)COLS == 0, "a stripe of columns is whole tiles");
_Static_assert((int)COLS % (int)CLV_PANEL_COLUMNS == 0 || (int)CLV_PANEL_COLUMNS % (int)COLS == 0,
               "a tile's panels are whole, or it is one's part");
_Static_assert((int)LINES >= (int)ROWS && (int)LINES == (int)CLV_PANEL_COLUMNS && (int)LINES % (int)VF_LANES == 0,
               "as it says");
_Static_assert((int)VF_LANES <= (int)CLV_GEMM_F32_A_PANEL_STRIDE, "as much as a vector");

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
    enum { AHEAD = 16, LINE_BYTES = 64 };
    const char *row = x->at;
    for (int64_t p = 0; p < x->k; p++, row += x->ld, out += width) {
        if (x->k - p > AHEAD)
            for (size_t b = 0; b < (size_t)x->n * x->size; b += LINE_BYTES)
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

/* out[p][0..lines) for all p, of rows of `width` floats, from `lines` lines of k floats each: VF_LANES at most, as many
 * as `line` has, of which what is beyond a panel may be any. A store of one k spills into the next, which comes after
 * it. */
CLV_INLINE void turn_lines(int width, int lines, float *out, const float *const *line, int64_t k)
{
    int64_t p = 0;
    for (; p + TURNED <= k; p += TURNED, out += TURNED * width) {
        vf x[TURNED / QUAD][QUAD];
        CLV_UNROLL for (int i = 0; i < QUAD; i++) CLV_UNROLL for (int q = 0; q < TURNED / QUAD; q++) x[q][i] =
            vf_load_quads(line + i, p + q * QUAD);
        CLV_UNROLL for (int q = 0; q < TURNED / QUAD; q++)
        {
            vf_transpose_quads(x[q]);
            CLV_UNROLL for (int i = 0; i < QUAD; i++) vf_store(out + (q * QUAD + i) * width, x[q][i]);
        }
    }
    for (; p < k; p++, out += width)
        for (int l = 0; l < lines; l++)
            out[l] = line[l][p];
}

/* out [k][width] from `width` lines. Last lines first: what they spill is the first ones' room. */
CLV_INLINE void turn(int width, float *out, const float *const *line, int64_t k)
{
    for (int l = (width - 1) / VF_LANES * VF_LANES; l >= 0; l -= VF_LANES)
        turn_lines(width, width - l < VF_LANES ? width - l : VF_LANES, out + l, line + l, k);
}

/* A panel of fewer lines, or of elements that are not floats: they are widened first. */
CLV_INLINE void turn_widened(int width, float *out, const part *x, int64_t j, int64_t lines)
{
    float block[LINES * TURNED_AHEAD];
    const float *line[LINES];
    memset(block + lines * TURNED_AHEAD, 0, (size_t)(LINES - lines) * TURNED_AHEAD * sizeof *block);
    for (int l = 0; l < LINES; l++)
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
        const float *line[LINES];
        if (lines < width || x->dtype != CLV_F32) {
            turn_widened(width, out, x, j, lines);
            continue;
        }
        for (int l = 0; l < LINES; l++) /* beyond the panel any: what they leave is overwritten */
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

/* The same of panels of bf16 or f16. */
CLV_INLINE void widen_panels_as(clv_dtype dtype, float *out, const clv_gemm_args *g, int64_t p, int64_t j, int64_t k,
                                int64_t panels)
{
    const size_t row = CLV_PANEL_COLUMNS * vf_element_size(dtype);
    const char *panel = (const char *)g->b + (size_t)(j / CLV_PANEL_COLUMNS * g->k + p) * row;
    for (int64_t t = 0; t < panels; t++, panel += (size_t)g->k * row) {
        const char *from = panel;
        for (int64_t q = 0; q < k; q++, from += row, out += CLV_PANEL_COLUMNS)
            CLV_UNROLL for (int v = 0; v < CLV_PANEL_COLUMNS; v += VF_LANES)
                vf_store(out + v, vf_load_dtype(dtype, from + (size_t)v * vf_element_size(dtype)));
    }
}

static void pack_b(float *out, const clv_gemm_args *g, int64_t p, int64_t j, int64_t k, int64_t n)
{
    if (!g->packed_b) {
        const part x = part_of(g->dtype, g->b, g->ldb, g->trans_b, j, p, n, k);
        pack(CLV_PANEL_COLUMNS, out, k * CLV_PANEL_COLUMNS, &x);
    } else if (g->dtype == CLV_BF16) {
        widen_panels_as(CLV_BF16, out, g, p, j, k, n / CLV_PANEL_COLUMNS);
    } else {
        widen_panels_as(CLV_F16, out, g, p, j, k, n / CLV_PANEL_COLUMNS);
    }
}

static void pack_a(float *out, const clv_gemm_args *g, int64_t i, int64_t p, int64_t m, int64_t k)
{
    const part x = part_of(g->dtype, g->a, g->lda, !g->trans_a, i, p, m, k);
    pack(ROWS, out, k * ROWS + CLV_GEMM_F32_A_PANEL_STRIDE, &x);
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

/* Vector v of the tile's columns. A panel that is not there is read as the one before it: its sums do not count. */
CLV_INLINE const float *vector_of(const clv_gemm_f32_b_panels *b, int v)
{
    return b->at + (int64_t)(v * VF_LANES / CLV_PANEL_COLUMNS) * b->apart + v * VF_LANES % CLV_PANEL_COLUMNS;
}

/* With AVX-512 a tile's panels are larger than L1, and their lines come from L2. Those beyond the panels' end are of
 * what comes next, or of no object: a prefetch does not fault. */
CLV_INLINE void fetch_ahead(const float *a, const float *const b[VECTORS])
{
#if defined(__AVX512F__)
    enum { OF_A = 16, OF_B = 8 }; /* k */
    __builtin_prefetch(a + OF_A * ROWS);
    CLV_UNROLL for (int v = 0; v < VECTORS; v++) __builtin_prefetch(b[v] + OF_B * CLV_PANEL_COLUMNS);
#else
#endif
}

/* The first `rows` rows of a panel of A, a constant, of which t->rows count. */
CLV_INLINE void multiply_rows(int rows, const clv_gemm_f32_tile *t, const float *a, const clv_gemm_f32_b_panels *of_b,
                              int64_t k)
{
    const float *b[VECTORS], *end = a + k * ROWS;
    vf sum[ROWS][VECTORS];
    CLV_UNROLL for (int v = 0; v < VECTORS; v++) b[v] = vector_of(of_b, v);
    UNROLL_ROWS for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < VECTORS; v++) sum[i][v] = vf_set1(0.0f);
    UNROLL_ROWS for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < VECTORS; v += LINE / VF_LANES)
        __builtin_prefetch(t->at + (i < t->rows ? i : 0) * t->ld + v * VF_LANES, 1);
    for (; a < end; a += ROWS) {
        vf x[VECTORS];
        CLV_UNROLL for (int v = 0; v < VECTORS; v++)
        {
            x[v] = vf_load(b[v]);
            b[v] += CLV_PANEL_COLUMNS;
        }
        fetch_ahead(a, b);
        UNROLL_ROWS for (int i = 0; i < rows; i++)
        {
            vf one = vf_set1(a[i]);
            CLV_UNROLL for (int v = 0; v < VECTORS; v++) sum[i][v] = vf_fma(one, x[v], sum[i][v]);
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

static void multiply(const clv_gemm_f32_tile *t, const float *a, const clv_gemm_f32_b_panels *b, int64_t k)
{
    if (t->rows > REST)
        multiply_rows(ROWS, t, a, b, k);
    else if (t->rows > REST / 2)
        multiply_rows(REST, t, a, b, k);
    else
        multiply_rows(REST / 2, t, a, b, k);
}

/* ------------------------------------------------------------------------------------------------- results */

static void finish(const clv_gemm_args *g, int64_t i, int64_t j, int64_t rows, int64_t n, const float *sums)
{
    char *out = (char *)g->c + (size_t)(i * g->ldc + j) * clv_dtype_size(g->c_dtype);
    float all[ROWS * COLS];
    if (g->accumulate) {
        rows_load(g->c_dtype, all, COLS, out, g->ldc, rows, n, 1.0f);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < n; c++)
                all[r * COLS + c] += sums[r * COLS + c];
        sums = all;
    }
    rows_store(g->c_dtype, out, g->ldc, sums, COLS, rows, n, 1.0f);
}

const clv_gemm_f32_kernel *CLV_ISA_NAME(clv_gemm_f32_kernel_of)(void)
{
    static const clv_gemm_f32_kernel kernel = {ROWS, COLS, pack_b, pack_a, multiply, finish};
    return &kernel;
}
