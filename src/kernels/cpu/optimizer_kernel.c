/* optimizer_kernel.c - AdamW, SGD with momentum and Lion update kernels. */
#include "kernels/cpu/optimizer_kernel.h"

#include <assert.h>
#include <math.h>

#include "kernels/cpu/f32_blocks.h"

/* ---- the references: one element, in f64 ---- */

static double sign_of(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x; /* zero, or NaN */
}

static void adamw_element(const void *args, double *p, double *m, double *v, double grad)
{
    const clv_adamw_args *a = args;
    double g = grad * a->grad_scale;
    *m = a->beta1 * *m + (1 - a->beta1) * g;
    *v = a->beta2 * *v + (1 - a->beta2) * g * g;
    double m_hat = *m / (1 - pow(a->beta1, (double)a->step)), v_hat = *v / (1 - pow(a->beta2, (double)a->step));
    *p = *p * (1 - a->lr * a->weight_decay) - a->lr * m_hat / (sqrt(v_hat) + a->eps);
}

static void sgd_element(const void *args, double *p, double *m, double *v, double grad)
{
    const clv_sgd_args *a = args;
    *m = a->momentum * *m + (grad * a->grad_scale + a->weight_decay * *p);
    *p -= a->lr * *m;
}

static void lion_element(const void *args, double *p, double *m, double *v, double grad)
{
    const clv_lion_args *a = args;
    double g = grad * a->grad_scale, sign = sign_of(a->beta1 * *m + (1 - a->beta1) * g);
    *p = *p * (1 - a->lr * a->weight_decay) - a->lr * sign;
    *m = a->beta2 * *m + (1 - a->beta2) * g;
}

/* ---- blocks in f32 ---- */

static void adamw_block(const void *factors, float *p, float *m, float *v, const float *grad, int64_t n)
{
    clv_simd_optimizer_dropout_rope()->adamw(p, m, v, grad, *(const clv_adamw_factors *)factors, n);
}

static void sgd_block(const void *factors, float *p, float *m, float *v, const float *grad, int64_t n)
{
    clv_simd_optimizer_dropout_rope()->sgd(p, m, grad, *(const clv_sgd_factors *)factors, n);
}

static void lion_block(const void *factors, float *p, float *m, float *v, const float *grad, int64_t n)
{
    clv_simd_optimizer_dropout_rope()->lion(p, m, grad, *(const clv_lion_factors *)factors, n);
}

/* An optimizer: its update of an element in f64, and of n elements in f32. v is NULL if it has one moment. */
typedef struct optimizer {
    void (*element)(const void *args, double *p, double *m, double *v, double grad);
    const void *args;
    void (*block)(const void *factors, float *p, float *m, float *v, const float *grad, int64_t n);
    const void *factors;
} optimizer;

static void step(const optimizer *o, clv_dtype p_dtype, void *p, float *master, void *m, void *v, clv_dtype grad_dtype,
                 const void *grad, int64_t n)
{
    assert(p_dtype == CLV_F64 || (clv_computes_in_f32(grad_dtype) && (master == NULL) == (p_dtype == CLV_F32)));
    if (p_dtype == CLV_F64) {
        CLV_PARALLEL_FOR(n)
        for (int64_t i = 0; i < n; i++)
            o->element(o->args, (double *)p + i, (double *)m + i, v ? (double *)v + i : NULL,
                       clv_dtype_load(grad_dtype, grad, i));
        return;
    }
    CLV_PARALLEL_FOR(n)
    for (int64_t block = 0; block < clv_ceil_div(n, CLV_BLOCK); block++) {
        clv_scratch scratch;
        const clv_elementwise_loops *math = clv_simd_elementwise();
        int64_t i = block * CLV_BLOCK, count = clv_min_i64(CLV_BLOCK, n - i);
        float *p32 = (master ? master : (float *)p) + i;
        o->block(o->factors, p32, (float *)m + i, v ? (float *)v + i : NULL,
                 clv_block_load(math, grad_dtype, grad, i, count, scratch), count);
        clv_block_store(math, p_dtype, p, i, count, p32);
    }
}

void clv_adamw_step(const clv_adamw_args *a, clv_dtype p_dtype, void *p, float *master, void *m, void *v,
                    clv_dtype grad_dtype, const void *grad, int64_t n)
{
    const clv_adamw_factors factors = {
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
    assert(a->step >= 1);
    step(&(optimizer){adamw_element, a, adamw_block, &factors}, p_dtype, p, master, m, v, grad_dtype, grad, n);
}

void clv_sgd_step(const clv_sgd_args *a, clv_dtype p_dtype, void *p, void *m, clv_dtype grad_dtype, const void *grad,
                  int64_t n)
{
    const clv_sgd_factors factors = {(float)a->lr, (float)a->momentum, (float)a->weight_decay, (float)a->grad_scale};
    step(&(optimizer){sgd_element, a, sgd_block, &factors}, p_dtype, p, NULL, m, NULL, grad_dtype, grad, n);
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
    step(&(optimizer){lion_element, a, lion_block, &factors}, p_dtype, p, NULL, m, NULL, grad_dtype, grad, n);
}
