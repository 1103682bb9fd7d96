/* softmax.c - softmax op over the last, unsharded dimension, and its gradient.
 *
 *   y[r,c] = exp(x[r,c] - max_c x[r,c]) / sum_c exp(x[r,c] - max)      factors: rows pass; c whole
 *   d_x[r,c] = y[r,c] * (d_y[r,c] - sum_c d_y[r,c] * y[r,c])           the same; linear in d_y
 *
 * A row of -inf gives zeros. (Attention and cross-entropy have their own softmax kernels, which never store y.)
 */
#include "kernels/cpu/softmax_kernel.h"
#include "ops/builtin_ops.h"

static clv_status check(const clv_type *x, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_float("x", x, err));
    CLV_TRY(clv_check_min_rank("x", x, 1, "[...,C]", err));
    *out = *x;
    return CLV_OK;
}

static void row_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_rows(rule, op, &in[0], CLV_REDUCTION_NONE, CLV_REDUCTION_NONE, op->n_in == 1 ? "r>r" : "rr>r");
}

/* ---- softmax_gradient: d_y, y -> d_x ---- */

static clv_status gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_same_shape("d_y", &in[0], "y", &in[1], err));
    return check(&in[1], out, err);
}

static void gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    row_rule(op, in, out, rule);
    clv_rule_multilinear(rule, 1u << 0);
}

static clv_status gradient_run(const clv_call *call, clv_error *err)
{
    const clv_view *y = &call->in[1];
    clv_softmax_backward(y->dtype, call->out[0].data, call->in[0].data, y->data, clv_view_row_count(y, 1),
                         y->shape[y->rank - 1]);
    return CLV_OK;
}

const clv_op_def clv_op_softmax_gradient = {
    .name = "softmax_gradient",
    .display_name = "the gradient of softmax",
    CLV_ARITY(2, 2, 1),
    .shape = gradient_shape,
    .rule = gradient_rule,
    .in_place = {1 + 0},
    .run = gradient_run,
};

/* ---- softmax ---- */

static clv_status softmax_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    return check(&in[0], out, err);
}

static clv_status softmax_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0];
    clv_softmax_forward(x->dtype, call->out[0].data, x->data, clv_view_row_count(x, 1), x->shape[x->rank - 1]);
    return CLV_OK;
}

static void softmax_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_value in[] = {d_out[0], clv_op_result(op, 0)};
    d_in[0] = clv_graph_emit_one(graph, &clv_op_softmax_gradient, NULL, in, 2);
}

const clv_op_def clv_op_softmax = {
    .name = "softmax",
    CLV_ARITY(1, 1, 1),
    .shape = softmax_shape,
    .rule = row_rule,
    .gradient = softmax_gradient,
    .in_place = {1 + 0},
    .run = softmax_run,
};

clv_value clv_softmax(clv_graph *graph, clv_value x)
{
    return clv_graph_emit_one(graph, &clv_op_softmax, NULL, &x, 1);
}
