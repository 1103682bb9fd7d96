/* bench_llama_table.c - the `cleave bench -m DIR` benchmark: prefill and decode speed as a table in llama-bench's
 * format.
 */
#include <math.h>

#include "cleave/generate.h"
#include "cleave/import.h"
#include "cli/timing/generation_timing.h"
#include "cli/command.h"
#include "cli/job/job_processes.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/options/run_options.h"
#include "cli/output/terminal.h"
#include "cli/timing/clock.h"

enum { MOST_REPETITIONS = 1000 };

typedef struct model_args {
    clv_model_option model;
    int64_t prompt, n, batch, repetitions;
    const char *output;
} model_args;

/* Tokens a second of one of the two tests. */
typedef struct tested {
    char name[32]; /* "pp512" */
    double mean, deviation, median;
} tested;

typedef struct results {
    char model[96];
    double bytes, parameters;
    int64_t threads;
    int n;
    tested test[2];
} results;

static bool parse(model_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "model folder: config.json and safetensors"),
        CLV_WORKLOAD_OPTIONS(a, 0, "tokens of the prompt; 0: skip this test (512)",
                             "tokens to decode, after one; 0: skip this test (128)", MOST_REPETITIONS,
                             "repetitions of each test (5)"),
        CLV_OPT_CHOICE("-o, --output", &a->output, "md|json|csv", "format of the table (md)"),
        CLV_JSON_OPTION(&run->format.json, "--output", "the same as -o json"),
        CLV_WIDE_OPTION(&run->format.wide, "--json"),
        CLV_MODEL_TIMED_OPTIONS(&a->model, CLV_RULES_OPTION),
    };
    return CLV_PARSE(run, options);
}

/* Mean and standard deviation of rates, as llama-bench prints them; sorts the times. */
static void sum_up(tested *out, double tokens, double *seconds, int64_t n)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += tokens / seconds[i];
    out->mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (tokens / seconds[i] - out->mean) * (tokens / seconds[i] - out->mean);
    out->deviation = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    clv_times_sort(seconds, n);
    out->median = tokens / seconds[n / 2];
}

/* Times a prompt, or decoding. llama-bench decodes into an empty context; here one token precedes, which is not timed.
 * */
static clv_status test(results *r, clv_generator *g, const model_args *a, bool writes, int64_t vocab, clv_error *err)
{
    int64_t n = writes ? a->n : a->prompt;
    clv_generation_workload work = {.prompt = writes ? 1 : n, .n = writes ? n : 0, a->batch, a->repetitions};
    clv_generation_timing times;
    if (n == 0)
        return CLV_OK;
    CLV_TRY(clv_generation_timing_measure(&times, g, &work, vocab, err));
    tested *out = &r->test[r->n++];
    snprintf(out->name, sizeof out->name, "%s%lld", writes ? "tg" : "pp", (long long)n);
    sum_up(out, (double)(n * a->batch), writes ? times.decode : times.prefill, a->repetitions);
    clv_generation_timing_free(&times);
    return CLV_OK;
}

static clv_status describe(results *r, const clv_model *model, const model_args *a, int64_t *vocab, clv_error *err)
{
    clv_model_info info = {.size = sizeof info};
    CLV_TRY(clv_model_get_info(model, &info, err));
    *vocab = info.vocab;
    r->parameters = (double)info.parameters;
    r->bytes = (double)clv_model_weights_memory_bytes(model);
    r->threads = clv_mesh_rank_count(clv_model_mesh(model)) * a->model.threads;
    const char *unit = r->parameters >= 1e9 ? "B" : r->parameters >= 1e6 ? "M" : "K";
    double in = r->parameters >= 1e9 ? 1e9 : r->parameters >= 1e6 ? 1e6 : 1e3;
    snprintf(r->model, sizeof r->model, "%s %.3g%s %s", info.family, r->parameters / in, unit,
             clv_model_quant(model) == CLV_QUANT_NONE ? clv_dtype_name(a->model.options.dtype)
                                                      : clv_quant_name(clv_model_quant(model)));
    return CLV_OK;
}

static clv_status measure(results *r, model_args *a, const char *command, clv_error *err)
{
    int64_t context = a->prompt > a->n + 1 ? a->prompt : a->n + 1, vocab = 1;
    clv_generator_options options = {.size = sizeof options, .batch = a->batch, .context = context, .split_logits = 1};
    clv_generator *g = NULL;
    clv_model *model;
    CLV_TRY(clv_model_option_open(&model, &a->model, err));
    clv_status status = describe(r, model, a, &vocab, err);
    if (status == CLV_OK)
        status = clv_generator_new(&g, model, &options, err);
    if (status == CLV_OK)
        clv_model_option_warnings(model, &a->model, command);
    if (status == CLV_OK)
        status = test(r, g, a, false, vocab, err);
    if (status == CLV_OK)
        status = test(r, g, a, true, vocab, err);
    clv_generator_free(g);
    clv_model_close(model);
    return status;
}

