/* flight_diagnosis.c - diagnosis from flight recorder dumps: culprit, stragglers, mismatched collectives.
 *
 * A rank in a step of a group waits for the members that have not come so far in it (by messages: that nothing came
 * of). Whoever is waited for and waits for none is behind; one without a dump is missing. What did not come of a member
 * that went on was lost. Members whose steps of one number in a group set have different tags do not run the same.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/c_locale.h"
#include "runtime/diagnostics/flight_report.h"

enum { MEMBERS_IN_LACKS = 64, TEXT = 800, STATE = 300, RANK = 120 };

const char *clv_flight_kind_name(clv_flight_kind kind)
{
    static const char *const names[] = {"failed", "differs", "missing", "straggler", "lost", "waits", "reported"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* ---- what is said ---- */

static clv_flight_found *find_finding(const clv_flight_report *report, clv_flight_kind kind, int rank, int peer)
{
    for (int i = 0; i < report->n; i++) {
        const clv_flight_finding *f = &report->said[i].finding;
        if (f->kind == kind && f->rank == rank && f->peer == peer)
            return &report->said[i];
    }
    return NULL;
}

/* Adds a finding, its text taken over; NULL: there was no memory for it. */
static clv_status add_finding(clv_flight_report *report, clv_flight_finding finding, int64_t weight, char *text,
                              clv_error *err)
{
    if (text && report->n == report->room) {
        int room = 2 * report->room + 16;
        clv_flight_found *more = realloc(report->said, (size_t)room * sizeof *more);
        if (more) {
            report->said = more;
            report->room = room;
        }
    }
    if (!text || report->n == report->room) {
        free(text);
        return clv_fail_memory(err, "a finding", TEXT);
    }
    finding.text = text;
    report->said[report->n++] = (clv_flight_found){.finding = finding, .weight = weight};
    return CLV_OK;
}

/* printf's; NULL: no memory. */
__attribute__((format(printf, 1, 2))) static char *text_of(const char *format, ...)
{
    char text[TEXT];
    va_list values;
    va_start(values, format);
    clv_vsnprintf(text, sizeof text, format, values);
    va_end(values);
    return strdup(text);
}

static const char *name_rank(char out[RANK], const clv_flight_report *report, int rank)
{
    const clv_flight_dump *d = report->dump_of[rank];
    if (d)
        snprintf(out, RANK, "rank %d (process %lld on %s)", rank, (long long)d->process, d->host);
    else
        snprintf(out, RANK, "rank %d", rank);
    return out;
}

/* "all_reduce 'layers.2.mlp' (instruction 31, step 7 of group set 1, 0 of 512 bytes seen)". */
static const char *describe(char out[STATE], const clv_flight_record *at)
{
    char step[112] = "", instruction[32] = "";
    if (at->instruction >= 0)
        snprintf(instruction, sizeof instruction, "instruction %lld", (long long)at->instruction);
    if (at->phase != CLV_FLIGHT_PHASE_NONE)
        snprintf(step, sizeof step, "step %llu of group set %lld, %lld of %lld bytes seen", (unsigned long long)at->seq,
                 (long long)at->set, (long long)at->seen, (long long)at->expected);
    bool both = step[0] && instruction[0];
    if (step[0] || instruction[0])
        snprintf(out, STATE, "%.48s '%.96s' (%s%s%s)", at->kind, at->name, instruction, both ? ", " : "", step);
    else
        snprintf(out, STATE, "%.48s '%.96s'", at->kind, at->name);
    return out;
}

/* What a rank with a dump is in, or did last. */
static const char *describe_rank(char out[STATE + 32], const clv_flight_report *report, int rank)
{
    char state[STATE];
    const clv_flight_record *at = clv_flight_current(report, rank);
    const clv_flight_rank_dump *of = report->ranked[rank];
    if (at)
        snprintf(out, STATE + 32, "it is in %s", describe(state, at));
    else if (of->n > 0)
        snprintf(out, STATE + 32, "it %s; the last was %s", of->works ? "is between instructions" : "runs nothing",
                 describe(state, &of->records[of->n - 1]));
    else
        snprintf(out, STATE + 32, "it has run nothing yet");
    return out;
}

/* ---- who waits for whom ---- */

static bool waits(const clv_flight_record *at)
{
    return at && (at->phase == CLV_FLIGHT_PHASE_WAITING || at->phase == CLV_FLIGHT_PHASE_WAITING_END);
}

static int64_t waited_ns(const clv_flight_report *report, int rank)
{
    const clv_flight_record *at = clv_flight_current(report, rank);
    return at->waiting_ns > 0 ? report->dump_of[rank]->written_ns - at->waiting_ns : 0;
}

