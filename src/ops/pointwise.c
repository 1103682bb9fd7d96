/* pointwise.c - elementwise ops that only imported programs (StableHLO) have: trigonometry, rounding, logic,
 * comparisons.
 *
 * Models use elementwise.c, whose ops have vectorised kernels and gradients.
 *
 *   out = f(x), f(a, b) with NumPy broadcasting                       factors: pass; not linear
 *
 * Comparisons give bool. Floats are computed in f64 by one function a row of the table, whole numbers in i64. No
 * gradient.
 */
#include <math.h>

#include "ops/builtin_ops.h"

typedef struct pointwise_attrs {
    int kind; /* clv_pointwise_kind */
} pointwise_attrs;

static const clv_attr pointwise_fields[] = {CLV_FIELD(INT, pointwise_attrs, kind), {0}};

/* ---- functions: of floats, of whole numbers ---- */

typedef double real_fn(double a, double b);
typedef int64_t whole_fn(int64_t a, int64_t b);

#define REAL(name, value)                                                                                              \
    static double real_##name(double a, double b)                                                                      \
    {                                                                                                                  \
        (void)b;                                                                                                       \
        return (value);                                                                                                \
    }
#define WHOLE(name, value)                                                                                             \
    static int64_t whole_##name(int64_t a, int64_t b)                                                                  \
    {                                                                                                                  \
        (void)a, (void)b;                                                                                              \
        return (int64_t)(value);                                                                                       \
    }
#define COMPARES(name, value) REAL(name, value) WHOLE(name, value)

/* a^b of whole numbers by squaring; 1/a for b < 0, which is 0 but for 1 and -1 (XLA's). */
static int64_t whole_power(int64_t a, int64_t b)
{
    uint64_t result = 1, base = (uint64_t)a;
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : a == 0 ? -1 : 0;
    for (; b > 0; b >>= 1, base *= base)
        result *= b & 1 ? base : 1;
    return (int64_t)result;
}

REAL(bits, a) /* of functions that copy bytes: which operands are valid */
WHOLE(bits, a)
REAL(sin, sin(a))
REAL(cos, cos(a))
REAL(tan, tan(a))
REAL(abs, fabs(a))
REAL(sign, a > 0 ? 1 : a < 0 ? -1 : a)
REAL(floor, floor(a))
REAL(ceil, ceil(a))
REAL(round_even, rint(a))
REAL(round_away, round(a))
REAL(erf, erf(a))
REAL(erfc, erfc(a))
REAL(log1p, log1p(a))
REAL(expm1, expm1(a))
REAL(cbrt, cbrt(a))
REAL(atan2, atan2(a, b))
REAL(power, pow(a, b))
REAL(remainder, fmod(a, b))
REAL(is_finite, isfinite(a) != 0)
WHOLE(abs, a < 0 ? -(uint64_t)a : (uint64_t)a)
WHOLE(sign, (a > 0) - (a < 0))
WHOLE(not, ~a)
WHOLE(and, a &b)
WHOLE(or, a | b)
WHOLE(xor, a ^ b)
WHOLE(remainder, b == 0 || b == -1 ? (b == 0 ? a : 0) : a % b)
WHOLE(is_finite, 1)
WHOLE(shift_left, b<0 || b> 63 ? 0 : (uint64_t)a << b)
WHOLE(shift_right_logical, b<0 || b> 63 ? 0 : (uint64_t)a >> b)
WHOLE(shift_right_arithmetic, a >> (b < 0 || b > 63 ? 63 : b))
COMPARES(less, a < b)
COMPARES(less_equal, a <= b)
COMPARES(greater, a > b)
COMPARES(greater_equal, a >= b)
COMPARES(equal, a == b)
COMPARES(not_equal, a != b)

