/* machine_broadcast.h - broadcasts a machine: gives all processes of a job that of the first. */
#pragma once

#include "cleave/job.h"
#include "program/cost/machine.h"

/* Replaces what the machine describes, in every process. All must call it; job NULL: does nothing. */
clv_status clv_machine_broadcast(clv_machine *machine, clv_job *job, clv_error *err);
