/** @file graph.h - a model as a graph over whole (global) tensors.
 *
 * Build values with the functions below, state the layouts that matter to you (of inputs, parameters, constraints),
 * take gradients, and compile the graph into a program (program.h), which holds every collective.
 *
 * Errors while building: a builder that fails records the first failure in the graph, with the op's name, and returns
 * CLV_NONE, whose id is 0; a builder that gets CLV_NONE for a required operand returns CLV_NONE, too. So a model needs
 * no check after each line: clv_graph_status returns the first failure, and clv_compile refuses the graph with it.
 * clv_valid tells a value from CLV_NONE.
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

/** A graph: a model under construction. */
typedef struct clv_graph clv_graph;

/** A tensor of a graph. Ids begin at 1; id 0 is CLV_NONE, so an optional value in a zeroed struct is absent. */
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

/** Dtype and global shape of a tensor. */
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

/** Number of elements: 1 for a scalar, INT64_MAX on overflow, 0 for NULL or an invalid rank. */
CLV_API int64_t clv_type_elems(const clv_type *type);

/** Makes an empty graph. Its layouts name the axes of `mesh`, which is copied. Free with clv_graph_free.
 *  @return as clv_mesh_check; CLV_ENOMEM */
CLV_API clv_status clv_graph_new(clv_graph **out, const clv_mesh *mesh, clv_error *err);
/** Frees the graph; does nothing for NULL. */
CLV_API void clv_graph_free(clv_graph *graph);
/** Status of the graph so far. @return CLV_OK, or the first failure of a builder, with its message in err */
CLV_API clv_status clv_graph_status(const clv_graph *graph, clv_error *err);
/** Clears the recorded failure, so that a REPL can continue. The builder that failed made no value, and earlier values
 *  are unchanged; a layer that failed may leave state and ops behind. CLV_ENOMEM is never cleared.
 *  @return the graph's status afterwards: CLV_OK or CLV_ENOMEM */
CLV_API clv_status clv_graph_clear_error(clv_graph *graph);
/** The graph's mesh, borrowed; NULL for NULL. */
CLV_API const clv_mesh *clv_graph_mesh(const clv_graph *graph);
/** Dtype and shape of a value; all zeros for CLV_NONE. */
CLV_API clv_type clv_graph_type(const clv_graph *graph, clv_value value);
/** Prints the graph as text, one value a line, as snprintf does: what clv_graph_parse reads.
 *
 *     graph on model=4
 *     %1 f32[64,256] {_,_} = input "x"
 *     %2 f32[256,1024] {_,model} = state "up" parameter normal 0.02
 *     %3 f32[64,1024] = dot_general "mlp.dot_general" (%1, %2) : a=bm b=mh c=bh
 *     output "y" = %3 {_,_}
 *
 *  @return the length of the whole text; 0 for NULL */
CLV_EXPERIMENTAL size_t clv_graph_print(char *out, size_t size, const clv_graph *graph);
/** Makes the graph that such a text describes; lines that begin with '#' are comments. A text is trusted as a program
 *  is: attributes of ops are not checked as their builders check them. Free with clv_graph_free.
 *  @return CLV_ESYNTAX, with the line and column; CLV_ENOTFOUND for an op that is not registered; CLV_EUNSUPPORTED for
 *          an op with attributes but no table of them; what the builders return; CLV_ENOMEM */
CLV_EXPERIMENTAL clv_status clv_graph_parse(clv_graph **out, const char *text, clv_error *err);
/** Parses a layout's text form for a tensor of `rank` dimensions; a failure is recorded in the graph. */
CLV_API clv_layout clv_graph_layout(clv_graph *graph, int rank, const char *text);
/** Opens a scope: names of state and ops from here on are prefixed by "scope.". Scopes nest; the name is formatted as
 *  by printf. Names of scopes, state, inputs, outputs and dimensions must be UTF-8 without control characters, or the
 *  graph fails with CLV_EINVAL. */
