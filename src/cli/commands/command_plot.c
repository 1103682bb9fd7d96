/* command_plot.c - the `cleave plot` command: draws the metrics of training runs as SVG. */
#include "cli/command.h"
#include "cli/input/artifact_kind.h"
#include "cli/options/output_options.h"
#include "cli/output/messages.h"
#include "cli/output/metrics_plot.h"
#include "cli/parser/option_parser.h"

typedef struct plot_args {
    clv_strings files;
    const char *out;
} plot_args;

static int parse(plot_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "FILE",
         .kind = CLV_OPTION_STRINGS,
         .out = &a->files,
         .value = "FILE",
         .use = CLV_OPTION_INPUT,
         .required = true,
         .help = "metrics.jsonl of a run, or of several, at most 8"},
        CLV_OUT_OPTION(&a->out, "FILE", ".svg", CLV_OPTION_OUTPUT_FILE, true, "the picture, an SVG"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

int command_plot(int argc, char **argv)
{
    plot_args a = {0};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_status status = CLV_OK;
    for (int i = 0; status == CLV_OK && i < a.files.n; i++) {
        status = clv_artifact_kind_check(a.files.item[i], argv[0], &err);
        if (status == CLV_OK)
            status = clv_plot_check(a.files.item[i], &err);
    }
    if (status == CLV_OK)
        status = clv_plot_metrics(a.files.item, a.files.n, a.out, &err);
    if (status != CLV_OK)
        return clv_command_print_error(argv[0], &err);
    clv_log("%s: wrote %s: %d run%s", argv[0], a.out, a.files.n, a.files.n == 1 ? "" : "s");
    return CLV_EXIT_OK;
}
