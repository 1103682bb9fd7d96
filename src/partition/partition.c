/* partition.c - graph and layouts to a program: clv_compile.
 *
 * Ops are taken in order. Each is given the cheapest strategy (strategy.h) for the layouts that its operands are at
 * hand in and the layouts that its results are wanted in; the changes of layout that it needs are emitted before it.
 * A tensor that was once brought to a layout stays at hand in it, so a gather is shared by all its readers. Partial
 * results stay partial until a reader needs them whole: gradients that fan in are added first and reduced once.
 *
 * Where a result is wanted, if anywhere, is looked up in three places: what the user stated (constraint, output, assigned
 * state), carried back through ops that only pass elements on; a cotangent is wanted like its primal.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/graph.h"
#include "partition/memo.h"
#include "partition/reshard.h"
#include "program/program.h"
#include "tensor/text.h"

/* Where a value is at hand: buffers, each in its layout. The first is as it was made. */
typedef struct placement {
    int n;
    int buffer[CLV_MAX_AVAILABLE];
    int n_forward; /* of those, made by the forward pass */
    bool wanted;
    clv_layout target;
    int fan_in; /* addends of the sum that the value goes into, see clv_problem */
    int heir;   /* the constrained cotangent that the value, or its sum, becomes; -1 */
} placement;

typedef struct partitioner {
    const clv_graph *graph;
    clv_program *program;
    clv_arena *scratch;
    clv_reshard_cache *reshards;
    clv_memo *memo;
    const clv_compile_options *options;
    placement *placements; /* [n_values] */
    bool *live_op;         /* [n_ops] */
    bool backward;         /* the op in hand is of the backward pass */
} partitioner;

/* ---- liveness and wanted layouts ---- */

static void mark_live(partitioner *p)
{
    const clv_graph *graph = p->graph;
    bool *live = clv_arena_alloc(p->scratch, (size_t)graph->n_values, sizeof *live);
    if (!live)
        return;
    for (int o = 0; o < graph->n_outputs; o++)
        live[graph->outputs[o].value] = true;
    for (int v = 0; v < graph->n_values; v++)
        if (graph->values[v].assigned >= 0)
            live[graph->values[v].assigned] = true;
    for (int o = graph->n_ops - 1; o >= 0; o--) {
        const clv_op *op = &graph->ops[o];
        for (int r = 0; r < op->n_out; r++)
            p->live_op[o] = p->live_op[o] || live[op->out[r]];
        for (int i = 0; p->live_op[o] && i < op->n_in; i++)
            if (op->in[i] >= 0)
                live[op->in[i]] = true;
    }
}

static void want(partitioner *p, int value, const clv_layout *layout)
{
    placement *at = &p->placements[value];
    if (at->wanted)
        return;
    at->wanted = true;
    at->target = *layout;
}

static bool same_factors(const clv_dim_factors *a, const clv_dim_factors *b)
{
    return a->n == b->n && memcmp(a->factor, b->factor, (size_t)a->n) == 0;
}

/* The layout of operand i under which result 0 comes out in `target`, where each of its dimensions is one of the
 * result's; false when the op does more than pass elements on. */
static bool carry_back(clv_layout *out, const clv_problem *problem, int i, const clv_layout *target)
{
    const clv_rule *rule = &problem->rule;
    *out = clv_layout_replicated(problem->in[i].rank);
    for (int d = 0; d < out->rank; d++) {
        int match = -1;
        for (int r = 0; match < 0 && r < target->rank; r++)
            if (rule->in[i][d].n > 0 && same_factors(&rule->in[i][d], &rule->out[0][r]))
                match = r;
        if (match < 0 && problem->in[i].shape[d] != 1)
            return false;
        const clv_subaxis *axes = NULL;
        int n = match < 0 ? 0 : clv_layout_axes(&axes, target, match);
        if (n > 0 && clv_layout_set_dim(out, problem->mesh, d, axes, n, target->granule[match], NULL) != CLV_OK)
            return false;
    }
    return true;
}

static void load_op(clv_problem *problem, clv_type *types, const partitioner *p, const clv_op *op);

