/* elementwise.c - elementwise ops of models: unary map, binary with NumPy broadcasting, where, cast, fill, and their
 * gradients. pointwise.c has those of imported programs.
 *
 *   map:       out = f(x), f a clv_unary_kind, or x times a constant         factors: pass; scale and neg are linear
 *   combine:   out = a (op) b, NumPy broadcasting                            factors: pass; add and sub are additive,
 *              mul is linear in each operand, div in a; max passes partial maxima
 *   where:     out = condition ? a : b                                       factors: pass; additive in a and b
 *   cast:      out = x in another dtype                                      factors: pass; widening is linear;
 *              narrowing rounds, so partial values are reduced before it
 *   fill:      out = a constant
 *
 * gradients: map_gradient (of d_out and x or out), products and quotients on the graph, choice_gradient for max and min
 * (ties share evenly); gradients of broadcast operands are summed back to their shapes.
 */
#include "ops/builtin_ops.h"

/* ---- broadcasting ---- */

clv_status clv_broadcast_shapes(clv_type *out, const clv_type *const *operands, int n, clv_error *err)
{
    for (int i = 0; i < n; i++)
        out->rank = operands[i]->rank > out->rank ? operands[i]->rank : out->rank;
    for (int d = 0; d < out->rank; d++) {
        out->shape[d] = 1;
        for (int i = 0; i < n; i++) {
            int at = d - (out->rank - operands[i]->rank);
            int64_t size = at < 0 ? 1 : operands[i]->shape[at];
            if (size == 1)
                continue;
            if (out->shape[d] != 1 && out->shape[d] != size)
                return clv_fail(err, CLV_ESHAPE, "%s and %s do not broadcast together: sizes %lld and %lld",
                                clv_type_string(operands[0]).text, clv_type_string(operands[i]).text,
                                (long long)out->shape[d], (long long)size);
            out->shape[d] = size;
        }
    }
    return CLV_OK;
}

clv_value clv_graph_unbroadcast(clv_graph *graph, clv_value x, clv_type like)
{
    clv_type type = clv_graph_type(graph, x);
    if (!clv_valid(x) || clv_type_equal(&type, &like))
        return x;
    int dims[CLV_MAX_RANK], n = 0;
    int extra = type.rank - like.rank;
    for (int d = 0; d < type.rank; d++)
        if (d < extra || (like.shape[d - extra] == 1 && type.shape[d] != 1))
            dims[n++] = d;
    if (n == 0)
        return x;
    clv_value sum = clv_reduce(graph, CLV_SUM, x, dims, n, true);
    return extra == 0 ? sum : clv_reshape(graph, sum, like.rank, like.shape);
}

void clv_padded_shape(int64_t *shape, const clv_view *view, int rank)
{
    for (int d = 0; d < rank; d++) {
        int at = d - (rank - view->rank);
        shape[d] = at < 0 ? 1 : view->shape[at];
    }
}

/* ---- map ---- */

typedef struct map_attrs {
    int op; /* clv_unary_op */
    double factor;
} map_attrs;

static const clv_attr map_fields[] = {CLV_FIELD(INT, map_attrs, op), CLV_FIELD(DOUBLE, map_attrs, factor), {0}};

static clv_status map_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_float("x", &in[0], err));
    out[0] = in[0];
    return CLV_OK;
}

static bool is_linear(const map_attrs *a)
{
    return a->op == CLV_UNARY_SCALE || a->op == CLV_UNARY_NEG || a->op == CLV_UNARY_COPY;
}

static void map_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
    if (is_linear(op->attrs))
        clv_rule_multilinear(rule, 1);
}

static clv_status map_run(const clv_call *call, clv_error *err)
{
    const map_attrs *a = call->op->attrs;
    clv_unary_forward((clv_unary_op)a->op, a->factor, call->in[0].dtype, call->out[0].data, call->in[0].data,
                      clv_view_elems(&call->out[0]));
    return CLV_OK;
}

static void map_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    map_attrs a = *(const map_attrs *)op->attrs;
    if (is_linear(&a)) {
        d_in[0] = clv_graph_emit_one(graph, &clv_op_map, &a, d_out, 1);
        return;
    }
    bool saves_out = clv_unary_saved_for_backward((clv_unary_op)a.op) == CLV_SAVED_OUTPUT;
    clv_value in[] = {d_out[0], saves_out ? clv_op_result(op, 0) : clv_op_operand(op, 0)};
    d_in[0] = clv_graph_emit_one(graph, &clv_op_map_gradient, &a, in, 2);
}

