/* job_rendezvous.c - all processes of a job meet and check that they make the same call: clv_job_agree,
 * clv_job_compare, clv_job_leave.
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
    ROUNDS = 2, /* exchanges of a rendezvous: a process that is in the second has not ended since the first */
    RENDEZVOUS_TAGS = 4096, /* tags 1 to this are used in turn by rendezvous */
    GATHER_TAG,
};

clv_status clv_job_fail_poisoned(const clv_job *job, clv_error *err)
{
    clv_error loss;
    if (!clv_control_has_lost_process(job->control, &loss))
        return clv_fail(err, CLV_EPEER,
                        "the job was poisoned by a failure: messages could not be canceled; end the processes");
    if (err && err->code == CLV_OK)
        *err = loss;
    return loss.code;
}

/* Whether a process whose request has not ended sends no heartbeats. */
static bool is_unresponsive(const clv_job *job, const int *ended, int n)
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
        if (clv_control_has_lost_process(job->control, NULL))
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
        if (left > 0 && (clv_deadline_remaining(deadline) == 0 || (from_all && is_unresponsive(job, ended, n))))
            return CLV_ETIMEOUT;
        if (left > 0)
            nanosleep(&(struct timespec){.tv_nsec = CLV_MPI_POLL_NS}, NULL);
    }
    return CLV_OK;
}

static void describe_info(char *out, size_t size, const clv_job_rendezvous_info *h)
{
    unsigned long long number = h->number + 1;
    if (h->action > 0)
        snprintf(out, size, "makes a session of %d ranks (rendezvous %llu)", h->action, number);
    else if (h->action == CLV_JOB_COMPARE)
        snprintf(out, size, "compares %llu things (rendezvous %llu)", (unsigned long long)h->detail, number);
    else
        snprintf(out, size, "%s (rendezvous %llu)",
                 h->action == CLV_JOB_LEAVE ? "leaves the job" : "is in clv_job_agree", number);
}

/* Writes "process 1 of 3 (host a, pid 7), unresponsive for 600 ms: stopped, or cut off". */
static void describe_missing(char *out, size_t size, const clv_job *job, int process)
{
    int64_t ns = clv_control_since_heartbeat_ns(job->control, process);
    char name[160];
    clv_job_describe_process(name, sizeof name, job, process);
    if (ns > CLV_JOB_UNRESPONSIVE_NS)
        snprintf(out, size, "%s, unresponsive for %lld ms: stopped, or cut off", name, (long long)(ns / 1000000));
    else
        snprintf(out, size, "%s%s", name, job->control ? ", which is alive" : "");
}

/* A timeout of this process, which `does` something; ended[p]: process p has come. The others receive it, too. */
static clv_status fail_missing(clv_job *job, const int *ended, const char *does, int64_t waited_ns, clv_error *err)
{
    char missing[320] = "", name[240];
    size_t used = 0;
    clv_error why = {0};
    for (int p = 0; p < job->info.processes; p++)
        if (!ended[p] && used < sizeof missing - 1) {
            describe_missing(name, sizeof name, job, p);
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%s", used ? "; " : "", name);
        }
    (void)clv_fail(&why, CLV_ETIMEOUT, "process %d %s, and waited %lld ms for all %d of the job; missing: %s",
                   job->info.process, does, (long long)(waited_ns / 1000000), job->info.processes,
                   used ? missing : "none now");
    clv_control_notify_failure(job->control, NO_WORLD, &why);
    if (err && err->code == CLV_OK)
        *err = why;
    return CLV_ETIMEOUT;
}

