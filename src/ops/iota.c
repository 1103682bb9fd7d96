/* iota.c - iota op: position ids offset + 0..n-1, for one sequence or for each row of a batch.
 *
 *   out[i] = offset + i, i < n                      offset i32 [] (absent: 0); out i32 [n]; factor: n passes
 *   out[b,i] = offset[b] + i                        offset i32 [B]; out i32 [B,n]; factors: b and n pass
 *   of rows in zig-zag order: the position of row i
 *
 * No gradient.
 */
#include "ops/builtin_ops.h"
#include "tensor/zigzag.h"

typedef struct iota_attrs {
    int64_t n;
    int64_t zigzag; /* ranks in whose zig-zag order the positions are (tensor/zigzag.h); 0: ascending */
} iota_attrs;

static const clv_attr iota_fields[] = {CLV_FIELD(INT64, iota_attrs, n), CLV_FIELD(INT64, iota_attrs, zigzag), {0}};

static clv_status iota_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const iota_attrs *a = op->attrs;
    out[0] = (clv_type){.dtype = CLV_I32, .rank = 1, .shape = {a->n}};
    if (!clv_valid(clv_op_operand(op, 0)))
        return CLV_OK;
    if (in[0].rank == 1)
        out[0] = (clv_type){.dtype = CLV_I32, .rank = 2, .shape = {in[0].shape[0], a->n}};
    return clv_check_offset(&in[0], in[0].shape[0], err);
}

static void iota_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_add_dims(rule, &out[0], out[0].rank);
    clv_rule_map_out_dims(rule, 0, out[0].rank);
    if (out[0].rank == 2)
        clv_rule_operand_dim(rule, 0, 0, 0);
}

static clv_status iota_run(const clv_call *call, clv_error *err)
{
    const iota_attrs *attrs = call->op->attrs;
    const clv_view *view = &call->out[0];
    const int32_t *offset = call->op->n_in > 0 ? call->in[0].data : NULL;
    int32_t *out = view->data;
    int last = view->rank - 1;
    int64_t n = view->shape[last], rows = view->rank == 2 ? view->shape[0] : 1;
    for (int64_t b = 0; b < rows; b++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = view->lo[last] + i;
            out[b * n + i] = (offset ? offset[b] : 0) +
                             (int32_t)(attrs->zigzag ? clv_zigzag_position(attrs->n, attrs->zigzag, at) : at);
        }
    return CLV_OK;
}

const clv_op_def clv_op_iota = {
    .name = "iota",
    CLV_ARITY(0, 1, 1),
    CLV_ATTRS(iota_attrs, iota_fields),
    .shape = iota_shape,
    .rule = iota_rule,
    .gradient = clv_op_gradient_zero,
    .run = iota_run,
};

static clv_value iota(clv_graph *graph, int64_t n, int64_t zigzag, clv_value offset)
{
    if (n < 0 || n > INT32_MAX)
        return clv_graph_fail(graph, CLV_EINVAL, "%siota of %lld; valid: 0 to %d", graph->scope, (long long)n,
                              INT32_MAX);
    iota_attrs a;
    memset(&a, 0, sizeof a);
    a.n = n;
    a.zigzag = zigzag;
    return clv_graph_emit_one(graph, &clv_op_iota, &a, &offset, clv_valid(offset) ? 1 : 0);
}

clv_value clv_iota(clv_graph *graph, int64_t n, clv_value offset)
{
    return clv_graph_require(graph, true, __func__, "") ? iota(graph, n, 0, offset) : CLV_NONE;
}

clv_value clv_positions_in_row_order(clv_graph *graph, int64_t n, clv_value offset)
{
    return clv_graph_ok(graph) ? iota(graph, n, graph->zigzag, offset) : CLV_NONE;
}
