/* flight_merge.c - reads the flight recorder dumps of all processes of a run and merges them into one report. */
#include <stdlib.h>

#include "base/error.h"
#include "runtime/diagnostics/flight_report.h"

void clv_flight_report_free(clv_flight_report *report)
{
    if (!report)
        return;
    for (int i = 0; report->dumps && i < report->n_dumps; i++)
        clv_flight_dump_free(&report->dumps[i]);
    for (int i = 0; i < report->n_findings; i++)
        free((char *)report->findings[i].finding.text);
    free(report->dumps);
    free(report->dump_of);
    free(report->ranked);
    free(report->findings);
    free(report);
}

/* Two dumps are of the same run and different processes. */
static clv_status check_same_run(const clv_flight_dump *a, const char *path_a, const clv_flight_dump *b,
                                 const char *path_b, clv_error *err)
{
    if (a->run != b->run || a->ranks != b->ranks || a->processes != b->processes)
        return clv_fail(err, CLV_EINVAL, "%s and %s are of different runs; valid: one from each process of one run",
                        path_a, path_b);
    if (a->process == b->process)
        return clv_fail(err, CLV_EINVAL, "%s and %s are both of process %lld; valid: one from each", path_a, path_b,
                        (long long)a->process);
    return CLV_OK;
}

static clv_status index_ranks(clv_flight_report *report, int i, const char *const *paths, clv_error *err)
{
    const clv_flight_dump *d = &report->dumps[i];
    for (int k = 0; k < d->n_local_ranks; k++) {
        int64_t rank = d->of[k].rank;
        if (report->dump_of[rank])
            return clv_fail(err, CLV_EINVAL, "%s and %s both have rank %lld; valid: one from each process of one run",
                            paths[report->dump_of[rank] - report->dumps], paths[i], (long long)rank);
        report->dump_of[rank] = d;
        report->ranked[rank] = &d->of[k];
    }
    return CLV_OK;
}

static clv_status read_all(clv_flight_report *report, const char *const *paths, int n, clv_error *err)
{
    for (int i = 0; i < n; i++) {
        report->n_dumps = i + 1;
        CLV_TRY(clv_flight_dump_read(&report->dumps[i], paths[i], err));
        for (int k = 0; k < i; k++)
            CLV_TRY(check_same_run(&report->dumps[k], paths[k], &report->dumps[i], paths[i], err));
    }
    report->ranks = (int)report->dumps[0].ranks;
    report->dump_of = calloc((size_t)report->ranks, sizeof *report->dump_of);
    report->ranked = calloc((size_t)report->ranks, sizeof *report->ranked);
    if (!report->dump_of || !report->ranked)
        return clv_fail_memory(err, "the ranks of flight recorders", (size_t)report->ranks * sizeof *report->ranked);
    for (int i = 0; i < n; i++)
        CLV_TRY(index_ranks(report, i, paths, err));
    return clv_flight_diagnose(report, err);
}

clv_status clv_flight_read(clv_flight_report **out, const char *const *paths, int n, clv_error *err)
{
    CLV_TRY(clv_require(out && paths, __func__, "out and paths", err));
    CLV_TRY(clv_require_count(n, 1, __func__, "paths", err));
    clv_flight_report *report = calloc(1, sizeof *report);
    if (report)
        report->dumps = calloc((size_t)n, sizeof *report->dumps);
    clv_status status = report && report->dumps ? read_all(report, paths, n, err)
                                                : clv_fail_memory(err, "dumps", (size_t)n * sizeof *report->dumps);
    if (status == CLV_OK)
        *out = report;
    else
        clv_flight_report_free(report);
    return status;
}

int clv_flight_report_rank_count(const clv_flight_report *report)
{
    return report ? report->ranks : 0;
}

static void fill_collective(clv_flight_rank *out, const clv_flight_record *at, const clv_flight_dump *dump)
{
    out->group_set = (int)at->group_set;
    out->seq = (int64_t)at->seq;
    out->expected = at->expected;
    out->received = at->seen;
    if ((at->phase == CLV_FLIGHT_PHASE_WAITING || at->phase == CLV_FLIGHT_PHASE_WAITING_END) && at->waiting_ns > 0)
        out->waited_seconds = 1e-9 * (double)(dump->written_ns - at->waiting_ns);
}

clv_status clv_flight_report_rank(const clv_flight_report *report, int rank, clv_flight_rank *out, clv_error *err)
{
    CLV_TRY(clv_require(report && out, __func__, "a report and out", err));
    if (rank < 0 || rank >= report->ranks)
        return clv_fail(err, CLV_EINVAL, "%s: rank %d; valid: 0 to %d", __func__, rank, report->ranks - 1);
    const clv_flight_dump *dump = report->dump_of[rank];
    const clv_flight_rank_dump *of = report->ranked[rank];
    clv_flight_rank r = {.process = -1, .instruction = -1, .group_set = -1};
    if (of) {
        const clv_flight_record *at = clv_flight_current(report, rank);
        int done = at ? of->n - 2 : of->n - 1;
        r.process = (int)dump->process;
        r.host = dump->host;
        r.n_begun = (int64_t)of->begun;
        r.last_completed = done >= 0 ? of->records[done].name : NULL;
        r.current = at ? at->name : NULL;
        r.kind = at ? at->kind : NULL;
        r.instruction = at ? at->instruction : -1;
        if (at && at->phase != CLV_FLIGHT_PHASE_NONE)
            fill_collective(&r, at, dump);
    }
    return clv_struct_copy_out(out, sizeof r, sizeof r, &r, __func__, err);
}

clv_status clv_flight_report_finding(const clv_flight_report *report, int i, clv_flight_finding *out, clv_error *err)
{
    CLV_TRY(clv_require(report && out, __func__, "a report and out", err));
    CLV_TRY(clv_require_count(i, 0, __func__, "as the number of a finding", err));
    clv_flight_finding f = {.rank = -1, .peer = -1};
    if (i < report->n_findings)
        f = report->findings[i].finding;
    return clv_struct_copy_out(out, sizeof f, sizeof f, &f, __func__, err);
}
