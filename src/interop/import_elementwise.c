/* import_elementwise.c - imports StableHLO's elementwise ops: a row of the table each. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/erf_inv.h"
#include "interop/importer.h"

static clv_value operand(importer *im, const imported *in, int i)
{
    return imported_compact(im, &in[i]);
}

static clv_status finish(importer *im, const mlir_op *op, clv_value value, imported *out, clv_error *err)
{
    clv_type type;
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    out[0] = imported_of(type, import_wrap_unsigned(im, &op->result_types[0], value));
    return CLV_OK;
}

static clv_status need(const importer *im, const mlir_op *op, int operands, clv_error *err)
{
    return op->n_operands == operands && op->n_results == 1
               ? CLV_OK
               : import_fail(im, op, err, CLV_ESYNTAX, "%d operands; %d are needed", op->n_operands, operands);
}

static clv_status unary(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    CLV_TRY(need(im, op, 1, err));
    return finish(im, op, clv_unary(im->graph, (clv_unary_kind)im->row->kind, operand(im, in, 0)), out, err);
}

static clv_status negate(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    CLV_TRY(need(im, op, 1, err));
    clv_value x = operand(im, in, 0);
    if (clv_dtype_is_float(in[0].type.dtype))
        return finish(im, op, clv_unary(im->graph, CLV_NEG, x), out, err);
    clv_value zero = clv_fill(im->graph, in[0].type.dtype, 0, NULL, 0);
    return finish(im, op, clv_sub(im->graph, zero, x), out, err);
}

static clv_status square(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    CLV_TRY(need(im, op, 1, err));
    clv_value x = operand(im, in, 0);
    return finish(im, op, clv_mul(im->graph, x, x), out, err);
}

static clv_status pointwise(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    bool binary = im->row->kind >= CLV_ATAN2 && im->row->kind <= CLV_NOT_EQUAL;
    CLV_TRY(need(im, op, binary ? 2 : 1, err));
    clv_value b = binary ? operand(im, in, 1) : CLV_NONE;
    return finish(im, op, clv_pointwise(im->graph, (clv_pointwise_kind)im->row->kind, operand(im, in, 0), b), out, err);
}

/* Of bool, a sum and a maximum are "or", a product and a minimum "and"; a float times a number is scaled. */
static clv_status binary(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    int kind = im->row->kind;
    double factor;
    int64_t whole;
    CLV_TRY(need(im, op, 2, err));
    if (in[0].type.dtype == CLV_BOOL) {
        bool is_and = kind == CLV_MUL || kind == CLV_MINIMUM;
        clv_pointwise_kind logic = is_and ? CLV_AND : kind == CLV_SUB ? CLV_XOR : CLV_OR;
        return finish(im, op, clv_pointwise(im->graph, logic, operand(im, in, 0), operand(im, in, 1)), out, err);
    }
    for (int i = 0; i < 2 && kind == CLV_MUL; i++)
        if (clv_dtype_is_float(in[i].type.dtype) && imported_number(&in[i], &factor, &whole))
            return finish(im, op, clv_scale(im->graph, operand(im, in, 1 - i), factor), out, err);
    return finish(im, op, clv_binary(im->graph, (clv_binary_kind)kind, operand(im, in, 0), operand(im, in, 1)), out,
                  err);
}

static clv_status compare(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    static const struct {
        const char *name;
        clv_pointwise_kind kind;
    } rows[] = {{"EQ", CLV_EQUAL},      {"NE", CLV_NOT_EQUAL}, {"LT", CLV_LESS},
                {"LE", CLV_LESS_EQUAL}, {"GT", CLV_GREATER},   {"GE", CLV_GREATER_EQUAL}};
    CLV_TRY(need(im, op, 2, err));
    for (int a = 0; a < op->n_attrs; a++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            const char *text = op->attrs[a].text ? op->attrs[a].text : "";
            const char *last = strrchr(text, ' '); /* of the generic form: "comparison_direction LT" */
            if (strcmp(last ? last + 1 : text, rows[r].name) == 0)
                return finish(im, op, clv_pointwise(im->graph, rows[r].kind, operand(im, in, 0), operand(im, in, 1)),
                              out, err);
        }
    return import_fail(im, op, err, CLV_ESYNTAX, "no direction; valid: EQ, NE, LT, LE, GT, GE");
}

static clv_status select(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    CLV_TRY(need(im, op, 3, err));
    clv_value where = clv_where(im->graph, operand(im, in, 0), operand(im, in, 1), operand(im, in, 2));
    return finish(im, op, where, out, err);
}

static clv_status clamp(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    CLV_TRY(need(im, op, 3, err));
    clv_value low = clv_binary(im->graph, CLV_MAXIMUM, operand(im, in, 1), operand(im, in, 0));
    return finish(im, op, clv_binary(im->graph, CLV_MINIMUM, low, operand(im, in, 2)), out, err);
}

