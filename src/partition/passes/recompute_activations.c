/* recompute_activations.c - pass: activation checkpointing, full or selective, block by block (Chen et al. 2016,
 * arXiv:1604.06174; selective: Korthikanti et al. 2022, arXiv:2205.05198).
 *
 * In: the table. Out: the table with rows of the forward pass repeated in the backward pass, with the same strategies
 * and steps in the same order, on new sharded values; results are equal bit for bit. A row is repeated once, together
 * with the rows that it needs, before the first row of the backward pass that reads its result. Rows whose results the
 * backward pass does not read, such as a block's last matmul and its collective, are not repeated.
 *
 *   full        recomputes everything that is used only inside a block. Values that are read outside (its result, the
 *               next block's input) are kept, and so are gathered weights unless `reshard_after_forward`, with which
 *               the backward pass gathers them anyway
 *   selective   recomputes results of ops that are neither matmuls nor sums nor collectives (elementwise, norms,
 *               softmax, reshapes) if all their operands are kept or recomputed anyway: memory never grows
 */
#include <string.h>

#include "base/error.h"
#include "partition/passes/passes.h"

static const char *const names[] = {
    [CLV_RECOMPUTE_NONE] = "none", [CLV_RECOMPUTE_SELECTIVE] = "selective", [CLV_RECOMPUTE_FULL] = "full"};
enum { MODES = sizeof names / sizeof names[0] };

const char *clv_recompute_name(clv_recompute recompute)
{
    return (unsigned)recompute < MODES ? names[recompute] : "unknown";
}

clv_status clv_recompute_parse(clv_recompute *out, const char *name, clv_error *err)
{
    CLV_TRY(clv_require(out && name, __func__, "out and a name", err));
    for (int i = 0; i < MODES; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (clv_recompute)i;
            return CLV_OK;
        }
    return clv_fail(err, CLV_EINVAL, "recompute '%.64s'; valid: none, selective, full", name);
}

/* State of a sharded value; all but `now` of roots only. */
typedef struct value_state {
    int producer;   /* the row that makes it; -1: a graph input */
    bool recompute; /* it is recomputed if the backward pass reads it */
    bool read;      /* the backward pass reads it */
    bool needed;    /* by the recomputation in progress */
    int now;        /* the sharded value that holds it now: itself until it is recomputed */
} value_state;

typedef struct recompute_pass {
    clv_sharding_table *table;
    bool reshard_after_forward;
    int n_rows, n_sharded;        /* before the pass */
    const clv_sharding_row *rows; /* before the pass */
    bool *done;                   /* [n_rows] rows of the backward pass that were moved forward */
    value_state *at;              /* [n_sharded] */
    int *first;                   /* [n_rows] first row of the row's block */
} recompute_pass;

static int root_of(const recompute_pass *m, int sharded)
{
    return clv_sharding_table_root(m->table, sharded);
}

/* ---- which values to recompute ---- */

/* Whether it is an input or state, in any layout. */
static bool is_graph_input(const recompute_pass *m, int sharded, clv_value_source *source)
{
    const clv_graph *graph = m->table->graph;
    *source = graph->values[clv_graph_unconstrained(graph, (clv_value){m->table->sharded[sharded].value}).id].source;
    return *source != CLV_FROM_OP;
}

/* Whether the results of the row may be recomputed; gathered weights are kept unless `reshard_after_forward`. */
static bool is_of_block(const recompute_pass *m, const clv_sharding_row *row)
{
    clv_value_source source;
    return row->block > 0 && !row->backward &&
           (row->op || !is_graph_input(m, row->to, &source) || (source == CLV_FROM_STATE && m->reshard_after_forward));
}

static void find_producers(recompute_pass *m)
{
    for (int p = 0; p < m->n_sharded; p++)
        m->at[p] = (value_state){.producer = -1, .now = p};
    for (int r = 0, begin = 0; r < m->n_rows; r++) {
        int n;
        const int *out = clv_sharding_row_makes(&n, &m->rows[r]);
        begin = r > 0 && m->rows[r].block == m->rows[r - 1].block ? begin : r;
        m->first[r] = begin;
        for (int o = 0; o < n; o++)
            m->at[out[o]] = (value_state){.producer = r, .recompute = is_of_block(m, &m->rows[r]), .now = out[o]};
    }
}

