/* adamw_kernel.c - AdamW update kernel, and sum of squares for clipping. */
#include "kernels/cpu/adamw_kernel.h"

#include <assert.h>
#include <math.h>

#include "kernels/cpu/f32_blocks.h"

/* The reference: one element, in f64. */
static void adamw_element(const clv_adamw_args *a, double *p, double *m, double *v, double grad)
{
    double g = grad * a->grad_scale;
    *m = a->beta1 * *m + (1 - a->beta1) * g;
    *v = a->beta2 * *v + (1 - a->beta2) * g * g;
    double m_hat = *m / (1 - pow(a->beta1, (double)a->step)), v_hat = *v / (1 - pow(a->beta2, (double)a->step));
    *p = *p * (1 - a->lr * a->weight_decay) - a->lr * m_hat / (sqrt(v_hat) + a->eps);
}

static clv_adamw_factors factors_of(const clv_adamw_args *a)
{
    return (clv_adamw_factors){
        .beta1 = (float)a->beta1,
        .beta2 = (float)a->beta2,
        .one_minus_beta1 = (float)(1 - a->beta1),
        .one_minus_beta2 = (float)(1 - a->beta2),
        .grad_scale = (float)a->grad_scale,
        .decay = (float)(1 - a->lr * a->weight_decay),
        .step_size = (float)(a->lr / (1 - pow(a->beta1, (double)a->step))),
        .root_bias = (float)sqrt(1 - pow(a->beta2, (double)a->step)),
        .eps = (float)a->eps,
    };
}

static void adamw_f64(const clv_adamw_args *a, double *p, double *m, double *v, clv_dtype grad_dtype, const void *grad,
                      int64_t n)
{
    CLV_PARALLEL_FOR(n)
    for (int64_t i = 0; i < n; i++)
        adamw_element(a, p + i, m + i, v + i, clv_dtype_load(grad_dtype, grad, i));
}

static void adamw_block(clv_adamw_factors factors, clv_dtype p_dtype, void *p, float *master, float *m, float *v,
                        clv_dtype grad_dtype, const void *grad, int64_t i, int64_t n)
{
    clv_scratch p_block, grad_block;
    const clv_elementwise_loops *math = clv_simd_elementwise();
    const float *grad32 = clv_block_load(math, grad_dtype, grad, i, n, grad_block);
    float *p32 = p_block;
    if (p_dtype == CLV_F32)
        p32 = (float *)p + i;
    else if (master != NULL)
        p32 = master + i;
    else
        (void)clv_block_load(math, p_dtype, p, i, n, p_block);
    clv_simd_updates()->adamw(p32, m + i, v + i, grad32, factors, n);
    clv_block_store(math, p_dtype, p, i, n, p32);
}

void clv_adamw_step(const clv_adamw_args *adamw, clv_dtype p_dtype, void *p, float *master, void *m, void *v,
                    clv_dtype grad_dtype, const void *grad, int64_t n)
{
    assert(adamw->step >= 1 && clv_dtype_is_float(p_dtype));
    if (p_dtype == CLV_F64) {
        adamw_f64(adamw, p, m, v, grad_dtype, grad, n);
        return;
    }
    assert(clv_computes_in_f32(grad_dtype) && (master == NULL || p_dtype != CLV_F32));
    clv_adamw_factors factors = factors_of(adamw);
    CLV_PARALLEL_FOR(n)
    for (int64_t block = 0; block < clv_ceil_div(n, CLV_BLOCK); block++)
        adamw_block(factors, p_dtype, p, master, m, v, grad_dtype, grad, block * CLV_BLOCK,
                    clv_min_i64(CLV_BLOCK, n - block * CLV_BLOCK));
}

/* Of elements [first, end), block by block. What lies behind is asked of memory early: by itself it gives one reader
 * half of what it has. */
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
    enum { PARTS = 64 }; /* of the order, whatever the threads */
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
