/* aten_elementwise.c - ATen's functions of elements: a row each; what only changes a dtype, or nothing. */
#include <math.h>

#include "interop/torch/aten.h"

/* ---- of one operand ---- */

/* The operand in the result's dtype: of integers, PyTorch computes in floats. */
static clv_status operand_of(clv_value *x, clv_type *type, importer *im, const mlir_op *op, const imported *in,
                             clv_error *err)
{
    const imported *self;
    CLV_TRY(aten_result(type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, aten_argument(op, "input") ? "input" : "self", err));
    *x = aten_compact(im, self, type->dtype);
    return CLV_OK;
}

static clv_status unary(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value x;
    CLV_TRY(operand_of(&x, &type, im, op, in, err));
    out[0] = aten_repeats(im, &type, clv_unary(im->graph, (clv_unary_kind)im->row->kind, x));
    return CLV_OK;
}

static clv_status pointwise(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value x;
    CLV_TRY(operand_of(&x, &type, im, op, in, err));
    out[0] = aten_repeats(im, &type, clv_pointwise(im->graph, (clv_pointwise_kind)im->row->kind, x, CLV_NONE));
    return CLV_OK;
}

static clv_status negate(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value x;
    CLV_TRY(operand_of(&x, &type, im, op, in, err));
    x = clv_dtype_is_float(type.dtype) ? clv_unary(im->graph, CLV_NEG, x)
                                       : clv_sub(im->graph, clv_fill(im->graph, type.dtype, 0, NULL, 0), x);
    out[0] = aten_repeats(im, &type, x);
    return CLV_OK;
}

static clv_status reciprocal(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value x;
    CLV_TRY(operand_of(&x, &type, im, op, in, err));
    out[0] = aten_repeats(im, &type, clv_div(im->graph, clv_fill(im->graph, type.dtype, 0, NULL, 1), x));
    return CLV_OK;
}

static clv_status square(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value x;
    CLV_TRY(operand_of(&x, &type, im, op, in, err));
    out[0] = aten_repeats(im, &type, clv_mul(im->graph, x, x));
    return CLV_OK;
}

static clv_status gelu(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const mlir_attr *approximate = aten_argument(op, "approximate");
    clv_type type;
    clv_value x;
    bool by_tanh = approximate && approximate->kind == MLIR_STRING && approximate->text[0] == 't';
    CLV_TRY(operand_of(&x, &type, im, op, in, err));
    out[0] = aten_repeats(im, &type, clv_unary(im->graph, by_tanh ? CLV_GELU_TANH : CLV_GELU, x));
    return CLV_OK;
}

static clv_status not_a_number(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    clv_type type;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    clv_value x = imported_compact(im, self);
    out[0] = aten_repeats(im, &type, clv_pointwise(im->graph, CLV_NOT_EQUAL, x, x));
    return CLV_OK;
}

/* The same elements, in the result's dtype. */
static clv_status convert(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    if (op->n_operands < 1)
        return import_fail(im, op, err, CLV_ESYNTAX, "no operand");
    CLV_TRY(aten_result(&type, im, op, 0, err));
    if (in[0].type.dtype == type.dtype)
        out[0] = in[0];
    else if (type.dtype == CLV_BOOL)
        out[0] = aten_repeats(im, &type,
                              clv_pointwise(im->graph, CLV_NOT_EQUAL, imported_compact(im, &in[0]),
                                            clv_fill(im->graph, in[0].type.dtype, 0, NULL, 0)));
    else
        out[0] = aten_repeats(im, &type, aten_compact(im, &in[0], type.dtype));
    return CLV_OK;
}

/* The operand, which gets no gradient. */
static clv_status detached(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    CLV_TRY(convert(im, op, in, out, err));
    if (im->gradients && !out[0].known && clv_valid(out[0].value))
        out[0].value = aten_stop_gradient(im, out[0].value);
    return CLV_OK;
}

static clv_status dropout(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    double p;
    int64_t train;
    CLV_TRY(aten_real(&p, im, op, "p", 0, err));
    CLV_TRY(aten_int(&train, im, op, "train", 0, err));
    if (train && p != 0)
        return import_fail(im, op, err, CLV_EUNSUPPORTED,
                           "dropout with p=%g: random numbers are not supported; export the module after .eval()", p);
    return convert(im, op, in, out, err);
}

/* An assertion of what was true when the program was exported. */
static clv_status nothing(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    return CLV_OK;
}

/* ---- of two operands ---- */

static void two_operands(clv_value *a, clv_value *b, importer *im, const mlir_op *op, const imported *in,
                         clv_dtype dtype)
{
    *a = aten_operand(im, op, in, "self", dtype);
    *b = aten_operand(im, op, in, "other", dtype);
}

