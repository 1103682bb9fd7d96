/* slice_pad_concat.c - slice, pad and concatenate ops.
 *
 *   slice:   out = x[begin .. end) of each dimension
 *   pad:     out = x with zeros before and after
 *   concat:  out = operands one after another along a dimension
 *
 * factors: dimensions whose size changes are whole, the others pass. Linear (concat in all its operands together);
 * slice passes maxima.      gradients: pad, slice, slices
 */
#include "kernels/cpu/transpose_kernel.h"
#include "ops/builtin_ops.h"

/* slice: [low, high) of x; pad: zeros before and after. */
typedef struct bounds_attrs {
    int64_t low[CLV_MAX_RANK];
    int64_t high[CLV_MAX_RANK];
} bounds_attrs;

static const clv_attr bounds_fields[] = {{"low", CLV_ATTR_INT64, offsetof(bounds_attrs, low), CLV_MAX_RANK},
                                         {"high", CLV_ATTR_INT64, offsetof(bounds_attrs, high), CLV_MAX_RANK},
                                         {0}};

static bounds_attrs bounds_of(clv_graph *graph, clv_value x, const int64_t *low, const int64_t *high)
{
    bounds_attrs a;
    memset(&a, 0, sizeof a);
    for (int d = 0; d < clv_graph_type(graph, x).rank; d++) {
        a.low[d] = low[d];
        a.high[d] = high[d];
    }
    return a;
}

/* Dimensions that keep their size pass. */
static void same_size_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    for (int d = 0; d < in[0].rank; d++) {
        if (in[0].shape[d] != out[0].shape[d])
            continue;
        int factor = clv_rule_add_factor(rule, in[0].shape[d], CLV_REDUCTION_NONE);
        clv_rule_operand_dim(rule, 0, d, factor);
        clv_rule_result_dim(rule, 0, d, factor);
    }
    clv_rule_multilinear(rule, 1);
}

/* ---- slice ---- */

static clv_status slice_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const bounds_attrs *a = op->attrs;
    *out = in[0];
    for (int d = 0; d < in[0].rank; d++) {
        if (a->low[d] < 0 || a->low[d] > a->high[d] || a->high[d] > in[0].shape[d])
            return clv_fail(err, CLV_ESHAPE, "[%lld, %lld) of dimension %d is not inside its %lld elements",
                            (long long)a->low[d], (long long)a->high[d], d, (long long)in[0].shape[d]);
        out->shape[d] = a->high[d] - a->low[d];
    }
    return CLV_OK;
}

static void slice_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    same_size_rule(op, in, out, rule);
    clv_rule_keeps_partial_max(rule);
}

static clv_status slice_run(const clv_call *call, clv_error *err)
{
    const bounds_attrs *a = call->op->attrs;
    const clv_view *x = &call->in[0], *out = &call->out[0];
    int64_t zero[CLV_MAX_RANK] = {0};
    clv_copy_slice(clv_dtype_size(x->dtype), out->data, out->shape, zero, x->data, x->shape, a->low, x->rank,
                   out->shape);
    return CLV_OK;
}

static void slice_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    bounds_attrs a = *(const bounds_attrs *)op->attrs;
    clv_type type = clv_graph_type(graph, clv_op_operand(op, 0));
    for (int d = 0; d < type.rank; d++)
        a.high[d] = type.shape[d] - a.high[d];
    d_in[0] = clv_pad(graph, d_out[0], a.low, a.high);
}

clv_value clv_slice(clv_graph *graph, clv_value x, const int64_t *begin, const int64_t *end)
{
    if (!clv_graph_require(graph, begin && end, __func__, "begin and end"))
        return CLV_NONE;
    bounds_attrs a = bounds_of(graph, x, begin, end);
    return clv_graph_emit_one(graph, &clv_op_slice, &a, &x, 1);
}

const clv_op_def clv_op_slice = {
    .name = "slice",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(bounds_attrs, bounds_fields),
    .shape = slice_shape,
    .rule = slice_rule,
    .gradient = slice_gradient,
    .run = slice_run,
    .traits = &(const clv_op_traits){.passes_cotangent = true},
};

/* ---- pad ---- */

static clv_status pad_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const bounds_attrs *a = op->attrs;
    *out = in[0];
    for (int d = 0; d < in[0].rank; d++) {
        if (a->low[d] < 0 || a->high[d] < 0)
            return clv_fail(err, CLV_ESHAPE, "dimension %d is padded by %lld and %lld; valid: 0 or more", d,
                            (long long)a->low[d], (long long)a->high[d]);
        if (__builtin_add_overflow(out->shape[d], a->low[d], &out->shape[d]) ||
            __builtin_add_overflow(out->shape[d], a->high[d], &out->shape[d]))
            return clv_fail(err, CLV_ELIMIT, "dimension %d of more than 2^63 - 1 elements", d);
    }
    return CLV_OK;
}

static clv_status pad_run(const clv_call *call, clv_error *err)
{
    const bounds_attrs *a = call->op->attrs;
    const clv_view *x = &call->in[0], *out = &call->out[0];
    int64_t zero[CLV_MAX_RANK] = {0};
    memset(out->data, 0, clv_view_byte_size(out));
    clv_copy_slice(clv_dtype_size(x->dtype), out->data, out->shape, a->low, x->data, x->shape, zero, x->rank, x->shape);
    return CLV_OK;
}

