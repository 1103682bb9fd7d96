/* program_text.c - prints a program as text, one instruction a line.
 *
 *   %7 f32[4,64] {data,_} = layers.0.mlp.dot_general(%3, %5)  @4096 +1024
 *   %8 f32[4,64] {data,model} = reduce_scatter{model} 512 B (%7)  <- layers.0.mlp.constraint: the layout is stated
 *
 * @: offset in the region; = %n: shares the memory of buffer n; +: bytes of workspace; until %n: overlapped, complete
 * after the instruction that makes n; "chunk 2/4 of": one of several chunks of rows.
 */
#include "cleave/text.h"
#include "program/program.h"
#include "tensor/parse_print.h"

static void put_buffer(clv_text *t, const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b];
    char type[CLV_TYPE_TEXT], layout[CLV_LAYOUT_TEXT];
    clv_type_print(type, sizeof type, &buffer->type);
    clv_layout_print(layout, sizeof layout, &buffer->layout, &program->mesh);
    clv_text_add(t, "%%%d %s {%s}", b, type, layout);
    if (buffer->ring_shift > 0)
        clv_text_add(t, " of %d ranks on", buffer->ring_shift);
}

static void put_place(clv_text *t, const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b];
    if (buffer->shares_with >= 0)
        clv_text_add(t, " = %%%d", clv_program_owning_buffer(program, b));
    else
        clv_text_add(t, " @%lld", (long long)buffer->offset);
}

static void put_axes(clv_text *t, const clv_program *program, const clv_reshard_step *step)
{
    for (int i = 0; i < step->n_axes; i++) {
        clv_text_add(t, "%s", i ? "," : "");
        clv_text_add_subaxis(t, step->axes[i], &program->mesh);
    }
}

static void put_instruction(clv_text *t, const clv_program *program, const clv_instruction *instruction)
{
    char bytes[CLV_QUANTITY_TEXT];
    for (int o = 0; o < instruction->n_out; o++) {
        clv_text_add(t, o ? ", " : "  ");
        put_buffer(t, program, instruction->out[o]);
    }
    clv_text_add(t, " = ");
    if (instruction->n_chunks > 0)
        clv_text_add(t, "chunk %d/%d of ", instruction->chunk + 1, instruction->n_chunks);
    if (instruction->op) {
        clv_text_add_name(t, instruction->name);
    } else {
        clv_text_add(t, "%s{", clv_step_name(instruction->step->kind));
        put_axes(t, program, instruction->step);
        clv_print_bytes_exactly(bytes, sizeof bytes, instruction->step->bytes);
        clv_text_add(t, "} %s ", bytes);
    }
    clv_text_add(t, "(");
    for (int i = 0; i < instruction->n_in; i++)
        instruction->in[i] < 0 ? clv_text_add(t, "%s_", i ? ", " : "")
                               : clv_text_add(t, "%s%%%d", i ? ", " : "", instruction->in[i]);
    clv_text_add(t, ") ");
    for (int o = 0; o < instruction->n_out; o++)
        put_place(t, program, instruction->out[o]);
    if (instruction->workspace_bytes)
        clv_text_add(t, " +%lld", (long long)instruction->workspace_bytes);
    if (instruction->n_overlapped > 0)
        clv_text_add(t, " until %%%d", instruction[instruction->n_overlapped].out[0]);
    if (!instruction->op) {
        clv_text_add(t, "  <- ");
        clv_text_add_name(t, instruction->name);
        clv_text_add(t, ": ");
        clv_text_add_name(t, instruction->cause);
    }
    clv_text_add(t, "\n");
}

size_t clv_program_print(char *out, size_t size, const clv_program *program)
{
    if (!program)
        return (size_t)clv_text_finish(&(clv_text){.out = out, .size = size});
    clv_text t = {.out = out, .size = size};
    char mesh[CLV_MESH_TEXT], region[CLV_QUANTITY_TEXT];
    clv_mesh_print(mesh, sizeof mesh, &program->mesh);
    clv_print_bytes_exactly(region, sizeof region, (double)program->region_bytes);
    clv_text_add(&t, "program on %s, region %s\n", mesh, region);
    for (int b = 0; b < program->n_buffers; b++) {
        if (program->buffers[b].kind == CLV_BUFFER_TEMP)
            continue;
        clv_text_add(&t, "  ");
        put_buffer(&t, program, b);
        clv_text_add(&t, program->buffers[b].kind == CLV_BUFFER_STATE ? " = state " : " = input ");
        clv_text_add_name(&t, program->buffers[b].name);
        clv_text_add(&t, "\n");
    }
    for (int i = 0; i < program->n_instructions; i++)
        put_instruction(&t, program, &program->instructions[i]);
    for (int o = 0; o < program->n_outputs; o++) {
        clv_text_add(&t, "  output ");
        clv_text_add_name(&t, program->outputs[o].name);
        clv_text_add(&t, " = %%%d\n", program->outputs[o].buffer);
    }
    return t.length;
}
