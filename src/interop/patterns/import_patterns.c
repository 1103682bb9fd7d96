/* import_patterns.c - runs the patterns over a graph in order, takes back those that gain nothing, and copies what is
 * left into another graph.
 *
 * Level after level: what one finds, the next ones see in place of its parts (attention is a softmax between two
 * products). Ops are copied in the order of the program; a fused op stands where the first of its roots stood.
 */
#include <string.h>

#include "interop/patterns/rewriter.h"

/* settles: what gains nothing is taken back behind it; norms wait for their gradients. */
static const struct {
    find_fn *find;
    bool settles;
} levels[] = {{find_move, true},      {find_activation, true},    {find_softmax, true},       {find_layer_norm, false},
              {find_rms_norm, false}, {find_norm_gradient, true}, {find_cross_entropy, true}, {find_rope, true},
              {find_attention, true}, {find_move, true}};

/* ---- who reads what ---- */

static bool grow_live(rewriter *rw)
{
    int n = rw->graph->n_values;
    if (n > rw->live_room) {
        rw->live_room = 2 * n;
        rw->live = clv_arena_alloc(rw->arena, (size_t)rw->live_room, sizeof *rw->live);
        rw->first = clv_arena_alloc(rw->arena, (size_t)rw->live_room, sizeof *rw->first);
    }
    return rw->live && rw->first;
}

/* Parameters, and buffers that a run changes; a constant goes with its readers. */
static bool is_kept_state(const clv_value_info *v)
{
    return v->source == CLV_FROM_STATE && (v->role == CLV_ROLE_PARAMETER || v->assigned > 0);
}

/* Marks what outputs and new state need, from the last op to the first: fused ops come first, as they are made of the
 * program's values and of each other's. */
static bool find_live(rewriter *rw)
{
    const clv_graph *g = rw->graph;
    if (!grow_live(rw))
        return false;
    memset(rw->live, 0, (size_t)rw->live_room * sizeof *rw->live);
    for (int i = rw->n_extra; i < g->n_outputs; i++)
        rw->live[rewriter_at(rw, g->outputs[i].value)] = true;
    for (int id = 1; id < rw->n_values; id++)
        if (is_kept_state(&g->values[id]))
            rw->live[id] = rw->live[rewriter_at(rw, g->values[id].assigned)] = true;
    bool more = true;
    for (int turn = 0; more; turn++) { /* a fused op is read by ops before it in the array: once more, if it is found */
        more = false;
        for (int i = g->n_ops - 1; i >= 0; i--) {
            const clv_op *op = &g->ops[i];
            bool needed = false;
            for (int o = 0; o < op->n_out; o++)
                needed = needed || rw->live[op->out[o]];
            for (int k = 0; needed && k < op->n_in; k++) {
                int at = rewriter_at(rw, op->in[k]);
                if (at == 0 || rw->live[at])
                    continue;
                rw->live[at] = true;
                more = more || (g->values[at].source == CLV_FROM_OP && g->values[at].op > i);
            }
        }
    }
    return true;
}

static bool is_live_op(const rewriter *rw, const clv_op *op)
{
    for (int o = 0; o < op->n_out; o++)
        if (rw->live[op->out[o]])
            return true;
    return false;
}

/* Lists of the live ops that read each value. */
static bool find_readers(rewriter *rw)
{
    const clv_graph *g = rw->graph;
    int positions = 0;
    for (int i = 0; i < g->n_ops; i++)
        positions += g->ops[i].n_in;
    if (!find_live(rw))
        return false;
    if (positions > rw->n_positions) {
        rw->n_positions = 2 * positions;
        rw->next = clv_arena_alloc(rw->arena, (size_t)rw->n_positions, sizeof *rw->next);
        rw->reader_op = clv_arena_alloc(rw->arena, (size_t)rw->n_positions, sizeof *rw->reader_op);
        if (!rw->next || !rw->reader_op)
            return false;
    }
    for (int i = 0; i < rw->live_room; i++)
        rw->first[i] = -1;
    for (int i = g->n_ops - 1, at = 0; i >= 0; i--) /* so that lists are in order */
        for (int k = g->ops[i].n_in - 1; k >= 0 && is_live_op(rw, &g->ops[i]); k--, at++) {
            int value = rewriter_at(rw, g->ops[i].in[k]);
            rw->next[at] = rw->first[value];
            rw->reader_op[at] = i;
            rw->first[value] = at;
        }
    return true;
}

/* ---- what is taken back ---- */

