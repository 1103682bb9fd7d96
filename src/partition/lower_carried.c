/* lower_carried.c - a step that carries its tensor rounded (carry.c says which): a cast, the step in that dtype, and a
 * cast back.
 *
 * These are instructions over buffers like all others, so whatever reads a program sees them, and nothing else knows of
 * them. All elements pass, those too that a rank keeps: who holds an element of the result holds the same bits. Sums
 * are those of tensors of that dtype: in f32, in the order of the group, rounded once.
 */
#include "base/error.h"
#include "ops/ops.h"
#include "partition/lowering.h"

static clv_dtype dtype_of(clv_comm_dtype carried)
{
    return carried == CLV_COMM_F16 ? CLV_F16 : CLV_BF16;
}

/* A buffer like that of a place, in another dtype. */
static clv_status add_like(int *out, clv_lowering *l, int place, clv_dtype dtype, clv_error *err)
{
    const clv_buffer *like = &l->program->buffers[place];
    clv_buffer buffer = {.kind = CLV_BUFFER_TEMP,
                         .type = like->type,
                         .layout = like->layout,
                         .is_gradient = like->is_gradient,
                         .shares = -1};
    buffer.type.dtype = dtype;
    return clv_lowering_add_buffer(out, l->program, &buffer, err);
}

static void write_cast_name(clv_text *t, const void *name)
{
    clv_text_add(t, "%s.cast", (const char *)name);
}

/* Of buffer `from` into buffer `to`. */
static clv_status add_cast(clv_lowering *l, const clv_row *row, int from, int to, const char *name, clv_error *err)
{
    clv_arena *arena = l->program->arena;
    clv_cast_attrs *attrs = clv_arena_alloc(arena, 1, sizeof *attrs);
    clv_op *op = clv_arena_alloc(arena, 1, sizeof *op);
    if (!attrs || !op)
        return clv_fail_memory(err, "a cast", sizeof *attrs + sizeof *op);
    attrs->dtype = l->program->buffers[to].type.dtype;
    *op = (clv_op){.id = -1,
                   .def = &clv_op_cast,
                   .attrs = attrs,
                   .name = name,
                   .backward = row->backward,
                   .gradient_of = -1,
                   .n_in = 1,
                   .n_out = 1,
                   .in = {row->value},
                   .out = {row->value}};
    return clv_lowering_add_instruction(l->program,
                                        &(clv_instruction){.op = op,
                                                           .group = -1,
                                                           .n_in = 1,
                                                           .n_out = 1,
                                                           .in = {from},
                                                           .out = {to},
                                                           .name = name,
                                                           .backward = row->backward,
                                                           .carries = true},
                                        err);
}

static void write_cause(clv_text *t, const void *arg)
{
    const clv_row *row = arg;
    clv_text_add(t, "%s; carried as %s", row->why.text, clv_comm_dtype_name(row->carried));
}

clv_status clv_lower_carried(clv_lowering *l, const clv_row *row, const clv_instruction *step, clv_error *err)
{
    clv_arena *arena = l->program->arena;
    clv_dtype dtype = dtype_of(row->carried);
    clv_instruction carried = *step;
    clv_reshard_step *narrow = clv_arena_copy(arena, row->step, sizeof *row->step);
    const char *name = clv_text_keep(arena, write_cast_name, step->name);
    carried.step = narrow;
    carried.cause = clv_text_keep(arena, write_cause, row);
    if (!narrow || !name || !carried.cause)
        return clv_fail_memory(err, "a step", sizeof *narrow);
    narrow->bytes *= (double)clv_dtype_size(dtype) / (double)clv_dtype_size(CLV_F32);
    CLV_TRY(add_like(&carried.in[0], l, row->from, dtype, err));
    CLV_TRY(add_like(&carried.out[0], l, row->to, dtype, err));
    CLV_TRY(add_cast(l, row, row->from, carried.in[0], name, err));
    CLV_TRY(clv_lowering_add_instruction(l->program, &carried, err));
    return add_cast(l, row, carried.out[0], row->to, name, err);
}

/* ---- for people ---- */

typedef struct told {
    const clv_program *program;
    const clv_row *row;
    int instruction;
} told;

static const clv_buffer *buffer_of(const told *it, bool result)
{
    const clv_instruction *instruction = &it->program->instructions[it->instruction];
    return &it->program->buffers[result ? instruction->out[0] : instruction->in[0]];
}

static void write_why(clv_text *t, const void *arg)
{
    const told *it = arg;
    const char *step = clv_step_name(it->row->step->kind);
    if (buffer_of(it, true)->type.dtype == CLV_F32)
        clv_text_add(t, "as it was before the %s", step);
    else
        clv_text_add(t, "the %s carries it as %s", step, clv_comm_dtype_name(it->row->carried));
}

static void write_layouts(clv_text *t, const void *arg)
{
    const told *it = arg;
    char from[CLV_LAYOUT_TEXT], to[CLV_LAYOUT_TEXT];
    clv_layout_print(from, sizeof from, &buffer_of(it, false)->layout, &it->program->mesh);
    clv_layout_print(to, sizeof to, &buffer_of(it, true)->layout, &it->program->mesh);
    clv_text_add(t, "{%s} -> {%s}", from, to);
}

clv_status clv_lower_tell_carried(clv_assigned *out, const clv_lowering *l, const clv_row *row, int i, clv_error *err)
{
    const clv_instruction *instruction = &l->program->instructions[i];
    told it = {l->program, row, i};
    clv_assigned made = {.instruction = i,
                         .op = instruction->name,
                         .kind = instruction->op->def->name,
                         .makes = clv_arena_string(l->program->arena, clv_graph_name_of(l->table->graph, row->value)),
                         .split = "",
                         .layouts = clv_text_keep(l->program->arena, write_layouts, &it),
                         .why = clv_text_keep(l->program->arena, write_why, &it)};
    *out = made;
    return made.makes && made.layouts && made.why ? CLV_OK : clv_fail_memory(err, "a row's text", sizeof made);
}
