/* cross_entropy.c - the loss that take_along_axis(log_softmax(logits), labels) is the negative of, and its gradient.
 *
 * Logits that are split over the vocabulary are then not gathered. A gather moves labels outside the vocabulary into
 * it, and the scatter of its gradient leaves them out; so do the fused ops.
 */
#include "interop/patterns/term.h"

#define CENTRED "sub(x, most(x))"
#define EXP     "exp(" CENTRED ")"

/* Whether a gather or scatter takes one element a row: x[..., V] at indices [..., 1]. */
static bool takes_labels(const rewriter *rw, const clv_op *op, int x, int indices)
{
    clv_type t = rewriter_type(rw, x), i = rewriter_type(rw, indices);
    int last = t.rank - 1;
    if (last < 1 || i.rank < 1 || i.shape[i.rank - 1] != 1 || rewriter_int(op, "index_dim", 0) != i.rank - 1 ||
        rewriter_int(op, "n_starts", 0) != 1 || rewriter_int(op, "start", 0) != last ||
        !rewriter_int(op, "dropped", last) || rewriter_int(op, "batch", last))
        return false;
    for (int d = 0; d < last; d++)
        if (rewriter_int(op, "batch", d) != 1 + d || rewriter_int(op, "dropped", d) || i.shape[d] != t.shape[d])
            return false;
    for (int d = 0; d < CLV_MAX_RANK; d++)
        if (rewriter_int(op, "window", d))
            return false;
    return clv_type_elems(&i) * t.shape[last] == clv_type_elems(&t) && clv_dtype_is_float(t.dtype);
}

static clv_value number(clv_graph *g, clv_dtype dtype, double value)
{
    return clv_fill(g, dtype, 0, NULL, value);
}

/* Indices as labels of the rows of x, moved into the vocabulary. */
static clv_value labels_of(rewriter *rw, int x, int indices)
{
    clv_graph *g = rw->graph;
    clv_type t = rewriter_type(rw, x);
    clv_dtype dtype = rewriter_type(rw, indices).dtype;
    clv_value labels = clv_reshape(g, (clv_value){indices}, t.rank - 1, t.shape);
    labels = clv_binary(g, CLV_MAXIMUM, labels, number(g, dtype, 0));
    return clv_binary(g, CLV_MINIMUM, labels, number(g, dtype, (double)(t.shape[t.rank - 1] - 1)));
}

enum { NONE_IGNORED = -1 }; /* a label that none is */

/* The loss of these logits and indices, as it was found before or made now. */
static clv_value loss_of(rewriter *rw, int x, int indices)
{
    for (int i = 0; i < rw->n_losses; i++)
        if (rewriter_same(rw, rw->losses[i].logits, x) && rewriter_same(rw, rw->losses[i].indices, indices))
            return rw->losses[i].loss;
    clv_value loss = clv_cross_entropy(rw->graph, (clv_value){x}, labels_of(rw, x, indices), NONE_IGNORED);
    if (clv_valid(loss) &&
        clv_arena_grow(rw->arena, &rw->losses, &rw->losses_room, rw->n_losses, sizeof *rw->losses) == 0)
        rw->losses[rw->n_losses++] = (rewriter_loss){x, indices, loss};
    return loss;
}

static bool find_loss(rewriter *rw, const clv_op *op)
{
    term_match m = {0};
    int root = op->out[0], indices = op->in[1], from = rewriter_at(rw, op->in[0]);
    clv_type type = rewriter_type(rw, root);
    if (!takes_labels(rw, op, op->in[0], indices) || !term_matches(&m, rw, from, "sub(" CENTRED ", log(sum(" EXP ")))"))
        return false;
    rewrite *to = rewriter_begin(rw, "cross-entropy", op);
    if (!to)
        return false;
    rewriter_part(to, from);
    term_add_parts(to, &m);
    clv_value loss = loss_of(rw, m.letter['x'], indices);
    if (clv_graph_type(rw->graph, loss).dtype != type.dtype)
        return false;
    loss = clv_reshape(rw->graph, clv_unary(rw->graph, CLV_NEG, loss), type.rank, type.shape);
    rewriter_replace(rw, to, root, loss);
    return true;
}

