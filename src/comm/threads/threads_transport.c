/* threads_transport.c - zero-copy collectives between rank threads, which read each other's memory; two barriers
 * each.
 *
 * After the first barrier a rank copies the boxes that it needs out of the peers' operands, or, in a reduction, sums
 * its part of the result straight out of all operands. The second barrier ends the collective, so that no memory
 * changes while it is read.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/world/world.h"

/* Largest all_reduce that every rank sums as a whole. In larger ones each rank sums a slice and writes it to all, so
 * that each cache line is fetched from a peer or written to it, not both. */
enum { SMALL_REDUCE_BYTES = 4096 };

/* Bytes of a sum that are written to peers at a time, while they are in the core's second-level cache. */
enum { CACHED_BYTES = 128 << 10 };

struct clv_window {
    int ranks;
    void *memory[];
};

/* A box that is copied from a peer. */
typedef struct receive_box {
    int peer;
    const void *from;
    clv_shard shard, box; /* the peer's operand, and the box in it */
} receive_box;

typedef struct threads_plan {
    clv_plan base; /* first: a clv_plan * is one of these */
    clv_collective_desc desc;
    bool all_reduce;
    bool by_descs; /* no windows: the peers' descriptors have their addresses */
    int n_receives;
    receive_box *receives; /* of a collective that does not reduce */
    const void **ins;      /* [members] operands, of a reduction */
    void **outs;           /* [members] results, of an all_reduce */
} threads_plan;

static clv_status add_window(clv_window **out, clv_world *world, void *const *memory, clv_error *err)
{
    size_t bytes = sizeof **out + (size_t)world->ranks * sizeof *memory;
    clv_window *window = malloc(bytes);

    if (!window)
        return clv_fail_memory(err, "a window", bytes);
    window->ranks = world->ranks;
    memcpy(window->memory, memory, (size_t)world->ranks * sizeof *memory);
    *out = window;
    return CLV_OK;
}

static void free_window(clv_window *window)
{
    free(window);
}

/* Address in a peer's part of a window that corresponds to one in this rank's. */
static void *at_peer(const clv_window *window, int me, const void *mine, int peer)
{
    return (char *)window->memory[peer] + ((const char *)mine - (const char *)window->memory[me]);
}

/* ---- preparing ---- */

static void release(clv_plan *base)
{
    threads_plan *plan = (threads_plan *)base;

    if (!plan)
        return;
    free(plan->receives);
    free(plan->ins);
    free(plan->outs);
    free(plan);
}

static clv_status find_receives(threads_plan *plan, const clv_transfer *t, int rank, clv_error *err)
{
    size_t n = (size_t)t->group->n;
    clv_transfer_box *moves = malloc(n * sizeof *moves);

    plan->n_receives = moves ? clv_list_receive_boxes(moves, &t->parts, t->group->me) : 0;
    plan->receives = malloc((size_t)(plan->n_receives + 1) * sizeof *plan->receives);
    for (int i = 0; plan->receives && i < plan->n_receives; i++) {
        int peer = moves[i].peer;

        plan->receives[i] = (receive_box){.peer = peer, .shard = t->parts.in[peer], .box = moves[i].box};
        if (!plan->by_descs)
            plan->receives[i].from = at_peer(t->in_window, rank, t->in, t->group->ranks[peer]);
    }
    bool ok = moves && plan->receives;
    free(moves);
    return ok ? CLV_OK : clv_fail_memory(err, "a collective's boxes", n * sizeof *moves);
}

static clv_status find_operands(threads_plan *plan, const clv_transfer *t, int rank, clv_error *err)
{
    size_t n = (size_t)t->group->n;

    plan->all_reduce = clv_group_shards_is_all_reduce(&t->parts);
    plan->ins = malloc(n * sizeof *plan->ins);
    if (plan->all_reduce)
        plan->outs = malloc(n * sizeof *plan->outs);
    if (!plan->ins || (plan->all_reduce && !plan->outs))
        return clv_fail_memory(err, "a collective's members", n * sizeof *plan->ins);
    for (int m = 0; m < t->group->n && !plan->by_descs; m++) {
        plan->ins[m] = at_peer(t->in_window, rank, t->in, t->group->ranks[m]);
        if (plan->all_reduce)
            plan->outs[m] = at_peer(t->out_window, rank, t->out, t->group->ranks[m]);
    }
    return CLV_OK;
}

static clv_status prepare(clv_plan **out, clv_comm *comm, const clv_transfer *t, int64_t *staging, clv_error *err)
{
    threads_plan *plan = calloc(1, sizeof *plan);

    if (!plan)
        return clv_fail_memory(err, "a collective's plan", sizeof *plan);
    *plan = (threads_plan){.base = clv_plan_init(comm, t),
                           .desc = {.what = t->what, .tag = t->tag},
                           .by_descs = !t->in_window && !t->out_window};
    clv_status status =
        t->parts.reduces ? find_operands(plan, t, comm->rank, err) : find_receives(plan, t, comm->rank, err);
    if (status != CLV_OK) {
        release(&plan->base);
        return status;
    }
    *staging = 0;
    *out = &plan->base;
    return CLV_OK;
}

/* ---- running ---- */

static clv_status start(clv_plan *base, void *staging, clv_error *err)
{
    threads_plan *plan = (threads_plan *)base;
    clv_comm *comm = base->comm;

    CLV_TRY(clv_device_synchronize(plan->base.in_device, err)); /* peers read in, and write out */
    CLV_TRY(clv_collective_begin(comm, plan->base.group, &plan->desc, err));
    if (plan->by_descs) {
        plan->desc.in = base->in;
        plan->desc.out = base->out;
    }
    if (base->overlapped)
        plan->desc.at_ns = clv_now_ns();
    return clv_barrier_arrive(comm, plan->base.group, &plan->desc, err);
}

