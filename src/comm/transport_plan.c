/* transport_plan.c - initializes the part of a collective's plan that is the same for all transports. */
#include "comm/transport.h"

/* Where values are reduced each other member sends of what is mine; of an all_reduce it is all. */
static int64_t count_takes(const clv_transfer *t)
{
    int64_t elems = 0;
    clv_shard box;
    for (int m = 0; m < t->group->n; m++)
        if (m != t->group->me && clv_find_transfer_box(&box, &t->parts, t->group->me, m))
            elems += clv_shard_elems(&box);
    return elems * (int64_t)clv_dtype_size(t->dtype);
}

clv_plan clv_plan_init(clv_comm *comm, const clv_transfer *t)
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
                      .out_shard = t->parts.out[t->group->me],
                      .receive_bytes = count_takes(t)};
}
