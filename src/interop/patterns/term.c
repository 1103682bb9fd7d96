/* term.c - matches terms: parts of an op, written as a formula (term.h). */
#include "interop/patterns/term.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/c_locale.h"

/* A function of one or two operands. kind: of its op. */
typedef struct function {
    const char *name;
    const clv_op_def *def;
    const char *attr;
    int kind;
    bool swaps; /* operands may stand in either order */
} function;

static const function functions[] = {
    {"add", &clv_op_combine, "op", CLV_BINARY_ADD, true},     {"sub", &clv_op_combine, "op", CLV_BINARY_SUB, false},
    {"mul", &clv_op_combine, "op", CLV_BINARY_MUL, true},     {"div", &clv_op_combine, "op", CLV_BINARY_DIV, false},
    {"max", &clv_op_combine, "op", CLV_BINARY_MAX, true},     {"exp", &clv_op_map, "op", CLV_UNARY_EXP, false},
    {"log", &clv_op_map, "op", CLV_UNARY_LOG, false},         {"tanh", &clv_op_map, "op", CLV_UNARY_TANH, false},
    {"sigmoid", &clv_op_map, "op", CLV_UNARY_SIGMOID, false}, {"rsqrt", &clv_op_map, "op", CLV_UNARY_RSQRT, false},
    {"sqrt", &clv_op_map, "op", CLV_UNARY_SQRT, false},       {"neg", &clv_op_map, "op", CLV_UNARY_NEG, false},
    {"erf", &clv_op_pointwise, "kind", CLV_ERF, false},       {"erfc", &clv_op_pointwise, "kind", CLV_ERFC, false},
    {"sum", &clv_op_reduce, "kind", CLV_SUM, false},          {"most", &clv_op_reduce, "kind", CLV_MAX, false},
};

typedef struct matcher {
    term_match *m;
    const rewriter *rw;
    clv_type full; /* of the root */
    bool in_row;   /* the term is of one value a row */
} matcher;

/* A number of a program is rounded to its dtype. */
static bool close_to(clv_dtype dtype, double a, double b)
{
    double eps = dtype == CLV_BF16 ? 0x1p-8 : dtype == CLV_F16 ? 0x1p-11 : dtype == CLV_F64 ? 1e-15 : 0x1p-23;
    return fabs(a - b) <= eps * fmax(fabs(a), fabs(b));
}

/* The shape of a value beside the root's: 'x' whole, 'r' one a row, 'G' one a column, '1' one number; '?' another. */
static char role_of(const matcher *k, const clv_type *t)
{
    const clv_type *full = &k->full;
    clv_type rows = *full;
    int64_t width = full->shape[full->rank - 1];
    int more = full->rank - t->rank;
    bool row = more == 0, column = more >= 0 && t->rank > 0;
    rows.rank--;
    if (rewriter_same_but_ones(full, t))
        return 'x';
    if (k->in_row && rewriter_same_but_ones(&rows, t))
        return 'r';
    for (int d = 0; d < t->rank && more >= 0; d++) {
        bool last = d == t->rank - 1;
        row = row && t->shape[d] == (last ? 1 : full->shape[d]);
        column = column && t->shape[d] == (last ? width : 1);
    }
    return clv_type_elems(t) == 1 ? '1' : row ? 'r' : column && !k->in_row ? 'G' : '?';
}

/* The same of a value before it is repeated. */
static char role_of_value(const matcher *k, int value)
{
    const clv_op *op = rewriter_op(k->rw, value);
    while (rewriter_is(op, &clv_op_broadcast)) {
        value = op->in[0];
        op = rewriter_op(k->rw, value);
    }
    clv_type t = rewriter_type(k->rw, value);
    return role_of(k, &t);
}

static bool reads_number(const matcher *k, const char **p, double value)
{
    if (**p == '#') {
        k->m->number[(int)(*p)[1]] = value;
        *p += 2;
        return true;
    }
    char *end;
    double want = strtod(*p, &end);
    *p = end;
    return close_to(k->full.dtype, want, value);
}

static void skip_term(const char **p)
{
    int depth = 0;
    for (; **p && (depth > 0 || (**p != ',' && **p != ')')); (*p)++)
        depth += **p == '(' ? 1 : **p == ')' ? -1 : 0;
}

static bool match(matcher *k, const char **p, int value, bool root);

static void skip_comma(const char **p)
{
    while (**p == ',' || **p == ' ')
        (*p)++;
}

/* A letter; how the value is repeated must fit its kind. */
static bool match_letter(matcher *k, const char **p, int value)
{
    char letter = *(*p)++, role = role_of_value(k, value),
         want = isupper(letter)          ? 'G'
                : strchr("rstv", letter) ? 'r'
                                         : 'x';
    int stripped = rewriter_strip(k->rw, value), *bound = &k->m->letter[(int)letter];
    if (role != want)
        return false;
    if (*bound == 0)
        *bound = want == 'x' ? rewriter_at(k->rw, value) : stripped;
    return rewriter_same(k->rw, *bound, stripped);
}

/* scale(x, n): by a number, or a quotient by one. */
static bool match_scale(matcher *k, const char **p, int value)
{
    const clv_op *op = rewriter_op(k->rw, value);
    double factor;
    int x;
    if (rewriter_is(op, &clv_op_map) && rewriter_int(op, "op", 0) == CLV_UNARY_SCALE) {
        factor = rewriter_real(op, "factor");
        x = op->in[0];
    } else if (rewriter_is(op, &clv_op_combine) && rewriter_int(op, "op", 0) == CLV_BINARY_DIV &&
               rewriter_number(k->rw, op->in[1], &factor) && factor != 0) {
        factor = 1 / factor;
        x = op->in[0];
    } else
        return false;
    if (!match(k, p, x, false))
        return false;
    skip_comma(p);
    return reads_number(k, p, factor);
}

