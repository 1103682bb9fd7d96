/* strategy_candidate_table.h - adds the sharding strategies that were considered for each op to a table (explain,
 * einsum --explain). */
#pragma once

#include "cleave/program.h"
#include "cli/output/table.h"

/* Rows {"op","purpose","chosen","split","bytes","seconds","layouts","why"}, and with `full` "verdict" and
 * "work_seconds"; then the fields "considered" and "listed". Each op's chosen candidate, and at most `most` of each
 * verdict. */
void clv_strategy_candidate_table_add(clv_table *t, const clv_program *program, int64_t most, bool full);