static void find_wanted(partitioner *p)
{
    const clv_graph *graph = p->graph;
    for (int o = 0; o < graph->n_outputs; o++)
        if (graph->outputs[o].stated)
            want(p, graph->outputs[o].value, &graph->outputs[o].layout);
    for (int v = 0; v < graph->n_values; v++)
        if (graph->values[v].assigned >= 0)
            want(p, graph->values[v].assigned, &graph->values[v].layout);
    for (int o = graph->n_ops - 1; o >= 0; o--) {
        const clv_op *op = &graph->ops[o];
        if (!p->live_op[o] || op->def->follows_primal)
            continue;
        if (op->def->constraint) {
            want(p, op->in[0], op->def->constraint(op));
            continue;
        }
        const placement *result = &p->placements[op->out[0]];
        if (!result->wanted || op->n_out != 1 || !op->def->rule)
            continue;
        clv_problem problem;
        clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
        load_op(&problem, types, p, op);
        for (int i = 0; i < op->n_in; i++) {
            clv_layout layout;
            if (op->in[i] >= 0 && clv_type_elems(&problem.in[i]) == clv_type_elems(&problem.out[0]) &&
                carry_back(&layout, &problem, i, &result->target))
                want(p, op->in[i], &layout);
        }
    }
}

static bool is_sum(const partitioner *p, int o)
{
    const clv_op *op = &p->graph->ops[o];
    return p->live_op[o] && op->def->is_sum && op->def->is_sum(op) && op->in[0] != op->in[1];
}

/* What a sum, or a constrained cotangent, tells its operands that nobody else reads. */
static void inherit(partitioner *p, int o, const int *readers)
{
    const clv_op *op = &p->graph->ops[o];
    bool sum = is_sum(p, o);
    if (!sum && !(p->live_op[o] && op->def->follows_primal))
        return;
    const placement *result = &p->placements[op->out[0]];
    for (int i = 0; i < op->n_in; i++) {
        placement *operand = &p->placements[op->in[i]];
        if (readers[op->in[i]] != 1)
            continue;
        operand->heir = sum ? result->heir : op->out[0];
        if (sum)
            operand->fan_in = result->fan_in;
    }
}

/* Sizes of sums of sums whose inner results nobody else reads: gradients that fan in. */
static clv_status find_fan_in(partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    int *readers = clv_arena_alloc(p->scratch, (size_t)graph->n_values + 1, sizeof *readers);
    if (!readers)
        return clv_fail_memory(err, "readers", (size_t)graph->n_values * sizeof *readers);
    for (int v = 0; v < graph->n_values; v++) {
        p->placements[v].fan_in = 1;
        p->placements[v].heir = -1;
        readers[v] += graph->values[v].assigned >= 0;
    }
    for (int o = 0; o < graph->n_outputs; o++)
        readers[graph->outputs[o].value]++;
    for (int o = 0; o < graph->n_ops; o++)
        for (int i = 0; p->live_op[o] && i < graph->ops[o].n_in; i++)
            if (graph->ops[o].in[i] >= 0)
                readers[graph->ops[o].in[i]]++;
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        if (!is_sum(p, o))
            continue;
        placement *sum = &p->placements[op->out[0]];
        sum->fan_in = 0;
        for (int i = 0; i < 2; i++)
            sum->fan_in += readers[op->in[i]] == 1 ? p->placements[op->in[i]].fan_in : 1;
    }
    for (int o = graph->n_ops - 1; o >= 0; o--)
        inherit(p, o, readers);
    return CLV_OK;
}

/* ---- the program as it grows ---- */

static clv_status add_buffer(int *out, partitioner *p, const clv_buffer *buffer, clv_error *err)
{
    clv_program *program = p->program;
    if (clv_arena_grow(program->arena, &program->buffers, &program->buffer_capacity, program->n_buffers,
                       sizeof *buffer) != 0)
        return clv_fail_memory(err, "a buffer", sizeof *buffer);
    program->buffers[program->n_buffers] = *buffer;
    program->buffers[program->n_buffers].shares = -1;
    *out = program->n_buffers++;
    return CLV_OK;
}

