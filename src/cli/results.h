/* results.h - what is said of results: how far they are from what they ought to be, and that one is not finite. */
#ifndef CLEAVE_CLI_RESULTS_H
#define CLEAVE_CLI_RESULTS_H

#include <stdbool.h>

#include "cleave/evaluate.h"
#include "cleave/status.h"
#include "cli/table.h"

/* Adds what came of a mesh to the table that verify prints; whether all is within the tolerance. */
bool clv_results_add_row(clv_table *table, const char *mesh, const clv_comparison *found);

/* Adds to the message of a CLV_ENONFINITE that --allow-nonfinite goes on. */
void clv_results_offer(clv_error *err);

/* The option of commands that refuse such results. */
#define CLV_RESULTS_OPTION(field)                                                                                      \
    {                                                                                                                  \
        .names = "--allow-nonfinite", .kind = CLV_OPTION_FLAG, .out = (field),                                         \
        .help = "go on when a result is NaN or infinite; else that is an error, and nothing is written"                \
    }

#endif
