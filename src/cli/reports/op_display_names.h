/* op_display_names.h - replaces op kinds in a sentence by their display names. */
#ifndef CLEAVE_CLI_REPORTS_OP_DISPLAY_NAMES_H
#define CLEAVE_CLI_REPORTS_OP_DISPLAY_NAMES_H

/* A sentence with kinds of ops ("normalize_dx") as people call them ("the gradient of the norm"); names of ops, which
 * say where they are ("mlp.normalize.grad.normalize_dx"), stay. The caller frees it; NULL: no memory. */
char *clv_replace_op_names(const char *sentence);

#endif
