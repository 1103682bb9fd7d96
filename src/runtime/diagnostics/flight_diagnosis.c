/* flight_diagnosis.c - diagnosis from flight recorder dumps: culprit, stragglers, mismatched collectives.
 *
 * A rank in a collective waits for the members that are not as far in it (in a collective by messages: those from which
 * nothing arrived). A straggler is waited for and waits for none; a rank without a dump is missing. What did not arrive
 * from a member that went on was lost. Members whose collectives of one number in a group set have different tags run
 * different programs.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/majority_check.h"
#include "base/memory/grow.h"
#include "runtime/diagnostics/flight_report.h"
#include "tensor/parse_print.h"

const char *clv_flight_kind_name(clv_flight_kind kind)
{
    static const char *const names[] = {"failed", "differs", "missing", "straggler", "lost", "waits", "reported"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* ---- findings ---- */

static clv_status add_finding(clv_flight_report *report, clv_flight_kind kind, int rank, int peer,
                              clv_flight_found found, clv_error *err)
{
    CLV_TRY(clv_grow(&report->findings, &report->capacity, report->n_findings + 1, sizeof found, "a finding", err));
    found.finding = (clv_flight_finding){.size = sizeof found.finding, .kind = kind, .rank = rank, .peer = peer};
    found.number = report->n_findings;
    report->findings[report->n_findings++] = found;
    return CLV_OK;
}

static bool is_waiting(const clv_flight_record *at)
{
    return at && (at->phase == CLV_FLIGHT_PHASE_WAITING || at->phase == CLV_FLIGHT_PHASE_WAITING_END);
}

static int64_t waited_ns(const clv_flight_report *report, int rank)
{
    const clv_flight_record *at = clv_flight_current(report, rank);
    return at->waiting_ns > 0 ? report->dump_of[rank]->written_ns - at->waiting_ns : 0;
}

/* Adds a culprit, or the rank that has waited for it longer than those before. */
static clv_status add_culprit(clv_flight_report *report, clv_flight_kind kind, int rank, int waiter, clv_error *err)
{
    int64_t weight = waited_ns(report, waiter);
    int peer = kind == CLV_FLIGHT_LOST ? waiter : -1;
    for (int i = 0; i < report->n_findings; i++) {
        clv_flight_found *f = &report->findings[i];
        if (f->finding.kind != kind || f->finding.rank != rank || f->finding.peer != peer)
            continue;
        f->waiter = weight > f->weight ? waiter : f->waiter;
        f->weight = weight > f->weight ? weight : f->weight;
        return CLV_OK;
    }
    return add_finding(report, kind, rank, peer, (clv_flight_found){.weight = weight, .waiter = waiter}, err);
}

/* ---- who waits for whom ---- */

/* How far rank m is in collective `seq` of a group set: CLV_FLIGHT_PHASE_NONE before it, _COMPLETED after it. */
static clv_flight_phase progress(const clv_flight_report *report, int m, int64_t group_set, uint64_t seq)
{
    const clv_flight_rank_dump *of = report->ranked[m];
    const clv_flight_record *at = clv_flight_current(report, m);
    if (group_set >= report->dump_of[m]->n_sets || of->steps[group_set] < seq)
        return CLV_FLIGHT_PHASE_NONE;
    if (of->ended[group_set] >= seq)
        return CLV_FLIGHT_PHASE_COMPLETED;
    return at && at->phase != CLV_FLIGHT_PHASE_NONE && at->group_set == group_set && at->seq == seq
               ? at->phase
               : CLV_FLIGHT_PHASE_COMPLETED;
}

/* Whether a rank that waits in `at` waits for member m, which is rank `peer`. */
static bool awaits(const clv_flight_report *report, const clv_flight_record *at, int m, int peer)
{
    enum { MEMBERS_IN_LACKS = 64 };
    if (at->phase == CLV_FLIGHT_PHASE_WAITING && at->lacks != 0 && m < MEMBERS_IN_LACKS)
        return at->lacks >> m & 1;
    if (!report->dump_of[peer])
        return true;
    return progress(report, peer, at->group_set, at->seq) < at->phase;
}

