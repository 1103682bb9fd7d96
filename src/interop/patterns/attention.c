/* attention.c - attention and its gradient: a softmax between two products.
 *
 *   scores = scale * q . k over D, a large negative number where a query does not see a key: causal, or padding
 *   out = softmax(scores) . v over keys
 *
 * The gradient, from d_out, where p is the softmax:
 *   dv = p . d_out,  d_p = d_out . v,  d_scores = the softmax's gradient of d_p
 *   dq = scale * d_scores . k,  dk = scale * d_scores . q
 *
 * Dimensions are counted in the scores, without those of 1: batch and heads, which all of q, k and v have, groups of
 * heads that q alone has, queries, keys; and HEAD_DIM.
 */
#include "interop/patterns/attention_mask.h"

#include <math.h>
#include <string.h>

enum { MOST_DIMS = CLV_MAX_RANK, HEAD_DIM = CLV_MAX_RANK };

/* A tensor of a product: which dimensions it has, in order. */
typedef struct side {
    int value, n, dims[MOST_DIMS];
} side;

/* What was found. */
typedef struct found {
    int scores_dims;
    int64_t size[CLV_MAX_RANK + 1]; /* of each dimension */
    uint32_t queries, keys;         /* bits of the dimensions that q, and k and v have */
    int groups;                     /* the dimension that q has beside the queries; -1: none */
    side q, k, v, out;
    int softmax, weights; /* weights: the softmax, or it with 0 where the mask hides */
    attention_mask mask;
    double scale;
} found;

/* ---- products, in dimensions of the scores ---- */

/* Letters of dimensions that are not 1. */
static int letters_of(const rewriter *rw, const char *text, int value, char *letters, int64_t *sizes)
{
    clv_type t = rewriter_type(rw, value);
    int n = 0;
    for (int d = 0; d < t.rank; d++)
        if (t.shape[d] != 1) {
            sizes[n] = t.shape[d];
            letters[n++] = text[d];
        }
    return n;
}

/* Where the dimensions of the scores are in a tensor that is a transpose of them. */
typedef struct places {
    int n, at[MOST_DIMS];
} places;

static places in_order(int n)
{
    places p = {.n = n};
    for (int i = 0; i < n; i++)
        p.at[i] = i;
    return p;
}

/* The places in a transpose's operand (down) or result, from those in the other. */
static void follow_transpose(const rewriter *rw, const clv_op *op, places *p, bool down)
{
    clv_type from = rewriter_type(rw, op->in[0]);
    int among[CLV_MAX_RANK], n = 0, to[MOST_DIMS] = {0}, back[MOST_DIMS] = {0};
    for (int d = 0; d < from.rank; d++)
        among[d] = from.shape[d] == 1 ? -1 : n++;
    n = 0;
    for (int d = 0; d < from.rank; d++) { /* dimension n of the result is dimension to[n] of the operand */
        int in = among[rewriter_int(op, "order", d)];
        if (in < 0)
            continue;
        to[n] = in;
        back[in] = n++;
    }
    for (int i = 0; i < p->n; i++)
        p->at[i] = down ? to[p->at[i]] : back[p->at[i]];
}

/* Tensors of a product of which one, `like` (0, 1: an operand, 2: the result), is like the scores, whose dimensions are
 * in these places; what it lacks is HEAD_DIM. */
static bool read_product(const rewriter *rw, const clv_op *op, int like, const places *at_places, side *a, side *b)
{
    int n_dims = at_places->n;
    static const char *const names[] = {"a", "b", "c"};
    char letters[3][CLV_MAX_RANK];
    int64_t sizes[3][CLV_MAX_RANK];
    int n[3], values[3] = {op->in[0], op->in[1], op->out[0]};
    side *sides[3] = {like == 0 ? NULL : a, like == 1 ? NULL : like == 0 ? a : b, like == 2 ? NULL : b};
    if (op->n_in != 2)
        return false;
    for (int i = 0; i < 3; i++)
        n[i] = letters_of(rw, rewriter_text(op, names[i]), values[i], letters[i], sizes[i]);
    if (n[like] != n_dims)
        return false;
    char ordered[CLV_MAX_RANK];
    for (int i = 0; i < n_dims; i++)
        ordered[i] = letters[like][at_places->at[i]];
    for (int i = 0; i < 3; i++)
        if (i != like) {
            int beside = 0;
            *sides[i] = (side){values[i], n[i], {0}};
            for (int d = 0; d < n[i]; d++) {
                const char *at = memchr(ordered, letters[i][d], (size_t)n_dims);
                sides[i]->dims[d] = at ? (int)(at - ordered) : HEAD_DIM;
                beside += !at;
            }
            if (beside != 1)
                return false;
        }
    return true;
}

