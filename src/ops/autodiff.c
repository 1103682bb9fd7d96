/* autodiff.c - reverse-mode automatic differentiation of a graph, before partitioning. */
#include <stdlib.h>

#include "ops/builtin_ops.h"

/* Sets depends[v] for each value v that depends on one of wrt. */
static void mark_dependents(const clv_graph *graph, const clv_value *wrt, int n, int n_ops, bool *depends)
{
    for (int i = 0; i < n; i++)
        depends[wrt[i].id] = true;
    for (int o = 0; o < n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        bool any = false;
        for (int i = 0; i < op->n_in; i++)
            any = any || (op->in[i] > 0 && depends[op->in[i]]);
        for (int r = 0; any && r < op->n_out; r++)
            depends[op->out[r]] = true;
    }
}

/* Whether `to` is `value` or one of its primals, as the seed may be the loss itself. */
static bool has_primal(const clv_graph *graph, int value, int to)
{
    while (value > 0 && value != to)
        value = graph->values[value].primal;
    return value == to;
}

/* Records that d is a cotangent of `primal`. */
static void set_primal(clv_graph *graph, clv_value d, int primal)
{
    if (clv_valid(d) && graph->values[d.id].primal == 0 && !has_primal(graph, primal, d.id))
        graph->values[d.id].primal = primal;
}

/* State of a backward pass. */
typedef struct backward {
    clv_graph *graph;
    bool *depends;         /* [values]: depends on one of wrt */
    clv_value *cotangents; /* [values] */
    bool *widened;         /* [values]: a 16-bit value whose cotangent is f32 */
} backward;

static bool is_16_bit(const clv_graph *graph, clv_value value)
{
    return clv_dtype_size(clv_graph_type(graph, value).dtype) < 4;
}

/* Whether an op other than `by` reads a value. */
static bool is_read(const clv_graph *graph, int value, int by)
{
    for (int o = graph->values[value].op + 1; o < graph->n_ops; o++)
        for (int i = 0; i < graph->ops[o].n_in; i++)
            if (graph->ops[o].in[i] == value && o != by)
                return true;
    return false;
}

/* Makes the op that computes a value return f32 (all its results), so that no sum is rounded to 16 bits. Possible for
 * an op from `first` on whose results only op `by` reads (-1: none). False: the value must be cast instead. */
static bool widen(clv_graph *graph, int value, int by, int first)
{
    const clv_value_info *info = &graph->values[value];
    if (info->source != CLV_FROM_OP || info->op < first || info->primal != 0)
        return false;
    const clv_op *op = &graph->ops[info->op];
    for (int o = 0; o < op->n_out; o++)
        if (is_read(graph, op->out[o], by))
            return false;
    if (op->def == &clv_op_reshape ? !widen(graph, op->in[0], op->id, first)
                                   : !clv_op_traits_of(op)->accepts_f32_results)
        return false;
    for (int o = 0; o < op->n_out; o++)
        graph->values[op->out[o]].type.dtype = CLV_F32;
    return true;
}

/* The f32 value that d, computed by ops from `first` on, is rounded from; d if it is not. */
static clv_value before_rounding(const clv_graph *graph, clv_value d, int first)
{
    const clv_value_info *info = &graph->values[d.id];
    if (info->source != CLV_FROM_OP || info->op < first || graph->ops[info->op].def != &clv_op_cast)
        return d;
    const clv_value from = {graph->ops[info->op].in[0]};
    return graph->values[from.id].type.dtype == CLV_F32 ? from : d;
}

/* d, computed by ops from `first` on, in the dtype in which cotangents of the primal are accumulated. */
static clv_value cast_to_accumulation_dtype(const backward *b, int primal, clv_value d, int first)
{
    clv_graph *graph = b->graph;
    const clv_dtype own = graph->values[primal].type.dtype;
    if (!b->widened[primal]) /* no cast, unless d was widened for another primal */
        return clv_cast(graph, d, own);
    d = before_rounding(graph, d, first);
    if (!is_16_bit(graph, d) || widen(graph, d.id, -1, first))
        return d;
    set_primal(graph, d, primal);
    return clv_cast(graph, d, CLV_F32);
}

