/* partition.c - graph and layouts to a program: clv_compile.
 *
 * Ops are taken in order. Each is given the cheapest strategy (strategy.h) for the layouts that its operands are at
 * hand in and the layouts that its results are wanted in; the changes of layout that it needs are emitted before it.
 * A tensor that was once brought to a layout stays at hand in it, so a gather is shared by all its readers. Partial
 * results stay partial until a reader needs them whole: gradients that fan in are added first and reduced once.
 * wanted.c finds beforehand where results are wanted, emit.c makes the steps, explain.c says why.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "partition/partitioner.h"

/* ---- ops ---- */

/* The layout of a value's primal, over dimensions: what its cotangent is wanted in; false when it has none. */
static bool primal_layout(clv_layout *out, const clv_partitioner *p, int value)
{
    int primal = p->graph->values[value].primal;
    if (primal == 0 || p->placements[primal].n == 0)
        return false;
    *out = clv_layout_without_partial(clv_partition_layout_of(p, p->placements[primal].buffer[0]));
    return true;
}

/* The layouts that a value is at hand in; they stay where they are until the next buffer is added. */
static clv_status load_operand(clv_problem *problem, clv_partitioner *p, int i, int value, clv_error *err)
{
    const int *buffers;
    CLV_TRY(clv_partition_at_hand(&buffers, &problem->available[i], &problem->n_available[i], p, value, err));
    problem->kept[i] = p->placements[value].kept;
    return CLV_OK;
}

static clv_status load_layouts(clv_problem *problem, clv_partitioner *p, const clv_op *op, clv_error *err)
{
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            CLV_TRY(load_operand(problem, p, i, op->in[i], err));
    for (int o = 0; o < op->n_out; o++) {
        const clv_value_place *at = &p->placements[op->out[o]];
        problem->fan_in[o] = at->fan_in;
        problem->wanted[o] = true;
        if (at->wanted)
            problem->target[o] = at->target;
        else if (clv_partition_stays_partial(&problem->target[o], p, op, o))
            problem->fan_in[o] = 1;
        else
            problem->wanted[o] = primal_layout(&problem->target[o], p, at->heir > 0 ? at->heir : op->out[o]);
    }
    return CLV_OK;
}

/* The program outlives the graph: it keeps its own copy of the op. */
static clv_op *copy_op(clv_partitioner *p, const clv_op *op)
{
    clv_op *copy = clv_arena_copy(p->program->arena, op, sizeof *op);
    if (!copy)
        return NULL;
    copy->name = clv_arena_string(p->program->arena, op->name);
    copy->attrs = op->attrs ? clv_arena_copy(p->program->arena, op->attrs, op->def->attrs_size) : NULL;
    return copy->name && (copy->attrs || !op->attrs) ? copy : NULL;
}

/* Of the largest shard, without data. */
static clv_view largest_view(const clv_type *type, const clv_layout *layout)
{
    clv_view view = {.dtype = type->dtype, .rank = type->rank};
    clv_type local = clv_local_type(type, layout);
    memcpy(view.shape, local.shape, sizeof view.shape);
    memcpy(view.global, type->shape, sizeof view.global);
    return view;
}

static size_t largest_workspace(const clv_problem *problem, const clv_strategy *strategy)
{
    const clv_op *op = problem->op;
    if (!op->def->workspace)
        return 0;
    clv_view in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] > 0)
            in[i] = largest_view(&problem->in[i], &strategy->in[i]);
    for (int o = 0; o < op->n_out; o++)
        out[o] = largest_view(&problem->out[o], &strategy->out[o]);
    return op->def->workspace(op, in, out);
}

/* A cotangent that stays partial is read so, or summed: its readers do not divide its rows among themselves. */
static void keep_addends(clv_partitioner *p, int value, const clv_layout *made, const clv_layout *target)
{
    const clv_subaxis *axes;
    int n = clv_layout_axes(&axes, made, made->rank);
    for (int i = 0; i < n && clv_layout_equal(made, target); i++)
        p->placements[value].kept |= 1u << axes[i].axis;
}

