/* job_rendezvous.c - rendezvous of all processes of a job with matching checks: clv_job_agree, clv_job_compare,
 * clv_job_leave.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/majority_check.h"
#include "comm/job/mpi_job.h"

#define NO_WORLD UINT64_MAX

enum {
    ROUNDS = 2,       /* of greetings: who is in the second has not gone away since the first */
    MEET_TAGS = 4096, /* from 1: meetings' */
    EXCHANGE_TAG,
};

typedef struct rendezvous {
    int n;                                 /* processes */
    clv_mpi_request *requests;             /* [2n] sent, received */
    int *ended;                            /* [2n] */
    clv_job_rendezvous_info mine, *theirs; /* [n] */
} rendezvous;

clv_status clv_job_fail_poisoned(const clv_job *job, clv_error *err)
{
    clv_error loss;
    if (!clv_control_lost(job->control, &loss))
        return clv_fail(err, CLV_EPEER,
                        "the job was poisoned by a failure: messages were under way; end the processes");
    if (err && err->code == CLV_OK)
        *err = loss;
    return loss.code;
}

/* Whether a process that is waited for has said nothing for long. */
static bool is_silent(const clv_job *job, const int *ended, int n)
{
    for (int i = 0; i < n; i++)
        if (!ended[i] &&
            clv_control_since_heartbeat_ns(job->control, i % job->info.processes) > job->heartbeat_timeout_ns)
            return true;
    return false;
}

clv_status clv_job_wait_requests(clv_job *job, clv_mpi_request *requests, int *ended, int n, bool from_all,
                                 clv_deadline *deadline, clv_error *err)
{
    int left = n;
    while (left > 0) {
        int code = 0;
        left = 0;
        if (clv_control_lost(job->control, NULL))
            return clv_job_fail_poisoned(job, err);
        pthread_mutex_lock(&job->lock);
        for (int i = 0; code == 0 && i < n; i++) {
            if (!ended[i])
                code = job->mpi->test(&requests[i], &ended[i]);
            left += !ended[i];
        }
        pthread_mutex_unlock(&job->lock);
        if (code != 0)
            return clv_job_fail_mpi(job, code, "meeting the other processes", err);
        if (left > 0 && (clv_deadline_remaining(deadline) == 0 || (from_all && is_silent(job, ended, n))))
            return CLV_ETIMEOUT;
        if (left > 0)
            nanosleep(&(struct timespec){.tv_nsec = CLV_MPI_POLL_NS}, NULL);
    }
    return CLV_OK;
}

static void describe(char *out, size_t size, const clv_job_rendezvous_info *h)
{
    unsigned long long meeting = h->number + 1;
    if (h->action > 0)
        snprintf(out, size, "makes a session of %d ranks (meeting %llu)", h->action, meeting);
    else if (h->action == CLV_JOB_COMPARE)
        snprintf(out, size, "compares %llu things (meeting %llu)", (unsigned long long)h->detail, meeting);
    else
        snprintf(out, size, "%s (meeting %llu)", h->action == CLV_JOB_LEAVE ? "leaves the job" : "is in clv_job_agree",
                 meeting);
}

/* "process 1 of 3 (host a, pid 7), which is silent: stopped, or cut off" */
static void name_missing(char *out, size_t size, const clv_job *job, int process)
{
    int64_t ns = clv_control_since_heartbeat_ns(job->control, process);
    char name[160];
    clv_job_describe_process(name, sizeof name, job, process);
    if (ns > CLV_JOB_UNRESPONSIVE_NS)
        snprintf(out, size, "%s, silent for %lld ms: stopped, or cut off", name, (long long)(ns / 1000000));
    else
        snprintf(out, size, "%s%s", name, job->control ? ", which is alive" : "");
}

static clv_status fail_missing(const rendezvous *g, const clv_job *job, int64_t waited_ns, clv_error *err)
{
    char who[320] = "", does[96], name[240];
    size_t used = 0;
    for (int p = 0; p < g->n; p++)
        if (!g->ended[g->n + p] && used < sizeof who - 1) {
            name_missing(name, sizeof name, job, p);
            used += (size_t)snprintf(who + used, sizeof who - used, "%s%s", used ? "; " : "", name);
        }
    describe(does, sizeof does, &g->mine);
    return clv_fail(err, CLV_ETIMEOUT, "process %d %s, and waited %lld ms for all %d of the job; missing: %s",
                    job->info.process, does, (long long)(waited_ns / 1000000), g->n, used ? who : "none now");
}