static void add_cotangent(const backward *b, int primal, clv_value d)
{
    clv_graph *graph = b->graph;
    clv_value *sum = &b->cotangents[primal];
    *sum = clv_valid(*sum) ? clv_add(graph, *sum, d) : d;
    set_primal(graph, *sum, primal);
}

/* Checks the type of a cotangent, as a custom op's gradient may return anything. */
static bool is_cotangent(const backward *b, const clv_op *op, int i, clv_value d)
{
    clv_graph *graph = b->graph;
    const clv_type have = clv_graph_type(graph, d);
    clv_type want = graph->values[op->in[i]].type;
    if (b->widened[op->in[i]] && have.dtype == CLV_F32)
        want.dtype = CLV_F32;
    if (d.id < graph->n_values && clv_type_equal(&have, &want))
        return true;
    clv_graph_fail(graph, CLV_ESHAPE, "the gradient of %s: the cotangent of operand %d is %s; %s is needed", op->name,
                   i, d.id < graph->n_values ? clv_type_string(&have).text : "not a value of this graph",
                   clv_type_string(&want).text);
    return false;
}

/* Adds the cotangents of one op's operands. */
static void backward_op(const backward *b, int o)
{
    clv_graph *graph = b->graph;
    const bool *depends = b->depends;
    clv_op op = graph->ops[o]; /* a copy: building moves graph->ops */
    clv_value d_out[CLV_MAX_OUT], d_in[CLV_MAX_IN];
    bool reached = false, needed = false;
    for (int r = 0; r < op.n_out; r++) {
        d_out[r] = b->cotangents[op.out[r]];
        reached = reached || clv_valid(d_out[r]);
    }
    for (int i = 0; i < op.n_in; i++) {
        d_in[i] = CLV_NONE;
        needed = needed || (op.in[i] > 0 && depends[op.in[i]]);
    }
    if (!reached || !needed)
        return;
    if (!op.def->gradient) {
        clv_graph_fail(graph, CLV_EUNSUPPORTED, "%s has no gradient, and the loss depends on it", op.name);
        return;
    }
    const char *scope = graph->scope;
    const int first = graph->n_ops;
    graph->scope = ""; /* op.name is a full name */
    clv_graph_push_scope(graph, "%s.grad", op.name);
    graph->gradient_of = o;
    op.def->gradient(graph, &op, d_out, d_in);
    for (int i = 0; i < op.n_in; i++)
        if (op.in[i] <= 0 || !depends[op.in[i]] || !clv_graph_ok(graph) ||
            (clv_valid(d_in[i]) && !is_cotangent(b, &op, i, d_in[i])))
            d_in[i] = CLV_NONE;
    for (int i = 0; i < op.n_in; i++)
        if (clv_valid(d_in[i]))
            add_cotangent(b, op.in[i], cast_to_accumulation_dtype(b, op.in[i], d_in[i], first));
    graph->gradient_of = -1;
    clv_graph_pop_scope(graph);
    graph->scope = scope;
}

/* The gradient d of `wrt` in this layout: "mlp.down.weight.grad.constraint". */
static clv_value apply_layout(clv_graph *graph, clv_value wrt, clv_value d, const clv_layout *layout)
{
    const clv_value_info info = graph->values[wrt.id];
    clv_graph_push_scope(graph, "%s.grad", info.name ? info.name : graph->ops[info.op].name);
    d = clv_constrain(graph, d, layout);
    clv_graph_pop_scope(graph);
    set_primal(graph, d, wrt.id);
    return d;
}

clv_value clv_constrain_gradient(clv_graph *graph, clv_value parameter, clv_value gradient, const clv_layout *layout)
{
    if (!clv_graph_ok(graph) || !clv_valid(gradient))
        return CLV_NONE;
    const char *scope = graph->scope;
    const bool in_backward = graph->in_backward;
    graph->scope = ""; /* the parameter's name is a full name */
    graph->in_backward = true;
    clv_value d = apply_layout(graph, parameter, clv_graph_unconstrained(graph, gradient), layout);
    graph->in_backward = in_backward;
    graph->scope = scope;
    if (clv_valid(d) && graph->values[parameter.id].annotation)
        clv_graph_annotate(graph, d, &(clv_value_annotation){.rules = graph->values[parameter.id].annotation->rules});
    return d;
}

