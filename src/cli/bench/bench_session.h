/* bench_session.h - makes the session of a benchmark: on threads, or over the processes of the job. */
#pragma once

#include "cleave/session.h"
#include "cli/job/job_processes.h"

/* options: their job, flight recorder and deadline come from comm. Free with clv_session_free. */
clv_status clv_bench_session_new(clv_session **out, const clv_mesh *mesh, clv_session_options options,
                                 const clv_comm_option *comm, clv_error *err);
