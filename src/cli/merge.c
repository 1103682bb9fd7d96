/* merge.c - cleave merge: a sharded checkpoint as the files that it was made of, byte for byte; adapters and their base
 * as one model. */
#include "cleave/checkpoint.h"
#include "cli/command.h"
#include "cli/model_option.h"
#include "cli/options.h"
#include "cli/output_option.h"
#include "cli/progress.h"
#include "cli/table.h"

typedef struct merge_args {
    const char *from, *out;
    clv_table_form form;
} merge_args;

static int parse(merge_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "DIR",
         .kind = CLV_OPTION_STRING,
         .out = &a->from,
         .value = "DIR",
         .use = CLV_OPTION_READS,
         .absent = clv_model_option_absent,
         .required = true,
         .help = "a folder that cleave shard made, or one of adapters"},
        CLV_OUT_OPTION(&a->out, "DIR", NULL, CLV_OPTION_MAKES, true, "the folder to make"),
        CLV_FORM_OPTIONS(&a->form, "", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* The files that were made. */
static clv_status report(clv_table *t, const char *folder, clv_error *err)
{
    clv_checkpoint *made;

    CLV_TRY(clv_checkpoint_open(&made, folder, NULL, err));
    for (int i = 0; i < clv_checkpoint_files(made); i++) {
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
    return clv_command_report(argv[0], &err);
}