/* The sum of the gradients of microbatches, one of which is d, each brought to this layout first. Sums of 16-bit
 * gradients are f32. */
static clv_value add_shard(clv_graph *graph, clv_value wrt, clv_value d, const clv_layout *layout, clv_value sum)
{
    const clv_value_info info = graph->values[wrt.id];
    const char *scope = graph->scope;
    d = clv_constrain_gradient(graph, wrt, d, layout);
    graph->scope = ""; /* info.name is a full name */
    clv_graph_push_scope(graph, "%s.grad", info.name);
    d = clv_cast(graph, d, clv_statistics_dtype(info.type.dtype));
    set_primal(graph, d, wrt.id);
    sum = clv_valid(sum) ? clv_add(graph, sum, d) : d;
    set_primal(graph, sum, wrt.id);
    clv_graph_pop_scope(graph);
    graph->scope = scope;
    return sum;
}

/* The gradient that the caller gets: in the stated layout of wrt; zeros if the loss does not depend on it. */
static clv_value finish(clv_graph *graph, clv_value wrt, clv_value d)
{
    clv_value_info info = graph->values[wrt.id];
    if (!clv_valid(d))
        d = clv_fill(graph, info.type.dtype, info.type.rank, info.type.shape, 0.0);
    if (info.stated)
        return apply_layout(graph, wrt, d, &info.layout);
    set_primal(graph, d, wrt.id);
    return d;
}

/* The cotangent of the loss. */
static clv_value start(clv_graph *graph, clv_value loss, clv_value seed)
{
    clv_type type = clv_graph_type(graph, loss), given = clv_graph_type(graph, seed);
    if (clv_valid(seed)) {
        if (!clv_type_equal(&type, &given))
            return clv_graph_fail(graph, CLV_ESHAPE, "clv_gradients: the seed must have the loss' shape and dtype");
        return seed;
    }
    if (clv_type_elems(&type) != 1)
        return clv_graph_fail(graph, CLV_ESHAPE,
                              "clv_gradients: the loss has %lld elements; give a seed, or reduce it to one",
                              (long long)clv_type_elems(&type));
    return clv_fill(graph, type.dtype, type.rank, type.shape, 1.0);
}

static bool check(clv_graph *graph, clv_value loss, const clv_value *wrt, int n)
{
    bool valid = clv_valid(loss);
    if (clv_graph_ok(graph) && loss.id >= graph->n_values)
        clv_graph_fail(graph, CLV_EINVAL, "clv_gradients: the loss is not a value of this graph");
    for (int i = 0; i < n; i++) {
        valid = valid && clv_valid(wrt[i]);
        if (clv_graph_ok(graph) && wrt[i].id >= graph->n_values)
            clv_graph_fail(graph, CLV_EINVAL, "clv_gradients: wrt[%d] is not a value of this graph", i);
    }
    return clv_graph_ok(graph) && valid;
}

/* Whether the value is computed from nothing, as positions or zeros are. */
static bool is_constant(const clv_graph *graph, int value)
{
    return graph->values[value].source == CLV_FROM_OP && graph->ops[graph->values[value].op].n_in == 0;
}

/* Whether the op is linear in its first operand and has no other but constants, so that its gradient takes a cotangent
 * of any dtype and returns that dtype (rows of a table of positions, for example). */
static bool passes_width(const clv_graph *graph, const clv_op *op)
{
    clv_rule rule = {0};
    clv_type in[CLV_MAX_IN] = {0};
    if (!clv_op_traits_of(op)->passes_cotangent || clv_op_constraint_of(op))
        return clv_op_traits_of(op)->passes_cotangent;
    for (int i = 0; i < op->n_in; i++) {
        in[i] = graph->values[op->in[i]].type;
        if (i > 0 && !is_constant(graph, op->in[i]))
            return false;
    }
    op->def->rule(op, in, &graph->values[op->out[0]].type, &rule);
    return rule.linearity == CLV_MULTILINEAR;
}

/* What to do with gradients. */
typedef struct gradient_options {
    bool f32;                        /* those of 16-bit parameters are f32 */
    clv_value *sums;                 /* [n] they are added to these; NULL: they are finished */
    const clv_layout *const *shards; /* [n] the layout that they are brought to first; NULL: they are partial sums */
} gradient_options;

