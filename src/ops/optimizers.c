/* optimizers.c - optimizer update ops (AdamW, SGD with momentum, Lion): one step on one parameter.
 *
 *   adamw:  m' = beta1 m + (1 - beta1) g;   v' = beta2 v + (1 - beta2) g^2
 *           p' = p (1 - lr weight_decay) - lr * (m' / (1 - beta1^step)) / (sqrt(v' / (1 - beta2^step)) + eps)
 *   adamw_rounded: the same, and p' rounded to 16 bits, in one pass
 *   sgd:    b' = momentum b + (g + weight_decay p);   p' = p - lr b'
 *   lion:   p' = p (1 - lr weight_decay) - lr * sign(beta1 m + (1 - beta1) g);   m' = beta2 m + (1 - beta2) g
 *
 *   factors: every dimension passes, in place on the parameter and its moments; not linear: a partial gradient is
 *   reduced first, straight into the parameter's layout (all-reduce if replicated, reduce-scatter if split: ZeRO)
 *
 * Operands: parameter, moments, gradient, lr, (adamw: step,) and optionally a scale of the gradient; if that is NaN,
 * nothing is updated. Results: parameter and moments, (adamw_rounded: the rounded parameter).
 * Moments are f32 (f64 for f64). A 16-bit parameter is the rounding of an f32 master copy, which is what is updated.
 *
 * Sources: Loshchilov & Hutter 2019, arXiv:1711.05101, as torch.optim.AdamW; Sutskever et al. 2013, as torch.optim.SGD
 * (dampening 0: decay is part of the gradient, lr is not part of b); Chen et al. 2023, arXiv:2302.06675, algorithm 2
 * (sign(0) is 0).
 */
#include <math.h>

#include "kernels/cpu/optimizer_kernel.h"
#include "ops/builtin_ops.h"

typedef struct update_attrs {
    double beta1, beta2, eps, weight_decay; /* sgd: beta1 is its momentum */
    clv_dtype rounded;                      /* dtype of adamw_rounded's last result */
} update_attrs;

static const clv_attr adamw_attrs[] = {CLV_FIELD(DOUBLE, update_attrs, beta1),
                                       CLV_FIELD(DOUBLE, update_attrs, beta2),
                                       CLV_FIELD(DOUBLE, update_attrs, eps),
                                       CLV_FIELD(DOUBLE, update_attrs, weight_decay),
                                       {0}};
static const clv_attr rounded_attrs[] = {CLV_FIELD(DOUBLE, update_attrs, beta1),
                                         CLV_FIELD(DOUBLE, update_attrs, beta2),
                                         CLV_FIELD(DOUBLE, update_attrs, eps),
                                         CLV_FIELD(DOUBLE, update_attrs, weight_decay),
                                         {"dtype", CLV_ATTR_DTYPE, offsetof(update_attrs, rounded), 1},
                                         {0}};
static const clv_attr sgd_attrs[] = {{"momentum", CLV_ATTR_DOUBLE, offsetof(update_attrs, beta1), 1},
                                     CLV_FIELD(DOUBLE, update_attrs, weight_decay),
                                     {0}};
static const clv_attr lion_attrs[] = {CLV_FIELD(DOUBLE, update_attrs, beta1),
                                      CLV_FIELD(DOUBLE, update_attrs, beta2),
                                      CLV_FIELD(DOUBLE, update_attrs, weight_decay),
                                      {0}};

/* ---- the ops ---- */

enum { P, M, V, ADAMW_IN = 7, ONE_MOMENT_IN = 5 };

/* The number of states, parameter and moments, which are updated in place; also the index of the gradient. */
static int state_count(const clv_op_def *def)
{
    return def->max_in == ADAMW_IN ? 3 : 2;
}

