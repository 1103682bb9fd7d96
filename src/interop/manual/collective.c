/* collective.c - StableHLO's collectives inside shard_map: over dimensions of devices.
 *
 * A sum over devices is a reduction, and its stated layout makes it an all_reduce or a reduce_scatter; an all_gather
 * and an all_to_all are changes of layout and, on each rank, of the order of dimensions. A permute is an op, of a
 * dimension of devices.
 */
#include <stdlib.h>
#include <string.h>

#include "interop/manual/manual.h"
#include "ops/builtin_ops.h"

/* ---- groups of devices ---- */

/* The device dimensions that a collective goes over, first major. */
typedef struct group {
    int n, order[MANUAL_AXES];
    uint32_t axes;
    int64_t size;
} group;

/* Coordinates of a device of the mesh on device dimensions. */
static void coordinates(int64_t *out, const manual *m, int64_t device)
{
    for (int i = m->n - 1; i >= 0; i--) {
        out[i] = device % m->size[i];
        device /= m->size[i];
    }
}

static int64_t device_count(const manual *m)
{
    int64_t n = 1;
    for (int i = 0; i < m->n; i++)
        n *= m->size[i];
    return n;
}

/* The table of integers of an attribute, dense<[[0, 1], [2, 3]]>. */
static clv_status read_table(int64_t **out, int64_t *rows, int64_t *columns, importer *im, const mlir_op *op,
                             const char *key, clv_error *err)
{
    const mlir_attr *attr = mlir_find_attr(op->attrs, op->n_attrs, key);
    bool splat;
    if (!attr || attr->kind != MLIR_DENSE || attr->type.fault || attr->type.tensor.rank != 2 ||
        attr->type.tensor.dtype != CLV_I64)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "no table %s of devices", key);
    const clv_type *type = &attr->type.tensor;
    int64_t elems = clv_type_elems(type);
    if (elems > (int64_t)attr->length + 1 && attr->text[0] == '[')
        return import_fail(im, op, err, CLV_ESYNTAX, "%s does not fit its type", key);
    if (elems > 1 << 20)
        return import_fail(im, op, err, CLV_ELIMIT, "%s of more than 2^20 devices", key);
    *out = clv_arena_alloc(im->arena, (size_t)elems + 1, sizeof **out);
    if (!*out)
        return clv_fail_memory(err, "devices", (size_t)elems * sizeof **out);
    CLV_TRY(mlir_dense(*out, &splat, im->module, attr, type, err));
    for (int64_t i = 1; splat && i < elems; i++)
        (*out)[i] = (*out)[0];
    *rows = type->shape[0];
    *columns = type->shape[1];
    return CLV_OK;
}

/* The member at a place of the group of the device at `base`. */
static int64_t member(const manual *m, const group *g, const int64_t *base, int64_t place)
{
    int64_t at[MANUAL_AXES], device = 0;
    memcpy(at, base, sizeof at);
    for (int i = g->n - 1; i >= 0; i--) {
        at[g->order[i]] = place % m->size[g->order[i]];
        place /= m->size[g->order[i]];
    }
    for (int i = 0; i < m->n; i++)
        device = device * m->size[i] + at[i];
    return device;
}

/* The axis of which the second member is the next one, and so on: minor to major. */
static bool find_axes(group *g, const manual *m, const int64_t *row, int64_t columns)
{
    int64_t first[MANUAL_AXES], other[MANUAL_AXES];
    int minor_first[MANUAL_AXES];
    *g = (group){.size = 1};
    coordinates(first, m, row[0]);
    while (g->size < columns) {
        int found = -1;
        coordinates(other, m, row[g->size]);
        for (int i = 0; i < m->n; i++)
            if (other[i] != first[i] && !(g->axes >> i & 1))
                found = i;
        if (found < 0 || g->size * m->size[found] > columns)
            return false;
        minor_first[g->n++] = found;
        g->axes |= 1u << found;
        g->size *= m->size[found];
    }
    for (int i = 0; i < g->n; i++)
        g->order[i] = minor_first[g->n - 1 - i];
    return g->size == columns;
}

