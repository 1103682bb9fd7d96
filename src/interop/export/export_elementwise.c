/* export_elementwise.c - elementwise ops as StableHLO: functions and their derivatives, choices, gated units. */
#include <math.h>

#include "kernels/cpu/elementwise_kernel.h"
#include "ops/builtin_ops.h"
#include "interop/export/exporter.h"

static const double root_2_over_pi = 0.79788456080286535588, root_half = 0.70710678118654752440, gelu_cubic = 0.044715;

/* ---- functions ---- */

/* tanh(sqrt(2 / pi) (x + 0.044715 x^3)) */
static exported gelu_tanh(exporter *ex, exported x)
{
    exported square = export_binary(ex, "multiply", x, x);
    exported factor = export_with(ex, "add", export_with(ex, "multiply", square, gelu_cubic), 1);
    exported inner = export_with(ex, "multiply", export_binary(ex, "multiply", x, factor), root_2_over_pi);
    return export_unary(ex, "tanh", inner);
}

static exported gelu_erf(exporter *ex, exported x)
{
    return export_unary(ex, "chlo.erf", export_with(ex, "multiply", x, root_half));
}

/* x (1 + t) / 2 */
static exported gelu(exporter *ex, exported x, exported t)
{
    return export_binary(ex, "multiply", x, export_with(ex, "multiply", export_with(ex, "add", t, 1), 0.5));
}

exported export_function(exporter *ex, int op, exported x)
{
    static const char *const names[CLV_UNARY_COUNT] = {
        [CLV_UNARY_EXP] = "exponential",  [CLV_UNARY_LOG] = "log",     [CLV_UNARY_TANH] = "tanh",
        [CLV_UNARY_SIGMOID] = "logistic", [CLV_UNARY_RSQRT] = "rsqrt", [CLV_UNARY_SQRT] = "sqrt",
        [CLV_UNARY_NEG] = "negate"};
    const clv_dtype dtype = x.type.dtype;
    if (names[op])
        return export_unary(ex, names[op], x);
    x = export_math(ex, x);
    if (op == CLV_UNARY_RELU)
        x = export_with(ex, "maximum", x, 0);
    else if (op == CLV_UNARY_SILU)
        x = export_binary(ex, "multiply", x, export_unary(ex, "logistic", x));
    else
        x = gelu(ex, x, op == CLV_UNARY_GELU_ERF ? gelu_erf(ex, x) : gelu_tanh(ex, x));
    return export_cast(ex, x, dtype);
}

/* 1 - x */
static exported rest(exporter *ex, exported x)
{
    return export_with(ex, "add", export_unary(ex, "negate", x), 1);
}

/* (1 + erf(x / sqrt 2)) / 2 + x exp(-x^2 / 2) / sqrt(2 pi) */
static exported slope_of_gelu_erf(exporter *ex, exported x)
{
    exported half = export_with(ex, "multiply", export_with(ex, "add", gelu_erf(ex, x), 1), 0.5);
    exported square = export_with(ex, "multiply", export_binary(ex, "multiply", x, x), -0.5);
    exported bell = export_with(ex, "multiply", export_unary(ex, "exponential", square), root_2_over_pi / 2);
    return export_binary(ex, "add", half, export_binary(ex, "multiply", x, bell));
}

/* (1 + t) / 2 + x (1 - t^2) sqrt(2 / pi) (1 + 3 * 0.044715 x^2) / 2 */
static exported slope_of_gelu_tanh(exporter *ex, exported x)
{
    exported t = gelu_tanh(ex, x), square = export_binary(ex, "multiply", x, x);
    exported half = export_with(ex, "multiply", export_with(ex, "add", t, 1), 0.5);
    exported inner = export_with(ex, "add", export_with(ex, "multiply", square, 3 * gelu_cubic), 1);
    exported falls = export_binary(ex, "multiply", x, rest(ex, export_binary(ex, "multiply", t, t)));
    exported steep = export_with(ex, "multiply", export_binary(ex, "multiply", falls, inner), root_2_over_pi / 2);
    return export_binary(ex, "add", half, steep);
}

/* s (1 + x (1 - s)) */
static exported slope_of_silu(exporter *ex, exported x)
{
    exported s = export_unary(ex, "logistic", x);
    exported more = export_with(ex, "add", export_binary(ex, "multiply", x, rest(ex, s)), 1);
    return export_binary(ex, "multiply", s, more);
}

