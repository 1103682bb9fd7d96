/* cross_entropy.c - vocabulary-parallel softmax cross-entropy: max, sum and loss ops; full logits are never gathered.
 *
 *   xent_max:   max[r]  = max_v logits[r,v]                                  rows pass; v reduce(max)
 *   xent_sums:  sums[r] = (sum_v exp(logits[r,v] - max[r]), logits[r,label] - max[r])   rows pass; v reduce(sum)
 *   xent_loss:  loss[r] = log(sums[r,0]) - sums[r,1], 0 where ignored        rows pass
 *
 * The two sums are one tensor, so that a step costs two small reductions (Megatron-LM, vocab_parallel_cross_entropy).
 * All three are f32, f64 for f64 logits.
 *
 * Each op has its own gradient, so that ops over rows are not tied to the split of the vocabulary:
 *   xent_loss_gradient: d_sums[r] = (d_loss[r] / sums[r,0], -d_loss[r]), 0 where ignored              rows pass
 *   xent_gradient:      d_logits[r,v] = exp(logits[r,v] - max[r]) d_sums[r,0] + [label == v] d_sums[r,1]
 *                       rows, v pass: no communication; linear in d_sums
 * max gets no gradient: the loss does not depend on it.
 *
 *   count_labels: the number of labels that are not ignored                  rows reduce(sum)
 * so that a mean loss is a sum divided by a sum, never a mean of means.
 */
#include "kernels/cpu/cross_entropy_kernel.h"
#include "ops/builtin_ops.h"

typedef struct xent_attrs {
    int64_t ignored;
} xent_attrs;

static const clv_attr xent_fields[] = {CLV_FIELD(INT64, xent_attrs, ignored), {0}};

static clv_cross_entropy_args args_of(const clv_call *call, const clv_view *logits, const clv_view *labels)
{
    const xent_attrs *a = call->op->attrs;
    int v = logits->rank - 1;
    return (clv_cross_entropy_args){.dtype = logits->dtype,
                                    .label_dtype = labels ? labels->dtype : CLV_I64,
                                    .rows = clv_view_row_count(logits, 1),
                                    .cols = logits->shape[v],
                                    .vocab_lo = logits->lo[v],
                                    .ignore = a ? a->ignored : CLV_IGNORE_INDEX};
}

/* Arguments of kernels that take statistics [..., 2] in place of logits. */
static clv_cross_entropy_args row_args(const clv_call *call, const clv_view *sums, const clv_view *labels)
{
    clv_cross_entropy_args args = args_of(call, sums, labels);
    args.cols = args.vocab_lo = 0;
    return args;
}

static clv_status check_logits(const clv_type *logits, clv_error *err)
{
    CLV_TRY(clv_check_float("logits", logits, err));
    return clv_check_min_rank("logits", logits, 1, "[...,V]", err);
}

static clv_status check_labels(const clv_type *labels, const clv_type *logits, clv_error *err)
{
    CLV_TRY(clv_check_index("labels", labels, err));
    return clv_check_rows("labels", labels, "logits", logits, err);
}

/* Types of one statistic a row, [rows...], and of two, [rows..., 2]. */
static clv_type row_of(const clv_type *logits)
{
    clv_type row = *logits;
    row.dtype = clv_statistics_dtype(logits->dtype);
    row.shape[--row.rank] = 0;
    return row;
}

static clv_type pair_of(const clv_type *logits)
{
    clv_type pair = *logits;
    pair.dtype = clv_statistics_dtype(logits->dtype);
    pair.shape[pair.rank - 1] = 2;
    return pair;
}

static clv_status check_stats(const char *what, const clv_type *stats, const clv_type *wanted, clv_error *err)
{
    CLV_TRY(clv_check_same_shape(what, stats, "what the logits call for", wanted, err));
    if (stats->dtype != wanted->dtype)
        return clv_fail(err, CLV_EDTYPE, "%s is %s; %s is needed", what, clv_dtype_name(stats->dtype),
                        clv_dtype_name(wanted->dtype));
    return CLV_OK;
}

/* clv_rule_rows for logits, whose last dimension is the vocabulary. */
static void logits_rule(clv_rule *rule, const clv_op *op, const clv_type *logits, clv_reduction how, const char *dims)
{
    clv_rule_name_factor(rule, clv_rule_rows(rule, op, logits, CLV_REDUCTION_NONE, how, dims), "vocabulary");
}

/* ---- xent_max: logits -> [rows] ---- */

static clv_status max_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_logits(&in[0], err));
    out[0] = row_of(&in[0]);
    return CLV_OK;
}