static clv_status read_group(group *out, importer *im, const mlir_op *op, clv_error *err)
{
    const manual *m = im->manual;
    int64_t *table, rows, columns, all;
    if (!m)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "a collective outside of shard_map");
    CLV_TRY(read_table(&table, &rows, &columns, im, op, "replica_groups", err));
    all = device_count(m);
    bool fits = rows * columns == all && columns > 0;
    for (int64_t i = 0; fits && i < all; i++)
        fits = table[i] >= 0 && table[i] < all;
    fits = fits && find_axes(out, m, table, columns);
    for (int64_t r = 0; fits && r < rows; r++) {
        int64_t base[MANUAL_AXES];
        coordinates(base, m, table[r * columns]);
        for (int64_t c = 0; fits && c < columns; c++)
            fits = table[r * columns + c] == member(m, out, base, c);
    }
    if (!fits)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "replica_groups are not those of axes of the mesh");
    if (out->axes & ~m->axes)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "it goes over %s, which shard_map is not manual over",
                           manual_axis_names(im, out->axes & ~m->axes));
    return CLV_OK;
}

/* ---- all_reduce, reduce_scatter ---- */

typedef struct combiner {
    const char *op;
    clv_reduce_kind reduce; /* of floats; CLV_SUM or CLV_MAX */
    clv_fold_kind fold, logic;
} combiner;

static const combiner combiners[] = {
    {"stablehlo.add", CLV_SUM, CLV_FOLD_SUM, CLV_FOLD_OR},
    {"stablehlo.maximum", CLV_MAX, CLV_FOLD_MAX, CLV_FOLD_OR},
    {"stablehlo.minimum", CLV_MAX, CLV_FOLD_MIN, CLV_FOLD_AND},
    {"stablehlo.multiply", (clv_reduce_kind)0, CLV_FOLD_PRODUCT, CLV_FOLD_AND},
    {"stablehlo.and", (clv_reduce_kind)0, CLV_FOLD_AND, CLV_FOLD_AND},
    {"stablehlo.or", (clv_reduce_kind)0, CLV_FOLD_OR, CLV_FOLD_OR},
};

static clv_status find_combiner(const combiner **out, const importer *im, const mlir_op *op, clv_error *err)
{
    const char *name = op->n_regions == 1 && op->regions[0].n_ops > 0 ? op->regions[0].ops[0].name : "";
    for (size_t i = 0; i < sizeof combiners / sizeof *combiners; i++)
        if (strcmp(combiners[i].op, name) == 0) {
            *out = &combiners[i];
            return CLV_OK;
        }
    return import_fail(im, op, err, CLV_EUNSUPPORTED,
                       "its reducer is none of add, multiply, maximum, minimum, and, or");
}

static clv_value reduce_floats(importer *im, const combiner *c, clv_value x, const int *dims, int n)
{
    bool least = c->fold == CLV_FOLD_MIN;
    x = least ? clv_unary(im->graph, CLV_NEG, x) : x;
    x = clv_reduce(im->graph, c->reduce, x, dims, n, true);
    return least ? clv_unary(im->graph, CLV_NEG, x) : x;
}

/* Over device dimensions of more than one element, which have one afterwards. */
static clv_value reduce_devices(importer *im, const combiner *c, clv_value x, const group *g)
{
    clv_type have = clv_graph_type(im->graph, x);
    int dims[MANUAL_AXES], n = 0;
    for (int i = 0; i < im->manual->n; i++)
        if (g->axes >> i & 1 && have.shape[i] > 1) {
            dims[n++] = i;
            have.shape[i] = 1;
        }
    if (n == 0)
        return x;
    manual_keep(im, x, g->axes);
    if (clv_dtype_is_float(have.dtype) && c->reduce)
        return reduce_floats(im, c, x, dims, n);
    x = clv_fold(im->graph, have.dtype == CLV_BOOL ? c->logic : c->fold, x, dims, n);
    return clv_reshape(im->graph, x, have.rank, have.shape);
}

