/* adamw.c: one step of AdamW on one parameter.
 *
 *   m' = beta1 m + (1 - beta1) g;   v' = beta2 v + (1 - beta2) g^2
 *   p' = p (1 - lr weight_decay) - lr * (m' / (1 - beta1^step)) / (sqrt(v' / (1 - beta2^step)) + eps)
 *
 *   factors: every dimension passes, in place on p, m and v; not linear: a partial gradient is reduced first, straight
 *   into the parameter's layout (all-reduce when replicated, reduce-scatter when split: ZeRO)
 *
 * Source: Loshchilov & Hutter 2019, arXiv:1711.05101, as torch.optim.AdamW. m and v are f32 (f64 for f64). A parameter
 * of 16 bits is the rounding of an f32 copy, which is what is updated: 12 bytes of state a parameter. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "graph/graph.h"
#include "kernels/cpu/adamw.h"
#include "ops/check.h"
#include "ops/ops.h"

typedef struct adamw_attrs {
    double beta1, beta2, eps, weight_decay;
} adamw_attrs;

static const clv_attr adamw_attr_table[] = {
    {"beta1", CLV_ATTR_DOUBLE, offsetof(adamw_attrs, beta1), 1},
    {"beta2", CLV_ATTR_DOUBLE, offsetof(adamw_attrs, beta2), 1},
    {"eps", CLV_ATTR_DOUBLE, offsetof(adamw_attrs, eps), 1},
    {"weight_decay", CLV_ATTR_DOUBLE, offsetof(adamw_attrs, weight_decay), 1},
    {0},
};

/* Operands: parameter, m, v, gradient, lr, step, and optionally what the gradient is multiplied by. */
enum { P, M, V, G, LR, STEP, SCALE, OPERANDS };
enum { STATES = 3 };

static clv_status adamw_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    static const char *const names[] = {"the parameter", "m", "v", "the gradient"};
    for (int i = P; i <= G; i++) {
        CLV_TRY(clv_check_float(names[i], &in[i], err));
        CLV_TRY(clv_check_same_shape(names[i], &in[i], names[P], &in[P], err));
    }
    for (int i = M; i <= V; i++)
        if (in[i].dtype != clv_stats_dtype(in[P].dtype))
            return clv_fail(err, CLV_EDTYPE, "%s is %s; %s is needed", names[i], clv_dtype_name(in[i].dtype),
                            clv_dtype_name(clv_stats_dtype(in[P].dtype)));
    CLV_TRY(clv_check_scalar("lr", &in[LR], CLV_F32, err));
    CLV_TRY(clv_check_scalar("step", &in[STEP], CLV_I32, err));
    if (clv_op_n_in(op) > SCALE)
        CLV_TRY(clv_check_scalar("the gradient's scale", &in[SCALE], CLV_F32, err));
    for (int i = P; i <= V; i++)
        out[i] = in[i];
    return CLV_OK;
}

static void adamw_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    (void)op, (void)out;
    clv_rule_dims(rule, &in[P], in[P].rank);
    for (int i = P; i <= G; i++)
        clv_rule_in_dims(rule, i, in[P].rank);
    for (int o = P; o <= V; o++)
        clv_rule_out_dims(rule, o, in[P].rank);
}

static clv_op_cost adamw_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    double bytes = 0;
    (void)op;
    for (int i = P; i <= G; i++)
        bytes += clv_type_bytes(&in[i]);
    for (int o = P; o <= V; o++)
        bytes += clv_type_bytes(&out[o]);
    return (clv_op_cost){.flops = 12 * (double)clv_type_elems(&in[P]), .bytes = bytes};
}

static clv_status adamw_run(const clv_call *call, clv_error *err)
{
    const adamw_attrs *attrs = call->op->attrs;
    float scale = clv_op_n_in(call->op) > SCALE ? *(const float *)call->in[SCALE].data : 1;
    int32_t step = *(const int32_t *)call->in[STEP].data;
    if (step < 1)
        return clv_fail(err, CLV_EINVAL, "step is %d; the first update is step 1", step);
    for (int i = P; i <= V; i++)
        clv_view_take(&call->out[i], &call->in[i]);
    if (isnan(scale)) /* no such gradient: nothing is updated by it */
        return CLV_OK;
    clv_adamw_args args = {.lr = *(const float *)call->in[LR].data,
                           .beta1 = attrs->beta1,
                           .beta2 = attrs->beta2,
                           .eps = attrs->eps,
                           .weight_decay = attrs->weight_decay,
                           .step = step,
                           .grad_scale = scale};
    clv_adamw_step(&args, call->out[P].dtype, call->out[P].data, NULL, call->out[M].data, call->out[V].data,
                   call->in[G].dtype, call->in[G].data, clv_view_elems(&call->in[P]));
    return CLV_OK;
}

