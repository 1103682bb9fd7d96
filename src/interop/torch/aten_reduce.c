/* aten_reduce.c - ATen's reductions, softmax among them, and running sums. */
#include <string.h>

#include "interop/torch/aten.h"

/* Sum, mean and maxima of floats may be split over ranks; other reductions are folds of whole dimensions. */
typedef enum reduction { SUM, MEAN, MAX, MIN, PRODUCT, ANY, ALL } reduction;

static clv_value fold(importer *im, clv_fold_kind kind, clv_value x, const int *dims, int n)
{
    return n > 0 ? clv_fold(im->graph, kind, x, dims, n) : x;
}

static clv_value reduce_by(importer *im, reduction by, clv_value x, clv_dtype dtype, const int *dims, int n)
{
    bool real = clv_dtype_is_float(dtype);
    if (n == 0)
        return x;
    switch (by) {
    case SUM:
        return real ? clv_reduce(im->graph, CLV_SUM, x, dims, n, false) : fold(im, CLV_FOLD_SUM, x, dims, n);
    case MEAN:
        return clv_reduce(im->graph, CLV_MEAN, x, dims, n, false);
    case MAX:
        return real ? clv_reduce(im->graph, CLV_MAX, x, dims, n, false) : fold(im, CLV_FOLD_MAX, x, dims, n);
    case MIN:
        return real ? clv_unary(im->graph, CLV_NEG,
                                clv_reduce(im->graph, CLV_MAX, clv_unary(im->graph, CLV_NEG, x), dims, n, false))
                    : fold(im, CLV_FOLD_MIN, x, dims, n);
    case PRODUCT:
        return fold(im, CLV_FOLD_PRODUCT, x, dims, n);
    case ANY:
        return fold(im, CLV_FOLD_OR, x, dims, n);
    case ALL:
        return fold(im, CLV_FOLD_AND, x, dims, n);
    }
    return CLV_NONE;
}

/* The operand as it is reduced: sums are in the result's dtype; any and all are of whether elements are not 0. */
static clv_value reduced_operand(importer *im, const imported *self, reduction by, clv_dtype dtype)
{
    if (by != ANY && by != ALL)
        return aten_whole(im, self, dtype);
    clv_value x = imported_whole(im, self);
    return self->type.dtype == CLV_BOOL
               ? x
               : clv_pointwise(im->graph, CLV_NOT_EQUAL, x, clv_fill(im->graph, self->type.dtype, 0, NULL, 0));
}

static clv_status reduce(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    const reduction by = (reduction)im->row->kind;
    clv_type type;
    int dims[CLV_MAX_RANK], n;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_dims(dims, &n, im, op, "dim", self->type.rank, err));
    clv_value x = reduce_by(im, by, reduced_operand(im, self, by, type.dtype), type.dtype, dims, n);
    out[0] = imported_of(type, clv_reshape(im->graph, x, type.rank, type.shape)); /* keepdim */
    return CLV_OK;
}

/* argmax, and the pair of max.dim. */
static clv_status extreme(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    clv_type type, index;
    int dims[CLV_MAX_RANK], n;
    bool largest = im->row->kind % 2 == 0, pair = im->row->kind >= 2;
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_result(&index, im, op, pair, err));
    CLV_TRY(aten_dims(dims, &n, im, op, "dim", self->type.rank, err));
    clv_value x = imported_whole(im, self);
    if (n != 1) { /* over all elements, in order */
        int64_t elems = clv_type_elems(&self->type);
        x = clv_reshape(im->graph, x, 1, &elems);
        dims[0] = 0;
    }
    clv_value at = clv_fold(im->graph, largest ? CLV_FOLD_ARGMAX : CLV_FOLD_ARGMIN, x, dims, 1);
    out[pair] =
        imported_of(index, clv_reshape(im->graph, clv_cast(im->graph, at, index.dtype), index.rank, index.shape));
    if (pair) {
        CLV_TRY(aten_result(&type, im, op, 0, err));
        clv_value most = reduce_by(im, largest ? MAX : MIN, x, type.dtype, dims, 1);
        out[0] = imported_of(type, clv_reshape(im->graph, most, type.rank, type.shape));
    }
    return CLV_OK;
}

/* Mean of squared differences from the mean, n - correction in the divisor. */
static clv_status variance(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    clv_type type;
    int dims[CLV_MAX_RANK], n;
    double correction, count = 1;
    bool pair = im->row->kind == 1;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_dims(dims, &n, im, op, "dim", self->type.rank, err));
    CLV_TRY(aten_real(&correction, im, op, aten_argument(op, "unbiased") ? "unbiased" : "correction", 1, err));
    for (int i = 0; i < n; i++)
        count *= (double)self->type.shape[dims[i]];
    if (n == 0)
        return import_fail(im, op, err, CLV_ESHAPE, "no dimension");
    clv_value x = aten_whole(im, self, type.dtype), mean = clv_reduce(im->graph, CLV_MEAN, x, dims, n, true);
    clv_value d = clv_sub(im->graph, x, mean);
    clv_value sum = clv_reduce(im->graph, CLV_SUM, clv_mul(im->graph, d, d), dims, n, false);
    sum = clv_scale(im->graph, sum, 1 / (count - correction));
    out[0] = imported_of(type, clv_reshape(im->graph, sum, type.rank, type.shape));
    if (pair) {
        CLV_TRY(aten_result(&type, im, op, 1, err));
        out[1] = imported_of(type, clv_reshape(im->graph, mean, type.rank, type.shape));
    }
    return CLV_OK;
}

