/* rewriter.c - values, readers and attributes for patterns; fused ops that stand for their parts. */
#include "interop/patterns/rewriter.h"

#include <math.h>
#include <string.h>

/* ---- attributes ---- */

static const char *field(const clv_op *op, const char *name, int i, clv_attr_kind *kind)
{
    for (const clv_attr *a = op->def->attrs; a && a->name; a++)
        if (strcmp(a->name, name) == 0) {
            *kind = a->kind;
            return (const char *)op->attrs + a->offset +
                   (a->kind == CLV_ATTR_TEXT ? 0 : (size_t)i * clv_attr_size(a->kind));
        }
    return NULL;
}

int64_t rewriter_int(const clv_op *op, const char *name, int i)
{
    clv_attr_kind kind;
    const char *at = field(op, name, i, &kind);
    if (!at)
        return 0;
    return kind == CLV_ATTR_INT     ? *(const int *)at
           : kind == CLV_ATTR_INT64 ? *(const int64_t *)at
           : kind == CLV_ATTR_BOOL  ? *(const bool *)at
           : kind == CLV_ATTR_DTYPE ? (int64_t) * (const clv_dtype *)at
                                    : 0;
}

double rewriter_real(const clv_op *op, const char *name)
{
    clv_attr_kind kind;
    const char *at = field(op, name, 0, &kind);
    return at && kind == CLV_ATTR_DOUBLE ? *(const double *)at : 0;
}

const char *rewriter_text(const clv_op *op, const char *name)
{
    clv_attr_kind kind;
    const char *at = field(op, name, 0, &kind);
    return at && kind == CLV_ATTR_TEXT ? at : "";
}

/* ---- values ---- */

int rewriter_at(const rewriter *rw, int value)
{
    while (value < rw->n_values && rw->becomes[value] != value)
        value = rw->becomes[value];
    return value;
}

const clv_op *rewriter_op(const rewriter *rw, int value)
{
    const clv_value_info *info = &rw->graph->values[rewriter_at(rw, value)];
    return info->source == CLV_FROM_OP && info->op >= 0 ? &rw->graph->ops[info->op] : NULL;
}

clv_type rewriter_type(const rewriter *rw, int value)
{
    return rw->graph->values[rewriter_at(rw, value)].type;
}

bool rewriter_same_but_ones(const clv_type *a, const clv_type *b)
{
    int i = 0, j = 0;
    for (;;) {
        while (i < a->rank && a->shape[i] == 1)
            i++;
        while (j < b->rank && b->shape[j] == 1)
            j++;
        if (i == a->rank || j == b->rank)
            return i == a->rank && j == b->rank;
        if (a->shape[i++] != b->shape[j++])
            return false;
    }
}

/* Whether a transpose only moves dimensions of 1. */
static bool moves_ones(const clv_op *op, const clv_type *from)
{
    for (int d = 0, last = -1; d < from->rank; d++) {
        int dim = (int)rewriter_int(op, "order", d);
        if (from->shape[dim] == 1)
            continue;
        if (dim < last)
            return false;
        last = dim;
    }
    return true;
}

/* The operand that has the same elements, in the same order but for dimensions of 1; -1: none. */
static int same_elements(const rewriter *rw, const clv_op *op, int value)
{
    clv_type to = rewriter_type(rw, value), from = op->n_in > 0 ? rewriter_type(rw, op->in[0]) : to;
    double number;
    if (rewriter_is(op, &clv_op_reshape) || rewriter_is(op, &clv_op_reduce))
        return rewriter_same_but_ones(&to, &from) ? 0 : -1;
    if (rewriter_is(op, &clv_op_transpose))
        return moves_ones(op, &from) ? 0 : -1;
    if (!rewriter_is(op, &clv_op_combine))
        return -1;
    int64_t kind = rewriter_int(op, "op", 0);
    if (kind == CLV_BINARY_MAX && rewriter_number(rw, op->in[0], &number) && number == -INFINITY)
        return 1; /* as JAX writes a maximum of rows */
    bool adds = kind == CLV_BINARY_ADD || kind == CLV_BINARY_SUB;
    return adds && rewriter_same_but_ones(&to, &from) && rewriter_number(rw, op->in[1], &number) && number == 0 ? 0
                                                                                                                : -1;
}

int rewriter_strip(const rewriter *rw, int value)
{
    for (;;) {
        value = rewriter_at(rw, value);
        const clv_op *op = rewriter_op(rw, value);
        int in = !op ? -1 : rewriter_is(op, &clv_op_broadcast) ? 0 : same_elements(rw, op, value);
        if (in < 0)
            return value;
        value = op->in[in];
    }
}

