/* bench_forward.c - the `cleave bench forward` benchmark: forward passes of a model folder on random ids. */
#include "cleave/forward.h"
#include "cli/command.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/options/run_options.h"
#include "cli/options/size_options.h"
#include "cli/timing/clock.h"

typedef struct forward_args {
    clv_model_option model;
    int64_t batch, seq, iterations;
} forward_args;

static bool parse(forward_args *a, clv_invocation *run)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "model folder: config.json and safetensors"),
        CLV_BATCH_OPTION(&a->batch, 1, 1 << 20, "N", "sequences (4)"),
        CLV_SEQ_OPTION(&a->seq, 1, 1 << 20, "N", "tokens a sequence (512)"),
        CLV_ITERATIONS_OPTION(&a->iterations, NULL),
        CLV_MODEL_TIMED_OPTIONS(&a->model, CLV_RULES_OPTIONS),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    return CLV_PARSE(run, options);
}

typedef struct timed {
    clv_forwarder *forwarder;
    clv_forward_batch batch;
    int32_t *ids;
    uint8_t *mask;
    float *hidden; /* the result */
} timed;

/* Ids of any vocabulary, without the first ones, which may be special. */
static clv_status make_batch(timed *t, const forward_args *a, const clv_model_info *info, clv_error *err)
{
    size_t n = (size_t)(a->batch * a->seq), hidden = n * (size_t)info->hidden;
    t->ids = calloc(n, sizeof *t->ids);
    t->mask = calloc(n, 1);
    t->hidden = malloc(hidden * sizeof *t->hidden);
    if (!t->ids || !t->mask || !t->hidden)
        return clv_fail_memory(err, "a batch", hidden * sizeof *t->hidden);
    int64_t first = info->vocab > 8 ? 4 : 0;
    for (size_t i = 0; i < n; i++)
        t->ids[i] = (int32_t)(first + (int64_t)(7919 * i) % (info->vocab - 2 * first));
    memset(t->mask, 1, n);
    t->batch =
        (clv_forward_batch){.size = sizeof t->batch, .batch = a->batch, .seq = a->seq, .ids = t->ids, .mask = t->mask};
    return CLV_OK;
}

static clv_status time_run(void *arg, int64_t i, double *seconds, clv_error *err)
{
    timed *t = arg;
    double start = clv_clock_seconds();
    CLV_TRY(clv_forwarder_run(t->forwarder, &t->batch, t->hidden, err));
    *seconds = clv_clock_seconds() - start;
    return CLV_OK;
}

static clv_status measure(double **seconds, forward_args *a, const char *command, clv_error *err)
{
    enum { WARM_UPS = 2 }; /* read weights and compile */
    clv_model_info info = {.size = sizeof info};
    clv_model *model;
    timed t = {0};
    CLV_TRY(clv_model_option_open(&model, &a->model, err));
    clv_status status = clv_model_get_info(model, &info, err);
    if (status == CLV_OK)
        status = make_batch(&t, a, &info, err);
    if (status == CLV_OK)
        status = clv_forwarder_new(&t.forwarder, model, NULL, err);
    if (status == CLV_OK) {
        clv_model_option_warnings(model, &a->model, command);
        status = clv_times_measure(seconds, WARM_UPS, a->iterations, time_run, &t, err);
    }
    clv_forwarder_free(t.forwarder);
    free(t.ids);
    free(t.mask);
    free(t.hidden);
    clv_model_close(model);
    return status;
}

clv_status bench_forward(clv_invocation *run, clv_error *err)
{
    forward_args a = {.batch = 4, .seq = 512, .iterations = 7};
    double *seconds;
    if (!parse(&a, run))
        return CLV_OK;
    a.model.workload = (clv_plan_options){.mode = CLV_PLAN_MODE_PREFILL, .batch = a.batch, .seq = a.seq};
    CLV_TRY(measure(&seconds, &a, run->name, err));
    double median = seconds[a.iterations / 2];
    run->table = clv_table_new(NULL);
    clv_table_real(run->table, "median_ms", 1e3 * median);
    clv_table_real(run->table, "min_ms", 1e3 * seconds[0]);
    clv_table_real(run->table, "tokens_per_s", (double)(a.batch * a.seq) / median);
    free(seconds);
    return CLV_OK;
}
