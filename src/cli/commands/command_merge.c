/* command_merge.c - the `cleave merge` command: rebuilds the original files from a sharded checkpoint; merges LoRA
 * adapters into their base.
 */
#include "cleave/checkpoint.h"
#include "cli/command.h"
#include "cli/options/model_options.h"
#include "cli/output/progress.h"

/* The files that were made. */
static clv_status report(clv_table *t, const char *folder, clv_error *err)
{
    clv_checkpoint *made;

    CLV_TRY(clv_checkpoint_open(&made, folder, NULL, err));
    for (int i = 0; i < clv_checkpoint_file_count(made); i++) {
        int64_t bytes;
        clv_table_begin_row(t);
        clv_table_text(t, "file", clv_checkpoint_file(made, i, &bytes));
        clv_table_bytes(t, "bytes", (double)bytes);
    }
    clv_checkpoint_close(made);
    return CLV_OK;
}

clv_status command_merge(clv_invocation *run, clv_error *err)
{
    const char *from, *out;
    const clv_option options_of_command[] = {
        CLV_OPT_INPUT("DIR", &from, "DIR", "a folder of cleave shard, or of adapters", .required = true,
                      .missing_hint = clv_model_missing_hint),
        CLV_OUT_OPTION(&out, "DIR", FOLDER, "the folder to create", .required = true),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    clv_counted_progress bar = {.what = "merge", .note = "MiB", .shift = 20};
    clv_convert_options options = {.size = sizeof options, .progress = clv_counted_progress_show, .progress_arg = &bar};
    if (!CLV_PARSE(run, options_of_command))
        return CLV_OK;
    clv_status status = clv_checkpoint_merge(from, out, &options, err);
    clv_counted_progress_end(&bar);
    CLV_TRY(status);
    run->table = clv_table_new("files");
    return report(run->table, out, err);
}
