/* plan_report.c - gathers what `cleave plan` prints, planning again with options changed for what would help. */
#include "cli/reports/plan_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/plan_search.h"
#include "cleave/status.h"
#include "cli/reports/plan_search_table.h"

const char *clv_plan_step_name(const clv_plan_options *o)
{
    switch (o->mode) {
    case CLV_PLAN_MODE_GRAD:
        return "forward and backward";
    case CLV_PLAN_MODE_PREFILL:
        return "prefill";
    case CLV_PLAN_MODE_DECODE:
        return "decode";
    default:
        return o->block ? "forward" : "training";
    }
}

int64_t clv_plan_tokens(const clv_plan_options *o)
{
    return o->batch * (o->mode == CLV_PLAN_MODE_DECODE ? 1 : o->seq);
}

bool clv_plan_report_is_published(const clv_plan_report *r)
{
    const clv_plan_options *o = &r->option->plan;
    return r->machine.published_runs > 0 && strcmp(clv_plan_step_name(o), "training") == 0 &&
           o->dtype == r->machine.published_dtype;
}

bool clv_plan_report_fits(const clv_plan_report *r, const clv_memory *memory)
{
    return !r->limit.source || (double)memory->total <= r->limit.bytes;
}

/* ---- sizes ---- */

static clv_status read_model(clv_model_info *info, const char *path, clv_error *err)
{
    clv_model *model;
    const clv_model_options options = {.size = sizeof options, .config_only = true};
    CLV_TRY(clv_model_open(&model, path, &options, err));
    info->size = sizeof *info;
    clv_status status = clv_model_get_info(model, info, err);
    clv_model_close(model);
    return status;
}

/* Sizes that were not given are the planner's. */
static void read_block(clv_model_info *info, const clv_plan_options *o)
{
    int64_t hidden = o->hidden ? o->hidden : CLV_PLAN_HIDDEN, heads = o->heads ? o->heads : CLV_PLAN_HEADS;
    info->hidden = hidden;
    if (o->block != CLV_PLAN_BLOCK_FFN) {
        info->heads = heads;
        info->kv_heads = o->kv_heads ? o->kv_heads : heads;
        info->head_dim = o->head_dim ? o->head_dim : hidden / heads;
    }
    if (o->block != CLV_PLAN_BLOCK_ATTENTION)
        info->ffn = o->ffn ? o->ffn : 4 * hidden;
}

/* ---- what takes less memory ---- */

static clv_status read_suggestions(clv_plan_report *r, const clv_plan_suggestions *found, clv_error *err)
{
    size_t n = (size_t)clv_plan_suggestion_count(found);
    r->smaller = calloc(n + 1, sizeof *r->smaller);
    if (!r->smaller)
        return clv_fail_memory(err, "options of a plan", (n + 1) * sizeof *r->smaller);
    for (; r->n_smaller < (int)n; r->n_smaller++) {
        clv_plan_change *item = &r->smaller[r->n_smaller];
        clv_plan_suggestion change = {.size = sizeof change};
        CLV_TRY(clv_plan_suggestion_at(found, r->n_smaller, &change, err));
        snprintf(item->option, sizeof item->option, "--%s%s%s", change.option, change.value[0] ? " " : "",
                 change.value);
        for (char *c = item->option; *c && *c != ' '; c++)
            *c = *c == '_' ? '-' : *c;
        item->memory = *change.memory;
        item->seconds = change.seconds;
    }
    return CLV_OK;
}

static clv_status find_smaller(clv_plan_report *r, clv_error *err)
{
    clv_plan_suggestions *found;
    if (clv_plan_find_suggestions(&found, &r->option->plan, NULL) != CLV_OK)
        return CLV_OK; /* the plan without them */
    clv_status status = read_suggestions(r, found, err);
    clv_plan_suggestions_free(found);
    return status;
}

