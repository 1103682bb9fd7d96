/* mpi_transport.c - collectives over MPI: point-to-point messages between processes, direct reads inside one, sums in
 * rank order.
 *
 * **Ranks of one process** read each other's memory, as those of a world of threads do: in each phase of a collective
 * they meet at a barrier when each has received its messages, and then read what they need of each other's operands and
 * received data. A box of another process's rank that several of them need is sent to one of them
 * (clv_find_receive_route). At the end of the collective they meet again. Groups inside one process use the threads
 * transport.
 *
 * **Messages.** A box is sent as a first message, with a header that identifies the collective, and the elements if
 * they fit (16 KiB). More elements follow in pieces of at most job->max_message_bytes. So a mismatch is found before
 * anything of the box is used. The lowest rank of each process in the group exchanges a message with that of every
 * other process, even an empty one, so a collective ends only when each process has heard from all others. Where a box
 * is one run of host memory its pieces are sent from and received in place; else they go through staging.
 *
 * **Reductions.** A large all_reduce has two phases: each member receives all members' addends of one slice and sums
 * them in the group's order; then all members receive all slices. Other reductions have one phase: each member receives
 * all members' addends of its part of the result.
 *
 * **Tags** identify the pair of ranks of two processes, and the group set; tag 0 is for notices. Each world has its own
 * communicator. MPI is called by one thread at a time, under the job's lock, and never blocks.
 *
 * **Failure.** A collective that fails cancels its receives. Its sends stay with MPI until the members have received
 * them: a world that failed is closed when each process has received everything that was sent to it, and said so
 * (goodbye). Requests that have not ended by CLOSE_NS then, or by CLV_MPI_CANCEL_NS when a prepared collective is
 * released before, may still use their memory when MPI is next called; so it is not called any more: the job is
 * poisoned. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/mpi/mpi_world.h"
#include "tensor/box_copy.h"

enum {
    SPINS = 16,         /* polls before a waiter yields, if there are cores for all ranks */
    FAILURE_POLLS = 16, /* a waiter polls for failures of other processes once in so many polls */
};

/* Header of a first message. */
typedef struct header {
    uint64_t tag;
    int64_t bytes; /* of the box */
    int32_t group_set, from, phase;
    char what[CLV_MPI_NAME_BYTES];
} header;

_Static_assert(sizeof(header) <= CLV_MPI_HEADER, "a header fits");

/* ---- starting ---- */

static const char *in_of(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph)
{
    return ph->slices ? (const char *)prepared->base.out + ph->in_at : (const char *)prepared->base.in + ph->in_at;
}

static char *out_of(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph)
{
    return (char *)prepared->base.out + ph->out_at;
}

/* Address of a message's elements, contiguous, as they are sent or received. */
static unsigned char *elements_of(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph,
                                  const clv_mpi_message *p, bool sends)
{
    if (p->bytes <= CLV_MPI_EAGER_BYTES)
        return prepared->staging + p->first + CLV_MPI_HEADER;
    if (prepared->base.sends)
        return (sends ? prepared->base.sends : prepared->base.receives)[p->move.peer].data;
    if (p->at >= 0)
        return prepared->staging + p->at;
    int64_t size = (int64_t)clv_dtype_size(prepared->base.dtype);
    return sends ? (unsigned char *)in_of(prepared, ph) + clv_box_offset(&p->move.box, &ph->in_shard) * size
                 : (unsigned char *)out_of(prepared, ph) + clv_box_offset(&p->move.box, &ph->out_shard) * size;
}

static clv_status fail_mpi(const clv_mpi_prepared_collective *prepared, const clv_mpi_message *p, int code,
                           clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    clv_error error = {.rank = prepared->base.group->ranks[p->move.peer]};
    const char *activity = atomic_load_explicit(&comm->activity, memory_order_relaxed);
    char what[160];
    snprintf(what, sizeof what, "rank %d, %s ('%s') with rank %d", comm->rank, prepared->desc.what,
             activity ? activity : "", error.rank);
    clv_job_fail_mpi(comm->world->mpi->job, code, what, &error);
    error.rank = prepared->base.group->ranks[p->move.peer];
    snprintf(error.op, sizeof error.op, "%s", activity ? activity : prepared->desc.what);
    clv_world_record_local_failure(comm->world, &error);
    return clv_collective_give_up(comm, err);
}