/* The cotangent of the loss: updates, negated, of labels inside the vocabulary. */
static clv_value cotangent(rewriter *rw, int x, int indices, int updates)
{
    clv_graph *g = rw->graph;
    clv_type t = rewriter_type(rw, x);
    clv_dtype dtype = rewriter_type(rw, indices).dtype;
    clv_value labels = clv_reshape(g, (clv_value){indices}, t.rank - 1, t.shape);
    clv_value low = clv_pointwise(g, CLV_GREATER_EQUAL, labels, number(g, dtype, 0));
    clv_value high = clv_pointwise(g, CLV_LESS, labels, number(g, dtype, (double)t.shape[t.rank - 1]));
    clv_value d = clv_unary(g, CLV_NEG, clv_reshape(g, (clv_value){updates}, t.rank - 1, t.shape));
    return clv_where(g, clv_pointwise(g, CLV_AND, low, high), d, number(g, t.dtype, 0));
}

static clv_value gradient_of(rewriter *rw, int x, int indices, int updates)
{
    clv_graph *g = rw->graph;
    clv_value loss = loss_of(rw, x, indices), d = cotangent(rw, x, indices, updates), d_in[CLV_MAX_IN] = {0};
    if (!clv_valid(loss) || !clv_valid(d))
        return CLV_NONE;
    int op = g->values[loss.id].op, sums = g->values[g->ops[op].in[0]].op;
    clv_op_xent_loss.gradient(g, &g->ops[op], &d, d_in);
    d = d_in[0];
    if (!clv_valid(d))
        return CLV_NONE;
    clv_op_xent_sums.gradient(g, &g->ops[sums], &d, d_in);
    return d_in[0];
}

static bool find_gradient(rewriter *rw, const clv_op *op)
{
    static const char *const term = "add(y, mul(div(sum(neg(y)), s), e))";
    term_match m = {0}, inside = {0};
    int root = op->out[0];
    double zero = 1;
    clv_type type = rewriter_type(rw, root);
    if (!term_matches(&m, rw, root, term) || !term_matches(&m, rw, m.letter['e'], EXP))
        return false;
    const clv_op *sum = rewriter_op(rw, m.letter['s']), *scatter = rewriter_op(rw, m.letter['y']);
    if (!rewriter_is(sum, &clv_op_reduce) || !rewriter_same(rw, sum->in[0], m.letter['e']) ||
        rewriter_int(sum, "kind", 0) != CLV_SUM || !rewriter_is(scatter, &clv_op_scatter) ||
        rewriter_int(scatter, "kind", 0) != CLV_SCATTER_ADD || !rewriter_number(rw, scatter->in[0], &zero) ||
        zero != 0 || !takes_labels(rw, scatter, scatter->in[0], scatter->in[1]) ||
        rewriter_type(rw, m.letter['x']).rank != type.rank)
        return false;
    int indices = scatter->in[1], updates = scatter->in[2];
    (void)term_matches(&inside, rw, root, term);
    rewrite *to = rewriter_begin(rw, "cross-entropy", op);
    if (!to)
        return false;
    to->gradient = true;
    rewriter_part(to, m.letter['y']);
    term_add_parts(to, &inside);
    clv_value made = gradient_of(rw, m.letter['x'], indices, updates);
    clv_type have = clv_graph_type(rw->graph, made);
    rewriter_replace(rw, to, root, clv_type_equal(&have, &type) ? made : CLV_NONE);
    return true;
}

bool find_cross_entropy(rewriter *rw, const clv_op *op)
{
    if (rewriter_is(op, &clv_op_gather))
        return find_loss(rw, op);
    return rewriter_is(op, &clv_op_combine) && find_gradient(rw, op);
}
