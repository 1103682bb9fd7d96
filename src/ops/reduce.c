/* reduce.c - reduction ops of models (sum, mean, max over dimensions), and broadcast and equality for their gradients.
 * fold.c has those of imported programs.
 *
 *   reduce:     out[kept] = sum, mean or max over the other dimensions of x
 *               factors: kept dimensions pass; reduced ones reduce(sum) or reduce(max). A mean divides by the whole
 *               count on every rank, so that means of shards add up. Sum and mean are linear; max passes max-partials.
 *   broadcast:  out = x repeated along dimensions of size 1 (the gradient of a sum). factors: pass
 *   equal:      out = x == y ? 1 : 0, y broadcast; not differentiable
 *
 * gradient of max: shared evenly by the elements that attain it, as JAX does.
 */
#include "kernels/cpu/reduce_kernel.h"
#include "ops/builtin_ops.h"

/* ---- reduce ---- */

typedef struct reduce_attrs {
    int kind; /* clv_reduce_kind */
    bool keep;
    bool reduced[CLV_MAX_RANK];
} reduce_attrs;

static const clv_attr reduce_fields[] = {CLV_FIELD(INT, reduce_attrs, kind),
                                         CLV_FIELD(BOOL, reduce_attrs, keep),
                                         {"reduced", CLV_ATTR_BOOL, offsetof(reduce_attrs, reduced), CLV_MAX_RANK},
                                         {0}};

static clv_status reduce_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const reduce_attrs *a = op->attrs;
    if (!clv_dtype_is_float(in[0].dtype))
        return clv_fail(err, CLV_EDTYPE, "reduces floats, not %s", clv_dtype_name(in[0].dtype));
    *out = (clv_type){.dtype = in[0].dtype};
    for (int d = 0; d < in[0].rank; d++)
        if (!a->reduced[d] || a->keep)
            out->shape[out->rank++] = a->reduced[d] ? 1 : in[0].shape[d];
    return CLV_OK;
}

static clv_reduction reduction_of(const reduce_attrs *a)
{
    return a->kind == CLV_MAX ? CLV_REDUCTION_MAX : CLV_REDUCTION_SUM;
}

static void reduce_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const reduce_attrs *a = op->attrs;
    clv_reduction how = reduction_of(a);
    for (int d = 0, o = 0; d < in[0].rank; d++) {
        int factor = clv_rule_add_factor(rule, in[0].shape[d], a->reduced[d] ? how : CLV_REDUCTION_NONE);
        clv_rule_operand_dim(rule, 0, d, factor);
        if (!a->reduced[d])
            clv_rule_result_dim(rule, 0, o, factor);
        o += !a->reduced[d] || a->keep;
    }
    if (how == CLV_REDUCTION_SUM)
        clv_rule_multilinear(rule, 1);
    else
        clv_rule_keeps_partial_max(rule);
}

/* Elements of the whole tensor that are reduced to one result. */
static double whole_count(const reduce_attrs *a, const int64_t *shape, int rank)
{
    double count = 1;
    for (int d = 0; d < rank; d++)
        count *= a->reduced[d] ? (double)shape[d] : 1.0;
    return count;
}

static clv_status reduce_run(const clv_call *call, clv_error *err)
{
    const reduce_attrs *a = call->op->attrs;
    const clv_view *x = &call->in[0], *out = &call->out[0];
    double scale = a->kind == CLV_MEAN ? 1.0 / whole_count(a, x->global, x->rank) : 1.0;
    clv_reduce_forward(reduction_of(a), scale, out->dtype, out->data, x->dtype, x->data, x->rank, x->shape, a->reduced);
    return CLV_OK;
}

/* d_out or y with the rank of x: reduced dimensions have size 1. */
static clv_value with_kept_dims(clv_graph *graph, const reduce_attrs *a, clv_value value, const clv_type *x)
{
    int64_t shape[CLV_MAX_RANK];
    for (int d = 0; d < x->rank; d++)
        shape[d] = a->reduced[d] ? 1 : x->shape[d];
    return a->keep ? value : clv_reshape(graph, value, x->rank, shape);
}

