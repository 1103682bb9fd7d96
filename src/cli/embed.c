/* embed.c - cleave embed: a vector for each sequence of a file, or all of its hidden states. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/wait.h"
#include "cleave/checkpoint.h"
#include "cleave/forward.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/mesh_option.h"
#include "cli/model_option.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/results.h"
#include "cli/run_option.h"
#include "cli/sequences.h"

typedef struct embed_args {
    clv_model_option model;
    const char *input, *out, *pool;
    int64_t tokens;
    bool allow_nonfinite, truncate;
} embed_args;

static int parse(embed_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "-m, --model",
         .kind = CLV_OPTION_STRING,
         .out = &a->model.path,
         .value = "DIR",
         .required = true,
         .use = CLV_OPTION_READS,
         .help = "a folder with config.json, safetensors and a tokenizer"},
        {.names = "--input",
         .kind = CLV_OPTION_STRING,
         .out = &a->input,
         .value = "FILE",
         .required = true,
         .use = CLV_OPTION_READS,
         .help = "sequences: .fasta, .fa or .faa, or a text, one a line"},
        {.names = "--out",
         .kind = CLV_OPTION_STRING,
         .out = &a->out,
         .value = "FILE",
         .required = true,
         .use = CLV_OPTION_WRITES,
         .help = "safetensors for embeddings [N,M] f32 in the order of the input, or with --pool none hidden.<row> "
                 "[tokens,M], and ids u8 [N,W]: names of records or numbers of lines, zeros behind"},
        {.names = "--pool",
         .kind = CLV_OPTION_CHOICE,
         .out = &a->pool,
         .value = "mean|cls|last|none",
         .help = "of the last hidden states: the mean over all tokens, the first, the last, or none (mean)"},
        {.names = "--batch-tokens",
         .kind = CLV_OPTION_INT,
         .out = &a->tokens,
         .min = 1,
         .max = 1 << 24,
         .value = "N",
         .help = "tokens that run side by side, about (4096)"},
        CLV_SEQUENCES_OPTION(&a->truncate),
        CLV_RESULTS_OPTION(&a->allow_nonfinite),
        CLV_MESH_OPTIONS(&a->model.mesh),
        CLV_RULES_OPTIONS(&a->model.mesh),
        CLV_RUN_OPTIONS(&a->model.run),
        {.names = "--dtype",
         .kind = CLV_OPTION_CHOICE,
         .out = &a->model.dtype,
         .value = "f32|bf16",
         .help = "of weights and activations (f32)"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* ---- the file ---- */

/* The names as a JSON array of strings, the caller's to free; what is not UTF-8 in them is U+FFFD. */
static clv_status names_as_json(char **out, const clv_sequences *all, clv_error *err)
{
    json_t *list = json_array();
    clv_status status = list ? CLV_OK : clv_fail_memory(err, "names", 0);
    for (int64_t i = 0; status == CLV_OK && i < all->n; i++) {
        char *name;
        size_t size;
        status = clv_utf8_repair(&name, &size, all->item[i].name, strlen(all->item[i].name), err);
        if (status != CLV_OK)
            break;
        if (json_array_append_new(list, json_stringn(name, size)) != 0)
            status = clv_fail_memory(err, "names", size);
        free(name);
    }
    *out = status == CLV_OK ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    return status == CLV_OK && !*out ? clv_fail_memory(err, "names", 0) : status;
}

static int64_t longest_name(const clv_sequences *all)
{
    size_t most = 1;
    for (int64_t i = 0; i < all->n; i++)
        most = strlen(all->item[i].name) > most ? strlen(all->item[i].name) : most;
    return (int64_t)most;
}

/* The last tensor is "ids" [N,W]: the bytes of each name, zeros behind. */
static clv_status write_names(clv_checkpoint_writer *w, int64_t tensor, const clv_sequences *all, clv_error *err)
{
    size_t width = (size_t)longest_name(all);
    char *bytes = calloc((size_t)all->n + 1, width);
    if (!bytes)
        return clv_fail_memory(err, "names", (size_t)all->n * width);
    for (int64_t i = 0; i < all->n; i++)
        memcpy(bytes + (size_t)i * width, all->item[i].name, strlen(all->item[i].name));
    clv_status status = clv_checkpoint_write(w, tensor, NULL, bytes, err);
    free(bytes);
    return status;
}

/* A tensor for all, or one for each sequence; then "ids". */
static clv_status add_tensors(clv_checkpoint_writer *w, bool pooled, const clv_sequences *all, int64_t width,
                              clv_error *err)
{
    if (pooled)
        CLV_TRY(clv_checkpoint_add(w, "embeddings", CLV_F32, 2, (int64_t[]){all->n, width}, err));
    for (int64_t i = 0; !pooled && i < all->n; i++) {
        char name[32];
        snprintf(name, sizeof name, "hidden.%lld", (long long)i);
        CLV_TRY(clv_checkpoint_add(w, name, CLV_F32, 2, (int64_t[]){all->item[i].n, width}, err));
    }
    return clv_checkpoint_add(w, "ids", CLV_U8, 2, (int64_t[]){all->n, longest_name(all)}, err);
}

static clv_status begin_file(clv_checkpoint_writer *w, const embed_args *a, const clv_sequences *all, int64_t width,
                             clv_error *err)
{
    bool pooled = strcmp(a->pool, "none") != 0;
    char *json;
    CLV_TRY(names_as_json(&json, all, err));
    clv_status status = clv_checkpoint_note(w, "ids", json, err);
    free(json);
    if (status == CLV_OK)
        status = add_tensors(w, pooled, all, width, err);
    return status == CLV_OK ? write_names(w, pooled ? 1 : all->n, all, err) : status;
}