/* Under the lock: posts a message's requests. Returns MPI's code. */
static int post_requests(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph, clv_mpi_message *p,
                         bool sends)
{
    const struct clv_mpi_world *state = prepared->base.comm->world->mpi;
    const clv_mpi *mpi = state->job->mpi;
    unsigned char *first = prepared->staging + p->first, *rest = elements_of(prepared, ph, p, sends);
    int64_t first_bytes = !sends ? CLV_MPI_FIRST_MESSAGE_BYTES
                                 : CLV_MPI_HEADER + (p->bytes <= CLV_MPI_EAGER_BYTES ? p->bytes : 0),
            piece = state->job->max_message_bytes;
    for (int i = 0; i < p->n_requests; i++) {
        int64_t at = (i - 1) * piece, left = p->bytes - at;
        void *data = i == 0 ? first : rest + at;
        int64_t bytes = i == 0 ? first_bytes : left < piece ? left : piece;
        int code = sends ? mpi->send(&p->requests[i], state->comm, data, bytes, p->process, p->tag)
                         : mpi->receive(&p->requests[i], state->comm, data, bytes, p->process, p->tag);
        if (code != 0) {
            p->n_posted = i;
            return code;
        }
    }
    p->n_posted = p->n_requests;
    return 0;
}

/* Writes the header, and copies the elements to staging unless they are sent in place. */
static clv_status pack(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph, const clv_mpi_message *p,
                       clv_error *err)
{
    const clv_device *device = ph->slices ? prepared->base.out_device : prepared->base.in_device;
    header h = {.tag = prepared->desc.tag,
                .bytes = p->bytes,
                .group_set = prepared->base.group->group_set,
                .from = prepared->base.group->me,
                .phase = (int32_t)(ph - prepared->phases)};
    snprintf(h.what, sizeof h.what, "%s", prepared->desc.what);
    memcpy(prepared->staging + p->first, &h, sizeof h);
    if (p->bytes == 0 || (p->bytes > CLV_MPI_EAGER_BYTES && p->at < 0))
        return CLV_OK;
    if (prepared->base.sends) {
        memcpy(elements_of(prepared, ph, p, true), prepared->base.sends[p->move.peer].data, (size_t)p->bytes);
        return CLV_OK;
    }
    return device->backend->copy(device, CLV_COPY_TO_HOST, elements_of(prepared, ph, p, true), &p->move.box,
                                 in_of(prepared, ph), &ph->in_shard, &p->move.box, clv_dtype_size(prepared->base.dtype),
                                 err);
}

/* Copies the box that the rank gets from itself to the result, or, in a reduction, to staging if it must be there. */
static clv_status copy_own(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph, clv_error *err)
{
    const clv_device *in = prepared->base.in_device, *out = prepared->base.out_device;
    size_t size = clv_dtype_size(prepared->base.dtype);
    if (!ph->has_own || (ph->reduces && ph->own_at < 0))
        return CLV_OK;
    if (ph->own_at < 0)
        return out->backend->copy(out, CLV_COPY_ON_DEVICE, out_of(prepared, ph), &ph->out_shard, in_of(prepared, ph),
                                  &ph->in_shard, &ph->own, size, err);
    unsigned char *own = prepared->staging + ph->own_at;
    CLV_TRY(in->backend->copy(in, CLV_COPY_TO_HOST, own, &ph->own, in_of(prepared, ph), &ph->in_shard, &ph->own, size,
                              err));
    if (ph->reduces)
        return CLV_OK;
    return out->backend->copy(out, CLV_COPY_FROM_HOST, out_of(prepared, ph), &ph->out_shard, own, &ph->own, &ph->own,
                              size, err);
}

