/* ring_attention.c - attention to one block of keys of a sequence, and its gradient, of programs in which blocks go
 * around a ring of ranks (program/ring_attention.c).
 *
 *   forward   the block's out_k and lse_k are averaged with what other blocks gave, m = max(lse, lse_k):
 *             sum = (exp(lse - m) sum + exp(lse_k - m) out_k) / (exp(lse - m) + exp(lse_k - m)), lse = m + log(...)
 *   gradient  by out and lse of all blocks: dq of the block is added to that of others, dkv is what this rank's queries
 *             give the block
 *
 * Sums are f64 for f64, else f32. Queries and keys of a block are runs of positions (tensor/zigzag.h), two of a rank;
 * the kernel is called for each pair of runs that see each other. kv may be another rank's block: its first row says
 * which. No window; a causal one in zig-zag order.
 *
 * Source: Liu et al. 2023, arXiv:2310.01889.
 */
#include <math.h>

#include "kernels/cpu/f32_blocks.h"
#include "ops/attention.h"

enum { ALIGN = 64 };

static const clv_attr fields[] = {CLV_FIELD(BOOL, clv_ring_attention_attrs, of.causal),
                                  CLV_FIELD(DOUBLE, clv_ring_attention_attrs, of.scale),
                                  CLV_FIELD(INT64, clv_ring_attention_attrs, of.value_dim),
                                  CLV_FIELD(INT64, clv_ring_attention_attrs, of.zigzag),
                                  CLV_FIELD(DOUBLE, clv_ring_attention_attrs, of.dropout),
                                  CLV_FIELD(KEY, clv_ring_attention_attrs, of.dropout_key),
                                  CLV_FIELD(INT64, clv_ring_attention_attrs, rows),
                                  CLV_FIELD(INT64, clv_ring_attention_attrs, blocks),
                                  {0}};

static size_t aligned(int64_t bytes)
{
    return (size_t)((bytes + ALIGN - 1) / ALIGN * ALIGN);
}

/* ---- runs ---- */

/* Local rows [row, row + n) at positions from `position` on. */
typedef struct run {
    int64_t row, n, position;
} run;

/* The run from a row on; false: there is none. */
static bool next_run(run *out, const clv_attention_attrs *attrs, const clv_view *x, int64_t row)
{
    const int64_t all = x->global[1], left = x->shape[1] - row, at = x->lo[1] + row;
    if (left <= 0)
        return false;
    *out = (run){row, attrs->zigzag ? clv_zigzag_run(all, attrs->zigzag, at, left) : left,
                 attrs->zigzag ? clv_zigzag_position(all, attrs->zigzag, at) : at};
    return true;
}

/* A call for one run of queries and one of keys; false: none of these sees another. */
static bool narrow(clv_attention_args *a, const clv_ring_attention_attrs *attrs, const run *q, const run *k)
{
    if (a->causal && q->position + q->n <= k->position)
        return false;
    a->q = clv_attention_view_from(a, a->q, q->row);
    a->k = clv_attention_view_from(a, a->k, k->row);
    a->v = clv_attention_view_from(a, a->v, k->row);
    a->lse_rows = a->q_rows;
    a->q_rows = q->n;
    a->k_rows = k->n;
    a->zigzag = 0;
    a->row_offset = q->position;
    a->q_offset = q->position - k->position;
    a->global_keys = attrs->rows;
    a->key_offset = k->position;
    return true;
}

/* The larger workspace of as many query rows and of one: decoding has its own. */
static size_t kernel_workspace(clv_attention_args a, size_t (*of)(const clv_attention_args *))
{
    const size_t all = of(&a);
    a.zigzag = 0;
    a.q_rows = 1;
    return aligned((int64_t)(of(&a) > all ? of(&a) : all));
}

/* Begins a sum: with what is there so far, or with `value`. */
static void begin_sum(const clv_call *call, const clv_view *sum, int i, double value)
{
    const int64_t n = clv_view_row_count(sum, 0);
    if (clv_valid(clv_op_operand(call->op, i)))
        clv_view_copy_unless_aliased(sum, &call->in[i]);
    else
        for (int64_t at = 0; at < n; at++)
            clv_dtype_store(sum->dtype, sum->data, at, value);
}

/* ---- forward ---- */

