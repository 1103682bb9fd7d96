/* barrier.c - group barrier of rank threads (spin, then futex) that checks that all members run the same collective. */
#include "comm/threads/world.h"

#include <stdbool.h>

#include "base/error.h"
#include "base/threads/work_stealing.h"

enum {
    FLAT_MEMBERS = 16,         /* up to here every member looks at every other; beyond, at the group's counter */
    SLEEP_SLICE_NS = 20000000, /* a sleeper looks at the world's state this often, should a wake-up pass it by */
};

typedef enum wait_result { WAIT_OK, WAIT_FAILED, WAIT_LATE } wait_result;

/* One rank's patience in one meeting: shared by its waits. */
typedef struct patience {
    clv_world *world;
    clv_task_pool_member place; /* where it finds something to do meanwhile, ... */
    int64_t *stealing_ns;       /* ... and what that takes */
    int spins;
    bool timed; /* whether the deadline runs: from when spinning was not enough */
    clv_deadline deadline;
} patience;

static wait_result sleep_on(patience *p, _Atomic uint32_t *word, uint32_t stamp)
{
    if (!p->timed)
        p->deadline = clv_deadline_after(p->world->timeout_ns);
    p->timed = true;
    for (;;) {
        if (atomic_load_explicit(&p->world->failed, memory_order_acquire))
            return WAIT_FAILED;
        int64_t rest = clv_deadline_remaining(&p->deadline);
        if (rest == 0) /* helping may have taken the rest, and longer than the others needed to come */
            return clv_stamp_reached(atomic_load_explicit(word, memory_order_acquire), stamp) ? WAIT_OK : WAIT_LATE;
        const int64_t slice = p->place.pool ? CLV_TASK_POOL_POLL_NS : SLEEP_SLICE_NS;
        if (clv_task_pool_steal(p->place, p->stealing_ns))
            rest = 0; /* there may be more */
        if (clv_stamp_wait(word, stamp, rest < slice ? rest : slice))
            return WAIT_OK;
        if (p->world->transport->poll_failure)
            p->world->transport->poll_failure(p->world);
    }
}

static wait_result wait_for(patience *p, _Atomic uint32_t *word, uint32_t stamp)
{
    for (;;) {
        if (clv_stamp_reached(atomic_load_explicit(word, memory_order_acquire), stamp))
            return WAIT_OK;
        if (p->spins <= 0 || atomic_load_explicit(&p->world->failed, memory_order_relaxed))
            return sleep_on(p, word, stamp);
        if (clv_task_pool_steal(p->place, p->stealing_ns))
            continue;
        p->spins--;
        clv_cpu_pause();
    }
}

static clv_slot_line *line_of(const clv_group_set *set, int rank, uint32_t stamp)
{
    return &set->slots[rank].line[(stamp >> 1) & 1u];
}

static wait_result wait_flat(patience *p, const clv_group_set *set, const clv_group *group, uint32_t stamp)
{
    for (int k = 1; k < group->n; k++) {
        int rank = group->ranks[(group->me + k) % group->n];
        wait_result result = wait_for(p, &line_of(set, rank, stamp)->word, stamp);

        if (result != WAIT_OK)
            return result;
    }
    return WAIT_OK;
}

/* Arrivals form one chain of read-modify-writes, so that whoever opens the counter, as the last, publishes what every
 * member published. */
static void arrive_at(clv_barrier_counter *counter, const clv_group *group, uint32_t stamp)
{
    uint32_t all = (stamp >> 1) * (uint32_t)group->n;
    uint32_t arrived = atomic_fetch_add_explicit(&counter->arrived, 1, memory_order_acq_rel) + 1;

    /* Half a stamp has 31 bits, so compare what is left after its wrap. */
    if ((arrived - all) << 1 == 0)
        clv_stamp_publish(&counter->word, stamp);
}

