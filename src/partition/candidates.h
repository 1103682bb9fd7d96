/* candidates.h - the ways of splitting one op, one after another, for `explain`: apart from the search, which skips
 * most. */
#ifndef CLEAVE_PARTITION_CANDIDATES_H
#define CLEAVE_PARTITION_CANDIDATES_H

#include "partition/strategy.h"

/* Told of each candidate. refusal->kind: REFUSED_NOT: it was priced; REFUSED_KEPT: priced, but it moves a weight that
 * is to stay; else it is illegal, and the strategy has its assignment alone. */
typedef clv_status clv_candidate_visit(void *arg, const clv_strategy *candidate, const clv_refusal *refusal,
                                       clv_error *err);

/* All assignments when there are few, else those that differ from the chosen one in few atoms. */
clv_status clv_candidates_visit(const clv_problem *problem, const clv_strategy *chosen, clv_candidate_visit *visit,
                                void *arg, clv_error *err);

#endif
