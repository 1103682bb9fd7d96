/* measure_network.h - network measurement: groups a job's ranks by host, times collectives between hosts, fits
 * latency and bandwidth. All processes of the job call alike.
 */
#ifndef CLEAVE_MEASURE_MEASURE_NETWORK_H
#define CLEAVE_MEASURE_MEASURE_NETWORK_H

#include "cleave/job.h"
#include "program/cost/machine.h"

typedef struct clv_job_hosts {
    int64_t hosts, ranks; /* ranks: on each host */
} clv_job_hosts;

/* ranks: wanted on each host; 0: as many as it has processes. CLV_EUNSUPPORTED where ranks in a row do not share hosts
 * evenly. */
clv_status clv_job_hosts_find(clv_job_hosts *out, clv_job *job, int64_t ranks, clv_error *err);

/* Times collectives among one rank of each host, all of them at once: fills `network` and the rates of a machine, whose
 * hosts are two or more. */
clv_status clv_measure_network(clv_machine *machine, clv_job *job, const clv_job_hosts *hosts, clv_error *err);

/* alpha_s + bytes / bytes_per_s that is nearest to measurements, in parts of each. */
clv_machine_link clv_fit_link(const double *bytes, const double *seconds, int n);

#endif
