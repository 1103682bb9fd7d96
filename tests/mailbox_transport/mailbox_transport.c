/* mailbox_transport.c - transport "mailbox", for tests: collectives by message passing, delivered in shuffled order. It
 * stands in for transports between processes, and fails a program that needs more than they give. Every test program
 * that is linked with it has it (clv_transport_register).
 *
 * A rank packs what it sends into its staging; each box is copied into a message, put into the mailbox of its receiver
 * at a random place, and passed over there a few times before it is delivered into that rank's staging. All of staging
 * is NaN before a step, and again after it.
 *
 * In every step each member of a group sends to every other, an empty message where it has nothing for it, and ends the
 * step when all theirs have come: who only sends would else end a step that the others are not in.
 *
 * To ranks of other processes messages go over sockets (socket_mesh.h); what comes from there is put into the same
 * mailboxes.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "mailbox.h"
#include "tensor/box_copy.h"

enum { SLICE_NS = 2000000 /* a sleeper looks at the world's state this often */ };

/* Removes a message of a collective from the mailbox; NULL: none can be delivered yet. *waits: one was passed over. */
static message *get(mailbox *box, int group_set, uint64_t step, bool *waits)
{
    *waits = false;
    for (message **at = &box->first; *at; at = &(*at)->next) {
        message *m = *at;

        if (m->group_set != group_set || m->step != step)
            continue;
        if (m->deliver_after-- > 0) {
            *waits = true;
            continue;
        }
        *at = m->next;
        return m;
    }
    return NULL;
}

/* ---- preparing ---- */

static void release(clv_prepared_collective *base)
{
    mailbox_prepared_collective *prepared = (mailbox_prepared_collective *)base;

    if (!prepared)
        return;
    free(prepared->sends);
    free(prepared->receives);
    free(prepared->ins);
    free(prepared);
}

/* The span of a part; NULL: it is a box. */
static const clv_span *span_of(const mailbox_prepared_collective *prepared, const part *p)
{
    const bool sends = p >= prepared->sends && p < prepared->sends + prepared->base.group->n;
    return prepared->base.sends ? &(sends ? prepared->base.sends : prepared->base.receives)[p->move.peer] : NULL;
}

static int64_t bytes_of(const mailbox_prepared_collective *prepared, const part *p)
{
    const clv_span *span = span_of(prepared, p);
    if (span)
        return span->bytes;
    return clv_shard_elems(&p->move.box) * (int64_t)clv_dtype_size(prepared->base.dtype);
}

static int place_in_staging(part *out, mailbox_prepared_collective *prepared, const clv_transfer_box *moves, int n)
{
    for (int i = 0; i < n; i++) {
        out[i].move = moves[i];
        out[i].at = prepared->staging_bytes;
        out[i].came = false;
        prepared->staging_bytes += (bytes_of(prepared, &out[i]) + CLV_CACHE_LINE - 1) / CLV_CACHE_LINE * CLV_CACHE_LINE;
    }
    return n;
}

/* Adds an empty part for every other member that has none; returns how many there are then. */
static int add_empty(part *parts, int n, const clv_group *group)
{
    int all = n;

    for (int k = 1; k < group->n; k++) {
        int peer = (group->me + k) % group->n, i = 0;

        while (i < n && parts[i].move.peer != peer)
            i++;
        if (i == n)
            parts[all++] = (part){.move = {.peer = peer, .box = {.rank = 1}}};
    }
    return all;
}

/* Parts for all other members, whatever they hold when it runs. */
static void list_spans(mailbox_prepared_collective *prepared, const clv_group *group)
{
    for (int k = 1; k < group->n; k++) {
        const clv_transfer_box move = {.peer = (group->me + k) % group->n, .box = {.rank = 1}};
        prepared->n_sends += place_in_staging(&prepared->sends[prepared->n_sends], prepared, &move, 1);
        prepared->n_receives += place_in_staging(&prepared->receives[prepared->n_receives], prepared, &move, 1);
    }
}

/* Fills out[n] with the boxes that are not empty, peers in cyclic order, and returns their number. */
static int list_send_boxes(clv_transfer_box *out, const clv_group_shards *parts, int me)
{
    int n = 0;

    for (int i = 0; i < parts->n; i++) {
        out[n].peer = (me + i) % parts->n;
        n += clv_find_transfer_box(&out[n].box, parts, out[n].peer, me);
    }
    return n;
}