static uint32_t bits(const side *s)
{
    uint32_t all = 0;
    for (int d = 0; d < s->n; d++)
        all |= 1u << s->dims[d];
    return all;
}

/* The same without conversions of floats: attention of 16 bits has its softmax in f32. */
static int strip(const rewriter *rw, int value)
{
    for (;;) {
        value = rewriter_strip(rw, value);
        const clv_op *op = rewriter_op(rw, value);
        if (!rewriter_is(op, &clv_op_cast) || !clv_dtype_is_float(rewriter_type(rw, op->in[0]).dtype))
            return value;
        value = op->in[0];
    }
}

/* Readers of a value, and those of its conversions in place of these. */
static int readers_of(const rewriter *rw, int value, const clv_op **out, int room)
{
    const clv_op *direct[8];
    int n = rewriter_readers(rw, value, direct, 8), all = 0;
    for (int i = 0; i < n && n <= 8; i++) {
        int more =
            rewriter_is(direct[i], &clv_op_cast) ? rewriter_readers(rw, direct[i]->out[0], out + all, room - all) : 1;
        if (all + more > room)
            return room + 1;
        if (!rewriter_is(direct[i], &clv_op_cast))
            out[all] = direct[i];
        all += more;
    }
    return n <= 8 ? all : room + 1;
}

static int operand_of(const rewriter *rw, const clv_op *op, int value)
{
    for (int i = 0; i < 2 && i < op->n_in; i++)
        if (strip(rw, op->in[i]) == value)
            return i;
    return -1;
}

/* ---- forward ---- */

/* x times a number, or by one; the number and x. */
static bool is_scaled(const rewriter *rw, const clv_op *op, double *factor, int *x)
{
    *x = op ? op->in[0] : 0;
    *factor = 0;
    if (rewriter_is(op, &clv_op_map) && rewriter_int(op, "op", 0) == CLV_UNARY_SCALE)
        *factor = rewriter_real(op, "factor");
    else if (rewriter_is(op, &clv_op_combine) && rewriter_int(op, "op", 0) == CLV_BINARY_DIV &&
             rewriter_number(rw, op->in[1], factor) && *factor != 0)
        *factor = 1 / *factor;
    return *factor != 0;
}

/* From the softmax's operand to the product of q and k. */
static const clv_op *find_scores(const rewriter *rw, found *f, rewrite *parts, int value, places *at)
{
    double factor;
    f->scale = 1;
    for (;;) {
        value = strip(rw, value);
        const clv_op *op = rewriter_op(rw, value);
        rewriter_part(parts, value);
        if (attention_mask_read(&f->mask, rw, op, at->at, at->n, f->scale))
            value = op->in[1];
        else if (rewriter_is(op, &clv_op_transpose)) {
            follow_transpose(rw, op, at, true);
            value = op->in[0];
        } else if (is_scaled(rw, op, &factor, &value))
            f->scale *= factor;
        else
            return rewriter_is(op, &clv_op_dot_general) ? op : NULL;
    }
}

/* Which dimensions are whose: the last ones are queries and keys, one before may be groups of heads. */
static bool find_dims(found *f, side *a, side *b)
{
    int n = f->scores_dims, keys = n - 1, queries = n - 2;
    if (n < 2)
        return false;
    f->q = bits(a) & 1u << keys ? *b : *a;
    f->k = bits(a) & 1u << keys ? *a : *b;
    f->queries = bits(&f->q);
    f->keys = bits(&f->k);
    uint32_t all = (1u << n) - 1, q_alone = f->queries & ~f->keys & all, k_alone = f->keys & ~f->queries & all;
    uint32_t others = q_alone & ~(1u << queries);
    f->groups = -1;
    for (int d = 0; d < n; d++)
        if (others == 1u << d)
            f->groups = d;
    int shared = __builtin_popcount(f->queries & f->keys & all);
    return k_alone == 1u << keys && (q_alone >> queries & 1) && (others == 0 || f->groups >= 0) && shared <= 2 &&
           ((f->queries | f->keys) & all) == all && f->groups != queries;
}

