/* sampling.h - next-token sampling: repetition penalty, temperature, top-k, top-p, min-p, greedy. */
#ifndef CLEAVE_INFER_GENERATION_SAMPLING_H
#define CLEAVE_INFER_GENERATION_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/generate.h"

typedef struct clv_candidate {
    float logit;
    int32_t id;
} clv_candidate;

/* Makes the tokens that were seen [V] less likely: a logit below 0 is multiplied by the penalty, another divided, in
 * f32 as transformers does (Keskar et al. 2019, arXiv:1909.05858). A penalty of 0 or 1 changes nothing. */
void clv_apply_repetition_penalty(float *logits, int64_t vocab, const bool *seen, double penalty);
/* One of them. */
float clv_penalized_logit(float logit, bool seen, double penalty);

/* Chooses the token that stands at `position` from its logits [vocab]; work is scratch for vocab candidates.
 * @return CLV_ENONFINITE when a logit is not a number or +infinity, or all are -infinity: the model's numbers broke */
clv_status clv_sample(int64_t *token, const clv_sampling *sampling, const float *logits, int64_t vocab,
                      int64_t position, clv_candidate *work, clv_error *err);

/* Of n candidates in any order those that top_k, top_p and min_p leave to draw from: how many; they end up at the end
 * of work, best last. */
int64_t clv_sampling_filter(clv_candidate *work, int64_t n, const clv_sampling *sampling);

/* ---- from the best of several parts of a vocabulary ---- */

/* How many of the best tokens of each part the choice needs; 0: all tokens. */
int64_t clv_sampling_candidates_needed(const clv_sampling *sampling, int64_t vocab);

/* Fills out[k] with the best of n candidates, which it reorders; ids of -1 stand for those that there are not. One of
 * which no draw can be made is the first, that of the lowest id. */
void clv_top_candidates(clv_candidate *out, int64_t k, clv_candidate *work, int64_t n);

/* The token that clv_sample chooses of all logits, from n candidates in any order: those that clv_top_candidates found
 * in each part, clv_sampling_candidates_needed of them. work is changed. left_out: no token that is not among them has
 * a larger logit; -INFINITY where that is of no matter. *token is -1 where one of those may tie with the last of top_k:
 * then the choice needs all logits. */
clv_status clv_sample_from_candidates(int64_t *token, const clv_sampling *sampling, clv_candidate *work, int64_t n,
                                      float left_out, int64_t position, clv_error *err);

#endif
