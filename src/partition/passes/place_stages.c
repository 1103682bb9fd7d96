/* place_stages.c - pass: gives each row and each sharded value its pipeline stages, and inserts the sends between them.
 *
 * In: the table of one stage's ranks, and the stages that ops state (clv_graph_set_stage). Out: the same rows, each
 * with the stages whose ranks run it; layouts with the stages that hold the value; a `send` right after the row that
 * makes what another stage reads, one for all stages that read it.
 *
 * Which stages run a row:
 *   - an op with a stage: that one, unless it computes from inputs alone
 *   - what is computed from inputs alone, or reads state, or gathers: those that read the result. So positions are made
 *     where they are used, a weight is gathered there, and a parameter on two stages (tied embeddings) is updated on
 *     both, by the one sum of its gradients
 *   - a sum of gradients of a parameter on two stages: the first of them, where the backward pass ends. Elsewhere the
 *     gradient of each microbatch would wait for that of the one before to come back
 *   - other rows: the stage of the largest operand, of equals the last. So a sum over all stages, such as the norm of
 *     gradients, goes once from stage to stage
 * State is on the stages that read it. Scalar outputs are made on every stage, as every process returns them.
 *
 * Rows stay in one order for all stages, and each stage runs a part of them in this order; a send is one row of the
 * stages at both ends. So the first row that has not ended can always run: no order deadlocks.
 */
#include "base/error.h"
#include "cleave/text.h"
#include "partition/passes/passes.h"
#include "tensor/parse_print.h"

enum {
    READERS = -1, /* the place of a row that runs on the stages that read its results */
    OUTPUT = -1,  /* the reader of a value that is returned */
    STATE = -2    /* or assigned to state */
};

/* What a value is computed from. */
typedef enum origin {
    FROM_INPUTS, /* inputs and constants alone */
    FROM_STATE,  /* state and inputs */
    FROM_STAGE   /* something that a stage computes */
} origin;

typedef struct stage_pass {
    clv_sharding_table *table;
    int axis; /* of stages */
    uint32_t all;
    int n_rows, n_sharded;        /* before the pass */
    const clv_sharding_row *rows; /* before the pass */
    origin *origin;               /* [n_sharded] of roots */
    int *home;                    /* [n_sharded] of roots: the stage, of FROM_STAGE */
    int *maker;                   /* [n_sharded] of roots: the row; -1: a graph input */
    uint32_t *demand;             /* [n_sharded] of roots: stages that need it made there */
    int *place;                   /* [n_rows] a stage, or READERS */
    uint32_t *runs;               /* [n_rows] the stages that run it */
    uint32_t *held;               /* [n_sharded] of roots: stages that hold it as it is made */
    uint32_t *sent;               /* [n_sharded] of roots: stages that get it by a send; 0: none */
    int *reader;                  /* [n_sharded] of roots: the first row that needs the send, OUTPUT or STATE */
    int *copy;                    /* [n_sharded] what a send made of it, or of its root; -1: nothing yet */
} stage_pass;

static int root_of(const stage_pass *m, int sharded)
{
    return clv_sharding_table_root(m->table, sharded);
}

static int64_t elems_of(const stage_pass *m, int sharded)
{
    const clv_sharded_value *at = &m->table->sharded[sharded];
    return clv_layout_max_elems(at->layout, m->table->graph->values[at->value].type.shape);
}

static int64_t bytes_of(const stage_pass *m, int sharded)
{
    const clv_value_info *info = &m->table->graph->values[m->table->sharded[sharded].value];
    return elems_of(m, sharded) * (int64_t)clv_dtype_size(info->type.dtype);
}

static bool is_scalar(const stage_pass *m, int sharded)
{
    return m->table->graph->values[m->table->sharded[sharded].value].type.rank == 0;
}

/* ---- places ---- */

/* Whether a step makes shards larger, so that it is better sent before it. */
static bool gathers(const stage_pass *m, const clv_sharding_row *row)
{
    return !row->op && elems_of(m, row->to) > elems_of(m, row->from);
}

/* Whether a row adds up gradients of a parameter. */
static bool adds_gradients(const stage_pass *m, const clv_sharding_row *row)
{
    return row->op && row->op->backward && clv_op_is_sum(row->op) && m->table->sharded[row->out[0]].is_gradient;
}

