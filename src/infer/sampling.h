/* sampling.h - choosing the next token from logits, as generate.h has it. */
#ifndef CLEAVE_INFER_SAMPLING_H
#define CLEAVE_INFER_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/generate.h"

typedef struct clv_candidate {
    float logit;
    int32_t id;
} clv_candidate;

/* Makes the tokens that were seen [V] less likely: a logit above 0 is divided by the penalty, one below multiplied
 * (Keskar et al. 2019, arXiv:1909.05858). A penalty of 0 or 1 changes nothing. */
void clv_penalise(float *logits, int64_t vocab, const bool *seen, double penalty);

/* Chooses the token that stands at `position` from its logits [vocab]; work is scratch for vocab candidates.
 * @return CLV_ENONFINITE when a logit is not a number or +infinity, or all are -infinity: the model's numbers broke */
clv_status clv_sample(int64_t *token, const clv_sampling *sampling, const float *logits, int64_t vocab,
                      int64_t position, clv_candidate *work, clv_error *err);

#endif
