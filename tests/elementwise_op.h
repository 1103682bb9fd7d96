/* elementwise_op.h - shape and rule of a test's own ops that make of each element of their operand one of their result.
 * */
#pragma once

#include "cleave/op.h"

static inline clv_status same_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = in[0];
    return CLV_OK;
}

static inline void by_elements(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
}