/* What is the same on m devices, summed over them. */
static clv_status multiply_alike(clv_value *value, importer *im, const mlir_op *op, const combiner *c, int64_t m,
                                 clv_error *err)
{
    clv_type have = clv_graph_type(im->graph, *value);
    if (m == 1 || (c->fold != CLV_FOLD_SUM && c->fold != CLV_FOLD_PRODUCT) || have.dtype == CLV_BOOL)
        return CLV_OK;
    if (c->fold == CLV_FOLD_PRODUCT)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "a product of what is the same on all devices");
    if (clv_dtype_is_float(have.dtype))
        *value = clv_scale(im->graph, *value, (double)m);
    else
        *value = clv_mul(im->graph, *value, clv_fill(im->graph, have.dtype, 0, NULL, (double)m));
    return CLV_OK;
}

static int64_t alike(const importer *im, const group *g, const int64_t *extents)
{
    int64_t m = 1;
    for (int i = 0; i < im->manual->n; i++)
        if (g->axes >> i & 1 && extents[i] == 1)
            m *= im->manual->size[i];
    return m;
}

/* A number that is known stays known. */
static clv_status reduce_known(imported *out, bool *done, importer *im, const combiner *c, const imported *x, int64_t m,
                               clv_error *err)
{
    double real;
    int64_t whole;
    char data[16] = "";
    *done = imported_number(x, &real, &whole) && x->known->splat && clv_dtype_is_float(x->type.dtype) &&
            c->fold == CLV_FOLD_SUM;
    if (!*done)
        return CLV_OK;
    clv_dtype_store(x->type.dtype, data, 0, real * (double)m);
    *out = *x;
    out->value = CLV_NONE;
    return literal_new(&out->known, im, data, true, &x->type, err);
}

static clv_status all_reduce(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    group g;
    const combiner *c;
    bool done;
    CLV_TRY(read_group(&g, im, op, err));
    CLV_TRY(find_combiner(&c, im, op, err));
    if (op->n_operands != op->n_results)
        return import_fail(im, op, err, CLV_ESYNTAX, "%d operands, %d results", op->n_operands, op->n_results);
    for (int i = 0; i < op->n_operands; i++) {
        int64_t extents[MANUAL_AXES];
        clv_value value;
        manual_extents(im, &in[i], extents);
        int64_t m = alike(im, &g, extents);
        CLV_TRY(reduce_known(&out[i], &done, im, c, &in[i], m, err));
        if (!done) {
            CLV_TRY(manual_spread(&value, im, &in[i], extents, err));
            value = reduce_devices(im, c, value, &g);
            CLV_TRY(multiply_alike(&value, im, op, c, m, err));
            out[i] = manual_settle(im, in[i].type, manual_constrain(im, op, value, 0, -1, NULL, 0));
        }
        devices_summed(im, op, &in[i], c->fold == CLV_FOLD_SUM ? g.axes : 0, &out[i]);
    }
    return CLV_OK;
}

/* Order of dimensions in which the devices of a group stand in front of dimension d, or behind themselves. */
static clv_status dim_of(int *out, const importer *im, const mlir_op *op, const char *key, int rank, clv_error *err)
{
    int64_t ints[CLV_MAX_RANK];
    int n;
    CLV_TRY(import_op_ints(ints, &n, im, op, key, 0, err));
    if (n != 1 || ints[0] < 0 || ints[0] >= rank)
        return import_fail(im, op, err, CLV_ESHAPE, "%s does not fit its operand", key);
    *out = (int)ints[0];
    return CLV_OK;
}

/* A value whose dimension `dim` is in parts, one for each device of the group: [.., devices.., part, ..]; *at: where
 * they begin. */