static void pad_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    bounds_attrs a = *(const bounds_attrs *)op->attrs;
    clv_type type = clv_graph_type(graph, clv_op_operand(op, 0));
    for (int d = 0; d < type.rank; d++)
        a.high[d] = a.low[d] + type.shape[d];
    d_in[0] = clv_slice(graph, d_out[0], a.low, a.high);
}

clv_value clv_pad(clv_graph *graph, clv_value x, const int64_t *before, const int64_t *after)
{
    if (!clv_graph_require(graph, before && after, __func__, "before and after"))
        return CLV_NONE;
    bounds_attrs a = bounds_of(graph, x, before, after);
    return clv_graph_emit_one(graph, &clv_op_pad, &a, &x, 1);
}

const clv_op_def clv_op_pad = {
    .name = "pad",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(bounds_attrs, bounds_fields),
    .shape = pad_shape,
    .rule = same_size_rule,
    .gradient = pad_gradient,
    .run = pad_run,
    .traits = &(const clv_op_traits){.passes_cotangent = true},
};

/* ---- concat ---- */

typedef struct concat_attrs {
    int dim;
} concat_attrs;

static const clv_attr concat_fields[] = {CLV_FIELD(INT, concat_attrs, dim), {0}};

static clv_status concat_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    int dim = ((const concat_attrs *)op->attrs)->dim;
    *out = in[0];
    if (dim < 0 || dim >= in[0].rank)
        return clv_fail(err, CLV_EINVAL, "dimension %d; valid: 0 to %d", dim, in[0].rank - 1);
    for (int i = 1; i < op->n_in; i++) {
        clv_type expected = in[0];
        expected.shape[dim] = in[i].shape[dim];
        if (!clv_type_equal(&expected, &in[i]))
            return clv_fail(err, CLV_ESHAPE, "operands %s and %s differ in more than dimension %d",
                            clv_type_string(&in[0]).text, clv_type_string(&in[i]).text, dim);
        if (__builtin_add_overflow(out->shape[dim], in[i].shape[dim], &out->shape[dim]))
            return clv_fail(err, CLV_ELIMIT, "dimension %d of more than 2^63 - 1 elements", dim);
    }
    return CLV_OK;
}

static void concat_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    int dim = ((const concat_attrs *)op->attrs)->dim;
    for (int d = 0; d < out->rank; d++) {
        if (d == dim)
            continue;
        int factor = clv_rule_add_factor(rule, out->shape[d], CLV_REDUCTION_NONE);
        clv_rule_result_dim(rule, 0, d, factor);
        for (int i = 0; i < op->n_in; i++)
            clv_rule_operand_dim(rule, i, d, factor);
    }
    clv_rule_additive(rule, (1u << op->n_in) - 1);
}

static clv_status concat_run(const clv_call *call, clv_error *err)
{
    int dim = ((const concat_attrs *)call->op->attrs)->dim;
    const clv_view *out = &call->out[0];
    int64_t zero[CLV_MAX_RANK] = {0}, at[CLV_MAX_RANK] = {0};
    for (int i = 0; i < call->op->n_in; i++) {
        const clv_view *x = &call->in[i];
        clv_copy_slice(clv_dtype_size(x->dtype), out->data, out->shape, at, x->data, x->shape, zero, x->rank, x->shape);
        at[dim] += x->shape[dim];
    }
    return CLV_OK;
}

static void concat_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    int dim = ((const concat_attrs *)op->attrs)->dim;
    clv_type type = clv_graph_type(graph, d_out[0]);
    int64_t begin[CLV_MAX_RANK] = {0}, end[CLV_MAX_RANK];
    memcpy(end, type.shape, sizeof end);
    for (int i = 0; i < op->n_in; i++) {
        end[dim] = begin[dim] + clv_graph_type(graph, clv_op_operand(op, i)).shape[dim];
        d_in[i] = clv_slice(graph, d_out[0], begin, end);
        begin[dim] = end[dim];
    }
}

/* Concatenates groups of at most CLV_MAX_IN tensors; returns how many groups there are. */
static int concat_runs(clv_graph *graph, clv_value *out, const clv_value *x, int n, int dim)
{
    int runs = 0;
    for (int i = 0; i < n; i += CLV_MAX_IN)
        out[runs++] = n - i == 1 ? x[i] : clv_concat(graph, x + i, n - i < CLV_MAX_IN ? n - i : CLV_MAX_IN, dim);
    return runs;
}

clv_value clv_concat(clv_graph *graph, const clv_value *x, int n, int dim)
{
    if (!clv_graph_require(graph, x || n <= 0, __func__, "values"))
        return CLV_NONE;
    concat_attrs a;
    if (n > CLV_MAX_IN) {
        clv_value *parts = clv_arena_alloc(graph->arena, (size_t)n, sizeof *parts);
        if (!parts)
            return clv_graph_fail(graph, CLV_ENOMEM, "out of memory for a concat of %d", n);
        return clv_concat(graph, parts, concat_runs(graph, parts, x, n, dim), dim);
    }
    memset(&a, 0, sizeof a);
    a.dim = dim;
    return clv_graph_emit_one(graph, &clv_op_concat, &a, x, n);
}

const clv_op_def clv_op_concat = {
    .name = "concat",
    CLV_ARITY(1, CLV_MAX_IN, 1),
    CLV_ATTRS(concat_attrs, concat_fields),
    .shape = concat_shape,
    .rule = concat_rule,
    .gradient = concat_gradient,
    .run = concat_run,
};
