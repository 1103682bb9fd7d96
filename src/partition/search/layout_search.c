/* layout_search.c - dynamic programming over the ops of a graph and the layouts of the values between them. */
#include "partition/search/layout_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "partition/search/layout_states.h"
#include "partition/sharding/sharding_projection.h"

enum {
    FEW_OPS = 12, /* of graphs up to this size all states are followed */
    ALL_STATES = 1 << 16,
    STATES_X_OPS = 1 << 13, /* of larger ones as many as take about a second */
    LEAST_STATES = 4
};

typedef struct search {
    clv_partitioner *p;     /* in the state that is extended; it makes no rows */
    clv_arena *scratch;     /* of p: emptied after each op */
    clv_arena *arena;       /* of the result, the states, and the sharded values */
    clv_key_cache interned; /* sharded values */
    int *last_use;          /* [n_values] the last op that needs a value; n_ops: it is an output */
    int *n_reads;           /* [n_values] */
    clv_search_state limit; /* what costs less is looked for */
    const clv_search_state *from;
    clv_search_states next;
    int at; /* index of the op */
    bool dropped, approximate;
    clv_strategy trial;
} search;

/* ---- what a state needs to know ---- */

static bool is_free_input(const clv_partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    return info->source == CLV_FROM_INPUT && !info->stated;
}

/* A gradient constraint without a layout of its own has that of its primal. */
static bool follows_primal(const clv_op *op)
{
    return clv_op_is_constraint(op) && !clv_op_constraint_of(op);
}

static clv_status count_uses(search *s, clv_error *err)
{
    const clv_graph *graph = s->p->graph;
    const size_t n = (size_t)graph->n_values + 1;
    s->last_use = clv_arena_alloc(s->arena, n, sizeof *s->last_use);
    s->n_reads = clv_arena_alloc(s->arena, n, sizeof *s->n_reads);
    if (!s->last_use || !s->n_reads)
        return clv_fail_memory(err, "a search for layouts", n * sizeof *s->last_use);
    for (int v = 0; v < graph->n_values; v++)
        s->last_use[v] = -1;
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        for (int i = 0; s->p->live_op[o] && i < op->n_in; i++) {
            if (op->in[i] <= 0)
                continue;
            s->last_use[op->in[i]] = o;
            s->n_reads[op->in[i]]++;
        }
        const int primal = follows_primal(op) ? graph->values[op->out[0]].primal : 0;
        if (s->p->live_op[o] && primal > 0)
            s->last_use[primal] = o;
        s->approximate = s->approximate || (s->p->live_op[o] && follows_primal(op));
    }
    for (int v = 1; v < graph->n_values; v++)
        if (s->p->available[v].is_output)
            s->last_use[v] = graph->n_ops;
    return CLV_OK;
}

static bool costs_too_much(const search *s, const clv_search_state *state)
{
    return isfinite(s->limit.seconds) && clv_search_state_compare(state, &s->limit, s->p->options->by_bytes) >= 0;
}

/* ---- reshards ---- */

/* Brings a value to a layout as clv_partition_insert_reshard does, and adds the cost; *out: the sharded value. */
static clv_status reshard(int *out, clv_search_state *state, search *s, int value, const clv_layout *to, clv_error *err)
{
    const clv_type *type = &s->p->graph->values[value].type;
    const clv_reshard_plan *best;
    const clv_layout *const *at;
    const int *sharded;
    int source, n;
    CLV_TRY(clv_partition_available_layouts(&sharded, &at, &n, s->p, value, err));
    CLV_TRY(clv_reshard_cache_cheapest(&best, &source, s->p->reshards, at, n, to, type->shape, type->dtype, err));
    *out = sharded[source];
    state->seconds += best->seconds;
    state->bytes += best->bytes;
    for (int i = 0; i < best->n_steps; i++) {
        CLV_TRY(clv_search_intern(out, s->p, &s->interned, value, &best->steps[i].to, err));
        CLV_TRY(clv_partition_add_available(s->p, value, *out, err));
    }
    if (!clv_layout_equal(clv_partition_layout_of(s->p, *out), to)) {
        CLV_TRY(clv_search_intern(out, s->p, &s->interned, value, to, err));
        CLV_TRY(clv_partition_add_available(s->p, value, *out, err));
    }
    return CLV_OK;
}

