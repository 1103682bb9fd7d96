/* pseudo_likelihood.c - clv_score_masked: pseudo-log-likelihood of a sequence by a masked language model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/versioned_structs.h"
#include "infer/scoring/scoring.h"

/* Rows of one batch: copies of the sequence, each with one token masked, whose label it is. */
typedef struct rows {
    int64_t n, seq;
    int32_t *ids, *labels;
    uint8_t *mask;
    float *nll;
} rows;

static clv_status make(rows *r, clv_error *err)
{
    size_t n = (size_t)(r->n * r->seq);
    r->ids = malloc(n * sizeof *r->ids);
    r->labels = malloc(n * sizeof *r->labels);
    r->mask = malloc(n);
    r->nll = malloc(n * sizeof *r->nll);
    return r->ids && r->labels && r->mask && r->nll ? CLV_OK : clv_fail_memory(err, "rows", n * sizeof *r->ids);
}

static void free_rows(rows *r)
{
    free(r->ids);
    free(r->labels);
    free(r->mask);
    free(r->nll);
}

/* Row r masks token `at`; at == s->n: nothing is scored. */
static void fill(rows *out, int64_t r, const clv_sequence *s, int64_t at, int64_t mask)
{
    for (int64_t i = 0; i < out->seq; i++) {
        int64_t to = r * out->seq + i;
        out->ids[to] = (int32_t)(i == at ? mask : s->ids[i]);
        out->mask[to] = 1;
        out->labels[to] = i == at ? (int32_t)s->ids[i] : CLV_IGNORE_INDEX;
    }
}

static void describe(char *out, size_t size, const void *arg, int64_t row, int64_t token)
{
    (void)row;
    snprintf(out, size, "%.64s: the loss of token %lld", ((const clv_sequence *)arg)->name, (long long)token);
}

static clv_status score(double *sum, const clv_scoring_call *s, const clv_sequence *sequence, int64_t mask,
                        clv_error *err)
{
    int64_t first = sequence->first, n = sequence->own;
    rows r = {.seq = sequence->n};
    r.n = s->options.batch_tokens / r.seq > 0 ? s->options.batch_tokens / r.seq : 1;
    r.n = r.n < n ? r.n : n;
    clv_status status = make(&r, err);
    for (int64_t done = 0; status == CLV_OK && done < n; done += r.n) {
        for (int64_t i = 0; i < r.n; i++)
            fill(&r, i, sequence, done + i < n ? first + done + i : sequence->n, mask);
        clv_forward_batch batch = {sizeof batch, r.n, r.seq, r.ids, r.mask, r.labels};
        status =
            clv_forwarder_run_checked(s->forwarder, &batch, r.nll, s->options.allow_nonfinite, describe, sequence, err);
        for (int64_t i = 0; status == CLV_OK && i < r.n * r.seq; i++)
            *sum += r.nll[i];
    }
    free_rows(&r);
    return status;
}

clv_status clv_score_masked(clv_score *out, clv_forwarder *forwarder, const clv_sequences *sequences, int64_t i,
                            const clv_score_options *options, clv_error *err)
{
    static const char call[] = "clv_score_masked";
    clv_scoring_call s;
    const clv_sequence *sequence;
    clv_score score_of = {0};
    int64_t mask;
    CLV_TRY(clv_require(out != NULL, call, "out", err));
    CLV_TRY(clv_scoring_begin(&s, forwarder, CLV_FORWARD_NLL, options, call, err));
    CLV_TRY(clv_scoring_sequence(&sequence, sequences, i, call, err));
    CLV_TRY(clv_model_mask_token(&mask, s.model, err));
    score_of.tokens = sequence->own;
    CLV_TRY(score(&score_of.nll, &s, sequence, mask, err));
    return clv_struct_copy_out(out, sizeof score_of, sizeof score_of, &score_of, call, err);
}
