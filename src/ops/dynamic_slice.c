/* dynamic_slice.c - slices, and updates of slices, at starts that are values (StableHLO's).
 *
 *   dynamic_slice:         out = x[start .. start + size) of each dimension
 *   dynamic_update_slice:  out = x, but update at [start .. start + its size)
 *
 * x of any dtype; starts i32 or i64 [rank], moved so that the box lies inside x. factors: dimensions that the box has
 * whole pass, the others are whole. The slice is linear in x, the update in both. No gradient.
 */
#include "ops/builtin_ops.h"
#include "kernels/cpu/transpose_kernel.h"

typedef struct slice_attrs {
    int64_t sizes[CLV_MAX_RANK];
} slice_attrs;

static const clv_attr slice_fields[] = {{"sizes", CLV_ATTR_INT64, offsetof(slice_attrs, sizes), CLV_MAX_RANK}, {0}};

static clv_status check_box(const clv_type *x, const clv_type *starts, const int64_t *sizes, clv_error *err)
{
    CLV_TRY(clv_check_index("starts", starts, err));
    if (starts->rank != 1 || starts->shape[0] != x->rank)
        return clv_fail(err, CLV_ESHAPE, "starts are %s; %d of them are needed", clv_type_string(starts).text, x->rank);
    for (int d = 0; d < x->rank; d++)
        if (sizes[d] < 0 || sizes[d] > x->shape[d])
            return clv_fail(err, CLV_ESHAPE, "%lld elements of dimension %d of %s; valid: 0 to %lld",
                            (long long)sizes[d], d, clv_type_string(x).text, (long long)x->shape[d]);
    return CLV_OK;
}

/* Dimensions of x that the box has whole pass, of x, of `box` (operand 1 of an update) and of the result. */
static void add_whole_dims(clv_rule *rule, const clv_type *x, const int64_t *sizes, bool updates)
{
    for (int d = 0; d < x->rank; d++) {
        if (sizes[d] != x->shape[d])
            continue;
        int factor = clv_rule_add_factor(rule, x->shape[d], CLV_REDUCTION_NONE);
        clv_rule_operand_dim(rule, 0, d, factor);
        if (updates)
            clv_rule_operand_dim(rule, 1, d, factor);
        clv_rule_result_dim(rule, 0, d, factor);
    }
}

/* Where the box begins in this rank's part of x. */
static void find_starts(int64_t *low, const clv_view *x, const clv_view *starts, const int64_t *sizes)
{
    for (int d = 0; d < x->rank; d++) {
        int64_t at = clv_view_load_int(starts, d), most = x->global[d] - sizes[d];
        low[d] = at < 0 ? 0 : at > most ? most : at;
    }
}

/* ---- dynamic_slice ---- */

static clv_status slice_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const slice_attrs *a = op->attrs;
    CLV_TRY(check_box(&in[0], &in[1], a->sizes, err));
    *out = in[0];
    memcpy(out->shape, a->sizes, sizeof out->shape);
    return CLV_OK;
}

static void slice_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    add_whole_dims(rule, &in[0], ((const slice_attrs *)op->attrs)->sizes, false);
    clv_rule_multilinear(rule, 1);
}

static clv_op_cost slice_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.bytes = 2 * clv_type_bytes(out)};
}

static clv_status slice_run(const clv_call *call, clv_error *err)
{
    const clv_view *x = &call->in[0], *out = &call->out[0];
    int64_t low[CLV_MAX_RANK], zero[CLV_MAX_RANK] = {0};
    find_starts(low, x, &call->in[1], ((const slice_attrs *)call->op->attrs)->sizes);
    clv_copy_slice(clv_dtype_size(x->dtype), out->data, out->shape, zero, x->data, x->shape, low, x->rank, out->shape);
    return CLV_OK;
}

const clv_op_def clv_op_dynamic_slice = {
    .name = "dynamic_slice",
    CLV_ARITY(2, 2, 1),
    CLV_ATTRS(slice_attrs, slice_fields),
    .shape = slice_shape,
    .rule = slice_rule,
    .cost = slice_cost,
    .run = slice_run,
};

clv_value clv_dynamic_slice(clv_graph *graph, clv_value x, clv_value starts, const int64_t *sizes)
{
    slice_attrs a;
    memset(&a, 0, sizeof a);
    if (!clv_graph_require(graph, sizes != NULL, __func__, "sizes"))
        return CLV_NONE;
    memcpy(a.sizes, sizes, (size_t)clv_graph_type(graph, x).rank * sizeof *sizes);
    clv_value in[] = {x, starts};
    return clv_graph_emit_one(graph, &clv_op_dynamic_slice, &a, in, 2);
}

/* ---- dynamic_update_slice ---- */

static clv_status update_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    if (in[0].rank != in[1].rank || in[0].dtype != in[1].dtype)
        return clv_fail(err, CLV_ESHAPE, "the update is %s, x is %s; rank and dtype must be equal",
                        clv_type_string(&in[1]).text, clv_type_string(&in[0]).text);
    *out = in[0];
    return check_box(&in[0], &in[2], in[1].shape, err);
}

static void update_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    add_whole_dims(rule, &in[0], in[1].shape, true);
    clv_rule_additive(rule, 3);
}

static clv_op_cost update_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.bytes = 2 * clv_type_bytes(&in[1])};
}

static clv_status update_run(const clv_call *call, clv_error *err)
{
    const clv_view *update = &call->in[1], *out = &call->out[0];
    int64_t low[CLV_MAX_RANK], zero[CLV_MAX_RANK] = {0};
    find_starts(low, out, &call->in[2], update->global);
    clv_view_copy_unless_aliased(out, &call->in[0]);
    clv_copy_slice(clv_dtype_size(out->dtype), out->data, out->shape, low, update->data, update->shape, zero, out->rank,
                   update->shape);
    return CLV_OK;
}

const clv_op_def clv_op_dynamic_update_slice = {
    .name = "dynamic_update_slice",
    CLV_ARITY(3, 3, 1),
    .shape = update_shape,
    .rule = update_rule,
    .cost = update_cost,
    .in_place = {1 + 0},
    .run = update_run,
};

clv_value clv_dynamic_update_slice(clv_graph *graph, clv_value x, clv_value update, clv_value starts)
{
    clv_value in[] = {x, update, starts};
    return clv_graph_emit_one(graph, &clv_op_dynamic_update_slice, NULL, in, 3);
}
