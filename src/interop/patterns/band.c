/* band.c - masks of attention that depend on positions alone: which keys, counted from the query, a query sees.
 *
 * Positions are whole numbers that are linear in the indices of dimensions (iota, sums, differences, products with
 * numbers); a mask compares two of them, or is several masks at once.
 */
#include <math.h>
#include <string.h>

#include "interop/patterns/band.h"

enum { MOST_DEPTH = 32 };

/* at + the sum of times[d] * the index along dimension d from behind. */
typedef struct line {
    double at, times[CLV_MAX_RANK];
} line;

static bool read_line(line *out, const rewriter *rw, int value, int depth);

/* Moves the dimensions of a line, of which those of more than one element keep their order. */
static bool through_reshape(line *l, const clv_type *from, const clv_type *to)
{
    const line before = *l;
    memset(l->times, 0, sizeof l->times);
    if (!rewriter_same_but_ones(from, to))
        return false;
    for (int a = 0, b = 0; a < from->rank; a++) {
        if (from->shape[from->rank - 1 - a] == 1)
            continue;
        while (to->shape[to->rank - 1 - b] == 1)
            b++;
        l->times[b++] = before.times[a];
    }
    return true;
}

static bool through_transpose(line *l, const clv_op *op, const clv_type *from)
{
    const line before = *l;
    for (int d = 0; d < from->rank; d++)
        l->times[from->rank - 1 - d] = before.times[from->rank - 1 - rewriter_int(op, "order", d)];
    return true;
}

static bool combine(line *out, const rewriter *rw, const clv_op *op, int depth)
{
    line a, b;
    double number;
    int64_t kind = rewriter_int(op, "op", 0);
    for (int i = 0; i < 2 && kind == CLV_BINARY_MUL; i++)
        if (rewriter_number(rw, op->in[1 - i], &number) && read_line(out, rw, op->in[i], depth)) {
            out->at *= number;
            for (int d = 0; d < CLV_MAX_RANK; d++)
                out->times[d] *= number;
            return true;
        }
    if ((kind != CLV_BINARY_ADD && kind != CLV_BINARY_SUB) || !read_line(&a, rw, op->in[0], depth) ||
        !read_line(&b, rw, op->in[1], depth))
        return false;
    const int sign = kind == CLV_BINARY_ADD ? 1 : -1;
    out->at = a.at + sign * b.at;
    for (int d = 0; d < CLV_MAX_RANK; d++)
        out->times[d] = a.times[d] + sign * b.times[d];
    return true;
}

static bool read_line(line *out, const rewriter *rw, int value, int depth)
{
    const clv_op *op = rewriter_op(rw, value);
    *out = (line){0};
    if (rewriter_number(rw, value, &out->at))
        return true;
    if (!op || depth == MOST_DEPTH || clv_dtype_is_float(rewriter_type(rw, value).dtype))
        return false;
    const clv_type to = rewriter_type(rw, value);
    if (rewriter_is(op, &clv_op_iota)) {
        out->times[0] = 1;
        return op->n_in == 0 || op->in[0] == 0;
    }
    if (rewriter_is(op, &clv_op_combine))
        return combine(out, rw, op, depth + 1);
    if (op->n_in == 0 || !read_line(out, rw, op->in[0], depth + 1))
        return false;
    const clv_type from = rewriter_type(rw, op->in[0]);
    return rewriter_is(op, &clv_op_cast) || rewriter_is(op, &clv_op_broadcast) ||
           (rewriter_is(op, &clv_op_reshape) && through_reshape(out, &from, &to)) ||
           (rewriter_is(op, &clv_op_transpose) && through_transpose(out, op, &from));
}

/* a >= b + least as bounds of query - key. */
static bool bound(band *out, const line *a, const line *b, double least, int queries, int keys)
{
    const double at = a->at - b->at - least, times = a->times[queries] - b->times[queries];
    for (int d = 0; d < CLV_MAX_RANK; d++)
        if (a->times[d] - b->times[d] != (d == queries ? times : d == keys ? -times : 0))
            return false;
    if (times == 1) /* query - key + at >= 0 */
        out->low = fmax(out->low, -at);
    else if (times == -1)
        out->high = fmin(out->high, at);
    return times == 1 || times == -1;
}

static bool read_mask(band *out, const rewriter *rw, int value, int queries, int keys, int depth)
{
    const clv_op *op = rewriter_op(rw, value);
    double yes, no;
    line a, b;
    if (depth == MOST_DEPTH || !op)
        return false;
    if (rewriter_number(rw, value, &yes))
        return yes == 1;
    const clv_type to = rewriter_type(rw, value);
    if (rewriter_is(op, &clv_op_broadcast))
        return read_mask(out, rw, op->in[0], queries, keys, depth + 1);
    if (rewriter_is(op, &clv_op_reshape)) { /* of ones alone, before the dimensions of queries and keys */
        const clv_type from = rewriter_type(rw, op->in[0]);
        for (int d = 0; d < CLV_MAX_RANK; d++) {
            int64_t before = d < from.rank ? from.shape[from.rank - 1 - d] : 1,
                    behind = d < to.rank ? to.shape[to.rank - 1 - d] : 1;
            if (before != behind)
                return false;
        }
        return read_mask(out, rw, op->in[0], queries, keys, depth + 1);
    }
    if (rewriter_is(op, &clv_op_where) && rewriter_number(rw, op->in[1], &yes) && rewriter_number(rw, op->in[2], &no))
        return yes == 1 && no == 0 && read_mask(out, rw, op->in[0], queries, keys, depth + 1);
    if (!rewriter_is(op, &clv_op_pointwise))
        return false;
    switch (rewriter_int(op, "kind", 0)) {
    case CLV_AND:
        return read_mask(out, rw, op->in[0], queries, keys, depth + 1) &&
               read_mask(out, rw, op->in[1], queries, keys, depth + 1);
    case CLV_GREATER_EQUAL:
    case CLV_GREATER:
        return read_line(&a, rw, op->in[0], 0) && read_line(&b, rw, op->in[1], 0) &&
               bound(out, &a, &b, rewriter_int(op, "kind", 0) == CLV_GREATER, queries, keys);
    case CLV_LESS_EQUAL:
    case CLV_LESS:
        return read_line(&a, rw, op->in[0], 0) && read_line(&b, rw, op->in[1], 0) &&
               bound(out, &b, &a, rewriter_int(op, "kind", 0) == CLV_LESS, queries, keys);
    default:
        return false;
    }
}

bool band_read(band *out, const rewriter *rw, int condition, int queries, int keys)
{
    *out = (band){-INFINITY, INFINITY};
    return read_mask(out, rw, condition, queries, keys, 0);
}