static void reset(clv_mpi_message *messages, int n)
{
    for (int i = 0; i < n; i++) {
        messages[i].n_ended = messages[i].n_posted = 0;
        messages[i].header_checked = false;
    }
}

/* Posts receives first, so that no message arrives unexpected. */
static clv_status start_phase(const clv_mpi_prepared_collective *prepared, clv_mpi_phase *ph, clv_error *err)
{
    clv_job *job = prepared->base.comm->world->mpi->job;
    clv_mpi_message *failed = NULL;
    int code = 0;
    for (int i = 0; i < ph->n_sends; i++)
        CLV_TRY(pack(prepared, ph, &ph->sends[i], err));
    pthread_mutex_lock(&job->lock);
    for (int i = 0; code == 0 && i < ph->n_receives; i++)
        code = post_requests(prepared, ph, failed = &ph->receives[i], false);
    for (int i = 0; code == 0 && i < ph->n_sends; i++)
        code = post_requests(prepared, ph, failed = &ph->sends[i], true);
    pthread_mutex_unlock(&job->lock);
    if (code != 0)
        return fail_mpi(prepared, failed, code, err);
    return copy_own(prepared, ph, err);
}

static clv_status start_threads(const clv_mpi_prepared_collective *prepared, clv_error *err)
{
    prepared->threads->in = prepared->base.in;
    prepared->threads->out = prepared->base.out;
    prepared->threads->receive_bytes = prepared->base.receive_bytes;
    prepared->threads->overlapped = prepared->base.overlapped;
    return clv_threads_transport.start(prepared->threads, NULL, err);
}

static clv_status start(clv_prepared_collective *base, void *staging, clv_error *err)
{
    clv_mpi_prepared_collective *prepared = (clv_mpi_prepared_collective *)base;
    clv_comm *comm = base->comm;
    clv_mpi_prepared_collective **running = &comm->world->mpi->running[base->comm->rank];
    if (!prepared->shm.in_slots) /* what a peer sent before it failed might be enough for this rank */
        (void)clv_mpi_poll_failure(comm->world);
    base->arrived_ns = 0;
    if (prepared->threads)
        return start_threads(prepared, err);
    CLV_TRY(clv_device_synchronize(base->in_device, err)); /* other ranks of this process read it */
    CLV_TRY(clv_collective_begin(comm, prepared->base.group, &prepared->desc, err));
    if (prepared->shm.publishes)
        CLV_TRY(clv_shm_start(prepared, staging, err));
    if (prepared->shm.in_slots)
        return CLV_OK;
    prepared->staging = staging;
    prepared->desc.in = prepared;
    for (int k = 0; k < prepared->n_phases; k++) {
        reset(prepared->phases[k].receives, prepared->phases[k].n_receives);
        reset(prepared->phases[k].sends, prepared->phases[k].n_sends);
    }
    if (base->sends)
        clv_mpi_set_span_sizes(prepared);
    prepared->running = true;
    prepared->next_running = *running;
    *running = prepared;
    clv_status status = start_phase(prepared, &prepared->phases[0], err);
    if (status != CLV_OK)
        clv_mpi_cancel_receives(prepared);
    return status;
}

/* ---- waiting ---- */

/* Compares the header of a received first message with what the collective expects. */
static clv_status check_header(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph, clv_mpi_message *p,
                               clv_error *err)
{
    header h;
    memcpy(&h, prepared->staging + p->first, sizeof h);
    p->header_checked = true;
    bool same_phase = h.group_set == prepared->base.group->group_set && h.from == p->move.peer &&
                      h.phase == (int32_t)(ph - prepared->phases);
    CLV_TRY(clv_mpi_check_peer(prepared, p->move.peer, same_phase, h.tag, h.what, p->bytes, h.bytes, err));
    clv_recorder_receive(prepared->base.comm->recorder, p->move.peer, p->n_requests == 1 ? p->bytes : 0);
    return CLV_OK;
}

