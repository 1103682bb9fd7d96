/* search_candidates.h - compiles the candidates of a plan search and times them on this machine. */
#pragma once

#include "cleave/plan_search.h"
#include "cli/bench/made_up_inputs.h"
#include "cli/job/job_processes.h"

/* A candidate, predicted and measured. */
typedef struct clv_timed_candidate {
    clv_plan_candidate plan; /* its pointers live with the search */
    clv_program *program;
    clv_made_up_inputs inputs;
    double predicted; /* seconds */
    double *seconds;  /* [runs], sorted once all are timed */
    double measured;  /* the least of these: what else the machine does only adds */
} clv_timed_candidate;

typedef struct clv_timed_candidates {
    int n;
    clv_timed_candidate *item; /* the first is the one that the search recommends */
} clv_timed_candidates;

/* Compiles the candidates of an exhaustive search that fit; of those of a layout that are equal in time and memory, as
 * options have no effect, the first. `base` is the search's. Free with clv_timed_candidates_free, on failure, too. */
clv_status clv_timed_candidates_make(clv_timed_candidates *out, const clv_plan_search *found,
                                     const clv_plan_options *base, clv_error *err);
/* Times each `runs` times, in rounds over all of them, so that what else the machine does meanwhile slows all alike. */
clv_status clv_timed_candidates_measure(clv_timed_candidates *all, int64_t runs, const clv_comm_option *comm,
                                        clv_error *err);
void clv_timed_candidates_free(clv_timed_candidates *all);