static const struct {
    int operands;
    bool compares;
    real_fn *real;
    whole_fn *whole;
    double flops;
} table[] = {
    [CLV_SIN - CLV_SIN] = {1, false, real_sin, NULL, 20},
    [CLV_COS - CLV_SIN] = {1, false, real_cos, NULL, 20},
    [CLV_TAN - CLV_SIN] = {1, false, real_tan, NULL, 30},
    [CLV_ABS - CLV_SIN] = {1, false, real_abs, whole_abs, 1},
    [CLV_SIGN - CLV_SIN] = {1, false, real_sign, whole_sign, 1},
    [CLV_FLOOR - CLV_SIN] = {1, false, real_floor, NULL, 1},
    [CLV_CEIL - CLV_SIN] = {1, false, real_ceil, NULL, 1},
    [CLV_ROUND_EVEN - CLV_SIN] = {1, false, real_round_even, NULL, 1},
    [CLV_ROUND_AWAY - CLV_SIN] = {1, false, real_round_away, NULL, 1},
    [CLV_ERF - CLV_SIN] = {1, false, real_erf, NULL, 30},
    [CLV_ERFC - CLV_SIN] = {1, false, real_erfc, NULL, 30},
    [CLV_LOG1P - CLV_SIN] = {1, false, real_log1p, NULL, 20},
    [CLV_EXPM1 - CLV_SIN] = {1, false, real_expm1, NULL, 20},
    [CLV_CBRT - CLV_SIN] = {1, false, real_cbrt, NULL, 20},
    [CLV_NOT - CLV_SIN] = {1, false, NULL, whole_not, 1},
    [CLV_ATAN2 - CLV_SIN] = {2, false, real_atan2, NULL, 30},
    [CLV_POWER - CLV_SIN] = {2, false, real_power, whole_power, 40},
    [CLV_REMAINDER - CLV_SIN] = {2, false, real_remainder, whole_remainder, 10},
    [CLV_AND - CLV_SIN] = {2, false, NULL, whole_and, 1},
    [CLV_OR - CLV_SIN] = {2, false, NULL, whole_or, 1},
    [CLV_XOR - CLV_SIN] = {2, false, NULL, whole_xor, 1},
    [CLV_LESS - CLV_SIN] = {2, true, real_less, whole_less, 1},
    [CLV_LESS_EQUAL - CLV_SIN] = {2, true, real_less_equal, whole_less_equal, 1},
    [CLV_GREATER - CLV_SIN] = {2, true, real_greater, whole_greater, 1},
    [CLV_GREATER_EQUAL - CLV_SIN] = {2, true, real_greater_equal, whole_greater_equal, 1},
    [CLV_EQUAL - CLV_SIN] = {2, true, real_equal, whole_equal, 1},
    [CLV_NOT_EQUAL - CLV_SIN] = {2, true, real_not_equal, whole_not_equal, 1},
    [CLV_IS_FINITE - CLV_SIN] = {1, true, real_is_finite, whole_is_finite, 1},
    [CLV_SHIFT_LEFT - CLV_SIN] = {2, false, NULL, whole_shift_left, 1},
    [CLV_SHIFT_RIGHT_LOGICAL - CLV_SIN] = {2, false, NULL, whole_shift_right_logical, 1},
    [CLV_SHIFT_RIGHT_ARITHMETIC - CLV_SIN] = {2, false, NULL, whole_shift_right_arithmetic, 1},
    [CLV_FLOAT_OF_BITS - CLV_SIN] = {1, false, NULL, whole_bits, 0},
    [CLV_BITS_OF_FLOAT - CLV_SIN] = {1, false, real_bits, NULL, 0},
};

/* The dtype of the same size on the other side: of floats for whole numbers; other dtypes as they are. */
static clv_dtype reinterpreted(clv_dtype dtype)
{
    static const clv_dtype pairs[][2] = {{CLV_I32, CLV_F32}, {CLV_I64, CLV_F64}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int side = 0; side < 2; side++)
            if (pairs[i][side] == dtype)
                return pairs[i][!side];
    return dtype;
}

static bool reinterprets(int row)
{
    return row >= CLV_FLOAT_OF_BITS - CLV_SIN;
}

#define KIND_ROW(kind, value) CLV_ENUM_NAME(kind),
static const clv_enum_name kinds[] = {CLV_POINTWISE_KINDS(KIND_ROW){0}};

static int row_of(const clv_op *op)
{
    return ((const pointwise_attrs *)op->attrs)->kind - CLV_SIN;
}

/* ---- the op ---- */

