/* router.c - router of a mixture of experts: the best experts of each row and their weights; and its gradient.
 *
 *   s = softmax(logits), or sigmoid(logits);  ids = the top_k experts of largest s + bias;
 *   weights[j] = scale * s[ids[j]] / (normalised ? sum_j s[ids[j]] : 1)            factors: rows pass; experts whole
 *
 * The gradient of weights passes to the scores of the chosen experts (ids and bias have none); it is a separate op,
 * which recomputes the scores; linear in d_weights.
 */
#include "kernels/cpu/router_kernel.h"
#include "ops/builtin_ops.h"

typedef struct router_attrs {
    int64_t top_k, groups, top_groups;
    bool sigmoid, normalised;
    double scale;
} router_attrs;

static const clv_attr fields[] = {CLV_FIELD(INT64, router_attrs, top_k),
                                  CLV_FIELD(INT64, router_attrs, groups),
                                  CLV_FIELD(INT64, router_attrs, top_groups),
                                  CLV_FIELD(BOOL, router_attrs, sigmoid),
                                  CLV_FIELD(BOOL, router_attrs, normalised),
                                  CLV_FIELD(DOUBLE, router_attrs, scale),
                                  {0}};

/* [rows..., n] */
static clv_type row_type(const clv_type *logits, clv_dtype dtype, int64_t n)
{
    clv_type type = *logits;
    type.dtype = dtype;
    type.shape[type.rank - 1] = n;
    return type;
}

static clv_status check_choice(const router_attrs *a, int64_t experts, clv_error *err)
{
    if (experts > CLV_ROUTER_MAX_EXPERTS)
        return clv_fail(err, CLV_ELIMIT, "there are %lld experts; valid: at most %d", (long long)experts,
                        CLV_ROUTER_MAX_EXPERTS);
    if (a->groups < 1 || experts % a->groups != 0 || a->top_groups < 1 || a->top_groups > a->groups)
        return clv_fail(err, CLV_EINVAL,
                        "%lld of %lld groups of %lld experts; valid: groups that divide the experts, 1 to all of them",
                        (long long)a->top_groups, (long long)a->groups, (long long)experts);
    const int64_t most = experts / a->groups * a->top_groups;
    if (a->top_k < 1 || a->top_k > most)
        return clv_fail(err, CLV_EINVAL, "a row chooses %lld experts of %lld; valid: 1 to %lld", (long long)a->top_k,
                        (long long)most, (long long)most);
    return CLV_OK;
}

/* Everything but the pointers of results. */
static clv_router_args args_of(const clv_op *op, const clv_view *logits, const clv_view *bias, clv_dtype weights_dtype)
{
    const router_attrs *a = op->attrs;
    return (clv_router_args){.rows = clv_view_row_count(logits, 1),
                             .experts = logits->shape[logits->rank - 1],
                             .top_k = a->top_k,
                             .groups = a->groups,
                             .top_groups = a->top_groups,
                             .sigmoid = a->sigmoid,
                             .normalised = a->normalised,
                             .scale = a->scale,
                             .dtype = logits->dtype,
                             .weights_dtype = weights_dtype,
                             .logits = logits->data,
                             .bias = bias ? bias->data : NULL};
}

/* Scores of all experts, and the choice. */
static clv_op_cost router_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.bytes = clv_op_traffic_bytes(op, in, out)};
}

/* ---- router_gradient: d_weights, logits, ids -> d_logits ---- */

static clv_status gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_float("logits", &in[1], err));
    CLV_TRY(clv_check_min_rank("logits", &in[1], 1, "[...,E]", err));
    CLV_TRY(clv_check_same_shape("d_weights", &in[0], "ids", &in[2], err));
    out[0] = in[1];
    return CLV_OK;
}

static void gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const int rows = in[1].rank - 1;
    clv_rule_add_dims(rule, &in[1], rows);
    for (int i = 0; i < 3; i++)
        clv_rule_map_in_dims(rule, i, rows);
    clv_rule_map_out_dims(rule, 0, rows);
    clv_rule_multilinear(rule, 1u << 0);
}

