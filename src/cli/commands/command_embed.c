/* command_embed.c - the `cleave embed` command: writes one embedding per sequence, or all hidden states, to a file. */
#include <jansson.h>

#include "cleave/cancel.h"
#include "cleave/checkpoint.h"
#include "cleave/embed.h"
#include "cleave/text.h"
#include "cli/command.h"
#include "cli/evaluation/forward_run.h"
#include "cli/input/sequence_options.h"
#include "cli/job/job_processes.h"
#include "cli/options/model_options.h"
#include "cli/options/run_options.h"
#include "cli/output/progress.h"
#include "cli/timing/clock.h"
#include "cli/timing/suspensions.h"

typedef struct embed_args {
    clv_model_option model;
    const char *input, *out;
    clv_pooling pool;
    int64_t tokens;
    clv_cancel *cancel;
    bool allow_nonfinite, truncate;
} embed_args;

static bool parse(embed_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "model folder: config.json, safetensors and a tokenizer"),
        CLV_OPT_INPUT("--input", &a->input, "FILE",
                      "sequences: FASTA, JSON lines (key \"text\"), or text lines; also gzipped, or from a pipe (-: "
                      "standard input)",
                      .required = true, .positional = CLV_POSITIONAL_ACCEPTED),
        CLV_OUT_OPTION(&a->out, "FILE", FILE,
                       "output safetensors: embeddings [N,M] f32 in the order of the input, or with --pool none "
                       "hidden.<row> [tokens,M], and ids u8 [N,W]: names of records or line numbers, padded with zeros",
                       .required = true),
        CLV_OPT_ENUM(
            "--pool", &a->pool, "mean|cls|last|none", NULL,
            "pooling of the last hidden states: mean over all tokens, first token, last token, or none (mean)"),
        CLV_BATCH_TOKENS_OPTION(&a->tokens),
        CLV_SEQUENCES_OPTION(&a->truncate),
        CLV_ALLOW_NONFINITE_OPTION(&a->allow_nonfinite),
        CLV_MODEL_RUN_OPTIONS(&a->model),
    };
    return CLV_PARSE(run, options);
}

/* ---- the file ---- */

/* Of sequence i, which there is. */
static clv_sequence_info at(const clv_sequences *all, int64_t i)
{
    clv_sequence_info info = {.size = sizeof info};
    clv_sequences_at(all, i, &info, NULL);
    return info;
}

/* The names as a JSON array of strings, the caller's to free; what is not UTF-8 in them is U+FFFD. */
static clv_status names_as_json(char **out, const clv_sequences *all, clv_error *err)
{
    json_t *list = json_array();
    clv_status status = list ? CLV_OK : clv_fail_memory(err, "names", 0);
    for (int64_t i = 0; status == CLV_OK && i < clv_sequences_count(all); i++) {
        size_t size;
        char *name = clv_utf8_repair(&size, at(all, i).name, strlen(at(all, i).name));
        if (!name || json_array_append_new(list, json_stringn(name, size)) != 0)
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
    for (int64_t i = 0; i < clv_sequences_count(all); i++)
        most = strlen(at(all, i).name) > most ? strlen(at(all, i).name) : most;
    return (int64_t)most;
}

/* The last tensor is "ids" [N,W]: the bytes of each name, zeros behind. */
static clv_status write_names(clv_checkpoint_writer *w, int64_t tensor, const clv_sequences *all, clv_error *err)
{
    size_t width = (size_t)longest_name(all), n = (size_t)clv_sequences_count(all);
    char *bytes = calloc(n + 1, width);
    if (!bytes)
        return clv_fail_memory(err, "names", n * width);
    for (size_t i = 0; i < n; i++)
        memcpy(bytes + i * width, at(all, (int64_t)i).name, strlen(at(all, (int64_t)i).name));
    clv_status status = clv_checkpoint_write(w, tensor, NULL, bytes, err);
    free(bytes);
    return status;
}

/* A tensor for all, or one for each sequence; then "ids". */
static clv_status add_tensors(clv_checkpoint_writer *w, bool pooled, const clv_sequences *all, int64_t width,
                              clv_error *err)
{
    int64_t n = clv_sequences_count(all);
    if (pooled)
        CLV_TRY(clv_checkpoint_add_tensor(w, "embeddings", CLV_F32, 2, (int64_t[]){n, width}, err));
    for (int64_t i = 0; !pooled && i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "hidden.%lld", (long long)i);
        CLV_TRY(clv_checkpoint_add_tensor(w, name, CLV_F32, 2, (int64_t[]){at(all, i).tokens, width}, err));
    }
    return clv_checkpoint_add_tensor(w, "ids", CLV_U8, 2, (int64_t[]){n, longest_name(all)}, err);
}

