/* enumerate_strategies.h - lists an op's possible sharding strategies one by one, for explain. */
#ifndef CLEAVE_PARTITION_EXPLAIN_ENUMERATE_STRATEGIES_H
#define CLEAVE_PARTITION_EXPLAIN_ENUMERATE_STRATEGIES_H

#include "partition/sharding/op_strategy.h"

/* Told of each candidate. refusal->kind: REFUSED_NOT: it was priced; REFUSED_KEPT: priced, but it moves a weight that
 * is to stay; else it is illegal, and the strategy has its assignment alone. */
typedef clv_status clv_strategy_visitor(void *arg, const clv_strategy *candidate, const clv_refusal *refusal,
                                        clv_error *err);

/* All assignments when there are few, else those that differ from the chosen one in few subaxes. */
clv_status clv_strategy_enumerate(const clv_strategy_problem *problem, const clv_strategy *chosen,
                                  clv_strategy_visitor *visit, void *arg, clv_error *err);

#endif
