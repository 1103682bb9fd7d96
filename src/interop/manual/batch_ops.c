/* batch_ops.c - ops of a device, on values with a dimension for each axis over which devices differ: the same op with
 * more dimensions before its own, which it does not change.
 */
#include <stdio.h>
#include <string.h>

#include "interop/manual/manual.h"

/* An op with device dimensions of these extents, before it is built: its operands have them, its attributes not yet. */
typedef struct batch {
    importer *im;
    mlir_op op;
    imported in[CLV_MAX_IN];
    const imported *given; /* operands as devices have them */
    int k;
    int64_t extents[MANUAL_AXES];
} batch;

/* ---- attributes ---- */

/* The attributes without those of two keys, and with one more, to be set. */
static mlir_attr *replace_attr(batch *b, const char *key, const char *other, clv_error *err)
{
    mlir_attr *attrs = clv_arena_alloc(b->im->arena, (size_t)b->op.n_attrs + 1, sizeof *attrs);
    int n = 0;
    if (!attrs) {
        (void)clv_fail_memory(err, "attributes", sizeof *attrs);
        return NULL;
    }
    for (int i = 0; i < b->op.n_attrs; i++)
        if (strcmp(b->op.attrs[i].key, key) != 0 && strcmp(b->op.attrs[i].key, other) != 0)
            attrs[n++] = b->op.attrs[i];
    b->op.attrs = attrs;
    b->op.n_attrs = n + 1;
    attrs[n] = (mlir_attr){.kind = MLIR_LIST, .key = key, .at = b->op.at};
    return &attrs[n];
}

static clv_status fill_list(batch *b, mlir_attr *list, const int64_t *ints, int n, clv_error *err)
{
    list->kind = MLIR_LIST;
    list->n = n;
    list->items = clv_arena_alloc(b->im->arena, (size_t)n + 1, sizeof *list->items);
    if (!list->items)
        return clv_fail_memory(err, "attributes", sizeof *list->items);
    for (int i = 0; i < n; i++)
        list->items[i] = (mlir_attr){.kind = MLIR_INT, .key = "", .number = ints[i], .at = b->op.at};
    return CLV_OK;
}

/* Integers of either key. */
static clv_status read_either(int64_t *out, int *n, const batch *b, const char *pretty, const char *generic,
                              clv_error *err)
{
    CLV_TRY(import_op_ints(out, n, b->im, &b->op, pretty, 0, err));
    return *n > 0 ? CLV_OK : import_op_ints(out, n, b->im, &b->op, generic, 0, err);
}

/* How a list of integers changes. */
typedef enum lead_kind {
    LEAD_DIMS,   /* dimensions: all of the device, in order, then theirs, moved */
    LEAD_MOVED,  /* dimensions, moved */
    LEAD_ZEROS,  /* one value a dimension: 0 for those of devices */
    LEAD_ONES,   /* 1 */
    LEAD_EXTENTS /* the extent */
} lead_kind;

static clv_status lead_ints(int64_t *ints, int *n, const batch *b, lead_kind kind, clv_error *err)
{
    int k = kind == LEAD_MOVED ? 0 : b->k;
    if (*n + k > CLV_MAX_RANK)
        return import_fail(b->im, &b->op, err, CLV_ELIMIT, "more than %d dimensions, with one for each mesh axis",
                           CLV_MAX_RANK);
    for (int i = 0; i < *n; i++)
        if (ints[i] > INT64_MAX - b->k)
            return import_fail(b->im, &b->op, err, CLV_ESHAPE, "%lld is no dimension", (long long)ints[i]);
    for (int i = *n - 1; i >= 0; i--)
        ints[k + i] = ints[i] + (kind == LEAD_DIMS || kind == LEAD_MOVED ? b->k : 0);
    for (int i = 0; i < k; i++)
        ints[i] = kind == LEAD_DIMS ? i : kind == LEAD_ZEROS ? 0 : kind == LEAD_ONES ? 1 : b->extents[i];
    *n += k;
    return CLV_OK;
}

static clv_status lead_attr(batch *b, const char *pretty, const char *generic, lead_kind kind, clv_error *err)
{
    int64_t ints[CLV_MAX_RANK];
    int n;
    CLV_TRY(read_either(ints, &n, b, pretty, generic, err));
    CLV_TRY(lead_ints(ints, &n, b, kind, err));
    mlir_attr *attr = replace_attr(b, pretty, generic, err);
    return attr ? fill_list(b, attr, ints, n, err) : CLV_ENOMEM;
}

