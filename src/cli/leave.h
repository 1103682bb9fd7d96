/* leave.h - signals that ask a process to save what it has and leave: SIGINT, SIGTERM, SIGHUP, and SIGUSR1, which
 * launchers pass on to all processes of a job and batch systems send ahead of the end.
 *
 * The first one is noted; another one, of any of them, ends the process as it would have without all this. A terminal
 * and a launcher may both bring the same one: what follows within a fifth of a second is no other. One that is ignored
 * (nohup) stays so.
 */
#ifndef CLEAVE_CLI_LEAVE_H
#define CLEAVE_CLI_LEAVE_H

/* From here on. */
void clv_leave_listen(void);
/* The signal that asked; 0: none. */
int clv_leave_signal(void);
/* "SIGTERM". */
const char *clv_leave_name(int signal);

#endif
