/* sgd_lion_kernel.h - optimizer updates with one moment: SGD with momentum, Lion.
 *
 *   sgd:    m = momentum m + (g + weight_decay p);   p = p - lr m
 *   lion:   p = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g);   m = beta2 m + (1 - beta2) g
 *
 * Source: torch.optim.SGD with dampening 0; Chen et al. 2023, arXiv:2302.06675. sign(0) is 0, sign(NaN) NaN. Elements
 * are independent: any split.
 * Traffic: f32: 20 bytes an element.
 */
#ifndef CLEAVE_KERNELS_CPU_SGD_LION_KERNEL_H
#define CLEAVE_KERNELS_CPU_SGD_LION_KERNEL_H

#include <stdint.h>

#include "cleave/dtype.h"

typedef struct clv_sgd_args {
    double lr, momentum, weight_decay, grad_scale;
} clv_sgd_args;

typedef struct clv_lion_args {
    double lr, beta1, beta2, weight_decay, grad_scale;
} clv_lion_args;

/* p and m [n] are both f32 or both f64, grad [n] of grad_dtype. All disjoint. */
void clv_sgd_step(const clv_sgd_args *sgd, clv_dtype p_dtype, void *p, void *m, clv_dtype grad_dtype, const void *grad,
                  int64_t n);
void clv_lion_step(const clv_lion_args *lion, clv_dtype p_dtype, void *p, void *m, clv_dtype grad_dtype,
                   const void *grad, int64_t n);

#endif