static clv_status divide_dim(clv_value *value, int *at, importer *im, const mlir_op *op, const group *g, int dim,
                             clv_error *err)
{
    clv_type have = clv_graph_type(im->graph, *value);
    int64_t shape[CLV_MAX_RANK];
    int n = 0;
    *at = im->manual->n + dim;
    if (have.rank + g->n > CLV_MAX_RANK)
        return import_fail(im, op, err, CLV_ELIMIT, "more than %d dimensions, with those of devices", CLV_MAX_RANK);
    if (have.shape[*at] % g->size != 0)
        return import_fail(im, op, err, CLV_ESHAPE, "dimension %d does not divide by %lld devices", dim,
                           (long long)g->size);
    for (int d = 0; d < have.rank; d++) {
        for (int i = 0; d == *at && i < g->n; i++)
            shape[n++] = im->manual->size[g->order[i]];
        shape[n++] = d == *at ? have.shape[d] / g->size : have.shape[d];
    }
    *value = clv_reshape(im->graph, *value, n, shape);
    return CLV_OK;
}

static clv_status reduce_scatter(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    group g;
    const combiner *c;
    clv_type type;
    clv_value value;
    int dim, at, order[CLV_MAX_RANK], n = 0, k;
    int64_t extents[MANUAL_AXES], shape[CLV_MAX_RANK];
    CLV_TRY(read_group(&g, im, op, err));
    CLV_TRY(find_combiner(&c, im, op, err));
    if (op->n_operands != 1 || op->n_results != 1)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "only of one operand");
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    CLV_TRY(dim_of(&dim, im, op, "scatter_dimension", in[0].type.rank, err));
    k = im->manual->n;
    manual_extents(im, &in[0], extents);
    CLV_TRY(manual_spread(&value, im, &in[0], extents, err));
    value = reduce_devices(im, c, value, &g);
    CLV_TRY(multiply_alike(&value, im, op, c, alike(im, &g, extents), err));
    value = manual_constrain(im, op, value, g.axes, dim, g.order, g.n);
    CLV_TRY(divide_dim(&value, &at, im, op, &g, dim, err));
    clv_type have = clv_graph_type(im->graph, value);
    /* devices of the group from before their part to the device dimensions, which have one element each */
    for (int i = 0; i < k; i++) {
        order[i] = i;
        shape[i] = g.axes >> i & 1 ? im->manual->size[i] : have.shape[i];
        for (int j = 0; j < g.n; j++)
            if (g.order[j] == i)
                order[i] = at + j;
    }
    n = k;
    for (int d = k; d < have.rank; d++)
        if (d < at || d >= at + g.n) {
            order[n] = d;
            shape[n++] = have.shape[d];
        }
    int final = n;
    for (int i = 0; i < k; i++) /* the ones go last */
        if (g.axes >> i & 1)
            order[n++] = i;
    value = manual_arrange(im, value, order, n, final, shape);
    out[0] = imported_of(type, value);
    devices_summed(im, op, &in[0], c->fold == CLV_FOLD_SUM ? g.axes : 0, &out[0]);
    for (int i = 0; i < g.n; i++)
        out[0].devices.how[g.order[i]] = (uint8_t)(DEVICES_SPLIT + dim);
    return CLV_OK;
}

/* ---- all_gather, all_to_all ---- */

static void whole_extents(int64_t *extents, const importer *im, const imported *x, const group *g)
{
    manual_extents(im, x, extents);
    for (int i = 0; i < im->manual->n; i++)
        extents[i] = g->axes >> i & 1 ? im->manual->size[i] : extents[i];
}

/* Puts the device dimensions of the group before dimension `dim` of a device, as one with it. `in_front` take their
 * place: dimensions of the value, `n_moved` from `moved` on; NULL: dimensions of one element. */
static clv_value merge_devices(importer *im, clv_value value, const group *g, int dim, const int *in_front, int moved,
                               int n_moved)
{
    clv_type have = clv_graph_type(im->graph, value);
    int order[CLV_MAX_RANK], n = 0, rank = 0, k = im->manual->n, local = 0;
    int64_t shape[CLV_MAX_RANK];
    for (int i = 0; i < k; i++) {
        int from = !(g->axes >> i & 1) ? i : in_front ? in_front[i] : -1;
        shape[rank++] = from < 0 ? 1 : have.shape[from];
        if (from >= 0)
            order[n++] = from;
    }
    for (int d = k; d < have.rank; d++) {
        if (d >= moved && d < moved + n_moved)
            continue;
        shape[rank] = have.shape[d];
        for (int i = 0; local == dim && i < g->n; i++) {
            order[n++] = g->order[i];
            shape[rank] *= have.shape[g->order[i]];
        }
        order[n++] = d;
        rank++;
        local++;
    }
    return manual_arrange(im, value, order, n, rank, shape);
}

