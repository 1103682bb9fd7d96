/* mesh_options.c - -tp, --mesh, --rules and --sp: option rows, and the mesh and sharding rules they give. */
#include "cli/options/mesh_options.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/command.h"

/* Whether it is sizes alone, of one axis or two: "8", "2x4", "2,4". The first is 0 where there is one. */
static bool is_sizes(const char *text, int *data, int *model)
{
    int end = 0;

    *data = 0;
    if (sscanf(text, "%9d%n", model, &end) == 1 && text[end] == '\0')
        return true;
    return sscanf(text, "%9d%*1[xX*,/ ]%9d%n", data, model, &end) == 2 && text[end] == '\0';
}

static clv_status ask_for_names(const char *text, clv_error *err)
{
    int data, model;

    if (!is_sizes(text, &data, &model))
        return clv_fail(err, CLV_ESYNTAX, "--mesh %s: axes have names and sizes, e.g. data=2,model=4", text);
    if (data > 0)
        return clv_fail(err, CLV_ESYNTAX, "--mesh %s: axes have names; did you mean data=%d,model=%d?", text, data,
                        model);
    return clv_fail(err, CLV_ESYNTAX, "--mesh %s: axes have names; did you mean model=%d?", text, model);
}

clv_status clv_mesh_option_parse(clv_mesh *out, const char *text, clv_error *err)
{
    if (isdigit((unsigned char)text[strspn(text, " ")]))
        return ask_for_names(text, err);
    CLV_TRY(clv_mesh_parse(out, text, err));
    if (out->n_axes == 0)
        return clv_fail(err, CLV_ESYNTAX, "--mesh is empty; give axes with sizes, e.g. data=2,model=4");
    return CLV_OK;
}

bool clv_mesh_option_has_file(const clv_mesh_option *o)
{
    return !o->sp && o->rules && access(o->rules, F_OK) == 0;
}

/* --mesh AXES, or model=N of -tp N. */
static clv_status read_mesh(clv_mesh *out, const clv_mesh_option *o, clv_error *err)
{
    char text[64];
    snprintf(text, sizeof text, "model=%lld", (long long)(o->tp > 0 ? o->tp : 1));
    return clv_mesh_option_parse(out, o->text ? o->text : text, err);
}

void clv_mesh_option_read_rules_file(clv_mesh_option *o)
{
    clv_mesh mesh;
    if (o->import) /* its mesh and options are read */
        return;
    o->saved = (clv_saved_plan){.size = sizeof o->saved};
    if (!clv_mesh_option_has_file(o))
        return;
    if (o->text || o->tp > 1 || clv_saved_plan_read(&o->saved, o->rules, NULL, NULL) != CLV_OK || !o->saved.has_mesh) {
        if (read_mesh(&mesh, o, NULL) == CLV_OK) /* faults of the file are reported by clv_mesh_option_resolve */
            (void)clv_saved_plan_read(&o->saved, o->rules, &mesh, NULL);
        return;
    }
    clv_mesh_print(o->file_mesh, sizeof o->file_mesh, &o->saved.mesh);
    o->text = o->file_mesh;
}

void clv_mesh_option_apply_rules_file(clv_mesh_option *o, clv_compile_options *compile, int64_t *accumulate,
                                      bool *no_sync)
{
    clv_mesh_option_read_rules_file(o);
    if (!o->given.recompute)
        compile->recompute = o->saved.recompute;
    if (!o->given.reshard_after_forward)
        compile->reshard_after_forward = o->saved.reshard_after_forward;
    if (compile->schedule == CLV_SCHEDULE_DEFAULT)
        compile->schedule = o->saved.schedule;
    if (accumulate && !o->given.accumulate && o->saved.accumulate > 1)
        *accumulate = o->saved.accumulate;
    if (no_sync && *accumulate > 1)
        *no_sync = *no_sync || o->saved.no_sync;
}

bool clv_mesh_option_is_auto(const clv_mesh_option *o)
{
    return o->rules && strcmp(o->rules, "auto") == 0 && !clv_mesh_option_has_file(o);
}

