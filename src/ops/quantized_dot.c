/* quantized_dot.c - matrix product with weights quantized in blocks (GGUF's Q8_0 and Q4_0), for inference.
 *
 *   y[row..., out...] = sum over in... of x[row..., in...] * W[out..., in...]
 *   W[out..., in..., 32 b + i] = scales[out..., in..., b] * the integer i of ints[out..., in..., b, :]
 *
 * x is of a float dtype, ints u8 with the 32 bytes of q8 or the 16 of q4 as its last dimension, scales f16. Blocks are
 * of 32 elements of the last dimension of `in`.
 *          factors: rows and out pass; in reduce(sum), the last of them by whole blocks
 * The kernel rounds x where there are few rows (kernels/cpu/gemm/gemm_quantized.h), so partial operands do not pass,
 * and there is no gradient.
 */
#include "base/error.h"
#include "graph/graph.h"
#include "kernels/cpu/gemm/gemm_quantized.h"
#include "ops/builtin_ops.h"
#include "ops/operand_checks.h"

typedef struct quant_attrs {
    int quant; /* a clv_quant */
    int n_in;  /* dimensions that are contracted */
} quant_attrs;

static const clv_attr attrs[] = {{"quant", CLV_ATTR_INT, offsetof(quant_attrs, quant), 1},
                                 {"in", CLV_ATTR_INT, offsetof(quant_attrs, n_in), 1},
                                 {0}};

/* Dimensions of `out`, and of rows. */
static int out_dims(const quant_attrs *a, const clv_type *in)
{
    return in[1].rank - 1 - a->n_in;
}

static int row_dims(const quant_attrs *a, const clv_type *in)
{
    return in[0].rank - a->n_in;
}

/* Whether the shapes are those of one product. */
static bool fits(const quant_attrs *a, const clv_type *in)
{
    const int n_out = out_dims(a, in), rows = row_dims(a, in);
    if (n_out < 1 || rows < 0 || rows + n_out > CLV_MAX_RANK || in[2].rank != in[1].rank - 1 ||
        in[1].shape[in[1].rank - 1] != clv_quant_block_bytes((clv_quant)a->quant))
        return false;
    for (int d = 0; d < in[2].rank; d++)
        if (in[1].shape[d] != in[2].shape[d])
            return false;
    for (int i = 0; i < a->n_in; i++)
        if (in[0].shape[rows + i] != in[1].shape[n_out + i] * (i == a->n_in - 1 ? CLV_QUANT_BLOCK : 1))
            return false;
    return true;
}

static clv_status quant_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const quant_attrs *a = op->attrs;
    char text[3][CLV_TYPE_TEXT];
    for (int i = 0; i < 3; i++)
        clv_type_print(text[i], sizeof text[i], &in[i]);
    if ((a->quant != CLV_QUANT_Q8 && a->quant != CLV_QUANT_Q4) || a->n_in < 1)
        return clv_fail(err, CLV_EINVAL, "blocks of kind %d over %d dimensions; valid: q8 or q4, over 1 or more",
                        a->quant, a->n_in);
    if (!clv_dtype_is_float(in[0].dtype) || in[1].dtype != CLV_U8 || in[2].dtype != CLV_F16)
        return clv_fail(err, CLV_EDTYPE, "operands are %s, %s and %s; valid: floats, u8 and f16", text[0], text[1],
                        text[2]);
    if (!fits(a, in))
        return clv_fail(err, CLV_ESHAPE,
                        "%s does not fit %s of %s with scales %s; valid: integers [out..., in.../32, %lld], scales "
                        "without the last",
                        text[0], clv_quant_name((clv_quant)a->quant), text[1], text[2],
                        (long long)clv_quant_block_bytes((clv_quant)a->quant));
    const int n_out = out_dims(a, in), rows = row_dims(a, in);
    *out = (clv_type){.dtype = in[0].dtype, .rank = rows + n_out};
    for (int d = 0; d < out->rank; d++)
        out->shape[d] = d < rows ? in[0].shape[d] : in[1].shape[d - rows];
    return CLV_OK;
}

