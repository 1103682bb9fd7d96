/* plan_summary.h - header of `cleave plan`: step, model or block sizes, mesh, rules and machine. */
#pragma once

#include "cli/output/table.h"
#include "cli/reports/plan_report.h"

/* Adds the object "plan", which text shows first. */
void clv_plan_summary_add(clv_table *t, const clv_plan_report *report);
