/* carry.h - the pass between assign and lower that says which steps carry their tensors rounded
 * (clv_compile_options.comm_dtype, grad_reduce_dtype). */
#ifndef CLEAVE_PARTITION_CARRY_H
#define CLEAVE_PARTITION_CARRY_H

#include "partition/assignment.h"

/* Tensors of which each rank holds fewer elements go as they are: what a message of so few takes is its start. */
enum { CLV_CARRY_LEAST = 64 };

/* Sets `carried` of the rows that are to be carried as dtype, or, where they sum gradients for updates, as `gradients`
 * unless that is CLV_COMM_F32; of CLV_COMM_F32 alone it does nothing. */
clv_status clv_assignment_carry(clv_assignment *table, clv_comm_dtype dtype, clv_comm_dtype gradients, clv_error *err);

#endif
