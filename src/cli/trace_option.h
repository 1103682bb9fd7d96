/* trace_option.h - `--trace-out FILE`: when each rank did what, for Perfetto and `cleave trace`. */
#ifndef CLEAVE_CLI_TRACE_OPTION_H
#define CLEAVE_CLI_TRACE_OPTION_H

#include <stdbool.h>

#include "cleave/trace.h"

/* A row of a command's option table. not_beside_: what leaves it nothing to write, or NULL. */
#define CLV_TRACE_OUT_OPTION(out_, not_beside_, help_)                                                                 \
    {                                                                                                                  \
        .names = "--trace-out", .kind = CLV_OPTION_STRING, .out = (out_), .value = "FILE", .use = CLV_OPTION_WRITES,   \
        .not_beside = (not_beside_), .rare = true, .help = (help_)                                                     \
    }

/* Ends what clv_trace_begin began, and writes it. alone: other processes, which may have failed, are not asked. */
clv_status clv_trace_option_write(clv_session *session, const char *path, const clv_machine *machine, bool alone,
                                  clv_error *err);

#endif