/* What the kernel makes of a pair of runs, [B,Sq,H,Dv] and [B,H,Sq] of so many rows, in the workspace. */
typedef struct partial {
    void *out;
    float *lse;
    double *exact_lse;
} partial;

/* row [n] (dtype of sums) = by * row + with * x, x of another dtype. */
static void average_row(clv_dtype sums, void *row, clv_dtype dtype, const void *x, int64_t from, int64_t n, double by,
                        double with)
{
    float block[CLV_ATTENTION_MAX_DIM];
    if (sums == CLV_F64) {
        for (int64_t d = 0; d < n; d++)
            ((double *)row)[d] = by * ((double *)row)[d] + with * ((const double *)x)[from + d];
        return;
    }
    clv_dtype_convert(CLV_F32, block, dtype, (const char *)x + (size_t)from * clv_dtype_size(dtype), n);
    for (int64_t d = 0; d < n; d++)
        ((float *)row)[d] = (float)by * ((float *)row)[d] + (float)with * block[d];
}

/* Averages row i, head h of the partial results into the sums; i counts b, rows of the run, h. */
static void average(const clv_view *sum, const clv_view *lse, const clv_attention_args *a, const partial *of,
                    const run *q, int64_t i)
{
    const int64_t h = i % a->heads, row = i / a->heads % q->n, b = i / a->heads / q->n,
                  width = clv_attention_value_dim(a);
    const int64_t at = (b * a->heads + h) * lse->shape[2] + q->row + row, from = (b * a->heads + h) * q->n + row;
    const double old = clv_dtype_load(lse->dtype, lse->data, at);
    const double added = a->dtype == CLV_F64 ? of->exact_lse[from] : (double)of->lse[from];
    const double most = old > added || isnan(old) ? old : added;
    const int64_t to = ((b * sum->shape[1] + q->row + row) * a->heads + h) * width;
    if (added == -INFINITY)
        return;
    const double by = exp(old - most), with = exp(added - most);
    average_row(sum->dtype, (char *)sum->data + (size_t)to * clv_dtype_size(sum->dtype), a->dtype, of->out, i * width,
                width, by / (by + with), with / (by + with));
    clv_dtype_store(lse->dtype, lse->data, at, most + log(by + with));
}

/* Lays out a workspace, behind the kernel's; returns its bytes. */
static size_t lay_out_partial(partial *out, void *workspace, const clv_attention_args *a)
{
    const int64_t rows = a->batch * a->q_rows * a->heads;
    const size_t lse = kernel_workspace(*a, clv_attention_forward_workspace) +
                       aligned(rows * clv_attention_value_dim(a) * (int64_t)clv_dtype_size(a->dtype)),
                 exact = lse + aligned(rows * (int64_t)sizeof *out->lse);
    char *at = workspace;
    *out = (partial){.out = at ? at + kernel_workspace(*a, clv_attention_forward_workspace) : NULL,
                     .lse = at ? (float *)(at + lse) : NULL,
                     .exact_lse = at && a->dtype == CLV_F64 ? (double *)(at + exact) : NULL};
    return a->dtype == CLV_F64 ? exact + aligned(rows * (int64_t)sizeof *out->exact_lse) : exact;
}

static size_t forward_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    partial unused;
    const clv_attention_args a =
        clv_attention_sizes_of(op, in[CLV_RING_Q].shape, in[CLV_RING_KV].shape, in[CLV_RING_Q].dtype);
    return lay_out_partial(&unused, NULL, &a);
}

static clv_status attend_to_run(const clv_call *call, const clv_attention_args *base, const run *q, const run *k,
                                clv_error *err)
{
    const clv_view *sum = &call->out[0], *lse = &call->out[1];
    const int64_t width = clv_attention_value_dim(base);
    clv_attention_args a = *base;
    partial of;
    (void)lay_out_partial(&of, call->workspace, base);
    if (!narrow(&a, call->op->attrs, q, k))
        return CLV_OK;
    a.out = (clv_attention_view){of.out, q->n * a.heads * width, a.heads * width, width};
    a.lse = of.lse;
    a.exact_lse = of.exact_lse;
    a.lse_rows = q->n;
    CLV_TRY(clv_attention_forward(&a, err));
    CLV_PARALLEL_FOR_EACH(i, a.batch * q->n * a.heads, a.batch * q->n * a.heads * width,
                          average(sum, lse, &a, &of, q, i));
    return CLV_OK;
}

