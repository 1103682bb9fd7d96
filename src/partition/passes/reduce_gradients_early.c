/* reduce_gradients_early.c - pass: moves gradient reductions to right after the op that makes the gradient (ZeRO).
 *
 * Updates ask for gradients in the layout of the moments, or of the parameter, and begin behind the whole backward
 * pass, as the norm of all gradients comes first. Reduced only there, the gradients of all layers, each as large as the
 * weight that a product reads, would be there at once. Reduced where they are made it is those of one layer, and a
 * rank's share of the others (ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054). The same steps of the same values: not
 * a bit is another.
 */
#include "partition/passes/reduce_gradients_early.h"

#include "base/error.h"

enum { NONE = -1 };

typedef struct early_reduction_pass {
    clv_sharding_table *table;
    const clv_sharding_row *rows; /* as they were */
    int *touched;                 /* [n_places] of a place that sees no other: the row that made or read it last */
    int *first, *last;            /* [n_rows] the rows that go behind it, in order */
    int *next;                    /* [n_rows] of those behind the same row */
} early_reduction_pass;

static int *make_list(const clv_sharding_table *table, int n)
{
    int *list = clv_arena_alloc(table->arena, (size_t)n + 1, sizeof *list);
    for (int i = 0; list && i <= n; i++)
        list[i] = NONE;
    return list;
}

static void touch(const early_reduction_pass *m, const int *places, int n, int row)
{
    for (int i = 0; i < n; i++) {
        int same = places[i] < 0 ? NONE : m->table->sharded[places[i]].alias_of;
        if (places[i] >= 0)
            m->touched[same >= 0 ? same : places[i]] = row;
    }
}

/* Behind which row a step goes; NONE: it stays. */
static int may_move_after(const early_reduction_pass *m, const clv_sharding_row *row)
{
    const clv_sharded_value *from = row->op ? NULL : &m->table->sharded[row->from];
    if (!from || !from->is_gradient)
        return NONE;
    const int64_t *shape = m->table->graph->values[row->value].type.shape;
    bool less = clv_layout_max_elems(&row->step->to, shape) < clv_layout_max_elems(&row->step->from, shape);
    return less ? m->touched[from->alias_of >= 0 ? from->alias_of : row->from] : NONE;
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
                              .first = make_list(table, n),
                              .last = make_list(table, n),
                              .next = make_list(table, n)};
    bool *moved = clv_arena_alloc(table->arena, (size_t)n + 1, sizeof *moved), any = false;
    if (!m.touched || !m.first || !m.last || !m.next || !moved)
        return clv_fail_memory(err, "where gradients are reduced", (size_t)n * sizeof *m.next);
    for (int r = 0; r < n; r++) {
        const clv_sharding_row *row = &m.rows[r];
        int at = may_move_after(&m, row);
        moved[r] = at != NONE;
        any = any || moved[r];
        if (moved[r])
            move_after(&m, at, r);
        touch(&m, row->op ? row->in : &row->from, row->op ? row->op->n_in : 1, r);
        touch(&m, row->op ? row->out : &row->to, row->op ? row->op->n_out : 1, r);
    }
    if (!any)
        return CLV_OK;
    table->rows = NULL;
    table->n_rows = table->row_capacity = 0;
    for (int r = 0; r < n; r++)
        if (!moved[r])
            CLV_TRY(add(&m, r, err));
    return CLV_OK;
}