/* A float is truncated, to the nearest number that the type has; of unsigned types 0 is the least. */
static clv_status convert(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    CLV_TRY(need(im, op, 1, err));
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    clv_value x = clv_cast(im->graph, operand(im, in, 0), type.dtype);
    int bits = op->result_types[0].unsigned_bits;
    if (bits && clv_dtype_is_float(in[0].type.dtype))
        x = clv_binary(im->graph, CLV_MAXIMUM, x, clv_fill(im->graph, type.dtype, 0, NULL, 0));
    if (bits == 32 && clv_dtype_is_float(in[0].type.dtype))
        x = clv_binary(im->graph, CLV_MINIMUM, x, clv_fill(im->graph, type.dtype, 0, NULL, UINT32_MAX));
    return finish(im, op, x, out, err);
}

/* Of i32, its 32 bits. */
static clv_status shift(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    CLV_TRY(need(im, op, 2, err));
    clv_dtype dtype = in[0].type.dtype;
    clv_value x = operand(im, in, 0), by = operand(im, in, 1);
    clv_pointwise_kind kind = (clv_pointwise_kind)im->row->kind;
    if (kind == CLV_SHIFT_RIGHT_LOGICAL && dtype == CLV_I32) {
        clv_value bits = clv_fill(im->graph, CLV_I64, 0, NULL, UINT32_MAX);
        x = clv_pointwise(im->graph, CLV_AND, clv_cast(im->graph, x, CLV_I64), bits);
        x = clv_pointwise(im->graph, kind, x, clv_cast(im->graph, by, CLV_I64));
        return finish(im, op, clv_cast(im->graph, x, dtype), out, err);
    }
    return finish(im, op, clv_pointwise(im->graph, kind, x, by), out, err);
}

/* The same bits as another dtype of the same size. */
static clv_status bitcast(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    CLV_TRY(need(im, op, 1, err));
    CLV_TRY(import_type(&type, im, &op->result_types[0], err));
    clv_dtype from = in[0].type.dtype;
    clv_value x = operand(im, in, 0);
    bool to_float = clv_dtype_is_float(type.dtype), from_float = clv_dtype_is_float(from);
    if (!from_float && type.dtype == CLV_F32)
        x = clv_cast(im->graph, x, CLV_I32);
    if (to_float != from_float)
        x = clv_pointwise(im->graph, to_float ? CLV_FLOAT_OF_BITS : CLV_BITS_OF_FLOAT, x, CLV_NONE);
    else if (to_float && from != type.dtype)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "of %s", clv_dtype_name(from));
    return finish(im, op, clv_cast(im->graph, x, type.dtype), out, err);
}

/* Of a format that the dtype has: nothing is rounded (jax.checkpoint's policies write it so); of bf16's: it is. */
static clv_status reduce_precision(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const mlir_attr *format = mlir_find_attr(op->attrs, op->n_attrs, "format");
    const mlir_attr *e = mlir_find_attr(op->attrs, op->n_attrs, "exponent_bits");
    const mlir_attr *m = mlir_find_attr(op->attrs, op->n_attrs, "mantissa_bits");
    double exponent = 0, mantissa = 0; /* of 1 to 99 bits, and 0 to 99 */
    int of_exponent, of_mantissa, end = 0;
    CLV_TRY(need(im, op, 1, err));
    if (e && m)
        exponent = (double)e->number, mantissa = (double)m->number;
    else if (format && format->text && sscanf(format->text, "e%2dm%2d%n", &of_exponent, &of_mantissa, &end) == 2 &&
             format->text[end] == '\0')
        exponent = of_exponent, mantissa = of_mantissa;
    if (!(exponent >= 1 && exponent <= 99 && mantissa >= 0 && mantissa <= 99))
        return import_fail(im, op, err, CLV_ESYNTAX, "no format, as e8m23");
    static const struct {
        clv_dtype dtype;
        int exponent, mantissa;
    } formats[] = {{CLV_F64, 11, 52}, {CLV_F32, 8, 23}, {CLV_F16, 5, 10}, {CLV_BF16, 8, 7}};
    const clv_dtype dtype = in[0].type.dtype;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].dtype == dtype && exponent >= formats[i].exponent && mantissa >= formats[i].mantissa) {
            out[0] = in[0];
            return CLV_OK;
        }
    if (dtype != CLV_F32 || exponent != 8 || mantissa != 7)
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "e%.0fm%.0f of %s; valid: a format that it has, and e8m7 of f32", exponent, mantissa,
                           clv_dtype_name(dtype));
    return finish(im, op, clv_cast(im->graph, clv_cast(im->graph, operand(im, in, 0), CLV_BF16), dtype), out, err);
}

