/* command_count.c - the `cleave count` command: tensors and bytes of a checkpoint; a template for commands. */
#include "cleave/checkpoint.h"
#include "cli/command.h"
#include "cli/options/model_options.h"
#include "cli/options/output_options.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"

/* What the options write into. */
typedef struct count_args {
    const char *folder;
    clv_table_format form;
} count_args;

static int parse(count_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "-m, --model",
         .kind = CLV_OPTION_STRING,
         .out = &a->folder,
         .value = "DIR",
         .use = CLV_OPTION_INPUT,
         .missing_hint = clv_model_missing_hint,
         .required = true,
         .help = "checkpoint: a folder with safetensors"},
        CLV_FORMAT_OPTIONS(&a->form, "", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* Fills the table: one call of the library, then fields by name. */
static clv_status count(clv_table *t, const count_args *a, clv_error *err)
{
    clv_checkpoint *checkpoint;
    double total = 0;

    CLV_TRY(clv_checkpoint_open(&checkpoint, a->folder, NULL, err));
    for (int i = 0; i < clv_checkpoint_file_count(checkpoint); i++) {
        int64_t bytes = 0;
        clv_checkpoint_file(checkpoint, i, &bytes);
        total += (double)bytes;
    }
    clv_table_int(t, "tensors", clv_checkpoint_tensor_count(checkpoint));
    clv_table_bytes(t, "bytes", total);
    clv_checkpoint_close(checkpoint);
    return CLV_OK;
}

/* The function that src/cli/command.h declares and src/cli/command_table.c lists. */
int command_count(int argc, char **argv);
int command_count(int argc, char **argv)
{
    count_args a = {0};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_table *t = clv_table_new(NULL);
    if (count(t, &a, &err) == CLV_OK)
        return clv_table_finish(t, &a.form);
    clv_table_free(t);
    return clv_command_print_error(argv[0], &err);
}
