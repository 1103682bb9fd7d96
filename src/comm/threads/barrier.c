/* barrier.c - group barrier of rank threads (spin, then futex) that checks that all members run the same collective. */
#include "comm/world/world.h"

#include "base/error.h"
#include "base/threads/work_stealing.h"

enum {
    FLAT_MEMBERS = 16,         /* larger groups wait at the group's counter instead of at every member's slot */
    SLEEP_SLICE_NS = 20000000, /* longest sleep before a sleeper checks the world's state, should a wake-up be lost */
};

typedef enum wait_result { WAIT_OK, WAIT_FAILED, WAIT_LATE } wait_result;

/* One rank's backoff at one barrier, shared by its waits for several members. */
typedef struct backoff {
    clv_world *world;
    clv_task_pool_member stealer; /* takes tasks from the pool meanwhile */
    int64_t *stealing_ns;         /* time spent on these */
    int spins;                    /* left */
    bool timed;                   /* the deadline has been set, when spinning was not enough */
    clv_deadline deadline;
} backoff;

static wait_result sleep_on(backoff *b, _Atomic uint32_t *word, uint32_t stamp)
{
    if (!b->timed)
        b->deadline = clv_deadline_after(b->world->timeout_ns);
    b->timed = true;
    for (;;) {
        if (atomic_load_explicit(&b->world->failed, memory_order_acquire))
            return WAIT_FAILED;
        int64_t rest = clv_deadline_remaining(&b->deadline);
        if (rest == 0) /* stealing may have overrun the deadline while the others came */
            return clv_stamp_reached(atomic_load_explicit(word, memory_order_acquire), stamp) ? WAIT_OK : WAIT_LATE;
        const int64_t slice = b->stealer.pool ? CLV_TASK_POOL_POLL_NS : SLEEP_SLICE_NS;
        if (clv_task_pool_steal_and_run(b->stealer, b->stealing_ns))
            rest = 0; /* there may be more */
        if (clv_stamp_wait(word, stamp, rest < slice ? rest : slice))
            return WAIT_OK;
        if (b->world->transport->poll_failure)
            b->world->transport->poll_failure(b->world);
    }
}

static wait_result wait_for(backoff *b, _Atomic uint32_t *word, uint32_t stamp)
{
    for (;;) {
        if (clv_stamp_reached(atomic_load_explicit(word, memory_order_acquire), stamp))
            return WAIT_OK;
        if (b->spins <= 0 || atomic_load_explicit(&b->world->failed, memory_order_relaxed))
            return sleep_on(b, word, stamp);
        if (clv_task_pool_steal_and_run(b->stealer, b->stealing_ns))
            continue;
        b->spins--;
        clv_cpu_pause();
    }
}

static clv_slot_line *line_of(const clv_group_set *group_set, int rank, uint32_t stamp)
{
    return &group_set->slots[rank].line[(stamp >> 1) & 1u];
}

static wait_result wait_flat(backoff *b, const clv_group_set *group_set, const clv_group *group, uint32_t stamp)
{
    for (int k = 1; k < group->n; k++) {
        int rank = group->ranks[(group->me + k) % group->n];
        wait_result result = wait_for(b, &line_of(group_set, rank, stamp)->word, stamp);

        if (result != WAIT_OK)
            return result;
    }
    return WAIT_OK;
}

/* Arrivals form one chain of read-modify-writes, so the last rank to arrive publishes, with the stamp, what every
 * member published. */
static void count_arrival(clv_barrier_counter *counter, const clv_group *group, uint32_t stamp)
{
    uint32_t all = (stamp >> 1) * (uint32_t)group->n;
    uint32_t arrived = atomic_fetch_add_explicit(&counter->arrived, 1, memory_order_acq_rel) + 1;

    /* Half a stamp has 31 bits: compare those. */
    if ((arrived - all) << 1 == 0)
        clv_stamp_publish(&counter->word, stamp);
}