static clv_value polynomial(clv_graph *g, clv_value x, const float *terms)
{
    clv_value sum = clv_fill(g, CLV_F32, 0, NULL, terms[0]);
    for (int i = 1; i < CLV_ERF_INV_TERMS; i++)
        sum = clv_add(g, clv_mul(g, sum, x), clv_fill(g, CLV_F32, 0, NULL, terms[i]));
    return sum;
}

/* The inverse of erf, of which jax.random.normal is made, as XLA has it for f32. */
static clv_status erf_inv(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    CLV_TRY(need(im, op, 1, err));
    if (in[0].type.dtype != CLV_F32)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "of %s; valid: f32", clv_dtype_name(in[0].type.dtype));
    clv_graph *g = im->graph;
    clv_value x = operand(im, in, 0), one = clv_fill(g, CLV_F32, 0, NULL, 1);
    clv_value minus_square = clv_unary(g, CLV_NEG, clv_mul(g, x, x));
    clv_value w = clv_unary(g, CLV_NEG, clv_pointwise(g, CLV_LOG1P, minus_square, CLV_NONE));
    clv_value near = polynomial(g, clv_sub(g, w, clv_fill(g, CLV_F32, 0, NULL, 2.5)), clv_erf_inv_centre);
    clv_value far = clv_sub(g, clv_unary(g, CLV_SQRT, w), clv_fill(g, CLV_F32, 0, NULL, 3));
    clv_value is_near = clv_pointwise(g, CLV_LESS, w, clv_fill(g, CLV_F32, 0, NULL, 5));
    clv_value factor = clv_where(g, is_near, near, polynomial(g, far, clv_erf_inv_tails));
    clv_value at_end = clv_pointwise(g, CLV_EQUAL, clv_pointwise(g, CLV_ABS, x, CLV_NONE), one);
    return finish(im, op, clv_mul(g, x, clv_where(g, at_end, clv_fill(g, CLV_F32, 0, NULL, INFINITY), factor)), out,
                  err);
}

#define ROW(name, build, kind)                                                                                         \
    {                                                                                                                  \
        "stablehlo." name, build, kind, true, false                                                                    \
    }
#define CHLO(name, build, kind)                                                                                        \
    {                                                                                                                  \
        "chlo." name, build, kind, true, false                                                                         \
    }
const import_row import_elementwise_rows[] = {
    ROW("exponential", unary, CLV_EXP),
    ROW("log", unary, CLV_LOG),
    ROW("tanh", unary, CLV_TANH),
    ROW("logistic", unary, CLV_SIGMOID),
    ROW("rsqrt", unary, CLV_RSQRT),
    ROW("sqrt", unary, CLV_SQRT),
    ROW("negate", negate, 0),
    ROW("sine", pointwise, CLV_SIN),
    ROW("cosine", pointwise, CLV_COS),
    ROW("tan", pointwise, CLV_TAN),
    ROW("abs", pointwise, CLV_ABS),
    ROW("sign", pointwise, CLV_SIGN),
    ROW("floor", pointwise, CLV_FLOOR),
    ROW("ceil", pointwise, CLV_CEIL),
    ROW("round_nearest_even", pointwise, CLV_ROUND_EVEN),
    ROW("round_nearest_afz", pointwise, CLV_ROUND_AWAY),
    ROW("log_plus_one", pointwise, CLV_LOG1P),
    ROW("exponential_minus_one", pointwise, CLV_EXPM1),
    ROW("cbrt", pointwise, CLV_CBRT),
    ROW("not", pointwise, CLV_NOT),
    ROW("is_finite", pointwise, CLV_IS_FINITE),
    ROW("atan2", pointwise, CLV_ATAN2),
    ROW("power", pointwise, CLV_POWER),
    ROW("remainder", pointwise, CLV_REMAINDER),
    ROW("and", pointwise, CLV_AND),
    ROW("or", pointwise, CLV_OR),
    ROW("xor", pointwise, CLV_XOR),
    ROW("add", binary, CLV_ADD),
    ROW("subtract", binary, CLV_SUB),
    ROW("multiply", binary, CLV_MUL),
    ROW("divide", binary, CLV_DIV),
    ROW("maximum", binary, CLV_MAXIMUM),
    ROW("minimum", binary, CLV_MINIMUM),
    ROW("compare", compare, 0),
    ROW("select", select, 0),
    ROW("clamp", clamp, 0),
    ROW("convert", convert, 0),
    ROW("shift_left", shift, CLV_SHIFT_LEFT),
    ROW("shift_right_logical", shift, CLV_SHIFT_RIGHT_LOGICAL),
    ROW("shift_right_arithmetic", shift, CLV_SHIFT_RIGHT_ARITHMETIC),
    ROW("bitcast_convert", bitcast, 0),
    ROW("reduce_precision", reduce_precision, 0),
    CHLO("erf", pointwise, CLV_ERF),
    CHLO("erfc", pointwise, CLV_ERFC),
    CHLO("erf_inv", erf_inv, 0),
    CHLO("square", square, 0),
    {0},
};