static clv_status emit_op(clv_partitioner *p, const clv_op *op, clv_error *err)
{
    clv_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    clv_partition_load_op(&problem, types, p, op);
    CLV_TRY(load_layouts(&problem, p, op, err));
    const clv_strategy *strategy;
    CLV_TRY(clv_memo_choose(&strategy, p->memo, &problem, err));
    clv_op *copy = copy_op(p, op);
    if (!copy)
        return clv_fail_memory(err, "an op of the program", sizeof *op);
    clv_partition_name_factors(p, op, &problem.rule);
    if (clv_partition_is_explained(p, op))
        CLV_TRY(clv_partition_explain_op(p, op, &problem, strategy, copy->name, err));
    clv_instruction instruction = {
        .op = copy, .group = -1, .n_in = op->n_in, .n_out = op->n_out, .name = copy->name, .backward = op->backward};
    for (int i = 0; i < op->n_in; i++) {
        instruction.in[i] = -1;
        if (op->in[i] == 0)
            continue;
        clv_reason why = {.kind = CLV_NEEDED_BY_OP,
                          .op = copy->name,
                          .reader = op,
                          .rule = &problem.rule,
                          .strategy = strategy,
                          .operand = i};
        CLV_TRY(clv_partition_bring(&instruction.in[i], p, op->in[i], &strategy->in[i], &why, err));
    }
    for (int o = 0; o < op->n_out; o++) {
        clv_buffer buffer = {.kind = CLV_BUFFER_TEMP, .type = problem.out[o], .layout = strategy->out[o]};
        CLV_TRY(clv_partition_add_buffer(&instruction.out[o], p, &buffer, err));
        CLV_TRY(clv_partition_place(p, op->out[o], instruction.out[o], err));
        if (problem.wanted[o])
            keep_addends(p, op->out[o], &strategy->out[o], &problem.target[o]);
    }
    clv_partition_name_results(p, op, &problem.rule);
    size_t workspace = largest_workspace(&problem, strategy);
    if (workspace > CLV_MAX_RANK_BYTES)
        return clv_fail(err, CLV_ELIMIT, "%s: a workspace of more than 2^62 bytes a rank", copy->name);
    instruction.workspace_bytes = (int64_t)workspace;
    p->instruction_of[op->id] = p->program->n_instructions;
    return clv_partition_add_instruction(p, &instruction, err);
}

static clv_status emit_constraint(clv_partitioner *p, const clv_op *op, clv_error *err)
{
    clv_layout to;
    if (clv_op_constraint_of(op))
        to = *clv_op_constraint_of(op);
    else if (!clv_partition_stays_partial(&to, p, op, 0) && !primal_layout(&to, p, op->out[0]))
        to = clv_layout_without_partial(clv_partition_layout_of(p, p->placements[op->in[0]].buffer[0]));
    if (!clv_op_constraint_of(op))
        keep_addends(p, op->out[0], &to, &to);
    clv_reason why = {.kind = clv_op_constraint_of(op) ? CLV_NEEDED_BY_CONSTRAINT : CLV_NEEDED_BY_GRADIENT,
                      .op = clv_arena_string(p->program->arena, op->name),
                      .reader = op,
                      .to = &to};
    int buffer, first = p->program->n_steps;
    clv_partition_name_as_stated(p, op->out[0], op->in[0]);
    CLV_TRY(clv_partition_bring(&buffer, p, op->in[0], &to, &why, err));
    CLV_TRY(clv_partition_place(p, op->out[0], buffer, err));
    return clv_partition_is_explained(p, op) ? clv_partition_explain_constraint(p, op, &why, first, err) : CLV_OK;
}

/* ---- inputs, outputs, state ---- */

static clv_status place_named(clv_partitioner *p, int value, clv_error *err)
{
    const clv_value_info *info = &p->graph->values[value];
    const clv_value_place *at = &p->placements[value];
    clv_buffer buffer = {.kind = info->source == CLV_FROM_STATE ? CLV_BUFFER_STATE : CLV_BUFFER_INPUT,
                         .type = info->type,
                         .layout = info->stated || !at->wanted ? info->layout : at->target,
                         .init = info->init,
                         .role = info->role,
                         .name = clv_arena_string(p->program->arena, info->name)};
    if (info->init_name)
        buffer.init_name = clv_arena_string(p->program->arena, info->init_name);
    int b;
    CLV_TRY(clv_partition_add_buffer(&b, p, &buffer, err));
    CLV_TRY(clv_partition_place(p, value, b, err));
    clv_partition_name_as_stated(p, value, 0);
    return CLV_OK;
}