/* ---- operands ---- */

static clv_status lift_operands(batch *b, int first, int n, clv_error *err)
{
    for (int i = first; i < first + n; i++)
        CLV_TRY(manual_lift(&b->in[i], b->im, &b->given[i], b->extents, err));
    return CLV_OK;
}

/* Operands that must be the same on all devices: they stay as they are. */
static clv_status keep_operands(batch *b, int first, int n, const char *what, clv_error *err)
{
    for (int i = first; i < first + n; i++) {
        if (manual_lead(b->im, &b->given[i]))
            return import_fail(b->im, &b->op, err, CLV_EUNSUPPORTED, "%s that differs between devices", what);
        b->in[i] = b->given[i];
    }
    return CLV_OK;
}

/* ---- ops ---- */

/* Of an elementwise op a number among tensors, the condition of a select or a bound, is repeated. */
static clv_status batch_elementwise(batch *b, clv_error *err)
{
    int rank = b->op.result_types[0].tensor.rank;
    for (int i = 0; i < b->op.n_operands; i++) {
        imported x = b->given[i];
        if (x.type.rank == 0 && rank > b->k && manual_lead(b->im, &x)) {
            int64_t shape[CLV_MAX_RANK];
            clv_type have = clv_graph_type(b->im->graph, x.value);
            for (int d = 0; d < rank; d++)
                shape[d] = d < b->k ? have.shape[d] : 1;
            x.value = clv_reshape(b->im->graph, x.value, rank, shape);
            x.type = b->op.result_types[0].tensor;
            x.type.dtype = have.dtype;
            b->in[i] = x;
        } else if (x.type.rank == 0 && rank > b->k)
            b->in[i] = x;
        else
            CLV_TRY(manual_lift(&b->in[i], b->im, &x, b->extents, err));
    }
    return CLV_OK;
}

static clv_status batch_reshape(batch *b, clv_error *err)
{
    return lift_operands(b, 0, b->op.n_operands, err);
}

static clv_status batch_broadcast(batch *b, clv_error *err)
{
    CLV_TRY(lift_operands(b, 0, b->op.n_operands, err));
    return lead_attr(b, "dims", "broadcast_dimensions", LEAD_DIMS, err);
}

static clv_status batch_transpose(batch *b, clv_error *err)
{
    CLV_TRY(lift_operands(b, 0, b->op.n_operands, err));
    return lead_attr(b, "dims", "permutation", LEAD_DIMS, err);
}

static clv_status batch_concatenate(batch *b, clv_error *err)
{
    CLV_TRY(lift_operands(b, 0, b->op.n_operands, err));
    return lead_attr(b, "dim", "dimension", LEAD_MOVED, err);
}

/* Its ranges are a list of ranges without a key, or three lists. */
static clv_status batch_slice(batch *b, clv_error *err)
{
    int rank = b->given[0].type.rank;
    CLV_TRY(lift_operands(b, 0, b->op.n_operands, err));
    for (int i = 0; i < b->op.n_attrs; i++) {
        mlir_attr ranges = b->op.attrs[i];
        if (ranges.kind != MLIR_LIST || ranges.key[0] != '\0' || ranges.n != rank)
            continue;
        mlir_attr *attrs = clv_arena_copy(b->im->arena, b->op.attrs, (size_t)b->op.n_attrs * sizeof *attrs);
        mlir_attr *items = clv_arena_alloc(b->im->arena, (size_t)(rank + b->k), sizeof *items);
        if (!attrs || !items)
            return clv_fail_memory(err, "attributes", sizeof *items);
        for (int d = 0; d < b->k; d++)
            CLV_TRY(fill_list(b, &items[d], (int64_t[]){0, b->extents[d]}, 2, err));
        memcpy(items + b->k, ranges.items, (size_t)rank * sizeof *items);
        for (int d = 0; d < b->k; d++)
            items[d].key = "";
        attrs[i].items = items;
        attrs[i].n = rank + b->k;
        b->op.attrs = attrs;
        return CLV_OK;
    }
    CLV_TRY(lead_attr(b, "start_indices", "", LEAD_ZEROS, err));
    CLV_TRY(lead_attr(b, "limit_indices", "", LEAD_EXTENTS, err));
    return lead_attr(b, "strides", "", LEAD_ONES, err);
}

