/* generate.c - cleave generate: text from a checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/wait.h"
#include "cli/command.h"
#include "cli/mesh_option.h"
#include "cli/open_weights.h"
#include "cli/options.h"
#include "infer/codec.h"
#include "infer/generate.h"

typedef struct generate_args {
    const char *model, *prompt, *dtype;
    clv_mesh_option mesh;
    int64_t n, context, seed, threads, top_k;
    double temperature, top_p;
} generate_args;

static int parse(generate_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "-m, --model",
         .kind = CLV_OPTION_STRING,
         .out = &a->model,
         .value = "DIR",
         .required = true,
         .help = "checkpoint: a folder with config.json and safetensors"},
        {.names = "-p, --prompt",
         .kind = CLV_OPTION_STRING,
         .out = &a->prompt,
         .value = "TEXT",
         .required = true,
         .help = "text to continue; any bytes, at least one"},
        {.names = "-n, --n-predict",
         .kind = CLV_OPTION_INT,
         .out = &a->n,
         .min = 0,
         .max = 1 << 30,
         .value = "N",
         .help = "tokens to generate (128)"},
        CLV_MESH_OPTIONS(&a->mesh),
        CLV_RULES_OPTIONS(&a->mesh),
        {.names = "-c, --ctx-size",
         .kind = CLV_OPTION_INT,
         .out = &a->context,
         .min = 0,
         .max = 1 << 30,
         .value = "N",
         .help = "positions kept; 0: prompt and N, as far as the model goes"},
        {.names = "--temp",
         .kind = CLV_OPTION_REAL,
         .out = &a->temperature,
         .real_min = 0,
         .real_max = 100,
         .value = "T",
         .help = "temperature; 0 is greedy (0.8)"},
        {.names = "--top-k",
         .kind = CLV_OPTION_INT,
         .out = &a->top_k,
         .min = 0,
         .max = 1 << 30,
         .value = "K",
         .help = "sample among the K likeliest; 0: all (40)"},
        {.names = "--top-p",
         .kind = CLV_OPTION_REAL,
         .out = &a->top_p,
         .real_min = 0,
         .real_max = 1,
         .value = "P",
         .help = "sample among the likeliest that make up P (0.95)"},
        {.names = "-s, --seed",
         .kind = CLV_OPTION_INT,
         .out = &a->seed,
         .min = 0,
         .max = INT64_MAX,
         .value = "N",
         .help = "of sampling (1)"},
        {.names = "-t, --threads",
         .kind = CLV_OPTION_INT,
         .out = &a->threads,
         .min = 1,
         .max = 1024,
         .value = "N",
         .help = "threads a rank (1)"},
        {.names = "--dtype",
         .kind = CLV_OPTION_CHOICE,
         .out = &a->dtype,
         .value = "f32|bf16",
         .help = "of weights and activations (f32)"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

static clv_status open_model(clv_generator **out, const generate_args *a, const clv_model *model,
                             clv_checkpoint *weights, int64_t prompt, const char *command, clv_error *err)
{
    clv_mesh mesh;
    int64_t context = a->context ? a->context : prompt + a->n;
    if (!a->context && context > model->max_positions)
        context = model->max_positions;
    clv_generator_options options = {.context = context, .threads_per_rank = (int)a->threads};
    CLV_TRY(clv_mesh_option_resolve(&mesh, &a->mesh, command, err));
    CLV_TRY(clv_mesh_option_rules(&options.rules, &a->mesh, &mesh, err));
    CLV_TRY(clv_dtype_parse(&options.dtype, a->dtype, err));
    return clv_generator_new(out, model, weights, &mesh, &options, err);
}

static clv_status print(clv_text_stream *stream, const clv_codec *codec, const int64_t *ids, int64_t n, bool last,
                        clv_error *err)
{
    char *text;
    size_t size;
    CLV_TRY(clv_text_stream_add(stream, codec, ids, n, last, &text, &size, err));
    fwrite(text, 1, size, stdout);
    fflush(stdout);
    free(text);
    return CLV_OK;
}

static bool ends_text(const clv_model *model, int64_t token)
{
    bool ends = false;
    for (int i = 0; i < model->n_eos; i++)
        ends = ends || model->eos[i] == token;
    return ends;
}

/* *n_made: tokens sampled, the one that ended the text among them. */
static clv_status sample_all(clv_generator *g, const generate_args *a, const clv_model *model,
                             const clv_sampling *sampling, const clv_codec *codec, clv_text_stream *stream,
                             int64_t *n_made, clv_error *err)
{
    const float *logits;
    for (int64_t i = 0; i < a->n; i++) {
        int64_t token;
        CLV_TRY(clv_generator_sample(g, sampling, &token, err));
        *n_made = i + 1;
        if (ends_text(model, token))
            break;
        CLV_TRY(print(stream, codec, &token, 1, false, err));
        if (i + 1 < a->n)
            CLV_TRY(clv_generator_feed(g, &token, 1, &logits, err));
    }
    return print(stream, codec, NULL, 0, true, err);
}

