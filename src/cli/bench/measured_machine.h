/* measured_machine.h - measures the machine for a benchmark (clv_machine_measure): on the job's processes, with a
 * progress bar. */
#pragma once

#include "cleave/machine.h"
#include "cli/job/job_processes.h"

/* ranks and blocks as in clv_measure_options. All processes get the same machine. Free with clv_machine_free. */
clv_status clv_measured_machine_new(clv_machine **out, int64_t ranks, int blocks, const clv_comm_option *comm,
                                    clv_error *err);
