/* stops.h - how often the process went on after it was stopped (Ctrl-Z, a debugger): what was timed meanwhile says
 * nothing. */
#ifndef CLEAVE_CLI_STOPS_H
#define CLEAVE_CLI_STOPS_H

/* Counts from here on (SIGCONT). */
void clv_stops_count(void);
int clv_stops(void);
/* What is said behind a time that the process was stopped in: ", ..."; "" where it never was. */
const char *clv_stops_note(void);

#endif
