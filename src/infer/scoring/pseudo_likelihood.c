/* pseudo_likelihood.c - clv_score_masked: pseudo-log-likelihood of a sequence by a masked language model. */
#include "base/error.h"
#include "infer/scoring/scoring.h"

/* Row r is the sequence with token `at` masked and as the only label; at == s->n: nothing is scored. */
static void fill_row(clv_scoring_rows *rows, int64_t r, const clv_sequence *s, int64_t at, int64_t mask)
{
    for (int64_t i = 0; i < rows->seq; i++) {
        rows->ids[r * rows->seq + i] = (int32_t)(i == at ? mask : s->ids[i]);
        rows->labels[r * rows->seq + i] = i == at ? (int32_t)s->ids[i] : CLV_IGNORE_INDEX;
    }
}

static clv_status score(double *nll, const clv_scoring_call *s, const clv_sequence *sequence, int64_t mask,
                        clv_error *err)
{
    const int64_t n = sequence->n_content;
    CLV_CLEANUP(clv_scoring_rows_free) clv_scoring_rows rows = {.name = sequence->name, .value = "the loss"};
    CLV_TRY(clv_scoring_rows_alloc(&rows, s, sequence->n, n, err));
    for (int64_t done = 0; done < n; done += rows.n) {
        for (int64_t r = 0; r < rows.n; r++)
            fill_row(&rows, r, sequence, done + r < n ? sequence->content_begin + done + r : sequence->n, mask);
        CLV_TRY(clv_scoring_rows_run(&rows, nll, err));
    }
    return CLV_OK;
}

clv_status clv_score_masked(clv_score *out, clv_forwarder *forwarder, const clv_sequences *sequences, int64_t i,
                            const clv_score_options *options, clv_error *err)
{
    clv_scoring_call s;
    const clv_sequence *sequence;
    clv_score score_of = {0};
    int64_t mask;
    CLV_TRY(clv_require(out != NULL, __func__, "out", err));
    CLV_TRY(clv_scoring_begin(&s, forwarder, CLV_FORWARD_NLL, options, __func__, err));
    CLV_TRY(clv_scoring_sequence(&sequence, sequences, i, __func__, err));
    CLV_TRY(clv_model_mask_token(&mask, s.model, err));
    score_of.tokens = sequence->n_content;
    CLV_TRY(score(&score_of.nll, &s, sequence, mask, err));
    return clv_struct_copy_out(out, sizeof score_of, sizeof score_of, &score_of, __func__, err);
}