/* Makes a value available in the one layout that it is made in. */
static clv_status make(search *s, int value, const clv_layout *layout, clv_error *err)
{
    int sharded;
    clv_available_layouts *at = &s->p->available[value];
    at->n = at->n_earlier = 0;
    at->phase = s->p->phase;
    CLV_TRY(clv_search_intern(&sharded, s->p, &s->interned, value, layout, err));
    return clv_partition_add_available(s->p, value, sharded, err);
}

/* Lengths of what is available, which only grow: an attempt is undone by them. */
typedef struct undo {
    int n[CLV_MAX_IN], phase[CLV_MAX_IN], n_earlier[CLV_MAX_IN];
} undo;

static undo remember(const clv_partitioner *p, const clv_op *op)
{
    undo u = {0};
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0) {
            const clv_available_layouts *at = &p->available[op->in[i]];
            u.n[i] = at->n;
            u.phase[i] = at->phase;
            u.n_earlier[i] = at->n_earlier;
        }
    return u;
}

static void restore(clv_partitioner *p, const clv_op *op, const undo *u)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0) {
            clv_available_layouts *at = &p->available[op->in[i]];
            at->n = u->n[i];
            at->phase = u->phase[i];
            at->n_earlier = u->n_earlier[i];
        }
    for (int o = 0; o < op->n_out; o++)
        p->available[op->out[o]].n = 0;
}

/* ---- one op ---- */

/* Whether the operand is an input of which the first layout that is needed is its layout: nothing else reads it. */
static bool takes_any_layout(const search *s, int value)
{
    return value > 0 && s->p->available[value].n == 0 && is_free_input(s->p, value) && s->n_reads[value] == 1 &&
           !s->p->available[value].is_output;
}

static clv_status add_state(search *s, clv_search_state *state, clv_error *err)
{
    return clv_search_states_add(&s->next, s->arena, s->p, s->last_use, s->at, state, err);
}

/* Follows the strategy that is tried. */
static clv_status follow_trial(search *s, const clv_op *op, clv_error *err)
{
    const undo before = remember(s->p, op);
    clv_search_state state = {.seconds = s->from->seconds + s->trial.work_seconds,
                              .bytes = s->from->bytes,
                              .before = s->from,
                              .decision.strategy = &s->trial};
    bool loses = costs_too_much(s, &state);
    for (int i = 0; !loses && i < op->n_in; i++) {
        int sharded;
        if (op->in[i] <= 0)
            continue;
        if (takes_any_layout(s, op->in[i]))
            CLV_TRY(make(s, op->in[i], &s->trial.in[i], err));
        else
            CLV_TRY(reshard(&sharded, &state, s, op->in[i], &s->trial.in[i], err));
        loses = costs_too_much(s, &state);
    }
    for (int o = 0; !loses && o < op->n_out; o++)
        CLV_TRY(make(s, op->out[o], &s->trial.out[o], err));
    if (!loses)
        CLV_TRY(add_state(s, &state, err));
    restore(s->p, op, &before);
    return CLV_OK;
}

typedef struct enumeration {
    const clv_strategy_problem *problem;
    clv_projection_context context;
    int n_choices;
    int8_t choices[CLV_MAX_FACTORS + 2];
    bool keep; /* stationary operands stay */
    bool any;  /* some assignment is legal */
} enumeration;

static clv_status try_from(search *s, enumeration *e, int subaxis, clv_error *err)
{
    if (subaxis == s->trial.n_subaxes) {
        if (!clv_strategy_fill_layouts(&s->trial, e->problem, &e->context, e->keep))
            return CLV_OK;
        e->any = true;
        return follow_trial(s, e->problem->op, err);
    }
    for (int c = 0; c < e->n_choices; c++) {
        s->trial.choice[subaxis] = e->choices[c];
        CLV_TRY(try_from(s, e, subaxis + 1, err));
    }
    return CLV_OK;
}