const clv_op_def clv_op_adamw = {
    .name = "adamw",
    .min_in = SCALE,
    .max_in = OPERANDS,
    .n_out = STATES,
    .attrs_size = sizeof(adamw_attrs),
    .attrs = adamw_attr_table,
    .shape = adamw_shape,
    .rule = adamw_rule,
    .cost = adamw_cost,
    .in_place = {1 + P, 1 + M, 1 + V},
    .run = adamw_run,
};

/* ---- builder ---- */

/* State "<name of parameter><suffix>" of the parameter's shape. */
static clv_value companion(clv_graph *graph, clv_value parameter, const char *suffix, const clv_layout *layout,
                           clv_init init)
{
    clv_value_info info = graph->values[parameter.id];
    const char *scope = graph->scope, *name = clv_arena_format(graph->arena, "%s%s", info.name, suffix);
    if (!name)
        return clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the moments of %s", info.name);
    graph->scope = ""; /* info.name holds the scope the parameter was made in */
    clv_value state = clv_state_as(graph, CLV_ROLE_OPTIMIZER, name, clv_stats_dtype(info.type.dtype), info.type.rank,
                                   info.type.shape, layout ? layout : &info.layout, init);
    graph->scope = scope;
    return state;
}

/* What is updated: the parameter, or for 16-bit ones an f32 copy that begins as it does. */
static clv_value updated_state(clv_graph *graph, clv_value parameter, const clv_layout *layout)
{
    clv_value_info info = graph->values[parameter.id];
    if (clv_dtype_size(info.type.dtype) > 2)
        return parameter;
    clv_value master = companion(graph, parameter, ".master", layout, info.init);
    if (clv_valid(master))
        graph->values[master.id].init_name = info.name;
    return master;
}

static bool fill_attrs(clv_graph *graph, adamw_attrs *attrs, const clv_adamw_options *given)
{
    memset(attrs, 0, sizeof *attrs);
    bool exact = given->exact != 0;
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

/* The dimensions go by the parameter's names. */
static clv_value say_why(clv_graph *graph, clv_value gradient, clv_value parameter)
{
    clv_origin origin = {.what = "the gradient that the optimizer takes in parts"};
    const clv_origin *known = clv_valid(parameter) ? graph->values[parameter.id].origin : NULL;
    if (known) {
        origin.rules = known->rules;
        memcpy(origin.dim, known->dim, sizeof origin.dim);
    }
    clv_graph_set_origin(graph, gradient, &origin);
    return gradient;
}

void clv_adamw(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr, clv_value step,
               const clv_adamw_options *options)
{
    adamw_attrs attrs;
    clv_adamw_options given;
    clv_value out[CLV_MAX_OUT];
    if (!clv_graph_ok(graph) || !clv_valid(parameter) || parameter.id >= graph->n_values ||
        !clv_graph_take_options(graph, &given, sizeof given, CLV_ADAMW_FIRST, options, "clv_adamw") ||
        !fill_attrs(graph, &attrs, &given))
        return;
    if (graph->values[parameter.id].source != CLV_FROM_STATE) {
        clv_graph_fail(graph, CLV_EINVAL, "clv_adamw: the parameter is not state");
        return;
    }
    const clv_layout *layout = given.state_layout;
    const clv_init zeros = {.kind = CLV_INIT_ZEROS};
    clv_value p = updated_state(graph, parameter, layout);
    clv_value m = companion(graph, parameter, ".m", layout, zeros),
              v = companion(graph, parameter, ".v", layout, zeros);
    if (layout) /* straight there, not by way of the parameter's layout */
        gradient = say_why(graph, clv_constrain(graph, clv_graph_unconstrained(graph, gradient), layout), parameter);
    clv_value in[] = {p, m, v, gradient, lr, step, given.grad_scale};
    clv_graph_emit(graph, &clv_op_adamw, &attrs, in, clv_valid(given.grad_scale) ? OPERANDS : SCALE, out);
    clv_assign(graph, p, out[P]);
    clv_assign(graph, m, out[M]);
    clv_assign(graph, v, out[V]);
    if (p.id != parameter.id)
        clv_assign(graph, parameter, clv_cast(graph, out[P], clv_graph_type(graph, parameter).dtype));
}
