/* score.h - what ways of scoring share. */
#ifndef CLEAVE_INFER_SCORE_H
#define CLEAVE_INFER_SCORE_H

#include "cleave/score.h"
#include "infer/forwarder.h"
#include "infer/sequences.h"
#include "models/opened.h"

/* What a call was given, with defaults filled in. */
typedef struct clv_scoring {
    clv_forwarder *forwarder;
    const clv_model *model;
    clv_score_options options;
} clv_scoring;

/* CLV_EINVAL unless the forwarder gives this result and the options are in range. */
clv_status clv_scoring_begin(clv_scoring *out, clv_forwarder *forwarder, clv_forward_result result,
                             const clv_score_options *options, const char *call, clv_error *err);

/* The sequence of that number; CLV_EINVAL. */
clv_status clv_scoring_sequence(const clv_sequence **out, const clv_sequences *sequences, int64_t i, const char *call,
                                clv_error *err);

#endif
