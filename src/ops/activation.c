/* activation.c - fused activations: bias + GELU, and gated units (SwiGLU, GeGLU), with gradients.
 *
 *   bias_gelu:  out = gelu(x + bias), bias along the last dimension        factors: pass
 *   gated:      out[...,f] = act(x[...,0,f]) * x[...,1,f]                  factors: rows and f pass; the 2 is whole
 *
 * gradients: separate ops, which recompute the activation from x; d_bias is d_x summed over rows.
 */
#include "kernels/cpu/activation_kernel.h"
#include "ops/builtin_ops.h"

typedef struct activation_attrs {
    int kind; /* clv_unary_kind */
} activation_attrs;

static const clv_attr fields[] = {CLV_FIELD(INT, activation_attrs, kind), {0}};

static activation_attrs attrs_of(clv_unary_kind kind)
{
    activation_attrs a;
    memset(&a, 0, sizeof a);
    a.kind = (int)kind;
    return a;
}

static clv_unary_op kernel_of(const clv_call *call)
{
    return clv_unary_op_of_kind((clv_unary_kind)((const activation_attrs *)call->op->attrs)->kind);
}

/* ---- bias_gelu ---- */

static clv_status bias_gelu_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    int x = op->n_in - 2; /* operand 0 of the gradient is d_out */
    CLV_TRY(clv_check_float("x", &in[x], err));
    CLV_TRY(clv_check_min_rank("x", &in[x], 1, "[...,F]", err));
    if (in[x + 1].rank != 1 || in[x + 1].shape[0] != in[x].shape[in[x].rank - 1] || in[x + 1].dtype != in[x].dtype)
        return clv_fail(err, CLV_ESHAPE, "the bias must be %s[%lld]", clv_dtype_name(in[x].dtype),
                        (long long)in[x].shape[in[x].rank - 1]);
    out[0] = in[x];
    return CLV_OK;
}

static clv_status bias_gelu_run(const clv_call *call, clv_error *err)
{
    const clv_view *out = &call->out[0];
    clv_bias_act(kernel_of(call), out->dtype, out->data, call->in[0].data, call->in[1].data, clv_view_row_count(out, 1),
                 out->shape[out->rank - 1]);
    return CLV_OK;
}

static void bias_gelu_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    activation_attrs a = *(const activation_attrs *)op->attrs;
    clv_value in[] = {d_out[0], clv_op_operand(op, 0), clv_op_operand(op, 1)};
    d_in[0] = clv_graph_emit_one(graph, &clv_op_bias_gelu_gradient, &a, in, 3);
    d_in[1] = clv_graph_unbroadcast(graph, d_in[0], clv_graph_type(graph, in[2]));
}

static clv_status bias_gelu_gradient_run(const clv_call *call, clv_error *err)
{
    const clv_view *out = &call->out[0];
    clv_bias_act_backward(kernel_of(call), out->dtype, out->data, call->in[0].data, call->in[1].data, call->in[2].data,
                          clv_view_row_count(out, 1), out->shape[out->rank - 1]);
    return CLV_OK;
}

clv_value clv_bias_gelu(clv_graph *graph, clv_value x, clv_value bias, clv_unary_kind kind)
{
    static const clv_enum_name kinds[] = {CLV_ENUM_NAME(CLV_GELU), CLV_ENUM_NAME(CLV_GELU_TANH), {0}};
    if (!clv_graph_require_enum(graph, "bias_gelu", (int)kind, kinds))
        return CLV_NONE;
    activation_attrs a = attrs_of(kind);
    clv_value in[] = {x, bias};
    return clv_graph_emit_one(graph, &clv_op_bias_gelu, &a, in, 2);
}

const clv_op_def clv_op_bias_gelu = {
    .name = "bias_gelu",
    CLV_ARITY(2, 2, 1),
    CLV_ATTRS(activation_attrs, fields),
    .shape = bias_gelu_shape,
    .rule = clv_op_rule_elementwise,
    .gradient = bias_gelu_gradient,
    .in_place = {1},
    .run = bias_gelu_run,
};

const clv_op_def clv_op_bias_gelu_gradient = {
    .name = "bias_gelu_gradient",
    .display_name = "the gradient of gelu with a bias",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(activation_attrs, fields),
    .shape = bias_gelu_shape,
    .rule = clv_op_rule_elementwise,
    .in_place = {1},
    .run = bias_gelu_gradient_run,
};

/* ---- gated ---- */

