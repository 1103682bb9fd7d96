/* candidates.h - what was considered for ops, as `explain` and `einsum --explain` list it. */
#ifndef CLEAVE_CLI_CANDIDATES_H
#define CLEAVE_CLI_CANDIDATES_H

#include "cleave/program.h"
#include "cli/table.h"

/* Rows {"op","makes","chosen","split","bytes","seconds","layouts","why"}, and with `full` "verdict" and "work_seconds";
 * then the fields "considered" and "listed". Each op's chosen candidate, and at most `most` of each verdict. */
void clv_candidates_add(clv_table *t, const clv_program *program, int64_t most, bool full);

#endif
