/* ops.h - the op definitions, one line each, for the op table. */
#ifndef CLEAVE_OPS_OPS_H
#define CLEAVE_OPS_OPS_H

#include "graph/op.h"

extern const clv_op_def clv_op_constraint;
extern const clv_op_def clv_op_cotangent_constraint;
extern const clv_op_def clv_op_dot_general;
extern const clv_op_def clv_op_reduce;
extern const clv_op_def clv_op_broadcast;
extern const clv_op_def clv_op_equal;
extern const clv_op_def clv_op_reshape;
extern const clv_op_def clv_op_transpose;
extern const clv_op_def clv_op_slice;
extern const clv_op_def clv_op_pad;
extern const clv_op_def clv_op_concat;

#endif
