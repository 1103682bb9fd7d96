/* import_index.c - imports StableHLO's ops that index: gather and scatter, dynamic slices and their updates.
 *
 * Embeddings and their gradients are recognised, as the graph's ops for them split tables by vocabulary. Slices whose
 * starts are known, as in an unrolled loop, become plain ones.
 */
#include <string.h>

#include "ops/builtin_ops.h"
#include "interop/importer.h"

/* ---- dimension numbers ---- */

/* The lists of #stablehlo.gather<...> or #stablehlo.scatter<...>. */
typedef struct numbers {
    int64_t window[CLV_MAX_RANK], dropped[CLV_MAX_RANK], batch[CLV_MAX_RANK], index_batch[CLV_MAX_RANK],
        starts[CLV_MAX_RANK], vector[CLV_MAX_RANK];
    int n_window, n_dropped, n_batch, n_index_batch, n_starts, n_vector;
} numbers;

static clv_status read_numbers(numbers *to, const importer *im, const mlir_op *op, bool scatters, clv_error *err)
{
    const mlir_attr *from =
        mlir_find_attr(op->attrs, op->n_attrs, scatters ? "scatter_dimension_numbers" : "dimension_numbers");
    static const char *const keys[2][6] = {{"offset_dims", "collapsed_slice_dims", "operand_batching_dims",
                                            "start_indices_batching_dims", "start_index_map", "index_vector_dim"},
                                           {"update_window_dims", "inserted_window_dims", "input_batching_dims",
                                            "scatter_indices_batching_dims", "scatter_dims_to_operand_dims",
                                            "index_vector_dim"}};
    struct {
        int64_t *list;
        int *n;
    } lists[] = {{to->window, &to->n_window},           {to->dropped, &to->n_dropped}, {to->batch, &to->n_batch},
                 {to->index_batch, &to->n_index_batch}, {to->starts, &to->n_starts},   {to->vector, &to->n_vector}};
    *to = (numbers){0};
    if (!from || from->kind != MLIR_LIST)
        return import_fail(im, op, err, CLV_ESYNTAX, "no dimension numbers");
    for (int i = 0; i < 6; i++)
        CLV_TRY(import_ints(lists[i].list, lists[i].n, im, op, from->items, from->n, keys[scatters][i], 0, err));
    return CLV_OK;
}

static bool in_range(const int64_t *list, int n, int rank)
{
    for (int i = 0; i < n; i++)
        if (list[i] < 0 || list[i] >= rank)
            return false;
    return true;
}

static clv_status read_dims(clv_index_dims *dims, const importer *im, const mlir_op *op, const clv_type *x,
                            bool scatters, clv_error *err)
{
    numbers n;
    CLV_TRY(read_numbers(&n, im, op, scatters, err));
    *dims = (clv_index_dims){.index_dim = n.n_vector ? (int)n.vector[0] : 0, .n_starts = n.n_starts};
    if (!in_range(n.window, n.n_window, CLV_MAX_RANK) || !in_range(n.dropped, n.n_dropped, x->rank) ||
        !in_range(n.batch, n.n_batch, x->rank) || !in_range(n.index_batch, n.n_index_batch, CLV_MAX_RANK) ||
        !in_range(n.starts, n.n_starts, x->rank) || n.n_batch != n.n_index_batch || dims->index_dim < 0 ||
        dims->index_dim > CLV_MAX_RANK)
        return import_fail(im, op, err, CLV_ESHAPE, "its dimension numbers do not fit its operands");
    for (int i = 0; i < n.n_window; i++)
        dims->window[n.window[i]] = true;
    for (int i = 0; i < n.n_dropped; i++)
        dims->dropped[n.dropped[i]] = true;
    for (int i = 0; i < n.n_batch; i++)
        dims->batch[n.batch[i]] = 1 + (int)n.index_batch[i];
    for (int i = 0; i < n.n_starts; i++)
        dims->start[i] = (int)n.starts[i];
    return CLV_OK;
}