/* The rank runs nothing: it waits for those of its process that do. */
static clv_status diagnose_idle(clv_flight_report *report, int waiter, int idle, clv_error *err)
{
    const clv_flight_dump *d = report->dump_of[idle];
    bool others_run = false;
    for (int i = 0; !report->ranked[idle]->works && i < d->n_local_ranks; i++) {
        int rank = (int)d->of[i].rank;
        const clv_flight_record *at = clv_flight_current(report, rank);
        others_run = others_run || at;
        if (at && !is_waiting(at))
            CLV_TRY(add_culprit(report, CLV_FLIGHT_STRAGGLER, rank, waiter, err));
    }
    return others_run ? CLV_OK : add_culprit(report, CLV_FLIGHT_STRAGGLER, idle, waiter, err);
}

static clv_status diagnose_wait(clv_flight_report *report, int rank, int peer, clv_error *err)
{
    const clv_flight_record *at = clv_flight_current(report, rank), *theirs = clv_flight_current(report, peer);
    const clv_flight_found found = {.weight = waited_ns(report, rank), .waiter = rank};
    CLV_TRY(add_finding(report, CLV_FLIGHT_WAITS, rank, peer, found, err));
    if (!report->dump_of[peer])
        return add_culprit(report, CLV_FLIGHT_MISSING, peer, rank, err);
    if (at->phase == CLV_FLIGHT_PHASE_WAITING &&
        progress(report, peer, at->group_set, at->seq) >= CLV_FLIGHT_PHASE_WAITING)
        return add_culprit(report, CLV_FLIGHT_LOST, peer, rank, err);
    if (!theirs)
        return diagnose_idle(report, rank, peer, err);
    return is_waiting(theirs) ? CLV_OK : add_culprit(report, CLV_FLIGHT_STRAGGLER, peer, rank, err);
}

static clv_status diagnose_rank(clv_flight_report *report, int rank, clv_error *err)
{
    const clv_flight_record *at = clv_flight_current(report, rank);
    const clv_flight_dump *d = report->dump_of[rank];
    if (!is_waiting(at))
        return CLV_OK;
    const int32_t *members = d->members + at->group_set * d->ranks, *group_of = d->group_of + at->group_set * d->ranks;
    for (int i = 0, m = 0; i < d->ranks; i++) {
        if (group_of[members[i]] != group_of[rank])
            continue;
        if (members[i] != rank && awaits(report, at, m, members[i]))
            CLV_TRY(diagnose_wait(report, rank, members[i], err));
        m++;
    }
    return CLV_OK;
}

/* ---- who runs a different program ---- */

/* A member's record of a collective. */
typedef struct collective_record {
    uint64_t seq;
    int member, record; /* index of the record on the rank: of several with one seq the last counts */
    const clv_flight_record *at;
} collective_record;

static int compare_collectives(const void *a, const void *b)
{
    const collective_record *x = a, *y = b;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return x->member != y->member ? x->member - y->member : x->record - y->record;
}

/* The records of a group's collectives in a set, by seq and member; *out is to be freed. */
static clv_status collect(collective_record **out, int *n_out, const clv_flight_report *report, const int32_t *group,
                          int n, int group_set, clv_error *err)
{
    size_t most = 1;
    for (int i = 0; i < n; i++)
        most += report->ranked[group[i]] ? (size_t)report->ranked[group[i]]->n : 0;
    collective_record *all = malloc(most * sizeof *all);
    int found = 0, kept = 0;
    if (!all)
        return clv_fail_memory(err, "the collectives of a group", most * sizeof *all);
    for (int i = 0; i < n; i++) {
        const clv_flight_rank_dump *of = report->ranked[group[i]];
        for (int k = 0; of && k < of->n; k++)
            if (of->records[k].phase != CLV_FLIGHT_PHASE_NONE && of->records[k].group_set == group_set)
                all[found++] = (collective_record){of->records[k].seq, i, k, &of->records[k]};
    }
    qsort(all, (size_t)found, sizeof *all, compare_collectives);
    for (int i = 0; i < found; i++)
        if (i + 1 == found || all[i].seq != all[i + 1].seq || all[i].member != all[i + 1].member)
            all[kept++] = all[i];
    *out = all;
    *n_out = kept;
    return CLV_OK;
}

