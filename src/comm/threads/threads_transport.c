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

typedef struct threads_prepared_collective {
    clv_prepared_collective base; /* first: a clv_prepared_collective * is one of these */
    clv_collective_desc desc;
    bool all_reduce;
    bool by_descs; /* no windows: the peers' descriptors have their addresses */
    int n_receives;
    receive_box *receives; /* of a collective that does not reduce */
    const void **ins;      /* [members] operands, of a reduction */
    void **outs;           /* [members] results, of an all_reduce */
} threads_prepared_collective;

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

static void release(clv_prepared_collective *base)
{
    threads_prepared_collective *prepared = (threads_prepared_collective *)base;

    if (!prepared)
        return;
    free(prepared->receives);
    free(prepared->ins);
    free(prepared->outs);
    free(prepared);
}

static clv_status find_receives(threads_prepared_collective *prepared, const clv_transfer *t, int rank, clv_error *err)
{
    size_t n = (size_t)t->group->n;
    clv_transfer_box *moves = malloc(n * sizeof *moves);

    prepared->n_receives = moves ? clv_list_receive_boxes(moves, &t->parts, t->group->me) : 0;
    prepared->receives = malloc((size_t)(prepared->n_receives + 1) * sizeof *prepared->receives);
    for (int i = 0; prepared->receives && i < prepared->n_receives; i++) {
        int peer = moves[i].peer;

        prepared->receives[i] = (receive_box){.peer = peer, .shard = t->parts.in[peer], .box = moves[i].box};
        if (!prepared->by_descs)
            prepared->receives[i].from = at_peer(t->in_window, rank, t->in, t->group->ranks[peer]);
    }
    bool ok = moves && prepared->receives;
    free(moves);
    return ok ? CLV_OK : clv_fail_memory(err, "a collective's boxes", n * sizeof *moves);
}

static clv_status find_operands(threads_prepared_collective *prepared, const clv_transfer *t, int rank, clv_error *err)
{
    size_t n = (size_t)t->group->n;

    prepared->all_reduce = clv_group_shards_is_all_reduce(&t->parts);
    prepared->ins = malloc(n * sizeof *prepared->ins);
    if (prepared->all_reduce)
        prepared->outs = malloc(n * sizeof *prepared->outs);
    if (!prepared->ins || (prepared->all_reduce && !prepared->outs))
        return clv_fail_memory(err, "a collective's members", n * sizeof *prepared->ins);
    for (int m = 0; m < t->group->n && !prepared->by_descs; m++) {
        prepared->ins[m] = at_peer(t->in_window, rank, t->in, t->group->ranks[m]);
        if (prepared->all_reduce)
            prepared->outs[m] = at_peer(t->out_window, rank, t->out, t->group->ranks[m]);
    }
    return CLV_OK;
}

static clv_status prepare(clv_prepared_collective **out, clv_comm *comm, const clv_transfer *t, int64_t *staging,
                          clv_error *err)
{
    threads_prepared_collective *prepared = calloc(1, sizeof *prepared);

    if (!prepared)
        return clv_fail_memory(err, "a collective's plan", sizeof *prepared);
    *prepared = (threads_prepared_collective){.base = clv_prepared_collective_init(comm, t),
                                              .desc = {.what = t->what, .tag = t->tag},
                                              .by_descs = !t->in_window && !t->out_window};
    clv_status status = t->sends           ? CLV_OK
                        : t->parts.reduces ? find_operands(prepared, t, comm->rank, err)
                                           : find_receives(prepared, t, comm->rank, err);
    if (status != CLV_OK) {
        release(&prepared->base);
        return status;
    }
    *staging = 0;
    *out = &prepared->base;
    return CLV_OK;
}

/* ---- running ---- */

static clv_status start(clv_prepared_collective *base, void *staging, clv_error *err)
{
    threads_prepared_collective *prepared = (threads_prepared_collective *)base;
    clv_comm *comm = base->comm;

    CLV_TRY(clv_device_synchronize(prepared->base.in_device, err)); /* peers read in, and write out */
    CLV_TRY(clv_collective_begin(comm, prepared->base.group, &prepared->desc, err));
    if (prepared->by_descs) {
        prepared->desc.in = base->sends ? (const void *)base->sends : base->in;
        prepared->desc.out = base->out;
    }
    if (base->overlapped)
        prepared->desc.at_ns = clv_now_ns();
    return clv_barrier_arrive(comm, prepared->base.group, &prepared->desc, err);
}

/* Reads the peers' addresses from their descriptors. */
static void read_peer_descs(const threads_prepared_collective *prepared, const clv_comm *comm)
{
    for (int i = 0; i < prepared->n_receives; i++)
        prepared->receives[i].from = clv_barrier_peer_desc(comm, prepared->base.group, prepared->receives[i].peer)->in;
    for (int m = 0; prepared->ins && m < prepared->base.group->n; m++) {
        prepared->ins[m] = clv_barrier_peer_desc(comm, prepared->base.group, m)->in;
        if (prepared->all_reduce)
            prepared->outs[m] = clv_barrier_peer_desc(comm, prepared->base.group, m)->out;
    }
}

