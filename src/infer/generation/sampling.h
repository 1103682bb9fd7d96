/* sampling.h - next-token sampling: repetition penalty, temperature, top-k, top-p, min-p, greedy. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cleave/generate.h"

typedef struct clv_candidate {
    float logit;
    int32_t id;
} clv_candidate;

/* Applies the repetition penalty to the tokens seen [V]: a negative logit is multiplied by it, a positive one divided,
 * in f32 as in transformers (Keskar et al. 2019, arXiv:1909.05858). A penalty of 0 or 1 changes nothing. */
void clv_apply_repetition_penalty(float *logits, int64_t vocab, const bool *seen, double penalty);
/* The same for one logit. */
float clv_penalized_logit(float logit, bool seen, double penalty);

/* Samples the token at `position` from its logits [vocab]; work: scratch for vocab candidates.
 * @return CLV_ENONFINITE when a logit is NaN or +infinity, or all are -infinity */
clv_status clv_sample(int64_t *token, const clv_sampling *sampling, const float *logits, int64_t vocab,
                      int64_t position, clv_candidate *work, clv_error *err);

/* Applies top_k, top_p and min_p to n candidates in any order. Returns how many remain; they are at the end of work,
 * the best last. */
int64_t clv_sampling_filter(clv_candidate *work, int64_t n, const clv_sampling *sampling);

/* ---- from the best candidates of each vocabulary shard ---- */

/* How many of the best tokens of each shard sampling needs; 0: all tokens. */
int64_t clv_sampling_candidates_needed(const clv_sampling *sampling, int64_t vocab);

/* Fills out[k] with the best of n candidates, and reorders these; missing ones have the id -1. A candidate that is NaN
 * or +infinity comes first, the one of the lowest id. */
void clv_top_candidates(clv_candidate *out, int64_t k, clv_candidate *work, int64_t n);

/* Samples the token that clv_sample would sample from all logits, from n candidates in any order:
 * clv_sampling_candidates_needed of each shard, as clv_top_candidates finds them. Changes work. bound: no other token
 * has a larger logit; -INFINITY if that does not matter. *needs_all_logits: another token may tie with the last of
 * top_k, and *token is not set. */
clv_status clv_sample_from_candidates(int64_t *token, bool *needs_all_logits, const clv_sampling *sampling,
                                      clv_candidate *work, int64_t n, float bound, int64_t position, clv_error *err);
