/* shard.c - cleave shard: a checkpoint as one file a rank, of what each rank holds. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/status.h"
#include "cli/command.h"
#include "cli/convert.h"
#include "cli/mesh_option.h"
#include "cli/options.h"
#include "cli/table.h"
#include "io/file.h"
#include "models/placement.h"

typedef struct shard_args {
    const char *model, *out;
    clv_mesh_option mesh;
    bool json;
} shard_args;

enum { RULES_LIMIT = 1 << 20 };

static int parse(shard_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "-m, --model",
         .kind = CLV_OPTION_STRING,
         .out = &a->model,
         .value = "DIR",
         .required = true,
         .help = "checkpoint: a folder with config.json and safetensors, sharded or not"},
        {.names = "--out",
         .kind = CLV_OPTION_STRING,
         .out = &a->out,
         .value = "DIR",
         .required = true,
         .help = "the folder to make"},
        CLV_MESH_OPTIONS(&a->mesh),
        CLV_RULES_OPTIONS(&a->mesh),
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .help = "print JSON"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* What the manifest says of the rules: a preset's name, or the text of the file; the caller frees it. */
static clv_status rules_text(char **out, const clv_mesh_option *option, clv_error *err)
{
    const char *name = option->sp ? "megatron-sp" : option->rules ? option->rules : "megatron";
    size_t size;

    if (option->rules && access(option->rules, F_OK) == 0)
        return clv_file_read(out, &size, option->rules, RULES_LIMIT, err);
    *out = strdup(name);
    return *out ? CLV_OK : clv_fail_memory(err, "the rules", strlen(name));
}

/* A clv_checkpoint_writer of clv_shards_options. */
static clv_status write_shards(const void *arg, const clv_weights *weights, const char *folder,
                               clv_shards_progress *progress, void *progress_arg, clv_error *err)
{
    clv_shards_options options = *(const clv_shards_options *)arg;

    options.progress = progress;
    options.progress_arg = progress_arg;
    return clv_weights_shard(weights, folder, &options, err);
}

static clv_status place(clv_tensor_placement **out, const shard_args *a, const clv_mesh *mesh, const clv_weights *w,
                        clv_error *err)
{
    clv_model_config model;
    clv_axis_rules rules;
    clv_placement *placement;

    CLV_TRY(clv_model_config_read(&model, a->model, err));
    CLV_TRY(clv_mesh_option_rules(&rules, &a->mesh, mesh, err));
    CLV_TRY(clv_placement_new(&placement, &model, mesh, &rules, err));
    clv_status status = clv_placement_weights(out, placement, w, err);
    clv_placement_free(placement);
    return status;
}

/* The files that were made, and the bytes of each. */
static clv_status report(clv_table *t, const char *folder, clv_error *err)
{
    clv_manifest m;
    uint64_t total = 0;

    CLV_TRY(clv_manifest_read(&m, folder, err));
    for (int64_t rank = 0; rank < m.n_ranks; rank++) {
        char name[CLV_RANK_FILE_SIZE];
        clv_rank_file_name(name, rank, m.n_ranks);
        clv_table_row(t);
        clv_table_text(t, "file", name);
        clv_table_bytes(t, "bytes", (double)m.ranks[rank].bytes);
        total += m.ranks[rank].bytes;
    }
    clv_table_top(t);
    clv_table_int(t, "tensors", m.n_tensors);
    clv_table_bytes(t, "bytes", (double)total);
    clv_manifest_free(&m);
    return CLV_OK;
}

static clv_status shard(const shard_args *a, clv_error *err)
{
    clv_shards_options options = {0};
    clv_tensor_placement *placements = NULL;
    clv_weights *weights;
    char *rules = NULL;

    CLV_TRY(clv_mesh_option_read(&options.mesh, &a->mesh, err));
    CLV_TRY(clv_weights_open(&weights, a->model, err));
    clv_status status = place(&placements, a, &options.mesh, weights, err);
    if (status == CLV_OK)
        status = rules_text(&rules, &a->mesh, err);
    options.placements = placements;
    options.rules = rules;
    if (status == CLV_OK)
        status = clv_checkpoint_convert(a->model, weights, a->out, "shard", write_shards, &options, err);
    free(placements);
    free(rules);
    clv_weights_close(weights);
    return status;
}

int command_shard(int argc, char **argv)
{
    shard_args a = {.mesh = {.tp = 1}};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    if (shard(&a, &err) != CLV_OK)
        return clv_command_report(argv[0], &err);
    clv_table *t = clv_table_new("files");
    if (report(t, a.out, &err) == CLV_OK)
        return clv_table_finish(t, a.json);
    clv_table_free(t);
    return clv_command_report(argv[0], &err);
}
