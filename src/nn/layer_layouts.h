/* layer_layouts.h - layouts of layers' weights and activations by logical axis names; KV-head sharding; f, f*, g, g. */
#ifndef CLEAVE_NN_LAYER_LAYOUTS_H
#define CLEAVE_NN_LAYER_LAYOUTS_H

#include "cleave/nn.h"
#include "nn/logical_axis.h"

/* "name.part", in the graph's arena. */
const char *clv_nn_parameter_name(clv_graph *graph, const char *name, const char *part);

/* An activation of `rows` leading dimensions [batch, ..., seq] (one alone is both) and n more with these names. */
clv_layout clv_nn_activation(clv_graph *graph, const clv_axis_rules *rules, int rows, int n,
                             const clv_logical_axis *names);

/* Cuts dimension d of a tensor of heads, laid out by rules over T ranks, so that no rank needs a KV head that it lacks:
 * when T <= kv_heads (or every query head has its own) queries are cut by KV groups, along with keys and values; else
 * queries over all T, keys and values gcd(T, kv_heads) ways, replicated over the rest. */
void clv_nn_shard_query_heads(clv_graph *graph, clv_layout *layout, int d, int64_t heads, int64_t kv_heads);
void clv_nn_shard_kv_heads(clv_graph *graph, clv_layout *layout, int d, int64_t heads, int64_t kv_heads);

/* Products are split by dimensions of these names of a weight; over the others a weight may be gathered. */
bool clv_nn_is_tensor_parallel_axis(clv_logical_axis name);
/* States that `state`, laid out so by names, never moves over the axes that products are split by. */
void clv_nn_pin(clv_graph *graph, clv_value state, const clv_layout *layout, const clv_logical_axis *names);
/* Says of a value, whose layout is by rules, what it is (NULL: it goes by its own name) and what its dimensions are. */
void clv_nn_annotate(clv_graph *graph, clv_value value, const clv_axis_rules *rules, const char *what,
                     const clv_logical_axis *names);
/* The same of an activation: rows, then n dimensions of these names. */
void clv_nn_annotate_activation(clv_graph *graph, clv_value value, const clv_axis_rules *rules, const char *what, int n,
                                const clv_logical_axis *names);
/* States the layout of an activation, and says so. */
clv_value clv_nn_constrain(clv_graph *graph, clv_value x, const clv_layout *layout, const clv_axis_rules *rules,
                           const char *what, int n, const clv_logical_axis *names);

/* Parameters: state laid out by the names of its dimensions, or as `layout` says. */
clv_value clv_nn_parameter(clv_graph *graph, const clv_axis_rules *rules, const char *name, clv_dtype dtype, int rank,
                           const int64_t *shape, const clv_logical_axis *names, const clv_layout *layout,
                           clv_init init);
/* A weight: state that products come to, so that it never moves over the axes that products are split by. layout NULL:
 * by the names. */
clv_value clv_nn_weight(clv_graph *graph, const clv_axis_rules *rules, const char *name, clv_dtype dtype, int rank,
                        const int64_t *shape, const clv_logical_axis *names, const clv_layout *layout, clv_init init);

/* x brought into a product whose result is split by `out` (f, or g from sequence-parallel): rows as the result will
 * have them, features whole unless the weight is split alike over the contracted dimension. */
clv_value clv_nn_enter_parallel_region(clv_graph *graph, clv_value x, const clv_axis_rules *rules,
                                       clv_logical_axis out);
/* x brought out of it: to the residual layout (f*, or g*). */
clv_value clv_nn_leave_parallel_region(clv_graph *graph, clv_value x, const clv_axis_rules *rules);

/* "bsm,mhd->bshd" for x with `rows` leading dimensions: letters a, b, ...; in and out are the letters of x's and the
 * result's trailing dimensions. */
clv_value clv_nn_product(clv_graph *graph, clv_value x, clv_value weight, const char *in, const char *kernel,
                         const char *out);

#endif
