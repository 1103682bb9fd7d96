/* optimizer_kernel.h - optimizer updates of a flat run of parameters: AdamW, SGD with momentum, Lion.
 *
 *   adamw:  g = grad * grad_scale;   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
 *           p = p (1 - lr weight_decay) - lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)
 *   sgd:    m = momentum m + (g + weight_decay p);   p = p - lr m
 *   lion:   p = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g);   m = beta2 m + (1 - beta2) g
 *
 * Sources: Loshchilov & Hutter 2019, arXiv:1711.05101, as torch.optim.AdamW (eps is outside the root, after bias
 * correction); torch.optim.SGD with dampening 0; Chen et al. 2023, arXiv:2302.06675. sign(0) is 0, sign(NaN) NaN.
 * Elements are independent: any split. Traffic in f32: 28 bytes an element for adamw, 20 for the others.
 */
#pragma once

#include "cleave/dtype.h"

typedef struct clv_adamw_args {
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step;      /* number of this update, from 1 */
    double grad_scale; /* factor of the gradient (clipping) */
} clv_adamw_args;

typedef struct clv_sgd_args {
    double lr, momentum, weight_decay, grad_scale;
} clv_sgd_args;

typedef struct clv_lion_args {
    double lr, beta1, beta2, weight_decay, grad_scale;
} clv_lion_args;

/* p [n] of p_dtype, grad [n] of grad_dtype; m, v [n] are f32 (f64 if p is f64). If p is bf16 or f16, master [n], f32,
 * is updated, and p becomes its rounding; else master is NULL. All disjoint. */
void clv_adamw_step(const clv_adamw_args *adamw, clv_dtype p_dtype, void *p, float *master, void *m, void *v,
                    clv_dtype grad_dtype, const void *grad, int64_t n);
/* p and m [n] are both f32 or both f64, grad [n] of grad_dtype. All disjoint. */
void clv_sgd_step(const clv_sgd_args *sgd, clv_dtype p_dtype, void *p, void *m, clv_dtype grad_dtype, const void *grad,
                  int64_t n);
void clv_lion_step(const clv_lion_args *lion, clv_dtype p_dtype, void *p, void *m, clv_dtype grad_dtype,
                   const void *grad, int64_t n);
