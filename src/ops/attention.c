/* attention.c - scaled dot-product attention op (flash, MHA/GQA/MQA): sharding rule and gradient.
 *
 *   s[i,j] = scale * q[b,i,h,:] . kv[b,j,0,c,:],   c = h / (H / K);   -inf where query i does not see key j
 *   out[b,i,h,:] = sum_j softmax_j(s)[i,j] * kv[b,j,1,c,:],   lse[b,h,i] = log sum_j exp s[i,j]
 *
 *   q [B,Sq,H,D], kv [B,Sk,2,K,D], mask? [B,Sk], offset? [] or [B], step? [] -> out [B,Sq,H,D], lse f32 [B,H,Sq]
 *   With values of another width Dv, kv is [B,Sk,K,C]: of each head the first D elements are the key, the last Dv the
 *   value, and they may overlap (a latent is both); out is [B,Sq,H,Dv].
 *   Query i, at position p = offset + i, sees key j unless mask[b,j] == 0, or causal and j > p, or j <= p - window.
 *   With dropout, softmax_j(s) is dropped as clv_dropout drops a tensor [B,H,Sq,Sk] with the key and step: each rank
 *   computes its own part of the mask, and the gradient recomputes it.
 *   Rows of q, kv and out may lie in zig-zag order; mask is in the order of positions.
 *
 *   factors: b, query rows s, KV heads k and the query heads g of a group pass; H is (k, g). Key rows, the 2, D and C
 *   are whole. If there are more blocks than KV heads, the remainder splits g: Q is split further, K and V are
 *   replicated; the kernel finds the KV head of each query head by global indices.
 *
 *   gradient: dq, dkv from d_out, q, kv, out, lse; the same factors, with reduce(sum) for s and g, which dkv does not
 *   hold: dkv is zero for heads that no local query reads. Linear in d_out. The softmax is recomputed block by block
 *   from out and lse; lse gets no gradient.
 *
 * Source: Dao 2023, arXiv:2307.08691; kernels/cpu/attention_kernel.h.
 */
#include <math.h>

#include "kernels/cpu/openmp.h"
#include "ops/attention.h"

static const clv_attr fields[] = {
    CLV_FIELD(BOOL, clv_attention_attrs, causal),     CLV_FIELD(DOUBLE, clv_attention_attrs, scale),
    CLV_FIELD(INT64, clv_attention_attrs, window),    CLV_FIELD(INT64, clv_attention_attrs, value_dim),
    CLV_FIELD(INT64, clv_attention_attrs, zigzag),    CLV_FIELD(DOUBLE, clv_attention_attrs, dropout),
    CLV_FIELD(KEY, clv_attention_attrs, dropout_key), {0}};

/* Operands of the forward op, and of the gradient. */
enum { Q, KV, MASK, OFFSET, STEP, FORWARD_IN };
enum { D_OUT, GQ, GKV, GOUT, GLSE, GMASK, GOFFSET, GSTEP, BACKWARD_IN };
/* Threads of a rank, or ranks, that share a workspace: it is planned before their number is known. */
enum { SHARERS = 4 };

/* ---- types ---- */

static int64_t value_dim_of(const clv_op *op)
{
    return ((const clv_attention_attrs *)op->attrs)->value_dim;
}

/* The dimension of kv that has the heads. */
int clv_attention_heads_dim(const clv_op *op)
{
    return value_dim_of(op) ? 2 : 3;
}

/* kv [B,Sk,K,C] of values that have a width of their own. */
static clv_status check_joined(const clv_type *q, const clv_type *kv, int64_t value_dim, clv_error *err)
{
    if (q->rank != 4 || kv->rank != 4 || q->shape[0] != kv->shape[0] || value_dim > kv->shape[3] ||
        q->shape[3] > kv->shape[3] || kv->shape[3] > q->shape[3] + value_dim)
        return clv_fail(err, CLV_ESHAPE,
                        "q is %s and kv is %s; [B,Sq,H,D] and [B,Sk,K,C], with C from the larger of D and the %lld of "
                        "values to their sum, are needed",
                        clv_type_string(q).text, clv_type_string(kv).text, (long long)value_dim);
    return CLV_OK;
}

