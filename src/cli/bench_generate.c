/* bench_generate.c - cleave bench generate: a model folder loaded, a prompt fed, tokens decoded one by one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cleave/generate.h"
#include "cleave/status.h"
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/mesh_option.h"
#include "cli/model_option.h"
#include "cli/options.h"
#include "cli/output_option.h"
#include "cli/resident.h"
#include "cli/run_option.h"
#include "cli/table.h"

typedef struct generate_args {
    clv_model_option model;
    int64_t prompt, n, batch, repetitions;
    bool json;
} generate_args;

typedef struct measured {
    double load_seconds, prefill_seconds, decode_seconds; /* medians of repetitions, decode for all n */
    double memcpy_seconds; /* of as many bytes as were loaded, into new memory as the weights are */
    int64_t resident;      /* the peak, less what there was before */
} measured;

static int parse(generate_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "a folder with config.json and safetensors"),
        {.names = "-p, --n-prompt",
         .kind = CLV_OPTION_INT,
         .out = &a->prompt,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .help = "tokens of the prompt (512)"},
        {.names = "-n, --n-gen",
         .kind = CLV_OPTION_INT,
         .out = &a->n,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .help = "tokens decoded after it (64)"},
        {.names = "-b, --batch",
         .kind = CLV_OPTION_INT,
         .out = &a->batch,
         .min = 1,
         .max = 1 << 16,
         .value = "N",
         .help = "sequences side by side (1)"},
        {.names = "-r, --repetitions",
         .kind = CLV_OPTION_INT,
         .out = &a->repetitions,
         .min = 1,
         .max = 1000,
         .value = "N",
         .help = "the median counts (3)"},
        CLV_MESH_OPTIONS(&a->model.mesh),
        CLV_RULES_OPTION(&a->model.mesh),
        CLV_THREADS_OPTION(&a->model.run.threads, NULL),
        CLV_DTYPE_OPTION(&a->model.dtype),
        CLV_QUANT_OPTION(&a->model.quant),
        CLV_COMM_DTYPE_OPTION(&a->model.comm_dtype, NULL),
        CLV_PRICES_OPTION(&a->model.hardware),
        CLV_JSON_OPTION(&a->json),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* As decoding does, though the tokens that follow are given. */
static clv_status choose(clv_generator *g, int64_t batch, clv_error *err)
{
    int64_t token;
    for (int64_t b = 0; b < batch; b++)
        CLV_TRY(clv_generator_sample(g, b, NULL, &token, err));
    return CLV_OK;
}

static clv_status once(clv_generator *g, const generate_args *a, const int64_t *ids, double *prefill, double *decode,
                       clv_error *err)
{
    clv_generator_rewind(g);
    double start = clv_clock_seconds();
    for (int64_t b = 0; b < a->batch; b++)
        CLV_TRY(clv_generator_feed(g, b, ids, a->prompt, err));
    CLV_TRY(clv_generator_run(g, err));
    double fed = clv_clock_seconds();
    for (int64_t i = 0; i < a->n; i++) {
        CLV_TRY(choose(g, a->batch, err));
        for (int64_t b = 0; b < a->batch; b++)
            CLV_TRY(clv_generator_feed(g, b, ids + i % a->prompt, 1, err));
        CLV_TRY(clv_generator_run(g, err));
    }
    *prefill = fed - start;
    *decode = clv_clock_seconds() - fed;
    return CLV_OK;
}