const clv_op_def clv_op_map = {
    .name = "map",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(map_attrs, map_fields),
    .shape = map_shape,
    .rule = map_rule,
    .gradient = map_gradient,
    .in_place = {1},
    .run = map_run,
    .traits = &(const clv_op_traits){.is_rowwise = true, .passes_cotangent = true},
};

static void map_gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
    clv_rule_multilinear(rule, 1);
}

static clv_status map_gradient_run(const clv_call *call, clv_error *err)
{
    const map_attrs *a = call->op->attrs;
    clv_unary_backward((clv_unary_op)a->op, a->factor, call->in[0].dtype, call->out[0].data, call->in[0].data,
                       call->in[1].data, clv_view_elems(&call->out[0]));
    return CLV_OK;
}

const clv_op_def clv_op_map_gradient = {
    .name = "map_gradient",
    .display_name = "the gradient of the activation",
    CLV_ARITY(2, 2, 1),
    CLV_ATTRS(map_attrs, map_fields),
    .shape = map_shape,
    .rule = map_gradient_rule,
    .in_place = {1},
    .run = map_gradient_run,
    .traits = &(const clv_op_traits){.is_rowwise = true},
};

static clv_value map(clv_graph *graph, clv_unary_op op, double factor, clv_value x)
{
    map_attrs a;
    memset(&a, 0, sizeof a);
    a.op = (int)op;
    a.factor = factor;
    return clv_graph_emit_one(graph, &clv_op_map, &a, &x, 1);
}

clv_unary_op clv_unary_op_of_kind(clv_unary_kind kind)
{
    switch (kind) {
#define KERNEL(kind, value, kernel)                                                                                    \
    case kind:                                                                                                         \
        return CLV_UNARY_##kernel;
        CLV_UNARY_KINDS(KERNEL)
#undef KERNEL
    }
    return CLV_UNARY_COUNT;
}

clv_value clv_unary(clv_graph *graph, clv_unary_kind kind, clv_value x)
{
    static const clv_enum_name kinds[] = {CLV_UNARY_KINDS(CLV_ENUM_NAME_ROW){0}};
    return clv_graph_require_enum(graph, "map", (int)kind, kinds) ? map(graph, clv_unary_op_of_kind(kind), 0, x)
                                                                  : CLV_NONE;
}

clv_value clv_scale(clv_graph *graph, clv_value x, double factor)
{
    return map(graph, CLV_UNARY_SCALE, factor, x);
}

/* ---- combine ---- */

typedef struct combine_attrs {
    int op; /* clv_binary_op; max and min in choice_gradient */
} combine_attrs;

static const clv_attr combine_fields[] = {CLV_FIELD(INT, combine_attrs, op), {0}};

static clv_status combine_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    if (in[0].dtype != in[1].dtype)
        return clv_fail(err, CLV_EDTYPE, "operands are %s and %s; cast one", clv_dtype_name(in[0].dtype),
                        clv_dtype_name(in[1].dtype));
    *out = (clv_type){.dtype = in[0].dtype};
    return clv_broadcast_shapes(out, (const clv_type *const[]){&in[0], &in[1]}, 2, err);
}

static void combine_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    static const struct {
        clv_linearity linearity;
        uint32_t linear;
        bool passes_max;
    } rows[CLV_BINARY_COUNT] = {
        [CLV_BINARY_ADD] = {CLV_ADDITIVE, 3, false},    [CLV_BINARY_SUB] = {CLV_ADDITIVE, 3, false},
        [CLV_BINARY_MUL] = {CLV_MULTILINEAR, 3, false}, [CLV_BINARY_DIV] = {CLV_MULTILINEAR, 1, false},
        [CLV_BINARY_MAX] = {CLV_NOT_LINEAR, 0, true},   [CLV_BINARY_MIN] = {CLV_NOT_LINEAR, 0, false},
    };
    int which = ((const combine_attrs *)op->attrs)->op;
    clv_rule_elementwise(rule, op, in, out);
    rule->linearity = rows[which].linearity;
    rule->linear = rows[which].linear;
    rule->passes_max = rows[which].passes_max;
}

