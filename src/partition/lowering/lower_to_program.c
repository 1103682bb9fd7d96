/* lower_to_program.c - lowers the sharding table to buffers and instructions.
 *
 * In: a verified table. Out: a program in which each sharded value is the buffer of the same index and each row an
 * instruction (a compressed collective several). It copies what must outlive the graph (ops, names, causes), and adds
 * groups of collectives, workspaces, and in-place updates of state whose old value has no later reader.
 */
#include "partition/passes/passes.h"

#include <string.h>

#include "base/error.h"
#include "ops/builtin_ops.h"
#include "partition/lowering/program_builder.h"
#include "program/program.h"
#include "tensor/parse_print.h"

/* ---- copies of the graph's ops and texts ---- */

static clv_status keep_name(const char **out, clv_program_builder *l, const char *name, clv_error *err)
{
    if (name != l->name)
        l->name_copy = clv_arena_string(l->program->arena, name);
    l->name = name;
    *out = l->name_copy;
    return l->name_copy ? CLV_OK : clv_fail_memory(err, "a name of the program", strlen(name));
}

/* A copy of a text that may be absent. */
static clv_status keep_text(const char **out, const clv_program_builder *l, const char *text, clv_error *err)
{
    *out = text ? clv_arena_string(l->program->arena, text) : NULL;
    return *out || !text ? CLV_OK : clv_fail_memory(err, "a text of the program", strlen(text));
}

/* The program outlives the graph: it keeps its own copy of the op. */
static clv_status keep_op(clv_op **out, clv_program_builder *l, const clv_op *op, clv_error *err)
{
    clv_op *copy = clv_arena_copy(l->program->arena, op, sizeof *op);
    if (!copy)
        return clv_fail_memory(err, "an op of the program", sizeof *op);
    CLV_TRY(keep_name(&copy->name, l, op->name, err));
    copy->attrs = op->attrs ? clv_arena_copy(l->program->arena, op->attrs, op->def->attrs_size) : NULL;
    *out = copy;
    return copy->attrs || !op->attrs ? CLV_OK : clv_fail_memory(err, "an op of the program", op->def->attrs_size);
}

/* ---- rows ---- */

static size_t largest_workspace(const clv_graph *graph, const clv_op *op, const clv_strategy *strategy)
{
    if (!op->def->workspace)
        return 0;
    clv_view in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            in[i] = clv_largest_shard_view(&graph->values[op->in[i]].type, &strategy->in[i]);
    for (int o = 0; o < op->n_out; o++)
        out[o] = clv_largest_shard_view(&graph->values[op->out[o]].type, &strategy->out[o]);
    return op->def->workspace(op, in, out);
}

/* microbatch: that in which it runs, as an op that is fused with an addition may be of an earlier one. */
static clv_status lower_op(clv_program_builder *l, const clv_sharding_row *row, int microbatch, clv_error *err)
{
    const clv_op *op = row->op;
    clv_op *copy;
    CLV_TRY(keep_op(&copy, l, op, err));
    clv_instruction instruction = {.op = copy,
                                   .group = -1,
                                   .n_in = op->n_in,
                                   .n_out = op->n_out,
                                   .name = copy->name,
                                   .backward = row->backward,
                                   .update = row->update,
                                   .recomputed = row->recomputed,
                                   .microbatch = microbatch,
                                   .stages = row->stages};
    memcpy(instruction.in, row->in, sizeof instruction.in);
    memcpy(instruction.out, row->out, sizeof instruction.out);
    size_t workspace = largest_workspace(l->table->graph, op, row->strategy);
    if (workspace > CLV_MAX_RANK_BYTES)
        return clv_fail(err, CLV_ELIMIT, "%s: a workspace of more than 2^62 bytes a rank", op->name);
    instruction.workspace_bytes = (int64_t)workspace;
    return clv_program_add_instruction(l->program, &instruction, err);
}