static bool find_sizes(const rewriter *rw, found *f, int softmax)
{
    clv_type t = rewriter_type(rw, softmax);
    f->scores_dims = 0;
    for (int d = 0; d < t.rank; d++)
        if (t.shape[d] != 1)
            f->size[f->scores_dims++] = t.shape[d];
    return f->scores_dims >= 2 && f->scores_dims < CLV_MAX_RANK;
}

static bool same_size(const rewriter *rw, const found *f, const side *s)
{
    clv_type t = rewriter_type(rw, s->value);
    for (int d = 0, at = 0; d < t.rank; d++)
        if (t.shape[d] != 1 && f->size[s->dims[at++]] != t.shape[d])
            return false;
    return true;
}

/* The dimensions that all of q, k and v have: batch, and heads; -1: none. */
static void find_shared(const found *f, int *batch, int *heads)
{
    const uint32_t shared = f->queries & f->keys & ((1u << f->scores_dims) - 1);
    *batch = *heads = -1;
    for (int d = 0; d < f->scores_dims; d++)
        if (shared >> d & 1) {
            *batch = *heads;
            *heads = d;
        }
}

/* Whether the op takes the mask of padding: [batch, keys]. With a window, rows that see no key are not found out. */
static bool padding_fits(const found *f)
{
    int batch, heads;
    find_shared(f, &batch, &heads);
    return !f->mask.all.padding ||
           ((f->mask.all.padding_dims[0] < 0 || f->mask.all.padding_dims[0] == batch) && f->mask.all.window == 0);
}

/* The product of a softmax and v. */
static bool find_forward(const rewriter *rw, found *f, rewrite *parts, const clv_op *op, int at)
{
    side a, b;
    int p = strip(rw, op->in[at]);
    double number;
    const int weights = p;
    const clv_op *softmax = rewriter_op(rw, p), *zeros = NULL;
    if (rewriter_is(softmax, &clv_op_where) && rewriter_number(rw, softmax->in[2], &number) && number == 0) {
        rewriter_part(parts, p);
        zeros = softmax;
        p = strip(rw, softmax->in[1]);
        softmax = rewriter_op(rw, p);
    }
    *f = (found){.softmax = p, .weights = weights};
    rewriter_part(parts, p);
    if (!rewriter_is(softmax, &clv_op_softmax) || !find_sizes(rw, f, p))
        return false;
    places in_scores = in_order(f->scores_dims), in_p = in_scores;
    if (!read_product(rw, op, at, &in_p, &f->v, &f->out))
        return false;
    const clv_op *scores = find_scores(rw, f, parts, softmax->in[0], &in_scores);
    if (!scores || !read_product(rw, scores, 2, &in_scores, &a, &b) || !find_dims(f, &a, &b))
        return false;
    if (zeros &&
        (f->mask.n != 1 || !isinf(f->mask.hidden) || attention_mask_find(rw, &f->mask, zeros, in_p.at, in_p.n) < 0))
        return false; /* rows that see no key are 0, as PyTorch has it */
    clv_type q = rewriter_type(rw, f->q.value);
    for (int d = 0, i = 0; d < q.rank; d++)
        if (q.shape[d] != 1 && f->q.dims[i++] == HEAD_DIM)
            f->size[HEAD_DIM] = q.shape[d];
    clv_dtype dtype = q.dtype;
    const int others[] = {f->k.value, f->v.value, f->out.value};
    for (int i = 0; i < 3; i++)
        if (rewriter_type(rw, others[i]).dtype != dtype)
            return false;
    clv_dtype inside = dtype == CLV_F64 ? CLV_F64 : CLV_F32;
    bool square = f->size[f->scores_dims - 1] == f->size[f->scores_dims - 2];
    return bits(&f->v) == f->keys && bits(&f->out) == f->queries && same_size(rw, f, &f->v) &&
           same_size(rw, f, &f->out) && rewriter_type(rw, p).dtype == inside && (!f->mask.all.causal || square) &&
           f->size[HEAD_DIM] <= 512 && padding_fits(f);
}

/* ---- tensors as the op has them: [B, S, heads, D] ---- */

/* Order of the dimensions in the op's tensors: batch, rows, heads, groups, D; -1: it has none. */
static void order_of(const found *f, bool keys, int order[5])
{
    find_shared(f, &order[0], &order[2]);
    order[1] = f->scores_dims - (keys ? 1 : 2);
    order[3] = keys ? -1 : f->groups;
    order[4] = HEAD_DIM;
}

