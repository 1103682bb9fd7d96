/* operand_checks.h - checks of operands for shape functions, and helpers for sharding rules, costs and attributes of
 * ops. `what` is the operand's name in the builder (graph.h).
 */
#pragma once

#include "graph/op.h"

/* ---- definitions ---- */

// clang-format off
/* Fields of a clv_op_def: its numbers of operands (required, at most) and of results. */
#define CLV_ARITY(least, most, results) .min_in = (least), .max_in = (most), .n_out = (results)
/* Fields of a clv_op_def: its struct of attributes, and the table of the struct's fields. */
#define CLV_ATTRS(type, table) .attrs_size = sizeof(type), .attrs = (table)
/* A row of that table: CLV_FIELD(DOUBLE, dropout_attrs, p). */
#define CLV_FIELD(kind, type, field) {#field, CLV_ATTR_##kind, offsetof(type, field), 1}
// clang-format on

/* ---- checks ---- */

/* CLV_EDTYPE unless the dtype is f32, bf16, f16 or f64. */
clv_status clv_check_float(const char *what, const clv_type *type, clv_error *err);
/* CLV_EDTYPE unless the dtype is i32 or i64. */
clv_status clv_check_index(const char *what, const clv_type *type, clv_error *err);
/* CLV_ESHAPE or CLV_EDTYPE unless it is a scalar of this dtype. */
clv_status clv_check_scalar(const char *what, const clv_type *type, clv_dtype dtype, clv_error *err);
/* CLV_ESHAPE or CLV_EDTYPE unless it is i32[] (one offset) or i32[batch] (one for each row of the batch). */
clv_status clv_check_offset(const clv_type *type, int64_t batch, clv_error *err);
/* CLV_ESHAPE unless it has at least `rank` dimensions; `letters` is the shape for the message: "[...,V]". */
clv_status clv_check_min_rank(const char *what, const clv_type *type, int rank, const char *letters, clv_error *err);
/* CLV_ESHAPE unless both have the same shape; dtypes may differ. */
clv_status clv_check_same_shape(const char *what, const clv_type *type, const char *other, const clv_type *like,
                                clv_error *err);
/* CLV_ESHAPE unless it has the dimensions of `like` without the last one. */
clv_status clv_check_rows(const char *what, const clv_type *type, const char *other, const clv_type *like,
                          clv_error *err);

/* The shape of n operands broadcast together (NumPy's rule) in *out, which holds a dtype alone. @return CLV_ESHAPE */
clv_status clv_broadcast_shapes(clv_type *out, const clv_type *const *operands, int n, clv_error *err);
/* The local shape of an operand, padded with leading 1s to `rank`. */
void clv_padded_shape(int64_t *shape, const clv_view *view, int rank);

/* The dtype of statistics (sums, maxima, moments) of a tensor of `dtype`: f64 for f64, else f32. */
clv_dtype clv_statistics_dtype(clv_dtype dtype);

/* ---- sizes ---- */

/* The product of the extents of dimensions [from, to). */
int64_t clv_shape_product(const int64_t *shape, int from, int to);
/* The product of all extents of a view except the last `trailing`. */
int64_t clv_view_row_count(const clv_view *view, int trailing);
double clv_type_bytes(const clv_type *type);
/* Bytes of all operands and results: the memory traffic of an op that moves each once. */
double clv_op_traffic_bytes(const clv_op *op, const clv_type *in, const clv_type *out);

/* A type as text, for messages: clv_type_string(&in[0]).text. */
typedef struct clv_type_chars {
    char text[CLV_TYPE_TEXT];
} clv_type_chars;
clv_type_chars clv_type_string(const clv_type *type);

/* ---- kernels and rules ---- */

/* Copies an operand to the result that may share its buffer; does nothing if it does. */
void clv_view_copy_unless_aliased(const clv_view *out, const clv_view *in);

/* Moves an index to the next element in row-major order, over the first n dimensions of a shape. */
static inline void clv_index_next(int64_t *index, const int64_t *shape, int n)
{
    for (int d = n - 1; d >= 0 && ++index[d] == shape[d]; d--)
        index[d] = 0;
}

/* The element of an operand that stands at an index of the result that it is broadcast to: along an extent of 1 always
 * the first. */
static inline int64_t clv_broadcast_element(const int64_t *shape, const int64_t *index, int rank)
{
    int64_t at = 0;
    for (int d = 0; d < rank; d++)
        at = at * shape[d] + (shape[d] == 1 ? 0 : index[d]);
    return at;
}

/* Element i of a view of whole numbers or bool. */
int64_t clv_view_load_int(const clv_view *view, int64_t i);

/* Adds factors 0..n-1, one for each of the first n dimensions of a tensor. */
void clv_rule_add_dims(clv_rule *rule, const clv_type *type, int n);
/* Gives the first n dimensions of operand, or result, i factors 0..n-1. */
void clv_rule_map_in_dims(clv_rule *rule, int i, int n);
void clv_rule_map_out_dims(clv_rule *rule, int i, int n);
/* The rule of an op over rows: one factor for each dimension of x but the last (reduction `rows`), and one for the last
 * (reduction `last`), whose number is returned. dims has a letter for each operand, '>', and a letter for the results:
 * x has all dimensions, r the rows, c the last alone. So "xrc>x" is y[r,c] of x[r,c], row statistics [r] and gain [c].
 */
int clv_rule_rows(clv_rule *rule, const clv_op *op, const clv_type *x, clv_reduction rows, clv_reduction last,
                  const char *dims);
/* A clv_op_def.rule: clv_rule_elementwise, and nothing else. */
void clv_op_rule_elementwise(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule);
/* A clv_op_def.shape: the result is like operand 0. */
clv_status clv_op_shape_like_first(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err);
/* A clv_op_def.gradient: 0 for every operand. (NULL: differentiating the op is an error.) */
void clv_op_gradient_zero(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in);
