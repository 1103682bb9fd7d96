/* command_merge.c - the `cleave merge` command: rebuilds the original files from a sharded checkpoint; merges LoRA
 * adapters into their base.
 */
#include "cleave/checkpoint.h"
#include "cli/command.h"
#include "cli/options/model_options.h"
#include "cli/options/output_options.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"

typedef struct merge_args {
    const char *from, *out;
    clv_table_format form;
} merge_args;

static int parse(merge_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "DIR",
         .kind = CLV_OPTION_STRING,
         .out = &a->from,
         .value = "DIR",
         .use = CLV_OPTION_INPUT,
         .missing_hint = clv_model_missing_hint,
         .required = true,
         .help = "a folder that cleave shard made, or one of adapters"},
        CLV_OUT_OPTION(&a->out, "DIR", NULL, CLV_OPTION_OUTPUT_FOLDER, true, "the folder to make"),
        CLV_FORMAT_OPTIONS(&a->form, "", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* The files that were made. */
static clv_status report(clv_table *t, const char *folder, clv_error *err)
{
    clv_checkpoint *made;

    CLV_TRY(clv_checkpoint_open(&made, folder, NULL, err));
    for (int i = 0; i < clv_checkpoint_file_count(made); i++) {
        int64_t bytes;
        clv_table_row(t);
        clv_table_text(t, "file", clv_checkpoint_file(made, i, &bytes));
        clv_table_bytes(t, "bytes", (double)bytes);
    }
    clv_checkpoint_close(made);
    return CLV_OK;
}

static clv_status merge(clv_table *t, const merge_args *a, clv_error *err)
{
    clv_counted_progress bar = {.what = "merge", .note = "MiB", .shift = 20};
    clv_convert_options options = {.size = sizeof options, .progress = clv_counted_progress_show, .progress_arg = &bar};

    clv_status status = clv_checkpoint_merge(a->from, a->out, &options, err);
    clv_counted_progress_end(&bar);
    return status == CLV_OK ? report(t, a->out, err) : status;
}

int command_merge(int argc, char **argv)
{
    merge_args a = {0};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_table *t = clv_table_new("files");
    if (merge(t, &a, &err) == CLV_OK)
        return clv_table_finish(t, &a.form);
    clv_table_free(t);
    return clv_command_print_error(argv[0], &err);
}
