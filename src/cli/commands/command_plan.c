/* command_plan.c - the `cleave plan` command: predicts collectives, bytes, time and memory from the compiled program,
 * without running it; searches meshes and rules (--search, --matrix); draws an op's shards (--show).
 */

#include "cleave/text.h"
#include "cli/command.h"
#include "cli/parser/option_parser.h"
#include "cli/output/messages.h"
#include "cli/options/plan_target_options.h"
#include "cli/reports/hardware_table.h"
#include "cli/reports/plan_report.h"
#include "cli/reports/plan_screen.h"
#include "cli/reports/plan_summary.h"
#include "cli/reports/plan_memory_report.h"
#include "cli/reports/plan_search_report.h"
#include "cli/reports/collective_tables.h"
#include "cli/reports/visualize_sharding.h"

typedef struct plan_args {
    clv_plan_option plan;
    int64_t memory_limit; /* 0: none given */
    const char *show;
    bool all, collectives;
    clv_plan_search_args search;
} plan_args;

static bool parse(plan_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_PLAN_OPTIONS(&a->plan),
        CLV_OPT_VALUE(SIZE, "--memory-limit", &a->memory_limit, "BYTES",
                      "exit 1 if a rank needs more, e.g. 24GiB = 24G; 24GB = 24e9"),
        CLV_HARDWARE_OPTION(&a->plan.hardware, "--show"),
        CLV_SOFTWARE_OPTION(&a->plan.software),
        CLV_OPT_FLAG("--collectives", &a->collectives, "list each collective, with its cause",
                     .conflicts_with = "--all, --show, --search, --matrix"),
        CLV_OPT_FLAG("--all", &a->all, "print all figures", .conflicts_with = "--show, --search, --matrix"),
        CLV_OPT_STRING("--show", &a->show, "TENSOR", "draw the shards of a parameter or input instead"),
        CLV_PLAN_SEARCH_OPTIONS(&a->search),
        CLV_FORMAT_OPTIONS(&run->format, "--show", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

/* A limit that was given is kept, or the command fails; a profile's is only reported. */
static int check_limit(const plan_args *a, const clv_program *program, const char *command)
{
    char needs[CLV_QUANTITY_TEXT], allowed[CLV_QUANTITY_TEXT];
    clv_memory memory = {.size = sizeof memory};
    clv_program_memory_on(program, a->plan.machine, &memory, NULL);
    if (a->memory_limit == 0 || memory.total <= a->memory_limit)
        return CLV_EXIT_OK;
    clv_print_bytes_exactly(needs, sizeof needs, (double)memory.total);
    clv_print_bytes_exactly(allowed, sizeof allowed, (double)a->memory_limit);
    fflush(stdout); /* the table comes first where both go to one place */
    fprintf(stderr, "%s: a rank needs %s, --memory-limit allows %s\n", command, needs, allowed);
    return CLV_EXIT_FAILED;
}

/* ---- all figures, as a table ---- */

static void add_prediction(clv_table *t, const clv_plan_report *r)
{
    const clv_prediction *p = &r->predicted;
    clv_table_object(t, "predicted");
    clv_table_text(t, "hardware", r->machine.name);
    if (r->machine.software[0])
        clv_table_text(t, "software", r->machine.software);
    if (clv_plan_report_is_published(r)) {
        clv_table_int(t, "published_runs", r->machine.published_runs);
        clv_table_text(t, "published_rules", r->machine.published_rules);
        clv_table_fraction(t, "published_error", r->machine.published_error);
    }
    clv_table_seconds(t, "seconds", p->seconds);
    clv_table_real(t, "tokens_per_s", (double)clv_plan_tokens(&r->option->plan) / p->seconds);
    clv_table_fraction(t, "comm_share", p->seconds > 0 ? p->communication / p->seconds : 0);
    clv_table_seconds(t, "overlapped_seconds", p->overlapped);
    clv_table_fraction(t, "overlapped_share", clv_overlapped_fraction(p->overlapped, p->communication));
    clv_table_count(t, "flops_per_rank", p->flops);
    clv_table_fraction(t, "hfu", p->utilisation);
    clv_table_count(t, "model_flops", p->model_flops);
    clv_table_fraction(t, "mfu", p->model_utilisation);
    if (r->order.option[0]) {
        clv_table_text(t, "faster_by", r->order.option);
        clv_table_seconds(t, "faster_seconds", r->order.seconds);
    }
}

static void add_parts(clv_table *t, const clv_plan_report *r)
{
    clv_table_object(t, "ops_seconds");
    for (int p = 0; p < CLV_PART_COUNT; p++)
        clv_table_seconds(t, clv_model_part_name((clv_model_part)p), r->parts.ops[p]);
}

static void add_first(clv_table *t, const clv_plan_report *r)
{
    const char *options[CLV_PLAN_FIRST];
    for (int i = 0; i < r->n_first; i++)
        options[i] = r->first[i]->option;
    clv_table_root(t);
    clv_table_text_list(t, "change_first", options, r->n_first);
}

static void add_totals(clv_table *t, const clv_plan_report *r)
{
    clv_table_root(t);
    clv_table_bytes(t, "bytes", clv_collectives_total_bytes(r->program));
    clv_table_int(t, "ranks", clv_mesh_rank_count(clv_program_mesh(r->program)));
}

static clv_table *make_table(const plan_args *a, const clv_plan_report *r, bool json)
{
    const clv_machine *machine = a->plan.machine;
    clv_table *t =
        json ? clv_collectives_one_by_one(r->program, machine) : clv_collectives_by_layer(r->program, machine);
    clv_collectives_add_purposes(t, &r->parts);
    if (a->collectives && !json) {
        add_totals(t, r);
        return t;
    }
    clv_plan_summary_add(t, r);
    add_totals(t, r);
    clv_plan_memory_add(t, r);
    clv_plan_memory_fit_add(t, r);
    add_prediction(t, r);
    add_parts(t, r);
    add_first(t, r);
    return t;
}

/* The ranks that the batch is split over, of which some get none of a microbatch. */
static void note_idle_ranks(const clv_plan_option *o, const char *command)
{
    const clv_axis_rules *rules = &o->mesh.axis_rules;
    int64_t ranks = 1, rows = o->plan.batch / (o->plan.accumulate > 1 ? o->plan.accumulate : 1);
    for (int r = 0; r < rules->n; r++)
        for (int k = 0; strcmp(rules->rule[r].name, CLV_BATCH) == 0 && k < rules->rule[r].n_axes; k++)
            ranks *= o->mesh.mesh.axis[rules->rule[r].axis[k]].size;
    if (ranks > rows)
        clv_log(
            "%s: note: of %lld ranks that split the batch %lld have no sequence; valid for all: --batch %lld or more",
            command, (long long)ranks, (long long)(ranks - rows),
            (long long)(ranks * (o->plan.accumulate > 1 ? o->plan.accumulate : 1)));
}

static clv_status report(clv_invocation *run, const plan_args *a, const clv_program *program, clv_error *err)
{
    clv_plan_report r;
    clv_status status = clv_plan_report_make(&r, &a->plan, program, a->memory_limit, err);
    if (status == CLV_OK && !run->format.json && !a->all && !a->collectives)
        clv_plan_screen_print(&r);
    else if (status == CLV_OK)
        run->code = clv_table_finish(make_table(a, &r, run->format.json), &run->format);
    fflush(stdout); /* it comes before the message */
    if (status == CLV_OK)
        note_idle_ranks(&a->plan, run->name);
    clv_plan_report_free(&r);
    return status;
}

static clv_status plan(clv_invocation *run, plan_args *a, clv_error *err)
{
    clv_program *program = NULL;
    clv_status status = clv_plan_option_compile(&program, &a->plan, err);
    if (status == CLV_OK)
        status = a->show ? clv_visualize_sharding(program, a->show, err) : report(run, a, program, err);
    if (status == CLV_OK && run->code == CLV_EXIT_OK)
        run->code = check_limit(a, program, run->name);
    clv_program_free(program);
    clv_machine_free(a->plan.machine);
    return status;
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
    a.plan.plan.batch = 0;
    if (!parse(&a, run))
        return CLV_OK;
    if (a.plan.hardware && strcmp(a.plan.hardware, "list") == 0)
        return clv_hardware_table_new(&run->table, err);
    CLV_TRY(clv_plan_search_check(&a.search, err));
    CLV_TRY(clv_inventory_read(&a.plan, a.search.inventory, err));
    if (a.plan.plan.batch == 0 && a.search.latency_limit == 0)
        a.plan.plan.batch = CLV_PLAN_BATCH;
    if (a.search.search || a.search.matrix)
        return search(run, &a, err);
    if (run->format.wide && !a.all && !a.collectives)
        return clv_fail(err, CLV_EINVAL, "--wide has no effect without --collectives or --all");
    return plan(run, &a, err);
}
