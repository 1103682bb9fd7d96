/* lower.h - the second pass of clv_compile: a table of assignments to a program's buffers and instructions. */
#ifndef CLEAVE_PARTITION_LOWER_H
#define CLEAVE_PARTITION_LOWER_H

#include "partition/assignment.h"
#include "program/program.h"

/* Fills a program that has an arena and nothing else. It keeps nothing of the table or its graph.
 * CLV_EINVAL for a table that clv_assignment_check refuses. */
clv_status clv_assignment_lower(clv_program *out, const clv_assignment *table, clv_error *err);

#endif