/* As clv_job_all_gather. A job whose messages cannot be canceled is poisoned, and their memory is left to MPI. */
static clv_status gather(clv_job *job, void **all, const void *mine, size_t bytes, int tag, const char *does,
                         clv_deadline *deadline, clv_error *err)
{
    int64_t began = clv_now_ns();
    int n = job->info.processes, code = 0, n_posted = 0;
    clv_mpi_request *requests = calloc(2 * (size_t)n, sizeof *requests); /* receives, then sends */
    int *ended = calloc(2 * (size_t)n, sizeof *ended);
    char *received = malloc(((size_t)n + 1) * bytes), *sent = received ? received + (size_t)n * bytes : NULL;
    clv_status status = CLV_OK;
    if (requests && ended && received) {
        memcpy(sent, mine, bytes);
        pthread_mutex_lock(&job->lock);
        for (int p = 0; code == 0 && p < n; p++, n_posted += code == 0)
            code = job->mpi->receive(&requests[p], job->comm, received + (size_t)p * bytes, (int64_t)bytes, p, tag);
        for (int p = 0; code == 0 && p < n; p++)
            code = job->mpi->send(&requests[n + p], job->comm, sent, (int64_t)bytes, p, tag);
        pthread_mutex_unlock(&job->lock);
        status = code == 0 ? clv_job_wait_requests(job, requests, ended, 2 * n, true, deadline, err)
                           : clv_job_fail_mpi(job, code, "meeting the other processes", err);
    } else {
        status = clv_fail_memory(err, "a job's processes", 2 * (size_t)n * sizeof *requests);
    }
    if (status == CLV_ETIMEOUT)
        status = fail_missing(job, ended, does, clv_now_ns() - began, err);
    pthread_mutex_lock(&job->lock);
    for (int p = 0; p < n_posted && !job->poisoned; p++) /* sends are small, and MPI has copied them */
        if (!ended[p] && !clv_job_end_requests(job, &requests[p], 1, true, CLV_MPI_CANCEL_NS))
            job->poisoned = 1;
    bool leak = job->poisoned && n_posted > 0 && status != CLV_OK;
    *all = status == CLV_OK ? received : NULL;
    pthread_mutex_unlock(&job->lock);
    if (leak)
        return status; /* NOLINT(clang-analyzer-unix.Malloc) */
    free(requests);
    free(ended);
    if (status != CLV_OK)
        free(received);
    return status;
}

clv_status clv_job_all_gather(void **all, clv_job *job, const void *mine, size_t bytes, clv_error *err)
{
    clv_deadline deadline = clv_deadline_after(job->timeout_ms * 1000000);
    clv_status status = gather(job, all, mine, bytes, GATHER_TAG, "joins the job", &deadline, err);
    if (status != CLV_OK)
        job->poisoned = 1;
    return status;
}

/* Exchanges infos; *theirs: [processes], to be freed by the caller; NULL on failure. */
static clv_status exchange_infos(clv_job_rendezvous_info **theirs, clv_job_rendezvous_info *mine, clv_job *job,
                                 int64_t timeout_ns, clv_error *err)
{
    clv_deadline deadline = clv_deadline_after(timeout_ns);
    char does[96];
    pthread_mutex_lock(&job->lock);
    mine->number = job->rendezvous_count++;
    mine->job_id = job->id;
    pthread_mutex_unlock(&job->lock);
    describe_info(does, sizeof does, mine);
    void *all = NULL;
    clv_status status = CLV_OK;
    for (int round = 0; status == CLV_OK && round < ROUNDS; round++) {
        int tag = 1 + (int)((ROUNDS * mine->number + (uint64_t)round) % RENDEZVOUS_TAGS);
        free(all);
        status = gather(job, &all, mine, sizeof *mine, tag, does, &deadline, err);
    }
    *theirs = all;
    if (status != CLV_OK)
        return status;
    pthread_mutex_lock(&job->lock);
    job->id = (*theirs)[0].job_id;
    pthread_mutex_unlock(&job->lock);
    return CLV_OK;
}

/* Returns the failure of process p, the lowest that failed; a process that failed itself returns its own. */
static clv_status fail_with_theirs(const clv_job_rendezvous_info *mine, const clv_error *failure, const clv_job *job,
                                   int p, clv_error *err)
{
    if (mine->failure.code == CLV_OK)
        return clv_fail_at(err, failure->code, failure->rank, failure->op, "process %d of %d: %s", p,
                           job->info.processes, failure->message);
    if (err && err->code == CLV_OK)
        *err = mine->failure;
    return mine->failure.code;
}

