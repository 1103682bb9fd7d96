/* norm.c - LayerNorm and RMSNorm ops over a dimension that may be sharded: moments, normalize, gradients.
 *
 *   moments[r]  = (sum_m x[r,m], sum_m x[r,m]^2)                       factors: rows pass; m reduce(sum)
 *   normalize:   mean = moments[0] / M (rms: 0), rstd = 1 / sqrt(moments[1] / M - mean^2 + eps)
 *                y[r,m] = (x[r,m] - mean) * rstd * gain[m] + bias[m]    factors: rows, m pass
 *
 * Two ops, so that a row split over ranks costs a sum of two numbers and never a gather. The moments are f64, because
 * sum x^2 - mean^2 cancels. M is the *global* width.
 *
 * normalize has the gradient of both ops; its moments operand gets none. With g = d_y * gain and
 * xhat = (x - mean) * rstd,
 *   normalize_sums[r] = (sum_m g, sum_m g * xhat)                      rows pass; m reduce(sum); linear in d_y
 *   normalize_dx      = rstd * (g - sums[0] / M (rms: 0) - xhat * sums[1] / M)   all pass; additive in (d_y, sums)
 *   normalize_dgain   = sum_r d_y * xhat, and d_bias = sum_r d_y       m pass; rows reduce(sum); linear in d_y
 * This rule gives sequence parallelism's all-reduce of the gradients of gain and bias.
 *
 * Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450; Zhang & Sennrich 2019, arXiv:1910.07467.
 */
#include <math.h>

#include "kernels/cpu/norm_kernel.h"
#include "ops/builtin_ops.h"

/* Attributes of all ops of this file. */
typedef struct norm_attrs {
    bool layer; /* LayerNorm (mean and bias); false: RMSNorm */
    double eps;
    clv_dtype weight_dtype; /* of d_gain and d_bias */
} norm_attrs;

static const clv_attr norm_attr_table[] = {CLV_FIELD(BOOL, norm_attrs, layer),
                                           CLV_FIELD(DOUBLE, norm_attrs, eps),
                                           CLV_FIELD(DTYPE, norm_attrs, weight_dtype),
                                           {0}};

static clv_norm norm_of(const clv_call *call, const clv_view *x, const clv_view *weight)
{
    const norm_attrs *attrs = call->op->attrs;
    return (clv_norm){
        .kind = attrs->layer ? CLV_NORM_LAYER : CLV_NORM_RMS,
        .dtype = x->dtype,
        .weight_dtype = weight ? weight->dtype : x->dtype,
        .rows = clv_view_row_count(x, 1),
        .cols = x->shape[x->rank - 1],
        .width = x->global[x->rank - 1],
        .eps = attrs->eps,
    };
}

/* Type of two statistics a row: f64 [rows..., 2]. */
static clv_type pair_of(const clv_type *x)
{
    clv_type pair = *x;
    pair.dtype = CLV_F64;
    pair.shape[pair.rank - 1] = 2;
    return pair;
}

static clv_status check_pair(const char *what, const clv_type *pair, const clv_type *x, clv_error *err)
{
    clv_type wanted = pair_of(x);
    if (pair->dtype != CLV_F64)
        return clv_fail(err, CLV_EDTYPE, "%s are %s; f64 is needed", what, clv_dtype_name(pair->dtype));
    return clv_check_same_shape(what, pair, "the pair a row", &wanted, err);
}

static clv_status check_weight(const char *what, const clv_type *weight, const clv_type *x, clv_error *err)
{
    CLV_TRY(clv_check_float(what, weight, err));
    if (weight->rank == 1 && weight->shape[0] == x->shape[x->rank - 1])
        return CLV_OK;
    return clv_fail(err, CLV_ESHAPE, "%s is %s; [%lld], the last dimension of x, is needed", what,
                    clv_type_string(weight).text, (long long)x->shape[x->rank - 1]);
}

static clv_status check_x(const clv_type *x, clv_error *err)
{
    CLV_TRY(clv_check_float("x", x, err));
    return clv_check_min_rank("x", x, 1, "[...,M]", err);
}

/* d_y, x, moments */
static clv_status check_gradient_operands(const clv_type *in, clv_error *err)
{
    CLV_TRY(check_x(&in[1], err));
    CLV_TRY(clv_check_same_shape("d_y", &in[0], "x", &in[1], err));
    return check_pair("moments", &in[2], &in[1], err);
}

/* ---- moments: x -> f64 [rows..., 2] ---- */

static clv_status moments_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_x(&in[0], err));
    out[0] = pair_of(&in[0]);
    return CLV_OK;
}

