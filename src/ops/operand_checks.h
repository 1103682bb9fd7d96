/* operand_checks.h - operand validation for shape rules, and small helpers for rules and kernels of ops. `what` is
 * the operand's name as its builder in graph.h calls it.
 */
#ifndef CLEAVE_OPS_OPERAND_CHECKS_H
#define CLEAVE_OPS_OPERAND_CHECKS_H

#include "graph/op.h"

/* CLV_EDTYPE unless of f32, bf16, f16, f64. */
clv_status clv_check_float(const char *what, const clv_type *type, clv_error *err);
/* CLV_EDTYPE unless i32 or i64. */
clv_status clv_check_index(const char *what, const clv_type *type, clv_error *err);
/* CLV_ESHAPE or CLV_EDTYPE unless `dtype`[]. */
clv_status clv_check_scalar(const char *what, const clv_type *type, clv_dtype dtype, clv_error *err);
/* CLV_ESHAPE or CLV_EDTYPE unless i32[] or i32[batch]: an "offset" of all rows of a batch, or of each. */
clv_status clv_check_offset(const clv_type *type, int64_t batch, clv_error *err);
/* CLV_ESHAPE unless it has `rank` dimensions or more; `letters` names them: "[...,V]". */
clv_status clv_check_rank_from(const char *what, const clv_type *type, int rank, const char *letters, clv_error *err);
/* CLV_ESHAPE unless both have the same shape; dtypes may differ. */
clv_status clv_check_same_shape(const char *what, const clv_type *type, const char *other, const clv_type *like,
                                clv_error *err);
/* CLV_ESHAPE unless it has the dimensions of `like` but for the last one. */
clv_status clv_check_rows(const char *what, const clv_type *type, const char *other, const clv_type *like,
                          clv_error *err);

/* f64 for f64, else f32: the dtype of statistics of a tensor of `dtype`. */
clv_dtype clv_statistics_dtype(clv_dtype dtype);

/* The product of extents, of dimensions [from, to). */
int64_t clv_shape_product(const int64_t *shape, int from, int to);
/* Elements of all dimensions of a view but the last `trailing`. */
int64_t clv_view_rows(const clv_view *view, int trailing);
double clv_type_bytes(const clv_type *type);
/* Brings an operand into the buffer of the result that may share it; nothing where it does. */
void clv_view_copy_unless_aliased(const clv_view *out, const clv_view *in);

/* Adds a factor (pass) for each dimension [0, n) of a tensor of this type: factor d is dimension d. */
void clv_rule_add_dims(clv_rule *rule, const clv_type *type, int n);
/* Says that dimensions [0, n) of operand, or result, i are factors 0..n-1. */
void clv_rule_map_in_dims(clv_rule *rule, int i, int n);
void clv_rule_map_out_dims(clv_rule *rule, int i, int n);

#endif