/* Under the lock: tests messages; *ended: number of those that have ended. Unless `all` is set, stops at the first that
 * has not: testing one lets MPI progress the others, too. Returns MPI's code. */
static int test_messages(const clv_job *job, clv_mpi_message *messages, int n, bool all, int *ended,
                         clv_mpi_message **failed)
{
    int code = 0;
    *ended = 0;
    for (int i = 0; code == 0 && i < n && (all || *ended == i); i++) {
        code = clv_mpi_test_message(job, &messages[i]);
        *ended += messages[i].n_ended == messages[i].n_posted;
        *failed = &messages[i];
    }
    return code;
}

/* Records messages of several pieces that have arrived in whole. */
static void record_received(const clv_mpi_prepared_collective *prepared, const clv_mpi_message *messages, int n)
{
    for (int i = 0; i < n; i++)
        if (messages[i].n_requests > 1 && messages[i].n_ended == messages[i].n_posted)
            clv_recorder_receive(prepared->base.comm->recorder, messages[i].move.peer, messages[i].bytes);
}

/* receives: whether the messages are receives; unreceived sends say nothing about bytes to come. */
static clv_status fail_late(const clv_mpi_prepared_collective *prepared, const clv_mpi_message *messages, int n,
                            bool receives, clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    if (receives)
        record_received(prepared, messages, n);
    memset(comm->missing, 0, (size_t)prepared->base.group->n * sizeof *comm->missing);
    for (int i = 0; i < n; i++) {
        const clv_mpi_message *p = &messages[i];
        int64_t pieces =
            p->n_ended > 0 ? (p->n_ended - 1) * prepared->base.comm->world->mpi->job->max_message_bytes : 0;
        if (p->n_ended == p->n_posted)
            continue;
        comm->missing[p->move.peer] = true;
        if (receives)
            comm->bytes[p->move.peer] = (clv_byte_progress){.expected = p->bytes, .received = pieces};
    }
    return clv_world_fail_timeout(comm, prepared->base.group, &prepared->desc, err);
}

/* Waits until all receives, or all sends, of a phase have ended. */
static clv_status await_messages(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph,
                                 clv_mpi_message *messages, int n, bool receives, clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    clv_world *world = comm->world;
    struct clv_mpi_world *state = world->mpi;
    clv_mpi_backoff w = {.spins = world->spins > 0 ? SPINS : 0, .deadline = clv_deadline_after(world->timeout_ns)};
    bool late = false;
    for (int ended = 0; ended < n;) {
        clv_mpi_message *failed = NULL;
        if (clv_world_has_failed(world, NULL))
            return clv_collective_give_up(comm, err);
        pthread_mutex_lock(&state->job->lock);
        bool all = late || w.polls % FAILURE_POLLS == FAILURE_POLLS - 1;
        int code = test_messages(state->job, messages, n, all, &ended, &failed);
        pthread_mutex_unlock(&state->job->lock);
        bool failed_elsewhere = ended < n && all && clv_mpi_poll_failure(world);
        for (int i = 0; receives && i < n; i++)
            if (messages[i].n_ended > 0 && !messages[i].header_checked)
                CLV_TRY(check_header(prepared, ph, &messages[i], err));
        if (code != 0)
            return fail_mpi(prepared, failed, code, err);
        if (ended < n && !failed_elsewhere && late)
            return fail_late(prepared, messages, n, receives, err);
        late = ended < n && !clv_mpi_backoff_pause(&w); /* then polls all once more */
    }
    return CLV_OK;
}

/* ---- memory of this process ---- */

/* The prepared collective of a member in this process, which is at the same barrier. */
static const clv_mpi_prepared_collective *prepared_of(const clv_mpi_prepared_collective *prepared, int member)
{
    const clv_group *local = prepared->local;
    int i = 0;
    while (local->ranks[i] != prepared->base.group->ranks[member])
        i++;
    return clv_barrier_peer_desc(prepared->base.comm, local, i)->in;
}