static int64_t size_of(const found *f, int dim)
{
    return dim < 0 ? 1 : f->size[dim];
}

/* Transposes; what the program has transposed before is taken from before. */
static clv_value transposed(rewriter *rw, clv_value x, const int *order, int n)
{
    const clv_op *before = rewriter_op(rw, x.id);
    bool moved = false, undone = rewriter_is(before, &clv_op_transpose);
    for (int i = 0; i < n; i++) {
        moved = moved || order[i] != i;
        undone = undone && rewriter_int(before, "order", order[i]) == i;
    }
    if (moved && undone)
        return (clv_value){before->in[0]};
    return moved ? clv_transpose(rw->graph, x, order) : x;
}

/* A tensor of the program as one of the op. */
static clv_value to_op(rewriter *rw, const found *f, const side *s, bool keys)
{
    int order[5], permuted[5], n = 0;
    int64_t sizes[CLV_MAX_RANK];
    order_of(f, keys, order);
    for (int d = 0; d < s->n; d++)
        sizes[d] = f->size[s->dims[d]];
    clv_value x = {s->value};
    clv_type have = rewriter_type(rw, s->value);
    if (have.rank != s->n)
        x = clv_reshape(rw->graph, x, s->n, sizes);
    for (int i = 0; i < 5; i++)
        for (int d = 0; d < s->n; d++)
            if (order[i] >= 0 && s->dims[d] == order[i])
                permuted[n++] = d;
    x = transposed(rw, x, permuted, n);
    int64_t shape[] = {size_of(f, order[0]), size_of(f, order[1]), size_of(f, order[2]) * size_of(f, order[3]),
                       size_of(f, HEAD_DIM)};
    clv_type type = clv_graph_type(rw->graph, x);
    return type.rank == 4 && memcmp(type.shape, shape, sizeof shape) == 0 ? x : clv_reshape(rw->graph, x, 4, shape);
}

/* The other way round, in the shape of the program's tensor. */
static clv_value from_op(rewriter *rw, const found *f, const side *s, bool keys, clv_value x)
{
    int order[5], permuted[CLV_MAX_RANK], at[5], n = 0;
    int64_t sizes[5];
    order_of(f, keys, order);
    for (int i = 0; i < 5; i++)
        if (order[i] >= 0) {
            sizes[n] = f->size[order[i]];
            at[n++] = order[i];
        }
    clv_type have = clv_graph_type(rw->graph, x), want = rewriter_type(rw, s->value);
    if (have.rank != n || memcmp(have.shape, sizes, (size_t)n * sizeof *sizes) != 0)
        x = clv_reshape(rw->graph, x, n, sizes);
    for (int d = 0; d < s->n; d++)
        for (int i = 0; i < n; i++)
            if (at[i] == s->dims[d])
                permuted[d] = i;
    x = clv_cast(rw->graph, transposed(rw, x, permuted, n), want.dtype);
    have = clv_graph_type(rw->graph, x);
    return clv_type_equal(&have, &want) ? x : clv_reshape(rw->graph, x, want.rank, want.shape);
}

/* Heads of keys and values that were repeated for the query heads of a group: what they were before, [B,S,K,D]; 0: they
 * were not. */
static int before_repeats(const rewriter *rw, const found *f, const side *s)
{
    int order[5];
    clv_type t = rewriter_type(rw, s->value);
    const clv_op *outer = rewriter_op(rw, s->value);
    const clv_op *repeat = rewriter_is(outer, &clv_op_reshape) ? rewriter_op(rw, outer->in[0]) : NULL;
    order_of(f, true, order);
    if (t.rank != 4 || s->n != 4 || f->groups >= 0 || !rewriter_is(repeat, &clv_op_broadcast))
        return 0;
    for (int d = 0; d < 4; d++)
        if (s->dims[d] != order[d < 3 ? d : 4])
            return 0;
    int before = rewriter_strip(rw, repeat->in[0]);
    clv_type wide = rewriter_type(rw, outer->in[0]), narrow = rewriter_type(rw, before);
    bool heads = wide.rank == 5 && narrow.rank == 4 && wide.shape[0] == t.shape[0] && wide.shape[1] == t.shape[1] &&
                 wide.shape[4] == t.shape[3] && narrow.shape[0] == t.shape[0] && narrow.shape[1] == t.shape[1] &&
                 narrow.shape[2] == wide.shape[2] && narrow.shape[3] == t.shape[3];
    clv_type column = rewriter_type(rw, repeat->in[0]);
    return heads && column.rank == 5 && column.shape[2] == wide.shape[2] && column.shape[3] == 1 ? before : 0;
}