static clv_status update_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    static const char parameter[] = "the parameter", gradient[] = "the gradient", moment[] = "a moment";
    const int states = state_count(op->def), g = states, scale = op->def->max_in - 1;
    const clv_dtype dtype = clv_statistics_dtype(in[P].dtype);
    for (int i = 0; i <= g; i++) {
        const char *what = i == P ? parameter : i == g ? gradient : moment;
        CLV_TRY(clv_check_float(what, &in[i], err));
        CLV_TRY(clv_check_same_shape(what, &in[i], parameter, &in[P], err));
        if (i > P && i < g && in[i].dtype != dtype)
            return clv_fail(err, CLV_EDTYPE, "%s is %s; %s is needed", what, clv_dtype_name(in[i].dtype),
                            clv_dtype_name(dtype));
    }
    CLV_TRY(clv_check_scalar("lr", &in[g + 1], CLV_F32, err));
    if (scale > g + 2)
        CLV_TRY(clv_check_scalar("step", &in[g + 2], CLV_I32, err));
    if (clv_op_operand_count(op) > scale)
        CLV_TRY(clv_check_scalar("the gradient's scale", &in[scale], CLV_F32, err));
    memcpy(out, in, (size_t)states * sizeof *out);
    if (op->def->n_out == states)
        return CLV_OK;
    if (in[P].dtype != CLV_F32)
        return clv_fail(err, CLV_EDTYPE, "the parameter is %s; f32 is needed", clv_dtype_name(in[P].dtype));
    out[states] = in[P];
    out[states].dtype = ((const update_attrs *)op->attrs)->rounded;
    return CLV_OK;
}

static void update_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const int states = state_count(op->def);
    clv_rule_add_dims(rule, &in[P], in[P].rank);
    for (int i = 0; i <= states; i++)
        clv_rule_map_in_dims(rule, i, in[P].rank);
    for (int o = 0; o < op->def->n_out; o++)
        clv_rule_map_out_dims(rule, o, in[P].rank);
}

static clv_op_cost update_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    const int flops = op->def == &clv_op_sgd ? 6 : op->def == &clv_op_lion ? 9 : 12;
    const int states = state_count(op->def);
    double bytes = 0;
    for (int i = 0; i <= states; i++)
        bytes += clv_type_bytes(&in[i]);
    for (int o = 0; o < op->n_out; o++)
        bytes += clv_type_bytes(&out[o]);
    return (clv_op_cost){.flops = flops * (double)clv_type_elems(&in[P]), .bytes = bytes};
}

static clv_status update_run(const clv_call *call, clv_error *err)
{
    const clv_op_def *def = call->op->def;
    const update_attrs *a = call->op->attrs;
    const int states = state_count(def);
    const clv_view *p = &call->out[P], *grad = &call->in[states];
    const clv_view *rounded = def->n_out > states ? &call->out[states] : NULL;
    const int64_t n = clv_view_elems(p);
    const bool scaled = clv_op_operand_count(call->op) == def->max_in;
    const double lr = *(const float *)call->in[states + 1].data;
    const double scale = scaled ? *(const float *)call->in[def->max_in - 1].data : 1;
    const int32_t step = states > 2 ? *(const int32_t *)call->in[states + 2].data : 1;
    void *m = call->out[M].data;
    if (step < 1)
        return clv_fail(err, CLV_EINVAL, "step is %d; the first update is step 1", step);
    for (int o = 0; o < states; o++)
        clv_view_copy_unless_aliased(&call->out[o], &call->in[o]);
    if (isnan(scale)) {
        if (rounded)
            clv_cast_values(rounded->dtype, rounded->data, p->dtype, p->data, n);
    } else if (def == &clv_op_sgd) {
        const clv_sgd_args args = {lr, a->beta1, a->weight_decay, scale};
        clv_sgd_step(&args, p->dtype, p->data, m, grad->dtype, grad->data, n);
    } else if (def == &clv_op_lion) {
        const clv_lion_args args = {lr, a->beta1, a->beta2, a->weight_decay, scale};
        clv_lion_step(&args, p->dtype, p->data, m, grad->dtype, grad->data, n);
    } else {
        const clv_adamw_args args = {lr, a->beta1, a->beta2, a->eps, a->weight_decay, step, scale};
        const clv_view *to = rounded ? rounded : p;
        clv_adamw_step(&args, to->dtype, to->data, rounded ? p->data : NULL, m, call->out[V].data, grad->dtype,
                       grad->data, n);
    }
    return CLV_OK;
}

#define UPDATE_FUNCTIONS .shape = update_shape, .rule = update_rule, .cost = update_cost, .run = update_run

