/* command_plan.c - the `cleave plan` command: predicts collectives, bytes, time and memory from the compiled program,
 * without running it; searches meshes and rules (--search, --matrix); draws an op's shards (--show).
 */

#include "cleave/text.h"
#include "cli/command.h"
#include "cli/evaluation/imported_run.h"
#include "cli/evaluation/imported_search.h"
#include "cli/parser/option_parser.h"
#include "cli/output/messages.h"
#include "cli/options/plan_target_options.h"
#include "cli/options/auto_rules.h"
#include "cli/reports/hardware_table.h"
#include "cli/reports/plan_report.h"
#include "cli/reports/plan_screen.h"
#include "cli/reports/plan_summary.h"
#include "cli/reports/plan_memory_table.h"
#include "cli/reports/plan_search_table.h"
#include "cli/reports/collective_tables.h"
#include "cli/reports/visualize_sharding.h"

typedef struct plan_args {
    clv_plan_option plan;
    int64_t memory_limit; /* 0: none given */
    const char *show;
    bool all, collectives;
    int64_t offload_layers;
    clv_plan_search_args search; /* has --schedule and --virtual-stages, too */
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
        CLV_OPT_ENUM("--schedule", &a->search.schedule, "gpipe|1f1b|interleaved|zero-bubble|auto",
                     clv_plan_schedule_name, "of the stages of an axis pipe (1f1b)"),
        CLV_VIRTUAL_STAGES_OPTION(&a->search.virtual_stages),
        CLV_STAGES_OPTION(&a->plan.mesh),
        CLV_OPT_INT("--offload-layers", &a->offload_layers, 1, 1 << 20, "N",
                    "layers whose activations wait in the host's memory (0)"),
        CLV_OPT_STRING("--show", &a->show, "TENSOR", "draw the shards of a parameter or input instead"),
        CLV_PLAN_SEARCH_OPTIONS(&a->search),
        CLV_FORMAT_OPTIONS(&run->format, "--show", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

/* A limit that was given is kept, or the command fails; a profile's is only reported. */
static int check_limit(const plan_args *a, const clv_memory *memory, const char *command)
{
    char needs[CLV_QUANTITY_TEXT], allowed[CLV_QUANTITY_TEXT];
    if (a->memory_limit == 0 || memory->total <= a->memory_limit)
        return CLV_EXIT_OK;
    clv_print_bytes_exactly(needs, sizeof needs, (double)memory->total);
    clv_print_bytes_exactly(allowed, sizeof allowed, (double)a->memory_limit);
    fflush(stdout); /* the table comes first where both go to one place */
    fprintf(stderr, "%s: a rank needs %s, --memory-limit allows %s\n", command, needs, allowed);
    return CLV_EXIT_FAILED;
}

/* ---- all figures, as a table ---- */

static void add_prediction(clv_table *t, const clv_plan_report *r)
{
    const clv_prediction *p = &r->predicted;
    clv_table_begin_object(t, "predicted");
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
    if (r->parts.waits > 0)
        clv_table_seconds(t, "bubble_seconds", r->parts.waits);
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

static void add_estimate(clv_table *t, const clv_plan_report *r, const clv_plan_estimate *e)
{
    char layers[4 * CLV_MAX_VIRTUAL_STAGES];
    clv_table_begin_object(t, e->compiled ? "pipeline" : clv_plan_is_estimated(r, e) ? "estimated" : "planned_not_run");
    if (e->compiled)
        clv_table_bool(t, "extrapolated", e->extrapolated);
    if (e->experts) {
        clv_table_int(t, "experts", e->experts);
        clv_table_count(t, "active_parameters", (double)e->active_parameters);
    }
    clv_table_int(t, "stages", e->stages);
    if (clv_plan_print_stages(layers, sizeof layers, e, ","))
        clv_table_text(t, "stage_layers", layers);
    clv_table_text(t, "schedule", clv_plan_schedule_name(e->schedule));
    clv_table_int(t, "virtual_stages", e->virtual_stages);
    clv_table_int(t, "microbatches", e->microbatches);
    if (!e->compiled)
        clv_table_int(t, "layers", e->layers);
    clv_table_real(t, "in_flight", e->in_flight);
    clv_table_int(t, "memory_stage", e->memory_stage);
    clv_table_fraction(t, "bubble_share", e->bubble / e->predicted.seconds);
    clv_table_seconds(t, "send_seconds", e->send);
    clv_table_text(t, "context_exchange", clv_context_exchange_name(e->exchange));
    clv_table_seconds(t, "context_seconds", e->context);
    clv_table_seconds(t, "expert_seconds", e->expert);
    clv_table_seconds(t, "offload_seconds", e->offload);
}

static void add_parts(clv_table *t, const clv_plan_report *r)
{
    clv_table_begin_object(t, "ops_seconds");
    for (int p = 0; p < CLV_PART_COUNT; p++)
        clv_table_seconds(t, clv_model_part_name((clv_model_part)p), r->parts.ops[p]);
}

static void add_first(clv_table *t, const clv_plan_report *r)
{
    const char *options[CLV_PLAN_FIRST];
    for (int i = 0; i < r->n_first; i++)
        options[i] = r->first[i]->option;
    clv_table_begin_top_level(t);
    clv_table_text_list(t, "change_first", options, r->n_first);
}

static void add_bytes_and_ranks(clv_table *t, const clv_program *program, const clv_mesh *mesh)
{
    clv_table_begin_top_level(t);
    if (program)
        clv_table_bytes(t, "bytes", clv_collectives_total_bytes(program));
    clv_table_int(t, "ranks", clv_mesh_rank_count(mesh));
}

static clv_table *make_table(const plan_args *a, const clv_plan_report *r, bool json)
{
    const clv_machine *machine = a->plan.machine;
    clv_table *t = !r->program ? clv_table_new("collectives")
                   : json      ? clv_collective_table_one_by_one(r->program, machine)
                               : clv_collective_table_by_layer(r->program, machine);
    clv_collectives_add_purposes(t, &r->parts);
    if (a->collectives && !json) {
        add_bytes_and_ranks(t, r->program, &r->option->mesh.mesh);
        return t;
    }
    clv_plan_summary_add(t, r);
    if (r->estimate || r->pipeline.stages > 0)
        add_estimate(t, r, r->estimate ? r->estimate : &r->pipeline);
    add_bytes_and_ranks(t, r->program, &r->option->mesh.mesh);
    clv_plan_memory_add(t, r);
    clv_plan_memory_fit_add(t, r);
    add_prediction(t, r);
    add_parts(t, r);
    add_first(t, r);
    clv_auto_rules_add(t, &r->option->mesh.found);
    return t;
}

/* The ranks that the batch is split over, of which some get none of a microbatch. */
static void note_idle_ranks(const clv_plan_option *o, const char *command)
{
    const clv_axis_rules *rules = &o->mesh.axis_rules;
    int64_t ranks = 1, rows = o->plan.batch / (o->plan.accumulate > 1 ? o->plan.accumulate : 1);
    for (int r = 0; r < rules->n; r++) { /* a later rule of the name is for where axes of the first are taken */
        int64_t over = 1;
        for (int k = 0; strcmp(rules->rule[r].name, CLV_BATCH) == 0 && k < rules->rule[r].n_axes; k++)
            over *= o->mesh.mesh.axis[rules->rule[r].axis[k]].size;
        ranks = over > ranks ? over : ranks;
    }
    if (ranks > rows)
        clv_log(
            "%s: note: of %lld ranks that split the batch %lld have no sequence; valid for all: --batch %lld or more",
            command, (long long)ranks, (long long)(ranks - rows),
            (long long)(ranks * (o->plan.accumulate > 1 ? o->plan.accumulate : 1)));
}

/* Stages that have one microbatch take turns. */
static void note_turns(const clv_plan_estimate *e, const char *command)
{
    if (e->compiled && e->stages > 1 && e->microbatches == 1)
        clv_log(
            "%s: note: %lld stages take turns with one microbatch; valid for all at work: --accumulate %lld or more",
            command, (long long)e->stages, (long long)e->stages);
}

/* Of a program, or of what is not compiled here. */
static clv_status report(clv_invocation *run, const plan_args *a, const clv_program *program,
                         const clv_plan_estimate *estimate, clv_error *err)
{
    clv_plan_report r;
    const bool screen = !run->format.json && !a->all && !a->collectives;
    clv_status status = program ? clv_plan_report_make(&r, &a->plan, program, a->memory_limit, !screen, err)
                                : clv_plan_report_make_from_estimate(&r, &a->plan, estimate, a->memory_limit, err);
    if (status == CLV_OK && screen)
        clv_plan_screen_print(&r);
    else if (status == CLV_OK)
        run->code = clv_table_finish(make_table(a, &r, run->format.json), &run->format);
    fflush(stdout); /* it comes before the message */
    if (status == CLV_OK && run->code == CLV_EXIT_OK)
        run->code = check_limit(a, &r.memory, run->name);
    if (status == CLV_OK && program)
        note_idle_ranks(&a->plan, run->name);
    if (status == CLV_OK && estimate)
        note_turns(estimate, run->name);
    clv_plan_report_free(&r);
    return status;
}

/* ---- programs of others ---- */

static void add_memory_kinds(clv_table *t, const clv_memory *memory)
{
    const char *name;
    int64_t bytes;
    clv_table_begin_object(t, "memory");
    for (int i = 0; (name = clv_plan_memory_kind(&bytes, memory, i)) != NULL; i++)
        if (bytes > 0)
            clv_table_bytes(t, name, (double)bytes);
    clv_table_bytes(t, "total", (double)memory->total);
    clv_table_text(t, "peak_at", memory->peak ? memory->peak : "-");
}

/* Its collectives, by line of Python or one by one, its memory and its time. */
static clv_status report_program(clv_invocation *run, const plan_args *a, const clv_program *program, clv_error *err)
{
    clv_memory memory = {.size = sizeof memory};
    clv_prediction p = {.size = sizeof p};
    clv_machine_info machine = {.size = sizeof machine};
    char mesh[CLV_MESH_TEXT];
    CLV_TRY(clv_program_memory_on(program, a->plan.machine, &memory, err));
    CLV_TRY(clv_program_predict(program, a->plan.machine, &p, err));
    CLV_TRY(clv_machine_get_info(a->plan.machine, &machine, err));
    clv_table *t = run->table = run->format.json ? clv_collective_table_one_by_one(program, a->plan.machine)
                                                 : clv_collective_table_by_layer(program, a->plan.machine);
    clv_table_wrapped_column(t, "cause");
    clv_mesh_print(mesh, sizeof mesh, clv_program_mesh(program));
    clv_table_begin_header(t, "plan");
    clv_table_text(t, "program", a->plan.plan.model);
    clv_table_text(t, "mesh", mesh[0] ? mesh : "one rank");
    clv_table_text(t, "hardware", machine.name);
    add_memory_kinds(t, &memory);
    clv_table_begin_object(t, "predicted");
    clv_table_seconds(t, "seconds", p.seconds);
    clv_table_fraction(t, "comm_share", p.seconds > 0 ? p.communication / p.seconds : 0);
    clv_table_count(t, "flops_per_rank", p.flops);
    clv_table_fraction(t, "hfu", p.utilisation);
    add_bytes_and_ranks(t, program, clv_program_mesh(program));
    run->code = check_limit(a, &memory, run->name);
    return CLV_OK;
}

static clv_status plan(clv_invocation *run, plan_args *a, clv_error *err)
{
    clv_program *program = NULL;
    a->plan.mesh.memory_limit = a->memory_limit;
    a->plan.mesh.virtual_stages = a->search.virtual_stages;
    a->plan.plan.compile.schedule = a->search.schedule;
    clv_status status = clv_plan_option_compile(&program, &a->plan, err);
    if (status == CLV_OK && a->search.save)
        status = clv_auto_rules_save(&a->plan, a->search.save, err);
    if (status == CLV_OK)
        status = a->show                                     ? clv_visualize_sharding(program, a->show, err)
                 : clv_import_is_program(a->plan.plan.model) ? report_program(run, a, program, err)
                                                             : report(run, a, program, NULL, err);
    clv_program_free(program);
    clv_machine_free(a->plan.machine);
    return status;
}

/* Whether clv_plan_estimate_step is to price the step: of stages it compiles less than all where that takes long. */
static bool is_estimated(const plan_args *a)
{
    clv_mesh mesh;
    const char *text = a->plan.mesh.text;
    bool known = text && clv_mesh_option_parse(&mesh, text, NULL) == CLV_OK;
    const bool generates = a->plan.plan.mode == CLV_PLAN_MODE_PREFILL || a->plan.plan.mode == CLV_PLAN_MODE_DECODE;
    const bool compiled = a->show || a->collectives || a->plan.mesh.stages || generates || a->plan.plan.block ||
                          clv_mesh_option_is_auto(&a->plan.mesh) || clv_mesh_option_has_file(&a->plan.mesh);
    for (int i = 0; known && compiled && i < mesh.n_axes; i++) /* of the program, which runs */
        mesh.axis[i].size = strcmp(mesh.axis[i].name, "pipe") == 0 ? 1 : mesh.axis[i].size;
    return clv_plan_needs_estimate(known ? &mesh : NULL, a->plan.plan.model, a->plan.software != NULL) ||
           (!compiled && (a->search.schedule || a->search.virtual_stages > 1)) || a->offload_layers;
}

static clv_status estimate(clv_invocation *run, plan_args *a, clv_error *err)
{
    clv_plan_option *o = &a->plan;
    const clv_plan_estimate_options how = {.size = sizeof how,
                                           .plan = &o->plan,
                                           .rules = o->mesh.sp ? "megatron-sp" : o->mesh.rules,
                                           .schedule = a->search.schedule,
                                           .virtual_stages = a->search.virtual_stages,
                                           .offload_layers = a->offload_layers};
    clv_plan_estimate found = {.size = sizeof found};
    if (a->show || a->collectives)
        return clv_fail(
            err, CLV_EINVAL,
            "%s: virtual stages, and experts and context of other software, are estimated; valid: --all, --json",
            a->show ? "--show" : "--collectives");
    CLV_TRY(clv_plan_option_resolve(o, err));
    clv_status status = clv_mesh_option_parse(&o->mesh.mesh, o->mesh.text ? o->mesh.text : "model=1", err);
    o->plan.mesh = &o->mesh.mesh;
    if (status == CLV_OK)
        status = clv_plan_option_set_hosts(o, err);
    if (status == CLV_OK)
        status = clv_plan_estimate_step(&found, &how, err);
    if (status == CLV_OK) {
        o->plan.accumulate = found.microbatches;
        snprintf(o->mesh.axis_rules.name, sizeof o->mesh.axis_rules.name, "%s", how.rules ? how.rules : "megatron");
        status = report(run, a, NULL, &found, err);
    }
    clv_machine_free(o->machine);
    return status;
}

/* ---- --search ---- */

/* A layout of --import, and what it costs. */
typedef struct imported_layout {
    char mesh[CLV_MESH_TEXT];
    clv_axis_rules rules;
    int64_t accumulate, ranks;
    double seconds;
} imported_layout;

static clv_status price_program(imported_layout *out, plan_args *a, clv_error *err)
{
    clv_program *program;
    clv_prediction predicted = {.size = sizeof predicted};
    CLV_TRY(clv_plan_option_compile(&program, &a->plan, err));
    clv_status status = clv_program_predict(program, a->plan.machine, &predicted, err);
    out->seconds = predicted.seconds;
    clv_program_free(program);
    return status;
}

static clv_status price_estimate(imported_layout *out, plan_args *a, clv_error *err)
{
    clv_plan_estimate found = {.size = sizeof found};
    CLV_TRY(clv_plan_option_resolve(&a->plan, err));
    a->plan.plan.mesh = &a->plan.mesh.saved.mesh;
    CLV_TRY(clv_plan_estimate_step(&found,
                                   &(clv_plan_estimate_options){.size = sizeof(clv_plan_estimate_options),
                                                                .plan = &a->plan.plan,
                                                                .rules = a->plan.mesh.rules,
                                                                .virtual_stages = a->search.virtual_stages},
                                   err));
    out->seconds = found.predicted.seconds;
    return CLV_OK;
}

/* Prices the layout of --import, and leaves its ranks, but neither mesh, rules nor options, to the search. */
static clv_status price_import(imported_layout *out, plan_args *a, clv_error *err)
{
    clv_mesh_option *mesh = &a->plan.mesh;
    const clv_plan_options plan = a->plan.plan;
    const clv_mesh_option free = {.tp = mesh->tp, .given = mesh->given};
    *out = (imported_layout){.rules = mesh->saved.rules,
                             .accumulate = mesh->saved.accumulate,
                             .ranks = clv_mesh_rank_count(&mesh->saved.mesh)};
    clv_mesh_print(out->mesh, sizeof out->mesh, &mesh->saved.mesh);
    clv_status status = is_estimated(a) ? price_estimate(out, a, err) : price_program(out, a, err);
    clv_machine_free(a->plan.machine);
    a->plan.machine = NULL;
    a->plan.plan = plan;
    a->plan.plan.accumulate = mesh->given.accumulate ? plan.accumulate : 0;
    a->plan.plan.compile.recompute = mesh->given.recompute ? plan.compile.recompute : CLV_RECOMPUTE_NONE;
    a->search.virtual_stages = 0;
    *mesh = free;
    if (a->search.devices == 0)
        a->search.devices = out->ranks;
    return status;
}

static void add_imported(clv_table *t, const imported_layout *imported)
{
    clv_table_begin_object(t, "imported");
    clv_table_text(t, "mesh", imported->mesh);
    clv_table_text(t, "rules", imported->rules.name);
    clv_table_int(t, "accumulate", imported->accumulate);
    clv_table_seconds(t, "seconds", imported->seconds);
}

static clv_status search(clv_invocation *run, plan_args *a, clv_error *err)
{
    imported_layout imported = {0};
    const bool imports = a->plan.mesh.import != NULL;
    clv_status status = imports ? price_import(&imported, a, err) : CLV_OK;
    if (status == CLV_OK)
        status = clv_plan_search_run_to_table(run, &a->plan, &a->search, a->memory_limit, err);
    if (status == CLV_OK && imports && run->table)
        add_imported(run->table, &imported);
    clv_machine_free(a->plan.machine);
    return status;
}

static clv_status search_program(clv_invocation *run, plan_args *a, clv_error *err)
{
    if (a->plan.mesh.text || a->plan.mesh.tp > 1)
        return clv_fail(err, CLV_EINVAL,
                        "--mesh and -tp have no effect with --search of a program, which finds the mesh; "
                        "valid: --devices");
    const clv_imported_search how = {a->search.devices, a->search.most, a->memory_limit};
    clv_status status = clv_plan_option_resolve(&a->plan, err);
    if (status == CLV_OK)
        status = clv_imported_search_report(run, &a->plan, &how, err);
    clv_machine_free(a->plan.machine);
    return status;
}

clv_status command_plan(clv_invocation *run, clv_error *err)
{
    plan_args a = {.plan = CLV_PLAN_OPTION_DEFAULTS};
    if (!parse(&a, run))
        return CLV_OK;
    CLV_TRY(clv_plan_option_import(&a.plan, err));
    a.search.virtual_stages = a.search.virtual_stages ? a.search.virtual_stages : a.plan.virtual_stages;
    if (a.plan.hardware && strcmp(a.plan.hardware, "list") == 0)
        return clv_hardware_table_new(&run->table, err);
    CLV_TRY(clv_plan_search_check_args(&a.search, clv_mesh_option_is_auto(&a.plan.mesh), err));
    a.plan.plan.compile.memory_limit = a.memory_limit;
    CLV_TRY(clv_inventory_option_apply(&a.plan, a.search.inventory, err));
    if (a.plan.plan.batch == 0 && a.search.latency_limit == 0)
        a.plan.plan.batch = CLV_PLAN_BATCH;
    if (a.plan.mesh.stages && (a.search.search || a.search.matrix || a.offload_layers || a.plan.software))
        return clv_fail(
            err, CLV_EINVAL,
            "--stages has no effect with --search, --matrix, --offload-layers or --software: their stages are "
            "equal; valid without these");
    if (a.search.search && clv_import_is_program(a.plan.plan.model))
        return search_program(run, &a, err);
    if (a.search.search || a.search.matrix)
        return search(run, &a, err);
    if (run->format.wide && !a.all && !a.collectives && !clv_import_is_program(a.plan.plan.model))
        return clv_fail(err, CLV_EINVAL, "--wide has no effect without --collectives or --all");
    return is_estimated(&a) ? estimate(run, &a, err) : plan(run, &a, err);
}
