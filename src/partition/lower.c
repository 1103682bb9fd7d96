/* lower.c - the second pass: a table of assignments (assignment.h) to a program's buffers and instructions.
 *
 * Every place becomes the buffer of its number, every row an instruction. Here the program gets what outlives the graph
 * (ops, names, causes), the groups of its collectives, workspaces, and state that is written in place where nobody
 * reads the old value later.
 */
#include <string.h>

#include "base/error.h"
#include "partition/partitioner.h"

/* ---- the program as it grows ---- */

static clv_status add_buffer(clv_program *program, const clv_buffer *buffer, clv_error *err)
{
    if (clv_arena_grow(program->arena, &program->buffers, &program->buffer_capacity, program->n_buffers,
                       sizeof *buffer) != 0)
        return clv_fail_memory(err, "a buffer", sizeof *buffer);
    program->buffers[program->n_buffers++] = *buffer;
    return CLV_OK;
}

static clv_status add_instruction(clv_program *program, const clv_instruction *instruction, clv_error *err)
{
    if (clv_arena_grow(program->arena, &program->instructions, &program->instruction_capacity, program->n_instructions,
                       sizeof *instruction) != 0)
        return clv_fail_memory(err, "an instruction", sizeof *instruction);
    if (!instruction->op) {
        if (clv_arena_grow(program->arena, &program->steps, &program->step_capacity, program->n_steps,
                           sizeof *program->steps) != 0)
            return clv_fail_memory(err, "a step", sizeof *program->steps);
        program->steps[program->n_steps++] = program->n_instructions;
    }
    program->instructions[program->n_instructions++] = *instruction;
    return CLV_OK;
}

static clv_status find_group(int *out, clv_program *program, const clv_reshard_step *step, clv_error *err)
{
    *out = -1;
    if (!clv_step_moves(step->kind))
        return CLV_OK;
    size_t bytes = (size_t)step->n_axes * sizeof *step->axes;
    for (int g = 0; g < program->n_groups; g++)
        if (program->groups[g].n == step->n_axes && memcmp(program->groups[g].axes, step->axes, bytes) == 0) {
            *out = g;
            return CLV_OK;
        }
    if (clv_arena_grow(program->arena, &program->groups, &program->group_capacity, program->n_groups,
                       sizeof *program->groups) != 0)
        return clv_fail_memory(err, "a group", sizeof *program->groups);
    clv_group_axes *group = &program->groups[program->n_groups];
    *group = (clv_group_axes){.n = step->n_axes};
    memcpy(group->axes, step->axes, bytes);
    *out = program->n_groups++;
    return CLV_OK;
}

/* ---- what a row is about ---- */

/* The op, and the name, in hand: rows that are about the same follow one another. */
typedef struct lowering {
    clv_partitioner *p;
    const clv_assignment *table;
    const clv_op *op; /* NULL: none yet */
    clv_op *copy;     /* of op, in the program */
    clv_rule rule;    /* of op */
    const char *name; /* the graph's, ... */
    const char *kept; /* ... and the program's copy */
} lowering;

static clv_status keep_name(const char **out, lowering *l, const char *name, clv_error *err)
{
    if (name != l->name)
        l->kept = clv_arena_string(l->p->program->arena, name);
    l->name = name;
    *out = l->kept;
    return l->kept ? CLV_OK : clv_fail_memory(err, "a name of the program", strlen(name));
}

/* The program outlives the graph: it keeps its own copy of the op. */
static clv_op *copy_op(clv_program *program, const clv_op *op, const char *name)
{
    clv_op *copy = clv_arena_copy(program->arena, op, sizeof *op);
    if (!copy)
        return NULL;
    copy->name = name;
    copy->attrs = op->attrs ? clv_arena_copy(program->arena, op->attrs, op->def->attrs_size) : NULL;
    return copy->attrs || !op->attrs ? copy : NULL;
}