static clv_status prepare(clv_prepared_collective **out, clv_comm *comm, const clv_transfer *t, int64_t *staging,
                          clv_error *err)
{
    size_t n = (size_t)t->group->n;
    mailbox_prepared_collective *prepared = calloc(1, sizeof *prepared);
    clv_transfer_box *moves = malloc(n * sizeof *moves);

    if (prepared)
        *prepared = (mailbox_prepared_collective){.base = clv_prepared_collective_init(comm, t),
                                                  .desc = {.what = t->what, .tag = t->tag},
                                                  .sends = malloc(n * sizeof *prepared->sends),
                                                  .receives = malloc(n * sizeof *prepared->receives),
                                                  .ins = t->parts.reduces ? malloc(n * sizeof *prepared->ins) : NULL};
    if (!prepared || !moves || !prepared->sends || !prepared->receives || (t->parts.reduces && !prepared->ins)) {
        free(moves);
        release(prepared ? &prepared->base : NULL);
        return clv_fail_memory(err, "a collective's plan", n * 2 * sizeof *prepared->sends);
    }
    if (t->sends) {
        list_spans(prepared, t->group);
    } else {
        prepared->n_sends =
            place_in_staging(prepared->sends, prepared, moves, list_send_boxes(moves, &t->parts, t->group->me));
        prepared->n_receives = place_in_staging(prepared->receives, prepared, moves,
                                                clv_list_receive_boxes(moves, &t->parts, t->group->me));
    }
    free(moves);
    prepared->all_sends = add_empty(prepared->sends, prepared->n_sends, t->group);
    prepared->all_receives = add_empty(prepared->receives, prepared->n_receives, t->group);
    *staging = prepared->staging_bytes;
    *out = &prepared->base;
    return CLV_OK;
}

/* ---- sending ---- */

static clv_status fail_process_ended(const mailbox_prepared_collective *prepared, clv_comm *comm, int rank,
                                     clv_error *err)
{
    clv_error error = {.code = CLV_EPEER, .rank = rank};

    const char *note = atomic_load_explicit(&comm->activity, memory_order_relaxed);

    snprintf(error.op, sizeof error.op, "%s", note ? note : prepared->desc.what);
    snprintf(error.message, sizeof error.message, "rank %d is in %s ('%s') with rank %d, whose process %d has ended",
             comm->rank, prepared->desc.what, error.op, rank, clv_world_process_of(comm->world, rank));
    clv_world_record_local_failure(comm->world, &error);
    return clv_collective_give_up(comm, err);
}

