/* mpi_job.h - struct clv_job: the processes of an MPI job, their hosts and cores, and rendezvous. Private to
 * src/comm.
 */
#ifndef CLEAVE_COMM_JOB_MPI_JOB_H
#define CLEAVE_COMM_JOB_MPI_JOB_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/threads/wait.h"
#include "cleave/job.h"
#include "comm/control/failure_detector.h"
#include "comm/mpi/mpi_module.h"

enum {
    CLV_MPI_POLL_NS = 20000,
    CLV_MPI_CANCEL_NS = 200000000,      /* what was called back, or is to be taken, ends by then */
    CLV_JOB_UNRESPONSIVE_NS = 500000000 /* a process of which nothing came for so long says nothing */
};

/* What a process says of itself when it joins. */
typedef struct clv_job_member {
    char host[64];
    char control[CLV_CONTROL_SPEC_BYTES]; /* clv_job_options.control; "": it is not given */
    int64_t pid;
    uint64_t place;        /* the same where the network is: machine and namespace */
    uint64_t machine;      /* the same for all containers of one, whatever host each thinks it is */
    cpu_set_t cores;       /* of the machine, that it may run on */
    int32_t cpu;           /* clv_cpu_feature_bits() */
    int32_t shares_memory; /* CLEAVE_SHARED_MEMORY is not "off" */
} clv_job_member;

struct clv_job {
    const clv_mpi *mpi;
    clv_mpi_process_info place;
    clv_job_member *members; /* [processes] */
    bool several_hosts;
    bool shares_memory;    /* the processes of a host may, for all that they were told */
    clv_control *control;  /* NULL: there is none */
    clv_job_lost_fn *lost; /* NULL: nobody is told */
    void *on_lost_arg;
    int64_t silence_ns; /* of a process that is waited for, until it is taken to be stopped or cut off */
    clv_mpi_comm comm;  /* for what is not a world's */
    int64_t timeout_ms;
    int64_t piece; /* bytes of a message at most, the first of each part excepted */
    int64_t room;  /* bytes of an operand that memory shared by processes is used for, at most */
    /* Over MPI, which one thread at a time calls, and what follows. */
    pthread_mutex_t lock;
    int worlds;         /* open now */
    uint64_t meetings;  /* so far: the same number in all processes */
    uint64_t run;       /* tells jobs apart; the same in all processes once they have met */
    _Atomic int broken; /* a request did not end, and its memory may be gone: MPI is not called any more */
};

/* ---- job_rendezvous.c ---- */

enum { CLV_JOB_AGREE = 0, CLV_JOB_LEAVE = -1, CLV_JOB_COMPARE = -2 };

/* What a process says where all of the job meet. */
typedef struct clv_job_rendezvous_info {
    uint64_t number; /* of the meeting: clv_job_rendezvous's */
    uint64_t run;    /* the process' idea of job->run */
    uint64_t spread; /* of what it makes: how ranks are spread over processes; of what it compares: of how many things,
                        of those that come after this one */
    int32_t ranks;   /* of the session that it makes; else one of those above */
    int64_t said;    /* of what it compares: in a number ... */
    char text[64];   /* ... and in words, cut */
    clv_error failure;
} clv_job_rendezvous_info;

/* Meets all processes of the job; number: of the meeting, the same in all, NULL: not wanted. When one says that it
 * failed, its failure in all, in itself as it is. CLV_EPEER when not all make the same, CLV_ETIMEOUT naming who did not
 * come. */
clv_status clv_job_rendezvous(uint64_t *number, clv_job *job, const clv_job_rendezvous_info *mine, int64_t timeout_ns,
                              clv_error *err);
/* Polls until requests have ended: CLV_OK, CLV_ETIMEOUT without a message, or the loss of a process. from_all: request
 * i is of process i % processes, which is not to be silent for long either. */
clv_status clv_job_wait_requests(clv_job *job, clv_mpi_request *requests, int *ended, int n, bool from_all,
                                 clv_deadline *deadline, clv_error *err);
/* CLV_EPEER: why no MPI is called any more. */
clv_status clv_job_fail_broken(const clv_job *job, clv_error *err);
/* Each process gets what all have, `bytes` of each, when they join. */
clv_status clv_job_all_gather(clv_job *job, const void *mine, void *all, size_t bytes, clv_error *err);

/* ---- job_members.c ---- */

/* "process 2 of 4 (host node7, pid 4711)" */
void clv_job_describe_process(char *out, size_t size, const clv_job *job, int process);
/* CLV_EPEER, with what MPI says, for a code that is not 0. */
clv_status clv_job_fail_mpi(const clv_job *job, int code, const char *what, clv_error *err);
/* Under the lock: ends `n` requests one way or another; whether they have, by ns. Receives are called back. */
bool clv_job_end_requests(clv_job *job, clv_mpi_request *requests, int n, bool receives, int64_t ns);
/* Whether two processes are on one host, by its name and its network. */
bool clv_job_same_host(const clv_job *job, int a, int b);
/* Whether what a process decides by its CPU is decided so in all. */
bool clv_job_cpus_are_alike(const clv_job *job);
/* The memory; MPI and the control plane are left. */
void clv_job_free(clv_job *job);
/* Cores that this process may reckon with: of each, a share where others of the job may run on it, too. */
double clv_job_core_share(const clv_job *job);
int clv_job_core_count(const clv_job *job); /* whole ones, at least 1 */

#endif
