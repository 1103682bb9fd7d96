/* score_text.c - perplexity of a text by a decoder. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/status.h"
#include "cli/progress.h"
#include "cli/results.h"
#include "cli/score.h"
#include "io/file.h"

enum { FILE_LIMIT = 1 << 30 };

/* Windows of one batch. */
typedef struct windows {
    int64_t rows, context;
    int64_t *begin;        /* [rows] of the text's tokens */
    int32_t *ids, *labels; /* [rows, context] */
    uint8_t *mask;
    float *nll;
} windows;

static clv_status make(windows *w, clv_error *err)
{
    size_t n = (size_t)(w->rows * w->context);
    w->begin = malloc((size_t)w->rows * sizeof *w->begin);
    w->ids = malloc(n * sizeof *w->ids);
    w->labels = malloc(n * sizeof *w->labels);
    w->mask = malloc(n);
    w->nll = malloc(n * sizeof *w->nll);
    return w->begin && w->ids && w->labels && w->mask && w->nll ? CLV_OK
                                                                : clv_fail_memory(err, "windows", n * sizeof *w->ids);
}

static void free_windows(windows *w)
{
    free(w->begin);
    free(w->ids);
    free(w->labels);
    free(w->mask);
    free(w->nll);
}

/* Tokens [begin, end) of the text as row r; those before `scored` were scored by earlier windows. */
static void fill(windows *w, int64_t r, const int64_t *ids, int64_t begin, int64_t end, int64_t scored)
{
    w->begin[r] = begin;
    for (int64_t i = 0; i < w->context; i++) {
        int64_t at = begin + i, to = r * w->context + i;
        bool here = at < end;
        w->ids[to] = (int32_t)(here ? ids[at] : 0);
        w->mask[to] = here;
        w->labels[to] = here && at + 1 < end && at + 1 >= scored ? (int32_t)ids[at + 1] : CLV_FORWARD_IGNORED;
    }
}

/* A loss stands where the token is that it foresees the next of. */
static void describe(char *out, size_t size, const void *arg, int64_t row, int64_t token)
{
    const windows *w = arg;
    snprintf(out, size, "the loss of token %lld", (long long)(w->begin[row] + token + 1));
}

static clv_status run(double *sum, const clv_scorer *s, windows *w, const int64_t *ids, int64_t n, clv_error *err)
{
    clv_progress progress;
    int64_t stride = s->args->stride, scored = 1;
    clv_status status = CLV_OK;
    clv_progress_begin(&progress, "score", n);
    for (int64_t begin = 0; status == CLV_OK && scored < n;) {
        for (int64_t r = 0; r < w->rows; r++) {
            int64_t end = begin + w->context < n ? begin + w->context : n;
            fill(w, r, ids, begin < n ? begin : n, end, scored);
            scored = end > scored ? end : scored;
            begin += stride;
        }
        clv_forward_batch batch = {sizeof batch, w->rows, w->context, w->ids, w->mask, w->labels};
        status = clv_results_forward(s->forwarder, &batch, w->nll, s->args->allow_nonfinite, describe, w, err);
        for (int64_t i = 0; status == CLV_OK && i < w->rows * w->context; i++)
            *sum += w->nll[i];
        clv_progress_update(&progress, scored, "");
    }
    clv_progress_end(&progress);
    return status;
}

static clv_status score(clv_table *t, const clv_scorer *s, const int64_t *ids, int64_t n, size_t bytes, clv_error *err)
{
    double sum = 0;
    windows w = {.context = s->args->context < n ? s->args->context : n};
    if (n < 2)
        return clv_fail(err, CLV_EINVAL, "%s: %lld tokens; a perplexity needs two or more", s->args->input,
                        (long long)n);
    w.rows = s->args->tokens / w.context > 0 ? s->args->tokens / w.context : 1;
    int64_t windows_of_all = (n - 2) / s->args->stride + 1;
    w.rows = w.rows < windows_of_all ? w.rows : windows_of_all;
    clv_status status = make(&w, err);
    if (status == CLV_OK)
        status = run(&sum, s, &w, ids, n, err);
    free_windows(&w);
    CLV_TRY(status);
    clv_table_row(t);
    clv_table_text(t, "name", s->args->input);
    clv_table_int(t, "tokens", n - 1);
    clv_table_real(t, "nll", sum / (double)(n - 1));
    clv_table_real(t, "perplexity", exp(sum / (double)(n - 1)));
    clv_table_real(t, "bits_per_byte", sum / log(2) / (double)bytes);
    return CLV_OK;
}

clv_status clv_score_text(clv_table *table, const clv_scorer *s, clv_error *err)
{
    char *text;
    size_t size;
    int64_t *ids = NULL, n = 0;
    CLV_TRY(clv_file_read(&text, &size, s->args->input, FILE_LIMIT, err));
    clv_status status = clv_tokenizer_encode(s->tokenizer, text, size, true, &ids, &n, err);
    if (status == CLV_OK)
        status = score(table, s, ids, n, size, err);
    free(ids);
    free(text);
    return status;
}
