/* expert_dispatch.c - tokens go to places of their experts, of which each has as many as its capacity, and back
 * (Lepikhin et al. 2020, GShard, arXiv:2006.16668): expert_places, dispatch, combine, and combine's gradient.
 *
 *   places   = expert_places(ids)            factors: groups pass; rows and top_k whole; no gradient
 *   d        = dispatch(x, places, weights?) factors: groups and M pass, experts (of the result); rows reduce(sum)
 *   y        = combine(d, places, weights?)  factors: groups, rows and M pass; experts reduce(sum)
 *   d_weights = expert_weights_gradient(d_y, d, places)   factors: groups and rows pass; experts and M reduce(sum)
 *
 * Groups are the dimensions before rows: a group's copies compete for the places of an expert, the first rows first, so
 * what is dropped does not depend on the mesh. Dispatch and combine are each other's gradient. Where a mesh axis splits
 * groups before and experts after, what is between is an all-to-all.
 */
#include "kernels/cpu/expert_dispatch_kernel.h"
#include "ops/builtin_ops.h"

typedef struct dispatch_attrs {
    int64_t experts, capacity;
} dispatch_attrs;

static const clv_attr fields[] = {
    CLV_FIELD(INT64, dispatch_attrs, experts), CLV_FIELD(INT64, dispatch_attrs, capacity), {0}};

static clv_status check_attrs(const clv_op *op, clv_error *err)
{
    const dispatch_attrs *a = op->attrs;
    if (a->experts < 1 || a->capacity < 1 || a->experts > INT32_MAX / a->capacity)
        return clv_fail(err, CLV_EINVAL, "%lld experts of %lld places; valid: 1 and above, together less than 2^31",
                        (long long)a->experts, (long long)a->capacity);
    return CLV_OK;
}

/* That choices [..., top_k] are of the rows of x [..., M]. */
static clv_status check_choices(const char *what, const clv_type *choices, clv_dtype dtype, const clv_type *x,
                                clv_error *err)
{
    clv_type want = *x;
    want.dtype = dtype;
    want.shape[want.rank - 1] = choices->rank > 0 ? choices->shape[choices->rank - 1] : 0;
    if (clv_type_equal(choices, &want))
        return CLV_OK;
    return clv_fail(err, CLV_ESHAPE, "%s are %s; valid: %s [...,top_k] for rows %s", what,
                    clv_type_string(choices).text, clv_dtype_name(dtype), clv_type_string(x).text);
}

/* The places [..., experts, capacity, M] for x [..., rows, M]. */
static clv_type placed_type(const dispatch_attrs *a, const clv_type *x)
{
    clv_type type = *x;
    type.shape[type.rank - 2] = a->experts;
    type.shape[type.rank - 1] = a->capacity;
    type.shape[type.rank++] = x->shape[x->rank - 1];
    return type;
}

/* Rows [..., rows, M] of y [..., experts, capacity, M] at places [..., rows, top_k]; y must be right. */
static clv_type rows_type(const clv_type *y, const clv_type *places)
{
    clv_type type = *places;
    type.dtype = y->dtype;
    if (type.rank > 0 && y->rank > 0)
        type.shape[type.rank - 1] = y->shape[y->rank - 1];
    return type;
}

static clv_status check_placed(const clv_op *op, const clv_type *y, const clv_type *places, clv_error *err)
{
    CLV_TRY(check_attrs(op, err));
    CLV_TRY(clv_check_float("what is at places", y, err));
    CLV_TRY(clv_check_min_rank("places", places, 2, "[...,rows,top_k]", err));
    const clv_type rows = rows_type(y, places), want = placed_type(op->attrs, &rows);
    if (places->dtype != CLV_I32 || !clv_type_equal(y, &want))
        return clv_fail(err, CLV_ESHAPE, "%s at places %s; valid: i32 places, and %s", clv_type_string(y).text,
                        clv_type_string(places).text, clv_type_string(&want).text);
    return CLV_OK;
}