static clv_status lower_step(clv_program_builder *l, const clv_sharding_row *row, clv_error *err)
{
    clv_program *program = l->program;
    clv_instruction instruction = {.step = clv_arena_copy(program->arena, row->step, sizeof *row->step),
                                   .n_in = 1,
                                   .n_out = 1,
                                   .in = {row->from},
                                   .out = {row->to},
                                   .reason = clv_reshard_need_name(row->explanation.need),
                                   .implicit = row->explanation.implicit,
                                   .purpose = row->explanation.purpose,
                                   .backward = row->backward,
                                   .update = row->update,
                                   .stages = row->stages};
    if (!instruction.step)
        return clv_fail_memory(err, "a step", sizeof *instruction.step);
    CLV_TRY(keep_name(&instruction.name, l, row->explanation.by, err));
    CLV_TRY(keep_text(&instruction.tensor, l, clv_graph_name_of(l->table->graph, row->value), err));
    CLV_TRY(keep_text(&instruction.cause, l, row->explanation.text, err));
    CLV_TRY(keep_text(&instruction.statement, l, row->explanation.statement, err));
    CLV_TRY(keep_text(&instruction.rules, l, row->explanation.rules, err));
    CLV_TRY(clv_program_find_or_add_group(&instruction.group, program, row->step, err));
    return row->wire_dtype == CLV_COMM_F32 ? clv_program_add_instruction(program, &instruction, err)
                                           : clv_lower_compressed_collective(l, row, &instruction, err);
}

/* ---- permutes ---- */

/* Whether ranks have single elements of what the op permutes. */
static bool is_sent(const clv_op *op, const clv_strategy *strategy)
{
    return clv_op_traits_of(op)->permutes &&
           clv_layout_block_count(&strategy->in[0], ((const clv_permute_attrs *)op->attrs)->dim) > 1;
}

typedef struct permute {
    const clv_op *op;
    int n, sources[CLV_PERMUTE_MOST];
} permute;

/* "the program states which rank gets whose part: 0>1, 1>2, 2>3, ..." */
static void write_permute(clv_text *t, const void *arg)
{
    const permute *it = arg;
    int shown = 0;
    clv_text_add(t, "%s states which rank gets whose part:", it->op->name);
    for (int source = 0; source < it->n && shown < 8; source++)
        for (int i = 0; i < it->n; i++)
            if (it->sources[i] == source)
                clv_text_add(t, "%s %d>%d", shown++ > 0 ? "," : "", source, i);
    if (it->n > 8)
        clv_text_add(t, ", ...");
}

/* The collective that such an op is. */
static clv_status lower_permute(clv_program_builder *l, const clv_sharding_row *row, clv_error *err)
{
    const clv_permute_attrs *a = row->op->attrs;
    const clv_type *type = &l->table->graph->values[row->op->in[0]].type;
    const clv_layout *layout = &row->strategy->in[0];
    const clv_type shard = clv_largest_shard_type(type, layout);
    const clv_subaxis *axes;
    permute it = {.op = row->op, .n = (int)type->shape[a->dim]};
    clv_reshard_step step = {.kind = CLV_STEP_PERMUTE, .from = *layout, .to = *layout, .permuted_dim = a->dim};
    step.from.stage_axis = step.to.stage_axis = l->table->sharded[row->in[0]].layout->stage_axis;
    step.from.stages = step.to.stages = l->table->sharded[row->in[0]].layout->stages;
    (void)clv_permute_sources(it.sources, it.n, a->from);
    step.n_axes = clv_layout_axes(&axes, layout, a->dim);
    memcpy(step.axes, axes, (size_t)step.n_axes * sizeof *axes);
    step.sources = clv_arena_copy(l->program->arena, it.sources, (size_t)it.n * sizeof *it.sources);
    for (int i = 0; i < it.n; i++)
        if (it.sources[i] >= 0 && it.sources[i] != i)
            step.bytes = clv_type_bytes(&shard);
    const char *text = clv_text_to_arena(l->table->arena, write_permute, &it);
    if (!step.sources || !text)
        return clv_fail_memory(err, "a permute", (size_t)it.n * sizeof *it.sources);
    clv_sharding_row sent = *row;
    sent.op = NULL;
    sent.step = &step;
    sent.value = row->op->in[0];
    sent.from = row->in[0];
    sent.to = row->out[0];
    sent.wire_dtype = CLV_COMM_F32;
    sent.explanation = (clv_reshard_explanation){.need = CLV_NEEDED_BY_CONSTRAINT,
                                                 .by = row->op->name,
                                                 .text = text,
                                                 .statement = row->op->name,
                                                 .purpose = CLV_PURPOSE_RESHARDING};
    return lower_step(l, &sent, err);
}

/* ---- sharded values, outputs, state ---- */