/* Data that member `from` sent to a member in this process. */
static const void *received_data_of(const clv_mpi_prepared_collective *its, const clv_mpi_phase *ph, int from)
{
    int i = 0;
    while (ph->receives[i].move.peer != from)
        i++;
    return elements_of(its, ph, &ph->receives[i], false);
}

/* Finds the contiguous elements of an addend in this process; copies them to staging if they are on a device. */
static clv_status find_addend(const void **out, const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph,
                              const clv_mpi_local_read *local, clv_error *err)
{
    const clv_mpi_prepared_collective *its =
        prepared_of(prepared, local->route.by >= 0 ? local->route.by : local->route.from);
    const clv_mpi_phase *its_ph = &its->phases[ph - prepared->phases];
    const clv_device *device = prepared->base.in_device;
    size_t size = clv_dtype_size(prepared->base.dtype);
    *out = local->at >= 0 ? prepared->staging + local->at : NULL;
    if (local->route.by >= 0)
        *out = received_data_of(its, its_ph, local->route.from);
    else if (local->at < 0)
        *out = in_of(its, its_ph) + clv_box_offset(&local->route.box, &its_ph->in_shard) * (int64_t)size;
    if (local->at < 0)
        return CLV_OK;
    return device->backend->copy(device, CLV_COPY_TO_HOST, prepared->staging + local->at, &local->route.box,
                                 in_of(its, its_ph), &its_ph->in_shard, &local->route.box, size, err);
}

/* Copies boxes of this process's members to the result: what they received (sent), or what is in their operands. */
static clv_status copy_local(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph, bool sent,
                             clv_error *err)
{
    const clv_device *in = prepared->base.in_device, *out = prepared->base.out_device;
    size_t size = clv_dtype_size(prepared->base.dtype);
    for (int i = 0; i < ph->n_local; i++) {
        const clv_mpi_local_read *local = &ph->local[i];
        if ((local->route.by >= 0) != sent)
            continue;
        const clv_shard *box = &local->route.box;
        const clv_mpi_prepared_collective *its =
            prepared_of(prepared, local->route.by >= 0 ? local->route.by : local->route.from);
        const clv_mpi_phase *its_ph = &its->phases[ph - prepared->phases];
        bool passed = local->route.by >= 0;
        const void *from = passed ? out_of(its, its_ph) : in_of(its, its_ph);
        const clv_shard *shard = passed ? &its_ph->out_shard : &its_ph->in_shard;
        if (local->at >= 0) {
            unsigned char *staged = prepared->staging + local->at;
            CLV_TRY(in->backend->copy(in, CLV_COPY_TO_HOST, staged, box, from, shard, box, size, err));
            CLV_TRY(out->backend->copy(out, CLV_COPY_FROM_HOST, out_of(prepared, ph), &ph->out_shard, staged, box, box,
                                       size, err));
        } else {
            CLV_TRY(out->backend->copy(out, CLV_COPY_ON_DEVICE, out_of(prepared, ph), &ph->out_shard, from, shard, box,
                                       size, err));
        }
    }
    return CLV_OK;
}

/* Copies what members of this process send to this rank. */
static clv_status copy_local_spans(const clv_mpi_prepared_collective *prepared, clv_error *err)
{
    const clv_group *group = prepared->base.group;
    for (int m = 0; prepared->base.sends && m < group->n; m++) {
        if (m == group->me || !clv_world_is_local(prepared->base.comm->world, group->ranks[m]))
            continue;
        CLV_TRY(clv_world_copy_span(prepared->base.comm, group, &prepared->desc, m, &prepared->base.receives[m],
                                    &prepared_of(prepared, m)->base.sends[group->me], err));
    }
    return CLV_OK;
}