static clv_status check_infos(const clv_job_rendezvous_info *theirs, const clv_job_rendezvous_info *mine,
                              const clv_job *job, clv_error *err)
{
    for (int p = 0; p < job->info.processes; p++)
        if (theirs[p].failure.code != CLV_OK)
            return fail_with_theirs(mine, &theirs[p].failure, job, p, err);
    for (int p = 0; p < job->info.processes; p++) {
        const clv_job_rendezvous_info *h = &theirs[p];
        char here[96], other[96];
        if (h->number == mine->number && h->action == mine->action && h->detail == mine->detail)
            continue;
        describe_info(here, sizeof here, mine);
        describe_info(other, sizeof other, h);
        return clv_fail(err, CLV_EPEER,
                        "process %d %s; process %d %s: all processes must make the same sessions in the same order",
                        job->info.process, here, p, other);
    }
    return CLV_OK;
}

clv_status clv_job_rendezvous(uint64_t *number, clv_job *job, const clv_job_rendezvous_info *info, int64_t timeout_ns,
                              clv_error *err)
{
    clv_job_rendezvous_info mine = *info, *theirs;
    clv_status status = exchange_infos(&theirs, &mine, job, timeout_ns, err);
    if (number)
        *number = mine.number;
    if (status == CLV_OK)
        status = check_infos(theirs, &mine, job, err);
    free(theirs);
    return status;
}

/* This process's info; err: its failure, if it has one. */
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
        return status != CLV_OK || !clv_control_has_lost_process(job->control, NULL) ? status
                                                                                     : clv_job_fail_poisoned(job, err);
    const clv_job_rendezvous_info mine = make_info(CLV_JOB_AGREE, status, err);
    clv_status agreed = clv_job_rendezvous(NULL, job, &mine, job->timeout_ms * 1000000, &why);
    if (status != CLV_OK) /* its own failure comes first */
        return status;
    if (agreed != CLV_OK && err && err->code == CLV_OK)
        *err = why;
    return agreed;
}

/* ---- comparing values ---- */

/* The first mismatch of values, with what two processes have. */
typedef struct difference {
    clv_mismatch mismatch;
    char majority[64], other[64];
} difference;

/* Compares one digest, with n values left; text: the value. */
static clv_status compare(difference *out, clv_job *job, int n, int64_t digest, const char *text, clv_error *err)
{
    int processes = job->info.processes;
    CLV_FREED clv_job_rendezvous_info *theirs = NULL;
    clv_job_rendezvous_info mine = {
        .action = CLV_JOB_COMPARE, .detail = (uint64_t)n, .digest = digest, .failure = {.rank = -1}};
    CLV_FREED int64_t *digests = calloc((size_t)processes, sizeof *digests);
    if (!digests)
        return clv_fail_memory(err, "a job's processes", (size_t)processes * sizeof *digests);
    snprintf(mine.text, sizeof mine.text, "%s", text);
    CLV_TRY(exchange_infos(&theirs, &mine, job, job->timeout_ms * 1000000, err));
    CLV_TRY(check_infos(theirs, &mine, job, err));
    for (int p = 0; p < processes; p++)
        digests[p] = theirs[p].digest;
    out->mismatch = clv_mismatch_find(digests, processes);
    memcpy(out->majority, theirs[out->mismatch.majority].text, sizeof out->majority);
    if (out->mismatch.n > 0)
        memcpy(out->other, theirs[out->mismatch.first].text, sizeof out->other);
    return CLV_OK;
}

static int64_t digest_of(const clv_job_value *a)
{
    const uint64_t parts[] = {clv_hash_bytes(a->what, strlen(a->what)), clv_hash_bytes(a->value, strlen(a->value))};
    return (int64_t)clv_hash_bytes(parts, sizeof parts);
}

