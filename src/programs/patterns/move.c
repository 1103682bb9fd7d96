/* move.c - elements that are moved and moved back: transposes of transposes, reshapes of reshapes, sums over dimensions of
 * 1, and slices of what loops stacked up. */
#include "programs/patterns/rewriter.h"

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
            int64_t most = all.shape[d] - box.shape[d], low = rewriter_int(op, "low", d), high = rewriter_int(op, "high", d);
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

bool find_move(rewriter *rw, const clv_op *op)
{
    if (rewriter_is(op, &clv_op_reshape) || rewriter_is(op, &clv_op_reduce))
        return find_reshapes(rw, op);
    if (rewriter_is(op, &clv_op_transpose))
        return find_transposes(rw, op);
    return rewriter_is(op, &clv_op_slice) && find_stacked(rw, op);
}
