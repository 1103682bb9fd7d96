/* rotate.c - rotary position embedding by given cosines and sines, as imported programs have it.
 *
 *   of a pair (a, b): out[a] = x[a] cos[a] - x[b] sin[a],  out[b] = x[b] cos[b] + x[a] sin[b]
 *   pairs are (i, i + D/2), or (2i, 2i+1) if interleaved
 *
 *   x [..., D]; cos and sin f32 (f64 for f64), of one type: [..., D], or [..., D/2], one a pair; other dimensions are
 *   those of x, or 1
 *   factors: all dimensions but the last; linear in x
 *
 * The gradient of x is the transposed op; that of cos and sin are products with x.
 * rope.c takes angles from positions that it knows. Source: Su et al. 2021, arXiv:2104.09864.
 */
#include "kernels/cpu/rope_kernel.h"
#include "ops/builtin_ops.h"

typedef struct rotate_attrs {
    bool interleaved, transposed;
} rotate_attrs;

static const clv_attr rotate_fields[] = {
    CLV_FIELD(BOOL, rotate_attrs, interleaved), CLV_FIELD(BOOL, rotate_attrs, transposed), {0}};

static bool is_table_of(const clv_type *table, const clv_type *x)
{
    const int last = x->rank - 1;
    if (table->rank != x->rank || (table->shape[last] != x->shape[last] && 2 * table->shape[last] != x->shape[last]))
        return false;
    for (int d = 0; d < last; d++)
        if (table->shape[d] != 1 && table->shape[d] != x->shape[d])
            return false;
    return true;
}

static clv_status rotate_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const clv_dtype table = clv_statistics_dtype(in[0].dtype);
    CLV_TRY(clv_check_float("x", &in[0], err));
    const int64_t width = in[0].rank > 0 ? in[0].shape[in[0].rank - 1] : 0;
    if (width < 2 || width % 2 != 0 || width > CLV_ROPE_MAX_ROTARY)
        return clv_fail(err, CLV_ESHAPE, "x is %s; a last dimension that is even, from 2 to %d, is needed",
                        clv_type_string(&in[0]).text, CLV_ROPE_MAX_ROTARY);
    if (!clv_type_equal(&in[1], &in[2]) || in[1].dtype != table || !is_table_of(&in[1], &in[0]))
        return clv_fail(
            err, CLV_ESHAPE,
            "cos is %s and sin is %s beside x of %s; both are needed as %s, with dimensions of x, or 1, and "
            "the last one %lld or %lld",
            clv_type_string(&in[1]).text, clv_type_string(&in[2]).text, clv_type_string(&in[0]).text,
            clv_dtype_name(table), (long long)width, (long long)width / 2);
    out[0] = in[0];
    return CLV_OK;
}

static void rotate_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const int rows = in[0].rank - 1;
    clv_rule_add_dims(rule, &in[0], rows);
    clv_rule_map_in_dims(rule, 0, rows);
    for (int d = 0; d < rows; d++) {
        clv_rule_result_dim(rule, 0, d, d);
        for (int table = 1; table <= 2; table++)
            if (in[table].shape[d] == in[0].shape[d])
                clv_rule_operand_dim(rule, table, d, d);
    }
    clv_rule_multilinear(rule, 1u << 0);
}

static clv_status rotate_run(const clv_call *call, clv_error *err)
{
    const rotate_attrs *attrs = call->op->attrs;
    const clv_view *x = &call->in[0], *cos = &call->in[1];
    const clv_rotate_args args = {.dtype = x->dtype,
                                  .interleaved = attrs->interleaved,
                                  .transposed = attrs->transposed,
                                  .of_pairs = cos->shape[x->rank - 1] != x->shape[x->rank - 1],
                                  .rank = x->rank,
                                  .shape = x->shape,
                                  .table_shape = cos->shape};
    clv_rope_rotate_by(&args, call->out[0].data, x->data, cos->data, call->in[2].data);
    return CLV_OK;
}

/* The elements of pairs, or sums of them, as tables have them. */
static clv_value like_table(clv_graph *graph, clv_value wide, clv_type table, bool interleaved)
{
    clv_type type = clv_graph_type(graph, wide);
    const int last = type.rank - 1;
    if (table.shape[last] != type.shape[last]) {
        int64_t shape[CLV_MAX_RANK + 1] = {0};
        memcpy(shape, type.shape, sizeof type.shape);
        shape[last] = interleaved ? table.shape[last] : 2;
        shape[last + 1] = interleaved ? 2 : table.shape[last];
        wide = clv_reshape(graph, wide, type.rank + 1, shape);
        wide = clv_reduce(graph, CLV_SUM, wide, (int[]){interleaved ? last + 1 : last}, 1, false);
    }
    return clv_graph_unbroadcast(graph, wide, table);
}

/* (-b, a) of each pair (a, b). */
static clv_value turned(clv_graph *graph, clv_value x, bool interleaved)
{
    const clv_type type = clv_graph_type(graph, x);
    int64_t shape[CLV_MAX_RANK] = {0};
    for (int d = 0; d < type.rank; d++)
        shape[d] = d == type.rank - 1 ? type.shape[d] / 2 : 1;
    return clv_rotate(graph, x, clv_fill(graph, type.dtype, type.rank, shape, 0),
                      clv_fill(graph, type.dtype, type.rank, shape, 1), interleaved);
}

static void rotate_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    rotate_attrs attrs = *(const rotate_attrs *)op->attrs;
    const bool transposed = attrs.transposed;
    const clv_value cos = clv_op_operand(op, 1), sin = clv_op_operand(op, 2);
    const clv_type table = clv_graph_type(graph, cos);
    const clv_value x = clv_cast(graph, clv_op_operand(op, 0), table.dtype), d = clv_cast(graph, d_out[0], table.dtype);
    const clv_value d_sin = transposed ? clv_mul(graph, x, turned(graph, d, attrs.interleaved))
                                       : clv_mul(graph, d, turned(graph, x, attrs.interleaved));
    attrs.transposed = !transposed;
    d_in[0] = clv_graph_emit_one(graph, op->def, &attrs, (clv_value[]){d_out[0], cos, sin}, 3);
    d_in[1] = like_table(graph, clv_mul(graph, d, x), table, attrs.interleaved);
    d_in[2] = like_table(graph, d_sin, table, attrs.interleaved);
}

static clv_op_cost rotate_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.flops = 3 * (double)clv_type_elems(&in[0]),
                         .bytes = 2 * clv_type_bytes(&in[0]) + clv_type_bytes(&in[1]) + clv_type_bytes(&in[2])};
}

const clv_op_def clv_op_rotate = {
    .name = "rotate",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(rotate_attrs, rotate_fields),
    .shape = rotate_shape,
    .rule = rotate_rule,
    .gradient = rotate_gradient,
    .cost = rotate_cost,
    .in_place = {1 + 0},
    .run = rotate_run,
};

clv_value clv_rotate_as(clv_graph *graph, clv_value x, clv_value cos, clv_value sin, bool interleaved, bool transposed)
{
    const clv_dtype dtype = clv_statistics_dtype(clv_graph_type(graph, x).dtype);
    rotate_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.interleaved = interleaved;
    attrs.transposed = transposed;
    clv_value in[] = {x, clv_cast(graph, cos, dtype), clv_cast(graph, sin, dtype)};
    return clv_graph_emit_one(graph, &clv_op_rotate, &attrs, in, 3);
}

clv_value clv_rotate(clv_graph *graph, clv_value x, clv_value cos, clv_value sin, bool interleaved)
{
    return clv_rotate_as(graph, x, cos, sin, interleaved, false);
}
