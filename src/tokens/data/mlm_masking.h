/* mlm_masking.h - masked-language-model masking of rows (BERT: Devlin et al. 2018, arXiv:1810.04805), a function of
 * (seed, row, position): element row * seq + position of three random tensors.
 */
#pragma once

#include <stdbool.h>

#include "cleave/data.h"
#include "cleave/rng.h"

typedef struct clv_mlm_masker {
    clv_key key;
    uint64_t below; /* a token is chosen if its random word is below */
    int32_t mask;
    int64_t vocab, n_ordinary;
    bool *special;     /* [vocab] never chosen, never a random token; NULL: no masking */
    int32_t *ordinary; /* [n_ordinary] the other ids */
} clv_mlm_masker;

/* @return CLV_EINVAL for a rate, or ids, out of range, or where all are special; CLV_ENOMEM */
clv_status clv_mlm_masker_open(clv_mlm_masker *out, const clv_mlm_masking *masking, int64_t vocab, uint64_t seed,
                               clv_error *err);
/* Does nothing for a zeroed masker. */
void clv_mlm_masker_close(clv_mlm_masker *masker);
/* labels hold the ids that may be chosen, else CLV_IGNORE_INDEX; those not chosen become CLV_IGNORE_INDEX. row: index
 * among the rows of all epochs. */
void clv_mlm_mask_row(const clv_mlm_masker *masker, int64_t row, int64_t seq, int32_t *ids, int32_t *labels);
