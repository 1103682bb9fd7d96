/* generate.c - cleave generate: text from a checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/generate_run.h"
#include "cli/mesh_option.h"
#include "cli/model_option.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/run_option.h"
#include "cli/say.h"
#include "cli/table.h"
#include "io/file.h"

typedef struct generate_args {
    clv_model_option model;
    const char *prompt, *file;
    clv_strings stops;
    int64_t n, context, seed, top_k, batch;
    double temperature, top_p, min_p, penalty;
    bool json;
} generate_args;

enum { FILE_LIMIT = 1 << 30 };

static int parse(generate_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "-m, --model",
         .kind = CLV_OPTION_STRING,
         .out = &a->model.path,
         .value = "DIR",
         .required = true,
         .help = "checkpoint: a folder with config.json and safetensors"},
        {.names = "-p, --prompt",
         .kind = CLV_OPTION_STRING,
         .out = &a->prompt,
         .value = "TEXT",
         .help = "text to continue; any bytes, at least one"},
        {.names = "-f, --file",
         .kind = CLV_OPTION_STRING,
         .out = &a->file,
         .value = "FILE",
         .help = "prompts, one a line, instead of -p; texts come in their order"},
        {.names = "-b, --batch-size",
         .kind = CLV_OPTION_INT,
         .out = &a->batch,
         .min = 1,
         .max = 1 << 16,
         .value = "N",
         .not_beside = "--prompt",
         .help = "prompts of a file that are continued side by side (8)"},
        {.names = "-n, --n-predict",
         .kind = CLV_OPTION_INT,
         .out = &a->n,
         .min = 0,
         .max = 1 << 30,
         .value = "N",
         .help = "tokens to generate (128)"},
        CLV_MESH_OPTIONS(&a->model.mesh),
        CLV_RULES_OPTION(&a->model.mesh),
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
        {.names = "--min-p",
         .kind = CLV_OPTION_REAL,
         .out = &a->min_p,
         .real_min = 0,
         .real_max = 1,
         .value = "P",
         .help = "sample among those at least P times as likely as the likeliest (0)"},
        {.names = "--repeat-penalty, --repetition-penalty",
         .kind = CLV_OPTION_REAL,
         .out = &a->penalty,
         .real_min = 0.01,
         .real_max = 100,
         .value = "X",
         .help = "makes tokens that occurred less likely; 1 is none (1)"},
        {.names = "--stop",
         .kind = CLV_OPTION_STRINGS,
         .out = &a->stops,
         .value = "TEXT",
         .help = "end before this text; may be given again"},
        {.names = "-s, --seed",
         .kind = CLV_OPTION_INT,
         .out = &a->seed,
         .min = 0,
         .max = INT64_MAX,
         .value = "N",
         .help = "of sampling (1)"},
        CLV_RUN_OPTIONS(&a->model.run),
        {.names = "--dtype",
         .kind = CLV_OPTION_CHOICE,
         .out = &a->model.dtype,
         .value = "f32|bf16",
         .help = "of weights and activations (f32)"},
        {.names = "--json", .kind = CLV_OPTION_FLAG, .out = &a->json, .help = "print JSON, at the end"},
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* ---- prompts ---- */

typedef struct prompts {
    int64_t n;
    const char **text; /* [n], in the order given */
    clv_continuation *list;
    clv_continuation **by_length;
    char *content; /* of the file */
} prompts;

static void free_prompts(prompts *p)
{
    for (int64_t i = 0; p->list && i < p->n; i++) {
        free(p->list[i].prompt);
        free(p->list[i].text);
    }
    free(p->text);
    free(p->list);
    free(p->by_length);
    free(p->content);
}

static clv_status make_room(prompts *p, int64_t n, clv_error *err)
{
    p->text = calloc((size_t)n, sizeof *p->text);
    p->list = calloc((size_t)n, sizeof *p->list);
    p->by_length = calloc((size_t)n, sizeof *p->by_length);
    return p->text && p->list && p->by_length ? CLV_OK : clv_fail_memory(err, "prompts", (size_t)n * sizeof *p->list);
}