/* Reports the members whose tag differs from the majority's; tags: [n] scratch. */
static clv_status compare_tags(bool *differ, clv_flight_report *report, const int32_t *group,
                               const collective_record *step, int n, int64_t *tags, clv_error *err)
{
    for (int i = 0; i < n; i++)
        tags[i] = (int64_t)step[i].at->tag;
    clv_mismatch others = clv_mismatch_find(tags, n);
    const collective_record *best = &step[others.majority];
    *differ = others.n > 0;
    for (int i = 0; *differ && i < n; i++) {
        clv_flight_found found = {.weight = n, .waiter = -1, .mine = step[i].at, .theirs = best->at};
        for (int k = 0; k < n; k++)
            found.weight -= tags[k] == tags[i];
        if (tags[i] != tags[others.majority])
            CLV_TRY(add_finding(report, CLV_FLIGHT_DIFFERS, group[step[i].member], group[best->member], found, err));
    }
    return CLV_OK;
}

/* Stops at the oldest collective in which members differ: later differences follow from it. */
static clv_status compare_group(clv_flight_report *report, const int32_t *group, int n, int group_set, clv_error *err)
{
    CLV_FREED collective_record *all = NULL;
    int found;
    bool differ = false;
    CLV_TRY(collect(&all, &found, report, group, n, group_set, err));
    CLV_FREED int64_t *tags = malloc((size_t)n * sizeof *tags);
    if (!tags)
        return clv_fail_memory(err, "the collectives of a group", (size_t)n * sizeof *tags);
    for (int i = 0, k; i < found && !differ; i += k) {
        for (k = 1; i + k < found && all[i + k].seq == all[i].seq;)
            k++;
        CLV_TRY(compare_tags(&differ, report, group, all + i, k, tags, err));
    }
    return CLV_OK;
}

static clv_status compare_all(clv_flight_report *report, clv_error *err)
{
    const clv_flight_dump *d = &report->dumps[0];
    for (int i = 1; i < report->n_dumps; i++) /* the fewest group sets: all processes have these */
        d = report->dumps[i].n_sets < d->n_sets ? &report->dumps[i] : d;
    for (int s = 0; s < d->n_sets; s++) {
        const int32_t *members = d->members + (int64_t)s * d->ranks, *group_of = d->group_of + (int64_t)s * d->ranks;
        for (int i = 0, n; i < report->ranks; i += n) {
            for (n = 1; i + n < report->ranks && group_of[members[i + n]] == group_of[members[i]];)
                n++;
            if (n > 1)
                CLV_TRY(compare_group(report, members + i, n, s, err));
        }
    }
    return CLV_OK;
}

/* ---- what processes reported ---- */

static clv_status add_failures(clv_flight_report *report, clv_error *err)
{
    for (int i = 0; i < report->n_dumps; i++) {
        const clv_flight_dump *d = &report->dumps[i];
        const clv_error *e = &d->failure;
        bool itself = e->code != CLV_EPEER && e->code != CLV_ETIMEOUT && e->rank >= 0 && e->rank < report->ranks &&
                      report->dump_of[e->rank] == d;
        int first = d->n_local_ranks > 0 ? (int)d->of[0].rank : -1;
        const clv_flight_found found = {.weight = -i, .waiter = -1, .dump = d};
        if (e->code != CLV_OK)
            CLV_TRY(add_finding(report, itself ? CLV_FLIGHT_FAILED : CLV_FLIGHT_REPORTED, itself ? e->rank : first, -1,
                                found, err));
    }
    return CLV_OK;
}

static bool has_finding(const clv_flight_report *report, int rank, clv_flight_kind first, clv_flight_kind last)
{
    for (int i = 0; i < report->n_findings; i++) {
        const clv_flight_finding *f = &report->findings[i].finding;
        if (f->rank == rank && f->kind >= first && f->kind <= last)
            return true;
    }
    return false;
}