/* Whether a part as large as the root is read by others. */
static bool gains_nothing(const rewriter *rw, const rewrite *r)
{
    int64_t size = clv_type_elems(&rw->graph->values[r->roots[0]].type);
    for (int i = 0; i < r->n_parts; i++) {
        const clv_value_info *part = &rw->graph->values[r->parts[i]];
        double number;
        if (rw->live[r->parts[i]] && clv_type_elems(&part->type) >= size && size > 1 &&
            !rewriter_number(rw, r->parts[i], &number))
            return true;
    }
    return false;
}

/* Whether what it is made of stands before its roots, so that no op is made of itself. */
static bool is_ordered(const rewriter *rw, const rewrite *r)
{
    for (int i = r->first_op; i < r->end_op; i++)
        for (int k = 0; k < rw->graph->ops[i].n_in; k++)
            for (int root = 0; root < r->n_roots; root++) {
                int in = rw->graph->ops[i].in[k];
                if (in < rw->n_values && in >= r->roots[root])
                    return false;
            }
    return true;
}

static bool settle(rewriter *rw, int from)
{
    for (bool more = true; more;) {
        more = false;
        if (!find_live(rw))
            return false;
        for (int i = from; i < rw->n; i++) {
            rewrite *r = &rw->made[i];
            if (r->left || r->n_roots == 0 || (is_ordered(rw, r) && !gains_nothing(rw, r)))
                continue;
            r->left = more = true;
            for (int k = 0; k < r->n_roots; k++)
                rw->becomes[r->roots[k]] = r->roots[k];
        }
    }
    return true;
}

static clv_status run(rewriter *rw, clv_error *err)
{
    int settled = 0;
    for (size_t level = 0; level < sizeof levels / sizeof *levels; level++) {
        if (!find_readers(rw))
            return clv_fail_memory(err, "patterns", sizeof *rw->live);
        for (int i = 0; i < rw->n_ops; i++) {
            const clv_op *op = &rw->graph->ops[i];
            if (op->n_out == 1 && rewriter_at(rw, op->out[0]) == op->out[0] && rw->live[op->out[0]])
                (void)levels[level].find(rw, op);
        }
        CLV_TRY(clv_graph_status(rw->graph, err));
        if (levels[level].settles && !settle(rw, settled))
            return clv_fail_memory(err, "patterns", sizeof *rw->live);
        settled = levels[level].settles ? rw->n : settled;
    }
    return CLV_OK;
}

/* ---- copying ---- */

typedef struct copier {
    const rewriter *rw;
    clv_graph *to;
    clv_value *copy; /* by id */
    const char *scope;
} copier;

static void copy_port(copier *c, int id)
{
    const clv_value_info *v = &c->rw->graph->values[id];
    const clv_layout *layout = v->stated ? &v->layout : NULL;
    c->copy[id] =
        v->source == CLV_FROM_INPUT
            ? clv_input(c->to, v->name, v->type.dtype, v->type.rank, v->type.shape, layout)
            : clv_state_with_role(c->to, v->role, v->name, v->type.dtype, v->type.rank, v->type.shape, layout, v->init);
}

static void copy_op(copier *c, const clv_op *op)
{
    clv_value in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    if (clv_valid(c->copy[op->out[0]]))
        return;
    for (int i = 0; i < op->n_in; i++) {
        int at = rewriter_at(c->rw, op->in[i]);
        if (at && !clv_valid(c->copy[at]) && c->rw->graph->values[at].source == CLV_FROM_OP && clv_graph_ok(c->to))
            copy_op(c, rewriter_op(c->rw, at)); /* a fused op: its operands are few, and earlier */
        in[i] = c->copy[at];
    }
    const char *dot = strrchr(op->name, '.');
    c->to->scope = clv_arena_format(c->to->arena, "%.*s", dot ? (int)(dot + 1 - op->name) : 0, op->name);
    if (!c->to->scope)
        c->to->scope = c->scope;
    clv_graph_emit(c->to, op->def, op->attrs, in, op->n_in, out);
    const char *name = clv_arena_string(c->to->arena, op->name); /* a collective's is that of the text */
    if (name && clv_graph_ok(c->to))
        c->to->ops[c->to->n_ops - 1].name = name;
    for (int o = 0; o < op->n_out; o++) {
        c->copy[op->out[o]] = out[o];
        if (clv_valid(out[o])) /* its builder may have widened it */
            c->to->values[out[o].id].type = c->rw->graph->values[op->out[o]].type;
    }
}

