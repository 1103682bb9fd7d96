/* plan.h - what the parts of cleave/plan.h share. Private to src/models. */
#ifndef CLEAVE_MODELS_PLAN_H
#define CLEAVE_MODELS_PLAN_H

#include "cleave/plan.h"

/* clv_take_options, for the options of a plan. */
clv_status clv_plan_take_options(clv_plan_options *out, const clv_plan_options *given, const char *call,
                                 clv_error *err);

#endif