static clv_status check_q_kv(const clv_op *op, const clv_type *q, const clv_type *kv, clv_error *err)
{
    const int64_t value_dim = value_dim_of(op);
    CLV_TRY(clv_check_float("q", q, err));
    if (value_dim)
        CLV_TRY(check_joined(q, kv, value_dim, err));
    else if (q->rank != 4 || kv->rank != 5 || kv->shape[2] != 2 || q->shape[0] != kv->shape[0] ||
             q->shape[3] != kv->shape[4])
        return clv_fail(err, CLV_ESHAPE, "q is %s and kv is %s; [B,Sq,H,D] and [B,Sk,2,K,D] are needed",
                        clv_type_string(q).text, clv_type_string(kv).text);
    if (q->dtype != kv->dtype)
        return clv_fail(err, CLV_EDTYPE, "q is %s and kv is %s; their dtypes must be equal", clv_type_string(q).text,
                        clv_type_string(kv).text);
    int64_t heads = q->shape[2], kv_heads = kv->shape[clv_attention_heads_dim(op)], head_dim = q->shape[3];
    if (kv_heads < 1 || heads % kv_heads != 0)
        return clv_fail(err, CLV_ESHAPE, "%lld query heads (q is %s) are not a multiple of %lld KV heads (kv is %s)",
                        (long long)heads, clv_type_string(q).text, (long long)kv_heads, clv_type_string(kv).text);
    if (head_dim < 1 || head_dim > CLV_ATTENTION_MAX_DIM || value_dim > CLV_ATTENTION_MAX_DIM)
        return clv_fail(err, CLV_ELIMIT, "a head_dim of %lld; 1 to %d are possible",
                        (long long)(value_dim > head_dim ? value_dim : head_dim), CLV_ATTENTION_MAX_DIM);
    return CLV_OK;
}

static clv_status check_options(const clv_op *op, const clv_type *in, int mask, const clv_type *q, const clv_type *kv,
                                clv_error *err)
{
    if (clv_valid(clv_op_operand(op, mask))) {
        const clv_type *m = &in[mask];
        if (m->rank != 2 || m->shape[0] != kv->shape[0] || m->shape[1] != kv->shape[1])
            return clv_fail(err, CLV_ESHAPE, "mask is %s; [B,Sk] = [%lld,%lld] is needed", clv_type_string(m).text,
                            (long long)kv->shape[0], (long long)kv->shape[1]);
        if (m->dtype != CLV_U8 && m->dtype != CLV_BOOL)
            return clv_fail(err, CLV_EDTYPE, "mask is %s; u8 or bool is needed", clv_type_string(m).text);
    }
    if (clv_valid(clv_op_operand(op, mask + 1)))
        CLV_TRY(clv_check_offset(&in[mask + 1], kv->shape[0], err));
    if (((const clv_attention_attrs *)op->attrs)->zigzag &&
        (clv_valid(clv_op_operand(op, mask + 1)) || q->shape[1] != kv->shape[1]))
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "rows in zig-zag order with %lld query rows and %lld keys%s; valid: as many of both, no offset",
                        (long long)q->shape[1], (long long)kv->shape[1],
                        clv_valid(clv_op_operand(op, mask + 1)) ? " and an offset" : "");
    if (clv_valid(clv_op_operand(op, mask + 2)))
        return clv_check_scalar("step", &in[mask + 2], CLV_I32, err);
    return CLV_OK;
}

static clv_type out_of(const clv_op *op, const clv_type *q)
{
    clv_type out = *q;
    out.shape[3] = value_dim_of(op) ? value_dim_of(op) : q->shape[3];
    return out;
}