static void place_row(const stage_pass *m, int r)
{
    const clv_sharding_row *row = &m->rows[r];
    const bool first = adds_gradients(m, row);
    origin from = FROM_INPUTS;
    bool reads_state = false;
    int home = 0, n_in, n_out;
    int64_t most = -1;
    const int *in = clv_sharding_row_reads(&n_in, row), *out = clv_sharding_row_makes(&n_out, row);
    for (int i = 0; i < n_in; i++) {
        if (in[i] < 0)
            continue;
        const int root = root_of(m, in[i]);
        from = m->origin[root] > from ? m->origin[root] : from;
        reads_state = reads_state || m->origin[root] == FROM_STATE;
        if (m->origin[root] == FROM_STAGE && bytes_of(m, in[i]) >= most) {
            home = first && most >= 0 && home < m->home[root] ? home : m->home[root];
            most = bytes_of(m, in[i]);
        }
    }
    m->place[r] = from == FROM_STAGE && !reads_state && !gathers(m, row) ? home : READERS;
    if (row->op && row->op->stage > 0 && from != FROM_INPUTS && !first) {
        from = FROM_STAGE;
        m->place[r] = home = row->op->stage - 1;
    }
    for (int o = 0; o < n_out; o++) {
        m->origin[out[o]] = from;
        m->home[out[o]] = home;
        m->maker[out[o]] = r;
    }
}

static void place_rows(const stage_pass *m)
{
    for (int p = 0; p < m->n_sharded; p++) {
        const clv_sharded_value *at = &m->table->sharded[p];
        m->maker[p] = m->copy[p] = -1;
        if (at->is_graph_input && m->table->graph->values[at->value].source == CLV_FROM_STATE)
            m->origin[p] = FROM_STATE;
    }
    for (int r = 0; r < m->n_rows; r++)
        place_row(m, r);
}

/* ---- demand ---- */

/* Asks for a value on these stages, where it can be made there; whether anything changed. */
static bool ask(const stage_pass *m, int sharded, uint32_t stages)
{
    const int root = root_of(m, sharded);
    const bool movable = m->maker[root] < 0 || m->place[m->maker[root]] == READERS;
    if (!movable || (m->demand[root] | stages) == m->demand[root])
        return false;
    m->demand[root] |= stages;
    return true;
}

static uint32_t stages_of_row(const stage_pass *m, int r)
{
    uint32_t stages = 0;
    int n_out;
    const int *out = clv_sharding_row_makes(&n_out, &m->rows[r]);
    if (m->place[r] != READERS)
        return 1u << m->place[r];
    for (int o = 0; o < n_out; o++)
        stages |= m->demand[out[o]];
    return stages ? stages : 1u << m->home[out[0]];
}

static bool ask_for_results(const stage_pass *m)
{
    const clv_graph *graph = m->table->graph;
    bool changed = false;
    for (int o = 0; o < graph->n_outputs; o++) {
        const int sharded = m->table->output[o];
        changed |= ask(m, sharded, is_scalar(m, sharded) ? m->all : 1u << m->home[root_of(m, sharded)]);
    }
    for (int v = 1; v < graph->n_values; v++) {
        const clv_state_update *update = &m->table->update[v];
        if (update->state >= 0)
            changed |= ask(m, update->becomes, m->demand[root_of(m, update->state)]);
    }
    return changed;
}

static void find_demand(const stage_pass *m)
{
    bool changed = true;
    for (int p = 0; p < m->n_sharded; p++)
        if (m->table->sharded[p].is_graph_input && m->origin[p] == FROM_STATE && is_scalar(m, p))
            m->demand[p] = m->all;
    while (changed) {
        changed = ask_for_results(m);
        for (int r = m->n_rows - 1; r >= 0; r--) {
            int n_in;
            const int *in = clv_sharding_row_reads(&n_in, &m->rows[r]);
            m->runs[r] = stages_of_row(m, r);
            for (int i = 0; i < n_in; i++)
                changed |= in[i] >= 0 && ask(m, in[i], m->runs[r]);
        }
    }
}

/* Notes that `sharded` is read on these stages; reader: the row, OUTPUT or STATE. */
static void need(const stage_pass *m, int sharded, uint32_t stages, int reader)
{
    const int root = root_of(m, sharded);
    if ((stages & ~m->held[root]) == 0)
        return;
    if (m->sent[root] == 0)
        m->reader[root] = reader;
    m->sent[root] |= stages;
}

static void find_sends(const stage_pass *m)
{
    const clv_graph *graph = m->table->graph;
    for (int p = 0; p < m->n_sharded; p++)
        m->held[p] = m->maker[p] >= 0 ? m->runs[m->maker[p]] : m->demand[p] ? m->demand[p] : 1;
    for (int r = 0; r < m->n_rows; r++) {
        int n_in;
        const int *in = clv_sharding_row_reads(&n_in, &m->rows[r]);
        for (int i = 0; i < n_in; i++)
            if (in[i] >= 0)
                need(m, in[i], m->runs[r], r);
    }
    for (int o = 0; o < graph->n_outputs; o++)
        if (is_scalar(m, m->table->output[o]))
            need(m, m->table->output[o], m->all, OUTPUT);
    for (int v = 1; v < graph->n_values; v++)
        if (m->table->update[v].state >= 0)
            need(m, m->table->update[v].becomes, m->held[root_of(m, m->table->update[v].state)], STATE);
}

