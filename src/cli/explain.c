/* explain.c - cleave explain: the candidates for an op, and why one won; the program as a Graphviz graph. */
#include <stdio.h>
#include <stdlib.h>

#include "cleave/status.h"
#include "cleave/text.h"
#include "cli/candidates.h"
#include "cli/command.h"
#include "cli/name_list.h"
#include "cli/options.h"
#include "cli/plan_graph.h"
#include "cli/table.h"
#include "program/program.h"

typedef struct explain_args {
    clv_plan_graph graph;
    const char *op;
    int64_t most;
    bool dot, json;
} explain_args;

static int parse(explain_args *a, int argc, char **argv)
{
    clv_plan_graph *g = &a->graph;
    const clv_option options[] = {
        CLV_PLAN_GRAPH_OPTIONS(g),
        {.names = "--op",
         .kind = CLV_OPTION_STRING,
         .out = &a->op,
         .value = "NAME",
         .help = "a parameter, an op, or a scope of them: layers.3.mlp.down"},
        {.names = "--most",
         .kind = CLV_OPTION_INT,
         .out = &a->most,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .not_beside = "--dot",
         .help = "candidates listed of each op and verdict, the cheapest first (8)"},
        {.names = "--dot", .kind = CLV_OPTION_FLAG, .out = &a->dot, .help = "write the program for Graphviz instead"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .not_beside = "--dot", .help = "print JSON"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

static clv_status check(const explain_args *a, clv_error *err)
{
    if (!a->op == !a->dot)
        return clv_fail(err, CLV_EINVAL, "give either --op NAME, e.g. layers.0.mlp.down, or --dot");
    return CLV_OK;
}

/* ---- candidates ---- */

static clv_status refuse_name(const char *wanted, const clv_program *program, clv_error *err)
{
    clv_name_list all = clv_name_list_make();
    for (int i = 0; i < program->n_instructions; i++)
        if (program->instructions[i].op)
            clv_name_list_add_scopes(&all, program->instructions[i].name);
    for (int b = 0; b < program->n_buffers; b++)
        if (program->buffers[b].name && program->buffers[b].kind != CLV_BUFFER_TEMP)
            clv_name_list_add_scopes(&all, program->buffers[b].name);
    const char *near = clv_name_list_suggest(&all, wanted);
    clv_fail(err, CLV_EINVAL,
             "no op or parameter is named '%s'%s%s%s; names are whole, or scopes from the left; --dot shows all",
             wanted, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    clv_name_list_free(&all);
    return CLV_EINVAL;
}

static clv_status list_candidates(const explain_args *a, const clv_program *program, int *code, clv_error *err)
{
    if (clv_program_n_considered(program) == 0)
        return refuse_name(a->op, program, err);
    clv_table *t = clv_table_new("candidates");
    clv_candidates_add(t, program, a->most, a->json);
    *code = clv_table_finish(t, a->json);
    return CLV_OK;
}

/* ---- Graphviz ---- */

/* A part of a quoted label. */
static void put_label(const char *text)
{
    char *printable = clv_printable_copy(text);
    for (const char *at = printable; at && *at; at++) {
        if (*at == '"' || *at == '\\')
            putchar('\\');
        putchar(*at);
    }
    free(printable);
}

static void print_buffer(const clv_program *program, int b)
{
    const clv_buffer *buffer = &program->buffers[b];
    char layout[CLV_LAYOUT_TEXT];
    clv_layout_print(layout, sizeof layout, &buffer->layout, &program->mesh);
    printf("  b%d [shape=%s, label=\"", b, buffer->kind == CLV_BUFFER_TEMP ? "plaintext" : "box");
    put_label(buffer->name ? buffer->name : "");
    printf(" {");
    put_label(layout);
    printf("}\"];\n");
}

/* Ops are ellipses; collectives are filled, with their bytes. */
static void print_dot(const clv_program *program)
{
    printf("digraph program {\n  rankdir=TB; node [fontsize=10];\n");
    for (int b = 0; b < program->n_buffers; b++)
        print_buffer(program, b);
    for (int i = 0; i < program->n_instructions; i++) {
        const clv_instruction *instruction = &program->instructions[i];
        char bytes[CLV_QUANTITY_TEXT];
        printf("  i%d [%s, label=\"", i,
               instruction->op ? "shape=ellipse" : "shape=ellipse, style=filled, fillcolor=gold");
        if (instruction->op) {
            put_label(instruction->name);
        } else {
            clv_print_bytes_exactly(bytes, sizeof bytes, instruction->step->bytes);
            printf("%s %s", clv_step_name(instruction->step->kind), bytes);
        }
        printf("\"];\n");
        for (int k = 0; k < instruction->n_in; k++)
            if (instruction->in[k] >= 0)
                printf("  b%d -> i%d;\n", instruction->in[k], i);
        for (int k = 0; k < instruction->n_out; k++)
            printf("  i%d -> b%d;\n", i, instruction->out[k]);
    }
    printf("}\n");
}

int command_explain(int argc, char **argv)
{
    explain_args a = {.graph = clv_plan_graph_defaults, .most = 8};
    clv_error err = {0};
    clv_program *program = NULL;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    code = CLV_EXIT_OK;
    a.graph.explain = a.op;
    clv_status status = check(&a, &err);
    if (status == CLV_OK)
        status = clv_plan_graph_compile(&program, &a.graph, &err);
    if (status == CLV_OK && a.dot)
        print_dot(program);
    else if (status == CLV_OK)
        status = list_candidates(&a, program, &code, &err);
    if (status != CLV_OK)
        code = clv_command_report(argv[0], &err);
    clv_program_free(program);
    return code;
}
