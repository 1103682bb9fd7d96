/* mpi_transport.c - collectives over MPI: point-to-point messages between processes, direct reads inside one, sums in
 * rank order.
 *
 * **Ranks of one process** read each other's memory, as those of a world of threads do: in each phase of a step they
 * meet when each has got what was sent to it, and take from each other what they need of it. What several need of a
 * rank of another process is sent to one of them (clv_find_receive_route). At the end of the step they meet again.
 * Groups that are inside a process take the steps of threads.
 *
 * **Messages.** A box is sent as a first message: a header that says which step it is, and the elements if there is
 * room for them (16 KiB). More elements follow in pieces of at most job->max_message_bytes bytes. So members that are
 * in another step are found before anything of theirs counts; and a step ends only when each process has heard from all
 * others, as the first members of any two exchange a message in any case. Where a box is one run of host memory its
 * pieces are sent from where it is, and received where it belongs; else they go through staging.
 *
 * **Reductions.** A large all_reduce has two phases: each member gets all members' addends of one slice and sums them
 * in the group's order; then all get all slices. Others have one: what a member is to have of all members comes to it.
 *
 * **Tags** tell the pairs of ranks of two processes apart, and group sets; tag 0 is for failures. Each world has a
 * communicator of its own. MPI is called by one thread at a time, under the job's lock, and never waited in.
 *
 * **Failure.** A step that fails calls back its receives. What it sent stays with MPI until the members have taken it:
 * a world that failed ends when each process has taken all that others sent, and said so (goodbye). What has not ended
 * by CLOSE_NS then, or CLV_MPI_CANCEL_NS when a plan is released before, may still be read or written when MPI is
 * next called; so it is not: the job is broken.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/mpi/mpi_world.h"
#include "tensor/box_copy.h"

enum {
    SPINS = 16,  /* looks, where there are cores for all, before a waiter lets others run */
    LISTEN = 16, /* a waiter looks for failures of other processes once in so many looks */
};

/* What a first message begins with. */
typedef struct header {
    uint64_t tag;
    int64_t bytes; /* of all elements */
    int32_t set, from, phase;
    char what[CLV_MPI_NAME_BYTES];
} header;

_Static_assert(sizeof(header) <= CLV_MPI_HEADER, "a header fits");

/* ---- starting ---- */

static const char *in_of(const clv_mpi_plan *plan, const clv_mpi_phase *ph)
{
    return ph->slices ? (const char *)plan->base.out + ph->in_at : (const char *)plan->base.in + ph->in_at;
}

static char *out_of(const clv_mpi_plan *plan, const clv_mpi_phase *ph)
{
    return (char *)plan->base.out + ph->out_at;
}

/* Where the elements of a part are as they are sent, or come: one behind another. */
static unsigned char *elements_of(const clv_mpi_plan *plan, const clv_mpi_phase *ph, const clv_mpi_message *p,
                                  bool sends)
{
    if (p->bytes <= CLV_MPI_EAGER_BYTES)
        return plan->staging + p->first + CLV_MPI_HEADER;
    if (p->at >= 0)
        return plan->staging + p->at;
    int64_t size = (int64_t)clv_dtype_size(plan->base.dtype);
    return sends ? (unsigned char *)in_of(plan, ph) + clv_box_offset(&p->move.box, &ph->in_shard) * size
                 : (unsigned char *)out_of(plan, ph) + clv_box_offset(&p->move.box, &ph->out_shard) * size;
}

static clv_status fail_mpi(const clv_mpi_plan *plan, const clv_mpi_message *p, int code, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    clv_error error = {.rank = plan->base.group->ranks[p->move.peer]};
    const char *note = atomic_load_explicit(&comm->base.activity, memory_order_relaxed);
    char what[160];
    snprintf(what, sizeof what, "rank %d, %s ('%s') with rank %d", comm->base.rank, plan->desc.what, note ? note : "",
             error.rank);
    clv_job_fail_mpi(comm->world->mpi->job, code, what, &error);
    error.rank = plan->base.group->ranks[p->move.peer];
    snprintf(error.op, sizeof error.op, "%s", note ? note : plan->desc.what);
    clv_world_set_failure(comm->world, &error);
    return clv_collective_give_up(comm, err);
}