/* Makes an op the one in hand: its copy, its rule, and the names of its factors. */
static clv_status take_op(lowering *l, const clv_op *op, clv_error *err)
{
    clv_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    const char *name;
    if (op == l->op)
        return CLV_OK;
    CLV_TRY(keep_name(&name, l, op->name, err));
    l->op = op;
    l->copy = copy_op(l->p->program, op, name);
    if (!l->copy)
        return clv_fail_memory(err, "an op of the program", sizeof *op);
    clv_partition_load_op(&problem, types, l->p, op);
    l->rule = problem.rule;
    clv_partition_name_factors(l->p, op, &l->rule);
    return CLV_OK;
}

/* ---- rows ---- */

/* Of the largest shard, without data. */
static clv_view largest_view(const clv_type *type, const clv_layout *layout)
{
    clv_view view = {.dtype = type->dtype, .rank = type->rank};
    clv_type local = clv_local_type(type, layout);
    memcpy(view.shape, local.shape, sizeof view.shape);
    memcpy(view.global, type->shape, sizeof view.global);
    return view;
}

static size_t largest_workspace(const clv_graph *graph, const clv_op *op, const clv_strategy *strategy)
{
    if (!op->def->workspace)
        return 0;
    clv_view in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            in[i] = largest_view(&graph->values[op->in[i]].type, &strategy->in[i]);
    for (int o = 0; o < op->n_out; o++)
        out[o] = largest_view(&graph->values[op->out[o]].type, &strategy->out[o]);
    return op->def->workspace(op, in, out);
}

static clv_status lower_op(lowering *l, const clv_assigned *row, clv_error *err)
{
    const clv_op *op = row->op;
    CLV_TRY(take_op(l, op, err));
    clv_instruction instruction = {.op = l->copy,
                                   .group = -1,
                                   .n_in = op->n_in,
                                   .n_out = op->n_out,
                                   .name = l->copy->name,
                                   .backward = row->backward};
    memcpy(instruction.in, row->in, sizeof instruction.in);
    memcpy(instruction.out, row->out, sizeof instruction.out);
    size_t workspace = largest_workspace(l->table->graph, op, row->strategy);
    if (workspace > CLV_MAX_RANK_BYTES)
        return clv_fail(err, CLV_ELIMIT, "%s: a workspace of more than 2^62 bytes a rank", op->name);
    instruction.workspace_bytes = (int64_t)workspace;
    return add_instruction(l->p->program, &instruction, err);
}

static clv_status lower_step(lowering *l, const clv_assigned *row, clv_error *err)
{
    clv_partitioner *p = l->p;
    clv_program *program = p->program;
    clv_reason why = row->why;
    if (why.kind == CLV_NEEDED_BY_OP) {
        CLV_TRY(take_op(l, why.reader, err));
        why.rule = &l->rule;
    }
    CLV_TRY(keep_name(&why.op, l, why.op, err));
    clv_instruction instruction = {.step = clv_arena_copy(program->arena, row->step, sizeof *row->step),
                                   .n_in = 1,
                                   .n_out = 1,
                                   .in = {row->from},
                                   .out = {row->to},
                                   .name = why.op,
                                   .tensor = clv_arena_string(program->arena, clv_partition_value_name(p, row->value)),
                                   .implicit = clv_partition_is_implicit(p, &why, row->step, row->value),
                                   .backward = row->backward};
    if (!instruction.step || !instruction.tensor)
        return clv_fail_memory(err, "a step", sizeof instruction);
    CLV_TRY(clv_partition_describe(&instruction, p, &why, row->step, row->value, err));
    if (instruction.implicit && p->options->max_implicit_bytes > 0 &&
        row->step->bytes > (double)p->options->max_implicit_bytes)
        return clv_partition_refuse_implicit(p, &instruction, err);
    CLV_TRY(find_group(&instruction.group, program, row->step, err));
    return add_instruction(program, &instruction, err);
}

/* ---- places, outputs, state ---- */

static clv_status lower_place(lowering *l, const clv_place *place, clv_error *err)
{
    const clv_value_info *info = &l->table->graph->values[place->value];
    clv_arena *arena = l->p->program->arena;
    clv_buffer buffer = {.kind = CLV_BUFFER_TEMP,
                         .type = info->type,
                         .layout = *place->layout,
                         .is_gradient = place->gradient,
                         .shares = place->same_as};
    if (place->named) {
        buffer.kind = info->source == CLV_FROM_STATE ? CLV_BUFFER_STATE : CLV_BUFFER_INPUT;
        buffer.init = info->init;
        buffer.role = info->role;
        buffer.name = clv_arena_string(arena, info->name);
        buffer.init_name = info->init_name ? clv_arena_string(arena, info->init_name) : NULL;
        if (!buffer.name || (info->init_name && !buffer.init_name))
            return clv_fail_memory(err, "a name of the program", strlen(info->name));
    }
    return add_buffer(l->p->program, &buffer, err);
}

