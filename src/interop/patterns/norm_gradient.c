/* norm_gradient.c - gradients of norms, as JAX takes them: the terms of a sum, to which those of a residual stream may
 * belong.
 *
 *   d_x = r g + 2 y c (layer: - mean(r g + 2 y c)), c = -1/2M sum(y g) r^3, g = d G;   d_gain = sum over rows of d y r
 *
 * r^3 is written r / v with v = 1 / r^2. The sum is taken apart, its terms are found, and the others are added to the
 * library's d_x.
 */
#include "interop/patterns/term.h"

#include <math.h>

enum { MOST_TERMS = 16, GRADIENT_TERMS = 3 };

#define CUBE     "scale(div(r, v), -0.5)"
#define C_BEFORE "scale(mul(sum(mul(y, mul(d, G))), " CUBE "), #m)" /* the gain is applied first ... */
#define C_AFTER  "scale(mul(sum(mul(mul(y, d), G)), " CUBE "), #m)" /* ... or last */
#define FLAX_Z   "mul(mul(sum(mul(mul(y, d), G)), " CUBE "), t)"

/* Terms of d_x; a: the first, b: the second. The last of a layer norm is one value a row. t: the gradient of a maximum
 * with 0. */
static const struct {
    bool layer;
    const char *terms[GRADIENT_TERMS], *row;
} forms[] = {
    {false, {"mul(mul(d, G), r)", "mul(y, " C_BEFORE ")", "mul(y, " C_BEFORE ")"}, NULL},
    {false, {"mul(mul(d, G), r)", "mul(scale(y, 2), " C_BEFORE ")", NULL}, NULL},
    {false, {"mul(d, mul(r, G))", "mul(y, " C_AFTER ")", "mul(y, " C_AFTER ")"}, NULL},
    {false, {"mul(d, mul(r, G))", "mul(scale(y, 2), " C_AFTER ")", NULL}, NULL},
    {true, {"mul(mul(d, G), r)", "mul(scale(y, 2), " C_BEFORE ")", NULL}, "scale(add(sum(neg(a)), sum(neg(b))), #m)"},
    {true, {"mul(d, mul(r, G))", "mul(scale(y, 2), " C_AFTER ")", NULL}, "scale(add(sum(neg(a)), sum(neg(b))), #m)"},
    {true,
     {"mul(d, mul(r, G))", "mul(scale(x, 2), scale(" FLAX_Z ", #m))", NULL},
     "scale(add(sum(neg(a)), mul(neg(" FLAX_Z "), scale(mean(x), 2))), #m)"},
};

/* The terms of a sum. */
typedef struct sum {
    int n, terms[MOST_TERMS];
    int n_inner, inner[MOST_TERMS]; /* sums inside */
} sum;

static bool is_sum(const clv_op *op)
{
    return rewriter_is(op, &clv_op_combine) && rewriter_int(op, "op", 0) == CLV_BINARY_ADD;
}

static void take_apart(const rewriter *rw, sum *s, int value, const clv_type *type, bool root)
{
    const clv_op *op = rewriter_op(rw, value);
    clv_type have = rewriter_type(rw, value);
    bool apart = is_sum(op) && clv_type_equal(&have, type) && (root || rewriter_reader(rw, value)) &&
                 s->n + 2 <= MOST_TERMS && s->n_inner < MOST_TERMS;
    if (!apart) {
        if (s->n < MOST_TERMS)
            s->terms[s->n] = value;
        s->n++;
        return;
    }
    if (!root)
        s->inner[s->n_inner++] = rewriter_at(rw, value);
    take_apart(rw, s, op->in[0], type, false);
    take_apart(rw, s, op->in[1], type, false);
}

/* What a match of a form has found. */
typedef struct found {
    term_match m;
    bool used[MOST_TERMS];
} found;

