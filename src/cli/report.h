/* report.h - what a program moves, as a table. */
#ifndef CLEAVE_CLI_REPORT_H
#define CLEAVE_CLI_REPORT_H

#include "cleave/program.h"
#include "cli/table.h"

/* Collectives a run by kind and axes: how many, and bytes a rank. Steps that move nothing are left out. */
clv_table *clv_report_collectives(const clv_program *program);

#endif
