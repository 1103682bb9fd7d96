/* dropout.c - dropout op with a counter-based mask: the same mask on every mesh, recomputed in the backward pass.
 *
 *   out[i] = keep(i) ? x[i] / (1 - p) : 0,   keep(i) = uniform(fold_in(key, step), flat global index of i) < 1 - p
 *
 *   factors: every dimension passes: each rank computes its part of the mask; linear in x
 *
 * The gradient is the same op, with the same key and step, on d_out: no mask is stored. Source: Srivastava et al. 2014.
 */
#include "kernels/cpu/dropout_kernel.h"
#include "ops/builtin_ops.h"
#include "tensor/zigzag.h"

typedef struct dropout_attrs {
    double p;
    clv_key key;
    int64_t zigzag; /* ranks in whose zig-zag order rows of [B,S,...] lie (tensor/zigzag.h); 0: in order */
} dropout_attrs;

static const clv_attr dropout_attr_table[] = {CLV_FIELD(DOUBLE, dropout_attrs, p),
                                              CLV_FIELD(KEY, dropout_attrs, key),
                                              CLV_FIELD(INT64, dropout_attrs, zigzag),
                                              {0}};

static clv_status dropout_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_float("x", &in[0], err));
    if (clv_valid(clv_op_operand(op, 1)))
        CLV_TRY(clv_check_scalar("step", &in[1], CLV_I32, err));
    if (((const dropout_attrs *)op->attrs)->zigzag)
        CLV_TRY(clv_check_min_rank("x", &in[0], 2, "[B,S,...]", err));
    out[0] = in[0];
    return CLV_OK;
}

static void dropout_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_add_dims(rule, &in[0], in[0].rank);
    clv_rule_map_in_dims(rule, 0, in[0].rank);
    clv_rule_map_out_dims(rule, 0, in[0].rank);
    clv_rule_multilinear(rule, 1u << 0);
}

/* Rows in zig-zag order have the masks of their positions. */
static void drop_runs(const clv_view *x, void *out, const dropout_attrs *attrs, clv_key key)
{
    const size_t row_bytes = (size_t)clv_shape_product(x->shape, 2, x->rank) * clv_dtype_size(x->dtype);
    int64_t shape[CLV_MAX_RANK], lo[CLV_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    memcpy(lo, x->lo, sizeof lo);
    shape[0] = 1;
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t row = 0; row < x->shape[1]; row += shape[1]) {
            const size_t at = (size_t)(b * x->shape[1] + row) * row_bytes;
            shape[1] = clv_zigzag_run(x->global[1], attrs->zigzag, x->lo[1] + row, x->shape[1] - row);
            lo[0] = x->lo[0] + b;
            lo[1] = clv_zigzag_position(x->global[1], attrs->zigzag, x->lo[1] + row);
            clv_dropout_forward(x->dtype, (char *)out + at, (const char *)x->data + at, attrs->p, key, x->rank, shape,
                                lo, x->global);
        }
}

static clv_status dropout_run(const clv_call *call, clv_error *err)
{
    const dropout_attrs *attrs = call->op->attrs;
    const clv_view *x = &call->in[0];
    clv_key key = attrs->key;
    if (call->op->n_in > 1)
        key = clv_key_fold_in(key, (uint32_t) * (const int32_t *)call->in[1].data);
    if (attrs->zigzag)
        drop_runs(x, call->out[0].data, attrs, key);
    else
        clv_dropout_forward(x->dtype, call->out[0].data, x->data, attrs->p, key, x->rank, x->shape, x->lo, x->global);
    return CLV_OK;
}

static void dropout_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_value in[] = {d_out[0], clv_op_operand(op, 1)};
    d_in[0] = clv_graph_emit_one(graph, op->def, op->attrs, in, op->n_in);
}

const clv_op_def clv_op_dropout = {
    .name = "dropout",
    CLV_ARITY(1, 2, 1),
    CLV_ATTRS(dropout_attrs, dropout_attr_table),
    .shape = dropout_shape,
    .rule = dropout_rule,
    .gradient = dropout_gradient,
    .in_place = {1 + 0},
    .run = dropout_run,
};

clv_value clv_dropout(clv_graph *graph, clv_value x, double p, clv_key key, clv_value step)
{
    if (!clv_graph_require(graph, true, __func__, ""))
        return CLV_NONE;
    if (!(p >= 0 && p < 1))
        return clv_graph_fail(graph, CLV_EINVAL, "clv_dropout: p is %g; 0 <= p < 1 is needed", p);
    if (p == 0)
        return x;
    dropout_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.p = p;
    attrs.key = key;
    attrs.zigzag = graph->zigzag;
    clv_value in[] = {x, step};
    return clv_graph_emit_one(graph, &clv_op_dropout, &attrs, in, clv_valid(step) ? 2 : 1);
}
