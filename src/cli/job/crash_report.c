/* crash_report.c - reports on stderr which process was lost before the launcher ends the others. */
#include "cli/job/crash_report.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/output/messages.h"
#include "cli/output/progress.h"

enum { NOTHING, SPEAKING, SAID };
enum { GRACE_MS = 150 }; /* from the launcher's signal until this process ends */

static atomic_int said;
static int kept = -1;
static bool reports; /* what this process reports is read */

/* Connections end before the launcher knows of it, but not long before. */
static void on_sigterm(int signal_number)
{
    for (int ms = 0; ms < GRACE_MS && atomic_load(&said) != SAID; ms += 5)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void clv_crash_report_install(bool is_first)
{
    struct sigaction action = {.sa_handler = on_sigterm};

    reports = is_first;
    kept = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
}

void clv_crash_report_print(void *arg, const clv_error *err)
{
    char words[CLV_FAILURE_LINE + 1];
    int nothing = NOTHING;

    if (!atomic_compare_exchange_strong(&said, &nothing, SPEAKING))
        return;
    clv_format_failure(words, "cleave", err);
    size_t n = strlen(words);
    words[n] = '\n';
    clv_progress_clear_bar();
    (void)!write(kept >= 0 ? kept : STDERR_FILENO, words, n + 1);
    atomic_store(&said, SAID);
}

bool clv_crash_report_is_duplicate(const clv_error *err)
{
    int nothing = NOTHING;

    if (kept < 0 || (err->code != CLV_EPEER && err->code != CLV_ETIMEOUT))
        return false;
    if (!reports)
        return true;
    return !atomic_compare_exchange_strong(&said, &nothing, SPEAKING);
}