static clv_status combine_run(const clv_call *call, clv_error *err)
{
    const clv_view *out = &call->out[0];
    int64_t a[CLV_MAX_RANK], b[CLV_MAX_RANK];
    clv_padded_shape(a, &call->in[0], out->rank);
    clv_padded_shape(b, &call->in[1], out->rank);
    clv_binary_forward((clv_binary_op)((const combine_attrs *)call->op->attrs)->op, out->dtype, out->data,
                       call->in[0].data, call->in[1].data, out->rank, out->shape, a, b);
    return CLV_OK;
}

static combine_attrs combine_attrs_of(clv_binary_op op)
{
    combine_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.op = (int)op;
    return attrs;
}

static clv_value choice_of(clv_graph *graph, clv_binary_op op, clv_value d_out, clv_value a, clv_value b)
{
    combine_attrs attrs = combine_attrs_of(op);
    clv_value in[] = {d_out, a, b};
    return clv_graph_emit_one(graph, &clv_op_choice_gradient, &attrs, in, 3);
}

static void combine_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_binary_op which = (clv_binary_op)((const combine_attrs *)op->attrs)->op;
    clv_value a = clv_op_operand(op, 0), b = clv_op_operand(op, 1), d = d_out[0], d_a = d, d_b = d;
    if (which == CLV_BINARY_SUB)
        d_b = clv_unary(graph, CLV_NEG, d);
    if (which == CLV_BINARY_MUL) {
        d_a = clv_mul(graph, d, b);
        d_b = clv_mul(graph, d, a);
    }
    if (which == CLV_BINARY_DIV) {
        d_a = clv_div(graph, d, b);
        d_b = clv_unary(graph, CLV_NEG, clv_div(graph, clv_mul(graph, d, clv_op_result(op, 0)), b));
    }
    if (which == CLV_BINARY_MAX || which == CLV_BINARY_MIN) {
        d_a = choice_of(graph, which, d, a, b);
        d_b = choice_of(graph, which, d, b, a);
    }
    d_in[0] = clv_graph_unbroadcast(graph, d_a, clv_graph_type(graph, a));
    d_in[1] = clv_graph_unbroadcast(graph, d_b, clv_graph_type(graph, b));
}

static bool is_sum(const clv_op *op)
{
    return ((const combine_attrs *)op->attrs)->op == CLV_BINARY_ADD;
}

const clv_op_def clv_op_combine = {
    .name = "combine",
    CLV_ARITY(2, 2, 1),
    CLV_ATTRS(combine_attrs, combine_fields),
    .shape = combine_shape,
    .rule = combine_rule,
    .gradient = combine_gradient,
    .in_place = {1},
    .run = combine_run,
    .traits = &(const clv_op_traits){.is_sum = is_sum, .is_rowwise = true},
};

/* choice_gradient, in the shape of the result: d_out where a was chosen, half of it at a tie, else 0. */
static clv_status choice_run(const clv_call *call, clv_error *err)
{
    const clv_view *out = &call->out[0];
    int64_t a[CLV_MAX_RANK], b[CLV_MAX_RANK];
    clv_padded_shape(a, &call->in[1], out->rank);
    clv_padded_shape(b, &call->in[2], out->rank);
    clv_max_or_min_backward(((const combine_attrs *)call->op->attrs)->op == CLV_BINARY_MAX, out->dtype, out->data,
                            call->in[0].data, call->in[1].data, call->in[2].data, out->rank, out->shape, a, b);
    return CLV_OK;
}

const clv_op_def clv_op_choice_gradient = {
    .name = "choice_gradient",
    .display_name = "the gradient of the maximum or minimum",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(combine_attrs, combine_fields),
    .shape = clv_op_shape_like_first,
    .rule = map_gradient_rule,
    .in_place = {1},
    .run = choice_run,
};

static clv_binary_op binary_kernel(clv_binary_kind kind)
{
    switch (kind) {
#define KERNEL(kind, value, kernel)                                                                                    \
    case kind:                                                                                                         \
        return CLV_BINARY_##kernel;
        CLV_BINARY_KINDS(KERNEL)
#undef KERNEL
    }
    return CLV_BINARY_COUNT;
}

