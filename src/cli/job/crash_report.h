/* crash_report.h - reports on stderr which process was lost before the launcher ends the others. */
#pragma once

#include <stdbool.h>

#include "cleave/status.h"

/* Called at the start: keeps a copy of stderr, and delays SIGTERM of the launcher until the report is printed. */
void clv_crash_report_install(bool is_first);
/* Prints the report, once; a clv_job_lost_fn. Thread-safe. */
void clv_crash_report_print(void *arg, const clv_error *err);
/* Whether a message of this failure would repeat the report, or is that of another process than the first. If not, the
 * caller prints the message, and no report follows. */
bool clv_crash_report_is_duplicate(const clv_error *err);