static void max_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    logits_rule(rule, op, &in[0], CLV_REDUCTION_MAX, "x>r");
}

static clv_status max_run(const clv_call *call, clv_error *err)
{
    clv_cross_entropy_args args = args_of(call, &call->in[0], NULL);
    clv_cross_entropy_max(&args, call->out[0].data, call->in[0].data);
    return CLV_OK;
}

const clv_op_def clv_op_xent_max = {
    .name = "xent_max",
    .display_name = "the maximum in the cross-entropy",
    CLV_ARITY(1, 1, 1),
    .shape = max_shape,
    .rule = max_rule,
    .run = max_run,
    .statistics = 1,
};

/* ---- xent_gradient: logits, max, labels, d_sums -> d_logits ---- */

static clv_status gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_logits(&in[0], err));
    clv_type row = row_of(&in[0]), pair = pair_of(&in[0]);
    CLV_TRY(check_stats("max", &in[1], &row, err));
    CLV_TRY(check_labels(&in[2], &in[0], err));
    CLV_TRY(check_stats("d_sums", &in[3], &pair, err));
    out[0] = in[0];
    return CLV_OK;
}

static void gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    logits_rule(rule, op, &in[0], CLV_REDUCTION_NONE, "xrrr>x");
    clv_rule_multilinear(rule, 1u << 3);
}

static clv_op_cost exp_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.flops = 10 * (double)clv_type_elems(&in[0]), .bytes = clv_op_traffic_bytes(op, in, out)};
}

static clv_status gradient_run(const clv_call *call, clv_error *err)
{
    clv_cross_entropy_args args = args_of(call, &call->in[0], &call->in[2]);
    clv_cross_entropy_backward(&args, call->out[0].data, call->in[0].data, call->in[2].data, call->in[1].data,
                               call->in[3].data);
    return CLV_OK;
}

const clv_op_def clv_op_xent_gradient = {
    .name = "xent_gradient",
    .display_name = "the gradient of the cross-entropy",
    CLV_ARITY(4, 4, 1),
    CLV_ATTRS(xent_attrs, xent_fields),
    .shape = gradient_shape,
    .rule = gradient_rule,
    .cost = exp_cost,
    .in_place = {1 + 0},
    .run = gradient_run,
};

/* ---- xent_sums: logits, max, labels -> [rows, 2] ---- */

static clv_status sums_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_logits(&in[0], err));
    clv_type row = row_of(&in[0]);
    CLV_TRY(check_stats("max", &in[1], &row, err));
    CLV_TRY(check_labels(&in[2], &in[0], err));
    out[0] = pair_of(&in[0]);
    return CLV_OK;
}

static void sums_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    logits_rule(rule, op, &in[0], CLV_REDUCTION_SUM, "xrr>r");
}

static clv_status sums_run(const clv_call *call, clv_error *err)
{
    clv_cross_entropy_args args = args_of(call, &call->in[0], &call->in[2]);
    clv_cross_entropy_sums(&args, call->out[0].data, call->in[0].data, call->in[2].data, call->in[1].data);
    return CLV_OK;
}

static void sums_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_value in[] = {clv_op_operand(op, 0), clv_op_operand(op, 1), clv_op_operand(op, 2), d_out[0]};
    d_in[0] = clv_graph_emit_one(graph, &clv_op_xent_gradient, op->attrs, in, 4);
}

const clv_op_def clv_op_xent_sums = {
    .name = "xent_sums",
    .display_name = "the sums in the cross-entropy",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(xent_attrs, xent_fields),
    .shape = sums_shape,
    .rule = sums_rule,
    .gradient = sums_gradient,
    .cost = exp_cost,
    .run = sums_run,
    .statistics = 1,
};

/* ---- xent_loss_gradient: sums, labels, d_loss -> d_sums [rows, 2] ---- */

static clv_status check_sums(const clv_type *sums, const clv_type *labels, clv_error *err)
{
    CLV_TRY(clv_check_float("sums", sums, err));
    CLV_TRY(clv_check_min_rank("sums", sums, 1, "[...,2]", err));
    return check_labels(labels, sums, err);
}

static clv_status loss_gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    clv_type row = row_of(&in[0]);
    CLV_TRY(check_sums(&in[0], &in[1], err));
    CLV_TRY(check_stats("d_loss", &in[2], &row, err));
    out[0] = in[0];
    return CLV_OK;
}

static void loss_gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_rows(rule, op, &in[0], CLV_REDUCTION_NONE, CLV_REDUCTION_NONE, "rrr>r");
    clv_rule_multilinear(rule, 1u << 2);
}