static clv_status gradient_run(const clv_call *call, clv_error *err)
{
    clv_router_args args = args_of(call->op, &call->in[1], NULL, call->in[0].dtype);
    clv_router_backward(&args, call->out[0].data, call->in[0].data, call->in[2].data);
    return CLV_OK;
}

const clv_op_def clv_op_router_gradient = {
    .name = "router_gradient",
    .display_name = "the gradient of the router",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(router_attrs, fields),
    .shape = gradient_shape,
    .rule = gradient_rule,
    .cost = router_cost,
    .run = gradient_run,
};

/* ---- router: logits [..., E], bias? [E] -> weights [..., top_k], ids [..., top_k] ---- */

static clv_status router_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const router_attrs *a = op->attrs;
    CLV_TRY(clv_check_float("logits", &in[0], err));
    CLV_TRY(clv_check_min_rank("logits", &in[0], 1, "[...,E]", err));
    const int64_t experts = in[0].shape[in[0].rank - 1];
    const clv_type bias = {.dtype = clv_statistics_dtype(in[0].dtype), .rank = 1, .shape = {experts}};
    CLV_TRY(check_choice(a, experts, err));
    if (op->n_in > 1 && !clv_type_equal(&in[1], &bias))
        return clv_fail(err, CLV_ESHAPE, "the bias is %s; %s is needed", clv_type_string(&in[1]).text,
                        clv_type_string(&bias).text);
    out[0] = row_type(&in[0], bias.dtype, a->top_k);
    out[1] = row_type(&in[0], CLV_I32, a->top_k);
    return CLV_OK;
}

static void router_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const int rows = in[0].rank - 1;
    clv_rule_add_dims(rule, &in[0], rows);
    clv_rule_map_in_dims(rule, 0, rows);
    clv_rule_map_out_dims(rule, 0, rows);
    clv_rule_map_out_dims(rule, 1, rows);
}

static clv_status router_run(const clv_call *call, clv_error *err)
{
    const clv_view *bias = clv_op_operand_count(call->op) > 1 ? &call->in[1] : NULL;
    clv_router_args args = args_of(call->op, &call->in[0], bias, call->out[0].dtype);
    clv_router_forward(&args, call->out[0].data, call->out[1].data);
    return CLV_OK;
}

static void router_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    router_attrs attrs = *(const router_attrs *)op->attrs;
    clv_value in[] = {d_out[0], clv_op_operand(op, 0), clv_op_result(op, 1)};
    if (clv_valid(d_out[0]))
        d_in[0] = clv_graph_emit_one(graph, &clv_op_router_gradient, &attrs, in, 3);
}

const clv_op_def clv_op_router = {
    .name = "router",
    CLV_ARITY(1, 2, 2),
    CLV_ATTRS(router_attrs, fields),
    .shape = router_shape,
    .rule = router_rule,
    .gradient = router_gradient,
    .cost = router_cost,
    .run = router_run,
    .statistics = 1u << 0,
};

void clv_router(clv_graph *graph, clv_value logits, const clv_router_options *given, clv_value *weights, clv_value *ids)
{
    clv_router_options o;
    if (!clv_graph_require(graph, given && weights && ids, __func__, "options, and room for weights and ids"))
        return;
    *weights = *ids = CLV_NONE;
    if (!clv_graph_options_copy_in(graph, &o, sizeof o, sizeof o, given, __func__))
        return;
    router_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.top_k = o.top_k;
    attrs.groups = o.groups ? o.groups : 1;
    attrs.top_groups = o.top_groups ? o.top_groups : attrs.groups;
    attrs.sigmoid = o.sigmoid;
    attrs.normalised = o.normalised;
    attrs.scale = o.scale != 0 ? o.scale : 1;
    clv_value in[] = {logits, o.bias}, out[2];
    clv_graph_emit(graph, &clv_op_router, &attrs, in, clv_valid(o.bias) ? 2 : 1, out);
    *weights = out[0];
    *ids = out[1];
}
