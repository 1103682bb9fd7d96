/* perplexity.c - clv_score_text: negative log-likelihood of a text by a causal model, with sliding windows. */
#include <stdlib.h>

#include "base/error.h"
#include "infer/scoring/scoring.h"

/* Tokens [begin, end) of the text as row r. Tokens before `scored` were scored by earlier windows. A row's loss at a
 * token is that of the next token. */
static void fill_window(clv_scoring_rows *rows, int64_t r, const int64_t *ids, int64_t begin, int64_t end,
                        int64_t scored)
{
    rows->first[r] = begin + 1;
    for (int64_t i = 0; i < rows->seq; i++) {
        int64_t at = begin + i, to = r * rows->seq + i;
        bool inside = at < end;
        rows->ids[to] = (int32_t)(inside ? ids[at] : 0);
        rows->mask[to] = inside;
        rows->labels[to] = at + 1 < end && at + 1 >= scored ? (int32_t)ids[at + 1] : CLV_IGNORE_INDEX;
    }
}

static clv_status run(double *nll, clv_scoring_rows *rows, const int64_t *ids, int64_t n, clv_error *err)
{
    const clv_score_options *o = &rows->call->options;
    for (int64_t begin = 0, scored = 1; scored < n;) {
        for (int64_t r = 0; r < rows->n; r++) {
            int64_t end = begin + rows->seq < n ? begin + rows->seq : n;
            fill_window(rows, r, ids, begin < n ? begin : n, end, scored);
            scored = end > scored ? end : scored;
            begin += o->stride;
        }
        CLV_TRY(clv_scoring_rows_run(rows, nll, err));
        if (o->progress)
            o->progress(o->progress_arg, scored, n);
    }
    return CLV_OK;
}

static clv_status score(clv_score *out, const clv_scoring_call *s, const int64_t *ids, int64_t n, clv_error *err)
{
    clv_scoring_rows rows = {.value = "the loss"};
    if (n < 2)
        return clv_fail(err, CLV_EINVAL, "%s: %lld tokens; a perplexity needs two or more", s->options.name,
                        (long long)n);
    clv_status status = clv_scoring_rows_alloc(&rows, s, s->options.context < n ? s->options.context : n,
                                               (n - 2) / s->options.stride + 1, err);
    if (status == CLV_OK)
        status = run(&out->nll, &rows, ids, n, err);
    clv_scoring_rows_free(&rows);
    out->tokens = n - 1;
    return status;
}

static clv_status check(clv_score_options *o, int64_t most, const char *call, clv_error *err)
{
    enum { DEFAULT_CONTEXT = 1024 };
    if (o->context == 0)
        o->context = most < DEFAULT_CONTEXT ? most : DEFAULT_CONTEXT;
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
    clv_scoring_call s;
    clv_score score_of = {0};
    const clv_tokenizer *tokenizer;
    CLV_FREED int64_t *ids = NULL;
    int64_t n;
    CLV_TRY(clv_require(out && (text || size == 0), __func__, "out and a text", err));
    CLV_TRY(clv_scoring_begin(&s, forwarder, CLV_FORWARD_NLL, options, __func__, err));
    CLV_TRY(check(&s.options, s.model->config.max_positions, __func__, err));
    CLV_TRY(clv_model_tokenizer(&tokenizer, s.model, err));
    CLV_TRY(clv_tokenizer_encode(tokenizer, text, size, true, &ids, &n, err));
    CLV_TRY(clv_model_check_tokens(s.model, tokenizer, ids, n, s.options.name, err));
    CLV_TRY(score(&score_of, &s, ids, n, err));
    return clv_struct_copy_out(out, sizeof score_of, sizeof score_of, &score_of, __func__, err);
}
