/* command_plot.c - the `cleave plot` command: draws the metrics of training runs as SVG. */
#include "cli/command.h"
#include "cli/input/artifact_kind.h"
#include "cli/output/metrics_plot.h"

clv_status command_plot(clv_invocation *run, clv_error *err)
{
    clv_strings files = {0};
    const char *out;
    const clv_option options[] = {
        CLV_OPT_VALUE(STRINGS, "FILE", &files, "FILE", "metrics.jsonl of up to 8 runs", .use = CLV_OPTION_INPUT,
                      .required = true),
        CLV_OUT_OPTION(&out, "FILE", FILE, "the picture, an SVG", .suffix = ".svg", .required = true),
    };
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    for (int i = 0; i < files.n; i++) {
        CLV_TRY(clv_artifact_kind_check(files.item[i], run->name, err));
        CLV_TRY(clv_plot_check(files.item[i], err));
    }
    CLV_TRY(clv_plot_metrics(files.item, files.n, out, err));
    clv_log("%s: wrote %s: %d run%s", run->name, out, files.n, files.n == 1 ? "" : "s");
    return CLV_OK;
}
