/* generate.c - cleave generate: text from a checkpoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/generate.h"
#include "cleave/sequences.h"
#include "cleave/text.h"
#include "cli/command.h"
#include "cli/mesh_option.h"
#include "cli/model_option.h"
#include "cli/options.h"
#include "cli/output_option.h"
#include "cli/progress.h"
#include "cli/run_option.h"
#include "cli/say.h"
#include "cli/stops.h"
#include "cli/table.h"
#include "cli/trace_option.h"

typedef struct generate_args {
    clv_model_option model;
    const char *prompt, *file, *trace_out;
    clv_strings stops;
    int64_t n, context, seed, top_k, batch;
    double temperature, top_p, min_p, penalty;
    bool json;
} generate_args;

static int parse(generate_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "checkpoint: a folder with config.json and safetensors"),
        {.names = "-p, --prompt",
         .kind = CLV_OPTION_STRING,
         .out = &a->prompt,
         .value = "TEXT",
         .help =
             "text to continue, at least one byte; what is not UTF-8 reads as U+FFFD (where the model has no tokenizer "
             "it is taken as it is)"},
        {.names = "-f, --file",
         .kind = CLV_OPTION_STRING,
         .out = &a->file,
         .value = "FILE",
         .use = CLV_OPTION_READS,
         .help = "prompts, one a line without zero bytes, instead of -p; texts come in their order, none for an empty "
                 "line"},
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
         .help = "end before this text, as it stands (bash: $'\\n' is a newline); may be given again"},
        CLV_SEED_OPTION(&a->seed, NULL, "of sampling (1)"),
        CLV_RUN_OPTIONS(&a->model.run),
        CLV_DTYPE_OPTION(&a->model.dtype),
        CLV_QUANT_OPTION(&a->model.quant),
        CLV_COMM_DTYPE_OPTION(&a->model.comm_dtype, NULL),
        CLV_PRICES_OPTION(&a->model.hardware),
        CLV_TRACE_OUT_OPTION(&a->trace_out, NULL,
                             "write a trace there, for cleave trace: a step is a part of the prompts, then a token"),
        CLV_JSON_OPTION(&a->json, NULL, "print JSON, at the end"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* ---- prompts ---- */

/* Nothing follows an empty line of a file: its text is empty, too. */
typedef struct prompts {
    int64_t n, n_asked;
    const char **text;  /* [n], in the order given */
    const char **asked; /* [n_asked] those that are not empty */
    char *content;      /* of the file */
} prompts;

static void free_prompts(prompts *p)
{
    free(p->text);
    free(p->asked);
    free(p->content);
}

static void add_prompt(prompts *p, const char *text)
{
    p->text[p->n++] = text;
    if (text[0] != '\0')
        p->asked[p->n_asked++] = text;
}

static clv_status make_room(prompts *p, int64_t n, clv_error *err)
{
    p->text = calloc((size_t)n, sizeof *p->text);
    p->asked = calloc((size_t)n, sizeof *p->asked);
    return p->text && p->asked ? CLV_OK : clv_fail_memory(err, "prompts", (size_t)n * sizeof *p->text);
}

/* Lines of the file; the last may lack its end. */
static clv_status read_lines(prompts *p, const generate_args *a, clv_error *err)
{
    size_t size;
    int64_t lines = 1;
    CLV_TRY(clv_text_read(&p->content, &size, a->file, 0, err));
    for (size_t i = 0; i < size; i++)
        lines += p->content[i] == '\n';
    CLV_TRY(make_room(p, lines, err));
    for (char *line = p->content, *end = p->content + size; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line)), *last = stop ? stop : end;
        if (last > line && last[-1] == '\r') /* the end of a line on Windows */
            last[-1] = '\0';
        *last = '\0'; /* behind the file, too, there is a byte */
        add_prompt(p, line);
        line = last + 1;
    }
    return p->n_asked > 0 ? CLV_OK : clv_fail(err, CLV_EINVAL, "%s: no prompt; one a line is needed", a->file);
}

static clv_status read_prompts(prompts *p, const generate_args *a, clv_error *err)
{
    if (a->prompt && a->file)
        return clv_fail(err, CLV_EINVAL, "-p TEXT and -f FILE are both given; give one of them");
    if (!a->prompt && !a->file)
        return clv_fail(err, CLV_EINVAL, "a prompt is needed: -p TEXT, or -f FILE with one a line");
    if (a->file)
        return read_lines(p, a, err);
    if (a->prompt[0] == '\0')
        return clv_fail(err, CLV_EINVAL, "-p: the prompt is empty; give at least one byte");
    CLV_TRY(make_room(p, 1, err));
    add_prompt(p, a->prompt);
    return CLV_OK;
}

/* ---- while it runs ---- */

/* A single prompt and its text as they come, or how many texts are done. */
typedef struct display {
    bool stream;
    clv_shown_text shown;
    clv_progress progress;
    int64_t done;
    const clv_model *model; /* that runs; NULL: what there is to note of it was said */
    const clv_model_option *option;
    const char *command;
} display;

static int show(void *arg, int64_t prompt, const char *text, size_t size, int last)
{
    display *d = arg;
    (void)prompt;
    if (d->model) /* prompts come first, when nothing asked for is at fault */
        clv_model_option_notes(d->model, d->option, d->command);
    d->model = NULL;
    if (d->stream) {
        clv_print_text(&d->shown, text, size);
        fflush(stdout);
    } else if (last) {
        clv_progress_update(&d->progress, ++d->done, "");
    }
    return 0;
}

static void begin_display(display *d, const generate_args *a, const clv_model *model, const char *command,
                          const prompts *p)
{
    *d = (display){.stream = !a->file && !a->json, .model = model, .option = &a->model, .command = command};
    if (!d->stream)
        clv_progress_begin(&d->progress, "generate", p->n_asked);
}

