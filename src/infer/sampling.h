/* sampling.h - choosing the next token from logits.
 *
 * In the order of Hugging Face: temperature divides the logits, then the top_k largest stay, then of those the fewest
 * whose probability reaches top_p; one is drawn by its probability. Equal logits are ranked by the lower id. The draw
 * depends on (seed, position) alone, so the same logits give the same text on every mesh.
 */
#ifndef CLEAVE_INFER_SAMPLING_H
#define CLEAVE_INFER_SAMPLING_H

#include <stdint.h>

#include "cleave/status.h"

/* Zero everywhere is greedy. */
typedef struct clv_sampling {
    double temperature; /* 0: the largest logit, always */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 0 or 1: all */
    uint64_t seed;
} clv_sampling;

typedef struct clv_candidate {
    float logit;
    int32_t id;
} clv_candidate;

/* Verifies 0 <= temperature, 0 <= top_k, 0 <= top_p <= 1, all finite: CLV_EINVAL. */
clv_status clv_sampling_check(const clv_sampling *sampling, clv_error *err);

/* Chooses the token that stands at `position` from its logits [vocab]; work is scratch for vocab candidates.
 * @return CLV_EINVAL when a logit is not a number or +infinity, or all are -infinity: the model's numbers broke */
clv_status clv_sample(int64_t *token, const clv_sampling *sampling, const float *logits, int64_t vocab,
                      int64_t position, clv_candidate *work, clv_error *err);

#endif