static clv_status exchange_infos(rendezvous *g, clv_job *job, int round, clv_deadline *deadline, clv_error *err)
{
    int64_t began = clv_now_ns();
    clv_error why = {0};
    int code = 0, tag = 1 + (int)((ROUNDS * g->mine.number + (uint64_t)round) % MEET_TAGS), asked = 0, n = g->n;
    memset(g->ended, 0, 2 * (size_t)n * sizeof *g->ended);
    pthread_mutex_lock(&job->lock);
    for (int p = 0; code == 0 && p < n; p++) {
        code = job->mpi->receive(&g->requests[n + p], job->comm, &g->theirs[p], sizeof *g->theirs, p, tag);
        asked += code == 0;
    }
    for (int p = 0; code == 0 && p < n; p++)
        code = job->mpi->send(&g->requests[p], job->comm, &g->mine, sizeof g->mine, p, tag);
    pthread_mutex_unlock(&job->lock);
    clv_status status = code == 0 ? clv_job_wait_requests(job, g->requests, g->ended, 2 * n, true, deadline, err)
                                  : clv_job_fail_mpi(job, code, "meeting the other processes", err);
    if (status == CLV_OK)
        return CLV_OK;
    if (status == CLV_ETIMEOUT) {
        status = fail_missing(g, job, clv_now_ns() - began, &why);
        clv_control_notify_failure(job->control, NO_WORLD, &why);
        if (err && err->code == CLV_OK)
            *err = why;
    }
    pthread_mutex_lock(&job->lock);
    bool over = true; /* what was sent is a few bytes, which MPI has copied */
    for (int p = 0; p < asked && !job->poisoned; p++)
        if (!g->ended[n + p])
            over = clv_job_end_requests(job, &g->requests[n + p], 1, true, CLV_MPI_CANCEL_NS) && over;
    job->poisoned |= !over;
    pthread_mutex_unlock(&job->lock);
    return status;
}

/* All hear what all say. */
static clv_status run_rendezvous(rendezvous *g, clv_job *job, int64_t timeout_ns, clv_error *err)
{
    size_t n = (size_t)job->info.processes;
    clv_deadline deadline = clv_deadline_after(timeout_ns);
    g->n = job->info.processes;
    g->requests = calloc(2 * n, sizeof *g->requests);
    g->ended = calloc(2 * n, sizeof *g->ended);
    g->theirs = calloc(n, sizeof *g->theirs);
    pthread_mutex_lock(&job->lock);
    g->mine.number = job->rendezvous_count++;
    g->mine.job_id = job->id;
    pthread_mutex_unlock(&job->lock);
    clv_status status =
        g->requests && g->ended && g->theirs ? CLV_OK : clv_fail_memory(err, "a job's processes", n * sizeof *g);
    for (int round = 0; status == CLV_OK && round < ROUNDS; round++)
        status = exchange_infos(g, job, round, &deadline, err);
    pthread_mutex_lock(&job->lock);
    if (status == CLV_OK)
        job->id = g->theirs[0].job_id;
    pthread_mutex_unlock(&job->lock);
    return status;
}

static void free_rendezvous(rendezvous *g, const clv_job *job)
{
    if (job->poisoned) /* MPI may still write there */
        return;
    free(g->requests);
    free(g->ended);
    free(g->theirs);
}

clv_status clv_job_all_gather(clv_job *job, const void *mine, void *all, size_t bytes, clv_error *err)
{
    int n = job->info.processes, code = 0, tag = EXCHANGE_TAG;
    clv_mpi_request *requests = calloc(2 * (size_t)n, sizeof *requests);
    int *ended = calloc(2 * (size_t)n, sizeof *ended);
    char *said = malloc(((size_t)n + 1) * bytes), *sent = said ? said + (size_t)n * bytes : NULL;
    clv_deadline deadline = clv_deadline_after(job->timeout_ms * 1000000);
    if (!requests || !ended || !said) {
        free(requests);
        free(ended);
        free(said);
        return clv_fail_memory(err, "a job's processes", 2 * (size_t)n * sizeof *requests);
    }
    memcpy(sent, mine, bytes);
    pthread_mutex_lock(&job->lock);
    for (int p = 0; code == 0 && p < n; p++)
        code = job->mpi->receive(&requests[n + p], job->comm, said + (size_t)p * bytes, (int64_t)bytes, p, tag);
    for (int p = 0; code == 0 && p < n; p++)
        code = job->mpi->send(&requests[p], job->comm, sent, (int64_t)bytes, p, tag);
    pthread_mutex_unlock(&job->lock);
    clv_status status = code == 0 ? clv_job_wait_requests(job, requests, ended, 2 * n, false, &deadline, err)
                                  : clv_job_fail_mpi(job, code, "joining the job", err);
    if (status != CLV_OK) { /* MPI may read and write there yet: it is left */
        job->poisoned = 1;
        return status != CLV_ETIMEOUT
                   ? status
                   : clv_fail(err, status, "not all %d processes of the job came by the deadline", n);
    }
    memcpy(all, said, (size_t)n * bytes);
    free(requests);
    free(ended);
    free(said);
    return status;
}