static clv_status add_prompt(prompts *p, const char *text, const generate_args *a, const clv_tokenizer *tokenizer,
                             clv_error *err)
{
    clv_continuation *c = &p->list[p->n];
    p->text[p->n] = text;
    p->by_length[p->n] = c;
    c->number = (uint64_t)p->n++;
    CLV_TRY(clv_tokenizer_encode(tokenizer, text, strlen(text), true, &c->prompt, &c->n_prompt, err));
    if (text[0] == '\0' || c->n_prompt == 0)
        return clv_fail(err, CLV_EINVAL, "%s%s: prompt %lld is empty; give at least one byte", a->file ? "-f " : "-p",
                        a->file ? a->file : "", (long long)p->n);
    return CLV_OK;
}

/* Lines of the file; the last may lack its end. */
static clv_status read_lines(prompts *p, const generate_args *a, const clv_tokenizer *tokenizer, clv_error *err)
{
    size_t size;
    int64_t lines = 1;
    CLV_TRY(clv_file_read_text(&p->content, &size, a->file, FILE_LIMIT, err));
    for (size_t i = 0; i < size; i++)
        lines += p->content[i] == '\n';
    CLV_TRY(make_room(p, lines, err));
    for (char *line = p->content, *end = p->content + size; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        if (stop)
            *stop = '\0';
        CLV_TRY(add_prompt(p, line, a, tokenizer, err));
        line = stop ? stop + 1 : end;
    }
    return p->n > 0 ? CLV_OK : clv_fail(err, CLV_EINVAL, "%s: no prompt; one a line is needed", a->file);
}

static int by_length(const void *a, const void *b)
{
    const clv_continuation *x = *(clv_continuation *const *)a, *y = *(clv_continuation *const *)b;
    int longer = (x->n_prompt < y->n_prompt) - (x->n_prompt > y->n_prompt);
    return longer ? longer : (x->number > y->number) - (x->number < y->number);
}

/* The longest first: what does not fit fails at once. */
static clv_status read_prompts(prompts *p, const generate_args *a, const clv_tokenizer *tokenizer, clv_error *err)
{
    if ((a->prompt == NULL) == (a->file == NULL))
        return clv_fail(err, CLV_EINVAL, "a prompt is needed: -p TEXT, or -f FILE with one a line");
    if (a->file) {
        CLV_TRY(read_lines(p, a, tokenizer, err));
    } else {
        CLV_TRY(make_room(p, 1, err));
        CLV_TRY(add_prompt(p, a->prompt, a, tokenizer, err));
    }
    qsort(p->by_length, (size_t)p->n, sizeof(clv_continuation *), by_length);
    return CLV_OK;
}

/* ---- running ---- */

static clv_status open_generator(clv_generator **out, const generate_args *a, const clv_model *model,
                                 const clv_model_info *info, const prompts *p, clv_error *err)
{
    int64_t longest = p->by_length[0]->n_prompt, context = a->context ? a->context : longest + a->n;
    if (!a->context && context > info->max_positions)
        context = info->max_positions;
    if (longest > context)
        return clv_fail(err, CLV_ELIMIT, "a prompt of %lld tokens; the context holds %lld (the model takes up to %lld)",
                        (long long)longest, (long long)context, (long long)info->max_positions);
    clv_generator_options options = {
        .size = sizeof options, .batch = a->batch < p->n ? a->batch : p->n, .context = context};
    return clv_generator_new(out, model, &options, err);
}

static clv_status run_all(clv_generator *g, const clv_generate_how *how, prompts *p, clv_generate_seconds *seconds,
                          clv_error *err)
{
    clv_progress progress;
    int64_t batch = clv_generator_batch(g), done = 0;
    if (!how->stream)
        clv_progress_begin(&progress, "generate", p->n);
    clv_status status = CLV_OK;
    while (status == CLV_OK && done < p->n) {
        int64_t n = p->n - done < batch ? p->n - done : batch;
        status = clv_generate_run(g, how, p->by_length + done, n, seconds, err);
        done += n;
        if (!how->stream)
            clv_progress_update(&progress, done, "");
    }
    if (!how->stream)
        clv_progress_end(&progress);
    return status;
}

/* JSON has no bytes that are not UTF-8: they become U+FFFD. */
static void add_text(clv_table *t, const char *key, const char *text)
{
    char *repaired;
    size_t size;
    text = text ? text : "";
    if (clv_utf8_repair(&repaired, &size, text, strlen(text), NULL) != CLV_OK)
        return;
    clv_table_text(t, key, repaired);
    free(repaired);
}