static clv_status fail_late(clv_thread_comm *comm, const clv_group *group, uint32_t stamp, clv_error *err)
{
    const clv_group_set *set = comm->world->sets[group->set];

    for (int i = 0; i < group->n; i++) {
        const clv_slot_line *line = line_of(set, group->ranks[i], stamp);

        comm->missing[i] = !clv_stamp_reached(atomic_load_explicit(&line->word, memory_order_acquire), stamp);
    }
    return clv_world_fail_timeout(comm, group, clv_barrier_peer_desc(comm, group, group->me), err);
}

/* Against member 0, so that every member finds the same pair. */
static clv_status check_descs(clv_thread_comm *comm, const clv_group *group, clv_error *err)
{
    const clv_collective_desc *first = clv_barrier_peer_desc(comm, group, 0);

    for (int i = 1; i < group->n; i++) {
        const clv_collective_desc *desc = clv_barrier_peer_desc(comm, group, i);

        if (!clv_collective_desc_equal(first, desc))
            return clv_world_fail_mismatch(comm, group, group->ranks[0], first, group->ranks[i], desc, err);
    }
    return CLV_OK;
}

/* ---- the meeting ---- */

const clv_collective_desc *clv_barrier_peer_desc(const clv_thread_comm *comm, const clv_group *group, int i)
{
    const clv_group_set *set = comm->world->sets[group->set];

    return &line_of(set, group->ranks[i], set->slots[comm->base.rank].stamp)->desc;
}

void clv_barrier_release(clv_thread_comm *comm, const clv_group *group)
{
    clv_slot *slot = &comm->world->sets[group->set]->slots[comm->base.rank];

    atomic_store_explicit(&slot->released, slot->stamp, memory_order_release);
}

/* The step that is open, as the recorder's last. */
static void record_step(clv_thread_comm *comm, clv_slot *slot, const clv_group *group, const clv_collective_desc *desc)
{
    const char *name = atomic_load_explicit(&comm->base.activity, memory_order_relaxed);

    slot->record = clv_recorder_begin_collective(comm->base.recorder, name, desc->what, group->set,
                                                 atomic_load_explicit(&slot->begun, memory_order_relaxed), desc->tag);
}