static clv_status fail_late(clv_comm *comm, const clv_group *group, uint32_t stamp, clv_error *err)
{
    const clv_group_set *group_set = comm->world->sets[group->group_set];

    for (int i = 0; i < group->n; i++) {
        const clv_slot_line *line = line_of(group_set, group->ranks[i], stamp);

        comm->missing[i] = !clv_stamp_reached(atomic_load_explicit(&line->word, memory_order_acquire), stamp);
    }
    return clv_world_fail_timeout(comm, group, clv_barrier_peer_desc(comm, group, group->me), err);
}

/* Compares with member 0, so that every member reports the same pair. */
static clv_status check_descs(clv_comm *comm, const clv_group *group, clv_error *err)
{
    const clv_collective_desc *first = clv_barrier_peer_desc(comm, group, 0);

    for (int i = 1; i < group->n; i++) {
        const clv_collective_desc *desc = clv_barrier_peer_desc(comm, group, i);

        if (!clv_collective_desc_equal(first, desc))
            return clv_world_fail_mismatch(comm, group, group->ranks[0], first, group->ranks[i], desc, err);
    }
    return CLV_OK;
}

/* ---- the barrier ---- */

const clv_collective_desc *clv_barrier_peer_desc(const clv_comm *comm, const clv_group *group, int i)
{
    const clv_group_set *group_set = comm->world->sets[group->group_set];

    return &line_of(group_set, group->ranks[i], group_set->slots[comm->rank].stamp)->desc;
}

void clv_barrier_release(clv_comm *comm, const clv_group *group)
{
    clv_slot *slot = &comm->world->sets[group->group_set]->slots[comm->rank];

    atomic_store_explicit(&slot->released, slot->stamp, memory_order_release);
}

/* Makes the open collective the last record of the flight recorder. */
static void record_collective(clv_comm *comm, clv_slot *slot, const clv_group *group, const clv_collective_desc *desc)
{
    const char *name = atomic_load_explicit(&comm->activity, memory_order_relaxed);

    slot->record = clv_recorder_begin_collective(comm->recorder, name, desc->what, group->group_set,
                                                 atomic_load_explicit(&slot->begun, memory_order_relaxed), desc->tag);
}

