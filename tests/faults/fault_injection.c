/* fault_injection.c - wraps transports: delays, stops, kills or damages one collective of one rank. */
#include "fault_injection.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "comm/mpi/mpi_world.h"
#include "mailbox.h"

enum { MOST_RANKS = 64, STOP_MS = 20000 };

clv_status __real_clv_transport_find(const clv_transport **out, const char *called, clv_error *err);
clv_status __wrap_clv_transport_find(const clv_transport **out, const char *called, clv_error *err);

static struct {
    fault told;
    _Atomic bool armed;
    _Atomic bool struck;
    _Atomic int members;
    _Atomic int steps[MOST_RANKS];
} now;

static clv_transport faulty[3];
static const clv_transport *usual[3];

void fault_arm(const fault *f)
{
    atomic_store(&now.armed, false);
    now.told = *f;
    atomic_store(&now.struck, false);
    atomic_store(&now.members, 0);
    for (int r = 0; r < MOST_RANKS; r++)
        atomic_store(&now.steps[r], 0);
    atomic_store(&now.armed, true);
}

fault fault_disarm(int *steps, int rank)
{
    fault f = now.told;
    atomic_store(&now.armed, false);
    f.struck = atomic_load(&now.struck);
    f.members = atomic_load(&now.members);
    if (steps)
        *steps = atomic_load(&now.steps[rank]);
    return f;
}

const char *fault_name(fault_kind kind)
{
    static const char *const names[FAULTS] = {"none", "delay", "stop", "header", "drop", "length", "kill", "freeze"};
    return names[kind];
}

