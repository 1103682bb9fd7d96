/* export_shape.c - ops that move elements, and constraints, as StableHLO. */
#include "ops/builtin_ops.h"
#include "interop/export/exporter.h"
#include "interop/torch/aten.h"

static void reshape(exporter *ex, const exported *in, exported *out)
{
    out[0] = export_reshape(ex, in[0], out[0].type.rank, out[0].type.shape);
}

static void broadcast(exporter *ex, const exported *in, exported *out)
{
    out[0] = export_spread(ex, in[0], &out[0].type);
}

static void transpose(exporter *ex, const exported *in, exported *out)
{
    int order[CLV_MAX_RANK];
    for (int d = 0; d < in[0].type.rank; d++)
        order[d] = (int)export_whole(ex, "order", d);
    out[0] = export_transpose(ex, in[0], order);
}

static void slice(exporter *ex, const exported *in, exported *out)
{
    out[0] = in[0];
    for (int d = 0; d < in[0].type.rank; d++)
        if (out[0].type.shape[d] != export_whole(ex, "high", d) - export_whole(ex, "low", d))
            out[0] = export_part(ex, out[0], d, export_whole(ex, "low", d), export_whole(ex, "high", d));
}

static void pad(exporter *ex, const exported *in, exported *out)
{
    int64_t low[CLV_MAX_RANK], high[CLV_MAX_RANK], none[CLV_MAX_RANK] = {0};
    const int rank = in[0].type.rank;
    for (int d = 0; d < rank; d++) {
        low[d] = export_whole(ex, "low", d);
        high[d] = export_whole(ex, "high", d);
    }
    exported zero = export_number(ex, in[0].type.dtype, 0);
    out[0] = export_line(
        ex, out[0].type, "stablehlo.pad %%%d, %%%d, low = %s, high = %s, interior = %s : (%s, %s) -> %s", in[0].id,
        zero.id, export_ints(low, rank).text, export_ints(high, rank).text, export_ints(none, rank).text,
        export_type(&in[0].type).text, export_type(&zero.type).text, export_type(&out[0].type).text);
}

static void concat(exporter *ex, const exported *in, exported *out)
{
    out[0] = export_join(ex, in, ex->op->n_in, (int)export_whole(ex, "dim", 0));
}

/* offset + 0..n-1, of each row of a batch */
static void iota(exporter *ex, const exported *in, exported *out)
{
    exported offset = ex->op->n_in > 0 ? in[0] : (exported){.type = {.rank = -1}};
    out[0] = export_iota(ex, out[0].type, out[0].type.rank - 1);
    if (!export_given(&offset))
        return;
    if (offset.type.rank == 1)
        offset = export_unsqueeze(ex, offset, 1);
    out[0] = export_binary(ex, "add", out[0], offset);
}

static void constraint(exporter *ex, const exported *in, exported *out)
{
    out[0] = export_constrained(ex, in[0], clv_op_constraint_of(ex->op));
}

/* Shardy brings a cotangent where its readers need it. */
static void same(exporter *ex, const exported *in, exported *out)
{
    out[0] = in[0];
}

const export_row export_shape_rows[] = {
    {&clv_op_reshape, reshape},
    {&clv_op_broadcast, broadcast},
    {&clv_op_transpose, transpose},
    {&clv_op_slice, slice},
    {&clv_op_pad, pad},
    {&clv_op_concat, concat},
    {&clv_op_iota, iota},
    {&clv_op_constraint, constraint},
    {&clv_op_cotangent_constraint, same},
    {&torch_index_op, same}, /* whose indices are in range */
    {0},
};
