/* import_reduce.c - imports StableHLO's matrix products and reductions. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "interop/importer.h"

/* ---- dot_general ---- */

/* Dimensions of one operand that are batch or contracted. */
typedef struct contraction {
    int64_t batch[CLV_MAX_RANK], contract[CLV_MAX_RANK];
    int n_batch, n_contract;
    char letters[CLV_MAX_RANK + 1];
} contraction;

/* The pretty form has "batching_dims = [0] x [0]", the generic one #stablehlo.dot<lhs_batching_dimensions = ...>. */
static clv_status read_contraction(contraction *c, const importer *im, const mlir_op *op, int side, clv_error *err)
{
    const mlir_attr *numbers = mlir_find_attr(op->attrs, op->n_attrs, "dot_dimension_numbers");
    *c = (contraction){0};
    if (!numbers) {
        CLV_TRY(import_op_ints(c->batch, &c->n_batch, im, op, "batching_dims", side, err));
        return import_op_ints(c->contract, &c->n_contract, im, op, "contracting_dims", side, err);
    }
    CLV_TRY(import_ints(c->batch, &c->n_batch, im, op, numbers->items, numbers->n,
                        side ? "rhs_batching_dimensions" : "lhs_batching_dimensions", 0, err));
    return import_ints(c->contract, &c->n_contract, im, op, numbers->items, numbers->n,
                       side ? "rhs_contracting_dimensions" : "lhs_contracting_dimensions", 0, err);
}

/* Letters: batch a.., contracted i.., free ones q.. of the left and A.. of the right operand. */
static bool write_letters(contraction *c, int rank, char free)
{
    for (int i = 0; i < c->n_batch; i++) {
        if (c->batch[i] < 0 || c->batch[i] >= rank)
            return false;
        c->letters[c->batch[i]] = (char)('a' + i);
    }
    for (int i = 0; i < c->n_contract; i++) {
        if (c->contract[i] < 0 || c->contract[i] >= rank || c->letters[c->contract[i]])
            return false;
        c->letters[c->contract[i]] = (char)('i' + i);
    }
    for (int d = 0; d < rank; d++)
        c->letters[d] = c->letters[d] ? c->letters[d] : free++;
    return true;
}

static int append_free(char *to, const contraction *c, char first, char last)
{
    int n = 0;
    for (const char *l = c->letters; *l; l++)
        if (*l >= first && *l <= last)
            to[n++] = *l;
    return n;
}

/* The lower or upper 16 bits of i32, as f64; the upper ones with the sign. */
static clv_value half(clv_graph *g, clv_value x, bool upper)
{
    clv_value by = clv_fill(g, CLV_I32, 0, NULL, upper ? 16 : UINT16_MAX);
    return clv_cast(g, clv_pointwise(g, upper ? CLV_SHIFT_RIGHT_ARITHMETIC : CLV_AND, x, by), CLV_F64);
}

/* A product of i32 modulo 2^32: of halves, in f64, which is exact for up to 2^21 terms. */
static clv_value whole_product(clv_graph *g, const char *text, clv_value x, clv_value y)
{
    clv_value a[] = {half(g, x, false), half(g, x, true)}, b[] = {half(g, y, false), half(g, y, true)};
    clv_value low = clv_cast(g, clv_einsum(g, text, a[0], b[0]), CLV_I64);
    clv_value high = clv_cast(g, clv_add(g, clv_einsum(g, text, a[0], b[1]), clv_einsum(g, text, a[1], b[0])), CLV_I64);
    high = clv_pointwise(g, CLV_SHIFT_LEFT, high, clv_fill(g, CLV_I64, 0, NULL, 16));
    return clv_cast(g, clv_add(g, low, high), CLV_I32);
}

/* Floats of two dtypes as of one: an algorithm's, which multiplies numbers of 16 bits, else the wider. */
static void equal_dtypes(importer *im, const mlir_op *op, clv_value *x, clv_value *y)
{
    clv_dtype a = clv_graph_type(im->graph, *x).dtype, b = clv_graph_type(im->graph, *y).dtype;
    bool narrow = mlir_find_attr(op->attrs, op->n_attrs, "algorithm") != NULL;
    clv_dtype to = (clv_dtype_size(a) < clv_dtype_size(b)) == narrow ? a : b;
    *x = clv_cast(im->graph, *x, to);
    *y = clv_cast(im->graph, *y, to);
}