static clv_type lse_of(const clv_type *q)
{
    return (clv_type){.dtype = CLV_F32, .rank = 3, .shape = {q->shape[0], q->shape[2], q->shape[1]}};
}

/* ---- factors ---- */

typedef struct head_factors {
    int b, s, k, g;
    int kv_dim; /* heads_dim */
} head_factors;

static head_factors add_factors(clv_rule *rule, const clv_op *op, const clv_type *q, const clv_type *kv,
                                clv_reduction beyond_kv)
{
    const int64_t kv_heads = kv->shape[clv_attention_heads_dim(op)];
    head_factors f = {.kv_dim = clv_attention_heads_dim(op)};
    f.b = clv_rule_add_factor(rule, q->shape[0], CLV_REDUCTION_NONE);
    f.s = clv_rule_add_factor(rule, q->shape[1], beyond_kv);
    f.k = clv_rule_add_factor(rule, kv_heads, CLV_REDUCTION_NONE);
    f.g = clv_rule_add_factor(rule, q->shape[2] / kv_heads, beyond_kv);
    clv_rule_name_factor(rule, f.b, "batch");
    clv_rule_name_factor(rule, f.s, "sequence");
    rule->factor[f.s].order = ((const clv_attention_attrs *)op->attrs)->zigzag ? "zig-zag" : NULL;
    clv_rule_name_factor(rule, f.k, q->shape[2] == kv_heads ? "heads" : "KV heads");
    clv_rule_name_factor(rule, f.g, "query groups");
    clv_rule_replicate_remainder(rule, f.k, f.g);
    return f;
}

/* clv_rule_operand_dim or clv_rule_result_dim. */
typedef void add_dim_fn(clv_rule *rule, int i, int d, int factor);

static void like_q(add_dim_fn *add, clv_rule *rule, int i, head_factors f)
{
    add(rule, i, 0, f.b);
    add(rule, i, 1, f.s);
    add(rule, i, 2, f.k);
    add(rule, i, 2, f.g);
}

static void like_kv(add_dim_fn *add, clv_rule *rule, int i, head_factors f)
{
    add(rule, i, 0, f.b);
    add(rule, i, f.kv_dim, f.k);
}

/* An offset [B]; an offset [] has no dimension. */
static void like_offset(clv_rule *rule, const clv_op *op, const clv_type *in, int i, head_factors f)
{
    if (clv_valid(clv_op_operand(op, i)) && in[i].rank == 1)
        clv_rule_operand_dim(rule, i, 0, f.b);
}

static void like_lse(add_dim_fn *add, clv_rule *rule, int i, head_factors f)
{
    add(rule, i, 0, f.b);
    add(rule, i, 1, f.k);
    add(rule, i, 1, f.g);
    add(rule, i, 2, f.s);
}

/* ---- what the kernel takes ---- */

clv_attention_args clv_attention_sizes_of(const clv_op *op, const int64_t *q, const int64_t *kv, clv_dtype dtype)
{
    const clv_attention_attrs *attrs = op->attrs;
    return (clv_attention_args){.dropout = attrs->dropout,
                                .batch = q[0],
                                .q_rows = q[1],
                                .k_rows = kv[1],
                                .heads = q[2],
                                .kv_heads = kv[clv_attention_heads_dim(op)],
                                .head_dim = q[3],
                                .value_dim = attrs->value_dim,
                                .zigzag = attrs->zigzag,
                                .dtype = dtype,
                                .workspace_slots = SHARERS};
}

clv_attention_view clv_attention_view_of_q(const clv_view *q)
{
    int64_t row = q->shape[2] * q->shape[3];
    return (clv_attention_view){q->data, q->shape[1] * row, row, q->shape[3]};
}