/* Barrier of the group's members in this process, after which they read each other's operands and received data. */
static clv_status local_barrier(const clv_mpi_prepared_collective *prepared, clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    int64_t began = clv_now_ns();
    if (prepared->local->n == 1)
        return CLV_OK;
    CLV_TRY(clv_device_synchronize(prepared->base.out_device, err));
    atomic_store_explicit(&comm->at_local_barrier, 1, memory_order_relaxed);
    CLV_TRY(clv_barrier_arrive_and_wait(comm, prepared->local, &prepared->desc, err));
    atomic_store_explicit(&comm->at_local_barrier, 0, memory_order_relaxed);
    clv_comm_add_wait(comm, began);
    return CLV_OK;
}

/* Sums all members' addends of this rank's part of the result, in the group's order. */
static clv_status reduce(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph, clv_error *err)
{
    const clv_device *device = prepared->base.out_device;
    int64_t size = (int64_t)clv_dtype_size(prepared->base.dtype);
    if (!ph->has_own)
        return CLV_OK;
    ph->ins[prepared->base.group->me] = ph->own_at >= 0
                                            ? (const char *)prepared->staging + ph->own_at
                                            : in_of(prepared, ph) + clv_box_offset(&ph->own, &ph->in_shard) * size;
    for (int i = 0; i < ph->n_receives; i++)
        ph->ins[ph->receives[i].move.peer] = elements_of(prepared, ph, &ph->receives[i], false);
    for (int i = 0; i < ph->n_local; i++)
        CLV_TRY(find_addend(&ph->ins[ph->local[i].route.from], prepared, ph, &ph->local[i], err));
    bool is_host = device->backend->is_host;
    void *to = is_host ? out_of(prepared, ph) : (char *)prepared->staging + ph->own_at;
    clv_values_reduce(to, ph->ins, prepared->base.group->n, 0, clv_shard_elems(&ph->own), prepared->base.dtype,
                      prepared->base.reduction);
    if (is_host)
        return CLV_OK;
    return device->backend->copy(device, CLV_COPY_FROM_HOST, out_of(prepared, ph), &ph->out_shard, to, &ph->own,
                                 &ph->own, (size_t)size, err);
}

static clv_status unpack(const clv_mpi_prepared_collective *prepared, const clv_mpi_phase *ph, clv_error *err)
{
    const clv_device *device = prepared->base.out_device;
    for (int i = 0; i < ph->n_receives; i++) {
        const clv_mpi_message *p = &ph->receives[i];
        if (prepared->base.sends && p->bytes > 0 && p->bytes <= CLV_MPI_EAGER_BYTES)
            memcpy(prepared->base.receives[p->move.peer].data, elements_of(prepared, ph, p, false), (size_t)p->bytes);
        else if (p->bytes > 0 && (p->bytes <= CLV_MPI_EAGER_BYTES || p->at >= 0))
            CLV_TRY(device->backend->copy(device, CLV_COPY_FROM_HOST, out_of(prepared, ph), &ph->out_shard,
                                          elements_of(prepared, ph, p, false), &p->move.box, &p->move.box,
                                          clv_dtype_size(prepared->base.dtype), err));
    }
    return CLV_OK;
}

/* Members that send messages to this rank, as bits. */
static uint64_t senders_of(const clv_mpi_phase *ph)
{
    uint64_t bits = 0;
    for (int i = 0; i < ph->n_receives; i++)
        if (ph->receives[i].move.peer < CLV_RECORDER_MAX_MEMBERS)
            bits |= UINT64_C(1) << ph->receives[i].move.peer;
    return bits;
}

