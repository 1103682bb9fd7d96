#include "cli/generate_times.h"

#include <stdlib.h>

#include "cleave/status.h"
#include "cli/clock.h"
#include "cli/op_times.h"

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

/* All sequences, at once. */
static clv_status feed(clv_generator *g, const clv_generate_work *work, const int64_t *ids, int64_t n, clv_error *err)
{
    for (int64_t b = 0; b < work->batch; b++)
        CLV_TRY(clv_generator_feed(g, b, ids, n, err));
    return clv_generator_run(g, err);
}

static clv_status decode_token(clv_generator *g, const clv_generate_work *work, const int64_t *ids, int64_t i,
                               clv_error *err)
{
    CLV_TRY(choose(g, work->batch, err));
    return feed(g, work, ids + i % work->prompt, 1, err);
}

clv_status clv_generate_work_run(clv_generator *g, const clv_generate_work *work, const int64_t *ids, double *prefill,
                                 double *decode, clv_error *err)
{
    clv_generator_rewind(g);
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
static int64_t *new_prompt(const clv_generate_work *work, int64_t vocab)
{
    int64_t *ids = malloc((size_t)work->prompt * sizeof *ids);
    for (int64_t i = 0; ids && i < work->prompt; i++)
        ids[i] = (7919 * i + 1) % vocab;
    return ids;
}

static clv_status trace_tokens(clv_generator *g, const clv_generate_work *work, const int64_t *ids, clv_error *err)
{
    clv_session *session = clv_generator_session(g);
    clv_generator_rewind(g);
    CLV_TRY(feed(g, work, ids, work->prompt, err));
    CLV_TRY(clv_trace_begin(session, err));
    for (int64_t i = 0; i < work->n; i++) {
        CLV_TRY(clv_trace_step(session, i, err));
        CLV_TRY(decode_token(g, work, ids, i, err));
        CLV_TRY(clv_trace_step(session, -1, err));
    }
    return CLV_OK;
}

clv_status clv_generate_ops_take(clv_table *t, clv_generator *g, const clv_generate_work *work, int64_t vocab,
                                 clv_error *err)
{
    int64_t *ids = new_prompt(work, vocab);
    clv_status status =
        ids ? trace_tokens(g, work, ids, err) : clv_fail_memory(err, "a prompt", (size_t)work->prompt * sizeof *ids);
    free(ids);
    return status == CLV_OK ? clv_op_times_take(t, clv_generator_session(g), NULL, NULL, err) : status;
}

clv_status clv_generate_times_take(clv_generate_times *out, clv_generator *g, const clv_generate_work *work,
                                   int64_t vocab, clv_error *err)
{
    size_t n = (size_t)work->repetitions;
    int64_t *ids = new_prompt(work, vocab);
    clv_generate_times t = {.prefill = calloc(n, sizeof(double)), .decode = calloc(n, sizeof(double))};
    clv_status status = CLV_OK;
    double decode;
    if (!ids || !t.prefill || !t.decode)
        status = clv_fail_memory(err, "timings", (size_t)work->prompt * sizeof *ids);
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
