/* aten_shape.c - ATen's ops that move elements: views, permutations, slices, concatenations, padding. */
#include <string.h>

#include "interop/torch/aten.h"

/* ---- views ---- */

/* The result's shape holds the operand's elements in their order. */
static clv_status view(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    if (op->n_operands < 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "no operand");
    CLV_TRY(aten_result(&type, im, op, 0, err));
    if (clv_type_equal(&type, &in[0].type)) {
        out[0] = in[0];
        return CLV_OK;
    }
    out[0] = imported_of(type, clv_reshape(im->graph, imported_whole(im, &in[0]), type.rank, type.shape));
    return CLV_OK;
}

/* Dimensions of size 1 come or go: what repeats still repeats. */
static clv_status unsqueeze(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type, have;
    int dim;
    int64_t shape[CLV_MAX_RANK] = {0};
    if (op->n_operands < 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "no operand");
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", in[0].type.rank + 1, 0, err));
    clv_value x = imported_compact(im, &in[0]);
    have = clv_graph_type(im->graph, x);
    out[0] = imported_of(type, x);
    if (!clv_valid(x) || have.rank == 0)
        return CLV_OK;
    for (int d = 0; d < type.rank; d++)
        shape[d] = d == dim ? 1 : have.shape[d - (d > dim)];
    out[0].value = clv_reshape(im->graph, x, type.rank, shape);
    return CLV_OK;
}

/* Dimensions of size 1 are repeated; new ones stand in front. */
static clv_status expand(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    if (op->n_operands < 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "no operand");
    CLV_TRY(aten_result(&type, im, op, 0, err));
    for (int d = 1; d <= in[0].type.rank; d++) {
        int64_t have = in[0].type.shape[in[0].type.rank - d];
        if (d > type.rank || (have != 1 && have != type.shape[type.rank - d]))
            return import_fail(im, op, err, CLV_ESHAPE, "its operand does not expand to %s", op->result_types[0].text);
    }
    out[0] = aten_repeats(im, &type, imported_compact(im, &in[0]));
    return CLV_OK;
}

static clv_status permute_by(importer *im, const mlir_op *op, const imported *x, const int *order, imported *out,
                             clv_error *err)
{
    clv_type type;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    clv_value whole = imported_whole(im, x);
    out[0] = imported_of(type, clv_transpose(im->graph, whole, order));
    if (type.rank == 2 && order[0] == 1)
        out[0].flipped = whole;
    return CLV_OK;
}

static clv_status permute(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    int64_t dims[CLV_MAX_RANK];
    int n, order[CLV_MAX_RANK] = {0};
    CLV_TRY(aten_ints(dims, &n, im, op, "dims", err));
    if (op->n_operands != 1 || n != in[0].type.rank)
        return import_fail(im, op, err, CLV_ESHAPE, "dims do not fit its operand");
    for (int i = 0; i < n; i++)
        order[i] = (int)(dims[i] < 0 ? dims[i] + n : dims[i]);
    return permute_by(im, op, &in[0], order, out, err);
}

static clv_status transpose(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    int a, b, order[CLV_MAX_RANK];
    if (op->n_operands != 1 || in[0].type.rank < 2)
        return view(im, op, in, out, err);
    CLV_TRY(aten_dim(&a, im, op, "dim0", in[0].type.rank, 0, err));
    CLV_TRY(aten_dim(&b, im, op, "dim1", in[0].type.rank, 1, err));
    for (int d = 0; d < in[0].type.rank; d++)
        order[d] = d == a ? b : d == b ? a : d;
    return permute_by(im, op, &in[0], order, out, err);
}

/* ---- slices ---- */

static clv_value cut(importer *im, clv_value x, int dim, int64_t begin, int64_t end)
{
    clv_type type = clv_graph_type(im->graph, x);
    int64_t low[CLV_MAX_RANK] = {0};
    if (!clv_valid(x) || (begin == 0 && end == type.shape[dim]))
        return x;
    low[dim] = begin;
    type.shape[dim] = end;
    return clv_slice(im->graph, x, low, type.shape);
}

/* A bound, counted from the end below 0, within [low, n]. */
static int64_t bound(int64_t at, int64_t low, int64_t n)
{
    at = at < 0 ? at + n : at;
    return at < low ? low : at > n ? n : at;
}

static clv_status slice(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int dim;
    int64_t begin, end, step;
    if (op->n_operands != 1 || in[0].type.rank == 0)
        return import_fail(im, op, err, CLV_ESYNTAX, "one operand with dimensions is needed");
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", in[0].type.rank, 0, err));
    CLV_TRY(aten_int(&begin, im, op, "start", 0, err));
    CLV_TRY(aten_int(&end, im, op, "end", INT64_MAX, err));
    CLV_TRY(aten_int(&step, im, op, "step", 1, err));
    if (step < 1 || step > INT32_MAX)
        return import_fail(im, op, err, CLV_ESHAPE, "a step of %lld", (long long)step);
    begin = bound(begin, 0, in[0].type.shape[dim]);
    end = bound(end, begin, in[0].type.shape[dim]);
    if (begin == 0 && end == in[0].type.shape[dim] && step == 1) {
        out[0] = in[0];
        return CLV_OK;
    }
    out[0] = imported_of(type, import_take_every(im, cut(im, imported_whole(im, &in[0]), dim, begin, end), dim, step));
    return CLV_OK;
}