/* which: 0 keys, 1 values */
clv_attention_view clv_attention_view_of_kv(const clv_op *op, const clv_view *kv, int which)
{
    if (value_dim_of(op)) {
        const int64_t width = kv->shape[3], row = kv->shape[2] * width;
        const int64_t begin = which ? width - value_dim_of(op) : 0;
        return (clv_attention_view){(char *)kv->data + (size_t)begin * clv_dtype_size(kv->dtype), kv->shape[1] * row,
                                    row, width};
    }
    int64_t half = kv->shape[3] * kv->shape[4];
    return (clv_attention_view){(char *)kv->data + (size_t)(which * half) * clv_dtype_size(kv->dtype),
                                kv->shape[1] * 2 * half, 2 * half, kv->shape[4]};
}

static const void *optional(const clv_call *call, int i)
{
    return clv_valid(clv_op_operand(call->op, i)) ? call->in[i].data : NULL;
}

/* The dropout mask of a rank: that of its part of the whole tensor, which begins at q->lo. */
static void set_dropout(clv_attention_args *args, const clv_call *call, const clv_view *q, const int32_t *step)
{
    const clv_attention_attrs *attrs = call->op->attrs;
    args->dropout_key = step ? clv_key_fold_in(attrs->dropout_key, (uint32_t)*step) : attrs->dropout_key;
    args->batch_offset = q->lo[0];
    args->row_offset = q->lo[1];
    args->global_rows = q->global[1];
    args->global_heads = q->global[2];
}

/* Arguments that forward and gradient share. mask: index of the operand mask, which offset and step follow. */
clv_attention_args clv_attention_args_of(const clv_call *call, const clv_view *q, const clv_view *kv, int mask)
{
    const clv_attention_attrs *attrs = call->op->attrs;
    const int32_t *offset = optional(call, mask + 1);
    int threads = clv_threads_max();
    clv_attention_args args = clv_attention_sizes_of(call->op, q->shape, kv->shape, q->dtype);
    args.threads = threads < SHARERS ? threads : SHARERS;
    args.work = clv_call_task_pool_member(call);
    args.q = clv_attention_view_of_q(q);
    args.k = clv_attention_view_of_kv(call->op, kv, 0);
    args.v = clv_attention_view_of_kv(call->op, kv, 1);
    args.key_mask = optional(call, mask);
    args.group = q->global[2] / kv->global[clv_attention_heads_dim(call->op)];
    args.head_offset = q->lo[2];
    args.kv_offset = kv->lo[clv_attention_heads_dim(call->op)];
    bool by_row = offset && call->in[mask + 1].rank == 1;
    args.q_offset = q->lo[1] + (offset && !by_row ? *offset : 0);
    args.offsets = by_row ? offset : NULL;
    args.window = attrs->window;
    args.causal = attrs->causal;
    args.scale = attrs->scale;
    args.workspace = call->workspace;
    set_dropout(&args, call, q, optional(call, mask + 2));
    return args;
}

/* ---- cost ---- */

/* The keys that causal queries at positions below p see together: a window of W hides max(p - W, 0) from each. */
static double keys_below(double p, double window)
{
    const double hidden = window > 0 && window < p ? p - window : 0;
    return (p * p - hidden * hidden) / 2;
}

/* The keys that a causal query sees on average, of the rank with the most: that with both ends of the sequence or, with
 * a window, that with its middle. */
static double keys_seen_zigzag(double all, double rows, double window)
{
    const double half = rows / 2, middle = all / 2;
    const double ends = keys_below(half, window) + keys_below(all, window) - keys_below(all - half, window);
    return fmax(ends, keys_below(middle + half, window) - keys_below(middle - half, window)) / rows;
}

/* Two products over the keys that a query sees on average. Of causal queries, the last ones: with fewer of them than
 * keys they are a rank's part of a sequence, and the rank with its end computes most. What an offset says of their
 * positions is not known. */
