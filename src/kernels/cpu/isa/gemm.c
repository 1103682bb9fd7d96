/* isa/gemm.c: one-row products of bf16 and f16 at the speed of memory, and conversion of tiles. */
#include "kernels/cpu/isa/gemm.h"

#include "kernels/cpu/isa/rows.h"
#include "tensor/half.h"

enum { AT_ONCE = 4 /* rows of B that stream side by side */, BYTES = 2 };

void CLV_ISA_NAME(clv_gemm_widen)(clv_dtype dtype, float *out, int64_t ldo, const void *in, int64_t ldi, int64_t rows,
                                  int64_t cols)
{
    rows_load(dtype, out, ldo, in, ldi, rows, cols, 1.0f);
}

void CLV_ISA_NAME(clv_gemm_narrow)(clv_dtype dtype, void *out, int64_t ldo, const float *in, int64_t ldi, int64_t rows,
                                   int64_t cols)
{
    rows_store(dtype, out, ldo, in, ldi, rows, cols, 1.0f);
}

static const char *row_of(const void *b, int64_t ldb, int64_t p, int64_t j)
{
    return (const char *)b + (size_t)(p * ldb + j) * BYTES;
}

CLV_INLINE float scalar(clv_dtype dtype, const char *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return dtype == CLV_BF16 ? clv_f32_of_bf16(bits) : clv_f32_of_f16(bits);
}

/* y [n] += sum over `rows` <= AT_ONCE of x[r] * b[r, :] */
CLV_INLINE void add_rows(clv_dtype dtype, float *y, const float *x, const char *b, int64_t ldb, int rows, int64_t n)
{
    int64_t j = 0;
    for (; n - j >= VF_LANES; j += VF_LANES) {
        vf sum = vf_load(y + j);
        CLV_UNROLL for (int r = 0; r < rows; r++) sum =
            vf_fma(vf_set1(x[r]), vf_load_dtype(dtype, row_of(b, ldb, r, j)), sum);
        vf_store(y + j, sum);
    }
    if (j < n) {
        vf sum = vf_load_part(CLV_F32, y + j, n - j);
        CLV_UNROLL for (int r = 0; r < rows; r++) sum =
            vf_fma(vf_set1(x[r]), vf_load_part(dtype, row_of(b, ldb, r, j), n - j), sum);
        vf_store_part(CLV_F32, y + j, sum, n - j);
    }
}

/* y [n] += a b[:, j : j+n]; consecutive elements of a are `step` apart. */
CLV_INLINE void row_plain(clv_dtype dtype, float *y, const clv_gemm_args *g, int64_t step, int64_t j, int64_t n)
{
    const char *b = row_of(g->b, 0, 0, j);
    for (int64_t p = 0; p < g->k; p += AT_ONCE) {
        float x[AT_ONCE];
        int rows = g->k - p < AT_ONCE ? (int)(g->k - p) : AT_ONCE;
        for (int r = 0; r < rows; r++)
            x[r] = scalar(dtype, row_of(g->a, step, p + r, 0));
        if (rows == AT_ONCE)
            add_rows(dtype, y, x, row_of(b, g->ldb, p, 0), g->ldb, AT_ONCE, n);
        else
            for (int r = 0; r < rows; r++)
                add_rows(dtype, y, x + r, row_of(b, g->ldb, p + r, 0), g->ldb, 1, n);
    }
}

/* y[0 .. rows) += a . rows of b^T, rows <= AT_ONCE */
CLV_INLINE void dot_rows(clv_dtype dtype, float *y, const void *a, const char *b, int64_t ldb, int rows, int64_t k)
{
    vf sum[AT_ONCE];
    int64_t p = 0;
    CLV_UNROLL for (int r = 0; r < rows; r++) sum[r] = vf_set1(0.0f);
    for (; k - p >= VF_LANES; p += VF_LANES) {
        vf x = vf_load_dtype(dtype, row_of(a, 0, 0, p));
        CLV_UNROLL for (int r = 0; r < rows; r++) sum[r] =
            vf_fma(x, vf_load_dtype(dtype, row_of(b, ldb, r, p)), sum[r]);
    }
    if (p < k) {
        vf x = vf_load_part(dtype, row_of(a, 0, 0, p), k - p);
        CLV_UNROLL for (int r = 0; r < rows; r++) sum[r] =
            vf_fma(x, vf_load_part(dtype, row_of(b, ldb, r, p), k - p), sum[r]);
    }
    CLV_UNROLL for (int r = 0; r < rows; r++) y[r] += vf_sum(sum[r]);
}

CLV_INLINE void row_transposed(clv_dtype dtype, float *y, const clv_gemm_args *g, int64_t j, int64_t n)
{
    int64_t i = 0;
    for (; n - i >= AT_ONCE; i += AT_ONCE)
        dot_rows(dtype, y + i, g->a, row_of(g->b, g->ldb, j + i, 0), g->ldb, AT_ONCE, g->k);
    for (; i < n; i++)
        dot_rows(dtype, y + i, g->a, row_of(g->b, g->ldb, j + i, 0), g->ldb, 1, g->k);
}

CLV_INLINE void row_as(clv_dtype dtype, float *y, const clv_gemm_args *g, int64_t j, int64_t n)
{
    if (g->trans_b)
        row_transposed(dtype, y, g, j, n);
    else
        row_plain(dtype, y, g, g->trans_a ? g->lda : 1, j, n);
}

void CLV_ISA_NAME(clv_gemm_row)(const clv_gemm_args *g, int64_t j)
{
    float y[CLV_GEMM_ROW_BLOCK];
    int64_t n = g->n - j < CLV_GEMM_ROW_BLOCK ? g->n - j : CLV_GEMM_ROW_BLOCK;
    char *c = (char *)g->c + (size_t)j * clv_dtype_size(g->c_dtype);

    if (g->accumulate)
        rows_load(g->c_dtype, y, n, c, n, 1, n, 1.0f);
    else
        memset(y, 0, sizeof y);
    if (g->dtype == CLV_BF16)
        row_as(CLV_BF16, y, g, j, n);
    else
        row_as(CLV_F16, y, g, j, n);
    rows_store(g->c_dtype, c, n, y, n, 1, n, 1.0f);
}