static clv_status lower_sharded_value(clv_program_builder *l, const clv_sharded_value *sharded, clv_error *err)
{
    const clv_value_info *info = &l->table->graph->values[sharded->value];
    clv_arena *arena = l->program->arena;
    clv_buffer buffer = {.kind = CLV_BUFFER_TEMP,
                         .type = info->type,
                         .layout = *sharded->layout,
                         .is_gradient = sharded->is_gradient,
                         .shares_with = sharded->alias_of};
    if (sharded->is_graph_input) {
        buffer.kind = info->source == CLV_FROM_STATE ? CLV_BUFFER_STATE : CLV_BUFFER_INPUT;
        buffer.init = info->init;
        buffer.role = info->role;
        buffer.name = clv_arena_string(arena, info->name);
        buffer.init_name = info->init_name ? clv_arena_string(arena, info->init_name) : NULL;
        if (!buffer.name || (info->init_name && !buffer.init_name))
            return clv_fail_memory(err, "a name of the program", strlen(info->name));
    }
    return clv_program_add_buffer(NULL, l->program, &buffer, err);
}

static clv_status lower_outputs(clv_program_builder *l, clv_error *err)
{
    const clv_graph *graph = l->table->graph;
    clv_program *program = l->program;
    program->outputs = clv_arena_alloc(program->arena, (size_t)graph->n_outputs + 1, sizeof *program->outputs);
    if (!program->outputs)
        return clv_fail_memory(err, "the outputs", (size_t)graph->n_outputs * sizeof *program->outputs);
    for (int o = 0; o < graph->n_outputs; o++) {
        clv_program_output *output = &program->outputs[program->n_outputs++];
        output->buffer = l->table->output[o];
        CLV_TRY(keep_name(&output->name, l, graph->outputs[o].name, err));
    }
    return CLV_OK;
}

typedef struct uses {
    int *writer;    /* [buffers] the instruction that makes it; -1: none */
    int *last_read; /* [buffers] of roots: the last instruction that reads the memory; -1: none */
} uses;

static clv_status find_uses(uses *out, const clv_program_builder *l, clv_error *err)
{
    const clv_program *program = l->program;
    size_t n = (size_t)program->n_buffers + 1;
    out->writer = clv_arena_alloc(l->table->arena, n, sizeof *out->writer);
    out->last_read = clv_arena_alloc(l->table->arena, n, sizeof *out->last_read);
    if (!out->writer || !out->last_read)
        return clv_fail_memory(err, "the uses of buffers", n * sizeof *out->writer);
    for (size_t b = 0; b < n; b++)
        out->writer[b] = out->last_read[b] = -1;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++)
            if (instruction->in[k] >= 0)
                out->last_read[clv_program_owning_buffer(program, instruction->in[k])] = i;
        for (int r = 0; r < instruction->n_out; r++)
            out->writer[instruction->out[r]] = i;
    }
    return CLV_OK;
}

/* Whether the instruction that makes `value` may write it directly into the state: the old value has no later reader,
 * and the instruction does not read it, or works in place. Otherwise a copy is needed. */
static bool may_update_in_place(const clv_program *program, const uses *u, int state, int value)
{
    int writer = u->writer[value];
    if (writer < 0 || !clv_layout_equal(&program->buffers[state].layout, &program->buffers[value].layout))
        return false;
    const clv_instruction *made = &program->instructions[writer];
    bool in_place = false;
    for (int r = 0; made->op && r < made->n_out; r++) {
        int k = made->op->def->in_place[r] - 1;
        in_place = in_place || (made->out[r] == value && k >= 0 && k < made->n_in && made->in[k] == state &&
                                clv_program_is_sole_operand(program, made, k));
    }
    return u->last_read[state] < writer + in_place;
}

static clv_status lower_updates(clv_program_builder *l, clv_error *err)
{
    const clv_graph *graph = l->table->graph;
    clv_program *program = l->program;
    uses u;
    CLV_TRY(find_uses(&u, l, err));
    for (int v = 1; v < graph->n_values; v++) {
        const clv_state_update *update = &l->table->update[v];
        int state = update->state, source = update->becomes;
        if (state < 0)
            continue;
        program->buffers[state].updated = true;
        if (program->buffers[source].shares_with < 0 && may_update_in_place(program, &u, state, source)) {
            program->buffers[source].shares_with = state;
            continue;
        }
        clv_reshard_step copy = {
            .kind = CLV_STEP_SLICE, .from = program->buffers[source].layout, .to = program->buffers[state].layout};
        clv_sharding_row row = {.step = &copy,
                                .value = graph->values[v].assigned,
                                .from = source,
                                .to = state,
                                .stages = program->buffers[state].layout.stages,
                                .explanation = update->explanation};
        CLV_TRY(lower_step(l, &row, err));
    }
    return CLV_OK;
}