/* Rows of a table [V, M] by one index each: the result, or the updates, are [..., M]. */
static bool is_lookup(const clv_index_dims *dims, const clv_type *table, const clv_type *indices, int rank)
{
    return clv_dtype_is_float(table->dtype) && table->rank == 2 && dims->n_starts == 1 && dims->start[0] == 0 &&
           dims->dropped[0] && !dims->dropped[1] && dims->batch[0] == 0 && dims->batch[1] == 0 && rank > 0 &&
           dims->window[rank - 1] && dims->index_dim == indices->rank - 1 && rank == indices->rank;
}

/* Indices [..., 1] without their last dimension. */
static clv_value ids_of(importer *im, const imported *indices)
{
    return clv_reshape(im->graph, imported_whole(im, indices), indices->type.rank - 1, indices->type.shape);
}

static clv_status gather(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_index_dims dims;
    int n;
    if (op->n_operands != 2 || op->n_results != 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "two operands are needed");
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    CLV_TRY(read_dims(&dims, im, op, &in[0].type, false, err));
    CLV_TRY(import_op_ints(dims.sizes, &n, im, op, "slice_sizes", 0, err));
    clv_dtype dtype = in[1].type.dtype;
    if (n != in[0].type.rank)
        return import_fail(im, op, err, CLV_ESHAPE, "slice_sizes do not fit its operand");
    if (is_lookup(&dims, &in[0].type, &in[1].type, type.rank) && dims.sizes[1] == in[0].type.shape[1] &&
        in[0].type.shape[0] > 0) {
        clv_value low = clv_fill(im->graph, dtype, 0, NULL, 0);
        clv_value high = clv_fill(im->graph, dtype, 0, NULL, (double)(in[0].type.shape[0] - 1));
        clv_value ids =
            clv_binary(im->graph, CLV_MINIMUM, clv_binary(im->graph, CLV_MAXIMUM, ids_of(im, &in[1]), low), high);
        out[0] = imported_of(type, clv_embedding(im->graph, imported_whole(im, &in[0]), ids));
        return CLV_OK;
    }
    out[0] = imported_of(type, clv_gather(im->graph, imported_whole(im, &in[0]), imported_whole(im, &in[1]), &dims));
    return CLV_OK;
}

static clv_status scatter(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    static const struct {
        const char *name;
        clv_scatter_kind kind;
    } rows[] = {{"stablehlo.return", CLV_SCATTER_SET},
                {"stablehlo.add", CLV_SCATTER_ADD},
                {"stablehlo.multiply", CLV_SCATTER_MULTIPLY},
                {"stablehlo.maximum", CLV_SCATTER_MAX},
                {"stablehlo.minimum", CLV_SCATTER_MIN}};
    clv_type type;
    clv_index_dims dims;
    int row = -1;
    double zero;
    int64_t whole;
    const mlir_region *region = op->n_regions == 1 ? op->regions : NULL;
    for (int i = 0; region && i < (int)(sizeof rows / sizeof *rows); i++)
        if (region->n_ops == (i == 0 ? 1 : 2) && strcmp(region->ops[0].name, rows[i].name) == 0)
            row = i;
    if (row == 0 &&
        (region->n_args != 2 || region->ops[0].n_operands != 1 || region->ops[0].operands[0] != region->args[1]))
        row = -1;
    if (op->n_operands != 3 || op->n_results != 1 || row < 0)
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "only of one operand, by one of add, multiply, maximum, minimum, or the update itself");
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    CLV_TRY(read_dims(&dims, im, op, &in[0].type, true, err));
    if (rows[row].kind == CLV_SCATTER_ADD && is_lookup(&dims, &type, &in[1].type, in[2].type.rank) &&
        in[2].type.shape[in[2].type.rank - 1] == type.shape[1] && imported_number(&in[0], &zero, &whole) && zero == 0) {
        clv_value table =
            clv_embedding_gradient(im->graph, type.shape[0], imported_whole(im, &in[2]), ids_of(im, &in[1]));
        out[0] = imported_of(type, table);
        return CLV_OK;
    }
    clv_value made = clv_scatter(im->graph, rows[row].kind, imported_whole(im, &in[0]), imported_whole(im, &in[1]),
                                 imported_whole(im, &in[2]), &dims);
    out[0] = imported_of(type, made);
    return CLV_OK;
}