static bool is_flax_clamp(const rewriter *rw, int t)
{
    const clv_op *op = rewriter_op(rw, t);
    if (!rewriter_is(op, &clv_op_combine) || rewriter_int(op, "op", 0) != CLV_BINARY_DIV)
        return false;
    const clv_op *chosen = rewriter_op(rw, op->in[0]), *ties = rewriter_op(rw, op->in[1]);
    if (!rewriter_is(chosen, &clv_op_where) || !rewriter_is(ties, &clv_op_where))
        return false;
    const clv_op *equal = rewriter_op(rw, chosen->in[0]), *zero = rewriter_op(rw, ties->in[0]);
    double one, none, two, single, nothing;
    return rewriter_is(equal, &clv_op_pointwise) && rewriter_int(equal, "kind", 0) == CLV_EQUAL &&
           rewriter_is(zero, &clv_op_pointwise) && rewriter_int(zero, "kind", 0) == CLV_EQUAL &&
           rewriter_number(rw, chosen->in[1], &one) && rewriter_number(rw, chosen->in[2], &none) &&
           rewriter_number(rw, ties->in[1], &two) && rewriter_number(rw, ties->in[2], &single) &&
           rewriter_number(rw, zero->in[0], &nothing) && one == 1 && none == 0 && two == 2 && single == 1 &&
           nothing == 0 && rewriter_same(rw, equal->in[1], zero->in[1]);
}

static bool take_term(const rewriter *rw, found *f, const sum *s, const char *term, char letter)
{
    for (int i = 0; i < s->n; i++) {
        term_match before = f->m;
        if (!f->used[i] && term_matches(&f->m, rw, s->terms[i], term)) {
            f->used[i] = true;
            f->m.letter[(int)letter] = rewriter_at(rw, s->terms[i]);
            if (f->m.n_parts < REWRITER_PARTS)
                f->m.parts[f->m.n_parts++] = rewriter_at(rw, s->terms[i]);
            return true;
        }
        f->m = before;
    }
    return false;
}

static bool take_row(const rewriter *rw, found *f, const sum *s, int root, const char *term)
{
    for (int i = 0; i < s->n; i++) {
        term_match before = f->m;
        if (!f->used[i] && term_matches_row(&f->m, rw, root, s->terms[i], term))
            return f->used[i] = true;
        f->m = before;
    }
    return false;
}

static bool is_form(const rewriter *rw, found *f, const sum *s, int root, const rewriter_norm *norm, size_t form)
{
    clv_type type = rewriter_type(rw, root);
    *f = (found){0};
    f->m.letter['x'] = norm->x;
    f->m.letter['y'] = norm->y;
    f->m.letter['r'] = norm->r;
    f->m.letter['G'] = norm->gain;
    for (int t = 0; t < GRADIENT_TERMS && forms[form].terms[t]; t++)
        if (!take_term(rw, f, s, forms[form].terms[t], (char)(t == 0 ? 'a' : 'b')))
            return false;
    if (forms[form].row && !take_row(rw, f, s, root, forms[form].row))
        return false;
    const clv_op *factor = rewriter_op(rw, norm->r);
    bool cube = factor && f->m.letter['v'] && rewriter_same(rw, factor->in[0], f->m.letter['v']);
    bool clamp = !f->m.letter['t'] || is_flax_clamp(rw, f->m.letter['t']);
    return cube && clamp && fabs(f->m.number['m'] * (double)type.shape[type.rank - 1] - 1) < 1e-6;
}

/* The sum over rows that is the gradient of the gain; 0: none. *product: what it sums. */
static int gain_sum(const rewriter *rw, const found *f, int value, int *product)
{
    term_match m = {0};
    m.letter['y'] = f->m.letter['y'];
    m.letter['r'] = f->m.letter['r'];
    m.letter['d'] = f->m.letter['d'];
    const clv_op *op = rewriter_reader(rw, value);
    if (!rewriter_is(op, &clv_op_reduce) || rewriter_int(op, "kind", 0) != CLV_SUM ||
        !(term_matches(&m, rw, value, "mul(mul(y, r), d)") || term_matches(&m, rw, value, "mul(r, mul(y, d))")))
        return 0;
    clv_type t = rewriter_type(rw, value);
    for (int d = 0; d < t.rank; d++)
        if (rewriter_int(op, "reduced", d) != (d < t.rank - 1))
            return 0;
    *product = value;
    return op->out[0];
}