/* Keys and values as one tensor [B,S,2,K,D]. */
static clv_value join(rewriter *rw, clv_value k, clv_value v)
{
    clv_type t = clv_graph_type(rw->graph, k);
    const int64_t shape[] = {t.shape[0], t.shape[1], 1, t.shape[2], t.shape[3]};
    clv_value parts[] = {clv_reshape(rw->graph, k, 5, shape), clv_reshape(rw->graph, v, 5, shape)};
    return clv_concat(rw->graph, parts, 2, 2);
}

/* ---- the gradient ---- */

typedef struct gradient {
    side d_out, dq, dk, dv;
    int repeats[2]; /* values that stand for dk and dv summed over repeated heads; 0: none */
} gradient;

/* The other reader of p, and the softmax's gradient. */
static bool find_dv(const rewriter *rw, const found *f, gradient *g, int p, const clv_op *forward,
                    const clv_op **softmax)
{
    const clv_op *readers[8];
    int n = readers_of(rw, p, readers, 8), products = 0;
    *softmax = NULL;
    if (n > 3)
        return false;
    for (int i = 0; i < n; i++) {
        if (rewriter_is(readers[i], &clv_op_softmax_gradient) && !*softmax)
            *softmax = readers[i];
        else if (rewriter_is(readers[i], &clv_op_dot_general) && readers[i] != forward) {
            int at = operand_of(rw, readers[i], p);
            products++;
            const places as_p = in_order(f->scores_dims);
            if (at < 0 || !read_product(rw, readers[i], at, &as_p, &g->d_out, &g->dv))
                return false;
        } else if (readers[i] != forward)
            return false;
    }
    return products == 1 && *softmax && bits(&g->d_out) == f->queries && bits(&g->dv) == f->keys;
}

/* From the softmax's gradient to the two products that read it, through mask and scale. */
static bool find_dq_dk(const rewriter *rw, const found *f, gradient *g, rewrite *parts, int value)
{
    const clv_op *readers[3];
    double scale = 1, factor, zero;
    int n, x, masked = 0, which;
    places in_ds = in_order(f->scores_dims);
    for (int step = 0; (n = readers_of(rw, value, readers, 3)) == 1 && step < 16; step++) {
        rewriter_part(parts, value);
        if (rewriter_is(readers[0], &clv_op_where) && rewriter_number(rw, readers[0]->in[2], &zero) && zero == 0 &&
            (which = attention_mask_find(rw, &f->mask, readers[0], in_ds.at, in_ds.n)) >= 0 && !(masked >> which & 1))
            masked |= 1 << which;
        else if (is_scaled(rw, readers[0], &factor, &x))
            scale *= factor;
        else if (rewriter_is(readers[0], &clv_op_transpose))
            follow_transpose(rw, readers[0], &in_ds, false);
        else if (strip(rw, readers[0]->out[0]) != strip(rw, value))
            return false;
        value = readers[0]->out[0];
    }
    rewriter_part(parts, value);
    int stripped = strip(rw, value);
    bool all = n == 2 && masked == (1 << f->mask.n) - 1 && fabs(scale - f->scale) <= 1e-6 * fabs(scale);
    for (int i = 0; all && i < 2; i++) {
        side other, result;
        int at = rewriter_is(readers[i], &clv_op_dot_general) ? operand_of(rw, readers[i], stripped) : -1;
        if (at < 0 || !read_product(rw, readers[i], at, &in_ds, &other, &result))
            return false;
        bool is_dq = bits(&result) == f->queries && bits(&other) == f->keys;
        bool is_dk = bits(&result) == f->keys && bits(&other) == f->queries;
        if (is_dq && rewriter_same(rw, other.value, f->k.value))
            g->dq = result;
        else if (is_dk && rewriter_same(rw, other.value, f->q.value))
            g->dk = result;
        else
            return false;
    }
    return all && g->dq.value && g->dk.value;
}