bool rewriter_number(const rewriter *rw, int value, double *number)
{
    const clv_op *op = rewriter_op(rw, value);
    while (rewriter_is(op, &clv_op_reshape) || rewriter_is(op, &clv_op_broadcast))
        op = rewriter_op(rw, op->in[0]);
    if (!rewriter_is(op, &clv_op_fill))
        return false;
    *number = rewriter_real(op, "value");
    return true;
}

static bool same_within(const rewriter *rw, int a, int b, int depth)
{
    a = rewriter_strip(rw, a);
    b = rewriter_strip(rw, b);
    const clv_op *x = rewriter_op(rw, a), *y = rewriter_op(rw, b);
    if (a == b)
        return true;
    if (depth == 0 || !x || !y || x->def != y->def || x->n_in != y->n_in || x->n_out != 1 || y->n_out != 1 ||
        (x->def->attrs_size && memcmp(x->attrs, y->attrs, x->def->attrs_size) != 0))
        return false;
    clv_type t = rewriter_type(rw, a), u = rewriter_type(rw, b);
    if (!rewriter_same_but_ones(&t, &u))
        return false;
    for (int i = 0; i < x->n_in; i++)
        if (!same_within(rw, x->in[i], y->in[i], depth - 1))
            return false;
    return true;
}

bool rewriter_same(const rewriter *rw, int a, int b)
{
    return same_within(rw, a, b, 6);
}

static bool identical_within(const rewriter *rw, int a, int b, int *steps)
{
    a = rewriter_at(rw, a);
    b = rewriter_at(rw, b);
    const clv_op *x = rewriter_op(rw, a), *y = rewriter_op(rw, b);
    const clv_type t = rewriter_type(rw, a), u = rewriter_type(rw, b);
    if (a == b)
        return true;
    if ((*steps)-- == 0 || !x || !y || x->def != y->def || x->n_in != y->n_in || x->n_out != 1 ||
        !clv_type_equal(&t, &u) || (x->def->attrs_size && memcmp(x->attrs, y->attrs, x->def->attrs_size) != 0))
        return false;
    for (int i = 0; i < x->n_in; i++)
        if (!identical_within(rw, x->in[i], y->in[i], steps))
            return false;
    return true;
}

bool rewriter_identical(const rewriter *rw, int a, int b)
{
    int steps = 256;
    return identical_within(rw, a, b, &steps);
}

int rewriter_readers(const rewriter *rw, int value, const clv_op **out, int room)
{
    int n = 0;
    value = rewriter_at(rw, value);
    if (value >= rw->live_room)
        return 0;
    for (int at = rw->first[value]; at >= 0; at = rw->next[at]) {
        if (n < room)
            out[n] = &rw->graph->ops[rw->reader_op[at]];
        n++;
    }
    return n;
}

const clv_op *rewriter_reader(const rewriter *rw, int value)
{
    const clv_op *reader;
    return rewriter_readers(rw, value, &reader, 1) == 1 ? reader : NULL;
}

/* ---- fused ops ---- */

rewrite *rewriter_begin(rewriter *rw, const char *name, const clv_op *like)
{
    const char *dot = strrchr(like->name, '.');
    if (rw->graph->n_ops + REWRITER_OPS > rw->graph->op_capacity)
        return NULL; /* ops would move; what is left stays in parts */
    if (clv_arena_grow(rw->arena, &rw->made, &rw->room, rw->n, sizeof *rw->made) != 0) {
        clv_graph_fail(rw->graph, CLV_ENOMEM, "out of memory for a pattern");
        return NULL;
    }
    rw->made[rw->n] = (rewrite){.name = name, .first_op = rw->graph->n_ops};
    rw->graph->scope = clv_arena_format(rw->graph->arena, "%.*s", dot ? (int)(dot + 1 - like->name) : 0, like->name);
    return &rw->made[rw->n++];
}

void rewriter_part(rewrite *to, int part)
{
    if (to->n_parts < REWRITER_PARTS)
        to->parts[to->n_parts++] = part;
}

void rewriter_replace(rewriter *rw, rewrite *of, int root, clv_value made)
{
    if (!clv_valid(made) || of->n_roots == REWRITER_ROOTS)
        return;
    root = rewriter_at(rw, root);
    clv_type have = clv_graph_type(rw->graph, made), want = rewriter_type(rw, root);
    if (root >= rw->n_values || !clv_type_equal(&have, &want))
        return;
    of->roots[of->n_roots++] = root;
    rw->becomes[root] = made.id;
    of->end_op = rw->graph->n_ops;
}
