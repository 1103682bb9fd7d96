/* job_members.c - facts about a job's processes: name for messages, same host, share of cores; MPI errors and
 * cancellation.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/threads/wait.h"
#include "comm/job/mpi_job.h"

void clv_job_describe_process(char *out, size_t size, const clv_job *job, int process)
{
    size_t used = (size_t)snprintf(out, size, "process %d of %d", process, job->info.processes);
    if (job->members && used < size)
        snprintf(out + used, size - used, " (host %s, pid %lld)", job->members[process].host,
                 (long long)job->members[process].pid);
}

clv_status clv_job_fail_mpi(const clv_job *job, int code, const char *what, clv_error *err)
{
    char text[256];
    job->mpi->text(code, text, sizeof text);
    return clv_fail(err, CLV_EPEER, "%s, process %d of %d: MPI (%s) says: %s", what, job->info.process,
                    job->info.processes, job->mpi->name, text);
}

double clv_job_core_share(const clv_job *job)
{
    const clv_job_member *me = &job->members[job->info.process];
    double cores = 0;
    for (int c = 0; c < CPU_SETSIZE; c++) {
        int sharers = 0;
        for (int p = 0; CPU_ISSET(c, &me->cores) && p < job->info.processes; p++)
            sharers += job->members[p].machine == me->machine && CPU_ISSET(c, &job->members[p].cores);
        cores += sharers ? 1.0 / sharers : 0;
    }
    return cores + 1e-6; /* so that three thirds make one */
}

int clv_job_core_count(const clv_job *job)
{
    double share = clv_job_core_share(job);
    return share < 1 ? 1 : (int)share;
}

bool clv_job_end_requests(clv_job *job, clv_mpi_request *requests, int n, bool receives, int64_t ns)
{
    clv_deadline deadline = clv_deadline_after(ns);
    for (int i = 0; receives && i < n; i++)
        (void)job->mpi->cancel(&requests[i]);
    for (int i = 0; i < n;) {
        int done = 0;
        if (job->mpi->test(&requests[i], &done) != 0 || done) /* a failed request has ended, too */
            i++;
        else if (clv_deadline_remaining(&deadline) == 0)
            return false;
        else
            sched_yield();
    }
    return true;
}

bool clv_job_same_host(const clv_job *job, int a, int b)
{
    const clv_job_member *x = &job->members[a], *y = &job->members[b];
    return x->network == y->network && strcmp(x->host, y->host) == 0;
}

bool clv_job_cpus_are_alike(const clv_job *job)
{
    for (int p = 1; p < job->info.processes; p++)
        if (job->members[p].cpu != job->members[0].cpu)
            return false;
    return true;
}

void clv_job_free(clv_job *job)
{
    pthread_mutex_destroy(&job->lock);
    free(job->members);
    free(job);
}