static bool find_gradient(const rewriter *rw, const found *f, gradient *g, rewrite *parts, const clv_op *forward)
{
    const clv_op *softmax;
    side d_out, v;
    int p = f->softmax;
    *g = (gradient){0};
    if (!find_dv(rw, f, g, p, forward, &softmax))
        return false;
    places in_dp = in_order(f->scores_dims);
    const clv_op *dp = rewriter_op(rw, strip(rw, softmax->in[0]));
    while (rewriter_is(dp, &clv_op_transpose)) {
        follow_transpose(rw, dp, &in_dp, true);
        rewriter_part(parts, dp->out[0]);
        dp = rewriter_op(rw, strip(rw, dp->in[0]));
    }
    if (!rewriter_is(dp, &clv_op_dot_general) || !read_product(rw, dp, 2, &in_dp, &d_out, &v))
        return false;
    if (bits(&d_out) != f->queries) {
        side other = d_out;
        d_out = v;
        v = other;
    }
    rewriter_part(parts, dp->out[0]);
    return bits(&d_out) == f->queries && bits(&v) == f->keys && rewriter_same(rw, v.value, f->v.value) &&
           rewriter_same(rw, strip(rw, d_out.value), strip(rw, g->d_out.value)) && same_size(rw, f, &d_out) &&
           rewriter_type(rw, g->d_out.value).dtype == rewriter_type(rw, f->q.value).dtype &&
           find_dq_dk(rw, f, g, parts, softmax->out[0]) && f->out.value < g->dq.value && f->out.value < g->dk.value &&
           f->out.value < g->dv.value; /* it is made of what the forward op is made of */
}

/* The sum over repeated heads of dk or dv: transpose, reshape to [B,S,K,G,D], reduce over G. */
static int find_repeat_sum(const rewriter *rw, const found *f, const side *s, int64_t kv_heads)
{
    const clv_op *op = rewriter_reader(rw, s->value);
    int order[5];
    order_of(f, true, order);
    int place[4] = {0, 1, 2, 3};
    if (rewriter_is(op, &clv_op_transpose)) {
        for (int d = 0; d < 4; d++)
            place[d] = (int)rewriter_int(op, "order", d);
        op = rewriter_reader(rw, op->out[0]);
    }
    for (int d = 0; d < 4; d++)
        if (s->n != 4 || s->dims[place[d]] != order[d < 3 ? d : 4])
            return 0;
    if (!rewriter_is(op, &clv_op_reshape))
        return 0;
    clv_type wide = rewriter_type(rw, op->out[0]);
    op = rewriter_reader(rw, op->out[0]);
    if (!rewriter_is(op, &clv_op_reduce) || rewriter_int(op, "kind", 0) != CLV_SUM || wide.rank != 5 ||
        wide.shape[2] != kv_heads || wide.shape[0] != size_of(f, order[0]) || wide.shape[1] != size_of(f, order[1]))
        return 0;
    for (int d = 0; d < 5; d++)
        if (rewriter_int(op, "reduced", d) != (d == 3))
            return 0;
    return op->out[0];
}

/* ---- building ---- */

static clv_value half_of(rewriter *rw, clv_value kv, int which)
{
    clv_type t = clv_graph_type(rw->graph, kv);
    int64_t low[CLV_MAX_RANK] = {0}, high[CLV_MAX_RANK];
    memcpy(high, t.shape, sizeof high);
    low[2] = which;
    high[2] = which + 1;
    const int64_t shape[] = {t.shape[0], t.shape[1], t.shape[3], t.shape[4]};
    return clv_reshape(rw->graph, clv_slice(rw->graph, kv, low, high), 4, shape);
}

/* A gradient of keys or values in place of the program's. */
static void replace_half(rewriter *rw, rewrite *to, const found *f, const side *s, int summed, clv_value half)
{
    if (!summed) {
        rewriter_replace(rw, to, s->value, from_op(rw, f, s, true, half));
        return;
    }
    clv_type have = clv_graph_type(rw->graph, half), want = rewriter_type(rw, summed);
    half = clv_cast(rw->graph, half, want.dtype);
    have.dtype = want.dtype;
    if (!clv_type_equal(&have, &want))
        half = clv_reshape(rw->graph, half, want.rank, want.shape);
    rewriter_replace(rw, to, summed, half);
}

/* Rows that see a key (attention_mask_rows). */
static clv_value rows_that_see(rewriter *rw, const found *f)
{
    int order[5];
    order_of(f, true, order);
    return attention_mask_rows(rw, &f->mask, size_of(f, order[0]), size_of(f, order[1]));
}