/* ---- dynamic slices ---- */

/* The starts, moved inside x, if all of them are known. A dimension of which all is taken starts at 0. */
static bool known_starts(int64_t *starts, const imported *in, const clv_type *x, const int64_t *sizes)
{
    double real;
    for (int d = 0; d < x->rank; d++) {
        int64_t most = x->shape[d] - sizes[d];
        if (most == 0)
            starts[d] = 0;
        else if (!imported_number(&in[d], &real, &starts[d]))
            return false;
        starts[d] = starts[d] < 0 ? 0 : starts[d] > most ? most : starts[d];
    }
    return true;
}

/* The starts as one vector, i64 if one of them is. */
static clv_value starts_vector(importer *im, const imported *in, int n)
{
    clv_dtype dtype = CLV_I32;
    clv_value parts[CLV_MAX_RANK];
    for (int i = 0; i < n; i++)
        dtype = in[i].type.dtype == CLV_I64 ? CLV_I64 : dtype;
    for (int i = 0; i < n; i++)
        parts[i] = clv_reshape(im->graph, clv_cast(im->graph, imported_whole(im, &in[i]), dtype), 1, (int64_t[]){1});
    return clv_concat(im->graph, parts, n, 0);
}

static clv_status dynamic_slice(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    int64_t sizes[CLV_MAX_RANK], starts[CLV_MAX_RANK], end[CLV_MAX_RANK];
    int n, rank = op->n_operands > 0 ? in[0].type.rank : -1;
    CLV_TRY(import_op_ints(sizes, &n, im, op, "sizes", 0, err));
    if (n == 0)
        CLV_TRY(import_op_ints(sizes, &n, im, op, "slice_sizes", 0, err));
    if (op->n_results != 1 || n != rank || op->n_operands != 1 + rank)
        return import_fail(im, op, err, CLV_ESYNTAX, "starts and sizes do not fit its operand");
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    clv_value x = imported_whole(im, &in[0]);
    if (!known_starts(starts, in + 1, &in[0].type, sizes))
        x = clv_dynamic_slice(im->graph, x, starts_vector(im, in + 1, rank), sizes);
    else {
        for (int d = 0; d < rank; d++)
            end[d] = starts[d] + sizes[d];
        x = clv_slice(im->graph, x, starts, end);
    }
    out[0] = imported_of(type, x);
    return CLV_OK;
}

static clv_status dynamic_update_slice(importer *im, const mlir_op *op, const imported *in, imported *out,
                                       clv_error *err)
{
    clv_type type;
    int rank = op->n_operands > 1 ? in[0].type.rank : -1;
    if (op->n_results != 1 || op->n_operands != 2 + rank || in[1].type.rank != rank)
        return import_fail(im, op, err, CLV_ESYNTAX, "starts do not fit its operand");
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    clv_value update = imported_whole(im, &in[1]);
    if (rank > 0 && !clv_type_equal(&in[1].type, &in[0].type))
        update =
            clv_dynamic_update_slice(im->graph, imported_whole(im, &in[0]), update, starts_vector(im, in + 2, rank));
    out[0] = imported_of(type, update);
    return CLV_OK;
}

const import_row import_index_rows[] = {
    {"stablehlo.gather", gather, 0, false, false},
    {"stablehlo.scatter", scatter, 0, false, false},
    {"stablehlo.dynamic_slice", dynamic_slice, 0, false, true},
    {"stablehlo.dynamic_update_slice", dynamic_update_slice, 0, false, false},
    {0},
};
