/* gemm.c - matrix product front end: checks and dispatch by dtype and shape; f64 product and reference. */
#include "kernels/cpu/gemm/gemm.h"

#include <string.h>

#include "base/error.h"
#include "kernels/cpu/cpu_tuning.h"
#include "kernels/cpu/f32_blocks.h"
#include "kernels/cpu/gemm/gemm_kernels.h"
#include "kernels/cpu/isa_dispatch.h"
#include "kernels/cpu/openmp.h"

enum { BLOCK = 64 /* rows and columns of a block of the f64 product */ };

static const void *at(const void *p, int64_t elems, clv_dtype dtype)
{
    return (const char *)p + (size_t)elems * clv_dtype_size(dtype);
}

static void *at_c(const clv_gemm_args *g, int64_t elems)
{
    return (char *)g->c + (size_t)elems * clv_dtype_size(g->c_dtype);
}

/* Product i of the batch. */
static clv_gemm_args single(const clv_gemm_args *g, int64_t i)
{
    clv_gemm_args one = *g;
    one.a = at(g->a, i * g->stride_a, g->dtype);
    one.b = at(g->b, i * g->stride_b, g->dtype);
    one.c = at_c(g, i * g->stride_c);
    one.batch = 1;
    return one;
}

/* ----------------------------------------------------------------------------------------------------- f32 */

static _Atomic clv_gemm_f32_path f32_path = CLV_GEMM_F32_BEST;

void clv_gemm_set_f32_path_for_test(clv_gemm_f32_path path)
{
    f32_path = path;
}

static bool is_own_f32_best(void)
{
    clv_gemm_f32_path path = f32_path;
    return (path == CLV_GEMM_F32_BEST ? clv_cpu_tuning()->f32 : path) == CLV_GEMM_F32_OWN;
}

/* oneDNN does not take a prepacked B. */
static bool takes_own_f32(const clv_gemm_args *g)
{
    return g->packed_b || is_own_f32_best();
}

static clv_status run_f32_single(const clv_gemm_args *g, clv_error *err)
{
    if (clv_gemm_try_skinny(g, 0))
        return CLV_OK;
    if (!takes_own_f32(g))
        return clv_onednn_sgemm(g, err);
    clv_gemm_f32(g);
    return CLV_OK;
}

/* Threads take whole products if the batch has at least as many products as there are threads; otherwise, or if the
 * workspace serves only one product at a time, all threads share each product. */
static clv_status run_f32(const clv_gemm_args *g, clv_error *err)
{
    const bool by_product = g->batch > 1 && g->batch >= clv_threads_max();
    if (!by_product || (takes_own_f32(g) && clv_gemm_workspace(g) > 0)) {
        for (int64_t i = 0; i < g->batch; i++) {
            clv_gemm_args one = single(g, i);
            CLV_TRY(run_f32_single(&one, err));
        }
        return CLV_OK;
    }
    int failures = 0;
#pragma omp parallel for schedule(static) reduction(+ : failures)
    for (int64_t i = 0; i < g->batch; i++) {
        clv_gemm_args one = single(g, i);
        one.work = (clv_task_pool_member){0}; /* a rank has only one, for all threads */
        failures += run_f32_single(&one, NULL) != CLV_OK;
    }
    return failures ? clv_fail(err, CLV_ENOMEM, "oneDNN: %d of a batch of products failed", failures) : CLV_OK;
}

clv_status clv_gemm_jit_compile(clv_error *err)
{
    return is_own_f32_best() ? CLV_OK : clv_onednn_jit_compile(err);
}

/* ----------------------------------------------------------------------------------------------------- f64 */

/* One block of C, at most BLOCK x BLOCK; sums run over k in ascending order. */
static void f64_block(const clv_gemm_args *g, int64_t i0, int64_t j0)
{
    const double *a = g->a, *b = g->b;
    double *c = g->c;
    double part[BLOCK][BLOCK]; /* of op(B) */
    int64_t i1 = clv_min_i64(i0 + BLOCK, g->m), n = clv_min_i64(BLOCK, g->n - j0);

    for (int64_t i = i0; i < i1 && !g->accumulate; i++)
        memset(c + i * g->ldc + j0, 0, (size_t)n * sizeof *c);
    for (int64_t p0 = 0; p0 < g->k; p0 += BLOCK) {
        int64_t k = clv_min_i64(BLOCK, g->k - p0);
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++)
                part[p][j] = g->trans_b ? b[(j0 + j) * g->ldb + p0 + p] : b[(p0 + p) * g->ldb + j0 + j];
        for (int64_t i = i0; i < i1; i++) {
            double *row = c + i * g->ldc + j0;
            for (int64_t p = 0; p < k; p++) {
                double x = g->trans_a ? a[(p0 + p) * g->lda + i] : a[i * g->lda + p0 + p];
                for (int64_t j = 0; j < n; j++)
                    row[j] += x * part[p][j];
            }
        }
    }
}

static clv_status run_f64(const clv_gemm_args *g, clv_error *err)
{
    int64_t down = (g->m + BLOCK - 1) / BLOCK, across = (g->n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static)
    for (int64_t t = 0; t < g->batch * down * across; t++) {
        clv_gemm_args one = single(g, t / (down * across));
        f64_block(&one, t / across % down * BLOCK, t % across * BLOCK);
    }
    return CLV_OK;
}

