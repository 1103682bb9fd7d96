/* trace_report.c - reads a trace file and reports its sums (clv_trace_report). */
#include <stdlib.h>

#include "base/error.h"
#include "cleave/trace.h"
#include "io/diagnostics/trace_file.h"

struct clv_trace_report {
    clv_trace_table table;
};

clv_status clv_trace_read(clv_trace_report **out, const char *path, clv_error *err)
{
    CLV_TRY(clv_require(out && path, __func__, "out and a path", err));
    clv_trace_report *report = malloc(sizeof *report);
    if (!report)
        return clv_fail_memory(err, "a trace's table", sizeof *report);
    clv_status status = clv_trace_file_read(&report->table, path, err);
    if (status == CLV_OK)
        *out = report;
    else
        free(report);
    return status;
}

void clv_trace_report_free(clv_trace_report *report)
{
    free(report);
}

clv_status clv_trace_report_get_info(const clv_trace_report *report, clv_trace_info *out, clv_error *err)
{
    CLV_TRY(clv_require(report && out, __func__, "a report and out", err));
    const clv_trace_table *t = &report->table;
    const clv_trace_info info = {.mesh = t->mesh,
                                 .machine = t->machine,
                                 .ranks = t->ranks,
                                 .processes = t->processes,
                                 .steps = t->steps,
                                 .dropped_events = t->dropped_events,
                                 .seconds = t->seconds};
    return clv_struct_copy_out(out, sizeof info, sizeof info, &info, __func__, err);
}

clv_status clv_trace_report_part(const clv_trace_report *report, int i, clv_trace_part *out, clv_error *err)
{
    CLV_TRY(clv_require(report && out, __func__, "a report and out", err));
    CLV_TRY(clv_require_count(i, 0, __func__, "as the number of a part", err));
    clv_trace_part part = {0};
    if (i < CLV_TRACE_PLACE_COUNT) {
        const clv_trace_sums *s = &report->table.of[i];
        part = (clv_trace_part){.name = clv_trace_place_name((clv_trace_place)i),
                                .compute = s->compute,
                                .moving = s->moving,
                                .waiting = s->waiting,
                                .stealing = s->stealing,
                                .overlapped = s->overlapped,
                                .bytes = s->bytes,
                                .collectives = s->collectives,
                                .predicted_seconds = s->predicted.seconds,
                                .predicted_communication = s->predicted.communication};
    }
    return clv_struct_copy_out(out, sizeof part, sizeof part, &part, __func__, err);
}

clv_status clv_trace_report_op_kind(const clv_trace_report *report, int i, clv_trace_op_kind *out, clv_error *err)
{
    CLV_TRY(clv_require(report && out, __func__, "a report and out", err));
    CLV_TRY(clv_require_count(i, 0, __func__, "as the number of a kind", err));
    clv_trace_op_kind kind = {0};
    if (i < report->table.n_kinds) {
        const clv_trace_op_sums *s = &report->table.kinds[i];
        kind = (clv_trace_op_kind){
            .name = s->name, .calls = s->calls, .seconds = s->seconds, .waiting = s->waiting, .stealing = s->stealing};
    }
    return clv_struct_copy_out(out, sizeof kind, sizeof kind, &kind, __func__, err);
}