/* ---- candidates and decisions ---- */

static clv_status lower_candidates(clv_program_builder *l, clv_error *err)
{
    const clv_sharding_table *table = l->table;
    clv_program *program = l->program;
    program->candidates =
        clv_arena_copy(program->arena, table->candidates, (size_t)table->n_candidates * sizeof *program->candidates);
    if (!program->candidates && table->n_candidates > 0)
        return clv_fail_memory(err, "candidates", (size_t)table->n_candidates * sizeof *program->candidates);
    for (int i = 0; i < table->n_candidates; i++) {
        const clv_strategy_candidate *from = &table->candidates[i];
        clv_strategy_candidate *made = &program->candidates[program->n_candidates++];
        CLV_TRY(keep_name(&made->op, l, from->op, err));
        CLV_TRY(keep_text(&made->purpose, l, from->purpose, err));
        CLV_TRY(keep_text(&made->split, l, from->split, err));
        CLV_TRY(keep_text(&made->layouts, l, from->layouts, err));
        CLV_TRY(keep_text(&made->why, l, from->why, err));
    }
    return CLV_OK;
}

/* An instruction of a row, to be described. */
typedef struct described {
    const clv_program *program;
    const clv_instruction *instruction;
    const clv_sharding_row *row;
} described;

static void write_layouts(clv_text *t, const void *arg)
{
    const described *it = arg;
    const clv_buffer *buffers = it->program->buffers;
    char from[CLV_LAYOUT_TEXT], to[CLV_LAYOUT_TEXT];
    if (it->row->op) {
        clv_strategy_put_layouts(t, it->row->op, it->row->strategy, &it->program->mesh);
        return;
    }
    clv_layout_print(from, sizeof from, &buffers[it->instruction->in[0]].layout, &it->program->mesh);
    clv_layout_print(to, sizeof to, &buffers[it->instruction->out[0]].layout, &it->program->mesh);
    clv_text_add(t, "{%s} -> {%s}", from, to);
}

static void write_axes(clv_text *t, const void *arg)
{
    const described *it = arg;
    const clv_reshard_step *step = it->instruction->step;
    for (int a = 0; step && clv_step_moves(step->kind) && a < step->n_axes; a++) {
        clv_text_add(t, "%s", a > 0 ? ", " : "over ");
        clv_text_add_subaxis(t, step->axes[a], &it->program->mesh);
    }
}

/* Of a conversion to or from the wire dtype. */
static void write_conversion(clv_text *t, const void *arg)
{
    const described *it = arg;
    const char *step = clv_step_name(it->row->step->kind);
    clv_dtype made = it->program->buffers[it->instruction->out[0]].type.dtype;
    if (made == CLV_F32)
        clv_text_add(t, "as it was before the %s", step);
    else
        clv_text_add(t, "the %s sends it as %s", step, made == CLV_U8 ? "q8" : clv_dtype_name(made));
}

static void write_op_split(clv_text *t, const void *arg)
{
    const described *it = arg;
    clv_text_add(t, "%s", it->row->decision.split);
    if (it->instruction->stages > 0) {
        clv_text_add(t, "; on ");
        clv_text_add_stages(t, it->instruction->stages);
    }
}

static clv_status describe_op_row(clv_partition_decision *out, clv_program_builder *l, const described *it,
                                  clv_error *err)
{
    const clv_sharding_row *row = it->row;
    out->strategy_bytes = row->strategy->bytes;
    out->strategy_seconds = row->strategy->seconds;
    CLV_TRY(keep_text(&out->purpose, l, row->decision.purpose, err));
    out->split = clv_text_to_arena(l->program->arena, write_op_split, it);
    return keep_text(&out->why, l, row->decision.why, err);
}

