/* mpi_wait.c - how ranks wait for what comes of other processes. */
#include <sched.h>
#include <time.h>

#include "comm/mpi_wire.h"

enum { YIELDS = 500 /* looks, once spinning has not helped, before a waiter sleeps */ };

bool clv_mpi_wait_a_little(clv_mpi_patience *w)
{
    int looks = w->looks++ - w->spins;
    if (looks < 0) {
        clv_cpu_pause();
        return true;
    }
    if (looks < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = CLV_MPI_NAP_NS}, NULL);
    return clv_deadline_look(&w->deadline) > 0;
}