static clv_status copy_graph(copier *c, clv_error *err)
{
    const rewriter *rw = c->rw;
    const clv_graph *g = rw->graph;
    for (int id = 1; id < g->n_values; id++)
        if (g->values[id].source == CLV_FROM_INPUT)
            copy_port(c, id);
    c->to->scope = "";
    for (int id = 1; id < g->n_values; id++)
        if (g->values[id].source == CLV_FROM_STATE && rw->live[id])
            copy_port(c, id);
    for (int i = 0; i < rw->n_ops && clv_graph_ok(c->to); i++)
        for (int o = 0; o < g->ops[i].n_out; o++) {
            int at = rewriter_at(rw, g->ops[i].out[o]);
            if (rw->live[at] && g->values[at].source == CLV_FROM_OP) {
                copy_op(c, rewriter_op(rw, at));
                c->to->values[c->copy[at].id].stationary_axes |= g->values[g->ops[i].out[o]].stationary_axes;
            }
        }
    c->to->scope = c->scope;
    for (int id = 1; id < rw->n_values; id++)
        if (g->values[id].source == CLV_FROM_STATE && g->values[id].assigned > 0)
            clv_assign(c->to, c->copy[id], c->copy[rewriter_at(rw, g->values[id].assigned)]);
    for (int i = 0; i < g->n_outputs; i++) {
        const clv_graph_output *o = &g->outputs[i];
        clv_output(c->to, o->name, c->copy[rewriter_at(rw, o->value)], o->stated ? &o->layout : NULL);
    }
    return clv_graph_status(c->to, err);
}

/* Whether the fused op is in the graph; of what was left, its root. What another pattern took in is not. */
static bool is_needed(const rewriter *rw, const rewrite *r)
{
    if (r->left || r->n_roots == 0)
        return r->left && rw->live[rewriter_at(rw, r->roots[0])];
    for (int i = r->first_op; i < r->end_op; i++)
        if (is_live_op(rw, &rw->graph->ops[i]))
            return true;
    return false;
}

static clv_status finish(const rewriter *rw, clv_graph *to, rewriter_report *report, void *arg, clv_error *err)
{
    copier c = {rw, to, clv_arena_alloc(rw->arena, (size_t)rw->graph->n_values, sizeof *c.copy), to->scope};
    if (!c.copy)
        return clv_fail_memory(err, "patterns", sizeof *c.copy);
    for (int i = 0; report && i < rw->n; i++) {
        const rewrite *r = &rw->made[i];
        const char *name = r->n_roots ? rw->graph->ops[rw->graph->values[r->roots[0]].op].name : "";
        const char *dot = strrchr(name, '.');
        if (is_needed(rw, r))
            report(arg, r->name, r->gradient, r->left,
                   clv_arena_format(rw->arena, "%.*s", dot ? (int)(dot - name) : 0, name));
    }
    return copy_graph(&c, err);
}

/* Room for fused ops, so that ops stay where they are while patterns hold pointers to them. */
static clv_status reserve_ops(rewriter *rw, clv_error *err)
{
    clv_graph *g = rw->graph;
    const int room = 3 * g->n_ops + 4 * REWRITER_OPS;
    clv_op *ops = clv_arena_alloc(g->arena, (size_t)room, sizeof *ops);
    if (!ops)
        return clv_fail_memory(err, "patterns", (size_t)room * sizeof *ops);
    if (g->n_ops > 0)
        memcpy(ops, g->ops, (size_t)g->n_ops * sizeof *ops);
    g->ops = ops;
    g->op_capacity = room;
    return CLV_OK;
}

static clv_status prepare(rewriter *rw, clv_error *err)
{
    CLV_TRY(reserve_ops(rw, err));
    size_t n = (size_t)rw->n_values + 1;
    rw->becomes = clv_arena_alloc(rw->arena, n, sizeof *rw->becomes);
    if (!rw->becomes)
        return clv_fail_memory(err, "patterns", n * sizeof *rw->becomes);
    for (int i = 0; i < rw->n_values; i++)
        rw->becomes[i] = i;
    return find_readers(rw) ? CLV_OK : clv_fail_memory(err, "patterns", n);
}

clv_status import_patterns(clv_graph *to, clv_graph *from, int n_extra, bool patterns, rewriter_report *report,
                           void *arg, clv_error *err)
{
    rewriter rw = {.graph = from, .n_values = from->n_values, .n_ops = from->n_ops, .n_extra = n_extra};
    rw.arena = clv_arena_new();
    if (!rw.arena)
        return clv_fail_memory(err, "patterns", sizeof rw);
    clv_status status = prepare(&rw, err);
    if (status == CLV_OK && patterns)
        status = run(&rw, err);
    if (status == CLV_OK)
        status = finish(&rw, to, report, arg, err);
    clv_arena_free(rw.arena);
    return status;
}
