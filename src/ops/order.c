/* order.c - ops of imported programs that go along a dimension: sort, cumulative.
 *
 *   sort:        values, index: x along a dimension in order, and where each element was (i32)
 *   cumulative:  out[i] = f over x[0..i] along a dimension, or over x[i..] with reverse
 *   factors: the other dimensions pass; the one that is gone along is whole
 *
 * Sorting is stable: equal elements, 0 and -0, and NaN keep their order. Ascending, NaN comes last; descending, first.
 * Floats are accumulated in f64 and rounded once for each element, whole numbers in i64, wrapped around. No gradient.
 */
#include <math.h>

#include "ops/builtin_ops.h"

/* ---- rows along a dimension ---- */

typedef struct along {
    int64_t n, stride, rows, inner;
} along;

static along along_of(const clv_view *x, int dim)
{
    along a = {.n = x->shape[dim], .stride = 1, .inner = 1, .rows = 1};
    for (int d = 0; d < x->rank; d++) {
        a.inner *= d > dim ? x->shape[d] : 1;
        a.rows *= d != dim ? x->shape[d] : 1;
    }
    a.stride = a.inner;
    return a;
}

/* The first element of a row. */
static int64_t row_begin(const along *a, int64_t row)
{
    return row / a->inner * a->inner * a->n + row % a->inner;
}

static void add_rule(const clv_type *in, int n_out, int whole, clv_rule *rule)
{
    for (int d = 0; d < in->rank; d++) {
        if (d == whole)
            continue;
        int factor = clv_rule_add_factor(rule, in->shape[d], CLV_REDUCTION_NONE);
        clv_rule_operand_dim(rule, 0, d, factor);
        for (int o = 0; o < n_out; o++)
            clv_rule_result_dim(rule, o, d, factor);
    }
}

static clv_status check_dim(const clv_type *x, int dim, clv_error *err)
{
    if (dim < 0 || dim >= x->rank)
        return clv_fail(err, CLV_EINVAL, "dimension %d of %s; valid: 0 to %d", dim, clv_type_string(x).text,
                        x->rank - 1);
    return x->shape[dim] <= INT32_MAX ? CLV_OK
                                      : clv_fail(err, CLV_ELIMIT, "%lld elements along a dimension; at most %d",
                                                 (long long)x->shape[dim], INT32_MAX);
}

/* ---- sort ---- */

typedef struct sort_attrs {
    int dim;
    bool descending;
} sort_attrs;

static const clv_attr sort_fields[] = {CLV_FIELD(INT, sort_attrs, dim), CLV_FIELD(BOOL, sort_attrs, descending), {0}};

static clv_status sort_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_dim(&in[0], ((const sort_attrs *)op->attrs)->dim, err));
    out[0] = out[1] = in[0];
    out[1].dtype = CLV_I32;
    return CLV_OK;
}

static void sort_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    add_rule(&in[0], 2, ((const sort_attrs *)op->attrs)->dim, rule);
}

typedef struct sort_item {
    int64_t key;
    int32_t index;
} sort_item;

/* Whole numbers in the order of the elements: of 0 and -0 the same; NaN above all. */
static int64_t key_of(const clv_view *x, int64_t i)
{
    int64_t bits;
    if (!clv_dtype_is_float(x->dtype))
        return clv_view_load_int(x, i);
    double value = clv_dtype_load(x->dtype, x->data, i);
    if (isnan(value))
        return INT64_MAX;
    memcpy(&bits, &value, sizeof bits);
    return bits < 0 ? INT64_MIN - bits : bits;
}

/* Merges runs of doubling lengths; the result is in `a` or in `b`. */
static sort_item *merge_sort(sort_item *a, sort_item *b, int64_t n, bool descending)
{
    for (int64_t run = 1; run < n; run *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * run) {
            int64_t middle = begin + run < n ? begin + run : n, end = begin + 2 * run < n ? begin + 2 * run : n;
            for (int64_t i = begin, j = middle, to = begin; to < end; to++) {
                bool second = j < end && (i == middle || (descending ? a[j].key > a[i].key : a[j].key < a[i].key));
                b[to] = second ? a[j++] : a[i++];
            }
        }
        sort_item *other = a;
        a = b;
        b = other;
    }
    return a;
}

static size_t sort_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    return 2 * sizeof(sort_item) * (size_t)in[0].shape[((const sort_attrs *)op->attrs)->dim];
}

static clv_status sort_run(const clv_call *call, clv_error *err)
{
    const sort_attrs *attrs = call->op->attrs;
    const clv_view *x = &call->in[0];
    along a = along_of(x, attrs->dim);
    size_t size = clv_dtype_size(x->dtype);
    sort_item *items = call->workspace;
    for (int64_t row = 0; row < a.rows && a.n > 0; row++) {
        int64_t begin = row_begin(&a, row);
        for (int64_t i = 0; i < a.n; i++)
            items[i] = (sort_item){key_of(x, begin + i * a.stride), (int32_t)i};
        const sort_item *sorted = merge_sort(items, items + a.n, a.n, attrs->descending);
        for (int64_t i = 0; i < a.n; i++) {
            int64_t to = begin + i * a.stride, from = begin + sorted[i].index * a.stride;
            memcpy((char *)call->out[0].data + (size_t)to * size, (const char *)x->data + (size_t)from * size, size);
            ((int32_t *)call->out[1].data)[to] = sorted[i].index;
        }
    }
    return CLV_OK;
}

