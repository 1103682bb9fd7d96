/* sampling.h - choosing the next token from logits.
 *
 * In the order of Hugging Face: a penalty for repetition, then temperature divides the logits, then the top_k largest stay, then of those
 * the fewest whose probability reaches top_p, then those at least min_p times as likely as the first; one is drawn by its
 * probability. Equal logits are ranked by the lower id. The draw depends on (seed, sequence, position) alone, so the same
 * logits give the same text on every mesh, and a sequence's text does not depend on what is sampled beside it.
 */
#ifndef CLEAVE_INFER_SAMPLING_H
#define CLEAVE_INFER_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/status.h"

/* Zero everywhere is greedy. */
typedef struct clv_sampling {
    double temperature;        /* 0: the largest logit, always */
    int64_t top_k;             /* 0: all */
    double top_p;              /* 0 or 1: all */
    double min_p;              /* 0: all */
    double repetition_penalty; /* 0 or 1: none; clv_penalise */
    uint64_t seed;
    uint64_t sequence; /* number of the sequence in a batch */
} clv_sampling;

typedef struct clv_candidate {
    float logit;
    int32_t id;
} clv_candidate;

/* Verifies 0 <= temperature, 0 <= top_k, 0 <= top_p, min_p <= 1, 0 <= repetition_penalty, all finite: CLV_EINVAL. */
clv_status clv_sampling_check(const clv_sampling *sampling, clv_error *err);

/* Makes the tokens that were seen [V] less likely: a logit above 0 is divided by the penalty, one below multiplied (Keskar et al.
 * 2019, arXiv:1909.05858). A penalty of 0 or 1 changes nothing. */
void clv_penalise(float *logits, int64_t vocab, const bool *seen, double penalty);

/* Chooses the token that stands at `position` from its logits [vocab]; work is scratch for vocab candidates.
 * @return CLV_ENONFINITE when a logit is not a number or +infinity, or all are -infinity: the model's numbers broke */
clv_status clv_sample(int64_t *token, const clv_sampling *sampling, const float *logits, int64_t vocab,
                      int64_t position, clv_candidate *work, clv_error *err);

#endif
