/* processes.h - the processes that an MPI launcher started to run this command together (`mpirun -np 2 cleave ...`):
 * each does the same with the ranks that it has, and the first alone speaks and writes. */
#ifndef CLEAVE_CLI_PROCESSES_H
#define CLEAVE_CLI_PROCESSES_H

#include <stdbool.h>

#include "cleave/job.h"
#include "cleave/mesh.h"

/* --comm: how ranks reach each other. */
#define CLV_COMM_OPTION(out_)                                                                                          \
    {                                                                                                                  \
        .names = "--comm", .kind = CLV_OPTION_CHOICE, .out = (out_), .value = "threads|mpi",                           \
        .help = "how ranks reach each other (mpi where mpirun started the command; threads: in the first process)"     \
    }

/* At the start: processes but the first are silent from here on. */
void clv_processes_begin(void);
/* How many were started. */
int clv_processes_count(void);
/* Whether this is the first process, or the only one. */
bool clv_processes_is_first(void);
/* Whether the command that is about to run has ranks for several processes. */
void clv_processes_expect(bool several);
/* Joins the job of such a command, before it looks at anything that may be otherwise on another host: who fails later
 * can tell the others. comm: --comm as it was given, or NULL. */
clv_status clv_processes_meet(const char *comm, clv_error *err);
/* The job of a command whose ranks are on this mesh; *out is NULL where this process runs
 * them all. comm: "threads", "mpi" or NULL. CLV_EINVAL for fewer ranks than processes. */
clv_status clv_processes_join(clv_job **out, const char *comm, const clv_mesh *mesh, clv_error *err);
/* clv_job_agree, where a job was joined: what the first process alone has done. */
clv_status clv_processes_agree(clv_status status, clv_error *err);
/* Where this process writes what only one is to: path, or where it goes nowhere. */
const char *clv_processes_out(const char *path);
/* At the end, all of the command's sessions being freed: the exit code, a failure where any of the processes failed. */
int clv_processes_end(int code);

#endif
