/* decision_matrix.h - `cleave plan --matrix`: TP degree x sequence parallelism x data parallelism, with prices and
 * reasons.
 */
#ifndef CLEAVE_CLI_REPORTS_DECISION_MATRIX_H
#define CLEAVE_CLI_REPORTS_DECISION_MATRIX_H

#include "cleave/plan_search.h"
#include "cli/output/table.h"

/* A table of a search with every_layout of a model's training step. json: options are columns, as in JSON. */
clv_status clv_decision_matrix_new(clv_table **out, const clv_plan_search *found, const clv_plan_options *base,
                                   const clv_machine_info *machine, bool json, clv_error *err);

#endif
