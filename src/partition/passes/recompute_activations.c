/* recompute_activations.c - pass: activation checkpointing, full or selective, block by block. 2016,
 * arXiv:1604.06174; selective: Korthikanti et al. 2022, arXiv:2205.05198).
 *
 * A row of the forward pass is repeated as it was decided: its strategy, its steps and their order, on other places. So
 * results are equal bit for bit, and each rank repeats the same steps in the same order. A row is repeated when the
 * backward pass first reads what it makes, with those before it that it needs, and once. What of the block nobody reads
 * again is not repeated: of a block's last product, and of the collective behind it, there is nothing to make.
 *
 *   full        all that a block makes for itself. What is read outside of it (its result, which is the input of the
 *               next) is kept, and so are gathered weights, but with reshard_after_forward, where the backward pass
 *               gathers them anyway
 *   selective   results of ops that neither multiply nor sum nor talk (maps, norms, softmax, changes of shape), where
 *               all that they are made of is kept, or made again, anyway: so memory never grows
 */
#include "partition/passes/recompute_activations.h"

#include <string.h>

#include "base/error.h"

static const char *const names[] = {
    [CLV_RECOMPUTE_NONE] = "none", [CLV_RECOMPUTE_SELECTIVE] = "selective", [CLV_RECOMPUTE_FULL] = "full"};
enum { MODES = sizeof names / sizeof names[0] };

const char *clv_recompute_name(clv_recompute recompute)
{
    return (unsigned)recompute < MODES ? names[recompute] : "?";
}

clv_status clv_recompute_parse(clv_recompute *out, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && name, "clv_recompute_parse", "out and a name", err));
    for (int i = 0; i < MODES; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (clv_recompute)i;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EINVAL, "recompute '%.64s'; valid: none, selective, full", name);
}

/* Of a root, a place that sees no other. */
typedef struct place_state {
    int producer; /* the row that makes it; -1: it is given */
    bool again;   /* the backward pass makes it again, if it reads it */
    bool read;    /* by the backward pass */
    bool wanted;
    int now; /* where it is: its own number until it is made again. Of a place that sees another: that, likewise */
} place_state;

typedef struct recompute_pass {
    clv_sharding_table *table;
    bool reshard_after_forward;
    int n_rows, n_places;         /* as assigned */
    const clv_sharding_row *rows; /* as assigned */
    bool *done;                   /* [n_rows] of the backward pass: earlier than its turn */
    place_state *at;              /* [n_places] */
    int *first;                   /* [n_rows] of a row of a block: the block's first */
} recompute_pass;

static int root_of(const recompute_pass *m, int place)
{
    int same = m->table->places[place].alias_of;
    return same >= 0 ? same : place;
}

/* What a row reads: n places, of which some may be -1. */
static const int *reads(int *n, const clv_sharding_row *row)
{
    *n = row->op ? row->op->n_in : 1;
    return row->op ? row->in : &row->from;
}

static const int *makes(int *n, const clv_sharding_row *row)
{
    *n = row->op ? row->op->n_out : 1;
    return row->op ? row->out : &row->to;
}

/* ---- what is made again ---- */

/* A weight or an input, in whatever layout. */
static bool is_given(const recompute_pass *m, int place, clv_value_source *source)
{
    const clv_graph *graph = m->table->graph;
    *source = graph->values[clv_graph_unconstrained(graph, (clv_value){m->table->places[place].value}).id].source;
    return *source != CLV_FROM_OP;
}

/* Whether all that the block makes here is its own to make again: weights that were gathered for it are kept. */
static bool is_of_block(const recompute_pass *m, const clv_sharding_row *row)
{
    clv_value_source source;
    return row->block > 0 && !row->backward &&
           (row->op || !is_given(m, row->to, &source) || (source == CLV_FROM_STATE && m->reshard_after_forward));
}

static void find_producers(recompute_pass *m)
{
    for (int p = 0; p < m->n_places; p++)
        m->at[p] = (place_state){.producer = -1, .now = p};
    for (int r = 0, begin = 0; r < m->n_rows; r++) {
        int n;
        const int *out = makes(&n, &m->rows[r]);
        begin = r > 0 && m->rows[r].block == m->rows[r - 1].block ? begin : r;
        m->first[r] = begin;
        for (int o = 0; o < n; o++)
            m->at[out[o]] = (place_state){.producer = r, .again = is_of_block(m, &m->rows[r]), .now = out[o]};
    }
}