static clv_status wait_out(clv_mpi_prepared_collective *prepared, clv_error *err)
{
    for (int k = 0; k < prepared->n_phases; k++) {
        clv_mpi_phase *ph = &prepared->phases[k];
        if (k > 0)
            CLV_TRY(start_phase(prepared, ph, err));
        atomic_store_explicit(&prepared->base.comm->phase, k, memory_order_relaxed);
        if (ph->slices) { /* copies the sums of this process while the others arrive */
            CLV_TRY(local_barrier(prepared, err));
            CLV_TRY(copy_local(prepared, ph, false, err));
        }
        int64_t began = clv_now_ns();
        clv_collective_record_wait(prepared->base.comm, prepared->base.group, &prepared->desc,
                                   prepared->base.receive_bytes, senders_of(ph), began);
        CLV_TRY(await_messages(prepared, ph, ph->receives, ph->n_receives, true, err));
        clv_comm_add_wait(prepared->base.comm, began);
        record_received(prepared, ph->receives, ph->n_receives);
        if (!ph->reduces)
            CLV_TRY(unpack(prepared, ph, err));
        CLV_TRY(local_barrier(prepared, err));
        clv_recorder_set_phase(prepared->base.comm->recorder, CLV_RECORD_TRANSFERRING);
        if (!ph->reduces && !ph->slices)
            CLV_TRY(copy_local(prepared, ph, false, err));
        CLV_TRY(copy_local_spans(prepared, err));
        CLV_TRY(ph->reduces ? reduce(prepared, ph, err) : copy_local(prepared, ph, true, err));
    }
    if (prepared->shm.publishes) /* else a rank could begin the collective after the next */
        CLV_TRY(clv_shm_await_members(prepared, err));
    return clv_device_synchronize(prepared->base.out_device, err);
}

/* Barrier after which no member in this process reads this rank's memory. */
static clv_status end_local(const clv_mpi_prepared_collective *prepared, clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    clv_collective_desc end = {.what = prepared->desc.what, .tag = prepared->desc.tag, .at_end_barrier = true};
    if (prepared->local->n == 1)
        return CLV_OK;
    CLV_TRY(clv_barrier_arrive_and_wait(comm, prepared->local, &end, err));
    clv_barrier_release(comm, prepared->local);
    return CLV_OK;
}

static clv_status wait_in(clv_mpi_prepared_collective *prepared, clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    int64_t began = clv_now_ns();
    clv_collective_record_end_wait(comm, prepared->base.group, &prepared->desc, began);
    for (int k = 0; k < prepared->n_phases; k++)
        CLV_TRY(await_messages(prepared, &prepared->phases[k], prepared->phases[k].sends, prepared->phases[k].n_sends,
                               false, err));
    CLV_TRY(end_local(prepared, err));
    clv_comm_add_wait(comm, began);
    clv_mpi_prepared_collective_finish(prepared);
    clv_collective_end(comm, prepared->base.group);
    return CLV_OK;
}

static clv_status wait_for(clv_prepared_collective *base, clv_wait what, clv_error *err)
{
    clv_mpi_prepared_collective *prepared = (clv_mpi_prepared_collective *)base;
    if (prepared->threads) {
        clv_status status = clv_threads_transport.wait(prepared->threads, what, err);
        base->arrived_ns = prepared->threads->arrived_ns;
        return status;
    }
    if (prepared->shm.in_slots)
        return clv_shm_wait(prepared, what, err);
    clv_mpi_end_overlap(prepared);
    clv_status status = what == CLV_WAIT_OUTPUT_READY ? wait_out(prepared, err) : wait_in(prepared, err);
    if (status != CLV_OK)
        clv_mpi_cancel_receives(prepared);
    return status;
}

static void poll_failure(clv_world *world)
{
    (void)clv_mpi_poll_failure(world);
}

const clv_transport clv_mpi_transport = {
    .name = "mpi",
    .open = clv_mpi_open,
    .close = clv_mpi_close,
    .leak = clv_mpi_leak,
    .notify_failure = clv_mpi_notify_failure,
    .query_progress = clv_mpi_query_progress,
    .describe_process = clv_mpi_describe_process,
    .poll_failure = poll_failure,
    .prepare = clv_mpi_prepare,
    .start = start,
    .overlap = clv_mpi_overlap,
    .wait = wait_for,
    .release = clv_mpi_release,
};
