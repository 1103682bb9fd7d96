/* plan.c - cleave plan: what a layout costs, read off the program that would run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"
#include "cleave/text.h"
#include "cli/command.h"
#include "cli/hardware_option.h"
#include "cli/options.h"
#include "cli/output_option.h"
#include "cli/plan_option.h"
#include "cli/plan_head.h"
#include "cli/plan_memory.h"
#include "cli/report.h"
#include "cli/show.h"
#include "cli/steps.h"
#include "cli/table.h"

typedef struct plan_args {
    clv_plan_option plan;
    int64_t memory_limit; /* 0: none given */
    const char *hardware, *show;
    clv_table_form form;
} plan_args;

static int parse(plan_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_PLAN_OPTIONS(&a->plan),
        {.names = "--memory-limit",
         .kind = CLV_OPTION_SIZE,
         .out = &a->memory_limit,
         .value = "BYTES",
         .help = "exit 1 when a rank needs more, e.g. 24GiB or 24G; 24GB are 24e9"},
        CLV_HARDWARE_OPTION(&a->hardware, "--show"),
        {.names = "--show",
         .kind = CLV_OPTION_STRING,
         .out = &a->show,
         .value = "TENSOR",
         .help = "draw which rank holds which block of a parameter or input instead"},
        CLV_FORM_OPTIONS(&a->form, "--show", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* --memory-limit, else the profile's memory where one was named: the default profile describes no machine. */
static clv_memory_limit memory_limit(const plan_args *a, const clv_prediction *predicted, const char *machine)
{
    if (a->memory_limit > 0)
        return (clv_memory_limit){(double)a->memory_limit, "--memory-limit"};
    if (!a->hardware)
        return (clv_memory_limit){0, NULL};
    return (clv_memory_limit){predicted->memory_bytes, machine};
}

/* A limit that was given is kept, or the command fails; a profile's is only reported. */
static int check_limit(const plan_args *a, const clv_program *program, const char *command)
{
    char needs[CLV_QUANTITY_TEXT], allowed[CLV_QUANTITY_TEXT];
    clv_memory memory = {.size = sizeof memory};
    clv_program_memory(program, &memory, NULL);
    if (a->memory_limit == 0 || memory.total <= a->memory_limit)
        return CLV_EXIT_OK;
    clv_print_bytes_exactly(needs, sizeof needs, (double)memory.total);
    clv_print_bytes_exactly(allowed, sizeof allowed, (double)a->memory_limit);
    fflush(stdout); /* the table comes first where both go to one place */
    fprintf(stderr, "%s: a rank needs %s, --memory-limit allows %s\n", command, needs, allowed);
    return CLV_EXIT_FAILED;
}

static void add_prediction(clv_table *t, const plan_args *a, const clv_prediction *p, const char *machine)
{
    const clv_plan_options *plan = &a->plan.plan;
    clv_table_object(t, "predicted");
    clv_table_text(t, "hardware", machine);
    clv_table_seconds(t, "seconds", p->seconds);
    clv_table_real(t, "tokens_per_s", (double)(plan->batch * (a->plan.decode ? 1 : plan->seq)) / p->seconds);
    clv_table_share(t, "comm_share", p->seconds > 0 ? p->communication / p->seconds : 0);
    clv_table_seconds(t, "hidden_seconds", p->hidden);
    clv_table_share(t, "hidden_share", clv_report_hidden_share(p->hidden, p->communication));
    clv_table_count(t, "flops_per_rank", p->flops);
    clv_table_share(t, "hfu", p->utilisation);
    clv_table_count(t, "model_flops", p->model_flops);
    clv_table_share(t, "mfu", p->model_utilisation);
}

/* Where the order of the mesh's axes brings the wrong ones between hosts. To ask takes a plan for each order. */
static void add_order(clv_table *t, const plan_args *a, const clv_machine_info *info, int64_t ranks, double seconds)
{
    clv_mesh mesh;
    double least;
    char option[CLV_MESH_TEXT + 8] = "--mesh ";
    size_t used = strlen(option);
    if (!a->hardware || info->hosts == 1 || ranks <= info->ranks_per_host)
        return;
    if (clv_plan_option_order(&mesh, &least, &a->plan, NULL) != CLV_OK || least >= seconds)
        return;
    clv_mesh_print(option + used, sizeof option - used, &mesh);
    clv_table_text(t, "faster_by", option);
    clv_table_seconds(t, "faster_seconds", least);
}

static clv_status report(int *code, const plan_args *a, const clv_program *program, const clv_machine *machine,
                         clv_error *err)
{
    clv_table *t = a->form.json ? clv_report_each_collective(program, machine) : clv_report_by_layer(program, machine);
    clv_prediction predicted = {.size = sizeof predicted};
    clv_machine_info info = {.size = sizeof info};
    clv_program_predict(program, machine, &predicted, NULL);
    clv_machine_describe(machine, &info, NULL);
    clv_status status = clv_plan_head_add(t, &a->plan, info.name, err);
    if (status != CLV_OK) {
        clv_table_free(t);
        return status;
    }
    clv_table_top(t);
    clv_table_bytes(t, "bytes", clv_report_total_bytes(program));
    clv_table_int(t, "ranks", clv_mesh_ranks(clv_program_mesh(program)));
    clv_plan_memory_add(t, program);
    clv_plan_fit_add(t, program, &a->plan, memory_limit(a, &predicted, info.name));
    add_prediction(t, a, &predicted, info.name);
    add_order(t, a, &info, clv_mesh_ranks(clv_program_mesh(program)), predicted.seconds);
    *code = clv_table_finish(t, &a->form);
    return CLV_OK;
}

int command_plan(int argc, char **argv)
{
    plan_args a = {.plan = clv_plan_option_defaults};
    clv_error err = {0};
    clv_program *program = NULL;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_machine *machine = NULL;
    clv_status status = clv_hardware_option_open(&machine, a.hardware, &err);
    a.plan.plan.machine = machine;
    if (status == CLV_OK)
        status = clv_plan_option_compile(&program, &a.plan, &err);
    code = CLV_EXIT_OK;
    if (status == CLV_OK)
        status = a.show ? clv_show_tensor(program, a.show, &err) : report(&code, &a, program, machine, &err);
    if (status != CLV_OK)
        code = clv_command_report(argv[0], &err);
    if (code == CLV_EXIT_OK)
        code = check_limit(&a, program, argv[0]);
    clv_program_free(program);
    clv_machine_free(machine);
    return code;
}