static clv_status batch_pad(batch *b, clv_error *err)
{
    bool generic = mlir_find_attr(b->op.attrs, b->op.n_attrs, "edge_padding_low") != NULL;
    CLV_TRY(lift_operands(b, 0, 1, err));
    CLV_TRY(keep_operands(b, 1, b->op.n_operands - 1, "a padding value", err));
    CLV_TRY(lead_attr(b, generic ? "edge_padding_low" : "low", "-", LEAD_ZEROS, err));
    CLV_TRY(lead_attr(b, generic ? "edge_padding_high" : "high", "-", LEAD_ZEROS, err));
    return lead_attr(b, generic ? "interior_padding" : "interior", "-", LEAD_ZEROS, err);
}

static clv_status batch_reduce(batch *b, clv_error *err)
{
    int n = b->op.n_operands / 2;
    CLV_TRY(lift_operands(b, 0, n, err));
    CLV_TRY(keep_operands(b, n, b->op.n_operands - n, "an initial value", err));
    return lead_attr(b, "dimensions", "-", LEAD_MOVED, err);
}

/* Of the lists of dimension numbers. */
static clv_status lead_numbers(batch *b, const char *which, const char *const *keys, const lead_kind *kinds, int n,
                               clv_error *err)
{
    const mlir_attr *from = mlir_find_attr(b->op.attrs, b->op.n_attrs, which);
    if (!from || from->kind != MLIR_LIST)
        return import_fail(b->im, &b->op, err, CLV_ESYNTAX, "no dimension numbers");
    mlir_attr *items = clv_arena_alloc(b->im->arena, (size_t)n, sizeof *items);
    if (!items)
        return clv_fail_memory(err, "attributes", sizeof *items);
    for (int i = 0; i < n; i++) {
        int64_t ints[CLV_MAX_RANK];
        int count;
        CLV_TRY(import_ints(ints, &count, b->im, &b->op, from->items, from->n, keys[i], 0, err));
        if (count == 0 && strcmp(keys[i], "index_vector_dim") == 0)
            ints[count++] = 0;
        CLV_TRY(lead_ints(ints, &count, b, kinds[i], err));
        items[i] = (mlir_attr){.key = keys[i], .at = from->at};
        CLV_TRY(fill_list(b, &items[i], ints, count, err));
    }
    mlir_attr *attr = replace_attr(b, which, "-", err);
    if (!attr)
        return CLV_ENOMEM;
    attr->items = items;
    attr->n = n;
    return CLV_OK;
}

static const lead_kind number_kinds[] = {LEAD_MOVED, LEAD_MOVED, LEAD_DIMS, LEAD_DIMS, LEAD_MOVED, LEAD_MOVED};

static clv_status batch_gather(batch *b, clv_error *err)
{
    static const char *const keys[] = {"offset_dims",           "collapsed_slice_dims",
                                       "operand_batching_dims", "start_indices_batching_dims",
                                       "start_index_map",       "index_vector_dim"};
    CLV_TRY(lift_operands(b, 0, b->op.n_operands, err));
    CLV_TRY(lead_numbers(b, "dimension_numbers", keys, number_kinds, 6, err));
    return lead_attr(b, "slice_sizes", "-", LEAD_ONES, err);
}

static clv_status batch_scatter(batch *b, clv_error *err)
{
    static const char *const keys[] = {"update_window_dims",           "inserted_window_dims",
                                       "input_batching_dims",          "scatter_indices_batching_dims",
                                       "scatter_dims_to_operand_dims", "index_vector_dim"};
    CLV_TRY(lift_operands(b, 0, b->op.n_operands, err));
    return lead_numbers(b, "scatter_dimension_numbers", keys, number_kinds, 6, err);
}

/* ---- products: axes of both operands are batch, those of one are free ---- */

typedef struct side {
    int64_t batch[CLV_MAX_RANK], contract[CLV_MAX_RANK];
    int n_batch, n_contract;
    char letters[2 * CLV_MAX_RANK + 1];
    clv_value value;
} side;

static clv_status read_side(side *s, const batch *b, int which, clv_error *err)
{
    const mlir_attr *numbers = mlir_find_attr(b->op.attrs, b->op.n_attrs, "dot_dimension_numbers");
    static const char *const keys[2][2] = {{"lhs_batching_dimensions", "lhs_contracting_dimensions"},
                                           {"rhs_batching_dimensions", "rhs_contracting_dimensions"}};
    *s = (side){0};
    if (!numbers) {
        CLV_TRY(import_op_ints(s->batch, &s->n_batch, b->im, &b->op, "batching_dims", which, err));
        return import_op_ints(s->contract, &s->n_contract, b->im, &b->op, "contracting_dims", which, err);
    }
    CLV_TRY(import_ints(s->batch, &s->n_batch, b->im, &b->op, numbers->items, numbers->n, keys[which][0], 0, err));
    return import_ints(s->contract, &s->n_contract, b->im, &b->op, numbers->items, numbers->n, keys[which][1], 0, err);
}