static clv_status pointwise_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    int row = row_of(op);
    bool is_float = clv_dtype_is_float(in[0].dtype);
    if (op->n_in != table[row].operands)
        return clv_fail(err, CLV_EINVAL, "%d operands; %s takes %d", op->n_in, kinds[row].name, table[row].operands);
    if (is_float ? !table[row].real : !table[row].whole)
        return clv_fail(err, CLV_EDTYPE, "%s of %s; valid: %s", kinds[row].name, clv_dtype_name(in[0].dtype),
                        is_float ? "bool and integers" : "floats");
    if (op->n_in == 2 && in[1].dtype != in[0].dtype)
        return clv_fail(err, CLV_EDTYPE, "operands are %s and %s; cast one", clv_dtype_name(in[0].dtype),
                        clv_dtype_name(in[1].dtype));
    if (reinterprets(row) && reinterpreted(in[0].dtype) == in[0].dtype)
        return clv_fail(err, CLV_EDTYPE, "%s of %s; valid: i32 and i64, or f32 and f64", kinds[row].name,
                        clv_dtype_name(in[0].dtype));
    *out = (clv_type){.dtype = table[row].compares ? CLV_BOOL
                               : reinterprets(row) ? reinterpreted(in[0].dtype)
                                                   : in[0].dtype};
    return clv_broadcast_shapes(out, (const clv_type *const[]){&in[0], &in[1]}, op->n_in, err);
}

static clv_op_cost pointwise_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.flops = table[row_of(op)].flops * (double)clv_type_elems(out),
                         .bytes = clv_op_traffic_bytes(op, in, out)};
}

static void store_whole(const clv_view *view, int64_t i, int64_t value)
{
    if (view->dtype == CLV_BOOL)
        value &= 1; /* not of 0 is 1 */
    clv_dtype_convert(view->dtype, (char *)view->data + (size_t)i * clv_dtype_size(view->dtype), CLV_I64, &value, 1);
}

static clv_status pointwise_run(const clv_call *call, clv_error *err)
{
    const clv_view *a = &call->in[0], *b = &call->in[call->op->n_in - 1], *out = &call->out[0];
    int row = row_of(call->op);
    bool is_float = clv_dtype_is_float(a->dtype);
    int64_t shape_a[CLV_MAX_RANK], shape_b[CLV_MAX_RANK], index[CLV_MAX_RANK] = {0}, elems = clv_view_elems(out);
    if (reinterprets(row)) {
        memcpy(out->data, a->data, (size_t)elems * clv_dtype_size(a->dtype));
        return CLV_OK;
    }
    clv_padded_shape(shape_a, a, out->rank);
    clv_padded_shape(shape_b, b, out->rank);
    for (int64_t i = 0; i < elems; i++) {
        int64_t at_a = clv_broadcast_element(shape_a, index, out->rank),
                at_b = clv_broadcast_element(shape_b, index, out->rank);
        if (is_float)
            clv_dtype_store(
                out->dtype, out->data, i,
                table[row].real(clv_dtype_load(a->dtype, a->data, at_a), clv_dtype_load(b->dtype, b->data, at_b)));
        else
            store_whole(out, i, table[row].whole(clv_view_load_int(a, at_a), clv_view_load_int(b, at_b)));
        clv_index_next(index, out->shape, out->rank);
    }
    return CLV_OK;
}

const clv_op_def clv_op_pointwise = {
    .name = "pointwise",
    CLV_ARITY(1, 2, 1),
    CLV_ATTRS(pointwise_attrs, pointwise_fields),
    .shape = pointwise_shape,
    .rule = clv_op_rule_elementwise,
    .cost = pointwise_cost,
    .run = pointwise_run,
};

clv_value clv_pointwise(clv_graph *graph, clv_pointwise_kind kind, clv_value a, clv_value b)
{
    if (!clv_graph_require_enum(graph, "pointwise", (int)kind, kinds))
        return CLV_NONE;
    pointwise_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.kind = (int)kind;
    clv_value in[] = {a, b};
    return clv_graph_emit_one(graph, &clv_op_pointwise, &attrs, in, clv_valid(b) ? 2 : 1);
}
