/* import_shape.c - imports StableHLO's constants and ops that move elements: broadcast, reshape, transpose, slice,
 * pad... */
#include <string.h>

#include "interop/importer.h"

static clv_status result_type(clv_type *type, const importer *im, const mlir_op *op, int operands, clv_error *err)
{
    if (op->n_operands < operands || op->n_results != 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "%d operands; %d are needed", op->n_operands, operands);
    return import_type(type, im, &op->result_types[0], err);
}

/* The result's type must be what the text says. */
static clv_status finish(importer *im, const mlir_op *op, const clv_type *type, clv_value value, imported *out,
                         clv_error *err)
{
    clv_type made = clv_graph_type(im->graph, value);
    if (clv_valid(value) && !clv_type_equal(&made, type)) /* else the graph says why */
        return import_fail(im, op, err, CLV_ESHAPE, "its attributes do not give the type %s", op->result_types[0].text);
    out[0] = imported_of(*type, value);
    return CLV_OK;
}

/* ---- constant, iota ---- */

static clv_status constant(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    const mlir_attr *dense = NULL;
    CLV_TRY(result_type(&type, im, op, 0, err));
    for (int i = 0; i < op->n_attrs; i++)
        dense = op->attrs[i].kind == MLIR_DENSE ? &op->attrs[i] : dense;
    if (!dense)
        return import_fail(im, op, err, CLV_ESYNTAX, "no dense<...>");
    if (op->result_types[0].unsigned_bits && dense->text[0] == '"')
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "bytes of %s", op->result_types[0].text);
    /* as many elements as are written: a splat of a large type has one */
    size_t elems = (size_t)clv_type_elems(&type), most = dense->length + 1, size = clv_dtype_size(type.dtype);
    if (elems > most && (dense->text[0] == '[' || (dense->text[0] == '"' && dense->length > 3 + 2 * size + 1)))
        return import_fail(im, op, err, CLV_ESYNTAX, "a dense literal that does not fit its type");
    char *data = clv_arena_alloc(im->arena, elems < most ? elems + 1 : most, size);
    literal *known;
    bool splat;
    if (!data)
        return clv_fail_memory(err, "a constant", elems * size);
    CLV_TRY(mlir_dense(data, &splat, im->module, dense, &type, err));
    CLV_TRY(literal_new(&known, im, data, splat || elems == 1, &type, err));
    known->id = op->first_result;
    CLV_TRY(import_keep_constant(im->program, known, &type, err));
    out[0] = (imported){.type = type, .known = known};
    return CLV_OK;
}

static clv_status iota(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int64_t dim[CLV_MAX_RANK] = {0}, shape[CLV_MAX_RANK];
    int n;
    CLV_TRY(result_type(&type, im, op, 0, err));
    CLV_TRY(import_op_ints(dim, &n, im, op, "dim", 0, err));
    if (n == 0)
        CLV_TRY(import_op_ints(dim, &n, im, op, "iota_dimension", 0, err));
    if (dim[0] < 0 || dim[0] >= type.rank)
        return import_fail(im, op, err, CLV_ESHAPE, "dimension %lld of %s", (long long)dim[0],
                           op->result_types[0].text);
    for (int d = 0; d < type.rank; d++)
        shape[d] = d == dim[0] ? type.shape[d] : 1;
    clv_value count = clv_cast(im->graph, clv_iota(im->graph, type.shape[dim[0]], CLV_NONE), type.dtype);
    out[0] = imported_of(type, clv_reshape(im->graph, count, type.rank, shape));
    out[0].iota = 1 + (int)dim[0];
    return CLV_OK;
}

/* ---- broadcast, reshape, transpose ---- */

static clv_status broadcast_in_dim(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int64_t dims[CLV_MAX_RANK], shape[CLV_MAX_RANK];
    int n, order[CLV_MAX_RANK] = {0};
    bool sorted = true;
    CLV_TRY(result_type(&type, im, op, 1, err));
    CLV_TRY(import_op_ints(dims, &n, im, op, "dims", 0, err));
    if (n == 0)
        CLV_TRY(import_op_ints(dims, &n, im, op, "broadcast_dimensions", 0, err));
    for (int i = 0; i < n; i++)
        if (dims[i] < 0 || dims[i] >= type.rank || n != in[0].type.rank)
            return import_fail(im, op, err, CLV_ESHAPE, "dims do not fit %s", op->result_types[0].text);
    clv_value x = imported_compact(im, &in[0]);
    clv_type have = clv_graph_type(im->graph, x);
    out[0] = imported_of(type, x);
    if (have.rank == 0)
        return CLV_OK;
    for (int d = 0; d < type.rank; d++)
        shape[d] = 1;
    for (int i = 0; i < n; i++) {
        shape[dims[i]] = have.shape[i];
        sorted = sorted && (i == 0 || dims[i] > dims[i - 1]);
        for (int j = 0; j < n; j++)
            order[i] = j;
    }
    for (int i = 0, next = 0; !sorted && i < type.rank; i++) /* which operand's dimension comes i-th */
        for (int j = 0; j < n; j++)
            if (dims[j] == i)
                order[next++] = j;
    if (!sorted)
        x = clv_transpose(im->graph, x, order);
    out[0].value = clv_reshape(im->graph, x, type.rank, shape);
    if (in[0].iota && sorted)
        out[0].iota = 1 + (int)dims[in[0].iota - 1];
    return CLV_OK;
}

