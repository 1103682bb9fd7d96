/* command_count.c - the `cleave count` command: tensors and bytes of a checkpoint; a template for commands. */
#include "cleave/checkpoint.h"
#include "cli/command.h"
#include "cli/options/model_options.h"

/* Fills the table: one call of the library, then fields by name. */
static clv_status count(clv_table *t, const char *folder, clv_error *err)
{
    clv_checkpoint *checkpoint;
    double total = 0;

    CLV_TRY(clv_checkpoint_open(&checkpoint, folder, NULL, err));
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

/* The function that src/cli/command.h declares and src/cli/command_table.c lists. The frame prints the table, or the
 * error, and gives the exit code. */
clv_command_fn command_count;
clv_status command_count(clv_invocation *run, clv_error *err)
{
    const char *folder;
    const clv_option options[] = {
        CLV_MODEL_OPTION(&folder, "DIR", "checkpoint: a folder with safetensors"),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    run->table = clv_table_new(NULL);
    return count(run->table, folder, err);
}
