/* move.c - elements that are moved and moved back: transposes of transposes, reshapes of reshapes, sums over dimensions
 * of 1, and what loops stack up. */
#include "interop/patterns/rewriter.h"

/* transpose(transpose(x)) that is x. */
static bool find_transposes(rewriter *rw, const clv_op *op)
{
    const clv_op *inner = rewriter_op(rw, op->in[0]);
    if (!rewriter_is(inner, &clv_op_transpose))
        return false;
    clv_type type = rewriter_type(rw, op->out[0]);
    for (int d = 0; d < type.rank; d++)
        if (rewriter_int(inner, "order", (int)rewriter_int(op, "order", d)) != d)
            return false;
    rewrite *to = rewriter_begin(rw, "", op);
    if (!to)
        return false;
    rewriter_replace(rw, to, op->out[0], (clv_value){inner->in[0]});
    return true;
}

/* Known starts of a dynamic_update_slice: a concatenation of numbers. */
static bool known_starts(const rewriter *rw, int starts, int64_t *out, int rank)
{
    const clv_op *op = rewriter_op(rw, starts);
    double number;
    if (!rewriter_is(op, &clv_op_concat) || op->n_in != rank)
        return false;
    for (int d = 0; d < rank; d++) {
        if (!rewriter_number(rw, op->in[d], &number))
            return false;
        out[d] = (int64_t)number;
    }
    return true;
}

/* A slice of what updates have written, as the backward pass of a loop reads what its forward pass has stacked: the
 * update itself, if it is the box; the tensor before, if it lies outside. */
static bool find_stacked(rewriter *rw, const clv_op *op)
{
    int from = rewriter_at(rw, op->in[0]), rank = rewriter_type(rw, from).rank;
    for (const clv_op *at = rewriter_op(rw, from); rewriter_is(at, &clv_op_dynamic_update_slice);
         at = rewriter_op(rw, from)) {
        clv_type box = rewriter_type(rw, at->in[1]), all = rewriter_type(rw, from);
        int64_t starts[CLV_MAX_RANK];
        bool same = true, outside = false;
        if (!known_starts(rw, at->in[2], starts, rank))
            return false;
        for (int d = 0; d < rank; d++) {
            int64_t most = all.shape[d] - box.shape[d], low = rewriter_int(op, "low", d),
                    high = rewriter_int(op, "high", d);
            int64_t start = starts[d] < 0 ? 0 : starts[d] > most ? most : starts[d];
            same = same && low == start && high == start + box.shape[d];
            outside = outside || high <= start || low >= start + box.shape[d];
        }
        if (!same && !outside)
            return false;
        if (same) {
            rewrite *to = rewriter_begin(rw, "", op);
            if (to)
                rewriter_replace(rw, to, op->out[0], (clv_value){at->in[1]});
            return to != NULL;
        }
        from = rewriter_at(rw, at->in[0]);
    }
    return false;
}

/* A reshape of a reshape, or of its own shape; a reduction of dimensions of 1 is one. */
static bool find_reshapes(rewriter *rw, const clv_op *op)
{
    int root = op->out[0], from = op->in[0];
    clv_type type = rewriter_type(rw, root);
    const clv_op *inner = rewriter_op(rw, from);
    bool again = false;
    while (rewriter_is(inner, &clv_op_reshape)) {
        from = inner->in[0];
        inner = rewriter_op(rw, from);
        again = true;
    }
    clv_type have = rewriter_type(rw, from);
    bool same = clv_type_equal(&have, &type), reduces = rewriter_is(op, &clv_op_reduce);
    if ((!again && !same && !reduces) || clv_type_elems(&have) != clv_type_elems(&type))
        return false;
    rewrite *to = rewriter_begin(rw, "", op);
    if (!to)
        return false;
    clv_value x = {from};
    rewriter_replace(rw, to, root, same ? x : clv_reshape(rw->graph, x, type.rank, type.shape));
    return true;
}

/* The only dimension in which an update is not whole; -1: several. */
static int stacked_dim(const clv_type *all, const clv_type *update)
{
    int dim = -1;
    for (int d = 0; d < all->rank; d++)
        if (all->shape[d] != update->shape[d]) {
            if (dim >= 0)
                return -1;
            dim = d;
        }
    return dim;
}

/* Whether an op is an update of the value. */
static bool is_updated(const rewriter *rw, int value)
{
    const clv_op *readers[64];
    int n = rewriter_readers(rw, value, readers, 64);
    for (int i = 0; i < n && i < 64; i++)
        if (rewriter_is(readers[i], &clv_op_dynamic_update_slice) &&
            rewriter_at(rw, readers[i]->in[0]) == rewriter_at(rw, value))
            return true;
    return n > 64;
}

enum { MOST_STACKED = 4096 };

/* What a loop has stacked up, update after update along one dimension: their concatenation. */
static bool find_stack(rewriter *rw, const clv_op *op)
{
    int root = op->out[0], n = 0, dim = -1;
    clv_type all = rewriter_type(rw, root);
    if (is_updated(rw, root))
        return false;
    clv_value *parts = NULL;
    int64_t size = 0, count = 0, filled = 0;
    for (const clv_op *at = op; rewriter_is(at, &clv_op_dynamic_update_slice); at = rewriter_op(rw, at->in[0])) {
        clv_type box = rewriter_type(rw, at->in[1]);
        int64_t starts[CLV_MAX_RANK];
        if (!parts) {
            dim = stacked_dim(&all, &box);
            size = dim >= 0 ? box.shape[dim] : 0;
            count = size > 0 && all.shape[dim] % size == 0 ? all.shape[dim] / size : 0;
            parts =
                count > 0 && count <= MOST_STACKED ? clv_arena_alloc(rw->arena, (size_t)count, sizeof *parts) : NULL;
            if (!parts)
                return false;
        }
        if (stacked_dim(&all, &box) != dim || box.shape[dim] != size ||
            !known_starts(rw, at->in[2], starts, all.rank) || starts[dim] % size != 0 || starts[dim] < 0 ||
            starts[dim] >= all.shape[dim] || n++ == MOST_STACKED)
            return false;
        clv_value *part = &parts[starts[dim] / size];
        filled += !clv_valid(*part);
        *part = clv_valid(*part) ? *part : (clv_value){at->in[1]}; /* the newest one counts */
    }
    rewrite *to = count > 0 && filled == count ? rewriter_begin(rw, "", op) : NULL;
    if (!to)
        return false;
    rewriter_replace(rw, to, root, clv_concat(rw->graph, parts, (int)count, dim));
    return true;
}

bool find_move(rewriter *rw, const clv_op *op)
{
    if (rewriter_is(op, &clv_op_dynamic_update_slice))
        return find_stack(rw, op);
    if (rewriter_is(op, &clv_op_reshape) || rewriter_is(op, &clv_op_reduce))
        return find_reshapes(rw, op);
    if (rewriter_is(op, &clv_op_transpose))
        return find_transposes(rw, op);
    return rewriter_is(op, &clv_op_slice) && find_stacked(rw, op);
}
