/* export_attention.c - attention and its gradient as products, a softmax and masks of StableHLO. */
#include <math.h>

#include "ops/builtin_ops.h"
#include "interop/export/exporter.h"

/* Letters: b batch, s query rows, t key rows, k KV heads, g query heads of a group, d head_dim. */

typedef struct attention {
    exported q, keys, values; /* f32: [b,s,k,g,d], [b,t,k,d] twice */
    exported seen;            /* bool [b or 1,1,1,s,t]; rank -1: everything is */
    double scale;
} attention;

static exported absent(void)
{
    return (exported){.type = {.rank = -1}};
}

static exported both(exporter *ex, exported a, exported b)
{
    return !export_given(&a) ? b : export_binary(ex, "and", a, b);
}

/* Queries as [b,s,k,g,d]: head h is (k, g). */
static exported by_group(exporter *ex, exported q, int64_t kv_heads)
{
    const int64_t *n = q.type.shape;
    return export_reshape(ex, export_math(ex, q), 5, (int64_t[]){n[0], n[1], kv_heads, n[2] / kv_heads, n[3]});
}

/* [x, y] among the five dimensions of scores. */
static exported as_scores(exporter *ex, exported x, int first, int second)
{
    int64_t shape[5] = {1, 1, 1, 1, 1};
    shape[first] = x.type.shape[0];
    shape[second] = x.type.shape[1];
    return export_reshape(ex, x, 5, shape);
}

static exported seen_by_position(exporter *ex, int64_t rows, int64_t keys, exported offset)
{
    const int64_t window = export_whole(ex, "window", 0);
    const bool causal = export_whole(ex, "causal", 0);
    exported seen = absent();
    if (!causal && window == 0)
        return seen;
    exported p = export_iota(ex, export_shaped(CLV_I32, 2, (int64_t[]){1, rows}), 1);
    if (export_given(&offset))
        p = export_binary(ex, "add", p, offset.type.rank == 1 ? export_unsqueeze(ex, offset, 1) : offset);
    exported j = export_iota(ex, export_shaped(CLV_I32, 2, (int64_t[]){1, keys}), 1);
    p = as_scores(ex, p, 0, 3);
    j = as_scores(ex, j, 0, 4);
    if (causal)
        seen = export_compare(ex, "LE", j, p);
    if (window > 0)
        seen = both(ex, seen, export_compare(ex, "GT", j, export_with(ex, "subtract", p, (double)window)));
    return seen;
}

static attention attention_of(exporter *ex, exported q, exported kv, exported mask, exported offset)
{
    attention a = {.scale = export_real(ex, "scale")};
    a.q = by_group(ex, q, kv.type.shape[3]);
    a.keys = export_math(ex, export_at(ex, kv, 2, 0));
    a.values = export_math(ex, export_at(ex, kv, 2, 1));
    a.seen = seen_by_position(ex, q.type.shape[1], kv.type.shape[1], offset);
    if (export_given(&mask)) {
        exported zero = export_number(ex, mask.type.dtype, 0);
        a.seen = both(ex, a.seen, as_scores(ex, export_compare(ex, "NE", mask, zero), 0, 4));
    }
    if (export_real(ex, "dropout") > 0)
        ex->fault = "with dropout, whose random numbers StableHLO lacks,";
    return a;
}

static exported scores_of(exporter *ex, const attention *a)
{
    exported s = export_with(ex, "multiply", export_dot(ex, "bskgd", "btkd", "bkgst", a->q, a->keys), a->scale);
    return export_given(&a->seen) ? export_select(ex, a->seen, s, export_number(ex, s.type.dtype, -INFINITY)) : s;
}

static exported operand(const exporter *ex, const exported *in, int i)
{
    return i < ex->op->n_in ? in[i] : absent();
}

/* q, kv, mask?, offset? -> out, lse. A row that sees no key gives zeros. */
static void forward(exporter *ex, const exported *in, exported *out)
{
    const clv_type type = out[0].type, lse_type = out[1].type;
    attention a = attention_of(ex, in[0], in[1], operand(ex, in, 2), operand(ex, in, 3));
    exported s = scores_of(ex, &a);
    const clv_dtype dtype = s.type.dtype;
    exported most = export_unsqueeze(ex, export_reduce(ex, "maximum", s, 1u << 4, -INFINITY), 4);
    exported none = export_compare(ex, "EQ", most, export_number(ex, dtype, -INFINITY));
    most = export_select(ex, none, export_number(ex, dtype, 0), most);
    exported e = export_unary(ex, "exponential", export_binary(ex, "subtract", s, most));
    exported sum = export_row_sum(ex, e);
    exported p = export_binary(ex, "divide", e, export_select(ex, none, export_number(ex, dtype, 1), sum));
    exported mixed = export_dot(ex, "bkgst", "btkd", "bskgd", p, a.values);
    exported lse = export_binary(ex, "add", most, export_unary(ex, "log", sum));
    out[0] = export_cast(ex, export_reshape(ex, mixed, type.rank, type.shape), type.dtype);
    out[1] = export_cast(ex, export_reshape(ex, lse, lse_type.rank, lse_type.shape), lse_type.dtype);
}

/* d_out, q, kv, out, lse, mask?, offset? -> dq, dkv */
static void backward(exporter *ex, const exported *in, exported *out)
{
    const clv_type q_type = out[0].type, kv_type = out[1].type;
    const int64_t kv_heads = kv_type.shape[3];
    attention a = attention_of(ex, in[1], in[2], operand(ex, in, 5), operand(ex, in, 6));
    exported s = scores_of(ex, &a), zero = export_number(ex, s.type.dtype, 0);
    const int64_t *n = s.type.shape;
    exported lse = export_reshape(ex, export_cast(ex, in[4], s.type.dtype), 5, (int64_t[]){n[0], n[1], n[2], n[3], 1});
    exported p = export_unary(ex, "exponential", export_binary(ex, "subtract", s, lse));
    if (export_given(&a.seen))
        p = export_select(ex, a.seen, p, zero);
    exported d = by_group(ex, in[0], kv_heads), o = by_group(ex, in[3], kv_heads);
    exported d_values = export_dot(ex, "bkgst", "bskgd", "btkd", p, d);
    exported d_p = export_dot(ex, "bskgd", "btkd", "bkgst", d, a.values);
    exported sums = export_reduce(ex, "add", export_binary(ex, "multiply", d, o), 1u << 4, 0);
    sums = export_unsqueeze(ex, export_transpose(ex, sums, (int[]){0, 2, 3, 1}), 4);
    exported d_s = export_with(ex, "multiply",
                               export_binary(ex, "multiply", p, export_binary(ex, "subtract", d_p, sums)), a.scale);
    exported d_q = export_dot(ex, "bkgst", "btkd", "bskgd", d_s, a.keys);
    exported d_keys = export_dot(ex, "bkgst", "bskgd", "btkd", d_s, a.q);
    exported d_kv[] = {export_unsqueeze(ex, d_keys, 2), export_unsqueeze(ex, d_values, 2)};
    out[0] = export_cast(ex, export_reshape(ex, d_q, q_type.rank, q_type.shape), q_type.dtype);
    out[1] = export_cast(ex, export_join(ex, d_kv, 2, 2), kv_type.dtype);
}

const export_row export_attention_rows[] = {
    {&clv_op_attention, forward},
    {&clv_op_attention_gradient, backward},
    {0},
};
