/* adamw_kernel.h - AdamW update of a flat run of parameters; sum of squares for the global norm.
 *
 *   g = grad * grad_scale
 *   m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
 *   p = p (1 - lr weight_decay) - lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)
 *
 * Source: Loshchilov & Hutter 2019, arXiv:1711.05101, as in torch.optim.AdamW: decay apart from the gradient, eps
 * outside the root, after bias correction. Elements are independent: any split.
 * Traffic: f32: 28 bytes an element.
 */
#ifndef CLEAVE_KERNELS_CPU_ADAMW_KERNEL_H
#define CLEAVE_KERNELS_CPU_ADAMW_KERNEL_H

#include <stdint.h>

#include "cleave/dtype.h"

typedef struct clv_adamw_args {
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step;      /* of this update: 1 for the first     */
    double grad_scale; /* 1, or what clipping and means ask   */
} clv_adamw_args;

/* p [n] of p_dtype, grad [n] of grad_dtype. m, v [n] are f32 (f64 when p is f64). master [n], f32, holds the parameter
 * when p is bf16 or f16 (p becomes its rounding); NULL updates p itself. All disjoint. */
void clv_adamw_step(const clv_adamw_args *adamw, clv_dtype p_dtype, void *p, float *master, void *m, void *v,
                    clv_dtype grad_dtype, const void *grad, int64_t n);

/* sum of squares of n elements, in f64 and in an order that depends on n alone: for clipping by the global norm. */
double clv_sum_squares(clv_dtype dtype, const void *x, int64_t n);

#endif