static clv_status begin_file(clv_checkpoint_writer *w, bool pooled, const clv_sequences *all, int64_t width,
                             clv_error *err)
{
    char *json;
    CLV_TRY(names_as_json(&json, all, err));
    clv_status status = clv_checkpoint_add_metadata(w, "ids", json, err);
    free(json);
    if (status == CLV_OK)
        status = add_tensors(w, pooled, all, width, err);
    return status == CLV_OK ? write_names(w, pooled ? 1 : clv_sequences_count(all), all, err) : status;
}

/* ---- running ---- */

/* Where vectors go, and how many are there. */
typedef struct sink {
    clv_checkpoint_writer *writer;
    bool pooled;
    clv_progress progress;
    int64_t done;
    clv_error failure; /* of the first that could not be written */
    clv_cancel *cancel;
} sink;

/* Other processes do not write: they hear of a failure by the next run, which is cancelled. */
static clv_status take(void *arg, int64_t i, const float *rows, int64_t n_rows, int64_t width, clv_error *err)
{
    sink *s = arg;
    clv_shard row = {.rank = 2, .lo = {i, 0}, .hi = {i + 1, width}};
    if (s->failure.code != CLV_OK)
        return CLV_OK;
    if (clv_checkpoint_write(s->writer, s->pooled ? 0 : i, s->pooled ? &row : NULL, rows, &s->failure) != CLV_OK)
        clv_cancel_request(s->cancel);
    else
        clv_progress_update(&s->progress, ++s->done, "");
    return CLV_OK;
}

static clv_status write_vectors(clv_checkpoint_writer *w, const embed_args *a, const clv_model *model,
                                const clv_sequences *all, const char *command, clv_error *err)
{
    clv_forwarder *f;
    clv_model_info info = {.size = sizeof info};
    clv_embed_options options = {
        .size = sizeof options, .pooling = a->pool, .batch_tokens = a->tokens, .allow_nonfinite = a->allow_nonfinite};
    sink s = {.writer = w, .pooled = options.pooling != CLV_POOL_NONE, .failure = {.rank = -1}, .cancel = a->cancel};
    CLV_TRY(clv_model_get_info(model, &info, err));
    CLV_TRY(clv_forwarder_new(&f, model, NULL, err));
    if (begin_file(w, s.pooled, all, info.hidden, &s.failure) == CLV_OK)
        clv_model_option_warnings(model, &a->model, command);
    else
        clv_cancel_request(s.cancel);
    clv_progress_begin(&s.progress, "embed", clv_sequences_count(all));
    clv_status status = clv_embed(f, all, &options, take, &s, err);
    clv_progress_end(&s.progress);
    clv_forwarder_free(f);
    if (s.failure.code == CLV_OK)
        return status;
    *err = s.failure;
    return s.failure.code;
}

static clv_status embed(const embed_args *a, const clv_model *model, const clv_sequences *all, double start,
                        const char *command, clv_error *err)
{
    clv_checkpoint_writer *w;
    CLV_TRY(clv_checkpoint_create(&w, clv_processes_output_path(a->out), err));
    clv_status status = write_vectors(w, a, model, all, command, err);
    if (status == CLV_OK)
        status = clv_checkpoint_commit(w, err);
    else
        clv_checkpoint_abandon(w);
    if (status == CLV_OK)
        fprintf(stderr, "%lld sequence%s in %.1f s%s\n", (long long)clv_sequences_count(all),
                clv_sequences_count(all) == 1 ? "" : "s", clv_clock_seconds() - start, clv_suspensions_note());
    return status;
}

/* *complete: no sequence was left out. */
static clv_status run(const embed_args *a, const clv_model *model, double start, const char *command, bool *complete,
                      clv_error *err)
{
    clv_sequences *all;
    clv_sequences_options options = {.size = sizeof options,
                                     .too_long = a->truncate ? CLV_TOO_LONG_TRUNCATE : CLV_TOO_LONG_SKIP};
    CLV_TRY(clv_sequences_read(&all, model, a->input, &options, err));
    clv_status status = embed(a, model, all, start, command, err);
    *complete = status == CLV_OK && clv_sequences_print_warnings(all, command);
    clv_sequences_free(all);
    return status;
}

clv_status command_embed(clv_invocation *invocation, clv_error *err)
{
    clv_cancel cancel = {0};
    embed_args a = {.tokens = 4096, .cancel = &cancel, .model.options.cancel = &cancel};
    clv_model *model;
    bool complete = false;
    if (!parse(&a, invocation))
        return CLV_OK;
    double start = clv_clock_seconds();
    CLV_TRY(clv_model_option_open(&model, &a.model, err));
    clv_status status = run(&a, model, start, invocation->name, &complete, err);
    clv_model_close(model);
    clv_suggest_allow_nonfinite(err);
    invocation->code = complete ? CLV_EXIT_OK : CLV_EXIT_FAILED;
    return status;
}