static clv_status forward_run(const clv_call *call, clv_error *err)
{
    const clv_ring_attention_attrs *attrs = call->op->attrs;
    const clv_view *q = &call->in[CLV_RING_Q], *kv = &call->in[CLV_RING_KV];
    const clv_attention_args base = clv_attention_args_of(call, q, kv, CLV_RING_MASK);
    run of_q, of_k;
    begin_sum(call, &call->out[0], CLV_RING_SUM, 0);
    begin_sum(call, &call->out[1], CLV_RING_LSE, -INFINITY);
    for (int64_t k = 0; next_run(&of_k, &attrs->of, kv, k); k += of_k.n)
        for (int64_t i = 0; next_run(&of_q, &attrs->of, q, i); i += of_q.n)
            CLV_TRY(attend_to_run(call, &base, &of_q, &of_k, err));
    return CLV_OK;
}

/* The flops of a block: by shards of a rank its causal half, of whole tensors those of one block. */
static double flops_of(const clv_op *op, const clv_type *q, const clv_type *kv)
{
    const clv_ring_attention_attrs *attrs = op->attrs;
    const double parts = kv->shape[1] == attrs->rows ? (double)attrs->blocks : 1;
    return clv_attention_forward_flops(op, q, kv, -1) / parts;
}

static clv_op_cost forward_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){flops_of(op, &in[CLV_RING_Q], &in[CLV_RING_KV]), clv_op_traffic_bytes(op, in, out)};
}

const clv_op_def clv_op_ring_attention = {.name = "ring_attention",
                                          .min_in = CLV_RING_KV + 1,
                                          .max_in = CLV_RING_IN,
                                          .n_out = 2,
                                          CLV_ATTRS(clv_ring_attention_attrs, fields),
                                          .cost = forward_cost,
                                          .workspace = forward_workspace,
                                          .in_place = {1 + CLV_RING_SUM, 1 + CLV_RING_LSE},
                                          .may_be_lowest = 1u << 1,
                                          .run = forward_run,
                                          .counts_flops = true,
                                          .traits = &(const clv_op_traits){.rates_of = "attention"}};

/* ---- gradient ---- */

/* Adds rows [row, row + n) of each sequence: sum [B,S,...] += x [B,n,...]. */
static void add_rows(const clv_view *sum, clv_dtype dtype, const void *x, int64_t row, int64_t n)
{
    const int64_t width = clv_shape_product(sum->shape, 2, sum->rank);
    for (int64_t i = 0; i < sum->shape[0] * n; i++) {
        const int64_t to = (i / n * sum->shape[1] + row + i % n) * width, from = i * width;
        for (int64_t d = 0; d < width; d += CLV_ATTENTION_MAX_DIM) {
            const int64_t count = clv_min_i64(CLV_ATTENTION_MAX_DIM, width - d);
            average_row(sum->dtype, (char *)sum->data + (size_t)(to + d) * clv_dtype_size(sum->dtype), dtype, x,
                        from + d, count, 1, 1);
        }
    }
}

/* Lays out a workspace, behind the kernel's: gradients of a run of queries, and of one of keys and values; returns its
 * bytes. */
static size_t lay_out_gradients(char **dq, char **dkv, void *workspace, const clv_attention_args *a, const clv_view *kv)
{
    const int64_t size = (int64_t)clv_dtype_size(a->dtype);
    const size_t at = kernel_workspace(*a, clv_attention_backward_workspace),
                 behind = at + aligned(a->batch * a->q_rows * a->heads * a->head_dim * size);
    *dq = workspace ? (char *)workspace + at : NULL;
    *dkv = workspace ? (char *)workspace + behind : NULL;
    return behind + aligned(a->batch * a->k_rows * clv_shape_product(kv->shape, 2, kv->rank) * size);
}

static size_t gradient_workspace(const clv_op *op, const clv_view *in, const clv_view *out)
{
    const clv_view *q = &in[CLV_RING_GQ], *kv = &in[CLV_RING_GKV];
    const clv_attention_args a = clv_attention_sizes_of(op, q->shape, kv->shape, q->dtype);
    char *dq, *dkv;
    return lay_out_gradients(&dq, &dkv, NULL, &a, kv);
}

