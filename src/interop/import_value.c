/* import_value.c - makes values of the graph for the importer: literals, repeated elements, attributes as integers. */
#include <string.h>

#include "base/text/c_locale.h"
#include "interop/importer.h"

imported imported_of(clv_type type, clv_value value)
{
    return (imported){.type = type, .value = value};
}

clv_value import_wrap_unsigned(importer *im, const mlir_type *type, clv_value value)
{
    return type->unsigned_bits != 32
               ? value
               : clv_pointwise(im->graph, CLV_AND, value, clv_fill(im->graph, CLV_I64, 0, NULL, UINT32_MAX));
}

clv_status literal_new(literal **out, importer *im, const void *data, bool splat, const clv_type *type, clv_error *err)
{
    size_t bytes = (size_t)(splat ? 1 : clv_type_elems(type)) * clv_dtype_size(type->dtype);
    literal *made = clv_arena_alloc(im->arena, 1, sizeof *made);
    void *copy = made ? clv_arena_copy(im->arena, data, bytes ? bytes : 1) : NULL;
    if (!copy)
        return clv_fail_memory(err, "a constant", bytes);
    *made = (literal){.splat = splat, .data = copy};
    *out = made;
    return CLV_OK;
}

/* Whether a vector of whole numbers counts from 0. */
static bool counts(const imported *x)
{
    bool does = x->type.rank == 1 && x->type.shape[0] > 1 && !clv_dtype_is_float(x->type.dtype);
    for (int64_t i = 0; does && i < x->type.shape[0]; i++)
        does = clv_dtype_load(x->type.dtype, x->known->data, i) == (double)i;
    return does && x->type.dtype != CLV_BOOL;
}

/* State for elements that differ, once for each literal, in no scope. */
static clv_value state_of(importer *im, const imported *x)
{
    if (counts(x)) /* a position: patterns know what it is */
        return clv_cast(im->graph, clv_iota(im->graph, x->type.shape[0], CLV_NONE), x->type.dtype);
    clv_value *state = &im->states[x->known->id];
    const char *scope = im->graph->scope;
    char name[32];
    if (clv_valid(*state))
        return *state;
    clv_snprintf(name, sizeof name, "constant.%d", x->known->id);
    im->graph->scope = "";
    *state = clv_state_with_role(im->graph, CLV_ROLE_BUFFER, name, x->type.dtype, x->type.rank, x->type.shape, NULL,
                                 (clv_init){0});
    im->graph->scope = scope;
    return *state;
}

static clv_value fill(importer *im, const imported *x, int rank, const int64_t *shape)
{
    double real;
    int64_t whole;
    imported_number(x, &real, &whole);
    clv_value made = clv_fill(im->graph, x->type.dtype, rank, shape, real);
    return made;
}

/* Of elements that are known: `rank` is that of what repeated ones become. */
static clv_value value_of_known(importer *im, const imported *x, int rank)
{
    if (!x->known) /* partition_id (imported.stride) */
        return clv_graph_fail(im->graph, CLV_EUNSUPPORTED, "the number of a device that is no index of an axis");
    return x->known->splat ? fill(im, x, rank, x->type.shape) : state_of(im, x);
}

clv_value imported_compact(importer *im, const imported *x)
{
    return clv_valid(x->value) ? x->value : value_of_known(im, x, 0);
}

clv_value imported_whole(importer *im, const imported *x)
{
    if (!clv_valid(x->value))
        return value_of_known(im, x, x->type.rank);
    clv_value value = x->value;
    int rank = clv_graph_type(im->graph, value).rank;
    if (rank != x->type.rank) {
        int64_t ones[CLV_MAX_RANK];
        for (int d = 0; d < x->type.rank; d++)
            ones[d] = 1;
        value = clv_reshape(im->graph, value, x->type.rank, ones);
    }
    return x->type.rank == 0 ? value : clv_broadcast(im->graph, value, x->type.shape);
}

bool imported_number(const imported *x, double *real, int64_t *whole)
{
    if (!x->known || !(x->known->splat || clv_type_elems(&x->type) == 1))
        return false;
    *real = clv_dtype_load(x->type.dtype, x->known->data, 0);
    clv_dtype_convert(CLV_I64, whole, x->type.dtype, x->known->data, 1);
    return true;
}

clv_status import_type(clv_type *out, const importer *im, const mlir_type *type, clv_error *err)
{
    if (type->fault)
        return mlir_fail(im->module, type->at, err, CLV_EUNSUPPORTED, "%s: %s", type->text, type->fault);
    *out = type->tensor;
    return CLV_OK;
}

clv_status import_ints(int64_t *out, int *n, const importer *im, const mlir_op *op, const mlir_attr *attrs, int n_attrs,
                       const char *key, int part, clv_error *err)
{
    const mlir_attr *attr = mlir_find_attr(attrs, n_attrs, key);
    *n = 0;
    if (attr && attr->kind == MLIR_PAIR)
        attr = part < attr->n ? &attr->items[part] : NULL;
    if (!attr)
        return CLV_OK;
    const mlir_attr *items = attr->kind == MLIR_LIST ? attr->items : attr;
    int count = attr->kind == MLIR_LIST ? attr->n : 1;
    if (count > CLV_MAX_RANK)
        return mlir_fail(im->module, attr->at, err, CLV_EUNSUPPORTED, "%s: more than %d dimensions", op->name,
                         CLV_MAX_RANK);
    for (int i = 0; i < count; i++) {
        if (items[i].kind != MLIR_INT)
            return mlir_fail(im->module, items[i].at, err, CLV_ESYNTAX, "%s: %s is no list of integers", op->name, key);
        out[(*n)++] = items[i].number;
    }
    return CLV_OK;
}

clv_status import_op_ints(int64_t *out, int *n, const importer *im, const mlir_op *op, const char *key, int part,
                          clv_error *err)
{
    return import_ints(out, n, im, op, op->attrs, op->n_attrs, key, part, err);
}
