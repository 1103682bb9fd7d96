/* aten_create.c - ATen's ops that make tensors of known numbers: full, ones, arange, triangles. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "interop/torch/aten.h"

/* Of one number, whose value is in the argument `fill_value` or the row's kind. */
static clv_status full(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    double number;
    const char *name = aten_argument(op, "s") ? "s" : "fill_value";
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_real(&number, im, op, name, im->row->kind, err));
    return aten_known(&out[0], im, &type, number, err);
}

/* start + i step: known, or, of too many elements, counted by the graph. */
static clv_status arange(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    double start, step;
    literal *known;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_real(&start, im, op, "start", 0, err));
    CLV_TRY(aten_real(&step, im, op, "step", 1, err));
    if (type.rank != 1)
        return import_fail(im, op, err, CLV_ESHAPE, "its result has no dimension, or several");
    if (!import_may_know(im, &type)) {
        clv_value count = clv_cast(im->graph, clv_iota(im->graph, type.shape[0], CLV_NONE), type.dtype);
        clv_value scaled = clv_mul(im->graph, count, clv_fill(im->graph, type.dtype, 0, NULL, step));
        out[0] = imported_of(type, clv_add(im->graph, scaled, clv_fill(im->graph, type.dtype, 0, NULL, start)));
        return CLV_OK;
    }
    size_t bytes = (size_t)type.shape[0] * clv_dtype_size(type.dtype);
    CLV_FREED void *data = malloc(bytes + 1);
    if (!data)
        return clv_fail_memory(err, "a constant", bytes);
    for (int64_t i = 0; i < type.shape[0]; i++)
        clv_dtype_store(type.dtype, data, i, start + (double)i * step);
    CLV_TRY(literal_new(&known, im, data, type.shape[0] == 1, &type, err));
    known->id = op->first_result;
    CLV_TRY(import_keep_constant(im->program, known, &type, err));
    out[0] = (imported){.type = type, .known = known};
    return CLV_OK;
}

/* self below (kind 0: tril) or above (1: triu) a diagonal, else 0. */
static clv_status triangle(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    clv_type type;
    int64_t diagonal;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_int(&diagonal, im, op, "diagonal", 0, err));
    if (type.rank < 2 || llabs(diagonal) > INT32_MAX / 2)
        return import_fail(im, op, err, CLV_ESHAPE, "a matrix and a diagonal of it are needed");
    clv_value row = clv_iota(im->graph, type.shape[type.rank - 2], CLV_NONE);
    clv_value column = clv_iota(im->graph, type.shape[type.rank - 1], CLV_NONE);
    row = clv_add(im->graph, clv_reshape(im->graph, row, 2, (int64_t[]){type.shape[type.rank - 2], 1}),
                  clv_fill(im->graph, CLV_I32, 0, NULL, (double)diagonal));
    clv_value keep = clv_pointwise(im->graph, im->row->kind ? CLV_GREATER_EQUAL : CLV_LESS_EQUAL, column, row);
    clv_value zero = clv_fill(im->graph, type.dtype, 0, NULL, 0);
    out[0] = aten_repeats(im, &type, clv_where(im->graph, keep, imported_whole(im, self), zero));
    return CLV_OK;
}

#define SPLAT(name, build, kind)                                                                                       \
    {                                                                                                                  \
        "aten." name, build, kind, true, false                                                                         \
    }
const import_row aten_create_rows[] = {
    ATEN("full.default", full, 0),           ATEN("ones.default", full, 1),
    ATEN("zeros.default", full, 0),          ATEN("scalar_tensor.default", full, 0),
    ATEN("empty_permuted.default", full, 0), /* elements of any value */
    SPLAT("full_like.default", full, 0),     SPLAT("ones_like.default", full, 1),
    SPLAT("zeros_like.default", full, 0),    SPLAT("new_full.default", full, 0),
    SPLAT("new_ones.default", full, 1),      SPLAT("new_zeros.default", full, 0),
    ATEN("arange.default", arange, 0),       ATEN("arange.start", arange, 0),
    ATEN("arange.start_step", arange, 0),    ATEN("tril.default", triangle, 0),
    ATEN("triu.default", triangle, 1),       {0},
};