static int find_gain(const rewriter *rw, const found *f, int *product)
{
    const clv_op *first[16], *second[16];
    int n = rewriter_readers(rw, f->m.letter['d'], first, 16);
    for (int i = 0; i < n && i < 16; i++) {
        int root = gain_sum(rw, f, first[i]->out[0], product), m = rewriter_readers(rw, first[i]->out[0], second, 16);
        for (int k = 0; !root && k < m && k < 16; k++)
            root = gain_sum(rw, f, second[k]->out[0], product);
        if (root)
            return root;
    }
    return 0;
}

/* d_x and d_gain, of the norm without its bias, whose gradient is a sum of d as before. */
static void build(rewriter *rw, const rewriter_norm *norm, clv_value d, clv_value *dx, clv_value *d_gain)
{
    clv_graph *g = rw->graph;
    const clv_op *forward = &g->ops[g->values[norm->made.id].op];
    clv_value in[] = {{forward->in[0]}, {forward->in[1]}, {forward->in[2]}}, d_in[CLV_MAX_IN] = {0};
    clv_value without = clv_graph_emit_one(g, &clv_op_normalize, forward->attrs, in, 3);
    if (clv_valid(without))
        clv_op_normalize.gradient(g, &g->ops[g->values[without.id].op], &d, d_in);
    *dx = d_in[0];
    *d_gain = d_in[2];
}

static void replace(rewriter *rw, const clv_op *op, const sum *s, const found *f, const rewriter_norm *norm)
{
    clv_graph *g = rw->graph;
    clv_value dx, d_gain, d = {f->m.letter['d']};
    int product = 0, root = op->out[0], gain = find_gain(rw, f, &product);
    const char *name = norm->layer ? "layer norm" : "RMS norm";
    rewrite *to = rewriter_begin(rw, name, op);
    if (!to)
        return;
    build(rw, norm, d, &dx, &d_gain);
    if (gain) { /* on its own: other terms of the sum may come after it */
        clv_type want = rewriter_type(rw, gain), have = clv_graph_type(g, d_gain);
        to->gradient = true;
        rewriter_part(to, product);
        rewriter_replace(rw, to, gain, clv_type_equal(&want, &have) ? d_gain : CLV_NONE);
        to = rewriter_begin(rw, "", op);
    }
    if (!to)
        return;
    to->gradient = true;
    term_add_parts(to, &f->m);
    for (int i = 0; i < s->n_inner; i++)
        rewriter_part(to, s->inner[i]);
    clv_value all = CLV_NONE;
    for (int i = 0; i < s->n; i++)
        if (!f->used[i])
            all = clv_valid(all) ? clv_add(g, all, (clv_value){s->terms[i]}) : (clv_value){s->terms[i]};
    rewriter_replace(rw, to, root, clv_valid(all) ? clv_add(g, all, dx) : dx);
}

bool find_norm_gradient(rewriter *rw, const clv_op *op)
{
    sum s = {0};
    found f;
    if (!is_sum(op) || rw->n_norms == 0)
        return false;
    int root = op->out[0];
    clv_type type = rewriter_type(rw, root);
    const clv_op *reader = rewriter_reader(rw, root);
    if (is_sum(reader)) {
        clv_type outer = rewriter_type(rw, reader->out[0]);
        if (clv_type_equal(&outer, &type))
            return false; /* a term of a larger sum */
    }
    take_apart(rw, &s, root, &type, true);
    for (int i = rw->n_norms - 1; s.n <= MOST_TERMS && i >= 0; i--) {
        clv_type x = rewriter_type(rw, rw->norms[i].x);
        for (size_t k = 0; clv_type_equal(&x, &type) && k < sizeof forms / sizeof *forms; k++)
            if (forms[k].layer == rw->norms[i].layer && is_form(rw, &f, &s, root, &rw->norms[i], k)) {
                replace(rw, op, &s, &f, &rw->norms[i]);
                return true;
            }
    }
    return false;
}