/* The index of a rank in its group, whose first member is at *first of the set's; *n members. */
static int index_in_group(int64_t *first, int *n, const clv_flight_dump *d, int64_t set, int rank)
{
    const int32_t *members = d->members + set * d->ranks, *group_of = d->group_of + set * d->ranks;
    int me = 0;
    *first = -1;
    *n = 0;
    for (int64_t i = 0; i < d->ranks; i++)
        if (group_of[members[i]] == group_of[rank]) {
            *first = *first < 0 ? i : *first;
            me = members[i] == rank ? (int)(i - *first) : me;
            ++*n;
        }
    return me;
}

/* How far rank m is in step `seq` of a group set: CLV_FLIGHT_PHASE_NONE before it, CLV_FLIGHT_PHASE_COMPLETED behind.
 * */
static clv_flight_phase progress(const clv_flight_report *report, int m, int64_t set, uint64_t seq)
{
    const clv_flight_rank_dump *of = report->ranked[m];
    const clv_flight_record *at = clv_flight_current(report, m);
    if (set >= report->dump_of[m]->n_sets || of->steps[set] < seq)
        return CLV_FLIGHT_PHASE_NONE;
    if (of->ended[set] >= seq)
        return CLV_FLIGHT_PHASE_COMPLETED;
    return at && at->phase != CLV_FLIGHT_PHASE_NONE && at->set == set && at->seq == seq ? at->phase
                                                                                        : CLV_FLIGHT_PHASE_COMPLETED;
}

/* Whether `at`, of a rank that waits, waits for member m, which is rank `peer`. */
static bool awaits(const clv_flight_report *report, const clv_flight_record *at, int m, int peer)
{
    bool by_messages = at->phase == CLV_FLIGHT_PHASE_WAITING && at->lacks != 0 && m < MEMBERS_IN_LACKS;
    if (by_messages)
        return at->lacks >> m & 1;
    if (!report->dump_of[peer])
        return true;
    clv_flight_phase far = progress(report, peer, at->set, at->seq);
    return at->phase == CLV_FLIGHT_PHASE_WAITING ? far < CLV_FLIGHT_PHASE_WAITING : far < CLV_FLIGHT_PHASE_WAITING_END;
}

static clv_status add_culprit(clv_flight_report *report, clv_flight_kind kind, int rank, int waiter, clv_error *err)
{
    char culprit[RANK], who[RANK], what[STATE], state[STATE + 32];
    int peer = kind == CLV_FLIGHT_LOST ? waiter : -1;
    int64_t weight = waited_ns(report, waiter);
    clv_flight_found *said = find_finding(report, kind, rank, peer);
    const clv_flight_finding finding = {.size = sizeof finding, .kind = kind, .rank = rank, .peer = peer};
    if (said && said->weight >= weight)
        return CLV_OK;
    name_rank(culprit, report, rank);
    name_rank(who, report, waiter);
    describe(what, clv_flight_current(report, waiter));
    char *text =
        kind == CLV_FLIGHT_MISSING
            ? text_of("%s left no dump: killed, stopped, or not given here; %s waits for it in %s", culprit, who, what)
        : kind == CLV_FLIGHT_LOST ? text_of("what %s sent to %s in %s did not come, or not as it should; now %s",
                                            culprit, who, what, describe_rank(state, report, rank) + strlen("it "))
                                  : text_of("%s is behind: %s; %s waits for it in %s", culprit,
                                            describe_rank(state, report, rank), who, what);
    if (!said || !text)
        return add_finding(report, finding, weight, text, err);
    free((char *)said->finding.text);
    said->finding.text = text;
    said->weight = weight;
    return CLV_OK;
}

static clv_status add_wait(clv_flight_report *report, int rank, int peer, clv_error *err)
{
    char who[RANK], whom[RANK], what[STATE];
    int64_t ns = waited_ns(report, rank);
    const clv_flight_finding finding = {.size = sizeof finding, .kind = CLV_FLIGHT_WAITS, .rank = rank, .peer = peer};
    return add_finding(report, finding, ns,
                       text_of("%s waits for %s, %.3g s so far, in %s", name_rank(who, report, rank),
                               name_rank(whom, report, peer), 1e-9 * (double)ns,
                               describe(what, clv_flight_current(report, rank))),
                       err);
}

/* A rank that runs nothing, while another of its process does, waits for that one. */
static clv_status diagnose_idle(clv_flight_report *report, int waiter, int idle, clv_error *err)
{
    const clv_flight_dump *d = report->dump_of[idle];
    bool waits_inside = false;
    if (report->ranked[idle]->works)
        return add_culprit(report, CLV_FLIGHT_STRAGGLER, idle, waiter, err);
    for (int i = 0; i < d->n_local_ranks; i++) {
        int rank = (int)d->of[i].rank;
        const clv_flight_record *at = clv_flight_current(report, rank);
        waits_inside = waits_inside || at;
        if (at && !waits(at))
            CLV_TRY(add_culprit(report, CLV_FLIGHT_STRAGGLER, rank, waiter, err));
    }
    return waits_inside ? CLV_OK : add_culprit(report, CLV_FLIGHT_STRAGGLER, idle, waiter, err);
}

