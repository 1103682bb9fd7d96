/* transpose.c - transpose op: permutes dimensions.
 *
 * factors: every dimension passes. Linear; passes maxima.      gradient: the inverse order
 */
#include "kernels/cpu/transpose_kernel.h"
#include "ops/builtin_ops.h"

typedef struct transpose_attrs {
    int order[CLV_MAX_RANK];
} transpose_attrs;

static const clv_attr attrs[] = {{"order", CLV_ATTR_INT, offsetof(transpose_attrs, order), CLV_MAX_RANK}, {0}};

static clv_status transpose_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const transpose_attrs *a = op->attrs;
    unsigned seen = 0;
    *out = (clv_type){.dtype = in[0].dtype, .rank = in[0].rank};
    for (int d = 0; d < out->rank; d++) {
        int from = a->order[d];
        if (from < 0 || from >= out->rank || (seen >> from & 1))
            return clv_fail(err, CLV_EINVAL, "the order names dimension %d; valid: each of 0 to %d once", from,
                            out->rank - 1);
        seen |= 1u << from;
        out->shape[d] = in[0].shape[from];
    }
    return CLV_OK;
}

static void transpose_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const transpose_attrs *a = op->attrs;
    for (int d = 0; d < out->rank; d++) {
        int factor = clv_rule_add_factor(rule, out->shape[d], CLV_REDUCTION_NONE);
        clv_rule_result_dim(rule, 0, d, factor);
        clv_rule_operand_dim(rule, 0, a->order[d], factor);
    }
    clv_rule_multilinear(rule, 1);
    clv_rule_keeps_partial_max(rule);
}

static clv_status transpose_run(const clv_call *call, clv_error *err)
{
    const transpose_attrs *a = call->op->attrs;
    const clv_view *x = &call->in[0];
    clv_transpose_tensor(clv_dtype_size(x->dtype), call->out[0].data, x->data, x->rank, x->shape, a->order);
    return CLV_OK;
}

static void transpose_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    const transpose_attrs a = *(const transpose_attrs *)op->attrs;
    int inverse[CLV_MAX_RANK] = {0}, rank = clv_graph_type(graph, d_out[0]).rank;
    for (int d = 0; d < rank; d++)
        inverse[a.order[d]] = d;
    d_in[0] = clv_transpose(graph, d_out[0], inverse);
}

clv_value clv_transpose(clv_graph *graph, clv_value x, const int *order)
{
    if (!clv_graph_require(graph, order != NULL, __func__, "an order"))
        return CLV_NONE;
    transpose_attrs a;
    memset(&a, 0, sizeof a);
    for (int d = 0; d < clv_graph_type(graph, x).rank; d++)
        a.order[d] = order[d];
    return clv_graph_emit_one(graph, &clv_op_transpose, &a, &x, 1);
}

const clv_op_def clv_op_transpose = {
    .name = "transpose",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(transpose_attrs, attrs),
    .shape = transpose_shape,
    .rule = transpose_rule,
    .gradient = transpose_gradient,
    .run = transpose_run,
    .traits = &(const clv_op_traits){.passes_cotangent = true},
};
