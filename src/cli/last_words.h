/* last_words.h - what the processes of a job say when one of them is lost: who, once, and at once, since the launcher
 * is about to end the others, too. */
#ifndef CLEAVE_CLI_LAST_WORDS_H
#define CLEAVE_CLI_LAST_WORDS_H

#include <stdbool.h>

#include "cleave/status.h"

/* At the start, before stderr goes nowhere: keeps it, and time to speak when the launcher ends this process (SIGTERM).
 */
void clv_last_words_prepare(bool is_first);
/* Says it, unless last words were said; a clv_job_lost. From any thread. */
void clv_last_words_say(void *arg, const clv_error *err);
/* Whether a report of this failure would say again what was said, or is none that anybody reads: that of a process that
 * is not the first. Else it is said now, and last words are no more. */
bool clv_last_words_repeat(const clv_error *err);

#endif