static clv_status try_all(search *s, const clv_strategy_problem *problem, clv_error *err)
{
    enumeration e = {.problem = problem};
    e.n_choices = clv_strategy_list_choices(e.choices, problem);
    for (int keep = 1; keep >= 0 && !e.any; keep--)
        for (int d = 0; (s->trial.n_subaxes = clv_strategy_list_subaxes(s->trial.subaxis, problem, d)) >= 0; d++) {
            e.keep = keep;
            clv_projection_context_make(&e.context, problem, s->trial.subaxis, s->trial.n_subaxes);
            CLV_TRY(try_from(s, &e, 0, err));
        }
    return CLV_OK;
}

/* An order of axes that an input may bring: nothing split, or dimension k - 1 by all axes. A strategy has the axes of a
 * factor in the order of a layout that is available. */
static clv_layout nth_order(const clv_mesh *mesh, int rank, int k)
{
    clv_layout layout = clv_layout_replicated(rank);
    for (int a = 0; k > 0 && a < mesh->n_axes; a++)
        if (mesh->axis[a].size > 1)
            clv_layout_shard_dim(&layout, mesh, k - 1, clv_mesh_whole_axis(mesh, a), NULL);
    return layout;
}

/* Tries all assignments with the layouts that operands from the i-th on are available in. */
static clv_status try_from_operand(search *s, clv_strategy_problem *problem, int i, clv_error *err)
{
    const clv_op *op = problem->op;
    const int *sharded;
    clv_layout order;
    const clv_layout *const any[] = {&order};
    while (i < op->n_in && op->in[i] <= 0)
        i++;
    if (i == op->n_in)
        return try_all(s, problem, err);
    if (!takes_any_layout(s, op->in[i])) {
        CLV_TRY(clv_partition_available_layouts(&sharded, &problem->available[i], &problem->n_available[i], s->p,
                                                op->in[i], err));
        problem->stationary_axes[i] = s->p->available[op->in[i]].stationary_axes;
        return try_from_operand(s, problem, i + 1, err);
    }
    problem->available[i] = any;
    problem->n_available[i] = 1;
    for (int k = 0; k <= (s->p->graph->mesh.n_axes > 1 ? problem->in[i].rank : 0); k++) {
        order = nth_order(&s->p->graph->mesh, problem->in[i].rank, k);
        CLV_TRY(try_from_operand(s, problem, i + 1, err));
    }
    return CLV_OK;
}

static clv_status extend_by_op(search *s, const clv_op *op, clv_error *err)
{
    clv_strategy_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    clv_partition_init_problem(&problem, types, s->p, op);
    problem.idle_axes = true;
    memset(&s->trial, 0, sizeof s->trial);
    return try_from_operand(s, &problem, 0, err);
}

static clv_status extend_by_constraint(search *s, const clv_op *op, clv_error *err)
{
    const undo before = remember(s->p, op);
    const int primal = follows_primal(op) ? s->p->graph->values[op->out[0]].primal : 0;
    const clv_layout *stated = clv_op_constraint_of(op);
    clv_search_state state = {.seconds = s->from->seconds, .bytes = s->from->bytes, .before = s->from};
    int sharded;
    if (takes_any_layout(s, op->in[0]))
        CLV_TRY(make(s, op->in[0], stated, err)); /* an input is no cotangent */
    const clv_layout *like = primal > 0 ? clv_partition_made_layout(s->p, primal) : NULL;
    like = like ? like : clv_partition_made_layout(s->p, op->in[0]);
    const clv_layout to = stated ? *stated : clv_layout_without_partial(like);
    CLV_TRY(reshard(&sharded, &state, s, op->in[0], &to, err));
    s->p->available[op->out[0]].n = 0;
    CLV_TRY(clv_partition_add_available(s->p, op->out[0], sharded, err));
    if (!costs_too_much(s, &state))
        CLV_TRY(add_state(s, &state, err));
    restore(s->p, op, &before);
    return CLV_OK;
}

/* ---- inputs that several ops read ---- */

