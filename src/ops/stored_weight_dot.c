/* stored_weight_dot.c - matrix products with prepacked or quantized weights, for inference.
 *
 *   y[row..., out...] = sum over in... of x[row..., in...] * W[out..., in...]
 *
 *   packed_dot  w [out..., in..., 16] of x's dtype (f32, bf16 or f16), where the last of `out` counts panels of 16:
 *               W[out..., 16 o + c, in...] = w[out..., o, in..., c]. The same bits as the einsum on up to 16 rows.
 *               factors: rows and out pass, the last of out by whole panels; in reduce(sum); linear in both
 *   quant_dot   ints u8 [out..., in.../32, 32 (q8) or 16 (q4)], scales f16 without the last dimension, x of any float
 *               dtype: W[out..., in..., 32 b + i] = scales[out..., in..., b] * integer i of ints[out..., in..., b, :]
 *               factors: rows and out pass; in reduce(sum), the last of in by whole blocks; not linear, because the
 *               kernel rounds x when there are few rows (kernels/cpu/gemm/gemm_quantized.h)
 *
 * No gradient: weights are stored like this for inference only.
 */
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/gemm_quantized.h"
#include "ops/builtin_ops.h"

enum { X, W, SCALES, QUANTIZED_IN };

typedef struct dot_attrs {
    int quant; /* clv_quant of quant_dot */
    int n_in;  /* contracted dimensions */
} dot_attrs;

static const clv_attr packed_attr_table[] = {{"in", CLV_ATTR_INT, offsetof(dot_attrs, n_in), 1}, {0}};
static const clv_attr quant_attr_table[] = {
    CLV_FIELD(INT, dot_attrs, quant), {"in", CLV_ATTR_INT, offsetof(dot_attrs, n_in), 1}, {0}};

/* Numbers of `out` and row dimensions. */
static int out_dims(const clv_op *op, const clv_type *in)
{
    return in[W].rank - 1 - ((const dot_attrs *)op->attrs)->n_in;
}

static int row_dims(const clv_op *op, const clv_type *in)
{
    return in[X].rank - ((const dot_attrs *)op->attrs)->n_in;
}

/* Whether x [row..., in...] fits the weights [out..., in..., last], with `block` elements in one of the last of in. */
static bool fits(const clv_op *op, const clv_type *in, int64_t last, int64_t block)
{
    const int n_in = ((const dot_attrs *)op->attrs)->n_in, n_out = out_dims(op, in), rows = row_dims(op, in);
    if (n_out < 1 || rows < 0 || rows + n_out > CLV_MAX_RANK || in[W].shape[in[W].rank - 1] != last)
        return false;
    for (int i = 0; i < n_in; i++)
        if (in[X].shape[rows + i] != in[W].shape[n_out + i] * (i == n_in - 1 ? block : 1))
            return false;
    return true;
}

/* [row..., out...], with `columns` elements in one of the last of out. */
static clv_type result_type(const clv_op *op, const clv_type *in, int64_t columns)
{
    const int rows = row_dims(op, in);
    clv_type out = {.dtype = in[X].dtype, .rank = rows + out_dims(op, in)};
    for (int d = 0; d < out.rank; d++)
        out.shape[d] = d < rows ? in[X].shape[d] : in[W].shape[d - rows];
    out.shape[out.rank - 1] *= columns;
    return out;
}

/* Factors of rows, out and in, which `scales` has like the weights. */
static void dot_factors(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const int n_out = out_dims(op, in), rows = row_dims(op, in), weights = op->n_in;
    for (int d = 0; d < out->rank; d++) {
        int64_t size = d < rows ? in[X].shape[d] : in[W].shape[d - rows];
        int factor = clv_rule_add_factor(rule, size, CLV_REDUCTION_NONE);
        clv_rule_result_dim(rule, 0, d, factor);
        if (d < rows)
            clv_rule_operand_dim(rule, X, d, factor);
        for (int i = W; d >= rows && i < weights; i++)
            clv_rule_operand_dim(rule, i, d - rows, factor);
    }
    for (int d = rows; d < in[X].rank; d++) {
        int factor = clv_rule_add_factor(rule, in[W].shape[n_out + d - rows], CLV_REDUCTION_SUM);
        clv_rule_operand_dim(rule, X, d, factor);
        for (int i = W; i < weights; i++)
            clv_rule_operand_dim(rule, i, n_out + d - rows, factor);
    }
}