clv_value clv_binary(clv_graph *graph, clv_binary_kind kind, clv_value a, clv_value b)
{
    static const clv_enum_name kinds[] = {CLV_BINARY_KINDS(CLV_ENUM_NAME_ROW){0}};
    if (!clv_graph_require_enum(graph, "combine", (int)kind, kinds))
        return CLV_NONE;
    combine_attrs attrs = combine_attrs_of(binary_kernel(kind));
    clv_value in[] = {a, b};
    return clv_graph_emit_one(graph, &clv_op_combine, &attrs, in, 2);
}

clv_value clv_add(clv_graph *graph, clv_value a, clv_value b)
{
    return clv_binary(graph, CLV_ADD, a, b);
}

clv_value clv_sub(clv_graph *graph, clv_value a, clv_value b)
{
    return clv_binary(graph, CLV_SUB, a, b);
}

clv_value clv_mul(clv_graph *graph, clv_value a, clv_value b)
{
    return clv_binary(graph, CLV_MUL, a, b);
}

clv_value clv_div(clv_graph *graph, clv_value a, clv_value b)
{
    return clv_binary(graph, CLV_DIV, a, b);
}

/* ---- where ---- */

static clv_status where_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    if (in[0].dtype != CLV_BOOL && in[0].dtype != CLV_U8)
        return clv_fail(err, CLV_EDTYPE, "the condition is %s; valid: bool or u8", clv_dtype_name(in[0].dtype));
    if (in[1].dtype != in[2].dtype)
        return clv_fail(err, CLV_EDTYPE, "the choices are %s and %s; cast one", clv_dtype_name(in[1].dtype),
                        clv_dtype_name(in[2].dtype));
    *out = (clv_type){.dtype = in[1].dtype};
    return clv_broadcast_shapes(out, (const clv_type *const[]){&in[1], &in[2], &in[0]}, 3, err);
}

static void where_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
    clv_rule_additive(rule, 6);
}

static clv_status where_run(const clv_call *call, clv_error *err)
{
    const clv_view *out = &call->out[0];
    int64_t shape[3][CLV_MAX_RANK];
    for (int i = 0; i < 3; i++)
        clv_padded_shape(shape[i], &call->in[i], out->rank);
    clv_where_forward(out->dtype, out->data, call->in[0].data, call->in[1].data, call->in[2].data, out->rank,
                      out->shape, shape[0], shape[1], shape[2]);
    return CLV_OK;
}

static void where_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_type type = clv_graph_type(graph, d_out[0]);
    clv_value zeros = clv_fill(graph, type.dtype, type.rank, type.shape, 0);
    clv_value condition = clv_op_operand(op, 0);
    d_in[1] = clv_graph_unbroadcast(graph, clv_where(graph, condition, d_out[0], zeros),
                                    clv_graph_type(graph, clv_op_operand(op, 1)));
    d_in[2] = clv_graph_unbroadcast(graph, clv_where(graph, condition, zeros, d_out[0]),
                                    clv_graph_type(graph, clv_op_operand(op, 2)));
}

clv_value clv_where(clv_graph *graph, clv_value condition, clv_value a, clv_value b)
{
    clv_value in[] = {condition, a, b};
    return clv_graph_emit_one(graph, &clv_op_where, NULL, in, 3);
}

const clv_op_def clv_op_where = {
    .name = "where",
    CLV_ARITY(3, 3, 1),
    .shape = where_shape,
    .rule = where_rule,
    .gradient = where_gradient,
    .run = where_run,
};

/* ---- cast ---- */

static const clv_attr cast_fields[] = {CLV_FIELD(DTYPE, clv_cast_attrs, dtype), {0}};

static clv_status cast_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = in[0];
    out[0].dtype = ((const clv_cast_attrs *)op->attrs)->dtype;
    return CLV_OK;
}

static bool widens(clv_dtype from, clv_dtype to)
{
    return clv_dtype_is_float(from) && clv_dtype_is_float(to) && clv_dtype_size(to) > clv_dtype_size(from);
}

static void cast_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_elementwise(rule, op, in, out);
    if (widens(in[0].dtype, out[0].dtype)) {
        clv_rule_multilinear(rule, 1);
        clv_rule_keeps_partial_max(rule);
    }
}

