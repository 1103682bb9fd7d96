/* attention_mask.c - masks of attention: positions (band.h), padding that is data, and rows that see no key. */
#include "interop/patterns/attention_mask.h"

#include <math.h>
#include <string.h>

#include "interop/patterns/band.h"

enum { MOST_DEPTH = 16 };

/* ---- reading ---- */

/* Dimensions of scores, counted from behind, of each of those that are not 1. */
typedef struct dims_from_behind {
    int n, at[CLV_MAX_RANK];
} dims_from_behind;

static dims_from_behind count_from_behind(const clv_type *t, const int *at, int count)
{
    int dense[CLV_MAX_RANK], n = 0;
    dims_from_behind out = {.n = count};
    for (int d = 0; d < t->rank; d++)
        if (t->shape[d] != 1)
            dense[n++] = t->rank - 1 - d;
    if (n != count)
        out.n = 0;
    for (int i = 0; i < out.n; i++)
        out.at[i] = dense[at[i]];
    return out;
}

/* Whether a condition holds where the query's index is at least the key's and less than `window` more (0: any number
 * more). */
static bool is_causal(int64_t *window, const rewriter *rw, int condition, const dims_from_behind *behind, int64_t keys)
{
    band seen;
    if (behind->at[behind->n - 2] < 0 || behind->at[behind->n - 1] < 0 ||
        !band_read(&seen, rw, condition, behind->at[behind->n - 2], behind->at[behind->n - 1]) || seen.low != 0 ||
        seen.high < 0)
        return false;
    *window = seen.high < (double)keys ? (int64_t)seen.high + 1 : 0;
    return true;
}

/* Whether a condition depends on the key, and perhaps on one dimension before heads, alone: padding. */
static bool is_padding(attention_condition *m, const rewriter *rw, int condition, const dims_from_behind *behind)
{
    const int value = rewriter_at(rw, condition);
    int dims[2] = {-1, -1};
    const clv_type t = rewriter_type(rw, value);
    for (int d = 0; d < t.rank; d++) {
        int dim = -1;
        for (int i = 0; i < behind->n; i++)
            dim = behind->at[i] == t.rank - 1 - d ? i : dim;
        if (t.shape[d] == 1)
            continue;
        if (dim == behind->n - 1 && dims[1] < 0)
            dims[1] = dim;
        else if (dim >= 0 && dim < behind->n - 2 && dims[0] < 0 && dims[1] < 0)
            dims[0] = dim;
        else
            return false;
    }
    if (dims[1] < 0 || m->padding)
        return false;
    m->padding = value;
    memcpy(m->padding_dims, dims, sizeof dims);
    return true;
}

/* The same dimensions of what is reshaped by dimensions of 1 alone; -1: one that it repeats. */
static dims_from_behind before_reshape(const dims_from_behind *behind, const clv_type *to, const clv_type *from)
{
    dims_from_behind out = {.n = behind->n};
    for (int i = 0; i < behind->n; i++) {
        int passed = 0, at = behind->at[i];
        out.at[i] = -1;
        if (at < 0 || at >= to->rank || to->shape[to->rank - 1 - at] == 1)
            continue;
        for (int d = 0; d < at; d++)
            passed += to->shape[to->rank - 1 - d] != 1;
        for (int d = 0; d < from->rank && out.at[i] < 0; d++)
            if (from->shape[from->rank - 1 - d] != 1 && passed-- == 0)
                out.at[i] = d;
    }
    return out;
}

static dims_from_behind before_transpose(const dims_from_behind *behind, const clv_op *op, int rank)
{
    dims_from_behind out = {.n = behind->n};
    for (int i = 0; i < behind->n; i++) {
        const int at = behind->at[i];
        out.at[i] = at < 0 || at >= rank ? -1 : rank - 1 - (int)rewriter_int(op, "order", rank - 1 - at);
    }
    return out;
}

/* Reads a condition: causal, padding, or both. */
static bool read_mask(attention_condition *m, const rewriter *rw, int condition, const dims_from_behind *behind,
                      int64_t keys, int depth)
{
    const clv_op *op = rewriter_op(rw, condition);
    double number;
    if (rewriter_number(rw, condition, &number))
        return number == 1;
    if (!m->causal && is_causal(&m->window, rw, condition, behind, keys))
        return m->causal = true;
    if (depth == MOST_DEPTH)
        return false;
    if (rewriter_is(op, &clv_op_pointwise) && rewriter_int(op, "kind", 0) == CLV_AND)
        return read_mask(m, rw, op->in[0], behind, keys, depth + 1) &&
               read_mask(m, rw, op->in[1], behind, keys, depth + 1);
    if (rewriter_is(op, &clv_op_broadcast))
        return read_mask(m, rw, op->in[0], behind, keys, depth + 1);
    if (rewriter_is(op, &clv_op_transpose)) {
        const dims_from_behind before = before_transpose(behind, op, rewriter_type(rw, condition).rank);
        return read_mask(m, rw, op->in[0], &before, keys, depth + 1);
    }
    const clv_type to = rewriter_type(rw, condition), from = op && op->n_in ? rewriter_type(rw, op->in[0]) : to;
    if (rewriter_is(op, &clv_op_reshape) && rewriter_same_but_ones(&to, &from)) {
        const dims_from_behind before = before_reshape(behind, &to, &from);
        return read_mask(m, rw, op->in[0], &before, keys, depth + 1);
    }
    return is_padding(m, rw, condition, behind);
}