static clv_status gradient_of_run(const clv_call *call, const clv_attention_args *base, const run *q, const run *k,
                                  clv_error *err)
{
    const clv_view *kv = &call->in[CLV_RING_GKV], *lse = &call->in[CLV_RING_GLSE];
    const int64_t heads = base->heads, dim = base->head_dim;
    clv_attention_args a = *base;
    clv_view dkv = *kv;
    char *dq, *of_kv;
    (void)lay_out_gradients(&dq, &of_kv, call->workspace, base, kv);
    dkv.data = of_kv;
    dkv.shape[1] = k->n;
    if (!narrow(&a, call->op->attrs, q, k))
        return CLV_OK;
    a.out = clv_attention_view_from(&a, clv_attention_view_of_q(&call->in[CLV_RING_GOUT]), q->row);
    a.d_out = clv_attention_view_from(&a, clv_attention_view_of_q(&call->in[CLV_RING_D_OUT]), q->row);
    a.lse = a.dtype == CLV_F64 ? NULL : (float *)lse->data + q->row;
    a.exact_lse = a.dtype == CLV_F64 ? (double *)lse->data + q->row : NULL;
    a.dq = (clv_attention_view){dq, q->n * heads * dim, heads * dim, dim};
    a.dk = clv_attention_view_of_kv(call->op, &dkv, 0);
    a.dv = clv_attention_view_of_kv(call->op, &dkv, 1);
    CLV_TRY(clv_attention_backward(&a, err));
    add_rows(&call->out[0], a.dtype, dq, q->row, q->n);
    add_rows(&call->out[1], a.dtype, dkv.data, k->row, k->n);
    return CLV_OK;
}

static clv_status gradient_run(const clv_call *call, clv_error *err)
{
    const clv_ring_attention_attrs *attrs = call->op->attrs;
    const clv_view *q = &call->in[CLV_RING_GQ], *kv = &call->in[CLV_RING_GKV];
    const bool masked = clv_valid(clv_op_operand(call->op, CLV_RING_GMASK));
    const bool drops = clv_valid(clv_op_operand(call->op, CLV_RING_GSTEP));
    clv_attention_args base = clv_attention_args_of(call, q, kv, CLV_RING_GRADIENT_IN);
    run of_q, of_k;
    base.key_mask = masked ? call->in[CLV_RING_GMASK].data : NULL;
    if (drops)
        base.dropout_key =
            clv_key_fold_in(attrs->of.dropout_key, (uint32_t) * (const int32_t *)call->in[CLV_RING_GSTEP].data);
    begin_sum(call, &call->out[0], CLV_RING_DQ, 0);
    begin_sum(call, &call->out[1], CLV_RING_GRADIENT_IN, 0);
    for (int64_t k = 0; next_run(&of_k, &attrs->of, kv, k); k += of_k.n)
        for (int64_t i = 0; next_run(&of_q, &attrs->of, q, i); i += of_q.n)
            CLV_TRY(gradient_of_run(call, &base, &of_q, &of_k, err));
    return CLV_OK;
}

static clv_op_cost gradient_cost(const clv_op *op, const clv_type *in, const clv_type *out)
{
    return (clv_op_cost){(double)CLV_ATTENTION_GRADIENT_PRODUCTS / CLV_ATTENTION_FORWARD_PRODUCTS *
                             flops_of(op, &in[CLV_RING_GQ], &in[CLV_RING_GKV]),
                         clv_op_traffic_bytes(op, in, out)};
}

const clv_op_def clv_op_ring_attention_gradient = {
    .name = "ring_attention_gradient",
    .min_in = CLV_RING_GLSE + 1,
    .max_in = CLV_RING_GRADIENT_IN,
    .n_out = 2,
    CLV_ATTRS(clv_ring_attention_attrs, fields),
    .cost = gradient_cost,
    .workspace = gradient_workspace,
    .in_place = {1 + CLV_RING_DQ},
    .run = gradient_run,
    .counts_flops = true,
    .traits = &(const clv_op_traits){.recomputed_flops = 1.0 / CLV_ATTENTION_GRADIENT_PRODUCTS,
                                     .rates_of = "attention_gradient"}};
