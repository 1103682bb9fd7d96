/* generation_timing.c - times prefill and decode of a generator over repetitions. */
#include "cli/timing/generation_timing.h"

#include <stdlib.h>

#include "cleave/status.h"
#include "cli/timing/clock.h"
#include "cli/timing/op_times.h"

void clv_generation_timing_free(clv_generation_timing *times)
{
    free(times->prefill);
    free(times->decode);
    *times = (clv_generation_timing){0};
}

/* As decoding does, though the tokens that follow are given. */
static clv_status choose(clv_generator *g, int64_t batch, clv_error *err)
{
    int64_t token;
    for (int64_t b = 0; b < batch; b++)
        CLV_TRY(clv_generator_sample(g, b, NULL, &token, err));
    return CLV_OK;
}

/* All sequences, at once. */
static clv_status feed(clv_generator *g, const clv_generation_workload *work, const int64_t *ids, int64_t n,
                       clv_error *err)
{
    for (int64_t b = 0; b < work->batch; b++)
        CLV_TRY(clv_generator_feed(g, b, ids, n, err));
    return clv_generator_run(g, err);
}

static clv_status decode_token(clv_generator *g, const clv_generation_workload *work, const int64_t *ids, int64_t i,
                               clv_error *err)
{
    CLV_TRY(choose(g, work->batch, err));
    return feed(g, work, ids + i % work->prompt, 1, err);
}

clv_status clv_generation_workload_run(clv_generator *g, const clv_generation_workload *work, const int64_t *ids,
                                       double *prefill, double *decode, clv_error *err)
{
    clv_generator_reset(g);
    double start = clv_clock_seconds();
    CLV_TRY(feed(g, work, ids, work->prompt, err));
    double fed = clv_clock_seconds();
    for (int64_t i = 0; i < work->n; i++)
        CLV_TRY(decode_token(g, work, ids, i, err));
    *prefill = fed - start;
    *decode = clv_clock_seconds() - fed;
    return CLV_OK;
}

/* NULL: out of memory. */
static int64_t *new_prompt(const clv_generation_workload *work, int64_t vocab)
{
    int64_t *ids = malloc((size_t)work->prompt * sizeof *ids);
    for (int64_t i = 0; ids && i < work->prompt; i++)
        ids[i] = (7919 * i + 1) % vocab;
    return ids;
}

static clv_status trace_tokens(clv_generator *g, const clv_generation_workload *work, const int64_t *ids,
                               clv_error *err)
{
    clv_session *session = clv_generator_session(g);
    clv_generator_reset(g);
    CLV_TRY(feed(g, work, ids, work->prompt, err));
    CLV_TRY(clv_trace_begin(session, err));
    for (int64_t i = 0; i < work->n; i++) {
        CLV_TRY(clv_trace_step(session, i, err));
        CLV_TRY(decode_token(g, work, ids, i, err));
        CLV_TRY(clv_trace_step(session, -1, err));
    }
    return CLV_OK;
}

clv_status clv_generation_op_times_add(clv_table *t, clv_generator *g, const clv_generation_workload *work,
                                       int64_t vocab, clv_error *err)
{
    int64_t *ids = new_prompt(work, vocab);
    clv_status status =
        ids ? trace_tokens(g, work, ids, err) : clv_fail_memory(err, "a prompt", (size_t)work->prompt * sizeof *ids);
    free(ids);
    return status == CLV_OK ? clv_op_times_add_and_end_trace(t, clv_generator_session(g), NULL, NULL, err) : status;
}

clv_status clv_generation_timing_measure(clv_generation_timing *out, clv_generator *g,
                                         const clv_generation_workload *work, int64_t vocab, clv_error *err)
{
    size_t n = (size_t)work->repetitions;
    int64_t *ids = new_prompt(work, vocab);
    clv_generation_timing t = {.prefill = calloc(n, sizeof(double)), .decode = calloc(n, sizeof(double))};
    clv_status status = CLV_OK;
    double decode;
    if (!ids || !t.prefill || !t.decode)
        status = clv_fail_memory(err, "timings", (size_t)work->prompt * sizeof *ids);
    if (status == CLV_OK)
        status = clv_generation_workload_run(g, work, ids, &t.first, &decode, err);
    for (int64_t i = 0; status == CLV_OK && i < work->repetitions; i++)
        status = clv_generation_workload_run(g, work, ids, &t.prefill[i], &t.decode[i], err);
    free(ids);
    if (status == CLV_OK)
        *out = t;
    else
        clv_generation_timing_free(&t);
    return status;
}
