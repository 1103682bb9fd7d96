/* bench_session.c - makes the session of a benchmark: on threads, or over the processes of the job. */
#include "cli/bench/bench_session.h"

clv_status clv_bench_session_new(clv_session **out, const clv_mesh *mesh, clv_session_options options,
                                 const clv_comm_option *comm, clv_error *err)
{
    options.size = sizeof options;
    options.timeout_ms = clv_comm_option_timeout_ms(comm);
    CLV_TRY(clv_processes_job_of_mesh(&options.job, comm, mesh, err));
    CLV_TRY(clv_flight_option_open(&options.flight, comm->flight, err));
    return clv_session_new(out, mesh, &options, err);
}
