/* generate.c - cleave generate: text from a byte-level checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/wait.h"
#include "cli/command.h"
#include "cli/mesh_option.h"
#include "cli/options.h"
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
         .help = "bytes to generate (128)"},
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

static clv_status open_model(clv_generator **out, const generate_args *a, int64_t prompt, const char *command,
                             clv_error *err)
{
    clv_mesh mesh;
    clv_model config;
    CLV_TRY(clv_mesh_option_resolve(&mesh, &a->mesh, command, err));
    CLV_TRY(clv_model_read(&config, a->model, err));
    if (config.vocab != 256)
        return clv_fail(err, CLV_EUNSUPPORTED, "%s has a vocabulary of %lld; only byte-level models (256) are run yet",
                        a->model, (long long)config.vocab);
    int64_t context = a->context ? a->context : prompt + a->n;
    if (!a->context && context > config.max_positions)
        context = config.max_positions;
    clv_generator_options options = {.context = context, .threads_per_rank = (int)a->threads};
    CLV_TRY(clv_mesh_option_rules(&options.rules, &a->mesh, &mesh, err));
    CLV_TRY(clv_dtype_parse(&options.dtype, a->dtype, err));
    return clv_generator_new(out, a->model, &mesh, &options, err);
}

static clv_status generate(clv_generator *g, const generate_args *a, const int64_t *prompt, int64_t n_prompt,
                           clv_error *err)
{
    clv_sampling sampling = {
        .temperature = a->temperature, .top_k = a->top_k, .top_p = a->top_p, .seed = (uint64_t)a->seed};
    const float *logits;
    CLV_TRY(clv_sampling_check(&sampling, err));
    double start = clv_now_seconds();
    CLV_TRY(clv_generator_feed(g, prompt, n_prompt, &logits, err));
    double fed = clv_now_seconds();
    fwrite(a->prompt, 1, (size_t)n_prompt, stdout);
    for (int64_t i = 0; i < a->n; i++) {
        int64_t token;
        CLV_TRY(clv_generator_sample(g, &sampling, &token, err));
        putchar((int)token);
        fflush(stdout);
        if (i + 1 < a->n)
            CLV_TRY(clv_generator_feed(g, &token, 1, &logits, err));
    }
    putchar('\n');
    fflush(stdout);
    double done = clv_now_seconds();
    fprintf(stderr, "prompt %.0f tokens/s, generated %.0f tokens/s\n", (double)n_prompt / (fed - start),
            (double)a->n / (done - fed));
    return CLV_OK;
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
    clv_generator *g = NULL;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    int64_t n = (int64_t)strlen(a.prompt), *prompt = malloc(((size_t)n + 1) * sizeof *prompt);
    clv_status status = prompt ? CLV_OK : clv_fail_memory(&err, "the prompt", (size_t)n);
    if (status == CLV_OK && n == 0)
        status = clv_fail(&err, CLV_EINVAL, "-p: the prompt is empty; give at least one byte");
    for (int64_t i = 0; status == CLV_OK && i < n; i++)
        prompt[i] = (unsigned char)a.prompt[i];
    if (status == CLV_OK)
        status = open_model(&g, &a, n, argv[0], &err);
    if (status == CLV_OK)
        status = generate(g, &a, prompt, n, &err);
    code = status == CLV_OK ? CLV_EXIT_OK : clv_command_report(argv[0], &err);
    clv_generator_free(g);
    free(prompt);
    return code;
}
