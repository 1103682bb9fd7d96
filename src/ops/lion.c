/* lion.c - Lion update op: one step on one parameter.
 *
 *   p' = p (1 - lr weight_decay) - lr * sign(beta1 m + (1 - beta1) g);   m' = beta2 m + (1 - beta2) g
 *
 *   factors: every dimension passes, in place on p and m; as adamw
 *
 * Source: Chen et al. 2023, arXiv:2302.06675, algorithm 2; sign(0) is 0. m is f32 (f64 for f64); of a parameter of 16
 * bits an f32 copy is updated.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cpu/sgd_lion_kernel.h"
#include "ops/builtin_ops.h"
#include "ops/optimizer_common.h"

typedef struct lion_attrs {
    double beta1, beta2, weight_decay;
} lion_attrs;

static const clv_attr lion_fields[] = {{"beta1", CLV_ATTR_DOUBLE, offsetof(lion_attrs, beta1), 1},
                                       {"beta2", CLV_ATTR_DOUBLE, offsetof(lion_attrs, beta2), 1},
                                       {"weight_decay", CLV_ATTR_DOUBLE, offsetof(lion_attrs, weight_decay), 1},
                                       {0}};

enum { P, M, G, LR, SCALE, OPERANDS };

static clv_op_cost lion_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return clv_update_cost(op, in, out, 9);
}

static clv_status lion_run(const clv_call *call, clv_error *err)
{
    const lion_attrs *attrs = call->op->attrs;
    float scale = clv_update_prepare(call);
    const clv_lion_args args = {.lr = *(const float *)call->in[LR].data,
                                .beta1 = attrs->beta1,
                                .beta2 = attrs->beta2,
                                .weight_decay = attrs->weight_decay,
                                .grad_scale = scale};
    (void)err;
    if (!isnan(scale))
        clv_lion_step(&args, call->out[P].dtype, call->out[P].data, call->out[M].data, call->in[G].dtype,
                      call->in[G].data, clv_view_elems(&call->in[P]));
    return CLV_OK;
}

const clv_op_def clv_op_lion = {
    .name = "lion",
    .min_in = SCALE,
    .max_in = OPERANDS,
    .n_out = 2,
    .attrs_size = sizeof(lion_attrs),
    .attrs = lion_fields,
    .shape = clv_update_shape,
    .rule = clv_update_rule,
    .cost = lion_cost,
    .in_place = {1 + P, 1 + M},
    .run = lion_run,
};

static bool fill_attrs(clv_graph *graph, lion_attrs *attrs, const clv_lion_options *given)
{
    memset(attrs, 0, sizeof *attrs);
    attrs->beta1 = given->exact || given->beta1 != 0 ? given->beta1 : 0.9;
    attrs->beta2 = given->exact || given->beta2 != 0 ? given->beta2 : 0.99;
    attrs->weight_decay = given->weight_decay;
    if (attrs->beta1 >= 0 && attrs->beta1 < 1 && attrs->beta2 >= 0 && attrs->beta2 < 1 && attrs->weight_decay >= 0 &&
        isfinite(attrs->weight_decay))
        return true;
    clv_graph_fail(graph, CLV_EINVAL,
                   "clv_lion: beta1 %g, beta2 %g, weight_decay %g; betas in [0, 1) and weight_decay >= 0 are needed",
                   attrs->beta1, attrs->beta2, attrs->weight_decay);
    return false;
}

void clv_lion(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr, const clv_lion_options *options)
{
    static const char call[] = "clv_lion";
    lion_attrs attrs;
    clv_lion_options given;
    clv_state_update u;
    if (!clv_graph_ok(graph) || !clv_graph_take_options(graph, &given, sizeof given, sizeof given, options, call) ||
        !fill_attrs(graph, &attrs, &given) ||
        !clv_update_begin(&u, graph, parameter, gradient, given.state_layout, call))
        return;
    clv_value in[] = {u.updated, clv_update_moment(graph, &u, ".lion"), u.gradient, lr, given.grad_scale};
    clv_update_emit(graph, &u, &clv_op_lion, &attrs, in, OPERANDS);
}
