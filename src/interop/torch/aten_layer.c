/* aten_layer.c - ATen's layers that are one op of the graph: embedding, norms, attention, cross-entropy. */
#include <math.h>
#include <string.h>

#include "ops/operand_checks.h"
#include "interop/torch/aten.h"

/* ---- embedding ---- */

/* detach: the operand, which gets no gradient. */
static clv_status detach_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    out[0] = in[0];
    return CLV_OK;
}

static void detach_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
}

static clv_status detach_run(const clv_call *call, clv_error *err)
{
    clv_view_copy_unless_aliased(&call->out[0], &call->in[0]);
    return CLV_OK;
}

static const clv_op_def detach = {
    .name = "torch.detach",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .in_place = {1},
    .shape = detach_shape,
    .rule = clv_op_rule_elementwise,
    .gradient = detach_gradient,
    .run = detach_run,
};

clv_value aten_stop_gradient(importer *im, clv_value x)
{
    clv_value out;
    clv_emit(im->graph, &detach, NULL, &x, 1, &out);
    return out;
}

/* The row padding_idx of a table is looked up, but gets no gradient. */
static clv_value padded_embedding(importer *im, clv_value table, clv_value ids, const clv_type *t, int64_t padding)
{
    int64_t column[CLV_MAX_RANK] = {0}, one = 1, width = clv_graph_type(im->graph, table).shape[1];
    clv_value row;
    memcpy(column, t->shape, sizeof column);
    column[t->rank] = 1;
    clv_value pad = clv_fill(im->graph, t->dtype, 1, &one, (double)padding);
    clv_value padded =
        clv_pointwise(im->graph, CLV_EQUAL, ids, clv_fill(im->graph, t->dtype, 0, NULL, (double)padding));
    row = aten_stop_gradient(im, clv_embedding(im->graph, table, pad));
    return clv_where(im->graph, clv_reshape(im->graph, padded, t->rank + 1, column),
                     clv_reshape(im->graph, row, 1, &width), clv_embedding(im->graph, table, ids));
}

static clv_status embedding(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *weight, *indices;
    clv_type type;
    int64_t padding;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&weight, im, op, in, "weight", err));
    CLV_TRY(aten_tensor(&indices, im, op, in, "indices", err));
    CLV_TRY(aten_int(&padding, im, op, "padding_idx", -1, err));
    if (weight->type.rank != 2)
        return import_fail(im, op, err, CLV_ESHAPE, "its weight is no matrix");
    clv_value table = imported_whole(im, weight), ids = imported_whole(im, indices);
    CLV_TRY(aten_check_index(&ids, im, op, indices, 0, weight->type.shape[0], 0, err));
    if (padding >= 0 && im->gradients && indices->type.rank < CLV_MAX_RANK)
        out[0] = imported_of(type, padded_embedding(im, table, ids, &indices->type, padding));
    else
        out[0] = imported_of(type, clv_embedding(im->graph, table, ids));
    return CLV_OK;
}

/* ---- norms ---- */

/* A gain or bias of the last dimension of x, in a dtype; ones where there is none. */
static clv_value gain_of(importer *im, const mlir_op *op, const imported *in, const char *name, const clv_type *x,
                         clv_dtype dtype)
{
    const imported *gain = aten_optional(op, in, name);
    return gain ? aten_whole(im, gain, dtype) : clv_fill(im->graph, dtype, 1, &x->shape[x->rank - 1], 1);
}

static clv_status check_norm(const importer *im, const mlir_op *op, const imported *x, clv_error *err)
{
    int64_t shape[CLV_MAX_RANK];
    int n;
    CLV_TRY(aten_ints(shape, &n, im, op, "normalized_shape", err));
    if (n != 1 || x->type.rank < 1 || shape[0] != x->type.shape[x->type.rank - 1])
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "norms over the last dimension alone are supported");
    return CLV_OK;
}

/* Also native_layer_norm's mean and 1/sqrt(variance + eps). */
static clv_status layer_norm(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    clv_type type, moment;
    double eps;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "input", err));
    CLV_TRY(aten_real(&eps, im, op, "eps", 1e-5, err));
    CLV_TRY(check_norm(im, op, self, err));
    clv_value x = aten_whole(im, self, type.dtype), bias = CLV_NONE;
    if (aten_optional(op, in, "bias"))
        bias = gain_of(im, op, in, "bias", &self->type, type.dtype);
    out[0] = imported_of(
        type, clv_layer_norm(im->graph, x, gain_of(im, op, in, "weight", &self->type, type.dtype), bias, eps));
    if (im->row->kind == 0)
        return CLV_OK;
    const int last = self->type.rank - 1;
    for (int i = 1; i < 3; i++)
        CLV_TRY(aten_result(&moment, im, op, i, err));
    x = clv_cast(im->graph, x, moment.dtype);
    clv_value mean = clv_reduce(im->graph, CLV_MEAN, x, &last, 1, true), d = clv_sub(im->graph, x, mean);
    clv_value variance = clv_reduce(im->graph, CLV_MEAN, clv_mul(im->graph, d, d), &last, 1, true);
    clv_value shifted = clv_add(im->graph, variance, clv_fill(im->graph, moment.dtype, 0, NULL, eps));
    out[1] = imported_of(moment, mean);
    out[2] = imported_of(moment, clv_unary(im->graph, CLV_RSQRT, shifted));
    return CLV_OK;
}