static clv_status reshape(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    CLV_TRY(result_type(&type, im, op, 1, err));
    return finish(im, op, &type, clv_reshape(im->graph, imported_whole(im, &in[0]), type.rank, type.shape), out, err);
}

static clv_status transpose(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int64_t dims[CLV_MAX_RANK];
    int n, order[CLV_MAX_RANK] = {0};
    CLV_TRY(result_type(&type, im, op, 1, err));
    CLV_TRY(import_op_ints(dims, &n, im, op, "dims", 0, err));
    if (n == 0)
        CLV_TRY(import_op_ints(dims, &n, im, op, "permutation", 0, err));
    if (n != in[0].type.rank)
        return import_fail(im, op, err, CLV_ESHAPE, "dims do not fit %s", op->result_types[0].text);
    for (int i = 0; i < n; i++)
        order[i] = (int)dims[i];
    return finish(im, op, &type, clv_transpose(im->graph, imported_whole(im, &in[0]), order), out, err);
}

/* ---- slice, pad, concatenate ---- */

/* Rows of `stride`, of which the first column is kept. */
clv_value import_take_every(importer *im, clv_value x, int dim, int64_t stride)
{
    clv_type type = clv_graph_type(im->graph, x);
    int64_t count = (type.shape[dim] + stride - 1) / stride, before[CLV_MAX_RANK] = {0}, after[CLV_MAX_RANK] = {0},
            shape[CLV_MAX_RANK], end[CLV_MAX_RANK];
    if (stride == 1)
        return x;
    after[dim] = count * stride - type.shape[dim];
    x = after[dim] ? clv_pad(im->graph, x, before, after) : x;
    if (type.rank == CLV_MAX_RANK)
        return clv_graph_fail(im->graph, CLV_EUNSUPPORTED, "a stride in 8 dimensions");
    for (int d = 0, to = 0; d < type.rank; d++) {
        shape[to++] = d == dim ? count : type.shape[d];
        if (d == dim)
            shape[to++] = stride;
    }
    x = clv_reshape(im->graph, x, type.rank + 1, shape);
    memcpy(end, shape, sizeof end);
    end[dim + 1] = 1;
    x = clv_slice(im->graph, x, before, end);
    type.shape[dim] = count;
    return clv_reshape(im->graph, x, type.rank, type.shape);
}

/* The pretty form's [0:4:2, 1:3]. */
static bool read_ranges(const mlir_op *op, int64_t *low, int64_t *high, int64_t *stride, int rank)
{
    const mlir_attr *ranges = NULL;
    for (int i = 0; i < op->n_attrs; i++)
        if (op->attrs[i].kind == MLIR_LIST && op->attrs[i].key[0] == '\0' && op->attrs[i].n == rank)
            ranges = &op->attrs[i];
    for (int d = 0; ranges && d < rank; d++) {
        const mlir_attr *range = &ranges->items[d];
        if (range->kind != MLIR_LIST || range->n < 2 || range->n > 3)
            return false;
        low[d] = range->items[0].number;
        high[d] = range->items[1].number;
        stride[d] = range->n == 3 ? range->items[2].number : 1;
    }
    return ranges != NULL;
}

static clv_status slice(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int64_t low[CLV_MAX_RANK], high[CLV_MAX_RANK], stride[CLV_MAX_RANK];
    int n = 0, rank = in[0].type.rank;
    CLV_TRY(result_type(&type, im, op, 1, err));
    if (!read_ranges(op, low, high, stride, rank)) {
        CLV_TRY(import_op_ints(low, &n, im, op, "start_indices", 0, err));
        CLV_TRY(import_op_ints(high, &n, im, op, "limit_indices", 0, err));
        CLV_TRY(import_op_ints(stride, &n, im, op, "strides", 0, err));
        if (n != rank)
            return import_fail(im, op, err, CLV_ESYNTAX, "no ranges of %d dimensions", rank);
    }
    clv_value x = clv_slice(im->graph, imported_whole(im, &in[0]), low, high);
    for (int d = 0; clv_valid(x) && d < rank; d++) {
        if (stride[d] < 1)
            return import_fail(im, op, err, CLV_ESHAPE, "a stride of %lld", (long long)stride[d]);
        x = import_take_every(im, x, d, stride[d]);
    }
    return finish(im, op, &type, x, out, err);
}

/* `count` elements of the padding value, in the shape of x otherwise. */
static clv_value padding(importer *im, const imported *value, clv_value x, int dim, int64_t count)
{
    clv_type type = clv_graph_type(im->graph, x);
    type.shape[dim] = count;
    imported wide = {.type = type, .value = value->value, .known = value->known};
    return imported_whole(im, &wide);
}