/* -------------------------------------------------------------------------------------------- bf16 and f16 */

static _Atomic clv_gemm_half_path half_path = CLV_GEMM_HALF_BEST;

void clv_gemm_set_half_path_for_test(clv_gemm_half_path path)
{
    half_path = path;
}

bool clv_gemm_has_half_path(clv_gemm_half_path path)
{
    const bool amx = clv_cpu_isa() == CLV_ISA_AMX;
    if (path == CLV_GEMM_HALF_VDP)
        return amx || (clv_cpu_isa() == CLV_ISA_AVX512 && clv_cpu_has_avx512_bf16());
    return path != CLV_GEMM_HALF_AMX || amx;
}

static void run_half_single(const clv_gemm_args *g)
{
    clv_gemm_half_path path = half_path == CLV_GEMM_HALF_BEST ? clv_cpu_tuning()->bf16 : half_path;

    if (half_path == CLV_GEMM_HALF_BEST && clv_gemm_try_skinny(g, clv_gemm_workspace(g)))
        return;
    if (g->dtype != CLV_BF16 || g->packed_b)
        path = CLV_GEMM_HALF_F32;
#if defined(__x86_64__)
    if (path == CLV_GEMM_HALF_AMX)
        clv_gemm_amx(g);
    else if (path == CLV_GEMM_HALF_VDP)
        clv_gemm_avx512_bf16(g);
    else
#endif
        clv_gemm_f32(g);
}

static clv_status run_half(const clv_gemm_args *g, clv_error *err)
{
    for (int64_t i = 0; i < g->batch; i++) {
        clv_gemm_args one = single(g, i);
        run_half_single(&one);
    }
    return CLV_OK;
}

/* ----------------------------------------------------------------------------------------------- clv_gemm */

static const struct product_row {
    clv_dtype dtype, c_dtype;
    clv_status (*run)(const clv_gemm_args *, clv_error *);
} products[] = {
    {CLV_F32, CLV_F32, run_f32},  {CLV_BF16, CLV_BF16, run_half}, {CLV_BF16, CLV_F32, run_half},
    {CLV_F16, CLV_F16, run_half}, {CLV_F16, CLV_F32, run_half},   {CLV_F64, CLV_F64, run_f64},
};

size_t clv_gemm_workspace(const clv_gemm_args *g)
{
    if (g->dtype == CLV_BF16 || g->dtype == CLV_F16)
        return CLV_GEMM_MOST_WORKSPACE;
    return g->dtype == CLV_F32 ? clv_gemm_f32_workspace(g) : 0;
}

static clv_status check(const clv_gemm_args *g, clv_error *err)
{
    if (g->m < 0 || g->n < 0 || g->k < 0 || g->batch < 0)
        return clv_fail(err, CLV_EINVAL, "product: an extent is negative (m %lld, n %lld, k %lld, batch %lld)",
                        (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->batch);
    if (g->m == 0 || g->n == 0 || g->batch == 0)
        return CLV_OK;
    if (g->ldc < g->n)
        return clv_fail(err, CLV_EINVAL, "product: ldc %lld is less than a row of c, %lld", (long long)g->ldc,
                        (long long)g->n);
    if (g->k == 0)
        return CLV_OK;
    if (g->packed_b && (g->trans_b || g->n % CLV_PANEL_COLUMNS != 0 || g->dtype == CLV_F64))
        return clv_fail(
            err, CLV_EINVAL,
            "product: b is packed, %stransposed, of %lld columns of %s; valid: not transposed, a multiple of "
            "%d, f32, bf16 or f16",
            g->trans_b ? "" : "not ", (long long)g->n, clv_dtype_name(g->dtype), CLV_PANEL_COLUMNS);
    int64_t a_row = g->trans_a ? g->m : g->k, b_row = g->packed_b ? 0 : g->trans_b ? g->k : g->n;
    if (g->lda < a_row || g->ldb < b_row)
        return clv_fail(err, CLV_EINVAL, "product: lda %lld, ldb %lld are less than a row of a, %lld, or of b, %lld",
                        (long long)g->lda, (long long)g->ldb, (long long)a_row, (long long)b_row);
    if (clv_gemm_workspace(g) > 0 && !g->workspace)
        return clv_fail(err, CLV_EINVAL, "product: needs a workspace of %zu bytes", clv_gemm_workspace(g));
    return CLV_OK;
}

/* C = 0, for k = 0. */
static void clear(const clv_gemm_args *g)
{
    for (int64_t i = 0; i < g->batch * g->m; i++)
        memset(at_c(g, i / g->m * g->stride_c + i % g->m * g->ldc), 0, (size_t)g->n * clv_dtype_size(g->c_dtype));
}

clv_status clv_gemm(const clv_gemm_args *g, clv_error *err)
{
    const struct product_row *row = NULL;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (products[i].dtype == g->dtype && products[i].c_dtype == g->c_dtype)
            row = &products[i];
    if (!row)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "product of %s into %s: f32, f64, bf16 and f16 are multiplied, into the same, or f32",
                        clv_dtype_name(g->dtype), clv_dtype_name(g->c_dtype));
    CLV_TRY(check(g, err));
    if (g->m == 0 || g->n == 0 || g->batch == 0)
        return CLV_OK;
    if (g->k > 0)
        return row->run(g, err);
    if (!g->accumulate)
        clear(g);
    return CLV_OK;
}
