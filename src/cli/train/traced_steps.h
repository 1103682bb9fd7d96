/* traced_steps.h - --trace FROM:TO: which training steps are traced, and writing that trace. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "cleave/train.h"
#include "cli/options/run_options.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"

typedef struct clv_traced_steps {
    clv_strings words;                 /* --trace: FROM:TO, and an optional file */
    const char *path;                  /* --trace-out, or the file of --trace; NULL: the trace is not kept */
    bool ops;                          /* --ops */
    bool enabled;                      /* a trace is needed, for either */
    char temp_path[4096];              /* of a trace that is not kept */
    int64_t from, to;                  /* the steps to trace, both included */
    int64_t first_traced, last_traced; /* of those that ran */
    bool active;                       /* tracing has begun */
    bool ended;                        /* the trace was written, or a note says why not */
    bool written;
} clv_traced_steps;

#define CLV_TRACED_STEPS_OPTIONS(trace)                                                                                \
    CLV_OPT_VALUE(FILES, "--trace", &(trace)->words, "[FROM:TO] [FILE]",                                               \
                  "steps to trace into FILE (or --trace-out), as metrics.jsonl counts them: \"10:12\" (last three)",   \
                  .advanced = true),                                                                                   \
        CLV_TRACE_OUT_OPTION(&(trace)->path, NULL, "write the trace to FILE, for cleave trace and Perfetto"),          \
        CLV_OPT_FLAG("--ops", &(trace)->ops, "print the time of each op in the steps of --trace (last three)",         \
                     .advanced = true)

/* Resolves the options for a run of so many steps. @return CLV_EINVAL naming the option */
clv_status clv_traced_steps_resolve(clv_traced_steps *trace, int64_t steps, clv_error *err);
/* Creates the temporary file, before the first step, so that no long run fails for lack of it. */
clv_status clv_traced_steps_open(clv_traced_steps *trace, clv_error *err);

/* Called around each step of the trainer; validation between them is not traced. */
clv_status clv_traced_steps_before_step(clv_traced_steps *trace, clv_session *session, int64_t step, clv_error *err);
/* Writes the trace after its last step; a write error is only a note on stderr. */
clv_status clv_traced_steps_after_step(clv_traced_steps *trace, clv_session *session, int64_t step,
                                       const clv_machine *machine, const char *command, clv_error *err);
/* Writes the trace of a run that ends before its last step. */
clv_status clv_traced_steps_write_early(clv_traced_steps *trace, clv_session *session, const clv_machine *machine,
                                        const char *command, clv_error *err);
/* The same, of a run that failed: errors are notes. this_process_only: other processes may not have failed in the same
 * place. */
void clv_traced_steps_write_after_failure(clv_traced_steps *trace, clv_session *session, const clv_machine *machine,
                                          bool this_process_only, const char *command);

/* Adds the time of each op (op_times.h), with --ops. */
clv_status clv_traced_steps_add_op_times(clv_table *t, const clv_traced_steps *trace, clv_error *err);
/* Removes the temporary file. */
void clv_traced_steps_close(clv_traced_steps *trace);
