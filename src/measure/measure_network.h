/* measure_network.h - network measurement: groups a job's ranks by host, times collectives between hosts, fits
 * latency and bandwidth. All processes of the job call alike.
 */
#pragma once

#include "cleave/job.h"
#include "program/cost/machine.h"

typedef struct clv_job_hosts {
    int64_t hosts, ranks; /* ranks: on each host */
} clv_job_hosts;

/* Finds how the ranks of a job are spread over hosts. ranks: number per host; 0: one per process. @return
 * CLV_EUNSUPPORTED unless each host has the same number of consecutive processes */
clv_status clv_job_hosts_find(clv_job_hosts *out, clv_job *job, int64_t ranks, clv_error *err);

/* Times collectives between two or more hosts, in all groups of one rank per host at once; fills `network` and the
 * rates of the machine. */
clv_status clv_measure_network(clv_machine *machine, clv_job *job, const clv_job_hosts *hosts, clv_error *err);

/* Fits alpha_s + bytes / bytes_per_s to measurements, by relative least squares. */
clv_machine_link clv_fit_link(const double *bytes, const double *seconds, int n);
