/* aten.c - arguments, dtypes and results of ATen's ops. */
#include "interop/torch/aten.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

/* ---- arguments ---- */

const mlir_attr *aten_argument(const mlir_op *op, const char *name)
{
    const mlir_attr *attr = mlir_find_attr(op->attrs, op->n_attrs, name);
    return attr && attr->kind != MLIR_UNIT ? attr : NULL;
}

const imported *aten_optional(const mlir_op *op, const imported *in, const char *name)
{
    const mlir_attr *attr = aten_argument(op, name);
    return attr && attr->kind == MLIR_VALUE ? &in[attr->number] : NULL;
}

clv_status aten_tensor(const imported **out, const importer *im, const mlir_op *op, const imported *in,
                       const char *name, clv_error *err)
{
    *out = aten_optional(op, in, name);
    return *out ? CLV_OK : import_fail(im, op, err, CLV_ESYNTAX, "no tensor %s", name);
}

static clv_status no_number(const importer *im, const mlir_op *op, const mlir_attr *attr, clv_error *err)
{
    if (attr->kind == MLIR_WORD)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "%s: a dynamic size (%.60s); export it with fixed shapes",
                           attr->key, attr->text);
    return import_fail(im, op, err, CLV_ESYNTAX, "%s: a number is needed", attr->key);
}

clv_status aten_int(int64_t *out, const importer *im, const mlir_op *op, const char *name, int64_t otherwise,
                    clv_error *err)
{
    const mlir_attr *attr = aten_argument(op, name);
    *out = attr ? attr->number : otherwise;
    return !attr || attr->kind == MLIR_INT ? CLV_OK : no_number(im, op, attr, err);
}

clv_status aten_real(double *out, const importer *im, const mlir_op *op, const char *name, double otherwise,
                     clv_error *err)
{
    const mlir_attr *attr = aten_argument(op, name);
    *out = attr ? attr->real : otherwise;
    return !attr || attr->kind == MLIR_INT || attr->kind == MLIR_REAL ? CLV_OK : no_number(im, op, attr, err);
}

clv_status aten_ints(int64_t out[CLV_MAX_RANK], int *n, const importer *im, const mlir_op *op, const char *name,
                     clv_error *err)
{
    const mlir_attr *attr = aten_argument(op, name);
    const mlir_attr *items = attr && attr->kind == MLIR_LIST ? attr->items : attr;
    int count = !attr ? 0 : attr->kind == MLIR_LIST ? attr->n : 1;
    *n = 0;
    if (count > CLV_MAX_RANK)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "%s: more than %d numbers", name, CLV_MAX_RANK);
    for (; *n < count; (*n)++) {
        if (items[*n].kind != MLIR_INT)
            return no_number(im, op, &items[*n], err);
        out[*n] = items[*n].number;
    }
    return CLV_OK;
}

static clv_status check_dim(int *out, const importer *im, const mlir_op *op, int64_t dim, int rank, clv_error *err)
{
    int most = rank > 0 ? rank : 1; /* a scalar has dimensions 0 and -1, too */
    if (dim < -most || dim >= most)
        return import_fail(im, op, err, CLV_ESHAPE, "dimension %lld of %d", (long long)dim, rank);
    *out = (int)(dim < 0 ? dim + most : dim);
    return CLV_OK;
}

clv_status aten_dim(int *out, const importer *im, const mlir_op *op, const char *name, int rank, int64_t otherwise,
                    clv_error *err)
{
    int64_t dim;
    CLV_TRY(aten_int(&dim, im, op, name, otherwise, err));
    return check_dim(out, im, op, dim, rank, err);
}

clv_status aten_dims(int out[CLV_MAX_RANK], int *n, const importer *im, const mlir_op *op, const char *name, int rank,
                     clv_error *err)
{
    int64_t listed[CLV_MAX_RANK];
    bool seen[CLV_MAX_RANK] = {false};
    int count, dim;
    *n = 0;
    CLV_TRY(aten_ints(listed, &count, im, op, name, err));
    for (int i = 0; i < count; i++) {
        CLV_TRY(check_dim(&dim, im, op, listed[i], rank, err));
        seen[dim] = true;
    }
    for (int d = 0; d < rank; d++)
        if (seen[d] || count == 0)
            out[(*n)++] = d;
    return CLV_OK;
}

clv_status aten_result(clv_type *out, const importer *im, const mlir_op *op, int i, clv_error *err)
{
    if (i >= op->n_results)
        return import_fail(im, op, err, CLV_ESYNTAX, "%d results", op->n_results);
    return import_type(out, im, &op->result_types[i], err);
}

/* ---- values ---- */

clv_value aten_whole(importer *im, const imported *x, clv_dtype dtype)
{
    clv_value value = imported_whole(im, x);
    return x->type.dtype == dtype ? value : clv_cast(im->graph, value, dtype);
}