static bool number_of(double *out, const mlir_op *op, const imported *in, const char *name)
{
    const mlir_attr *attr = aten_argument(op, name);
    const imported *x = aten_optional(op, in, name);
    int64_t whole;
    if (x)
        return imported_number(x, out, &whole);
    *out = attr ? attr->real : 0;
    return attr && (attr->kind == MLIR_INT || attr->kind == MLIR_REAL);
}

static clv_value times(importer *im, clv_value x, clv_dtype dtype, double alpha)
{
    return alpha == 1                  ? x
           : clv_dtype_is_float(dtype) ? clv_scale(im->graph, x, alpha)
                                       : clv_mul(im->graph, x, clv_fill(im->graph, dtype, 0, NULL, alpha));
}

/* a + alpha b, a - alpha b */
static clv_status sum(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value a, b;
    double alpha;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_real(&alpha, im, op, "alpha", 1, err));
    two_operands(&a, &b, im, op, in, type.dtype);
    if (type.dtype == CLV_BOOL) {
        out[0] = aten_repeats(im, &type, clv_pointwise(im->graph, CLV_OR, a, b));
        return CLV_OK;
    }
    b = times(im, b, type.dtype, alpha);
    out[0] = aten_repeats(im, &type, clv_binary(im->graph, (clv_binary_kind)im->row->kind, a, b));
    return CLV_OK;
}

/* b - alpha a */
static clv_status reversed(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value a, b;
    double alpha;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_real(&alpha, im, op, "alpha", 1, err));
    two_operands(&a, &b, im, op, in, type.dtype);
    a = times(im, a, type.dtype, alpha);
    out[0] = aten_repeats(im, &type, clv_sub(im->graph, b, a));
    return CLV_OK;
}

static clv_status multiply(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value a, b;
    double factor;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    if (clv_dtype_is_float(type.dtype) && number_of(&factor, op, in, "other")) {
        clv_value x = clv_scale(im->graph, aten_operand(im, op, in, "self", type.dtype), factor);
        out[0] = aten_repeats(im, &type, x);
        return CLV_OK;
    }
    two_operands(&a, &b, im, op, in, type.dtype);
    clv_value product = type.dtype == CLV_BOOL ? clv_pointwise(im->graph, CLV_AND, a, b) : clv_mul(im->graph, a, b);
    out[0] = aten_repeats(im, &type, product);
    return CLV_OK;
}

/* A quotient, rounded as rounding_mode says. */
static clv_status divide(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const mlir_attr *mode = aten_argument(op, "rounding_mode");
    bool floors = im->row->kind || (mode && mode->kind == MLIR_STRING && mode->text[0] == 'f'),
         truncates = mode && mode->kind == MLIR_STRING && mode->text[0] == 't';
    clv_type type;
    clv_value a, b;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    two_operands(&a, &b, im, op, in, type.dtype);
    bool whole = !clv_dtype_is_float(type.dtype);
    clv_value zero = clv_fill(im->graph, type.dtype, 0, NULL, 0), x = clv_div(im->graph, a, b);
    if (floors && whole) { /* the quotient is truncated: one less, where the remainder has not the divisor's sign */
        clv_value rest = clv_pointwise(im->graph, CLV_REMAINDER, a, b);
        clv_value less = clv_pointwise(im->graph, CLV_LESS, clv_mul(im->graph, rest, b), zero);
        x = clv_sub(im->graph, x, clv_cast(im->graph, less, type.dtype));
    } else if (floors)
        x = clv_pointwise(im->graph, CLV_FLOOR, x, CLV_NONE);
    else if (truncates && !whole)
        x = clv_where(im->graph, clv_pointwise(im->graph, CLV_LESS, x, zero),
                      clv_pointwise(im->graph, CLV_CEIL, x, CLV_NONE),
                      clv_pointwise(im->graph, CLV_FLOOR, x, CLV_NONE));
    out[0] = aten_repeats(im, &type, x);
    return CLV_OK;
}

/* The remainder that has the divisor's sign, as Python's. */
static clv_status remainder_of(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value a, b;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    two_operands(&a, &b, im, op, in, type.dtype);
    clv_value rest = clv_pointwise(im->graph, CLV_REMAINDER, a, b), zero = clv_fill(im->graph, type.dtype, 0, NULL, 0);
    clv_value other = clv_pointwise(im->graph, CLV_XOR, clv_pointwise(im->graph, CLV_LESS, rest, zero),
                                    clv_pointwise(im->graph, CLV_LESS, b, zero));
    clv_value moved = clv_pointwise(im->graph, CLV_AND, other, clv_pointwise(im->graph, CLV_NOT_EQUAL, rest, zero));
    out[0] = aten_repeats(im, &type, clv_where(im->graph, moved, clv_add(im->graph, rest, b), rest));
    return CLV_OK;
}

