/* kv_cache_update.c - KV cache update op: writes new key/value rows in place at an offset.
 *
 *   out[b, offset + s, ...] = rows[b, s, ...]; elsewhere out = cache
 *
 *   cache [B,Smax,...], rows [B,S,...], offset i32 [] or [B]      factors: b and what follows the rows pass; rows whole
 *
 * Runs in place on the cache and writes only the new rows. Of a cache in parts, [parts B,Smax,...], in which each part
 * begins Smax positions after the one before, offset is from the part's begin, and rows that are not in the part are
 * passed over. No gradient: caches are for inference.
 */
#include "ops/builtin_ops.h"

typedef struct update_attrs {
    int64_t parts;     /* of the cache; 0: it is whole */
    int64_t positions; /* of all parts together */
} update_attrs;

static const clv_attr update_fields[] = {
    CLV_FIELD(INT64, update_attrs, parts), CLV_FIELD(INT64, update_attrs, positions), {0}};

static clv_status update_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const update_attrs *attrs = op->attrs;
    bool fits = in[0].rank >= 2 && in[1].rank == in[0].rank && (attrs->parts > 0 || in[1].shape[1] <= in[0].shape[1]);
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

/* Rows must be at positions of the cache: of sequence b of this rank, in its part. */
static clv_status check_room(const clv_view *out, const update_attrs *attrs, int64_t b, int64_t offset, int64_t count,
                             clv_error *err)
{
    const int64_t part = attrs->parts > 0 ? (out->lo[0] + b) / (out->global[0] / attrs->parts) : 0;
    const int64_t at = offset + part * out->shape[1], room = attrs->parts > 0 ? attrs->positions : out->shape[1];
    if (at < 0 || at + count > room)
        return clv_fail(err, CLV_ELIMIT, "context full: %lld rows from %lld on do not fit a cache of %lld rows",
                        (long long)count, (long long)at, (long long)room);
    return CLV_OK;
}

static clv_status update_run(const clv_call *call, clv_error *err)
{
    const clv_view *rows = &call->in[1], *out = &call->out[0];
    const int32_t *offset = call->in[2].data;
    int64_t step = call->in[2].rank, count = rows->shape[1], capacity = out->shape[1];
    for (int64_t b = 0; b < out->shape[0]; b++)
        CLV_TRY(check_room(out, call->op->attrs, b, offset[b * step], count, err));
    clv_view_copy_unless_aliased(out, &call->in[0]);
    size_t row_bytes = clv_dtype_size(out->dtype);
    for (int d = 2; d < out->rank; d++)
        row_bytes *= (size_t)out->shape[d];
    for (int64_t b = 0; row_bytes > 0 && b < out->shape[0]; b++) {
        const int64_t at = offset[b * step], from = at < 0 ? -at : 0,
                      end = capacity - at < count ? capacity - at : count;
        if (from < end)
            memcpy((char *)out->data + (size_t)(b * capacity + at + from) * row_bytes,
                   (const char *)rows->data + (size_t)(b * count + from) * row_bytes, (size_t)(end - from) * row_bytes);
    }
    return CLV_OK;
}

const clv_op_def clv_op_cache_update = {
    .name = "cache_update",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(update_attrs, update_fields),
    .shape = update_shape,
    .rule = update_rule,
    .cost = update_cost,
    .in_place = {1 + 0},
    .run = update_run,
};

clv_value clv_cache_update_parts(clv_graph *graph, clv_value cache, clv_value rows, clv_value offset, int64_t parts,
                                 int64_t positions)
{
    clv_value in[] = {cache, rows, offset};
    update_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.parts = parts;
    attrs.positions = positions;
    return clv_graph_emit_one(graph, &clv_op_cache_update, &attrs, in, 3);
}

clv_value clv_cache_update(clv_graph *graph, clv_value cache, clv_value rows, clv_value offset)
{
    return clv_cache_update_parts(graph, cache, rows, offset, 0, 0);
}