/* The condition of a choice, with a dimension of the scores at each of these places among the op's that are not 1. */
static bool read_condition(attention_condition *out, const rewriter *rw, const clv_op *op, const int *at, int n)
{
    const clv_type t = rewriter_type(rw, op->out[0]);
    const dims_from_behind behind = count_from_behind(&t, at, n);
    *out = (attention_condition){0};
    return behind.n >= 2 && read_mask(out, rw, op->in[0], &behind, t.shape[t.rank - 1 - behind.at[behind.n - 1]], 0);
}

bool attention_mask_read(attention_mask *m, const rewriter *rw, const clv_op *op, const int *at, int n, double scale)
{
    double hidden;
    attention_condition c;
    if (!rewriter_is(op, &clv_op_where) || m->n == ATTENTION_MASKS || !rewriter_number(rw, op->in[2], &hidden) ||
        (hidden *= scale) > -1e9 || (m->n && hidden != m->hidden) || !read_condition(&c, rw, op, at, n) ||
        (c.causal && m->all.causal) || (c.padding && m->all.padding))
        return false;
    m->hidden = hidden;
    m->conditions[m->n++] = c;
    if (c.causal) {
        m->all.causal = true;
        m->all.window = c.window;
    }
    if (c.padding) {
        m->all.padding = c.padding;
        memcpy(m->all.padding_dims, c.padding_dims, sizeof c.padding_dims);
    }
    return true;
}

int attention_mask_find(const rewriter *rw, const attention_mask *m, const clv_op *op, const int *at, int n)
{
    attention_condition c;
    if (!read_condition(&c, rw, op, at, n))
        return -1;
    for (int i = 0; i < m->n; i++) {
        const attention_condition *have = &m->conditions[i];
        if (c.causal == have->causal && c.window == have->window && !c.padding == !have->padding &&
            memcmp(c.padding_dims, have->padding_dims, sizeof c.padding_dims) == 0 &&
            (!c.padding || rewriter_identical(rw, c.padding, have->padding)))
            return i;
    }
    return -1;
}

/* ---- building ---- */

clv_value attention_mask_padding(rewriter *rw, const attention_mask *m, int64_t batch, int64_t keys)
{
    if (!m->all.padding)
        return CLV_NONE;
    clv_value mask = clv_reshape(rw->graph, (clv_value){m->all.padding}, 2,
                                 (int64_t[]){m->all.padding_dims[0] < 0 ? 1 : batch, keys});
    return m->all.padding_dims[0] < 0 && batch > 1 ? clv_broadcast(rw->graph, mask, (int64_t[]){batch, keys}) : mask;
}

clv_value attention_mask_rows(rewriter *rw, const attention_mask *m, int64_t batch, int64_t keys)
{
    if (!m->all.padding || isinf(m->hidden))
        return CLV_NONE;
    clv_graph *g = rw->graph;
    clv_value mask = clv_cast(g, attention_mask_padding(rw, m, batch, keys), CLV_U8);
    clv_value seen = m->all.causal ? clv_cumulative(g, CLV_FOLD_MAX, mask, 1, false)
                                   : clv_fold(g, CLV_FOLD_MAX, mask, (int[]){1}, 1);
    const clv_type t = clv_graph_type(g, seen);
    return clv_reshape(g, clv_cast(g, seen, CLV_BOOL), 4,
                       (int64_t[]){t.shape[0], m->all.causal ? t.shape[1] : 1, 1, 1});
}

clv_value attention_mask_means(rewriter *rw, clv_value seen, clv_value out, clv_value v)
{
    clv_graph *g = rw->graph;
    const clv_type o = clv_graph_type(g, out), t = clv_graph_type(g, v);
    const int64_t groups = o.shape[2] / t.shape[2];
    clv_value mean = clv_reduce(g, CLV_MEAN, v, (int[]){1}, 1, true); /* [B,1,K,D] */
    mean = clv_reshape(g, mean, 5, (int64_t[]){t.shape[0], 1, t.shape[2], 1, t.shape[3]});
    mean = clv_broadcast(g, mean, (int64_t[]){t.shape[0], 1, t.shape[2], groups, t.shape[3]});
    return clv_where(g, seen, out, clv_reshape(g, mean, 4, (int64_t[]){t.shape[0], 1, o.shape[2], t.shape[3]}));
}

clv_value attention_mask_means_gradient(rewriter *rw, clv_value seen, clv_value d_out, clv_type v)
{
    clv_graph *g = rw->graph;
    const clv_type o = clv_graph_type(g, d_out);
    clv_value d = clv_where(g, seen, clv_fill(g, o.dtype, 0, NULL, 0), d_out);
    d = clv_reshape(g, d, 5, (int64_t[]){o.shape[0], o.shape[1], v.shape[2], o.shape[2] / v.shape[2], o.shape[3]});
    d = clv_reduce(g, CLV_SUM, d, (int[]){1, 3}, 2, false); /* [B,K,D] */
    d = clv_reshape(g, clv_scale(g, d, 1 / (double)v.shape[1]), 4, (int64_t[]){v.shape[0], 1, v.shape[2], v.shape[3]});
    return clv_broadcast(g, d, v.shape);
}
