/* op_times.c - adds the time of each kind of op and collective of a step to a table, as a trace has it. */
#include "cli/timing/op_times.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cleave/status.h"
#include "cli/job/job_processes.h"

clv_status clv_trace_end_and_write(clv_session *session, const char *path, const clv_machine *machine,
                                   bool this_process_only, clv_error *err)
{
    const clv_trace_options options = {
        .size = sizeof options, .path = path, .machine = machine, .this_process_only = this_process_only};
    return clv_trace_end(session, &options, err);
}

clv_status clv_op_times_add(clv_table *t, const clv_trace_report *report, clv_error *err)
{
    double all = 0;
    clv_trace_op_kind kind = {.size = sizeof kind};
    for (int i = 0; clv_trace_report_op_kind(report, i, &kind, NULL) == CLV_OK && kind.name; i++)
        all += kind.seconds;
    clv_table_begin_list(t, "ops");
    for (int i = 0;; i++) {
        CLV_TRY(clv_trace_report_op_kind(report, i, &kind, err));
        if (!kind.name)
            return CLV_OK;
        clv_table_begin_row(t);
        clv_table_text(t, "op", kind.name);
        clv_table_real(t, "calls", kind.calls);
        clv_table_real(t, "ms", 1e3 * kind.seconds);
        clv_table_fraction(t, "share", kind.seconds / all);
        clv_table_real(t, "waiting_ms", 1e3 * kind.waiting);
        clv_table_real(t, "stealing_ms", 1e3 * kind.stealing);
    }
}

clv_status clv_trace_create_temp_file(char path[], size_t size, clv_error *err)
{
    const char *folder = getenv("TMPDIR");
    snprintf(path, size, "%s/cleave-trace-XXXXXX", folder && *folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0)
        return clv_fail(err, CLV_EIO, "%s: cannot create a temporary file for the trace", path);
    close(file);
    return CLV_OK;
}

clv_status clv_op_times_add_file(clv_table *t, const char *path, clv_error *err)
{
    clv_trace_report *report;
    CLV_TRY(clv_trace_read(&report, path, err));
    clv_status status = clv_op_times_add(t, report, err);
    clv_trace_report_free(report);
    return status;
}

clv_status clv_op_times_add_and_end_trace(clv_table *t, clv_session *session, const char *path,
                                          const clv_machine *machine, clv_error *err)
{
    char own[4096] = "";
    if (!path)
        CLV_TRY(clv_trace_create_temp_file(own, sizeof own, err));
    clv_status status = clv_trace_end_and_write(session, path ? path : own, machine, false, err);
    if (status == CLV_OK && clv_processes_is_first()) /* which has written it */
        status = clv_op_times_add_file(t, path ? path : own, err);
    if (!path)
        unlink(own);
    return status;
}
