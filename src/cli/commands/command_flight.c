/* command_flight.c - the `cleave flight` command: reads flight recorder dumps and prints each rank's last instruction
 * and the stall diagnosis.
 */
#include "cleave/flight.h"

#include "cli/command.h"
#include "cli/input/artifact_kind.h"
#include "cli/options/output_options.h"
#include "cli/output/table.h"
#include "cli/parser/option_parser.h"

typedef struct flight_args {
    clv_strings files;
    clv_table_format form;
} flight_args;

static int parse(flight_args *a, int argc, char **argv)
{
    const clv_option options[] = {
        {.names = "FILE",
         .kind = CLV_OPTION_STRINGS,
         .out = &a->files,
         .value = "FILE",
         .use = CLV_OPTION_INPUT,
         .required = true,
         .help = "what the processes of one run wrote: one file each"},
        CLV_FORMAT_OPTIONS(&a->form, "", "print JSON"),
    };
    return clv_options_parse(options, sizeof options / sizeof options[0], argc, argv);
}

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
        clv_table_row(t);
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
    clv_table_list(t, "findings");
    for (int i = 0; clv_flight_report_finding(report, i, &f, err) == CLV_OK && f.text; i++) {
        clv_table_row(t);
        clv_table_text(t, "finding", clv_flight_kind_name(f.kind));
        clv_table_int(t, "rank", f.rank);
        clv_table_text(t, "text", f.text);
    }
    return CLV_OK;
}

static clv_status fill(clv_table *t, const flight_args *a, clv_error *err)
{
    clv_flight_report *report;
    CLV_TRY(clv_flight_read(&report, a->files.item, a->files.n, err));
    clv_status status = add_ranks(t, report, err);
    if (status == CLV_OK)
        status = add_findings(t, report, err);
    clv_flight_report_free(report);
    return status;
}

int command_flight(int argc, char **argv)
{
    flight_args a = {0};
    clv_error err = {0};
    int code = parse(&a, argc, argv);
    if (code != CLV_OPTIONS_RUN)
        return code;
    clv_table *t = clv_table_new("ranks");
    clv_status status = CLV_OK;
    for (int i = 0; status == CLV_OK && i < a.files.n; i++)
        status = clv_artifact_kind_check(a.files.item[i], argv[0], &err);
    if (status != CLV_OK || fill(t, &a, &err) != CLV_OK) {
        clv_table_free(t);
        return clv_command_print_error(argv[0], &err);
    }
    return clv_table_finish(t, &a.form);
}
