/* softmax.c - the softmax over the last dimension, and its gradient as JAX takes it: from exp(x - max) and its sum. */
#include "interop/patterns/term.h"

#define EXP "exp(sub(x, most(x)))"

/* The softmax that was found of these exponentials; 0: none. */
static int find_forward(const rewriter *rw, int exponentials)
{
    const clv_op *readers[64];
    int n = rewriter_readers(rw, exponentials, readers, 64);
    for (int i = 0; i < n && i < 64; i++) {
        int root = readers[i]->out[0];
        if (rewriter_is(readers[i], &clv_op_combine) && rewriter_is(rewriter_op(rw, root), &clv_op_softmax))
            return root;
    }
    return 0;
}

static bool find_gradient(rewriter *rw, const clv_op *op)
{
    term_match m = {0};
    int root = op->out[0];
    if (!term_matches(&m, rw, root, "mul(add(div(d, s), neg(sum(mul(mul(d, div(1, mul(s, s))), e)))), e)") ||
        !term_matches(&m, rw, m.letter['e'], EXP))
        return false;
    const clv_op *sum = rewriter_op(rw, m.letter['s']);
    int forward = find_forward(rw, m.letter['e']);
    if (!rewriter_is(sum, &clv_op_reduce) || !forward || !rewriter_same(rw, sum->in[0], m.letter['e']))
        return false;
    clv_value in[] = {{m.letter['d']}, {forward}};
    m.n_parts = 0;
    term_match inside = {0};
    (void)term_matches(&inside, rw, root, "mul(add(div(d, s), neg(sum(mul(mul(d, div(1, mul(s, s))), e)))), e)");
    rewrite *to = rewriter_begin(rw, "softmax", op);
    if (!to)
        return false;
    to->gradient = true;
    term_add_parts(to, &inside);
    clv_value made = clv_graph_emit_one(rw->graph, &clv_op_softmax_gradient, NULL, in, 2);
    clv_type type = rewriter_type(rw, root), have = clv_graph_type(rw->graph, made);
    rewriter_replace(rw, to, root, clv_type_equal(&type, &have) ? made : CLV_NONE);
    return true;
}

bool find_softmax(rewriter *rw, const clv_op *op)
{
    term_match m = {0};
    int root = op->out[0];
    if (!rewriter_is(op, &clv_op_combine))
        return false;
    if (!term_matches(&m, rw, root, "div(" EXP ", s)"))
        return find_gradient(rw, op);
    const clv_op *sum = rewriter_op(rw, m.letter['s']);
    int e = rewriter_strip(rw, op->in[0]);
    clv_type type = rewriter_type(rw, root);
    if (!rewriter_is(sum, &clv_op_reduce) || rewriter_int(sum, "kind", 0) != CLV_SUM ||
        !rewriter_same(rw, sum->in[0], e) || !term_matches(&m, rw, root, "div(" EXP ", sum(" EXP "))"))
        return false;
    rewrite *to = rewriter_begin(rw, "softmax", op);
    if (!to)
        return false;
    term_add_parts(to, &m);
    clv_value x = {m.letter['x']};
    clv_type have = rewriter_type(rw, x.id);
    if (!clv_type_equal(&have, &type))
        x = clv_reshape(rw->graph, x, type.rank, type.shape);
    rewriter_replace(rw, to, root, clv_softmax(rw->graph, x));
    return true;
}
