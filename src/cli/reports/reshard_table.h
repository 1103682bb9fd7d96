/* reshard_table.h - makes the table of the collectives of a reshard, for reshard and einsum; parses a layout option. */
#pragma once

#include "cleave/layout.h"
#include "cli/output/table.h"

clv_table *clv_reshard_table_new(void);
void clv_reshard_table_add(clv_table *t, const char *op, const clv_subaxis *axes, int n, double bytes,
                           const clv_mesh *mesh);
/* lower_bound < 0: none is known. */
void clv_reshard_table_finish(clv_table *t, double bytes, int64_t lower_bound);

/* Parses a layout given to `option`; on failure draws the text with a caret below the character at fault. */
clv_status clv_layout_option_parse(clv_layout *out, const char *option, const char *text, const clv_mesh *mesh,
                                   int rank, clv_error *err);
