/* shutdown_signals.c - SIGINT, SIGTERM, SIGHUP and SIGUSR1 handlers: request a checkpoint, then exit; a second signal
 * exits at once.
 */
#include "cli/job/shutdown_signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

static const struct {
    int signal;
    const char *name;
} known[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"}};
enum { KNOWN = sizeof known / sizeof known[0], SAME_NS = 200000000 };

/* Global, as handlers need it. */
static atomic_int asked;
static _Atomic int64_t asked_at;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void on_signal(int signal)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&asked, &none, signal)) {
        atomic_store(&asked_at, now());
        return;
    }
    int64_t at = atomic_load(&asked_at);
    if (at == 0 || now() - at < SAME_NS) /* 0: another thread handles the first and has not stored its time yet */
        return;
    struct sigaction usual = {.sa_handler = SIG_DFL};
    sigemptyset(&usual.sa_mask);
    sigaction(signal, &usual, NULL);
    raise(signal);
}

void clv_shutdown_signals_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;

    sigemptyset(&action.sa_mask);
    for (int i = 0; i < KNOWN; i++)
        if (sigaction(known[i].signal, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(known[i].signal, &action, NULL);
}

int clv_shutdown_signal(void)
{
    return atomic_load(&asked);
}

const char *clv_shutdown_signal_name(int signal)
{
    for (int i = 0; i < KNOWN; i++)
        if (known[i].signal == signal)
            return known[i].name;
    return "a signal";
}
