/* plan.c - cleave plan: what a layout costs, read off the program that would run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/plan_graph.h"
#include "cli/report.h"
#include "cli/steps.h"
#include "cli/table.h"

typedef struct plan_args {
    clv_plan_graph graph;
    clv_sizes memory_limit; /* one size */
    bool json;
} plan_args;

static int parse(plan_args *a, int argc, char **argv)
{
    clv_plan_graph *g = &a->graph;
    const clv_option options[] = {
        CLV_PLAN_GRAPH_OPTIONS(g),
        {.names = "--memory-limit",
         .kind = CLV_OPTION_SIZES,
         .out = &a->memory_limit,
         .value = "BYTES",
         .help = "fail when a rank needs more, e.g. 16G"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .help = "print JSON"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

static void add_memory(clv_table *t, const clv_program *program)
{
    clv_memory m = clv_program_memory(program);
    const struct {
        const char *name;
        int64_t bytes;
    } figures[] = {
        {"parameters", m.parameters},   {"optimizer", m.optimizer}, {"kv_cache", m.cache},
        {"other_state", m.other_state}, {"gradients", m.gradients}, {"activations", m.activations},
        {"gathered", m.gathered},       {"inputs", m.inputs},       {"communication", m.communication},
        {"temporaries", m.temporaries}, {"workspace", m.workspace}, {"fragments", m.fragments},
        {"staging", m.staging},         {"total", m.total},
    };
    clv_table_object(t, "memory");
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        clv_table_int(t, figures[i].name, figures[i].bytes);
    clv_table_text(t, "peak_at", m.peak ? m.peak : "");
}

static clv_status check_limit(const plan_args *a, const clv_program *program, clv_error *err)
{
    if (a->memory_limit.n == 0)
        return CLV_OK;
    clv_memory m = clv_program_memory(program);
    if (a->memory_limit.n > 1)
        return clv_fail(err, CLV_EINVAL, "--memory-limit takes one size, e.g. 16G");
    if (m.total <= a->memory_limit.item[0])
        return CLV_OK;
    return clv_fail(
        err, CLV_ELIMIT,
        "a rank needs %lld bytes (%lld of them state), --memory-limit allows %lld; split further, or take a "
        "smaller batch",
        (long long)m.total, (long long)(m.parameters + m.optimizer + m.cache + m.other_state),
        (long long)a->memory_limit.item[0]);
}

static int report(const plan_args *a, const clv_program *program)
{
    clv_table *t = a->json ? clv_report_each_collective(program) : clv_report_by_layer(program);
    clv_table_top(t);
    clv_table_bytes(t, "bytes", clv_report_total_bytes(program));
    clv_table_int(t, "ranks", clv_mesh_ranks(clv_program_mesh(program)));
    add_memory(t, program);
    return clv_table_finish(t, a->json);
}

int command_plan(int argc, char **argv)
{
    plan_args a = {.graph = clv_plan_graph_defaults};
    clv_error err = {0};
    clv_program *program = NULL;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_status status = clv_plan_graph_compile(&program, &a.graph, &err);
    if (status == CLV_OK)
        status = check_limit(&a, program, &err);
    code = status == CLV_OK ? report(&a, program) : clv_command_report(argv[0], &err);
    clv_program_free(program);
    return code;
}