/* x: the result of the function where the kernel keeps that (clv_unary_saved_for_backward). */
static exported slope(exporter *ex, int op, exported x)
{
    switch (op) {
    case CLV_UNARY_EXP:
        return x;
    case CLV_UNARY_LOG:
        return export_binary(ex, "divide", export_number(ex, x.type.dtype, 1), x);
    case CLV_UNARY_TANH:
        return rest(ex, export_binary(ex, "multiply", x, x));
    case CLV_UNARY_SIGMOID:
        return export_binary(ex, "multiply", x, rest(ex, x));
    case CLV_UNARY_RSQRT:
        return export_with(ex, "multiply", export_binary(ex, "multiply", export_binary(ex, "multiply", x, x), x), -0.5);
    case CLV_UNARY_SQRT:
        return export_binary(ex, "divide", export_number(ex, x.type.dtype, 0.5), x);
    case CLV_UNARY_SILU:
        return slope_of_silu(ex, x);
    case CLV_UNARY_GELU_ERF:
        return slope_of_gelu_erf(ex, x);
    case CLV_UNARY_GELU_TANH:
        return slope_of_gelu_tanh(ex, x);
    default: /* ReLU */
        return export_cast(ex, export_compare(ex, "GT", x, export_number(ex, x.type.dtype, 0)), x.type.dtype);
    }
}

exported export_derivative(exporter *ex, int op, exported d, exported saved)
{
    exported product = export_binary(ex, "multiply", export_math(ex, d), slope(ex, op, export_math(ex, saved)));
    return export_cast(ex, product, d.type.dtype);
}

static void map(exporter *ex, const exported *in, exported *out)
{
    const int op = (int)export_whole(ex, "op", 0);
    if (op == CLV_UNARY_COPY)
        out[0] = in[0];
    else if (op == CLV_UNARY_SCALE)
        out[0] = export_with(ex, "multiply", in[0], export_real(ex, "factor"));
    else
        out[0] = export_function(ex, op, in[0]);
}

static void map_gradient(exporter *ex, const exported *in, exported *out)
{
    out[0] = export_derivative(ex, (int)export_whole(ex, "op", 0), in[0], in[1]);
}

/* ---- two operands ---- */

static void combine(exporter *ex, const exported *in, exported *out)
{
    static const char *const names[CLV_BINARY_COUNT] = {
        [CLV_BINARY_ADD] = "add",    [CLV_BINARY_SUB] = "subtract", [CLV_BINARY_MUL] = "multiply",
        [CLV_BINARY_DIV] = "divide", [CLV_BINARY_MAX] = "maximum",  [CLV_BINARY_MIN] = "minimum"};
    out[0] = export_binary(ex, names[export_whole(ex, "op", 0)], in[0], in[1]);
}

/* d where a was chosen, half of it at a tie, else 0. */
static void choice_gradient(exporter *ex, const exported *in, exported *out)
{
    const char *chosen = export_whole(ex, "op", 0) == CLV_BINARY_MAX ? "GT" : "LT";
    exported zero = export_number(ex, in[0].type.dtype, 0), half = export_with(ex, "multiply", in[0], 0.5);
    exported tie = export_select(ex, export_compare(ex, "EQ", in[1], in[2]), half, zero);
    out[0] = export_select(ex, export_compare(ex, chosen, in[1], in[2]), in[0], tie);
}

static exported truth(exporter *ex, exported x)
{
    return x.type.dtype == CLV_BOOL ? x : export_compare(ex, "NE", x, export_number(ex, x.type.dtype, 0));
}

static void where(exporter *ex, const exported *in, exported *out)
{
    out[0] = export_select(ex, truth(ex, in[0]), in[1], in[2]);
}

static void equal(exporter *ex, const exported *in, exported *out)
{
    out[0] = export_cast(ex, export_compare(ex, "EQ", in[0], in[1]), out[0].type.dtype);
}

static void cast(exporter *ex, const exported *in, exported *out)
{
    out[0] = out[0].type.dtype == CLV_BOOL ? truth(ex, in[0]) : export_cast(ex, in[0], out[0].type.dtype);
}

static void fill(exporter *ex, const exported *in, exported *out)
{
    out[0] = export_filled(ex, out[0].type, export_real(ex, "value"));
}

/* ---- fused activations ---- */

static int kind_of(const exporter *ex)
{
    return (int)clv_unary_op_of_kind((clv_unary_kind)export_whole(ex, "kind", 0));
}

static void bias_gelu(exporter *ex, const exported *in, exported *out)
{
    exported x = export_binary(ex, "add", export_math(ex, in[0]), export_math(ex, in[1]));
    out[0] = export_cast(ex, export_function(ex, kind_of(ex), x), in[0].type.dtype);
}

static void bias_gelu_gradient(exporter *ex, const exported *in, exported *out)
{
    exported x = export_binary(ex, "add", export_math(ex, in[1]), export_math(ex, in[2]));
    out[0] = export_derivative(ex, kind_of(ex), in[0], x);
}

/* x [..., 2, F] */
static exported half_of(exporter *ex, exported x, int i)
{
    return export_math(ex, export_at(ex, x, x.type.rank - 2, i));
}

