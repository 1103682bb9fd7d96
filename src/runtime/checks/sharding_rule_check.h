/* sharding_rule_check.h - checks an op's sharding rule against what its kernel computes on shards. */
#ifndef CLEAVE_RUNTIME_CHECKS_SHARDING_RULE_CHECK_H
#define CLEAVE_RUNTIME_CHECKS_SHARDING_RULE_CHECK_H

#include "runtime/checks/op_harness.h"

/* What an op is tried on, and how often it was. */
typedef struct clv_sharding_rule_trials {
    const clv_op_harness *whole; /* it has run: operands and results */
    const clv_rule *rule;
    clv_key key;      /* of random shares */
    double tolerance; /* 0: by dtype */
    int cuts, partials, in_place;
} clv_sharding_rule_trials;

/* Cuts each factor; gives each operand that may be partial as addends, or all as maxima; runs in place where the op
 * may. CLV_ECHECK names what was tried, the element, and both values. */
clv_status clv_sharding_rule_check(clv_sharding_rule_trials *trials, clv_error *err);

#endif
