/* program_builder.c - appends buffers and instructions to a program during lowering. */
#include "partition/lowering/program_builder.h"

#include "base/error.h"

clv_status clv_program_builder_add_buffer_like(int *out, clv_program *program, int like, const clv_type *type,
                                               const clv_layout *layout, clv_error *err)
{
    const clv_buffer buffer = {.kind = CLV_BUFFER_TEMP,
                               .type = *type,
                               .layout = *layout,
                               .is_gradient = program->buffers[like].is_gradient,
                               .shares_with = -1};
    return clv_program_add_buffer(out, program, &buffer, err);
}

clv_status clv_program_builder_add_conversion(clv_program_builder *l, const clv_sharding_row *row,
                                              const clv_op_def *def, const void *attrs, int from, int to,
                                              clv_error *err)
{
    clv_arena *arena = l->program->arena;
    const char *name = clv_arena_format(arena, "%s.%s", row->explanation.by, def->name);
    void *kept = clv_arena_copy(arena, attrs, def->attrs_size);
    clv_op *op = clv_arena_alloc(arena, 1, sizeof *op);
    if (!name || !kept || !op)
        return clv_fail_memory(err, "a conversion", def->attrs_size + sizeof *op);
    *op = (clv_op){.id = -1,
                   .def = def,
                   .attrs = kept,
                   .name = name,
                   .backward = row->backward,
                   .update = row->update,
                   .gradient_of = -1,
                   .n_in = 1,
                   .n_out = 1,
                   .in = {row->value},
                   .out = {row->value}};
    const bool sends = row->step->kind == CLV_STEP_SEND; /* the ends convert, each for itself */
    clv_instruction made = {.op = op,
                            .group = -1,
                            .n_in = 1,
                            .n_out = 1,
                            .in = {from},
                            .out = {to},
                            .name = name,
                            .backward = row->backward,
                            .update = row->update,
                            .is_conversion = true,
                            .stages = sends ? l->program->buffers[to].layout.stages : row->stages};
    return clv_program_add_instruction(l->program, &made, err);
}
