/* carry.h - the pass between assign and lower that says which steps carry their tensors rounded
 * (clv_compile_options.comm_dtype). */
#ifndef CLEAVE_PARTITION_CARRY_H
#define CLEAVE_PARTITION_CARRY_H

#include "partition/assignment.h"

/* Tensors of which each rank holds fewer elements go as they are: what a message of so few takes is its start. */
enum { CLV_CARRY_LEAST = 64 };

/* Sets `carried` of the rows that are to be carried as dtype; of CLV_COMM_F32 it does nothing. */
clv_status clv_assignment_carry(clv_assignment *table, clv_comm_dtype dtype, clv_error *err);

#endif
