/* activation.c - activations of one tensor and their gradients, as terms. */
#include "interop/patterns/term.h"

/* A letter and what it is made as. */
typedef struct definition {
    char letter;
    const char *term;
} definition;

typedef struct activation {
    const char *name, *term;
    definition where[4];
    clv_unary_kind kind;
    bool gradient; /* of d, in place of x */
} activation;

#define ROOT_HALF      "0.7071067811865476"
#define ROOT_2_OVER_PI "0.7978845608028654"
#define TANH           "tanh(scale(add(x, scale(mul(mul(x, x), x), 0.044715)), " ROOT_2_OVER_PI "))"

/* Gradients are JAX's: what its derivatives of these functions are made of. */
static const activation activations[] = {
    {"sigmoid", "div(1, add(1, exp(neg(x))))", {{0}}, CLV_SIGMOID, false},
    {"silu", "mul(x, sigmoid(x))", {{0}}, CLV_SILU, false},
    {"silu", "add(mul(d, y), mul(mul(x, d), mul(y, sub(1, y))))", {{'y', "sigmoid(x)"}}, CLV_SILU, true},
    {"gelu", "mul(x, scale(add(1, " TANH "), 0.5))", {{0}}, CLV_GELU_TANH, false},
    {"gelu",
     "add(add(mul(d, scale(add(1, u), 0.5)), k), mul(scale(k, 0.044715), scale(mul(x, x), 3)))",
     {{'k', "scale(add(w, mul(w, u)), " ROOT_2_OVER_PI ")"},
      {'w', "mul(scale(mul(x, d), 0.5), sub(1, u))"},
      {'u', TANH}},
     CLV_GELU_TANH,
     true},
    {"gelu", "mul(scale(x, 0.5), erfc(scale(neg(x), " ROOT_HALF ")))", {{0}}, CLV_GELU, false},
    {"gelu",
     "add(neg(scale(mul(scale(mul(scale(x, 0.5), d), -1.1283791670955126), exp(neg(mul(w, w)))), " ROOT_HALF
     ")), scale(mul(d, erfc(w)), 0.5))",
     {{'w', "scale(neg(x), " ROOT_HALF ")"}},
     CLV_GELU,
     true},
};

static bool matches(term_match *m, const rewriter *rw, const activation *a, int root)
{
    *m = (term_match){0};
    if (!term_matches(m, rw, root, a->term))
        return false;
    for (const definition *w = a->where; w->letter; w++) {
        int value = m->letter[(int)w->letter];
        if (!term_matches(m, rw, value, w->term))
            return false;
        if (m->n_parts < REWRITER_PARTS)
            m->parts[m->n_parts++] = value;
    }
    return true;
}

/* The gradient that the library has for the function, of a function that is made for it. */
static clv_value gradient_of(clv_graph *graph, clv_unary_kind kind, clv_value x, clv_value d)
{
    clv_value d_in[CLV_MAX_IN] = {0}, y = clv_unary(graph, kind, x);
    if (clv_valid(y))
        clv_op_map.gradient(graph, &graph->ops[graph->values[y.id].op], &d, d_in);
    return d_in[0];
}

bool find_activation(rewriter *rw, const clv_op *op)
{
    term_match m;
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
        const activation *a = &activations[i];
        int root = op->out[0];
        if (!clv_dtype_is_float(rewriter_type(rw, root).dtype) || !matches(&m, rw, a, root))
            continue;
        clv_value x = {m.letter['x']}, d = {m.letter['d']};
        rewrite *to = rewriter_begin(rw, a->name, op);
        if (!to)
            return false;
        to->gradient = a->gradient;
        term_add_parts(to, &m);
        rewriter_replace(rw, to, root,
                         a->gradient ? gradient_of(rw->graph, a->kind, x, d) : clv_unary(rw->graph, a->kind, x));
        return true;
    }
    return false;
}