const clv_op_def clv_op_adamw = {
    .name = "adamw",
    CLV_ARITY(ADAMW_IN - 1, ADAMW_IN, 3),
    CLV_ATTRS(update_attrs, adamw_attrs),
    .in_place = {1 + P, 1 + M, 1 + V},
    UPDATE_FUNCTIONS,
};

const clv_op_def clv_op_adamw_rounded = {
    .name = "adamw_rounded",
    .display_name = "AdamW's update, and what it rounds to",
    CLV_ARITY(ADAMW_IN - 1, ADAMW_IN, 4),
    CLV_ATTRS(update_attrs, rounded_attrs),
    .in_place = {1 + P, 1 + M, 1 + V},
    UPDATE_FUNCTIONS,
};

const clv_op_def clv_op_sgd = {
    .name = "sgd",
    CLV_ARITY(ONE_MOMENT_IN - 1, ONE_MOMENT_IN, 2),
    CLV_ATTRS(update_attrs, sgd_attrs),
    .in_place = {1 + P, 1 + M},
    UPDATE_FUNCTIONS,
};

const clv_op_def clv_op_lion = {
    .name = "lion",
    CLV_ARITY(ONE_MOMENT_IN - 1, ONE_MOMENT_IN, 2),
    CLV_ATTRS(update_attrs, lion_attrs),
    .in_place = {1 + P, 1 + M},
    UPDATE_FUNCTIONS,
};

/* ---- builders ---- */

/* One parameter's update, as its builder passes it. */
typedef struct update {
    const char *call; /* builder's name, for messages */
    const clv_op_def *def;
    const char *moment[2]; /* suffixes of the moments' names */
    clv_value parameter, gradient, lr, step, grad_scale;
    const clv_layout *layout; /* of the moments; NULL: the parameter's */
} update;

/* Adds the state "<name of parameter><suffix>" of the parameter's shape. */
static clv_value add_state(clv_graph *graph, const update *u, const char *suffix, clv_init init)
{
    clv_value_info info = graph->values[u->parameter.id];
    const char *scope = graph->scope, *name = clv_arena_format(graph->arena, "%s%s", info.name, suffix);
    if (!name)
        return clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the moments of %s", info.name);
    graph->scope = ""; /* info.name is a full name */
    clv_value state = clv_state_with_role(graph, CLV_ROLE_OPTIMIZER, name, clv_statistics_dtype(info.type.dtype),
                                          info.type.rank, info.type.shape, u->layout ? u->layout : &info.layout, init);
    graph->scope = scope;
    return state;
}

/* Adds the f32 master copy of a 16-bit parameter, with the parameter's initial values. */
static clv_value add_master_copy(clv_graph *graph, const update *u)
{
    clv_value_info info = graph->values[u->parameter.id];
    clv_value master = add_state(graph, u, ".master", info.init);
    if (clv_valid(master))
        graph->values[master.id].init_name = info.name;
    return master;
}

static void emit_update(clv_graph *graph, const update *u, const update_attrs *attrs, const clv_op_def *def,
                        clv_value updated, clv_value gradient)
{
    clv_value in[CLV_MAX_IN] = {updated}, out[CLV_MAX_OUT];
    const int states = state_count(def);
    const clv_dtype dtype = clv_graph_type(graph, u->parameter).dtype;
    const bool updating = graph->in_update;
    int n = 1;
    for (; n < states; n++)
        in[n] = add_state(graph, u, u->moment[n - 1], (clv_init){.kind = CLV_INIT_ZEROS});
    in[n++] = gradient;
    in[n++] = u->lr;
    if (states > 2)
        in[n++] = u->step;
    in[n] = u->grad_scale;
    graph->in_update = true;
    clv_graph_emit(graph, def, attrs, in, clv_valid(u->grad_scale) ? n + 1 : n, out);
    for (int o = 0; o < states; o++)
        clv_assign(graph, in[o], out[o]);
    if (def->n_out > states)
        clv_assign(graph, u->parameter, out[states]);
    else if (updated.id != u->parameter.id)
        clv_assign(graph, u->parameter, clv_cast(graph, out[0], dtype));
    graph->in_update = updating;
}

