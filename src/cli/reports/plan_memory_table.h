/* plan_memory_table.h - adds the objects `memory` and `fit` of `cleave plan --all` and --json: bytes by kind, whether
 * it fits, which options make it smaller. plan_screen.c prints the first screen. */
#pragma once

#include "cli/output/table.h"
#include "cli/reports/plan_report.h"

/* Name and bytes of kind i of memory, of those that add up to the total; NULL past the end. */
const char *clv_plan_memory_kind(int64_t *bytes, const clv_memory *memory, int i);

/* {"memory": {"parameters", ..., "total", "peak_at"}} */
void clv_plan_memory_add(clv_table *t, const clv_plan_report *report);

/* {"fit": {"fits", "limit", "limit_from", "spare" or "lacking"}}; and if it does not fit
 * {"largest": {kind: bytes}, "smaller_by": {kind: [options]}, "would_need": {option: bytes}}: the largest kinds, the
 * options that reduce each, and the total with each option, smallest first. */
void clv_plan_memory_fit_add(clv_table *t, const clv_plan_report *report);