static clv_status gated_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_float("x", &in[0], err));
    CLV_TRY(clv_check_min_rank("x", &in[0], 2, "[...,2,F]", err));
    *out = in[0];
    out->rank--;
    out->shape[out->rank - 1] = in[0].shape[in[0].rank - 1];
    if (in[0].shape[in[0].rank - 2] != 2)
        return clv_fail(err, CLV_ESHAPE, "x must be [...,2,F], its last dimension but one is %lld",
                        (long long)in[0].shape[in[0].rank - 2]);
    return CLV_OK;
}

/* One factor for each row dimension, and f. x is [rows, 2, f], out is [rows, f]. */
static void gated_factors(clv_rule *rule, const clv_type *x)
{
    clv_rule_add_dims(rule, x, x->rank - 2);
    clv_rule_add_factor(rule, x->shape[x->rank - 1], CLV_REDUCTION_NONE);
}

static void gated_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    int rows = in[0].rank - 2;
    gated_factors(rule, &in[0]);
    clv_rule_map_in_dims(rule, 0, rows);
    clv_rule_operand_dim(rule, 0, rows + 1, rows);
    clv_rule_map_out_dims(rule, 0, rows + 1);
}

static clv_status gated_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *out = &call->out[0];
    int64_t cols = out->shape[out->rank - 1];
    const char *gate = x->data;
    clv_glu(kernel_of(call), out->dtype, out->data, gate, gate + (size_t)cols * clv_dtype_size(x->dtype), 2 * cols,
            clv_view_row_count(out, 1), cols);
    return CLV_OK;
}

static void gated_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    activation_attrs a = *(const activation_attrs *)op->attrs;
    clv_value in[] = {d_out[0], clv_op_operand(op, 0)};
    d_in[0] = clv_graph_emit_one(graph, &clv_op_gated_gradient, &a, in, 2);
}

static clv_status gated_gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = in[1];
    return CLV_OK;
}

static void gated_gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    int rows = in[1].rank - 2;
    gated_factors(rule, &in[1]);
    clv_rule_map_in_dims(rule, 0, rows + 1);
    clv_rule_map_in_dims(rule, 1, rows);
    clv_rule_operand_dim(rule, 1, rows + 1, rows);
    clv_rule_map_out_dims(rule, 0, rows);
    clv_rule_result_dim(rule, 0, rows + 1, rows);
    clv_rule_multilinear(rule, 1);
}

static clv_status gated_gradient_run(const clv_call *call, clv_error *err)
{
    const clv_view *d_out = &call->in[0];
    int64_t cols = d_out->shape[d_out->rank - 1];
    size_t up = (size_t)cols * clv_dtype_size(d_out->dtype);
    const char *x = call->in[1].data;
    char *d_x = call->out[0].data;
    clv_glu_backward(kernel_of(call), d_out->dtype, d_x, d_x + up, d_out->data, x, x + up, 2 * cols,
                     clv_view_row_count(d_out, 1), cols);
    return CLV_OK;
}

bool clv_graph_require_gated_activation(clv_graph *graph, const char *what, int kind)
{
    /* Activations whose derivative takes the input, as the fused kernels need. */
    static const clv_enum_name kinds[] = {
        CLV_ENUM_NAME(CLV_SILU), CLV_ENUM_NAME(CLV_GELU), CLV_ENUM_NAME(CLV_GELU_TANH), CLV_ENUM_NAME(CLV_RELU), {0}};
    return clv_graph_require_enum(graph, what, kind, kinds);
}

clv_value clv_gated(clv_graph *graph, clv_value x, clv_unary_kind kind)
{
    if (!clv_graph_require_gated_activation(graph, "gated", (int)kind))
        return CLV_NONE;
    activation_attrs a = attrs_of(kind);
    return clv_graph_emit_one(graph, &clv_op_gated, &a, &x, 1);
}

const clv_op_def clv_op_gated = {
    .name = "gated",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(activation_attrs, fields),
    .shape = gated_shape,
    .rule = gated_rule,
    .gradient = gated_gradient,
    .run = gated_run,
    .traits = &(const clv_op_traits){.is_rowwise = true},
};

const clv_op_def clv_op_gated_gradient = {
    .name = "gated_gradient",
    .display_name = "the gradient of the gated activation",
    CLV_ARITY(2, 2, 1),
    CLV_ATTRS(activation_attrs, fields),
    .shape = gated_gradient_shape,
    .rule = gated_gradient_rule,
    .in_place = {2},
    .run = gated_gradient_run,
    .traits = &(const clv_op_traits){.is_rowwise = true},
};
