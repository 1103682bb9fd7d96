/* rope.c - rotary position embedding and its gradient, in any form: halves or neighbours, split, sliced, stacked,
 * padded and added, or x * cos + turned(x) * sin.
 *
 * Each element of the root's last D is read as a sum of elements of x times elements of tables. It is a rotation if
 * there are two, of a pair (a, b):
 *   out[a] = x[a] cos[a] - x[b] sin[a],  out[b] = x[b] cos[b] + x[a] sin[b]        transposed: the gradient
 * Dimensions before the last D are rows: all tensors have the same ones, tables may have 1 in their place.
 */
#include <string.h>

#include "interop/patterns/rewriter.h"
#include "kernels/cpu/rope_kernel.h"

enum { MOST_DEPTH = 24, MOST_STEPS = 4096, MOST_CANDIDATES = 16, TERMS = 2 };

/* sign * x[at] * table[table_at], of which `behind` dimensions are those behind the rows; table 0: none yet. */
typedef struct term {
    int sign, table, behind;
    int64_t at, table_at;
} term;

typedef struct sum {
    int n;
    term terms[TERMS];
} sum;

typedef struct reader {
    const rewriter *rw;
    rewrite *parts; /* NULL: they are noted already */
    clv_type root;
    int rows;    /* number of dimensions before the last D */
    int64_t dim; /* D */
    int x;
    int steps; /* of the read of an element: sums of sums of the same values double them */
} reader;

static int64_t trailing(const clv_type *t, int rows)
{
    return clv_shape_product(t->shape, rows, t->rank);
}

