#include "cli/generate_times.h"

#include <stdlib.h>

#include "cleave/status.h"
#include "cli/clock.h"

void clv_generate_times_free(clv_generate_times *times)
{
    free(times->prefill);
    free(times->decode);
    *times = (clv_generate_times){0};
}

/* As decoding does, though the tokens that follow are given. */
static clv_status choose(clv_generator *g, int64_t batch, clv_error *err)
{
    int64_t token;
    for (int64_t b = 0; b < batch; b++)
        CLV_TRY(clv_generator_sample(g, b, NULL, &token, err));
    return CLV_OK;
}

clv_status clv_generate_work_run(clv_generator *g, const clv_generate_work *work, const int64_t *ids, double *prefill,
                                 double *decode, clv_error *err)
{
    clv_generator_rewind(g);
    double start = clv_clock_seconds();
    for (int64_t b = 0; b < work->batch; b++)
        CLV_TRY(clv_generator_feed(g, b, ids, work->prompt, err));
    CLV_TRY(clv_generator_run(g, err));
    double fed = clv_clock_seconds();
    for (int64_t i = 0; i < work->n; i++) {
        CLV_TRY(choose(g, work->batch, err));
        for (int64_t b = 0; b < work->batch; b++)
            CLV_TRY(clv_generator_feed(g, b, ids + i % work->prompt, 1, err));
        CLV_TRY(clv_generator_run(g, err));
    }
    *prefill = fed - start;
    *decode = clv_clock_seconds() - fed;
    return CLV_OK;
}

clv_status clv_generate_times_take(clv_generate_times *out, clv_generator *g, const clv_generate_work *work,
                                   int64_t vocab, clv_error *err)
{
    size_t n = (size_t)work->repetitions;
    int64_t *ids = malloc((size_t)work->prompt * sizeof *ids);
    clv_generate_times t = {.prefill = calloc(n, sizeof(double)), .decode = calloc(n, sizeof(double))};
    clv_status status = CLV_OK;
    double decode;
    if (!ids || !t.prefill || !t.decode)
        status = clv_fail_memory(err, "timings", (size_t)work->prompt * sizeof *ids);
    for (int64_t i = 0; status == CLV_OK && i < work->prompt; i++)
        ids[i] = (7919 * i + 1) % vocab;
    if (status == CLV_OK)
        status = clv_generate_work_run(g, work, ids, &t.first, &decode, err);
    for (int64_t i = 0; status == CLV_OK && i < work->repetitions; i++)
        status = clv_generate_work_run(g, work, ids, &t.prefill[i], &t.decode[i], err);
    free(ids);
    if (status == CLV_OK)
        *out = t;
    else
        clv_generate_times_free(&t);
    return status;
}