static clv_status add_instruction(partitioner *p, const clv_instruction *instruction, clv_error *err)
{
    clv_program *program = p->program;
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

static clv_status find_group(int *out, partitioner *p, const clv_reshard_step *step, clv_error *err)
{
    clv_program *program = p->program;
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

static void place(partitioner *p, int value, int buffer)
{
    placement *at = &p->placements[value];
    for (int k = 0; k < at->n; k++)
        if (at->buffer[k] == buffer)
            return;
    if (at->n < CLV_MAX_AVAILABLE)
        at->buffer[at->n++] = buffer;
    if (!p->backward)
        at->n_forward = at->n;
    int primal = p->graph->values[value].primal;
    p->program->buffers[buffer].is_gradient |= primal >= 0 && p->graph->values[primal].source == CLV_FROM_STATE &&
                                               p->graph->values[primal].role == CLV_ROLE_PARAMETER;
}

static const clv_layout *layout_of(const partitioner *p, int buffer)
{
    return &p->program->buffers[buffer].layout;
}

/* What a constraint gathered: the value before it, when each rank holds more of the result; -1: not gathered. */
static int before_gather(const partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    if (info->source != CLV_FROM_OP || !p->graph->ops[info->op].def->constraint)
        return -1;
    int before = p->graph->ops[info->op].in[0];
    const clv_layout *from = layout_of(p, p->placements[before].buffer[0]);
    const clv_layout *to = layout_of(p, p->placements[value].buffer[0]);
    bool more = clv_layout_max_elems(to, info->type.shape) > clv_layout_max_elems(from, info->type.shape);
    return more && !clv_layout_is_partial(from) ? before : -1;
}

/* The buffers that an op may read a value from. The backward pass, when it is to gather again, does not see what the forward
 * pass made for its own use. */
static int at_hand(int out[CLV_MAX_AVAILABLE], const partitioner *p, int value)
{
    const placement *at = &p->placements[value];
    bool again = p->backward && p->options->regather;
    int before = again ? before_gather(p, value) : -1, n = 0;
    for (int k = 0; k < at->n; k++)
        if (!again || k >= at->n_forward || (k == 0 && before < 0))
            out[n++] = at->buffer[k];
    if (before >= 0 && n < CLV_MAX_AVAILABLE)
        out[n++] = p->placements[before].buffer[0];
    return n;
}

/* Why a value changes layout. */
typedef struct reason {
    const char *op;    /* that needs it, or the output or state that it becomes; lives with the program */
    const char *cause; /* NULL: the operand of an op, described when a step is made */
    const clv_op *reader;
    const clv_strategy *strategy; /* of reader */
    int operand;
} reason;

/* The name of a value: of the state or input, else of the op that makes it. */
static const char *value_name(const partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    return info->source == CLV_FROM_OP ? p->graph->ops[info->op].name : info->name;
}

/* The statement that a value has its layout from: the nearest constraint, state or input on the way to its largest operands. */
static int statement_of(const partitioner *p, int value)
{
    const clv_graph *graph = p->graph;
    for (int hops = 0; hops < 64 && graph->values[value].source == CLV_FROM_OP; hops++) {
        const clv_op *op = &graph->ops[graph->values[value].op];
        int64_t most = -1;
        if (op->def->constraint || op->n_in == 0)
            break;
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i] >= 0 && clv_type_elems(&graph->values[op->in[i]].type) > most) {
                most = clv_type_elems(&graph->values[op->in[i]].type);
                value = op->in[i];
            }
    }
    return value;
}

static const char *layout_text(char *out, size_t size, const partitioner *p, int value)
{
    const placement *at = &p->placements[value];
    clv_layout_print(out, size, layout_of(p, at->buffer[0]), &p->graph->mesh);
    return out;
}

/* The operand that is not moved, where the op has one: its statement is the other half of the conflict. */
static int other_operand(const clv_op *op, int moved)
{
    for (int i = 0; i < op->n_in; i++)
        if (i != moved && op->in[i] >= 0)
            return op->in[i];
    return -1;
}

static const char *describe(const partitioner *p, const reason *why, int value)
{
    char split[512], mine[CLV_LAYOUT_TEXT], theirs[CLV_LAYOUT_TEXT];
    if (why->cause)
        return why->cause;
    clv_strategy_print(split, sizeof split, why->strategy, &p->graph->mesh);
    int statement = statement_of(p, value), other = other_operand(why->reader, why->operand);
    if (other < 0)
        return clv_arena_format(p->program->arena, "the op is split %s; %s states %s", split, value_name(p, statement),
                                layout_text(mine, sizeof mine, p, statement));
    int second = statement_of(p, other);
    return clv_arena_format(p->program->arena, "the op is split %s; %s states %s, %s states %s", split,
                            value_name(p, statement), layout_text(mine, sizeof mine, p, statement),
                            value_name(p, second), layout_text(theirs, sizeof theirs, p, second));
}