static clv_status find_rules(clv_mesh_option *o, clv_error *err)
{
    if (!o->workload)
        return clv_fail(err, CLV_EINVAL,
                        "--rules auto needs a model's config.json and a batch to find rules for; valid here: a preset, "
                        "or a file that `cleave plan --rules auto --save FILE` wrote");
    clv_plan_options workload = *o->workload;
    workload.mesh = &o->mesh;
    workload.rules = NULL;
    o->found = (clv_found_rules){.size = sizeof o->found};
    CLV_TRY(clv_plan_find_rules(&o->found, &workload, o->memory_limit, err));
    o->axis_rules = o->found.rules;
    return CLV_OK;
}

static clv_status read_rules(clv_mesh_option *o, clv_error *err)
{
    if (clv_mesh_option_is_auto(o))
        return find_rules(o, err);
    clv_error why = {0};
    if (o->import) {
        o->axis_rules = o->saved.rules;
        return CLV_OK;
    }
    const char *preset = o->sp ? "megatron-sp" : o->rules;
    clv_status status = clv_mesh_option_has_file(o) ? clv_saved_plan_read(&o->saved, o->rules, &o->mesh, &why)
                                                    : clv_axis_rules_preset(&o->axis_rules, preset, &o->mesh, &why);
    if (status == CLV_OK && clv_mesh_option_has_file(o))
        o->axis_rules = o->saved.rules;
    return clv_as_usage_error("--rules", status, &why, err);
}

clv_status clv_mesh_option_read_mesh(clv_mesh_option *o, clv_error *err)
{
    if (o->layouts)
        return clv_fail(err, CLV_EINVAL, "--layouts is for programs; a model is split by --rules");
    clv_mesh_option_read_rules_file(o);
    return read_mesh(&o->mesh, o, err);
}

/* "8,8,9,7". */
static clv_status read_stage_layers(int *out, int *n, const char *text, clv_error *err)
{
    const char *at = text;
    char *end;
    for (*n = 0; *n < CLV_MAX_VIRTUAL_STAGES && isdigit((unsigned char)*at); at = end + 1) {
        const long layers = strtol(at, &end, 10);
        out[(*n)++] = layers > 0 && layers < INT_MAX ? (int)layers : 0;
        if (*end == '\0')
            return CLV_OK;
        if (*end != ',')
            break;
    }
    return clv_fail(err, CLV_ESYNTAX, "--stages %s: the layers of each stage, e.g. 8,8,9,7; at most %d", text,
                    CLV_MAX_VIRTUAL_STAGES);
}

static clv_status set_stages(clv_mesh_option *o, clv_error *err)
{
    int layers[CLV_MAX_VIRTUAL_STAGES], n = 0, runs = o->axis_rules.virtual_stages;
    clv_error why = {0};
    if (!o->stages && o->virtual_stages == 0)
        return CLV_OK;
    if (o->stages)
        CLV_TRY(read_stage_layers(layers, &n, o->stages, err));
    runs = o->virtual_stages > 0 ? (int)o->virtual_stages : runs > 0 ? runs : 1;
    return clv_as_usage_error(o->stages ? "--stages" : "--virtual-stages",
                              clv_axis_rules_set_stages(&o->axis_rules, &o->mesh, runs, layers, n, &why), &why, err);
}

clv_status clv_mesh_option_resolve(clv_mesh_option *o, clv_error *err)
{
    CLV_TRY(clv_mesh_option_read_mesh(o, err));
    CLV_TRY(read_rules(o, err));
    return set_stages(o, err);
}

void clv_mesh_option_warn_oversubscribed(const clv_mesh *mesh, const char *command)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (clv_mesh_rank_count(mesh) > processors)
        fprintf(stderr, "%s: warning: %lld ranks share %ld processor%s; they will run slowly\n", command,
                (long long)clv_mesh_rank_count(mesh), processors, processors == 1 ? "" : "s");
}
