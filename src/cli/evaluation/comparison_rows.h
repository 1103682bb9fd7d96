/* comparison_rows.h - table rows of comparisons with a tolerance, and the --allow-nonfinite option. */
#ifndef CLEAVE_CLI_EVALUATION_COMPARISON_ROWS_H
#define CLEAVE_CLI_EVALUATION_COMPARISON_ROWS_H

#include <stdbool.h>

#include "cleave/evaluate.h"
#include "cleave/status.h"
#include "cli/output/table.h"

/* Adds what came of a mesh to the table that verify prints; whether all is within the tolerance. */
bool clv_comparison_add_row(clv_table *table, const char *mesh, const clv_comparison *found);

/* Adds to the message of a CLV_ENONFINITE that --allow-nonfinite goes on. */
void clv_suggest_allow_nonfinite(clv_error *err);

/* The option of commands that refuse such results. */
#define CLV_ALLOW_NONFINITE_OPTION(field)                                                                              \
    {                                                                                                                  \
        .names = "--allow-nonfinite", .kind = CLV_OPTION_FLAG, .out = (field),                                         \
        .help = "go on when a result is NaN or infinite; else that is an error, and nothing is written"                \
    }

#endif
