/* lower_compressed_collectives.c - lowers a compressed collective to cast, collective, cast back.
 *
 * In: a row with a wire dtype. Out: ordinary instructions over buffers. All elements are cast, also those that a rank
 * keeps, so all ranks hold the same bits of an element. Sums are those of tensors of the wire dtype: in f32, in the
 * order of the group, rounded once.
 */
#include "ops/builtin_ops.h"
#include "partition/lowering/program_builder.h"

static clv_dtype dtype_of(clv_comm_dtype wire)
{
    return wire == CLV_COMM_F16 ? CLV_F16 : CLV_BF16;
}

static void write_cause(clv_text *t, const void *arg)
{
    const clv_sharding_row *row = arg;
    clv_text_add(t, "%s; sent as %s", row->explanation.text, clv_comm_dtype_name(row->wire_dtype));
}

/* A cast, the step over the narrow tensor, and a cast back. */
static clv_status lower_cast(clv_program_builder *l, const clv_sharding_row *row, clv_instruction compressed,
                             clv_error *err)
{
    clv_program *program = l->program;
    clv_reshard_step *narrow = clv_arena_copy(program->arena, row->step, sizeof *row->step);
    clv_cast_attrs to = {.dtype = dtype_of(row->wire_dtype)}, back = {.dtype = CLV_F32};
    clv_type type = program->buffers[row->from].type;
    if (!narrow)
        return clv_fail_memory(err, "a step", sizeof *narrow);
    type.dtype = to.dtype;
    narrow->bytes *= (double)clv_dtype_size(type.dtype) / (double)clv_dtype_size(CLV_F32);
    compressed.step = narrow;
    CLV_TRY(clv_program_builder_add_buffer_like(&compressed.in[0], program, row->from, &type, &row->step->from, err));
    CLV_TRY(clv_program_builder_add_buffer_like(&compressed.out[0], program, row->to, &type, &row->step->to, err));
    CLV_TRY(clv_program_builder_add_conversion(l, row, &clv_op_cast, &to, row->from, compressed.in[0], err));
    CLV_TRY(clv_program_add_instruction(program, &compressed, err));
    return clv_program_builder_add_conversion(l, row, &clv_op_cast, &back, compressed.out[0], row->to, err);
}

clv_status clv_lower_compressed_collective(clv_program_builder *l, const clv_sharding_row *row,
                                           const clv_instruction *step, clv_error *err)
{
    clv_instruction compressed = *step;
    clv_sharding_row as_bf16 = *row;
    bool done = false;
    compressed.cause = clv_text_to_arena(l->program->arena, write_cause, row);
    if (compressed.cause && row->wire_dtype == CLV_COMM_Q8) {
        CLV_TRY(clv_lower_8bit_collective(&done, l, row, &compressed, err));
        if (done)
            return CLV_OK;
        as_bf16.wire_dtype = CLV_COMM_BF16;
        compressed.cause = clv_text_to_arena(l->program->arena, write_cause, &as_bf16);
    }
    return compressed.cause ? lower_cast(l, &as_bf16, compressed, err)
                            : clv_fail_memory(err, "a step", sizeof compressed);
}
