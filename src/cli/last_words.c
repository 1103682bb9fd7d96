#include "cli/last_words.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cleave/text.h"

enum { NOTHING, SPEAKING, SAID };
enum { GRACE_MS = 150 }; /* from the launcher's signal until this process ends */

static atomic_int said;
static int kept = -1;

/* Connections end before the launcher knows of it, but not long before. */
static void on_end(int signal_number)
{
    for (int ms = 0; ms < GRACE_MS && atomic_load(&said) != SAID; ms += 5)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void clv_last_words_prepare(void)
{
    struct sigaction action = {.sa_handler = on_end};

    kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
}

void clv_last_words_say(void *arg, const clv_error *err)
{
    enum { LINE = 4 * sizeof err->message };
    char line[LINE], op[4 * sizeof err->op], words[sizeof line + sizeof op + 32];
    int nothing = NOTHING;

    (void)arg;
    if (!atomic_compare_exchange_strong(&said, &nothing, SPEAKING))
        return;
    clv_printable(line, sizeof line, err->message, strlen(err->message));
    clv_printable(op, sizeof op, err->op, strlen(err->op));
    int n = snprintf(words, sizeof words, "cleave: %s%s%s%s\n", line, op[0] != '\0' ? " (op " : "", op,
                     op[0] != '\0' ? ")" : "");
    (void)!write(kept >= 0 ? kept : STDERR_FILENO, words, (size_t)n);
    atomic_store(&said, SAID);
}

bool clv_last_words_repeat(const clv_error *err)
{
    int nothing = NOTHING;

    if (kept < 0 || (err->code != CLV_EPEER && err->code != CLV_ETIMEOUT))
        return false;
    return !atomic_compare_exchange_strong(&said, &nothing, SPEAKING);
}