/* ---- layouts and rows ---- */

/* The layout of the same elements on these stages. */
static const clv_layout *on_stages(const stage_pass *m, const clv_layout *layout, uint32_t stages, clv_error *err)
{
    clv_layout *placed = clv_arena_copy(m->table->arena, layout, sizeof *layout);
    if (!placed)
        clv_fail_memory(err, "a layout", sizeof *placed);
    else if (clv_layout_set_stages(placed, &m->table->graph->mesh, m->axis, stages, err) != CLV_OK)
        return NULL;
    return placed;
}

static clv_status place_values(const stage_pass *m, clv_error *err)
{
    for (int p = 0; p < m->n_sharded; p++) {
        clv_sharded_value *at = &m->table->sharded[p];
        at->layout = on_stages(m, at->layout, m->held[root_of(m, p)], err);
        if (!at->layout)
            return err ? err->code : CLV_ENOMEM;
    }
    return CLV_OK;
}

typedef struct send_text {
    const stage_pass *pass;
    int sharded;
} send_text;

static const char *reader_name(const stage_pass *m, int sharded)
{
    const clv_sharding_row *row = m->reader[sharded] >= 0 ? &m->rows[m->reader[sharded]] : NULL;
    if (!row)
        return clv_graph_name_of(m->table->graph, m->table->sharded[sharded].value);
    return row->op ? row->op->name : row->explanation.by;
}

/* "activations from stage 0 to stage 1, for layers.4.attention.moments". */
static void write_send(clv_text *t, const void *arg)
{
    const send_text *it = arg;
    const stage_pass *m = it->pass;
    const clv_sharding_row *made_by = &m->rows[m->maker[it->sharded]];
    const int reader = m->reader[it->sharded];
    clv_text_add(t, "%sfrom ",
                 is_scalar(m, it->sharded) || made_by->update ? ""
                 : made_by->backward                          ? "cotangents "
                                                              : "activations ");
    clv_text_add_stages(t, m->held[it->sharded]);
    clv_text_add(t, " to ");
    clv_text_add_stages(t, m->sent[it->sharded] & ~m->held[it->sharded]);
    clv_text_add(t,
                 reader >= 0       ? ", for %s"
                 : reader == STATE ? ", which keeps it"
                                   : ", which returns it",
                 reader_name(m, it->sharded));
}

/* Adds the row that sends a root to the stages that need it. */
static clv_status add_send(const stage_pass *m, int sharded, clv_error *err)
{
    clv_sharding_table *table = m->table;
    const clv_sharded_value from = table->sharded[sharded];
    const uint32_t ends = m->held[sharded] | m->sent[sharded];
    const send_text text = {m, sharded};
    const clv_sharding_row *made_by = &m->rows[m->maker[sharded]];
    clv_sharded_value to = from;
    clv_reshard_step *step = clv_arena_alloc(table->arena, 1, sizeof *step);
    clv_sharding_row row = {.value = from.value,
                            .from = sharded,
                            .backward = made_by->backward,
                            .update = made_by->update,
                            .block = made_by->block,
                            .stages = ends == m->all ? 0 : ends};
    to.is_graph_input = false;
    to.layout = on_stages(m, from.layout, m->sent[sharded], err);
    row.explanation = (clv_reshard_explanation){.need = m->reader[sharded] >= 0       ? CLV_NEEDED_BY_OP
                                                        : m->reader[sharded] == STATE ? CLV_NEEDED_BY_STATE
                                                                                      : CLV_NEEDED_BY_OUTPUT,
                                                .by = reader_name(m, sharded),
                                                .text = clv_text_to_arena(table->arena, write_send, &text)};
    if (!step || !to.layout || !row.explanation.text)
        return clv_fail_memory(err, "a send between stages", sizeof *step);
    *step = (clv_reshard_step){.kind = CLV_STEP_SEND,
                               .from = *from.layout,
                               .to = *to.layout,
                               .n_axes = 1,
                               .axes = {clv_mesh_whole_axis(&table->graph->mesh, m->axis)},
                               .bytes = (double)bytes_of(m, sharded)};
    row.step = step;
    if (table->keeps_decisions && table->cost)
        row.decision.seconds = clv_reshard_step_cost(table->cost, step, table->graph->values[from.value].type.shape,
                                                     table->graph->values[from.value].type.dtype)
                                   .seconds;
    CLV_TRY(clv_sharding_table_add_value(&row.to, table, &to, err));
    m->copy[sharded] = row.to;
    return clv_sharding_table_add_row(table, &row, err);
}