/* One that waits for another, whom it may in turn wait for itself: what is between them. */
static clv_status diagnose_wait(clv_flight_report *report, int rank, int peer, clv_error *err)
{
    const clv_flight_record *at = clv_flight_current(report, rank);
    if (!report->dump_of[peer])
        return add_culprit(report, CLV_FLIGHT_MISSING, peer, rank, err);
    if (at->phase == CLV_FLIGHT_PHASE_WAITING && progress(report, peer, at->set, at->seq) >= CLV_FLIGHT_PHASE_WAITING)
        return add_culprit(report, CLV_FLIGHT_LOST, peer, rank, err);
    if (!clv_flight_current(report, peer))
        return diagnose_idle(report, rank, peer, err);
    if (!waits(clv_flight_current(report, peer)))
        return add_culprit(report, CLV_FLIGHT_STRAGGLER, peer, rank, err);
    return CLV_OK;
}

static clv_status diagnose_rank(clv_flight_report *report, int rank, clv_error *err)
{
    const clv_flight_record *at = clv_flight_current(report, rank);
    const clv_flight_dump *d = report->dump_of[rank];
    int64_t first;
    int n;
    if (!waits(at))
        return CLV_OK;
    (void)index_in_group(&first, &n, d, at->set, rank);
    for (int m = 0; m < n; m++) {
        int peer = d->members[at->set * d->ranks + first + m];
        if (peer == rank || !awaits(report, at, m, peer))
            continue;
        CLV_TRY(add_wait(report, rank, peer, err));
        CLV_TRY(diagnose_wait(report, rank, peer, err));
    }
    return CLV_OK;
}

/* ---- who does not run the same ---- */

/* What a member of a group did in a step of it. */
typedef struct step_record {
    uint64_t seq;
    int member, record; /* the record's number among the rank's: the last is what counts, where there are several */
    const clv_flight_record *at;
} step_record;

static int compare_step_records(const void *a, const void *b)
{
    const step_record *x = a, *y = b;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return x->member != y->member ? x->member - y->member : x->record - y->record;
}

/* All that a group tells of steps of a set, by step and member. Returns how many; *out is freed. */
static clv_status collect(step_record **out, int *n_out, const clv_flight_report *report, const int32_t *group, int n,
                          int set, clv_error *err)
{
    size_t room = 0;
    for (int i = 0; i < n; i++)
        room += report->ranked[group[i]] ? (size_t)report->ranked[group[i]]->n : 0;
    step_record *all = malloc((room + 1) * sizeof *all);
    int found = 0, kept = 0;
    if (!all)
        return clv_fail_memory(err, "the steps of a group", room * sizeof *all);
    for (int i = 0; i < n; i++) {
        const clv_flight_rank_dump *of = report->ranked[group[i]];
        for (int k = 0; of && k < of->n; k++)
            if (of->records[k].phase != CLV_FLIGHT_PHASE_NONE && of->records[k].set == set)
                all[found++] = (step_record){of->records[k].seq, i, k, &of->records[k]};
    }
    qsort(all, (size_t)found, sizeof *all, compare_step_records);
    for (int i = 0; i < found; i++)
        if (i + 1 == found || all[i].seq != all[i + 1].seq || all[i].member != all[i + 1].member)
            all[kept++] = all[i];
    *out = all;
    *n_out = kept;
    return CLV_OK;
}

static int count_tag(const step_record *step, int n, uint64_t tag)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += step[i].at->tag == tag;
    return count;
}

/* Those in the minority of a step, held against one of the majority, the lowest where they are as many. */
static clv_status compare_step(bool *differ, clv_flight_report *report, const int32_t *group, const step_record *step,
                               int n, clv_error *err)
{
    const step_record *best = step;
    int most = count_tag(step, n, best->at->tag);
    if (most == n)
        return CLV_OK;
    for (int i = 1; i < n; i++) {
        int count = count_tag(step, n, step[i].at->tag);
        best = count > most ? &step[i] : best;
        most = count > most ? count : most;
    }
    *differ = true;
    for (int i = 0; i < n; i++) {
        char one[RANK], other[RANK], mine[STATE], theirs[STATE];
        int rank = group[step[i].member], of = group[best->member];
        const clv_flight_finding finding = {
            .size = sizeof finding, .kind = CLV_FLIGHT_DIFFERS, .rank = rank, .peer = of};
        if (step[i].at->tag == best->at->tag)
            continue;
        CLV_TRY(add_finding(report, finding, n - count_tag(step, n, step[i].at->tag),
                            text_of("%s is in %s, where %s is in %s: they do not run the same",
                                    name_rank(one, report, rank), describe(mine, step[i].at),
                                    name_rank(other, report, of), describe(theirs, best->at)),
                            err));
    }
    return CLV_OK;
}