static clv_status emit_outputs(clv_partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    clv_program *program = p->program;
    program->outputs = clv_arena_alloc(program->arena, (size_t)graph->n_outputs + 1, sizeof *program->outputs);
    if (!program->outputs)
        return clv_fail_memory(err, "the outputs", (size_t)graph->n_outputs * sizeof *program->outputs);
    for (int o = 0; o < graph->n_outputs; o++) {
        const clv_named_output *output = &graph->outputs[o];
        const clv_value_place *at = &p->placements[output->value];
        clv_layout to =
            output->stated ? output->layout : clv_layout_without_partial(clv_partition_layout_of(p, at->buffer[0]));
        const char *name = clv_arena_string(program->arena, output->name);
        int buffer;
        clv_reason why = {.kind = CLV_NEEDED_BY_OUTPUT, .op = name, .to = &to, .stated = output->stated};
        CLV_TRY(clv_partition_bring(&buffer, p, output->value, &to, &why, err));
        if (clv_partition_is_state(p, buffer)) {
            clv_reshard_step copy = {.kind = CLV_STEP_SLICE, .from = *clv_partition_layout_of(p, buffer), .to = to};
            int from = buffer;
            buffer = -1;
            why.kind = CLV_NEEDED_AS_COPY;
            CLV_TRY(clv_partition_emit_step(p, &copy, output->value, from, &buffer, &why, err));
        }
        program->outputs[program->n_outputs++] = (clv_program_output){.name = name, .buffer = buffer};
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

static clv_status emit_assignments(clv_partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    clv_program *program = p->program;
    int *source = clv_arena_alloc(p->scratch, (size_t)graph->n_values + 1, sizeof *source);
    if (!source)
        return clv_fail_memory(err, "assignments", (size_t)graph->n_values * sizeof *source);
    for (int v = 1; v < graph->n_values; v++) {
        source[v] = -1;
        if (graph->values[v].assigned == 0)
            continue;
        const clv_layout to = graph->values[v].layout;
        int value = graph->values[v].assigned;
        clv_reason why = {
            .kind = CLV_NEEDED_BY_STATE, .op = program->buffers[p->placements[v].buffer[0]].name, .state = v};
        CLV_TRY(clv_partition_bring(&source[v], p, value, &to, &why, err));
        if (clv_partition_is_state(p, source[v])) { /* its own state may be assigned before we read it */
            clv_reshard_step copy = {.kind = CLV_STEP_SLICE, .from = *clv_partition_layout_of(p, source[v]), .to = to};
            int from = source[v];
            source[v] = -1;
            why.kind = CLV_NEEDED_AS_COPY;
            CLV_TRY(clv_partition_emit_step(p, &copy, value, from, &source[v], &why, err));
        }
    }
    uses u;
    CLV_TRY(find_uses(&u, p, err));
    for (int v = 1; v < graph->n_values; v++) {
        if (source[v] < 0)
            continue;
        int state = p->placements[v].buffer[0];
        if (program->buffers[source[v]].shares < 0 && may_update_in_place(program, &u, state, source[v])) {
            program->buffers[source[v]].shares = state;
            continue;
        }
        clv_reshard_step copy = {.kind = CLV_STEP_SLICE,
                                 .from = *clv_partition_layout_of(p, source[v]),
                                 .to = *clv_partition_layout_of(p, state)};
        clv_reason why = {.kind = CLV_NEEDED_BY_STATE, .op = program->buffers[state].name, .state = v};
        CLV_TRY(clv_partition_emit_step(p, &copy, graph->values[v].assigned, source[v], &state, &why, err));
    }
    return CLV_OK;
}

/* ---- clv_compile ---- */

static clv_status partition(clv_partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    p->placements = clv_arena_alloc(p->scratch, (size_t)graph->n_values + 1, sizeof *p->placements);
    p->live_op = clv_arena_alloc(p->scratch, (size_t)graph->n_ops + 1, sizeof *p->live_op);
    p->instruction_of = clv_arena_alloc(p->scratch, (size_t)graph->n_ops + 1, sizeof *p->instruction_of);
    p->reshards = clv_reshard_cache_new(p->scratch, &graph->mesh, p->cost, p->options->by_bytes);
    p->memo = clv_memo_new(p->scratch);
    if (!p->placements || !p->live_op || !p->instruction_of || !p->reshards || !p->memo)
        return clv_fail_memory(err, "the partitioner", (size_t)graph->n_values * sizeof *p->placements);
    for (int o = 0; o < graph->n_ops; o++)
        p->instruction_of[o] = -1;
    CLV_TRY(clv_partition_mark_live(p, err));
    clv_partition_find_wanted(p);
    CLV_TRY(clv_partition_find_readers(p, err));
    clv_partition_find_fan_in(p);
    for (int v = 1; v < graph->n_values; v++)
        if (graph->values[v].source != CLV_FROM_OP)
            CLV_TRY(place_named(p, v, err));
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        bool constraint = clv_op_constraint_of(op) || clv_op_follows_primal(op);
        p->backward = op->backward;
        if (p->live_op[o])
            CLV_TRY(constraint ? emit_constraint(p, op, err) : emit_op(p, op, err));
    }
    p->backward = false;
    CLV_TRY(emit_outputs(p, err));
    CLV_TRY(emit_assignments(p, err));
    p->program->most_by_size = p->options->most_by_size;
    return clv_program_plan_memory(p->program, err);
}

clv_status clv_compile(clv_program **out, const clv_graph *graph, const clv_compile_options *options, clv_error *err)
{
    clv_compile_options taken;
    CLV_TRY(clv_require(out && graph, "clv_compile", "out and a graph", err));
    CLV_TRY(clv_graph_status(graph, err));
    CLV_TRY(clv_graph_check_rules(graph, err));
    CLV_TRY(
        clv_take_options(&taken, sizeof taken, offsetof(clv_compile_options, machine), options, "clv_compile", err));
    clv_program *program = calloc(1, sizeof *program);
    clv_arena *scratch = clv_arena_new();
    if (program)
        program->arena = clv_arena_new();
    clv_status status = CLV_OK;
    if (!program || !program->arena || !scratch)
        status = clv_fail_memory(err, "a program", sizeof *program);
    if (status == CLV_OK) {
        program->mesh = graph->mesh;
        clv_cost_model cost;
        clv_cost_model_make(&cost, &graph->mesh, taken.machine);
        clv_partitioner p = {.graph = graph, .program = program, .scratch = scratch, .options = &taken, .cost = &cost};
        status = partition(&p, err);
    }
    clv_arena_free(scratch);
    if (status != CLV_OK) {
        clv_program_free(program);
        return status;
    }
    *out = program;
    return CLV_OK;
}
