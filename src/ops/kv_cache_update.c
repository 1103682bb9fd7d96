/* kv_cache_update.c - KV cache update op: writes new key/value rows in place at an offset.
 *
 *   out[b, offset + s, ...] = rows[b, s, ...]; elsewhere out = cache
 *
 *   cache [B,Smax,...], rows [B,S,...], offset i32 [] or [B]      factors: b and what follows the rows pass; rows whole
 *
 * Runs in place on the cache and writes only the new rows. No gradient: caches are for inference.
 */
#include "ops/builtin_ops.h"

static clv_status update_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    bool fits = in[0].rank >= 2 && in[1].rank == in[0].rank && in[1].shape[1] <= in[0].shape[1];
    for (int d = 0; fits && d < in[0].rank; d++)
        fits = d == 1 || in[0].shape[d] == in[1].shape[d];
    if (!fits)
        return clv_fail(err, CLV_ESHAPE,
                        "rows %s do not fit cache %s; [B,S,...] into [B,Smax,...], S <= Smax, is needed",
                        clv_type_string(&in[1]).text, clv_type_string(&in[0]).text);
    if (in[0].dtype != in[1].dtype)
        return clv_fail(err, CLV_EDTYPE, "rows are %s, cache is %s; their dtypes must be equal",
                        clv_type_string(&in[1]).text, clv_type_string(&in[0]).text);
    CLV_TRY(clv_check_offset(&in[2], in[0].shape[0], err));
    out[0] = in[0];
    return CLV_OK;
}

static void update_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    for (int d = 0; d < in[0].rank; d++) {
        if (d == 1)
            continue;
        int factor = clv_rule_add_factor(rule, in[0].shape[d], CLV_REDUCTION_NONE);
        clv_rule_operand_dim(rule, 0, d, factor);
        clv_rule_operand_dim(rule, 1, d, factor);
        if (d == 0 && in[2].rank == 1)
            clv_rule_operand_dim(rule, 2, 0, factor);
        clv_rule_result_dim(rule, 0, d, factor);
    }
}

static clv_op_cost update_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.bytes = 2 * clv_type_bytes(&in[1])};
}

static clv_status update_run(const clv_call *call, clv_error *err)
{
    const clv_view *rows = &call->in[1], *out = &call->out[0];
    const int32_t *offset = call->in[2].data;
    int64_t step = call->in[2].rank, count = rows->shape[1], capacity = out->shape[1];
    for (int64_t b = 0; b < out->shape[0]; b++)
        if (offset[b * step] < 0 || offset[b * step] + count > capacity)
            return clv_fail(err, CLV_ELIMIT, "context full: %lld rows from %d on do not fit a cache of %lld rows",
                            (long long)count, offset[b * step], (long long)capacity);
    clv_view_copy_unless_aliased(out, &call->in[0]);
    size_t row_bytes = clv_dtype_size(out->dtype);
    for (int d = 2; d < out->rank; d++)
        row_bytes *= (size_t)out->shape[d];
    size_t run = (size_t)count * row_bytes;
    for (int64_t b = 0; run > 0 && b < out->shape[0]; b++)
        memcpy((char *)out->data + (size_t)(b * capacity + offset[b * step]) * row_bytes,
               (const char *)rows->data + (size_t)b * run, run);
    return CLV_OK;
}

const clv_op_def clv_op_cache_update = {
    .name = "cache_update",
    CLV_ARITY(3, 3, 1),
    .shape = update_shape,
    .rule = update_rule,
    .cost = update_cost,
    .in_place = {1 + 0},
    .run = update_run,
};

clv_value clv_cache_update(clv_graph *graph, clv_value cache, clv_value rows, clv_value offset)
{
    clv_value in[] = {cache, rows, offset};
    return clv_graph_emit_one(graph, &clv_op_cache_update, NULL, in, 3);
}
