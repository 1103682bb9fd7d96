/* steps.h - the steps of a change of layout, as `reshard` and `einsum` list them: {"steps":[{"op","axes","bytes"}],
 * ...}. */
#ifndef CLEAVE_CLI_STEPS_H
#define CLEAVE_CLI_STEPS_H

#include "cleave/layout.h"
#include "cli/table.h"

clv_table *clv_steps_begin(void);
void clv_steps_add(clv_table *t, const char *op, const clv_subaxis *axes, int n, double bytes, const clv_mesh *mesh);
/* lower_bound < 0: none is known. */
void clv_steps_total(clv_table *t, double bytes, int64_t lower_bound);

/* Parses a layout given to `option`; on failure draws the text with a caret below the character at fault. */
clv_status clv_layout_option(clv_layout *out, const char *option, const char *text, const clv_mesh *mesh, int rank,
                             clv_error *err);

#endif