static clv_status narrow(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int dim;
    int64_t begin, length;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    if (op->n_operands != 1 || in[0].type.rank == 0)
        return import_fail(im, op, err, CLV_ESYNTAX, "one operand with dimensions is needed");
    bool selects = im->row->kind == 1;
    CLV_TRY(aten_dim(&dim, im, op, "dim", in[0].type.rank, 0, err));
    CLV_TRY(aten_int(&begin, im, op, selects ? "index" : "start", 0, err));
    CLV_TRY(aten_int(&length, im, op, "length", 1, err));
    begin = bound(begin, 0, in[0].type.shape[dim]);
    int64_t left = in[0].type.shape[dim] - begin;
    if (length < 0 || length > left)
        return import_fail(im, op, err, CLV_ESHAPE, "%lld elements from %lld on, of %lld", (long long)length,
                           (long long)begin, (long long)in[0].type.shape[dim]);
    clv_value x = cut(im, imported_whole(im, &in[0]), dim, begin, begin + length);
    out[0] = imported_of(type, selects ? clv_reshape(im->graph, x, type.rank, type.shape) : x);
    return CLV_OK;
}

/* Parts of a dimension, of the sizes that their types state; those of unbind lose it. */
static clv_status split(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int dim;
    int64_t begin = 0;
    bool unbinds = im->row->kind == 1;
    if (op->n_operands != 1 || in[0].type.rank == 0)
        return import_fail(im, op, err, CLV_ESYNTAX, "one operand with dimensions is needed");
    CLV_TRY(aten_dim(&dim, im, op, "dim", in[0].type.rank, 0, err));
    clv_value x = imported_whole(im, &in[0]);
    for (int i = 0; i < op->n_results; i++) {
        CLV_TRY(aten_result(&type, im, op, i, err));
        int64_t size = unbinds ? 1 : dim < type.rank ? type.shape[dim] : 0;
        if (size > in[0].type.shape[dim] - begin)
            return import_fail(im, op, err, CLV_ESHAPE, "its parts do not fit its operand");
        clv_value part = cut(im, x, dim, begin, begin + size);
        out[i] = imported_of(type, unbinds ? clv_reshape(im->graph, part, type.rank, type.shape) : part);
        begin += size;
    }
    return CLV_OK;
}

/* ---- concatenation, repetition, padding ---- */

static clv_status concatenate(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int dim, n = 0;
    bool stacks = im->row->kind == 1;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", type.rank, 0, err));
    clv_value *parts = clv_arena_alloc(im->arena, (size_t)op->n_operands + 1, sizeof *parts);
    if (!parts)
        return clv_fail_memory(err, "operands", (size_t)op->n_operands * sizeof *parts);
    for (int i = 0; i < op->n_operands; i++) {
        clv_type one = type;
        if (!stacks && in[i].type.rank == 1 && in[i].type.shape[0] == 0 && type.rank != 1) /* an empty list */
            continue;
        parts[n] = aten_whole(im, &in[i], type.dtype);
        one.shape[dim] = 1;
        if (stacks)
            parts[n] = clv_reshape(im->graph, parts[n], one.rank, one.shape);
        n++;
    }
    out[0] = imported_of(type, clv_concat(im->graph, parts, n, dim));
    return CLV_OK;
}

static clv_status repeat(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int64_t times[CLV_MAX_RANK];
    int n, rank = op->n_operands > 0 ? in[0].type.rank : 0;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_ints(times, &n, im, op, "repeats", err));
    if (op->n_operands != 1 || n != type.rank || n < rank)
        return import_fail(im, op, err, CLV_ESHAPE, "repeats do not fit its operand");
    clv_value x = aten_repeats(im, &type, imported_whole(im, &in[0])).value;
    clv_type have = clv_graph_type(im->graph, x);
    if (have.rank == 0) {
        out[0] = imported_of(type, x);
        return CLV_OK;
    }
    for (int d = 0; clv_valid(x) && d < n; d++) {
        if (have.shape[d] == 1 || times[d] == 1) /* repeats as a broadcast */
            continue;
        clv_value parts[64];
        if (times[d] < 1 || times[d] > 64)
            return import_fail(im, op, err, CLV_EUNSUPPORTED, "%lld repetitions; 1 to 64 are supported",
                               (long long)times[d]);
        for (int i = 0; i < times[d]; i++)
            parts[i] = x;
        x = clv_concat(im->graph, parts, (int)times[d], d);
    }
    out[0] = imported_of(type, x);
    return CLV_OK;
}