static clv_status dot_general(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    contraction a, b;
    clv_type type;
    char text[64], result[2 * CLV_MAX_RANK + 1] = "";
    if (op->n_operands != 2 || op->n_results != 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "two operands are needed");
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    CLV_TRY(read_contraction(&a, im, op, 0, err));
    CLV_TRY(read_contraction(&b, im, op, 1, err));
    if (a.n_batch != b.n_batch || a.n_contract != b.n_contract || !write_letters(&a, in[0].type.rank, 'q') ||
        !write_letters(&b, in[1].type.rank, 'A'))
        return import_fail(im, op, err, CLV_ESHAPE, "its dimension numbers do not fit its operands");
    int n = a.n_batch;
    for (int i = 0; i < n; i++)
        result[i] = (char)('a' + i);
    n += append_free(result + n, &a, 'q', 'x');
    append_free(result + n, &b, 'A', 'H');
    snprintf(text, sizeof text, "%s,%s->%s", a.letters, b.letters, result);
    clv_value x = imported_whole(im, &in[0]), y = imported_whole(im, &in[1]);
    if (!clv_dtype_is_float(in[0].type.dtype)) {
        if (in[0].type.dtype == CLV_I64 || in[1].type.dtype == CLV_I64 || type.dtype == CLV_I64)
            return import_fail(im, op, err, CLV_EUNSUPPORTED, "of i64; valid: floats, i32, ui8");
        x = whole_product(im->graph, text, clv_cast(im->graph, x, CLV_I32), clv_cast(im->graph, y, CLV_I32));
        out[0] = imported_of(type, clv_cast(im->graph, x, type.dtype));
        return CLV_OK;
    }
    equal_dtypes(im, op, &x, &y);
    bool widened = type.dtype == CLV_F32 && clv_dtype_size(clv_graph_type(im->graph, x).dtype) == 2;
    clv_value product =
        widened ? clv_einsum_accumulate(im->graph, text, x, y, CLV_NONE, CLV_F32) : clv_einsum(im->graph, text, x, y);
    out[0] = imported_of(type, clv_cast(im->graph, product, type.dtype));
    return CLV_OK;
}

/* ---- reduce ---- */

typedef struct reduction {
    const char *op;
    clv_binary_kind merge;  /* with an initial value that is not the identity */
    clv_fold_kind fold;     /* of any dtype ... */
    clv_fold_kind logic;    /* ... but bool */
    clv_reduce_kind reduce; /* of floats, where there is one that may be split */
    double identity;
} reduction;

static const reduction reductions[] = {
    {"stablehlo.add", CLV_ADD, CLV_FOLD_SUM, CLV_FOLD_OR, CLV_SUM, 0},
    {"stablehlo.multiply", CLV_MUL, CLV_FOLD_PRODUCT, CLV_FOLD_AND, (clv_reduce_kind)0, 1},
    {"stablehlo.maximum", CLV_MAXIMUM, CLV_FOLD_MAX, CLV_FOLD_OR, CLV_MAX, -INFINITY},
    {"stablehlo.minimum", CLV_MINIMUM, CLV_FOLD_MIN, CLV_FOLD_AND, (clv_reduce_kind)0, INFINITY},
    {"stablehlo.and", CLV_MUL, CLV_FOLD_AND, CLV_FOLD_AND, (clv_reduce_kind)0, 1},
    {"stablehlo.or", CLV_MAXIMUM, CLV_FOLD_OR, CLV_FOLD_OR, (clv_reduce_kind)0, 0},
};

/* "applies stablehlo.add", or a region with that one op; NULL: another one. */
static const reduction *find_reduction(const mlir_op *op)
{
    const char *name = "";
    for (int i = 0; i + 1 < op->n_attrs; i++)
        if (op->attrs[i].kind == MLIR_WORD && strcmp(op->attrs[i].text, "applies") == 0 && op->attrs[i + 1].text)
            name = op->attrs[i + 1].text;
    if (op->n_regions == 1 && op->regions[0].n_ops == 2)
        name = op->regions[0].ops[0].name;
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        if (strcmp(reductions[i].op, name) == 0)
            return &reductions[i];
    return NULL;
}

/* Whether an initial value leaves results as they are; of integers the lowest and highest count as infinite. */
static bool is_identity(const reduction *r, const imported *init)
{
    double real;
    int64_t whole;
    if (!imported_number(init, &real, &whole))
        return false;
    clv_dtype dtype = init->type.dtype;
    if (clv_dtype_is_float(dtype) || isfinite(r->identity))
        return real == r->identity;
    int64_t low = dtype == CLV_I32 ? INT32_MIN : dtype == CLV_I64 ? INT64_MIN : 0;
    int64_t high = dtype == CLV_I32 ? INT32_MAX : dtype == CLV_I64 ? INT64_MAX : dtype == CLV_U8 ? 255 : 1;
    return whole == (r->identity < 0 ? low : high);
}