/* The lowest process's that failed; its own words in the process itself. */
static clv_status fail_with_their_error(const rendezvous *g, const clv_job *job, int p, clv_error *err)
{
    const clv_error *failure = &g->theirs[p].failure;
    if (g->mine.failure.code != CLV_OK) {
        if (err && err->code == CLV_OK)
            *err = g->mine.failure;
        return g->mine.failure.code;
    }
    return clv_fail_at(err, failure->code, failure->rank, failure->op, "process %d of %d: %s", p, job->info.processes,
                       failure->message);
}

static clv_status check_infos(const rendezvous *g, const clv_job *job, clv_error *err)
{
    for (int p = 0; p < g->n; p++)
        if (g->theirs[p].failure.code != CLV_OK)
            return fail_with_their_error(g, job, p, err);
    for (int p = 0; p < g->n; p++) {
        const clv_job_rendezvous_info *h = &g->theirs[p];
        char mine[96], other[96];
        if (h->number == g->mine.number && h->action == g->mine.action && h->detail == g->mine.detail)
            continue;
        describe(mine, sizeof mine, &g->mine);
        describe(other, sizeof other, h);
        return clv_fail(err, CLV_EPEER,
                        "process %d %s; process %d %s: all processes make the same sessions in the same order",
                        job->info.process, mine, p, other);
    }
    return CLV_OK;
}

clv_status clv_job_rendezvous(uint64_t *number, clv_job *job, const clv_job_rendezvous_info *mine, int64_t timeout_ns,
                              clv_error *err)
{
    rendezvous g = {.mine = *mine};
    clv_status status = run_rendezvous(&g, job, timeout_ns, err);
    if (number)
        *number = g.mine.number;
    if (status == CLV_OK)
        status = check_infos(&g, job, err);
    free_rendezvous(&g, job);
    return status; /* NOLINT(clang-analyzer-unix.Malloc) */
}

/* What a process says of itself; err: its failure, if it has one. */
static clv_job_rendezvous_info make_info(int32_t does, clv_status status, const clv_error *err)
{
    clv_job_rendezvous_info mine = {.action = does, .failure = {.rank = -1}};
    if (status != CLV_OK && err && err->code != CLV_OK)
        mine.failure = *err;
    else if (status != CLV_OK)
        (void)clv_fail(&mine.failure, status, "%s", clv_status_text(status));
    return mine;
}

clv_status clv_job_agree(clv_job *job, clv_status status, clv_error *err)
{
    clv_error why = {0};
    if (!job)
        return status;
    if (job->poisoned)
        return status != CLV_OK || !clv_control_lost(job->control, NULL) ? status : clv_job_fail_poisoned(job, err);
    const clv_job_rendezvous_info mine = make_info(CLV_JOB_AGREE, status, err);
    clv_status agreed = clv_job_rendezvous(NULL, job, &mine, job->timeout_ms * 1000000, &why);
    if (status != CLV_OK) /* one's own failure stays what it is */
        return status;
    if (agreed != CLV_OK && err && err->code == CLV_OK)
        *err = why;
    return agreed;
}

/* ---- what all are given alike ---- */

/* What two processes have, of the things that they compare. */
typedef struct difference {
    clv_mismatch who;
    char majority[64], other[64];
} difference;

/* n things are left to compare; mine: what this process has of them, or of the first. */
static clv_status compare(difference *out, clv_job *job, int n, int64_t mine, const char *text, clv_error *err)
{
    int processes = job->info.processes;
    rendezvous g = {
        .mine = {.action = CLV_JOB_COMPARE, .detail = (uint64_t)n, .digest = mine, .failure = {.rank = -1}}};
    int64_t *says = calloc((size_t)processes, sizeof *says);
    if (!says)
        return clv_fail_memory(err, "what processes have", (size_t)processes * sizeof *says);
    snprintf(g.mine.text, sizeof g.mine.text, "%s", text);
    clv_status status = run_rendezvous(&g, job, job->timeout_ms * 1000000, err);
    if (status == CLV_OK)
        status = check_infos(&g, job, err);
    if (status == CLV_OK) {
        for (int p = 0; p < processes; p++)
            says[p] = g.theirs[p].digest;
        out->who = clv_mismatch_find(says, processes);
        memcpy(out->majority, g.theirs[out->who.majority].text, sizeof out->majority);
        if (out->who.n > 0)
            memcpy(out->other, g.theirs[out->who.first].text, sizeof out->other);
    }
    free_rendezvous(&g, job);
    free(says);
    return status; /* NOLINT(clang-analyzer-unix.Malloc) */
}