/* Missing ranks that no rank waits for. */
static clv_status add_missing(clv_flight_report *report, clv_error *err)
{
    const clv_flight_found found = {.weight = -1, .waiter = -1};
    for (int r = 0; r < report->ranks; r++)
        if (!report->dump_of[r] && !has_finding(report, r, CLV_FLIGHT_MISSING, CLV_FLIGHT_MISSING))
            CLV_TRY(add_finding(report, CLV_FLIGHT_MISSING, r, -1, found, err));
    return CLV_OK;
}

/* The dump of the process that failed first, of those whose failure names a rank: when a deadline passes, all ranks are
 * asked for their progress. A process that reports something else later was stopped, and has continued. NULL: none. */
static const clv_flight_dump *find_first_failure(const clv_flight_report *report)
{
    const clv_flight_dump *first = NULL;
    for (int i = 0; i < report->n_dumps; i++) {
        const clv_flight_dump *d = &report->dumps[i];
        bool names = d->failure.code != CLV_OK && d->failure.rank >= 0 && d->failure.rank < report->ranks;
        if (names && (!first || d->written_ns < first->written_ns))
            first = d;
    }
    return first;
}

/* A rank that a time-out named, but whose records show nothing wrong: they were written after it had continued. */
static clv_status add_named(clv_flight_report *report, clv_error *err)
{
    const clv_flight_dump *d = find_first_failure(report);
    if (!d || d->failure.code != CLV_ETIMEOUT ||
        has_finding(report, d->failure.rank, CLV_FLIGHT_FAILED, CLV_FLIGHT_LOST))
        return CLV_OK;
    const clv_flight_found found = {.waiter = -1, .dump = d};
    return add_finding(report, CLV_FLIGHT_STRAGGLER, d->failure.rank, -1, found, err);
}

/* ---- texts ---- */

static void add_rank(clv_text *text, const clv_flight_report *report, int rank)
{
    const clv_flight_dump *d = report->dump_of[rank];
    clv_text_add(text, "rank %d", rank);
    if (d)
        clv_text_add(text, " (process %lld on %s)", (long long)d->process, d->host);
}

/* "all_reduce 'layers.2.mlp' (instruction 31, step 7 of group set 1, 0 of 512 bytes seen)". */
static void add_record(clv_text *text, const clv_flight_record *at)
{
    bool in_program = at->instruction >= 0, moves = at->phase != CLV_FLIGHT_PHASE_NONE;
    clv_text_add(text, "%.48s '%.96s'", at->kind, at->name);
    if (in_program)
        clv_text_add(text, " (instruction %lld%s", (long long)at->instruction, moves ? ", " : ")");
    if (moves)
        clv_text_add(text, "%sstep %llu of group set %lld, %lld of %lld bytes seen)", in_program ? "" : " (",
                     (unsigned long long)at->seq, (long long)at->group_set, (long long)at->seen,
                     (long long)at->expected);
}

/* What a rank with a dump does, or did last. */
static void add_state(clv_text *text, const clv_flight_report *report, int rank)
{
    const clv_flight_record *at = clv_flight_current(report, rank);
    const clv_flight_rank_dump *of = report->ranked[rank];
    clv_text_add(text, "%s",
                 at           ? "it is in "
                 : of->n == 0 ? "it has run nothing yet"
                 : of->works  ? "it is between instructions; the last was "
                              : "it runs nothing; the last was ");
    if (of->n > 0)
        add_record(text, &of->records[of->n - 1]);
}

static void add_waiter(clv_text *text, const clv_flight_report *report, int waiter)
{
    clv_text_add(text, "; ");
    add_rank(text, report, waiter);
    clv_text_add(text, " waits for it in ");
    add_record(text, clv_flight_current(report, waiter));
}

