/* plan_summary.h - adds the first lines of `cleave plan` to a table: step, model or block sizes, mesh, rules and
 * machine. */
#pragma once

#include "cli/output/table.h"
#include "cli/reports/plan_report.h"

/* An option that is not at its default. */
typedef struct clv_plan_setting {
    const char *key, *word; /* "recompute", "full"; word NULL: it is a number */
    int64_t number;         /* 0: it is on */
} clv_plan_setting;

enum { CLV_PLAN_SETTINGS = 8 };

/* Lists them, as every report names them; returns how many. */
int clv_plan_settings_list(clv_plan_setting out[CLV_PLAN_SETTINGS], const clv_plan_option *option);

/* Adds the object "plan", which text shows first. */
void clv_plan_summary_add(clv_table *t, const clv_plan_report *report);