/* mean(x): scale(sum(x), 1 / M) */
static bool match_mean(matcher *k, const char **p, int value)
{
    char text[256], number[32];
    const char *begin = *p, *at = text;
    skip_term(p);
    int n = (int)(*p - begin);
    clv_snprintf(number, sizeof number, "%.17g", 1.0 / (double)k->full.shape[k->full.rank - 1]);
    if (n + 40 > (int)sizeof text)
        return false;
    clv_snprintf(text, sizeof text, "sum(%.*s), %s)", n, begin, number);
    return match_scale(k, &at, value);
}

/* Whether the last dimension is reduced, and others of 1. */
static bool reduces_rows(const matcher *k, const clv_op *op)
{
    clv_type in = rewriter_type(k->rw, op->in[0]);
    int last = in.rank - 1;
    if (!rewriter_same_but_ones(&in, &k->full))
        return false;
    while (last > 0 && in.shape[last] == 1)
        last--;
    for (int d = 0; d < in.rank; d++)
        if (in.shape[d] != 1 && rewriter_int(op, "reduced", d) != (d == last))
            return false;
    return last >= 0 && k->full.shape[k->full.rank - 1] == in.shape[last] && in.shape[last] > 1;
}

/* Two operands in one order; the term stands behind the opening bracket. */
static bool match_pair(matcher *k, const char **p, int a, int b)
{
    if (!match(k, p, a, false))
        return false;
    skip_comma(p);
    return match(k, p, b, false);
}

static bool match_operands(matcher *k, const char **p, const function *f, const clv_op *op)
{
    const char *begin = *p;
    if (f->def == &clv_op_reduce && !reduces_rows(k, op))
        return false;
    if (op->n_in == 1)
        return match(k, p, op->in[0], false);
    if (op->n_in != 2)
        return false;
    term_match before = *k->m;
    if (match_pair(k, p, op->in[0], op->in[1]))
        return true;
    if (!f->swaps)
        return false;
    *k->m = before;
    *p = begin;
    return match_pair(k, p, op->in[1], op->in[0]);
}

static const function *find_function(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strlen(functions[i].name) == length && memcmp(functions[i].name, name, length) == 0)
            return &functions[i];
    return NULL;
}

static bool match_call(matcher *k, const char **p, const char *name, size_t length, int value)
{
    if (length == 5 && memcmp(name, "scale", 5) == 0)
        return match_scale(k, p, value);
    if (length == 4 && memcmp(name, "mean", 4) == 0)
        return match_mean(k, p, value);
    const function *f = find_function(name, length);
    const clv_op *op = rewriter_op(k->rw, value);
    return f && rewriter_is(op, f->def) && rewriter_int(op, f->attr, 0) == f->kind && match_operands(k, p, f, op);
}

/* A function: of the whole, or of one value a row. */
static bool match_function(matcher *k, const char **p, size_t length, int value, bool root)
{
    const char *name = *p;
    bool in_row = k->in_row, reduces = length == 3 && memcmp(name, "sum", 3) == 0;
    char role = role_of_value(k, value);
    if (role != 'x' && role != 'r')
        return false;
    if (!root)
        value = rewriter_strip(k->rw, value);
    reduces = reduces || (length == 4 && memcmp(name, "most", 4) == 0);
    k->in_row = role == 'r' && !reduces;
    *p += length + ((*p)[length] == '(');
    bool matches = match_call(k, p, name, length, value);
    k->in_row = in_row;
    return matches;
}

static bool match(matcher *k, const char **p, int value, bool root)
{
    skip_comma(p);
    double number;
    size_t length = strcspn(*p, "(,) ");
    if (length == 1 && isalpha((unsigned char)**p))
        return match_letter(k, p, value);
    if (**p == '#' || **p == '-' || isdigit((unsigned char)**p))
        return rewriter_number(k->rw, value, &number) && reads_number(k, p, number);
    if (!match_function(k, p, length, value, root))
        return false;
    if (!root && k->m->n_parts < REWRITER_PARTS)
        k->m->parts[k->m->n_parts++] = rewriter_strip(k->rw, value);
    skip_comma(p);
    *p += **p == ')';
    return true;
}

bool term_matches(term_match *m, const rewriter *rw, int root, const char *term)
{
    matcher k = {m, rw, rewriter_type(rw, root), false};
    return k.full.rank > 0 && match(&k, &term, rewriter_at(rw, root), true);
}

bool term_matches_row(term_match *m, const rewriter *rw, int full, int root, const char *term)
{
    matcher k = {m, rw, rewriter_type(rw, full), true};
    return k.full.rank > 0 && match(&k, &term, rewriter_strip(rw, root), true);
}

void term_add_parts(rewrite *to, const term_match *m)
{
    for (int i = 0; i < m->n_parts; i++)
        rewriter_part(to, m->parts[i]);
}

clv_value term_column(rewriter *rw, const term_match *m, char letter)
{
    int value = m->letter[(int)letter];
    clv_type type = rewriter_type(rw, value);
    if (type.rank == 1)
        return (clv_value){value};
    return clv_reshape(rw->graph, (clv_value){value}, 1, (int64_t[]){clv_type_elems(&type)});
}
