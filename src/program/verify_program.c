/* verify_program.c - verifies a program: order of reads and writes, memory reuse, layouts, groups, offsets. */
#include <stdlib.h>

#include "base/error.h"
#include "program/program.h"

/* State of memory, by buffer that owns it (clv_program_buffer_range), before an instruction. */
typedef struct contents {
    int *holds;                      /* [n_buffers] the buffer whose value it holds; -1: none yet */
    bool *made;                      /* [n_buffers] an instruction makes it; else it is a view of another buffer */
    int *reads_until, *writes_until; /* [n_buffers] the first instruction at which no collective reads, or writes, it */
    int *steps_until;                /* [n_groups] the first instruction at which no collective of the group runs */
} contents;

/* The maximum of `until` over the memory of b. */
static int latest(const clv_program *program, const int *until, int b)
{
    clv_buffer_range range = clv_program_buffer_range(program, b);
    int last = 0;
    for (int k = 0; k < range.n; k++)
        last = until[clv_buffer_range_at(&range, k)] > last ? until[clv_buffer_range_at(&range, k)] : last;
    return last;
}

static void note_range(const clv_program *program, int *notes, int b, int note)
{
    clv_buffer_range range = clv_program_buffer_range(program, b);
    for (int k = 0; k < range.n; k++)
        notes[clv_buffer_range_at(&range, k)] = note;
}

/* Checks that no collective in flight writes an operand of instruction i, or uses a result of it. */
static clv_status check_in_flight(const clv_program *program, int i, const contents *c, clv_error *err)
{
    const clv_instruction *instruction = &program->instructions[i];
    int ends = clv_program_completes_at(program, i);
    if (instruction->n_overlapped < 0 || ends >= program->n_instructions ||
        (instruction->n_overlapped > 0 && instruction->group < 0))
        return clv_fail(err, CLV_EINVAL, "instruction %d (%s) overlaps with %d instructions", i, instruction->name,
                        instruction->n_overlapped);
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0 && latest(program, c->writes_until, instruction->in[k]) > i)
            return clv_fail(err, CLV_EINVAL, "instruction %d (%s) reads buffer %d while a collective writes it", i,
                            instruction->name, instruction->in[k]);
    for (int o = 0; o < instruction->n_out; o++) {
        int out = instruction->out[o];
        if (latest(program, c->writes_until, out) > i || latest(program, c->reads_until, out) > i)
            return clv_fail(err, CLV_EINVAL, "instruction %d (%s) writes buffer %d while a collective uses it", i,
                            instruction->name, out);
    }
    if (instruction->group >= 0 && c->steps_until[instruction->group] > i)
        return clv_fail(err, CLV_EINVAL, "instruction %d (%s) starts a collective in a group with another in flight", i,
                        instruction->name);
    if (instruction->n_overlapped == 0)
        return CLV_OK;
    for (int k = 0; k < instruction->n_in; k++)
        note_range(program, c->reads_until, instruction->in[k], ends + 1);
    for (int o = 0; o < instruction->n_out; o++)
        note_range(program, c->writes_until, instruction->out[o], ends + 1);
    c->steps_until[instruction->group] = ends + 1;
    return CLV_OK;
}

/* Whether memory that holds buffer `holds` has the value of b: a chunk of the same whole, or a view. */
static bool has_value(const clv_program *program, int b, int holds, const contents *c)
{
    const clv_buffer *buffer = &program->buffers[b];
    return clv_program_unchunked(program, b) == clv_program_unchunked(program, holds) ||
           (!buffer->is_chunk && buffer->shares_with >= 0 && !c->made[b]);
}

static clv_status check_operand(const clv_program *program, int i, int b, const contents *c, clv_error *err)
{
    clv_buffer_range range = clv_program_buffer_range(program, b);
    for (int k = 0; k < range.n; k++) {
        int holds = c->holds[clv_buffer_range_at(&range, k)];
        if (holds < 0)
            return clv_fail(err, CLV_EINVAL, "instruction %d (%s) reads buffer %d before it is written", i,
                            program->instructions[i].name, b);
        if (holds != b && !has_value(program, b, holds, c))
            return clv_fail(err, CLV_EINVAL, "instruction %d (%s) reads buffer %d, whose memory buffer %d reuses", i,
                            program->instructions[i].name, b, holds);
    }
    return CLV_OK;
}

/* Checks the pipeline stages of an instruction. All stages run parts of one list in its order, and a send is one
 * instruction of the stages at both ends, so every send meets its receive, and of all instructions that have not ended
 * the first can always end. */
