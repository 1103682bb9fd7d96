/* norm.c - RMSNorm and LayerNorm over the last dimension, in the forms of JAX programs and of flax. */
#include "interop/patterns/term.h"

#include <math.h>

#define CENTRED "sub(x, mean(x))"

#define VARIANCE      "mean(mul(" CENTRED ", " CENTRED "))"
#define FLAX_VARIANCE "max(0, sub(mean(mul(x, x)), mul(mean(x), mean(x))))"

/* What a norm is made of; G: gain, B: bias, #e: eps. around: the same around the rows' factor r, for the gradient; y:
 * x, of a layer norm centred. */
static const struct {
    const char *name, *term, *around;
    bool layer;
} norms[] = {
    {"layer norm", "add(mul(mul(" CENTRED ", rsqrt(add(" VARIANCE ", #e))), G), B)", "add(mul(mul(y, r), G), B)", true},
    {"layer norm", "add(mul(" CENTRED ", mul(rsqrt(add(" FLAX_VARIANCE ", #e)), G)), B)", "add(mul(y, mul(r, G)), B)",
     true},
    {"layer norm", "add(mul(" CENTRED ", mul(rsqrt(add(" VARIANCE ", #e)), G)), B)", "add(mul(y, mul(r, G)), B)", true},
    {"layer norm", "add(mul(div(" CENTRED ", sqrt(add(" VARIANCE ", #e))), G), B)", NULL, true},
    {"RMS norm", "mul(mul(x, rsqrt(add(mean(mul(x, x)), #e))), G)", "mul(mul(y, r), G)", false},
    {"RMS norm", "mul(x, mul(rsqrt(add(mean(mul(x, x)), #e)), G))", "mul(y, mul(r, G))", false},
    {"RMS norm", "mul(div(x, sqrt(add(mean(mul(x, x)), #e))), G)", NULL, false},
};

/* Notes a norm for its gradient. */
static void note(rewriter *rw, const term_match *m, int root, const char *around, clv_value made, bool layer)
{
    term_match r = {0};
    if (!clv_valid(made) || !term_matches(&r, rw, root, around) ||
        clv_arena_grow(rw->arena, &rw->norms, &rw->norms_room, rw->n_norms, sizeof *rw->norms) != 0)
        return;
    rw->norms[rw->n_norms++] = (rewriter_norm){
        .x = m->letter['x'], .y = r.letter['y'], .r = r.letter['r'], .gain = m->letter['G'], made, layer};
}

static bool find(rewriter *rw, const clv_op *op, bool layer)
{
    if (!rewriter_is(op, &clv_op_combine))
        return false;
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        term_match m = {0};
        int root = op->out[0];
        if (norms[i].layer != layer || !term_matches(&m, rw, root, norms[i].term) || !(m.number['e'] > 0) ||
            !isfinite(m.number['e']))
            continue;
        rewrite *to = rewriter_begin(rw, norms[i].name, op);
        if (!to)
            return false;
        term_add_parts(to, &m);
        clv_value x = {m.letter['x']}, gain = term_column(rw, &m, 'G');
        clv_value made = layer ? clv_layer_norm(rw->graph, x, gain, term_column(rw, &m, 'B'), m.number['e'])
                               : clv_rms_norm(rw->graph, x, gain, m.number['e']);
        if (norms[i].around)
            note(rw, &m, root, norms[i].around, made, layer);
        rewriter_replace(rw, to, root, made);
        return true;
    }
    return false;
}

bool find_layer_norm(rewriter *rw, const clv_op *op)
{
    return find(rw, op, true);
}

/* After layer norms: x may be centred. */
bool find_rms_norm(rewriter *rw, const clv_op *op)
{
    return find(rw, op, false);
}