/* A tensor of one value, in the shape of x but in one dimension. */
static clv_value border(importer *im, clv_value x, int dim, int64_t n, double value)
{
    clv_type type = clv_graph_type(im->graph, x);
    type.shape[dim] = n;
    return clv_fill(im->graph, type.dtype, type.rank, type.shape, value);
}

/* Pairs of numbers, of the last dimension first; below 0 they cut. */
static clv_status pad(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const mlir_attr *mode = aten_argument(op, "mode"), *list = aten_argument(op, "pad");
    clv_type type;
    double value;
    int n = list && list->kind == MLIR_LIST ? list->n : 0;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_real(&value, im, op, "value", 0, err));
    if (mode && (mode->kind != MLIR_STRING || strcmp(mode->text, "constant") != 0))
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "a mode that is not constant");
    if (op->n_operands != 1 || n % 2 != 0 || n > 2 * type.rank || type.rank != in[0].type.rank)
        return import_fail(im, op, err, CLV_ESHAPE, "pad does not fit its operand");
    clv_value x = imported_whole(im, &in[0]);
    for (int i = 0; clv_valid(x) && i < n / 2; i++) {
        clv_value parts[3];
        int dim = type.rank - 1 - i, count = 0;
        const mlir_attr *low = &list->items[2 * i], *high = low + 1;
        int64_t size = clv_graph_type(im->graph, x).shape[dim];
        if (low->kind != MLIR_INT || high->kind != MLIR_INT || low->number > INT32_MAX || high->number > INT32_MAX ||
            low->number < -size || high->number < -size)
            return import_fail(im, op, err, CLV_ESHAPE, "pad does not fit its operand");
        if (low->number > 0)
            parts[count++] = border(im, x, dim, low->number, value);
        parts[count++] =
            cut(im, x, dim, low->number < 0 ? -low->number : 0, size + (high->number < 0 ? high->number : 0));
        if (high->number > 0)
            parts[count++] = border(im, x, dim, high->number, value);
        x = count == 1 ? parts[0] : clv_concat(im->graph, parts, count, dim);
    }
    out[0] = imported_of(type, x);
    return CLV_OK;
}

/* self with the elements [start, end) of a dimension replaced by src's. */
static clv_status slice_scatter(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self, *src;
    clv_type type;
    int dim, n = 0;
    int64_t begin, end, step;
    clv_value parts[3];
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_tensor(&src, im, op, in, "src", err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", type.rank, 0, err));
    CLV_TRY(aten_int(&begin, im, op, "start", 0, err));
    CLV_TRY(aten_int(&end, im, op, "end", INT64_MAX, err));
    CLV_TRY(aten_int(&step, im, op, "step", 1, err));
    if (step != 1 || type.rank == 0 || self->type.rank != type.rank)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "a step of %lld; 1 is supported", (long long)step);
    int64_t size = self->type.shape[dim];
    begin = bound(begin, 0, size);
    end = bound(end, begin, size);
    clv_value x = imported_whole(im, self);
    if (begin > 0)
        parts[n++] = cut(im, x, dim, 0, begin);
    parts[n++] = aten_whole(im, src, type.dtype);
    if (end < size)
        parts[n++] = cut(im, x, dim, end, size);
    out[0] = imported_of(type, n == 1 ? parts[0] : clv_concat(im->graph, parts, n, dim));
    return CLV_OK;
}

#define MOVES(name, build, kind)                                                                                       \
    {                                                                                                                  \
        "aten." name, build, kind, false, true                                                                         \
    }
const import_row aten_shape_rows[] = {
    MOVES("view.default", view, 0),
    MOVES("reshape.default", view, 0),
    MOVES("_unsafe_view.default", view, 0),
    MOVES("view_as.default", view, 0),
    MOVES("flatten.using_ints", view, 0),
    MOVES("unflatten.int", view, 0),
    MOVES("squeeze.default", view, 0),
    MOVES("squeeze.dim", view, 0),
    MOVES("squeeze.dims", view, 0),
    MOVES("unsqueeze.default", unsqueeze, 0),
    MOVES("expand.default", expand, 0),
    MOVES("expand_as.default", expand, 0),
    MOVES("broadcast_to.default", expand, 0),
    MOVES("permute.default", permute, 0),
    MOVES("transpose.int", transpose, 0),
    MOVES("t.default", transpose, 0),
    MOVES("slice.Tensor", slice, 0),
    MOVES("narrow.default", narrow, 0),
    MOVES("select.int", narrow, 1),
    ATEN("split.Tensor", split, 0),
    ATEN("split_with_sizes.default", split, 0),
    ATEN("chunk.default", split, 0),
    ATEN("unbind.int", split, 1),
    ATEN("cat.default", concatenate, 0),
    ATEN("stack.default", concatenate, 1),
    MOVES("repeat.default", repeat, 0),
    ATEN("constant_pad_nd.default", pad, 0),
    ATEN("pad.default", pad, 0),
    ATEN("slice_scatter.default", slice_scatter, 0),
    {0},
};
