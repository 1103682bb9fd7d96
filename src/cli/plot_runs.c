/* plot_runs.c - cleave plot: the metrics of runs as a picture. */
#include "cli/command.h"
#include "cli/command_of_file.h"
#include "cli/options.h"
#include "cli/output_option.h"
#include "cli/plot.h"
#include "cli/say.h"

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
         .use = CLV_OPTION_READS,
         .required = true,
         .help = "metrics.jsonl of a run, or of several, at most 8"},
        CLV_OUT_OPTION(&a->out, "FILE", ".svg", CLV_OPTION_WRITES, true, "the picture, an SVG"),
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
        status = clv_command_of_file_check(a.files.item[i], argv[0], &err);
        if (status == CLV_OK)
            status = clv_plot_check(a.files.item[i], &err);
    }
    if (status == CLV_OK)
        status = clv_plot_metrics(a.files.item, a.files.n, a.out, &err);
    if (status != CLV_OK)
        return clv_command_report(argv[0], &err);
    clv_say("%s: wrote %s: %d run%s", argv[0], a.out, a.files.n, a.files.n == 1 ? "" : "s");
    return CLV_EXIT_OK;
}
