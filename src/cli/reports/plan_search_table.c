/* plan_search_table.c - runs `cleave plan --search`: checks its options, searches, fills the table of ranked layouts,
 * writes --save. */
#include "cli/reports/plan_search_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <unistd.h>

#include "cli/output/messages.h"
#include "cli/reports/decision_matrix.h"
#include "cli/reports/plan_report.h"

/* ---- options ---- */

clv_status clv_plan_search_check_args(const clv_plan_search_args *a, bool auto_rules, clv_error *err)
{
    if (a->save && !a->search && !auto_rules)
        return clv_fail(err, CLV_EINVAL, "--save has no effect without --search or --rules auto");
    const char *without = a->devices         ? "--devices"
                          : a->latency_limit ? "--latency-limit"
                          : a->cost          ? "--cost"
                          : a->most          ? "--most"
                          : a->runnable      ? "--runnable"
                                             : NULL;
    return a->search || a->matrix || !without ? CLV_OK
                                              : clv_fail(err, CLV_EINVAL, "%s has no effect without --search", without);
}

/* Whether the text is the form and nothing else; "%n" ends each. */
static bool is_inventory(const char *text, int64_t *hosts, int64_t *each)
{
    static const char *const forms[] = {"%9lld x %9lld%n", "%9lld hosts x %9lld%n", "%9lld host x %9lld%n"};
    static const char *const units[] = {"", " GPUs", " TPUs", " devices", " ranks"};
    long long h, e;
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        int end = 0;
        if (sscanf(text, forms[f], &h, &e, &end) != 2 || h < 1 || e < 1)
            continue;
        for (size_t u = 0; u < sizeof units / sizeof *units; u++)
            if (strcmp(text + end, units[u]) == 0) {
                *hosts = h;
                *each = e;
                return true;
            }
    }
    return false;
}

clv_status clv_inventory_option_apply(clv_plan_option *o, const char *text, clv_error *err)
{
    if (text && !is_inventory(text, &o->hosts, &o->ranks_per_host))
        return clv_fail(err, CLV_EINVAL,
                        "--inventory %s; valid: hosts that are alike, and the devices of each, \"8 hosts x 8\" or "
                        "\"8x8\"",
                        text);
    return CLV_OK;
}

/* "2.5/h" or "2.5": the price of a device's hour. */
static clv_status parse_cost(double *out, const char *text, clv_error *err)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || (strcmp(end, "") != 0 && strcmp(end, "/h") != 0) || !(*out > 0) || !isfinite(*out))
        return clv_fail(err, CLV_EINVAL, "--cost %s; valid: the price of a device's hour, 2.5/h", text);
    return CLV_OK;
}

clv_status clv_plan_search_fill_base(clv_plan_search_options *how, clv_plan_options *base, const clv_plan_option *o,
                                     clv_mesh *mesh, clv_error *err)
{
    *base = o->plan;
    how->base = base;
    how->keep_recompute = o->mesh.given.recompute;
    how->keep_reshard_after_forward = o->mesh.given.reshard_after_forward;
    how->hosts = o->hosts;
    how->ranks_per_host = o->ranks_per_host;
    how->rules = o->mesh.sp ? "megatron-sp" : o->mesh.rules;
    if (!o->mesh.text)
        return CLV_OK;
    CLV_TRY(clv_mesh_option_parse(mesh, o->mesh.text, err));
    base->mesh = mesh;
    return CLV_OK;
}

/* ---- the table ---- */

/* planned: what is listed may be estimated. */
static void add_notes(clv_table *t, const clv_plan_option *o, bool planned)
{
    clv_table_begin_top_level(t);
    if (!o->hardware)
        clv_table_text(t, "note", "on the default machine: only ratios mean something; --hardware NAME has figures");
    if (planned)
        clv_table_text(t, "runs", "estimated: not priced by its program; --runnable leaves these out");
}

/* How candidates are listed. */
typedef struct listing {
    const clv_plan_search *found;
    bool searched_batch, json;
    bool planned; /* some of them are estimated */
    double price; /* of a device's hour; 0: not given */
} listing;

/* Of 1e9 tokens; text has hundredths. */
static double cost_of_tokens(const clv_plan_candidate *c, double price, bool json)
{
    double cost = price * (double)clv_mesh_rank_count(c->mesh) / 3600 / c->tokens_per_s * 1e9;
    return json ? cost : rint(100 * cost) / 100;
}

