/* prepacked_dot.c - matrix product with weights prepacked into GEMM panels, for inference.
 *
 *   y[row..., out..., 16 o + c] = sum over in... of x[row..., in...] * W[out..., o, in..., c],   c < 16
 *
 * x, W and y are of one of f32, bf16 and f16. It is the einsum of the same weights as [in..., out...], with the same
 * bits on up to 16 rows.
 *          factors: rows and out pass, the last of out by whole panels; in reduce(sum); linear in both
 * Weights are packed for inference alone, so there is no gradient.
 */
#include "base/error.h"
#include "graph/graph.h"
#include "kernels/cpu/gemm/gemm.h"
#include "ops/builtin_ops.h"
#include "ops/operand_checks.h"

enum { X = 0, W = 1 };

typedef struct packed_attrs {
    int n_in; /* dimensions that are contracted */
} packed_attrs;

static const clv_attr attrs[] = {{"in", CLV_ATTR_INT, offsetof(packed_attrs, n_in), 1}, {0}};

/* Dimensions of `out`, and of rows. */
static int out_dims(const packed_attrs *a, const clv_type *in)
{
    return in[W].rank - 1 - a->n_in;
}

static int row_dims(const packed_attrs *a, const clv_type *in)
{
    return in[X].rank - a->n_in;
}

/* Whether the shapes are those of one product. */
static bool fits(const packed_attrs *a, const clv_type *in)
{
    const int n_out = out_dims(a, in), rows = row_dims(a, in);
    if (n_out < 1 || rows < 0 || rows + n_out > CLV_MAX_RANK || in[W].shape[in[W].rank - 1] != CLV_PANEL_COLUMNS)
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (in[X].shape[rows + i] != in[W].shape[n_out + i])
            return false;
    return true;
}

static clv_status packed_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const packed_attrs *a = op->attrs;
    char text[2][CLV_TYPE_TEXT];
    for (int i = 0; i < 2; i++)
        clv_type_print(text[i], sizeof text[i], &in[i]);
    if (a->n_in < 1)
        return clv_fail(err, CLV_EINVAL, "a product over %d dimensions; valid: 1 or more", a->n_in);
    if (!clv_dtype_is_float(in[X].dtype) || in[X].dtype == CLV_F64 || in[W].dtype != in[X].dtype)
        return clv_fail(err, CLV_EDTYPE, "operands are %s and %s; valid: f32, bf16 or f16, the same of both", text[X],
                        text[W]);
    if (!fits(a, in))
        return clv_fail(err, CLV_ESHAPE, "%s does not fit %s; valid: weights [out..., in..., %d]", text[X], text[W],
                        CLV_PANEL_COLUMNS);
    const int n_out = out_dims(a, in), rows = row_dims(a, in);
    *out = (clv_type){.dtype = in[X].dtype, .rank = rows + n_out};
    for (int d = 0; d < out->rank; d++)
        out->shape[d] = d < rows ? in[X].shape[d] : in[W].shape[d - rows];
    out->shape[out->rank - 1] *= CLV_PANEL_COLUMNS;
    return CLV_OK;
}

static void packed_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const packed_attrs *a = op->attrs;
    const int n_out = out_dims(a, in), rows = row_dims(a, in);
    for (int d = 0; d < out->rank; d++) {
        const clv_type *from = d < rows ? &in[X] : &in[W];
        int factor = clv_rule_add_factor(rule, from->shape[d < rows ? d : d - rows], CLV_REDUCTION_NONE);
        clv_rule_result_dim(rule, 0, d, factor);
        clv_rule_operand_dim(rule, d < rows ? X : W, d < rows ? d : d - rows, factor);
    }
    for (int i = 0; i < a->n_in; i++) {
        int factor = clv_rule_add_factor(rule, in[W].shape[n_out + i], CLV_REDUCTION_SUM);
        clv_rule_operand_dim(rule, X, rows + i, factor);
        clv_rule_operand_dim(rule, W, n_out + i, factor);
    }
    int column = clv_rule_add_factor(rule, CLV_PANEL_COLUMNS, CLV_REDUCTION_NONE);
    clv_rule_name_factor(rule, column, "columns of a panel");
    clv_rule_forbid_split(rule, column);
    clv_rule_operand_dim(rule, W, in[W].rank - 1, column);
    clv_rule_result_dim(rule, 0, out->rank - 1, column);
    clv_rule_multilinear(rule, 1u << X | 1u << W);
}

/* But for memory. */
static void packed_plan(void *plan, const clv_op *op, const clv_view *in, const clv_view *out)
{
    const packed_attrs *a = op->attrs;
    const int rows = in[X].rank - a->n_in;
    clv_gemm_args *g = plan;
    *g = (clv_gemm_args){.m = clv_shape_product(out->shape, 0, rows),
                         .n = clv_shape_product(out->shape, rows, out->rank),
                         .k = clv_shape_product(in[X].shape, rows, in[X].rank),
                         .batch = 1,
                         .packed_b = true,
                         .dtype = out->dtype,
                         .c_dtype = out->dtype};
    g->lda = g->k;
    g->ldc = g->n;
}

static size_t packed_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    clv_gemm_args g;
    packed_plan(&g, op, in, out);
    return clv_gemm_workspace(&g);
}

static clv_status packed_run_plan(const void *plan, const clv_call *call, clv_error *err)
{
    clv_gemm_args g = *(const clv_gemm_args *)plan;
    g.a = call->in[X].data;
    g.b = call->in[W].data;
    g.c = call->out[0].data;
    g.workspace = call->workspace;
    g.work = clv_call_thread_pool(call);
    return clv_gemm(&g, err);
}

static clv_status packed_run(const clv_call *call, clv_error *err)
{
    clv_gemm_args g;
    packed_plan(&g, call->op, call->in, call->out);
    return packed_run_plan(&g, call, err);
}

static clv_op_cost packed_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    const packed_attrs *a = op->attrs;
    double flops = 2 * (double)clv_shape_product(out->shape, 0, out->rank);
    flops *= (double)clv_shape_product(in[X].shape, row_dims(a, in), in[X].rank);
    return (clv_op_cost){.flops = flops,
                         .bytes = clv_type_bytes(&in[X]) + clv_type_bytes(&in[W]) + clv_type_bytes(out)};
}

const clv_op_def clv_op_prepacked_dot = {
    .name = "packed_dot",
    .display_name = "the product with packed weights",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs_size = sizeof(packed_attrs),
    .attrs = attrs,
    .shape = packed_shape,
    .rule = packed_rule,
    .cost = packed_cost,
    .workspace = packed_workspace,
    .run = packed_run,
    .counts_flops = true,
    .traits = &(const clv_op_traits){.is_rowwise = true,
                                     .is_product = true,
                                     .rates_of = "dot_general",
                                     .plan_bytes = sizeof(clv_gemm_args),
                                     .plan = packed_plan,
                                     .run_plan = packed_run_plan},
};

clv_value clv_prepacked_dot(clv_graph *graph, clv_value x, clv_value weights, int n_in)
{
    packed_attrs a = {.n_in = n_in};
    clv_value in[] = {x, weights};
    return clv_graph_emit_one(graph, &clv_op_prepacked_dot, &a, in, 2);
}