static clv_status rms_norm(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self;
    clv_type type;
    double eps;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "input", err));
    CLV_TRY(aten_real(&eps, im, op, "eps", type.dtype == CLV_F64 ? 0x1p-52 : 0x1p-23, err));
    CLV_TRY(check_norm(im, op, self, err));
    clv_value gain = gain_of(im, op, in, "weight", &self->type, type.dtype);
    out[0] = imported_of(type, clv_rms_norm(im->graph, aten_whole(im, self, type.dtype), gain, eps));
    return CLV_OK;
}

/* ---- attention ---- */

/* Whether a known mask lets each query see its own key and those before it, of the last `window` (0: all): the rule of
 * clv_attention's causal masks. */
static bool is_causal(const imported *mask, int64_t *window)
{
    int rank = mask->type.rank;
    int64_t rows = mask->type.shape[rank - 2], columns = mask->type.shape[rank - 1], first = 0, batch;
    if (mask->type.dtype != CLV_BOOL || !mask->known || mask->known->splat || rows != columns || rows < 2)
        return false;
    const uint8_t *data = mask->known->data, *last = data + (rows - 1) * columns;
    while (first < columns && !last[first])
        first++;
    *window = first == 0 ? 0 : columns - first;
    batch = clv_type_elems(&mask->type) / (rows * columns);
    for (int64_t i = 0; i < batch * rows; i++)
        for (int64_t q = i % rows, k = 0; k < columns; k++)
            if (data[i * columns + k] != (k <= q && (*window == 0 || k > q - *window)))
                return false;
    return true;
}

/* [B,H,S,D] -> [B,S,H,D], and back. */
static clv_value swap_heads(importer *im, clv_value x)
{
    return clv_transpose(im->graph, x, (int[]){0, 2, 1, 3});
}

/* Keys and values of fewer heads, each repeated for the queries that share it. */
static clv_value repeat_heads(importer *im, clv_value x, int64_t heads)
{
    clv_type t = clv_graph_type(im->graph, x);
    int64_t times = t.rank == 4 && t.shape[1] > 0 ? heads / t.shape[1] : 1;
    if (times <= 1)
        return x;
    x = clv_reshape(im->graph, x, 5, (int64_t[]){t.shape[0], t.shape[1], 1, t.shape[2], t.shape[3]});
    x = clv_broadcast(im->graph, x, (int64_t[]){t.shape[0], t.shape[1], times, t.shape[2], t.shape[3]});
    return clv_reshape(im->graph, x, 4, (int64_t[]){t.shape[0], heads, t.shape[2], t.shape[3]});
}

/* The graph's attention: no mask, or a causal one. */
static clv_value fused_attention(importer *im, clv_value q, clv_value k, clv_value v, bool causal, int64_t window,
                                 double scale)
{
    clv_value kv[2] = {swap_heads(im, k), swap_heads(im, v)};
    for (int i = 0; i < 2; i++) {
        clv_type t = clv_graph_type(im->graph, kv[i]);
        kv[i] = clv_reshape(im->graph, kv[i], 5, (int64_t[]){t.shape[0], t.shape[1], 1, t.shape[2], t.shape[3]});
    }
    const clv_attention_options how = {.size = sizeof how, .causal = causal, .scale = scale, .window = window};
    return swap_heads(im, clv_attention(im->graph, swap_heads(im, q), clv_concat(im->graph, kv, 2, 2), &how));
}

/* softmax(scale q k^T + mask) v; rows of a bool mask that see no key are 0. */
static clv_value composed_attention(importer *im, clv_value q, clv_value k, clv_value v, const imported *mask,
                                    double scale, clv_dtype dtype)
{
    clv_value scores = clv_scale(im->graph, clv_einsum(im->graph, "bhsd,bhtd->bhst", q, k), scale);
    if (mask && mask->type.dtype != CLV_BOOL)
        scores = clv_add(im->graph, scores, aten_compact(im, mask, dtype));
    else if (mask)
        scores =
            clv_where(im->graph, imported_compact(im, mask), scores, clv_fill(im->graph, dtype, 0, NULL, -INFINITY));
    clv_value p = clv_softmax(im->graph, scores);
    if (mask && mask->type.dtype == CLV_BOOL)
        p = clv_where(im->graph, imported_compact(im, mask), p, clv_fill(im->graph, dtype, 0, NULL, 0));
    return clv_einsum(im->graph, "bhst,bhtd->bhsd", p, v);
}

