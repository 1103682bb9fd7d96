/* early.h - the pass between recompute and lower that brings steps of gradients to where the gradients are made. */
#ifndef CLEAVE_PARTITION_EARLY_H
#define CLEAVE_PARTITION_EARLY_H

#include "partition/assignment.h"

/* Moves each step that leaves ranks less of a parameter's gradient to right behind the row that made, or read, it last
 * before that. */
clv_status clv_assignment_reduce_early(clv_assignment *table, clv_error *err);

#endif