/* Whether nobody asked for the step: an op's operand moves, and it is no weight that rules leave to be gathered. */
static bool is_implicit(const partitioner *p, const reason *why, const clv_reshard_step *step, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    if (why->cause || !clv_step_moves(step->kind))
        return false;
    bool weight = info->source == CLV_FROM_STATE && info->role == CLV_ROLE_PARAMETER;
    for (int a = 0; weight && a < step->n_axes; a++)
        weight = !(info->kept >> step->axes[a].axis & 1);
    return !weight;
}

static clv_status refuse_implicit(const partitioner *p, const clv_instruction *step, clv_error *err)
{
    return clv_fail(
        err, CLV_ELIMIT,
        "%s: a %s of %s moves %.0f bytes that nobody asked for (at most %lld are allowed): %s; state one of "
        "the two layouts like the other, or constrain %s where it is cheap",
        step->name, clv_step_name(step->step->kind), step->tensor, step->step->bytes,
        (long long)p->options->max_implicit_bytes, step->cause, step->tensor);
}

/* A step of a value from one buffer into another (or, with *to < 0, into a new one). */
static clv_status emit_step(partitioner *p, const clv_reshard_step *step, int value, int from, int *to,
                            const reason *why, clv_error *err)
{
    if (*to < 0) {
        clv_buffer buffer = {.kind = CLV_BUFFER_TEMP, .type = p->program->buffers[from].type, .layout = step->to};
        CLV_TRY(add_buffer(to, p, &buffer, err));
    }
    clv_instruction instruction = {.step = clv_arena_copy(p->program->arena, step, sizeof *step),
                                   .n_in = 1,
                                   .n_out = 1,
                                   .name = why->op,
                                   .cause = describe(p, why, value),
                                   .tensor = clv_arena_string(p->program->arena, value_name(p, value)),
                                   .implicit = is_implicit(p, why, step, value),
                                   .backward = p->backward};
    if (!instruction.step || !instruction.cause || !instruction.tensor)
        return clv_fail_memory(err, "a step", sizeof instruction);
    if (instruction.implicit && p->options->max_implicit_bytes > 0 &&
        step->bytes > (double)p->options->max_implicit_bytes)
        return refuse_implicit(p, &instruction, err);
    instruction.in[0] = from;
    instruction.out[0] = *to;
    CLV_TRY(find_group(&instruction.group, p, step, err));
    return add_instruction(p, &instruction, err);
}

/* The same elements on every rank under another layout (empty shards have other shapes): the same memory, seen so. */
static clv_status see_as(int *out, partitioner *p, int from, const clv_layout *to, clv_error *err)
{
    clv_buffer buffer = {.kind = CLV_BUFFER_TEMP, .type = p->program->buffers[from].type, .layout = *to};
    CLV_TRY(add_buffer(out, p, &buffer, err));
    p->program->buffers[*out].shares = clv_program_root(p->program, from);
    return CLV_OK;
}

static bool is_state(const partitioner *p, int buffer)
{
    return p->program->buffers[clv_program_root(p->program, buffer)].kind == CLV_BUFFER_STATE;
}

/* Brings a value to a layout and notes every layout passed on the way as at hand. */
static clv_status bring(int *out, partitioner *p, int value, const clv_layout *to, const reason *why, clv_error *err)
{
    const clv_type *type = &p->graph->values[value].type;
    const clv_reshard_plan *best = NULL;
    int from = -1, buffers[CLV_MAX_AVAILABLE], n = at_hand(buffers, p, value);
    for (int k = 0; k < n; k++) {
        const clv_reshard_plan *plan;
        CLV_TRY(clv_reshard_cached(&plan, p->reshards, layout_of(p, buffers[k]), to, type->shape, type->dtype, err));
        if (!best || plan->bytes < best->bytes || (plan->bytes == best->bytes && plan->n_steps < best->n_steps)) {
            best = plan;
            from = buffers[k];
        }
    }
    for (int i = 0; best && i < best->n_steps; i++) {
        int next = -1;
        CLV_TRY(emit_step(p, &best->steps[i], value, from, &next, why, err));
        place(p, value, next);
        from = next;
    }
    if (!clv_layout_equal(layout_of(p, from), to)) {
        CLV_TRY(see_as(&from, p, from, to, err));
        place(p, value, from);
    }
    *out = from;
    return CLV_OK;
}