static clv_op_cost sort_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    double n = (double)in[0].shape[((const sort_attrs *)op->attrs)->dim];
    return (clv_op_cost){.flops = (double)clv_type_elems(&in[0]) * (n > 1 ? log2(n) : 0),
                         .bytes = clv_op_traffic_bytes(op, in, out)};
}

const clv_op_def clv_op_sort = {
    .name = "sort",
    CLV_ARITY(1, 1, 2),
    CLV_ATTRS(sort_attrs, sort_fields),
    .shape = sort_shape,
    .rule = sort_rule,
    .cost = sort_cost,
    .workspace = sort_workspace,
    .run = sort_run,
};

void clv_sort(clv_graph *graph, clv_value x, int dim, bool descending, clv_value *values, clv_value *index)
{
    clv_value out[CLV_MAX_OUT] = {0};
    sort_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.dim = dim;
    attrs.descending = descending;
    if (clv_graph_require(graph, values && index, __func__, "values and index"))
        clv_graph_emit(graph, &clv_op_sort, &attrs, &x, 1, out);
    if (values)
        *values = out[0];
    if (index)
        *index = out[1];
}

/* ---- cumulative ---- */

typedef struct cumulative_attrs {
    int kind, dim; /* kind: clv_fold_kind */
    bool reverse;
} cumulative_attrs;

static const clv_attr cumulative_fields[] = {CLV_FIELD(INT, cumulative_attrs, kind),
                                             CLV_FIELD(INT, cumulative_attrs, dim),
                                             CLV_FIELD(BOOL, cumulative_attrs, reverse),
                                             {0}};

static clv_status cumulative_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const cumulative_attrs *a = op->attrs;
    CLV_TRY(check_dim(&in[0], a->dim, err));
    if (in[0].dtype == CLV_BOOL)
        return clv_fail(err, CLV_EDTYPE, "x is %s; numbers are needed", clv_type_string(&in[0]).text);
    out[0] = in[0];
    return CLV_OK;
}

static void cumulative_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    add_rule(&in[0], 1, ((const cumulative_attrs *)op->attrs)->dim, rule);
}

static double merge_real(int kind, double a, double b)
{
    return kind == CLV_FOLD_SUM       ? a + b
           : kind == CLV_FOLD_PRODUCT ? a * b
           : kind == CLV_FOLD_MAX     ? (a > b || isnan(a) ? a : b)
                                      : (a < b || isnan(a) ? a : b);
}

static int64_t merge_whole(int kind, int64_t a, int64_t b)
{
    return kind == CLV_FOLD_SUM       ? (int64_t)((uint64_t)a + (uint64_t)b)
           : kind == CLV_FOLD_PRODUCT ? (int64_t)((uint64_t)a * (uint64_t)b)
           : kind == CLV_FOLD_MAX     ? (a > b ? a : b)
                                      : (a < b ? a : b);
}

static clv_status cumulative_run(const clv_call *call, clv_error *err)
{
    const cumulative_attrs *attrs = call->op->attrs;
    const clv_view *x = &call->in[0], *out = &call->out[0];
    along a = along_of(x, attrs->dim);
    bool is_float = clv_dtype_is_float(x->dtype);
    for (int64_t row = 0; row < a.rows; row++) {
        double real = 0;
        int64_t whole = 0;
        for (int64_t k = 0; k < a.n; k++) {
            int64_t i = row_begin(&a, row) + (attrs->reverse ? a.n - 1 - k : k) * a.stride;
            if (is_float) {
                double next = clv_dtype_load(x->dtype, x->data, i);
                real = k == 0 ? next : merge_real(attrs->kind, real, next);
                clv_dtype_store(out->dtype, out->data, i, real);
                continue;
            }
            int64_t next = clv_view_load_int(x, i);
            whole = k == 0 ? next : merge_whole(attrs->kind, whole, next);
            clv_dtype_convert(out->dtype, (char *)out->data + (size_t)i * clv_dtype_size(out->dtype), CLV_I64, &whole,
                              1);
        }
    }
    return CLV_OK;
}

const clv_op_def clv_op_cumulative = {
    .name = "cumulative",
    .display_name = "the cumulative reduction",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(cumulative_attrs, cumulative_fields),
    .shape = cumulative_shape,
    .rule = cumulative_rule,
    .in_place = {1},
    .run = cumulative_run,
};

clv_value clv_cumulative(clv_graph *graph, clv_fold_kind kind, clv_value x, int dim, bool reverse)
{
    static const clv_enum_name kinds[] = {CLV_ENUM_NAME(CLV_FOLD_SUM),
                                          CLV_ENUM_NAME(CLV_FOLD_PRODUCT),
                                          CLV_ENUM_NAME(CLV_FOLD_MAX),
                                          CLV_ENUM_NAME(CLV_FOLD_MIN),
                                          {0}};
    cumulative_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (!clv_graph_require_enum(graph, "cumulative", (int)kind, kinds))
        return CLV_NONE;
    attrs.kind = (int)kind;
    attrs.dim = dim;
    attrs.reverse = reverse;
    return clv_graph_emit_one(graph, &clv_op_cumulative, &attrs, &x, 1);
}
