/* fold.c - reduction ops that only imported programs (StableHLO) have: products, minima, logic, argmax, any dtype.
 *
 * Models use reduce.c: sum, mean and max of floats, which split over ranks and have gradients.
 *
 *   out[kept] = f over the other dimensions of x         factors: kept dimensions pass; reduced ones reduce (sums of
 *                                                        whole numbers, maxima, or), else they are whole
 *
 * Floats are accumulated in f64, in row-major order; whole numbers in i64, wrapped around. argmax and argmin: the first
 * of equal elements, NaN before numbers (JAX's). No gradient.
 */
#include <math.h>

#include "ops/builtin_ops.h"

typedef struct fold_attrs {
    int kind; /* clv_fold_kind */
    bool reduced[CLV_MAX_RANK];
} fold_attrs;

static const clv_attr fold_fields[] = {
    CLV_FIELD(INT, fold_attrs, kind), {"reduced", CLV_ATTR_BOOL, offsetof(fold_attrs, reduced), CLV_MAX_RANK}, {0}};

#define KIND_ROW(kind, value) CLV_ENUM_NAME(kind),
static const clv_enum_name kinds[] = {CLV_FOLD_KINDS(KIND_ROW){0}};

static bool gives_index(const fold_attrs *a)
{
    return a->kind == CLV_FOLD_ARGMAX || a->kind == CLV_FOLD_ARGMIN;
}

static clv_status fold_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const fold_attrs *a = op->attrs;
    bool logic = a->kind == CLV_FOLD_AND || a->kind == CLV_FOLD_OR;
    int reduced = 0;
    int64_t elems = 1;
    if (logic != (in[0].dtype == CLV_BOOL))
        return clv_fail(err, CLV_EDTYPE, "%s of %s; valid: %s", kinds[a->kind - CLV_FOLD_SUM].name,
                        clv_dtype_name(in[0].dtype), logic ? "bool" : "numbers");
    *out = (clv_type){.dtype = gives_index(a) ? CLV_I32 : in[0].dtype};
    for (int d = 0; d < in[0].rank; d++) {
        reduced += a->reduced[d];
        elems *= a->reduced[d] ? in[0].shape[d] : 1;
        if (!a->reduced[d])
            out->shape[out->rank++] = in[0].shape[d];
    }
    if (gives_index(a) && (reduced != 1 || elems < 1 || elems > INT32_MAX))
        return clv_fail(err, CLV_ESHAPE, "%s of %s; valid: over one dimension of 1 to %d elements",
                        kinds[a->kind - CLV_FOLD_SUM].name, clv_type_string(&in[0]).text, INT32_MAX);
    return CLV_OK;
}

/* How ranks combine their parts; NONE: each needs all elements. */
static clv_reduction reduction_of(int kind, clv_dtype dtype)
{
    if (kind == CLV_FOLD_SUM && !clv_dtype_is_float(dtype)) /* wrapped around, in any order */
        return CLV_REDUCTION_SUM;
    return kind == CLV_FOLD_MAX || kind == CLV_FOLD_OR ? CLV_REDUCTION_MAX : CLV_REDUCTION_NONE;
}

static void fold_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const fold_attrs *a = op->attrs;
    const clv_reduction reduction = reduction_of(a->kind, in[0].dtype);
    for (int d = 0, o = 0; d < in[0].rank; d++) {
        if (a->reduced[d] && reduction == CLV_REDUCTION_NONE)
            continue;
        int factor = clv_rule_add_factor(rule, in[0].shape[d], a->reduced[d] ? reduction : CLV_REDUCTION_NONE);
        clv_rule_operand_dim(rule, 0, d, factor);
        if (!a->reduced[d])
            clv_rule_result_dim(rule, 0, o++, factor);
    }
}

/* ---- one result ---- */

/* Where the reduced elements of a result lie: offsets by an odometer over the reduced dimensions. */
typedef struct walk {
    int n;
    int64_t extent[CLV_MAX_RANK], stride[CLV_MAX_RANK], count;
} walk;

static int64_t next_offset(const walk *w, int64_t *index, int64_t offset)
{
    for (int d = w->n - 1; d >= 0; d--) {
        offset += w->stride[d];
        if (++index[d] < w->extent[d])
            return offset;
        offset -= w->stride[d] * w->extent[d];
        index[d] = 0;
    }
    return offset;
}

static double merge(int kind, double a, double b)
{
    switch (kind) {
    case CLV_FOLD_SUM:
        return a + b;
    case CLV_FOLD_PRODUCT:
        return a * b;
    case CLV_FOLD_MAX:
        return a > b || isnan(a) ? a : b;
    default:
        return a < b || isnan(a) ? a : b;
    }
}

static int64_t merge_whole(int kind, int64_t a, int64_t b)
{
    switch (kind) {
    case CLV_FOLD_SUM:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case CLV_FOLD_PRODUCT:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case CLV_FOLD_MAX:
    case CLV_FOLD_OR:
        return a > b ? a : b;
    default:
        return a < b ? a : b;
    }
}