/* Asks MPI for a part's messages, under the lock. */
static int ask(const clv_mpi_plan *plan, const clv_mpi_phase *ph, clv_mpi_message *p, bool sends)
{
    const struct clv_mpi_world *state = clv_mpi_world_of(plan->base.comm);
    const clv_mpi *mpi = state->job->mpi;
    unsigned char *first = plan->staging + p->first, *rest = elements_of(plan, ph, p, sends);
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

/* Writes the header, and brings the elements to where they are sent from. */
static clv_status pack(const clv_mpi_plan *plan, const clv_mpi_phase *ph, const clv_mpi_message *p, clv_error *err)
{
    const clv_device *device = ph->slices ? plan->base.out_device : plan->base.in_device;
    header h = {.tag = plan->desc.tag,
                .bytes = p->bytes,
                .set = plan->base.group->set,
                .from = plan->base.group->me,
                .phase = (int32_t)(ph - plan->phases)};
    snprintf(h.what, sizeof h.what, "%s", plan->desc.what);
    memcpy(plan->staging + p->first, &h, sizeof h);
    if (p->bytes == 0 || (p->bytes > CLV_MPI_EAGER_BYTES && p->at < 0))
        return CLV_OK;
    return device->backend->copy(device, CLV_COPY_TO_HOST, elements_of(plan, ph, p, true), &p->move.box,
                                 in_of(plan, ph), &ph->in_shard, &p->move.box, clv_dtype_size(plan->base.dtype), err);
}

/* Brings what one takes of oneself to the result, or, where it is reduced, to where it can be. */
static clv_status copy_own(const clv_mpi_plan *plan, const clv_mpi_phase *ph, clv_error *err)
{
    const clv_device *in = plan->base.in_device, *out = plan->base.out_device;
    size_t size = clv_dtype_size(plan->base.dtype);
    if (!ph->has_own || (ph->reduces && ph->own_at < 0))
        return CLV_OK;
    if (ph->own_at < 0)
        return out->backend->copy(out, CLV_COPY_ON_DEVICE, out_of(plan, ph), &ph->out_shard, in_of(plan, ph),
                                  &ph->in_shard, &ph->own, size, err);
    unsigned char *own = plan->staging + ph->own_at;
    CLV_TRY(
        in->backend->copy(in, CLV_COPY_TO_HOST, own, &ph->own, in_of(plan, ph), &ph->in_shard, &ph->own, size, err));
    if (ph->reduces)
        return CLV_OK;
    return out->backend->copy(out, CLV_COPY_FROM_HOST, out_of(plan, ph), &ph->out_shard, own, &ph->own, &ph->own, size,
                              err);
}

static void reset(clv_mpi_message *parts, int n)
{
    for (int i = 0; i < n; i++) {
        parts[i].n_ended = parts[i].n_posted = 0;
        parts[i].header_checked = false;
    }
}

/* Receives are asked for first, so that what comes finds its place. */
static clv_status start_phase(const clv_mpi_plan *plan, clv_mpi_phase *ph, clv_error *err)
{
    clv_job *job = clv_mpi_world_of(plan->base.comm)->job;
    clv_mpi_message *failed = NULL;
    int code = 0;
    reset(ph->receives, ph->n_receives);
    reset(ph->sends, ph->n_sends);
    for (int i = 0; i < ph->n_sends; i++)
        CLV_TRY(pack(plan, ph, &ph->sends[i], err));
    pthread_mutex_lock(&job->lock);
    for (int i = 0; code == 0 && i < ph->n_receives; i++)
        code = ask(plan, ph, failed = &ph->receives[i], false);
    for (int i = 0; code == 0 && i < ph->n_sends; i++)
        code = ask(plan, ph, failed = &ph->sends[i], true);
    pthread_mutex_unlock(&job->lock);
    if (code != 0)
        return fail_mpi(plan, failed, code, err);
    return copy_own(plan, ph, err);
}

static clv_status start_inside(const clv_mpi_plan *plan, clv_error *err)
{
    plan->threads->in = plan->base.in;
    plan->threads->out = plan->base.out;
    plan->threads->overlapped = plan->base.overlapped;
    return clv_threads_transport.start(plan->threads, NULL, err);
}

static clv_status start(clv_plan *base, void *staging, clv_error *err)
{
    clv_mpi_plan *plan = (clv_mpi_plan *)base;
    clv_thread_comm *comm = (clv_thread_comm *)base->comm;
    clv_mpi_plan **running = &comm->world->mpi->running[base->comm->rank];
    if (!plan->shm.in_slots) /* what a peer sent before it failed might be enough for this rank */
        (void)clv_mpi_poll_failure(comm->world);
    base->arrived_ns = 0;
    if (plan->threads)
        return start_inside(plan, err);
    CLV_TRY(clv_device_synchronize(base->in_device, err)); /* as others of this process read it */
    CLV_TRY(clv_collective_begin(comm, plan->base.group, &plan->desc, err));
    if (plan->shm.publishes)
        CLV_TRY(clv_shm_start(plan, staging, err));
    if (plan->shm.in_slots)
        return CLV_OK;
    plan->staging = staging;
    plan->desc.in = plan;
    for (int k = 0; k < plan->n_phases; k++) {
        reset(plan->phases[k].receives, plan->phases[k].n_receives);
        reset(plan->phases[k].sends, plan->phases[k].n_sends);
    }
    plan->running = true;
    plan->next_running = *running;
    *running = plan;
    clv_status status = start_phase(plan, &plan->phases[0], err);
    if (status != CLV_OK)
        clv_mpi_cancel_receives(plan);
    return status;
}

/* ---- waiting ---- */

/* Holds what a first message says against the step. */
static clv_status check_header(const clv_mpi_plan *plan, const clv_mpi_phase *ph, clv_mpi_message *p, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    char *said = comm->world->mpi->peer_what[comm->base.rank];
    header h;
    memcpy(&h, plan->staging + p->first, sizeof h);
    memcpy(said, h.what, sizeof h.what);
    said[sizeof h.what - 1] = '\0';
    p->header_checked = true;
    bool same_step = h.tag == plan->desc.tag && h.set == plan->base.group->set && h.from == p->move.peer &&
                     h.phase == ph - plan->phases && strncmp(said, plan->desc.what, sizeof h.what - 1) == 0;
    if (same_step && h.bytes == p->bytes) {
        clv_recorder_receive(comm->base.recorder, p->move.peer, p->n_requests == 1 ? p->bytes : 0);
        return CLV_OK;
    }
    if (same_step) /* and they do not cut it alike */
        return clv_world_fail_wrong_size(comm, plan->base.group, &plan->desc, p->move.peer, p->bytes, h.bytes, err);
    return clv_world_fail_mismatch(comm, plan->base.group, comm->base.rank, &plan->desc,
                                   plan->base.group->ranks[p->move.peer],
                                   &(clv_collective_desc){.what = said, .tag = h.tag}, err);
}

/* Looks at the parts once, under the lock; *ended: how many have come to their end, as far as was looked. Unless all
 * are asked for, up to the first that has not: each look of MPI at one brings on the others, too. */
static int look_at_parts(const clv_job *job, clv_mpi_message *parts, int n, bool all, int *ended,
                         clv_mpi_message **failed)
{
    int code = 0;
    *ended = 0;
    for (int i = 0; code == 0 && i < n && (all || *ended == i); i++) {
        code = clv_mpi_test_message(job, &parts[i]);
        *ended += parts[i].n_ended == parts[i].n_posted;
        *failed = &parts[i];
    }
    return code;
}

/* For the flight recorder: what came in pieces, and is all there. */
static void record_received(const clv_mpi_plan *plan, const clv_mpi_message *parts, int n)
{
    for (int i = 0; i < n; i++)
        if (parts[i].n_requests > 1 && parts[i].n_ended == parts[i].n_posted)
            clv_recorder_receive(plan->base.comm->recorder, parts[i].move.peer, parts[i].bytes);
}

/* What was sent in vain says nothing of what comes. */
static clv_status fail_late(const clv_mpi_plan *plan, const clv_mpi_message *parts, int n, bool takes, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    if (takes)
        record_received(plan, parts, n);
    memset(comm->missing, 0, (size_t)plan->base.group->n * sizeof *comm->missing);
    for (int i = 0; i < n; i++) {
        const clv_mpi_message *p = &parts[i];
        int64_t pieces =
            p->n_ended > 0 ? (p->n_ended - 1) * clv_mpi_world_of(plan->base.comm)->job->max_message_bytes : 0;
        if (p->n_ended == p->n_posted)
            continue;
        comm->missing[p->move.peer] = true;
        if (takes)
            comm->bytes[p->move.peer] = (clv_byte_progress){.expected = p->bytes, .received = pieces};
    }
    return clv_world_fail_timeout(comm, plan->base.group, &plan->desc, err);
}

/* Waits until the parts, all takes or all sends of a phase, have come to their end. */
static clv_status await_parts(const clv_mpi_plan *plan, const clv_mpi_phase *ph, clv_mpi_message *parts, int n,
                              bool takes, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    clv_world *world = comm->world;
    struct clv_mpi_world *state = world->mpi;
    clv_mpi_backoff w = {.spins = world->spins > 0 ? SPINS : 0, .deadline = clv_deadline_after(world->timeout_ns)};
    bool late = false;
    for (int ended = 0; ended < n;) {
        clv_mpi_message *failed = NULL;
        if (clv_world_failed(world, NULL))
            return clv_collective_give_up(comm, err);
        pthread_mutex_lock(&state->job->lock);
        bool all = late || w.polls % LISTEN == LISTEN - 1;
        int code = look_at_parts(state->job, parts, n, all, &ended, &failed);
        pthread_mutex_unlock(&state->job->lock);
        bool told = ended < n && all && clv_mpi_poll_failure(world);
        for (int i = 0; takes && i < n; i++)
            if (parts[i].n_ended > 0 && !parts[i].header_checked)
                CLV_TRY(check_header(plan, ph, &parts[i], err));
        if (code != 0)
            return fail_mpi(plan, failed, code, err);
        if (ended < n && !told && late)
            return fail_late(plan, parts, n, takes, err);
        late = ended < n && !clv_mpi_backoff_pause(&w); /* one more look at all, then */
    }
    return CLV_OK;
}

/* ---- memory of this process ---- */

/* The plan of a member in this process, which has met this one. */
static const clv_mpi_plan *plan_of(const clv_mpi_plan *plan, int member)
{
    const clv_group *local = plan->local;
    int i = 0;
    while (local->ranks[i] != plan->base.group->ranks[member])
        i++;
    return clv_barrier_peer_desc((const clv_thread_comm *)plan->base.comm, local, i)->in;
}

/* What was sent to a member in this process. */
static const void *received_data_of(const clv_mpi_plan *its, const clv_mpi_phase *ph, int from)
{
    int i = 0;
    while (ph->receives[i].move.peer != from)
        i++;
    return elements_of(its, ph, &ph->receives[i], false);
}

/* Where what is read for a reduction is, one element behind another. */
static clv_status find_addend(const void **out, const clv_mpi_plan *plan, const clv_mpi_phase *ph,
                              const clv_mpi_local_read *local, clv_error *err)
{
    const clv_mpi_plan *its = plan_of(plan, local->route.by >= 0 ? local->route.by : local->route.from);
    const clv_mpi_phase *its_ph = &its->phases[ph - plan->phases];
    const clv_device *device = plan->base.in_device;
    size_t size = clv_dtype_size(plan->base.dtype);
    *out = local->at >= 0 ? plan->staging + local->at : NULL;
    if (local->route.by >= 0)
        *out = received_data_of(its, its_ph, local->route.from);
    else if (local->at < 0)
        *out = in_of(its, its_ph) + clv_box_offset(&local->route.box, &its_ph->in_shard) * (int64_t)size;
    if (local->at < 0)
        return CLV_OK;
    return device->backend->copy(device, CLV_COPY_TO_HOST, plan->staging + local->at, &local->route.box,
                                 in_of(its, its_ph), &its_ph->in_shard, &local->route.box, size, err);
}

/* Copies what is read to the result: what was sent to members of this process, or what these have themselves. */
static clv_status copy_local(const clv_mpi_plan *plan, const clv_mpi_phase *ph, bool sent, clv_error *err)
{
    const clv_device *in = plan->base.in_device, *out = plan->base.out_device;
    size_t size = clv_dtype_size(plan->base.dtype);
    for (int i = 0; i < ph->n_local; i++) {
        const clv_mpi_local_read *local = &ph->local[i];
        if ((local->route.by >= 0) != sent)
            continue;
        const clv_shard *box = &local->route.box;
        const clv_mpi_plan *its = plan_of(plan, local->route.by >= 0 ? local->route.by : local->route.from);
        const clv_mpi_phase *its_ph = &its->phases[ph - plan->phases];
        bool passed = local->route.by >= 0;
        const void *from = passed ? out_of(its, its_ph) : in_of(its, its_ph);
        const clv_shard *shard = passed ? &its_ph->out_shard : &its_ph->in_shard;
        if (local->at >= 0) {
            unsigned char *staged = plan->staging + local->at;
            CLV_TRY(in->backend->copy(in, CLV_COPY_TO_HOST, staged, box, from, shard, box, size, err));
            CLV_TRY(out->backend->copy(out, CLV_COPY_FROM_HOST, out_of(plan, ph), &ph->out_shard, staged, box, box,
                                       size, err));
        } else {
            CLV_TRY(out->backend->copy(out, CLV_COPY_ON_DEVICE, out_of(plan, ph), &ph->out_shard, from, shard, box,
                                       size, err));
        }
    }
    return CLV_OK;
}

/* Meets the group's members in this process: then they read what each has, and what was sent to it. */
static clv_status local_barrier(const clv_mpi_plan *plan, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    int64_t began = clv_now_ns();
    if (plan->local->n == 1)
        return CLV_OK;
    CLV_TRY(clv_device_synchronize(plan->base.out_device, err));
    atomic_store_explicit(&comm->at_local_barrier, 1, memory_order_relaxed);
    CLV_TRY(clv_barrier_arrive_and_wait(comm, plan->local, &plan->desc, err));
    atomic_store_explicit(&comm->at_local_barrier, 0, memory_order_relaxed);
    clv_comm_add_wait(&comm->base, began);
    return CLV_OK;
}

/* Sums what every member has of one's part of the result, in their order. */
static clv_status reduce(const clv_mpi_plan *plan, const clv_mpi_phase *ph, clv_error *err)
{
    const clv_device *device = plan->base.out_device;
    int64_t size = (int64_t)clv_dtype_size(plan->base.dtype);
    if (!ph->has_own)
        return CLV_OK;
    ph->ins[plan->base.group->me] = ph->own_at >= 0 ? (const char *)plan->staging + ph->own_at
                                                    : in_of(plan, ph) + clv_box_offset(&ph->own, &ph->in_shard) * size;
    for (int i = 0; i < ph->n_receives; i++)
        ph->ins[ph->receives[i].move.peer] = elements_of(plan, ph, &ph->receives[i], false);
    for (int i = 0; i < ph->n_local; i++)
        CLV_TRY(find_addend(&ph->ins[ph->local[i].route.from], plan, ph, &ph->local[i], err));
    bool is_host = device->backend->is_host;
    void *to = is_host ? out_of(plan, ph) : (char *)plan->staging + ph->own_at;
    clv_values_reduce(to, ph->ins, plan->base.group->n, 0, clv_shard_elems(&ph->own), plan->base.dtype,
                      plan->base.reduction);
    if (is_host)
        return CLV_OK;
    return device->backend->copy(device, CLV_COPY_FROM_HOST, out_of(plan, ph), &ph->out_shard, to, &ph->own, &ph->own,
                                 (size_t)size, err);
}

static clv_status unpack(const clv_mpi_plan *plan, const clv_mpi_phase *ph, clv_error *err)
{
    const clv_device *device = plan->base.out_device;
    for (int i = 0; i < ph->n_receives; i++) {
        const clv_mpi_message *p = &ph->receives[i];
        if (p->bytes > 0 && (p->bytes <= CLV_MPI_EAGER_BYTES || p->at >= 0))
            CLV_TRY(device->backend->copy(device, CLV_COPY_FROM_HOST, out_of(plan, ph), &ph->out_shard,
                                          elements_of(plan, ph, p, false), &p->move.box, &p->move.box,
                                          clv_dtype_size(plan->base.dtype), err));
    }
    return CLV_OK;
}

/* For the flight recorder: members that messages come of, as bits. */
static uint64_t senders_of(const clv_mpi_phase *ph)
{
    uint64_t bits = 0;
    for (int i = 0; i < ph->n_receives; i++)
        if (ph->receives[i].move.peer < CLV_RECORDER_MAX_MEMBERS)
            bits |= UINT64_C(1) << ph->receives[i].move.peer;
    return bits;
}

static clv_status wait_out(clv_mpi_plan *plan, clv_error *err)
{
    for (int k = 0; k < plan->n_phases; k++) {
        clv_mpi_phase *ph = &plan->phases[k];
        if (k > 0)
            CLV_TRY(start_phase(plan, ph, err));
        atomic_store_explicit(&((clv_thread_comm *)plan->base.comm)->phase, k, memory_order_relaxed);
        if (ph->slices) { /* the sums of this process are copied while the others' come */
            CLV_TRY(local_barrier(plan, err));
            CLV_TRY(copy_local(plan, ph, false, err));
        }
        int64_t began = clv_now_ns();
        clv_collective_record_wait((clv_thread_comm *)plan->base.comm, plan->base.group, &plan->desc,
                                   plan->base.receive_bytes, senders_of(ph), began);
        CLV_TRY(await_parts(plan, ph, ph->receives, ph->n_receives, true, err));
        clv_comm_add_wait(plan->base.comm, began);
        record_received(plan, ph->receives, ph->n_receives);
        if (!ph->reduces)
            CLV_TRY(unpack(plan, ph, err));
        CLV_TRY(local_barrier(plan, err));
        clv_recorder_set_phase(plan->base.comm->recorder, CLV_RECORD_TRANSFERRING);
        if (!ph->reduces && !ph->slices)
            CLV_TRY(copy_local(plan, ph, false, err));
        CLV_TRY(ph->reduces ? reduce(plan, ph, err) : copy_local(plan, ph, true, err));
    }
    if (plan->shm.publishes) /* as who begins the step after the next would be ahead */
        CLV_TRY(clv_shm_await_members(plan, err));
    return clv_device_synchronize(plan->base.out_device, err);
}

/* None of this process reads any more. */
static clv_status end_local(const clv_mpi_plan *plan, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    clv_collective_desc end = {.what = plan->desc.what, .tag = plan->desc.tag, .at_end_barrier = true};
    if (plan->local->n == 1)
        return CLV_OK;
    CLV_TRY(clv_barrier_arrive_and_wait(comm, plan->local, &end, err));
    clv_barrier_release(comm, plan->local);
    return CLV_OK;
}

static clv_status wait_in(clv_mpi_plan *plan, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    int64_t began = clv_now_ns();
    clv_collective_record_end_wait(comm, plan->base.group, &plan->desc, began);
    for (int k = 0; k < plan->n_phases; k++)
        CLV_TRY(await_parts(plan, &plan->phases[k], plan->phases[k].sends, plan->phases[k].n_sends, false, err));
    CLV_TRY(end_local(plan, err));
    clv_comm_add_wait(&comm->base, began);
    clv_mpi_plan_finish(plan);
    clv_collective_end(comm, plan->base.group);
    return CLV_OK;
}

static clv_status wait_for(clv_plan *base, clv_wait what, clv_error *err)
{
    clv_mpi_plan *plan = (clv_mpi_plan *)base;
    if (plan->threads) {
        clv_status status = clv_threads_transport.wait(plan->threads, what, err);
        base->arrived_ns = plan->threads->arrived_ns;
        return status;
    }
    if (plan->shm.in_slots)
        return clv_shm_wait(plan, what, err);
    clv_mpi_end_overlap(plan);
    clv_status status = what == CLV_WAIT_OUTPUT_READY ? wait_out(plan, err) : wait_in(plan, err);
    if (status != CLV_OK)
        clv_mpi_cancel_receives(plan);
    return status;
}

static void hear(clv_world *world)
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
    .poll_failure = hear,
    .prepare = clv_mpi_prepare,
    .start = start,
    .overlap = clv_mpi_overlap,
    .wait = wait_for,
    .release = clv_mpi_release,
};
