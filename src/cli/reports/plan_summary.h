/* plan_summary.h - header of `cleave plan`: step, model or block sizes, mesh, rules and machine. */
#ifndef CLEAVE_CLI_REPORTS_PLAN_SUMMARY_H
#define CLEAVE_CLI_REPORTS_PLAN_SUMMARY_H

#include "cli/options/plan_target_options.h"
#include "cli/output/table.h"

/* Adds the object "plan", which text shows first. machine: the profile's name. */
clv_status clv_plan_summary_add(clv_table *t, const clv_plan_option *option, const char *machine, clv_error *err);

#endif
