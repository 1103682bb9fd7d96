/* export_experts.c - the router and the experts of a mixture as StableHLO.
 *
 * Each expert computes all rows, whose results are weighted by what the rows give it, 0 for most: the shapes of text
 * are static, and what a row chooses is not. That is E / top_k times the flops of the op.
 */
#include <math.h>

#include "kernels/cpu/elementwise_kernel.h"
#include "ops/builtin_ops.h"
#include "interop/export/exporter.h"

/* x [..., n] as [rows, n] */
static exported as_rows(exporter *ex, exported x)
{
    const int64_t n = x.type.shape[x.type.rank - 1], rows = clv_type_elems(&x.type) / n;
    return export_reshape(ex, x, 2, (int64_t[]){rows, n});
}

static exported shaped_like(exporter *ex, exported x, const clv_type *type)
{
    return export_cast(ex, export_reshape(ex, x, type->rank, type->shape), type->dtype);
}

/* ids [R, K] -> where they are: bool [R, K, E] */
static exported chosen(exporter *ex, exported ids, int64_t experts)
{
    const clv_type type = {.dtype = CLV_I32, .rank = 3, .shape = {ids.type.shape[0], ids.type.shape[1], experts}};
    return export_compare(ex, "EQ", export_unsqueeze(ex, ids, 2), export_iota(ex, type, 2));
}

/* The choices' values x [R, K] as what each expert has, [R, E]. */
static exported to_experts(exporter *ex, exported hot, exported x)
{
    exported spread = export_select(ex, hot, export_unsqueeze(ex, x, 2), export_number(ex, x.type.dtype, 0));
    return export_reduce(ex, "add", spread, 1u << 1, 0);
}

/* The other way round: [R, E] -> [R, K]. */
static exported of_choices(exporter *ex, exported hot, exported x)
{
    exported spread = export_select(ex, hot, export_unsqueeze(ex, x, 1), export_number(ex, x.type.dtype, 0));
    return export_reduce(ex, "add", spread, 1u << 2, 0);
}

/* ---- router ---- */

static exported scores(exporter *ex, exported logits)
{
    if (export_whole(ex, "sigmoid", 0))
        return export_unary(ex, "logistic", logits);
    exported most = export_unsqueeze(ex, export_reduce(ex, "maximum", logits, 1u << 1, -INFINITY), 1);
    exported e = export_unary(ex, "exponential", export_binary(ex, "subtract", logits, most));
    return export_binary(ex, "divide", e, export_row_sum(ex, e));
}

/* The sum of the chosen scores, [R, 1]; of sigmoids it may be 0. */
static exported divisor(exporter *ex, exported of_chosen)
{
    exported sum = export_row_sum(ex, of_chosen);
    return export_whole(ex, "sigmoid", 0) ? export_with(ex, "add", sum, 1e-20) : sum;
}

static void router(exporter *ex, const exported *in, exported *out)
{
    const int64_t experts = in[0].type.shape[in[0].type.rank - 1], k = export_whole(ex, "top_k", 0);
    const clv_type types[] = {out[0].type, out[1].type};
    if (export_whole(ex, "top_groups", 0) < export_whole(ex, "groups", 0)) {
        ex->fault = "of groups of experts";
        return;
    }
    exported logits = as_rows(ex, export_math(ex, in[0])), s = scores(ex, logits), sorted[2];
    const bool biased = ex->op->n_in > 1 && export_given(&in[1]);
    exported by = biased ? export_binary(ex, "add", s, in[1]) : export_whole(ex, "sigmoid", 0) ? s : logits;
    export_sorted(ex, by, 1, true, sorted);
    exported ids = export_part(ex, sorted[1], 1, 0, k);
    exported weights = of_choices(ex, chosen(ex, ids, experts), s);
    if (export_whole(ex, "normalised", 0))
        weights = export_binary(ex, "divide", weights, divisor(ex, weights));
    weights = export_with(ex, "multiply", weights, export_real(ex, "scale"));
    out[0] = shaped_like(ex, weights, &types[0]);
    out[1] = shaped_like(ex, ids, &types[1]);
}

