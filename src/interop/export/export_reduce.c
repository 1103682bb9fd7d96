/* export_reduce.c - products, reductions, softmax, norms of gradients as StableHLO. */
#include <math.h>

#include "ops/builtin_ops.h"
#include "interop/export/exporter.h"

/* Products of 16-bit operands that are added up in f32 are of f32 operands. */
static void dot(exporter *ex, const exported *in, exported *out)
{
    const clv_dtype dtype = out[0].type.dtype;
    exported product = export_dot(ex, export_letters(ex, "a"), export_letters(ex, "b"), export_letters(ex, "c"),
                                  export_cast(ex, in[0], dtype), export_cast(ex, in[1], dtype));
    bool added = ex->op->n_in > 2 && export_given(&in[2]);
    out[0] = added ? export_binary(ex, "add", product, in[2]) : product;
}

static uint32_t reduced_dims(const exporter *ex, const clv_type *x, double *count)
{
    uint32_t dims = 0;
    *count = 1;
    for (int d = 0; d < x->rank; d++)
        if (export_whole(ex, "reduced", d)) {
            dims |= 1u << d;
            *count *= (double)x->shape[d];
        }
    return dims;
}

static void reduce(exporter *ex, const exported *in, exported *out)
{
    const clv_type type = out[0].type;
    const int64_t kind = export_whole(ex, "kind", 0);
    double count;
    uint32_t dims = reduced_dims(ex, &in[0].type, &count);
    exported x = export_math(ex, in[0]);
    x = kind == CLV_MAX ? export_reduce(ex, "maximum", x, dims, -INFINITY) : export_reduce(ex, "add", x, dims, 0);
    if (kind == CLV_MEAN)
        x = export_with(ex, "multiply", x, 1 / count);
    out[0] = export_cast(ex, export_reshape(ex, x, type.rank, type.shape), type.dtype);
}

/* The first of the largest, NaN before numbers. */
static exported arg(exporter *ex, const char *name, exported x, uint32_t dims, double first)
{
    int d = 0;
    while (!(dims & 1u << d))
        d++;
    clv_type counted = x.type;
    counted.dtype = CLV_I32;
    exported most = export_unsqueeze(ex, export_reduce(ex, name, x, dims, first), d);
    exported hit = export_compare(ex, "EQ", x, most);
    if (clv_dtype_is_float(x.type.dtype))
        hit = export_binary(ex, "or", hit, export_compare(ex, "NE", x, x));
    exported index = export_select(ex, hit, export_iota(ex, counted, d), export_number(ex, CLV_I32, INT32_MAX));
    return export_reduce(ex, "minimum", index, dims, INT32_MAX);
}

static void fold(exporter *ex, const exported *in, exported *out)
{
    double count;
    const uint32_t dims = reduced_dims(ex, &in[0].type, &count);
    const clv_dtype dtype = in[0].type.dtype;
    const double highest = clv_dtype_is_float(dtype) ? INFINITY
                           : dtype == CLV_I32        ? INT32_MAX
                           : dtype == CLV_U8         ? 255
                                                     : 1;
    const double lowest = clv_dtype_is_float(dtype) ? -INFINITY : dtype == CLV_I32 ? INT32_MIN : 0;
    const int64_t kind = export_whole(ex, "kind", 0);
    if (dtype == CLV_I64 && kind != CLV_FOLD_SUM && kind != CLV_FOLD_PRODUCT)
        ex->fault = "of i64, whose bounds a double does not hold,";
    else if (kind == CLV_FOLD_ARGMAX)
        out[0] = arg(ex, "maximum", in[0], dims, lowest);
    else if (kind == CLV_FOLD_ARGMIN)
        out[0] = arg(ex, "minimum", in[0], dims, highest);
    else if (kind == CLV_FOLD_MAX)
        out[0] = export_reduce(ex, "maximum", in[0], dims, lowest);
    else if (kind == CLV_FOLD_MIN)
        out[0] = export_reduce(ex, "minimum", in[0], dims, highest);
    else if (kind == CLV_FOLD_AND || kind == CLV_FOLD_OR)
        out[0] = export_reduce(ex, kind == CLV_FOLD_AND ? "and" : "or", in[0], dims, kind == CLV_FOLD_AND);
    else
        out[0] = export_cast(ex,
                             export_reduce(ex, kind == CLV_FOLD_SUM ? "add" : "multiply",
                                           clv_dtype_is_float(dtype) ? export_math(ex, in[0]) : in[0], dims,
                                           kind == CLV_FOLD_PRODUCT),
                             dtype);
}

/* ---- softmax ---- */

/* A row of -inf gives zeros. */
static void softmax(exporter *ex, const exported *in, exported *out)
{
    exported x = export_math(ex, in[0]);
    const int last = x.type.rank - 1;
    const clv_dtype dtype = x.type.dtype;
    exported most = export_unsqueeze(ex, export_reduce(ex, "maximum", x, 1u << last, -INFINITY), last);
    exported none = export_compare(ex, "EQ", most, export_number(ex, dtype, -INFINITY));
    most = export_select(ex, none, export_number(ex, dtype, 0), most);
    exported e = export_unary(ex, "exponential", export_binary(ex, "subtract", x, most));
    exported sum = export_select(ex, none, export_number(ex, dtype, 1), export_row_sum(ex, e));
    out[0] = export_cast(ex, export_binary(ex, "divide", e, sum), in[0].type.dtype);
}

static void softmax_gradient(exporter *ex, const exported *in, exported *out)
{
    exported d = export_math(ex, in[0]), y = export_math(ex, in[1]);
    exported sum = export_row_sum(ex, export_binary(ex, "multiply", d, y));
    exported x = export_binary(ex, "multiply", y, export_binary(ex, "subtract", d, sum));
    out[0] = export_cast(ex, x, in[1].type.dtype);
}

/* ---- clipping ---- */

static void sum_squares(exporter *ex, const exported *in, exported *out)
{
    exported x = export_math(ex, in[0]);
    out[0] = export_reduce(ex, "add", export_binary(ex, "multiply", x, x), (1u << x.type.rank) - 1, 0);
}

static void clip_scale(exporter *ex, const exported *in, exported *out)
{
    clv_type mask = in[0].type;
    mask.dtype = CLV_BOOL;
    exported finite = export_line(ex, mask, "stablehlo.is_finite %%%d : (%s) -> %s", in[0].id,
                                  export_type(&in[0].type).text, export_type(&mask).text);
    exported scale = export_binary(ex, "divide", export_number(ex, in[0].type.dtype, export_real(ex, "most")),
                                   export_with(ex, "add", in[0], 1e-6));
    out[0] = export_select(ex, finite, export_with(ex, "minimum", scale, 1), export_number(ex, in[0].type.dtype, NAN));
}

const export_row export_reduce_rows[] = {
    {&clv_op_dot_general, dot},
    {&clv_op_reduce, reduce},
    {&clv_op_fold, fold},
    {&clv_op_softmax, softmax},
    {&clv_op_softmax_gradient, softmax_gradient},
    {&clv_op_sum_squares, sum_squares},
    {&clv_op_clip_scale, clip_scale},
    {0},
};
