/* aten_product.c - ATen's products of matrices, as einsums: a transposed weight is read as it is stored. */
#include <stdio.h>
#include <string.h>

#include "interop/torch/aten.h"

/* A matrix, or what it is the transpose of, with its letters. */
static clv_value matrix(char letters[3], importer *im, const imported *x, char row, char column, clv_dtype dtype)
{
    bool flipped = x->type.rank == 2 && clv_valid(x->flipped) && x->type.dtype == dtype;
    letters[0] = flipped ? column : row;
    letters[1] = flipped ? row : column;
    letters[2] = '\0';
    return flipped ? x->flipped : aten_whole(im, x, dtype);
}

/* a[..., m, k] b[k, n], or b[n, k] if `by_rows` (linear). */
static clv_value times_matrix(importer *im, const imported *a, const imported *b, bool by_rows, clv_dtype dtype)
{
    char rows[CLV_MAX_RANK + 1] = "", letters[3], text[64];
    for (int d = 0; d < a->type.rank - 1; d++)
        rows[d] = (char)('a' + d);
    clv_value y = matrix(letters, im, b, by_rows ? 'n' : 'k', by_rows ? 'k' : 'n', dtype), x;
    if (a->type.rank == 2) {
        char left[3];
        x = matrix(left, im, a, 'a', 'k', dtype);
        snprintf(text, sizeof text, "%s,%s->an", left, letters);
    } else {
        x = aten_whole(im, a, dtype);
        snprintf(text, sizeof text, "%sk,%s->%sn", rows, letters, rows);
    }
    return clv_einsum(im->graph, text, x, y);
}

static bool contract(const imported *a, const imported *b, bool by_rows)
{
    return a->type.rank >= 1 && b->type.rank == 2 && a->type.shape[a->type.rank - 1] == b->type.shape[by_rows];
}

static clv_value plus(importer *im, clv_value x, const mlir_op *op, const imported *in, const char *name, double factor,
                      clv_dtype dtype)
{
    const imported *bias = aten_optional(op, in, name);
    if (!bias || factor == 0)
        return x;
    clv_value y = aten_compact(im, bias, dtype);
    return clv_add(im->graph, x, factor == 1 ? y : clv_scale(im->graph, y, factor));
}

/* x w^T + bias */
static clv_status linear(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *x, *weight;
    clv_type type;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&x, im, op, in, "input", err));
    CLV_TRY(aten_tensor(&weight, im, op, in, "weight", err));
    if (!contract(x, weight, true))
        return import_fail(im, op, err, CLV_ESHAPE, "its weight does not fit its input");
    clv_value y = times_matrix(im, x, weight, true, type.dtype);
    out[0] = imported_of(type, plus(im, y, op, in, "bias", 1, type.dtype));
    return CLV_OK;
}

/* a b, and beta self + alpha a b. */
static clv_status mm(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *a, *b;
    const bool adds = im->row->kind == 1;
    clv_type type;
    double alpha, beta;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&a, im, op, in, adds ? "mat1" : "self", err));
    CLV_TRY(aten_tensor(&b, im, op, in, "mat2", err));
    CLV_TRY(aten_real(&alpha, im, op, "alpha", 1, err));
    CLV_TRY(aten_real(&beta, im, op, "beta", 1, err));
    if (a->type.rank != 2 || !contract(a, b, false))
        return import_fail(im, op, err, CLV_ESHAPE, "its matrices do not fit");
    clv_value y = times_matrix(im, a, b, false, type.dtype);
    y = alpha == 1 ? y : clv_scale(im->graph, y, alpha);
    out[0] = imported_of(type, adds ? plus(im, y, op, in, "self", beta, type.dtype) : y);
    return CLV_OK;
}

/* Matrices of a batch; beta self + alpha a b. */
static clv_status bmm(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *a, *b;
    const bool adds = im->row->kind == 1;
    clv_type type;
    double alpha, beta;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&a, im, op, in, adds ? "batch1" : "self", err));
    CLV_TRY(aten_tensor(&b, im, op, in, adds ? "batch2" : "mat2", err));
    CLV_TRY(aten_real(&alpha, im, op, "alpha", 1, err));
    CLV_TRY(aten_real(&beta, im, op, "beta", 1, err));
    if (a->type.rank != 3 || b->type.rank != 3)
        return import_fail(im, op, err, CLV_ESHAPE, "batches of matrices are needed");
    clv_value y = clv_einsum(im->graph, "bmk,bkn->bmn", aten_whole(im, a, type.dtype), aten_whole(im, b, type.dtype));
    y = alpha == 1 ? y : clv_scale(im->graph, y, alpha);
    out[0] = imported_of(type, adds ? plus(im, y, op, in, "self", beta, type.dtype) : y);
    return CLV_OK;
}

/* Batch dimensions broadcast; a vector is a matrix of one row or column. */
static clv_status matmul(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *a, *b;
    clv_type type;
    char left[CLV_MAX_RANK + 1] = "", right[CLV_MAX_RANK + 1] = "", result[CLV_MAX_RANK + 1] = "", text[64];
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&a, im, op, in, "self", err));
    CLV_TRY(aten_tensor(&b, im, op, in, "other", err));
    if (a->type.rank == 0 || b->type.rank == 0)
        return import_fail(im, op, err, CLV_ESHAPE, "an operand without dimensions");
    if (contract(a, b, false)) {
        out[0] = imported_of(type, times_matrix(im, a, b, false, type.dtype));
        return CLV_OK;
    }
    const imported *side[2] = {a, b};
    char *letters[2] = {left, right};
    clv_value values[2];
    int batch = type.rank - (a->type.rank > 1) - (b->type.rank > 1);
    for (int s = 0; s < 2; s++) { /* a batch dimension of one is left out, and so repeated */
        clv_type t = side[s]->type, kept = {.dtype = type.dtype};
        int own = t.rank > 2 ? t.rank - 2 : 0, n = 0;
        for (int d = 0; d < own && own <= batch; d++)
            if (t.shape[d] != 1 || type.shape[batch - own + d] == 1) {
                letters[s][n++] = (char)('a' + batch - own + d);
                kept.shape[kept.rank++] = t.shape[d];
            }
        if (t.rank > 1 || s == 0)
            letters[s][n++] = s == 0 && t.rank > 1 ? 'm' : 'k';
        if (t.rank > 1)
            letters[s][n++] = s == 0 ? 'k' : 'n';
        else if (s == 1)
            letters[s][n++] = 'k';
        for (int d = own; d < t.rank; d++)
            kept.shape[kept.rank++] = t.shape[d];
        values[s] = clv_reshape(im->graph, aten_whole(im, side[s], type.dtype), kept.rank, kept.shape);
    }
    int n = 0;
    for (int d = 0; d < batch; d++)
        result[n++] = (char)('a' + d);
    if (a->type.rank > 1)
        result[n++] = 'm';
    if (b->type.rank > 1)
        result[n++] = 'n';
    snprintf(text, sizeof text, "%s,%s->%s", left, right, result);
    out[0] = imported_of(type, clv_einsum(im->graph, text, values[0], values[1]));
    return CLV_OK;
}

const import_row aten_product_rows[] = {
    ATEN("linear.default", linear, 0),
    ATEN("mm.default", mm, 0),
    ATEN("addmm.default", mm, 1),
    ATEN("bmm.default", bmm, 0),
    ATEN("baddbmm.default", bmm, 1),
    ATEN("matmul.default", matmul, 0),
    {0},
};