/* The columns of both lists. */
static void add_candidate(clv_table *t, const clv_plan_candidate *c, const listing *list, bool ranked)
{
    char mesh[CLV_MESH_TEXT];
    clv_mesh_print(mesh, sizeof mesh, c->mesh);
    clv_table_text(t, "mesh", mesh);
    clv_table_text(t, "rules", c->rules->name);
    clv_table_bytes(t, "memory", c->memory);
    clv_table_seconds(t, "seconds", c->seconds);
    clv_table_count(t, "tokens_per_s", c->tokens_per_s);
    clv_table_fraction(t, "mfu", c->mfu);
    clv_table_fraction(t, "comm_share", c->comm_share);
    if (list->planned || list->json)
        clv_table_fraction(t, "bubble_share", c->bubble_share);
    if (list->json)
        clv_table_bool(t, "can_run", c->can_run);
    else if (list->planned)
        clv_table_text(t, "runs", c->can_run ? "yes" : "estimated");
    if (ranked)
        c->front ? clv_table_int(t, "front", c->front) : clv_table_null(t, "front");
    if (list->price > 0)
        clv_table_real(t, "cost_per_1e9", cost_of_tokens(c, list->price, list->json));
    clv_plan_candidate_add_options(t, c, list->searched_batch, list->json);
    clv_table_text(t, "why", c->why);
}

static void add_header(clv_table *t, const clv_plan_option *o, const clv_plan_search *found, int64_t devices)
{
    clv_machine_info info = {.size = sizeof info};
    double limit = clv_plan_search_memory_limit(found);
    clv_machine_get_info(o->machine, &info, NULL);
    clv_table_begin_header(t, "search");
    clv_table_text(t, o->plan.model ? "model" : "block",
                   o->plan.model ? o->plan.model : clv_plan_block_name(o->plan.block));
    clv_table_text(t, "step", clv_plan_step_name(&o->plan));
    if (o->plan.batch > 0)
        clv_table_int(t, "batch", o->plan.batch);
    clv_table_int(t, "seq", o->plan.seq);
    clv_table_text(t, "dtype", clv_dtype_name(o->plan.dtype));
    clv_table_int(t, "devices", devices);
    clv_table_text(t, "hardware", info.name);
    if (isfinite(limit))
        clv_table_bytes(t, "memory_limit", limit);
    clv_table_int(t, "priced", clv_plan_search_priced_count(found));
}

/* Of the front those that need less memory by a tenth than the one before; all with --json. */
static void add_front(clv_table *t, const listing *list)
{
    double last = (double)INFINITY;
    clv_table_begin_list(t, "front");
    for (int i = 0; i < clv_plan_search_front_count(list->found); i++) {
        clv_plan_candidate c = {.size = sizeof c};
        clv_plan_search_front_at(list->found, i, &c, NULL);
        if (!list->json && c.memory > 0.9 * last)
            continue;
        last = c.memory;
        clv_table_begin_row(t);
        clv_table_int(t, "front", c.front);
        add_candidate(t, &c, list, false);
    }
}

/* The first ranked one that runs. */
static bool find_runnable(clv_plan_candidate *c, int *at, const clv_plan_search *found)
{
    for (*at = 0; *at < clv_plan_search_count(found); ++*at)
        if (clv_plan_search_at(found, *at, c, NULL) == CLV_OK && c->can_run)
            return true;
    return false;
}

static bool lists_planned(const clv_plan_search *found)
{
    clv_plan_candidate c = {.size = sizeof c};
    for (int i = 0; i < clv_plan_search_count(found); i++)
        if (clv_plan_search_at(found, i, &c, NULL) == CLV_OK && !c.can_run)
            return true;
    return false;
}

static clv_table *make_table(const clv_plan_option *o, const clv_plan_search_args *a, const listing *list)
{
    clv_table *t = clv_table_new("ranked");
    clv_plan_candidate c = {.size = sizeof c};
    for (int i = 0; i < clv_plan_search_count(list->found); i++) {
        clv_plan_search_at(list->found, i, &c, NULL);
        clv_table_begin_row(t);
        add_candidate(t, &c, list, true);
    }
    add_front(t, list);
    add_header(t, o, list->found, clv_mesh_rank_count(c.mesh));
    clv_table_begin_top_level(t);
    if (!list->json && clv_plan_search_count(list->found) >= (a->most ? a->most : CLV_PLAN_SEARCH_MOST))
        clv_table_text(t, "more", "--most N lists more layouts than these");
    add_notes(t, o, list->planned && !list->json);
    return t;
}

static clv_status make_matrix(clv_table **out, const clv_plan_option *o, const clv_plan_search *found,
                              const clv_plan_search_options *how, bool json, clv_error *err)
{
    clv_machine_info info = {.size = sizeof info};
    clv_machine_get_info(o->machine, &info, NULL);
    info.ranks_per_host = how->ranks_per_host ? how->ranks_per_host : info.ranks_per_host;
    CLV_TRY(clv_decision_matrix_new(out, found, how->base, &info, json, err));
    add_header(*out, o, found, how->devices ? how->devices : how->hosts * how->ranks_per_host);
    add_notes(*out, o, false);
    return CLV_OK;
}

