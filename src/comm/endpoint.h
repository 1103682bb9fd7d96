/* endpoint.h - struct clv_comm: the fields that a rank's endpoint has under every transport. Private to src/comm.
 * Private to src/comm.
 */
#ifndef CLEAVE_COMM_ENDPOINT_H
#define CLEAVE_COMM_ENDPOINT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "comm/comm.h"
#include "comm/flight_recorder.h"

/* The first member of a world's own endpoint struct. */
struct clv_comm {
    void (*abort)(clv_comm *comm, const clv_error *error);
    clv_status (*give_up)(clv_comm *comm, clv_error *err); /* once the world has failed */
    const _Atomic int *failed;                             /* whether it has */
    int rank;
    int size;
    int n_groups;
    _Atomic bool working;       /* clv_comm_set_busy */
    int64_t waited_ns;          /* for others, since it was last asked for */
    int64_t stealing_ns;        /* of the wait that goes on: at others' work */
    clv_wait_log *waits;        /* clv_comm_record_waits; NULL: nobody asks */
    const clv_group **groups;   /* [n_groups], by group set; owned by the world */
    clv_recorder *recorder;     /* of a rank of this process; else NULL */
    _Atomic(const char *) note; /* written by this rank, read by any that reports a failure; NULL at first */
};

/* This rank has waited for others since `began`, clv_now_ns. */
static inline void clv_comm_add_wait(clv_comm *comm, int64_t began)
{
    const int64_t now = clv_now_ns(), helped = comm->stealing_ns;
    clv_wait_log *waits = comm->waits;
    comm->stealing_ns = 0;
    comm->waited_ns += now - began;
    if (waits && waits->n < CLV_WAIT_LOG_SIZE) {
        waits->of[waits->n].begun_ns = began;
        waits->of[waits->n].stealing_ns = helped < now - began ? helped : now - began;
        waits->of[waits->n++].ended_ns = now;
    }
}

#endif