/* The step is what the rank is in: of several that are under way the one that it waits for. */
static void enter_collective(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *desc)
{
    const clv_slot *slot = &comm->world->sets[group->set]->slots[comm->base.rank];

    atomic_store_explicit(&comm->collective, desc->what, memory_order_release); /* its bytes may be young, too */
    atomic_store_explicit(&comm->collective_set, group->set, memory_order_relaxed);
    atomic_store_explicit(&comm->collective_index, slot->index, memory_order_relaxed);
    atomic_store_explicit(&comm->waits_begun, atomic_load_explicit(&comm->waits_begun, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&comm->in_collective, 1, memory_order_relaxed);
}

void clv_collective_record_wait(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                int64_t bytes, uint64_t lacks, int64_t now)
{
    clv_slot *slot = &comm->world->sets[group->set]->slots[comm->base.rank];

    enter_collective(comm, group, desc);
    if (!clv_recorder_is_last(comm->base.recorder, slot->record))
        record_step(comm, slot, group, desc);
    clv_recorder_expect_bytes(comm->base.recorder, bytes, lacks);
    clv_recorder_begin_wait(comm->base.recorder, CLV_RECORD_WAITING, now);
}

void clv_collective_record_end_wait(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                    int64_t now)
{
    clv_slot *slot = &comm->world->sets[group->set]->slots[comm->base.rank];

    enter_collective(comm, group, desc);
    if (!clv_recorder_is_last(comm->base.recorder, slot->record))
        record_step(comm, slot, group, desc);
    clv_recorder_begin_wait(comm->base.recorder, CLV_RECORD_WAITING_END, now);
}

clv_status clv_collective_begin(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                clv_error *err)
{
    clv_slot *slot = &comm->world->sets[group->set]->slots[comm->base.rank];

    if (atomic_load_explicit(&comm->world->failed, memory_order_acquire))
        return clv_collective_give_up(comm, err);
    if (slot->open)
        return clv_fail(err, CLV_EINVAL, "%s of group set %d starts before another step of it has ended", desc->what,
                        group->set);
    slot->index = atomic_load_explicit(&comm->collectives_begun, memory_order_relaxed) + 1;
    enter_collective(comm, group, desc);
    atomic_store_explicit(&comm->phase, 0, memory_order_relaxed);
    atomic_store_explicit(&comm->collectives_begun, slot->index, memory_order_relaxed);
    slot->open = true;
    atomic_store_explicit(&slot->tag, desc->tag, memory_order_relaxed);
    atomic_store_explicit(&slot->begun, atomic_load_explicit(&slot->begun, memory_order_relaxed) + 1,
                          memory_order_release);
    record_step(comm, slot, group, desc);
    return CLV_OK;
}

void clv_collective_end(clv_thread_comm *comm, const clv_group *group)
{
    clv_slot *slot = &comm->world->sets[group->set]->slots[comm->base.rank];

    atomic_store_explicit(&comm->in_collective, 0, memory_order_relaxed);
    slot->open = false;
    atomic_store_explicit(&slot->ended, atomic_load_explicit(&slot->begun, memory_order_relaxed), memory_order_relaxed);
    if (clv_recorder_is_last(comm->base.recorder, slot->record))
        clv_recorder_set_phase(comm->base.recorder, CLV_RECORD_ENDED);
}

void clv_collective_mark_overlapped(clv_plan *plan)
{
    atomic_store_explicit(&((clv_thread_comm *)plan->comm)->in_collective, 0, memory_order_relaxed);
}

static bool is_flat(const clv_world *world, const clv_group *group)
{
    return world->spins > 0 && group->n <= FLAT_MEMBERS;
}

clv_status clv_barrier_arrive(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                              clv_error *err)
{
    clv_world *world = comm->world;
    clv_group_set *set = world->sets[group->set];
    clv_slot *slot = &set->slots[comm->base.rank];

    if (atomic_load_explicit(&world->failed, memory_order_acquire))
        return clv_collective_give_up(comm, err);
    slot->stamp += 2;
    clv_slot_line *line = line_of(set, comm->base.rank, slot->stamp);
    line->desc = *desc;
    clv_stamp_publish(&line->word, slot->stamp);
    if (!is_flat(world, group))
        arrive_at(&set->counters[set->counter_of[comm->base.rank]], group, slot->stamp);
    return CLV_OK;
}

clv_status clv_barrier_wait(clv_thread_comm *comm, const clv_group *group, clv_error *err)
{
    clv_world *world = comm->world;
    clv_group_set *set = world->sets[group->set];
    uint32_t stamp = set->slots[comm->base.rank].stamp;
    patience p = {.world = world,
                  .place = {world->pool, comm->base.rank - world->first_local},
                  .stealing_ns = &comm->base.stealing_ns,
                  .spins = world->spins};
    wait_result result = is_flat(world, group)
                             ? wait_flat(&p, set, group, stamp)
                             : wait_for(&p, &set->counters[set->counter_of[comm->base.rank]].word, stamp);

    if (result == WAIT_LATE)
        return fail_late(comm, group, stamp, err);
    /* All have come, but a member may have given up meanwhile and be about to free its memory. It sets `failed` and
     * then looks at our line; we published and now look at `failed`: in the one order of these, one sees the other. */
    if (result == WAIT_FAILED || atomic_load_explicit(&world->failed, memory_order_seq_cst))
        return clv_collective_give_up(comm, err);
    return check_descs(comm, group, err);
}

clv_status clv_barrier_arrive_and_wait(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                       clv_error *err)
{
    CLV_TRY(clv_barrier_arrive(comm, group, desc, err));
    return clv_barrier_wait(comm, group, err);
}