/* Values that are read outside of their block, or are outputs or new state, are kept. */
static void mark_values_read_outside_block(recompute_pass *m)
{
    const clv_sharding_table *table = m->table;
    for (int r = 0; r < m->n_rows; r++) {
        int n;
        const int *in = clv_sharding_row_reads(&n, &m->rows[r]);
        for (int i = 0; i < n; i++) {
            value_state *at = in[i] >= 0 ? &m->at[root_of(m, in[i])] : NULL;
            if (at && m->rows[r].backward)
                at->read = true;
            else if (at && at->producer >= 0 && m->rows[r].block != m->rows[at->producer].block)
                at->recompute = false;
        }
    }
    for (int o = 0; o < table->graph->n_outputs; o++)
        m->at[root_of(m, table->output[o])].recompute = false;
    for (int v = 1; v < table->graph->n_values; v++)
        if (table->update[v].state >= 0)
            m->at[root_of(m, table->update[v].becomes)].recompute = false;
}

/* Elementwise ops, ops along rows, reshapes: no matmuls, sums or collectives. */
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

static bool is_available_in_backward(const recompute_pass *m, int sharded)
{
    clv_value_source source;
    const value_state *at = &m->at[root_of(m, sharded)];
    return at->recompute || at->read || is_graph_input(m, sharded, &source);
}

static void mark_expensive_rows(recompute_pass *m)
{
    for (int r = 0; r < m->n_rows; r++) {
        int n_in, n_out;
        const int *in = clv_sharding_row_reads(&n_in, &m->rows[r]), *out = clv_sharding_row_makes(&n_out, &m->rows[r]);
        bool cheap = is_of_block(m, &m->rows[r]) && is_cheap(m, &m->rows[r]);
        for (int i = 0; cheap && i < n_in; i++)
            cheap = in[i] < 0 || is_available_in_backward(m, in[i]);
        for (int o = 0; o < n_out; o++)
            m->at[out[o]].recompute &= cheap;
    }
}

/* ---- repeating rows ---- */

static clv_status add_copy(int *out, recompute_pass *m, int like, int alias_of, clv_error *err)
{
    clv_sharded_value sharded = m->table->sharded[like];
    sharded.alias_of = alias_of;
    return clv_sharding_table_add_value(out, m->table, &sharded, err);
}

/* Replaces *sharded, which a row of the backward pass reads, by the sharded value that holds it now. */
static clv_status replace_by_recomputed(int *sharded, recompute_pass *m, clv_error *err)
{
    if (*sharded < 0 || *sharded >= m->n_sharded)
        return CLV_OK;
    int root = root_of(m, *sharded), now = m->at[root].now;
    value_state *seen = &m->at[*sharded];
    if (now != root && seen->now == *sharded)
        CLV_TRY(add_copy(&seen->now, m, *sharded, now, err));
    *sharded = seen->now;
    return CLV_OK;
}

static clv_status add_row(recompute_pass *m, clv_sharding_row row, clv_error *err)
{
    for (int i = 0; row.op && i < row.op->n_in; i++)
        CLV_TRY(replace_by_recomputed(&row.in[i], m, err));
    if (!row.op)
        CLV_TRY(replace_by_recomputed(&row.from, m, err));
    return clv_sharding_table_add_row(m->table, &row, err);
}

/* The row of this backward pass, at `from` or later, that gathers the same weight, or takes the same next step of a
 * gather in several; -1: none. */
static int same_gather(const recompute_pass *m, const clv_sharding_row *row, int from)
{
    clv_value_source source;
    bool weight = !row->op && is_graph_input(m, row->from, &source);
    int now = weight ? m->at[row->from].now : -1;
    for (int r = from; weight && r < m->n_rows && m->rows[r].backward; r++)
        if (!m->rows[r].op && m->rows[r].from == now && !m->done[r] &&
            clv_layout_equal(&m->rows[r].step->to, &row->step->to))
            return r;
    return -1;
}