/* hidden [n, width] -> vector [width] */
static void pool(float *vector, const char *how, const float *hidden, int64_t n, int64_t width)
{
    bool mean = strcmp(how, "mean") == 0;
    int64_t only = strcmp(how, "last") == 0 ? n - 1 : 0;
    for (int64_t d = 0; d < width; d++) {
        double sum = 0;
        for (int64_t i = 0; mean && i < n; i++)
            sum += hidden[i * width + d];
        vector[d] = mean ? (float)(sum / (double)n) : hidden[only * width + d];
    }
}

static clv_status write_batch(clv_checkpoint_writer *w, const embed_args *a, const clv_sequences *all,
                              const clv_batch *batch, const float *hidden, float *vector, int64_t width, clv_error *err)
{
    for (int64_t r = 0; r < batch->rows; r++) {
        int64_t i = batch->index[r];
        const float *rows = hidden + r * batch->seq * width;
        if (i < 0)
            continue;
        if (strcmp(a->pool, "none") == 0) {
            CLV_TRY(clv_checkpoint_write(w, i, NULL, rows, err));
            continue;
        }
        pool(vector, a->pool, rows, all->item[i].n, width);
        clv_shard box = {.rank = 2, .lo = {i, 0}, .hi = {i + 1, width}};
        CLV_TRY(clv_checkpoint_write(w, 0, &box, vector, err));
    }
    return CLV_OK;
}

/* ---- running ---- */

static void describe(char *out, size_t size, const void *arg, int64_t row, int64_t token)
{
    const clv_batches *b = arg;
    const clv_sequence *s = &b->all->item[b->batch.index[row]];
    snprintf(out, size, "%.64s: the hidden state of token %lld", s->name, (long long)token);
}

static clv_status run_batches(clv_forwarder *f, clv_checkpoint_writer *w, const embed_args *a, const clv_sequences *all,
                              const clv_model_info *model, clv_error *err)
{
    clv_batches b;
    clv_progress progress;
    int64_t done = 0, room = a->tokens > model->max_positions ? a->tokens : model->max_positions;
    CLV_TRY(clv_batches_begin(&b, all, a->tokens, model->max_positions, err));
    float *hidden = malloc((size_t)(room * model->hidden) * sizeof *hidden);
    float *vector = malloc((size_t)model->hidden * sizeof *vector);
    clv_status status =
        hidden && vector ? CLV_OK : clv_fail_memory(err, "hidden states", (size_t)(room * model->hidden) * 4);
    clv_progress_begin(&progress, "embed", all->n);
    while (status == CLV_OK && clv_batches_next(&b, model->pad >= 0 ? model->pad : 0)) {
        const clv_batch *batch = &b.batch;
        clv_forward_batch given = {sizeof given, batch->rows, batch->seq, batch->ids, batch->mask, NULL};
        status = clv_results_forward(f, &given, hidden, a->allow_nonfinite, describe, &b, err);
        if (status == CLV_OK)
            status = write_batch(w, a, all, batch, hidden, vector, model->hidden, err);
        for (int64_t r = 0; r < batch->rows; r++)
            done += batch->index[r] >= 0;
        clv_progress_update(&progress, done, "");
    }
    clv_progress_end(&progress);
    free(hidden);
    free(vector);
    clv_batches_end(&b);
    return status;
}

static clv_status embed(const embed_args *a, const clv_model *model, const clv_model_info *info,
                        const clv_sequences *all, double start, clv_error *err)
{
    clv_forwarder *f = NULL;
    clv_checkpoint_writer *w = NULL;
    clv_status status = clv_forwarder_new(&f, model, NULL, err);
    if (status == CLV_OK)
        status = clv_checkpoint_create(&w, a->out, err);
    if (status == CLV_OK)
        status = begin_file(w, a, all, info->hidden, err);
    if (status == CLV_OK)
        status = run_batches(f, w, a, all, info, err);
    if (status == CLV_OK)
        status = clv_checkpoint_commit(w, err);
    else
        clv_checkpoint_abandon(w);
    clv_forwarder_free(f);
    if (status == CLV_OK)
        fprintf(stderr, "%lld sequences in %.1f s\n", (long long)all->n, clv_now_seconds() - start);
    return status;
}

/* *complete: no sequence was left out. */
static clv_status run(const embed_args *a, const clv_model *model, double start, const char *command, bool *complete,
                      clv_error *err)
{
    clv_model_info info = {.size = sizeof info};
    const clv_tokenizer *tokenizer;
    clv_sequences all;
    CLV_TRY(clv_model_describe(model, &info, err));
    CLV_TRY(clv_model_tokenizer(&tokenizer, model, err));
    CLV_TRY(clv_sequences_read(&all, a->input, tokenizer, &info, a->truncate ? CLV_TOO_LONG_CUT : CLV_TOO_LONG_LEFT_OUT,
                               0, err));
    clv_note_unused_tensors(model, a->model.path, command);
    clv_status status = embed(a, model, &info, &all, start, err);
    *complete = status == CLV_OK && clv_sequences_report(&all, command);
    clv_sequences_free(&all);
    return status;
}

int command_embed(int argc, char **argv)
{
    embed_args a = {.model = CLV_MODEL_DEFAULTS, .pool = "mean", .tokens = 4096};
    clv_error err = {0};
    clv_model *model = NULL;
    bool complete = false;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    double start = clv_now_seconds();
    clv_status status = clv_model_option_open(&model, &a.model, argv[0], &err);
    if (status == CLV_OK)
        status = run(&a, model, start, argv[0], &complete, &err);
    clv_model_close(model);
    if (status != CLV_OK)
        return clv_command_report(argv[0], &err);
    return complete ? CLV_EXIT_OK : CLV_EXIT_FAILED;
}
