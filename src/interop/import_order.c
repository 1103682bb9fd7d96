/* import_order.c - StableHLO's ops that go along a dimension: sort, top_k, reduce_window (cumulative), reverse. */
#include <stdlib.h>
#include <string.h>

#include "interop/importer.h"

/* ---- sort ---- */

/* JAX's comparator: its first two arguments, with 0 and NaN made alike, by LT or GT; *descending: GT. */
static bool is_comparator(const mlir_region *region, int operands, bool *descending)
{
    const mlir_op *last = NULL, *end = region->n_ops > 1 ? &region->ops[region->n_ops - 1] : NULL;
    if (!end || region->n_args != 2 * operands || end->n_operands != 1)
        return false;
    for (int i = 0; i + 1 < region->n_ops; i++) {
        const mlir_op *op = &region->ops[i];
        const char *name = strncmp(op->name, "stablehlo.", 10) == 0 ? op->name + 10 : "";
        if (op->first_result == end->operands[0])
            last = op;
        if (strcmp(name, "compare") != 0 && strcmp(name, "select") != 0 && strcmp(name, "constant") != 0)
            return false;
    }
    bool less = false, greater = false;
    for (int a = 0; last && a < last->n_attrs; a++) {
        const char *text = last->attrs[a].text ? last->attrs[a].text : "", *word = strrchr(text, ' ');
        word = word ? word + 1 : text;
        less = less || strcmp(word, "LT") == 0;
        greater = greater || strcmp(word, "GT") == 0;
    }
    if (!last || strcmp(last->name, "stablehlo.compare") != 0 || less == greater || last->n_operands != 2)
        return false;
    *descending = greater;
    return true;
}

/* Which argument an operand of the comparison is made of, by selects of it; -1: not known. */
static int argument_of(const mlir_region *region, int value)
{
    for (int a = 0; a < region->n_args; a++)
        if (region->args[a] == value)
            return a;
    for (int i = 0; i < region->n_ops; i++) {
        const mlir_op *op = &region->ops[i];
        if (op->first_result != value || strcmp(op->name, "stablehlo.select") != 0 || op->n_operands != 3)
            continue;
        return argument_of(region, op->operands[2]);
    }
    return -1;
}

/* Elements of another operand in the order of the first: by their index along the dimension. */
static clv_value in_order(importer *im, clv_value x, clv_value index, int dim)
{
    clv_type type = clv_graph_type(im->graph, x);
    clv_index_dims dims = {.index_dim = type.rank, .n_starts = 1};
    int64_t shape[CLV_MAX_RANK];
    if (type.rank == CLV_MAX_RANK)
        return clv_graph_fail(im->graph, CLV_EUNSUPPORTED, "sort of several operands in 8 dimensions");
    for (int d = 0; d < type.rank; d++) {
        shape[d] = type.shape[d];
        dims.sizes[d] = 1;
        dims.batch[d] = d == dim ? 0 : 1 + d;
    }
    shape[type.rank] = 1;
    dims.start[0] = dim;
    dims.dropped[dim] = true;
    return clv_gather(im->graph, x, clv_reshape(im->graph, index, type.rank + 1, shape), &dims);
}

static clv_status sort(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    int64_t dim[CLV_MAX_RANK] = {0};
    int n;
    bool descending;
    const mlir_region *region = op->n_regions == 1 ? op->regions : NULL;
    const mlir_op *last = region && region->n_ops > 1 ? &region->ops[region->n_ops - 2] : NULL;
    if (op->n_operands < 1 || op->n_operands != op->n_results)
        return import_fail(im, op, err, CLV_ESYNTAX, "%d operands, %d results", op->n_operands, op->n_results);
    if (!region || !is_comparator(region, op->n_operands, &descending) || last->n_operands != 2 ||
        argument_of(region, last->operands[0]) != 0 || argument_of(region, last->operands[1]) != 1)
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "its comparator is not LT or GT of the first operand, as jnp.sort and argsort have it");
    CLV_TRY(import_op_ints(dim, &n, im, op, "dimension", 0, err));
    clv_value values, index;
    clv_sort(im->graph, imported_whole(im, &in[0]), (int)dim[0], descending, &values, &index);
    for (int i = 0; i < op->n_results; i++) {
        clv_type type;
        CLV_TRY(import_type(&type, im, &op->result_types[i], err));
        clv_value made = i == 0                          ? values
                         : in[i].iota == 1 + (int)dim[0] ? clv_cast(im->graph, index, type.dtype)
                                                         : in_order(im, imported_whole(im, &in[i]), index, (int)dim[0]);
        out[i] = imported_of(type, made);
    }
    return CLV_OK;
}

static clv_status top_k(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_value made[2];
    int64_t zero[CLV_MAX_RANK] = {0};
    if (op->n_operands != 1 || op->n_results != 2 || in[0].type.rank < 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "one operand and two results are needed");
    clv_sort(im->graph, imported_whole(im, &in[0]), in[0].type.rank - 1, true, &made[0], &made[1]);
    for (int i = 0; i < 2; i++) {
        clv_type type;
        CLV_TRY(import_type(&type, im, &op->result_types[i], err));
        if (type.rank != in[0].type.rank)
            return import_fail(im, op, err, CLV_ESHAPE, "result %d is %s", i, op->result_types[i].text);
        out[i] = imported_of(type, clv_cast(im->graph, clv_slice(im->graph, made[i], zero, type.shape), type.dtype));
    }
    return CLV_OK;
}

