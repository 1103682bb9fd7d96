/* sgd_lion_kernel.c - SGD with momentum and Lion update kernels. */
#include "kernels/cpu/sgd_lion_kernel.h"

#include <assert.h>

#include "kernels/cpu/f32_blocks.h"

static double sign_of(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x; /* x: zero, or NaN */
}

/* The references: one element, in f64. */
static void sgd_element(const void *args, double *p, double *m, double grad)
{
    const clv_sgd_args *a = args;
    *m = a->momentum * *m + (grad * a->grad_scale + a->weight_decay * *p);
    *p -= a->lr * *m;
}

static void lion_element(const void *args, double *p, double *m, double grad)
{
    const clv_lion_args *a = args;
    double g = grad * a->grad_scale, way = sign_of(a->beta1 * *m + (1 - a->beta1) * g);
    *p = *p * (1 - a->lr * a->weight_decay) - a->lr * way;
    *m = a->beta2 * *m + (1 - a->beta2) * g;
}

static void sgd_span(const void *factors, float *p, float *m, const float *grad, int64_t n)
{
    clv_simd_updates()->sgd(p, m, grad, *(const clv_sgd_factors *)factors, n);
}

static void lion_span(const void *factors, float *p, float *m, const float *grad, int64_t n)
{
    clv_simd_updates()->lion(p, m, grad, *(const clv_lion_factors *)factors, n);
}

/* An optimizer of one moment: an element in f64, and a span in f32. */
typedef struct rule {
    void (*element)(const void *args, double *p, double *m, double grad);
    const void *args;
    void (*span)(const void *factors, float *p, float *m, const float *grad, int64_t n);
    const void *factors;
} rule;

static void step(const rule *r, clv_dtype p_dtype, void *p, void *m, clv_dtype grad_dtype, const void *grad, int64_t n)
{
    assert(p_dtype == CLV_F32 || p_dtype == CLV_F64);
    if (p_dtype == CLV_F64) {
        CLV_PARALLEL_FOR(n)
        for (int64_t i = 0; i < n; i++)
            r->element(r->args, (double *)p + i, (double *)m + i, clv_dtype_load(grad_dtype, grad, i));
        return;
    }
    CLV_PARALLEL_FOR(n)
    for (int64_t block = 0; block < clv_ceil_div(n, CLV_BLOCK); block++) {
        clv_scratch scratch;
        int64_t i = block * CLV_BLOCK, count = clv_min_i64(CLV_BLOCK, n - i);
        const float *grad32 = clv_block_load(clv_simd_elementwise(), grad_dtype, grad, i, count, scratch);
        r->span(r->factors, (float *)p + i, (float *)m + i, grad32, count);
    }
}

void clv_sgd_step(const clv_sgd_args *a, clv_dtype p_dtype, void *p, void *m, clv_dtype grad_dtype, const void *grad,
                  int64_t n)
{
    const clv_sgd_factors factors = {(float)a->lr, (float)a->momentum, (float)a->weight_decay, (float)a->grad_scale};
    step(&(rule){sgd_element, a, sgd_span, &factors}, p_dtype, p, m, grad_dtype, grad, n);
}

void clv_lion_step(const clv_lion_args *a, clv_dtype p_dtype, void *p, void *m, clv_dtype grad_dtype, const void *grad,
                   int64_t n)
{
    const clv_lion_factors factors = {.lr = (float)a->lr,
                                      .beta1 = (float)a->beta1,
                                      .one_minus_beta1 = (float)(1 - a->beta1),
                                      .beta2 = (float)a->beta2,
                                      .one_minus_beta2 = (float)(1 - a->beta2),
                                      .decay = (float)(1 - a->lr * a->weight_decay),
                                      .grad_scale = (float)a->grad_scale};
    step(&(rule){lion_element, a, lion_span, &factors}, p_dtype, p, m, grad_dtype, grad, n);
}