static clv_status binary(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value a, b;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    two_operands(&a, &b, im, op, in, type.dtype);
    clv_value x = im->row->kind < CLV_SIN ? clv_binary(im->graph, (clv_binary_kind)im->row->kind, a, b)
                                          : clv_pointwise(im->graph, (clv_pointwise_kind)im->row->kind, a, b);
    out[0] = aten_repeats(im, &type, x);
    return CLV_OK;
}

/* Powers that have gradients are products and roots. */
static clv_status power(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    double exponent;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    clv_value x = aten_operand(im, op, in, "self", type.dtype), y = CLV_NONE;
    bool known = number_of(&exponent, op, in, "exponent");
    if (known && (exponent == 2 || exponent == 3))
        y = clv_mul(im->graph, x, exponent == 2 ? x : clv_mul(im->graph, x, x));
    else if (known && exponent == 1)
        y = x;
    else if (known && (exponent == 0.5 || exponent == -0.5) && clv_dtype_is_float(type.dtype))
        y = clv_unary(im->graph, exponent > 0 ? CLV_SQRT : CLV_RSQRT, x);
    else if (known && exponent == -1 && clv_dtype_is_float(type.dtype))
        y = clv_div(im->graph, clv_fill(im->graph, type.dtype, 0, NULL, 1), x);
    else
        y = clv_pointwise(im->graph, CLV_POWER, x, aten_operand(im, op, in, "exponent", type.dtype));
    out[0] = aten_repeats(im, &type, y);
    return CLV_OK;
}

static clv_status compare(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value a, b;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    two_operands(&a, &b, im, op, in, aten_promoted(op, in, "self", "other"));
    out[0] = aten_repeats(im, &type, clv_pointwise(im->graph, (clv_pointwise_kind)im->row->kind, a, b));
    return CLV_OK;
}

/* Of whether operands are not 0. */
static clv_value truth(importer *im, const imported *x)
{
    clv_value value = imported_compact(im, x);
    return x->type.dtype == CLV_BOOL
               ? value
               : clv_pointwise(im->graph, CLV_NOT_EQUAL, value, clv_fill(im->graph, x->type.dtype, 0, NULL, 0));
}

static clv_status logic(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    bool one = im->row->kind == CLV_NOT;
    if (op->n_operands != (one ? 1 : 2))
        return import_fail(im, op, err, CLV_ESYNTAX, "%d operands", op->n_operands);
    CLV_TRY(aten_result(&type, im, op, 0, err));
    clv_value b = one ? CLV_NONE : truth(im, &in[1]);
    out[0] = aten_repeats(im, &type, clv_pointwise(im->graph, (clv_pointwise_kind)im->row->kind, truth(im, &in[0]), b));
    return CLV_OK;
}

/* ---- of three ---- */

/* One of two operands, by a condition; all are given by name. */
static clv_status choose(importer *im, const mlir_op *op, const imported *in, imported *out, const char *condition,
                         const char *then, const char *otherwise, clv_error *err)
{
    const imported *x;
    clv_type type;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&x, im, op, in, condition, err));
    clv_value c = truth(im, x), a = aten_operand(im, op, in, then, type.dtype),
              b = aten_operand(im, op, in, otherwise, type.dtype);
    out[0] = aten_repeats(im, &type, clv_where(im->graph, c, a, b));
    return CLV_OK;
}

static clv_status where(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    return choose(im, op, in, out, "condition", "self", "other", err);
}

static clv_status masked_fill(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    return choose(im, op, in, out, "mask", "value", "self", err);
}

static clv_status clamp(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    clv_type type;
    clv_value x;
    CLV_TRY(operand_of(&x, &type, im, op, in, err));
    if (aten_argument(op, "min"))
        x = clv_binary(im->graph, CLV_MAXIMUM, x, aten_operand(im, op, in, "min", type.dtype));
    if (aten_argument(op, "max"))
        x = clv_binary(im->graph, CLV_MINIMUM, x, aten_operand(im, op, in, "max", type.dtype));
    out[0] = aten_repeats(im, &type, x);
    return CLV_OK;
}

#undef ATEN
#define ATEN(name, build, kind)                                                                                        \
    {                                                                                                                  \
        "aten." name, build, kind, true, false                                                                         \
    }
