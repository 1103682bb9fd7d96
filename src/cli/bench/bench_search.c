/* bench_search.c - the `cleave bench search` benchmark: runs every candidate of `plan --search` on this machine, beside
 * what was predicted.
 */
#include <math.h>

#include "cli/bench/measured_machine.h"
#include "cli/bench/search_candidates.h"
#include "cli/command.h"
#include "cli/reports/plan_report.h"
#include "cli/reports/plan_search_table.h"

typedef struct search_args {
    clv_plan_option plan;
    clv_comm_option comm;
    int64_t devices, iterations; /* devices 0: not given */
} search_args;

static const double close_enough = 0.12; /* relative error of a prediction */

static bool parse(search_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_PLAN_OPTIONS(&a->plan),
        CLV_OPT_INT("--devices", &a->devices, 1, 1024, "N", "ranks; without --mesh or -tp: one a core, or a process",
                    .conflicts_with = "--mesh, -tp"),
        CLV_HARDWARE_ROW(&a->plan.hardware, NULL,
                         "machine that times are predicted for (this one, measured with as many ranks)"),
        CLV_ITERATIONS_OPTION(&a->iterations, NULL),
        CLV_COMM_OPTIONS(&a->comm),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

/* ---- what is searched ---- */

static clv_status find_devices(int64_t *out, const search_args *a, clv_error *err)
{
    clv_cpu_info cpu = {.size = sizeof cpu};
    clv_mesh mesh;
    if (a->plan.mesh.text) {
        CLV_TRY(clv_mesh_option_parse(&mesh, a->plan.mesh.text, err));
        *out = clv_mesh_rank_count(&mesh);
        return CLV_OK;
    }
    CLV_TRY(clv_cpu_get_info(&cpu, err));
    *out = a->devices ? a->devices : clv_processes_count() > 1 ? clv_processes_count() : cpu.cores;
    return CLV_OK;
}

/* The profile that is given, or one that is measured: with a rank a core, as with more ranks all times grow. */
static clv_status open_machine(search_args *a, const char *command, clv_error *err)
{
    clv_cpu_info cpu = {.size = sizeof cpu};
    if (a->plan.machine)
        return CLV_OK;
    CLV_TRY(clv_cpu_get_info(&cpu, err));
    const int64_t ranks = a->devices < cpu.cores ? a->devices : cpu.cores;
    clv_log("%s: measures this machine first; --hardware takes a profile of 'cleave bench profile'", command);
    CLV_TRY(clv_measured_machine_new(&a->plan.machine, clv_processes_count() > 1 ? 0 : ranks, 0, &a->comm, err));
    a->plan.plan.compile.machine = a->plan.machine;
    return CLV_OK;
}

/* One host has all ranks, however few the profile's has: all candidates are slower by the same factor. */
static void set_ranks(clv_plan_search_options *how, const search_args *a)
{
    clv_machine_info info = {.size = sizeof info};
    clv_machine_get_info(a->plan.machine, &info, NULL);
    how->devices = a->devices;
    if (info.hosts != 1 || info.ranks_per_host >= a->devices)
        return;
    how->hosts = 1;
    how->ranks_per_host = a->devices;
    how->memory_limit = info.memory_bytes * (double)info.ranks_per_host / (double)a->devices;
}

/* ---- the table ---- */

static int by_time(const void *a, const void *b)
{
    double x = (*(clv_timed_candidate *const *)a)->measured, y = (*(clv_timed_candidate *const *)b)->measured;
    return (x > y) - (x < y);
}

static bool is_close(const clv_timed_candidate *c)
{
    return fabs(c->predicted / c->measured - 1) <= close_enough;
}

static void add_candidate(clv_table *t, const clv_timed_candidate *c, int64_t iterations, bool recommended, bool json)
{
    char mesh[CLV_MESH_TEXT];
    clv_mesh_print(mesh, sizeof mesh, c->plan.mesh);
    clv_table_begin_row(t);
    clv_table_text(t, "mesh", mesh);
    clv_table_text(t, "rules", c->plan.rules->name);
    clv_plan_candidate_add_options(t, &c->plan, false, json);
    clv_table_bytes(t, "memory", c->plan.memory);
    clv_table_seconds(t, "predicted", c->predicted);
    clv_table_seconds(t, "measured", c->measured);
    if (json)
        clv_table_seconds(t, "median", c->seconds[iterations / 2]);
    clv_table_real(t, "ratio", rint(1000 * c->predicted / c->measured) / 1000);
    if (json)
        clv_table_bool(t, "recommended", recommended);
    else
        clv_table_text(t, "recommended", recommended ? "*" : "-");
}

static void add_header(clv_table *t, const search_args *a)
{
    const clv_plan_options *plan = &a->plan.plan;
    clv_machine_info info = {.size = sizeof info};
    clv_machine_get_info(a->plan.machine, &info, NULL);
    clv_table_begin_header(t, "search");
    clv_table_text(t, plan->model ? "model" : "block", plan->model ? plan->model : clv_plan_block_name(plan->block));
    clv_table_text(t, "step", clv_plan_step_name(&a->plan.plan));
    clv_table_int(t, "batch", plan->batch);
    clv_table_int(t, "seq", plan->seq);
    clv_table_text(t, "dtype", clv_dtype_name(plan->dtype));
    clv_table_int(t, "ranks", a->devices);
    clv_table_text(t, "transport", clv_processes_have_joined_job() ? "mpi" : "threads");
    clv_table_text(t, "hardware", info.name);
}

/* Sorted by what was measured; the first of `all` is the recommended one. */
static clv_status report(clv_table **out, const search_args *a, const clv_timed_candidates *all, bool json,
                         clv_error *err)
{
    clv_timed_candidate **sorted = calloc((size_t)all->n, sizeof *sorted);
    int close = 0;
    if (!sorted)
        return clv_fail_memory(err, "candidates", (size_t)all->n * sizeof *sorted);
    for (int i = 0; i < all->n; i++) {
        sorted[i] = &all->item[i];
        close += is_close(sorted[i]);
    }
    qsort(sorted, (size_t)all->n, sizeof *sorted, by_time);
    clv_table *t = clv_table_new("candidates");
    clv_table_optional_column(t, "memory");
    for (int i = 0; i < all->n; i++)
        add_candidate(t, sorted[i], a->iterations, sorted[i] == all->item, json);
    add_header(t, a);
    clv_table_begin_top_level(t);
    clv_table_int(t, "measured_candidates", all->n);
    clv_table_fraction(t, "within_12_percent", (double)close / all->n);
    clv_table_fraction(t, "recommended_over_fastest", all->item->measured / sorted[0]->measured - 1);
    free(sorted);
    *out = t;
    return CLV_OK;
}

/* ---- */

static clv_status measure(clv_invocation *run, search_args *a, const clv_plan_search_options *how, clv_error *err)
{
    clv_timed_candidates all = {0};
    clv_plan_search *found;
    CLV_TRY(clv_plan_search_run(&found, how, err));
    clv_status status = clv_timed_candidates_make(&all, found, how->base, err);
    if (status == CLV_OK)
        status = clv_timed_candidates_measure(&all, a->iterations, &a->comm, err);
    if (status == CLV_OK)
        status = report(&run->table, a, &all, run->format.json, err);
    clv_timed_candidates_free(&all);
    clv_plan_search_free(found);
    return status;
}

static clv_status search(clv_invocation *run, search_args *a, clv_error *err)
{
    clv_plan_search_options how = {.size = sizeof how, .runnable = true, .every_layout = true, .exhaustive = true};
    clv_plan_options base;
    clv_mesh mesh;
    clv_job *job;
    char text[32];
    CLV_TRY(clv_processes_job(&job, &a->comm, err));
    if (a->plan.mesh.tp > 0) {
        snprintf(text, sizeof text, "model=%lld", (long long)a->plan.mesh.tp);
        a->plan.mesh.text = text;
    }
    CLV_TRY(clv_plan_option_resolve(&a->plan, err));
    CLV_TRY(find_devices(&a->devices, a, err));
    CLV_TRY(open_machine(a, run->name, err));
    CLV_TRY(clv_plan_search_fill_base(&how, &base, &a->plan, &mesh, err));
    set_ranks(&how, a);
    return measure(run, a, &how, err);
}

clv_status bench_search(clv_invocation *run, clv_error *err)
{
    search_args a = {.plan = CLV_PLAN_OPTION_DEFAULTS, .iterations = 7};
    a.plan.mesh.tp = 0;
    if (!parse(&a, run))
        return CLV_OK;
    CLV_TRY(clv_plan_option_import(&a.plan, err));
    a.plan.plan.batch = a.plan.plan.batch ? a.plan.plan.batch : CLV_PLAN_BATCH;
    clv_status status = search(run, &a, err);
    clv_machine_free(a.plan.machine);
    return status;
}
