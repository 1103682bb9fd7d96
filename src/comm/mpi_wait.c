/* mpi_wait.c - how ranks wait for what comes of other processes, and what they say of what should not have come. */
#include <sched.h>
#include <stdio.h>
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

clv_status clv_mpi_fail_bytes(const clv_mpi_plan *plan, int member, int64_t expected, int64_t came, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    clv_error error = {.code = CLV_EPEER, .rank = plan->base.group->ranks[member]};
    const char *note = atomic_load_explicit(&comm->base.note, memory_order_relaxed);
    snprintf(error.op, sizeof error.op, "%s", note ? note : plan->post.what);
    snprintf(error.message, sizeof error.message,
             "rank %d is in %s of group set %d, tag %llx ('%s'), and expects %lld bytes of rank %d, which sends %lld",
             comm->base.rank, plan->post.what, plan->base.group->set, (unsigned long long)plan->post.tag,
             note ? note : "no note", (long long)expected, error.rank, (long long)came);
    clv_threads_fail(comm->world, &error);
    return clv_threads_give_up(comm, err);
}
