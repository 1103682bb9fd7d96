/* emit.c - buffers, instructions and changes of layout of the program as it grows. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "partition/partitioner.h"

clv_status clv_partition_add_buffer(int *out, clv_partitioner *p, const clv_buffer *buffer, clv_error *err)
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

clv_status clv_partition_add_instruction(clv_partitioner *p, const clv_instruction *instruction, clv_error *err)
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

static clv_status find_group(int *out, clv_partitioner *p, const clv_reshard_step *step, clv_error *err)
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

clv_status clv_partition_place(clv_partitioner *p, int value, int buffer, clv_error *err)
{
    clv_value_place *at = &p->placements[value];
    for (int k = 0; k < at->n; k++)
        if (at->buffer[k] == buffer)
            return CLV_OK;
    if (clv_arena_grow(p->scratch, &at->buffer, &at->capacity, at->n, sizeof *at->buffer) != 0)
        return clv_fail_memory(err, "where a value is at hand", sizeof *at->buffer);
    at->buffer[at->n++] = buffer;
    if (!p->backward)
        at->n_forward = at->n;
    int primal = p->graph->values[value].primal;
    p->program->buffers[buffer].is_gradient |= primal > 0 && p->graph->values[primal].source == CLV_FROM_STATE &&
                                               p->graph->values[primal].role == CLV_ROLE_PARAMETER;
    return CLV_OK;
}

/* What a constraint gathered: the value before it, when each rank holds more of the result; -1: not gathered. */
static int before_gather(const clv_partitioner *p, int value)
{
    const clv_value_info *info = &p->graph->values[value];
    if (info->source != CLV_FROM_OP || !clv_op_constraint_of(&p->graph->ops[info->op]))
        return -1;
    int before = p->graph->ops[info->op].in[0];
    const clv_layout *from = clv_partition_layout_of(p, p->placements[before].buffer[0]);
    const clv_layout *to = clv_partition_layout_of(p, p->placements[value].buffer[0]);
    bool more = clv_layout_max_elems(to, info->type.shape) > clv_layout_max_elems(from, info->type.shape);
    return more && !clv_layout_is_partial(from) ? before : -1;
}

/* The first whole copy of a value, which serves all readers from then on; while there is none, the first. A partial value
 * is reduced once: a second reduction may add in another order, and what was compared with the first (a maximum) would
 * equal nothing any more. */
static int first_copy(const clv_partitioner *p, const clv_value_place *at)
{
    for (int k = 0; k < at->n; k++)
        if (!clv_layout_is_partial(clv_partition_layout_of(p, at->buffer[k])))
            return k;
    return 0;
}

/* The buffers that an op may read a value from, and their layouts, which stay where they are until the next buffer is added.
 * The backward pass, when it is to gather again, does not see what the forward pass made for its own use. */
clv_status clv_partition_at_hand(const int **buffers, const clv_layout *const **layouts, int *n, clv_partitioner *p,
                                 int value, clv_error *err)
{
    const clv_value_place *at = &p->placements[value];
    bool again = p->backward && p->options->regather;
    int before = again ? before_gather(p, value) : -1, first = first_copy(p, at), count = 0;
    int *found = clv_arena_alloc(p->scratch, (size_t)at->n + 1, sizeof *found);
    const clv_layout **in = clv_arena_alloc(p->scratch, (size_t)at->n + 1, sizeof *in);
    if (!found || !in)
        return clv_fail_memory(err, "where a value is at hand", (size_t)at->n * sizeof *in);
    for (int k = first; k < at->n; k++)
        if (!again || k >= at->n_forward || (k == first && before < 0))
            found[count++] = at->buffer[k];
    if (before >= 0)
        found[count++] = p->placements[before].buffer[0];
    for (int k = 0; k < count; k++)
        in[k] = clv_partition_layout_of(p, found[k]);
    *buffers = found;
    *layouts = in;
    *n = count;
    return CLV_OK;
}

/* A step of a value from one buffer into another (or, with *to < 0, into a new one). */
clv_status clv_partition_emit_step(clv_partitioner *p, const clv_reshard_step *step, int value, int from, int *to,
                                   const clv_reason *why, clv_error *err)
{
    if (*to < 0) {
        clv_buffer buffer = {.kind = CLV_BUFFER_TEMP, .type = p->program->buffers[from].type, .layout = step->to};
        CLV_TRY(clv_partition_add_buffer(to, p, &buffer, err));
    }
    clv_instruction instruction = {.step = clv_arena_copy(p->program->arena, step, sizeof *step),
                                   .n_in = 1,
                                   .n_out = 1,
                                   .name = why->op,
                                   .tensor = clv_arena_string(p->program->arena, clv_partition_value_name(p, value)),
                                   .implicit = clv_partition_is_implicit(p, why, step, value),
                                   .backward = p->backward};
    if (!instruction.step || !instruction.tensor)
        return clv_fail_memory(err, "a step", sizeof instruction);
    CLV_TRY(clv_partition_describe(&instruction, p, why, step, value, err));
    if (instruction.implicit && p->options->max_implicit_bytes > 0 &&
        step->bytes > (double)p->options->max_implicit_bytes)
        return clv_partition_refuse_implicit(p, &instruction, err);
    instruction.in[0] = from;
    instruction.out[0] = *to;
    CLV_TRY(find_group(&instruction.group, p, step, err));
    return clv_partition_add_instruction(p, &instruction, err);
}

/* The same elements on every rank under another layout (empty shards have other shapes): the same memory, seen so. */
static clv_status see_as(int *out, clv_partitioner *p, int from, const clv_layout *to, clv_error *err)
{
    clv_buffer buffer = {.kind = CLV_BUFFER_TEMP, .type = p->program->buffers[from].type, .layout = *to};
    CLV_TRY(clv_partition_add_buffer(out, p, &buffer, err));
    p->program->buffers[*out].shares = clv_program_root(p->program, from);
    return CLV_OK;
}

bool clv_partition_is_state(const clv_partitioner *p, int buffer)
{
    return p->program->buffers[clv_program_root(p->program, buffer)].kind == CLV_BUFFER_STATE;
}

/* Brings a value to a layout and notes every layout passed on the way as at hand. */
clv_status clv_partition_bring(int *out, clv_partitioner *p, int value, const clv_layout *to, const clv_reason *why,
                               clv_error *err)
{
    const clv_type *type = &p->graph->values[value].type;
    const clv_reshard_plan *best;
    const clv_layout *const *at;
    const int *buffers;
    int source, from, n;
    CLV_TRY(clv_partition_at_hand(&buffers, &at, &n, p, value, err));
    CLV_TRY(clv_reshard_cheapest(&best, &source, p->reshards, at, n, to, type->shape, type->dtype, err));
    from = buffers[source];
    for (int i = 0; i < best->n_steps; i++) {
        int next = -1;
        CLV_TRY(clv_partition_emit_step(p, &best->steps[i], value, from, &next, why, err));
        CLV_TRY(clv_partition_place(p, value, next, err));
        from = next;
    }
    if (!clv_layout_equal(clv_partition_layout_of(p, from), to)) {
        CLV_TRY(see_as(&from, p, from, to, err));
        CLV_TRY(clv_partition_place(p, value, from, err));
    }
    *out = from;
    return CLV_OK;
}