static clv_status fail_different(const char *what, const difference *d, clv_error *err)
{
    char others[240] = "";
    if (d->mismatch.n > 1)
        snprintf(others, sizeof others, " (not what process %d has: %s)", d->mismatch.majority, d->mismatch.members);
    return clv_fail(err, CLV_EINVAL,
                    "the processes do not agree on %s: %s in process %d, %s in process %d%s; valid: the same in each, "
                    "of the same files",
                    what, d->majority, d->mismatch.majority, d->other, d->mismatch.first, others);
}

clv_status clv_job_compare(clv_job *job, const clv_job_value *mine, int n, clv_error *err)
{
    difference any, found = {.mismatch.n = 0};
    uint64_t all = 0;
    CLV_TRY(clv_require_count(n, 1, __func__, "things", err));
    CLV_TRY(clv_require(mine != NULL, __func__, "what this process has", err));
    for (int i = 0; i < n; i++) {
        CLV_TRY(clv_require(mine[i].what && mine[i].value, __func__, "what it is and its value", err));
        const uint64_t parts[] = {all, (uint64_t)digest_of(&mine[i])};
        all = clv_hash_bytes(parts, sizeof parts);
    }
    if (!job)
        return CLV_OK;
    if (job->poisoned)
        return clv_job_fail_poisoned(job, err);
    CLV_TRY(compare(&any, job, n, (int64_t)all, "", err));
    if (any.mismatch.n == 0)
        return CLV_OK;
    int next = 0; /* finds the first that differs */
    for (; found.mismatch.n == 0 && next < n; next++)
        CLV_TRY(compare(&found, job, n - next, digest_of(&mine[next]), mine[next].value, err));
    return fail_different(mine[next - 1].what, &found, err);
}

/* Meets the other processes until all of them leave, as some may still make sessions or agree. *all_left: they did,
 * whether one of them failed or not. */
static clv_status leave_rendezvous(bool *all_left, clv_job *job, const clv_job_rendezvous_info *info, clv_error *err)
{
    clv_status status;
    do {
        clv_job_rendezvous_info mine = *info, *theirs;
        status = exchange_infos(&theirs, &mine, job, job->timeout_ms * 1000000, err);
        *all_left = status == CLV_OK;
        for (int p = 0; *all_left && p < job->info.processes; p++)
            *all_left = theirs[p].action == CLV_JOB_LEAVE;
        if (*all_left)
            status = check_infos(theirs, &mine, job, err);
        free(theirs);
    } while (status == CLV_OK && !*all_left);
    return status;
}

clv_status clv_job_leave(clv_job *job, clv_error *err)
{
    clv_error why = {0};
    bool all_left = false;
    if (!job || job->members[job->info.process].pid != getpid()) /* a child made by fork */
        return CLV_OK;
    pthread_mutex_lock(&job->lock);
    int worlds = job->n_worlds;
    pthread_mutex_unlock(&job->lock);
    if (worlds > 0)
        return clv_fail(err, CLV_EINVAL, "%d sessions of the job still exist; free them before clv_job_leave", worlds);
    const clv_job_rendezvous_info mine = make_info(CLV_JOB_LEAVE, err ? err->code : CLV_OK, err);
    clv_status status =
        job->poisoned ? clv_job_fail_poisoned(job, &why) : leave_rendezvous(&all_left, job, &mine, &why);
    clv_control_close(job->control, all_left || status == CLV_OK ? NULL : mine.failure.code ? &mine.failure : &why);
    if (!job->poisoned && all_left) {
        int code = job->mpi->leave(job->comm);
        if (code != 0 && status == CLV_OK)
            status = clv_job_fail_mpi(job, code, "leaving the job", &why);
    }
    if (status != CLV_OK && err && err->code == CLV_OK)
        *err = why;
    clv_job_free(job);
    return status;
}