double clv_attention_forward_flops(const clv_op *op, const clv_type *q, const clv_type *kv, int offset)
{
    const clv_attention_attrs *attrs = op->attrs;
    const double all = (double)kv->shape[1], window = (double)attrs->window;
    const bool placed = q->shape[1] < kv->shape[1] && (offset < 0 || !clv_valid(clv_op_operand(op, offset)));
    const double rows = placed ? (double)q->shape[1] : all;
    double seen = all;
    if (attrs->causal && attrs->zigzag && rows > 0)
        seen = keys_seen_zigzag(all, rows, window);
    else if (attrs->causal && rows > 0)
        seen = (keys_below(all, window) - keys_below(all - rows, window)) / rows;
    else if (window > 0 && window < all)
        seen -= (all - window) * (all - window) / (2 * all);
    const double queries = (double)(q->shape[0] * q->shape[1] * q->shape[2]);
    return 2.0 * queries * (double)(q->shape[3] + out_of(op, q).shape[3]) * seen;
}

/* ---- attention_gradient: d_out, q, kv, out, lse, mask?, offset?, step? -> dq, dkv ---- */

static clv_status gradient_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_q_kv(op, &in[GQ], &in[GKV], err));
    if (value_dim_of(op) && in[GKV].shape[3] < in[GQ].shape[3] + value_dim_of(op))
        return clv_fail(err, CLV_ESHAPE, "kv is %s: keys and values overlap", clv_type_string(&in[GKV]).text);
    const clv_type like_out = out_of(op, &in[GQ]), lse = lse_of(&in[GQ]);
    CLV_TRY(clv_check_same_shape("d_out", &in[D_OUT], "[B,Sq,H,D] of values", &like_out, err));
    CLV_TRY(clv_check_same_shape("out", &in[GOUT], "[B,Sq,H,D] of values", &like_out, err));
    CLV_TRY(clv_check_same_shape("lse", &in[GLSE], "[B,H,Sq] of q", &lse, err));
    CLV_TRY(check_options(op, in, GMASK, &in[GQ], &in[GKV], err));
    out[0] = in[GQ];
    out[1] = in[GKV];
    return CLV_OK;
}

static void gradient_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    head_factors f = add_factors(rule, op, &in[GQ], &in[GKV], CLV_REDUCTION_SUM);
    like_q(clv_rule_operand_dim, rule, D_OUT, f);
    like_q(clv_rule_operand_dim, rule, GQ, f);
    like_kv(clv_rule_operand_dim, rule, GKV, f);
    like_q(clv_rule_operand_dim, rule, GOUT, f);
    like_lse(clv_rule_operand_dim, rule, GLSE, f);
    if (clv_valid(clv_op_operand(op, GMASK)))
        clv_rule_operand_dim(rule, GMASK, 0, f.b);
    like_offset(rule, op, in, GOFFSET, f);
    like_q(clv_rule_result_dim, rule, 0, f);
    like_kv(clv_rule_result_dim, rule, 1, f);
    clv_rule_multilinear(rule, 1u << D_OUT);
}

static clv_op_cost gradient_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){(double)CLV_ATTENTION_GRADIENT_PRODUCTS / CLV_ATTENTION_FORWARD_PRODUCTS *
                             clv_attention_forward_flops(op, &in[GQ], &in[GKV], GOFFSET),
                         clv_op_traffic_bytes(op, in, out)};
}

static size_t gradient_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    clv_attention_args args = clv_attention_sizes_of(op, in[GQ].shape, in[GKV].shape, in[GQ].dtype);
    return clv_attention_backward_workspace(&args);
}

static clv_status gradient_run(const clv_call *call, clv_error *err)
{
    clv_attention_args args = clv_attention_args_of(call, &call->in[GQ], &call->in[GKV], GMASK);
    args.out = clv_attention_view_of_q(&call->in[GOUT]);
    args.lse = call->in[GLSE].data;
    args.d_out = clv_attention_view_of_q(&call->in[D_OUT]);
    args.dq = clv_attention_view_of_q(&call->out[0]);
    args.dk = clv_attention_view_of_kv(call->op, &call->out[1], 0);
    args.dv = clv_attention_view_of_kv(call->op, &call->out[1], 1);
    return clv_attention_backward(&args, err);
}