/* Dimension d of both, integers and scales, is the factor. */
static void hold(clv_rule *rule, int d, int factor)
{
    clv_rule_operand_dim(rule, 1, d, factor);
    clv_rule_operand_dim(rule, 2, d, factor);
}

static void quant_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    const quant_attrs *a = op->attrs;
    const int n_out = out_dims(a, in), rows = row_dims(a, in);
    for (int d = 0; d < out->rank; d++) {
        int factor = clv_rule_add_factor(rule, out->shape[d], CLV_REDUCTION_NONE);
        clv_rule_result_dim(rule, 0, d, factor);
        if (d < rows)
            clv_rule_operand_dim(rule, 0, d, factor);
        else
            hold(rule, d - rows, factor);
    }
    for (int i = 0; i < a->n_in; i++) {
        int factor = clv_rule_add_factor(rule, in[1].shape[n_out + i], CLV_REDUCTION_SUM);
        clv_rule_operand_dim(rule, 0, rows + i, factor);
        hold(rule, n_out + i, factor);
    }
    int block = clv_rule_add_factor(rule, CLV_QUANT_BLOCK, CLV_REDUCTION_NONE);
    clv_rule_forbid_split(rule, block);
    clv_rule_operand_dim(rule, 0, in[0].rank - 1, block);
}

static clv_gemm_quantized_args args_of(const clv_op *op, const clv_view *in, const clv_view *out)
{
    const quant_attrs *a = op->attrs;
    const int rows = in[0].rank - a->n_in, n_out = out->rank - rows;
    return (clv_gemm_quantized_args){.how = (clv_quant)a->quant,
                                     .dtype = out->dtype,
                                     .m = clv_shape_product(out->shape, 0, rows),
                                     .global_m = clv_shape_product(out->global, 0, rows),
                                     .n = clv_shape_product(out->shape, rows, out->rank),
                                     .blocks = clv_shape_product(in[1].shape, n_out, in[1].rank - 1),
                                     .x = in[0].data,
                                     .ints = in[1].data,
                                     .scales = in[2].data,
                                     .y = out->data};
}

static size_t quant_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    clv_gemm_quantized_args a = args_of(op, in, out);
    return clv_gemm_quantized_workspace(&a);
}

static clv_status quant_run(const clv_call *call, clv_error *err)
{
    clv_gemm_quantized_args a = args_of(call->op, call->in, call->out);
    a.workspace = call->workspace;
    a.work = clv_call_thread_pool(call);
    return clv_gemm_quantized(&a, err);
}

static clv_op_cost quant_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    const quant_attrs *a = op->attrs;
    double flops = 2 * (double)clv_shape_product(out->shape, 0, out->rank);
    flops *= (double)clv_shape_product(in[0].shape, row_dims(a, in), in[0].rank);
    return (clv_op_cost){.flops = flops,
                         .bytes = clv_type_bytes(&in[0]) + clv_type_bytes(&in[1]) + clv_type_bytes(&in[2]) +
                                  clv_type_bytes(out)};
}

const clv_op_def clv_op_quantized_dot = {
    .name = "quant_dot",
    .display_name = "the product with quantised weights",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs_size = sizeof(quant_attrs),
    .attrs = attrs,
    .shape = quant_shape,
    .rule = quant_rule,
    .cost = quant_cost,
    .workspace = quant_workspace,
    .run = quant_run,
    .counts_flops = true,
};

clv_value clv_quantized_dot(clv_graph *graph, clv_quant quant, clv_value x, clv_value ints, clv_value scales, int n_in)
{
    quant_attrs a = {.quant = (int)quant, .n_in = n_in};
    clv_value in[] = {x, ints, scales};
    return clv_graph_emit_one(graph, &clv_op_quantized_dot, &a, in, 3);
}
