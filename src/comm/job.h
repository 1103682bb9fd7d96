/* job.h - the job that a process has joined, as the transport over MPI uses it. */
#ifndef CLEAVE_COMM_JOB_H
#define CLEAVE_COMM_JOB_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "cleave/job.h"
#include "comm/mpi/module.h"

struct clv_job {
    const clv_mpi *mpi;
    clv_mpi_place place;
    clv_mpi_comm comm; /* for what is not a world's */
    int64_t timeout_ms;
    int64_t piece; /* bytes of a message at most, the first of each part excepted */
    /* Over MPI, which one thread at a time calls, and what follows. */
    pthread_mutex_t lock;
    int worlds;         /* open now */
    uint64_t opened;    /* so far: the same number in all processes */
    _Atomic int broken; /* a request did not end, and its memory may be gone: MPI is not called any more */
};

/* CLV_EPEER, with what MPI says, for a code that is not 0. */
clv_status clv_job_fail_mpi(const clv_job *job, int code, const char *what, clv_error *err);
/* Under the lock: ends `n` requests one way or another; whether they have, by ns. Receives are called back. */
bool clv_job_end_requests(clv_job *job, clv_mpi_request *requests, int n, bool receives, int64_t ns);
/* Cores that this process may reckon with: its share, where others of the job are on this host. */
int clv_job_cores(const clv_job *job);

#endif
