/* aten_index.c - ATen's ops that index: gather and scatter along a dimension, index of tensors, and what adds to it. */
#include <string.h>

#include "ops/builtin_ops.h"
#include "interop/torch/aten.h"

/* ---- along a dimension ---- */

/* Whether `index` picks one element of each row of x along dim: then a row of zeros and a one stands for it, which may
 * be split along dim, as a vocabulary is, and has a gradient. */
static bool picks_one(const imported *x, const imported *index, int dim)
{
    for (int d = 0; d < x->type.rank; d++)
        if (index->type.shape[d] != (d == dim ? 1 : x->type.shape[d]))
            return false;
    return clv_dtype_is_float(x->type.dtype);
}

/* Rows of x along dim, each of its own index: dimensions but dim go along, as a batch. */
static clv_value pick(importer *im, const imported *x, clv_value at, const imported *index, int dim)
{
    clv_index_dims dims = {.index_dim = index->type.rank, .n_starts = 1, .start = {dim}};
    int64_t low[CLV_MAX_RANK] = {0};
    clv_type part = x->type;
    for (int d = 0; d < x->type.rank; d++) {
        dims.sizes[d] = 1;
        dims.dropped[d] = d == dim;
        dims.batch[d] = d == dim ? 0 : 1 + d;
        part.shape[d] = d == dim ? part.shape[d] : index->type.shape[d];
    }
    clv_value whole = imported_whole(im, x);
    if (!clv_type_equal(&part, &x->type))
        whole = clv_slice(im->graph, whole, low, part.shape);
    return clv_gather(im->graph, whole, at, &dims);
}

