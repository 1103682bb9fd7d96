/* lower_to_program.h - lowers the sharding table to buffers and instructions. */
#ifndef CLEAVE_PARTITION_LOWERING_LOWER_TO_PROGRAM_H
#define CLEAVE_PARTITION_LOWERING_LOWER_TO_PROGRAM_H

#include "partition/sharding_table.h"
#include "program/program.h"

/* Fills a program that has an arena and nothing else. It keeps nothing of the table or its graph.
 * CLV_EINVAL for a table that clv_sharding_table_verify refuses. */
clv_status clv_lower_to_program(clv_program *out, const clv_sharding_table *table, clv_error *err);

#endif