/* ---- ops ---- */

static void load_op(clv_problem *problem, clv_type *types, const partitioner *p, const clv_op *op)
{
    const clv_graph *graph = p->graph;
    memset(problem, 0, sizeof *problem);
    memset(types, 0, (CLV_MAX_IN + CLV_MAX_OUT) * sizeof *types);
    problem->op = op;
    problem->mesh = &graph->mesh;
    problem->in = types;
    problem->out = types + CLV_MAX_IN;
    problem->cost = &clv_cost_default;
    problem->reshards = p->reshards;
    problem->by_bytes = p->options->by_bytes;
    problem->idle_axes = p->options->use_idle_axes;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] >= 0)
            types[i] = graph->values[op->in[i]].type;
    for (int o = 0; o < op->n_out; o++)
        types[CLV_MAX_IN + o] = graph->values[op->out[o]].type;
    for (int f = 0; f < CLV_MAX_FACTORS; f++)
        problem->rule.factor[f].spill = -1;
    op->def->rule(op, problem->in, problem->out, &problem->rule);
}

/* The layout of a value's primal, over dimensions: what its cotangent is wanted in; false when it has none. */
static bool primal_layout(clv_layout *out, const partitioner *p, int value)
{
    int primal = p->graph->values[value].primal;
    if (primal < 0 || p->placements[primal].n == 0)
        return false;
    *out = clv_layout_without_partial(layout_of(p, p->placements[primal].buffer[0]));
    return true;
}

static void load_layouts(clv_problem *problem, const partitioner *p, const clv_op *op)
{
    for (int i = 0; i < op->n_in; i++) {
        int buffers[CLV_MAX_AVAILABLE], n = op->in[i] >= 0 ? at_hand(buffers, p, op->in[i]) : 0;
        problem->kept[i] = op->in[i] >= 0 ? p->graph->values[op->in[i]].kept : 0;
        problem->n_available[i] = n;
        for (int k = 0; k < n; k++)
            problem->available[i][k] = *layout_of(p, buffers[k]);
    }
    for (int o = 0; o < op->n_out; o++) {
        const placement *at = &p->placements[op->out[o]];
        problem->fan_in[o] = at->fan_in;
        problem->wanted[o] = at->wanted || primal_layout(&problem->target[o], p, at->heir >= 0 ? at->heir : op->out[o]);
        if (at->wanted)
            problem->target[o] = at->target;
    }
}

static clv_status record_decision(partitioner *p, const char *name, const clv_strategy *strategy, clv_error *err)
{
    clv_program *program = p->program;
    char text[512];
    clv_strategy_print(text, sizeof text, strategy, &program->mesh);
    clv_decision decision = {.op = name,
                             .strategy = clv_arena_string(program->arena, text),
                             .considered = strategy->considered,
                             .bytes = strategy->bytes,
                             .seconds = strategy->seconds,
                             .runner_up = strategy->runner_up};
    if (!decision.strategy || clv_arena_grow(program->arena, &program->decisions, &program->decision_capacity,
                                             program->n_decisions, sizeof decision) != 0)
        return clv_fail_memory(err, "a decision", sizeof decision);
    program->decisions[program->n_decisions++] = decision;
    return CLV_OK;
}

/* The program outlives the graph: it keeps its own copy of the op. */
static clv_op *copy_op(partitioner *p, const clv_op *op)
{
    clv_op *copy = clv_arena_copy(p->program->arena, op, sizeof *op);
    if (!copy)
        return NULL;
    copy->name = clv_arena_string(p->program->arena, op->name);
    copy->attrs = op->attrs ? clv_arena_copy(p->program->arena, op->attrs, op->def->attrs_size) : NULL;
    return copy->name && (copy->attrs || !op->attrs) ? copy : NULL;
}