static bool stays_partial(const gradient_options *how, int i)
{
    return how->sums && !(how->shards && how->shards[i]);
}

/* Marks 16-bit parameters, and values that only rearrange them, to have f32 cotangents. */
static void mark_f32_cotangents(const backward *b, const clv_value *wrt, int n, const gradient_options *how, int n_ops)
{
    const clv_graph *graph = b->graph;
    for (int i = 0; i < n; i++) {
        const clv_value_info *info = &graph->values[wrt[i].id];
        b->widened[wrt[i].id] = (how->f32 || stays_partial(how, i)) && info->source == CLV_FROM_STATE &&
                                info->role == CLV_ROLE_PARAMETER && is_16_bit(graph, wrt[i]);
    }
    for (int o = 0; o < n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        if (op->n_in > 0 && b->widened[op->in[0]] && passes_width(graph, op))
            b->widened[op->out[0]] = true;
    }
}

/* Runs the backward pass. Partial sums are initial cotangents. */
static void run_backward(const backward *b, clv_value loss, clv_value seed, const clv_value *wrt, int n,
                         const gradient_options *how)
{
    clv_graph *graph = b->graph;
    int n_ops = graph->n_ops;
    mark_dependents(graph, wrt, n, n_ops, b->depends);
    mark_f32_cotangents(b, wrt, n, how, n_ops);
    for (int i = 0; i < n; i++)
        if (stays_partial(how, i))
            b->cotangents[wrt[i].id] = how->sums[i];
    clv_value first = start(graph, loss, seed);
    if (clv_valid(first))
        add_cotangent(b, loss.id, first);
    for (int o = n_ops - 1; o >= 0 && clv_graph_ok(graph); o--)
        backward_op(b, o);
}

/* Adds the gradient d of wrt[i] to its sum. */
static void accumulate(clv_graph *graph, const gradient_options *how, clv_value wrt, clv_value d, int i)
{
    if (!stays_partial(how, i)) {
        how->sums[i] = clv_valid(d) ? add_shard(graph, wrt, d, how->shards[i], how->sums[i]) : how->sums[i];
        return;
    }
    how->sums[i] = d;
    graph->values[d.id].many_partial_sums = true;
}

/* out: receives finished gradients, unless they are added to how->sums. */
static void differentiate(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n, clv_value *out,
                          const gradient_options *how)
{
    size_t values = (size_t)graph->n_values;
    backward b = {.graph = graph,
                  .depends = calloc(values, sizeof *b.depends),
                  .cotangents = calloc(values, sizeof *b.cotangents),
                  .widened = calloc(values, sizeof *b.widened)};
    graph->in_backward = true;
    if (b.depends && b.cotangents && b.widened) {
        run_backward(&b, loss, seed, wrt, n, how);
        for (int i = 0; i < n && clv_graph_ok(graph); i++)
            if (how->sums)
                accumulate(graph, how, wrt[i], b.cotangents[wrt[i].id], i);
            else
                out[i] = finish(graph, wrt[i], b.cotangents[wrt[i].id]);
    } else {
        clv_graph_fail(graph, CLV_ENOMEM, "out of memory for the cotangents of %zu values", values);
    }
    graph->in_backward = false;
    free(b.depends);
    free(b.cotangents);
    free(b.widened);
}

void clv_gradients_widened(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n, bool f32,
                           clv_value *out)
{
    if (!clv_graph_require(graph, wrt && out, "clv_gradients", "values, and room for their gradients"))
        n = out && wrt ? n : 0;
    for (int i = 0; i < n; i++)
        out[i] = CLV_NONE;
    if (check(graph, loss, wrt, n))
        differentiate(graph, loss, seed, wrt, n, out, &(gradient_options){.f32 = f32});
}

void clv_gradients(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n, clv_value *out)
{
    clv_gradients_widened(graph, loss, seed, wrt, n, false, out);
}

void clv_gradients_accumulate(clv_graph *graph, clv_value loss, clv_value seed, const clv_value *wrt, int n,
                              const clv_layout *const *shards, bool f32, clv_value *sums)
{
    if (check(graph, loss, wrt, n))
        differentiate(graph, loss, seed, wrt, n, NULL, &(gradient_options){f32, sums, shards});
}