/* Time at which the last member started, and its memory could be read. */
static int64_t last_start_ns(const threads_prepared_collective *prepared, const clv_comm *comm)
{
    int64_t last = 0;
    for (int m = 0; m < prepared->base.group->n; m++) {
        int64_t at = clv_barrier_peer_desc(comm, prepared->base.group, m)->at_ns;
        last = at > last ? at : last;
    }
    return last;
}

static clv_status copy_missing(const threads_prepared_collective *prepared, clv_error *err)
{
    const clv_device *device = prepared->base.out_device;

    for (int i = 0; i < prepared->n_receives; i++) {
        const receive_box *t = &prepared->receives[i];

        CLV_TRY(device->backend->copy(device, CLV_COPY_ON_DEVICE, prepared->base.out, &prepared->base.out_shard,
                                      t->from, &t->shard, &t->box, clv_dtype_size(prepared->base.dtype), err));
    }
    return CLV_OK;
}

/* Each member sums one slice straight out of all inputs and writes it to every member's output. */
static clv_status reduce_slice(const threads_prepared_collective *prepared, clv_error *err)
{
    const clv_device *device = prepared->base.out_device;
    int n = prepared->base.group->n, me = prepared->base.group->me;
    int64_t elems = clv_shard_elems(&prepared->base.out_shard), size = (int64_t)clv_dtype_size(prepared->base.dtype),
            lo = 0, hi = elems;
    bool alone = elems * size <= SMALL_REDUCE_BYTES;

    if (!alone)
        clv_block_range(elems, 1, n, me, &lo, &hi);
    const int64_t at_once = device->backend->is_host ? CACHED_BYTES / size : elems;
    const clv_shard all = {.rank = 1, .hi = {elems}};
    for (int64_t at = lo; at < hi; at += at_once) {
        const clv_shard slice = {.rank = 1, .lo = {at}, .hi = {hi - at > at_once ? at + at_once : hi}};
        CLV_TRY(device->backend->reduce(device, prepared->base.out, &all, prepared->ins, n, &all, &slice,
                                        prepared->base.dtype, prepared->base.reduction, err));
        for (int i = 1; !alone && i < n; i++)
            CLV_TRY(device->backend->copy(device, CLV_COPY_ON_DEVICE, prepared->outs[(me + i) % n], &all,
                                          prepared->base.out, &all, &slice, (size_t)size, err));
    }
    return CLV_OK;
}

/* Copies what the peers send to this rank. */
static clv_status copy_spans(const threads_prepared_collective *prepared, clv_error *err)
{
    const clv_group *group = prepared->base.group;

    for (int k = 1; k < group->n; k++) {
        const int peer = (group->me + k) % group->n;
        const clv_span *sends = clv_barrier_peer_desc(prepared->base.comm, group, peer)->in;

        CLV_TRY(clv_world_copy_span(prepared->base.comm, group, &prepared->desc, peer, &prepared->base.receives[peer],
                                    &sends[group->me], err));
    }
    return CLV_OK;
}

static clv_status move(const threads_prepared_collective *prepared, clv_error *err)
{
    const clv_device *device = prepared->base.out_device;

    if (prepared->base.sends)
        return copy_spans(prepared, err);
    if (prepared->all_reduce)
        return reduce_slice(prepared, err);
    if (prepared->ins)
        return device->backend->reduce(device, prepared->base.out, &prepared->base.out_shard, prepared->ins,
                                       prepared->base.group->n, &prepared->base.in_shard, &prepared->base.out_shard,
                                       prepared->base.dtype, prepared->base.reduction, err);
    return copy_missing(prepared, err);
}

static clv_status wait_out(threads_prepared_collective *prepared, clv_comm *comm, clv_error *err)
{
    int64_t began = clv_now_ns();

    clv_collective_record_wait(comm, prepared->base.group, &prepared->desc, prepared->base.receive_bytes, 0, began);
    CLV_TRY(clv_barrier_wait(comm, prepared->base.group, err));
    clv_comm_add_wait(comm, began);
    clv_recorder_receive_all(comm->recorder);
    if (prepared->base.overlapped)
        prepared->base.arrived_ns = last_start_ns(prepared, comm);
    if (prepared->by_descs)
        read_peer_descs(prepared, comm);
    CLV_TRY(move(prepared, err));
    return clv_device_synchronize(prepared->base.out_device, err);
}

static clv_status wait_in(threads_prepared_collective *prepared, clv_comm *comm, clv_error *err)
{
    int64_t began = clv_now_ns();
    clv_collective_desc end = {.what = prepared->desc.what, .tag = prepared->desc.tag, .at_end_barrier = true};

    clv_collective_record_end_wait(comm, prepared->base.group, &prepared->desc, began);
    CLV_TRY(clv_barrier_arrive_and_wait(comm, prepared->base.group, &end, err));
    clv_barrier_release(comm, prepared->base.group);
    clv_collective_end(comm, prepared->base.group);
    clv_comm_add_wait(comm, began);
    return CLV_OK;
}

static clv_status wait_for(clv_prepared_collective *base, clv_wait what, clv_error *err)
{
    threads_prepared_collective *prepared = (threads_prepared_collective *)base;
    clv_comm *comm = base->comm;

    return what == CLV_WAIT_OUTPUT_READY ? wait_out(prepared, comm, err) : wait_in(prepared, comm, err);
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
