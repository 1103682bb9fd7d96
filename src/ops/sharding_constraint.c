/* sharding_constraint.c - with_sharding_constraint: identity with a stated layout, and its gradient (f, g).
 *
 *   out = x        factors: every dimension passes; never run: the partitioner replaces it by collectives
 *
 * The gradient brings the cotangent to the layout of x, where replicated is the dual of partial. So the conjugate of an
 * all_gather is a reduce_scatter, and that of an all_reduce is the identity: Megatron's f, f*, g and g*.
 */
#include "ops/builtin_ops.h"

typedef struct constraint_attrs {
    clv_layout layout;
} constraint_attrs;

static const clv_attr attrs[] = {CLV_FIELD(LAYOUT, constraint_attrs, layout), {0}};

/* Only for graphs that run without a partitioner. */
static clv_status identity_run(const clv_call *call, clv_error *err)
{
    clv_view_copy_unless_aliased(&call->out[0], &call->in[0]);
    return CLV_OK;
}

static const clv_layout *stated_layout(const clv_op *op)
{
    return &((const constraint_attrs *)op->attrs)->layout;
}

static void constraint_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    d_in[0] = clv_graph_emit_one(graph, &clv_op_cotangent_constraint, NULL, d_out, 1);
    if (clv_valid(d_in[0]))
        graph->values[d_in[0].id].primal = op->in[0];
}

/* A cotangent of a cotangent is not constrained. */
static void pass_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    d_in[0] = d_out[0];
}

/* Outside of any scope the op is named after its operand: "embedding.constraint". */
clv_value clv_constrain(clv_graph *graph, clv_value x, const clv_layout *layout)
{
    if (!clv_graph_require(graph, layout != NULL, __func__, "a layout"))
        return CLV_NONE;
    if (!clv_graph_ok(graph) || !clv_valid(x))
        return CLV_NONE;
    clv_type type = clv_graph_type(graph, x);
    clv_error why = {0};
    if (layout->rank != type.rank)
        return clv_graph_fail(graph, CLV_ESHAPE, "%sconstraint: the layout is for %d dimensions, the tensor has %d",
                              graph->scope, layout->rank, type.rank);
    if (clv_layout_check(layout, &graph->mesh, type.shape, &why) != CLV_OK)
        return clv_graph_fail(graph, why.code, "%sconstraint: %s", graph->scope, why.message);
    if (clv_layout_is_partial(layout))
        return clv_graph_fail(graph, CLV_EINVAL, "%sconstraint: a partial layout cannot be asked for", graph->scope);
    constraint_attrs a;
    memset(&a, 0, sizeof a);
    a.layout = *layout;
    bool outside = graph->scope[0] == '\0';
    if (outside)
        clv_graph_push_scope(graph, "%s", clv_graph_name_of(graph, clv_graph_unconstrained(graph, x).id));
    clv_value out = clv_graph_emit_one(graph, &clv_op_constraint, &a, &x, 1);
    if (outside)
        clv_graph_pop_scope(graph);
    return out;
}

const clv_op_def clv_op_constraint = {
    .name = "constraint",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(constraint_attrs, attrs),
    .shape = clv_op_shape_like_first,
    .rule = clv_op_rule_elementwise,
    .gradient = constraint_gradient,
    .in_place = {1},
    .run = identity_run,
    .traits = &(const clv_op_traits){.constraint = stated_layout, .passes_cotangent = true},
};

const clv_op_def clv_op_cotangent_constraint = {
    .name = "cotangent_constraint",
    CLV_ARITY(1, 1, 1),
    .shape = clv_op_shape_like_first,
    .rule = clv_op_rule_elementwise,
    .gradient = pass_gradient,
    .in_place = {1},
    .run = identity_run,
    .traits = &(const clv_op_traits){.follows_primal = true},
};
