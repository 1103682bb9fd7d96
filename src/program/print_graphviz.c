/* print_graphviz.c - prints a program as a Graphviz graph, collectives filled and labelled with bytes. */
#include <stdlib.h>

#include "cleave/text.h"
#include "program/program.h"
#include "tensor/parse_print.h"

/* A part of a quoted label. */
static void put_label(clv_text *t, const char *text)
{
    char *printable = clv_printable_copy(text);
    for (const char *at = printable; at && *at; at++)
        clv_text_add(t, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
    free(printable);
}

static void put_buffer(clv_text *t, const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b];
    char layout[CLV_LAYOUT_TEXT];
    clv_layout_print(layout, sizeof layout, &buffer->layout, &program->mesh);
    clv_text_add(t, "  b%d [shape=%s, label=\"", b, buffer->kind == CLV_BUFFER_TEMP ? "plaintext" : "box");
    put_label(t, buffer->name);
    clv_text_add(t, " {");
    put_label(t, layout);
    clv_text_add(t, "}\"];\n");
}

static void put_instruction(clv_text *t, const clv_program *program, int i)
{
    const clv_instruction *instruction = &program->instructions[i];
    char bytes[CLV_QUANTITY_TEXT];
    clv_text_add(t, "  i%d [%s, label=\"", i,
                 instruction->op ? "shape=ellipse" : "shape=ellipse, style=filled, fillcolor=gold");
    if (instruction->op) {
        put_label(t, instruction->name);
    } else {
        clv_print_bytes_exactly(bytes, sizeof bytes, instruction->step->bytes);
        clv_text_add(t, "%s %s", clv_step_name(instruction->step->kind), bytes);
    }
    clv_text_add(t, "\"];\n");
    for (int k = 0; k < instruction->n_in; k++)
        if (instruction->in[k] >= 0)
            clv_text_add(t, "  b%d -> i%d;\n", instruction->in[k], i);
    for (int k = 0; k < instruction->n_out; k++)
        clv_text_add(t, "  i%d -> b%d;\n", i, instruction->out[k]);
}

size_t clv_program_print_dot(char *out, size_t size, const clv_program *program)
{
    clv_text t = {.out = out, .size = size};
    if (!program)
        return (size_t)clv_text_finish(&t);
    clv_text_add(&t, "digraph program {\n  rankdir=TB; node [fontsize=10];\n");
    for (int b = 0; b < program->n_buffers; b++)
        put_buffer(&t, program, b);
    for (int i = 0; i < program->n_instructions; i++)
        put_instruction(&t, program, i);
    clv_text_add(&t, "}\n");
    return t.length;
}