static clv_status lower_decision(clv_program_builder *l, const clv_cost_model *cost, int r, int i, clv_error *err)
{
    const clv_sharding_row *row = &l->table->rows[r];
    const clv_instruction *instruction = &l->program->instructions[i];
    clv_arena *arena = l->program->arena;
    const described it = {l->program, instruction, row};
    bool compressed = row->wire_dtype != CLV_COMM_F32;
    clv_partition_decision *out = &l->program->decisions[l->program->n_decisions++];
    *out = (clv_partition_decision){
        .instruction = i,
        .op = instruction->name,
        .kind = instruction->op ? instruction->op->def->name : clv_step_name(instruction->step->kind),
        .layouts = clv_text_to_arena(arena, write_layouts, &it),
        .bytes = instruction->op ? 0 : instruction->step->bytes,
        .seconds = compressed ? clv_instruction_seconds(l->program, cost, i) : row->decision.seconds};
    if (row->op) {
        CLV_TRY(describe_op_row(out, l, &it, err));
    } else {
        out->purpose = clv_arena_string(arena, clv_graph_name_of(l->table->graph, row->value));
        out->split = clv_text_to_arena(arena, write_axes, &it);
        out->why = instruction->op ? clv_text_to_arena(arena, write_conversion, &it) : instruction->cause;
    }
    return out->layouts && out->purpose && out->split && out->why ? CLV_OK
                                                                  : clv_fail_memory(err, "a decision", sizeof *out);
}

static clv_status lower_decisions(clv_program_builder *l, clv_error *err)
{
    int rows = l->table->n_rows;
    size_t n = (size_t)l->first[rows];
    clv_cost_model cost;
    clv_cost_model_make(&cost, &l->program->mesh, NULL);
    l->program->decisions = clv_arena_alloc(l->program->arena, n, sizeof *l->program->decisions);
    if (!l->program->decisions)
        return clv_fail_memory(err, "decisions", n * sizeof *l->program->decisions);
    for (int r = 0; r < rows; r++)
        for (int i = l->first[r]; i < l->first[r + 1]; i++)
            CLV_TRY(lower_decision(l, l->table->cost ? l->table->cost : &cost, r, i, err));
    return CLV_OK;
}

static clv_status lower_row(clv_program_builder *l, int r, clv_error *err)
{
    const clv_sharding_row *row = &l->table->rows[r];
    clv_sharding_row joined;
    if (!row->op)
        return lower_step(l, row, err);
    if (l->fused_with[r] > r) { /* it is there with the sum, and nowhere else */
        l->program->buffers[row->out[0]].shares_with = l->table->rows[l->fused_with[r]].out[0];
        return CLV_OK;
    }
    if (l->fused_with[r] >= 0)
        CLV_TRY(clv_fuse_accumulation_join(&joined, l, r, err));
    if (is_sent(row->op, row->strategy))
        return lower_permute(l, row, err);
    return lower_op(l, l->fused_with[r] >= 0 ? &joined : row, row->op->microbatch, err);
}

static clv_status lower_rows(clv_program_builder *l, clv_error *err)
{
    const clv_sharding_table *table = l->table;
    l->first = clv_arena_alloc(table->arena, (size_t)table->n_rows + 1, sizeof *l->first);
    if (!l->first)
        return clv_fail_memory(err, "rows", (size_t)table->n_rows * sizeof *l->first);
    CLV_TRY(clv_fuse_accumulation_find(l, err));
    for (int r = 0; r < table->n_rows; r++) {
        l->first[r] = l->program->n_instructions;
        CLV_TRY(lower_row(l, r, err));
    }
    l->first[table->n_rows] = l->program->n_instructions;
    return CLV_OK;
}

clv_status clv_lower_to_program(clv_program *out, const clv_sharding_table *table, clv_error *err)
{
    clv_program_builder l = {.program = out, .table = table};
    if (!table->is_priced)
        CLV_TRY(clv_sharding_table_verify(table, err));
    out->mesh = table->graph->mesh;
    out->stage_axis = table->graph->stage_axis;
    for (int i = 0; i < table->n_sharded; i++)
        CLV_TRY(lower_sharded_value(&l, &table->sharded[i], err));
    CLV_TRY(lower_rows(&l, err));
    CLV_TRY(lower_outputs(&l, err));
    CLV_TRY(lower_updates(&l, err));
    if (table->keeps_decisions)
        CLV_TRY(lower_decisions(&l, err));
    return lower_candidates(&l, err);
}
