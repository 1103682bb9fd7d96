/** @file graph.h - a model as a graph over whole (global) tensors.
 *
 * Build values with the functions below, state the layouts that you care about (inputs, parameters, constraints),
 * take gradients, and compile the graph into a program (program.h), which holds every collective.
 *
 * Errors while building: a builder that fails records the first failure in the graph, with the op's name, and returns
 * CLV_NONE, whose id is 0; a builder that is given CLV_NONE as an operand it needs returns CLV_NONE, too. So a model
 * needs no check after each line: clv_graph_status returns the first failure, and clv_compile refuses the graph with
 * it. clv_valid tells one value from CLV_NONE.
 *
 * Letters in comments: B batch, S sequence, M model width, H query heads, K key/value heads, D head_dim,
 * F feed-forward width, V vocabulary. Not thread-safe: one thread builds a graph.
 */
#ifndef CLEAVE_GRAPH_H
#define CLEAVE_GRAPH_H

#include <stdbool.h>

#include "cleave/dtype.h"
#include "cleave/layout.h"
#include "cleave/mesh.h"
#include "cleave/rng.h"
#include "cleave/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A model in the making. */
typedef struct clv_graph clv_graph;

/** A tensor of a graph. Ids are 1 and more; id 0 is no value (CLV_NONE), so a zeroed struct of options names none. */
typedef struct clv_value {
    int id;
} clv_value;
#ifdef __cplusplus
#define CLV_NONE (clv_value{0})
#else
#define CLV_NONE ((clv_value){0})
#endif
/** Whether a builder made this value: false for CLV_NONE, which builders return when they fail. */
CLV_API bool clv_valid(clv_value value);

/** Dtype and whole shape of a tensor. */
typedef struct clv_type {
    clv_dtype dtype;
    int rank;
    int64_t shape[CLV_MAX_RANK];
} clv_type;

/** Bytes that hold any type's text form. */
enum { CLV_TYPE_TEXT = CLV_MAX_RANK * 21 + 16 };
/** Writes "f32[4,16,64]" as snprintf does. */
CLV_API int clv_type_print(char *out, size_t size, const clv_type *type);
/** Whether dtype and shape are the same. */
CLV_API bool clv_type_equal(const clv_type *a, const clv_type *b);

/** How many elements a tensor has; 1 where it has no dimensions, INT64_MAX where they are more. 0 for NULL, and for a
 *  rank that no tensor has. */
CLV_API int64_t clv_type_elems(const clv_type *type);

/** Makes a graph whose layouts name the axes of `mesh` (copied). Free with clv_graph_free.
 *  @return clv_mesh_check's; CLV_ENOMEM */
CLV_API clv_status clv_graph_new(clv_graph **out, const clv_mesh *mesh, clv_error *err);
/** NULL is a no-op. */
CLV_API void clv_graph_free(clv_graph *graph);
/** @return CLV_OK, or the first failure of a builder: its status and, in err, its message */
CLV_API clv_status clv_graph_status(const clv_graph *graph, clv_error *err);
/** Forgets the first failure, so that a program in which somebody types goes on: what failed made no value, and values
 *  that were made before are as they were; of a layer that failed, state and ops may stay. Not when memory ran out.
 *  @return the graph's status from here on: CLV_OK, or CLV_ENOMEM */
CLV_API clv_status clv_graph_clear_error(clv_graph *graph);
/** Borrowed; NULL for no graph. */
CLV_API const clv_mesh *clv_graph_mesh(const clv_graph *graph);
/** Dtype and shape of a value; all zeros for CLV_NONE. */
CLV_API clv_type clv_graph_type(const clv_graph *graph, clv_value value);
/** Parses a layout's text form for a tensor of `rank` dimensions; a failure is recorded in the graph. */
CLV_API clv_layout clv_graph_layout(clv_graph *graph, int rank, const char *text);
/** Names that follow are prefixed by "scope.": state, ops in messages and plans. Nested; formatted as printf does. A
 *  name of a scope, state, input, output or dimension is UTF-8 without control characters, or the graph fails with
 *  CLV_EINVAL. */