static clv_value reduce_by(importer *im, const reduction *r, clv_value x, clv_dtype dtype, const int *dims, int n)
{
    if (clv_dtype_is_float(dtype) && r->reduce)
        return clv_reduce(im->graph, r->reduce, x, dims, n, false);
    if (clv_dtype_is_float(dtype) && r->fold == CLV_FOLD_MIN) { /* a maximum may be split over ranks */
        clv_value most = clv_reduce(im->graph, CLV_MAX, clv_unary(im->graph, CLV_NEG, x), dims, n, false);
        return clv_unary(im->graph, CLV_NEG, most);
    }
    return clv_fold(im->graph, dtype == CLV_BOOL ? r->logic : r->fold, x, dims, n);
}

static clv_status reduce_one(importer *im, const mlir_op *op, const imported *in, const int *dims, int n, imported *out,
                             clv_error *err)
{
    const reduction *r = find_reduction(op);
    clv_type type;
    if (!r)
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "its reducer is none of add, multiply, maximum, minimum, and, or");
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    clv_value value = reduce_by(im, r, imported_whole(im, &in[0]), in[0].type.dtype, dims, n);
    if (!is_identity(r, &in[1]) && in[0].type.dtype == CLV_BOOL)
        value =
            clv_pointwise(im->graph, r->logic == CLV_FOLD_AND ? CLV_AND : CLV_OR, value, imported_compact(im, &in[1]));
    else if (!is_identity(r, &in[1]))
        value = clv_binary(im->graph, r->merge, value, imported_compact(im, &in[1]));
    out[0] = imported_of(type, value);
    return CLV_OK;
}

/* JAX's argmax and argmin: a value and its index, the larger value or the smaller index wins, NaN above all. */
static bool is_argmax(const mlir_op *op, bool *largest)
{
    static const char *const names[] = {"compare", "compare", "or",     "compare", "compare",
                                        "and",     "or",      "select", "select",  "return"};
    enum { OPS = sizeof names / sizeof *names };
    const mlir_region *region = op->n_regions == 1 ? op->regions : NULL;
    if (!region || region->n_ops != OPS || op->n_operands != 4)
        return false;
    for (int i = 0; i < OPS; i++)
        if (strncmp(region->ops[i].name, "stablehlo.", 10) != 0 || strcmp(region->ops[i].name + 10, names[i]) != 0)
            return false;
    const mlir_attr *direction = region->ops[0].n_attrs > 0 ? region->ops[0].attrs : NULL;
    *largest = direction && direction->text && strcmp(direction->text, "GT") == 0;
    return direction && direction->text && (*largest || strcmp(direction->text, "LT") == 0);
}

static clv_status reduce_pair(importer *im, const mlir_op *op, const imported *in, const int *dims, int n,
                              imported *out, clv_error *err)
{
    bool largest;
    clv_type types[2];
    if (!is_argmax(op, &largest) || n != 1 || in[1].iota != dims[0] + 1)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "a reducer of several operands that is not argmax or argmin");
    for (int i = 0; i < 2; i++)
        CLV_TRY(import_type(&types[i], im, &op->result_types[i], err));
    clv_value x = imported_whole(im, &in[0]);
    x = in[0].type.dtype == CLV_BOOL ? clv_cast(im->graph, x, CLV_U8) : x;
    clv_value index = clv_fold(im->graph, largest ? CLV_FOLD_ARGMAX : CLV_FOLD_ARGMIN, x, dims, 1);
    clv_value most = clv_fold(im->graph, largest ? CLV_FOLD_MAX : CLV_FOLD_MIN, x, dims, 1);
    out[0] = imported_of(types[0], clv_cast(im->graph, most, types[0].dtype));
    out[1] = imported_of(types[1], clv_cast(im->graph, index, types[1].dtype));
    return CLV_OK;
}

static clv_status reduce(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    int64_t listed[CLV_MAX_RANK];
    int n, dims[CLV_MAX_RANK] = {0};
    CLV_TRY(import_op_ints(listed, &n, im, op, "dimensions", 0, err));
    for (int i = 0; i < n; i++)
        dims[i] = (int)listed[i];
    if (op->n_operands == 2 && op->n_results == 1)
        return reduce_one(im, op, in, dims, n, out, err);
    if (op->n_operands == 4 && op->n_results == 2)
        return reduce_pair(im, op, in, dims, n, out, err);
    return import_fail(im, op, err, CLV_EUNSUPPORTED, "%d operands", op->n_operands);
}

const import_row import_reduce_rows[] = {
    {"stablehlo.dot_general", dot_general, 0, false, false},
    {"stablehlo.reduce", reduce, 0, false, false},
    {0},
};
