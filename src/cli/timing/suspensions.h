/* suspensions.h - SIGCONT counter: how often the process was suspended, which makes timings invalid. */
#ifndef CLEAVE_CLI_TIMING_SUSPENSIONS_H
#define CLEAVE_CLI_TIMING_SUSPENSIONS_H

/* Counts from here on (SIGCONT). */
void clv_suspensions_install(void);
int clv_suspensions_count(void);
/* What is said behind a time that the process was stopped in: ", ..."; "" where it never was. */
const char *clv_suspensions_note(void);

#endif