static clv_dispatch_args args_of(const clv_op *op, const clv_view *placed, const clv_view *places,
                                 const clv_view *weights)
{
    const dispatch_attrs *a = op->attrs;
    const int experts = placed->rank - 3, rows = places->rank - 2;
    clv_dispatch_args args = {.groups = 1,
                              .rows = places->shape[rows],
                              .top_k = places->shape[rows + 1],
                              .width = placed->shape[placed->rank - 1],
                              .first = placed->lo[experts],
                              .n_experts = placed->shape[experts],
                              .capacity = a->capacity,
                              .dtype = placed->dtype,
                              .weights_dtype = weights ? weights->dtype : clv_statistics_dtype(placed->dtype),
                              .place = places->data,
                              .weights = weights ? weights->data : NULL};
    for (int d = 0; d < rows; d++)
        args.groups *= places->shape[d];
    return args;
}

/* The factors of groups, 0 to groups - 1, then rows, experts and M. */
typedef struct dispatch_factors {
    int groups, rows, experts, width;
} dispatch_factors;

static dispatch_factors add_factors(clv_rule *rule, const clv_op *op, const clv_type *rows, clv_reduction of_rows,
                                    clv_reduction of_experts, clv_reduction of_width)
{
    dispatch_factors f = {.groups = rows->rank - 2};
    for (int d = 0; d < f.groups; d++)
        clv_rule_add_factor(rule, rows->shape[d], CLV_REDUCTION_NONE);
    f.rows = clv_rule_add_factor(rule, rows->shape[f.groups], of_rows);
    f.experts = clv_rule_add_factor(rule, ((const dispatch_attrs *)op->attrs)->experts, of_experts);
    f.width = clv_rule_add_factor(rule, rows->shape[rows->rank - 1], of_width);
    clv_rule_name_factor(rule, f.experts, "experts");
    return f;
}

typedef void map_dim(clv_rule *rule, int i, int d, int factor);

static void map_groups(map_dim *map, clv_rule *rule, int i, const dispatch_factors *f)
{
    for (int d = 0; d < f->groups; d++)
        map(rule, i, d, d);
}

/* [groups..., rows, M], or with width false [groups..., rows, top_k]. */
static void map_rows(map_dim *map, clv_rule *rule, int i, const dispatch_factors *f, bool width)
{
    map_groups(map, rule, i, f);
    map(rule, i, f->groups, f->rows);
    if (width)
        map(rule, i, f->groups + 1, f->width);
}

/* [groups..., experts, capacity, M] */
static void map_placed(map_dim *map, clv_rule *rule, int i, const dispatch_factors *f)
{
    map_groups(map, rule, i, f);
    map(rule, i, f->groups, f->experts);
    map(rule, i, f->groups + 2, f->width);
}

static clv_op_cost traffic_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.bytes = clv_op_traffic_bytes(op, in, out)};
}

/* ---- expert_places: ids [..., rows, top_k] -> places, alike ---- */

static clv_status places_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_attrs(op, err));
    CLV_TRY(clv_check_min_rank("ids", &in[0], 2, "[...,rows,top_k]", err));
    if (in[0].dtype != CLV_I32)
        return clv_fail(err, CLV_EDTYPE, "ids are %s; valid: i32", clv_dtype_name(in[0].dtype));
    out[0] = in[0];
    return CLV_OK;
}

static void places_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    for (int d = 0; d < in[0].rank - 2; d++) {
        const int factor = clv_rule_add_factor(rule, in[0].shape[d], CLV_REDUCTION_NONE);
        clv_rule_operand_dim(rule, 0, d, factor);
        clv_rule_result_dim(rule, 0, d, factor);
    }
}

static clv_status places_run(const clv_call *call, clv_error *err)
{
    const dispatch_attrs *a = call->op->attrs;
    const clv_view *ids = &call->in[0];
    const int64_t each = ids->shape[ids->rank - 2] * ids->shape[ids->rank - 1], all = clv_view_elems(ids);
    clv_assign_expert_places(call->out[0].data, ids->data, each > 0 ? all / each : 0, ids->shape[ids->rank - 2],
                             ids->shape[ids->rank - 1], a->experts, a->capacity);
    return CLV_OK;
}

const clv_op_def clv_op_expert_places = {
    .name = "expert_places",
    .display_name = "the places of tokens at their experts",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(dispatch_attrs, fields),
    .shape = places_shape,
    .rule = places_rule,
    .cost = traffic_cost,
    .run = places_run,
};