/* Of no elements: 0, 1, the lowest or the highest number there is. */
static double start_of(int kind)
{
    return kind == CLV_FOLD_SUM ? 0 : kind == CLV_FOLD_PRODUCT ? 1 : kind == CLV_FOLD_MAX ? -INFINITY : INFINITY;
}

static int64_t whole_start_of(int kind, clv_dtype dtype)
{
    int64_t high = dtype == CLV_I64 ? INT64_MAX : dtype == CLV_I32 ? INT32_MAX : dtype == CLV_U8 ? UINT8_MAX : 1;
    int64_t low = dtype == CLV_I64 ? INT64_MIN : dtype == CLV_I32 ? INT32_MIN : 0;
    return kind == CLV_FOLD_SUM                          ? 0
           : kind == CLV_FOLD_PRODUCT                    ? 1
           : kind == CLV_FOLD_MAX || kind == CLV_FOLD_OR ? low
                                                         : high;
}

static void fold_one(const clv_view *out, int64_t at, const clv_view *x, int64_t offset, const walk *w, int kind)
{
    int64_t index[CLV_MAX_RANK] = {0};
    if (clv_dtype_is_float(x->dtype)) {
        double value = start_of(kind);
        for (int64_t i = 0; i < w->count; i++, offset = next_offset(w, index, offset))
            value = merge(kind, value, clv_dtype_load(x->dtype, x->data, offset));
        clv_dtype_store(out->dtype, out->data, at, value);
        return;
    }
    int64_t value = whole_start_of(kind, x->dtype);
    for (int64_t i = 0; i < w->count; i++, offset = next_offset(w, index, offset))
        value = merge_whole(kind, value, clv_view_load_int(x, offset));
    clv_dtype_convert(out->dtype, (char *)out->data + (size_t)at * clv_dtype_size(out->dtype), CLV_I64, &value, 1);
}

/* Whether element i comes before the best so far: by value, and NaN before numbers. */
static bool is_better(const clv_view *x, int64_t i, int64_t best, bool largest)
{
    if (!clv_dtype_is_float(x->dtype))
        return largest ? clv_view_load_int(x, i) > clv_view_load_int(x, best)
                       : clv_view_load_int(x, i) < clv_view_load_int(x, best);
    double a = clv_dtype_load(x->dtype, x->data, i), b = clv_dtype_load(x->dtype, x->data, best);
    return !isnan(b) && (isnan(a) || (largest ? a > b : a < b));
}

static void find_one(const clv_view *out, int64_t at, const clv_view *x, int64_t offset, const walk *w, bool largest)
{
    int64_t best = 0;
    for (int64_t i = 1; i < w->count; i++)
        if (is_better(x, offset + i * w->stride[0], offset + best * w->stride[0], largest))
            best = i;
    ((int32_t *)out->data)[at] = (int32_t)best;
}

static clv_status fold_run(const clv_call *call, clv_error *err)
{
    const fold_attrs *a = call->op->attrs;
    const clv_view *x = &call->in[0], *out = &call->out[0];
    walk reduced = {.count = 1}, kept = {.count = 1};
    int64_t stride = 1, index[CLV_MAX_RANK] = {0}, offset = 0;
    for (int d = x->rank - 1; d >= 0; stride *= x->shape[d--]) {
        walk *w = a->reduced[d] ? &reduced : &kept;
        memmove(w->extent + 1, w->extent, (size_t)w->n * sizeof *w->extent);
        memmove(w->stride + 1, w->stride, (size_t)w->n * sizeof *w->stride);
        w->extent[0] = x->shape[d];
        w->stride[0] = stride;
        w->count *= x->shape[d];
        w->n++;
    }
    for (int64_t i = 0; i < kept.count; i++, offset = next_offset(&kept, index, offset)) {
        if (gives_index(a))
            find_one(out, i, x, offset, &reduced, a->kind == CLV_FOLD_ARGMAX);
        else
            fold_one(out, i, x, offset, &reduced, a->kind);
    }
    return CLV_OK;
}

const clv_op_def clv_op_fold = {
    .name = "fold",
    .display_name = "the reduction",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(fold_attrs, fold_fields),
    .shape = fold_shape,
    .rule = fold_rule,
    .run = fold_run,
};

clv_value clv_fold(clv_graph *graph, clv_fold_kind kind, clv_value x, const int *dims, int n)
{
    fold_attrs a;
    memset(&a, 0, sizeof a);
    a.kind = (int)kind;
    if (!clv_graph_require(graph, (dims || n == 0) && n >= 0, __func__, "dimensions") ||
        !clv_graph_require_enum(graph, "fold", (int)kind, kinds))
        return CLV_NONE;
    for (int i = 0, rank = clv_graph_type(graph, x).rank; i < n; i++) {
        if (dims[i] < 0 || dims[i] >= rank || a.reduced[dims[i]])
            return clv_graph_fail(graph, CLV_EINVAL, "%sfold: dimension %d; valid: each of 0 to %d once", graph->scope,
                                  dims[i], rank - 1);
        a.reduced[dims[i]] = true;
    }
    return clv_graph_emit_one(graph, &clv_op_fold, &a, &x, 1);
}
