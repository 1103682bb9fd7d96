/* mesh_options.c - -tp, --mesh, --rules and --sp: option rows, and the mesh and sharding rules they give. */
#include "cli/options/mesh_options.h"

#include <ctype.h>
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

static clv_status read_rules(clv_mesh_option *o, clv_error *err)
{
    clv_error why = {0};
    const char *preset = o->sp ? "megatron-sp" : o->rules;
    clv_status status = o->rules && access(o->rules, F_OK) == 0
                            ? clv_axis_rules_read(&o->axis_rules, o->rules, &o->mesh, &why)
                            : clv_axis_rules_preset(&o->axis_rules, preset, &o->mesh, &why);
    return clv_as_usage_error("--rules", status, &why, err);
}

clv_status clv_mesh_option_read(clv_mesh_option *o, clv_error *err)
{
    char text[64];
    snprintf(text, sizeof text, "model=%lld", (long long)o->tp);
    CLV_TRY(clv_mesh_option_parse(&o->mesh, o->text ? o->text : text, err));
    return read_rules(o, err);
}

void clv_mesh_option_warn_oversubscribed(const clv_mesh *mesh, const char *command)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (clv_mesh_rank_count(mesh) > processors)
        fprintf(stderr, "%s: warning: %lld ranks share %ld processor%s; they will run slowly\n", command,
                (long long)clv_mesh_rank_count(mesh), processors, processors == 1 ? "" : "s");
}
