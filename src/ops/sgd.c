/* sgd.c - SGD with momentum update op: one step on one parameter.
 *
 *   d = g + weight_decay p;   b' = momentum b + d;   p' = p - lr b'
 *
 *   factors: every dimension passes, in place on p and b; as adamw
 *
 * Source: Sutskever et al. 2013, as torch.optim.SGD (dampening 0), where decay is a part of the gradient and lr is not
 * one of the buffer. b is f32 (f64 for f64); of a parameter of 16 bits an f32 copy is updated.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cpu/sgd_lion_kernel.h"
#include "ops/builtin_ops.h"
#include "ops/optimizer_common.h"

typedef struct sgd_attrs {
    double momentum, weight_decay;
} sgd_attrs;

static const clv_attr sgd_fields[] = {{"momentum", CLV_ATTR_DOUBLE, offsetof(sgd_attrs, momentum), 1},
                                      {"weight_decay", CLV_ATTR_DOUBLE, offsetof(sgd_attrs, weight_decay), 1},
                                      {0}};

enum { P, B, G, LR, SCALE, OPERANDS };

static clv_op_cost sgd_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return clv_update_cost(op, in, out, 6);
}

static clv_status sgd_run(const clv_call *call, clv_error *err)
{
    const sgd_attrs *attrs = call->op->attrs;
    float scale = clv_update_prepare(call);
    const clv_sgd_args args = {.lr = *(const float *)call->in[LR].data,
                               .momentum = attrs->momentum,
                               .weight_decay = attrs->weight_decay,
                               .grad_scale = scale};
    (void)err;
    if (!isnan(scale))
        clv_sgd_step(&args, call->out[P].dtype, call->out[P].data, call->out[B].data, call->in[G].dtype,
                     call->in[G].data, clv_view_elems(&call->in[P]));
    return CLV_OK;
}

const clv_op_def clv_op_sgd = {
    .name = "sgd",
    .min_in = SCALE,
    .max_in = OPERANDS,
    .n_out = 2,
    .attrs_size = sizeof(sgd_attrs),
    .attrs = sgd_fields,
    .shape = clv_update_shape,
    .rule = clv_update_rule,
    .cost = sgd_cost,
    .in_place = {1 + P, 1 + B},
    .run = sgd_run,
};

void clv_sgd(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr, const clv_sgd_options *options)
{
    static const char call[] = "clv_sgd";
    sgd_attrs attrs;
    clv_sgd_options given;
    clv_state_update u;
    if (!clv_graph_ok(graph) || !clv_graph_take_options(graph, &given, sizeof given, sizeof given, options, call))
        return;
    memset(&attrs, 0, sizeof attrs);
    attrs.momentum = given.exact || given.momentum != 0 ? given.momentum : 0.9;
    attrs.weight_decay = given.weight_decay;
    if (!(attrs.momentum >= 0 && attrs.momentum < 1 && attrs.weight_decay >= 0 && isfinite(attrs.weight_decay))) {
        clv_graph_fail(graph, CLV_EINVAL,
                       "%s: momentum %g, weight_decay %g; momentum in [0, 1) and weight_decay >= 0 are needed", call,
                       attrs.momentum, attrs.weight_decay);
        return;
    }
    if (!clv_update_begin(&u, graph, parameter, gradient, given.state_layout, call))
        return;
    clv_value in[] = {u.updated, clv_update_moment(graph, &u, ".momentum"), u.gradient, lr, given.grad_scale};
    clv_update_emit(graph, &u, &clv_op_sgd, &attrs, in, OPERANDS);
}