/* ---- softmax ---- */

/* The graph's softmax is over the last dimension: dim and the last change places. */
static clv_value swap_last(importer *im, clv_value x, int rank, int dim)
{
    int order[CLV_MAX_RANK];
    for (int d = 0; d < rank; d++)
        order[d] = d == dim ? rank - 1 : d == rank - 1 ? dim : d;
    return dim == rank - 1 ? x : clv_transpose(im->graph, x, order);
}

static clv_status softmax(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    clv_type type;
    int dim;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", type.rank, -1, err));
    if (type.rank == 0 || self->type.rank != type.rank)
        return import_fail(im, op, err, CLV_ESHAPE, "its operand has no dimension");
    clv_value x = aten_whole(im, self, type.dtype);
    if (im->row->kind) { /* of logarithms */
        clv_value most = clv_reduce(im->graph, CLV_MAX, x, &dim, 1, true);
        x = clv_sub(im->graph, x, most);
        clv_value sum = clv_reduce(im->graph, CLV_SUM, clv_unary(im->graph, CLV_EXP, x), &dim, 1, true);
        x = clv_sub(im->graph, x, clv_unary(im->graph, CLV_LOG, sum));
    } else
        x = swap_last(im, clv_softmax(im->graph, swap_last(im, x, type.rank, dim)), type.rank, dim);
    out[0] = imported_of(type, x);
    return CLV_OK;
}

/* ---- running sums and differences ---- */

/* x moved by n along a dimension, with zeros in front. */
static clv_value shift(importer *im, clv_value x, int dim, int64_t n)
{
    clv_type type = clv_graph_type(im->graph, x);
    int64_t before[CLV_MAX_RANK] = {0}, zero[CLV_MAX_RANK] = {0};
    before[dim] = n;
    clv_value padded = clv_pad(im->graph, x, before, zero);
    return clv_slice(im->graph, padded, zero, type.shape);
}

/* By doubling: after step k each element is the sum of 2^k. */
static clv_status running_sum(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    clv_type type;
    int dim;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", type.rank, 0, err));
    clv_value x = aten_whole(im, self, type.dtype);
    for (int64_t n = 1; clv_valid(x) && type.rank > 0 && n < type.shape[dim]; n *= 2)
        x = clv_add(im->graph, x, shift(im, x, dim, n));
    out[0] = imported_of(type, x);
    return CLV_OK;
}

/* Differences of neighbours, with tensors in front and behind. */
static clv_status difference(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const char *const names[] = {"prepend", "self", "append"};
    clv_type type;
    clv_value parts[3];
    int64_t order, low[CLV_MAX_RANK] = {0};
    int dim, n = 0;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_int(&order, im, op, "n", 1, err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", type.rank, -1, err));
    if (order != 1 || type.rank == 0)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "differences of order %lld; 1 is supported",
                           (long long)order);
    for (int i = 0; i < 3; i++) {
        const imported *x = aten_optional(op, in, names[i]);
        if (x)
            parts[n++] = imported_whole(im, x);
    }
    clv_value x = clv_concat(im->graph, parts, n, dim);
    clv_type have = clv_graph_type(im->graph, x);
    if (!clv_valid(x) || have.shape[dim] == 0)
        return import_fail(im, op, err, CLV_ESHAPE, "no elements");
    low[dim] = 1;
    clv_value later = clv_slice(im->graph, x, low, have.shape);
    low[dim] = 0;
    have.shape[dim]--;
    clv_value earlier = clv_slice(im->graph, x, low, have.shape);
    out[0] = imported_of(type, have.dtype == CLV_BOOL ? clv_pointwise(im->graph, CLV_XOR, later, earlier)
                                                      : clv_sub(im->graph, later, earlier));
    return CLV_OK;
}

const import_row aten_reduce_rows[] = {
    ATEN("sum.default", reduce, SUM),
    ATEN("sum.dim_IntList", reduce, SUM),
    ATEN("mean.default", reduce, MEAN),
    ATEN("mean.dim", reduce, MEAN),
    ATEN("amax.default", reduce, MAX),
    ATEN("amin.default", reduce, MIN),
    ATEN("max.default", reduce, MAX),
    ATEN("min.default", reduce, MIN),
    ATEN("prod.default", reduce, PRODUCT),
    ATEN("prod.dim_int", reduce, PRODUCT),
    ATEN("any.default", reduce, ANY),
    ATEN("any.dim", reduce, ANY),
    ATEN("any.dims", reduce, ANY),
    ATEN("all.default", reduce, ALL),
    ATEN("all.dim", reduce, ALL),
    ATEN("argmax.default", extreme, 0),
    ATEN("argmin.default", extreme, 1),
    ATEN("max.dim", extreme, 2),
    ATEN("min.dim", extreme, 3),
    ATEN("var.dim", variance, 0),
    ATEN("var.correction", variance, 0),
    ATEN("var_mean.correction", variance, 1),
    ATEN("softmax.int", softmax, 0),
    ATEN("_softmax.default", softmax, 0),
    ATEN("log_softmax.int", softmax, 1),
    ATEN("_log_softmax.default", softmax, 1),
    ATEN("cumsum.default", running_sum, 0),
    ATEN("diff.default", difference, 0),
    {0},
};