static size_t largest_workspace(const clv_problem *problem, const clv_strategy *strategy)
{
    const clv_op *op = problem->op;
    if (!op->def->workspace)
        return 0;
    clv_type in[CLV_MAX_IN] = {0}, out[CLV_MAX_OUT] = {0};
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i] >= 0)
            in[i] = clv_local_type(&problem->in[i], &strategy->in[i]);
    for (int o = 0; o < op->n_out; o++)
        out[o] = clv_local_type(&problem->out[o], &strategy->out[o]);
    return op->def->workspace(op, in, out);
}

static bool is_named(const char *name, const char *wanted)
{
    size_t n = strlen(wanted);
    return strncmp(name, wanted, n) == 0 && (name[n] == '\0' || name[n] == '.');
}

static bool is_explained(const partitioner *p, const clv_op *op)
{
    const char *wanted = p->options->explain;
    if (!wanted)
        return false;
    bool found = is_named(op->name, wanted);
    for (int i = 0; i < op->n_in; i++)
        found = found || (op->in[i] >= 0 && p->graph->values[op->in[i]].source == CLV_FROM_STATE &&
                          is_named(p->graph->values[op->in[i]].name, wanted));
    return found;
}

/* What a search tells of its candidates. */
typedef struct listener {
    partitioner *p;
    const clv_op *op;
    const char *name;
    const clv_strategy *chosen;
    bool failed;
} listener;

static const char *layouts_text(const listener *l, const clv_strategy *s)
{
    char all[4 * CLV_LAYOUT_TEXT], layout[CLV_LAYOUT_TEXT];
    clv_text text = {.out = all, .size = sizeof all};
    for (int i = 0; i < l->op->n_in; i++) {
        if (l->op->in[i] < 0)
            continue;
        clv_layout_print(layout, sizeof layout, &s->in[i], &l->p->graph->mesh);
        clv_text_add(&text, "%s{%s}", text.length ? ", " : "", layout);
    }
    for (int o = 0; o < l->op->n_out; o++) {
        clv_layout_print(layout, sizeof layout, &s->out[o], &l->p->graph->mesh);
        clv_text_add(&text, "%s{%s}", o ? ", " : " -> ", layout);
    }
    clv_text_end(&text);
    return clv_arena_string(l->p->program->arena, all);
}

static void note_candidate(void *arg, const clv_strategy *s)
{
    listener *l = arg;
    clv_program *program = l->p->program;
    char split[512];
    clv_strategy_print(split, sizeof split, s, &l->p->graph->mesh);
    clv_considered made = {.op = l->name,
                           .split = clv_arena_string(program->arena, split),
                           .layouts = layouts_text(l, s),
                           .bytes = s->bytes,
                           .seconds = s->seconds,
                           .work_seconds = s->work_seconds,
                           .chosen = s->n_atoms == l->chosen->n_atoms &&
                                     memcmp(s->choice, l->chosen->choice, (size_t)s->n_atoms) == 0};
    if (!made.split || !made.layouts ||
        clv_arena_grow(program->arena, &program->candidates, &program->candidate_capacity, program->n_candidates,
                       sizeof made) != 0)
        l->failed = true;
    else
        program->candidates[program->n_candidates++] = made;
}

static int by_price(const void *a, const void *b)
{
    const clv_considered *x = a, *y = b;
    return x->seconds < y->seconds ? -1 : x->seconds > y->seconds;
}

/* Searches again and keeps what was considered. */
static clv_status explain_op(partitioner *p, const clv_op *op, clv_problem *problem, const clv_strategy *chosen,
                             const char *name, clv_error *err)
{
    listener l = {.p = p, .op = op, .name = name, .chosen = chosen};
    clv_strategy again;
    int first = p->program->n_candidates;
    problem->note = note_candidate;
    problem->note_arg = &l;
    CLV_TRY(clv_strategy_choose(&again, problem, err));
    if (l.failed)
        return clv_fail_memory(err, "candidates", sizeof(clv_considered));
    qsort(p->program->candidates + first, (size_t)(p->program->n_candidates - first), sizeof(clv_considered), by_price);
    return CLV_OK;
}