clv_value aten_compact(importer *im, const imported *x, clv_dtype dtype)
{
    double real;
    int64_t whole;
    if (x->type.dtype == dtype)
        return imported_compact(im, x);
    if (!clv_valid(x->value) && clv_dtype_is_float(dtype) && imported_number(x, &real, &whole))
        return clv_fill(im->graph, dtype, 0, NULL, real);
    return clv_cast(im->graph, imported_compact(im, x), dtype);
}

clv_value aten_operand(importer *im, const mlir_op *op, const imported *in, const char *name, clv_dtype dtype)
{
    const mlir_attr *attr = aten_argument(op, name);
    if (attr && attr->kind == MLIR_VALUE)
        return aten_compact(im, &in[attr->number], dtype);
    if (!attr || (attr->kind != MLIR_INT && attr->kind != MLIR_REAL))
        return clv_graph_fail(im->graph, CLV_ESYNTAX, "%s is neither a tensor nor a number", name);
    double number = attr->real;
    if (!clv_dtype_is_float(dtype))
        number = dtype == CLV_BOOL ? number != 0 : trunc(number);
    return clv_fill(im->graph, dtype, 0, NULL, number);
}

imported aten_repeats(importer *im, const clv_type *type, clv_value value)
{
    clv_type have = clv_graph_type(im->graph, value);
    int64_t shape[CLV_MAX_RANK];
    if (!clv_valid(value) || have.rank == 0 || have.rank >= type->rank)
        return imported_of(*type, value);
    for (int d = 0; d < type->rank; d++)
        shape[d] = d < type->rank - have.rank ? 1 : have.shape[d - (type->rank - have.rank)];
    return imported_of(*type, clv_reshape(im->graph, value, type->rank, shape));
}

clv_status aten_known(imported *out, importer *im, const clv_type *type, double number, clv_error *err)
{
    char data[16];
    literal *known;
    if (!clv_dtype_is_float(type->dtype))
        number = type->dtype == CLV_BOOL ? number != 0 : trunc(number);
    clv_dtype_store(type->dtype, data, 0, number);
    CLV_TRY(literal_new(&known, im, data, true, type, err));
    *out = (imported){.type = *type, .known = known};
    return CLV_OK;
}

/* Bool below integers below floats; within a kind the larger, bf16 and f16 meet in f32. */
static clv_dtype larger(clv_dtype a, clv_dtype b)
{
    static const clv_dtype order[] = {CLV_BOOL, CLV_U8, CLV_I32, CLV_I64, CLV_F16, CLV_BF16, CLV_F32, CLV_F64};
    int at[2] = {0, 0};
    for (int i = 0; i < (int)(sizeof order / sizeof *order); i++) {
        at[0] = order[i] == a ? i : at[0];
        at[1] = order[i] == b ? i : at[1];
    }
    if ((a == CLV_F16 && b == CLV_BF16) || (a == CLV_BF16 && b == CLV_F16))
        return CLV_F32;
    return order[at[0] > at[1] ? at[0] : at[1]];
}

static int kind_of(clv_dtype dtype)
{
    return clv_dtype_is_float(dtype) ? 2 : dtype != CLV_BOOL;
}

clv_dtype aten_promoted(const mlir_op *op, const imported *in, const char *a, const char *b)
{
    const char *names[] = {a, b};
    clv_dtype dtypes[2] = {CLV_BOOL, CLV_BOOL};
    bool weak[2] = {true, true}; /* numbers, and tensors without dimensions, decide only by their kind */
    for (int i = 0; i < 2; i++) {
        const mlir_attr *attr = aten_argument(op, names[i]);
        const imported *x = aten_optional(op, in, names[i]);
        if (x) {
            dtypes[i] = x->type.dtype;
            weak[i] = x->type.rank == 0;
        } else if (attr)
            dtypes[i] = attr->kind == MLIR_REAL ? CLV_F32 : attr->kind == MLIR_INT ? CLV_I64 : CLV_BOOL;
    }
    for (int i = 0; i < 2; i++)
        if (weak[1 - i] && !weak[i] && kind_of(dtypes[i]) >= kind_of(dtypes[1 - i]))
            return dtypes[i];
    for (int i = 0; i < 2; i++) /* a number beside a tensor without dimensions */
        if (!aten_optional(op, in, names[1 - i]) && kind_of(dtypes[i]) >= kind_of(dtypes[1 - i]))
            return dtypes[i];
    return larger(dtypes[0], dtypes[1]);
}

clv_value aten_one_hot(importer *im, clv_value index, clv_dtype dtype, const clv_type *x, int dim)
{
    int64_t shape[CLV_MAX_RANK];
    for (int d = 0; d < x->rank; d++)
        shape[d] = d == dim ? x->shape[d] : 1;
    clv_value count = clv_cast(im->graph, clv_iota(im->graph, x->shape[dim], CLV_NONE), dtype);
    return clv_pointwise(im->graph, CLV_EQUAL, index, clv_reshape(im->graph, count, x->rank, shape));
}