/* Tensor-with-tensor and tensor-with-number forms of one function. */
#define BOTH(name, build, kind) ATEN(name ".Tensor", build, kind), ATEN(name ".Scalar", build, kind)
const import_row aten_elementwise_rows[] = {
    ATEN("exp.default", unary, CLV_EXP),
    ATEN("log.default", unary, CLV_LOG),
    ATEN("tanh.default", unary, CLV_TANH),
    ATEN("sigmoid.default", unary, CLV_SIGMOID),
    ATEN("silu.default", unary, CLV_SILU),
    ATEN("relu.default", unary, CLV_RELU),
    ATEN("rsqrt.default", unary, CLV_RSQRT),
    ATEN("sqrt.default", unary, CLV_SQRT),
    ATEN("gelu.default", gelu, 0),
    ATEN("neg.default", negate, 0),
    ATEN("reciprocal.default", reciprocal, 0),
    ATEN("square.default", square, 0),
    ATEN("sin.default", pointwise, CLV_SIN),
    ATEN("cos.default", pointwise, CLV_COS),
    ATEN("tan.default", pointwise, CLV_TAN),
    ATEN("abs.default", pointwise, CLV_ABS),
    ATEN("sign.default", pointwise, CLV_SIGN),
    ATEN("floor.default", pointwise, CLV_FLOOR),
    ATEN("ceil.default", pointwise, CLV_CEIL),
    ATEN("round.default", pointwise, CLV_ROUND_EVEN),
    ATEN("erf.default", pointwise, CLV_ERF),
    ATEN("erfc.default", pointwise, CLV_ERFC),
    ATEN("log1p.default", pointwise, CLV_LOG1P),
    ATEN("expm1.default", pointwise, CLV_EXPM1),
    ATEN("bitwise_not.default", pointwise, CLV_NOT),
    ATEN("isnan.default", not_a_number, 0),
    ATEN("logical_not.default", logic, CLV_NOT),
    ATEN("logical_and.default", logic, CLV_AND),
    ATEN("logical_or.default", logic, CLV_OR),
    ATEN("logical_xor.default", logic, CLV_XOR),
    ATEN("to.dtype", convert, 0),
    ATEN("to.dtype_layout", convert, 0),
    ATEN("to.device", convert, 0),
    ATEN("_to_copy.default", convert, 0),
    ATEN("type_as.default", convert, 0),
    ATEN("contiguous.default", convert, 0),
    ATEN("clone.default", convert, 0),
    ATEN("alias.default", convert, 0),
    ATEN("detach.default", detached, 0),
    ATEN("lift_fresh_copy.default", convert, 0),
    ATEN("dropout.default", dropout, 0),
    ATEN("_assert_tensor_metadata.default", nothing, 0),
    BOTH("add", sum, CLV_ADD),
    BOTH("sub", sum, CLV_SUB),
    BOTH("rsub", reversed, 0),
    BOTH("mul", multiply, 0),
    BOTH("div", divide, 0),
    ATEN("div.Tensor_mode", divide, 0),
    ATEN("floor_divide.default", divide, 1),
    BOTH("remainder", remainder_of, 0),
    ATEN("maximum.default", binary, CLV_MAXIMUM),
    ATEN("minimum.default", binary, CLV_MINIMUM),
    ATEN("atan2.default", binary, CLV_ATAN2),
    BOTH("bitwise_and", binary, CLV_AND),
    BOTH("bitwise_or", binary, CLV_OR),
    BOTH("bitwise_xor", binary, CLV_XOR),
    BOTH("__and__", binary, CLV_AND),
    BOTH("__or__", binary, CLV_OR),
    BOTH("__xor__", binary, CLV_XOR),
    ATEN("pow.Tensor_Scalar", power, 0),
    ATEN("pow.Tensor_Tensor", power, 0),
    ATEN("pow.Scalar", power, 0),
    BOTH("eq", compare, CLV_EQUAL),
    BOTH("ne", compare, CLV_NOT_EQUAL),
    BOTH("lt", compare, CLV_LESS),
    BOTH("le", compare, CLV_LESS_EQUAL),
    BOTH("gt", compare, CLV_GREATER),
    BOTH("ge", compare, CLV_GREATER_EQUAL),
    ATEN("where.self", where, 0),
    ATEN("where.ScalarOther", where, 0),
    ATEN("where.ScalarSelf", where, 0),
    ATEN("where.Scalar", where, 0),
    ATEN("masked_fill.Scalar", masked_fill, 0),
    ATEN("masked_fill.Tensor", masked_fill, 0),
    ATEN("clamp.default", clamp, 0),
    ATEN("clamp.Tensor", clamp, 0),
    ATEN("clamp_min.default", clamp, 0),
    ATEN("clamp_max.default", clamp, 0),
    {0},
};