static clv_status emit_op(partitioner *p, const clv_op *op, clv_error *err)
{
    clv_problem problem;
    clv_type types[CLV_MAX_IN + CLV_MAX_OUT];
    load_op(&problem, types, p, op);
    load_layouts(&problem, p, op);
    const clv_strategy *strategy;
    CLV_TRY(clv_memo_choose(&strategy, p->memo, &problem, err));
    clv_op *copy = copy_op(p, op);
    if (!copy)
        return clv_fail_memory(err, "an op of the program", sizeof *op);
    CLV_TRY(record_decision(p, copy->name, strategy, err));
    if (is_explained(p, op))
        CLV_TRY(explain_op(p, op, &problem, strategy, copy->name, err));
    clv_instruction instruction = {
        .op = copy, .group = -1, .n_in = op->n_in, .n_out = op->n_out, .name = copy->name, .backward = op->backward};
    for (int i = 0; i < op->n_in; i++) {
        instruction.in[i] = -1;
        if (op->in[i] < 0)
            continue;
        reason why = {.op = copy->name, .reader = op, .strategy = strategy, .operand = i};
        CLV_TRY(bring(&instruction.in[i], p, op->in[i], &strategy->in[i], &why, err));
    }
    for (int o = 0; o < op->n_out; o++) {
        clv_buffer buffer = {.kind = CLV_BUFFER_TEMP, .type = problem.out[o], .layout = strategy->out[o]};
        CLV_TRY(add_buffer(&instruction.out[o], p, &buffer, err));
        place(p, op->out[o], instruction.out[o]);
    }
    instruction.workspace_bytes = (int64_t)largest_workspace(&problem, strategy);
    return add_instruction(p, &instruction, err);
}

static clv_status emit_constraint(partitioner *p, const clv_op *op, clv_error *err)
{
    clv_layout to;
    if (op->def->constraint)
        to = *op->def->constraint(op);
    else if (!primal_layout(&to, p, op->out[0]))
        to = clv_layout_without_partial(layout_of(p, p->placements[op->in[0]].buffer[0]));
    reason why = {.op = clv_arena_string(p->program->arena, op->name),
                  .cause = op->def->constraint ? "the layout is stated" : "a gradient is laid out as what it is of"};
    int buffer;
    CLV_TRY(bring(&buffer, p, op->in[0], &to, &why, err));
    place(p, op->out[0], buffer);
    return CLV_OK;
}

/* ---- inputs, outputs, state ---- */

static clv_status place_named(partitioner *p, int value, clv_error *err)
{
    const clv_value_info *info = &p->graph->values[value];
    const placement *at = &p->placements[value];
    clv_buffer buffer = {.kind = info->source == CLV_FROM_STATE ? CLV_BUFFER_STATE : CLV_BUFFER_INPUT,
                         .type = info->type,
                         .layout = info->stated || !at->wanted ? info->layout : at->target,
                         .init = info->init,
                         .role = info->role,
                         .name = clv_arena_string(p->program->arena, info->name)};
    if (info->init_name)
        buffer.init_name = clv_arena_string(p->program->arena, info->init_name);
    int b;
    CLV_TRY(add_buffer(&b, p, &buffer, err));
    place(p, value, b);
    return CLV_OK;
}