CLV_API void clv_graph_push_scope(clv_graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Closes the innermost scope. */
CLV_API void clv_graph_pop_scope(clv_graph *graph);

/* ---- inputs, state, outputs ---- */

/** An input: a tensor that each run is given. layout NULL: the partitioner chooses. */
CLV_API clv_value clv_input(clv_graph *graph, const char *name, clv_dtype dtype, int rank, const int64_t *shape,
                            const clv_layout *layout);
/** Purpose of a piece of state. */
typedef enum clv_state_role {
    CLV_ROLE_PARAMETER, /**< a weight: a float tensor that is trained and stored in checkpoints */
    CLV_ROLE_OPTIMIZER, /**< a moment or master copy of a parameter */
    CLV_ROLE_CACHE,     /**< a KV cache */
    CLV_ROLE_BUFFER     /**< anything else: a counter, a running mean */
} clv_state_role;

/** A parameter: named state that persists across runs, stored in `layout` (NULL: replicated). Each rank initialises its
 *  own shard by `init`, keyed by fold_in(session seed, hash of the name). dtype: f32, bf16, f16 or f64. */
CLV_API clv_value clv_state(clv_graph *graph, const char *name, clv_dtype dtype, int rank, const int64_t *shape,
                            const clv_layout *layout, clv_init init);
/** State of any role; only parameters must be floats. */
CLV_API clv_value clv_state_with_role(clv_graph *graph, clv_state_role role, const char *name, clv_dtype dtype,
                                      int rank, const int64_t *shape, const clv_layout *layout, clv_init init);
/** Lists the parameters made so far, in order: fills at most `room` elements of out. @return their number */
CLV_API int clv_graph_parameters(const clv_graph *graph, clv_value *out, int room);
/** The name of an input or state; NULL for other values. */
CLV_API const char *clv_value_name(const clv_graph *graph, clv_value value);
/** The stated layout of an input or state; replicated for other values. */
CLV_API clv_layout clv_value_layout(const clv_graph *graph, clv_value value);
/** Names the dimensions of an input, a state or a constrained value ("batch", "heads") for explanations: one name a
 *  dimension, NULL for none. The names are copied. Layers (nn.h) name the dimensions of their own values. */
CLV_API void clv_name_dims(clv_graph *graph, clv_value value, const char *const *names);
/** Assigns `value` (of the same type) to `state` at the end of each run; in place where no op reads the old value
 *  later. */
CLV_API void clv_assign(clv_graph *graph, clv_value state, clv_value value);
/** Makes `value` an output of that name. layout NULL: the partitioner chooses. Outputs are never partial. */
CLV_API void clv_output(clv_graph *graph, const char *name, clv_value value, const clv_layout *layout);

/** Keeps `value` (a weight, a KV cache) stationary over a mesh axis: the partitioner moves neither it, nor the value
 *  assigned to it, nor its gradient over that axis; activations move instead ("weight-stationary": Pope et al. 2022,
 *  arXiv:2211.05102). By default a weight smaller than the activations may be gathered. An op for which no other
 *  strategy exists moves it after all. */
CLV_API void clv_keep_stationary(clv_graph *graph, clv_value value, const char *axis);

/** The identity with a stated layout, as JAX's with_sharding_constraint. The gradient has the same layout. */
CLV_API clv_value clv_constrain(clv_graph *graph, clv_value x, const clv_layout *layout);

/** Gradients of the scalar `loss` with respect to n values; with a valid seed, of <seed, loss> for a loss of any shape.
 *  out[i] is zeros if loss does not depend on wrt[i]. The gradient of state, or of an input with a stated layout, gets
 *  that layout; other gradients get their primal's layout where that costs nothing. */
CLV_API void clv_gradients(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n,
                           clv_value *out);

/** Begins a block: the ops made until clv_end_block are the unit of activation recomputation
 *  (clv_compile_options.recompute). A nested block is part of the outer one. clv_transformer_block is a block. */
CLV_API void clv_begin_block(clv_graph *graph);
/** Ends the innermost open block; without one, the graph fails with CLV_EINVAL. */
CLV_API void clv_end_block(clv_graph *graph);

/** Has ops run on the ranks of one pipeline stage, those with coordinate `stage` on a mesh axis: the ops made from here
 *  on, and their gradients. What is between stages is sent; ops without a stage run where their operands are, and what
 *  is computed from inputs alone where it is read; state is on the stages that read it. The axis, the same for all
 *  stages of a graph, splits nothing else. stage -1: new ops have no stage. The graph fails with CLV_EAXIS for an axis
 *  that the mesh lacks, a second axis, or one of more than CLV_MAX_STAGES stages; CLV_EINVAL for a stage that the axis
 *  lacks. */
CLV_EXPERIMENTAL void clv_graph_set_stage(clv_graph *graph, const char *axis, int stage);

/* ---- ops: formulas and shapes; clv_program_print (program.h) shows how each was sharded ---- */

/** Einstein summation of two operands, e.g. "bsm,mhd->bshd": letters of both operands that the result lacks are
 *  contracted, letters of all three are batch. Each letter of an operand must be in the other operand or the result. */
CLV_API clv_value clv_einsum(clv_graph *graph, const char *subscripts, clv_value a, clv_value b);
/** clv_einsum with a result dtype and an accumulator. dtype: the operands', or f32 for operands of 16 bits (the f32
 *  sums are then not rounded). to: added to the product in the same pass, of the result's dtype and shape; optional. */
CLV_API clv_value clv_einsum_accumulate(clv_graph *graph, const char *subscripts, clv_value a, clv_value b,
                                        clv_value to, clv_dtype dtype);

/** Elementwise functions of one and of two operands, and reductions: X(kind, value, its kernel). The values of the
 *  three enums are distinct: a kind of another enum is CLV_EINVAL. CLV_GELU is the exact one, by erf. */
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
/** Elementwise functions of one operand. */
typedef enum clv_unary_kind { CLV_UNARY_KINDS(CLV_KIND_ENUM) } clv_unary_kind;
/** Elementwise functions of two operands. */
typedef enum clv_binary_kind { CLV_BINARY_KINDS(CLV_KIND_ENUM) } clv_binary_kind;
/** Reductions (clv_reduce). */
typedef enum clv_reduce_kind { CLV_REDUCE_KINDS(CLV_KIND_ENUM) } clv_reduce_kind;
#undef CLV_KIND_ENUM

/** f(x), element by element; x must be float. The gradients of CLV_SQRT, CLV_RSQRT and CLV_LOG at 0 are infinite. */
CLV_API clv_value clv_unary(clv_graph *graph, clv_unary_kind kind, clv_value x);
/** f(a, b), element by element, with NumPy broadcasting; dtypes must be equal. Integers wrap around on overflow;
 *  integer division truncates, and x / 0 saturates. */
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
/** x in another dtype: rounded to nearest even to 16 bits, truncated to integers. */
CLV_API clv_value clv_cast(clv_graph *graph, clv_value x, clv_dtype dtype);
/** A tensor filled with one value, which the dtype must represent (an integer in range; 0 or 1 for bool). */
CLV_API clv_value clv_fill(clv_graph *graph, clv_dtype dtype, int rank, const int64_t *shape, double value);
/** i32 [n]: offset + i. offset: i32 [], or [B] (one a row of the batch; the result is [B,n]), or CLV_NONE for 0. */
CLV_API clv_value clv_iota(clv_graph *graph, int64_t n, clv_value offset);
/** 1 where x == y, else 0, in the dtype of x. y has x's dtype and rank; its dimensions are x's or 1. Not
 *  differentiable. */
CLV_API clv_value clv_equal(clv_graph *graph, clv_value x, clv_value y);
/** gelu(x + bias), bias [last dimension]; kind CLV_GELU or CLV_GELU_TANH. */
CLV_API clv_value clv_bias_gelu(clv_graph *graph, clv_value x, clv_value bias, clv_unary_kind kind);
/** act(gate) * up for x [..., 2, F] = (gate, up) -> [..., F]; kind CLV_SILU, CLV_GELU, CLV_GELU_TANH or CLV_RELU. */
CLV_API clv_value clv_gated(clv_graph *graph, clv_value x, clv_unary_kind kind);

/** Reduces the n dimensions in dims: they are dropped (keep = false) or become 1 (keep = true). */
CLV_API clv_value clv_reduce(clv_graph *graph, clv_reduce_kind kind, clv_value x, const int *dims, int n, bool keep);

/** The same elements, in row-major order, in another shape. */
CLV_API clv_value clv_reshape(clv_graph *graph, clv_value x, int rank, const int64_t *shape);
/** x with dimensions of size 1 repeated: `shape` has its rank, and in each other dimension its size. */
CLV_EXPERIMENTAL clv_value clv_broadcast(clv_graph *graph, clv_value x, const int64_t *shape);
/** Permutes dimensions: dimension i of the result is dimension order[i] of x. */
CLV_API clv_value clv_transpose(clv_graph *graph, clv_value x, const int *order);
/** The elements [begin[d], end[d]) of each dimension d. */
CLV_API clv_value clv_slice(clv_graph *graph, clv_value x, const int64_t *begin, const int64_t *end);
/** x padded with zeros: before[d] in front of and after[d] behind each dimension d. */
CLV_API clv_value clv_pad(clv_graph *graph, clv_value x, const int64_t *before, const int64_t *after);
/** Concatenates n >= 1 tensors along a dimension (more than 8 by several ops). */
CLV_API clv_value clv_concat(clv_graph *graph, const clv_value *x, int n, int dim);

/** Functions of programs that others wrote (import.h): X(kind, value). Floats are computed in f64 and rounded
 *  once, whole numbers exactly; they wrap around. The functions from CLV_LESS to CLV_IS_FINITE give bool. ROUND_EVEN
 *  rounds halves to even, ROUND_AWAY away from 0; REMAINDER has the sign of a; of NOT, AND, OR and XOR the operands are
 *  bool (logical) or integers (bits). Shifts are of 64 bits, those by less than 0 or more than 63 shift all bits out.
 *  FLOAT_OF_BITS is the f32 (f64) whose bits an i32 (i64) has, BITS_OF_FLOAT the inverse. */
#define CLV_POINTWISE_KINDS(X)                                                                                         \
    X(CLV_SIN, 400)                                                                                                    \
    X(CLV_COS, 401)                                                                                                    \
    X(CLV_TAN, 402)                                                                                                    \
    X(CLV_ABS, 403)                                                                                                    \
    X(CLV_SIGN, 404)                                                                                                   \
    X(CLV_FLOOR, 405)                                                                                                  \
    X(CLV_CEIL, 406)                                                                                                   \
    X(CLV_ROUND_EVEN, 407)                                                                                             \
    X(CLV_ROUND_AWAY, 408)                                                                                             \
    X(CLV_ERF, 409)                                                                                                    \
    X(CLV_ERFC, 410)                                                                                                   \
    X(CLV_LOG1P, 411)                                                                                                  \
    X(CLV_EXPM1, 412)                                                                                                  \
    X(CLV_CBRT, 413)                                                                                                   \
    X(CLV_NOT, 414)                                                                                                    \
    X(CLV_ATAN2, 415)                                                                                                  \
    X(CLV_POWER, 416)                                                                                                  \
    X(CLV_REMAINDER, 417)                                                                                              \
    X(CLV_AND, 418)                                                                                                    \
    X(CLV_OR, 419)                                                                                                     \
    X(CLV_XOR, 420)                                                                                                    \
    X(CLV_LESS, 421)                                                                                                   \
    X(CLV_LESS_EQUAL, 422)                                                                                             \
    X(CLV_GREATER, 423)                                                                                                \
    X(CLV_GREATER_EQUAL, 424)                                                                                          \
    X(CLV_EQUAL, 425)                                                                                                  \
    X(CLV_NOT_EQUAL, 426)                                                                                              \
    X(CLV_IS_FINITE, 427)                                                                                              \
    X(CLV_SHIFT_LEFT, 428)                                                                                             \
    X(CLV_SHIFT_RIGHT_LOGICAL, 429)                                                                                    \
    X(CLV_SHIFT_RIGHT_ARITHMETIC, 430)                                                                                 \
    X(CLV_FLOAT_OF_BITS, 431)                                                                                          \
    X(CLV_BITS_OF_FLOAT, 432)
#define CLV_KIND_ENUM(kind, value) kind = (value),
/** Functions of clv_pointwise. */
typedef enum clv_pointwise_kind { CLV_POINTWISE_KINDS(CLV_KIND_ENUM) } clv_pointwise_kind;
#undef CLV_KIND_ENUM
/** f(x), or f(a, b) with NumPy broadcasting, element by element; b is CLV_NONE for a function of one operand. Dtypes
 *  must be equal. Not differentiable: programs bring their gradients. */
CLV_EXPERIMENTAL clv_value clv_pointwise(clv_graph *graph, clv_pointwise_kind kind, clv_value a, clv_value b);

/** Reductions of clv_fold: X(kind, value). */
#define CLV_FOLD_KINDS(X)                                                                                              \
    X(CLV_FOLD_SUM, 500)                                                                                               \
    X(CLV_FOLD_PRODUCT, 501)                                                                                           \
    X(CLV_FOLD_MAX, 502)                                                                                               \
    X(CLV_FOLD_MIN, 503)                                                                                               \
    X(CLV_FOLD_AND, 504)                                                                                               \
    X(CLV_FOLD_OR, 505)                                                                                                \
    X(CLV_FOLD_ARGMAX, 506)                                                                                            \
    X(CLV_FOLD_ARGMIN, 507)
#define CLV_KIND_ENUM(kind, value) kind = (value),
/** Reductions of any dtype. */
typedef enum clv_fold_kind { CLV_FOLD_KINDS(CLV_KIND_ENUM) } clv_fold_kind;
#undef CLV_KIND_ENUM
/** Reduces the n dimensions in dims, which are dropped, of a tensor of any dtype, as programs of others do (import.h).
 *  Floats are accumulated in f64, in row-major order. AND and OR are of bool. ARGMAX and ARGMIN are of one dimension
 *  and give i32: the first of equal elements, NaN before numbers. The reduced dimensions are not split over ranks;
 *  clv_reduce is for sums and maxima of floats. Not differentiable. */
CLV_EXPERIMENTAL clv_value clv_fold(clv_graph *graph, clv_fold_kind kind, clv_value x, const int *dims, int n);

/** x of any dtype along a dimension in order, and where each element was along it (i32). Stable: equal elements, 0 and
 *  -0, and NaN keep their order; NaN comes last, descending first. The dimension is not split over ranks. Not
 *  differentiable. */
CLV_EXPERIMENTAL void clv_sort(clv_graph *graph, clv_value x, int dim, bool descending, clv_value *values,
                               clv_value *index);
/** Sums (products, maxima, minima) of the elements up to each one along a dimension, itself included; reverse: from
 *  each one on. Floats are accumulated in f64. The dimension is not split over ranks. Not differentiable. */
CLV_EXPERIMENTAL clv_value clv_cumulative(clv_graph *graph, clv_fold_kind kind, clv_value x, int dim, bool reverse);

/** The box of `sizes` elements of x that begins at `starts` (i32 or i64 [rank of x]), moved so that it lies inside x
 *  (StableHLO's dynamic_slice). Not differentiable. */
CLV_EXPERIMENTAL clv_value clv_dynamic_slice(clv_graph *graph, clv_value x, clv_value starts, const int64_t *sizes);
/** x with the elements of `update`, of its rank and dtype, from `starts` on (clv_dynamic_slice). Not differentiable. */
CLV_EXPERIMENTAL clv_value clv_dynamic_update_slice(clv_graph *graph, clv_value x, clv_value update, clv_value starts);

/** Which dimensions index which (StableHLO's dimension numbers of gather and scatter). `indices` holds index vectors
 *  along dimension index_dim (its rank: each element is one of a single component). An index vector says where in x a
 *  window begins; the windows fill the window dimensions, in the order of x, of the result of a gather or of the
 *  updates of a scatter; the other dimensions of these are those of indices without index_dim, in order. */
typedef struct clv_index_dims {
    int index_dim;
    bool window[CLV_MAX_RANK];   /**< dimension d of the result, or of the updates, is one of windows */
    bool dropped[CLV_MAX_RANK];  /**< dimension d of x, in which windows have one element, is not among them */
    int batch[CLV_MAX_RANK];     /**< 1 + the dimension of indices with which dimension d of x goes along, as a batch;
                                      windows lack it; 0: none */
    int n_starts;                /**< components of an index vector */
    int start[CLV_MAX_RANK];     /**< the dimension of x in which component i is the start */
    int64_t sizes[CLV_MAX_RANK]; /**< extents of a window in x; a scatter takes them from its updates */
} clv_index_dims;
/** The windows of x that indices (i32 or i64) begin, moved so that they lie inside x. Not differentiable. */
CLV_EXPERIMENTAL clv_value clv_gather(clv_graph *graph, clv_value x, clv_value indices, const clv_index_dims *dims);
/** How an update meets an element: X(kind, value). SET of an element by several updates keeps one of them. */
#define CLV_SCATTER_KINDS(X)                                                                                           \
    X(CLV_SCATTER_SET, 600)                                                                                            \
    X(CLV_SCATTER_ADD, 601)                                                                                            \
    X(CLV_SCATTER_MULTIPLY, 602)                                                                                       \
    X(CLV_SCATTER_MAX, 603)                                                                                            \
    X(CLV_SCATTER_MIN, 604)
#define CLV_KIND_ENUM(kind, value) kind = (value),
/** How an update meets an element. */
typedef enum clv_scatter_kind { CLV_SCATTER_KINDS(CLV_KIND_ENUM) } clv_scatter_kind;
#undef CLV_KIND_ENUM
/** x with updates, in row-major order, in the windows that indices begin; one that is not whole inside x is left out.
 *  Floats of 16 bits are rounded at each update. Not differentiable. */
CLV_EXPERIMENTAL clv_value clv_scatter(clv_graph *graph, clv_scatter_kind kind, clv_value x, clv_value indices,
                                       clv_value updates, const clv_index_dims *dims);

/** table [V,M], ids (i32 or i64) [...] -> [..., M]. An id outside [0, V) gives zeros. */
CLV_API clv_value clv_embedding(clv_graph *graph, clv_value table, clv_value ids);

/** x * rsqrt(mean(x^2) + eps) * gain over the last dimension. */
CLV_API clv_value clv_rms_norm(clv_graph *graph, clv_value x, clv_value gain, double eps);
/** (x - mean) * rsqrt(var + eps) * gain + bias over the last dimension; bias may be CLV_NONE. */
CLV_API clv_value clv_layer_norm(clv_graph *graph, clv_value x, clv_value gain, clv_value bias, double eps);

/** Zero-initialised: every query sees every key. */
typedef struct clv_attention_options {
    size_t size;         /**< sizeof the struct, or 0 */
    bool causal;         /**< a query attends to keys at its own and earlier positions only */
    double scale;        /**< factor of the scores; 0: 1/sqrt(D) */
    clv_value mask;      /**< u8 or bool [B, Sk]: 1 attends, 0 does not; optional */
    clv_value offset;    /**< position of query row 0 among the keys (KV cache): i32 [], or [B], one a row of the
                                 batch; CLV_NONE: 0 */
    int64_t window;      /**< sliding window: a query attends to its own position and the window - 1 before; 0: all */
    double dropout;      /**< probability, 0 <= p < 1, of dropping a softmax value, as clv_dropout of [B,H,Sq,Sk] */
    clv_key dropout_key; /**< key of the random numbers of dropout */
    clv_value dropout_step; /**< i32 [] folded into dropout_key; optional */
    int64_t value_dim;      /**< Dv, the width of values, if kv is [B,Sk,K,C]: of the C elements of a head the first D
                                 are the key, the last Dv the value (they may overlap, as in a cache of latents); the
                                 result is [B,Sq,H,Dv]. 0: kv is [B,Sk,2,K,D] */
} clv_attention_options;
/** Flash attention: q [B,Sq,H,D], kv [B,Sk,2,K,D] (keys, then values), H a multiple of K -> [B,Sq,H,D].
 *  D is at most 1024 (CLV_ELIMIT). options NULL: causal, and the defaults otherwise. */
CLV_API clv_value clv_attention(clv_graph *graph, clv_value q, clv_value kv, const clv_attention_options *options);

/** Rotary embedding: pair i of `dims` is rotated by the angle position * theta^(-2i/dims), optionally scaled for long
 *  contexts. Zero-initialised except theta: the plain form. */
typedef struct clv_rope_options {
    double theta;     /**< base, > 0 */
    int64_t dims;     /**< number of leading elements of D that are rotated, even, at most 1024; 0: all */
    bool interleaved; /**< true: pairs (2i, 2i+1); false: half-split pairs (i, i + dims/2) */
    bool yarn;        /**< the scaling is YaRN's */
    bool yarn_exact;  /**< its pairs of low_frequency and high_frequency are not rounded to whole ones */
    double factor;    /**< linear scaling: angles are divided by it; 0: 1 */
    /** Llama 3's scaling, if high_frequency > 0: pairs with a wavelength below original_positions / high_frequency are
     *  not scaled, above original_positions / low_frequency they are, in between both are blended by frequency (low <
     *  high), or by the number of the pair (yarn: Peng et al. 2023, arXiv:2309.00071; beta_slow and beta_fast). */
    double low_frequency, high_frequency;
    int64_t original_positions; /**< context length of the training; required with high_frequency */
    /** Angle per position of each pair, [dims/2], finite, copied; replaces theta, and excludes factor and
     *  high_frequency. NULL: by theta. */
    const float *inv_freq;
    int64_t reserved[3]; /**< zeros: the struct is embedded in others and keeps its size */
} clv_rope_options;
/** Rotary position embedding of x [B,S,H,D] (or of the keys x[:,:,0] of [B,S,2,K,D]); row s has position offset + s.
 *  offset: i32 [], or [B], one a row of the batch; optional. */
CLV_API clv_value clv_rope(clv_graph *graph, clv_value x, clv_value offset, const clv_rope_options *options);
/** Rotary position embedding of x [...,D] by given cosines and sines, of one type: pair (a, b) becomes
 *  (x[a] cos[a] - x[b] sin[a], x[b] cos[b] + x[a] sin[b]). They are f32 (f64 for f64; else they are cast): [...,D], or
 *  [...,D/2], one a pair, whose other dimensions are those of x, or 1. D is even, at most 1024. interleaved: as of
 *  clv_rope. */
CLV_EXPERIMENTAL clv_value clv_rotate(clv_graph *graph, clv_value x, clv_value cos, clv_value sin, bool interleaved);
/** The cache [B,Smax,...] with rows [B,S,...] written at row `offset` (i32 [], or [B], one a row of the batch). */
CLV_API clv_value clv_cache_update(clv_graph *graph, clv_value cache, clv_value rows, clv_value offset);

/** exp(x) / sum(exp(x)) over the last dimension, computed stably: the maximum is subtracted first. */
CLV_API clv_value clv_softmax(clv_graph *graph, clv_value x);
/** Softmax cross-entropy of each row: logits [...,V], labels (i32/i64) [...] -> f32 [...] (f64 for f64). Loss and
 *  gradient are 0 where label == ignored. Vocabulary-parallel: sharded logits are never gathered. */
CLV_API clv_value clv_cross_entropy(clv_graph *graph, clv_value logits, clv_value labels, int64_t ignored);
/** Number of labels that are not `ignored`: an f32 scalar (f64 if dtype, the dtype of the logits, is f64). */
CLV_API clv_value clv_count_labels(clv_graph *graph, clv_value labels, int64_t ignored, clv_dtype dtype);

/** top_k is required; the rest may be 0. */
typedef struct clv_router_options {
    size_t size;     /**< sizeof the struct, or 0 */
    int64_t top_k;   /**< experts that a row chooses */
    bool sigmoid;    /**< scores are sigmoid(logits); false: softmax over all experts */
    bool normalised; /**< weights of a row add up to `scale`: as softmax over the chosen experts alone */
    double scale;    /**< factor of the weights; 0: 1 */
    clv_value bias;  /**< f32 [E] (f64 for f64) that is added to the scores to choose, not to the weights; optional */
    int64_t groups;  /**< groups of neighbouring experts; 0: 1 */
    int64_t top_groups; /**< a row chooses experts of the groups whose two best scores have the largest sums; 0: all */
} clv_router_options;
/** Router of a mixture of experts: logits [...,E] -> *weights f32 [...,top_k] (f64 for f64) and *ids i32 [...,top_k],
 *  best first, of equal scores the first expert. As in Mixtral (normalised), Qwen2-MoE (not) and DeepSeek-V3 (sigmoid,
 *  bias, groups). E is at most 2048 (CLV_ELIMIT). The gradient passes through the weights of the chosen experts. */
CLV_EXPERIMENTAL void clv_router(clv_graph *graph, clv_value logits, const clv_router_options *options,
                                 clv_value *weights, clv_value *ids);
/** Experts of a mixture: x [...,M], ids i32 and weights f32 (f64 for f64) [...,K], gate_up [E,M,2,F], down [E,F,M] ->
 *  y [...,M] = sum over k of weights[k] * (act(x gate[e]) * (x up[e])) down[e], e = ids[k]. Rows are sorted by expert
 *  and none is dropped; an id outside [0, E) adds nothing. Split over experts or over F, the result is a partial sum.
 *  activation: as of clv_gated. */
CLV_EXPERIMENTAL clv_value clv_experts(clv_graph *graph, clv_value x, clv_value ids, clv_value weights,
                                       clv_value gate_up, clv_value down, clv_unary_kind activation);
/** Places of tokens at experts of which each has `capacity` places in each group (Lepikhin et al. 2020, GShard,
 *  arXiv:2006.16668): ids i32 [groups...,S,K] -> places [groups...,S,K] = expert * capacity + position, the first rows
 *  first; experts * capacity: the expert is full, or there is no such expert, and the row is dropped there. */
CLV_EXPERIMENTAL clv_value clv_expert_places(clv_graph *graph, clv_value ids, int64_t experts, int64_t capacity);
/** Copies rows to their places: x [groups...,S,M] -> [groups...,E,C,M]; 0 where no row has the place. */
CLV_EXPERIMENTAL clv_value clv_expert_dispatch(clv_graph *graph, clv_value x, clv_value places, int64_t experts,
                                               int64_t capacity);
/** Brings rows back: y [groups...,E,C,M] -> [groups...,S,M] = sum over k of weights[k] * y at place k; dropped ones add
 *  nothing. weights: f32 (f64 for f64) [groups...,S,K]. Split over experts, the result is a partial sum. */
CLV_EXPERIMENTAL clv_value clv_expert_combine(clv_graph *graph, clv_value y, clv_value places, clv_value weights);

/** x / (1-p) where uniform(fold_in(key, step)) at the global element index < 1-p, else 0. step: i32 scalar, optional.
 *  The mask does not depend on the mesh. */
CLV_API clv_value clv_dropout(clv_graph *graph, clv_value x, double p, clv_key key, clv_value step);

/** L2 norm of all elements of the float tensors x[0..n) together: an f32 scalar. Each rank sums squares in f64, in an
 *  order that depends on sizes alone. Tensors with stated layouts (inputs, state, results of clv_constrain) that are
 *  sharded over the same axes are summed locally first, so one scalar is reduced per set of axes. */
CLV_API clv_value clv_global_norm(clv_graph *graph, const clv_value *x, int n);
/** min(1, most / (norm + 1e-6)): the factor that clips gradients of this norm (an f32 scalar) to `most` > 0 (Pascanu et
 *  al. 2013, as torch.nn.utils.clip_grad_norm_); NaN if the norm is not finite. */
CLV_API clv_value clv_clip_scale(clv_graph *graph, clv_value norm, double most);

/** Zero-initialised = defaults. */
typedef struct clv_adamw_options {
    size_t size;                            /**< sizeof the struct, or 0 */
    double beta1, beta2, eps, weight_decay; /**< zeros: 0.9, 0.999, 1e-8; weight_decay 0 */
    const clv_layout *state_layout; /**< layout of the moments; NULL: the parameter's. Sharded further it is ZeRO stage
                                         1: the gradient is reduce-scattered, the new parameter all-gathered */
    clv_value grad_scale;           /**< f32 scalar factor of the gradient (clv_clip_scale); NaN skips the update.
                                         CLV_NONE: 1 */
    bool exact;                     /**< true: zeros in the betas mean 0, not the default, and eps must be given */
} clv_adamw_options;
/** AdamW (Loshchilov & Hutter 2019, eps outside the root). Makes the moments as state "<name>.m" and ".v", f32 (f64 for
 *  f64), for a parameter of 16 bits also its f32 copy ".master", and assigns the updates. lr: f32 scalar; step: i32
 *  scalar, 1 at the first update. */
CLV_API void clv_adamw(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr, clv_value step,
                       const clv_adamw_options *options);

/** Zero-initialised = defaults. */
typedef struct clv_sgd_options {
    size_t size;                    /**< sizeof the struct, or 0 */
    double momentum, weight_decay;  /**< zeros: 0.9; weight_decay 0 */
    const clv_layout *state_layout; /**< layout of the momentum, as clv_adamw_options.state_layout */
    clv_value grad_scale;           /**< as clv_adamw_options.grad_scale */
    bool exact;                     /**< true: a momentum of 0 means 0, not the default */
} clv_sgd_options;
/** SGD with momentum, as torch.optim.SGD: b = momentum b + g + weight_decay p, p = p - lr b. State is made and assigned
 *  as by clv_adamw: "<name>.momentum" and ".master". lr: f32 scalar. */
CLV_API void clv_sgd(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr,
                     const clv_sgd_options *options);

/** Zero-initialised = defaults. */
typedef struct clv_lion_options {
    size_t size;                       /**< sizeof the struct, or 0 */
    double beta1, beta2, weight_decay; /**< zeros: 0.9, 0.99; weight_decay 0 */
    const clv_layout *state_layout;    /**< layout of the moment, as clv_adamw_options.state_layout */
    clv_value grad_scale;              /**< as clv_adamw_options.grad_scale */
    bool exact;                        /**< true: zeros in the betas mean 0, not the default */
} clv_lion_options;
/** Lion (Chen et al. 2023, arXiv:2302.06675): p = p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) g),
 *  m = beta2 m + (1 - beta2) g. State is made and assigned as by clv_adamw: "<name>.lion" and ".master". lr: f32
 *  scalar. */
CLV_API void clv_lion(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr,
                      const clv_lion_options *options);

#ifdef __cplusplus
}
#endif
#endif