const clv_op_def clv_op_attention_gradient = {
    .name = "attention_gradient",
    .display_name = "the gradient of attention",
    CLV_ARITY(GMASK, BACKWARD_IN, 2),
    CLV_ATTRS(clv_attention_attrs, fields),
    .shape = gradient_shape,
    .rule = gradient_rule,
    .cost = gradient_cost,
    .workspace = gradient_workspace,
    .run = gradient_run,
    .counts_flops = true,
    .traits = &(const clv_op_traits){.recomputed_flops = 1.0 / CLV_ATTENTION_GRADIENT_PRODUCTS},
};

/* ---- attention: q, kv, mask?, offset?, step? -> out, lse ---- */

static clv_status attention_shape(const clv_op *op, const clv_type *in, clv_type *out, clv_error *err)
{
    CLV_TRY(check_q_kv(op, &in[Q], &in[KV], err));
    CLV_TRY(check_options(op, in, MASK, &in[Q], &in[KV], err));
    out[0] = out_of(op, &in[Q]);
    out[1] = lse_of(&in[Q]);
    return CLV_OK;
}

static void attention_rule(const clv_op *op, const clv_type *in, const clv_type *out, clv_rule *rule)
{
    head_factors f = add_factors(rule, op, &in[Q], &in[KV], CLV_REDUCTION_NONE);
    like_q(clv_rule_operand_dim, rule, Q, f);
    like_kv(clv_rule_operand_dim, rule, KV, f);
    if (clv_valid(clv_op_operand(op, MASK)))
        clv_rule_operand_dim(rule, MASK, 0, f.b);
    like_offset(rule, op, in, OFFSET, f);
    like_q(clv_rule_result_dim, rule, 0, f);
    like_lse(clv_rule_result_dim, rule, 1, f);
}

static clv_op_cost attention_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){clv_attention_forward_flops(op, &in[Q], &in[KV], OFFSET), clv_op_traffic_bytes(op, in, out)};
}

static size_t attention_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    clv_attention_args args = clv_attention_sizes_of(op, in[Q].shape, in[KV].shape, in[Q].dtype);
    return clv_attention_forward_workspace(&args);
}

static clv_status attention_run(const clv_call *call, clv_error *err)
{
    clv_attention_args args = clv_attention_args_of(call, &call->in[Q], &call->in[KV], MASK);
    args.out = clv_attention_view_of_q(&call->out[0]);
    args.lse = call->out[1].data;
    return clv_attention_forward(&args, err);
}

/* kv [B,Sk,K,C] with keys and values apart where they overlap: [B,Sk,K,D+Dv]. */
static clv_value separated(clv_graph *graph, clv_value kv, int64_t head_dim, int64_t value_dim)
{
    const clv_type type = clv_graph_type(graph, kv);
    int64_t begin[4] = {0}, end[4];
    memcpy(end, type.shape, sizeof end);
    end[3] = head_dim;
    const clv_value keys = clv_slice(graph, kv, begin, end);
    begin[3] = type.shape[3] - value_dim;
    const clv_value parts[] = {keys, clv_slice(graph, kv, begin, type.shape)};
    return clv_concat(graph, parts, 2, 3);
}

/* The gradient of kv from that of `separated`. */
static clv_value joined(clv_graph *graph, clv_value d, const clv_type *kv, int64_t head_dim, int64_t value_dim)
{
    const int64_t zeros[4] = {0}, behind[4] = {0, 0, 0, kv->shape[3] - head_dim};
    const int64_t before[4] = {0, 0, 0, kv->shape[3] - value_dim}, values[4] = {0, 0, 0, head_dim};
    const clv_type type = clv_graph_type(graph, d);
    int64_t keys[4];
    memcpy(keys, type.shape, sizeof keys);
    keys[3] = head_dim;
    return clv_add(graph, clv_pad(graph, clv_slice(graph, d, zeros, keys), zeros, behind),
                   clv_pad(graph, clv_slice(graph, d, values, type.shape), before, zeros));
}

