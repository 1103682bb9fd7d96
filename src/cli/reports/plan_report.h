/* plan_report.h - facts that `cleave plan` prints: sizes, memory and its limit, time and its parts, what would help. */
#pragma once

#include "cleave/plan_estimate.h"
#include "cli/options/plan_target_options.h"

/* Memory that a rank may use. */
typedef struct clv_memory_limit {
    double bytes;
    const char *source; /* "--memory-limit", or the name of the profile; NULL: no limit */
} clv_memory_limit;

/* The plan with options changed. */
typedef struct clv_plan_change {
    char option[CLV_MESH_TEXT + 16]; /* "--rules fsdp"; several of a search; "": no change */
    clv_memory memory;               /* total 0: not planned */
    double seconds;                  /* 0: not predicted */
} clv_plan_change;

enum { CLV_PLAN_FIRST = 2 };

/* Ranks of a change of the mesh; 0: it is another change. */
int64_t clv_plan_change_ranks(const clv_plan_change *change);

typedef struct clv_plan_report {
    const clv_plan_option *option;
    const clv_program *program;        /* NULL: of an estimate */
    const clv_plan_estimate *estimate; /* of stages, context, experts; NULL: of a program */
    clv_plan_estimate pipeline;        /* of a program with stages: these, and by which schedule; else stages are 0 */
    clv_model_info model;              /* of a block its sizes alone, 0 for those that it does not have */
    clv_machine_info machine;
    clv_memory memory;
    clv_memory_limit limit;
    clv_prediction predicted;
    clv_prediction_parts parts;
    /* If it does not fit: the fastest that fits of its mesh and rules, by microbatches, recomputation and what is
     * gathered again. */
    clv_plan_change fastest;
    int n_smaller;
    clv_plan_change *smaller; /* if it does not fit: the single changes that reduce its memory, smallest first */
    /* If a machine is named: the order of axes, and the overlap, that save 1 % of the time or more. */
    clv_plan_change order, overlap;
    int n_first;
    const clv_plan_change *first[CLV_PLAN_FIRST]; /* what to change first: the fastest that fits, else what comes
                                                     closest; of a plan that fits what is faster */
} clv_plan_report;

/* Whether something runs what is not compiled: this library, or the software that is named. */
bool clv_plan_is_estimated(const clv_plan_report *report, const clv_plan_estimate *e);
/* Prints the layers of each run of all stages, "9, 9, 8, 6"; false where they are not known. */
bool clv_plan_print_stages(char *out, size_t size, const clv_plan_estimate *e, const char *separator);

/* Gathers the facts of a compiled plan, which are borrowed. memory_limit: of --memory-limit; 0: the memory of the
 * machine that --hardware names. singles: find `smaller` where `fastest` suffices, too. Free with
 * clv_plan_report_free. */
clv_status clv_plan_report_make(clv_plan_report *out, const clv_plan_option *option, const clv_program *program,
                                int64_t memory_limit, bool singles, clv_error *err);
void clv_plan_report_free(clv_plan_report *report);
/* The same of an estimate; both are borrowed. */
clv_status clv_plan_report_make_from_estimate(clv_plan_report *out, const clv_plan_option *option,
                                              const clv_plan_estimate *estimate, int64_t memory_limit, clv_error *err);

/* Whether a rank's memory is within the limit, or there is none. */
bool clv_plan_report_fits(const clv_plan_report *report, const clv_memory *memory);

/* Whether the machine's published runs are such steps, in such a dtype. */
bool clv_plan_report_is_published(const clv_plan_report *report);

/* "training", "prefill", "forward and backward", ... */
const char *clv_plan_step_name(const clv_plan_options *options);

/* Tokens that a run takes in: of decode one a sequence. */
int64_t clv_plan_tokens(const clv_plan_options *options);
