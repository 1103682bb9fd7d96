/* adamw.c - AdamW update op: one step on one parameter, with an f32 master copy for 16-bit parameters.
 *
 *   m' = beta1 m + (1 - beta1) g;   v' = beta2 v + (1 - beta2) g^2
 *   p' = p (1 - lr weight_decay) - lr * (m' / (1 - beta1^step)) / (sqrt(v' / (1 - beta2^step)) + eps)
 *
 *   factors: every dimension passes, in place on p, m and v; not linear: a partial gradient is reduced first, straight
 *   into the parameter's layout (all-reduce when replicated, reduce-scatter when split: ZeRO)
 *
 * Source: Loshchilov & Hutter 2019, arXiv:1711.05101, as torch.optim.AdamW. m and v are f32 (f64 for f64). A parameter
 * of 16 bits is the rounding of an f32 copy, which is what is updated: 12 bytes of state a parameter.
 *
 *   adamw_rounded: the same, and p' rounded, in one pass
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "kernels/cpu/adamw_kernel.h"
#include "kernels/cpu/elementwise_kernel.h"
#include "ops/builtin_ops.h"
#include "ops/operand_checks.h"
#include "ops/optimizer_common.h"

typedef struct adamw_attrs {
    double beta1, beta2, eps, weight_decay;
    clv_dtype rounded; /* of adamw_rounded's last result */
} adamw_attrs;

#define ADAMW_ATTRS                                                                                                    \
    {"beta1", CLV_ATTR_DOUBLE, offsetof(adamw_attrs, beta1), 1},                                                       \
        {"beta2", CLV_ATTR_DOUBLE, offsetof(adamw_attrs, beta2), 1},                                                   \
        {"eps", CLV_ATTR_DOUBLE, offsetof(adamw_attrs, eps), 1},                                                       \
    {                                                                                                                  \
        "weight_decay", CLV_ATTR_DOUBLE, offsetof(adamw_attrs, weight_decay), 1                                        \
    }

static const clv_attr adamw_attr_table[] = {ADAMW_ATTRS, {0}};
static const clv_attr rounded_attr_table[] = {
    ADAMW_ATTRS, {"dtype", CLV_ATTR_DTYPE, offsetof(adamw_attrs, rounded), 1}, {0}};

/* Operands: parameter, m, v, gradient, lr, step, and optionally what the gradient is multiplied by. */
enum { P, M, V, G, LR, STEP, SCALE, OPERANDS };
enum { STATES = 3, ROUNDED = STATES };

static clv_status adamw_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_update_shape(op, in, out, err));
    return clv_check_scalar("step", &in[STEP], CLV_I32, err);
}

static clv_status rounded_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(adamw_shape(op, in, out, err));
    if (in[P].dtype != CLV_F32)
        return clv_fail(err, CLV_EDTYPE, "what is rounded is %s; f32 is needed", clv_dtype_name(in[P].dtype));
    out[ROUNDED] = in[P];
    out[ROUNDED].dtype = ((const adamw_attrs *)op->attrs)->rounded;
    return CLV_OK;
}

static clv_op_cost adamw_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return clv_update_cost(op, in, out, 12);
}

/* rounded: NULL: the parameter is not rounded. */
static clv_status run(const clv_call *call, const clv_view *rounded, clv_error *err)
{
    const adamw_attrs *attrs = call->op->attrs;
    const clv_view *p = &call->out[P], *grad = &call->in[G];
    int32_t step = *(const int32_t *)call->in[STEP].data;
    if (step < 1)
        return clv_fail(err, CLV_EINVAL, "step is %d; the first update is step 1", step);
    float scale = clv_update_prepare(call);
    clv_adamw_args args = {.lr = *(const float *)call->in[LR].data,
                           .beta1 = attrs->beta1,
                           .beta2 = attrs->beta2,
                           .eps = attrs->eps,
                           .weight_decay = attrs->weight_decay,
                           .step = step,
                           .grad_scale = scale};
    void *m = call->out[M].data, *v = call->out[V].data;
    if (!isnan(scale) && rounded)
        clv_adamw_step(&args, rounded->dtype, rounded->data, p->data, m, v, grad->dtype, grad->data, clv_view_elems(p));
    else if (!isnan(scale))
        clv_adamw_step(&args, p->dtype, p->data, NULL, m, v, grad->dtype, grad->data, clv_view_elems(p));
    else if (rounded)
        clv_cast_run(rounded->dtype, rounded->data, p->dtype, p->data, clv_view_elems(p));
    return CLV_OK;
}