static void reduce_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    const reduce_attrs a = *(const reduce_attrs *)op->attrs;
    clv_type type = clv_graph_type(graph, clv_op_operand(op, 0));
    clv_value d = with_kept_dims(graph, &a, d_out[0], &type);
    if (a.kind == CLV_MEAN)
        d = clv_scale(graph, d, 1.0 / whole_count(&a, type.shape, type.rank));
    if (a.kind != CLV_MAX) {
        d_in[0] = clv_broadcast(graph, d, type.shape);
        return;
    }
    int dims[CLV_MAX_RANK], n = 0;
    for (int i = 0; i < type.rank; i++)
        if (a.reduced[i])
            dims[n++] = i;
    clv_value pair[] = {clv_op_operand(op, 0), with_kept_dims(graph, &a, clv_op_result(op, 0), &type)};
    clv_value attains = clv_graph_emit_one(graph, &clv_op_equal, NULL, pair, 2);
    clv_value share = clv_div(graph, d, clv_reduce(graph, CLV_SUM, attains, dims, n, true));
    d_in[0] = clv_mul(graph, attains, share);
}

clv_value clv_reduce(clv_graph *graph, clv_reduce_kind kind, clv_value x, const int *dims, int n, bool keep)
{
    static const clv_enum_name kinds[] = {CLV_REDUCE_KINDS(CLV_ENUM_NAME_ROW){0}};
    if (clv_graph_ok(graph) && n < 0)
        return clv_graph_fail(graph, CLV_EINVAL, "%sreduce: %d dimensions; valid: 0 and above", graph->scope, n);
    if (!clv_graph_require(graph, dims || n == 0, __func__, "dimensions") ||
        !clv_graph_require_enum(graph, "reduce", (int)kind, kinds))
        return CLV_NONE;
    reduce_attrs a;
    memset(&a, 0, sizeof a);
    a.kind = (int)kind;
    a.keep = keep;
    int rank = clv_graph_type(graph, x).rank;
    for (int i = 0; i < n; i++) {
        if (dims[i] < 0 || dims[i] >= rank || a.reduced[dims[i]])
            return clv_graph_fail(graph, CLV_EINVAL, "%sreduce: dimension %d; valid: each of 0 to %d once",
                                  graph->scope, dims[i], rank - 1);
        a.reduced[dims[i]] = true;
    }
    return clv_graph_emit_one(graph, &clv_op_reduce, &a, &x, 1);
}

const clv_op_def clv_op_reduce = {
    .name = "reduce",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(reduce_attrs, reduce_fields),
    .shape = reduce_shape,
    .rule = reduce_rule,
    .gradient = reduce_gradient,
    .run = reduce_run,
    .statistics = 1,
    .traits = &(const clv_op_traits){.accepts_f32_results = true},
};

/* ---- broadcast ---- */

typedef struct broadcast_attrs {
    int64_t shape[CLV_MAX_RANK];
} broadcast_attrs;

static const clv_attr broadcast_fields[] = {{"shape", CLV_ATTR_INT64, offsetof(broadcast_attrs, shape), CLV_MAX_RANK},
                                            {0}};

static clv_status broadcast_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const broadcast_attrs *a = op->attrs;
    *out = in[0];
    for (int d = 0; d < out->rank; d++) {
        if (in[0].shape[d] != 1 && in[0].shape[d] != a->shape[d])
            return clv_fail(err, CLV_ESHAPE, "dimension %d of size %lld cannot become %lld", d,
                            (long long)in[0].shape[d], (long long)a->shape[d]);
        out->shape[d] = a->shape[d];
    }
    return CLV_OK;
}

static void broadcast_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
    clv_rule_multilinear(rule, 1);
    clv_rule_keeps_partial_max(rule);
}

/* Fills to[n], n >= 1, with the element at `source`, doubling the filled part with each copy. */
static void repeat(char *to, const char *source, size_t size, int64_t n)
{
    memcpy(to, source, size);
    for (int64_t done = 1; done < n; done *= 2)
        memcpy(to + (size_t)done * size, to, (size_t)(n - done < done ? n - done : done) * size);
}