static clv_op_cost dot_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    double flops = 2 * (double)clv_shape_product(out->shape, 0, out->rank);
    flops *= (double)clv_shape_product(in[X].shape, row_dims(op, in), in[X].rank);
    return (clv_op_cost){.flops = flops, .bytes = clv_op_traffic_bytes(op, in, out)};
}

/* ---- packed_dot ---- */

static clv_status packed_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const dot_attrs *a = op->attrs;
    if (a->n_in < 1)
        return clv_fail(err, CLV_EINVAL, "a product over %d dimensions; valid: 1 or more", a->n_in);
    if (!clv_dtype_is_float(in[X].dtype) || in[X].dtype == CLV_F64 || in[W].dtype != in[X].dtype)
        return clv_fail(err, CLV_EDTYPE, "operands are %s and %s; valid: f32, bf16 or f16, the same of both",
                        clv_type_string(&in[X]).text, clv_type_string(&in[W]).text);
    if (!fits(op, in, CLV_PANEL_COLUMNS, 1))
        return clv_fail(err, CLV_ESHAPE, "%s does not fit %s; valid: weights [out..., in..., %d]",
                        clv_type_string(&in[X]).text, clv_type_string(&in[W]).text, CLV_PANEL_COLUMNS);
    *out = result_type(op, in, CLV_PANEL_COLUMNS);
    return CLV_OK;
}

static void packed_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    dot_factors(op, in, out, rule);
    int column = clv_rule_add_factor(rule, CLV_PANEL_COLUMNS, CLV_REDUCTION_NONE);
    clv_rule_name_factor(rule, column, "columns of a panel");
    clv_rule_forbid_split(rule, column);
    clv_rule_operand_dim(rule, W, in[W].rank - 1, column);
    clv_rule_result_dim(rule, 0, out->rank - 1, column);
    clv_rule_multilinear(rule, 1u << X | 1u << W);
}

/* Everything but the pointers. */
static void packed_precompute(void *precomputed, const clv_op *op, const clv_view *in, const clv_view *out)
{
    const int rows = in[X].rank - ((const dot_attrs *)op->attrs)->n_in;
    clv_gemm_args *g = precomputed;
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
    packed_precompute(&g, op, in, out);
    return clv_gemm_workspace(&g);
}

static clv_status packed_run_precomputed(const void *precomputed, const clv_call *call, clv_error *err)
{
    clv_gemm_args g = *(const clv_gemm_args *)precomputed;
    g.a = call->in[X].data;
    g.b = call->in[W].data;
    g.c = call->out[0].data;
    g.workspace = call->workspace;
    g.work = clv_call_task_pool_member(call);
    return clv_gemm(&g, err);
}

static clv_status packed_run(const clv_call *call, clv_error *err)
{
    clv_gemm_args g;
    packed_precompute(&g, call->op, call->in, call->out);
    return packed_run_precomputed(&g, call, err);
}

const clv_op_def clv_op_packed_dot = {
    .name = "packed_dot",
    .display_name = "the product with packed weights",
    CLV_ARITY(SCALES, SCALES, 1),
    CLV_ATTRS(dot_attrs, packed_attr_table),
    .shape = packed_shape,
    .rule = packed_rule,
    .cost = dot_cost,
    .workspace = packed_workspace,
    .run = packed_run,
    .counts_flops = true,
    .traits = &(const clv_op_traits){.is_rowwise = true,
                                     .is_product = true,
                                     .rates_of = "dot_general",
                                     .precomputed_bytes = sizeof(clv_gemm_args),
                                     .precompute = packed_precompute,
                                     .run_precomputed = packed_run_precomputed},
};

clv_value clv_prepacked_dot(clv_graph *graph, clv_value x, clv_value weights, int n_in)
{
    return clv_graph_emit_one(graph, &clv_op_packed_dot, &(dot_attrs){.n_in = n_in}, (clv_value[]){x, weights}, SCALES);
}

