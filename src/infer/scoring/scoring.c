/* scoring.c - option defaults and batches of rows shared by perplexity, pseudo-likelihood and masked marginals. */
#include "infer/scoring/scoring.h"

#include <stdio.h>

clv_status clv_scoring_begin(clv_scoring_call *out, clv_forwarder *forwarder, clv_forward_result result,
                             const clv_score_options *options, const char *call, clv_error *err)
{
    CLV_TRY(clv_forwarder_require_result(forwarder, result, call, err));
    *out = (clv_scoring_call){.forwarder = forwarder, .model = forwarder->model};
    CLV_TRY(clv_options_copy_in(&out->options, sizeof out->options, sizeof out->options, options, call, err));
    if (out->options.batch_tokens < 0)
        return clv_fail(err, CLV_EINVAL, "%s: batch_tokens %lld; valid: 0 and above", call,
                        (long long)out->options.batch_tokens);
    out->options.batch_tokens = out->options.batch_tokens ? out->options.batch_tokens : CLV_BATCH_TOKENS;
    return CLV_OK;
}

clv_status clv_scoring_sequence(const clv_sequence **out, const clv_sequences *sequences, int64_t i, const char *call,
                                clv_error *err)
{
    CLV_TRY(clv_require(sequences != NULL, call, "sequences", err));
    if (i < 0 || i >= sequences->n)
        return clv_fail(err, CLV_EINVAL, "%s: sequence %lld of %lld", call, (long long)i, (long long)sequences->n);
    *out = &sequences->item[i];
    return CLV_OK;
}

clv_status clv_scoring_rows_alloc(clv_scoring_rows *r, const clv_scoring_call *call, int64_t seq, int64_t needed,
                                  clv_error *err)
{
    const int64_t fit = call->options.batch_tokens / seq > 0 ? call->options.batch_tokens / seq : 1;
    const int64_t width = call->forwarder->result == CLV_FORWARD_LOGITS ? call->model->config.vocab : 1;
    r->call = call;
    r->n = fit < needed ? fit : needed;
    r->seq = seq;
    const size_t tokens = (size_t)(r->n * seq) + 1;
    r->first = calloc((size_t)r->n + 1, sizeof *r->first);
    r->ids = calloc(tokens, sizeof *r->ids);
    r->labels = calloc(tokens, sizeof *r->labels);
    r->mask = malloc(tokens);
    r->result = malloc(tokens * (size_t)width * sizeof *r->result);
    if (!r->first || !r->ids || !r->labels || !r->mask || !r->result)
        return clv_fail_memory(err, "rows", tokens * (size_t)width * sizeof *r->result);
    memset(r->mask, 1, tokens);
    return CLV_OK;
}

void clv_scoring_rows_free(clv_scoring_rows *r)
{
    free(r->first);
    free(r->ids);
    free(r->labels);
    free(r->mask);
    free(r->result);
}

static void describe(char *out, size_t size, const void *arg, int64_t row, int64_t token)
{
    const clv_scoring_rows *r = arg;
    snprintf(out, size, "%.64s%s%s of token %lld", r->name ? r->name : "", r->name ? ": " : "", r->value,
             (long long)(r->first[row] + token));
}

clv_status clv_scoring_rows_run(clv_scoring_rows *r, double *nll, clv_error *err)
{
    const clv_forward_batch batch = {sizeof batch, r->n, r->seq, r->ids, r->mask, r->labels};
    CLV_TRY(clv_forwarder_run_checked(r->call->forwarder, &batch, r->result, r->call->options.allow_nonfinite, describe,
                                      r, err));
    for (int64_t i = 0; nll && i < r->n * r->seq; i++)
        *nll += r->result[i];
    return CLV_OK;
}
