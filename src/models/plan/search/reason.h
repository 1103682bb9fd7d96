/* reason.h - the sentence that says why a candidate of a plan search lost to another one. */
#ifndef CLEAVE_MODELS_PLAN_SEARCH_REASON_H
#define CLEAVE_MODELS_PLAN_SEARCH_REASON_H

#include "models/plan/plan_price.h"

enum { CLV_SEARCH_REASON = 128 };

/* Writes "11 % slower: +6.2 s weight gathers, network; memory -2.1 GiB", by the part of the seconds that grew most,
 * with what the pipeline bubble has to do with it where that is another part, and memory where it differs by a tenth.
 * sequences, best_sequences: how many the steps process; seconds are compared for equally many, as the sentence then
 * says. */
void clv_search_reason(char out[CLV_SEARCH_REASON], const clv_price *price, int64_t sequences, const clv_price *best,
                       int64_t best_sequences);

#endif