static void gated(exporter *ex, const exported *in, exported *out)
{
    exported gate = export_function(ex, kind_of(ex), half_of(ex, in[0], 0));
    out[0] = export_cast(ex, export_binary(ex, "multiply", gate, half_of(ex, in[0], 1)), in[0].type.dtype);
}

static void gated_gradient(exporter *ex, const exported *in, exported *out)
{
    exported gate = half_of(ex, in[1], 0), up = half_of(ex, in[1], 1), d = export_math(ex, in[0]);
    int halves = in[1].type.rank - 2;
    exported d_gate = export_derivative(ex, kind_of(ex), export_binary(ex, "multiply", d, up), gate);
    exported d_up = export_binary(ex, "multiply", d, export_function(ex, kind_of(ex), gate));
    exported both[] = {export_unsqueeze(ex, d_gate, halves), export_unsqueeze(ex, d_up, halves)};
    out[0] = export_cast(ex, export_join(ex, both, 2, halves), in[1].type.dtype);
}

/* ---- functions of imported programs ---- */

static const struct {
    clv_pointwise_kind kind;
    const char *name; /* of a comparison its direction */
} pointwise_names[] = {
    {CLV_SIN, "sine"},
    {CLV_COS, "cosine"},
    {CLV_TAN, "tan"},
    {CLV_ABS, "abs"},
    {CLV_SIGN, "sign"},
    {CLV_FLOOR, "floor"},
    {CLV_CEIL, "ceil"},
    {CLV_ROUND_EVEN, "round_nearest_even"},
    {CLV_ROUND_AWAY, "round_nearest_afz"},
    {CLV_ERF, "chlo.erf"},
    {CLV_ERFC, "chlo.erfc"},
    {CLV_LOG1P, "log_plus_one"},
    {CLV_EXPM1, "exponential_minus_one"},
    {CLV_CBRT, "cbrt"},
    {CLV_NOT, "not"},
    {CLV_ATAN2, "atan2"},
    {CLV_POWER, "power"},
    {CLV_REMAINDER, "remainder"},
    {CLV_AND, "and"},
    {CLV_OR, "or"},
    {CLV_XOR, "xor"},
    {CLV_LESS, "LT"},
    {CLV_LESS_EQUAL, "LE"},
    {CLV_GREATER, "GT"},
    {CLV_GREATER_EQUAL, "GE"},
    {CLV_EQUAL, "EQ"},
    {CLV_NOT_EQUAL, "NE"},
    {CLV_SHIFT_LEFT, "shift_left"},
    {CLV_SHIFT_RIGHT_LOGICAL, "shift_right_logical"},
    {CLV_SHIFT_RIGHT_ARITHMETIC, "shift_right_arithmetic"},
};

static void pointwise(exporter *ex, const exported *in, exported *out)
{
    const int64_t kind = export_whole(ex, "kind", 0);
    const char *name = NULL;
    for (size_t i = 0; i < sizeof pointwise_names / sizeof *pointwise_names; i++)
        if ((int64_t)pointwise_names[i].kind == kind)
            name = pointwise_names[i].name;
    const bool special = kind == CLV_IS_FINITE || kind == CLV_FLOAT_OF_BITS || kind == CLV_BITS_OF_FLOAT;
    if (!name && !special) {
        ex->fault = "of this kind";
        return;
    }
    if (kind == CLV_IS_FINITE)
        out[0] = export_line(ex, out[0].type, "stablehlo.is_finite %%%d : (%s) -> %s", in[0].id,
                             export_type(&in[0].type).text, export_type(&out[0].type).text);
    else if (kind == CLV_FLOAT_OF_BITS || kind == CLV_BITS_OF_FLOAT)
        out[0] = export_line(ex, out[0].type, "stablehlo.bitcast_convert %%%d : (%s) -> %s", in[0].id,
                             export_type(&in[0].type).text, export_type(&out[0].type).text);
    else if (kind >= CLV_LESS && kind <= CLV_NOT_EQUAL)
        out[0] = export_compare(ex, name, in[0], in[1]);
    else if (ex->op->n_in > 1 && export_given(&in[1]))
        out[0] = export_binary(ex, name, in[0], in[1]);
    else
        out[0] = export_unary(ex, name, in[0]);
}

const export_row export_elementwise_rows[] = {
    {&clv_op_map, map},
    {&clv_op_map_gradient, map_gradient},
    {&clv_op_combine, combine},
    {&clv_op_choice_gradient, choice_gradient},
    {&clv_op_where, where},
    {&clv_op_equal, equal},
    {&clv_op_cast, cast},
    {&clv_op_fill, fill},
    {&clv_op_bias_gelu, bias_gelu},
    {&clv_op_bias_gelu_gradient, bias_gelu_gradient},
    {&clv_op_gated, gated},
    {&clv_op_gated_gradient, gated_gradient},
    {&clv_op_pointwise, pointwise},
    {0},
};
