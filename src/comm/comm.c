/* comm.c - what an endpoint is, whatever carries it. The collectives are the backend's table. */
#include "comm/endpoint.h"

const clv_comm_backend *clv_comm_get_backend(const clv_comm *comm)
{
    return comm->backend;
}

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

void clv_comm_note(clv_comm *comm, const char *op)
{
    /* Release: the string's bytes may be younger than the last collective. */
    atomic_store_explicit(&comm->note, op, memory_order_release);
}

void clv_comm_abort(clv_comm *comm, const clv_error *error)
{
    comm->abort(comm, error);
}