static void write_text(clv_text *text, const clv_flight_report *report, const clv_flight_found *f)
{
    int rank = f->finding.rank, peer = f->finding.peer;
    switch (f->finding.kind) {
    case CLV_FLIGHT_FAILED:
    case CLV_FLIGHT_REPORTED:
        clv_text_add(text, "process %lld on %s reported: %s", (long long)f->dump->process, f->dump->host,
                     f->dump->failure.message);
        return;
    case CLV_FLIGHT_DIFFERS:
        add_rank(text, report, rank);
        clv_text_add(text, " is in ");
        add_record(text, f->mine);
        clv_text_add(text, ", where ");
        add_rank(text, report, peer);
        clv_text_add(text, " is in ");
        add_record(text, f->theirs);
        clv_text_add(text, ": they do not run the same");
        return;
    case CLV_FLIGHT_MISSING:
        add_rank(text, report, rank);
        clv_text_add(text, " left no dump: killed, stopped, or not given here");
        break;
    case CLV_FLIGHT_STRAGGLER:
        add_rank(text, report, rank);
        if (f->dump)
            clv_text_add(text, " was behind, as process %lld on %s reported: %s", (long long)f->dump->process,
                         f->dump->host, f->dump->failure.message);
        else {
            clv_text_add(text, " is behind: ");
            add_state(text, report, rank);
        }
        break;
    case CLV_FLIGHT_LOST:
        clv_text_add(text, "what ");
        add_rank(text, report, rank);
        clv_text_add(text, " sent to ");
        add_rank(text, report, peer);
        clv_text_add(text, " in ");
        add_record(text, clv_flight_current(report, peer));
        clv_text_add(text, " did not come, or not as it should; now ");
        add_state(text, report, rank);
        return;
    case CLV_FLIGHT_WAITS:
        add_rank(text, report, rank);
        clv_text_add(text, " waits for ");
        add_rank(text, report, peer);
        clv_text_add(text, ", %.3g s so far, in ", 1e-9 * (double)f->weight);
        add_record(text, clv_flight_current(report, rank));
        return;
    }
    if (f->waiter >= 0)
        add_waiter(text, report, f->waiter);
}

static clv_status write_texts(clv_flight_report *report, clv_error *err)
{
    for (int i = 0; i < report->n_findings; i++) {
        char buffer[800];
        clv_text text = {.out = buffer, .size = sizeof buffer};
        write_text(&text, report, &report->findings[i]);
        clv_text_finish(&text);
        report->findings[i].finding.text = strdup(buffer);
        if (!report->findings[i].finding.text)
            return clv_fail_memory(err, "a finding", sizeof buffer);
    }
    return CLV_OK;
}

/* ---- order ---- */

/* Of culprits, the rank that processes name comes first, and lost messages last (they may be under way); then the one
 * that was waited for longest. */
static int compare_findings(const void *x, const void *y, void *named)
{
    static const int order[] = {0, 1, 2, 2, 2, 3, 4};
    const clv_flight_found *a = x, *b = y;
    const int *rank = named;
    int by_kind = order[a->finding.kind] - order[b->finding.kind];
    int by_name = (b->finding.rank == *rank) - (a->finding.rank == *rank);
    int by_loss = (a->finding.kind == CLV_FLIGHT_LOST) - (b->finding.kind == CLV_FLIGHT_LOST);
    if (by_kind)
        return by_kind;
    if (by_name && order[a->finding.kind] == 2)
        return by_name;
    if (by_loss)
        return by_loss;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    return a->finding.rank != b->finding.rank ? a->finding.rank - b->finding.rank : a->number - b->number;
}

clv_status clv_flight_diagnose(clv_flight_report *report, clv_error *err)
{
    CLV_TRY(add_failures(report, err));
    CLV_TRY(compare_all(report, err));
    for (int r = 0; r < report->ranks; r++)
        CLV_TRY(diagnose_rank(report, r, err));
    CLV_TRY(add_missing(report, err));
    CLV_TRY(add_named(report, err));
    const clv_flight_dump *first = find_first_failure(report);
    int named = first ? first->failure.rank : -1;
    if (report->n_findings > 1)
        qsort_r(report->findings, (size_t)report->n_findings, sizeof *report->findings, compare_findings, &named);
    return write_texts(report, err);
}
