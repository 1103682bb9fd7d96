/* zigzag.c - zigzag op: tokens of sequences from the order of positions to zig-zag order (tensor/zigzag.h).
 *
 *   out[b,row] = x[b,position of row]          x [B,S]; factors: b passes, and s of out; S of x is whole
 *
 * What a model computes for each token does not depend on where its row lies, but for attention, rope, learned
 * positions and dropout, which are built with the same order (clv_graph.zigzag). No gradient.
 */
#include "ops/builtin_ops.h"
#include "tensor/zigzag.h"

typedef struct zigzag_attrs {
    int64_t ranks;
} zigzag_attrs;

static const clv_attr zigzag_fields[] = {CLV_FIELD(INT64, zigzag_attrs, ranks), {0}};

static clv_status zigzag_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    if (in[0].rank != 2)
        return clv_fail(err, CLV_ESHAPE, "x is %s; [B,S] is needed", clv_type_string(&in[0]).text);
    if (((const zigzag_attrs *)op->attrs)->ranks < 1)
        return clv_fail(err, CLV_EINVAL, "a zig-zag order of %lld ranks; valid: 1 and above",
                        (long long)((const zigzag_attrs *)op->attrs)->ranks);
    out[0] = in[0];
    return CLV_OK;
}

static void zigzag_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const int b = clv_rule_add_factor(rule, in[0].shape[0], CLV_REDUCTION_NONE);
    clv_rule_operand_dim(rule, 0, 0, b);
    clv_rule_result_dim(rule, 0, 0, b);
    const int s = clv_rule_add_factor(rule, in[0].shape[1], CLV_REDUCTION_NONE);
    clv_rule_result_dim(rule, 0, 1, s);
    clv_rule_name_factor(rule, s, "sequence");
}

static clv_status zigzag_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *out = &call->out[0];
    const int64_t ranks = ((const zigzag_attrs *)call->op->attrs)->ranks, n = x->shape[1];
    const size_t size = clv_dtype_size(x->dtype);
    for (int64_t b = 0; b < out->shape[0]; b++)
        for (int64_t i = 0, count; i < out->shape[1]; i += count) {
            const int64_t row = out->lo[1] + i;
            count = clv_zigzag_run(n, ranks, row, out->shape[1] - i);
            memcpy((char *)out->data + (size_t)(b * out->shape[1] + i) * size,
                   (const char *)x->data + (size_t)(b * n + clv_zigzag_position(n, ranks, row)) * size,
                   (size_t)count * size);
        }
    return CLV_OK;
}

const clv_op_def clv_op_zigzag = {
    .name = "zigzag",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(zigzag_attrs, zigzag_fields),
    .shape = zigzag_shape,
    .rule = zigzag_rule,
    .gradient = clv_op_gradient_zero,
    .run = zigzag_run,
};

clv_value clv_tokens_in_row_order(clv_graph *graph, clv_value x)
{
    if (!clv_graph_ok(graph) || graph->zigzag == 0 || !clv_valid(x))
        return x;
    const zigzag_attrs attrs = {.ranks = graph->zigzag};
    return clv_graph_emit_one(graph, &clv_op_zigzag, &attrs, &x, 1);
}