static void add_update(clv_graph *graph, const update *u, update_attrs *attrs)
{
    const clv_value p = u->parameter;
    const clv_op_def *def = u->def;
    if (!clv_valid(p) || p.id >= graph->n_values)
        return;
    if (graph->values[p.id].source != CLV_FROM_STATE) {
        clv_graph_fail(graph, CLV_EINVAL, "%s: the parameter is not state", u->call);
        return;
    }
    clv_dtype dtype = clv_graph_type(graph, p).dtype;
    clv_value updated = clv_dtype_size(dtype) > 2 ? p : add_master_copy(graph, u), gradient = u->gradient;
    if (u->layout)
        gradient = clv_constrain_gradient(graph, p, gradient, u->layout);
    if (def == &clv_op_adamw && updated.id != p.id) {
        def = &clv_op_adamw_rounded;
        attrs->rounded = dtype;
    }
    if (clv_graph_ok(graph))
        emit_update(graph, u, attrs, def, updated, gradient);
}

static double or_default(double given, double otherwise, int exact)
{
    return exact || given != 0 ? given : otherwise;
}

static bool in_range(const update_attrs *a, double eps)
{
    return a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1 && eps > 0 && isfinite(eps) &&
           a->weight_decay >= 0 && isfinite(a->weight_decay);
}

void clv_adamw(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr, clv_value step,
               const clv_adamw_options *options)
{
    clv_adamw_options o;
    update_attrs a;
    if (!clv_graph_ok(graph) || !clv_graph_options_copy_in(graph, &o, sizeof o, sizeof o, options, __func__))
        return;
    memset(&a, 0, sizeof a);
    a.beta1 = or_default(o.beta1, 0.9, o.exact);
    a.beta2 = or_default(o.beta2, 0.999, o.exact);
    a.eps = or_default(o.eps, 1e-8, o.exact);
    a.weight_decay = o.weight_decay;
    if (in_range(&a, a.eps))
        add_update(
            graph,
            &(update){
                __func__, &clv_op_adamw, {".m", ".v"}, parameter, gradient, lr, step, o.grad_scale, o.state_layout},
            &a);
    else
        clv_graph_fail(graph, CLV_EINVAL,
                       "%s: beta1 %g, beta2 %g, eps %g, weight_decay %g; betas in [0, 1), eps > 0 and weight_decay >= "
                       "0 are needed",
                       __func__, a.beta1, a.beta2, a.eps, a.weight_decay);
}

void clv_sgd(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr, const clv_sgd_options *options)
{
    clv_sgd_options o;
    update_attrs a;
    if (!clv_graph_ok(graph) || !clv_graph_options_copy_in(graph, &o, sizeof o, sizeof o, options, __func__))
        return;
    memset(&a, 0, sizeof a);
    a.beta1 = or_default(o.momentum, 0.9, o.exact);
    a.weight_decay = o.weight_decay;
    if (in_range(&a, 1))
        add_update(
            graph,
            &(update){
                __func__, &clv_op_sgd, {".momentum"}, parameter, gradient, lr, CLV_NONE, o.grad_scale, o.state_layout},
            &a);
    else
        clv_graph_fail(graph, CLV_EINVAL,
                       "%s: momentum %g, weight_decay %g; momentum in [0, 1) and weight_decay >= 0 are needed",
                       __func__, a.beta1, a.weight_decay);
}

void clv_lion(clv_graph *graph, clv_value parameter, clv_value gradient, clv_value lr, const clv_lion_options *options)
{
    clv_lion_options o;
    update_attrs a;
    if (!clv_graph_ok(graph) || !clv_graph_options_copy_in(graph, &o, sizeof o, sizeof o, options, __func__))
        return;
    memset(&a, 0, sizeof a);
    a.beta1 = or_default(o.beta1, 0.9, o.exact);
    a.beta2 = or_default(o.beta2, 0.99, o.exact);
    a.weight_decay = o.weight_decay;
    if (in_range(&a, 1))
        add_update(
            graph,
            &(update){
                __func__, &clv_op_lion, {".lion"}, parameter, gradient, lr, CLV_NONE, o.grad_scale, o.state_layout},
            &a);
    else
        clv_graph_fail(graph, CLV_EINVAL,
                       "%s: beta1 %g, beta2 %g, weight_decay %g; betas in [0, 1) and weight_decay >= 0 are needed",
                       __func__, a.beta1, a.beta2, a.weight_decay);
}
