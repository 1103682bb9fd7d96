/* op_times.h - time per kind of op and collective of a step, from a trace, as table rows. */
#ifndef CLEAVE_CLI_TIMING_OP_TIMES_H
#define CLEAVE_CLI_TIMING_OP_TIMES_H

#include "cleave/trace.h"
#include "cli/output/table.h"

/* Adds to the table a list "ops": {"op", "calls", "ms", "share", "waiting_ms", "stealing_ms"} of a step, the longest
 * first; share: of all of them. */
clv_status clv_op_times_add(clv_table *t, const clv_trace_report *report, clv_error *err);

/* The same of the trace in a file. */
clv_status clv_op_times_add_file(clv_table *t, const char *path, clv_error *err);

/* A file of nobody else's for a trace that is read and not left, in the folder for such. */
clv_status clv_op_times_temp_file(char path[], size_t size, clv_error *err);

/* Ends the trace that was begun of the session and adds that list. path: where the trace is left; NULL: nowhere. */
clv_status clv_op_times_end_trace(clv_table *t, clv_session *session, const char *path, const clv_machine *machine,
                                  clv_error *err);

#endif
