/* measured_machine.c - measures the machine for a benchmark (clv_machine_measure): on the job's processes, with a
 * progress bar. */
#include "cli/bench/measured_machine.h"

#include "cli/output/progress.h"

clv_status clv_measured_machine_new(clv_machine **out, int64_t ranks, int blocks, const clv_comm_option *comm,
                                    clv_error *err)
{
    clv_counted_progress progress = {.what = "profile"};
    clv_measure_options options = {.size = sizeof options,
                                   .ranks = ranks,
                                   .blocks = blocks,
                                   .progress = clv_counted_progress_show,
                                   .progress_arg = &progress};
    CLV_TRY(clv_processes_job(&options.job, comm, err));
    clv_status status = clv_machine_measure(out, &options, err);
    clv_counted_progress_end(&progress);
    return status;
}