/* ---- quant_dot ---- */

static clv_status quant_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const dot_attrs *a = op->attrs;
    const int64_t bytes = clv_quant_block_bytes((clv_quant)a->quant);
    if ((a->quant != CLV_QUANT_Q8 && a->quant != CLV_QUANT_Q4) || a->n_in < 1)
        return clv_fail(err, CLV_EINVAL, "blocks of kind %d over %d dimensions; valid: q8 or q4, over 1 or more",
                        a->quant, a->n_in);
    if (!clv_dtype_is_float(in[X].dtype) || in[W].dtype != CLV_U8 || in[SCALES].dtype != CLV_F16)
        return clv_fail(err, CLV_EDTYPE, "operands are %s, %s and %s; valid: floats, u8 and f16",
                        clv_type_string(&in[X]).text, clv_type_string(&in[W]).text, clv_type_string(&in[SCALES]).text);
    bool fit = fits(op, in, bytes, CLV_QUANT_BLOCK) && in[SCALES].rank == in[W].rank - 1;
    for (int d = 0; fit && d < in[SCALES].rank; d++)
        fit = in[W].shape[d] == in[SCALES].shape[d];
    if (!fit)
        return clv_fail(err, CLV_ESHAPE,
                        "%s does not fit %s of %s with scales %s; valid: integers [out..., in.../32, %lld], scales "
                        "without the last",
                        clv_type_string(&in[X]).text, clv_quant_name((clv_quant)a->quant), clv_type_string(&in[W]).text,
                        clv_type_string(&in[SCALES]).text, (long long)bytes);
    *out = result_type(op, in, 1);
    return CLV_OK;
}

static void quant_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    dot_factors(op, in, out, rule);
    int block = clv_rule_add_factor(rule, CLV_QUANT_BLOCK, CLV_REDUCTION_NONE);
    clv_rule_forbid_split(rule, block);
    clv_rule_operand_dim(rule, X, in[X].rank - 1, block);
}

static clv_gemm_quantized_args quant_args(const clv_op *op, const clv_view *in, const clv_view *out)
{
    const dot_attrs *a = op->attrs;
    const int rows = in[X].rank - a->n_in, n_out = out->rank - rows;
    return (clv_gemm_quantized_args){.how = (clv_quant)a->quant,
                                     .dtype = out->dtype,
                                     .m = clv_shape_product(out->shape, 0, rows),
                                     .global_m = clv_shape_product(out->global, 0, rows),
                                     .n = clv_shape_product(out->shape, rows, out->rank),
                                     .blocks = clv_shape_product(in[W].shape, n_out, in[W].rank - 1),
                                     .x = in[X].data,
                                     .ints = in[W].data,
                                     .scales = in[SCALES].data,
                                     .y = out->data};
}

static size_t quant_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    clv_gemm_quantized_args a = quant_args(op, in, out);
    return clv_gemm_quantized_workspace(&a);
}

static clv_status quant_run(const clv_call *call, clv_error *err)
{
    clv_gemm_quantized_args a = quant_args(call->op, call->in, call->out);
    a.workspace = call->workspace;
    a.work = clv_call_task_pool_member(call);
    return clv_gemm_quantized(&a, err);
}

const clv_op_def clv_op_quant_dot = {
    .name = "quant_dot",
    .display_name = "the product with quantised weights",
    CLV_ARITY(QUANTIZED_IN, QUANTIZED_IN, 1),
    CLV_ATTRS(dot_attrs, quant_attr_table),
    .shape = quant_shape,
    .rule = quant_rule,
    .cost = dot_cost,
    .workspace = quant_workspace,
    .run = quant_run,
    .counts_flops = true,
};

clv_value clv_quantized_dot(clv_graph *graph, clv_quant quant, clv_value x, clv_value ints, clv_value scales, int n_in)
{
    return clv_graph_emit_one(graph, &clv_op_quant_dot, &(dot_attrs){(int)quant, n_in}, (clv_value[]){x, ints, scales},
                              QUANTIZED_IN);
}
