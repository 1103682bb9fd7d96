/* bench_forward.c - the `cleave bench forward` benchmark: forward passes of a model folder on random ids. */
#include <stdlib.h>
#include <string.h>

#include "cleave/forward.h"
#include "cleave/status.h"
#include "cli/command.h"
#include "cli/options/mesh_options.h"
#include "cli/options/model_options.h"
#include "cli/options/output_options.h"
#include "cli/options/run_options.h"
#include "cli/options/size_options.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"
#include "cli/timing/clock.h"

typedef struct forward_args {
    clv_model_option model;
    int64_t batch, seq, iterations;
    clv_table_format form;
} forward_args;

static int parse(forward_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        CLV_MODEL_OPTION(&a->model.path, "DIR", "a folder with config.json and safetensors"),
        CLV_BATCH_OPTION(&a->batch, 1, 1 << 20, "N", "sequences (4)"),
        CLV_SEQ_OPTION(&a->seq, 1, 1 << 20, "N", "tokens a sequence (512)"),
        {.names = "--iterations",
         .kind = CLV_OPTION_INT,
         .out = &a->iterations,
         .min = 1,
         .max = 1 << 20,
         .value = "N",
         .help = "timed runs (7)"},
        CLV_MODEL_TIMED_OPTIONS(&a->model, CLV_RULES_OPTIONS),
        CLV_FORMAT_OPTIONS(&a->form, "", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

/* What a run takes and gives. */
typedef struct tensors {
    int32_t *ids;
    uint8_t *mask;
    float *hidden;
} tensors;

static void free_tensors(tensors *t)
{
    free(t->ids);
    free(t->mask);
    free(t->hidden);
}

/* Ids that any vocabulary has, past its first ones, which may be special. */
static clv_status make_tensors(tensors *t, const forward_args *a, const clv_model_info *info, clv_error *err)
{
    size_t n = (size_t)(a->batch * a->seq), hidden = n * (size_t)info->hidden;
    *t = (tensors){calloc(n, sizeof *t->ids), calloc(n, 1), malloc(hidden * sizeof *t->hidden)};
    if (!t->ids || !t->mask || !t->hidden)
        return clv_fail_memory(err, "a batch", hidden * sizeof *t->hidden);
    int64_t first = info->vocab > 8 ? 4 : 0;
    for (size_t i = 0; i < n; i++)
        t->ids[i] = (int32_t)(first + (int64_t)(7919 * i) % (info->vocab - 2 * first));
    memset(t->mask, 1, n);
    return CLV_OK;
}

static clv_status time_runs(double *seconds, clv_forwarder *forwarder, const forward_args *a, const tensors *t,
                            clv_error *err)
{
    const clv_forward_batch batch = {
        .size = sizeof batch, .batch = a->batch, .seq = a->seq, .ids = t->ids, .mask = t->mask};
    for (int64_t i = -2; i < a->iterations; i++) { /* the first two read weights and make programs */
        double start = clv_clock_seconds();
        CLV_TRY(clv_forwarder_run(forwarder, &batch, t->hidden, err));
        seconds[i < 0 ? 0 : i] = clv_clock_seconds() - start;
    }
    clv_times_sort(seconds, a->iterations);
    return CLV_OK;
}

static clv_status measure(double *seconds, forward_args *a, const char *command, clv_error *err)
{
    clv_model_info info = {.size = sizeof info};
    clv_forwarder *forwarder = NULL;
    clv_model *model;
    tensors t = {0};
    CLV_TRY(clv_model_option_open(&model, &a->model, err));
    clv_status status = clv_model_get_info(model, &info, err);
    if (status == CLV_OK)
        status = make_tensors(&t, a, &info, err);
    if (status == CLV_OK)
        status = clv_forwarder_new(&forwarder, model, NULL, err);
    if (status == CLV_OK)
        clv_model_option_warnings(model, &a->model, command);
    if (status == CLV_OK)
        status = time_runs(seconds, forwarder, a, &t, err);
    clv_forwarder_free(forwarder);
    free_tensors(&t);
    clv_model_close(model);
    return status;
}

int bench_forward(int argc, char **argv)
{
    forward_args a = {.model = CLV_MODEL_DEFAULTS, .batch = 4, .seq = 512, .iterations = 7};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    double *seconds = calloc((size_t)a.iterations, sizeof *seconds);
    clv_status status =
        seconds ? measure(seconds, &a, argv[0], &err) : clv_fail_memory(&err, "timings", sizeof *seconds);
    if (status != CLV_OK) {
        free(seconds);
        return clv_command_print_error(argv[0], &err);
    }
    double median = seconds[a.iterations / 2];
    clv_table *t = clv_table_new(NULL);
    clv_table_real(t, "median_ms", 1e3 * median);
    clv_table_real(t, "min_ms", 1e3 * seconds[0]);
    clv_table_real(t, "tokens_per_s", (double)(a.batch * a.seq) / median);
    free(seconds);
    return clv_table_finish(t, &a.form);
}