static clv_status adamw_run(const clv_call *call, clv_error *err)
{
    return run(call, NULL, err);
}

static clv_status rounded_run(const clv_call *call, clv_error *err)
{
    return run(call, &call->out[ROUNDED], err);
}

const clv_op_def clv_op_adamw = {
    .name = "adamw",
    .min_in = SCALE,
    .max_in = OPERANDS,
    .n_out = STATES,
    .attrs_size = sizeof(adamw_attrs),
    .attrs = adamw_attr_table,
    .shape = adamw_shape,
    .rule = clv_update_rule,
    .cost = adamw_cost,
    .in_place = {1 + P, 1 + M, 1 + V},
    .run = adamw_run,
};

const clv_op_def clv_op_adamw_rounded = {
    .name = "adamw_rounded",
    .display_name = "AdamW's update, and what it rounds to",
    .min_in = SCALE,
    .max_in = OPERANDS,
    .n_out = STATES + 1,
    .attrs_size = sizeof(adamw_attrs),
    .attrs = rounded_attr_table,
    .shape = rounded_shape,
    .rule = clv_update_rule,
    .cost = adamw_cost,
    .in_place = {1 + P, 1 + M, 1 + V},
    .run = rounded_run,
};

/* ---- builder ---- */

static bool fill_attrs(clv_graph *graph, adamw_attrs *attrs, const clv_adamw_options *given)
{
    bool exact = given->exact;
    memset(attrs, 0, sizeof *attrs);
    attrs->beta1 = exact || given->beta1 != 0 ? given->beta1 : 0.9;
    attrs->beta2 = exact || given->beta2 != 0 ? given->beta2 : 0.999;
    attrs->eps = exact || given->eps != 0 ? given->eps : 1e-8;
    attrs->weight_decay = given->weight_decay;
    if (attrs->beta1 >= 0 && attrs->beta1 < 1 && attrs->beta2 >= 0 && attrs->beta2 < 1 && attrs->eps > 0 &&
        isfinite(attrs->eps) && attrs->weight_decay >= 0 && isfinite(attrs->weight_decay))
        return true;
    clv_graph_fail(graph, CLV_EINVAL,
                   "clv_adamw: beta1 %g, beta2 %g, eps %g, weight_decay %g; betas in [0, 1), eps > 0 and weight_decay "
                   ">= 0 are needed",
                   attrs->beta1, attrs->beta2, attrs->eps, attrs->weight_decay);
    return false;
}

void clv_adamw(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr, clv_value step,
               const clv_adamw_options *options)
{
    static const char call[] = "clv_adamw";
    adamw_attrs attrs;
    clv_adamw_options given;
    clv_state_update u;
    if (!clv_graph_ok(graph) || !clv_graph_take_options(graph, &given, sizeof given, CLV_ADAMW_FIRST, options, call) ||
        !fill_attrs(graph, &attrs, &given) ||
        !clv_update_begin(&u, graph, parameter, gradient, given.state_layout, call))
        return;
    clv_value m = clv_update_moment(graph, &u, ".m"), v = clv_update_moment(graph, &u, ".v");
    clv_value in[] = {u.updated, m, v, u.gradient, lr, step, given.grad_scale};
    if (clv_update_has_master_copy(&u))
        attrs.rounded = clv_graph_type(graph, parameter).dtype;
    clv_update_emit(graph, &u, clv_update_has_master_copy(&u) ? &clv_op_adamw_rounded : &clv_op_adamw, &attrs, in,
                    OPERANDS);
}
