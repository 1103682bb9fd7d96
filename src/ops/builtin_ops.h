/* builtin_ops.h - declarations of the built-in op definitions, and of builders that only the library calls. */
#ifndef CLEAVE_OPS_BUILTIN_OPS_H
#define CLEAVE_OPS_BUILTIN_OPS_H

#include "graph/op.h"

extern const clv_op_def clv_op_constraint;
extern const clv_op_def clv_op_cotangent_constraint;
extern const clv_op_def clv_op_dot_general;
extern const clv_op_def clv_op_map;
extern const clv_op_def clv_op_map_gradient;
extern const clv_op_def clv_op_combine;
extern const clv_op_def clv_op_choice_gradient;
extern const clv_op_def clv_op_where;
extern const clv_op_def clv_op_cast;
extern const clv_op_def clv_op_fill;
extern const clv_op_def clv_op_iota;
extern const clv_op_def clv_op_bias_gelu;
extern const clv_op_def clv_op_bias_gelu_gradient;
extern const clv_op_def clv_op_gated;
extern const clv_op_def clv_op_gated_gradient;
extern const clv_op_def clv_op_reduce;
extern const clv_op_def clv_op_broadcast;
extern const clv_op_def clv_op_equal;
extern const clv_op_def clv_op_reshape;
extern const clv_op_def clv_op_transpose;
extern const clv_op_def clv_op_slice;
extern const clv_op_def clv_op_pad;
extern const clv_op_def clv_op_concat;
extern const clv_op_def clv_op_moments;
extern const clv_op_def clv_op_normalize;
extern const clv_op_def clv_op_normalize_sums;
extern const clv_op_def clv_op_normalize_dx;
extern const clv_op_def clv_op_normalize_dgain;
extern const clv_op_def clv_op_normalize_dweights;
extern const clv_op_def clv_op_embedding;
extern const clv_op_def clv_op_embedding_gradient;
extern const clv_op_def clv_op_attention;
extern const clv_op_def clv_op_attention_gradient;
extern const clv_op_def clv_op_rope;
extern const clv_op_def clv_op_cache_update;
extern const clv_op_def clv_op_softmax;
extern const clv_op_def clv_op_softmax_gradient;
extern const clv_op_def clv_op_xent_max;
extern const clv_op_def clv_op_xent_sums;
extern const clv_op_def clv_op_xent_loss;
extern const clv_op_def clv_op_xent_loss_gradient;
extern const clv_op_def clv_op_xent_gradient;
extern const clv_op_def clv_op_count_labels;
extern const clv_op_def clv_op_dropout;
extern const clv_op_def clv_op_sum_squares;
extern const clv_op_def clv_op_clip_scale;
extern const clv_op_def clv_op_adamw;
extern const clv_op_def clv_op_adamw_rounded;
extern const clv_op_def clv_op_sgd;
extern const clv_op_def clv_op_lion;
extern const clv_op_def clv_op_quantized_dot;
extern const clv_op_def clv_op_prepacked_dot;

/* Attributes of a cast, for passes that put casts into programs. Zeroed before they are filled. */
typedef struct clv_cast_attrs {
    clv_dtype dtype;
} clv_cast_attrs;

/* Ops that programs get when they are lowered, and no graph has (wire_quantize.c). */
extern const clv_op_def clv_op_wire_quantize;
extern const clv_op_def clv_op_wire_dequantize;
typedef struct clv_wire_quantize_attrs {
    int64_t size, alignment; /* of the last dimension, as f32 */
    int64_t pieces;          /* that layouts cut it into, each a record */
} clv_wire_quantize_attrs;
/* Bytes of a record. */
int64_t clv_wire_record_bytes(const clv_wire_quantize_attrs *attrs);

/* The product of x [row..., in...] with weights in blocks (quantized_dot.c says their shapes), over n_in dimensions. */
clv_value clv_quantized_dot(clv_graph *graph, clv_quant quant, clv_value x, clv_value ints, clv_value scales, int n_in);

/* The product of x [row..., in...] with packed weights (prepacked_dot.c says their shape), over n_in dimensions. */
clv_value clv_prepacked_dot(clv_graph *graph, clv_value x, clv_value weights, int n_in);

/* clv_gradients (autodiff.c), of which those of parameters are f32 if `wide`, those of 16 bits too: from the ops on
 * that make them, so that no sum of theirs is rounded. */
void clv_gradients_widened(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n, bool wide,
                           clv_value *out);
/* Radians a position of pair i of `dims`, which is not 0, by theta and scaling: what a rotary embedding turns by where
 * inv_freq is NULL. */
double clv_rope_frequency(const clv_rope_options *how, int64_t i);
/* Gradients of n states, added to what sums[n] hold, CLV_NONE where they hold nothing: in f32, those of
 * 16 bits too. The sums stay in addends where gradients come in addends: they are reduced where somebody constrains
 * them. */
void clv_gradients_accumulate(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n,
                              clv_value *sums);

#endif
