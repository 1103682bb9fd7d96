/* shutdown_signals.h - SIGINT, SIGTERM, SIGHUP and SIGUSR1 handlers: request a checkpoint, then exit; a second signal
 * exits at once.
 *
 * The first one is noted; another one, of any of them, ends the process as it would have without all this. A terminal
 * and a launcher may both bring the same one: what follows within a fifth of a second is no other. One that is ignored
 * (nohup) stays so.
 */
#ifndef CLEAVE_CLI_JOB_SHUTDOWN_SIGNALS_H
#define CLEAVE_CLI_JOB_SHUTDOWN_SIGNALS_H

/* From here on. */
void clv_shutdown_signals_install(void);
/* The signal that asked; 0: none. */
int clv_shutdown_signal(void);
/* "SIGTERM". */
const char *clv_shutdown_signal_name(int signal);

#endif