/* `between` elements behind each one of a dimension, but the last. */
static clv_value spread(importer *im, clv_value x, const imported *value, int dim, int64_t between)
{
    clv_type type = clv_graph_type(im->graph, x);
    int64_t shape[CLV_MAX_RANK], zero[CLV_MAX_RANK] = {0};
    if (between == 0 || type.shape[dim] < 2)
        return x;
    if (type.rank == CLV_MAX_RANK)
        return clv_graph_fail(im->graph, CLV_EUNSUPPORTED, "interior padding in 8 dimensions");
    for (int d = 0, to = 0; d < type.rank; d++) {
        shape[to++] = type.shape[d];
        if (d == dim)
            shape[to++] = 1;
    }
    clv_value column = clv_reshape(im->graph, x, type.rank + 1, shape);
    clv_value parts[] = {column, padding(im, value, column, dim + 1, between)};
    type.shape[dim] *= between + 1;
    x = clv_reshape(im->graph, clv_concat(im->graph, parts, 2, dim + 1), type.rank, type.shape);
    type.shape[dim] -= between;
    return clv_slice(im->graph, x, zero, type.shape);
}

/* Padding in front and behind; less than 0 cuts. */
static clv_value pad_dim(importer *im, clv_value x, const imported *value, int dim, int64_t low, int64_t high)
{
    clv_value parts[3];
    int n = 0;
    int64_t begin[CLV_MAX_RANK] = {0};
    clv_type type = clv_graph_type(im->graph, x);
    if (low < 0 || high < 0) {
        begin[dim] = low < 0 ? -low : 0;
        type.shape[dim] += high < 0 ? high : 0;
        x = clv_slice(im->graph, x, begin, type.shape);
    }
    if (low > 0)
        parts[n++] = padding(im, value, x, dim, low);
    parts[n++] = x;
    if (high > 0)
        parts[n++] = padding(im, value, x, dim, high);
    return n == 1 ? x : clv_concat(im->graph, parts, n, dim);
}

static clv_status pad(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int64_t low[CLV_MAX_RANK], high[CLV_MAX_RANK], interior[CLV_MAX_RANK], whole;
    double real;
    int n, m, k, rank = in[0].type.rank;
    bool generic = mlir_find_attr(op->attrs, op->n_attrs, "edge_padding_low") != NULL, simple = true;
    CLV_TRY(result_type(&type, im, op, 2, err));
    CLV_TRY(import_op_ints(low, &n, im, op, generic ? "edge_padding_low" : "low", 0, err));
    CLV_TRY(import_op_ints(high, &m, im, op, generic ? "edge_padding_high" : "high", 0, err));
    CLV_TRY(import_op_ints(interior, &k, im, op, generic ? "interior_padding" : "interior", 0, err));
    if (n != rank || m != rank || k != rank)
        return import_fail(im, op, err, CLV_ESHAPE, "low, high and interior do not fit its operand");
    clv_value x = imported_whole(im, &in[0]);
    for (int d = 0; d < rank; d++) {
        if (interior[d] < 0 || interior[d] > INT32_MAX)
            return import_fail(im, op, err, CLV_ESHAPE, "interior padding of %lld", (long long)interior[d]);
        x = spread(im, x, &in[1], d, interior[d]);
        simple = simple && low[d] >= 0 && high[d] >= 0;
    }
    if (simple && imported_number(&in[1], &real, &whole) && real == 0)
        return finish(im, op, &type, clv_pad(im->graph, x, low, high), out, err);
    for (int d = 0; clv_valid(x) && d < rank; d++)
        x = pad_dim(im, x, &in[1], d, low[d], high[d]);
    return finish(im, op, &type, x, out, err);
}

static clv_status concatenate(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int64_t dim[CLV_MAX_RANK];
    int n;
    CLV_TRY(result_type(&type, im, op, 1, err));
    CLV_TRY(import_op_ints(dim, &n, im, op, "dim", 0, err));
    if (n == 0)
        CLV_TRY(import_op_ints(dim, &n, im, op, "dimension", 0, err));
    clv_value *parts = clv_arena_alloc(im->arena, (size_t)op->n_operands, sizeof *parts);
    if (!parts || n != 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "no dimension");
    for (int i = 0; i < op->n_operands; i++)
        parts[i] = imported_whole(im, &in[i]);
    return finish(im, op, &type, clv_concat(im->graph, parts, op->n_operands, (int)dim[0]), out, err);
}

const import_row import_shape_rows[] = {
    {"stablehlo.constant", constant, 0, false, false},
    {"stablehlo.iota", iota, 0, false, false},
    {"stablehlo.broadcast_in_dim", broadcast_in_dim, 0, false, true},
    {"stablehlo.reshape", reshape, 0, false, true},
    {"stablehlo.transpose", transpose, 0, false, true},
    {"stablehlo.slice", slice, 0, false, true},
    {"stablehlo.pad", pad, 0, false, false},
    {"stablehlo.concatenate", concatenate, 0, false, false},
    {0},
};
