/* explain.c - cleave explain: the candidates for an op, and why one won; the program as a Graphviz graph. */
#include "cleave/status.h"
#include "cli/candidates.h"
#include "cli/command.h"
#include "cli/hardware_option.h"
#include "cli/name_list.h"
#include "cli/options.h"
#include "cli/output_option.h"
#include "cli/plan_graph.h"
#include "cli/print_program.h"
#include "cli/table.h"

typedef struct explain_args {
    clv_plan_graph graph;
    const char *op, *hardware;
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
        CLV_HARDWARE_OPTION(&a->hardware, NULL),
        {.names = "--dot", .kind = CLV_OPTION_FLAG, .out = &a->dot, .help = "write the program for Graphviz instead"},
        CLV_JSON_OPTION_BESIDE(&a->json, "--dot", "print JSON"),
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
    clv_name_list all = {0};
    clv_instruction_info info = {.size = sizeof info};
    for (int i = 0; clv_program_instruction(program, i, &info, NULL) == CLV_OK; i++)
        if (info.collective < 0)
            clv_name_list_add_scopes(&all, info.name);
    clv_program_tensor t = {.size = sizeof t};
    for (int i = 0; clv_program_named(program, i, &t, NULL) == CLV_OK && t.name; i++)
        if (t.kind != CLV_NAMED_OUTPUT)
            clv_name_list_add_scopes(&all, t.name);
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

int command_explain(int argc, char **argv)
{
    explain_args a = {.graph = clv_plan_graph_defaults, .most = 8};
    clv_error err = {0};
    clv_program *program = NULL;
    clv_machine *machine = NULL;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    code = CLV_EXIT_OK;
    a.graph.explain = a.op;
    clv_status status = check(&a, &err);
    if (status == CLV_OK)
        status = clv_hardware_option_open(&machine, a.hardware, &err);
    a.graph.machine = machine;
    if (status == CLV_OK)
        status = clv_plan_graph_compile(&program, &a.graph, &err);
    if (status == CLV_OK && a.dot)
        code = clv_print_program(program, clv_program_print_dot);
    else if (status == CLV_OK)
        status = list_candidates(&a, program, &code, &err);
    if (status != CLV_OK)
        code = clv_command_report(argv[0], &err);
    clv_program_free(program);
    clv_machine_free(machine);
    return code;
}