static clv_status all_gather(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    group g;
    clv_type type;
    CLV_TRY(read_group(&g, im, op, err));
    if (op->n_operands != op->n_results)
        return import_fail(im, op, err, CLV_ESYNTAX, "%d operands, %d results", op->n_operands, op->n_results);
    for (int i = 0; i < op->n_operands; i++) {
        int dim;
        int64_t extents[MANUAL_AXES];
        clv_value value;
        CLV_TRY(import_type(&type, im, &op->result_types[i], err));
        CLV_TRY(dim_of(&dim, im, op, "all_gather_dim", in[i].type.rank, err));
        whole_extents(extents, im, &in[i], &g);
        CLV_TRY(manual_spread(&value, im, &in[i], extents, err));
        value = merge_devices(im, value, &g, dim, NULL, 0, 0);
        out[i] = manual_settle(im, type, manual_constrain(im, op, value, g.axes, -1, NULL, 0));
        out[i].devices = in[i].devices;
    }
    return CLV_OK;
}

static clv_status all_to_all(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    group g;
    clv_type type;
    CLV_TRY(read_group(&g, im, op, err));
    if (op->n_operands != op->n_results)
        return import_fail(im, op, err, CLV_ESYNTAX, "%d operands, %d results", op->n_operands, op->n_results);
    for (int i = 0; i < op->n_operands; i++) {
        int split, concat, at, k = im->manual->n, in_front[MANUAL_AXES];
        int64_t extents[MANUAL_AXES];
        clv_value value;
        CLV_TRY(import_type(&type, im, &op->result_types[i], err));
        CLV_TRY(dim_of(&split, im, op, "split_dimension", in[i].type.rank, err));
        CLV_TRY(dim_of(&concat, im, op, "concat_dimension", in[i].type.rank, err));
        whole_extents(extents, im, &in[i], &g);
        CLV_TRY(manual_spread(&value, im, &in[i], extents, err));
        /* the parts that go to each device are sharded instead of those that have them */
        value = manual_constrain(im, op, value, g.axes, split, g.order, g.n);
        CLV_TRY(divide_dim(&value, &at, im, op, &g, split, err));
        for (int a = 0; a < k; a++)
            for (int j = 0; j < g.n; j++)
                if (g.order[j] == a)
                    in_front[a] = at + j;
        value = merge_devices(im, value, &g, concat, in_front, at, g.n);
        out[i] = imported_of(type, value);
        out[i].devices = in[i].devices;
        for (int j = 0; j < g.n; j++) {
            uint8_t *how = &out[i].devices.how[g.order[j]];
            *how = (uint8_t)(*how == DEVICES_SPLIT + concat ? DEVICES_SPLIT + split : DEVICES_OTHER);
        }
    }
    return CLV_OK;
}

/* ---- collective_permute, collective_broadcast ---- */

