/* transfer.c - what the plans of all transports have in common. */
#include "comm/transport.h"

clv_plan clv_plan_of(clv_comm *comm, const clv_transfer *t)
{
    return (clv_plan){.comm = comm,
                      .in = t->in,
                      .out = t->out,
                      .group = t->group,
                      .in_device = t->in_device ? t->in_device : &clv_device_host,
                      .out_device = t->out_device ? t->out_device : &clv_device_host,
                      .dtype = t->dtype,
                      .reduction = t->reduction,
                      .in_shard = t->parts.in[t->group->me],
                      .out_shard = t->parts.out[t->group->me]};
}
