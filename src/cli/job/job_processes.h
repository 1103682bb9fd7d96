/* job_processes.h - the processes that mpirun started for this command: joining the job, comparing options, silencing
 * all but the first, common exit code.
 */
#pragma once

#include <stdbool.h>

#include "cleave/job.h"
#include "cleave/mesh.h"
#include "cli/options/flight_recorder_option.h"

/* --comm, --comm-timeout and --flight-recorder. Zeros: not given. */
typedef struct clv_comm_option {
    const char *how;        /* "threads", "mpi" or NULL */
    double timeout_seconds; /* 0: the default */
    const char *flight;     /* --flight-recorder */
} clv_comm_option;

#define CLV_COMM_OPTIONS(option_)                                                                                      \
    CLV_OPT_CHOICE("--comm", &(option_)->how, "threads|mpi",                                                           \
                   "transport between ranks (mpi under mpirun; threads: all ranks in the first process)",              \
                   .advanced = true),                                                                                  \
        CLV_OPT_REAL("--comm-timeout", &(option_)->timeout_seconds, 0.1, 1e9, "SECONDS",                               \
                     "time after which a rank that waits, or a silent process, fails the command, which names it "     \
                     "(60; e.g. 1e9 in a debugger)",                                                                   \
                     .advanced = true),                                                                                \
        CLV_FLIGHT_OPTION(&(option_)->flight)

/* Called at the start: redirects the output of all processes but the first to /dev/null. */
void clv_processes_silence_all_but_first(void);
/* Number of processes that the launcher started; 1 without one. */
int clv_processes_count(void);
/* Whether this is the first process, or the only one. */
bool clv_processes_is_first(void);
/* Sets whether the command can run in several processes. */
void clv_processes_allow_several(bool several);
/* --comm-timeout as timeout_ms of session and model options; 0: the default. */
int64_t clv_comm_option_timeout_ms(const clv_comm_option *comm);
/* Joins the job of such a command. Called before anything that may fail on one host only, so that the failure reaches
 * the other processes. */
clv_status clv_processes_join_job(const clv_comm_option *comm, clv_error *err);
/* *out: the job that runs the ranks of the mesh, or NULL when this process runs them all. CLV_EINVAL for fewer ranks
 * than processes. */
clv_status clv_processes_job_of_mesh(clv_job **out, const clv_comm_option *comm, const clv_mesh *mesh, clv_error *err);
/* *out: the job; NULL for a single process. */
clv_status clv_processes_job(clv_job **out, const clv_comm_option *comm, clv_error *err);
/* clv_job_agree of a joined job: the status of the first process in all. */
clv_status clv_processes_agree(clv_status status, clv_error *err);
/* Whether this process has joined a job. */
bool clv_processes_have_joined_job(void);
/* Checks that all processes of the job have the same values (clv_job_compare). */
clv_status clv_processes_check_equal(const clv_job_value *mine, int n, clv_error *err);
/* The path of an output that only the first process writes; "/dev/null" in the others. */
const char *clv_processes_output_path(const char *path);
/* Leaves the job, after the command has freed its sessions. Returns the exit code: a failure if any process failed. */
int clv_processes_finalize(int code);
