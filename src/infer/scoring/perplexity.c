/* perplexity.c - clv_score_text: negative log-likelihood of a text by a causal model, with sliding windows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/versioned_structs.h"
#include "infer/scoring/scoring.h"

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
        w->labels[to] = here && at + 1 < end && at + 1 >= scored ? (int32_t)ids[at + 1] : CLV_IGNORE_INDEX;
    }
}

/* A loss stands where the token is that it foresees the next of. */
static void describe(char *out, size_t size, const void *arg, int64_t row, int64_t token)
{
    const windows *w = arg;
    snprintf(out, size, "the loss of token %lld", (long long)(w->begin[row] + token + 1));
}

static clv_status run(double *sum, const clv_scoring_call *s, windows *w, const int64_t *ids, int64_t n, clv_error *err)
{
    const clv_score_options *o = &s->options;
    clv_status status = CLV_OK;
    for (int64_t begin = 0, scored = 1; status == CLV_OK && scored < n;) {
        for (int64_t r = 0; r < w->rows; r++) {
            int64_t end = begin + w->context < n ? begin + w->context : n;
            fill(w, r, ids, begin < n ? begin : n, end, scored);
            scored = end > scored ? end : scored;
            begin += o->stride;
        }
        clv_forward_batch batch = {sizeof batch, w->rows, w->context, w->ids, w->mask, w->labels};
        status = clv_forwarder_run_checked(s->forwarder, &batch, w->nll, o->allow_nonfinite, describe, w, err);
        for (int64_t i = 0; status == CLV_OK && i < w->rows * w->context; i++)
            *sum += w->nll[i];
        if (o->progress)
            o->progress(o->progress_arg, scored, n);
    }
    return status;
}

static clv_status score(clv_score *out, const clv_scoring_call *s, const int64_t *ids, int64_t n, clv_error *err)
{
    windows w = {.context = s->options.context < n ? s->options.context : n};
    if (n < 2)
        return clv_fail(err, CLV_EINVAL, "%s: %lld tokens; a perplexity needs two or more", s->options.name,
                        (long long)n);
    w.rows = s->options.batch_tokens / w.context > 0 ? s->options.batch_tokens / w.context : 1;
    int64_t windows_of_all = (n - 2) / s->options.stride + 1;
    w.rows = w.rows < windows_of_all ? w.rows : windows_of_all;
    clv_status status = make(&w, err);
    if (status == CLV_OK)
        status = run(&out->nll, s, &w, ids, n, err);
    free_windows(&w);
    out->tokens = n - 1;
    return status;
}

static clv_status check(clv_score_options *o, int64_t most, const char *call, clv_error *err)
{
    enum { USUAL = 1024 };
    if (o->context == 0)
        o->context = most < USUAL ? most : USUAL;
    if (o->context < 2 || o->context > most)
        return clv_fail(err, CLV_EINVAL, "%s: a context of %lld; the model takes 2 to %lld", call,
                        (long long)o->context, (long long)most);
    if (o->stride == 0)
        o->stride = o->context / 2;
    if (o->stride < 1 || o->stride >= o->context)
        return clv_fail(err, CLV_EINVAL, "%s: a stride of %lld; valid: 1 to %lld, less than a window", call,
                        (long long)o->stride, (long long)o->context - 1);
    o->name = o->name ? o->name : "the text";
    return CLV_OK;
}

clv_status clv_score_text(clv_score *out, clv_forwarder *forwarder, const char *text, size_t size,
                          const clv_score_options *options, clv_error *err)
{
    static const char call[] = "clv_score_text";
    clv_scoring_call s;
    clv_score score_of = {0};
    const clv_tokenizer *tokenizer;
    int64_t *ids, n;
    CLV_TRY(clv_require(out && (text || size == 0), call, "out and a text", err));
    CLV_TRY(clv_scoring_begin(&s, forwarder, CLV_FORWARD_NLL, options, call, err));
    CLV_TRY(check(&s.options, s.model->config.max_positions, call, err));
    CLV_TRY(clv_model_tokenizer(&tokenizer, s.model, err));
    CLV_TRY(clv_tokenizer_encode(tokenizer, text, size, true, &ids, &n, err));
    clv_status status = clv_model_check_tokens(s.model, tokenizer, ids, n, s.options.name, err);
    if (status == CLV_OK)
        status = score(&score_of, &s, ids, n, err);
    free(ids);
    return status == CLV_OK ? clv_struct_copy_out(out, sizeof score_of, sizeof score_of, &score_of, call, err) : status;
}