static clv_table *rows(const results *r)
{
    clv_table *t = clv_table_new("tests");
    for (int i = 0; i < r->n; i++) {
        clv_table_begin_row(t);
        clv_table_text(t, "model", r->model);
        clv_table_int(t, "size", (int64_t)r->bytes);
        clv_table_int(t, "params", (int64_t)r->parameters);
        clv_table_text(t, "backend", "CPU");
        clv_table_int(t, "threads", r->threads);
        clv_table_text(t, "test", r->test[i].name);
        clv_table_real(t, "avg_ts", r->test[i].mean);
        clv_table_real(t, "stddev_ts", r->test[i].deviation);
        clv_table_real(t, "median_ts", r->test[i].median);
    }
    return t;
}

enum { COLUMNS = 7, BACKEND = 3, CELL = 96 };

typedef struct markdown {
    char cell[2][COLUMNS][CELL];
    int width[COLUMNS];
    bool left_out[COLUMNS];
} markdown;

static const struct {
    const char *name;
    int width; /* that llama-bench gives it */
    bool words;
} columns[COLUMNS] = {{"model", 30, true},   {"size", 10, false}, {"params", 10, false}, {"backend", 10, true},
                      {"threads", 7, false}, {"test", 15, false}, {"t/s", 20, false}};

static void fill_row(char cell[COLUMNS][CELL], const results *r, const tested *t)
{
    snprintf(cell[0], CELL, "%s", r->model);
    snprintf(cell[1], CELL, r->bytes >= 1 << 30 ? "%.2f GiB" : "%.2f MiB",
             r->bytes / (r->bytes >= 1 << 30 ? 1 << 30 : 1 << 20));
    snprintf(cell[2], CELL, r->parameters >= 1e9 ? "%.2f B" : "%.2f M",
             r->parameters / (r->parameters >= 1e9 ? 1e9 : 1e6));
    snprintf(cell[BACKEND], CELL, "CPU");
    snprintf(cell[4], CELL, "%lld", (long long)r->threads);
    snprintf(cell[5], CELL, "%s", t->name);
    snprintf(cell[6], CELL, "%.2f \xc2\xb1 %.2f", t->mean, t->deviation);
}

static int markdown_width(const markdown *m)
{
    int width = 1;
    for (int c = 0; c < COLUMNS; c++)
        width += m->left_out[c] ? 0 : m->width[c] + 3;
    return width;
}

/* llama-bench's widths if the terminal has room, else the narrowest, at last without the column that is always CPU. */
static void fit_markdown(markdown *m, int rows, int width)
{
    for (int c = 0; c < COLUMNS; c++)
        m->width[c] = columns[c].width;
    if (width == 0 || markdown_width(m) <= width)
        return;
    for (int c = 0; c < COLUMNS; c++) {
        m->width[c] = (int)strlen(columns[c].name);
        for (int r = 0; r < rows; r++) {
            int cell = clv_text_width(m->cell[r][c]);
            m->width[c] = cell > m->width[c] ? cell : m->width[c];
        }
    }
    m->left_out[BACKEND] = markdown_width(m) > width;
}

static void print_markdown_row(const markdown *m, char (*cell)[CELL])
{
    for (int c = 0; c < COLUMNS; c++) {
        const char *text = cell ? cell[c] : columns[c].name;
        int blanks = m->width[c] - clv_text_width(text);
        blanks = blanks > 0 ? blanks : 0;
        if (!m->left_out[c])
            printf("| %*s%s%*s ", columns[c].words ? 0 : blanks, "", text, columns[c].words ? blanks : 0, "");
    }
    printf("|\n");
}

/* Prints a table as llama-bench does. */
static void print_markdown(const results *r, bool wide)
{
    char dashes[CELL];
    memset(dashes, '-', sizeof dashes);
    markdown m = {0};
    if (!clv_processes_is_first())
        return;
    for (int i = 0; i < r->n; i++)
        fill_row(m.cell[i], r, &r->test[i]);
    fit_markdown(&m, r->n, wide ? 0 : clv_terminal_width(stdout));
    print_markdown_row(&m, NULL);
    for (int c = 0; c < COLUMNS; c++)
        if (!m.left_out[c])
            printf("| %.*s%s ", m.width[c] - !columns[c].words, dashes, columns[c].words ? "" : ":");
    printf("|\n");
    for (int i = 0; i < r->n; i++)
        print_markdown_row(&m, m.cell[i]);
}

static bool names_program(const clv_invocation *run)
{
    for (int i = 1; i < run->argc; i++)
        if (clv_import_is_program(run->argv[i]))
            return true;
    return false;
}

clv_status bench_llama_table(clv_invocation *run, clv_error *err)
{
    model_args a = {
        .model.mesh.whole_sequences = true, .prompt = 512, .n = 128, .batch = 1, .repetitions = 5, .output = "md"};
    results r = {0};
    if (names_program(run))
        return bench_program(run, err);
    if (!parse(&a, run))
        return CLV_OK;
    if (a.prompt == 0 && a.n == 0)
        return clv_fail(err, CLV_EINVAL, "-p 0 and -n 0 leave nothing to test");
    CLV_TRY(measure(&r, &a, run->name, err));
    run->format.json = run->format.json || strcmp(a.output, "json") == 0;
    run->format.csv = strcmp(a.output, "csv") == 0;
    if (run->format.json || run->format.csv)
        run->table = rows(&r);
    else
        print_markdown(&r, run->format.wide);
    return CLV_OK;
}
