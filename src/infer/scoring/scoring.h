/* scoring.h - option defaults and checks shared by perplexity, pseudo-likelihood and masked marginals. */
#ifndef CLEAVE_INFER_SCORING_SCORING_H
#define CLEAVE_INFER_SCORING_SCORING_H

#include "cleave/score.h"
#include "infer/forward/forwarder.h"
#include "infer/forward/tokenized_sequences.h"
#include "models/model.h"

/* What a call was given, with defaults filled in. */
typedef struct clv_scoring_call {
    clv_forwarder *forwarder;
    const clv_model *model;
    clv_score_options options;
} clv_scoring_call;

/* CLV_EINVAL unless the forwarder gives this result and the options are in range. */
clv_status clv_scoring_begin(clv_scoring_call *out, clv_forwarder *forwarder, clv_forward_result result,
                             const clv_score_options *options, const char *call, clv_error *err);

/* The sequence of that number; CLV_EINVAL. */
clv_status clv_scoring_sequence(const clv_sequence **out, const clv_sequences *sequences, int64_t i, const char *call,
                                clv_error *err);

#endif