static void sleep_for(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void stop(const clv_prepared_collective *prepared)
{
    const clv_world *world = prepared->comm->world;
    for (int ms = 0; ms < STOP_MS && !clv_world_has_failed(world, NULL); ms += 2)
        sleep_for(2);
}

/* Another process wakes this one. */
static void freeze(int ms)
{
    pid_t me = getpid(), waker = fork();
    if (waker == 0) {
        sleep_for(ms);
        kill(me, SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

/* What prepared collectives of every transport begin with. */
typedef struct any_prepared_collective {
    clv_prepared_collective base;
    clv_collective_desc desc;
} any_prepared_collective;

static clv_status with_header(const clv_transport *transport, clv_prepared_collective *prepared, void *staging,
                              clv_error *err)
{
    any_prepared_collective *any = (any_prepared_collective *)prepared;
    bool is_mpi = strcmp(transport->name, "mpi") == 0;
    clv_prepared_collective *inside = is_mpi ? ((clv_mpi_prepared_collective *)prepared)->threads : NULL;
    if (inside)
        any = (any_prepared_collective *)inside;
    any->desc.tag ^= 0x10000; /* stays so: the world fails by it */
    return transport->start(prepared, staging, err);
}

/* A span that is sent, of rows of experts, is shorter than the receiver counted. */
static clv_status shorter_span(bool *done, const clv_transport *transport, clv_prepared_collective *base, void *staging,
                               clv_error *err)
{
    clv_span *hit = NULL;
    for (int k = 0; k < base->group->n && !hit; k++) {
        clv_span *span = (clv_span *)(uintptr_t)&base->sends[(now.told.which + k) % base->group->n];
        hit = span->bytes > 4 ? span : NULL;
    }
    if (!hit)
        return CLV_OK;
    hit->bytes -= 4;
    *done = true;
    const clv_status status = transport->start(base, staging, err);
    hit->bytes += 4;
    return status;
}

/* The message to be hit, from `which` on: to another rank, and one of elements where it is to be shorter. -1: none. */
static int mailbox_target(const mailbox_prepared_collective *prepared, bool shorter)
{
    for (int k = 0; k < prepared->all_sends; k++) {
        int at = (now.told.which + k) % prepared->all_sends;
        const part *p = &prepared->sends[at];
        if (prepared->base.group->ranks[p->move.peer] != prepared->base.comm->rank &&
            (!shorter || (at < prepared->n_sends && p->move.box.rank > 0)))
            return at;
    }
    return -1;
}

/* Of a message that is not sent, or is shorter. CLV_OK and *done where the step has one. */
static clv_status mailbox_message(bool *done, clv_prepared_collective *base, void *staging, clv_error *err)
{
    mailbox_prepared_collective *prepared = (mailbox_prepared_collective *)base;
    bool shorter = now.told.kind == FAULT_LENGTH;
    int at = mailbox_target(prepared, shorter);
    if (at < 0)
        return CLV_OK;
    part kept = prepared->sends[at];
    if (shorter)
        prepared->sends[at].move.box.hi[0]--;
    else
        prepared->sends[at] = prepared->sends[--prepared->all_sends];
    *done = true;
    clv_status status = mailbox_transport.start(base, staging, err);
    if (!shorter)
        prepared->sends[prepared->all_sends++] = prepared->sends[at];
    prepared->sends[at] = kept;
    return status;
}

/* Of a card only its length can be damaged. */
static clv_status mpi_card(bool *done, clv_mpi_prepared_collective *prepared, void *staging, clv_error *err)
{
    clv_shm_member *mine = &prepared->shm.members[prepared->base.group->me];
    if (now.told.kind != FAULT_LENGTH)
        return CLV_OK;
    mine->bytes -= 4;
    clv_status status = clv_mpi_transport.start(&prepared->base, staging, err);
    mine->bytes += 4;
    *done = true;
    return status;
}

static clv_status mpi_message(bool *done, clv_prepared_collective *base, void *staging, clv_error *err)
{
    clv_mpi_prepared_collective *prepared = (clv_mpi_prepared_collective *)base;
    clv_mpi_phase *ph = &prepared->phases[0];
    if (prepared->shm.in_slots)
        return mpi_card(done, prepared, staging, err);
    if (prepared->threads || ph->n_sends == 0)
        return CLV_OK;
    clv_mpi_message *last = &ph->sends[ph->n_sends - 1];
    bool shorter = now.told.kind == FAULT_LENGTH;
    if (shorter && (last->bytes < 8 || last->n_requests != 1))
        return CLV_OK;
    last->bytes -= shorter ? 4 : 0;
    ph->n_sends -= !shorter;
    *done = true;
    clv_status status = clv_mpi_transport.start(base, staging, err);
    last->bytes += shorter ? 4 : 0;
    ph->n_sends += !shorter;
    return status;
}

/* Returns whether the step was started here. */
static bool strike(clv_status *status, const clv_transport *transport, clv_prepared_collective *prepared, void *staging,
                   clv_error *err)
{
    const fault *f = &now.told;
    bool done = false;
    atomic_store(&now.members, prepared->group->n);
    switch (f->kind) {
    case FAULT_DELAY:
        sleep_for(f->ms);
        break;
    case FAULT_STOP:
        stop(prepared);
        break;
    case FAULT_HEADER:
        *status = with_header(transport, prepared, staging, err);
        done = true;
        break;
    case FAULT_DROP:
    case FAULT_LENGTH:
        if (prepared->sends && f->kind == FAULT_LENGTH)
            *status = shorter_span(&done, transport, prepared, staging, err);
        else if (strcmp(transport->name, "mailbox") == 0)
            *status = mailbox_message(&done, prepared, staging, err);
        else if (strcmp(transport->name, "mpi") == 0)
            *status = mpi_message(&done, prepared, staging, err);
        if (!done)
            return false;
        break;
    case FAULT_KILL:
        raise(SIGKILL);
        break;
    case FAULT_FREEZE:
        freeze(f->ms);
        break;
    default:
        break;
    }
    atomic_store(&now.struck, true);
    return done;
}

/* One that finds nothing to do in its step is left to a later one. */
static clv_status faulty_start(const clv_transport *transport, clv_prepared_collective *prepared, void *staging,
                               clv_error *err)
{
    int rank = prepared->comm->rank;
    clv_status status = CLV_OK;
    if (!atomic_load(&now.armed) || (now.told.in_rows && !prepared->sends))
        return transport->start(prepared, staging, err);
    int step = atomic_fetch_add(&now.steps[rank], 1);
    bool due = now.told.kind != FAULT_NONE && rank == now.told.rank && step >= now.told.step &&
               !atomic_load(&now.struck) && prepared->group->n > 1;
    if (due && strike(&status, transport, prepared, staging, err))
        return status;
    return transport->start(prepared, staging, err);
}

static clv_status start_0(clv_prepared_collective *prepared, void *staging, clv_error *err)
{
    return faulty_start(usual[0], prepared, staging, err);
}

static clv_status start_1(clv_prepared_collective *prepared, void *staging, clv_error *err)
{
    return faulty_start(usual[1], prepared, staging, err);
}

static clv_status start_2(clv_prepared_collective *prepared, void *staging, clv_error *err)
{
    return faulty_start(usual[2], prepared, staging, err);
}

clv_status __wrap_clv_transport_find(const clv_transport **out, const char *called, clv_error *err)
{
    static clv_status (*const starts[])(clv_prepared_collective *, void *, clv_error *) = {start_0, start_1, start_2};
    CLV_TRY(__real_clv_transport_find(out, called, err));
    int i = 0;
    while (i < 2 && usual[i] && usual[i] != *out)
        i++;
    usual[i] = *out;
    faulty[i] = **out;
    faulty[i].start = starts[i];
    *out = &faulty[i];
    return CLV_OK;
}