/* The layout number k of a tensor: each axis of the mesh shards a dimension, or none. False after the last. */
static bool nth_layout(clv_layout *out, const clv_mesh *mesh, int rank, int64_t k)
{
    *out = clv_layout_replicated(rank);
    for (int a = 0; a < mesh->n_axes; a++, k /= rank + 1)
        if (k % (rank + 1) > 0 && mesh->axis[a].size > 1)
            clv_layout_shard_dim(out, mesh, (int)(k % (rank + 1)) - 1, clv_mesh_whole_axis(mesh, a), NULL);
    return k == 0;
}

/* Extends the state by the op, with every layout of those operands from the i-th on that have none yet. */
static clv_status extend_from_operand(search *s, const clv_op *op, int i, clv_error *err)
{
    while (i < op->n_in && (op->in[i] <= 0 || s->p->available[op->in[i]].n > 0 || takes_any_layout(s, op->in[i])))
        i++;
    if (i == op->n_in)
        return clv_op_is_constraint(op) ? extend_by_constraint(s, op, err) : extend_by_op(s, op, err);
    const int value = op->in[i];
    const clv_search_state *before = s->from;
    clv_layout layout;
    clv_status status = CLV_OK;
    for (int64_t k = 0;
         status == CLV_OK && nth_layout(&layout, &s->p->graph->mesh, s->p->graph->values[value].type.rank, k); k++) {
        clv_search_state decided = *before;
        CLV_TRY(make(s, value, &layout, err));
        decided.before = before;
        decided.decision = (clv_search_decision){
            .input = value, .layout = clv_partition_layout_of(s->p, s->p->available[value].sharded[0])};
        s->from = clv_arena_copy(s->arena, &decided, sizeof decided);
        if (!s->from)
            return clv_fail_memory(err, "a search for layouts", sizeof decided);
        status = extend_from_operand(s, op, i + 1, err);
    }
    s->p->available[value].n = 0;
    s->from = before;
    return status;
}

/* ---- all ops ---- */

static clv_status begin(clv_search_states *states, search *s, clv_error *err)
{
    clv_search_state first = {0};
    for (int v = 1; v < s->p->graph->n_values; v++) {
        const clv_value_info *info = &s->p->graph->values[v];
        if (info->source != CLV_FROM_OP && !is_free_input(s->p, v))
            CLV_TRY(make(s, v, &info->layout, err));
    }
    states->index.arena = s->arena;
    return clv_search_states_add(states, s->arena, s->p, s->last_use, -1, &first, err);
}

static clv_status extend_all(clv_search_states *states, search *s, int most, clv_error *err)
{
    const clv_op *op = &s->p->graph->ops[s->at];
    clv_status status = CLV_OK;
    s->next = (clv_search_states){.index.arena = s->arena};
    s->p->phase += op->backward != s->p->backward;
    s->p->backward = op->backward;
    s->p->update = op->update;
    for (int i = 0; status == CLV_OK && i < states->n; i++) {
        s->from = states->item[i];
        s->p->scratch = clv_arena_new();
        if (!s->p->scratch)
            return clv_fail_memory(err, "a search for layouts", 1);
        status = clv_search_state_load(s->p, s->from, err);
        if (status == CLV_OK)
            status = extend_from_operand(s, op, 0, err);
        clv_arena_free(s->p->scratch);
        s->p->scratch = s->scratch;
    }
    *states = s->next;
    clv_search_states_keep(states, most, s->p->options->by_bytes, &s->dropped);
    return status;
}

/* Adds the cost of outputs and assigned state to a state of the end. */
static clv_status add_ends(clv_search_state *state, search *s, clv_error *err)
{
    const clv_graph *graph = s->p->graph;
    int sharded;
    CLV_TRY(clv_search_state_load(s->p, state, err));
    s->p->backward = s->p->update = false;
    for (int o = 0; o < graph->n_outputs; o++) {
        const clv_graph_output *output = &graph->outputs[o];
        if (s->p->available[output->value].n == 0) /* an input that nothing reads */
            continue;
        const clv_layout made = clv_layout_without_partial(clv_partition_made_layout(s->p, output->value));
        CLV_TRY(reshard(&sharded, state, s, output->value, output->stated ? &output->layout : &made, err));
    }
    for (int v = 1; v < graph->n_values; v++)
        if (graph->values[v].assigned > 0 && s->p->available[graph->values[v].assigned].n > 0)
            CLV_TRY(reshard(&sharded, state, s, graph->values[v].assigned, &graph->values[v].layout, err));
    return CLV_OK;
}