static clv_status gather(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self, *index;
    clv_type type;
    int dim;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_tensor(&index, im, op, in, "index", err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", self->type.rank, 0, err));
    if (index->type.rank != self->type.rank || self->type.rank == 0)
        return import_fail(im, op, err, CLV_ESHAPE, "its index does not fit its operand");
    for (int d = 0; d < self->type.rank; d++)
        if (d != dim && index->type.shape[d] > self->type.shape[d])
            return import_fail(im, op, err, CLV_ESHAPE, "its index does not fit its operand");
    bool one = picks_one(self, index, dim);
    clv_value at = one ? imported_compact(im, index) : imported_whole(im, index);
    CLV_TRY(aten_check_index(&at, im, op, index, 0, self->type.shape[dim], 0, err));
    if (!one) {
        out[0] = imported_of(type, pick(im, self, at, index, dim));
        return CLV_OK;
    }
    clv_value hot = aten_one_hot(im, at, index->type.dtype, &self->type, dim);
    clv_value zero = clv_fill(im->graph, type.dtype, 0, NULL, 0);
    clv_value kept = clv_where(im->graph, hot, imported_whole(im, self), zero);
    out[0] = imported_of(type, clv_reduce(im->graph, CLV_SUM, kept, &dim, 1, true));
    return CLV_OK;
}

/* A number, or a tensor of the index's shape, in the place of one element of each row along dim. */
static clv_status scatter(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self, *index;
    clv_type type;
    int dim;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_tensor(&index, im, op, in, "index", err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", type.rank, 0, err));
    if (index->type.rank != type.rank || type.rank == 0 || !picks_one(self, index, dim))
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "of floats, one element of each row, alone");
    clv_value at = imported_compact(im, index);
    CLV_TRY(aten_check_index(&at, im, op, index, 0, type.shape[dim], 0, err));
    clv_value hot = aten_one_hot(im, at, index->type.dtype, &type, dim);
    clv_value value = aten_operand(im, op, in, aten_argument(op, "src") ? "src" : "value", type.dtype);
    out[0] = aten_repeats(im, &type, clv_where(im->graph, hot, value, imported_compact(im, self)));
    return CLV_OK;
}

/* ---- tensors of indices ---- */

/* An index, which counts from the end below 0 where that is allowed; with all of them broadcast together. */
static clv_status whole_index(clv_value *out, importer *im, const mlir_op *op, const imported *index, int64_t size,
                              bool from_end, const clv_type *shape, clv_error *err)
{
    clv_value x = imported_compact(im, index);
    CLV_TRY(aten_check_index(&x, im, op, index, from_end ? -size : 0, size, 0, err));
    x = aten_repeats(im, shape, x).value;
    clv_type have = clv_graph_type(im->graph, x);
    if (have.rank == 0 && shape->rank > 0) {
        int64_t ones[CLV_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
        x = clv_reshape(im->graph, x, shape->rank, ones);
    }
    x = clv_cast(im->graph, shape->rank > 0 ? clv_broadcast(im->graph, x, shape->shape) : x, CLV_I64);
    if (from_end) {
        clv_value zero = clv_fill(im->graph, CLV_I64, 0, NULL, 0);
        clv_value behind = clv_add(im->graph, x, clv_fill(im->graph, CLV_I64, 0, NULL, (double)size));
        x = clv_where(im->graph, clv_pointwise(im->graph, CLV_LESS, x, zero), behind, x);
    }
    *out = x;
    return CLV_OK;
}

/* The indices of self[:, i, j], which stand side by side: the dimension of the first, how many, and their shape. */
typedef struct indices {
    int first, n;
    const imported *of[CLV_MAX_RANK];
    clv_type shape;
    bool from_end; /* below 0 */
} indices;

static clv_status read_indices(indices *at, importer *im, const mlir_op *op, const imported *in, int rank,
                               clv_error *err)
{
    const mlir_attr *list = aten_argument(op, "indices");
    *at = (indices){.shape = {.dtype = CLV_I64}, .from_end = true};
    int count = list && list->kind == MLIR_LIST ? list->n : 0, last = -1;
    for (int d = 0; d < count; d++) {
        const mlir_attr *item = &list->items[d];
        if (item->kind != MLIR_VALUE)
            continue;
        const imported *index = &in[item->number];
        if (d >= rank || (last >= 0 && last != d - 1) || clv_dtype_is_float(index->type.dtype) ||
            index->type.dtype == CLV_BOOL)
            return import_fail(im, op, err, CLV_EUNSUPPORTED,
                               "indices of integers, of dimensions side by side, are supported");
        at->first = last < 0 ? d : at->first;
        last = d;
        at->of[at->n++] = index;
        const clv_type *t = &index->type;
        at->shape.rank = t->rank > at->shape.rank ? t->rank : at->shape.rank;
    }
    for (int d = 1; d <= at->shape.rank; d++) { /* from the last dimension */
        int64_t *size = &at->shape.shape[at->shape.rank - d];
        *size = 1;
        for (int i = 0; i < at->n; i++) {
            const clv_type *t = &at->of[i]->type;
            int64_t have = d <= t->rank ? t->shape[t->rank - d] : 1;
            if (have != 1 && *size != 1 && have != *size)
                return import_fail(im, op, err, CLV_ESHAPE, "its indices do not broadcast");
            *size = have != 1 ? have : *size;
        }
    }
    return at->n > 0 && at->shape.rank < CLV_MAX_RANK ? CLV_OK : import_fail(im, op, err, CLV_ESHAPE, "no indices");
}

/* Index vectors [..., n], and which dimensions they start in. */
static clv_status index_vectors(clv_value *out, clv_index_dims *dims, importer *im, const mlir_op *op,
                                const indices *at, const imported *self, clv_error *err)
{
    clv_value parts[CLV_MAX_RANK];
    int64_t column[CLV_MAX_RANK];
    memcpy(column, at->shape.shape, sizeof column);
    column[at->shape.rank] = 1;
    *dims = (clv_index_dims){.index_dim = at->shape.rank, .n_starts = at->n};
    for (int d = 0; d < self->type.rank; d++)
        dims->sizes[d] = self->type.shape[d];
    for (int i = 0; i < at->n; i++) {
        int d = at->first + i;
        dims->start[i] = d;
        dims->dropped[d] = true;
        dims->sizes[d] = 1;
        CLV_TRY(whole_index(&parts[i], im, op, at->of[i], self->type.shape[d], at->from_end, &at->shape, err));
        parts[i] = clv_reshape(im->graph, parts[i], at->shape.rank + 1, column);
    }
    /* windows: the dimensions before the indices, and those behind */
    int rank = self->type.rank - at->n + at->shape.rank;
    for (int d = 0; d < rank && d < CLV_MAX_RANK; d++)
        dims->window[d] = d < at->first || d >= at->first + at->shape.rank;
    *out = clv_concat(im->graph, parts, at->n, at->shape.rank);
    return CLV_OK;
}

/* Whether index i counts along a dimension of its own, behind those of the ones before: all elements in order. */
static bool counts(const indices *at, int i, int64_t size, int *last)
{
    const imported *x = at->of[i];
    int own = -1;
    if (!x->known || clv_valid(x->value) || clv_type_elems(&x->type) != size)
        return false;
    for (int d = 0; d < x->type.rank; d++)
        if (x->type.shape[d] == size && size > 1)
            own = at->shape.rank - x->type.rank + d;
    if (size > 1 && (own <= *last || x->known->splat))
        return false;
    for (int64_t k = 0; k < size; k++)
        if (clv_dtype_load(x->type.dtype, x->known->data, k) != (double)k)
            return false;
    *last = own > *last ? own : *last;
    return true;
}

/* Whether indices take every element in order, as transformers' masks do: self with dimensions of 1. */
static bool takes_all(const indices *at, const imported *self, const clv_type *type)
{
    bool all = at->first == 0 && clv_type_elems(type) == clv_type_elems(&self->type);
    for (int i = 0, last = -1; all && i < at->n; i++)
        all = counts(at, i, self->type.shape[i], &last);
    return all;
}

/* self[indices]; rows of a table are an embedding, which may be split by rows. */
static clv_status index_by(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    clv_type type;
    indices at;
    clv_index_dims dims;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(read_indices(&at, im, op, in, self->type.rank, err));
    if (at.n == 1 && at.first == 0 && self->type.rank == 2 && clv_dtype_is_float(type.dtype)) {
        clv_value ids;
        CLV_TRY(whole_index(&ids, im, op, at.of[0], self->type.shape[0], true, &at.shape, err));
        out[0] = imported_of(type, clv_embedding(im->graph, imported_whole(im, self), ids));
        return CLV_OK;
    }
    if (takes_all(&at, self, &type)) {
        out[0] = imported_of(type, clv_reshape(im->graph, imported_whole(im, self), type.rank, type.shape));
        return CLV_OK;
    }
    clv_value vectors;
    CLV_TRY(index_vectors(&vectors, &dims, im, op, &at, self, err));
    out[0] = imported_of(type, clv_gather(im->graph, imported_whole(im, self), vectors, &dims));
    return CLV_OK;
}

/* self with values set at, or added to, the rows of indices: the gradient of a lookup where self is 0. */
static clv_status index_put(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self, *values;
    clv_type type;
    indices at;
    clv_index_dims dims;
    int64_t adds, whole;
    double zero = 1;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_tensor(&values, im, op, in, "values", err));
    CLV_TRY(aten_int(&adds, im, op, "accumulate", 0, err));
    CLV_TRY(read_indices(&at, im, op, in, type.rank, err));
    clv_type updates = {.dtype = type.dtype};
    for (int d = 0; d < at.first; d++)
        updates.shape[updates.rank++] = type.shape[d];
    for (int d = 0; d < at.shape.rank; d++)
        updates.shape[updates.rank++] = at.shape.shape[d];
    for (int d = at.first + at.n; d < type.rank && updates.rank < CLV_MAX_RANK; d++)
        updates.shape[updates.rank++] = type.shape[d];
    imported given = aten_repeats(im, &updates, aten_compact(im, values, type.dtype));
    if (clv_graph_type(im->graph, given.value).rank == 0 && updates.rank > 0)
        given.value = clv_reshape(im->graph, given.value, updates.rank, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1});
    clv_value update = imported_whole(im, &given);
    if (adds && at.n == 1 && at.first == 0 && type.rank == 2 && clv_dtype_is_float(type.dtype) &&
        imported_number(self, &zero, &whole) && zero == 0) {
        clv_value ids;
        CLV_TRY(whole_index(&ids, im, op, at.of[0], type.shape[0], true, &at.shape, err));
        out[0] = imported_of(type, clv_embedding_gradient(im->graph, type.shape[0], update, ids));
        return CLV_OK;
    }
    clv_value vectors;
    CLV_TRY(index_vectors(&vectors, &dims, im, op, &at, self, err));
    out[0] = imported_of(type, clv_scatter(im->graph, adds ? CLV_SCATTER_ADD : CLV_SCATTER_SET,
                                           imported_whole(im, self), vectors, update, &dims));
    return CLV_OK;
}

/* Rows of a dimension. */
static clv_status index_select(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self, *index;
    clv_type type;
    clv_index_dims dims;
    int dim;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_tensor(&index, im, op, in, "index", err));
    CLV_TRY(aten_dim(&dim, im, op, "dim", self->type.rank, 0, err));
    indices at = {.first = dim, .n = 1, .of = {index}, .shape = index->type};
    if (index->type.rank != 1 || self->type.rank == 0)
        return import_fail(im, op, err, CLV_ESHAPE, "an index of one dimension is needed");
    clv_value vectors;
    CLV_TRY(index_vectors(&vectors, &dims, im, op, &at, self, err));
    out[0] = imported_of(type, clv_gather(im->graph, imported_whole(im, self), vectors, &dims));
    return CLV_OK;
}

const import_row aten_index_rows[] = {
    ATEN("gather.default", gather, 0),
    ATEN("scatter.value", scatter, 0),
    ATEN("scatter.src", scatter, 0),
    ATEN("index.Tensor", index_by, 0),
    ATEN("index_put.default", index_put, 0),
    ATEN("index_select.default", index_select, 0),
    {0},
};
