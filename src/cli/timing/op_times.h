/* op_times.h - adds the time of each kind of op and collective of a step to a table, as a trace has it. */
#pragma once

#include "cleave/trace.h"
#include "cli/output/table.h"

/* Ends the session's trace and writes it. this_process_only: without the other processes, which may have failed. */
clv_status clv_trace_end_and_write(clv_session *session, const char *path, const clv_machine *machine,
                                   bool this_process_only, clv_error *err);

/* Adds the list "ops": {"op", "calls", "ms", "share", "waiting_ms", "stealing_ms"} a step, the longest first. */
clv_status clv_op_times_add(clv_table *t, const clv_trace_report *report, clv_error *err);
/* The same, of a trace file. */
clv_status clv_op_times_add_file(clv_table *t, const char *path, clv_error *err);
/* Creates an empty temporary trace file and writes its path to path[size]; the caller unlinks it. */
clv_status clv_trace_create_temp_file(char path[], size_t size, clv_error *err);
/* Ends the session's trace and adds that list. path: where the trace is kept; NULL: it is not. */
clv_status clv_op_times_add_and_end_trace(clv_table *t, clv_session *session, const char *path,
                                          const clv_machine *machine, clv_error *err);