static void end_display(display *d)
{
    if (d->stream)
        clv_print_text_end(&d->shown);
    else
        clv_progress_end(&d->progress);
}

/* ---- what came of it ---- */

/* JSON has no bytes that are not UTF-8: they become U+FFFD. */
static void add_text(clv_table *t, const char *key, const char *text)
{
    size_t size;
    char *repaired = clv_utf8_repair(&size, text ? text : "", text ? strlen(text) : 0);
    if (!repaired)
        return;
    clv_table_text(t, key, repaired);
    free(repaired);
}

static int print_json(const prompts *p, const clv_generation *g)
{
    clv_table *t = clv_table_new("texts");
    for (int64_t i = 0, asked = 0; i < p->n; i++) {
        bool empty = p->text[i][0] == '\0';
        clv_table_row(t);
        add_text(t, "prompt", p->text[i]);
        add_text(t, "text", empty ? "" : clv_generation_text(g, asked, NULL));
        clv_table_int(t, "prompt_tokens", empty ? 0 : clv_generation_prompt_tokens(g, asked));
        clv_table_int(t, "tokens", empty ? 0 : clv_generation_tokens(g, asked));
        asked += !empty;
    }
    return clv_table_finish(t, &(clv_table_form){.json = true});
}

static void print_texts(const char *prompt, const char *text)
{
    clv_shown_text shown = {0};
    clv_print_text(&shown, prompt, strlen(prompt));
    clv_print_text(&shown, text, strlen(text));
    clv_print_text_end(&shown);
}

/* On stderr: how fast it was, and texts that the context ended. */
static void report_speed(const prompts *p, const clv_generation *g)
{
    int64_t read = 0, made = 0, full = 0;
    clv_generate_seconds s = clv_generation_seconds(g);
    for (int64_t i = 0; i < p->n_asked; i++) {
        read += clv_generation_prompt_tokens(g, i);
        made += clv_generation_tokens(g, i);
        full += clv_generation_finish(g, i) == CLV_FINISH_CONTEXT;
    }
    if (full > 0)
        fprintf(stderr, "note: %lld text%s because the context is full (-c)\n", (long long)full,
                full == 1 ? " ends" : "s end");
    fprintf(stderr, "prompt %.0f tokens/s, generated %.0f tokens/s, %.0f %% of the time in sync%s\n",
            (double)read / s.prompt, s.decode > 0 ? (double)made / s.decode : 0, 100 * s.sync / (s.prompt + s.decode),
            clv_stops_note());
}

/* What was not streamed. */
static int report(const prompts *p, const generate_args *a, const clv_generation *g)
{
    int code = CLV_EXIT_OK;
    for (int64_t i = 0, asked = 0; i < p->n && !a->json; i++) {
        if (a->file && p->text[i][0] != '\0')
            print_texts(p->text[i], clv_generation_text(g, asked++, NULL));
        putchar('\n');
    }
    if (a->json)
        code = print_json(p, g);
    fflush(stdout);
    report_speed(p, g);
    return code;
}

static clv_status write_texts(clv_generation **out, const generate_args *a, const clv_model *model, const prompts *p,
                              const char *command, clv_error *err)
{
    display d;
    clv_generator *g;
    const clv_tokenizer *tokenizer;
    clv_sampling sampling = {.size = sizeof sampling,
                             .temperature = a->temperature,
                             .top_k = a->top_k,
                             .top_p = a->top_p,
                             .min_p = a->min_p,
                             .repetition_penalty = a->penalty,
                             .seed = (uint64_t)a->seed};
    clv_generate_options options = {.size = sizeof options,
                                    .sampling = &sampling,
                                    .max_tokens = a->n > 0 ? a->n : -1,
                                    .batch = a->batch,
                                    .context = a->context,
                                    .stops = a->stops.item,
                                    .n_stops = a->stops.n,
                                    .echo = 1,
                                    .on_text = show,
                                    .on_text_arg = &d};
    CLV_TRY(clv_model_tokenizer(&tokenizer, model, err));
    clv_machine *machine;
    CLV_TRY(clv_generator_new(&g, model, NULL, err));
    clv_status status = clv_hardware_option_open(&machine, a->model.hardware, err);
    const clv_trace_options trace = {.size = sizeof trace, .path = a->trace_out, .machine = machine};
    options.trace = a->trace_out ? &trace : NULL;
    begin_display(&d, a, model, command, p);
    if (status == CLV_OK)
        status = clv_generate(out, g, p->asked, p->n_asked, &options, err);
    end_display(&d);
    clv_generator_free(g);
    clv_machine_free(machine);
    return status;
}

static clv_status run(const generate_args *a, const clv_model *model, const char *command, int *code, clv_error *err)
{
    prompts p = {0};
    clv_generation *g = NULL;
    for (int i = 0; i < a->stops.n; i++)
        if (a->stops.item[i][0] == '\0')
            return clv_fail(err, CLV_EINVAL, "--stop: the text is empty; give at least one byte");
    clv_status status = read_prompts(&p, a, err);
    if (status == CLV_OK)
        status = write_texts(&g, a, model, &p, command, err);
    if (status == CLV_OK)
        *code = report(&p, a, g);
    clv_generation_free(g);
    free_prompts(&p);
    return status;
}

int command_generate(int argc, char **argv)
{
    generate_args a = {.model = CLV_MODEL_GENERATES,
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
    clv_status status = clv_model_option_open(&model, &a.model, &err);
    if (status == CLV_OK)
        status = run(&a, model, argv[0], &code, &err);
    clv_model_close(model);
    return status == CLV_OK ? code : clv_command_report(argv[0], &err);
}