static clv_status attention(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *q, *k, *v, *mask = aten_optional(op, in, "attn_mask");
    clv_type type;
    double dropout, scale;
    int64_t causal, window = 0;
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&q, im, op, in, "query", err));
    CLV_TRY(aten_tensor(&k, im, op, in, "key", err));
    CLV_TRY(aten_tensor(&v, im, op, in, "value", err));
    CLV_TRY(aten_real(&dropout, im, op, "dropout_p", 0, err));
    CLV_TRY(aten_int(&causal, im, op, "is_causal", 0, err));
    if (q->type.rank != 4 || k->type.rank != 4 || v->type.rank != 4 || (mask && mask->type.rank < 2))
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "of [batch, heads, sequence, head_dim] alone");
    if (dropout != 0)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "dropout; export the module after .eval()");
    CLV_TRY(aten_real(&scale, im, op, "scale", 1 / sqrt((double)q->type.shape[3]), err));
    int64_t heads = q->type.shape[1], seen = k->type.shape[2];
    clv_value x = aten_whole(im, q, type.dtype), key = aten_whole(im, k, type.dtype),
              value = aten_whole(im, v, type.dtype);
    bool square = q->type.shape[2] == seen, known = mask && square && is_causal(mask, &window);
    bool fits = k->type.shape[3] == q->type.shape[3] && v->type.shape[3] == q->type.shape[3] &&
                q->type.shape[3] <= 512 && k->type.shape[1] == v->type.shape[1] && scale > 0;
    if (causal && !square)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "causal attention of %lld queries to %lld keys",
                           (long long)q->type.shape[2], (long long)seen);
    if ((!mask || known) && fits)
        x = fused_attention(im, x, key, value, causal || known, window, scale);
    else if (causal)
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "causal attention of keys and values of other sizes");
    else
        x = composed_attention(im, x, repeat_heads(im, key, heads), repeat_heads(im, value, heads), mask, scale,
                               type.dtype);
    out[0] = imported_of(type, x);
    return CLV_OK;
}

/* ---- cross-entropy ---- */

enum { NO_REDUCTION, MEAN, SUM };

static clv_status cross_entropy(importer *im, const mlir_op *op, const imported *in, imported *out, clv_error *err)
{
    const imported *self, *target;
    clv_type type;
    double smoothing;
    int64_t ignored, reduction;
    int order[CLV_MAX_RANK], dims[CLV_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    CLV_TRY(aten_result(&type, im, op, 0, err));
    CLV_TRY(aten_tensor(&self, im, op, in, "self", err));
    CLV_TRY(aten_tensor(&target, im, op, in, "target", err));
    CLV_TRY(aten_real(&smoothing, im, op, "label_smoothing", 0, err));
    CLV_TRY(aten_int(&ignored, im, op, "ignore_index", -100, err));
    CLV_TRY(aten_int(&reduction, im, op, "reduction", MEAN, err));
    int rank = self->type.rank;
    if (aten_argument(op, "weight") || smoothing != 0 || clv_dtype_is_float(target->type.dtype))
        return import_fail(im, op, err, CLV_EUNSUPPORTED, "weights, label smoothing and targets of probabilities");
    if (rank < 1 || target->type.rank != rank - 1)
        return import_fail(im, op, err, CLV_ESHAPE, "its target does not fit its operand");
    clv_value logits = imported_whole(im, self), labels = imported_whole(im, target);
    CLV_TRY(aten_check_index(&labels, im, op, target, 0, self->type.shape[rank > 1 ? 1 : 0], ignored, err));
    for (int d = 0; d < rank; d++) /* classes are dimension 1, of ours the last */
        order[d] = d == 0 ? 0 : d == rank - 1 ? 1 : d + 1;
    if (rank > 2)
        logits = clv_transpose(im->graph, logits, order);
    clv_value loss = clv_cross_entropy(im->graph, logits, labels, ignored);
    if (reduction != NO_REDUCTION && rank > 1)
        loss = clv_reduce(im->graph, CLV_SUM, loss, dims, rank - 1, false);
    if (reduction == MEAN)
        loss = clv_div(im->graph, loss, clv_count_labels(im->graph, labels, ignored, self->type.dtype));
    out[0] = imported_of(type, clv_cast(im->graph, loss, type.dtype));
    return CLV_OK;
}

const import_row aten_layer_rows[] = {
    ATEN("embedding.default", embedding, 0),
    ATEN("layer_norm.default", layer_norm, 0),
    ATEN("native_layer_norm.default", layer_norm, 1),
    ATEN("rms_norm.default", rms_norm, 0),
    ATEN("scaled_dot_product_attention.default", attention, 0),
    ATEN("cross_entropy_loss.default", cross_entropy, 0),
    {0},
};
