/* suspensions.h - SIGCONT counter: how often the process was suspended, which makes timings invalid. */
#pragma once

/* Installs the SIGCONT handler. */
void clv_suspensions_install(void);
int clv_suspensions_count(void);
/* Text to append to a time: ", ..." if the process was suspended, else "". */
const char *clv_suspensions_note(void);
