/* comm.c - one rank's endpoint, for any transport: rank, size, groups, wait times, activity label, abort. */
#include <stddef.h>

#include "comm/threads/world.h"

int clv_comm_rank(const clv_comm *comm)
{
    return comm->rank;
}

int clv_comm_size(const clv_comm *comm)
{
    return comm->size;
}

const clv_group *clv_comm_group(const clv_comm *comm, int set)
{
    return set >= 0 && set < comm->n_groups ? comm->groups[set] : NULL;
}

void clv_comm_set_activity(clv_comm *comm, const char *op)
{
    /* Release: the string's bytes may be younger than the last meeting. */
    atomic_store_explicit(&comm->activity, op, memory_order_release);
}

void clv_comm_begin_instruction(clv_comm *comm, const char *name, const char *kind, int instruction)
{
    clv_comm_set_activity(comm, name);
    clv_recorder_begin(comm->recorder, name, kind, instruction);
}

void clv_comm_end_instruction(clv_comm *comm)
{
    clv_recorder_idle(comm->recorder);
}

void clv_comm_set_busy(clv_comm *comm, bool busy)
{
    atomic_store_explicit(&comm->busy, busy, memory_order_relaxed);
}

int64_t clv_comm_fetch_wait_ns(clv_comm *comm)
{
    int64_t waited = comm->waited_ns;

    comm->waited_ns = 0;
    return waited;
}

void clv_comm_record_waits(clv_comm *comm, clv_wait_log *waits)
{
    comm->waits = waits;
}

clv_status clv_comm_check(clv_comm *comm, clv_error *err)
{
    return atomic_load_explicit(comm->failed, memory_order_acquire) ? comm->give_up(comm, err) : CLV_OK;
}

void clv_comm_abort(clv_comm *comm, const clv_error *error)
{
    comm->abort(comm, error);
}