static clv_status loss_gradient_run(const clv_call *call, clv_error *err)
{
    clv_cross_entropy_args args = row_args(call, &call->in[0], &call->in[1]);
    clv_cross_entropy_loss_backward(&args, call->out[0].data, call->in[0].data, call->in[1].data, call->in[2].data);
    return CLV_OK;
}

const clv_op_def clv_op_xent_loss_gradient = {
    .name = "xent_loss_gradient",
    .display_name = "the gradient of the cross-entropy's loss",
    CLV_ARITY(3, 3, 1),
    CLV_ATTRS(xent_attrs, xent_fields),
    .shape = loss_gradient_shape,
    .rule = loss_gradient_rule,
    .in_place = {1 + 0},
    .run = loss_gradient_run,
};

/* ---- xent_loss: sums, labels -> [rows] ---- */

static clv_status loss_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_sums(&in[0], &in[1], err));
    out[0] = row_of(&in[0]);
    return CLV_OK;
}

static void loss_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    clv_rule_rows(rule, op, &in[0], CLV_REDUCTION_NONE, CLV_REDUCTION_NONE, "rr>r");
}

static clv_status loss_run(const clv_call *call, clv_error *err)
{
    clv_cross_entropy_args args = row_args(call, &call->in[0], &call->in[1]);
    clv_cross_entropy_loss(&args, call->out[0].data, call->in[0].data, call->in[1].data);
    return CLV_OK;
}

static void loss_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_value in[] = {clv_op_operand(op, 0), clv_op_operand(op, 1), d_out[0]};
    d_in[0] = clv_graph_emit_one(graph, &clv_op_xent_loss_gradient, op->attrs, in, 3);
}

const clv_op_def clv_op_xent_loss = {
    .name = "xent_loss",
    .display_name = "the cross-entropy",
    CLV_ARITY(2, 2, 1),
    CLV_ATTRS(xent_attrs, xent_fields),
    .shape = loss_shape,
    .rule = loss_rule,
    .gradient = loss_gradient,
    .run = loss_run,
    .statistics = 1,
};

clv_value clv_cross_entropy(clv_graph *graph, clv_value logits, clv_value labels, int64_t ignored)
{
    xent_attrs attrs = {.ignored = ignored};
    clv_value for_sums[] = {logits, clv_graph_emit_one(graph, &clv_op_xent_max, NULL, &logits, 1), labels};
    clv_value for_loss[] = {clv_graph_emit_one(graph, &clv_op_xent_sums, &attrs, for_sums, 3), labels};
    return clv_graph_emit_one(graph, &clv_op_xent_loss, &attrs, for_loss, 2);
}

/* ---- count_labels: labels -> scalar ---- */

typedef struct count_attrs {
    int64_t ignored;
    clv_dtype dtype;
} count_attrs;

static const clv_attr count_fields[] = {
    CLV_FIELD(INT64, count_attrs, ignored), CLV_FIELD(DTYPE, count_attrs, dtype), {0}};

static clv_status count_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_index("labels", &in[0], err));
    out[0] = (clv_type){.dtype = ((const count_attrs *)op->attrs)->dtype};
    return clv_check_float("the count", &out[0], err);
}

static clv_status count_run(const clv_call *call, clv_error *err)
{
    const clv_view *labels = &call->in[0];
    int64_t ignored = ((const count_attrs *)call->op->attrs)->ignored, elems = clv_view_elems(labels), count = 0;
    for (int64_t i = 0; i < elems; i++) {
        int64_t label =
            labels->dtype == CLV_I32 ? ((const int32_t *)labels->data)[i] : ((const int64_t *)labels->data)[i];
        count += label != ignored;
    }
    clv_dtype_store(call->out[0].dtype, call->out[0].data, 0, (double)count);
    return CLV_OK;
}

const clv_op_def clv_op_count_labels = {
    .name = "count_labels",
    CLV_ARITY(1, 1, 1),
    CLV_ATTRS(count_attrs, count_fields),
    .shape = count_shape,
    .rule = clv_op_rule_reduce_all,
    .run = count_run,
};

clv_value clv_count_labels(clv_graph *graph, clv_value labels, int64_t ignored, clv_dtype dtype)
{
    count_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.ignored = ignored;
    attrs.dtype = clv_dtype_is_float(dtype) ? clv_statistics_dtype(dtype) : dtype;
    return clv_graph_emit_one(graph, &clv_op_count_labels, &attrs, &labels, 1);
}
