/* fuse_accumulation.c - fuses an addition into the op that makes its operand, which then accumulates in place.
 *
 * In: the rows of the table. Out: fused_with, and the fused rows. So the gradient of an embedding is added to that of
 * the tied output in place, without a table of zeros and a pass over both.
 */
#include "base/error.h"
#include "partition/lowering/program_builder.h"

enum { NONE = -1, MANY = -2 };

/* Notes that row reads a sharded value; reader: the one row that does, NONE, or MANY (also for other readers). */
static void note_reader(const clv_sharding_table *table, int *reader, int sharded, int row)
{
    int same = sharded < 0 ? NONE : table->sharded[sharded].alias_of;
    if (sharded >= 0)
        reader[sharded] = reader[sharded] == NONE ? row : MANY;
    if (same >= 0)
        reader[same] = reader[sharded] = MANY;
}

static void find_readers(const clv_sharding_table *table, int *reader)
{
    for (int p = 0; p < table->n_sharded; p++)
        reader[p] = NONE;
    for (int r = 0; r < table->n_rows; r++) {
        const clv_sharding_row *row = &table->rows[r];
        for (int i = 0; row->op && i < row->op->n_in; i++)
            note_reader(table, reader, row->in[i], r);
        if (!row->op)
            note_reader(table, reader, row->from, MANY);
    }
    for (int p = 0; p < table->n_sharded; p++)
        if (table->sharded[p].alias_of >= 0)
            note_reader(table, reader, p, MANY);
    for (int o = 0; o < table->graph->n_outputs; o++)
        note_reader(table, reader, table->output[o], MANY);
    for (int v = 1; v < table->graph->n_values; v++)
        if (table->update[v].state >= 0)
            note_reader(table, reader, table->update[v].becomes, MANY);
}

static bool are_alike(const clv_sharding_table *table, int a, int b)
{
    const clv_sharded_value *x = &table->sharded[a], *y = &table->sharded[b];
    return clv_type_equal(&table->graph->values[x->value].type, &table->graph->values[y->value].type) &&
           clv_layout_equal(x->layout, y->layout);
}

/* Whether row s is an addition that may be fused with the row, and the only reader of its result. */
static bool is_addend(const clv_sharding_table *table, const clv_sharding_row *row, int s)
{
    const clv_sharding_row *sum = s >= 0 ? &table->rows[s] : NULL;
    return sum && clv_op_is_sum(sum->op) && sum->in[0] != sum->in[1] && sum->recomputed == row->recomputed &&
           are_alike(table, sum->in[0], sum->out[0]) && are_alike(table, sum->in[1], sum->out[0]);
}

clv_status clv_fuse_accumulation_find(clv_program_builder *l, clv_error *err)
{
    const clv_sharding_table *table = l->table;
    int *reader = clv_arena_alloc(table->arena, (size_t)table->n_sharded + 1, sizeof *reader);
    l->fused_with = clv_arena_alloc(table->arena, (size_t)table->n_rows + 1, sizeof *l->fused_with);
    if (!reader || !l->fused_with)
        return clv_fail_memory(err, "sums", (size_t)table->n_sharded * sizeof *reader);
    find_readers(table, reader);
    for (int r = 0; r < table->n_rows; r++)
        l->fused_with[r] = NONE;
    for (int r = 0; r < table->n_rows; r++) {
        const clv_sharding_row *row = &table->rows[r];
        int s = row->op && row->op->n_out == 1 && clv_op_accumulate_operand(row->op) >= 0 ? reader[row->out[0]] : NONE;
        if (is_addend(table, row, s) && l->fused_with[s] == NONE) {
            l->fused_with[s] = r;
            l->fused_with[r] = s;
        }
    }
    return CLV_OK;
}

clv_status clv_fuse_accumulation_join(clv_sharding_row *out, const clv_program_builder *l, int s, clv_error *err)
{
    const clv_sharding_table *table = l->table;
    const clv_sharding_row *sum = &table->rows[s], *row = &table->rows[l->fused_with[s]];
    const int to = clv_op_accumulate_operand(row->op), other = sum->in[0] == row->out[0] ? sum->in[1] : sum->in[0];
    clv_op *op = clv_arena_copy(table->arena, row->op, sizeof *op);
    clv_strategy *strategy = clv_arena_copy(table->arena, row->strategy, sizeof *strategy);
    if (!op || !strategy)
        return clv_fail_memory(err, "a sum", sizeof *strategy);
    for (int i = op->n_in; i < to; i++)
        op->in[i] = 0;
    op->n_in = to + 1;
    op->in[to] = table->sharded[other].value;
    op->out[0] = sum->op->out[0];
    strategy->in[to] = *table->sharded[other].layout;
    *out = *row;
    for (int i = row->op->n_in; i < to; i++)
        out->in[i] = NONE;
    out->op = op;
    out->strategy = strategy;
    out->in[to] = other;
    out->out[0] = sum->out[0];
    return CLV_OK;
}
