/* command_plan.c - the `cleave plan` command: predicts collectives, bytes, time and memory from the compiled program,
 * without running it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"
#include "cleave/text.h"
#include "cli/command.h"
#include "cli/parser/option_parser.h"
#include "cli/options/output_options.h"
#include "cli/options/plan_target_options.h"
#include "cli/reports/plan_summary.h"
#include "cli/reports/plan_memory_report.h"
#include "cli/reports/plan_search_report.h"
#include "cli/reports/collective_tables.h"
#include "cli/reports/visualize_sharding.h"
#include "cli/reports/reshard_table.h"
#include "cli/output/table.h"

typedef struct plan_args {
    clv_plan_option plan;
    int64_t memory_limit; /* 0: none given */
    const char *show;
    clv_plan_search_args search;
} plan_args;

static bool parse(plan_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_PLAN_OPTIONS(&a->plan),
        CLV_OPT_VALUE(SIZE, "--memory-limit", &a->memory_limit, "BYTES",
                      "exit 1 if a rank needs more, e.g. 24GiB = 24G; 24GB = 24e9"),
        CLV_HARDWARE_OPTION(&a->plan.hardware, "--show"),
        CLV_OPT_STRING("--show", &a->show, "TENSOR", "draw the shards of a parameter or input instead"),
        CLV_PLAN_SEARCH_OPTIONS(&a->search),
        CLV_FORMAT_OPTIONS(&run->format, "--show", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

/* --memory-limit, else the profile's memory where one was named: the default profile describes no machine. */
static clv_memory_limit memory_limit(const plan_args *a, const clv_prediction *predicted, const char *machine)
{
    if (a->memory_limit > 0)
        return (clv_memory_limit){(double)a->memory_limit, "--memory-limit"};
    if (!a->plan.hardware)
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
    clv_table_real(t, "tokens_per_s",
                   (double)(plan->batch * (plan->mode == CLV_PLAN_MODE_DECODE ? 1 : plan->seq)) / p->seconds);
    clv_table_fraction(t, "comm_share", p->seconds > 0 ? p->communication / p->seconds : 0);
    clv_table_seconds(t, "overlapped_seconds", p->overlapped);
    clv_table_fraction(t, "overlapped_share", clv_overlapped_fraction(p->overlapped, p->communication));
    clv_table_count(t, "flops_per_rank", p->flops);
    clv_table_fraction(t, "hfu", p->utilisation);
    clv_table_count(t, "model_flops", p->model_flops);
    clv_table_fraction(t, "mfu", p->model_utilisation);
}

/* Where the order of the mesh's axes brings the wrong ones between hosts. To ask takes a plan for each order. */
static void add_order(clv_table *t, const plan_args *a, const clv_machine_info *info, int64_t ranks, double seconds)
{
    clv_mesh mesh;
    double least;
    char option[CLV_MESH_TEXT + 8] = "--mesh ";
    size_t used = strlen(option);
    if (!a->plan.hardware || info->hosts == 1 || ranks <= info->ranks_per_host)
        return;
    if (clv_plan_find_axis_order(&mesh, &least, &a->plan.plan, NULL) != CLV_OK || least >= seconds)
        return;
    clv_mesh_print(option + used, sizeof option - used, &mesh);
    clv_table_text(t, "faster_by", option);
    clv_table_seconds(t, "faster_seconds", least);
}

static clv_status report(clv_invocation *run, const plan_args *a, const clv_program *program, clv_error *err)
{
    const clv_machine *machine = a->plan.machine;
    clv_table *t = run->table =
        run->format.json ? clv_collectives_one_by_one(program, machine) : clv_collectives_by_layer(program, machine);
    clv_prediction predicted = {.size = sizeof predicted};
    clv_machine_info info = {.size = sizeof info};
    clv_program_predict(program, machine, &predicted, NULL);
    clv_machine_get_info(machine, &info, NULL);
    CLV_TRY(clv_plan_summary_add(t, &a->plan, info.name, err));
    clv_table_root(t);
    clv_table_bytes(t, "bytes", clv_collectives_total_bytes(program));
    clv_table_int(t, "ranks", clv_mesh_rank_count(clv_program_mesh(program)));
    clv_plan_memory_add(t, program);
    clv_plan_memory_fit_add(t, program, &a->plan.plan, memory_limit(a, &predicted, info.name));
    add_prediction(t, a, &predicted, info.name);
    add_order(t, a, &info, clv_mesh_rank_count(clv_program_mesh(program)), predicted.seconds);
    return CLV_OK;
}

static clv_status search(clv_invocation *run, plan_args *a, clv_error *err)
{
    clv_status status = clv_plan_search_report(run, &a->plan, &a->search, a->memory_limit, err);
    clv_machine_free(a->plan.machine);
    return status;
}

clv_status command_plan(clv_invocation *run, clv_error *err)
{
    plan_args a = {.plan = CLV_PLAN_OPTION_DEFAULTS};
    clv_program *program = NULL;
    a.plan.plan.batch = 0;
    if (!parse(&a, run))
        return CLV_OK;
    CLV_TRY(clv_plan_search_check(&a.search, err));
    if (a.plan.plan.batch == 0 && a.search.latency_limit == 0)
        a.plan.plan.batch = CLV_PLAN_BATCH;
    if (a.search.search || a.search.matrix)
        return search(run, &a, err);
    clv_status status = clv_plan_option_compile(&program, &a.plan, err);
    if (status == CLV_OK)
        status = a.show ? clv_visualize_sharding(program, a.show, err) : report(run, &a, program, err);
    if (status == CLV_OK && run->table) { /* the table comes before the message */
        run->code = clv_table_finish(run->table, &run->format);
        run->table = NULL;
        fflush(stdout);
    }
    if (status == CLV_OK && run->code == CLV_EXIT_OK)
        run->code = check_limit(&a, program, run->name);
    clv_program_free(program);
    clv_machine_free(a.plan.machine);
    return status;
}