/* Reads the peers' addresses from their descriptors. */
static void read_peer_descs(const threads_plan *plan, const clv_comm *comm)
{
    for (int i = 0; i < plan->n_receives; i++)
        plan->receives[i].from = clv_barrier_peer_desc(comm, plan->base.group, plan->receives[i].peer)->in;
    for (int m = 0; plan->ins && m < plan->base.group->n; m++) {
        plan->ins[m] = clv_barrier_peer_desc(comm, plan->base.group, m)->in;
        if (plan->all_reduce)
            plan->outs[m] = clv_barrier_peer_desc(comm, plan->base.group, m)->out;
    }
}

/* Time at which the last member started, and its memory could be read. */
static int64_t last_start_ns(const threads_plan *plan, const clv_comm *comm)
{
    int64_t last = 0;
    for (int m = 0; m < plan->base.group->n; m++) {
        int64_t at = clv_barrier_peer_desc(comm, plan->base.group, m)->at_ns;
        last = at > last ? at : last;
    }
    return last;
}

static clv_status copy_missing(const threads_plan *plan, clv_error *err)
{
    const clv_device *device = plan->base.out_device;

    for (int i = 0; i < plan->n_receives; i++) {
        const receive_box *t = &plan->receives[i];

        CLV_TRY(device->backend->copy(device, CLV_COPY_ON_DEVICE, plan->base.out, &plan->base.out_shard, t->from,
                                      &t->shard, &t->box, clv_dtype_size(plan->base.dtype), err));
    }
    return CLV_OK;
}

/* Each member sums one slice straight out of all inputs and writes it to every member's output. */
static clv_status reduce_slice(const threads_plan *plan, clv_error *err)
{
    const clv_device *device = plan->base.out_device;
    int n = plan->base.group->n, me = plan->base.group->me;
    int64_t elems = clv_shard_elems(&plan->base.out_shard), size = (int64_t)clv_dtype_size(plan->base.dtype), lo = 0,
            hi = elems;
    bool alone = elems * size <= SMALL_REDUCE_BYTES;

    if (!alone)
        clv_block_range(elems, 1, n, me, &lo, &hi);
    const int64_t at_once = device->backend->is_host ? CACHED_BYTES / size : elems;
    const clv_shard all = {.rank = 1, .hi = {elems}};
    for (int64_t at = lo; at < hi; at += at_once) {
        const clv_shard slice = {.rank = 1, .lo = {at}, .hi = {hi - at > at_once ? at + at_once : hi}};
        CLV_TRY(device->backend->reduce(device, plan->base.out, &all, plan->ins, n, &all, &slice, plan->base.dtype,
                                        plan->base.reduction, err));
        for (int i = 1; !alone && i < n; i++)
            CLV_TRY(device->backend->copy(device, CLV_COPY_ON_DEVICE, plan->outs[(me + i) % n], &all, plan->base.out,
                                          &all, &slice, (size_t)size, err));
    }
    return CLV_OK;
}

static clv_status move(const threads_plan *plan, clv_error *err)
{
    const clv_device *device = plan->base.out_device;

    if (plan->all_reduce)
        return reduce_slice(plan, err);
    if (plan->ins)
        return device->backend->reduce(device, plan->base.out, &plan->base.out_shard, plan->ins, plan->base.group->n,
                                       &plan->base.in_shard, &plan->base.out_shard, plan->base.dtype,
                                       plan->base.reduction, err);
    return copy_missing(plan, err);
}

static clv_status wait_out(threads_plan *plan, clv_comm *comm, clv_error *err)
{
    int64_t began = clv_now_ns();

    clv_collective_record_wait(comm, plan->base.group, &plan->desc, plan->base.receive_bytes, 0, began);
    CLV_TRY(clv_barrier_wait(comm, plan->base.group, err));
    clv_comm_add_wait(comm, began);
    clv_recorder_receive_all(comm->recorder);
    if (plan->base.overlapped)
        plan->base.arrived_ns = last_start_ns(plan, comm);
    if (plan->by_descs)
        read_peer_descs(plan, comm);
    CLV_TRY(move(plan, err));
    return clv_device_synchronize(plan->base.out_device, err);
}

static clv_status wait_in(threads_plan *plan, clv_comm *comm, clv_error *err)
{
    int64_t began = clv_now_ns();
    clv_collective_desc end = {.what = plan->desc.what, .tag = plan->desc.tag, .at_end_barrier = true};

    clv_collective_record_end_wait(comm, plan->base.group, &plan->desc, began);
    CLV_TRY(clv_barrier_arrive_and_wait(comm, plan->base.group, &end, err));
    clv_barrier_release(comm, plan->base.group);
    clv_collective_end(comm, plan->base.group);
    clv_comm_add_wait(comm, began);
    return CLV_OK;
}

static clv_status wait_for(clv_plan *base, clv_wait what, clv_error *err)
{
    threads_plan *plan = (threads_plan *)base;
    clv_comm *comm = base->comm;

    return what == CLV_WAIT_OUTPUT_READY ? wait_out(plan, comm, err) : wait_in(plan, comm, err);
}

const clv_transport clv_threads_transport = {
    .name = "threads",
    .add_window = add_window,
    .free_window = free_window,
    .prepare = prepare,
    .start = start,
    .overlap = clv_collective_mark_overlapped,
    .wait = wait_for,
    .release = release,
};
