/* command_generate.c - the `cleave generate` command: text generation from a checkpoint. */
#include "cleave/generate.h"
#include "cleave/text.h"
#include "cli/command.h"
#include "cli/input/prompts.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/options/run_options.h"
#include "cli/output/progress.h"
#include "cli/timing/suspensions.h"

typedef struct generate_args {
    clv_model_option model;
    const char *prompt, *file, *trace_out;
    clv_strings stops;
    int64_t n, context, seed, top_k, batch;
    double temperature, top_p, min_p, penalty;
    bool json; /* not streamed */
} generate_args;

static bool parse(generate_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "model folder: config.json and safetensors"),
        CLV_OPT_STRING("-p, --prompt", &a->prompt, "TEXT",
                       "text to continue, not empty; -: standard input, without its final newline; invalid UTF-8 "
                       "becomes U+FFFD, unless bytes are tokens",
                       .positional = CLV_POSITIONAL_SUGGESTED),
        CLV_OPT_INPUT("-f, --file", &a->file, "FILE",
                      "prompts, one a line, instead of -p; -: standard input; texts are printed in order, none for an "
                      "empty line"),
        CLV_OPT_INT("-b, --batch-size", &a->batch, 1, 1 << 16, "N", "prompts of a file that are processed at once (8)",
                    .conflicts_with = "--prompt"),
        CLV_OPT_INT("-n, --n-predict", &a->n, 0, 1 << 30, "N",
                    "tokens to generate (max_new_tokens of the model, or max_length less the prompt, else 128)"),
        CLV_MESH_OPTIONS(&a->model.mesh),
        CLV_RULES_OPTION(&a->model.mesh),
        CLV_OPT_INT("-c, --ctx-size", &a->context, 0, 1 << 30, "N",
                    "context size; 0: prompt + N, at most that of the model (0)"),
        CLV_OPT_REAL("--temp", &a->temperature, 0, 100, "T",
                     "temperature; 0: greedy, without the next three (that of the model, else 0.8)"),
        CLV_OPT_INT("--top-k", &a->top_k, 0, 1 << 30, "K",
                    "sample among the K most likely tokens, ties included; 0: all (that of the model, else 40)"),
        CLV_OPT_REAL(
            "--top-p", &a->top_p, 0, 1, "P",
            "nucleus sampling: the most likely tokens of total probability P; 1: all (that of the model, else 0.95)"),
        CLV_OPT_REAL("--min-p", &a->min_p, 0, 1, "P",
                     "sample among tokens at least P times as likely as the most likely one; 0: all (that of the "
                     "model, else 0)"),
        CLV_OPT_REAL("--repeat-penalty, --repetition-penalty", &a->penalty, 0.01, 100, "X",
                     "penalty of tokens in prompt and text; 1: none (that of the model, else 1)"),
        CLV_OPT_VALUE(STRINGS, "--stop", &a->stops, "TEXT",
                      "stop before this text (bash: $'\\n' is a newline); may be repeated (stop_strings of the model)"),
        CLV_SEED_OPTION(&a->seed, NULL, "seed of sampling (1)"),
        CLV_RUN_OPTIONS(&a->model),
        CLV_MODEL_PRECISION_OPTIONS(&a->model),
        CLV_TRACE_OUT_OPTION(&a->trace_out, NULL,
                             "write a trace to FILE, for cleave trace: a step is a prompt chunk, then a token"),
        CLV_JSON_OPTION(&a->json, NULL, "print JSON at the end"),
    };
    return CLV_PARSE(run, options);
}

/* ---- how tokens are chosen ---- */

/* What is not given is the folder's, or else as it has always been. */
enum { NOT_GIVEN = -1, USUAL_TOKENS = 128, USUAL_CONTEXT = 1024 };

static double given_or(double given, double other)
{
    return given == NOT_GIVEN ? other : given;
}

static clv_sampling sampling_of(const generate_args *a, const clv_generation_config *says)
{
    static const clv_sampling usual = {.temperature = 0.8, .top_k = 40, .top_p = 0.95};
    clv_sampling s = says->sampling ? *says->sampling : usual;
    s.size = sizeof s;
    s.temperature = given_or(a->temperature, s.temperature);
    s.top_k = a->top_k == NOT_GIVEN ? s.top_k : a->top_k;
    s.top_p = given_or(a->top_p, s.top_p);
    s.min_p = given_or(a->min_p, s.min_p);
    s.repetition_penalty = given_or(a->penalty, s.repetition_penalty);
    s.seed = (uint64_t)a->seed;
    if (a->top_p == 0)
        s.top_p = 1e-300; /* the likeliest; a clv_sampling's 0 is all */
    return s;
}