static void router_gradient(exporter *ex, const exported *in, exported *out)
{
    const clv_type type = in[1].type;
    exported s = scores(ex, as_rows(ex, export_math(ex, in[1]))), hot = chosen(ex, as_rows(ex, in[2]), s.type.shape[1]);
    exported d = export_with(ex, "multiply", as_rows(ex, export_math(ex, in[0])), export_real(ex, "scale"));
    if (export_whole(ex, "normalised", 0)) {
        exported of_chosen = of_choices(ex, hot, s), sum = divisor(ex, of_chosen);
        exported dot = export_row_sum(ex, export_binary(ex, "multiply", d, of_chosen));
        exported less = export_binary(ex, "subtract", d, export_binary(ex, "divide", dot, sum));
        d = export_binary(ex, "divide", less, sum);
    }
    d = to_experts(ex, hot, d);
    exported one = export_number(ex, s.type.dtype, 1);
    exported inner = export_whole(ex, "sigmoid", 0)
                         ? export_binary(ex, "multiply", d, export_binary(ex, "subtract", one, s))
                         : export_binary(ex, "subtract", d, export_row_sum(ex, export_binary(ex, "multiply", d, s)));
    out[0] = shaped_like(ex, export_binary(ex, "multiply", s, inner), &type);
}

/* ---- experts ---- */

/* What forward and backward pass compute alike; of all rows and experts. */
typedef struct computed {
    int activation;
    exported x, hot, share, gate_up[2], down, gate, up, active;
} computed;

static computed compute(exporter *ex, const exported *in)
{
    computed c = {.activation = (int)clv_unary_op_of_kind((clv_unary_kind)export_whole(ex, "activation", 0))};
    c.x = as_rows(ex, export_math(ex, in[0]));
    c.hot = chosen(ex, as_rows(ex, in[1]), export_whole(ex, "experts", 0));
    c.share = to_experts(ex, c.hot, as_rows(ex, export_math(ex, in[2])));
    for (int i = 0; i < 2; i++)
        c.gate_up[i] = export_at(ex, export_math(ex, in[3]), 2, i);
    c.down = export_math(ex, in[4]);
    c.gate = export_dot(ex, "rm", "emf", "ref", c.x, c.gate_up[0]);
    c.up = export_dot(ex, "rm", "emf", "ref", c.x, c.gate_up[1]);
    c.active = export_binary(ex, "multiply", export_function(ex, c.activation, c.gate), c.up);
    return c;
}

static exported shared(exporter *ex, const computed *c, exported x)
{
    return export_binary(ex, "multiply", x, export_unsqueeze(ex, c->share, 2));
}

static void experts(exporter *ex, const exported *in, exported *out)
{
    const clv_type type = out[0].type;
    const computed c = compute(ex, in);
    out[0] = shaped_like(ex, export_dot(ex, "ref", "efn", "rn", shared(ex, &c, c.active), c.down), &type);
}

static void experts_gradient(exporter *ex, const exported *in, exported *out)
{
    const clv_type types[] = {out[0].type, out[1].type, out[2].type, out[3].type};
    const computed c = compute(ex, in);
    const exported d_y = as_rows(ex, export_math(ex, in[5]));
    const exported back = export_dot(ex, "rn", "efn", "ref", d_y, c.down), d = shared(ex, &c, back);
    const exported d_gate = export_derivative(ex, c.activation, export_binary(ex, "multiply", d, c.up), c.gate);
    const exported d_up = export_binary(ex, "multiply", d, export_function(ex, c.activation, c.gate));
    exported d_share = export_reduce(ex, "add", export_binary(ex, "multiply", c.active, back), 1u << 2, 0);
    exported d_x = export_binary(ex, "add", export_dot(ex, "ref", "emf", "rm", d_gate, c.gate_up[0]),
                                 export_dot(ex, "ref", "emf", "rm", d_up, c.gate_up[1]));
    exported both[] = {export_unsqueeze(ex, export_dot(ex, "rm", "ref", "emf", c.x, d_gate), 2),
                       export_unsqueeze(ex, export_dot(ex, "rm", "ref", "emf", c.x, d_up), 2)};
    out[0] = shaped_like(ex, d_x, &types[0]);
    out[1] = shaped_like(ex, of_choices(ex, c.hot, d_share), &types[1]);
    out[2] = shaped_like(ex, export_join(ex, both, 2, 2), &types[2]);
    out[3] = shaped_like(ex, export_dot(ex, "ref", "rn", "efn", shared(ex, &c, c.active), d_y), &types[3]);
}

const export_row export_experts_rows[] = {{&clv_op_router, router},
                                          {&clv_op_router_gradient, router_gradient},
                                          {&clv_op_experts, experts},
                                          {&clv_op_experts_gradient, experts_gradient},
                                          {0}};
