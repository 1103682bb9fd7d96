/* command_flight.c - the `cleave flight` command: reads flight recorder dumps and prints each rank's last instruction
 * and the stall diagnosis.
 */
#include "cleave/flight.h"

#include "cli/command.h"
#include "cli/input/artifact_kind.h"

static void add_step(clv_table *t, const clv_flight_rank *r)
{
    if (r->group_set < 0) {
        clv_table_null(t, "waits_s");
        clv_table_null(t, "set");
        clv_table_null(t, "seq");
        clv_table_null(t, "received");
        clv_table_null(t, "expected");
        return;
    }
    clv_table_real(t, "waits_s", r->waited_seconds);
    clv_table_int(t, "set", r->group_set);
    clv_table_int(t, "seq", r->seq);
    clv_table_int(t, "received", r->received);
    clv_table_int(t, "expected", r->expected);
}

static void add_text(clv_table *t, const char *key, const char *text)
{
    if (text)
        clv_table_text(t, key, text);
    else
        clv_table_null(t, key);
}

static clv_status add_ranks(clv_table *t, const clv_flight_report *report, clv_error *err)
{
    for (int i = 0; i < clv_flight_report_rank_count(report); i++) {
        clv_flight_rank r = {.size = sizeof r};
        CLV_TRY(clv_flight_report_rank(report, i, &r, err));
        clv_table_begin_row(t);
        clv_table_int(t, "rank", i);
        if (r.process < 0) {
            clv_table_null(t, "process");
            continue;
        }
        clv_table_int(t, "process", r.process);
        clv_table_text(t, "host", r.host);
        clv_table_int(t, "begun", r.n_begun);
        add_text(t, "done", r.last_completed);
        add_text(t, "in", r.current);
        add_text(t, "kind", r.kind);
        add_step(t, &r);
    }
    return CLV_OK;
}

static clv_status add_findings(clv_table *t, const clv_flight_report *report, clv_error *err)
{
    clv_flight_finding f = {.size = sizeof f};
    clv_table_begin_list(t, "findings");
    for (int i = 0; clv_flight_report_finding(report, i, &f, err) == CLV_OK && f.text; i++) {
        clv_table_begin_row(t);
        clv_table_text(t, "finding", clv_flight_kind_name(f.kind));
        clv_table_int(t, "rank", f.rank);
        clv_table_text(t, "text", f.text);
    }
    return CLV_OK;
}

static clv_status report(clv_table *t, const clv_strings *files, clv_error *err)
{
    clv_flight_report *found;
    CLV_TRY(clv_flight_read(&found, files->item, files->n, err));
    clv_status status = add_ranks(t, found, err);
    if (status == CLV_OK)
        status = add_findings(t, found, err);
    clv_flight_report_free(found);
    return status;
}

clv_status command_flight(clv_invocation *run, clv_error *err)
{
    clv_strings files = {0};
    const clv_option options[] = {
        CLV_OPT_VALUE(STRINGS, "FILE", &files, "FILE", "flight recorder files of one run, one of each process",
                      .use = CLV_OPTION_INPUT, .required = true),
        CLV_FORMAT_OPTIONS(&run->format, "", "print JSON"),
    };
    if (!CLV_PARSE(run, options))
        return CLV_OK;
    for (int i = 0; i < files.n; i++)
        CLV_TRY(clv_artifact_kind_check(files.item[i], run->name, err));
    run->table = clv_table_new("ranks");
    return report(run->table, &files, err);
}
