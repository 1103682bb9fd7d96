/* transfer_boxes.c - computes send and receive boxes of a collective as intersections of the members' shards. */
#include "comm/transfer_boxes.h"

#include "comm/transport.h"
#include "tensor/box_copy.h"

bool clv_find_transfer_box(clv_shard *box, const clv_group_shards *parts, int to, int from)
{
    for (int m = to; !parts->reduces && m != from; m = (m + 1) % parts->n)
        if (clv_shard_equal(&parts->in[m], &parts->in[from]))
            return false;
    *box = clv_shard_intersect(&parts->out[to], &parts->in[from]);
    return clv_shard_elems(box) > 0;
}

int clv_list_receive_boxes(clv_transfer_box *out, const clv_group_shards *parts, int me)
{
    int n = 0;

    for (int i = 0; i < parts->n; i++) {
        out[n].peer = (me + i) % parts->n;
        n += clv_find_transfer_box(&out[n].box, parts, me, out[n].peer);
    }
    return n;
}

/* The member from which `to` gets the shard that `from` holds. */
static int source_of(const clv_group_shards *parts, const int *process, int to, int from)
{
    int first = 0;
    for (int k = 0; k < parts->n; k++) {
        int m = (to + k) % parts->n;
        if (process[m] == process[to] && clv_shard_equal(&parts->in[m], &parts->in[from]))
            return m;
    }
    while (process[first] != process[to])
        first++;
    while (!clv_shard_equal(&parts->in[first], &parts->in[from]))
        first = (first + 1) % parts->n;
    return first;
}

/* The member to which `from` sends a box that several members of `to`'s process need: these take turns by sender. */
static int receiver_of(const clv_group_shards *parts, const int *process, const clv_shard *box, int to, int from)
{
    int alike = 0, turn = 0, m = 0;
    for (int i = 0; i < from; i++)
        turn += process[i] == process[from];
    for (int round = 0; round < 2; round++) {
        for (m = 0; m < parts->n; m++) {
            clv_shard its = clv_shard_intersect(&parts->out[m], &parts->in[from]);
            bool needs = process[m] == process[to] && clv_shard_equal(&its, box);
            alike += round == 0 && needs;
            if (round == 1 && needs && turn-- == 0)
                return m;
        }
        turn %= alike;
    }
    return to;
}

bool clv_find_receive_route(clv_receive_route *out, const clv_group_shards *parts, const int *process, int to, int from)
{
    clv_shard box = clv_shard_intersect(&parts->out[to], &parts->in[from]);
    if (clv_shard_elems(&box) == 0 || (!parts->reduces && source_of(parts, process, to, from) != from))
        return false;
    *out = (clv_receive_route){.from = from, .by = -1, .box = box};
    if (process[to] != process[from])
        out->by = receiver_of(parts, process, &box, to, from);
    return true;
}

bool clv_group_shards_is_all_reduce(const clv_group_shards *parts)
{
    bool all = true;

    for (int m = 0; m < parts->n; m++)
        all = all && clv_shard_equal(&parts->out[m], &parts->in[0]);
    return all;
}

/* ---- prepared collectives ---- */

/* Bytes that this rank receives, all members' together. */
static int64_t receive_bytes(const clv_transfer *t)
{
    int64_t elems = 0;
    clv_shard box;
    for (int m = 0; m < t->group->n && !t->sends; m++)
        if (m != t->group->me && clv_find_transfer_box(&box, &t->parts, t->group->me, m))
            elems += clv_shard_elems(&box);
    return elems * (int64_t)clv_dtype_size(t->dtype);
}

clv_prepared_collective clv_prepared_collective_init(clv_comm *comm, const clv_transfer *t)
{
    return (clv_prepared_collective){.comm = comm,
                                     .in = t->in,
                                     .out = t->out,
                                     .group = t->group,
                                     .in_device = t->in_device ? t->in_device : &clv_device_host,
                                     .out_device = t->out_device ? t->out_device : &clv_device_host,
                                     .dtype = t->dtype,
                                     .reduction = t->reduction,
                                     .in_shard = t->sends ? (clv_shard){.rank = 1} : t->parts.in[t->group->me],
                                     .out_shard = t->sends ? (clv_shard){.rank = 1} : t->parts.out[t->group->me],
                                     .sends = t->sends,
                                     .receives = t->receives,
                                     .receive_bytes = receive_bytes(t)};
}
