/* layouts.h - the layouts that layers state. */
#ifndef CLEAVE_NN_LAYOUTS_H
#define CLEAVE_NN_LAYOUTS_H

#include "cleave/nn.h"

/* A layout of `rank` dimensions with the tensor-parallel axis on dimension split (-1: none), in granules. */
clv_layout clv_nn_weight(clv_graph *graph, const clv_parallel *parallel, int rank, int split, int64_t granule);

/* Activations [batch..., last...]: the batch axis on dimension 0 (rank >= 2), the tensor-parallel axis on `split` (-1: none). */
clv_layout clv_nn_activation(clv_graph *graph, const clv_parallel *parallel, int rank, int split, int64_t granule);

/* How heads are cut: with T ranks, all together by KV groups when T <= kv_heads or every query head has its own; else
 * queries over all T and keys and values gcd(T, kv_heads) ways, replicated over the rest. */
typedef struct clv_head_cut {
    int n; /* sub-axes of the query cut: 0 or 1 */
    clv_subaxis query;
    int64_t query_granule; /* heads */
    int n_kv;
    clv_subaxis kv;
} clv_head_cut;
clv_head_cut clv_nn_head_cut(clv_graph *graph, const clv_parallel *parallel, int64_t heads, int64_t kv_heads);

/* Replaces the cut of dimension d. */
void clv_nn_cut(clv_graph *graph, clv_layout *layout, int d, const clv_subaxis *axes, int n, int64_t granule);

/* A weight: state that products come to, so that it never moves over the tensor-parallel axis. */
clv_value clv_nn_weight_state(clv_graph *graph, const clv_parallel *parallel, const char *name, clv_dtype dtype,
                              int rank, const int64_t *shape, const clv_layout *layout, clv_init init);

/* x brought into a tensor-parallel region: whole over the axis (f, or g from sequence-parallel). */
clv_value clv_nn_enter(clv_graph *graph, clv_value x, const clv_parallel *parallel);
/* x brought out of it: to the residual layout (f*, or g*). */
clv_value clv_nn_leave(clv_graph *graph, clv_value x, const clv_parallel *parallel);

/* "bsm,mhd->bshd" for x with `rows` leading dimensions: letters a, b, ...; in and out are the letters of x's and the
 * result's trailing dimensions. */
clv_value clv_nn_product(clv_graph *graph, clv_value x, clv_value weight, const char *in, const char *kernel,
                         const char *out);

#endif
