/* command_export.c - the `cleave export` command: writes a graph, or its layout, for other frameworks. */
#include "cli/command.h"
#include "cli/options/plan_target_options.h"
#include "cli/reports/hardware_table.h"

typedef struct export_args {
    clv_plan_option plan;
    bool stablehlo;
    clv_layout_format format;
    const char *out;
} export_args;

static bool parse(export_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_PLAN_OPTIONS(&a->plan),
        CLV_OPT_FLAG("--stablehlo", &a->stablehlo, "the graph as StableHLO text"),
        CLV_OPT_ENUM("--as", &a->format, "jax|dtensor|shardy|megatron", clv_layout_format_name,
                     "the layout: a mesh with PartitionSpecs, a parallelize_plan, sdy.sharding, or flags",
                     .conflicts_with = "--stablehlo"),
        CLV_OUT_OPTION(&a->out, "FILE", FILE, "the file to write (standard output)"),
    };
    return CLV_PARSE(run, options);
}

static clv_status write(const export_args *a, const char *text, clv_error *err)
{
    FILE *to = a->out ? fopen(a->out, "w") : stdout;
    if (!to)
        return clv_fail(err, CLV_EIO, "%s: it cannot be written", a->out);
    bool written = fputs(text, to) >= 0 && fflush(to) == 0;
    written = (!a->out || fclose(to) == 0) && written;
    return written ? CLV_OK : clv_fail(err, CLV_EIO, "%s: it cannot be written", a->out ? a->out : "standard output");
}

clv_status command_export(clv_invocation *run, clv_error *err)
{
    export_args a = {.plan = CLV_PLAN_OPTION_DEFAULTS};
    char *text = NULL;
    if (!parse(&a, run))
        return CLV_OK;
    if (!a.stablehlo && !a.format)
        return clv_fail(err, CLV_EINVAL, "give --stablehlo, or --as jax|dtensor|shardy|megatron");
    CLV_TRY(clv_plan_option_import(&a.plan, err));
    clv_error why = {0};
    clv_status status = a.stablehlo ? clv_plan_option_stablehlo(&text, &a.plan, &why)
                                    : clv_plan_option_layouts(&text, a.format, &a.plan, &why);
    if (status == CLV_EUNSUPPORTED) /* what is asked for has no such form */
        status = clv_fail(err, CLV_EINVAL, "%s", why.message);
    else if (status != CLV_OK && err)
        *err = why;
    clv_machine_free(a.plan.machine);
    if (status == CLV_OK)
        status = write(&a, text, err);
    free(text);
    return status;
}
