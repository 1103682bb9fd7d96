/* endpoint.h - what every backend's endpoint begins with. Private to src/comm. */
#ifndef CLEAVE_COMM_ENDPOINT_H
#define CLEAVE_COMM_ENDPOINT_H

#include <stdatomic.h>

#include "comm/comm.h"

/* The first member of a backend's own endpoint struct. */
struct clv_comm {
    const clv_comm_backend *backend;
    void (*abort)(clv_comm *comm, const clv_error *error);
    int rank;
    int size;
    int n_groups;
    const clv_group **groups;   /* [n_groups], by group set; owned by the world */
    _Atomic(const char *) note; /* written by this rank, read by any that reports a failure; NULL at first */
};

#endif