/* Letters: device dimensions s.., batch a.., contracted i.., free q.. or A..; the value without devices that are
 * alike. */
static clv_status write_side(side *s, const batch *b, int which, char *free, clv_error *err)
{
    const imported *x = &b->given[which];
    int64_t extents[MANUAL_AXES], shape[CLV_MAX_RANK];
    char local[CLV_MAX_RANK + 1] = "";
    int n = 0, rank = x->type.rank;
    manual_extents(b->im, x, extents);
    for (int i = 0; i < s->n_batch + s->n_contract; i++) {
        int64_t d = i < s->n_batch ? s->batch[i] : s->contract[i - s->n_batch];
        if (d < 0 || d >= rank || local[d])
            return import_fail(b->im, &b->op, err, CLV_ESHAPE, "its dimension numbers do not fit its operands");
        local[d] = (char)(i < s->n_batch ? 'a' + i : 'i' + i - s->n_batch);
    }
    for (int a = 0; a < b->k; a++)
        if (extents[a] > 1) {
            s->letters[n] = (char)('t' + a);
            shape[n++] = extents[a];
        }
    for (int d = 0; d < rank; d++) {
        s->letters[n] = local[d] ? local[d] : (*free)++;
        shape[n++] = x->type.shape[d];
    }
    if (n > CLV_MAX_RANK)
        return import_fail(b->im, &b->op, err, CLV_ELIMIT, "more than %d dimensions, with one for each mesh axis",
                           CLV_MAX_RANK);
    CLV_TRY(manual_spread(&s->value, b->im, x, extents, err));
    s->value = clv_reshape(b->im->graph, s->value, n, shape);
    return CLV_OK;
}

static clv_status build_product(batch *b, const clv_type *type, imported *out, clv_error *err)
{
    side l, r;
    char free = 'A', text[64], result[2 * CLV_MAX_RANK + MANUAL_AXES + 1] = "";
    int n = 0;
    if (b->op.n_operands != 2)
        return import_fail(b->im, &b->op, err, CLV_ESYNTAX, "two operands are needed");
    CLV_TRY(read_side(&l, b, 0, err));
    CLV_TRY(read_side(&r, b, 1, err));
    if (l.n_batch != r.n_batch || l.n_contract != r.n_contract)
        return import_fail(b->im, &b->op, err, CLV_ESHAPE, "its dimension numbers do not fit its operands");
    CLV_TRY(write_side(&l, b, 0, &free, err));
    CLV_TRY(write_side(&r, b, 1, &free, err));
    for (int a = 0; a < b->k; a++)
        if (b->extents[a] > 1)
            result[n++] = (char)('t' + a);
    for (int i = 0; i < l.n_batch; i++)
        result[n++] = (char)('a' + i);
    for (const side *s = &l;; s = &r) {
        for (const char *c = s->letters; *c; c++)
            if (*c >= 'A' && *c < free)
                result[n++] = *c;
        if (s == &r)
            break;
    }
    if (n > CLV_MAX_RANK)
        return import_fail(b->im, &b->op, err, CLV_ELIMIT, "more than %d dimensions, with one for each mesh axis",
                           CLV_MAX_RANK);
    snprintf(text, sizeof text, "%s,%s->%s", l.letters, r.letters, result);
    bool widened = type->dtype == CLV_F32 && clv_dtype_size(b->given[0].type.dtype) == 2;
    clv_graph *graph = b->im->graph;
    clv_value product = widened ? clv_einsum_accumulate(graph, text, l.value, r.value, CLV_NONE, CLV_F32)
                                : clv_einsum(graph, text, l.value, r.value);
    product = clv_cast(graph, product, type->dtype);
    int64_t shape[CLV_MAX_RANK];
    memcpy(shape, b->extents, (size_t)b->k * sizeof *shape);
    memcpy(shape + b->k, type->shape, (size_t)type->rank * sizeof *shape);
    out[0] = imported_of(*type, clv_reshape(graph, product, b->k + type->rank, shape));
    return CLV_OK;
}

/* ---- slices whose starts differ between devices ---- */