static void moments_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_rows(rule, op, &in[0], CLV_REDUCTION_NONE, CLV_REDUCTION_SUM, "x>r");
}

static clv_status moments_run(const clv_call *call, clv_error *err)
{
    clv_norm norm = norm_of(call, &call->in[0], NULL);
    clv_norm_moments(&norm, call->out[0].data, call->in[0].data);
    return CLV_OK;
}

const clv_op_def clv_op_moments = {
    .name = "moments",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(norm_attrs, norm_attr_table),
    .shape = moments_shape,
    .rule = moments_rule,
    .run = moments_run,
    .statistics = 1,
    .traits = &(const clv_op_traits){.is_rowwise = true},
};

/* ---- normalize_sums: d_y, x, moments, gain -> f64 [rows..., 2] ---- */

static clv_status sums_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_gradient_operands(in, err));
    CLV_TRY(check_weight("gain", &in[3], &in[1], err));
    out[0] = pair_of(&in[1]);
    return CLV_OK;
}

static void sums_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_rows(rule, op, &in[1], CLV_REDUCTION_NONE, CLV_REDUCTION_SUM, "xxrc>r");
    clv_rule_multilinear(rule, 1u << 0);
}

static clv_status sums_run(const clv_call *call, clv_error *err)
{
    clv_norm norm = norm_of(call, &call->in[1], &call->in[3]);
    clv_norm_backward_sums(&norm, call->out[0].data, call->in[0].data, call->in[1].data, call->in[2].data,
                           call->in[3].data);
    return CLV_OK;
}

const clv_op_def clv_op_normalize_sums = {
    .name = "normalize_sums",
    .display_name = "the sums in the gradient of the norm",
    CLV_ARITY(4, 4, 1),
    CLV_ATTRS(norm_attrs, norm_attr_table),
    .shape = sums_shape,
    .rule = sums_rule,
    .run = sums_run,
    .statistics = 1,
    .traits = &(const clv_op_traits){.is_rowwise = true},
};

/* ---- normalize_dx: d_y, x, moments, sums, gain -> d_x ---- */

static clv_status dx_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_gradient_operands(in, err));
    CLV_TRY(check_pair("sums", &in[3], &in[1], err));
    CLV_TRY(check_weight("gain", &in[4], &in[1], err));
    out[0] = in[1];
    return CLV_OK;
}

static void dx_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_rows(rule, op, &in[1], CLV_REDUCTION_NONE, CLV_REDUCTION_NONE, "xxrrc>x");
    clv_rule_additive(rule, 1u << 0 | 1u << 3); /* d_x is a sum of a term in d_y and one in sums */
}

static clv_status dx_run(const clv_call *call, clv_error *err)
{
    clv_norm norm = norm_of(call, &call->in[1], &call->in[4]);
    clv_norm_backward_apply(&norm, call->out[0].data, call->in[0].data, call->in[1].data, call->in[2].data,
                            call->in[3].data, call->in[4].data);
    return CLV_OK;
}

const clv_op_def clv_op_normalize_dx = {
    .name = "normalize_dx",
    .display_name = "the gradient of the norm",
    CLV_ARITY(5, 5, 1),
    CLV_ATTRS(norm_attrs, norm_attr_table),
    .shape = dx_shape,
    .rule = dx_rule,
    .in_place = {1 + 0},
    .run = dx_run,
    .traits = &(const clv_op_traits){.is_rowwise = true},
};

/* ---- normalize_dgain: d_y, x, moments -> d_gain [M]; normalize_dweights: the same -> d_gain, d_bias [M] ---- */

static clv_status dgain_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const norm_attrs *attrs = op->attrs;
    CLV_TRY(check_gradient_operands(in, err));
    for (int o = 0; o < op->n_out; o++)
        out[o] = (clv_type){.dtype = attrs->weight_dtype, .rank = 1, .shape = {in[1].shape[in[1].rank - 1]}};
    return CLV_OK;
}

static void dgain_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_rows(rule, op, &in[1], CLV_REDUCTION_SUM, CLV_REDUCTION_NONE, "xxr>c");
    clv_rule_multilinear(rule, 1u << 0);
}

static clv_status dgain_run(const clv_call *call, clv_error *err)
{
    clv_norm norm = norm_of(call, &call->in[1], &call->out[0]);
    clv_norm_backward_weights(&norm, call->out[0].data, call->op->n_out > 1 ? call->out[1].data : NULL,
                              call->in[0].data, call->in[1].data, call->in[2].data);
    return CLV_OK;
}