static clv_status check_stages(const clv_program *program, int i, clv_error *err)
{
    const clv_instruction *instruction = &program->instructions[i];
    const int stages = clv_program_stage_count(program);
    const bool sends = !instruction->op && instruction->step->kind == CLV_STEP_SEND;
    for (int s = 0; s < stages; s++) {
        const bool runs = clv_stages_have(instruction->stages, s);
        bool reads = true, writes = true;
        for (int k = 0; k < instruction->n_in; k++)
            reads = reads &&
                    (instruction->in[k] < 0 || clv_stages_have(program->buffers[instruction->in[k]].layout.stages, s));
        for (int o = 0; o < instruction->n_out; o++)
            writes = writes && clv_stages_have(program->buffers[instruction->out[o]].layout.stages, s);
        if (!sends && runs && !reads)
            return clv_fail(err, CLV_EINVAL, "instruction %d (%s) reads what its stage %d does not hold", i,
                            instruction->name, s);
        if (!sends && runs != writes)
            return clv_fail(err, CLV_EINVAL, "instruction %d (%s): stage %d %s", i, instruction->name, s,
                            runs ? "has no room for its result" : "holds a result that it does not compute");
        if (sends && runs != (reads || writes))
            return clv_fail(err, CLV_EINVAL, "instruction %d (%s): stage %d %s", i, instruction->name, s,
                            runs ? "neither sends nor receives" : "sends or receives, and does not run it");
        const clv_group_axes *group = instruction->group >= 0 ? &program->groups[instruction->group] : NULL;
        if (sends && (!group || (group->from >> s & 1) != reads || (group->to >> s & 1) != writes))
            return clv_fail(err, CLV_EINVAL, "instruction %d (%s): stage %d is no member of its group", i,
                            instruction->name, s);
    }
    return CLV_OK;
}

static clv_status check_instruction(const clv_program *program, int i, const contents *c, clv_error *err)
{
    CLV_TRY(check_stages(program, i, err));
    const clv_instruction *instruction = &program->instructions[i];
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            CLV_TRY(check_operand(program, i, instruction->in[k], c, err));
    if (instruction->op)
        return CLV_OK;
    const clv_reshard_step *step = instruction->step;
    if (!clv_layout_equal(&step->from, &program->buffers[instruction->in[0]].layout) ||
        !clv_layout_equal(&step->to, &program->buffers[instruction->out[0]].layout))
        return clv_fail(err, CLV_EINVAL, "instruction %d (%s): the layouts of the step are not those of its buffers", i,
                        instruction->name);
    if (clv_step_moves(step->kind) != (instruction->group >= 0))
        return clv_fail(err, CLV_EINVAL, "instruction %d (%s): only a collective has a group", i, instruction->name);
    return CLV_OK;
}

static bool in_region(const clv_buffer *buffer)
{
    return buffer->kind != CLV_BUFFER_STATE && buffer->shares_with < 0;
}

static clv_status check_order(const clv_program *program, const contents *c, clv_error *err)
{
    for (int b = 0; b < program->n_buffers; b++)
        c->holds[b] = program->buffers[b].kind == CLV_BUFFER_TEMP ? -1 : b;
    for (int i = 0; i < program->n_instructions; i++)
        for (int o = 0; o < program->instructions[i].n_out; o++)
            c->made[program->instructions[i].out[o]] = true;
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        CLV_TRY(check_instruction(program, i, c, err));
        CLV_TRY(check_in_flight(program, i, c, err));
        for (int o = 0; o < instruction->n_out; o++)
            note_range(program, c->holds, instruction->out[o], instruction->out[o]);
    }
    return CLV_OK;
}

/* stages: of pipeline stages that have the other memory; 0: all. */
static bool overlap(const clv_buffer *buffer, int first, int last, uint32_t stages, int64_t offset, int64_t bytes)
{
    bool live_together = buffer->first <= last && first <= buffer->last &&
                         (stages == 0 || buffer->layout.stages == 0 || (stages & buffer->layout.stages));
    return in_region(buffer) && live_together && buffer->offset < offset + bytes &&
           offset < buffer->offset + buffer->bytes;
}

static clv_status check_offsets(const clv_program *program, clv_error *err)
{
    for (int a = 0; a < program->n_buffers; a++) {
        const clv_buffer *x = &program->buffers[a];
        if (in_region(x) && (x->offset < 0 || x->offset > program->region_bytes - x->bytes))
            return clv_fail(err, CLV_EINVAL, "buffer %d lies outside the region", a);
        for (int b = 0; in_region(x) && b < a; b++)
            if (overlap(&program->buffers[b], x->first, x->last, x->layout.stages, x->offset, x->bytes))
                return clv_fail(err, CLV_EINVAL, "buffers %d and %d live at once and overlap", b, a);
        for (int i = x->first < 0 ? 0 : x->first; in_region(x) && i <= x->last && i < program->n_instructions; i++) {
            const clv_instruction *made = &program->instructions[i];
            if (overlap(x, i, i, made->stages, made->workspace_offset, made->workspace_bytes))
                return clv_fail(err, CLV_EINVAL, "buffer %d and the workspace of instruction %d (%s) overlap", a, i,
                                made->name);
        }
    }
    return CLV_OK;
}

clv_status clv_program_verify(const clv_program *program, clv_error *err)
{
    size_t n = (size_t)program->n_buffers + 1;
    contents c = {.holds = calloc(n, sizeof *c.holds),
                  .made = calloc(n, sizeof *c.made),
                  .reads_until = calloc(n, sizeof *c.reads_until),
                  .writes_until = calloc(n, sizeof *c.writes_until),
                  .steps_until = calloc((size_t)program->n_groups + 1, sizeof *c.steps_until)};
    bool there = c.holds && c.made && c.reads_until && c.writes_until && c.steps_until;
    clv_status status =
        there ? check_order(program, &c, err) : clv_fail_memory(err, "checking a program", n * sizeof *c.holds);
    free(c.holds);
    free(c.made);
    free(c.reads_until);
    free(c.writes_until);
    free(c.steps_until);
    return status == CLV_OK ? check_offsets(program, err) : status;
}
