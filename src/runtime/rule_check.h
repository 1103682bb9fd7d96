/* rule_check.h - an op's sharding rule, held against what its kernel makes of shards. */
#ifndef CLEAVE_RUNTIME_RULE_CHECK_H
#define CLEAVE_RUNTIME_RULE_CHECK_H

#include "runtime/trial.h"

/* What an op is tried on, and how often it was. */
typedef struct clv_op_trials {
    const clv_trial *whole; /* it has run: operands and results */
    const clv_rule *rule;
    clv_key key;      /* of random shares */
    double tolerance; /* 0: by dtype */
    int cuts, partials, in_place;
} clv_op_trials;

/* Cuts each factor; gives each operand that may be partial as addends, or all as maxima; runs in place where the op
 * may. CLV_ECHECK names what was tried, the element, and both values. */
clv_status clv_rule_try(clv_op_trials *trials, clv_error *err);

#endif
