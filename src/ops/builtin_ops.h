/* builtin_ops.h - list of the built-in ops, their internal builders, gradients with options, and what the file of an op
 * includes. */
#pragma once

#include <string.h>

#include "base/error.h"
#include "graph/graph.h"
#include "kernels/cpu/elementwise_kernel.h"
#include "ops/operand_checks.h"

/* X(name) of every op that graphs may have; clv_op_<name> is its definition. */
// clang-format off
#define CLV_BUILTIN_OPS(X) \
    X(constraint) X(cotangent_constraint) X(dot_general) \
    X(map) X(map_gradient) X(combine) X(choice_gradient) X(where) X(cast) X(fill) X(iota) \
    X(bias_gelu) X(bias_gelu_gradient) X(gated) X(gated_gradient) X(reduce) X(broadcast) X(equal) \
    X(reshape) X(transpose) X(slice) X(pad) X(concat) \
    X(moments) X(normalize) X(normalize_sums) X(normalize_dx) X(normalize_dgain) X(normalize_dweights) \
    X(embedding) X(embedding_gradient) X(attention) X(attention_gradient) X(rope) X(rotate) X(cache_update) \
    X(softmax) X(softmax_gradient) X(xent_max) X(xent_sums) X(xent_loss) X(xent_loss_gradient) X(xent_gradient) \
    X(count_labels) X(dropout) X(zigzag) X(sum_squares) X(clip_scale) X(adamw) X(adamw_rounded) X(sgd) X(lion) \
    X(quant_dot) X(packed_dot) \
    X(router) X(router_gradient) X(experts) X(experts_gradient) X(quant_experts) \
    X(expert_places) X(expert_dispatch) X(expert_combine) X(expert_weights_gradient) \
    X(pointwise) X(fold) X(sort) X(cumulative) X(dynamic_slice) X(dynamic_update_slice) X(gather) X(scatter) \
    X(permute)
// clang-format on

#define CLV_DECLARE_OP(name) extern const clv_op_def clv_op_##name;
CLV_BUILTIN_OPS(CLV_DECLARE_OP)
#undef CLV_DECLARE_OP

/* 8-bit compression for collectives (wire_quantize.c): only lowering adds these, to programs. */
extern const clv_op_def clv_op_wire_quantize;
extern const clv_op_def clv_op_wire_dequantize;
typedef struct clv_wire_quantize_attrs {
    int64_t size, alignment; /* of the last dimension, in f32 elements */
    int64_t pieces;          /* parts of the last dimension; each becomes one record */
} clv_wire_quantize_attrs;
/* Bytes of a record. */
int64_t clv_wire_record_bytes(const clv_wire_quantize_attrs *attrs);

enum { CLV_PERMUTE_MOST = 1024 /* elements */, CLV_PERMUTE_TEXT = 512 };

typedef struct clv_permute_attrs {
    int dim;
    char from[CLV_PERMUTE_TEXT]; /* of each element of the dimension the one that it gets: clv_permute_sources */
} clv_permute_attrs;
/* The n sources of a permute, -1: zeros; false if the text is none of n elements. */
bool clv_permute_sources(int *out, int64_t n, const char *from);
/* Element i of dimension dim becomes element sources[i] of x, each at most once; 0 where that is negative. */
clv_value clv_permute(clv_graph *graph, clv_value x, int dim, const int *sources);

/* Attributes of a cast, for passes that add casts to programs. memset them to 0 first. */
typedef struct clv_cast_attrs {
    clv_dtype dtype;
} clv_cast_attrs;

/* The kernel code of a unary function. */
clv_unary_op clv_unary_op_of_kind(clv_unary_kind kind);
/* Whether the kind is an activation of clv_gated and clv_experts; else the graph fails with those that are. */
bool clv_graph_require_gated_activation(clv_graph *graph, const char *what, int kind);
/* Gradient of broadcasting: sums x back to the shape `like` that an operand had before it was broadcast. */
clv_value clv_graph_unbroadcast(clv_graph *graph, clv_value x, clv_type like);

/* The gradient of an embedding: rows of d_out [..., M] added up by ids (i32 or i64) [...], in [vocabulary, M]. An id
 * outside [0, vocabulary) is left out. */
clv_value clv_embedding_gradient(clv_graph *graph, int64_t vocabulary, clv_value d_out, clv_value ids);
/* clv_cache_update of a cache of so many positions in parts, [parts B,...]: offset is from the begin of each part, and
 * rows that are not in the part are passed over. */
clv_value clv_cache_update_parts(clv_graph *graph, clv_value cache, clv_value rows, clv_value offset, int64_t parts,
                                 int64_t positions);
/* Tokens, or a mask of them, [B,S] in the order of the graph's rows of sequences (clv_graph.zigzag). */
clv_value clv_tokens_in_row_order(clv_graph *graph, clv_value x);
/* clv_iota of the positions of n rows in that order. */
clv_value clv_positions_in_row_order(clv_graph *graph, int64_t n, clv_value offset);
/* x [row..., in...] times quantized weights, contracting n_in dimensions (stored_weight_dot.c has the shapes). */
clv_value clv_quantized_dot(clv_graph *graph, clv_quant quant, clv_value x, clv_value ints, clv_value scales, int n_in);
/* clv_experts by quantized weights, each its integers and scales (experts.c has the shapes). */
clv_value clv_quantized_experts(clv_graph *graph, clv_quant quant, clv_value x, clv_value ids, clv_value weights,
                                const clv_value gate_up[2], const clv_value down[2], clv_unary_kind activation);
/* x [row..., in...] times prepacked weights, contracting n_in dimensions (stored_weight_dot.c has the shape). */
clv_value clv_prepacked_dot(clv_graph *graph, clv_value x, clv_value weights, int n_in);

/* clv_rotate, or its transpose (rotate.c). */
clv_value clv_rotate_as(clv_graph *graph, clv_value x, clv_value cos, clv_value sin, bool interleaved, bool transposed);
/* The rotation of pair i, of how->dims / 2 > 0, in radians per position, from theta and scaling (not inv_freq). */
double clv_rope_inv_freq(const clv_rope_options *how, int64_t i);
/* The same of a rope op, by its options or its inv_freq. */
double clv_rope_frequency_of(const clv_op *op, int64_t i);

/* clv_gradients. f32: gradients of 16-bit parameters are f32, from the op on that computes them, so that no sum of
 * theirs is rounded. */
void clv_gradients_widened(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n, bool f32,
                           clv_value *out);
/* Adds the gradients of n states to sums[n] (CLV_NONE: no sum yet), in f32 for 16-bit states too. shards[n]: the layout
 * in which a gradient is added; it is reduced before, in f32 only with `f32`. NULL: it is added as a partial sum, in
 * f32, and reduced where the caller constrains it; also instead of the array. */
void clv_gradients_accumulate(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n,
                              const clv_layout *const *shards, bool f32, clv_value *sums);
/* Constrains a parameter's gradient to the layout of its moments, directly from where it is computed, not by way of the
 * parameter's layout. The constraint belongs to the backward pass and is named after the parameter. */
clv_value clv_constrain_gradient(clv_graph *graph, clv_value parameter, clv_value gradient, const clv_layout *layout);
