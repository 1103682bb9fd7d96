/* trace_option.h - --trace-out FILE: writes a session's trace for Perfetto and `cleave trace`. */
#ifndef CLEAVE_CLI_OPTIONS_TRACE_OPTION_H
#define CLEAVE_CLI_OPTIONS_TRACE_OPTION_H

#include <stdbool.h>

#include "cleave/trace.h"

/* A row of a command's option table. conflicts_with_: what leaves it nothing to write, or NULL. */
#define CLV_TRACE_OUT_OPTION(out_, conflicts_with_, help_)                                                             \
    {                                                                                                                  \
        .names = "--trace-out", .kind = CLV_OPTION_STRING, .out = (out_), .value = "FILE",                             \
        .use = CLV_OPTION_OUTPUT_FILE, .conflicts_with = (conflicts_with_), .advanced = true, .help = (help_)          \
    }

/* Ends what clv_trace_begin began, and writes it. alone: other processes, which may have failed, are not asked. */
clv_status clv_trace_option_write(clv_session *session, const char *path, const clv_machine *machine, bool alone,
                                  clv_error *err);

#endif