/* Once to compile and to warm up, then the timed repetitions. */
static clv_status repeat(measured *m, clv_generator *g, const generate_args *a, int64_t vocab, clv_error *err)
{
    int64_t *ids = malloc((size_t)a->prompt * sizeof *ids);
    double *prefill = calloc((size_t)a->repetitions, sizeof *prefill);
    double *decode = calloc((size_t)a->repetitions, sizeof *decode);
    clv_status status = CLV_OK;
    if (!ids || !prefill || !decode)
        status = clv_fail_memory(err, "timings", (size_t)a->prompt * sizeof *ids);
    for (int64_t i = 0; status == CLV_OK && i < a->prompt; i++)
        ids[i] = (7919 * i + 1) % vocab;
    for (int64_t i = -1; status == CLV_OK && i < a->repetitions; i++)
        status = once(g, a, ids, &prefill[i < 0 ? 0 : i], &decode[i < 0 ? 0 : i], err);
    if (status == CLV_OK) {
        clv_times_sort(prefill, a->repetitions);
        clv_times_sort(decode, a->repetitions);
        m->prefill_seconds = prefill[a->repetitions / 2];
        m->decode_seconds = decode[a->repetitions / 2];
    }
    free(ids);
    free(prefill);
    free(decode);
    return status;
}

/* Memory that was not touched before, on huge pages where the system grants them, as weights are. */
static void *new_pages(size_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    void *p = NULL;
    if (posix_memalign(&p, huge, bytes) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(p, bytes / huge * huge, MADV_HUGEPAGE);
#endif
    return p;
}

/* One thread's memcpy into memory that was not touched before. */
static clv_status time_memcpy(double *seconds, size_t bytes, clv_error *err)
{
    char *from = new_pages(bytes + 1), *to = new_pages(bytes + 1);
    if (from && to) {
        memset(from, 1, bytes);
        double start = clv_clock_seconds();
        memcpy(to, from, bytes);
        *seconds = clv_clock_seconds() - start;
    }
    free(from);
    free(to);
    return from && to ? CLV_OK : clv_fail_memory(err, "a copy", bytes);
}

/* Loads and runs; *read receives the bytes of weights. */
static clv_status load_and_run(measured *m, generate_args *a, const char *command, size_t *read, clv_error *err)
{
    clv_generator_options options = {
        .size = sizeof options, .batch = a->batch, .context = a->prompt + a->n, .split_logits = 1};
    clv_model_info info = {.size = sizeof info};
    clv_generator *g = NULL;
    clv_model *model = NULL;
    double start = clv_clock_seconds();
    clv_status status = clv_model_option_open(&model, &a->model, err);
    if (status == CLV_OK)
        status = clv_generator_new(&g, model, &options, err);
    m->load_seconds = clv_clock_seconds() - start;
    if (status == CLV_OK)
        status = clv_model_describe(model, &info, err);
    if (status == CLV_OK)
        clv_model_option_notes(model, &a->model, command);
    if (status == CLV_OK)
        status = repeat(m, g, a, info.vocab, err);
    *read = (size_t)clv_model_bytes_read(model);
    clv_generator_free(g);
    clv_model_close(model);
    return status;
}

static clv_status measure(measured *m, generate_args *a, const char *command, clv_error *err)
{
    size_t bytes;
    int64_t before = clv_resident_bytes();
    clv_resident_watch *watch = clv_resident_watch_start();
    clv_status status = load_and_run(m, a, command, &bytes, err);
    m->resident = clv_resident_watch_peak(watch) - before;
    return status == CLV_OK ? time_memcpy(&m->memcpy_seconds, bytes, err) : status;
}

int bench_generate(int argc, char **argv)
{
    generate_args a = {.model = CLV_MODEL_DEFAULTS, .prompt = 512, .n = 64, .batch = 1, .repetitions = 3};
    clv_error err = {0};
    measured m = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    if (measure(&m, &a, argv[0], &err) != CLV_OK)
        return clv_command_report(argv[0], &err);
    clv_table *t = clv_table_new(NULL);
    clv_table_real(t, "load_s", m.load_seconds);
    clv_table_real(t, "memcpy_s", m.memcpy_seconds);
    clv_table_real(t, "prefill_tokens_per_s", (double)(a.batch * a.prompt) / m.prefill_seconds);
    clv_table_real(t, "decode_tokens_per_s", (double)(a.batch * a.n) / m.decode_seconds);
    clv_table_bytes(t, "peak_resident_bytes", (double)m.resident);
    return clv_table_finish(t, a.json);
}
