/* text.c - a program as text, an instruction a line:
 *
 *   %7 f32[4,64] {data,_} = layers.0.mlp.dot_general(%3, %5)  @4096 +1024
 *   %8 f32[4,64] {data,model} = reduce_scatter{model} 512 B (%7)  <- layers.0.mlp.constraint: the layout is stated
 *
 * @ is the offset in the region (or = %n: in place of another buffer), + the workspace. */
#include <stdarg.h>
#include <stdio.h>

#include "graph/graph.h"
#include "program/program.h"

typedef struct text {
    char *out;
    size_t size, used; /* used: as if there were room for all */
} text;

__attribute__((format(printf, 2, 3))) static void put(text *t, const char *format, ...)
{
    size_t room = t->used < t->size ? t->size - t->used : 0;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(room ? t->out + t->used : NULL, room, format, args);
    va_end(args);
    t->used += n > 0 ? (size_t)n : 0;
}

static void put_buffer(text *t, const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b];
    char type[128], layout[CLV_LAYOUT_TEXT];
    clv_type_print(type, sizeof type, &buffer->type);
    clv_layout_print(layout, sizeof layout, &buffer->layout, &program->mesh);
    put(t, "%%%d %s {%s}", b, type, layout);
}

static void put_place(text *t, const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b];
    if (buffer->shares >= 0)
        put(t, " = %%%d", clv_program_root(program, b));
    else
        put(t, " @%lld", (long long)buffer->offset);
}

static void put_axes(text *t, const clv_program *program, const clv_reshard_step *step)
{
    for (int i = 0; i < step->n_axes; i++) {
        const clv_axis *axis = &program->mesh.axis[step->axes[i].axis];
        put(t, "%s%s", i ? "," : "", axis->name);
        if (step->axes[i].size != axis->size)
            put(t, ":(%d)%d", (int)step->axes[i].pre, (int)step->axes[i].size);
    }
}

static void put_instruction(text *t, const clv_program *program, const clv_instruction *instruction)
{
    for (int o = 0; o < instruction->n_out; o++) {
        put(t, o ? ", " : "  ");
        put_buffer(t, program, instruction->out[o]);
    }
    put(t, " = ");
    if (instruction->op) {
        put(t, "%s", instruction->name);
    } else {
        put(t, "%s{", clv_step_name(instruction->step.kind));
        put_axes(t, program, &instruction->step);
        put(t, "} %g B ", instruction->step.bytes);
    }
    put(t, "(");
    for (int i = 0; i < instruction->n_in; i++)
        instruction->in[i] < 0 ? put(t, "%s_", i ? ", " : "") : put(t, "%s%%%d", i ? ", " : "", instruction->in[i]);
    put(t, ") ");
    for (int o = 0; o < instruction->n_out; o++)
        put_place(t, program, instruction->out[o]);
    if (instruction->workspace_bytes)
        put(t, " +%lld", (long long)instruction->workspace_bytes);
    if (!instruction->op)
        put(t, "  <- %s: %s", instruction->name, instruction->cause);
    put(t, "\n");
}

size_t clv_program_print(char *out, size_t size, const clv_program *program)
{
    text t = {.out = out, .size = size};
    char mesh[512];
    clv_mesh_print(mesh, sizeof mesh, &program->mesh);
    put(&t, "program on %s, region %lld B\n", mesh, (long long)program->region_bytes);
    for (int b = 0; b < program->n_buffers; b++) {
        if (program->buffers[b].kind == CLV_BUFFER_TEMP)
            continue;
        put(&t, "  ");
        put_buffer(&t, program, b);
        put(&t, " = %s %s\n", program->buffers[b].kind == CLV_BUFFER_STATE ? "state" : "input",
            program->buffers[b].name);
    }
    for (int i = 0; i < program->n_instructions; i++)
        put_instruction(&t, program, &program->instructions[i]);
    for (int o = 0; o < program->n_outputs; o++)
        put(&t, "  output %s = %%%d\n", program->outputs[o].name, program->outputs[o].buffer);
    return t.used;
}