static clv_value build(rewriter *rw, const found *f, int k_before, int v_before)
{
    int order[5];
    order_of(f, true, order);
    clv_value q = to_op(rw, f, &f->q, false);
    clv_value k = k_before ? (clv_value){k_before} : to_op(rw, f, &f->k, true);
    clv_value v = v_before ? (clv_value){v_before} : to_op(rw, f, &f->v, true);
    const clv_attention_options options = {
        .size = sizeof options,
        .causal = f->mask.all.causal,
        .window = f->mask.all.window,
        .mask = attention_mask_padding(rw, &f->mask, size_of(f, order[0]), size_of(f, order[1])),
        .scale = f->scale};
    return clv_attention(rw->graph, q, join(rw, k, v), &options);
}

static void build_gradient(rewriter *rw, rewrite *to, const found *f, const gradient *g, clv_value out)
{
    clv_graph *graph = rw->graph;
    clv_value d_in[CLV_MAX_IN] = {0}, d_out[CLV_MAX_OUT] = {to_op(rw, f, &g->d_out, false)};
    if (!clv_valid(out) || !clv_valid(d_out[0]))
        return;
    clv_op_attention.gradient(graph, &graph->ops[graph->values[out.id].op], d_out, d_in);
    rewriter_replace(rw, to, g->dq.value, from_op(rw, f, &g->dq, false, d_in[0]));
    replace_half(rw, to, f, &g->dk, g->repeats[0], half_of(rw, d_in[1], 0));
    clv_value d_v = half_of(rw, d_in[1], 1), seen = rows_that_see(rw, f);
    if (clv_valid(seen))
        d_v = clv_add(graph, d_v, attention_mask_means_gradient(rw, seen, d_out[0], clv_graph_type(graph, d_v)));
    replace_half(rw, to, f, &g->dv, g->repeats[1], d_v);
}

/* A product with a softmax in a backward pass: its forward product is not read there, so it begins at the gradient. */
static bool find_at(rewriter *rw, const clv_op *op, int at)
{
    found f;
    gradient g;
    rewrite parts = {0};
    clv_graph *graph = rw->graph;
    if (!find_forward(rw, &f, &parts, op, at))
        return false;
    const clv_op *reader = NULL;
    bool back = find_gradient(rw, &f, &g, &parts, op);
    bool alone = readers_of(rw, f.weights, &reader, 1) == 1 && reader == op &&
                 (f.weights == f.softmax || readers_of(rw, f.softmax, &reader, 1) == 1);
    const clv_op *product = op;
    rewrite *to = rewriter_begin(rw, "attention", product);
    if (!to)
        return false;
    if (!back && !alone) { /* others read the softmax: as it is */
        to->roots[to->n_roots++] = f.out.value;
        to->left = true;
        return true;
    }
    int k = before_repeats(rw, &f, &f.k), v = before_repeats(rw, &f, &f.v);
    if (!k || !v || rewriter_type(rw, k).shape[2] != rewriter_type(rw, v).shape[2])
        k = v = 0;
    if (back && k) {
        int64_t heads = rewriter_type(rw, k).shape[2];
        g.repeats[0] = find_repeat_sum(rw, &f, &g.dk, heads);
        g.repeats[1] = find_repeat_sum(rw, &f, &g.dv, heads);
        if (!g.repeats[0] || !g.repeats[1])
            g.repeats[0] = g.repeats[1] = k = v = 0;
    }
    clv_value out = build(rw, &f, k, v), seen = rows_that_see(rw, &f), result = out;
    if (clv_valid(seen))
        result = attention_mask_means(rw, seen, out, v ? (clv_value){v} : to_op(rw, &f, &f.v, true));
    rewriter_replace(rw, to, f.out.value, from_op(rw, &f, &f.out, false, result));
    memcpy(to->parts, parts.parts, sizeof parts.parts);
    to->n_parts = parts.n_parts;
    to = back ? rewriter_begin(rw, "attention", product) : NULL;
    if (to) {
        to->gradient = true;
        memcpy(to->parts, parts.parts, sizeof parts.parts);
        to->n_parts = parts.n_parts;
        build_gradient(rw, to, &f, &g, out);
    }
    return clv_graph_ok(graph);
}

bool find_attention(rewriter *rw, const clv_op *op)
{
    return rewriter_is(op, &clv_op_dot_general) && op->n_in == 2 && (find_at(rw, op, 0) || find_at(rw, op, 1));
}