/* What leaves the block, or the program, is kept. */
static void mark_values_read_outside_block(recompute_pass *m)
{
    const clv_sharding_table *table = m->table;
    for (int r = 0; r < m->n_rows; r++) {
        int n;
        const int *in = reads(&n, &m->rows[r]);
        for (int i = 0; i < n; i++) {
            place_state *at = in[i] >= 0 ? &m->at[root_of(m, in[i])] : NULL;
            if (at && m->rows[r].backward)
                at->read = true;
            else if (at && at->producer >= 0 && m->rows[r].block != m->rows[at->producer].block)
                at->again = false;
        }
    }
    for (int o = 0; o < table->graph->n_outputs; o++)
        m->at[root_of(m, table->output[o])].again = false;
    for (int v = 1; v < table->graph->n_values; v++)
        if (table->update[v].state >= 0)
            m->at[root_of(m, table->update[v].place)].again = false;
}

/* Element by element, along rows, or another shape: neither products nor sums, nor anything that moves. */
static bool is_cheap(const recompute_pass *m, const clv_sharding_row *row)
{
    clv_strategy_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    if (!row->op)
        return !clv_step_moves(row->step->kind);
    if (row->op->def->counts_flops)
        return false;
    clv_strategy_problem_init(&problem, types, m->table->graph, row->op);
    for (int f = 0; f < problem.rule.n_factors; f++)
        if (problem.rule.factor[f].reduction != CLV_REDUCTION_NONE)
            return false;
    return true;
}

static bool is_available_in_backward(const recompute_pass *m, int place)
{
    clv_value_source source;
    const place_state *at = &m->at[root_of(m, place)];
    return at->again || at->read || is_given(m, place, &source);
}

static void mark_expensive_rows(recompute_pass *m)
{
    for (int r = 0; r < m->n_rows; r++) {
        int n_in, n_out;
        const int *in = reads(&n_in, &m->rows[r]), *out = makes(&n_out, &m->rows[r]);
        bool cheap = is_of_block(m, &m->rows[r]) && is_cheap(m, &m->rows[r]);
        for (int i = 0; cheap && i < n_in; i++)
            cheap = in[i] < 0 || is_available_in_backward(m, in[i]);
        for (int o = 0; o < n_out; o++)
            m->at[out[o]].again &= cheap;
    }
}

/* ---- making it ---- */

static clv_status add_place(int *out, recompute_pass *m, int like, int alias_of, clv_error *err)
{
    clv_sharded_value place = m->table->places[like];
    place.alias_of = alias_of;
    return clv_sharding_table_add_value(out, m->table, &place, err);
}

/* The place where a reader of the backward pass finds what it looks for in *place. */
static clv_status find(int *place, recompute_pass *m, clv_error *err)
{
    if (*place < 0 || *place >= m->n_places)
        return CLV_OK;
    int root = root_of(m, *place), now = m->at[root].now;
    place_state *seen = &m->at[*place];
    if (now != root && seen->now == *place)
        CLV_TRY(add_place(&seen->now, m, *place, now, err));
    *place = seen->now;
    return CLV_OK;
}

static clv_status add_row(recompute_pass *m, clv_sharding_row row, clv_error *err)
{
    for (int i = 0; row.op && i < row.op->n_in; i++)
        CLV_TRY(find(&row.in[i], m, err));
    if (!row.op)
        CLV_TRY(find(&row.from, m, err));
    return clv_sharding_table_add_row(m->table, &row, err);
}

/* The row of the backward pass, behind `from`, that gathers the same weight; -1: there is none. */
static int same_gather(const recompute_pass *m, const clv_sharding_row *row, int from)
{
    bool weight = !row->op && m->table->places[row->from].is_graph_input;
    for (int r = from; weight && r < m->n_rows; r++)
        if (!m->rows[r].op && m->rows[r].backward && m->rows[r].from == row->from && !m->done[r] &&
            clv_layout_equal(&m->rows[r].step->to, &row->step->to))
            return r;
    return -1;
}