static void attention_gradient(clv_graph *graph, const clv_op *op, const clv_value *d_out, clv_value *d_in)
{
    clv_value in[BACKWARD_IN] = {d_out[0],
                                 clv_op_operand(op, Q),
                                 clv_op_operand(op, KV),
                                 clv_op_result(op, 0),
                                 clv_op_result(op, 1),
                                 clv_op_operand(op, MASK),
                                 clv_op_operand(op, OFFSET),
                                 clv_op_operand(op, STEP)};
    const clv_attention_attrs attrs = *(const clv_attention_attrs *)op->attrs;
    const int n_in = GMASK + op->n_in - MASK;
    const int64_t head_dim = clv_graph_type(graph, in[GQ]).shape[3];
    const clv_type kv = clv_graph_type(graph, in[GKV]);
    const bool overlap = attrs.value_dim && kv.shape[3] < head_dim + attrs.value_dim;
    clv_value out[CLV_MAX_OUT];
    in[GKV] = overlap ? separated(graph, in[GKV], head_dim, attrs.value_dim) : in[GKV];
    clv_graph_emit(graph, &clv_op_attention_gradient, &attrs, in, n_in, out);
    d_in[Q] = out[0];
    d_in[KV] = overlap ? joined(graph, out[1], &kv, head_dim, attrs.value_dim) : out[1];
}

const clv_op_def clv_op_attention = {
    .name = "attention",
    CLV_ARITY(MASK, FORWARD_IN, 2),
    CLV_ATTRS(clv_attention_attrs, fields),
    .shape = attention_shape,
    .rule = attention_rule,
    .gradient = attention_gradient,
    .cost = attention_cost,
    .workspace = attention_workspace,
    .may_be_lowest = 1u << 1,
    .run = attention_run,
    .counts_flops = true,
    .statistics = 1u << 1,
};

clv_value clv_attention(clv_graph *graph, clv_value q, clv_value kv, const clv_attention_options *options)
{
    clv_attention_options given;
    if (!clv_graph_options_copy_in(graph, &given, sizeof given, sizeof given, options, __func__))
        return CLV_NONE;
    given.causal = given.causal || !options;
    clv_type type = clv_graph_type(graph, q);
    clv_attention_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.causal = given.causal;
    attrs.scale = given.scale;
    attrs.window = given.window;
    attrs.value_dim = given.value_dim;
    attrs.zigzag = graph->zigzag;
    if (given.scale == 0 && type.rank == 4 && type.shape[3] > 0)
        attrs.scale = 1 / sqrt((double)type.shape[3]);
    if (!isfinite(given.scale))
        return clv_graph_fail(graph, CLV_EINVAL, "clv_attention: scale is %g; it must be finite", given.scale);
    if (!(given.dropout >= 0 && given.dropout < 1))
        return clv_graph_fail(graph, CLV_EINVAL, "clv_attention: a dropout of %g; 0 <= dropout < 1 is needed",
                              given.dropout);
    if (given.window < 0)
        return clv_graph_fail(graph, CLV_EINVAL, "clv_attention: a window of %lld; 0 (none) or more is needed",
                              (long long)given.window);
    if (given.value_dim < 0)
        return clv_graph_fail(graph, CLV_EINVAL, "clv_attention: values of width %lld; 0 (that of keys) or more",
                              (long long)given.value_dim);
    clv_value in[FORWARD_IN] = {q, kv, given.mask, given.offset}, out[CLV_MAX_OUT];
    if (given.dropout > 0) {
        attrs.dropout = given.dropout;
        attrs.dropout_key = given.dropout_key;
        in[STEP] = given.dropout_step;
    }
    int n_in = FORWARD_IN;
    while (n_in > MASK && !clv_valid(in[n_in - 1]))
        n_in--;
    clv_graph_emit(graph, &clv_op_attention, &attrs, in, n_in, out);
    return out[0];
}
