/* memory_report.c - memory of a rank at its peak, by kind: parameters, activations, gradients, workspace. */
#include <stdlib.h>

#include "base/error.h"
#include "program/program.h"

/* Whether a buffer of the stage's region owns its memory. */
static bool holds_memory(const clv_buffer *buffer, int stage)
{
    return clv_stages_have(buffer->layout.stages, stage) && buffer->kind != CLV_BUFFER_STATE &&
           buffer->shares_with < 0 && buffer->bytes > 0;
}

bool clv_buffer_holds_memory_at(const clv_buffer *buffer, int stage, int i)
{
    return holds_memory(buffer, stage) && buffer->first <= i && i <= buffer->last;
}

/* The instruction at which most bytes of the stage's region are live. */
static int find_peak(const clv_program *program, int stage)
{
    int n = program->n_instructions, peak = 0;
    int64_t *change = calloc((size_t)n + 2, sizeof *change), live = 0, most = -1;
    if (!change)
        return 0;
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        if (!holds_memory(buffer, stage))
            continue;
        change[buffer->first < 0 ? 0 : buffer->first] += buffer->bytes;
        if (buffer->last < n)
            change[(buffer->last < 0 ? 0 : buffer->last) + 1] -= buffer->bytes;
    }
    for (int i = 0; i < n; i++) {
        live += change[i];
        if (clv_stages_have(program->instructions[i].stages, stage) &&
            live + program->instructions[i].workspace_bytes > most) {
            most = live + program->instructions[i].workspace_bytes;
            peak = i;
        }
    }
    free(change);
    return peak;
}

static bool made_by_collective(const clv_program *program, const clv_buffer *buffer)
{
    if (buffer->first < 0 || buffer->first >= program->n_instructions)
        return false;
    const clv_instruction *made = &program->instructions[buffer->first];
    return made->is_conversion || (!made->op && clv_step_moves(made->step->kind));
}

static bool kept_for_backward(const clv_program *program, const clv_buffer *buffer)
{
    return buffer->first >= 0 && buffer->last < program->n_instructions && buffer->last >= 0 &&
           !program->instructions[buffer->first].backward && program->instructions[buffer->last].backward;
}

int64_t *clv_memory_figure(clv_memory *m, const clv_program *program, const clv_buffer *buffer)
{
    bool moved = made_by_collective(program, buffer);
    if (buffer->kind == CLV_BUFFER_INPUT)
        return &m->inputs;
    if (buffer->is_gradient)
        return &m->gradients;
    if (kept_for_backward(program, buffer))
        return moved ? &m->gathered : &m->activations;
    return moved ? &m->communication : &m->temporaries;
}

static void add_state(clv_memory *m, const clv_buffer *buffer)
{
    int64_t *const figures[] = {[CLV_ROLE_BUFFER] = &m->other_state,
                                [CLV_ROLE_PARAMETER] = &m->parameters,
                                [CLV_ROLE_OPTIMIZER] = &m->optimizer,
                                [CLV_ROLE_CACHE] = &m->cache};
    *figures[buffer->role] += buffer->bytes;
    if (buffer->updated && buffer->role != CLV_ROLE_CACHE)
        m->checkpoint_copy += buffer->bytes;
}

static void fill_memory(clv_memory *m, const clv_program *program, int stage)
{
    *m = (clv_memory){.region = clv_program_stage_region_bytes(program, stage),
                      .peak_instruction = find_peak(program, stage),
                      .stage = stage};
    int64_t live = 0;
    for (int b = 0; b < program->n_buffers; b++) {
        const clv_buffer *buffer = &program->buffers[b];
        if (buffer->kind == CLV_BUFFER_STATE && buffer->shares_with < 0) {
            if (clv_stages_have(buffer->layout.stages, stage))
                add_state(m, buffer);
        } else if (clv_buffer_holds_memory_at(buffer, stage, m->peak_instruction)) {
            *clv_memory_figure(m, program, buffer) += buffer->bytes;
            live += buffer->bytes;
        }
    }
    if (program->n_instructions > 0) {
        m->workspace = program->instructions[m->peak_instruction].workspace_bytes;
        m->peak = program->instructions[m->peak_instruction].name;
    }
    m->fragments = m->region - live - m->workspace;
    m->total = m->parameters + m->optimizer + m->cache + m->other_state + m->region;
}

clv_status clv_program_stage_memory(clv_memory *out, const clv_program *program, int stage, clv_error *err)
{
    clv_memory m;
    fill_memory(&m, program, stage);
    return clv_struct_copy_out(out, sizeof m, sizeof m, &m, __func__, err);
}

clv_status clv_program_memory(const clv_program *program, clv_memory *out, clv_error *err)
{
    clv_memory most, m;
    CLV_TRY(clv_require(program && out, __func__, "a program and out", err));
    fill_memory(&most, program, 0);
    for (int s = 1; s < clv_program_stage_count(program); s++) {
        fill_memory(&m, program, s);
        if (m.total > most.total)
            most = m;
    }
    return clv_struct_copy_out(out, sizeof most, sizeof most, &most, __func__, err);
}