/* The options of a candidate that differ from those of the plan. */
static void print_candidate(clv_plan_change *out, const clv_plan_candidate *c, const clv_plan_options *given)
{
    char *text = out->option;
    size_t size = sizeof out->option, n = 0;
    if (c->accumulate != (given->accumulate ? given->accumulate : 1))
        n += (size_t)snprintf(text + n, size - n, " --accumulate %lld", (long long)c->accumulate);
    n += clv_plan_candidate_print_kept(text + n, size - n, c, given->compile.recompute,
                                       given->compile.reshard_after_forward);
    memmove(text, text + (n > 0), n + (n == 0));
    out->memory = (clv_memory){.size = sizeof out->memory, .total = llround(c->memory)};
    out->seconds = c->seconds;
}

/* By a search of the given mesh and preset. */
static void find_fastest(clv_plan_report *r)
{
    clv_plan_options base = r->option->plan;
    const clv_mesh_option *mesh = &r->option->mesh;
    clv_plan_search *found;
    clv_plan_candidate best = {.size = sizeof best};
    const clv_plan_search_options how = {.size = sizeof how,
                                         .base = &base,
                                         .rules = mesh->axis_rules.name,
                                         .devices = clv_mesh_rank_count(&mesh->mesh),
                                         .memory_limit = r->limit.bytes,
                                         .runnable = true,
                                         .most = 1};
    base.mesh = &mesh->mesh;
    base.rules = NULL;
    base.sp = false;
    base.accumulate = 0;
    base.compile.recompute = CLV_RECOMPUTE_NONE;
    base.compile.reshard_after_forward = CLV_RESHARD_WEIGHTS;
    if (!how.rules[0] || clv_plan_search_run(&found, &how, NULL) != CLV_OK)
        return; /* rules of a file, or nothing fits */
    if (clv_plan_search_at(found, 0, &best, NULL) == CLV_OK && best.fits)
        print_candidate(&r->fastest, &best, &r->option->plan);
    clv_plan_search_free(found);
}

/* ---- what is faster ---- */

/* Memory and seconds with other options; false: they cannot be planned. */
static bool plan_again(clv_plan_change *out, const clv_plan_report *r, const clv_plan_options *how)
{
    clv_prediction predicted = {.size = sizeof predicted};
    clv_program *program;
    if (clv_plan_compile(&program, how, NULL) != CLV_OK)
        return false;
    out->memory = (clv_memory){.size = sizeof out->memory};
    clv_program_memory_on(program, r->option->machine, &out->memory, NULL);
    clv_program_predict(program, r->option->machine, &predicted, NULL);
    clv_program_free(program);
    out->memory.peak = NULL; /* the program's */
    out->seconds = predicted.seconds;
    return true;
}

/* Whether the order of the mesh's axes brings the wrong ones between hosts. To ask takes a plan for each order. */
static void find_order(clv_plan_report *r)
{
    clv_mesh mesh;
    double seconds;
    clv_plan_change order = {.option = "--mesh "};
    clv_plan_options how = r->option->plan;
    clv_mesh_option with = r->option->mesh;
    const size_t used = strlen(order.option);
    if (r->machine.hosts == 1 || clv_mesh_rank_count(clv_program_mesh(r->program)) <= r->machine.ranks_per_host)
        return;
    if (clv_plan_find_axis_order(&mesh, &seconds, &r->option->plan, NULL) != CLV_OK || seconds >= r->predicted.seconds)
        return;
    clv_mesh_print(order.option + used, sizeof order.option - used, &mesh);
    with.text = order.option + used;
    if (clv_mesh_option_resolve(&with, NULL) != CLV_OK)
        return;
    how.mesh = &with.mesh;
    how.rules = how.rules ? &with.axis_rules : NULL;
    if (plan_again(&order, r, &how) && clv_plan_report_fits(r, &order.memory)) /* --memory-limit is not the machine's */
        r->order = order;
}