/* Row r again. Row `at` of the backward pass is about to read what comes of it. */
static clv_status repeat(recompute_pass *m, int r, int at, clv_error *err)
{
    clv_sharding_row row = m->rows[r];
    int gather = same_gather(m, &row, at);
    row.backward = row.again = true;
    if (gather >= 0) {
        m->done[gather] = true;
        m->at[row.to].now = m->rows[gather].to;
        return clv_sharding_table_add_row(m->table, &m->rows[gather], err);
    }
    for (int o = 0; row.op && o < row.op->n_out; o++)
        CLV_TRY(add_place(&row.out[o], m, m->rows[r].out[o], -1, err));
    if (!row.op)
        CLV_TRY(add_place(&row.to, m, m->rows[r].to, -1, err));
    CLV_TRY(add_row(m, row, err));
    int n;
    const int *had = makes(&n, &m->rows[r]), *has = makes(&n, &row);
    for (int o = 0; o < n; o++)
        m->at[had[o]].now = m->at[had[o]].again ? has[o] : had[o];
    return CLV_OK;
}

static bool is_to_be_made(const recompute_pass *m, int place)
{
    const place_state *at = &m->at[place];
    return at->again && at->now == place;
}

static void want(recompute_pass *m, const clv_sharding_row *row)
{
    int n;
    const int *in = reads(&n, row);
    for (int i = 0; i < n; i++)
        if (in[i] >= 0 && is_to_be_made(m, root_of(m, in[i])))
            m->at[root_of(m, in[i])].wanted = true;
}

static bool is_wanted(const recompute_pass *m, const clv_sharding_row *row)
{
    int n;
    bool wanted = false;
    const int *out = makes(&n, row);
    for (int o = 0; o < n; o++)
        wanted = wanted || m->at[out[o]].wanted;
    return wanted;
}

static void serve(recompute_pass *m, const clv_sharding_row *row)
{
    int n;
    const int *out = makes(&n, row);
    for (int o = 0; o < n; o++)
        m->at[out[o]].wanted = false;
}

/* Makes a root again, for row `at` of the backward pass, with all of its block that it needs. */
static clv_status recompute_value(recompute_pass *m, int root, int at, clv_error *err)
{
    int last = m->at[root].producer, first = m->first[last];
    m->at[root].wanted = true;
    for (int r = last; r >= first; r--)
        if (is_wanted(m, &m->rows[r]))
            want(m, &m->rows[r]);
    for (int r = first; r <= last; r++)
        if (is_wanted(m, &m->rows[r])) {
            CLV_TRY(repeat(m, r, at, err));
            serve(m, &m->rows[r]);
        }
    return CLV_OK;
}

static clv_status append_row_and_recompute(recompute_pass *m, int r, clv_error *err)
{
    int n;
    const int *in = reads(&n, &m->rows[r]);
    for (int i = 0; m->rows[r].backward && i < n; i++)
        if (in[i] >= 0 && is_to_be_made(m, root_of(m, in[i])))
            CLV_TRY(recompute_value(m, root_of(m, in[i]), r, err));
    return m->rows[r].backward ? add_row(m, m->rows[r], err) : clv_sharding_table_add_row(m->table, &m->rows[r], err);
}

clv_status clv_recompute_activations(clv_sharding_table *table, clv_recompute mode, bool reshard_after_forward,
                                     clv_error *err)
{
    size_t rows = (size_t)table->n_rows + 1, places = (size_t)table->n_places + 1;
    recompute_pass m = {.table = table,
                        .reshard_after_forward = reshard_after_forward && mode == CLV_RECOMPUTE_FULL,
                        .n_rows = table->n_rows,
                        .n_places = table->n_places,
                        .rows = table->rows,
                        .done = clv_arena_alloc(table->arena, rows, sizeof *m.done),
                        .at = clv_arena_alloc(table->arena, places, sizeof *m.at),
                        .first = clv_arena_alloc(table->arena, rows, sizeof *m.first)};
    if (mode == CLV_RECOMPUTE_NONE)
        return CLV_OK;
    if (!m.done || !m.at || !m.first)
        return clv_fail_memory(err, "what is made again", places * sizeof *m.at);
    find_producers(&m);
    mark_values_read_outside_block(&m);
    if (mode == CLV_RECOMPUTE_SELECTIVE)
        mark_expensive_rows(&m);
    table->rows = NULL;
    table->n_rows = table->row_capacity = 0;
    for (int r = 0; r < m.n_rows; r++)
        if (!m.done[r])
            CLV_TRY(append_row_and_recompute(&m, r, err));
    return CLV_OK;
}
