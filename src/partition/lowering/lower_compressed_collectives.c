/* lower_compressed_collectives.c - lowers a compressed collective to cast, collective, cast back.
 *
 * These are instructions over buffers like all others, so whatever reads a program sees them, and nothing else knows of
 * them. All elements pass, those too that a rank keeps: who holds an element of the result holds the same bits. Sums
 * are those of tensors of that dtype: in f32, in the order of the group, rounded once.
 */
#include "base/error.h"
#include "ops/builtin_ops.h"
#include "partition/lowering/program_builder.h"

static clv_dtype dtype_of(clv_comm_dtype carried)
{
    return carried == CLV_COMM_F16 ? CLV_F16 : CLV_BF16;
}

static void write_cause(clv_text *t, const void *arg)
{
    const clv_sharding_row *row = arg;
    clv_text_add(t, "%s; carried as %s", row->explanation.text, clv_comm_dtype_name(row->wire_dtype));
}

/* A cast, the step over the narrow tensor, and a cast back. */
static clv_status lower_cast(clv_program_builder *l, const clv_sharding_row *row, clv_instruction carried,
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
    carried.step = narrow;
    CLV_TRY(clv_program_builder_add_buffer_like(&carried.in[0], program, row->from, &type, &row->step->from, err));
    CLV_TRY(clv_program_builder_add_buffer_like(&carried.out[0], program, row->to, &type, &row->step->to, err));
    CLV_TRY(clv_program_builder_add_conversion(l, row, &clv_op_cast, &to, row->from, carried.in[0], err));
    CLV_TRY(clv_program_builder_add_instruction(program, &carried, err));
    return clv_program_builder_add_conversion(l, row, &clv_op_cast, &back, carried.out[0], row->to, err);
}

clv_status clv_lower_compressed_collective(clv_program_builder *l, const clv_sharding_row *row,
                                           const clv_instruction *step, clv_error *err)
{
    clv_instruction carried = *step;
    clv_sharding_row as_bf16 = *row;
    bool done = false;
    carried.cause = clv_text_to_arena(l->program->arena, write_cause, row);
    if (carried.cause && row->wire_dtype == CLV_COMM_Q8) {
        CLV_TRY(clv_lower_8bit_collective(&done, l, row, &carried, err));
        if (done)
            return CLV_OK;
        as_bf16.wire_dtype = CLV_COMM_BF16;
        carried.cause = clv_text_to_arena(l->program->arena, write_cause, &as_bf16);
    }
    return carried.cause ? lower_cast(l, &as_bf16, carried, err) : clv_fail_memory(err, "a step", sizeof carried);
}

/* ---- for people ---- */

typedef struct told {
    const clv_program *program;
    const clv_sharding_row *row;
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
    clv_dtype made = buffer_of(it, true)->type.dtype;
    if (made == CLV_F32)
        clv_text_add(t, "as it was before the %s", step);
    else
        clv_text_add(t, "the %s carries it as %s", step, made == CLV_U8 ? "q8" : clv_dtype_name(made));
}

static void write_layouts(clv_text *t, const void *arg)
{
    const told *it = arg;
    char from[CLV_LAYOUT_TEXT], to[CLV_LAYOUT_TEXT];
    clv_layout_print(from, sizeof from, &buffer_of(it, false)->layout, &it->program->mesh);
    clv_layout_print(to, sizeof to, &buffer_of(it, true)->layout, &it->program->mesh);
    clv_text_add(t, "{%s} -> {%s}", from, to);
}

static void write_axes(clv_text *t, const void *arg)
{
    const told *it = arg;
    const clv_reshard_step *step = it->program->instructions[it->instruction].step;
    for (int a = 0; step && a < step->n_axes; a++) {
        clv_text_add(t, "%s", a > 0 ? ", " : "over ");
        clv_text_add_subaxis(t, step->axes[a], &it->program->mesh);
    }
}

clv_status clv_lower_describe_compressed(clv_partition_decision *out, const clv_program_builder *l,
                                         const clv_sharding_row *row, int i, clv_error *err)
{
    const clv_instruction *instruction = &l->program->instructions[i];
    clv_arena *arena = l->program->arena;
    told it = {l->program, row, i};
    clv_partition_decision made = {
        .instruction = i,
        .op = instruction->name,
        .kind = instruction->op ? instruction->op->def->name : clv_step_name(instruction->step->kind),
        .purpose = clv_arena_string(arena, clv_graph_name_of(l->table->graph, row->value)),
        .split = clv_text_to_arena(arena, write_axes, &it),
        .layouts = clv_text_to_arena(arena, write_layouts, &it),
        .why = instruction->op ? clv_text_to_arena(arena, write_why, &it) : instruction->cause,
        .bytes = instruction->op ? 0 : instruction->step->bytes};
    *out = made;
    return made.purpose && made.split && made.layouts && made.why ? CLV_OK
                                                                  : clv_fail_memory(err, "a row's text", sizeof made);
}