const clv_op_def clv_op_normalize_dgain = {
    .name = "normalize_dgain",
    .display_name = "the gradient of the norm's gain",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(norm_attrs, norm_attr_table),
    .shape = dgain_shape,
    .rule = dgain_rule,
    .run = dgain_run,
    .traits = &(const clv_op_traits){.accepts_f32_results = true},
};

const clv_op_def clv_op_normalize_dweights = {
    .name = "normalize_dweights",
    .display_name = "the gradient of the norm's gain and bias",
    CLV_ARITY(3, 3, 2),
    CLV_ATTRS(norm_attrs, norm_attr_table),
    .shape = dgain_shape,
    .rule = dgain_rule,
    .run = dgain_run,
    .traits = &(const clv_op_traits){.accepts_f32_results = true},
};

/* ---- normalize: x, moments, gain, bias? -> y ---- */

static clv_status normalize_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_x(&in[0], err));
    CLV_TRY(check_pair("moments", &in[1], &in[0], err));
    CLV_TRY(check_weight("gain", &in[2], &in[0], err));
    if (clv_valid(clv_op_operand(op, 3))) {
        CLV_TRY(check_weight("bias", &in[3], &in[0], err));
        if (in[3].dtype != in[2].dtype)
            return clv_fail(err, CLV_EDTYPE, "gain is %s and bias is %s; their dtypes must be equal",
                            clv_dtype_name(in[2].dtype), clv_dtype_name(in[3].dtype));
    }
    out[0] = in[0];
    return CLV_OK;
}

static void normalize_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_rows(rule, op, &in[0], CLV_REDUCTION_NONE, CLV_REDUCTION_NONE, "xrcc>x");
}

static clv_status normalize_run(const clv_call *call, clv_error *err)
{
    clv_norm norm = norm_of(call, &call->in[0], &call->in[2]);
    clv_norm_apply(&norm, call->out[0].data, call->in[0].data, call->in[1].data, call->in[2].data,
                   call->op->n_in > 3 ? call->in[3].data : NULL);
    return CLV_OK;
}

/* d_in[1], of the moments, stays CLV_NONE: d_in[0] is the whole derivative by x, including that through the moments. */
static void normalize_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    norm_attrs attrs = *(const norm_attrs *)op->attrs;
    clv_value x = clv_op_operand(op, 0), moments = clv_op_operand(op, 1), gain = clv_op_operand(op, 2),
              bias = clv_op_operand(op, 3);
    clv_value for_sums[] = {d_out[0], x, moments, gain};
    clv_value sums = clv_graph_emit_one(graph, &clv_op_normalize_sums, &attrs, for_sums, 4);
    clv_value for_dx[] = {d_out[0], x, moments, sums, gain};
    d_in[0] = clv_graph_emit_one(graph, &clv_op_normalize_dx, &attrs, for_dx, 5);

    clv_value weights[CLV_MAX_OUT] = {CLV_NONE};
    attrs.weight_dtype = clv_graph_type(graph, gain).dtype;
    clv_graph_emit(graph, clv_valid(bias) ? &clv_op_normalize_dweights : &clv_op_normalize_dgain, &attrs, for_sums, 3,
                   weights);
    d_in[2] = weights[0];
    if (clv_valid(bias))
        d_in[3] = weights[1];
}

const clv_op_def clv_op_normalize = {
    .name = "normalize",
    CLV_ARITY(3, 4, 1),
    CLV_ATTRS(norm_attrs, norm_attr_table),
    .shape = normalize_shape,
    .rule = normalize_rule,
    .gradient = normalize_gradient,
    .in_place = {1 + 0},
    .run = normalize_run,
    .traits = &(const clv_op_traits){.is_rowwise = true},
};

/* ---- builders ---- */

static clv_value build(clv_graph *graph, bool layer, clv_value x, clv_value gain, clv_value bias, double eps)
{
    if (!(eps > 0) || !isfinite(eps))
        return clv_graph_fail(graph, CLV_EINVAL, "%s: eps is %g; it must be above 0 and finite",
                              layer ? "clv_layer_norm" : "clv_rms_norm", eps);
    norm_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.layer = layer;
    attrs.eps = eps;
    clv_value in[] = {x, clv_graph_emit_one(graph, &clv_op_moments, &attrs, &x, 1), gain, bias};
    return clv_graph_emit_one(graph, &clv_op_normalize, &attrs, in, clv_valid(bias) ? 4 : 3);
}

clv_value clv_rms_norm(clv_graph *graph, clv_value x, clv_value gain, double eps)
{
    return build(graph, false, x, gain, CLV_NONE, eps);
}

clv_value clv_layer_norm(clv_graph *graph, clv_value x, clv_value gain, clv_value bias, double eps)
{
    return build(graph, true, x, gain, bias, eps);
}
