/* isa/gemm_wide.c: see gemm_wide.h. A tile's columns lie along vector lanes; elements of A are read one at a time, to
 * be broadcast, so that they need no order of their own. */
#include "kernels/cpu/isa/gemm_wide.h"

#include "kernels/cpu/isa/rows.h"

#if defined(__clang__)
#define UNROLL_ROWS _Pragma("clang loop unroll(full)")
#else
#define UNROLL_ROWS _Pragma("GCC unroll 16")
#endif

/* Registers: ROWS x VECTORS sums, VECTORS of B, and an element of A. */
#if defined(__AVX512F__)
enum { ROWS = CLV_GEMM_WIDE_ROWS };
#else
enum { ROWS = 6 };
#endif
enum {
    VECTORS = 2,
    COLS = VECTORS * VF_LANES,
    REST = 4,                        /* rows of the tile for what is left, and the half of that */
    STEP_A = 16,                     /* floats between steps of k of an A that is stored [k, m] */
    ROW_A = CLV_GEMM_WIDE_PASS + 16, /* between rows of one that is not: no two begin in the same set of L1 */
    PACK_K = 64                      /* k that is turned at a time */
};

_Static_assert((int)ROWS <= (int)CLV_GEMM_WIDE_ROWS && (int)COLS <= (int)CLV_GEMM_WIDE_COLS, "as the header says");
_Static_assert((int)ROWS <= (int)STEP_A && ROWS * ROW_A <= (int)CLV_GEMM_WIDE_A &&
                   STEP_A * (int)CLV_GEMM_WIDE_PASS <= (int)CLV_GEMM_WIDE_A,
               "rows of A have room");

static const char *element(const clv_gemm_args *g, const void *x, int64_t i)
{
    return (const char *)x + (size_t)i * clv_dtype_size(g->dtype);
}

/* ------------------------------------------------------------------------------------------------- packing */

/* out [k][COLS] from op(B) as it is stored, [k, cols]. */
static void pack_straight(float *out, const clv_gemm_args *g, const char *b, int64_t k, int64_t cols)
{
    if (cols < COLS)
        memset(out, 0, (size_t)(k * COLS) * sizeof *out);
    rows_load(g->dtype, out, COLS, b, g->ldb, k, cols, 1.0f);
}

/* The same from [cols, k]. */
static void pack_turned(float *out, const clv_gemm_args *g, const char *b, int64_t k, int64_t cols)
{
    float block[COLS * PACK_K];
    memset(block, 0, sizeof block);
    for (int64_t p = 0; p < k; p += PACK_K) {
        int64_t n = k - p < PACK_K ? k - p : PACK_K, whole = n / 4 * 4;
        rows_load(g->dtype, block, PACK_K, element(g, b, p), g->ldb, cols, n, 1.0f);
        rows_transpose(out + p * COLS, COLS, block, PACK_K, COLS, whole);
        for (int64_t q = whole; q < n; q++)
            for (int64_t c = 0; c < COLS; c++)
                out[(p + q) * COLS + c] = block[c * PACK_K + q];
    }
}

static void pack_b(float *out, const clv_gemm_args *g, int64_t p, int64_t j, int64_t k, int64_t n, int64_t from,
                   int64_t to)
{
    for (int64_t t = from; t < to; t++) {
        int64_t first = j + t * COLS, cols = n - t * COLS < COLS ? n - t * COLS : COLS;
        if (g->trans_b)
            pack_turned(out + t * k * COLS, g, element(g, g->b, first * g->ldb + p), k, cols);
        else
            pack_straight(out + t * k * COLS, g, element(g, g->b, p * g->ldb + first), k, cols);
    }
}

/* The rows of the least tile that has so many. */
static int64_t tile_rows(int64_t rows)
{
    return rows <= REST / 2 ? REST / 2 : rows <= REST ? REST : ROWS;
}

/* A line of what is stored has rows of several tiles: all of them are taken while it is there. */
CLV_INLINE void widen_turned_as(clv_dtype dtype, float *out, const char *a, size_t ld, int64_t rows, int64_t k)
{
    enum { AHEAD = 16 };
    for (int64_t p = 0; p < k; p++, a += ld, out += STEP_A) {
        if (k - p > AHEAD)
            for (int64_t r = 0; r < rows; r += 64 / 2)
                __builtin_prefetch(a + AHEAD * ld + (size_t)r * 2);
        for (int64_t r = 0; r < rows; r += ROWS) {
            int64_t n = rows - r < ROWS ? rows - r : ROWS;
            float *to = out + r / ROWS * CLV_GEMM_WIDE_A;
            for (int64_t l = 0; l < n; l += VF_LANES) {
                const char *from = a + (size_t)(r + l) * 2;
                vf_store(to + l, rows - r - l < VF_LANES ? vf_load_part(dtype, from, rows - r - l)
                                                         : vf_load_dtype(dtype, from));
            }
        }
    }
}