/* Collectives that take a twentieth of the time may be worth overlapping. */
static void find_overlap(clv_plan_report *r)
{
    clv_plan_options how = r->option->plan;
    clv_plan_change overlap = {.option = "--overlap"};
    how.compile.overlap = true;
    if (r->option->plan.compile.overlap || r->predicted.communication < r->predicted.seconds / 20 ||
        !plan_again(&overlap, r, &how))
        return;
    if (overlap.seconds < 0.99 * r->predicted.seconds && clv_plan_report_fits(r, &overlap.memory))
        r->overlap = overlap;
}

/* ---- what to change first ---- */

static void add_first(clv_plan_report *r, const clv_plan_change *change)
{
    if (change->option[0] && r->n_first < CLV_PLAN_FIRST)
        r->first[r->n_first++] = change;
}

int64_t clv_plan_change_ranks(const clv_plan_change *change)
{
    static const char option[] = "--mesh ";
    clv_mesh mesh;
    bool is_mesh = strncmp(change->option, option, strlen(option)) == 0;
    return is_mesh && clv_mesh_parse(&mesh, change->option + strlen(option), NULL) == CLV_OK
               ? clv_mesh_rank_count(&mesh)
               : 0;
}

/* Seconds of as many sequences as the plan has. */
static double seconds_of(const clv_plan_report *r, const clv_plan_change *change)
{
    long long batch = 0;
    return sscanf(change->option, "--batch %lld", &batch) == 1 && batch > 0
               ? change->seconds * (double)r->option->plan.batch / (double)batch
               : change->seconds;
}

/* The fastest that fits of the single changes that are not chosen yet, on the ranks that there are or on more. */
static const clv_plan_change *fastest_single(const clv_plan_report *r, bool more)
{
    const clv_plan_change *best = NULL;
    for (int i = 0; i < r->n_smaller; i++) {
        const clv_plan_change *change = &r->smaller[i];
        const bool chosen = r->n_first > 0 && r->first[0] == change;
        if (!chosen && clv_plan_report_fits(r, &change->memory) && (clv_plan_change_ranks(change) > 0) == more &&
            (!best || seconds_of(r, change) < seconds_of(r, best)))
            best = change;
    }
    return best;
}

/* What suffices on the ranks that there are goes before what needs more. */
static void choose_first(clv_plan_report *r)
{
    const bool fits = clv_plan_report_fits(r, &r->memory), single = !r->fastest.option[0];
    const clv_plan_change *change;
    add_first(r, &r->fastest);
    for (int more = 0; single && more < 2; more++)
        while (r->n_first < CLV_PLAN_FIRST && (change = fastest_single(r, more)) != NULL)
            add_first(r, change);
    if (r->n_first == 0 && r->n_smaller > 0)
        add_first(r, &r->smaller[0]);
    if (fits) {
        add_first(r, &r->order);
        add_first(r, &r->overlap);
    }
}

/* A block of one part has ops of that part alone. */
static void name_part_of_block(clv_prediction_parts *parts, clv_plan_block block)
{
    double *rest = &parts->ops[CLV_PART_REST];
    if (block == CLV_PLAN_BLOCK_FFN)
        parts->ops[CLV_PART_FEED_FORWARD] += *rest;
    else if (block == CLV_PLAN_BLOCK_ATTENTION)
        parts->ops[CLV_PART_ATTENTION] += *rest;
    else
        return;
    *rest = 0;
}

/* ---- all of it ---- */

bool clv_plan_is_estimated(const clv_plan_report *r, const clv_plan_estimate *e)
{
    return e->can_run || r->machine.software[0];
}

