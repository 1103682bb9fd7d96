/* scoring.h - option defaults and batches of rows shared by perplexity, pseudo-likelihood and masked marginals. */
#pragma once

#include "cleave/score.h"
#include "infer/forward/forwarder.h"
#include "infer/forward/tokenized_sequences.h"
#include "models/model.h"

/* The arguments of a call, with defaults filled in. */
typedef struct clv_scoring_call {
    clv_forwarder *forwarder;
    const clv_model *model;
    clv_score_options options;
} clv_scoring_call;

/* CLV_EINVAL unless the forwarder gives this result and the options are in range. */
clv_status clv_scoring_begin(clv_scoring_call *out, clv_forwarder *forwarder, clv_forward_result result,
                             const clv_score_options *options, const char *call, clv_error *err);

/* Sequence i; CLV_EINVAL for an invalid i. */
clv_status clv_scoring_sequence(const clv_sequence **out, const clv_sequences *sequences, int64_t i, const char *call,
                                clv_error *err);

/* The rows of one batch, which the caller fills before each run. */
typedef struct clv_scoring_rows {
    const clv_scoring_call *call;
    const char *name, *value; /* in messages: "<name>: <value> of token 5"; name NULL: "<value> of token 5" */
    int64_t n, seq;           /* rows, and tokens of each */
    int64_t *first;           /* [n] number in messages of each row's first token; zeros at first */
    int32_t *ids, *labels;    /* [n,seq]; labels are for CLV_FORWARD_NLL */
    uint8_t *mask;            /* [n,seq]; ones at first */
    float *result;            /* [n,seq] or [n,seq,V] */
} clv_scoring_rows;

/* Allocates as many rows as fit options.batch_tokens, at most `needed`. Free with clv_scoring_rows_free, also after a
 * failure. */
clv_status clv_scoring_rows_alloc(clv_scoring_rows *rows, const clv_scoring_call *call, int64_t seq, int64_t needed,
                                  clv_error *err);
void clv_scoring_rows_free(clv_scoring_rows *rows);
/* Runs the batch, and adds its losses to *nll unless NULL. CLV_ENONFINITE unless options.allow_nonfinite. */
clv_status clv_scoring_rows_run(clv_scoring_rows *rows, double *nll, clv_error *err);
