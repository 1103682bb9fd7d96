/* sharding_table.c - the sharded graph as rows of ops and collectives: constructors and printing. */
#include "partition/sharding_table.h"

#include "base/error.h"

const char *clv_reshard_need_name(clv_reshard_need need)
{
    static const char *const names[] = {
        [CLV_NEEDED_BY_OP] = "operand",        [CLV_NEEDED_BY_CONSTRAINT] = "constraint",
        [CLV_NEEDED_BY_GRADIENT] = "gradient", [CLV_NEEDED_BY_OUTPUT] = "output",
        [CLV_NEEDED_BY_STATE] = "state",       [CLV_NEEDED_AS_COPY] = "copy"};
    return names[need];
}

clv_status clv_sharding_table_init(clv_sharding_table *out, clv_arena *arena, const clv_graph *graph, clv_error *err)
{
    *out = (clv_sharding_table){.arena = arena,
                                .graph = graph,
                                .output = clv_arena_alloc(arena, (size_t)graph->n_outputs + 1, sizeof *out->output),
                                .update = clv_arena_alloc(arena, (size_t)graph->n_values + 1, sizeof *out->update)};
    if (!out->output || !out->update)
        return clv_fail_memory(err, "a sharding table", (size_t)graph->n_values * sizeof *out->update);
    for (int v = 0; v < graph->n_values; v++)
        out->update[v].state = -1;
    return CLV_OK;
}

clv_status clv_sharding_table_add_value(int *out, clv_sharding_table *table, const clv_sharded_value *sharded,
                                        clv_error *err)
{
    if (clv_arena_grow(table->arena, &table->sharded, &table->sharded_capacity, table->n_sharded, sizeof *sharded) != 0)
        return clv_fail_memory(err, "a sharded value", sizeof *sharded);
    table->sharded[table->n_sharded] = *sharded;
    *out = table->n_sharded++;
    return CLV_OK;
}

clv_status clv_sharding_table_add_row(clv_sharding_table *table, const clv_sharding_row *row, clv_error *err)
{
    if (clv_arena_grow(table->arena, &table->rows, &table->row_capacity, table->n_rows, sizeof *row) != 0)
        return clv_fail_memory(err, "a row of the sharding table", sizeof *row);
    table->rows[table->n_rows++] = *row;
    return CLV_OK;
}

bool clv_sharding_table_is_state(const clv_sharding_table *table, int sharded)
{
    const clv_sharded_value *at = &table->sharded[clv_sharding_table_root(table, sharded)];
    return at->is_graph_input && table->graph->values[at->value].source == CLV_FROM_STATE;
}

/* ---- as text ---- */

static void put_layout(clv_text *t, const clv_sharding_table *table, int sharded)
{
    char layout[CLV_LAYOUT_TEXT];
    clv_layout_print(layout, sizeof layout, table->sharded[sharded].layout, &table->graph->mesh);
    clv_text_add(t, "%%%d {%s}", sharded, layout);
}

static void put_op(clv_text *t, const clv_sharding_table *table, const clv_sharding_row *row)
{
    char split[1024];
    for (int o = 0; o < row->op->n_out; o++) {
        clv_text_add(t, "%s", o > 0 ? ", " : "");
        put_layout(t, table, row->out[o]);
    }
    clv_text_add(t, " = %s(", row->op->name);
    for (int i = 0; i < row->op->n_in; i++) {
        clv_text_add(t, "%s", i > 0 ? ", " : "");
        if (row->in[i] >= 0)
            clv_text_add(t, "%%%d", row->in[i]);
        else
            clv_text_add(t, "_");
    }
    clv_strategy_print(split, sizeof split, row->strategy, &table->graph->mesh);
    clv_text_add(t, "): %s%s\n", split, row->recomputed ? ", recomputed" : "");
}

static void put_step(clv_text *t, const clv_sharding_table *table, const clv_sharding_row *row)
{
    put_layout(t, table, row->to);
    clv_text_add(t, " = %s(%%%d", clv_step_name(row->step->kind), row->from);
    for (int a = 0; a < row->step->n_axes; a++) {
        clv_text_add(t, "%s", a > 0 ? ", " : " over ");
        clv_text_add_subaxis(t, row->step->axes[a], &table->graph->mesh);
    }
    clv_text_add(t, ")");
    if (row->wire_dtype != CLV_COMM_F32)
        clv_text_add(t, " as %s", clv_comm_dtype_name(row->wire_dtype));
    clv_text_add(t, " for %s%s\n", row->explanation.by, row->recomputed ? ", recomputed" : "");
}

size_t clv_sharding_table_print(char *out, size_t size, const clv_sharding_table *table)
{
    clv_text t = {.out = out, .size = size};
    for (int p = 0; p < table->n_sharded; p++) {
        if (!table->sharded[p].is_graph_input)
            continue;
        put_layout(&t, table, p);
        clv_text_add(&t, ": %s\n", table->graph->values[table->sharded[p].value].name);
    }
    for (int r = 0; r < table->n_rows; r++)
        if (table->rows[r].op)
            put_op(&t, table, &table->rows[r]);
        else
            put_step(&t, table, &table->rows[r]);
    for (int o = 0; o < table->graph->n_outputs; o++)
        clv_text_add(&t, "output %s: %%%d\n", table->graph->outputs[o].name, table->output[o]);
    for (int v = 1; v < table->graph->n_values; v++)
        if (table->update[v].state >= 0)
            clv_text_add(&t, "state %s: %%%d\n", table->graph->values[v].name, table->update[v].becomes);
    return (size_t)clv_text_finish(&t);
}