static int64_t tokens_of(const generate_args *a, const clv_generation_config *says)
{
    if (a->n != NOT_GIVEN)
        return a->n > 0 ? a->n : -1;
    return says->max_tokens || says->max_length ? 0 : USUAL_TOKENS;
}

typedef struct overridden_key {
    const char *key; /* NULL: the end */
    bool overridden; /* by an option */
} overridden_key;

/* value: "temperature 0.6", or "top_k 50 by default". */
static bool is_overridden(const char *value, const overridden_key *o)
{
    for (; o->key; o++)
        if (o->overridden && strcspn(value, " ") == strlen(o->key) && strncmp(value, o->key, strlen(o->key)) == 0)
            return true;
    return false;
}

static void print_config_note(const clv_generation_config *says, const overridden_key *overridden, const char *command)
{
    char *text = NULL;
    size_t size;
    int used = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return;
    for (int64_t i = 0; i < says->n_values; i++)
        if (!is_overridden(says->values[i], overridden))
            fprintf(out, "%s%s", used++ ? ", " : " sets ", says->values[i]);
    for (int64_t i = 0; i < says->n_unsupported; i++)
        fprintf(out, "%s%s",
                i      ? ", "
                : used ? "; not supported: "
                       : " sets values that are not supported: ",
                says->unsupported[i]);
    bool any = used > 0 || says->n_unsupported > 0;
    if (fclose(out) == 0 && any)
        clv_log("%s: note: %s%s", command, says->file, text);
    free(text);
}

/* Prints what generation_config.json sets, and what of it is not supported. */
static void note_generation(const generate_args *a, const clv_generation_config *says, const char *command)
{
    const bool temperature = a->temperature != NOT_GIVEN, greedy = a->temperature == 0, n = a->n != NOT_GIVEN;
    const overridden_key overridden[] = {{"do_sample", temperature},
                                         {"temperature", temperature},
                                         {"top_k", greedy || a->top_k != NOT_GIVEN},
                                         {"top_p", greedy || a->top_p != NOT_GIVEN},
                                         {"min_p", greedy || a->min_p != NOT_GIVEN},
                                         {"repetition_penalty", a->penalty != NOT_GIVEN},
                                         {"max_new_tokens", n},
                                         {"max_length", n},
                                         {"stop_strings", a->stops.n > 0},
                                         {NULL, false}};
    print_config_note(says, overridden, command);
}

/* ---- while it runs ---- */

/* A single prompt and its text as they come, or how many texts are done. */
typedef struct display {
    bool stream;
    clv_untrusted_text shown;
    clv_progress progress;
    int64_t done;
    const clv_model *model; /* that runs; NULL: what there is to note of it was said */
    const clv_generation_config *says;
    const generate_args *args;
    const char *command;
} display;

static int show(void *arg, int64_t prompt, const char *text, size_t size, int last)
{
    display *d = arg;
    if (d->model) { /* prompts come first, when nothing asked for is at fault */
        clv_model_option_warnings(d->model, &d->args->model, d->command);
        note_generation(d->args, d->says, d->command);
    }
    d->model = NULL;
    if (d->stream) {
        clv_print_untrusted(&d->shown, text, size);
        fflush(stdout);
    } else if (last) {
        clv_progress_update(&d->progress, ++d->done, "");
    }
    return 0;
}

static void begin_display(display *d, const generate_args *a, const clv_model *model, const clv_generation_config *says,
                          const char *command, const clv_prompts *p)
{
    *d = (display){.stream = !a->file && !a->json, .model = model, .says = says, .args = a, .command = command};
    if (!d->stream)
        clv_progress_begin(&d->progress, "generate", p->n_nonempty);
}

