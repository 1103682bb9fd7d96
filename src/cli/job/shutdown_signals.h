/* shutdown_signals.h - SIGINT, SIGTERM, SIGHUP and SIGUSR1 handlers: request a checkpoint, then exit; a second signal
 * exits at once.
 *
 * The first signal is recorded; a second one, of any of the four, has its default effect. A signal within 0.2 s of the
 * first is ignored: a terminal and a launcher may both send it. Ignored signals (nohup) stay ignored.
 */
#pragma once

/* Installs the handlers. */
void clv_shutdown_signals_install(void);
/* The signal received; 0: none. */
int clv_shutdown_signal(void);
/* "SIGTERM". */
const char *clv_shutdown_signal_name(int signal);
