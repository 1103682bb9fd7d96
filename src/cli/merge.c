/* merge.c - cleave merge: a sharded checkpoint as the files that it was made of, byte for byte. */
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/convert.h"
#include "cli/options.h"
#include "cli/table.h"

typedef struct merge_args {
    const char *from, *out;
    bool json;
} merge_args;

static int parse(merge_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "DIR",
         .kind = CLV_OPTION_STRING,
         .out = &a->from,
         .value = "DIR",
         .required = true,
         .help = "a folder that cleave shard made"},
        {.names = "--out",
         .kind = CLV_OPTION_STRING,
         .out = &a->out,
         .value = "DIR",
         .required = true,
         .help = "the folder to make"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .help = "print JSON"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* A clv_checkpoint_writer. */
static clv_status write_files(const void *arg, const clv_weights *weights, const char *folder,
                              clv_shards_progress *progress, void *progress_arg, clv_error *err)
{
    (void)arg;
    return clv_weights_merge(weights, folder, progress, progress_arg, err);
}

static clv_status merge(clv_table *t, const merge_args *a, clv_error *err)
{
    clv_weights *weights;
    clv_status status = CLV_OK;

    CLV_TRY(clv_weights_open(&weights, a->from, err));
    if (clv_weights_manifest(weights) == NULL)
        status = clv_fail(err, CLV_EINVAL, "%s: has no %s; valid: a folder that cleave shard made", a->from,
                          clv_manifest_name);
    if (status == CLV_OK)
        status = clv_checkpoint_convert(a->from, weights, a->out, "merge", write_files, NULL, err);
    for (int i = 0; status == CLV_OK && i < clv_weights_files(weights); i++) {
        clv_table_row(t);
        clv_table_text(t, "file", clv_weights_file_name(weights, i));
        clv_table_bytes(t, "bytes", (double)clv_safetensors_file_bytes(clv_weights_file(weights, i)));
    }
    clv_weights_close(weights);
    return status;
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
        return clv_table_finish(t, a.json);
    clv_table_free(t);
    return clv_command_report(argv[0], &err);
}
