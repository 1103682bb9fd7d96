/* bench_generate.c - the `cleave bench generate` benchmark: load time, prefill and decode speed of a model folder. */
#include <sys/mman.h>

#include "cleave/generate.h"
#include "cli/timing/generation_timing.h"
#include "cli/bench/resident_memory.h"
#include "cli/command.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/options/run_options.h"
#include "cli/timing/clock.h"

typedef struct generate_args {
    clv_model_option model;
    clv_generation_workload work;
    bool ops;
} generate_args;

typedef struct measured {
    double load_seconds, prefill_seconds, decode_seconds; /* medians of repetitions, decode for all n */
    double first_seconds;  /* from before the load until the first token behind the prompt is known */
    double memcpy_seconds; /* of as many bytes as were loaded, into new memory as the weights are */
    int64_t resident;      /* the peak, less what there was before */
} measured;

static bool parse(generate_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "model folder: config.json and safetensors"),
        CLV_WORKLOAD_OPTIONS(&a->work, 1, "tokens of the prompt (512)", "tokens to decode (64)", 1000,
                             "repetitions, of which the median counts (3)"),
        CLV_MODEL_TIMED_OPTIONS(&a->model, CLV_RULES_OPTION),
        CLV_OPT_FLAG("--ops", &a->ops, "print the time of each op of a decoded token"),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
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

/* Medians. */
static clv_status repeat(measured *m, clv_generator *g, const clv_generation_workload *work, int64_t vocab,
                         clv_error *err)
{
    clv_generation_timing times = {0};
    CLV_TRY(clv_generation_timing_measure(&times, g, work, vocab, err));
    clv_times_sort(times.prefill, work->repetitions);
    clv_times_sort(times.decode, work->repetitions);
    m->prefill_seconds = times.prefill[work->repetitions / 2];
    m->decode_seconds = times.decode[work->repetitions / 2];
    m->first_seconds = m->load_seconds + times.first;
    clv_generation_timing_free(&times);
    return CLV_OK;
}

/* Loads and runs; *read receives the bytes of weights, the table its ops where they are asked for. */
static clv_status load_and_run(measured *m, clv_table *t, generate_args *a, const char *command, size_t *read,
                               clv_error *err)
{
    clv_generator_options options = {
        .size = sizeof options, .batch = a->work.batch, .context = a->work.prompt + a->work.n, .split_logits = 1};
    clv_model_info info = {.size = sizeof info};
    clv_generator *g = NULL;
    clv_model *model = NULL;
    double start = clv_clock_seconds();
    clv_status status = clv_model_option_open(&model, &a->model, err);
    if (status == CLV_OK)
        status = clv_generator_new(&g, model, &options, err);
    m->load_seconds = clv_clock_seconds() - start;
    if (status == CLV_OK)
        status = clv_model_get_info(model, &info, err);
    if (status == CLV_OK)
        clv_model_option_warnings(model, &a->model, command);
    if (status == CLV_OK)
        status = repeat(m, g, &a->work, info.vocab, err);
    if (status == CLV_OK && a->ops)
        status = clv_generation_op_times_add(t, g, &a->work, info.vocab, err);
    *read = (size_t)clv_model_bytes_read(model);
    clv_generator_free(g);
    clv_model_close(model);
    return status;
}

static clv_status measure(measured *m, clv_table *t, generate_args *a, const char *command, clv_error *err)
{
    size_t bytes;
    int64_t before = clv_resident_bytes();
    clv_resident_watch *watch = clv_resident_watch_start();
    clv_status status = load_and_run(m, t, a, command, &bytes, err);
    m->resident = clv_resident_watch_stop(watch) - before;
    return status == CLV_OK ? time_memcpy(&m->memcpy_seconds, bytes, err) : status;
}

clv_status bench_generate(clv_invocation *run, clv_error *err)
{
    generate_args a = {.model.mesh.whole_sequences = true, .work = {512, 64, 1, 3}};
    measured m = {0};
    if (!parse(&a, run))
        return CLV_OK;
    a.model.workload =
        (clv_plan_options){.mode = CLV_PLAN_MODE_DECODE, .batch = a.work.batch, .seq = a.work.prompt + a.work.n};
    clv_table *t = run->table = clv_table_new(NULL);
    CLV_TRY(measure(&m, t, &a, run->name, err));
    clv_table_begin_top_level(t);
    clv_table_real(t, "load_s", m.load_seconds);
    clv_table_real(t, "memcpy_s", m.memcpy_seconds);
    clv_table_real(t, "first_token_s", m.first_seconds);
    clv_table_real(t, "prefill_tokens_per_s", (double)(a.work.batch * a.work.prompt) / m.prefill_seconds);
    clv_table_real(t, "decode_tokens_per_s", (double)(a.work.batch * a.work.n) / m.decode_seconds);
    clv_table_bytes(t, "peak_resident_bytes", (double)m.resident);
    return CLV_OK;
}
