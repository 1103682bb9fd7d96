/* clip_grad_norm.c - gradient clipping: global L2 norm over sharded tensors, and the factor that bounds it.
 *
 *   sum_squares:  out = sum of x^2                            factors: every dimension reduce(sum); not linear
 *   clip_scale:   out = min(1, most / (norm + 1e-6)), NaN where the norm is not finite
 *
 * Squares of tensors that are split over the same axes are added before the reduction, so that one number is reduced
 * for each set of axes, and each element counts once on every mesh. Source: Pascanu et al. 2013, arXiv:1211.5063, as
 * torch.nn.utils.clip_grad_norm_.
 */
#include <math.h>

#include "kernels/cpu/reduce_kernel.h"
#include "ops/builtin_ops.h"

/* ---- sum_squares ---- */

static clv_status squares_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_float("x", &in[0], err));
    out[0] = (clv_type){.dtype = clv_statistics_dtype(in[0].dtype)};
    return CLV_OK;
}

static clv_status squares_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0];
    clv_dtype_store(call->out[0].dtype, call->out[0].data, 0, clv_sum_squares(x->dtype, x->data, clv_view_elems(x)));
    return CLV_OK;
}

const clv_op_def clv_op_sum_squares = {
    .name = "sum_squares",
    CLV_ARITY(1, 1, 1),
    .shape = squares_shape,
    .rule = clv_op_rule_reduce_all,
    .run = squares_run,
    .statistics = 1,
};

/* ---- clip_scale ---- */

typedef struct clip_attrs {
    double most;
} clip_attrs;

static const clv_attr clip_fields[] = {CLV_FIELD(DOUBLE, clip_attrs, most), {0}};

static clv_status clip_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_scalar("the norm", &in[0], CLV_F32, err));
    out[0] = in[0];
    return CLV_OK;
}

static void clip_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
}

static clv_status clip_run(const clv_call *call, clv_error *err)
{
    const clip_attrs *a = call->op->attrs;
    double norm = *(const float *)call->in[0].data;
    *(float *)call->out[0].data = isfinite(norm) ? (float)fmin(1, a->most / (norm + 1e-6)) : NAN;
    return CLV_OK;
}

const clv_op_def clv_op_clip_scale = {
    .name = "clip_scale",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(clip_attrs, clip_fields),
    .shape = clip_shape,
    .rule = clip_rule,
    .run = clip_run,
    .statistics = 1,
};

/* ---- builders ---- */

/* Sums of squares that are partial over the same axes. */
typedef struct square_group {
    clv_layout partial; /* layout of the sum, a scalar */
    clv_value sum;
} square_group;

/* The stated layout of a value; NULL: none. */
static const clv_layout *stated_layout(const clv_graph *graph, clv_value x)
{
    const clv_value_info *info = &graph->values[x.id];
    return info->source == CLV_FROM_OP ? clv_op_constraint_of(&graph->ops[info->op]) : &info->layout;
}

/* The layout of a sum over a tensor's local shard: partial over all axes that split the tensor. */
static clv_layout partial_of(clv_graph *graph, const clv_layout *layout)
{
    clv_layout partial = clv_layout_replicated(0);
    const clv_subaxis *axes;
    for (int d = 0; layout && d < layout->rank; d++)
        for (int k = 0, n = clv_layout_axes(&axes, layout, d); k < n; k++)
            if (clv_graph_ok(graph))
                clv_layout_add_partial(&partial, &graph->mesh, CLV_REDUCTION_SUM, axes[k], &graph->error);
    return partial;
}

/* The op is named after the tensor, so that reports of a sum that overflows name it. */
static clv_value squares_of(clv_graph *graph, clv_value x)
{
    const char *scope = graph->scope, *name = clv_value_name(graph, x);
    graph->scope = name ? clv_arena_format(graph->arena, "%s.", name) : scope;
    clv_value squares = graph->scope ? clv_graph_emit_one(graph, &clv_op_sum_squares, NULL, &x, 1)
                                     : clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the name of a sum");
    graph->scope = scope;
    return squares;
}

static void add_squares(clv_graph *graph, square_group *groups, int *n, clv_value x)
{
    int g = 0;
    clv_layout partial = partial_of(graph, stated_layout(graph, x));
    clv_value squares = squares_of(graph, x);
    while (g < *n && !clv_layout_equal(&groups[g].partial, &partial))
        g++;
    if (g == *n)
        groups[(*n)++] = (square_group){partial, squares};
    else
        groups[g].sum = clv_add(graph, groups[g].sum, squares);
}

clv_value clv_global_norm(clv_graph *graph, const clv_value *x, int n)
{
    const clv_layout whole = clv_layout_replicated(0);
    clv_value total = CLV_NONE;
    int n_groups = 0;
    if (!clv_graph_require(graph, x && n > 0, __func__, "tensors") || !x)
        return CLV_NONE;
    square_group *groups = clv_arena_alloc(graph->arena, (size_t)n, sizeof *groups);
    if (!groups)
        return clv_graph_fail(graph, CLV_ENOMEM, "%s: out of memory for %d tensors", __func__, n);
    clv_graph_push_scope(graph, "global_norm");
    for (int i = 0; i < n; i++) {
        if (!clv_graph_ok(graph) || !clv_valid(x[i]) || x[i].id >= graph->n_values)
            return clv_graph_fail(graph, CLV_EINVAL, "%s: tensor %d is none of this graph", __func__, i);
        add_squares(graph, groups, &n_groups, x[i]);
    }
    for (int g = 0; g < n_groups; g++) {
        clv_value sum = clv_constrain(graph, groups[g].sum, &whole);
        total = g == 0 ? sum : clv_add(graph, total, sum);
    }
    clv_value norm = clv_unary(graph, CLV_SQRT, clv_cast(graph, total, CLV_F32));
    clv_graph_pop_scope(graph);
    return norm;
}

clv_value clv_clip_scale(clv_graph *graph, clv_value norm, double most)
{
    clip_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.most = most;
    if (clv_graph_ok(graph) && !(most > 0 && isfinite(most)))
        return clv_graph_fail(graph, CLV_EINVAL, "clv_clip_scale: a maximal norm of %g; above 0 and finite is needed",
                              most);
    return clv_graph_emit_one(graph, &clv_op_clip_scale, &attrs, &norm, 1);
}
