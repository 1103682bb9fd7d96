/* command_export.c - the `cleave export` command: writes a graph, or its layout, for other frameworks. */
#include "cli/command.h"
#include "cli/options/plan_target_options.h"
#include "cli/reports/hardware_table.h"

typedef struct export_args {
    clv_plan_option plan;
    bool stablehlo;
    const char *out;
} export_args;

static bool parse(export_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_PLAN_OPTIONS(&a->plan),
        CLV_OPT_FLAG("--stablehlo", &a->stablehlo, "the graph as StableHLO text"),
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
    if (!a.stablehlo)
        return clv_fail(err, CLV_EINVAL, "what is to be written? valid: --stablehlo");
    clv_status status = clv_plan_option_stablehlo(&text, &a.plan, err);
    clv_machine_free(a.plan.machine);
    if (status == CLV_OK)
        status = write(&a, text, err);
    free(text);
    return status;
}
