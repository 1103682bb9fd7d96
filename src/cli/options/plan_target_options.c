/* plan_target_options.c - options of `cleave plan` and `cleave explain`: a model or one block, sizes, mesh; and
 * compiling them.
 */
#include "cli/options/plan_target_options.h"

#include <stdlib.h>
#include <string.h>

#include "cleave/export.h"
#include "cleave/plan_estimate.h"
#include "cleave/sequences.h"
#include "cli/evaluation/imported_run.h"
#include "cli/output/exit_code.h"

/* The options of a training step, where one is planned. */
static void apply_file(clv_plan_option *o)
{
    clv_plan_options *plan = &o->plan;
    bool trains = plan->model && (plan->mode == CLV_PLAN_MODE_DEFAULT || plan->mode == CLV_PLAN_MODE_TRAIN);
    if (trains || plan->mode == CLV_PLAN_MODE_GRAD)
        clv_mesh_option_apply_rules_file(&o->mesh, &plan->compile, trains ? &plan->accumulate : NULL,
                                         trains ? &plan->no_sync : NULL);
}

/* ---- --import ---- */

/* A file, or flags of Megatron-LM. */
static clv_status read_import(clv_read_layouts *out, const clv_plan_option *o, clv_error *err)
{
    const char *text = o->mesh.import;
    char *content;
    size_t size;
    if (strncmp(text, "--", 2) == 0)
        return clv_layouts_read(out, text, strlen(text), "--import", o->plan.model, err);
    CLV_TRY(clv_text_read(&content, &size, text, 1, err));
    clv_status status = clv_layouts_read(out, content, size, text, o->plan.model, err);
    free(content);
    return status;
}

clv_status clv_plan_option_import(clv_plan_option *o, clv_error *err)
{
    clv_read_layouts read = {.size = sizeof read};
    clv_error why = {0};
    if (o->mesh.import) {
        if (clv_import_is_program(o->plan.model))
            return clv_fail(err, CLV_EINVAL,
                            "--import has no effect on a program: its shardings are those of its text");
        CLV_TRY(clv_as_usage_error("--import", read_import(&read, o, &why), &why, err));
        o->mesh.saved = read.plan;
        clv_mesh_print(o->mesh.file_mesh, sizeof o->mesh.file_mesh, &read.plan.mesh);
        o->mesh.text = o->mesh.file_mesh;
        o->mesh.rules = read.plan.rules.name[0] ? o->mesh.saved.rules.name : NULL;
        o->virtual_stages = read.virtual_stages;
        apply_file(o);
    }
    if (o->plan.dtype == CLV_F32)
        o->plan.dtype = read.dtype;
    if (o->plan.batch == 0)
        o->plan.batch = read.batch;
    if (o->plan.seq == 0)
        o->plan.seq = read.seq ? read.seq : CLV_PLAN_SEQ;
    return CLV_OK;
}

clv_status clv_plan_option_resolve(clv_plan_option *o, clv_error *err)
{
    clv_plan_options *plan = &o->plan;
    if (!plan->model && plan->block == CLV_PLAN_BLOCK_NONE)
        return clv_fail(err, CLV_EINVAL, "give either -m PATH or --block ffn|attention|gpt|llama");
    CLV_TRY(clv_grad_reduce_dtype_apply(&plan->compile, &plan->f32_gradients, o->grad_reduce_dtype, err));
    CLV_TRY(clv_lora_options_resolve(&plan->lora, &o->lora, err));
    if (o->software && !o->hardware)
        return clv_fail(err, CLV_EINVAL,
                        "--software needs --hardware PROFILE, which lists what software reaches on it");
    CLV_TRY(clv_hardware_option_open(&o->machine, o->hardware, o->software, err));
    plan->compile.overlap = plan->compile.overlap || o->software;
    plan->compile.machine = o->machine;
    return CLV_OK;
}

const char *clv_options_of_program(const char *path, const char **what)
{
    *what = "a program of others";
    return clv_import_is_program(path)
               ? "--no-patterns, --layouts, --grad, --mesh, -tp, --hardware, --software, --comm-dtype, --overlap, "
                 "--max-implicit-bytes, --memory-limit, --collectives, --all, --show, --search, "
                 "--devices, --most, --op, --dot, --stablehlo, --as, --out, --json, --wide"
               : NULL;
}

/* The graph of a program of others, whose shardings are its own, or those of --layouts; --grad: with gradients of its
 * loss. */
static clv_status program_graph(clv_graph **out, clv_plan_option *o, clv_import *program, clv_error *err)
{
    const clv_import_options how = {.size = sizeof how,
                                    .gradients_of = o->plan.mode == CLV_PLAN_MODE_GRAD ? "" : NULL,
                                    .no_patterns = o->no_patterns};
    CLV_TRY(clv_imported_mesh(&o->mesh.mesh, &o->mesh, program, err));
    return clv_imported_graph(out, program, &o->mesh.mesh, &how, err);
}

static clv_status compile_program(clv_program **out, clv_plan_option *o, clv_error *err)
{
    clv_import *program;
    clv_graph *graph = NULL;
    CLV_TRY(clv_imported_read(&program, o->plan.model, o->mesh.layouts, err));
    clv_status status = program_graph(&graph, o, program, err);
    if (status == CLV_OK)
        status = clv_compile(out, graph, &o->plan.compile, err);
    if (status == CLV_OK) {
        clv_imported_note_mesh(*out);
        clv_imported_note_faults(program);
    }
    clv_graph_free(graph);
    clv_import_free(program);
    return status;
}

