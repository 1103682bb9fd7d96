/* recompute.h - the pass between assign and lower that says what of each block the backward pass makes again instead of
 * keeping it (clv_compile_options.recompute). */
#ifndef CLEAVE_PARTITION_RECOMPUTE_H
#define CLEAVE_PARTITION_RECOMPUTE_H

#include "partition/assignment.h"

/* Adds the rows that make it again, before the first row that reads it; of CLV_RECOMPUTE_NONE it does nothing.
 * regather: as in clv_compile_options. */
clv_status clv_assignment_recompute(clv_assignment *table, clv_recompute mode, bool regather, clv_error *err);

#endif