static int print_json(const prompts *p)
{
    clv_table *t = clv_table_new("texts");
    for (int64_t i = 0; i < p->n; i++) {
        clv_table_row(t);
        add_text(t, "prompt", p->text[i]);
        add_text(t, "text", p->list[i].text);
        clv_table_int(t, "prompt_tokens", p->list[i].n_prompt);
        clv_table_int(t, "tokens", p->list[i].n_made);
    }
    return clv_table_finish(t, true);
}

static void print_texts(const char *prompt, const char *text)
{
    clv_shown_text shown = {0};
    clv_print_text(&shown, prompt, strlen(prompt));
    clv_print_text(&shown, text, strlen(text));
    clv_print_text_end(&shown);
}

/* What was not streamed, and on stderr how fast it was. */
static int report(const prompts *p, const generate_args *a, const clv_generate_seconds *s)
{
    int64_t read = 0, made = 0;
    int code = CLV_EXIT_OK;
    for (int64_t i = 0; i < p->n; i++) {
        read += p->list[i].n_prompt;
        made += p->list[i].n_made;
        if (a->file && !a->json)
            print_texts(p->text[i], p->list[i].text ? p->list[i].text : "");
        if (!a->json)
            putchar('\n');
    }
    if (a->json)
        code = print_json(p);
    fflush(stdout);
    int64_t full = 0;
    for (int64_t i = 0; i < p->n; i++)
        full += p->list[i].full;
    if (full > 0)
        fprintf(stderr, "note: %lld texts end because the context is full (-c)\n", (long long)full);
    double all = s->prompt + s->decode;
    fprintf(stderr, "prompt %.0f tokens/s, generated %.0f tokens/s, %.0f %% of the time in sync\n",
            (double)read / s->prompt, s->decode > 0 ? (double)made / s->decode : 0, 100 * s->sync / all);
    return code;
}

static clv_status run(const generate_args *a, const clv_model *model, const char *command, int *code, clv_error *err)
{
    prompts p = {0};
    clv_generator *g = NULL;
    clv_generate_seconds seconds = {0};
    clv_model_info info = {.size = sizeof info};
    clv_generate_how how = {.model = &info,
                            .sampling = {.size = sizeof how.sampling,
                                         .temperature = a->temperature,
                                         .top_k = a->top_k,
                                         .top_p = a->top_p,
                                         .min_p = a->min_p,
                                         .repetition_penalty = a->penalty,
                                         .seed = (uint64_t)a->seed},
                            .stops = a->stops.item,
                            .n_stops = a->stops.n,
                            .n = a->n,
                            .stream = !a->file && !a->json};
    for (int i = 0; i < a->stops.n; i++)
        if (a->stops.item[i][0] == '\0')
            return clv_fail(err, CLV_EINVAL, "--stop: the text is empty; give at least one byte");
    CLV_TRY(clv_model_describe(model, &info, err));
    CLV_TRY(clv_model_tokenizer(&how.tokenizer, model, err));
    clv_status status = read_prompts(&p, a, how.tokenizer, err);
    if (status == CLV_OK)
        clv_note_unused_tensors(model, a->model.path, command);
    if (status == CLV_OK)
        status = open_generator(&g, a, model, &info, &p, err);
    if (status == CLV_OK)
        status = run_all(g, &how, &p, &seconds, err);
    if (status == CLV_OK)
        *code = report(&p, a, &seconds);
    clv_generator_free(g);
    free_prompts(&p);
    return status;
}

int command_generate(int argc, char **argv)
{
    generate_args a = {.model = CLV_MODEL_DEFAULTS,
                       .n = 128,
                       .seed = 1,
                       .batch = 8,
                       .temperature = 0.8,
                       .top_k = 40,
                       .top_p = 0.95,
                       .penalty = 1};
    clv_error err = {0};
    clv_model *model = NULL;
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_status status = clv_model_option_open(&model, &a.model, argv[0], &err);
    if (status == CLV_OK)
        status = run(&a, model, argv[0], &code, &err);
    clv_model_close(model);
    return status == CLV_OK ? code : clv_command_report(argv[0], &err);
}
