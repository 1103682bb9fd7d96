/* plan_memory_report.h - memory section of `cleave plan`: bytes by kind, whether it fits, and suggestions that make
 * it smaller.
 */
#ifndef CLEAVE_CLI_REPORTS_PLAN_MEMORY_REPORT_H
#define CLEAVE_CLI_REPORTS_PLAN_MEMORY_REPORT_H

#include "cli/options/plan_target_options.h"
#include "cli/output/table.h"

/* Memory that a rank may use. */
typedef struct clv_memory_limit {
    double bytes;
    const char *source; /* "--memory-limit", or the name of the profile; NULL: no limit */
} clv_memory_limit;

/* {"memory": {"parameters", ..., "total", "peak_at"}} */
void clv_plan_memory_add(clv_table *t, const clv_program *program);

/* {"fit": {"fits", "limit", "limit_from", "spare" or "lacking"}}; and if it does not fit
 * {"largest": {kind: bytes}, "smaller_by": {kind: [options]}, "would_need": {option: bytes}}: the largest kinds, the
 * options that reduce each, and the total with each option, smallest first (clv_plan_find_suggestions). */
void clv_plan_memory_fit_add(clv_table *t, const clv_program *program, const clv_plan_options *given,
                             clv_memory_limit limit);

#endif
