/* export_shape.c - ops that move elements, and constraints, as StableHLO. */
#include "ops/builtin_ops.h"
#include "program/program.h"
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

/* The layout that splits the permuted dimension into single elements: what the result is constrained to. NULL: it does
 * not, or splits another dimension into unequal parts. */
static const clv_layout *split_of(const exporter *ex, int dim, const clv_type *type)
{
    const int64_t n = type->shape[dim];
    const clv_layout *layout = NULL;
    for (int i = ex->op->id + 1; !layout && i < ex->graph->n_ops; i++)
        if (ex->graph->ops[i].n_in == 1 && ex->graph->ops[i].in[0] == ex->op->out[0])
            layout = clv_op_constraint_of(&ex->graph->ops[i]);
    for (int d = 0; layout && d < type->rank; d++)
        if (type->shape[d] % clv_layout_block_count(layout, d) != 0)
            return NULL;
    return layout && clv_layout_block_count(layout, dim) == n && n > 1 ? layout : NULL;
}

/* Pairs of devices, in each group over the axes that split the dimension. */
static void put_pairs(exporter *ex, const clv_layout *layout, int dim, const int *sources)
{
    const clv_mesh *mesh = &ex->graph->mesh;
    const clv_subaxis *axes;
    const int n_axes = clv_layout_axes(&axes, layout, dim), n = (int)clv_layout_block_count(layout, dim);
    int64_t members[CLV_PERMUTE_MOST], pairs = 0;
    for (int64_t r = 0; r < clv_mesh_rank_count(mesh); r++) {
        (void)clv_mesh_group(members, mesh, axes, n_axes, r);
        for (int i = 0; i < n; i++)
            if (members[i] == r && sources[i] >= 0)
                fprintf(ex->to, "%s[%lld, %lld]", pairs++ ? ", " : "[", (long long)members[sources[i]], (long long)r);
    }
    fprintf(ex->to, "%s> : tensor<%lldx2xi64>", pairs ? "]" : "", (long long)pairs);
}

/* A collective_permute where devices have single elements, else slices. */
static void permute(exporter *ex, const exported *in, exported *out)
{
    const clv_permute_attrs *a = ex->op->attrs;
    const int n = (int)in[0].type.shape[a->dim];
    const clv_layout *layout = split_of(ex, a->dim, &in[0].type);
    const clv_mesh *mesh = &ex->graph->mesh;
    int sources[CLV_PERMUTE_MOST];
    (void)clv_permute_sources(sources, n, a->from);
    if (!layout) {
        exported parts[CLV_PERMUTE_MOST];
        clv_type one = in[0].type;
        one.shape[a->dim] = 1;
        for (int i = 0; i < n; i++)
            parts[i] =
                sources[i] < 0 ? export_filled(ex, one, 0) : export_part(ex, in[0], a->dim, sources[i], sources[i] + 1);
        out[0] = n > 0 ? export_join(ex, parts, n, a->dim) : in[0];
        return;
    }
    const clv_type shard = clv_largest_shard_type(&in[0].type, layout);
    const export_text local = export_type(&shard), whole = export_type(&in[0].type);
    const int id = ex->n++;
    fprintf(ex->to, "    %%%d = sdy.manual_computation(%%%d) in_shardings=[", id, in[0].id);
    export_sharding(ex->to, layout, mesh);
    fputs("] out_shardings=[", ex->to);
    export_sharding(ex->to, layout, mesh);
    fputs("] manual_axes={", ex->to);
    for (int i = 0; i < mesh->n_axes; i++)
        fprintf(ex->to, "%s\"%s\"", i ? ", " : "", mesh->axis[i].name);
    fprintf(
        ex->to,
        "} (%%a: %s) {\n"
        "      %%b = \"stablehlo.collective_permute\"(%%a) <{channel_handle = #stablehlo.channel_handle<handle = %d, "
        "type = 1>, source_target_pairs = dense<",
        local.text, id);
    put_pairs(ex, layout, a->dim, sources);
    fprintf(ex->to, "}> : (%s) -> %s loc(\"%s\")\n      sdy.return %%b : %s\n    } : (%s) -> %s\n", local.text,
            local.text, ex->place, local.text, whole.text, whole.text);
    out[0] = (exported){id, in[0].type};
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
    {&clv_op_permute, permute},
    {&clv_op_cotangent_constraint, same},
    {&torch_index_op, same}, /* whose indices are in range */
    {0},
};
