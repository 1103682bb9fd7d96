/* mpi_backoff.c - polling backoff of a rank that waits for MPI: spin, yield, sleep. */
#include <sched.h>
#include <time.h>

#include "comm/mpi/mpi_world.h"

enum { YIELDS = 500 /* looks, once spinning has not helped, before a waiter sleeps */ };

bool clv_mpi_backoff_pause(clv_mpi_backoff *w)
{
    int looks = w->looks++ - w->spins;
    if (looks < 0) {
        clv_cpu_pause();
        return true;
    }
    if (looks < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = CLV_MPI_POLL_NS}, NULL);
    return clv_deadline_remaining(&w->deadline) > 0;
}
