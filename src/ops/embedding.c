/* embedding.c - embedding lookup op over a table sharded by vocabulary or width, and its scatter-add gradient.
 *
 *   out[..., m] = table[ids[...], m]                 factors: rows, m pass; v reduce(sum); linear in table
 *
 * A rank that holds rows [lo, hi) of the table writes zeros for ids outside them: the sum over ranks is the embedding
 * (Megatron-LM, VocabParallelEmbedding). An id outside [0, V) gives zeros.
 *
 *   d_table[v, m] = sum over rows with ids == v of d_out[row, m]     v, m pass; rows reduce(sum); linear in d_out
 *
 * The gradient can be accumulated in place into another gradient of the table, that of a tied output
 * (fuse_accumulation.c).
 */
#include "kernels/cpu/embedding_kernel.h"
#include "ops/builtin_ops.h"

/* ---- embedding_gradient: d_out [..., M], ids [...], to? [V, M] -> d_table [V, M] ---- */

enum { D_OUT, IDS, TO };

typedef struct gradient_attrs {
    int64_t vocabulary;
} gradient_attrs;

static const clv_attr gradient_attr_table[] = {CLV_FIELD(INT64, gradient_attrs, vocabulary), {0}};

/* table: the rank's part of the table, or of its gradient. */
static clv_embedding_args args_of(const clv_view *table, const clv_view *ids)
{
    return (clv_embedding_args){.id_dtype = ids->dtype,
                                .count = clv_view_elems(ids),
                                .lo = table->lo[0],
                                .hi = table->lo[0] + table->shape[0],
                                .width = table->shape[1]};
}

static bool accumulates(const clv_op *op)
{
    return clv_op_operand_count(op) > TO;
}

static clv_status gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    const clv_type *d_out = &in[D_OUT], *to = &in[TO];
    CLV_TRY(clv_check_float("d_out", d_out, err));
    CLV_TRY(clv_check_min_rank("d_out", d_out, 1, "[...,M]", err));
    CLV_TRY(clv_check_index("ids", &in[IDS], err));
    CLV_TRY(clv_check_rows("ids", &in[IDS], "d_out", d_out, err));
    int64_t vocabulary = ((const gradient_attrs *)op->attrs)->vocabulary;
    out[0] = (clv_type){.dtype = d_out->dtype, .rank = 2, .shape = {vocabulary, d_out->shape[d_out->rank - 1]}};
    if (!accumulates(op))
        return CLV_OK;
    CLV_TRY(clv_check_float("the accumulated gradient", to, err));
    CLV_TRY(clv_check_same_shape("the accumulated gradient", to, "the gradient", &out[0], err));
    out[0].dtype = to->dtype;
    return CLV_OK;
}

/* With `to`, rows must be whole: each rank would add `to` otherwise. */
static void gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    int rows = in[IDS].rank;
    for (int d = 0; d < rows; d++) {
        int row = clv_rule_add_factor(rule, in[IDS].shape[d], CLV_REDUCTION_SUM);
        if (accumulates(op))
            clv_rule_forbid_split(rule, row);
    }
    int v = clv_rule_add_factor(rule, out[0].shape[0], CLV_REDUCTION_NONE);
    int m = clv_rule_add_factor(rule, out[0].shape[1], CLV_REDUCTION_NONE);
    clv_rule_name_factor(rule, v, "vocabulary");
    clv_rule_name_factor(rule, m, "width");
    clv_rule_map_in_dims(rule, D_OUT, rows);
    clv_rule_operand_dim(rule, D_OUT, rows, m);
    clv_rule_map_in_dims(rule, IDS, rows);
    clv_rule_result_dim(rule, 0, 0, v);
    clv_rule_result_dim(rule, 0, 1, m);
    if (!accumulates(op)) {
        clv_rule_multilinear(rule, 1u << D_OUT);
        return;
    }
    clv_rule_operand_dim(rule, TO, 0, v);
    clv_rule_operand_dim(rule, TO, 1, m);
    clv_rule_additive(rule, 1u << D_OUT | 1u << TO);
}

/* Reads d_out and ids, clears the table, and reads and writes one row for each id. */
static clv_op_cost gradient_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    double cleared = accumulates(op) ? 0 : clv_type_bytes(&out[0]);
    return (clv_op_cost){.flops = (double)clv_type_elems(&in[D_OUT]),
                         .bytes = 3 * clv_type_bytes(&in[D_OUT]) + clv_type_bytes(&in[IDS]) + cleared};
}