/* ---- reduce_window: cumulative sums, products, maxima, minima ---- */

/* Numbers of a list or of array<i64: ...>; of a dense literal of pairs, 2 * n of them. */
static bool read_numbers(const mlir_op *op, const char *key, int64_t *out, int n, int64_t otherwise)
{
    const mlir_attr *attr = mlir_find_attr(op->attrs, op->n_attrs, key);
    for (int i = 0; i < n; i++)
        out[i] = otherwise;
    if (!attr)
        return true;
    if (attr->kind == MLIR_LIST && attr->n == n) {
        for (int i = 0; i < n; i++)
            out[i] = attr->items[i].number;
        return true;
    }
    if (attr->kind != MLIR_DENSE)
        return false;
    int at = 0;
    for (const char *p = attr->text; *p && at < n;) {
        char *end;
        long long number = strtoll(p, &end, 10);
        p = end > p ? end : p + 1;
        if (end > attr->text && p == end)
            out[at++] = number;
    }
    for (int i = 1; at == 1 && i < n; i++)
        out[i] = out[0]; /* a splat */
    return at == 1 || at == n;
}

static clv_status reduce_window(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    static const struct {
        const char *op;
        clv_fold_kind kind;
    } rows[] = {{"stablehlo.add", CLV_FOLD_SUM},
                {"stablehlo.multiply", CLV_FOLD_PRODUCT},
                {"stablehlo.maximum", CLV_FOLD_MAX},
                {"stablehlo.minimum", CLV_FOLD_MIN}};
    int64_t window[CLV_MAX_RANK], padding[2 * CLV_MAX_RANK], other[CLV_MAX_RANK];
    clv_type type;
    int row = -1, dim = -1, rank = op->n_operands == 2 ? in[0].type.rank : 0;
    bool reverse = false, ones = true;
    const mlir_region *region = op->n_regions == 1 ? op->regions : NULL;
    for (int i = 0; region && region->n_ops == 2 && i < 4; i++)
        if (strcmp(region->ops[0].name, rows[i].op) == 0)
            row = i;
    bool read = row >= 0 && rank > 0 && op->n_results == 1 && read_numbers(op, "window_dimensions", window, rank, 1) &&
                read_numbers(op, "padding", padding, 2 * rank, 0);
    static const char *const keys[] = {"window_strides", "base_dilations", "window_dilations"};
    for (int k = 0; read && k < 3; k++) {
        read = read_numbers(op, keys[k], other, rank, 1);
        for (int d = 0; d < rank; d++)
            ones = ones && other[d] == 1;
    }
    for (int d = 0; read && d < rank; d++) {
        if (window[d] == 1 && padding[2 * d] == 0 && padding[2 * d + 1] == 0)
            continue;
        int64_t rest = in[0].type.shape[d] - 1;
        reverse = padding[2 * d] == 0;
        read = dim < 0 && window[d] == rest + 1 && padding[2 * d + reverse] == rest && padding[2 * d + !reverse] == 0;
        dim = d;
    }
    if (!read || !ones)
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "only cumulative sums, products, maxima and minima along one dimension");
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    clv_value x = imported_whole(im, &in[0]);
    out[0] = imported_of(type, dim < 0 ? x : clv_cumulative(im->graph, rows[row].kind, x, dim, reverse));
    return CLV_OK;
}

/* ---- reverse ---- */

static clv_value reverse_dim(importer *im, clv_value x, int dim)
{
    clv_type type = clv_graph_type(im->graph, x);
    int64_t n = type.shape[dim];
    clv_index_dims dims = {.index_dim = 1, .n_starts = 1, .start = {dim}};
    clv_value last = clv_fill(im->graph, CLV_I32, 0, NULL, (double)(n - 1));
    clv_value index = clv_sub(im->graph, last, clv_iota(im->graph, n, CLV_NONE));
    for (int d = 0; d < type.rank; d++) {
        dims.sizes[d] = d == dim ? 1 : type.shape[d];
        dims.dropped[d] = d == dim;
        dims.window[d] = d != dim;
    }
    return clv_gather(im->graph, x, index, &dims);
}

static clv_status reverse(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    int64_t dims[CLV_MAX_RANK];
    int n;
    clv_type type;
    if (op->n_operands != 1 || op->n_results != 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "one operand is needed");
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    CLV_TRY(import_op_ints(dims, &n, im, op, "dims", 0, err));
    if (n == 0)
        CLV_TRY(import_op_ints(dims, &n, im, op, "dimensions", 0, err));
    clv_value x = imported_whole(im, &in[0]);
    for (int i = 0; i < n; i++) {
        if (dims[i] < 0 || dims[i] >= type.rank)
            return import_fail(im, op, err, CLV_ESHAPE, "dimension %lld of %s", (long long)dims[i],
                               op->result_types[0].text);
        x = reverse_dim(im, x, (int)dims[i]);
    }
    out[0] = imported_of(type, x);
    return CLV_OK;
}

const import_row import_order_rows[] = {
    {"stablehlo.sort", sort, 0, false, false},
    {"chlo.top_k", top_k, 0, false, false},
    {"stablehlo.reduce_window", reduce_window, 0, false, false},
    {"stablehlo.reverse", reverse, 0, false, true},
    {0},
};