/* From which device of an axis each one receives: -1: none. All groups of the axis do the same. */
static clv_status read_pairs(int *axis, int **from, importer *im, const mlir_op *op, clv_error *err)
{
    const manual *m = im->manual;
    int64_t *pairs, n, two, a[MANUAL_AXES], b[MANUAL_AXES];
    if (!m)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "a collective outside of shard_map");
    CLV_TRY(read_table(&pairs, &n, &two, im, op, "source_target_pairs", err));
    int64_t count = device_count(m), *seen = clv_arena_alloc(im->arena, (size_t)count + 1, sizeof *seen);
    *axis = -1;
    *from = clv_arena_alloc(im->arena, (size_t)count + 1, sizeof **from);
    if (!*from || !seen)
        return clv_fail_memory(err, "devices", (size_t)count * sizeof *seen);
    bool fits = two == 2;
    for (int64_t i = 0; fits && i < n; i++) {
        fits = pairs[2 * i] >= 0 && pairs[2 * i] < count && pairs[2 * i + 1] >= 0 && pairs[2 * i + 1] < count;
        if (!fits)
            break;
        coordinates(a, m, pairs[2 * i]);
        coordinates(b, m, pairs[2 * i + 1]);
        for (int d = 0; d < m->n; d++)
            if (a[d] != b[d]) {
                fits = fits && (*axis < 0 || *axis == d);
                *axis = d;
            }
    }
    *axis = *axis < 0 ? 0 : *axis;
    int64_t size = m->n > 0 ? m->size[*axis] : 1, groups = count / size;
    for (int64_t d = 0; d < size; d++)
        (*from)[d] = -1;
    for (int64_t i = 0; fits && m->n > 0 && i < n; i++) {
        coordinates(a, m, pairs[2 * i]);
        coordinates(b, m, pairs[2 * i + 1]);
        fits = (*from)[b[*axis]] < 0 || (*from)[b[*axis]] == a[*axis];
        (*from)[b[*axis]] = (int)a[*axis];
        fits = fits && seen[pairs[2 * i + 1]]++ == 0;
    }
    int64_t targets = 0;
    for (int64_t d = 0; d < size; d++)
        targets += (*from)[d] >= 0;
    if (!fits || targets * groups != n)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "its pairs are not a permute over one axis of the mesh");
    return CLV_OK;
}

static clv_status collective_permute(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    int axis, *from;
    int64_t extents[MANUAL_AXES];
    clv_value value;
    CLV_TRY(read_pairs(&axis, &from, im, op, err));
    if (op->n_operands != 1 || op->n_results != 1)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "only of one operand");
    out[0] = in[0];
    manual_extents(im, &in[0], extents);
    int64_t size = im->manual->n > 0 ? im->manual->size[axis] : 1;
    bool all = true, same = true;
    for (int64_t d = 0; d < size; d++) {
        all = all && from[d] >= 0;
        same = same && from[d] == d;
    }
    if (im->manual->n == 0 || same || (all && extents[axis] == 1))
        return CLV_OK;
    extents[axis] = size;
    CLV_TRY(manual_spread(&value, im, &in[0], extents, err));
    value = clv_permute(im->graph, value, axis, from);
    manual_name_last(im, op);
    out[0] = imported_of(in[0].type, manual_constrain(im, NULL, value, 0, -1, NULL, 0));
    out[0].devices = in[0].devices;
    uint8_t *how = &out[0].devices.how[axis];
    *how = *how >= DEVICES_SPLIT ? DEVICES_OTHER : *how; /* the parts of others */
    return CLV_OK;
}

/* The first element of a device dimension. */
static clv_value take_first(importer *im, clv_value value, int dim)
{
    clv_type have = clv_graph_type(im->graph, value);
    int64_t low[CLV_MAX_RANK] = {0};
    have.shape[dim] = 1;
    return clv_slice(im->graph, value, low, have.shape);
}

static clv_status collective_broadcast(importer *im, const mlir_op *op, const imported *in, imported *out,
                                       clv_error *err)
{
    group g;
    int64_t extents[MANUAL_AXES];
    clv_value value;
    CLV_TRY(read_group(&g, im, op, err));
    if (op->n_operands != 1 || op->n_results != 1)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "only of one operand");
    out[0] = in[0];
    if (!manual_lead(im, &in[0]))
        return CLV_OK;
    manual_extents(im, &in[0], extents);
    CLV_TRY(manual_spread(&value, im, &in[0], extents, err));
    for (int i = 0; i < im->manual->n; i++)
        if (g.axes >> i & 1 && extents[i] > 1)
            value = take_first(im, value, i);
    out[0] = manual_settle(im, in[0].type, manual_constrain(im, op, value, 0, -1, NULL, 0));
    out[0].devices = in[0].devices;
    return CLV_OK;
}