/* ---- expert_weights_gradient: d_y [..., rows, M], placed, places -> d_weights [..., rows, top_k] ---- */

static clv_status weights_gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_placed(op, &in[1], &in[2], err));
    const clv_type rows = rows_type(&in[1], &in[2]);
    if (!clv_type_equal(&in[0], &rows))
        return clv_fail(err, CLV_ESHAPE, "d_y is %s; %s is needed", clv_type_string(&in[0]).text,
                        clv_type_string(&rows).text);
    out[0] = in[2];
    out[0].dtype = clv_statistics_dtype(in[0].dtype);
    return CLV_OK;
}

static void weights_gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const dispatch_factors f = add_factors(rule, op, &in[0], CLV_REDUCTION_NONE, CLV_REDUCTION_SUM, CLV_REDUCTION_SUM);
    map_rows(clv_rule_operand_dim, rule, 0, &f, true);
    map_placed(clv_rule_operand_dim, rule, 1, &f);
    map_rows(clv_rule_operand_dim, rule, 2, &f, false);
    map_rows(clv_rule_result_dim, rule, 0, &f, false);
    clv_rule_multilinear(rule, 1u << 0 | 1u << 1);
}

static clv_status weights_gradient_run(const clv_call *call, clv_error *err)
{
    const clv_dispatch_args args = args_of(call->op, &call->in[1], &call->in[2], NULL);
    clv_dot_rows(&args, call->out[0].data, call->in[0].data, call->in[1].data);
    return CLV_OK;
}

const clv_op_def clv_op_expert_weights_gradient = {
    .name = "expert_weights_gradient",
    .display_name = "the gradient of the weights of experts",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(dispatch_attrs, fields),
    .shape = weights_gradient_shape,
    .rule = weights_gradient_rule,
    .cost = traffic_cost,
    .run = weights_gradient_run,
    .statistics = 1u << 0,
};

/* ---- dispatch: x [..., rows, M], places, weights? -> [..., experts, capacity, M] ---- */

static clv_status dispatch_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_attrs(op, err));
    CLV_TRY(clv_check_float("x", &in[0], err));
    CLV_TRY(clv_check_min_rank("x", &in[0], 2, "[...,rows,M]", err));
    if (in[0].rank == CLV_MAX_RANK)
        return clv_fail(err, CLV_ELIMIT, "x has %d dimensions; valid: at most %d", in[0].rank, CLV_MAX_RANK - 1);
    CLV_TRY(check_choices("places", &in[1], CLV_I32, &in[0], err));
    if (op->n_in > 2)
        CLV_TRY(check_choices("weights", &in[2], clv_statistics_dtype(in[0].dtype), &in[0], err));
    out[0] = placed_type(op->attrs, &in[0]);
    return CLV_OK;
}

static void dispatch_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const dispatch_factors f = add_factors(rule, op, &in[0], CLV_REDUCTION_SUM, CLV_REDUCTION_NONE, CLV_REDUCTION_NONE);
    map_rows(clv_rule_operand_dim, rule, 0, &f, true);
    for (int i = 1; i < op->n_in; i++)
        map_rows(clv_rule_operand_dim, rule, i, &f, false);
    map_placed(clv_rule_result_dim, rule, 0, &f);
    clv_rule_multilinear(rule, op->n_in > 2 ? 1u << 0 | 1u << 2 : 1u << 0);
}

static clv_status dispatch_run(const clv_call *call, clv_error *err)
{
    const clv_view *weights = clv_op_operand_count(call->op) > 2 ? &call->in[2] : NULL;
    const clv_dispatch_args args = args_of(call->op, &call->out[0], &call->in[1], weights);
    clv_dispatch_rows(&args, call->out[0].data, call->in[0].data);
    return CLV_OK;
}

static void dispatch_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    dispatch_attrs attrs = *(const dispatch_attrs *)op->attrs;
    const int n = clv_op_operand_count(op);
    clv_value x = clv_op_operand(op, 0), places = clv_op_operand(op, 1);
    clv_value of_x[] = {d_out[0], places, n > 2 ? clv_op_operand(op, 2) : CLV_NONE};
    d_in[0] = clv_graph_emit_one(graph, &clv_op_expert_combine, &attrs, of_x, n);
    if (n > 2)
        d_in[2] =
            clv_graph_emit_one(graph, &clv_op_expert_weights_gradient, &attrs, (clv_value[]){x, d_out[0], places}, 3);
}