/* ---- */

/* What --rules FILE of other commands can use: the best that runs. */
static clv_status save(const clv_plan_search *found, const clv_plan_option *o, const char *path, clv_error *err)
{
    clv_plan_candidate c = {.size = sizeof c};
    int at;
    if (!find_runnable(&c, &at, found))
        return clv_fail(err, CLV_EUNSUPPORTED, "--save %s: nothing that fits runs; a saved mesh does", path);
    if (at > 0)
        clv_log("note: %s has the best that runs, number %d of the list: those before are estimated", path, at + 1);
    clv_saved_plan plan = {.size = sizeof plan,
                           .mesh = *c.mesh,
                           .rules = *c.rules,
                           .accumulate = c.accumulate,
                           .recompute = c.recompute,
                           .reshard_after_forward = c.reshard_after_forward,
                           .hosts = o->hosts,
                           .ranks_per_host = o->ranks_per_host,
                           .schedule = c.schedule,
                           .no_sync = c.no_sync};
    if (c.virtual_stages > 1)
        CLV_TRY(clv_axis_rules_set_stages(&plan.rules, &plan.mesh, (int)c.virtual_stages, NULL, 0, err));
    if (access(path, F_OK) == 0)
        clv_log("note: %s is replaced", path);
    return clv_saved_plan_write(&plan, path, err);
}

/* A search compiles thousands of programs. Their memory is kept for the next ones: page faults after its return to the
 * system take a quarter of the time. */
static void keep_freed_memory(void)
{
#ifdef __GLIBC__
    enum { KEPT_BYTES = 1 << 30, MOST_AT_ONCE = 1 << 25 /* the most that glibc takes here */ };
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    mallopt(M_MMAP_THRESHOLD, MOST_AT_ONCE);
#endif
}

clv_status clv_plan_search_run_to_table(clv_invocation *run, clv_plan_option *o, const clv_plan_search_args *a,
                                        int64_t memory_limit, clv_error *err)
{
    clv_plan_search_options how = {.size = sizeof how,
                                   .devices = a->devices,
                                   .memory_limit = (double)memory_limit,
                                   .latency_limit = a->latency_limit,
                                   .most = (int)a->most};
    clv_plan_options base;
    clv_plan_search *found;
    clv_mesh mesh;
    double price = 0;
    if (clv_mesh_option_is_auto(&o->mesh))
        return clv_fail(err, CLV_EINVAL,
                        "--rules auto finds rules for one mesh, and --search takes a preset; valid: --search without "
                        "--rules, then --rules auto with a --mesh that it lists");
    CLV_TRY(clv_plan_option_resolve(o, err));
    CLV_TRY(clv_plan_search_fill_base(&how, &base, o, &mesh, err));
    if (a->cost)
        CLV_TRY(parse_cost(&price, a->cost, err));
    if (!a->devices && !a->inventory && !base.mesh)
        return clv_fail(err, CLV_EINVAL, "%s needs --devices N, --inventory \"8 hosts x 8\"%s",
                        a->matrix ? "--matrix" : "--search", a->matrix ? "" : " or --mesh AXES");
    how.every_layout = a->matrix;
    how.runnable = a->runnable;
    how.schedule = a->schedule;
    how.virtual_stages = a->virtual_stages;
    keep_freed_memory();
    CLV_TRY(clv_plan_search_run(&found, &how, err));
    clv_status status = a->matrix ? make_matrix(&run->table, o, found, &how, run->format.json, err) : CLV_OK;
    clv_plan_candidate first = {.size = sizeof first};
    if (a->matrix && memory_limit > 0 && clv_plan_search_at(found, 0, &first, NULL) == CLV_OK && !first.fits)
        run->code = CLV_EXIT_FAILED; /* as that of a plan */
    const listing list = {.found = found,
                          .searched_batch = a->latency_limit > 0,
                          .json = run->format.json,
                          .planned = lists_planned(found),
                          .price = price};
    if (!a->matrix)
        run->table = make_table(o, a, &list);
    if (status == CLV_OK && a->save)
        status = save(found, o, a->save, err);
    if (status != CLV_OK && run->table) { /* what was found is not lost with the file */
        (void)clv_table_finish(run->table, &run->format);
        run->table = NULL;
        fflush(stdout);
    }
    clv_plan_search_free(found);
    return status;
}
