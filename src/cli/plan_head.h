/* plan_head.h - what a plan is of: the step, the model or block with its sizes, the mesh, the rules and the machine. */
#ifndef CLEAVE_CLI_PLAN_HEAD_H
#define CLEAVE_CLI_PLAN_HEAD_H

#include "cli/plan_option.h"
#include "cli/table.h"

/* Adds the object "plan", which text shows first. machine: the profile's name. */
clv_status clv_plan_head_add(clv_table *t, const clv_plan_option *option, const char *machine, clv_error *err);

#endif