/* Waits until all frames of a process that has ended were read: one may have the reason. */
static void wait_for_end(const clv_comm *comm, int process)
{
    const clv_world *world = comm->world;
    clv_deadline deadline = clv_deadline_after(world->timeout_ns);

    while (!atomic_load_explicit(&mailbox_of(world)->closed[process], memory_order_acquire) &&
           !clv_world_has_failed(world, NULL) && clv_deadline_remaining(&deadline) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static clv_status send_to_process(const mailbox_prepared_collective *prepared, clv_comm *comm, int rank,
                                  const void *data, int64_t bytes, clv_error *err)
{
    socket_frame frame = {.kind = MAILBOX_MESSAGE,
                          .to = rank,
                          .group_set = prepared->base.group->group_set,
                          .from = prepared->base.group->me,
                          .what_bytes = (int64_t)strlen(prepared->desc.what),
                          .step = prepared->step,
                          .tag = prepared->desc.tag,
                          .bytes = bytes};
    if (bytes > SOCKET_FRAME_MAX_BYTES)
        return clv_fail(err, CLV_ELIMIT, "a message of %lld bytes to rank %d; at most %d go to another process",
                        (long long)bytes, rank, (int)SOCKET_FRAME_MAX_BYTES);
    int process = clv_world_process_of(comm->world, rank);
    if (socket_mesh_send(mailbox_of(comm->world)->mesh, process, &frame, prepared->desc.what, data))
        return CLV_OK;
    wait_for_end(comm, process);
    return fail_process_ended(prepared, comm, rank, err);
}

static clv_status send_part(const mailbox_prepared_collective *prepared, clv_comm *comm, const part *p, clv_error *err)
{
    const clv_device *device = prepared->base.in_device;
    int64_t bytes = bytes_of(prepared, p);
    unsigned char *packed = bytes > 0 ? prepared->staging + p->at : (unsigned char[1]){0};
    int rank = prepared->base.group->ranks[p->move.peer];

    if (prepared->base.sends)
        memcpy(packed, prepared->base.sends[p->move.peer].data, (size_t)bytes);
    else if (bytes > 0)
        CLV_TRY(device->backend->copy(device, CLV_COPY_TO_HOST, packed, &p->move.box, prepared->base.in,
                                      &prepared->base.in_shard, &p->move.box, clv_dtype_size(prepared->base.dtype),
                                      err));
    if (!clv_world_is_local(comm->world, rank))
        return send_to_process(prepared, comm, rank, packed, bytes, err);
    message *m = malloc(sizeof *m + (size_t)bytes);
    if (!m)
        return clv_fail_memory(err, "a message", sizeof *m + (size_t)bytes);
    *m = (message){.group_set = prepared->base.group->group_set,
                   .from = prepared->base.group->me,
                   .step = prepared->step,
                   .desc = prepared->desc,
                   .bytes = bytes};
    memcpy(m->data, packed, (size_t)bytes);
    mailbox_put(&mailbox_of(comm->world)->boxes[rank], m);
    return CLV_OK;
}

/* Counts the collectives that this rank starts in a group set. */
static clv_status count_step(uint64_t *out, mailbox *mine, int group_set, clv_error *err)
{
    if (group_set >= mine->n_sets) {
        uint64_t *steps = realloc(mine->steps, (size_t)(group_set + 1) * sizeof *steps);

        if (!steps)
            return clv_fail_memory(err, "counts of steps", (size_t)(group_set + 1) * sizeof *steps);
        memset(steps + mine->n_sets, 0, (size_t)(group_set + 1 - mine->n_sets) * sizeof *steps);
        mine->steps = steps;
        mine->n_sets = group_set + 1;
    }
    *out = ++mine->steps[group_set];
    return CLV_OK;
}

static void fill_with_nan(const mailbox_prepared_collective *prepared)
{
    if (prepared->staging_bytes > 0)
        memset(prepared->staging, 0xff, (size_t)prepared->staging_bytes);
}

static clv_status start(clv_prepared_collective *base, void *staging, clv_error *err)
{
    mailbox_prepared_collective *prepared = (mailbox_prepared_collective *)base;
    clv_comm *comm = base->comm;

    CLV_TRY(clv_collective_begin(comm, prepared->base.group, &prepared->desc, err));
    CLV_TRY(count_step(&prepared->step, &mailbox_of(comm->world)->boxes[base->comm->rank],
                       prepared->base.group->group_set, err));
    prepared->staging = staging;
    fill_with_nan(prepared);
    for (int i = 0; i < prepared->all_receives; i++)
        prepared->receives[i].came = false;
    for (int i = 0; i < prepared->all_sends; i++)
        CLV_TRY(send_part(prepared, comm, &prepared->sends[i], err));
    return CLV_OK;
}

/* ---- receiving ---- */

static clv_status deliver(mailbox_prepared_collective *prepared, clv_comm *comm, const message *m, clv_error *err)
{
    part *p = prepared->receives;

    while (p < prepared->receives + prepared->all_receives && p->move.peer != m->from)
        p++;
    if (!clv_collective_desc_equal(&prepared->desc, &m->desc) || p == prepared->receives + prepared->all_receives)
        return clv_world_fail_mismatch(comm, prepared->base.group, comm->rank, &prepared->desc,
                                       prepared->base.group->ranks[m->from], &m->desc, err);
    if (bytes_of(prepared, p) != m->bytes)
        return clv_world_fail_wrong_size(comm, prepared->base.group, &prepared->desc, m->from, bytes_of(prepared, p),
                                         m->bytes, err);
    if (m->bytes > 0)
        memcpy(prepared->staging + p->at, m->data, (size_t)m->bytes);
    p->came = true;
    if (m->put_ns > prepared->base.arrived_ns) /* else it is of an earlier collective */
        prepared->base.arrived_ns = m->put_ns;
    clv_recorder_receive(comm->recorder, m->from, m->from == prepared->base.group->me ? 0 : m->bytes);
    return CLV_OK;
}

static clv_status fail_late(const mailbox_prepared_collective *prepared, clv_comm *comm, clv_error *err)
{
    memset(comm->missing, 0, (size_t)prepared->base.group->n * sizeof *comm->missing);
    for (int i = 0; i < prepared->all_receives; i++) {
        const part *p = &prepared->receives[i];
        comm->missing[p->move.peer] = !p->came;
        comm->bytes[p->move.peer] = (clv_byte_progress){.expected = p->came ? 0 : bytes_of(prepared, p)};
    }
    return clv_world_fail_timeout(comm, prepared->base.group, &prepared->desc, err);
}

static void sleep_on(mailbox *box)
{
    struct timespec until = clv_wall_time_after(SLICE_NS);
    pthread_cond_timedwait(&box->filled, &box->lock, &until);
}

/* Waits a while for the next message of the collective; NULL: none yet, or (*waits) one was passed over. */
static message *receive(const mailbox_prepared_collective *prepared, mailbox *mine, bool *waits)
{
    pthread_mutex_lock(&mine->lock);
    message *m = get(mine, prepared->base.group->group_set, prepared->step, waits);
    if (!m && !*waits)
        sleep_on(mine);
    pthread_mutex_unlock(&mine->lock);
    if (!m)
        sched_yield();
    return m;
}

/* A rank that has not sent and whose process has ended; -1: none. */
static int find_ended_process(const mailbox_prepared_collective *prepared, const clv_world *world)
{
    for (int i = 0; world->processes > 1 && i < prepared->all_receives; i++) {
        int rank = prepared->base.group->ranks[prepared->receives[i].move.peer];
        if (!prepared->receives[i].came &&
            atomic_load_explicit(&mailbox_of(world)->closed[clv_world_process_of(world, rank)], memory_order_acquire))
            return rank;
    }
    return -1;
}

static clv_status receive_all(mailbox_prepared_collective *prepared, clv_comm *comm, clv_error *err)
{
    mailbox *mine = &mailbox_of(comm->world)->boxes[comm->rank];
    clv_deadline deadline = clv_deadline_after(comm->world->timeout_ns);

    for (int missing = prepared->all_receives; missing > 0;) {
        if (clv_world_has_failed(comm->world, NULL))
            return clv_collective_give_up(comm, err);
        bool waits;
        int closed = find_ended_process(prepared, comm->world); /* checked before the mailbox, which then has all its
                                                               messages */
        message *m = receive(prepared, mine, &waits);
        if (!m && !waits && closed >= 0)
            return fail_process_ended(prepared, comm, closed, err);
        if (!m && clv_deadline_remaining(&deadline) == 0)
            return fail_late(prepared, comm, err);
        if (!m)
            continue;
        clv_status status = deliver(prepared, comm, m, err);
        free(m);
        CLV_TRY(status);
        missing--;
    }
    return CLV_OK;
}

/* Sums all members' addends, in the group's order, into the staging of the first one. */
static void combine(const mailbox_prepared_collective *prepared)
{
    for (int i = 0; i < prepared->n_receives; i++)
        prepared->ins[prepared->receives[i].move.peer] = prepared->staging + prepared->receives[i].at;
    if (prepared->n_receives > 0)
        clv_values_reduce(prepared->staging + prepared->receives[0].at, prepared->ins, prepared->n_receives, 0,
                          clv_shard_elems(&prepared->base.out_shard), prepared->base.dtype, prepared->base.reduction);
}

static clv_status unpack(const mailbox_prepared_collective *prepared, clv_error *err)
{
    const clv_device *device = prepared->base.out_device;
    int n = prepared->ins && prepared->n_receives > 0 ? 1 : prepared->n_receives;

    for (int i = 0; i < n; i++) {
        const clv_shard *box = &prepared->receives[i].move.box;
        const clv_span *span = span_of(prepared, &prepared->receives[i]);

        if (span) {
            memcpy(span->data, prepared->staging + prepared->receives[i].at, (size_t)span->bytes);
            continue;
        }
        CLV_TRY(device->backend->copy(device, CLV_COPY_FROM_HOST, prepared->base.out, &prepared->base.out_shard,
                                      prepared->staging + prepared->receives[i].at, box, box,
                                      clv_dtype_size(prepared->base.dtype), err));
    }
    return CLV_OK;
}

static clv_status wait_for(clv_prepared_collective *base, clv_wait what, clv_error *err)
{
    mailbox_prepared_collective *prepared = (mailbox_prepared_collective *)base;
    clv_comm *comm = base->comm;

    if (what == CLV_WAIT_INPUT_REUSABLE) { /* it was packed by start */
        clv_collective_end(comm, prepared->base.group);
        return CLV_OK;
    }
    int64_t began = clv_now_ns();
    clv_collective_record_wait(comm, prepared->base.group, &prepared->desc, prepared->base.receive_bytes,
                               clv_recorder_peer_mask(prepared->base.group->n, prepared->base.group->me), began);
    CLV_TRY(receive_all(prepared, comm, err));
    clv_recorder_set_phase(comm->recorder, CLV_RECORD_TRANSFERRING);
    clv_comm_add_wait(comm, began);
    if (prepared->ins)
        combine(prepared);
    CLV_TRY(unpack(prepared, err));
    fill_with_nan(prepared);
    return CLV_OK;
}

const clv_transport mailbox_transport = {
    .name = "mailbox",
    .open = mailbox_open,
    .close = mailbox_close,
    .notify_failure = mailbox_notify_failure,
    .query_progress = mailbox_query_progress,
    .prepare = prepare,
    .start = start,
    .overlap = clv_collective_mark_overlapped,
    .wait = wait_for,
    .release = release,
};

__attribute__((constructor)) static void register_transport(void)
{
    clv_transport_register(&mailbox_transport);
}
