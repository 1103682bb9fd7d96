/* score_masked.c - pseudo-perplexity of sequences by a masked language model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"
#include "cli/progress.h"
#include "cli/results.h"
#include "cli/score.h"

clv_status clv_score_mask_token(int64_t *out, const clv_scorer *s, clv_error *err)
{
    static const char mask[] = "[MASK]";
    int64_t *ids = NULL, n = 0;
    *out = s->model->mask;
    if (*out >= 0)
        return CLV_OK;
    CLV_TRY(clv_tokenizer_encode(s->tokenizer, mask, sizeof mask - 1, false, &ids, &n, err));
    *out = n == 1 ? ids[0] : -1;
    free(ids);
    if (*out < 0)
        return clv_fail(err, CLV_EUNSUPPORTED,
                        "%s: neither config.json (mask_token_id) nor the tokenizer ([MASK]) has a mask token",
                        s->args->model.path);
    return CLV_OK;
}

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
        out->labels[to] = i == at ? (int32_t)s->ids[i] : CLV_FORWARD_IGNORED;
    }
}

static void describe(char *out, size_t size, const void *arg, int64_t row, int64_t token)
{
    (void)row;
    snprintf(out, size, "%.64s: the loss of token %lld", ((const clv_sequence *)arg)->name, (long long)token);
}

static clv_status score(double *sum, const clv_scorer *s, const clv_sequence *sequence, int64_t mask, clv_error *err)
{
    int64_t first = sequence->first, n = sequence->own;
    rows r = {.seq = sequence->n};
    r.n = s->args->tokens / r.seq > 0 ? s->args->tokens / r.seq : 1;
    r.n = r.n < n ? r.n : n;
    clv_status status = make(&r, err);
    for (int64_t done = 0; status == CLV_OK && done < n; done += r.n) {
        for (int64_t i = 0; i < r.n; i++)
            fill(&r, i, sequence, done + i < n ? first + done + i : sequence->n, mask);
        clv_forward_batch batch = {sizeof batch, r.n, r.seq, r.ids, r.mask, r.labels};
        status = clv_results_forward(s->forwarder, &batch, r.nll, s->args->allow_nonfinite, describe, sequence, err);
        for (int64_t i = 0; status == CLV_OK && i < r.n * r.seq; i++)
            *sum += r.nll[i];
    }
    free_rows(&r);
    return status;
}

static clv_status score_all(clv_table *t, const clv_scorer *s, const clv_sequences *all, clv_error *err)
{
    clv_progress progress;
    int64_t mask;
    CLV_TRY(clv_score_mask_token(&mask, s, err));
    clv_progress_begin(&progress, "score", all->n);
    clv_status status = CLV_OK;
    for (int64_t i = 0; status == CLV_OK && i < all->n; i++) {
        const clv_sequence *sequence = &all->item[i];
        int64_t n = sequence->own;
        double sum = 0;
        status = score(&sum, s, sequence, mask, err);
        if (status == CLV_OK) {
            clv_table_row(t);
            clv_table_text(t, "name", sequence->name);
            clv_table_int(t, "tokens", n);
            clv_table_real(t, "nll", sum / (double)n);
            clv_table_real(t, "pseudo_perplexity", exp(sum / (double)n));
        }
        clv_progress_update(&progress, i + 1, "");
    }
    clv_progress_end(&progress);
    return status;
}

clv_status clv_score_masked(clv_table *table, const clv_scorer *s, clv_error *err)
{
    clv_sequences all;
    clv_too_long how = s->args->truncate ? CLV_TOO_LONG_CUT : CLV_TOO_LONG_LEFT_OUT;
    CLV_TRY(clv_sequences_read(&all, s->args->input, s->tokenizer, s->model, how, 1, err));
    clv_status status = score_all(table, s, &all, err);
    if (status == CLV_OK)
        *s->complete = clv_sequences_report(&all, s->command);
    clv_sequences_free(&all);
    return status;
}
