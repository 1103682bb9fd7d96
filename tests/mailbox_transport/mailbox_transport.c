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
static message *get(mailbox *box, int set, uint64_t step, bool *waits)
{
    *waits = false;
    for (message **at = &box->first; *at; at = &(*at)->next) {
        message *m = *at;

        if (m->set != set || m->step != step)
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

static void release(clv_plan *base)
{
    mailbox_plan *plan = (mailbox_plan *)base;

    if (!plan)
        return;
    free(plan->sends);
    free(plan->receives);
    free(plan->ins);
    free(plan);
}

static int64_t bytes_of(const mailbox_plan *plan, const part *p)
{
    return clv_shard_elems(&p->move.box) * (int64_t)clv_dtype_size(plan->base.dtype);
}

static int place_in_staging(part *out, mailbox_plan *plan, const clv_transfer_box *moves, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] = (part){.move = moves[i], .at = plan->staging_bytes};
        plan->staging_bytes += (bytes_of(plan, &out[i]) + CLV_CACHE_LINE - 1) / CLV_CACHE_LINE * CLV_CACHE_LINE;
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

static clv_status prepare(clv_plan **out, clv_comm *comm, const clv_transfer *t, int64_t *staging, clv_error *err)
{
    size_t n = (size_t)t->group->n;
    mailbox_plan *plan = calloc(1, sizeof *plan);
    clv_transfer_box *moves = malloc(n * sizeof *moves);

    if (plan)
        *plan = (mailbox_plan){.base = clv_plan_init(comm, t),
                               .desc = {.what = t->what, .tag = t->tag},
                               .sends = malloc(n * sizeof *plan->sends),
                               .receives = malloc(n * sizeof *plan->receives),
                               .ins = t->parts.reduces ? malloc(n * sizeof *plan->ins) : NULL};
    if (!plan || !moves || !plan->sends || !plan->receives || (t->parts.reduces && !plan->ins)) {
        free(moves);
        release(plan ? &plan->base : NULL);
        return clv_fail_memory(err, "a collective's plan", n * 2 * sizeof *plan->sends);
    }
    plan->n_sends = place_in_staging(plan->sends, plan, moves, list_send_boxes(moves, &t->parts, t->group->me));
    plan->n_receives =
        place_in_staging(plan->receives, plan, moves, clv_list_receive_boxes(moves, &t->parts, t->group->me));
    free(moves);
    plan->all_sends = add_empty(plan->sends, plan->n_sends, t->group);
    plan->all_receives = add_empty(plan->receives, plan->n_receives, t->group);
    *staging = plan->staging_bytes;
    *out = &plan->base;
    return CLV_OK;
}

/* ---- sending ---- */

static clv_status fail_process_ended(const mailbox_plan *plan, clv_comm *comm, int rank, clv_error *err)
{
    clv_error error = {.code = CLV_EPEER, .rank = rank};

    const char *note = atomic_load_explicit(&comm->activity, memory_order_relaxed);

    snprintf(error.op, sizeof error.op, "%s", note ? note : plan->desc.what);
    snprintf(error.message, sizeof error.message, "rank %d is in %s ('%s') with rank %d, whose process %d has ended",
             comm->rank, plan->desc.what, error.op, rank, clv_world_process_of(comm->world, rank));
    clv_world_set_failure(comm->world, &error);
    return clv_collective_give_up(comm, err);
}

/* Waits until all frames of a process that has ended were read: one may have the reason. */
static void wait_for_end(const clv_comm *comm, int process)
{
    const clv_world *world = comm->world;
    clv_deadline deadline = clv_deadline_after(world->timeout_ns);

    while (!atomic_load_explicit(&mailbox_of(world)->closed[process], memory_order_acquire) &&
           !clv_world_failed(world, NULL) && clv_deadline_remaining(&deadline) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static clv_status send_to_process(const mailbox_plan *plan, clv_comm *comm, int rank, const void *data, int64_t bytes,
                                  clv_error *err)
{
    socket_frame frame = {.kind = MAILBOX_MESSAGE,
                          .to = rank,
                          .set = plan->base.group->set,
                          .from = plan->base.group->me,
                          .what_bytes = (int64_t)strlen(plan->desc.what),
                          .step = plan->step,
                          .tag = plan->desc.tag,
                          .bytes = bytes};
    if (bytes > SOCKET_FRAME_MAX_BYTES)
        return clv_fail(err, CLV_ELIMIT, "a message of %lld bytes to rank %d; at most %d go to another process",
                        (long long)bytes, rank, (int)SOCKET_FRAME_MAX_BYTES);
    int process = clv_world_process_of(comm->world, rank);
    if (socket_mesh_send(mailbox_of(comm->world)->mesh, process, &frame, plan->desc.what, data))
        return CLV_OK;
    wait_for_end(comm, process);
    return fail_process_ended(plan, comm, rank, err);
}

static clv_status send_part(const mailbox_plan *plan, clv_comm *comm, const part *p, clv_error *err)
{
    const clv_device *device = plan->base.in_device;
    int64_t bytes = bytes_of(plan, p);
    unsigned char *packed = bytes > 0 ? plan->staging + p->at : (unsigned char[1]){0};
    int rank = plan->base.group->ranks[p->move.peer];

    if (bytes > 0)
        CLV_TRY(device->backend->copy(device, CLV_COPY_TO_HOST, packed, &p->move.box, plan->base.in,
                                      &plan->base.in_shard, &p->move.box, clv_dtype_size(plan->base.dtype), err));
    if (!clv_world_is_local(comm->world, rank))
        return send_to_process(plan, comm, rank, packed, bytes, err);
    message *m = malloc(sizeof *m + (size_t)bytes);
    if (!m)
        return clv_fail_memory(err, "a message", sizeof *m + (size_t)bytes);
    *m = (message){.set = plan->base.group->set,
                   .from = plan->base.group->me,
                   .step = plan->step,
                   .desc = plan->desc,
                   .bytes = bytes};
    memcpy(m->data, packed, (size_t)bytes);
    mailbox_put(&mailbox_of(comm->world)->boxes[rank], m);
    return CLV_OK;
}

/* Counts the collectives that this rank starts in a group set. */
static clv_status count_step(uint64_t *out, mailbox *mine, int set, clv_error *err)
{
    if (set >= mine->n_sets) {
        uint64_t *steps = realloc(mine->steps, (size_t)(set + 1) * sizeof *steps);

        if (!steps)
            return clv_fail_memory(err, "counts of steps", (size_t)(set + 1) * sizeof *steps);
        memset(steps + mine->n_sets, 0, (size_t)(set + 1 - mine->n_sets) * sizeof *steps);
        mine->steps = steps;
        mine->n_sets = set + 1;
    }
    *out = ++mine->steps[set];
    return CLV_OK;
}

static void fill_with_nan(const mailbox_plan *plan)
{
    if (plan->staging_bytes > 0)
        memset(plan->staging, 0xff, (size_t)plan->staging_bytes);
}

static clv_status start(clv_plan *base, void *staging, clv_error *err)
{
    mailbox_plan *plan = (mailbox_plan *)base;
    clv_comm *comm = base->comm;

    CLV_TRY(clv_collective_begin(comm, plan->base.group, &plan->desc, err));
    CLV_TRY(count_step(&plan->step, &mailbox_of(comm->world)->boxes[base->comm->rank], plan->base.group->set, err));
    plan->staging = staging;
    fill_with_nan(plan);
    for (int i = 0; i < plan->all_receives; i++)
        plan->receives[i].came = false;
    for (int i = 0; i < plan->all_sends; i++)
        CLV_TRY(send_part(plan, comm, &plan->sends[i], err));
    return CLV_OK;
}

/* ---- receiving ---- */

static clv_status deliver(mailbox_plan *plan, clv_comm *comm, const message *m, clv_error *err)
{
    part *p = plan->receives;

    while (p < plan->receives + plan->all_receives && p->move.peer != m->from)
        p++;
    if (!clv_collective_desc_equal(&plan->desc, &m->desc) || p == plan->receives + plan->all_receives)
        return clv_world_fail_mismatch(comm, plan->base.group, comm->rank, &plan->desc,
                                       plan->base.group->ranks[m->from], &m->desc, err);
    if (bytes_of(plan, p) != m->bytes)
        return clv_world_fail_wrong_size(comm, plan->base.group, &plan->desc, m->from, bytes_of(plan, p), m->bytes,
                                         err);
    if (m->bytes > 0)
        memcpy(plan->staging + p->at, m->data, (size_t)m->bytes);
    p->came = true;
    if (m->put_ns > plan->base.arrived_ns) /* else it is of an earlier collective */
        plan->base.arrived_ns = m->put_ns;
    clv_recorder_receive(comm->recorder, m->from, m->from == plan->base.group->me ? 0 : m->bytes);
    return CLV_OK;
}

static clv_status fail_late(const mailbox_plan *plan, clv_comm *comm, clv_error *err)
{
    memset(comm->missing, 0, (size_t)plan->base.group->n * sizeof *comm->missing);
    for (int i = 0; i < plan->all_receives; i++) {
        const part *p = &plan->receives[i];
        comm->missing[p->move.peer] = !p->came;
        comm->bytes[p->move.peer] = (clv_byte_progress){.expected = p->came ? 0 : bytes_of(plan, p)};
    }
    return clv_world_fail_timeout(comm, plan->base.group, &plan->desc, err);
}

static void sleep_on(mailbox *box)
{
    struct timespec until = clv_wall_time_after(SLICE_NS);
    pthread_cond_timedwait(&box->filled, &box->lock, &until);
}

/* Waits a while for the next message of the collective; NULL: none yet, or (*waits) one was passed over. */
static message *receive(const mailbox_plan *plan, mailbox *mine, bool *waits)
{
    pthread_mutex_lock(&mine->lock);
    message *m = get(mine, plan->base.group->set, plan->step, waits);
    if (!m && !*waits)
        sleep_on(mine);
    pthread_mutex_unlock(&mine->lock);
    if (!m)
        sched_yield();
    return m;
}

/* A rank that has not sent and whose process has ended; -1: none. */
static int find_ended_process(const mailbox_plan *plan, const clv_world *world)
{
    for (int i = 0; world->processes > 1 && i < plan->all_receives; i++) {
        int rank = plan->base.group->ranks[plan->receives[i].move.peer];
        if (!plan->receives[i].came &&
            atomic_load_explicit(&mailbox_of(world)->closed[clv_world_process_of(world, rank)], memory_order_acquire))
            return rank;
    }
    return -1;
}

static clv_status receive_all(mailbox_plan *plan, clv_comm *comm, clv_error *err)
{
    mailbox *mine = &mailbox_of(comm->world)->boxes[comm->rank];
    clv_deadline deadline = clv_deadline_after(comm->world->timeout_ns);

    for (int missing = plan->all_receives; missing > 0;) {
        if (clv_world_failed(comm->world, NULL))
            return clv_collective_give_up(comm, err);
        bool waits;
        int closed = find_ended_process(plan, comm->world); /* checked before the mailbox, which then has all its
                                                               messages */
        message *m = receive(plan, mine, &waits);
        if (!m && !waits && closed >= 0)
            return fail_process_ended(plan, comm, closed, err);
        if (!m && clv_deadline_remaining(&deadline) == 0)
            return fail_late(plan, comm, err);
        if (!m)
            continue;
        clv_status status = deliver(plan, comm, m, err);
        free(m);
        CLV_TRY(status);
        missing--;
    }
    return CLV_OK;
}

/* Sums all members' addends, in the group's order, into the staging of the first one. */
static void combine(const mailbox_plan *plan)
{
    for (int i = 0; i < plan->n_receives; i++)
        plan->ins[plan->receives[i].move.peer] = plan->staging + plan->receives[i].at;
    if (plan->n_receives > 0)
        clv_values_reduce(plan->staging + plan->receives[0].at, plan->ins, plan->n_receives, 0,
                          clv_shard_elems(&plan->base.out_shard), plan->base.dtype, plan->base.reduction);
}

static clv_status unpack(const mailbox_plan *plan, clv_error *err)
{
    const clv_device *device = plan->base.out_device;
    int n = plan->ins && plan->n_receives > 0 ? 1 : plan->n_receives;

    for (int i = 0; i < n; i++) {
        const clv_shard *box = &plan->receives[i].move.box;

        CLV_TRY(device->backend->copy(device, CLV_COPY_FROM_HOST, plan->base.out, &plan->base.out_shard,
                                      plan->staging + plan->receives[i].at, box, box, clv_dtype_size(plan->base.dtype),
                                      err));
    }
    return CLV_OK;
}

static clv_status wait_for(clv_plan *base, clv_wait what, clv_error *err)
{
    mailbox_plan *plan = (mailbox_plan *)base;
    clv_comm *comm = base->comm;

    if (what == CLV_WAIT_INPUT_REUSABLE) { /* it was packed by start */
        clv_collective_end(comm, plan->base.group);
        return CLV_OK;
    }
    int64_t began = clv_now_ns();
    clv_collective_record_wait(comm, plan->base.group, &plan->desc, plan->base.receive_bytes,
                               clv_recorder_peer_mask(plan->base.group->n, plan->base.group->me), began);
    CLV_TRY(receive_all(plan, comm, err));
    clv_recorder_set_phase(comm->recorder, CLV_RECORD_TRANSFERRING);
    clv_comm_add_wait(comm, began);
    if (plan->ins)
        combine(plan);
    CLV_TRY(unpack(plan, err));
    fill_with_nan(plan);
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