static int count_live(const clv_partitioner *p)
{
    int n = 0;
    for (int o = 0; o < p->graph->n_ops; o++)
        n += p->live_op[o];
    return n;
}

/* The layout of an input that an op takes: a partial sum is made of it by a mask. */
static clv_status input_layout(const clv_layout **out, const search *s, const clv_layout *taken, clv_error *err)
{
    const clv_layout whole = clv_layout_without_partial(taken);
    *out = clv_layout_is_partial(taken) ? clv_arena_copy(s->arena, &whole, sizeof whole) : taken;
    return *out ? CLV_OK : clv_fail_memory(err, "layouts", sizeof whole);
}

/* The decisions on the way to the state. */
static clv_status write_result(clv_found_layouts *out, const search *s, const clv_search_state *best, clv_error *err)
{
    const clv_graph *graph = s->p->graph;
    out->strategy = clv_arena_alloc(s->arena, (size_t)graph->n_ops + 1, sizeof *out->strategy);
    out->input = clv_arena_alloc(s->arena, (size_t)graph->n_values + 1, sizeof *out->input);
    if (!out->strategy || !out->input)
        return clv_fail_memory(err, "layouts", (size_t)graph->n_values * sizeof *out->input);
    out->found = true;
    out->seconds = best->seconds;
    out->bytes = best->bytes;
    int o = graph->n_ops - 1;
    for (; best && best->before; best = best->before) {
        if (best->decision.input > 0) {
            out->input[best->decision.input] = best->decision.layout;
            continue;
        }
        while (!s->p->live_op[o])
            o--;
        const clv_op *op = &graph->ops[o--];
        out->strategy[op->id] = best->decision.strategy;
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] > 0 && is_free_input(s->p, op->in[i]) && s->n_reads[op->in[i]] == 1 &&
                !s->p->available[op->in[i]].is_output)
                CLV_TRY(input_layout(
                    &out->input[op->in[i]], s,
                    best->decision.strategy ? &best->decision.strategy->in[i] : clv_op_constraint_of(op), err));
    }
    return CLV_OK;
}

clv_status clv_layout_search_run(clv_found_layouts *out, clv_partitioner *p, double limit_seconds, double limit_bytes,
                                 int most_states, clv_error *err)
{
    search s = {.p = p, .scratch = p->scratch, .arena = p->scratch, .interned.arena = p->scratch};
    clv_search_states states = {0};
    const int live = count_live(p), some = STATES_X_OPS / (live > 0 ? live : 1);
    const int most = most_states > 0   ? most_states
                     : live <= FEW_OPS ? ALL_STATES
                                       : (some > LEAST_STATES ? some : LEAST_STATES);
    *out = (clv_found_layouts){0};
    s.limit = (clv_search_state){.seconds = limit_seconds, .bytes = limit_bytes};
    CLV_TRY(count_uses(&s, err));
    CLV_TRY(begin(&states, &s, err));
    for (s.at = 0; s.at < p->graph->n_ops && states.n > 0; s.at++)
        if (p->live_op[s.at])
            CLV_TRY(extend_all(&states, &s, most, err));
    const clv_search_state *best = NULL;
    for (int i = 0; i < states.n; i++) {
        CLV_TRY(add_ends(states.item[i], &s, err));
        if (!costs_too_much(&s, states.item[i]) &&
            (!best || clv_search_state_compare(states.item[i], best, p->options->by_bytes) < 0))
            best = states.item[i];
    }
    out->exact = !s.dropped && !s.approximate;
    return best ? write_result(out, &s, best, err) : CLV_OK;
}