/* Copies or repeats runs of the last dimension. */
static clv_status broadcast_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *out = &call->out[0];
    size_t size = clv_dtype_size(out->dtype);
    int last = out->rank - 1;
    int64_t run = last >= 0 ? out->shape[last] : 1, elems = clv_view_elems(out), index[CLV_MAX_RANK] = {0};
    bool repeats = last >= 0 && x->shape[last] != run;
    for (int64_t at = 0; at < elems; at += run) {
        int64_t from = 0;
        for (int d = 0; d <= last; d++)
            from = from * x->shape[d] + (x->shape[d] == out->shape[d] && d != last ? index[d] : 0);
        char *to = (char *)out->data + (size_t)at * size;
        const char *source = (const char *)x->data + (size_t)from * size;
        if (repeats)
            repeat(to, source, size, run);
        else
            memcpy(to, source, (size_t)run * size);
        clv_index_next(index, out->shape, last);
    }
    return CLV_OK;
}

static void broadcast_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    d_in[0] = clv_graph_unbroadcast(graph, d_out[0], clv_graph_type(graph, clv_op_operand(op, 0)));
}

clv_value clv_broadcast(clv_graph *graph, clv_value x, const int64_t *shape)
{
    if (!clv_graph_require(graph, shape != NULL, __func__, "a shape"))
        return CLV_NONE;
    broadcast_attrs a;
    memset(&a, 0, sizeof a);
    int rank = clv_graph_type(graph, x).rank;
    memcpy(a.shape, shape, (size_t)rank * sizeof *shape);
    if (clv_valid(x) && memcmp(a.shape, clv_graph_type(graph, x).shape, (size_t)rank * sizeof *shape) == 0)
        return x;
    return clv_graph_emit_one(graph, &clv_op_broadcast, &a, &x, 1);
}

const clv_op_def clv_op_broadcast = {
    .name = "broadcast",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(broadcast_attrs, broadcast_fields),
    .shape = broadcast_shape,
    .rule = broadcast_rule,
    .gradient = broadcast_gradient,
    .run = broadcast_run,
};

/* ---- equal ---- */

static clv_status equal_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    bool fits = in[0].rank == in[1].rank && in[0].dtype == in[1].dtype;
    for (int d = 0; fits && d < in[0].rank; d++)
        fits = in[1].shape[d] == 1 || in[1].shape[d] == in[0].shape[d];
    *out = in[0];
    if (fits)
        return CLV_OK;
    return clv_fail(err, CLV_ESHAPE, "x is %s, y is %s; y needs x's dtype and its dimensions, or 1 in their place",
                    clv_type_string(&in[0]).text, clv_type_string(&in[1]).text);
}

/* Integers are compared by bytes: f64 cannot hold every i64. */
static bool same_element(const clv_view *x, int64_t i, const clv_view *y, int64_t j)
{
    size_t bytes = clv_dtype_size(x->dtype);
    if (clv_dtype_is_float(x->dtype))
        return clv_dtype_load(x->dtype, x->data, i) == clv_dtype_load(y->dtype, y->data, j);
    return memcmp((const char *)x->data + (size_t)i * bytes, (const char *)y->data + (size_t)j * bytes, bytes) == 0;
}

static clv_status equal_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *y = &call->in[1], *out = &call->out[0];
    int64_t elems = clv_view_elems(out), index[CLV_MAX_RANK] = {0};
    for (int64_t i = 0; i < elems; i++) {
        int64_t at = clv_broadcast_element(y->shape, index, out->rank);
        clv_dtype_store(out->dtype, out->data, i, same_element(x, i, y, at));
        clv_index_next(index, out->shape, out->rank);
    }
    return CLV_OK;
}

const clv_op_def clv_op_equal = {
    .name = "equal",
    CLV_ARITY(2, 2, 1),
    .shape = equal_shape,
    .rule = clv_op_rule_elementwise,
    .run = equal_run,
};

clv_value clv_equal(clv_graph *graph, clv_value x, clv_value y)
{
    clv_value in[] = {x, y};
    return clv_graph_emit_one(graph, &clv_op_equal, NULL, in, 2);
}