static bool same_shape(const clv_type *a, const clv_type *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

static bool has_rows(const reader *r, const clv_type *t)
{
    return t->rank >= r->rows && memcmp(t->shape, r->root.shape, (size_t)r->rows * sizeof *t->shape) == 0;
}

/* The index along each dimension of an element that is counted behind the rows, and back. */
static void index_of(const clv_type *t, int rows, int64_t at, int64_t *index)
{
    for (int d = t->rank - 1; d >= rows; d--) {
        index[d] = at % t->shape[d];
        at /= t->shape[d];
    }
}

static int64_t element_at(const clv_type *t, int rows, const int64_t *index)
{
    int64_t at = 0;
    for (int d = rows; d < t->rank; d++)
        at = at * t->shape[d] + index[d];
    return at;
}

static bool read_sum(sum *out, reader *r, int value, int64_t at, int depth);

static bool read_both(sum *out, reader *r, const clv_op *op, int64_t at, int sign, int depth)
{
    sum b;
    const clv_type to = rewriter_type(r->rw, op->out[0]);
    for (int i = 0; i < 2; i++) {
        const clv_type from = rewriter_type(r->rw, op->in[i]);
        if (!same_shape(&from, &to))
            return false;
    }
    if (!read_sum(out, r, op->in[0], at, depth) || !read_sum(&b, r, op->in[1], at, depth) || out->n + b.n > TERMS)
        return false;
    for (int i = 0; i < b.n; i++) {
        out->terms[out->n] = b.terms[i];
        out->terms[out->n++].sign *= sign;
    }
    return true;
}

/* Whether a value is smaller than the rows that read it, before it is repeated, or a cosine or sine. */
static bool is_table(const rewriter *rw, int value, int64_t elems)
{
    const int stripped = rewriter_strip(rw, value);
    const clv_type t = rewriter_type(rw, stripped);
    const clv_op *op = rewriter_op(rw, stripped);
    while (rewriter_is(op, &clv_op_cast))
        op = rewriter_op(rw, op->in[0]);
    const int64_t kind = rewriter_is(op, &clv_op_pointwise) ? rewriter_int(op, "kind", 0) : -1;
    return clv_type_elems(&t) < elems || kind == CLV_COS || kind == CLV_SIN;
}

/* x times a table: which of the operands is the table is found out. */
static bool read_product(sum *out, reader *r, const clv_op *op, int64_t at, int depth)
{
    const clv_type to = rewriter_type(r->rw, op->out[0]);
    for (int i = 0; i < 2; i++) {
        const int x = op->in[i], table = op->in[1 - i];
        const clv_type from = rewriter_type(r->rw, x), by = rewriter_type(r->rw, table);
        const int behind = to.rank - r->rows;
        if (!same_shape(&from, &to) || by.rank < behind ||
            memcmp(by.shape + by.rank - behind, to.shape + r->rows, (size_t)behind * sizeof *by.shape) != 0 ||
            !is_table(r->rw, table, clv_type_elems(&to)) || !read_sum(out, r, x, at, depth))
            continue;
        for (int k = 0; k < out->n; k++) {
            if (out->terms[k].table)
                return false;
            out->terms[k].table = rewriter_at(r->rw, table);
            out->terms[k].behind = behind;
            out->terms[k].table_at = at;
        }
        return true;
    }
    return false;
}

static bool moves(const clv_op *op)
{
    return rewriter_is(op, &clv_op_reshape) || rewriter_is(op, &clv_op_slice) || rewriter_is(op, &clv_op_pad) ||
           rewriter_is(op, &clv_op_concat);
}

/* An element of a slice, a pad or a concatenation along dimensions behind the rows, and a reshape of these. */
static bool read_moved(sum *out, reader *r, const clv_op *op, int64_t at, int depth)
{
    const clv_type to = rewriter_type(r->rw, op->out[0]);
    int64_t index[CLV_MAX_RANK] = {0};
    int in = 0;
    if (rewriter_is(op, &clv_op_reshape))
        return read_sum(out, r, op->in[0], at, depth);
    index_of(&to, r->rows, at, index);
    if (rewriter_is(op, &clv_op_slice))
        for (int d = r->rows; d < to.rank; d++)
            index[d] += rewriter_int(op, "low", d);
    else if (rewriter_is(op, &clv_op_pad)) {
        const clv_type from = rewriter_type(r->rw, op->in[0]);
        for (int d = r->rows; d < to.rank; d++) {
            index[d] -= rewriter_int(op, "low", d);
            if (index[d] < 0 || index[d] >= from.shape[d])
                return true; /* 0 */
        }
    } else {
        const int dim = (int)rewriter_int(op, "dim", 0);
        if (dim < r->rows)
            return false;
        for (int64_t size; in < op->n_in - 1; index[dim] -= size, in++) {
            size = rewriter_type(r->rw, op->in[in]).shape[dim];
            if (index[dim] < size)
                break;
        }
    }
    const clv_type from = rewriter_type(r->rw, op->in[in]);
    return has_rows(r, &from) && read_sum(out, r, op->in[in], element_at(&from, r->rows, index), depth);
}

/* Whether values of the root's dtype keep what they are in this one. */
static bool keeps(const reader *r, clv_dtype dtype)
{
    return clv_dtype_is_float(dtype) &&
           (dtype == r->root.dtype || clv_dtype_size(dtype) > clv_dtype_size(r->root.dtype));
}

static bool read_op(sum *out, reader *r, const clv_op *op, int64_t at, int depth)
{
    const bool combines = rewriter_is(op, &clv_op_combine), maps = rewriter_is(op, &clv_op_map);
    const int64_t kind = combines || maps ? rewriter_int(op, "op", 0) : 0;
    if (combines && (kind == CLV_BINARY_ADD || kind == CLV_BINARY_SUB))
        return read_both(out, r, op, at, kind == CLV_BINARY_ADD ? 1 : -1, depth);
    if (combines && kind == CLV_BINARY_MUL)
        return read_product(out, r, op, at, depth);
    if (maps) {
        const double factor = kind == CLV_UNARY_NEG ? -1 : kind == CLV_UNARY_SCALE ? rewriter_real(op, "factor") : 0;
        if ((factor != 1 && factor != -1) || !read_sum(out, r, op->in[0], at, depth))
            return false;
        for (int i = 0; i < out->n; i++)
            out->terms[i].sign *= (int)factor;
        return true;
    }
    if (rewriter_is(op, &clv_op_cast))
        return keeps(r, rewriter_type(r->rw, op->in[0]).dtype) && keeps(r, rewriter_type(r->rw, op->out[0]).dtype) &&
               read_sum(out, r, op->in[0], at, depth);
    return moves(op) && read_moved(out, r, op, at, depth);
}

/* Element `at` of each row of a value, as a sum of elements of x. */
static bool read_sum(sum *out, reader *r, int value, int64_t at, int depth)
{
    const clv_type type = rewriter_type(r->rw, value);
    double number;
    value = rewriter_at(r->rw, value);
    *out = (sum){0};
    if (rewriter_number(r->rw, value, &number))
        return number == 0;
    if (depth == MOST_DEPTH || r->steps++ >= MOST_STEPS || !has_rows(r, &type))
        return false;
    if (value == r->x) {
        *out = (sum){1, {{.sign = 1, .at = at}}};
        return true;
    }
    const clv_op *op = rewriter_op(r->rw, value);
    if (r->parts && depth > 0)
        rewriter_part(r->parts, value);
    return op && op->n_out == 1 && read_op(out, r, op, at, depth + 1);
}

/* ---- tables ---- */

/* A table before it is repeated along rows. */
static int before_rows(const reader *r, const term *by)
{
    int value = rewriter_at(r->rw, by->table);
    for (const clv_op *op = rewriter_op(r->rw, value); rewriter_is(op, &clv_op_broadcast);
         op = rewriter_op(r->rw, value)) {
        const clv_type from = rewriter_type(r->rw, op->in[0]), to = rewriter_type(r->rw, value);
        if (trailing(&from, from.rank - by->behind) != trailing(&to, to.rank - by->behind))
            break;
        value = rewriter_at(r->rw, op->in[0]);
    }
    return value;
}

/* As the op has it: [rows..., D] or [rows..., D/2]; of rank -1 if it has more rows. */
static clv_type table_type(const reader *r, const term *by)
{
    clv_type t = rewriter_type(r->rw, before_rows(r, by)), out = {.rank = -1};
    const int rows = t.rank - by->behind, missing = r->rows - rows;
    if (missing < 0)
        return out;
    out = (clv_type){.dtype = t.dtype, .rank = r->rows + 1};
    for (int d = 0; d < r->rows; d++)
        out.shape[d] = d < missing ? 1 : t.shape[d - missing];
    out.shape[r->rows] = trailing(&t, rows);
    return out;
}

static clv_value table_of(rewriter *rw, const reader *r, const term *by)
{
    const clv_value table = {before_rows(r, by)};
    const clv_type have = rewriter_type(rw, table.id), want = table_type(r, by);
    return clv_type_equal(&have, &want) ? table : clv_reshape(rw->graph, table, want.rank, want.shape);
}

/* ---- what the sums are ---- */

/* What all elements have in common: tables of cosines and sines, as terms have them. */
typedef struct rotation {
    bool interleaved, transposed;
    term cos, sin;
    int64_t width; /* of a row of the tables: D or D/2 */
} rotation;

/* The rotation whose first element is this sum. */
static bool first_fits(rotation *out, const reader *r, const sum *s)
{
    if (s->n != TERMS || !s->terms[0].table || !s->terms[1].table)
        return false;
    const bool in_order = s->terms[0].at == 0;
    const term *own = &s->terms[!in_order], *other = &s->terms[in_order];
    const clv_type cos = table_type(r, own), sin = table_type(r, other);
    if (cos.rank < 0 || !clv_type_equal(&cos, &sin))
        return false;
    *out = (rotation){.interleaved = r->dim > 2 && other->at == 1,
                      .transposed = other->sign == 1,
                      .cos = *own,
                      .sin = *other,
                      .width = cos.shape[r->rows]};
    return out->width == r->dim || 2 * out->width == r->dim;
}

static bool same_term(const reader *r, const term *a, const term *b)
{
    return a->behind == b->behind && rewriter_identical(r->rw, a->table, b->table);
}

/* Whether element e of the root is that of the rotation. */
static bool fits(const reader *r, const rotation *n, const sum *s, int64_t e)
{
    const int64_t half = r->dim / 2, pair = n->interleaved ? e / 2 : e % half;
    const bool second = n->interleaved ? e % 2 : e >= half, in_order = s->terms[0].at == e;
    const int64_t partner = n->interleaved ? e ^ 1 : second ? e - half : e + half;
    const term *own = &s->terms[!in_order], *other = &s->terms[in_order];
    return s->n == TERMS && own->at == e && other->at == partner && own->sign == 1 &&
           other->sign == (second != n->transposed ? 1 : -1) && own->table_at == (n->width == half ? pair : e) &&
           other->table_at == (n->width == half ? pair
                               : n->transposed  ? partner
                                                : e) &&
           same_term(r, own, &n->cos) && same_term(r, other, &n->sin);
}

static bool read_rotation(rotation *out, reader *r, int root, rewrite *parts)
{
    sum s;
    for (int64_t e = 0; e < r->dim; e++) {
        r->parts = e < 1 ? parts : NULL;
        r->steps = 0;
        if (!read_sum(&s, r, root, e, 0) || (e == 0 && !first_fits(out, r, &s)) || !fits(r, out, &s, e))
            return false;
    }
    return true;
}

/* ---- x ---- */

/* Values that the root is made of and that have as many elements a row, the nearest first. */
static int find_candidates(const reader *r, int root, int *out)
{
    int seen[4 * MOST_CANDIDATES] = {rewriter_at(r->rw, root)}, n_seen = 1, n = 0;
    for (int i = 0; i < n_seen; i++) {
        const clv_op *op = rewriter_op(r->rw, seen[i]);
        const bool is_read = rewriter_is(op, &clv_op_combine) || rewriter_is(op, &clv_op_map) ||
                             rewriter_is(op, &clv_op_cast) || moves(op);
        for (int k = 0; is_read && k < op->n_in; k++) {
            const int in = rewriter_at(r->rw, op->in[k]);
            const clv_type t = rewriter_type(r->rw, in);
            bool known = !has_rows(r, &t);
            for (int j = 0; j < n_seen && !known; j++)
                known = seen[j] == in;
            if (known || n_seen == 4 * MOST_CANDIDATES)
                continue;
            seen[n_seen++] = in;
            if (trailing(&t, r->rows) == r->dim && t.dtype == r->root.dtype && n < MOST_CANDIDATES)
                out[n++] = in;
        }
    }
    return n;
}

static bool build(rewriter *rw, const reader *r, const rotation *n, const rewrite *parts, const clv_op *op)
{
    rewrite *to = rewriter_begin(rw, "rope", op);
    if (!to)
        return false;
    to->gradient = n->transposed;
    memcpy(to->parts, parts->parts, sizeof to->parts);
    to->n_parts = parts->n_parts;
    int64_t shape[CLV_MAX_RANK];
    memcpy(shape, r->root.shape, sizeof shape);
    shape[r->rows] = r->dim;
    clv_value x = {r->x};
    const clv_type have = rewriter_type(rw, r->x);
    if (have.rank != r->rows + 1)
        x = clv_reshape(rw->graph, x, r->rows + 1, shape);
    x = clv_rotate_as(rw->graph, x, table_of(rw, r, &n->cos), table_of(rw, r, &n->sin), n->interleaved, n->transposed);
    if (r->root.rank != r->rows + 1)
        x = clv_reshape(rw->graph, x, r->root.rank, r->root.shape);
    rewriter_replace(rw, to, op->out[0], x);
    return true;
}

static bool find_behind(rewriter *rw, const clv_op *op, int rows)
{
    reader r = {.rw = rw, .root = rewriter_type(rw, op->out[0]), .rows = rows};
    int candidates[MOST_CANDIDATES];
    r.dim = trailing(&r.root, rows);
    if (r.dim < 2 || r.dim % 2 != 0 || r.dim > CLV_ROPE_MAX_ROTARY)
        return false;
    const int n = find_candidates(&r, op->out[0], candidates);
    for (int i = 0; i < n; i++) {
        rewrite parts = {0};
        rotation found;
        r.x = candidates[i];
        if (read_rotation(&found, &r, op->out[0], &parts))
            return build(rw, &r, &found, &parts, op);
    }
    return false;
}

bool find_rope(rewriter *rw, const clv_op *op)
{
    const int64_t kind = rewriter_is(op, &clv_op_combine) ? rewriter_int(op, "op", 0) : -1;
    const bool adds = rewriter_is(op, &clv_op_combine) && (kind == CLV_BINARY_ADD || kind == CLV_BINARY_SUB);
    const clv_type t = rewriter_type(rw, op->out[0]);
    if ((!adds && !rewriter_is(op, &clv_op_concat)) || t.rank < 2 || !clv_dtype_is_float(t.dtype))
        return false;
    return (t.shape[t.rank - 1] == 2 && find_behind(rw, op, t.rank - 2)) || find_behind(rw, op, t.rank - 1);
}