/* Repeats row r before row `at` of the backward pass. */
static clv_status repeat(recompute_pass *m, int r, int at, clv_error *err)
{
    clv_sharding_row row = m->rows[r];
    int gather = same_gather(m, &row, at);
    row.backward = row.recomputed = true;
    if (gather >= 0) {
        m->done[gather] = true;
        m->at[row.to].now = m->rows[gather].to;
        return clv_sharding_table_add_row(m->table, &m->rows[gather], err);
    }
    for (int o = 0; row.op && o < row.op->n_out; o++)
        CLV_TRY(add_copy(&row.out[o], m, m->rows[r].out[o], -1, err));
    if (!row.op)
        CLV_TRY(add_copy(&row.to, m, m->rows[r].to, -1, err));
    CLV_TRY(add_row(m, row, err));
    int n;
    const int *old_values = clv_sharding_row_makes(&n, &m->rows[r]), *new_values = clv_sharding_row_makes(&n, &row);
    for (int o = 0; o < n; o++)
        m->at[old_values[o]].now = m->at[old_values[o]].recompute ? new_values[o] : old_values[o];
    return CLV_OK;
}

/* Whether the value must still be recomputed before it is read. */
static bool is_missing(const recompute_pass *m, int sharded)
{
    const value_state *at = &m->at[sharded];
    return at->recompute && at->now == sharded;
}

static void mark_operands_needed(recompute_pass *m, const clv_sharding_row *row)
{
    int n;
    const int *in = clv_sharding_row_reads(&n, row);
    for (int i = 0; i < n; i++)
        if (in[i] >= 0 && is_missing(m, root_of(m, in[i])))
            m->at[root_of(m, in[i])].needed = true;
}

static bool is_needed(const recompute_pass *m, const clv_sharding_row *row)
{
    int n;
    bool needed = false;
    const int *out = clv_sharding_row_makes(&n, row);
    for (int o = 0; o < n; o++)
        needed = needed || m->at[out[o]].needed;
    return needed;
}

/* Recomputes a root, and the values of its block that this needs, before row `at` of the backward pass. */
static clv_status recompute_value(recompute_pass *m, int root, int at, clv_error *err)
{
    int last = m->at[root].producer, first = m->first[last], n;
    m->at[root].needed = true;
    for (int r = last; r >= first; r--)
        if (is_needed(m, &m->rows[r]))
            mark_operands_needed(m, &m->rows[r]);
    for (int r = first; r <= last; r++)
        if (is_needed(m, &m->rows[r])) {
            CLV_TRY(repeat(m, r, at, err));
            const int *out = clv_sharding_row_makes(&n, &m->rows[r]);
            for (int o = 0; o < n; o++)
                m->at[out[o]].needed = false;
        }
    return CLV_OK;
}

static clv_status append_row_and_recompute(recompute_pass *m, int r, clv_error *err)
{
    int n;
    const int *in = clv_sharding_row_reads(&n, &m->rows[r]);
    for (int i = 0; m->rows[r].backward && i < n; i++)
        if (in[i] >= 0 && is_missing(m, root_of(m, in[i])))
            CLV_TRY(recompute_value(m, root_of(m, in[i]), r, err));
    return m->rows[r].backward ? add_row(m, m->rows[r], err) : clv_sharding_table_add_row(m->table, &m->rows[r], err);
}

clv_status clv_recompute_activations(clv_sharding_table *table, clv_recompute mode, bool reshard_after_forward,
                                     clv_error *err)
{
    size_t rows = (size_t)table->n_rows + 1, sharded = (size_t)table->n_sharded + 1;
    recompute_pass m = {.table = table,
                        .reshard_after_forward = reshard_after_forward && mode == CLV_RECOMPUTE_FULL,
                        .n_rows = table->n_rows,
                        .n_sharded = table->n_sharded,
                        .rows = table->rows,
                        .done = clv_arena_alloc(table->arena, rows, sizeof *m.done),
                        .at = clv_arena_alloc(table->arena, sharded, sizeof *m.at),
                        .first = clv_arena_alloc(table->arena, rows, sizeof *m.first)};
    if (mode == CLV_RECOMPUTE_NONE)
        return CLV_OK;
    if (!m.done || !m.at || !m.first)
        return clv_fail_memory(err, "recomputed rows", sharded * sizeof *m.at);
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