static void end_display(display *d)
{
    if (d->stream)
        clv_print_untrusted_end(&d->shown);
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

static clv_table *tabulate(const clv_prompts *p, const clv_generation *g)
{
    clv_table *t = clv_table_new("texts");
    for (int64_t i = 0, asked = 0; i < p->n; i++) {
        bool empty = p->text[i][0] == '\0';
        clv_table_begin_row(t);
        add_text(t, "prompt", p->text[i]);
        add_text(t, "text", empty ? "" : clv_generation_text(g, asked, NULL));
        clv_table_int(t, "prompt_tokens", empty ? 0 : clv_generation_prompt_tokens(g, asked));
        clv_table_int(t, "tokens", empty ? 0 : clv_generation_sampled_tokens(g, asked));
        asked += !empty;
    }
    return t;
}

static void print_texts(const char *prompt, const char *text)
{
    clv_untrusted_text shown = {0};
    clv_print_untrusted(&shown, prompt, strlen(prompt));
    clv_print_untrusted(&shown, text, strlen(text));
    clv_print_untrusted_end(&shown);
}

/* On stderr: how fast it was, and texts that the context ended. */
static void report_speed(const clv_prompts *p, const clv_generation *g)
{
    int64_t read = 0, made = 0, full = 0;
    clv_generate_seconds s = clv_generation_seconds(g);
    for (int64_t i = 0; i < p->n_nonempty; i++) {
        read += clv_generation_prompt_tokens(g, i);
        made += clv_generation_sampled_tokens(g, i);
        full += clv_generation_finish_reason(g, i) == CLV_FINISH_CONTEXT;
    }
    if (full > 0)
        fprintf(stderr, "note: %lld text%s because the context is full (-c)\n", (long long)full,
                full == 1 ? " ends" : "s end");
    fprintf(stderr, "prompt %.0f tokens/s, generated %.0f tokens/s, %.0f %% of the time in sync%s\n",
            (double)read / s.prompt, s.decode > 0 ? (double)made / s.decode : 0, 100 * s.sync / (s.prompt + s.decode),
            clv_suspensions_note());
}

/* What was not streamed. */
static void report(clv_invocation *run, const clv_prompts *p, const generate_args *a, const clv_generation *g)
{
    for (int64_t i = 0, asked = 0; i < p->n && !a->json; i++) {
        if (a->file && p->text[i][0] != '\0')
            print_texts(p->text[i], clv_generation_text(g, asked++, NULL));
        putchar('\n');
    }
    if (a->json)
        run->table = tabulate(p, g);
    fflush(stdout);
    report_speed(p, g);
}

static clv_status write_texts(clv_generation **out, const generate_args *a, const clv_model *model,
                              const clv_prompts *p, const char *command, clv_error *err)
{
    display d;
    clv_generator *g;
    const clv_tokenizer *tokenizer;
    clv_generation_config says = {.size = sizeof says};
    CLV_TRY(clv_model_generation_config(model, &says, err));
    const clv_sampling sampling = sampling_of(a, &says);
    clv_generate_options options = {.size = sizeof options,
                                    .sampling = &sampling,
                                    .max_tokens = tokens_of(a, &says),
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
    clv_status status = clv_hardware_option_open(&machine, a->model.hardware, NULL, err);
    const clv_trace_options trace = {.size = sizeof trace, .path = a->trace_out, .machine = machine};
    options.trace = a->trace_out ? &trace : NULL;
    begin_display(&d, a, model, &says, command, p);
    if (status == CLV_OK)
        status = clv_generate(out, g, p->asked, p->n_nonempty, &options, err);
    end_display(&d);
    clv_generator_free(g);
    clv_machine_free(machine);
    return status;
}

static clv_status generate(clv_invocation *run, const generate_args *a, const clv_model *model, clv_error *err)
{
    clv_prompts p = {0};
    clv_generation *g = NULL;
    for (int i = 0; i < a->stops.n; i++)
        if (a->stops.item[i][0] == '\0')
            return clv_fail(err, CLV_EINVAL, "--stop: the text is empty; give at least one byte");
    clv_status status = clv_prompts_read(&p, a->prompt, a->file, run->name, err);
    if (status == CLV_OK)
        status = write_texts(&g, a, model, &p, run->name, err);
    if (status == CLV_OK)
        report(run, &p, a, g);
    clv_generation_free(g);
    clv_prompts_free(&p);
    return status;
}

clv_status command_generate(clv_invocation *run, clv_error *err)
{
    generate_args a = {.model.mesh.whole_sequences = true,
                       .n = NOT_GIVEN,
                       .seed = 1,
                       .batch = 8,
                       .temperature = NOT_GIVEN,
                       .top_k = NOT_GIVEN,
                       .top_p = NOT_GIVEN,
                       .min_p = NOT_GIVEN,
                       .penalty = NOT_GIVEN};
    clv_model *model;
    if (!parse(&a, run))
        return CLV_OK;
    run->format.json = a.json;
    a.model.workload = (clv_plan_options){
        .mode = CLV_PLAN_MODE_DECODE, .batch = a.file ? a.batch : 1, .seq = a.context > 0 ? a.context : USUAL_CONTEXT};
    CLV_TRY(clv_model_option_open(&model, &a.model, err));
    clv_status status = generate(run, &a, model, err);
    clv_model_close(model);
    return status;
}