static void widen_turned(float *out, const clv_gemm_args *g, const char *a, int64_t rows, int64_t k)
{
    size_t ld = (size_t)g->lda * 2;
    if (g->dtype == CLV_BF16)
        widen_turned_as(CLV_BF16, out, a, ld, rows, k);
    else
        widen_turned_as(CLV_F16, out, a, ld, rows, k);
}

static void widen_a(float *out, const clv_gemm_args *g, int64_t i, int64_t p, int64_t rows, int64_t k)
{
    int64_t last = (rows - 1) / ROWS * ROWS, missing = tile_rows(rows - last) - (rows - last);
    float *rest = out + last / ROWS * CLV_GEMM_WIDE_A;
    if (g->trans_a) {
        widen_turned(out, g, element(g, g->a, p * g->lda + i), rows, k);
        return;
    }
    for (int64_t r = 0; r < rows; r += ROWS)
        rows_load(g->dtype, out + r / ROWS * CLV_GEMM_WIDE_A, ROW_A, element(g, g->a, (i + r) * g->lda + p), g->lda,
                  rows - r < ROWS ? rows - r : ROWS, k, 1.0f);
    for (int64_t r = rows - last; r < rows - last + missing; r++)
        memset(rest + r * ROW_A, 0, (size_t)k * sizeof *rest);
}

/* --------------------------------------------------------------------------------------------------- tiles */

/* A(i, p) = a[i * row + p * step]; rows, row and step are constants. */
CLV_INLINE void tile(int rows, float *c, bool fresh, const float *a, int64_t row, int64_t step, const float *b,
                     int64_t k)
{
    vf sum[ROWS][VECTORS];
    UNROLL_ROWS for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < VECTORS; v++) sum[i][v] =
        fresh ? vf_set1(0.0f) : vf_load(c + i * COLS + v * VF_LANES);
    for (int64_t p = 0; p < k; p++, a += step, b += COLS) {
        vf of_b[VECTORS];
        CLV_UNROLL for (int v = 0; v < VECTORS; v++) of_b[v] = vf_load(b + v * VF_LANES);
        UNROLL_ROWS for (int i = 0; i < rows; i++)
        {
            vf of_a = vf_set1(a[i * row]);
            CLV_UNROLL for (int v = 0; v < VECTORS; v++) sum[i][v] = vf_fma(of_a, of_b[v], sum[i][v]);
        }
    }
    UNROLL_ROWS for (int i = 0; i < rows; i++) CLV_UNROLL for (int v = 0; v < VECTORS; v++)
        vf_store(c + i * COLS + v * VF_LANES, sum[i][v]);
}

#define TILE(rows)                                                                                                     \
    (trans_a ? tile(rows, sums, fresh, a, 1, STEP_A, panel, k) : tile(rows, sums, fresh, a, ROW_A, 1, panel, k))

static void multiply(float *sums, bool fresh, int64_t rows, const float *a, bool trans_a, const float *panel, int64_t k)
{
    switch (tile_rows(rows)) {
    case REST / 2:
        TILE(REST / 2);
        break;
    case REST:
        TILE(REST);
        break;
    default:
        TILE(ROWS);
        break;
    }
}

/* ------------------------------------------------------------------------------------------------- results */

CLV_INLINE void finish_as(clv_dtype dtype, char *out, int64_t ldo, bool accumulate, int64_t rows, int64_t cols,
                          const float *sums)
{
    size_t size = dtype == CLV_F32 ? 4 : 2;
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

static void finish(const clv_gemm_args *g, int64_t i, int64_t j, int64_t rows, int64_t cols, const float *sums)
{
    char *out = (char *)g->c + (size_t)(i * g->ldc + j) * clv_dtype_size(g->c_dtype);
    if (g->c_dtype == CLV_F32)
        finish_as(CLV_F32, out, g->ldc, g->accumulate, rows, cols, sums);
    else if (g->c_dtype == CLV_BF16)
        finish_as(CLV_BF16, out, g->ldc, g->accumulate, rows, cols, sums);
    else
        finish_as(CLV_F16, out, g->ldc, g->accumulate, rows, cols, sums);
}

const clv_gemm_wide_kernel *CLV_ISA_NAME(clv_gemm_wide_kernel_of)(void)
{
    static const clv_gemm_wide_kernel kernel = {ROWS, COLS, pack_b, widen_a, multiply, finish};
    return &kernel;
}