/* Index vectors, one a device, of starts that lie inside x. */
static clv_status start_vectors(clv_value *out, batch *b, const imported *starts, const int64_t *most, int rank,
                                clv_error *err)
{
    clv_value parts[CLV_MAX_RANK];
    int64_t shape[CLV_MAX_RANK];
    clv_graph *graph = b->im->graph;
    memcpy(shape, b->extents, (size_t)b->k * sizeof *shape);
    shape[b->k] = 1;
    for (int d = 0; d < rank; d++) {
        CLV_TRY(manual_spread(&parts[d], b->im, &starts[d], b->extents, err));
        clv_value start = clv_reshape(graph, clv_cast(graph, parts[d], CLV_I32), b->k + 1, shape);
        start = clv_binary(graph, CLV_MAXIMUM, start, clv_fill(graph, CLV_I32, 0, NULL, 0));
        parts[d] = clv_binary(graph, CLV_MINIMUM, start, clv_fill(graph, CLV_I32, 0, NULL, (double)most[d]));
    }
    *out = clv_concat(graph, parts, rank, b->k);
    return CLV_OK;
}

/* dynamic_slice is a gather of one window a device, dynamic_update_slice a scatter. */
static clv_status build_window(batch *b, const clv_type *type, imported *out, clv_error *err)
{
    bool updates = strcmp(b->op.name, "stablehlo.dynamic_update_slice") == 0;
    const clv_type *x = &b->given[0].type, *window = updates ? &b->given[1].type : type;
    int rank = x->rank, first = updates ? 2 : 1;
    int64_t most[CLV_MAX_RANK];
    clv_value whole, update = CLV_NONE, starts;
    clv_index_dims dims = {.index_dim = b->k, .n_starts = rank};
    if (b->op.n_operands != first + rank || window->rank != rank || rank == 0 || rank + b->k > CLV_MAX_RANK)
        return import_fail(b->im, &b->op, err, CLV_EUNSUPPORTED, "starts and sizes do not fit its operand");
    for (int d = 0; d < rank; d++) {
        dims.window[b->k + d] = true;
        dims.start[d] = b->k + d;
        dims.sizes[b->k + d] = window->shape[d];
        most[d] = x->shape[d] - window->shape[d];
    }
    for (int i = 0; i < b->k; i++) {
        dims.batch[i] = 1 + i;
        dims.sizes[i] = 1;
    }
    CLV_TRY(manual_spread(&whole, b->im, &b->given[0], b->extents, err));
    CLV_TRY(start_vectors(&starts, b, b->given + first, most, rank, err));
    if (updates)
        CLV_TRY(manual_spread(&update, b->im, &b->given[1], b->extents, err));
    out[0] = imported_of(*type, updates ? clv_scatter(b->im->graph, CLV_SCATTER_SET, whole, starts, update, &dims)
                                        : clv_gather(b->im->graph, whole, starts, &dims));
    return CLV_OK;
}

/* ---- constraints ---- */

/* A stated layout of what a device has, over axes that are not manual. */
static clv_status build_constraint(batch *b, const clv_type *type, imported *out, clv_error *err)
{
    char local[CLV_LAYOUT_TEXT], text[CLV_LAYOUT_TEXT + 256] = "";
    int64_t extents[MANUAL_AXES];
    const clv_mesh *mesh = clv_graph_mesh(b->im->graph);
    clv_layout layout;
    int at;
    out[0] = b->given[0];
    for (int i = 0; i < b->op.n_attrs; i++) {
        if (b->op.attrs[i].kind != MLIR_RAW)
            continue;
        CLV_TRY(
            import_sharding_text(local, b->op.attrs[i].text, type->rank, mesh, b->im->module, b->op.attrs[i].at, err));
        if (!local[0] || strspn(local, "_,") == strlen(local))
            return CLV_OK;
        manual_extents(b->im, &b->given[0], extents);
        for (int a = 0; a < b->k; a++) {
            const char *name = b->im->manual->mesh->axis[b->im->manual->axis[a]].name;
            bool split = extents[a] > 1 && clv_mesh_find(&at, mesh, name, NULL) == CLV_OK;
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s,", split ? name : "_");
        }
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s", local);
        CLV_TRY(clv_layout_parse(&layout, text, mesh, b->k + type->rank, err));
        CLV_TRY(manual_spread(&out[0].value, b->im, &b->given[0], extents, err));
        out[0].value = clv_constrain(b->im->graph, out[0].value, &layout);
    }
    return CLV_OK;
}

/* ---- which op is built how ---- */

typedef struct batch_row {
    const char *name;
    clv_status (*lead)(batch *b, clv_error *err); /* then the op's own row builds it */
    clv_status (*build)(batch *b, const clv_type *type, imported *out, clv_error *err);
} batch_row;