static clv_status gradient_run(const clv_call *call, clv_error *err)
{
    const clv_view *d_out = &call->in[D_OUT], *ids = &call->in[IDS], *d_table = &call->out[0];
    clv_embedding_args args = args_of(d_table, ids);
    if (accumulates(call->op))
        clv_view_copy_unless_aliased(d_table, &call->in[TO]);
    else
        clv_fill_values(d_table->dtype, d_table->data, 0, clv_view_elems(d_table));
    clv_embedding_scatter(&args, d_table->dtype, d_table->data, d_out->dtype, d_out->data, ids->data);
    return CLV_OK;
}

const clv_op_def clv_op_embedding_gradient = {
    .name = "embedding_gradient",
    .display_name = "the gradient of the embedding",
    CLV_ARITY(TO, TO + 1, 1),
    .in_place = {1 + TO},
    CLV_ATTRS(gradient_attrs, gradient_attr_table),
    .shape = gradient_shape,
    .rule = gradient_rule,
    .cost = gradient_cost,
    .run = gradient_run,
    .traits = &(const clv_op_traits){.accepts_f32_results = true, .accumulate_operand = 1 + TO},
};

/* ---- embedding: table [V, M], ids [...] -> [..., M] ---- */

static clv_status embedding_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(clv_check_float("table", &in[0], err));
    if (in[0].rank != 2)
        return clv_fail(err, CLV_ESHAPE, "table is %s; [V,M] is needed", clv_type_string(&in[0]).text);
    CLV_TRY(clv_check_index("ids", &in[1], err));
    if (in[1].rank >= CLV_MAX_RANK)
        return clv_fail(err, CLV_ELIMIT, "ids has %d dimensions; at most %d are possible", in[1].rank,
                        CLV_MAX_RANK - 1);
    out[0] = in[1];
    out[0].dtype = in[0].dtype;
    out[0].shape[out[0].rank++] = in[0].shape[1];
    return CLV_OK;
}

static void embedding_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    int rows = in[1].rank;
    clv_rule_add_dims(rule, &out[0], rows + 1); /* m is factor `rows` */
    int v = clv_rule_add_factor(rule, in[0].shape[0], CLV_REDUCTION_SUM);
    clv_rule_name_factor(rule, v, "vocabulary");
    clv_rule_name_factor(rule, rows, "width");
    clv_rule_operand_dim(rule, 0, 0, v);
    clv_rule_operand_dim(rule, 0, 1, rows);
    clv_rule_map_in_dims(rule, 1, rows);
    clv_rule_map_out_dims(rule, 0, rows + 1);
    clv_rule_multilinear(rule, 1u << 0);
}

/* Reads only the rows of the table that ids name. */
static clv_op_cost embedding_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){.bytes = clv_type_bytes(&in[1]) + 2 * clv_type_bytes(&out[0])};
}

static clv_status embedding_run(const clv_call *call, clv_error *err)
{
    const clv_view *table = &call->in[0], *ids = &call->in[1];
    clv_embedding_args args = args_of(table, ids);
    clv_embedding_gather(&args, call->out[0].dtype, call->out[0].data, table->dtype, table->data, ids->data);
    return CLV_OK;
}

clv_value clv_embedding_gradient(clv_graph *graph, int64_t vocabulary, clv_value d_out, clv_value ids)
{
    gradient_attrs attrs = {.vocabulary = vocabulary};
    clv_value in[] = {d_out, ids};
    return clv_graph_emit_one(graph, &clv_op_embedding_gradient, &attrs, in, 2);
}

static void embedding_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    int64_t vocabulary = clv_graph_type(graph, clv_op_operand(op, 0)).shape[0];
    d_in[0] = clv_embedding_gradient(graph, vocabulary, d_out[0], clv_op_operand(op, 1));
}

const clv_op_def clv_op_embedding = {
    .name = "embedding",
    CLV_ARITY(2, 2, 1),
    .shape = embedding_shape,
    .rule = embedding_rule,
    .gradient = embedding_gradient,
    .cost = embedding_cost,
    .run = embedding_run,
    .traits = &(const clv_op_traits){.passes_cotangent = true},
};

clv_value clv_embedding(clv_graph *graph, clv_value table, clv_value ids)
{
    clv_value in[] = {table, ids};
    return clv_graph_emit_one(graph, &clv_op_embedding, NULL, in, 2);
}