const clv_op_def clv_op_expert_dispatch = {
    .name = "expert_dispatch",
    CLV_ARITY(2, 3, 1),
    CLV_ATTRS(dispatch_attrs, fields),
    .shape = dispatch_shape,
    .rule = dispatch_rule,
    .gradient = dispatch_gradient,
    .cost = traffic_cost,
    .run = dispatch_run,
};

/* ---- combine: y [..., experts, capacity, M], places, weights? -> [..., rows, M] ---- */

static clv_status combine_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_placed(op, &in[0], &in[1], err));
    out[0] = rows_type(&in[0], &in[1]);
    return op->n_in > 2 ? check_choices("weights", &in[2], clv_statistics_dtype(in[0].dtype), out, err) : CLV_OK;
}

static void combine_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const dispatch_factors f =
        add_factors(rule, op, &out[0], CLV_REDUCTION_NONE, CLV_REDUCTION_SUM, CLV_REDUCTION_NONE);
    map_placed(clv_rule_operand_dim, rule, 0, &f);
    for (int i = 1; i < op->n_in; i++)
        map_rows(clv_rule_operand_dim, rule, i, &f, false);
    map_rows(clv_rule_result_dim, rule, 0, &f, true);
    clv_rule_multilinear(rule, op->n_in > 2 ? 1u << 0 | 1u << 2 : 1u << 0);
}

static clv_status combine_run(const clv_call *call, clv_error *err)
{
    const clv_view *weights = clv_op_operand_count(call->op) > 2 ? &call->in[2] : NULL;
    const clv_dispatch_args args = args_of(call->op, &call->in[0], &call->in[1], weights);
    clv_combine_rows(&args, call->out[0].data, call->in[0].data);
    return CLV_OK;
}

static void combine_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    dispatch_attrs attrs = *(const dispatch_attrs *)op->attrs;
    const int n = clv_op_operand_count(op);
    clv_value y = clv_op_operand(op, 0), places = clv_op_operand(op, 1);
    clv_value of_y[] = {d_out[0], places, n > 2 ? clv_op_operand(op, 2) : CLV_NONE};
    d_in[0] = clv_graph_emit_one(graph, &clv_op_expert_dispatch, &attrs, of_y, n);
    if (n > 2)
        d_in[2] =
            clv_graph_emit_one(graph, &clv_op_expert_weights_gradient, &attrs, (clv_value[]){d_out[0], y, places}, 3);
}

const clv_op_def clv_op_expert_combine = {
    .name = "expert_combine",
    CLV_ARITY(2, 3, 1),
    CLV_ATTRS(dispatch_attrs, fields),
    .shape = combine_shape,
    .rule = combine_rule,
    .gradient = combine_gradient,
    .cost = traffic_cost,
    .run = combine_run,
};

/* ---- builders ---- */

static dispatch_attrs attrs_of(int64_t experts, int64_t capacity)
{
    dispatch_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.experts = experts;
    attrs.capacity = capacity;
    return attrs;
}

clv_value clv_expert_places(clv_graph *graph, clv_value ids, int64_t experts, int64_t capacity)
{
    dispatch_attrs attrs = attrs_of(experts, capacity);
    return clv_graph_emit_one(graph, &clv_op_expert_places, &attrs, &ids, 1);
}

clv_value clv_expert_dispatch(clv_graph *graph, clv_value x, clv_value places, int64_t experts, int64_t capacity)
{
    dispatch_attrs attrs = attrs_of(experts, capacity);
    return clv_graph_emit_one(graph, &clv_op_expert_dispatch, &attrs, (clv_value[]){x, places}, 2);
}

clv_value clv_expert_combine(clv_graph *graph, clv_value y, clv_value places, clv_value weights)
{
    const clv_type type = clv_graph_type(graph, y);
    dispatch_attrs attrs =
        type.rank < 3 ? attrs_of(0, 0) : attrs_of(type.shape[type.rank - 3], type.shape[type.rank - 2]);
    return clv_graph_emit_one(graph, &clv_op_expert_combine, &attrs, (clv_value[]){y, places, weights}, 3);
}
