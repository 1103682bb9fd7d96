/* imported_search.h - `cleave plan --search` of a program of StableHLO text: meshes of so many ranks. */
#pragma once

#include "cli/command.h"
#include "cli/options/plan_target_options.h"

typedef struct clv_imported_search {
    int64_t devices, most; /* 0: not given */
    int64_t memory_limit;  /* 0: the machine's */
} clv_imported_search;

/* Fills run->table with each mesh of the program's axes, with the layouts that the text states and, unless the program
 * is large, with those that are found beside them; the fastest that fit first. */
clv_status clv_imported_search_report(clv_invocation *run, clv_plan_option *option, const clv_imported_search *how,
                                      clv_error *err);