CLV_API void clv_graph_push_scope(clv_graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Takes back the last prefix. */
CLV_API void clv_graph_pop_scope(clv_graph *graph);

/* ---- what comes in, what stays, what goes out ---- */

/** A tensor bound at each run. layout NULL: the partitioner chooses. */
CLV_API clv_value clv_input(clv_graph *graph, const char *name, clv_dtype dtype, int rank, const int64_t *shape,
                            const clv_layout *layout);
/** What state is for: clv_graph_parameters, gradients and plans of memory go by it. */
typedef enum clv_state_role {
    CLV_ROLE_PARAMETER, /**< what a model has learnt: floats, that gradients are taken for and checkpoints hold */
    CLV_ROLE_OPTIMIZER, /**< a moment or master copy of a parameter */
    CLV_ROLE_CACHE,     /**< keys and values of the tokens so far */
    CLV_ROLE_BUFFER     /**< anything else: a counter, a running mean */
} clv_state_role;

/** A parameter: named state that outlives a run, kept in `layout` (NULL: replicated). Its first values are made by
 *  `init` keyed by fold_in(session seed, hash of the name) on each rank for its own shard. Of f32, bf16, f16 or f64. */
CLV_API clv_value clv_state(clv_graph *graph, const char *name, clv_dtype dtype, int rank, const int64_t *shape,
                            const clv_layout *layout, clv_init init);
/** The same for state of any role; only parameters must be floats. */
CLV_API clv_value clv_state_with_role(clv_graph *graph, clv_state_role role, const char *name, clv_dtype dtype,
                                      int rank, const int64_t *shape, const clv_layout *layout, clv_init init);
/** The parameters made so far, in order. Fills at most `room` of out, and returns how many there are. */
CLV_API int clv_graph_parameters(const clv_graph *graph, clv_value *out, int room);
/** The name of an input or state; NULL for other values. */
CLV_API const char *clv_value_name(const clv_graph *graph, clv_value value);
/** The stated layout of an input or state; replicated for others. */
CLV_API clv_layout clv_value_layout(const clv_graph *graph, clv_value value);
/** What the dimensions of an input, a state or a constrained value are called wherever the program is explained: one
 *  name each, NULL for one without. Copied. Layers name those of their own. */
CLV_API void clv_name_dims(clv_graph *graph, clv_value value, const char *const *names);
/** At the end of the run `state` becomes `value` (same type). Done in place where the graph allows it. */
CLV_API void clv_assign(clv_graph *graph, clv_value state, clv_value value);
/** Returns `value` to the caller under a name. layout NULL: as the partitioner leaves it; never partial, stated or
 *  not. */
CLV_API void clv_output(clv_graph *graph, const char *name, clv_value value, const clv_layout *layout);

/** States that the partitioner is never to move `value` (a weight, a KV cache, heads) over a mesh axis, nor what is
 *  assigned to it, nor its gradient: products come to it (Pope et al. 2022, arXiv:2211.05102, "weight-stationary").
 *  Without this a weight that is smaller than the activations may be gathered instead. Where no split of an op allows
 *  it, it is moved after all. */
CLV_API void clv_keep_stationary(clv_graph *graph, clv_value value, const char *axis);

/** The identity, with a stated layout (with_sharding_constraint). Its gradient has the same layout. */
CLV_API clv_value clv_constrain(clv_graph *graph, clv_value x, const clv_layout *layout);

/** Gradients of the scalar `loss` (or, with seed valid, of <seed, loss> for a loss of any shape) with respect to n
 *  values; out[i] is zeros where loss does not depend on wrt[i]. A gradient of state or of an input with a
 *  stated layout is brought to that layout; others take their primal's where that costs nothing. */
CLV_API void clv_gradients(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n,
                           clv_value *out);

/** Ops that are made until clv_end_block are a block, of which clv_compile_options.recompute says what the backward
 *  pass makes again. One within another is part of it. clv_transformer_block begins and ends one of its own. */
CLV_API void clv_begin_block(clv_graph *graph);
/** Ends the innermost block that has begun; where there is none, the graph fails with CLV_EINVAL. */
CLV_API void clv_end_block(clv_graph *graph);

/* ---- ops: formulas and shapes; how one was split is in the program's text (clv_program_print, program.h) ---- */

/** Products by subscripts, e.g. "bsm,mhd->bshd": letters in both operands and not in the result are contracted, letters
 *  in all three are batch. Every letter of an operand is in the other operand or the result. */
CLV_API clv_value clv_einsum(clv_graph *graph, const char *subscripts, clv_value a, clv_value b);
/** The same in `dtype`, which is the operands', or f32 of operands of 16 bits: what was summed is not rounded then; and
 *  added to `to`, of that dtype and the product's shape, in the same pass. CLV_NONE: to nothing. */
CLV_API clv_value clv_einsum_accumulate(clv_graph *graph, const char *subscripts, clv_value a, clv_value b,
                                        clv_value to, clv_dtype dtype);

/** Functions of one element and of two, and what clv_reduce makes of many: X(kind, value, its kernel). No two kinds,
 *  nor none, have one value: a kind of another enum is CLV_EINVAL. CLV_GELU is the exact one, by erf. */
#define CLV_UNARY_KINDS(X)                                                                                             \
    X(CLV_EXP, 100, EXP)                                                                                               \
    X(CLV_LOG, 101, LOG)                                                                                               \
    X(CLV_TANH, 102, TANH)                                                                                             \
    X(CLV_SIGMOID, 103, SIGMOID)                                                                                       \
    X(CLV_GELU, 104, GELU_ERF)                                                                                         \
    X(CLV_GELU_TANH, 105, GELU_TANH)                                                                                   \
    X(CLV_SILU, 106, SILU)                                                                                             \
    X(CLV_RELU, 107, RELU)                                                                                             \
    X(CLV_RSQRT, 108, RSQRT)                                                                                           \
    X(CLV_NEG, 109, NEG)                                                                                               \
    X(CLV_SQRT, 110, SQRT)
#define CLV_BINARY_KINDS(X)                                                                                            \
    X(CLV_ADD, 200, ADD)                                                                                               \
    X(CLV_SUB, 201, SUB)                                                                                               \
    X(CLV_MUL, 202, MUL)                                                                                               \
    X(CLV_DIV, 203, DIV)                                                                                               \
    X(CLV_MAXIMUM, 204, MAX)                                                                                           \
    X(CLV_MINIMUM, 205, MIN)
#define CLV_REDUCE_KINDS(X)                                                                                            \
    X(CLV_SUM, 300, SUM)                                                                                               \
    X(CLV_MAX, 301, MAX)                                                                                               \
    X(CLV_MEAN, 302, SUM)

#define CLV_KIND_ENUM(kind, value, kernel) kind = (value),
/** Functions of one element. */
typedef enum clv_unary_kind { CLV_UNARY_KINDS(CLV_KIND_ENUM) } clv_unary_kind;
/** Functions of two elements. */
typedef enum clv_binary_kind { CLV_BINARY_KINDS(CLV_KIND_ENUM) } clv_binary_kind;
/** What clv_reduce makes of many. */
typedef enum clv_reduce_kind { CLV_REDUCE_KINDS(CLV_KIND_ENUM) } clv_reduce_kind;
#undef CLV_KIND_ENUM

/** f(x), element by element; x is of a float dtype. Where a slope is infinite, so is the gradient: of CLV_SQRT,
 *  CLV_RSQRT and CLV_LOG at 0. */
CLV_API clv_value clv_unary(clv_graph *graph, clv_unary_kind kind, clv_value x);
/** NumPy broadcasting; dtypes equal. Whole numbers are exact, and wrap around where the result does not fit; their
 *  quotients are cut, and those by 0 the dtype's end. */
CLV_API clv_value clv_binary(clv_graph *graph, clv_binary_kind kind, clv_value a, clv_value b);
/** a + b, as clv_binary does. */
CLV_API clv_value clv_add(clv_graph *graph, clv_value a, clv_value b);
/** a - b, as clv_binary does. */
CLV_API clv_value clv_sub(clv_graph *graph, clv_value a, clv_value b);
/** a * b, as clv_binary does. */
CLV_API clv_value clv_mul(clv_graph *graph, clv_value a, clv_value b);
/** a / b, as clv_binary does. */
CLV_API clv_value clv_div(clv_graph *graph, clv_value a, clv_value b);
/** condition (bool or u8) ? a : b, all broadcast together. */
CLV_API clv_value clv_where(clv_graph *graph, clv_value condition, clv_value a, clv_value b);
/** x * factor, in the dtype of x. */
CLV_API clv_value clv_scale(clv_graph *graph, clv_value x, double factor);
/** x in another dtype: to 16 bits rounded to nearest even, to integers cut. */
CLV_API clv_value clv_cast(clv_graph *graph, clv_value x, clv_dtype dtype);
/** A tensor of one value, which the dtype must hold: integers whole numbers in their range, bool 0 and 1. */
CLV_API clv_value clv_fill(clv_graph *graph, clv_dtype dtype, int rank, const int64_t *shape, double value);
/** i32 [n]: offset + i; with an offset i32 [B] for each row of a batch, [B,n]. offset: i32 [] or [B], or CLV_NONE: 0.
 *  */
CLV_API clv_value clv_iota(clv_graph *graph, int64_t n, clv_value offset);
/** 1 where x == y, else 0, in the dtype of x. y has x's dtype and dimensions, or 1 in their place. Not differentiable.
 *  */
CLV_API clv_value clv_equal(clv_graph *graph, clv_value x, clv_value y);
/** gelu(x + bias), bias [last dimension]; kind CLV_GELU or CLV_GELU_TANH. */
CLV_API clv_value clv_bias_gelu(clv_graph *graph, clv_value x, clv_value bias, clv_unary_kind kind);
/** act(gate) * up for x [..., 2, F] = (gate, up) -> [..., F]; kind CLV_SILU, CLV_GELU, CLV_GELU_TANH or CLV_RELU. */
CLV_API clv_value clv_gated(clv_graph *graph, clv_value x, clv_unary_kind kind);

/** Reduces the dimensions of dims[n], which leave the shape (keep = false) or become 1 (keep = true). */
CLV_API clv_value clv_reduce(clv_graph *graph, clv_reduce_kind kind, clv_value x, const int *dims, int n, bool keep);

/** The same elements, row-major, in another shape of as many. */
CLV_API clv_value clv_reshape(clv_graph *graph, clv_value x, int rank, const int64_t *shape);
/** out dimension i is x's dimension order[i]. */
CLV_API clv_value clv_transpose(clv_graph *graph, clv_value x, const int *order);
/** [begin[d], end[d]) of each dimension. */
CLV_API clv_value clv_slice(clv_graph *graph, clv_value x, const int64_t *begin, const int64_t *end);
/** Zeros around x: out shape[d] = before[d] + x + after[d]. (The gradient of slice.) */
CLV_API clv_value clv_pad(clv_graph *graph, clv_value x, const int64_t *before, const int64_t *after);
/** n >= 1 tensors one after another along a dimension; more than 8 are joined in runs of 8. */
CLV_API clv_value clv_concat(clv_graph *graph, const clv_value *x, int n, int dim);

/** table [V,M], ids (i32 or i64) [...] -> [..., M]. An id outside [0, V) gives zeros. */
CLV_API clv_value clv_embedding(clv_graph *graph, clv_value table, clv_value ids);

/** x * rsqrt(mean(x^2) + eps) * gain over the last dimension. */
CLV_API clv_value clv_rms_norm(clv_graph *graph, clv_value x, clv_value gain, double eps);
/** (x - mean) * rsqrt(var + eps) * gain + bias over the last dimension; bias may be CLV_NONE. */
CLV_API clv_value clv_layer_norm(clv_graph *graph, clv_value x, clv_value gain, clv_value bias, double eps);

/** Zero-initialised: every query sees every key. */
typedef struct clv_attention_options {
    size_t size; /**< sizeof the struct; 0: as its first version had it */
    bool causal;
    double scale;   /**< 0: 1/sqrt(D) */
    clv_value mask; /**< u8 or bool [B, Sk], 1 = attend; CLV_NONE: none */
    clv_value
        offset;     /**< i32 [], or [B] for each row of the batch: global index of query row 0 among the keys, and with
                           causal = true the keys after the last query are not seen (KV cache); CLV_NONE: 0 */
    int64_t window; /**< > 0: a query sees the keys at its own place and the window - 1 before it; 0: all */
    double dropout; /**< 0 <= p < 1: the softmax's values are dropped, as clv_dropout does with a tensor [B,H,Sq,Sk];
                         no mask is kept */
    clv_key dropout_key;
    clv_value dropout_step; /**< i32 [], or CLV_NONE */
} clv_attention_options;
/** Flash attention: q [B,Sq,H,D], kv [B,Sk,2,K,D] (keys, then values), H a multiple of K -> [B,Sq,H,D].
 *  options NULL: causal, all else zero. */
CLV_API clv_value clv_attention(clv_graph *graph, clv_value q, clv_value kv, const clv_attention_options *options);

/** How rotary embedding turns: pair i of `dims` by theta^(-2i/dims) a position, scaled for contexts longer than those
 *  of training. Zero-initialised but for theta = the plain one. */
typedef struct clv_rope_options {
    double theta;     /**< > 0 */
    int64_t dims;     /**< rotated leading part of D, even; 0: all */
    bool interleaved; /**< pairs (2i, 2i+1); else half-split pairs (i, i + dims/2) */
    double factor;    /**< > 0: angles are divided by it (linear scaling); 0: 1 */
    /** Llama 3's scaling, where high > 0: pairs whose wavelength is below original_positions / high_frequency are not
     *  scaled, those above original_positions / low_frequency are, those between are blended (low < high). */
    double low_frequency, high_frequency;
    int64_t original_positions; /**< of the training; with high_frequency > 0 */
    /** [dims/2], finite: what pair i turns by a position, in the place of theta, which is not read then, without factor
     *  and high_frequency; copied. NULL: by theta. */
    const float *inv_freq;
    int64_t reserved[3]; /**< zeros: other structs hold this one, which therefore keeps its size */
} clv_rope_options;
/** Rotary position embedding of x [B,S,H,D] (or [B,S,2,K,D]: only [:,:,0]); position of row s is offset + s.
 *  offset: i32 [], or [B] for each row of the batch, or CLV_NONE. */
CLV_API clv_value clv_rope(clv_graph *graph, clv_value x, clv_value offset, const clv_rope_options *options);
/** Writes rows [B,S,...] of `rows` into cache [B,Smax,...] from row `offset` (i32 [], or [B] for each row of the batch)
 *  on; returns the new cache. */
CLV_API clv_value clv_cache_update(clv_graph *graph, clv_value cache, clv_value rows, clv_value offset);

/** exp(x) / sum(exp(x)) over the last dimension, made safe by its maximum. */
CLV_API clv_value clv_softmax(clv_graph *graph, clv_value x);
/** Softmax cross-entropy a row: logits [...,V], labels (i32/i64) [...] -> f32 [...] (f64 for f64); 0 where label ==
 *  ignored, as is the gradient, whatever the logits are. The vocabulary may be split: full logits are never gathered.
 *  */
CLV_API clv_value clv_cross_entropy(clv_graph *graph, clv_value logits, clv_value labels, int64_t ignored);
/** The number of labels that are not `ignored`, as f32 scalar (f64 if dtype is, which is that of the logits). */
CLV_API clv_value clv_count_labels(clv_graph *graph, clv_value labels, int64_t ignored, clv_dtype dtype);

/** x / (1-p) where uniform(fold_in(key, step)) at the global element index < 1-p, else 0. step: i32 scalar input, or
 *  CLV_NONE. The mask is the same on every mesh. */
CLV_API clv_value clv_dropout(clv_graph *graph, clv_value x, double p, clv_key key, clv_value step);

/** The root of the sum of the squares of all elements of x[0..n), floats: an f32 scalar. Squares are summed in f64 on
 *  each rank, in an order that depends on sizes alone. Tensors whose layout is stated (inputs, state, results of
 *  clv_constrain) are added up by the axes that cut them, in the order given, before ranks talk: one number is reduced
 *  a set of axes. */
CLV_API clv_value clv_global_norm(clv_graph *graph, const clv_value *x, int n);
/** min(1, most / (norm + 1e-6)), by which gradients of this norm (an f32 scalar) are clipped to `most` > 0 (Pascanu et
 *  al. 2013, as torch.nn.utils.clip_grad_norm_); NaN where the norm is not finite. */
CLV_API clv_value clv_clip_scale(clv_graph *graph, clv_value norm, double most);

/** Zero-initialised = defaults. */
typedef struct clv_adamw_options {
    size_t size;                            /**< sizeof the struct; 0: as its first version had it */
    double beta1, beta2, eps, weight_decay; /**< zeros: 0.9, 0.999, 1e-8; weight_decay 0 */
    const clv_layout
        *state_layout;    /**< of the moments; NULL: the parameter's. Cut further it is ZeRO stage 1: the gradient
                                                 is reduce-scattered, the new parameter gathered */
    clv_value grad_scale; /**< f32 scalar by which the gradient is multiplied, of clv_clip_scale; NaN: this update
                                  changes nothing. CLV_NONE: 1 */
    int exact;            /**< nonzero: beta1, beta2 and eps are as given, zeros too (a beta may be 0) */
} clv_adamw_options;
/** AdamW (Loshchilov & Hutter 2019, eps outside the root): makes the moments as state "<name>.m" and ".v", f32 (f64 for
 *  f64), and for a parameter of 16 bits an f32 copy ".master" that begins as it does; assigns all. lr: f32 scalar;
 *  step: i32 scalar, 1 at the first update. */
CLV_API void clv_adamw(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr, clv_value step,
                       const clv_adamw_options *options);

/** Zero-initialised = defaults. */
typedef struct clv_sgd_options {
    size_t size;                    /**< sizeof the struct; 0: as its first version had it */
    double momentum, weight_decay;  /**< zeros: 0.9; weight_decay 0 */
    const clv_layout *state_layout; /**< of the buffer, as clv_adamw_options.state_layout */
    clv_value grad_scale;           /**< as clv_adamw_options.grad_scale */
    int exact;                      /**< nonzero: momentum is as given, 0 too */
} clv_sgd_options;
/** Gradient descent with momentum, as torch.optim.SGD: b = momentum b + g + weight_decay p, p = p - lr b. Makes the
 *  buffer as state "<name>.momentum" as clv_adamw makes its moments, and ".master"; assigns all. lr: f32 scalar. */
CLV_API void clv_sgd(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr,
                     const clv_sgd_options *options);

/** Zero-initialised = defaults. */
typedef struct clv_lion_options {
    size_t size;                       /**< sizeof the struct; 0: as its first version had it */
    double beta1, beta2, weight_decay; /**< zeros: 0.9, 0.99; weight_decay 0 */
    const clv_layout *state_layout;    /**< of the moment, as clv_adamw_options.state_layout */
    clv_value grad_scale;              /**< as clv_adamw_options.grad_scale */
    int exact;                         /**< nonzero: the betas are as given, 0 too */
} clv_lion_options;
/** Lion (Chen et al. 2023, arXiv:2302.06675): p = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g),
 *  m = beta2 m + (1 - beta2) g. Makes the moment as state "<name>.lion" as clv_adamw makes its, and ".master"; assigns
 *  all. lr: f32 scalar. */
CLV_API void clv_lion(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr,
                      const clv_lion_options *options);

#ifdef __cplusplus
}
#endif
#endif