/* Sets the collective that the rank is in: of several that are in flight the one that it waits for. */
static void enter_collective(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc)
{
    const clv_slot *slot = &comm->world->sets[group->group_set]->slots[comm->rank];

    atomic_store_explicit(&comm->collective, desc->what, memory_order_release); /* release: its bytes may be new */
    atomic_store_explicit(&comm->collective_set, group->group_set, memory_order_relaxed);
    atomic_store_explicit(&comm->collective_index, slot->index, memory_order_relaxed);
    atomic_store_explicit(&comm->waits_begun, atomic_load_explicit(&comm->waits_begun, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&comm->in_collective, 1, memory_order_relaxed);
}

static void enter_wait(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc)
{
    clv_slot *slot = &comm->world->sets[group->group_set]->slots[comm->rank];

    enter_collective(comm, group, desc);
    if (!clv_recorder_is_last(comm->recorder, slot->record))
        record_collective(comm, slot, group, desc);
}

void clv_collective_record_wait(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc, int64_t bytes,
                                uint64_t awaited, int64_t now)
{
    enter_wait(comm, group, desc);
    clv_recorder_expect_bytes(comm->recorder, bytes, awaited);
    clv_recorder_begin_wait(comm->recorder, CLV_RECORD_WAITING, now);
}

void clv_collective_record_end_wait(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                    int64_t now)
{
    enter_wait(comm, group, desc);
    clv_recorder_begin_wait(comm->recorder, CLV_RECORD_WAITING_END, now);
}

clv_status clv_collective_begin(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc, clv_error *err)
{
    clv_slot *slot = &comm->world->sets[group->group_set]->slots[comm->rank];

    if (atomic_load_explicit(&comm->world->failed, memory_order_acquire))
        return clv_collective_give_up(comm, err);
    if (slot->open)
        return clv_fail(err, CLV_EINVAL, "%s of group set %d starts before another collective of it has ended",
                        desc->what, group->group_set);
    slot->index = atomic_load_explicit(&comm->collectives_begun, memory_order_relaxed) + 1;
    enter_collective(comm, group, desc);
    atomic_store_explicit(&comm->phase, 0, memory_order_relaxed);
    atomic_store_explicit(&comm->collectives_begun, slot->index, memory_order_relaxed);
    slot->open = true;
    atomic_store_explicit(&slot->tag, desc->tag, memory_order_relaxed);
    atomic_store_explicit(&slot->begun, atomic_load_explicit(&slot->begun, memory_order_relaxed) + 1,
                          memory_order_release);
    record_collective(comm, slot, group, desc);
    return CLV_OK;
}

void clv_collective_end(clv_comm *comm, const clv_group *group)
{
    clv_slot *slot = &comm->world->sets[group->group_set]->slots[comm->rank];

    atomic_store_explicit(&comm->in_collective, 0, memory_order_relaxed);
    slot->open = false;
    atomic_store_explicit(&slot->ended, atomic_load_explicit(&slot->begun, memory_order_relaxed), memory_order_relaxed);
    if (clv_recorder_is_last(comm->recorder, slot->record))
        clv_recorder_set_phase(comm->recorder, CLV_RECORD_ENDED);
}

void clv_collective_mark_overlapped(clv_prepared_collective *prepared)
{
    atomic_store_explicit(&prepared->comm->in_collective, 0, memory_order_relaxed);
}

static bool is_flat(const clv_world *world, const clv_group *group)
{
    return world->spins > 0 && group->n <= FLAT_MEMBERS;
}

clv_status clv_barrier_arrive(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc, clv_error *err)
{
    clv_world *world = comm->world;
    clv_group_set *group_set = world->sets[group->group_set];
    clv_slot *slot = &group_set->slots[comm->rank];

    if (atomic_load_explicit(&world->failed, memory_order_acquire))
        return clv_collective_give_up(comm, err);
    slot->stamp += 2;
    clv_slot_line *line = line_of(group_set, comm->rank, slot->stamp);
    line->desc = *desc;
    clv_stamp_publish(&line->word, slot->stamp);
    if (!is_flat(world, group))
        count_arrival(&group_set->counters[group_set->counter_of[comm->rank]], group, slot->stamp);
    return CLV_OK;
}

clv_status clv_barrier_wait(clv_comm *comm, const clv_group *group, clv_error *err)
{
    clv_world *world = comm->world;
    clv_group_set *group_set = world->sets[group->group_set];
    uint32_t stamp = group_set->slots[comm->rank].stamp;
    backoff b = {.world = world,
                 .stealer = {world->pool, comm->rank - world->first_local},
                 .stealing_ns = &comm->stealing_ns,
                 .spins = world->spins};
    wait_result result = is_flat(world, group)
                             ? wait_flat(&b, group_set, group, stamp)
                             : wait_for(&b, &group_set->counters[group_set->counter_of[comm->rank]].word, stamp);

    if (result == WAIT_LATE)
        return fail_late(comm, group, stamp, err);
    /* All have arrived, but a member may have given up since and be about to free its memory. It sets `failed` and then
     * reads our slot; we have published our stamp and now read `failed`: in the total order of these, one sees the
     * other. */
    if (result == WAIT_FAILED || atomic_load_explicit(&world->failed, memory_order_seq_cst))
        return clv_collective_give_up(comm, err);
    return check_descs(comm, group, err);
}

clv_status clv_barrier_arrive_and_wait(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                       clv_error *err)
{
    CLV_TRY(clv_barrier_arrive(comm, group, desc, err));
    return clv_barrier_wait(comm, group, err);
}
