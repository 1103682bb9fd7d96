/* early.c - steps that make gradients smaller, as soon as there are any.
 *
 * Updates ask for gradients in the layout of the moments, or of the parameter, and begin behind the whole backward
 * pass, as the norm of all gradients comes first. Reduced only there, the gradients of all layers, each as large as the
 * weight that a product reads, would be there at once. Reduced where they are made it is those of one layer, and a
 * rank's share of the others (ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054). The same steps of the same values: not
 * a bit is another.
 */
#include "partition/early.h"

#include "base/error.h"

enum { NONE = -1 };

typedef struct mover {
    clv_assignment *table;
    const clv_row *rows; /* as they were */
    int *touched;        /* [n_places] of a place that sees no other: the row that made or read it last */
    int *first, *last;   /* [n_rows] the rows that go behind it, in order */
    int *next;           /* [n_rows] of those behind the same row */
} mover;

static int *make_list(const clv_assignment *table, int n)
{
    int *list = clv_arena_alloc(table->arena, (size_t)n + 1, sizeof *list);
    for (int i = 0; list && i <= n; i++)
        list[i] = NONE;
    return list;
}

static void touch(const mover *m, const int *places, int n, int row)
{
    for (int i = 0; i < n; i++) {
        int same = places[i] < 0 ? NONE : m->table->places[places[i]].same_as;
        if (places[i] >= 0)
            m->touched[same >= 0 ? same : places[i]] = row;
    }
}

/* Behind which row a step goes; NONE: it stays. */
static int goes_behind(const mover *m, const clv_row *row)
{
    const clv_place *from = row->op ? NULL : &m->table->places[row->from];
    if (!from || !from->gradient)
        return NONE;
    const int64_t *shape = m->table->graph->values[row->value].type.shape;
    bool less = clv_layout_max_elems(&row->step->to, shape) < clv_layout_max_elems(&row->step->from, shape);
    return less ? m->touched[from->same_as >= 0 ? from->same_as : row->from] : NONE;
}

static void put_behind(mover *m, int at, int row)
{
    if (m->last[at] == NONE)
        m->first[at] = row;
    else
        m->next[m->last[at]] = row;
    m->last[at] = row;
}

static clv_status add(mover *m, int row, clv_error *err)
{
    CLV_TRY(clv_assignment_add_row(m->table, &m->rows[row], err));
    for (int r = m->first[row]; r != NONE; r = m->next[r])
        CLV_TRY(add(m, r, err));
    return CLV_OK;
}

clv_status clv_assignment_reduce_early(clv_assignment *table, clv_error *err)
{
    int n = table->n_rows;
    mover m = {.table = table,
               .rows = table->rows,
               .touched = make_list(table, table->n_places),
               .first = make_list(table, n),
               .last = make_list(table, n),
               .next = make_list(table, n)};
    bool *moved = clv_arena_alloc(table->arena, (size_t)n + 1, sizeof *moved), any = false;
    if (!m.touched || !m.first || !m.last || !m.next || !moved)
        return clv_fail_memory(err, "where gradients are reduced", (size_t)n * sizeof *m.next);
    for (int r = 0; r < n; r++) {
        const clv_row *row = &m.rows[r];
        int at = goes_behind(&m, row);
        moved[r] = at != NONE;
        any = any || moved[r];
        if (moved[r])
            put_behind(&m, at, r);
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
