/* reshape.c - reshape op: sharding rule that maps dimension products, as [B,S,H*D] to [B,S,H,D].
 *
 * factors: both shapes are walked major to minor. Where a dimension of one is a product of dimensions of the other
 * ([B,S,H*D] <-> [B,S,H,D]), these are the factors, so that a split by heads passes (its alignment is D). Dimensions
 * that do not line up are whole. Linear; passes maxima.      gradient: the inverse reshape
 */
#include "ops/builtin_ops.h"

typedef struct reshape_attrs {
    int rank;
    int64_t shape[CLV_MAX_RANK];
} reshape_attrs;

static const clv_attr attrs[] = {
    CLV_FIELD(INT, reshape_attrs, rank), {"shape", CLV_ATTR_INT64, offsetof(reshape_attrs, shape), CLV_MAX_RANK}, {0}};

static clv_status reshape_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const reshape_attrs *a = op->attrs;
    *out = (clv_type){.dtype = in[0].dtype, .rank = a->rank};
    memcpy(out->shape, a->shape, sizeof a->shape);
    CLV_TRY(clv_shape_check(out->shape, out->rank, out->dtype, err));
    if (clv_type_elems(&in[0]) != clv_type_elems(out))
        return clv_fail(err, CLV_ESHAPE, "%s cannot become %s: they have %lld and %lld elements",
                        clv_type_string(&in[0]).text, clv_type_string(out).text, (long long)clv_type_elems(&in[0]),
                        (long long)clv_type_elems(out));
    return CLV_OK;
}

/* A position in a shape: the current dimension, and the part of it that has no factor yet. */
typedef struct walk {
    const clv_type *type;
    int dim;
    int64_t left;
} walk;

static void step(walk *w)
{
    do
        w->dim++;
    while (w->dim < w->type->rank && w->type->shape[w->dim] == 1);
    w->left = w->dim < w->type->rank ? w->type->shape[w->dim] : 1;
}

/* Adds a factor that must not be split. */
static int add_whole(clv_rule *rule, int64_t size)
{
    int factor = clv_rule_add_factor(rule, size, CLV_REDUCTION_NONE);
    clv_rule_forbid_split(rule, factor);
    return factor;
}

/* Adds whole factors until both walks have passed equally many elements. */
static void pass_unaligned(clv_rule *rule, walk *in, walk *out)
{
    int64_t a = in->left, b = out->left;
    clv_rule_operand_dim(rule, 0, in->dim, add_whole(rule, a));
    clv_rule_result_dim(rule, 0, out->dim, add_whole(rule, b));
    while (a != b) {
        walk *behind = a < b ? in : out;
        step(behind);
        if (a < b) {
            clv_rule_operand_dim(rule, 0, in->dim, add_whole(rule, in->left));
            a *= in->left;
        } else {
            clv_rule_result_dim(rule, 0, out->dim, add_whole(rule, out->left));
            b *= out->left;
        }
    }
    step(in);
    step(out);
}

static void reshape_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_multilinear(rule, 1);
    clv_rule_keeps_partial_max(rule);
    if (clv_type_elems(&in[0]) == 0)
        return;
    walk a = {.type = &in[0], .dim = -1}, b = {.type = &out[0], .dim = -1};
    step(&a);
    step(&b);
    while (a.dim < in[0].rank && b.dim < out[0].rank) {
        int64_t piece = a.left < b.left ? a.left : b.left;
        if (a.left % piece != 0 || b.left % piece != 0) {
            pass_unaligned(rule, &a, &b);
            continue;
        }
        int factor = clv_rule_add_factor(rule, piece, CLV_REDUCTION_NONE);
        clv_rule_operand_dim(rule, 0, a.dim, factor);
        clv_rule_result_dim(rule, 0, b.dim, factor);
        if ((a.left /= piece) == 1)
            step(&a);
        if ((b.left /= piece) == 1)
            step(&b);
    }
}

static clv_status reshape_run(const clv_call *call, clv_error *err)
{
    clv_view_copy_unless_aliased(&call->out[0], &call->in[0]);
    return CLV_OK;
}

static void reshape_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_type type = clv_graph_type(graph, clv_op_operand(op, 0));
    d_in[0] = clv_reshape(graph, d_out[0], type.rank, type.shape);
}

clv_value clv_reshape(clv_graph *graph, clv_value x, int rank, const int64_t *shape)
{
    if (!clv_graph_require(graph, shape || rank <= 0, __func__, "a shape"))
        return CLV_NONE;
    if (rank < 0 || rank > CLV_MAX_RANK)
        return clv_graph_fail(graph, CLV_ELIMIT, "%sreshape to %d dimensions; valid: 0 to %d", graph->scope, rank,
                              CLV_MAX_RANK);
    reshape_attrs a;
    memset(&a, 0, sizeof a);
    a.rank = rank;
    for (int d = 0; d < rank; d++)
        a.shape[d] = shape[d];
    return clv_graph_emit_one(graph, &clv_op_reshape, &a, &x, 1);
}

const clv_op_def clv_op_reshape = {
    .name = "reshape",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(reshape_attrs, attrs),
    .shape = reshape_shape,
    .rule = reshape_rule,
    .gradient = reshape_gradient,
    .in_place = {1},
    .run = reshape_run,
    .traits = &(const clv_op_traits){.passes_cotangent = true},
};