bool clv_plan_print_stages(char *out, size_t size, const clv_plan_estimate *e, const char *separator)
{
    size_t used = 0;
    for (int i = 0; i < e->runs && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%d", i ? separator : "", e->run_layers[i]);
    return e->runs > 0;
}

/* --memory-limit, else the profile's memory where one was named: the default profile describes no machine. */
static clv_memory_limit find_limit(const clv_plan_report *r, int64_t memory_limit)
{
    if (memory_limit > 0)
        return (clv_memory_limit){(double)memory_limit, "--memory-limit"};
    if (!r->option->hardware)
        return (clv_memory_limit){0, NULL};
    return (clv_memory_limit){r->predicted.memory_bytes, r->machine.name};
}

static clv_status read_pipeline(clv_plan_report *r, clv_error *err)
{
    const clv_plan_option *o = r->option;
    clv_plan_estimate *p = &r->pipeline;
    clv_stage_info stage = {.size = sizeof stage};
    const int stages = clv_program_stages(r->program), runs = o->mesh.axis_rules.virtual_stages;
    if (stages <= 1)
        return CLV_OK;
    CLV_TRY(clv_program_stage(r->program, o->machine, r->memory.stage, &stage, err));
    p->schedule = o->plan.mode > CLV_PLAN_MODE_TRAIN ? CLV_SCHEDULE_DEFAULT : stage.schedule;
    p->in_flight = stage.in_flight;
    p->memory_stage = r->memory.stage;
    p->stages = stages;
    p->can_run = p->compiled = true;
    p->virtual_stages = runs > 1 ? runs : 1;
    p->runs = o->mesh.axis_rules.n_stage_layers; /* where they are stated */
    memcpy(p->run_layers, o->mesh.axis_rules.stage_layers, sizeof p->run_layers);
    p->microbatches = o->plan.accumulate > 1 ? o->plan.accumulate : 1;
    p->bubble = r->parts.waits;
    p->predicted = r->predicted;
    return CLV_OK;
}

clv_status clv_plan_report_make(clv_plan_report *r, const clv_plan_option *option, const clv_program *program,
                                int64_t memory_limit, bool singles, clv_error *err)
{
    const clv_plan_options *plan = &option->plan;
    *r = (clv_plan_report){.option = option,
                           .program = program,
                           .machine.size = sizeof r->machine,
                           .memory.size = sizeof r->memory,
                           .predicted.size = sizeof r->predicted,
                           .parts.size = sizeof r->parts};
    if (plan->block)
        read_block(&r->model, plan);
    else
        CLV_TRY(read_model(&r->model, plan->model, err));
    CLV_TRY(clv_machine_get_info(option->machine, &r->machine, err));
    CLV_TRY(clv_program_memory_on(program, option->machine, &r->memory, err));
    CLV_TRY(clv_program_predict(program, option->machine, &r->predicted, err));
    CLV_TRY(clv_program_predict_parts(program, option->machine, &r->parts, err));
    name_part_of_block(&r->parts, plan->block);
    CLV_TRY(read_pipeline(r, err));
    r->limit = find_limit(r, memory_limit);
    const bool fits = clv_plan_report_fits(r, &r->memory);
    if (!fits)
        find_fastest(r);
    if (!fits && (singles || !r->fastest.option[0]))
        CLV_TRY(find_smaller(r, err));
    if (option->hardware) {
        find_order(r);
        find_overlap(r);
    }
    choose_first(r);
    return CLV_OK;
}

clv_status clv_plan_report_make_from_estimate(clv_plan_report *r, const clv_plan_option *option,
                                              const clv_plan_estimate *estimate, int64_t memory_limit, clv_error *err)
{
    *r = (clv_plan_report){.option = option,
                           .estimate = estimate,
                           .model = estimate->model,
                           .machine.size = sizeof r->machine,
                           .memory = estimate->memory,
                           .predicted = estimate->predicted,
                           .parts = estimate->parts};
    CLV_TRY(clv_machine_get_info(option->machine, &r->machine, err));
    r->limit = find_limit(r, memory_limit);
    return CLV_OK;
}

void clv_plan_report_free(clv_plan_report *r)
{
    free(r->smaller);
    *r = (clv_plan_report){0};
}