static clv_status generate(clv_generator *g, const generate_args *a, const clv_model *model, const clv_codec *codec,
                           const int64_t *prompt, int64_t n_prompt, clv_error *err)
{
    clv_sampling sampling = {
        .temperature = a->temperature, .top_k = a->top_k, .top_p = a->top_p, .seed = (uint64_t)a->seed};
    clv_text_stream stream = {0};
    const float *logits;
    int64_t n_made = 0;
    CLV_TRY(clv_sampling_check(&sampling, err));
    double start = clv_now_seconds();
    CLV_TRY(clv_generator_feed(g, prompt, n_prompt, &logits, err));
    double fed = clv_now_seconds();
    clv_status status = print(&stream, codec, prompt, n_prompt, a->n == 0, err);
    if (status == CLV_OK)
        status = sample_all(g, a, model, &sampling, codec, &stream, &n_made, err);
    clv_text_stream_free(&stream);
    CLV_TRY(status);
    putchar('\n');
    fflush(stdout);
    fprintf(stderr, "prompt %.0f tokens/s, generated %.0f tokens/s\n", (double)n_prompt / (fed - start),
            (double)n_made / (clv_now_seconds() - fed));
    return CLV_OK;
}

static clv_status run(const generate_args *a, const clv_codec *codec, const clv_model *model, const char *command,
                      clv_error *err)
{
    int64_t *prompt, n;
    clv_generator *g = NULL;
    clv_checkpoint *weights = NULL;
    if (a->prompt[0] == '\0')
        return clv_fail(err, CLV_EINVAL, "-p: the prompt is empty; give at least one byte");
    CLV_TRY(clv_codec_encode(codec, a->prompt, strlen(a->prompt), &prompt, &n, err));
    clv_status status = clv_open_weights(&weights, model, a->model, command, err);
    if (status == CLV_OK)
        status = open_model(&g, a, model, weights, n, command, err);
    if (status == CLV_OK)
        status = generate(g, a, model, codec, prompt, n, err);
    clv_generator_free(g);
    clv_checkpoint_close(weights);
    free(prompt);
    return status;
}

int command_generate(int argc, char **argv)
{
    generate_args a = {.dtype = "f32",
                       .n = 128,
                       .seed = 1,
                       .threads = 1,
                       .temperature = 0.8,
                       .top_k = 40,
                       .top_p = 0.95,
                       .mesh = {.tp = 1}};
    clv_error err = {0};
    clv_codec codec = {0};
    clv_model model;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_status status = clv_model_read(&model, a.model, &err);
    if (status == CLV_OK)
        status = clv_codec_open(&codec, a.model, model.vocab, &err);
    if (status == CLV_OK)
        status = run(&a, &codec, &model, argv[0], &err);
    clv_codec_close(&codec);
    return status == CLV_OK ? CLV_EXIT_OK : clv_command_report(argv[0], &err);
}
