/* command_shard.c - the `cleave shard` command: writes a checkpoint as one file per rank. */
#include <unistd.h>

#include "cleave/checkpoint.h"
#include "cleave/sequences.h"
#include "cli/command.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/output/progress.h"

typedef struct shard_args {
    const char *model, *out;
    clv_quant quant;
    clv_mesh_option mesh;
} shard_args;

enum { FILE_NAME = 64 };

static bool parse(shard_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model, "DIR", "model folder: config.json and safetensors, sharded or not"),
        CLV_OUT_OPTION(&a->out, "DIR", FOLDER, "the folder to create", .required = true),
        CLV_MESH_OPTIONS(&a->mesh),
        CLV_RULES_OPTIONS(&a->mesh),
        CLV_STAGES_OPTION(&a->mesh),
        CLV_VIRTUAL_STAGES_OPTION(&a->mesh.virtual_stages),
        CLV_QUANT_ROW(&a->quant, "quantise linear layers to blocks of 32 integers of 8 or 4 bits with a scale, as "
                                 "GGUF's Q8_0 and Q4_0 (none)"),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

/* What the manifest says of the rules: a preset's name, or the text of the file; the caller frees it. */
static clv_status rules_text(char **out, const clv_mesh_option *option, clv_error *err)
{
    const char *name = option->sp ? "megatron-sp" : option->rules ? option->rules : "megatron";
    size_t size;

    if (option->rules && access(option->rules, F_OK) == 0)
        return clv_text_read(out, &size, option->rules, 1, err);
    *out = strdup(name);
    return *out ? CLV_OK : clv_fail_memory(err, "the rules", strlen(name));
}

/* The files that were made, and the bytes of each. */
static clv_status report(clv_table *t, const char *folder, clv_error *err)
{
    clv_checkpoint *made;
    char name[FILE_NAME];
    int64_t bytes, total = 0;

    CLV_TRY(clv_checkpoint_open(&made, folder, NULL, err));
    for (int64_t rank = 0; clv_checkpoint_rank_file(name, sizeof name, &bytes, made, rank) > 0; rank++) {
        clv_table_begin_row(t);
        clv_table_text(t, "file", name);
        clv_table_bytes(t, "bytes", (double)bytes);
        total += bytes;
    }
    clv_table_begin_top_level(t);
    clv_table_int(t, "tensors", clv_checkpoint_tensor_count(made));
    clv_table_bytes(t, "bytes", (double)total);
    clv_checkpoint_close(made);
    return CLV_OK;
}

static clv_status write_shards(const shard_args *a, const clv_model *model, clv_error *err)
{
    clv_counted_progress bar = {.what = "shard", .note = "MiB", .shift = 20};
    clv_convert_options options = {.size = sizeof options, .progress = clv_counted_progress_show, .progress_arg = &bar};
    char *rules;

    CLV_TRY(rules_text(&rules, &a->mesh, err));
    options.rules_text = rules;
    clv_status status = clv_checkpoint_shard(model, a->out, &options, err);
    clv_counted_progress_end(&bar);
    free(rules);
    return status;
}

static clv_status shard(shard_args *a, clv_error *err)
{
    clv_model *model;
    const clv_model_options options = {
        .size = sizeof options, .mesh = &a->mesh.mesh, .rules = &a->mesh.axis_rules, .quant = a->quant};
    CLV_TRY(clv_mesh_option_resolve(&a->mesh, err));
    CLV_TRY(clv_model_open(&model, a->model, &options, err));
    clv_status status = write_shards(a, model, err);
    clv_model_close(model);
    return status;
}

clv_status command_shard(clv_invocation *run, clv_error *err)
{
    shard_args a = {.mesh.tp = 1};
    if (!parse(&a, run))
        return CLV_OK;
    CLV_TRY(shard(&a, err));
    run->table = clv_table_new("files");
    return report(run->table, a.out, err);
}