/* Turns *sharded into what these stages read of it. */
static clv_status find_copy(const stage_pass *m, int *sharded, uint32_t stages, clv_error *err)
{
    const int root = root_of(m, *sharded), of = *sharded;
    if ((stages & ~m->held[root]) == 0)
        return CLV_OK;
    if (m->copy[of] < 0) { /* an alias: of the copy */
        clv_sharded_value alias = m->table->sharded[of];
        alias.layout = on_stages(m, alias.layout, m->sent[root], err);
        alias.alias_of = m->copy[root];
        if (!alias.layout)
            return err ? err->code : CLV_ENOMEM;
        CLV_TRY(clv_sharding_table_add_value(&m->copy[of], m->table, &alias, err));
    }
    *sharded = m->copy[of];
    return CLV_OK;
}

/* A step between the layouts with stages. */
static clv_status place_step(const stage_pass *m, clv_sharding_row *row, clv_error *err)
{
    clv_reshard_step *step = clv_arena_copy(m->table->arena, row->step, sizeof *row->step);
    if (!step)
        return clv_fail_memory(err, "a step", sizeof *step);
    step->from = *m->table->sharded[row->from].layout;
    step->to = *m->table->sharded[row->to].layout;
    row->step = step;
    return CLV_OK;
}

static clv_status add_row(const stage_pass *m, int r, clv_error *err)
{
    clv_sharding_row row = m->rows[r];
    int n_out;
    const int *out = clv_sharding_row_makes(&n_out, &m->rows[r]);
    row.stages = m->runs[r] == m->all ? 0 : m->runs[r];
    for (int i = 0; row.op && i < row.op->n_in; i++)
        if (row.in[i] >= 0)
            CLV_TRY(find_copy(m, &row.in[i], m->runs[r], err));
    if (!row.op) {
        CLV_TRY(find_copy(m, &row.from, m->runs[r], err));
        CLV_TRY(place_step(m, &row, err));
    }
    CLV_TRY(clv_sharding_table_add_row(m->table, &row, err));
    for (int o = 0; o < n_out; o++)
        if (m->sent[out[o]])
            CLV_TRY(add_send(m, out[o], err));
    return CLV_OK;
}

static clv_status add_rows(const stage_pass *m, clv_error *err)
{
    clv_sharding_table *table = m->table;
    table->rows = NULL;
    table->n_rows = table->row_capacity = 0;
    for (int r = 0; r < m->n_rows; r++)
        CLV_TRY(add_row(m, r, err));
    for (int o = 0; o < table->graph->n_outputs; o++)
        if (is_scalar(m, table->output[o]))
            CLV_TRY(find_copy(m, &table->output[o], m->all, err));
    for (int v = 1; v < table->graph->n_values; v++)
        if (table->update[v].state >= 0)
            CLV_TRY(find_copy(m, &table->update[v].becomes, m->held[root_of(m, table->update[v].state)], err));
    return CLV_OK;
}

clv_status clv_place_stages(clv_sharding_table *table, clv_error *err)
{
    const int axis = table->graph->stage_axis - 1;
    if (axis < 0)
        return CLV_OK;
    const int64_t stages = table->graph->mesh.axis[axis].size;
    const size_t rows = (size_t)table->n_rows + 1, sharded = (size_t)table->n_sharded + 1;
    clv_arena *arena = table->arena;
    stage_pass m = {.table = table,
                    .axis = axis,
                    .all = stages == CLV_MAX_STAGES ? UINT32_MAX : (1u << stages) - 1,
                    .n_rows = table->n_rows,
                    .n_sharded = table->n_sharded,
                    .rows = table->rows,
                    .origin = clv_arena_alloc(arena, sharded, sizeof *m.origin),
                    .home = clv_arena_alloc(arena, sharded, sizeof *m.home),
                    .maker = clv_arena_alloc(arena, sharded, sizeof *m.maker),
                    .demand = clv_arena_alloc(arena, sharded, sizeof *m.demand),
                    .place = clv_arena_alloc(arena, rows, sizeof *m.place),
                    .runs = clv_arena_alloc(arena, rows, sizeof *m.runs),
                    .held = clv_arena_alloc(arena, sharded, sizeof *m.held),
                    .sent = clv_arena_alloc(arena, sharded, sizeof *m.sent),
                    .reader = clv_arena_alloc(arena, sharded, sizeof *m.reader),
                    .copy = clv_arena_alloc(arena, sharded, sizeof *m.copy)};
    if (!m.origin || !m.home || !m.maker || !m.demand || !m.place || !m.runs || !m.held || !m.sent || !m.reader ||
        !m.copy)
        return clv_fail_memory(err, "the stages of rows", rows * sizeof *m.place);
    place_rows(&m);
    find_demand(&m);
    find_sends(&m);
    CLV_TRY(place_values(&m, err));
    return add_rows(&m, err);
}
