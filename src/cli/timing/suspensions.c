/* suspensions.c - SIGCONT counter: how often the process was suspended, which makes timings invalid. */
#include "cli/timing/suspensions.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_int stops;

static void on_continue(int signal)
{
    atomic_fetch_add(&stops, 1);
}

void clv_suspensions_install(void)
{
    struct sigaction action = {.sa_handler = on_continue, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    sigaction(SIGCONT, &action, NULL);
}

int clv_suspensions_count(void)
{
    return atomic_load(&stops);
}

const char *clv_suspensions_note(void)
{
    return clv_suspensions_count() > 0 ? ", with the time that it was stopped" : "";
}
