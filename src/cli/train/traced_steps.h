/* traced_steps.h - --trace FROM:TO: which training steps are traced, and writing that trace. */
#ifndef CLEAVE_CLI_TRAIN_TRACED_STEPS_H
#define CLEAVE_CLI_TRAIN_TRACED_STEPS_H

#include <stdbool.h>
#include <stdint.h>

#include "cleave/train.h"
#include "cli/options/trace_option.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"

typedef struct clv_traced_steps {
    clv_strings words;   /* of --trace: FROM:TO, and perhaps the file */
    const char *path;    /* where it is left; NULL: nowhere */
    bool ops;            /* its ops are told */
    bool wanted;         /* for either */
    char own[4096];      /* where it is, if it is left nowhere */
    int64_t from, to;    /* steps, both included */
    int64_t first, last; /* of these, that were begun */
    bool on;             /* it was begun */
    bool ended;          /* it was written, or it was said why not */
    bool written;
} clv_traced_steps;

/* Rows of train's option table. */
#define CLV_TRACED_STEPS_OPTIONS(trace)                                                                                \
    {.names = "--trace",                                                                                               \
     .kind = CLV_OPTION_FILES,                                                                                         \
     .out = &(trace)->words,                                                                                           \
     .value = "[FROM:TO] [FILE]",                                                                                      \
     .advanced = true,                                                                                                 \
     .help = "steps of which FILE, or --trace-out, is a trace, as metrics.jsonl numbers them: \"10:12\" (the last "    \
             "three)"},                                                                                                \
        CLV_TRACE_OUT_OPTION(&(trace)->path, NULL, "where the trace goes, for cleave trace and Perfetto"),             \
    {                                                                                                                  \
        .names = "--ops", .kind = CLV_OPTION_FLAG, .out = &(trace)->ops, .advanced = true,                             \
        .help = "print what a step waits for, op by op, of the steps of --trace, else of the last three"               \
    }

/* Reads what the options say, of a run of so many steps; nothing where they were not given.
 * @return CLV_EINVAL naming the option */
clv_status clv_traced_steps_finalize(clv_traced_steps *trace, int64_t steps, clv_error *err);

/* Before the first step: the file that is left nowhere, so that a run does not end for want of it. */
clv_status clv_traced_steps_open(clv_traced_steps *trace, clv_error *err);

/* Around step `step` of the trainer alone: what it runs else is not of the trace. */
clv_status clv_traced_steps_before_step(clv_traced_steps *trace, clv_session *session, int64_t step, clv_error *err);
/* Writes it behind the last step; that it cannot be written is said, and ends nothing. */
clv_status clv_traced_steps_after_step(clv_traced_steps *trace, clv_session *session, int64_t step,
                                       const clv_machine *machine, const char *command, clv_error *err);
/* Of a run that ends before the last step of the trace: what there is of it. */
clv_status clv_traced_steps_end(clv_traced_steps *trace, clv_session *session, const clv_machine *machine,
                                const char *command, clv_error *err);
/* Of one that failed likewise; all that comes of it is said. alone: of several processes each may be elsewhere. */
void clv_traced_steps_end_failed(clv_traced_steps *trace, clv_session *session, const clv_machine *machine, bool alone,
                                 const char *command);

/* Adds what the ops of the trace took (op_times.h), if that was asked for and there is one. */
clv_status clv_traced_steps_add_op_times(clv_table *t, const clv_traced_steps *trace, clv_error *err);
/* Takes away what is left nowhere. */
void clv_traced_steps_close(clv_traced_steps *trace);

#endif
