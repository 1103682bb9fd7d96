/* suspensions.h - SIGCONT counter: how often the process was suspended, which makes timings invalid. */
#ifndef CLEAVE_CLI_TIMING_SUSPENSIONS_H
#define CLEAVE_CLI_TIMING_SUSPENSIONS_H

/* Installs the SIGCONT handler. */
void clv_suspensions_install(void);
int clv_suspensions_count(void);
/* Text to append to a time: ", ..." if the process was suspended, else "". */
const char *clv_suspensions_note(void);

#endif