static clv_status cast_run(const clv_call *call, clv_error *err)
{
    clv_cast_values(call->out[0].dtype, call->out[0].data, call->in[0].dtype, call->in[0].data,
                    clv_view_elems(&call->out[0]));
    return CLV_OK;
}

static void cast_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_dtype from = clv_graph_type(graph, clv_op_operand(op, 0)).dtype;
    if (clv_dtype_is_float(from))
        d_in[0] = clv_cast(graph, d_out[0], from);
}

clv_value clv_cast(clv_graph *graph, clv_value x, clv_dtype dtype)
{
    if (!clv_graph_require(graph, true, __func__, ""))
        return CLV_NONE;
    clv_cast_attrs a;
    memset(&a, 0, sizeof a);
    a.dtype = dtype;
    return clv_valid(x) && clv_graph_type(graph, x).dtype == dtype ? x
                                                                   : clv_graph_emit_one(graph, &clv_op_cast, &a, &x, 1);
}

const clv_op_def clv_op_cast = {
    .name = "cast",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(clv_cast_attrs, cast_fields),
    .shape = cast_shape,
    .rule = cast_rule,
    .gradient = cast_gradient,
    .run = cast_run,
    .traits = &(const clv_op_traits){.is_rowwise = true},
};

/* ---- fill ---- */

typedef struct fill_attrs {
    double value;
    clv_dtype dtype;
    int rank;
    int64_t shape[CLV_MAX_RANK];
} fill_attrs;

static const clv_attr fill_fields[] = {CLV_FIELD(DOUBLE, fill_attrs, value),
                                       CLV_FIELD(DTYPE, fill_attrs, dtype),
                                       CLV_FIELD(INT, fill_attrs, rank),
                                       {"shape", CLV_ATTR_INT64, offsetof(fill_attrs, shape), CLV_MAX_RANK},
                                       {0}};

static clv_status fill_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const fill_attrs *a = op->attrs;
    *out = (clv_type){.dtype = a->dtype, .rank = a->rank};
    memcpy(out->shape, a->shape, sizeof a->shape);
    return CLV_OK;
}

static clv_status fill_run(const clv_call *call, clv_error *err)
{
    clv_fill_values(call->out[0].dtype, call->out[0].data, ((const fill_attrs *)call->op->attrs)->value,
                    clv_view_elems(&call->out[0]));
    return CLV_OK;
}

/* Whether the dtype can hold the value exactly. 2^63 needs its own check: it saturates to i64 and rounds back to 2^63.
 * */
static bool holds(clv_dtype dtype, double value)
{
    int64_t element = 0;
    double back = 0;
    if (clv_dtype_is_float(dtype))
        return true;
    clv_dtype_convert(dtype, &element, CLV_F64, &value, 1);
    clv_dtype_convert(CLV_F64, &back, dtype, &element, 1);
    return back == value && value < 0x1p63;
}

clv_value clv_fill(clv_graph *graph, clv_dtype dtype, int rank, const int64_t *shape, double value)
{
    if (!clv_graph_require(graph, shape || rank <= 0, __func__, "a shape"))
        return CLV_NONE;
    if (rank < 0 || rank > CLV_MAX_RANK)
        return clv_graph_fail(graph, CLV_ELIMIT, "%sfill of %d dimensions; valid: 0 to %d", graph->scope, rank,
                              CLV_MAX_RANK);
    if ((unsigned)dtype < CLV_DTYPE_COUNT && !holds(dtype, value))
        return clv_graph_fail(graph, CLV_EINVAL, "%sfill with %.17g, which %s does not hold", graph->scope, value,
                              clv_dtype_name(dtype));
    fill_attrs a;
    memset(&a, 0, sizeof a);
    a.value = value;
    a.dtype = dtype;
    a.rank = rank;
    for (int d = 0; d < rank; d++)
        a.shape[d] = shape[d];
    return clv_graph_emit_one(graph, &clv_op_fill, &a, NULL, 0);
}

const clv_op_def clv_op_fill = {
    .name = "fill",
    CLV_ARITY(0, 0, 1),
    CLV_ATTRS(fill_attrs, fill_fields),
    .shape = fill_shape,
    .rule = clv_op_rule_elementwise,
    .gradient = clv_op_gradient_zero,
    .run = fill_run,
};