/* The oldest step in which members differ: what comes behind it follows from it. */
static clv_status compare_group(clv_flight_report *report, const int32_t *group, int n, int set, clv_error *err)
{
    step_record *all;
    int found;
    bool differ = false;
    clv_status status = CLV_OK;
    CLV_TRY(collect(&all, &found, report, group, n, set, err));
    for (int i = 0, k; i < found && !differ && status == CLV_OK; i += k) {
        for (k = 1; i + k < found && all[i + k].seq == all[i].seq;)
            k++;
        status = compare_step(&differ, report, group, all + i, k, err);
    }
    free(all);
    return status;
}

static clv_status compare_all(clv_flight_report *report, clv_error *err)
{
    const clv_flight_dump *d = &report->dumps[0];
    for (int i = 1; i < report->n_dumps; i++) /* the fewest: those that all have made alike */
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

/* ---- all of it ---- */

static clv_status add_failures(clv_flight_report *report, clv_error *err)
{
    for (int i = 0; i < report->n_dumps; i++) {
        const clv_flight_dump *d = &report->dumps[i];
        const clv_error *e = &d->failure;
        bool itself = e->code != CLV_EPEER && e->code != CLV_ETIMEOUT && e->rank >= 0 && e->rank < report->ranks &&
                      report->dump_of[e->rank] == d;
        clv_flight_finding finding = {.size = sizeof finding,
                                      .kind = itself ? CLV_FLIGHT_FAILED : CLV_FLIGHT_REPORTED,
                                      .rank = itself                 ? e->rank
                                              : d->n_local_ranks > 0 ? (int)d->of[0].rank
                                                                     : -1,
                                      .peer = -1};
        if (e->code == CLV_OK)
            continue;
        CLV_TRY(add_finding(report, finding, -i,
                            text_of("process %lld on %s said: %s", (long long)d->process, d->host, e->message), err));
    }
    return CLV_OK;
}

/* Missing ranks that nobody was seen to wait for. */
static clv_status add_missing(clv_flight_report *report, clv_error *err)
{
    for (int r = 0; r < report->ranks; r++) {
        const clv_flight_finding finding = {.size = sizeof finding, .kind = CLV_FLIGHT_MISSING, .rank = r, .peer = -1};
        if (!report->dump_of[r] && !find_finding(report, CLV_FLIGHT_MISSING, r, -1))
            CLV_TRY(add_finding(report, finding, -1,
                                text_of("rank %d left no dump: killed, stopped, or not given here", r), err));
    }
    return CLV_OK;
}

/* The dump whose process failed first, of those that name a rank: when a deadline passes all are asked where they
 * stand. Who says something else later was stopped, and has been woken. NULL: none does. */
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

/* A rank that others have named, and in whose records nothing is wrong: it wrote them when it had been woken, or when
 * what they waited for came after all. */
static clv_status add_named(clv_flight_report *report, clv_error *err)
{
    const clv_flight_dump *d = find_first_failure(report);
    char culprit[RANK];
    if (!d || d->failure.code != CLV_ETIMEOUT)
        return CLV_OK;
    int rank = d->failure.rank;
    for (int i = 0; i < report->n; i++)
        if (report->said[i].finding.rank == rank && report->said[i].finding.kind < CLV_FLIGHT_WAITS)
            return CLV_OK;
    const clv_flight_finding finding = {.size = sizeof finding, .kind = CLV_FLIGHT_STRAGGLER, .rank = rank, .peer = -1};
    return add_finding(report, finding, 0,
                       text_of("%s was behind when process %lld on %s found it so: %s",
                               name_rank(culprit, report, rank), (long long)d->process, d->host, d->failure.message),
                       err);
}

/* Culprits that processes name come before others, lost messages behind them (they may be under way), then those that
 * were waited for longest; else as they were found. */
static int compare(const void *x, const void *y, void *named)
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

static void sort(clv_flight_report *report)
{
    const clv_flight_dump *first = find_first_failure(report);
    int named = first ? first->failure.rank : -1;
    for (int i = 0; i < report->n; i++)
        report->said[i].number = i;
    if (report->n > 1)
        qsort_r(report->said, (size_t)report->n, sizeof *report->said, compare, &named);
}

clv_status clv_flight_diagnose(clv_flight_report *report, clv_error *err)
{
    CLV_TRY(add_failures(report, err));
    CLV_TRY(compare_all(report, err));
    for (int r = 0; r < report->ranks; r++)
        CLV_TRY(diagnose_rank(report, r, err));
    CLV_TRY(add_missing(report, err));
    CLV_TRY(add_named(report, err));
    sort(report);
    return CLV_OK;
}
