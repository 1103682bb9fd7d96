/* crash_report.h - reports on stderr which process was lost before the launcher ends the others. */
#ifndef CLEAVE_CLI_JOB_CRASH_REPORT_H
#define CLEAVE_CLI_JOB_CRASH_REPORT_H

#include <stdbool.h>

#include "cleave/status.h"

/* At the start, before stderr goes nowhere: keeps it, and time to speak when the launcher ends this process (SIGTERM).
 */
void clv_crash_report_install(bool is_first);
/* Says it, unless last words were said; a clv_job_lost_fn. From any thread. */
void clv_crash_report_print(void *arg, const clv_error *err);
/* Whether a report of this failure would say again what was said, or is none that anybody reads: that of a process that
 * is not the first. Else it is said now, and last words are no more. */
bool clv_crash_report_is_duplicate(const clv_error *err);

#endif
