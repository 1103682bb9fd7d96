/* reduce_gradients_early.c - pass: moves gradient reductions to right after the op that makes the gradient (ZeRO).
 *
 * In: the table, whose updates reshard gradients to the layout of the moments or the parameter after the whole backward
 * pass, because the norm of all gradients comes first. There the full gradients of all layers would be live at once.
 * Out: the same rows, with each reduction, or other step to that layout, right after the row that last made or read its
 * operand, and each addition to the gradient of earlier microbatches right after its operands. So only one layer's full
 * gradients are live, and a rank's shards of the others (ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054). Results are
 * equal bit for bit.
 */
#include "base/error.h"
#include "partition/passes/passes.h"

enum { NONE = -1 };

typedef struct early_reduction_pass {
    clv_sharding_table *table;
    const clv_sharding_row *rows; /* before the pass */
    int *touched;                 /* [n_sharded] of a root: the last row that made or read it */
    int *maker;                   /* [n_sharded] of a root: the row that made it */
    int *first, *last;            /* [n_rows] the rows to place after it, in order */
    int *next;                    /* [n_rows] of these, the next one after the same row */
    int *place;                   /* [n_rows] the row that stays and that it comes after; itself if it is not moved */
} early_reduction_pass;

static int *make_list(const clv_sharding_table *table, int n)
{
    int *list = clv_arena_alloc(table->arena, (size_t)n + 1, sizeof *list);
    for (int i = 0; list && i <= n; i++)
        list[i] = NONE;
    return list;
}

static void touch(const early_reduction_pass *m, const int *sharded, int n, int row)
{
    for (int i = 0; i < n; i++)
        if (sharded[i] >= 0)
            m->touched[clv_sharding_table_root(m->table, sharded[i])] = row;
}

/* The row that makes operand i of an op; NONE: there is none. */
static int maker_of(const early_reduction_pass *m, const clv_sharding_row *row, int i)
{
    return row->in[i] >= 0 ? m->maker[clv_sharding_table_root(m->table, row->in[i])] : NONE;
}

/* The row to place an op after that makes a gradient of gradients: the one that makes its last operand. NONE: it is not
 * moved. */
static int may_accumulate_after(const early_reduction_pass *m, const clv_sharding_row *row)
{
    int after = NONE;
    bool moves = row->backward && row->op->n_out == 1 && m->table->sharded[row->out[0]].is_gradient;
    for (int i = 0; moves && i < row->op->n_in; i++) {
        int r = maker_of(m, row, i);
        moves = row->in[i] < 0 || m->table->sharded[row->in[i]].is_gradient;
        if (r != NONE &&
            (after == NONE || m->place[r] > m->place[after] || (m->place[r] == m->place[after] && m->place[r] != r)))
            after = r;
    }
    for (int i = 0; moves && after != NONE && i < row->op->n_in; i++) {
        int r = maker_of(m, row, i);
        moves = r == NONE || r == after || r == m->place[after] || m->place[r] < m->place[after];
    }
    return moves ? after : NONE;
}

/* The row to place a row after; NONE: it is not moved. */
static int may_move_after(const early_reduction_pass *m, const clv_sharding_row *row)
{
    if (row->op)
        return may_accumulate_after(m, row);
    const clv_sharded_value *from = &m->table->sharded[row->from];
    if (!from->is_gradient)
        return NONE;
    const int64_t *shape = m->table->graph->values[row->value].type.shape;
    int64_t before = clv_layout_max_elems(&row->step->from, shape), after = clv_layout_max_elems(&row->step->to, shape);
    bool moves = after < before || (after == before && !clv_layout_is_partial(&row->step->from));
    return moves ? m->touched[clv_sharding_table_root(m->table, row->from)] : NONE;
}

static void move_after(early_reduction_pass *m, int at, int row)
{
    if (m->last[at] == NONE)
        m->first[at] = row;
    else
        m->next[m->last[at]] = row;
    m->last[at] = row;
}

static clv_status add(early_reduction_pass *m, int row, clv_error *err)
{
    CLV_TRY(clv_sharding_table_add_row(m->table, &m->rows[row], err));
    for (int r = m->first[row]; r != NONE; r = m->next[r])
        CLV_TRY(add(m, r, err));
    return CLV_OK;
}

clv_status clv_reduce_gradients_early(clv_sharding_table *table, clv_error *err)
{
    int n = table->n_rows;
    early_reduction_pass m = {.table = table,
                              .rows = table->rows,
                              .touched = make_list(table, table->n_sharded),
                              .maker = make_list(table, table->n_sharded),
                              .first = make_list(table, n),
                              .last = make_list(table, n),
                              .next = make_list(table, n),
                              .place = make_list(table, n)};
    bool any = false;
    if (!m.touched || !m.maker || !m.first || !m.last || !m.next || !m.place)
        return clv_fail_memory(err, "early reductions", (size_t)n * sizeof *m.next);
    for (int r = 0; r < n; r++) {
        const clv_sharding_row *row = &m.rows[r];
        int at = may_move_after(&m, row), n_in, n_out;
        const int *in = clv_sharding_row_reads(&n_in, row), *out = clv_sharding_row_makes(&n_out, row);
        any = any || at != NONE;
        m.place[r] = at != NONE ? m.place[at] : r;
        if (at != NONE)
            move_after(&m, at, r);
        touch(&m, in, n_in, r);
        touch(&m, out, n_out, r);
        for (int o = 0; o < n_out; o++)
            m.maker[out[o]] = r;
    }
    if (!any)
        return CLV_OK;
    table->rows = NULL;
    table->n_rows = table->row_capacity = 0;
    for (int r = 0; r < n; r++)
        if (m.place[r] == r)
            CLV_TRY(add(&m, r, err));
    return CLV_OK;
}