static clv_status lower_outputs(lowering *l, clv_error *err)
{
    const clv_graph *graph = l->table->graph;
    clv_program *program = l->p->program;
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

/* Which instruction makes each buffer, and which reads its memory last; -1: none. */
typedef struct uses {
    int *writer;    /* [buffers] */
    int *last_read; /* [buffers]: of roots */
} uses;

static clv_status find_uses(uses *out, clv_partitioner *p, clv_error *err)
{
    const clv_program *program = p->program;
    size_t n = (size_t)program->n_buffers + 1;
    out->writer = clv_arena_alloc(p->scratch, n, sizeof *out->writer);
    out->last_read = clv_arena_alloc(p->scratch, n, sizeof *out->last_read);
    if (!out->writer || !out->last_read)
        return clv_fail_memory(err, "the uses of buffers", n * sizeof *out->writer);
    for (size_t b = 0; b < n; b++)
        out->writer[b] = out->last_read[b] = -1;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        for (int k = 0; k < instruction->n_in; k++)
            if (instruction->in[k] >= 0)
                out->last_read[clv_program_root(program, instruction->in[k])] = i;
        for (int r = 0; r < instruction->n_out; r++)
            out->writer[instruction->out[r]] = i;
    }
    return CLV_OK;
}

/* Whether what makes `value` may write it straight into the state: nobody reads the old one later, and the maker
 * itself does not, or may take it over. Else a copy is needed. */
static bool may_update_in_place(const clv_program *program, const uses *u, int state, int value)
{
    int writer = u->writer[value];
    if (writer < 0 || !clv_layout_equal(&program->buffers[state].layout, &program->buffers[value].layout))
        return false;
    const clv_instruction *made = &program->instructions[writer];
    bool takes_over = false;
    for (int r = 0; made->op && r < made->n_out; r++) {
        int k = made->op->def->in_place[r] - 1;
        takes_over = takes_over || (made->out[r] == value && k >= 0 && k < made->n_in && made->in[k] == state &&
                                    clv_program_sole_reader(program, made, k));
    }
    return u->last_read[state] < writer + takes_over;
}

static clv_status lower_updates(lowering *l, clv_error *err)
{
    clv_partitioner *p = l->p;
    clv_program *program = p->program;
    uses u;
    CLV_TRY(find_uses(&u, p, err));
    for (int v = 1; v < p->graph->n_values; v++) {
        int source = l->table->update[v];
        if (source < 0)
            continue;
        int state = p->placements[v].place[0];
        if (program->buffers[source].shares < 0 && may_update_in_place(program, &u, state, source)) {
            program->buffers[source].shares = state;
            continue;
        }
        clv_reshard_step copy = {
            .kind = CLV_STEP_SLICE, .from = program->buffers[source].layout, .to = program->buffers[state].layout};
        clv_assigned row = {.step = &copy,
                            .value = p->graph->values[v].assigned,
                            .from = source,
                            .to = state,
                            .why = {.kind = CLV_NEEDED_BY_STATE, .op = p->graph->values[v].name, .state = v}};
        CLV_TRY(lower_step(l, &row, err));
    }
    return CLV_OK;
}

clv_status clv_partition_lower(clv_partitioner *p, clv_error *err)
{
    lowering l = {.p = p, .table = &p->table};
    for (int i = 0; i < p->table.n_places; i++)
        CLV_TRY(lower_place(&l, &p->table.places[i], err));
    for (int r = 0; r < p->table.n_rows; r++)
        CLV_TRY(p->table.rows[r].op ? lower_op(&l, &p->table.rows[r], err) : lower_step(&l, &p->table.rows[r], err));
    CLV_TRY(lower_outputs(&l, err));
    return lower_updates(&l, err);
}
