/* layer_layouts.h - layouts of layers' weights and activations by logical axis names; KV-head sharding; f, f*, g, g*.
 */
#pragma once

#include "cleave/nn.h"
#include "nn/axis_rules.h"

/* Returns "name.part", in the graph's arena. */
const char *clv_nn_parameter_name(clv_graph *graph, const char *name, const char *part);

/* Dimensions, names and layout of a tensor under construction; clv_nn_append_dim adds one at the end. */
typedef struct clv_nn_shape {
    int rank;
    int64_t shape[CLV_MAX_RANK];
    clv_logical_axis names[CLV_MAX_RANK];
    clv_layout layout; /* begin with clv_layout_replicated(final rank) */
} clv_nn_shape;

/* Appends a dimension. from: the layout whose dimension d is split alike, NULL: not split. divisor: elements of that
 * dimension per element of this one. */
void clv_nn_append_dim(clv_graph *graph, clv_nn_shape *to, int64_t extent, clv_logical_axis name,
                       const clv_layout *from, int d, int64_t divisor);

/* Splits dimension d by the same axes, at multiples of `alignment` elements. */
void clv_nn_align_dim(clv_graph *graph, clv_layout *layout, int d, int64_t alignment);

/* Returns the layout of an activation: `rows` leading dimensions [batch, ..., seq] (a single one is both), then n
 * dimensions with these names. */
clv_layout clv_nn_activation_layout(clv_graph *graph, const clv_axis_rules *rules, int rows, int n,
                                    const clv_logical_axis *names);

/* Aligns the split of a head dimension d, so that each rank has the KV heads that its query heads need. For T blocks:
 * if T <= kv_heads, queries are split by whole groups, like keys and values; if T > kv_heads, queries are split T ways,
 * and keys and values gcd(T, kv_heads) ways, replicated over the remaining ranks. */
void clv_nn_shard_query_heads(clv_graph *graph, clv_layout *layout, int d, int64_t heads, int64_t kv_heads);
void clv_nn_shard_kv_heads(clv_graph *graph, clv_layout *layout, int d, int64_t heads, int64_t kv_heads);

/* Whether a weight's dimension of this name is split tensor-parallel: the weight is never moved over its mesh axes. */
bool clv_nn_is_tensor_parallel_axis(clv_logical_axis name);
/* Pins a value over the tensor-parallel axes of its layout (clv_keep_stationary). */
void clv_nn_keep_stationary(clv_graph *graph, clv_value value, const clv_layout *layout, const clv_logical_axis *names);

/* Pins dimension d, heads, of an activation: between its products, attention and its gradients stay split by heads.
 * Returns x. */
clv_value clv_nn_pin_heads(clv_graph *graph, clv_value x, const clv_axis_rules *rules, int d, clv_logical_axis name);

/* Attaches what explanations print: the rules' name, dimension names, and `what` it is (NULL: its own name). */
void clv_nn_annotate(clv_graph *graph, clv_value value, const clv_axis_rules *rules, const char *what,
                     const clv_logical_axis *names);
/* Annotates an activation: rows, then n dimensions with these names. */
void clv_nn_annotate_activation(clv_graph *graph, clv_value value, const clv_axis_rules *rules, const char *what, int n,
                                const clv_logical_axis *names);
/* Constrains an activation to a layout and annotates the result. */
clv_value clv_nn_constrain(clv_graph *graph, clv_value x, const clv_layout *layout, const clv_axis_rules *rules,
                           const char *what, int n, const clv_logical_axis *names);

/* Adds parameter state. layout NULL: by the names of its dimensions. */
clv_value clv_nn_parameter(clv_graph *graph, const clv_axis_rules *rules, const char *name, clv_dtype dtype, int rank,
                           const int64_t *shape, const clv_logical_axis *names, const clv_layout *layout,
                           clv_init init);
/* Adds a weight: a parameter pinned over its tensor-parallel axes. */
clv_value clv_nn_weight(clv_graph *graph, const clv_axis_rules *rules, const char *name, clv_dtype dtype, int rank,
                        const int64_t *shape, const clv_logical_axis *names, const clv_layout *layout, clv_init init);
/* y + a bias, initialised to 0, broadcast over the leading dimensions of y. layout NULL: by the names. */
clv_value clv_nn_add_bias(clv_graph *graph, clv_value y, const clv_axis_rules *rules, const char *name, int rank,
                          const int64_t *shape, const clv_logical_axis *names, const clv_layout *layout);

/* Brings x into a tensor-parallel region (f, or g with sequence parallelism) before a product whose result is split by
 * `out`: rows are laid out as in the result; features are whole, unless the weight's contracted dimension is split like
 * them. */
clv_value clv_nn_enter_parallel_region(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                       clv_logical_axis out);
/* Brings x [rows..., whole] to a region that two axes split: rows as in a tensor with dimensions of these names. */
clv_value clv_nn_enter_rows(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const clv_logical_axis names[2],
                            const char *what);
/* The same to experts, by the axes of `expert` and of `mlp`. */
clv_value clv_nn_enter_experts(clv_graph *graph, clv_value x, const clv_axis_rules *rules, const char *what);
/* Brings x out of a tensor-parallel region, to the residual layout (f*, or g*). */
clv_value clv_nn_leave_parallel_region(clv_graph *graph, clv_value x, const clv_axis_rules *rules);

/* Einsum of x and a weight. in, kernel, out: letters of x's trailing dimensions, of the weight and of the result's
 * trailing dimensions ("m", "mhd", "hd"); leading dimensions of x are rows. */
clv_value clv_nn_product(clv_graph *graph, clv_value x, clv_value weight, const char *in, const char *kernel,
                         const char *out);