static const batch_row rows[] = {
    {"stablehlo.reshape", batch_reshape, NULL},
    {"stablehlo.broadcast_in_dim", batch_broadcast, NULL},
    {"stablehlo.transpose", batch_transpose, NULL},
    {"stablehlo.concatenate", batch_concatenate, NULL},
    {"stablehlo.slice", batch_slice, NULL},
    {"stablehlo.pad", batch_pad, NULL},
    {"stablehlo.reduce", batch_reduce, NULL},
    {"stablehlo.gather", batch_gather, NULL},
    {"stablehlo.scatter", batch_scatter, NULL},
    {"stablehlo.dot_general", NULL, build_product},
    {"stablehlo.dynamic_slice", NULL, build_window},
    {"stablehlo.dynamic_update_slice", NULL, build_window},
    {"sdy.sharding_constraint", NULL, build_constraint},
};

static const batch_row *find_row(const importer *im, const mlir_op *op)
{
    static const batch_row elementwise = {"", batch_elementwise, NULL};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, op->name) == 0)
            return &rows[i];
    return im->row->elementwise && op->n_results == 1 ? &elementwise : NULL;
}

static bool in_table(const import_row *row, const import_row *table)
{
    for (; table->name; table++)
        if (table == row)
            return true;
    return false;
}

/* With device dimensions before the types of results. */
static clv_status lead_results(batch *b, clv_error *err)
{
    mlir_type *types = clv_arena_alloc(b->im->arena, (size_t)b->op.n_results, sizeof *types);
    if (!types)
        return clv_fail_memory(err, "types", sizeof *types);
    for (int i = 0; i < b->op.n_results; i++) {
        types[i] = b->op.result_types[i];
        clv_type *t = &types[i].tensor;
        if (types[i].fault)
            return import_type(t, b->im, &types[i], err);
        if (t->rank + b->k > CLV_MAX_RANK)
            return import_fail(b->im, &b->op, err, CLV_ELIMIT, "more than %d dimensions, with one for each mesh axis",
                               CLV_MAX_RANK);
        memmove(t->shape + b->k, t->shape, (size_t)t->rank * sizeof *t->shape);
        memcpy(t->shape, b->extents, (size_t)b->k * sizeof *t->shape);
        t->rank += b->k;
    }
    b->op.result_types = types;
    return CLV_OK;
}

static clv_status build_differing(batch *b, const mlir_op *op, imported *out, clv_error *err)
{
    const batch_row *row = find_row(b->im, op);
    clv_type local;
    if (!row || op->n_operands > CLV_MAX_IN)
        return import_fail(b->im, op, err, CLV_EUNSUPPORTED, "inside shard_map, on what differs between devices");
    if (row->build) {
        CLV_TRY(import_type(&local, b->im, &op->result_types[0], err));
        return row->build(b, &local, out, err);
    }
    CLV_TRY(lead_results(b, err));
    CLV_TRY(row->lead(b, err));
    CLV_TRY(import_build(b->im, &b->op, b->in, out, err));
    for (int i = 0; i < op->n_results; i++) {
        out[i].type = op->result_types[i].tensor;
        out[i].iota = 0;
    }
    return CLV_OK;
}

clv_status manual_build(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    batch b = {.im = im, .op = *op, .given = in, .k = im->manual->n};
    bool differ = false, own = in_table(im->row, import_control_rows) || in_table(im->row, import_collective_rows) ||
                               in_table(im->row, import_manual_rows);
    for (int a = 0; a < b.k; a++)
        b.extents[a] = 1;
    for (int i = 0; i < op->n_operands && !own; i++) {
        int64_t extents[MANUAL_AXES];
        manual_extents(im, &in[i], extents);
        differ = differ || manual_lead(im, &in[i]) > 0;
        for (int a = 0; a < b.k; a++)
            b.extents[a] = extents[a] > b.extents[a] ? extents[a] : b.extents[a];
    }
    if (!differ)
        CLV_TRY(import_build(im, op, in, out, err));
    else {
        const char *before = import_enter_place(im, op);
        CLV_TRY(build_differing(&b, op, out, err));
        im->graph->scope = before;
        clv_error why = {0};
        clv_status status = clv_graph_status(im->graph, &why);
        if (status != CLV_OK)
            return import_fail(im, op, err, status, "%s", why.message);
    }
    if (!own)
        devices_follow(im, op, in, out);
    return CLV_OK;
}
