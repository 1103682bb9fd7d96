/* expert_dispatch_kernel.h - tokens copied to the places of their experts, and back (Lepikhin et al. 2020, GShard,
 * arXiv:2006.16668).
 *
 *   place [groups, rows, top_k]: expert * capacity + position of a row's copy among those of its expert; experts *
 *         capacity: the copy is dropped
 *   dispatch: out[g,e,c] = weight * x[g,r] for the copy (r, j) of that place; 0 where there is none
 *   combine:  out[g,r] = sum over j of weight[g,r,j] * y[g, place[g,r,j]]
 *   dot:      out[g,r,j] = sum over m of d[g,r,m] * y[g, place[g,r,j], m]
 *
 * Numerics: sums in f32 (f64 for f64), in the order of j and m, rounded once.
 * Sharding: groups, width, experts first .. first + n_experts - 1; of x and out also rows.
 */
#pragma once

#include "cleave/dtype.h"

/* Places of groups * rows * top_k choices of all experts, in the order of rows, then choices: the first come. */
void clv_assign_expert_places(int32_t *place, const int32_t *ids, int64_t groups, int64_t rows, int64_t top_k,
                              int64_t experts, int64_t capacity);

typedef struct clv_dispatch_args {
    int64_t groups, rows, top_k, width;
    int64_t first, n_experts, capacity; /* the experts of this rank */
    clv_dtype dtype;                    /* of rows and of what is at places */
    clv_dtype weights_dtype;
    const int32_t *place; /* [groups, rows, top_k] */
    const void *weights;  /* [groups, rows, top_k]; NULL: 1 */
} clv_dispatch_args;

/* x [groups, rows, width] -> out [groups, n_experts, capacity, width] */
void clv_dispatch_rows(const clv_dispatch_args *args, void *out, const void *x);
/* y [groups, n_experts, capacity, width] -> out [groups, rows, width] */
void clv_combine_rows(const clv_dispatch_args *args, void *out, const void *y);
/* d [groups, rows, width], y as of combine -> out [groups, rows, top_k] of weights_dtype */
void clv_dot_rows(const clv_dispatch_args *args, void *out, const void *d, const void *y);