/* ---- the number of a device ---- */

static clv_value count_along(importer *im, int i, int64_t stride)
{
    int64_t shape[MANUAL_AXES] = {1, 1, 1, 1, 1, 1};
    shape[i] = im->manual->size[i];
    clv_value count = clv_cast(im->graph, clv_iota(im->graph, im->manual->size[i], CLV_NONE), CLV_I64);
    if (stride != 1)
        count = clv_mul(im->graph, count, clv_fill(im->graph, CLV_I64, 0, NULL, (double)stride));
    return clv_reshape(im->graph, count, im->manual->n, shape);
}

static int64_t stride_of(const manual *m, int i)
{
    int64_t stride = 1;
    for (int j = i + 1; j < m->n; j++)
        stride *= m->size[j];
    return stride;
}

static const clv_type number_type = {.dtype = CLV_I64};

static clv_status known_number(imported *out, importer *im, int64_t number, clv_error *err)
{
    *out = (imported){.type = number_type};
    return literal_new(&out->known, im, &number, true, &number_type, err);
}

/* device / stride % modulus, where these pick one axis. */
static clv_status pick_axis(imported *out, importer *im, const mlir_op *op, int64_t stride, int64_t modulus,
                            clv_error *err)
{
    if (modulus == 1)
        return known_number(out, im, 0, err);
    for (int i = 0; i < im->manual->n; i++)
        if (stride_of(im->manual, i) == stride && im->manual->size[i] == modulus) {
            *out = imported_of(number_type, count_along(im, i, 1));
            return CLV_OK;
        }
    return import_fail(im, op, err, CLV_EUNSUPPORTED, "the number of a device that is no index of an axis");
}

clv_status manual_count_devices(bool *done, importer *im, const mlir_op *op, clv_error *err)
{
    const char *name = op->name;
    const mlir_attr *dense = NULL;
    int64_t number;
    double real;
    *done = op->n_results == 1 && strcmp(op->result_types[0].text, "tensor<ui32>") == 0;
    if (!*done)
        return CLV_OK;
    imported *out = &im->values[op->first_result];
    const imported *a = op->n_operands > 0 ? &im->values[op->operands[0]] : NULL;
    for (int i = 0; i < op->n_attrs; i++)
        dense = op->attrs[i].kind == MLIR_DENSE ? &op->attrs[i] : dense;
    if (strcmp(name, "stablehlo.partition_id") == 0) {
        *out = (imported){.type = number_type, .stride = 1};
        return CLV_OK;
    }
    if (strcmp(name, "stablehlo.constant") == 0 && dense) {
        bool splat;
        CLV_TRY(mlir_dense(&number, &splat, im->module, dense, &number_type, err));
        return known_number(out, im, number, err);
    }
    bool divides = strcmp(name, "stablehlo.divide") == 0, rest = strcmp(name, "stablehlo.remainder") == 0;
    if (op->n_operands != 2 || !(divides || rest) || !a->stride ||
        !imported_number(&im->values[op->operands[1]], &real, &number) || number < 1)
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "tensor<ui32>: only the index of a device on an axis is read");
    if (divides) {
        *out = *a;
        out->stride = a->stride * number;
        return CLV_OK;
    }
    return pick_axis(out, im, op, a->stride, number, err);
}

static clv_status partition_id(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    return import_fail(im, op, err, CLV_EUNSUPPORTED, "outside of shard_map");
}

const import_row import_collective_rows[] = {
    {"stablehlo.all_reduce", all_reduce, 0, false, false},
    {"stablehlo.reduce_scatter", reduce_scatter, 0, false, false},
    {"stablehlo.all_gather", all_gather, 0, false, false},
    {"stablehlo.all_to_all", all_to_all, 0, false, false},
    {"stablehlo.collective_permute", collective_permute, 0, false, false},
    {"stablehlo.collective_broadcast", collective_broadcast, 0, false, false},
    {"stablehlo.partition_id", partition_id, 0, false, false},
    {0},
};
