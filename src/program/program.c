/* program.c - reading and verifying a program. */
#include "program/program.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tensor/text.h"

void clv_program_free(clv_program *program)
{
    if (!program)
        return;
    clv_arena_free(program->arena);
    free(program);
}

const clv_mesh *clv_program_mesh(const clv_program *program)
{
    return &program->mesh;
}

int64_t clv_program_region_bytes(const clv_program *program)
{
    return program->region_bytes;
}

int clv_program_n_instructions(const clv_program *program)
{
    return program->n_instructions;
}

const char *clv_verdict_name(clv_verdict verdict)
{
    static const char *const names[] = {"chosen", "price", "kept_in_place", "illegal"};
    return names[verdict];
}

int clv_program_n_considered(const clv_program *program)
{
    return program->n_candidates;
}

clv_considered clv_program_considered(const clv_program *program, int i)
{
    return i >= 0 && i < program->n_candidates ? program->candidates[i] : (clv_considered){0};
}

int clv_program_n_collectives(const clv_program *program)
{
    return program->n_steps;
}

clv_collective clv_program_collective(const clv_program *program, int i)
{
    if (i < 0 || i >= program->n_steps)
        return (clv_collective){0};
    const clv_instruction *instruction = &program->instructions[program->steps[i]];
    const clv_reshard_step *step = instruction->step;
    clv_collective collective = {.kind = clv_step_name(step->kind),
                                 .op = instruction->name,
                                 .tensor = instruction->tensor,
                                 .cause = instruction->cause,
                                 .reason = instruction->reason,
                                 .statement = instruction->statement,
                                 .rules = instruction->rules,
                                 .implicit = instruction->implicit,
                                 .backward = instruction->backward,
                                 .n_axes = step->n_axes,
                                 .bytes = step->bytes,
                                 .from = step->from,
                                 .to = step->to,
                                 .type = program->buffers[instruction->in[0]].type};
    memcpy(collective.axes, step->axes, sizeof collective.axes);
    return collective;
}

clv_type clv_local_type(const clv_type *type, const clv_layout *layout)
{
    clv_type local = *type;
    for (int d = 0; d < type->rank; d++) {
        int64_t blocks = clv_layout_blocks(layout, d), granules = type->shape[d] / layout->granule[d];
        local.shape[d] = (granules + blocks - 1) / blocks * layout->granule[d];
    }
    return local;
}

int clv_program_root(const clv_program *program, int b)
{
    while (program->buffers[b].shares >= 0)
        b = program->buffers[b].shares;
    return b;
}

bool clv_program_sole_reader(const clv_program *program, const clv_instruction *instruction, int k)
{
    int root = clv_program_root(program, instruction->in[k]);
    for (int other = 0; other < instruction->n_in; other++)
        if (other != k && instruction->in[other] >= 0 && clv_program_root(program, instruction->in[other]) == root)
            return false;
    return true;
}

/* "the all_gather of x", "result 1 of layers.0.attention.attention". */
static void describe_result(clv_text *t, const clv_instruction *made, int result)
{
    if (!made->op)
        clv_text_add(t, "the %s of %s", clv_step_name(made->step->kind), made->tensor);
    else if (made->n_out > 1)
        clv_text_add(t, "result %d of %s", result, made->name);
    else
        clv_text_add(t, "the result of %s", made->name);
}

void clv_buffer_describe(char *out, size_t size, const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b], *root = &program->buffers[clv_program_root(program, b)];
    clv_text t = {.out = out, .size = size};
    if (buffer->kind != CLV_BUFFER_TEMP)
        clv_text_add(&t, "%s '%s'", buffer->kind == CLV_BUFFER_STATE ? "state" : "input", buffer->name);
    for (int i = 0; buffer->kind == CLV_BUFFER_TEMP && i < program->n_instructions; i++)
        for (int o = 0; o < program->instructions[i].n_out; o++)
            if (program->instructions[i].out[o] == b)
                describe_result(&t, &program->instructions[i], o);
    if (root != buffer && root->kind == CLV_BUFFER_STATE)
        clv_text_add(&t, " (kept as state '%s')", root->name);
    for (int o = 0; o < program->n_outputs; o++)
        if (program->outputs[o].buffer == b)
            clv_text_add(&t, " (output '%s')", program->outputs[o].name);
    clv_text_end(&t);
}

int64_t clv_view_elems(const clv_view *view)
{
    int64_t elems = 1;
    for (int d = 0; d < view->rank; d++)
        elems *= view->shape[d];
    return elems;
}

clv_view clv_buffer_view(const clv_buffer *buffer, const clv_mesh *mesh, int64_t rank, void *base)
{
    clv_view view = {.data = base, .dtype = buffer->type.dtype, .rank = buffer->type.rank};
    clv_shard shard = clv_layout_shard(&buffer->layout, mesh, buffer->type.shape, rank);
    for (int d = 0; d < view.rank; d++) {
        view.shape[d] = shard.hi[d] - shard.lo[d];
        view.lo[d] = shard.lo[d];
        view.global[d] = buffer->type.shape[d];
    }
    return view;
}

static clv_status check_instruction(const clv_program *program, int i, const bool *written, clv_error *err)
{
    const clv_instruction *instruction = &program->instructions[i];
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0 && !written[clv_program_root(program, instruction->in[k])])
            return clv_fail(err, CLV_EINVAL, "instruction %d (%s) reads buffer %d before it is written", i,
                            instruction->name, instruction->in[k]);
    if (instruction->op)
        return CLV_OK;
    const clv_reshard_step *step = instruction->step;
    if (!clv_layout_equal(&step->from, &program->buffers[instruction->in[0]].layout) ||
        !clv_layout_equal(&step->to, &program->buffers[instruction->out[0]].layout))
        return clv_fail(err, CLV_EINVAL, "instruction %d (%s): the step's layouts are not its buffers'", i,
                        instruction->name);
    if (clv_step_moves(step->kind) != (instruction->group >= 0))
        return clv_fail(err, CLV_EINVAL, "instruction %d (%s): a step has a group iff ranks talk", i,
                        instruction->name);
    return CLV_OK;
}

static bool in_region(const clv_buffer *buffer)
{
    return buffer->kind != CLV_BUFFER_STATE && buffer->shares < 0;
}

clv_status clv_program_check(const clv_program *program, clv_error *err)
{
    bool *written = calloc((size_t)program->n_buffers + 1, sizeof *written);
    if (!written)
        return clv_fail_memory(err, "checking a program", (size_t)program->n_buffers);
    clv_status status = CLV_OK;
    for (int b = 0; b < program->n_buffers; b++)
        written[b] = program->buffers[b].kind != CLV_BUFFER_TEMP;
    for (int i = 0; status == CLV_OK && i < program->n_instructions; i++) {
        status = check_instruction(program, i, written, err);
        for (int k = 0; k < program->instructions[i].n_out; k++)
            written[clv_program_root(program, program->instructions[i].out[k])] = true;
    }
    free(written);
    for (int a = 0; status == CLV_OK && a < program->n_buffers; a++)
        for (int b = 0; b < a; b++) {
            const clv_buffer *x = &program->buffers[a], *y = &program->buffers[b];
            bool live_together = x->first <= y->last && y->first <= x->last;
            bool overlap = x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
            if (in_region(x) && in_region(y) && live_together && overlap)
                return clv_fail(err, CLV_EINVAL, "buffers %d and %d live at once and overlap", b, a);
        }
    return status;
}
