/* mpi_job.h - struct clv_job: the processes of an MPI job, their hosts and cores, and rendezvous. Private to src/comm
 * and src/runtime/session.
 */
#pragma once

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
    CLV_MPI_CANCEL_NS = 200000000,      /* timeout of requests that were canceled or must be received */
    CLV_JOB_UNRESPONSIVE_NS = 500000000 /* a process without heartbeats for so long is named as unresponsive */
};

/* What a process sends to all others when it joins. */
typedef struct clv_job_member {
    char host[64];
    char control[CLV_CONTROL_SPEC_BYTES]; /* clv_job_options.control; "": not given */
    int64_t pid;
    uint64_t network;      /* hash of machine and network namespace: equal where loopback connects */
    uint64_t machine;      /* hash of the kernel's boot id: equal for all containers of a machine */
    cpu_set_t cores;       /* cores of the machine that it may run on */
    int32_t cpu;           /* clv_cpu_feature_bits() */
    int32_t shares_memory; /* CLEAVE_SHARED_MEMORY is not "off" */
} clv_job_member;

struct clv_job {
    const clv_mpi *mpi;
    clv_mpi_process_info info;
    clv_job_member *members;  /* [processes]; NULL until they are known */
    bool shares_memory;       /* no process has CLEAVE_SHARED_MEMORY=off */
    clv_control *control;     /* NULL: there are no control connections */
    clv_job_lost_fn *on_lost; /* clv_job_options.on_lost; may be NULL */
    void *on_lost_arg;
    int64_t heartbeat_timeout_ns; /* clv_job_options.heartbeat_timeout_ms */
    clv_mpi_comm comm;            /* for rendezvous; each world has its own */
    int64_t timeout_ms;
    int64_t max_message_bytes; /* larger boxes are sent in several messages; tests lower it */
    int64_t max_shm_bytes;     /* larger operands are sent as messages, not through shared memory; tests lower it */
    pthread_mutex_t lock;      /* held during MPI calls; guards what follows */
    int n_worlds;              /* open now */
    uint64_t rendezvous_count; /* so far; the same in all processes */
    uint64_t id;               /* random; the same in all processes after their first rendezvous */
    _Atomic int poisoned; /* MPI must not be called any more: it may still use memory of a request that did not end */
};

/* ---- job_rendezvous.c ---- */

/* Values of clv_job_rendezvous_info.action that are not a number of ranks. */
enum { CLV_JOB_AGREE = 0, CLV_JOB_LEAVE = -1, CLV_JOB_COMPARE = -2 };

/* What a process sends to all others at a rendezvous. */
typedef struct clv_job_rendezvous_info {
    uint64_t number; /* of the rendezvous; set by clv_job_rendezvous */
    uint64_t job_id; /* clv_job.id; set by clv_job_rendezvous */
    int32_t action;  /* > 0: makes a session of so many ranks; else CLV_JOB_AGREE, _LEAVE or _COMPARE */
    uint64_t detail; /* of a session: hash of the ranks of each process; of a comparison: number of values left */
    int64_t digest;  /* of a comparison: hash of the values */
    char text[64];   /* of a comparison: the value, cut */
    clv_error failure;
} clv_job_rendezvous_info;

/* Exchanges infos with all processes of the job; *number: of the rendezvous, the same in all; may be NULL. If a process
 * sent a failure, all return it (that process its own, unchanged). CLV_EPEER if action or detail differ, CLV_ETIMEOUT
 * naming the processes that did not come. */
clv_status clv_job_rendezvous(uint64_t *number, clv_job *job, const clv_job_rendezvous_info *mine, int64_t timeout_ns,
                              clv_error *err);
/* Polls requests until all have ended: CLV_OK, CLV_ETIMEOUT without a message, or the loss of a process. from_all:
 * request i belongs to process i % processes, and CLV_ETIMEOUT is also returned once one of these has sent no
 * heartbeat for job->heartbeat_timeout_ns. */
clv_status clv_job_wait_requests(clv_job *job, clv_mpi_request *requests, int *ended, int n, bool from_all,
                                 clv_deadline *deadline, clv_error *err);
/* Returns CLV_EPEER: the job is poisoned, and why. */
clv_status clv_job_fail_poisoned(const clv_job *job, clv_error *err);
/* Gathers `bytes` of each process; *all: [processes][bytes], to be freed by the caller, NULL on failure. */
clv_status clv_job_all_gather(void **all, clv_job *job, const void *mine, size_t bytes, clv_error *err);

/* ---- job_members.c ---- */

/* Writes "process 2 of 4 (host node7, pid 4711)". */
void clv_job_describe_process(char *out, size_t size, const clv_job *job, int process);
/* Returns CLV_EPEER with MPI's text of a code other than 0. */
clv_status clv_job_fail_mpi(const clv_job *job, int code, const char *what, clv_error *err);
/* Under the lock: waits until n requests have ended, or canceled if they are receives; false: not all by `ns`. */
bool clv_job_end_requests(clv_job *job, clv_mpi_request *requests, int n, bool receives, int64_t ns);
/* Whether two processes are on one host: the same host name and network. */
bool clv_job_same_host(const clv_job *job, int a, int b);
/* Whether all processes' CPUs have the same features, so that decisions by these are the same. */
bool clv_job_cpus_are_alike(const clv_job *job);
/* Frees the memory; leaves MPI and the control connections alone. */
void clv_job_free(clv_job *job);
/* Cores that this process may use: of each core that it may run on, 1 / the number of the job's processes that may. */
double clv_job_core_share(const clv_job *job);
int clv_job_core_count(const clv_job *job); /* the same as a whole number, at least 1 */
