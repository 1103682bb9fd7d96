/* command_trace.c - the `cleave trace` command: time per part of the model, compute and communication, from a trace
 * file.
 */
#include "cleave/trace.h"

#include "cli/command.h"
#include "cli/input/artifact_kind.h"
#include "cli/timing/op_times.h"

/* Null where there is no time that it is a share of. */
static void add_share(clv_table *t, const char *key, double of, double all)
{
    if (all > 0)
        clv_table_fraction(t, key, of / all);
    else
        clv_table_null(t, key);
}

static void add_up(clv_trace_part *all, const clv_trace_part *part)
{
    all->compute += part->compute;
    all->moving += part->moving;
    all->waiting += part->waiting;
    all->stealing += part->stealing;
    all->overlapped += part->overlapped;
    all->bytes += part->bytes;
    all->collectives += part->collectives;
    all->predicted_seconds += part->predicted_seconds;
    all->predicted_communication += part->predicted_communication;
}

static void add_part(clv_table *t, const clv_trace_part *part)
{
    double communication = part->moving + part->waiting, seconds = part->compute + communication;
    clv_table_begin_row(t);
    clv_table_text(t, "part", part->name);
    clv_table_seconds(t, "seconds", seconds);
    clv_table_seconds(t, "compute", part->compute);
    clv_table_seconds(t, "moving", part->moving);
    clv_table_seconds(t, "waiting", part->waiting);
    clv_table_seconds(t, "stealing", part->stealing);
    clv_table_seconds(t, "overlapped", part->overlapped);
    add_share(t, "comm_share", communication, seconds);
    add_share(t, "predicted_comm_share", part->predicted_communication, part->predicted_seconds);
    clv_table_seconds(t, "predicted", part->predicted_seconds);
    clv_table_int(t, "collectives", part->collectives);
    clv_table_bytes(t, "bytes", part->bytes);
}

static clv_status fill(clv_table *t, const clv_trace_report *report, clv_error *err)
{
    clv_trace_info info = {.size = sizeof info};
    clv_trace_part all = {.name = "all"};
    CLV_TRY(clv_trace_report_get_info(report, &info, err));
    for (int i = 0;; i++) {
        clv_trace_part part = {.size = sizeof part};
        CLV_TRY(clv_trace_report_part(report, i, &part, err));
        if (!part.name)
            break;
        add_part(t, &part);
        add_up(&all, &part);
    }
    add_part(t, &all);
    CLV_TRY(clv_op_times_add(t, report, err));
    clv_table_begin_top_level(t);
    clv_table_text(t, "mesh", info.mesh);
    clv_table_int(t, "ranks", info.ranks);
    clv_table_int(t, "processes", info.processes);
    clv_table_int(t, "steps", info.steps);
    clv_table_seconds(t, "step_seconds", info.seconds);
    clv_table_text(t, "predicted_for", info.machine);
    if (info.dropped_events > 0)
        clv_table_int(t, "dropped_events", info.dropped_events);
    return CLV_OK;
}

clv_status command_trace(clv_invocation *run, clv_error *err)
{
    const char *file;
    clv_trace_report *report;
    const clv_option options[] = {
        CLV_OPT_INPUT("FILE", &file, "FILE", "a trace of --trace-out", .required = true),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    CLV_TRY(clv_artifact_kind_check(file, run->name, err));
    CLV_TRY(clv_trace_read(&report, file, err));
    run->table = clv_table_new("parts");
    clv_status status = fill(run->table, report, err);
    clv_trace_report_free(report);
    return status;
}