static int64_t number_of(const clv_job_value *a)
{
    const uint64_t parts[] = {clv_hash_bytes(a->what, strlen(a->what)), clv_hash_bytes(a->value, strlen(a->value))};
    return (int64_t)clv_hash_bytes(parts, sizeof parts);
}

static clv_status fail_different(const char *what, const difference *d, clv_error *err)
{
    char others[240] = "";
    if (d->who.n > 1)
        snprintf(others, sizeof others, " (not what process %d has: %s)", d->who.majority, d->who.members);
    return clv_fail(err, CLV_EINVAL,
                    "the processes do not agree on %s: %s in process %d, %s in process %d%s; valid: the same in each, "
                    "of the same files",
                    what, d->majority, d->who.majority, d->other, d->who.first, others);
}

clv_status clv_job_compare(clv_job *job, const clv_job_value *mine, int n, clv_error *err)
{
    static const char call[] = "clv_job_compare";
    difference any, found = {.who.n = 0};
    uint64_t all = 0;
    CLV_TRY(clv_require_count(n, 1, call, "things", err));
    CLV_TRY(clv_require(mine != NULL, call, "what this process has", err));
    for (int i = 0; i < n; i++) {
        CLV_TRY(clv_require(mine[i].what && mine[i].value, call, "what it is and its value", err));
        const uint64_t parts[] = {all, (uint64_t)number_of(&mine[i])};
        all = clv_hash_bytes(parts, sizeof parts);
    }
    if (!job)
        return CLV_OK;
    if (job->poisoned)
        return clv_job_fail_poisoned(job, err);
    CLV_TRY(compare(&any, job, n, (int64_t)all, "", err));
    if (any.who.n == 0)
        return CLV_OK;
    int next = 0; /* one of them differs */
    for (; found.who.n == 0 && next < n; next++)
        CLV_TRY(compare(&found, job, n - next, number_of(&mine[next]), mine[next].value, err));
    return fail_different(mine[next - 1].what, &found, err);
}

static bool all_leave(const rendezvous *g)
{
    for (int p = 0; p < g->n; p++)
        if (g->theirs[p].action != CLV_JOB_LEAVE)
            return false;
    return true;
}

/* One that leaves is met by those that make or ask something first: until all leave. *came: all did, whatever any of
 * them failed with. */
static clv_status leave_rendezvous(bool *came, clv_job *job, const clv_job_rendezvous_info *mine, clv_error *err)
{
    clv_status status;
    do {
        rendezvous g = {.mine = *mine};
        status = run_rendezvous(&g, job, job->timeout_ms * 1000000, err);
        *came = status == CLV_OK && all_leave(&g);
        if (*came)
            status = check_infos(&g, job, err);
        free_rendezvous(&g, job);
    } while (status == CLV_OK && !*came);
    return status; /* NOLINT(clang-analyzer-unix.Malloc) */
}

clv_status clv_job_leave(clv_job *job, clv_error *err)
{
    clv_error why = {0};
    bool came = false;
    if (!job || job->members[job->info.process].pid != getpid()) /* a child of the process is none of the job's */
        return CLV_OK;
    pthread_mutex_lock(&job->lock);
    int worlds = job->n_worlds;
    pthread_mutex_unlock(&job->lock);
    if (worlds > 0)
        return clv_fail(err, CLV_EINVAL, "%d sessions of the job are there yet; free them before clv_job_leave",
                        worlds);
    const clv_job_rendezvous_info mine = make_info(CLV_JOB_LEAVE, err ? err->code : CLV_OK, err);
    clv_status status = job->poisoned ? clv_job_fail_poisoned(job, &why) : leave_rendezvous(&came, job, &mine, &why);
    clv_control_close(job->control, came || status == CLV_OK ? NULL : mine.failure.code ? &mine.failure : &why);
    if (!job->poisoned && came) {
        int code = job->mpi->leave(job->comm);
        if (code != 0 && status == CLV_OK)
            status = clv_job_fail_mpi(job, code, "leaving the job", &why);
    }
    if (status != CLV_OK && err && err->code == CLV_OK)
        *err = why;
    clv_job_free(job);
    return status;
}
