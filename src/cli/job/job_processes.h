/* job_processes.h - the processes that mpirun started for this command: joining the job, comparing options, silencing
 * all but the first, common exit code.
 */
#ifndef CLEAVE_CLI_JOB_JOB_PROCESSES_H
#define CLEAVE_CLI_JOB_JOB_PROCESSES_H

#include <stdbool.h>

#include "cleave/job.h"
#include "cleave/mesh.h"
#include "cli/options/flight_recorder_option.h"

/* --comm, --comm-timeout, --flight-recorder: how ranks reach each other, how long they wait, and where what they did is
 * written. Zeros: as without the options. */
typedef struct clv_comm_option {
    const char *how;        /* "threads", "mpi" or NULL */
    double timeout_seconds; /* 0: the default */
    const char *flight;     /* --flight-recorder */
} clv_comm_option;

#define CLV_COMM_OPTIONS(option_)                                                                                      \
    {.names = "--comm",                                                                                                \
     .kind = CLV_OPTION_CHOICE,                                                                                        \
     .out = &(option_)->how,                                                                                           \
     .value = "threads|mpi",                                                                                           \
     .advanced = true,                                                                                                 \
     .help = "how ranks reach each other (mpi where mpirun started the command; threads: in the first process)"},      \
        {.names = "--comm-timeout",                                                                                    \
         .kind = CLV_OPTION_REAL,                                                                                      \
         .out = &(option_)->timeout_seconds,                                                                           \
         .real_min = 0.1,                                                                                              \
         .real_max = 1e9,                                                                                              \
         .value = "SECONDS",                                                                                           \
         .advanced = true,                                                                                             \
         .help =                                                                                                       \
             "how long a rank waits for others, and a process may say nothing, until the command fails, naming it "    \
             "(60; 5.5 where steps are short, 1e9 in a debugger)"},                                                    \
        CLV_FLIGHT_OPTION(&(option_)->flight)

/* At the start: processes but the first are silent from here on. */
void clv_processes_init(void);
/* How many were started. */
int clv_processes_count(void);
/* Whether this is the first process, or the only one. */
bool clv_processes_is_first(void);
/* Whether the command that is about to run has ranks for several processes. */
void clv_processes_allow(bool several);
/* clv_session_options.timeout_ms, and clv_model_options'. */
int64_t clv_comm_option_timeout_ms(const clv_comm_option *comm);
/* Joins the job of such a command, before it looks at anything that may be otherwise on another host: who fails later
 * can tell the others. */
clv_status clv_processes_join_job(const clv_comm_option *comm, clv_error *err);
/* The job of a command whose ranks are on this mesh; *out is NULL where this process runs them all. CLV_EINVAL for
 * fewer ranks than processes. */
clv_status clv_processes_job_of_mesh(clv_job **out, const clv_comm_option *comm, const clv_mesh *mesh, clv_error *err);
/* The job, whatever its processes do; *out is NULL where there is but this one. */
clv_status clv_processes_job(clv_job **out, const clv_comm_option *comm, clv_error *err);
/* clv_job_agree, where a job was joined: what the first process alone has done. */
clv_status clv_processes_agree(clv_status status, clv_error *err);
/* Whether a job was joined: there are other processes to compare with. */
bool clv_processes_have_job(void);
/* That all processes of a job that was joined were given the same: options, files. clv_job_compare. */
clv_status clv_processes_check_equal(const clv_job_value *mine, int n, clv_error *err);
/* Where this process writes what only one is to: path, or where it goes nowhere. */
const char *clv_processes_output_path(const char *path);
/* At the end, all of the command's sessions being freed: the exit code, a failure where any of the processes failed. */
int clv_processes_finalize(int code);

#endif