static clv_status emit_outputs(partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    clv_program *program = p->program;
    program->outputs = clv_arena_alloc(program->arena, (size_t)graph->n_outputs + 1, sizeof *program->outputs);
    if (!program->outputs)
        return clv_fail_memory(err, "the outputs", (size_t)graph->n_outputs * sizeof *program->outputs);
    for (int o = 0; o < graph->n_outputs; o++) {
        const clv_named_output *output = &graph->outputs[o];
        const placement *at = &p->placements[output->value];
        clv_layout to = output->stated ? output->layout : clv_layout_without_partial(layout_of(p, at->buffer[0]));
        const char *name = clv_arena_string(program->arena, output->name);
        int buffer;
        reason why = {.op = name, .cause = "it is an output"};
        CLV_TRY(bring(&buffer, p, output->value, &to, &why, err));
        if (is_state(p, buffer)) {
            clv_reshard_step copy = {.kind = CLV_STEP_SLICE, .from = *layout_of(p, buffer), .to = to};
            int from = buffer;
            buffer = -1;
            why.cause = "an output of state is a copy";
            CLV_TRY(emit_step(p, &copy, output->value, from, &buffer, &why, err));
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

static clv_status find_uses(uses *out, partitioner *p, clv_error *err)
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
        takes_over = takes_over || (made->out[r] == value && k >= 0 && k < made->n_in && made->in[k] == state);
    }
    return u->last_read[state] < writer + takes_over;
}

static clv_status emit_assignments(partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    clv_program *program = p->program;
    int *source = clv_arena_alloc(p->scratch, (size_t)graph->n_values + 1, sizeof *source);
    if (!source)
        return clv_fail_memory(err, "assignments", (size_t)graph->n_values * sizeof *source);
    for (int v = 0; v < graph->n_values; v++) {
        source[v] = -1;
        if (graph->values[v].assigned < 0)
            continue;
        const clv_layout to = graph->values[v].layout;
        int value = graph->values[v].assigned;
        reason why = {.op = program->buffers[p->placements[v].buffer[0]].name, .cause = "state is kept in this layout"};
        CLV_TRY(bring(&source[v], p, value, &to, &why, err));
        if (is_state(p, source[v])) { /* its own state may be assigned before we read it */
            clv_reshard_step copy = {.kind = CLV_STEP_SLICE, .from = *layout_of(p, source[v]), .to = to};
            int from = source[v];
            source[v] = -1;
            why.cause = "state is assigned from state";
            CLV_TRY(emit_step(p, &copy, value, from, &source[v], &why, err));
        }
    }
    uses u;
    CLV_TRY(find_uses(&u, p, err));
    for (int v = 0; v < graph->n_values; v++) {
        if (source[v] < 0)
            continue;
        int state = p->placements[v].buffer[0];
        if (program->buffers[source[v]].shares < 0 && may_update_in_place(program, &u, state, source[v])) {
            program->buffers[source[v]].shares = state;
            continue;
        }
        clv_reshard_step copy = {.kind = CLV_STEP_SLICE, .from = *layout_of(p, source[v]), .to = *layout_of(p, state)};
        reason why = {.op = program->buffers[state].name, .cause = "state is assigned"};
        CLV_TRY(emit_step(p, &copy, graph->values[v].assigned, source[v], &state, &why, err));
    }
    return CLV_OK;
}

/* ---- clv_compile ---- */

static clv_status partition(partitioner *p, clv_error *err)
{
    const clv_graph *graph = p->graph;
    p->placements = clv_arena_alloc(p->scratch, (size_t)graph->n_values + 1, sizeof *p->placements);
    p->live_op = clv_arena_alloc(p->scratch, (size_t)graph->n_ops + 1, sizeof *p->live_op);
    p->reshards = clv_reshard_cache_new(p->scratch, &graph->mesh, NULL);
    p->memo = clv_memo_new(p->scratch);
    if (!p->placements || !p->live_op || !p->reshards || !p->memo)
        return clv_fail_memory(err, "the partitioner", (size_t)graph->n_values * sizeof *p->placements);
    mark_live(p);
    find_wanted(p);
    CLV_TRY(find_fan_in(p, err));
    for (int v = 0; v < graph->n_values; v++)
        if (graph->values[v].source != CLV_FROM_OP)
            CLV_TRY(place_named(p, v, err));
    for (int o = 0; o < graph->n_ops; o++) {
        const clv_op *op = &graph->ops[o];
        bool constraint = op->def->constraint || op->def->follows_primal;
        p->backward = op->backward;
        if (p->live_op[o])
            CLV_TRY(constraint ? emit_constraint(p, op, err) : emit_op(p, op, err));
    }
    p->backward = false;
    CLV_TRY(emit_outputs(p, err));
    CLV_TRY(emit_assignments(p, err));
    return clv_program_plan_memory(p->program, err);
}

clv_status clv_compile(clv_program **out, const clv_graph *graph, const clv_compile_options *options, clv_error *err)
{
    CLV_TRY(clv_graph_status(graph, err));
    static const clv_compile_options defaults = {0};
    clv_program *program = calloc(1, sizeof *program);
    clv_arena *scratch = clv_arena_new();
    if (program)
        program->arena = clv_arena_new();
    clv_status status = CLV_OK;
    if (!program || !program->arena || !scratch)
        status = clv_fail_memory(err, "a program", sizeof *program);
    if (status == CLV_OK) {
        program->mesh = graph->mesh;
        partitioner p = {
            .graph = graph, .program = program, .scratch = scratch, .options = options ? options : &defaults};
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