clv_status clv_plan_option_set_hosts(clv_plan_option *o, clv_error *err)
{
    const bool saved = !o->hosts && o->mesh.saved.hosts && o->mesh.text == o->mesh.file_mesh;
    clv_machine *profile = o->machine;
    if (!o->hosts && !saved)
        return CLV_OK;
    o->machine = NULL;
    clv_status status = clv_machine_with_hosts(&o->machine, profile, saved ? o->mesh.saved.hosts : o->hosts,
                                               saved ? o->mesh.saved.ranks_per_host : o->ranks_per_host,
                                               clv_mesh_rank_count(&o->mesh.mesh), err);
    clv_machine_free(profile);
    o->plan.compile.machine = o->machine;
    return status;
}

/* Mesh and rules of a model or block. */
static clv_status read_target(clv_plan_option *o, clv_error *err)
{
    clv_plan_options *plan = &o->plan;
    if (o->no_patterns)
        return clv_fail(err, CLV_EINVAL,
                        "--no-patterns has no effect on a model; it is for programs of StableHLO text");
    apply_file(o);
    o->mesh.workload = plan;
    CLV_TRY(clv_mesh_option_read_mesh(&o->mesh, err));
    CLV_TRY(clv_plan_option_set_hosts(o, err)); /* before rules are found for them */
    CLV_TRY(clv_mesh_option_resolve(&o->mesh, err));
    plan->mesh = &o->mesh.mesh;
    plan->rules = o->mesh.rules || o->mesh.stages || o->mesh.virtual_stages ? &o->mesh.axis_rules : NULL;
    plan->sp = o->mesh.sp && !plan->rules;
    return CLV_OK;
}

clv_status clv_plan_option_compile(clv_program **out, clv_plan_option *o, clv_error *err)
{
    CLV_TRY(clv_plan_option_resolve(o, err));
    if (clv_import_is_program(o->plan.model))
        return compile_program(out, o, err);
    CLV_TRY(read_target(o, err));
    return clv_plan_compile(out, &o->plan, err);
}

/* format NONE: the graph itself. */
static clv_status export_program(char **out, clv_layout_format format, clv_plan_option *o, clv_error *err)
{
    clv_import *program;
    clv_graph *graph = NULL;
    CLV_TRY(clv_imported_read(&program, o->plan.model, o->mesh.layouts, err));
    clv_status status = program_graph(&graph, o, program, err);
    if (status == CLV_OK)
        status = format ? clv_layouts_write_graph(out, format, graph, err)
                        : clv_export_stablehlo(out, NULL, graph, clv_import_state_source, program, err);
    clv_graph_free(graph);
    clv_import_free(program);
    return status;
}

clv_status clv_plan_option_stablehlo(char **out, clv_plan_option *o, clv_error *err)
{
    clv_graph *graph;
    CLV_TRY(clv_plan_option_resolve(o, err));
    if (clv_import_is_program(o->plan.model))
        return export_program(out, CLV_FORMAT_NONE, o, err);
    CLV_TRY(read_target(o, err));
    CLV_TRY(clv_plan_graph(&graph, &o->plan, err));
    clv_status status = clv_export_stablehlo(out, NULL, graph, NULL, NULL, err);
    clv_graph_free(graph);
    return status;
}

/* Stages and context are axes that no rule names: rules are those of the other axes. */
static clv_status read_planned_mesh(clv_plan_option *o, clv_error *err)
{
    clv_mesh whole, ruled = {0};
    CLV_TRY(clv_mesh_option_parse(&whole, o->mesh.text, err));
    if (!o->mesh.import) {
        for (int a = 0; a < whole.n_axes; a++)
            if (strcmp(whole.axis[a].name, "pipe") != 0 && strcmp(whole.axis[a].name, "context") != 0)
                ruled.axis[ruled.n_axes++] = whole.axis[a];
        CLV_TRY(clv_axis_rules_preset(&o->mesh.axis_rules, o->mesh.sp ? "megatron-sp" : o->mesh.rules, &ruled, err));
        for (int r = 0; r < o->mesh.axis_rules.n; r++)
            for (int i = 0; i < o->mesh.axis_rules.rule[r].n_axes; i++) {
                int *axis = &o->mesh.axis_rules.rule[r].axis[i];
                CLV_TRY(clv_mesh_find(axis, &whole, ruled.axis[*axis].name, err));
            }
        for (int i = 0; i < o->mesh.axis_rules.n_optimizer; i++) {
            int *axis = &o->mesh.axis_rules.optimizer[i];
            CLV_TRY(clv_mesh_find(axis, &whole, ruled.axis[*axis].name, err));
        }
    } else {
        o->mesh.axis_rules = o->mesh.saved.rules;
    }
    o->mesh.mesh = whole;
    o->plan.mesh = &o->mesh.mesh;
    o->plan.rules = &o->mesh.axis_rules;
    return CLV_OK;
}

clv_status clv_plan_option_layouts(char **out, clv_layout_format format, clv_plan_option *o, clv_error *err)
{
    clv_mesh mesh;
    CLV_TRY(clv_plan_option_resolve(o, err));
    if (clv_import_is_program(o->plan.model))
        return export_program(out, format, o, err);
    const bool known = o->mesh.text && clv_mesh_option_parse(&mesh, o->mesh.text, NULL) == CLV_OK;
    if (format == CLV_FORMAT_MEGATRON && known && clv_plan_needs_estimate(&mesh, o->plan.model, false))
        CLV_TRY(read_planned_mesh(o, err));
    else
        CLV_TRY(read_target(o, err));
    return clv_layouts_write(out, format, &o->plan, err);
}
