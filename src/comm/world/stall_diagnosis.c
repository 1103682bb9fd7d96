/* stall_diagnosis.c - reads a rank's progress; finds the culprit of a timeout by following who waits for whom. */
#include "comm/world/stall_diagnosis.h"

#include <stdio.h>
#include <string.h>

/* Adds what the flight recorder knows of the collective. */
static void read_recorder(clv_rank_progress *s, const clv_recorder *r)
{
    uint64_t at = clv_recorder_last_slot(r);
    int phase = atomic_load_explicit(&r->records[at].phase, memory_order_relaxed);
    s->transferring = s->in_collective && (phase == CLV_RECORD_BEGUN || phase == CLV_RECORD_TRANSFERRING);
    s->at_end_barrier = s->in_collective && phase == CLV_RECORD_WAITING_END;
    if (s->in_collective && phase == CLV_RECORD_WAITING)
        s->awaited = atomic_load_explicit(&r->collectives[at].awaited, memory_order_relaxed);
}

clv_rank_progress clv_local_rank_progress(const clv_world *world, int rank, int group_set)
{
    const clv_comm *comm = &world->comms[rank];
    const char *activity = atomic_load_explicit(&comm->activity, memory_order_acquire);
    const char *doing = atomic_load_explicit(&comm->collective, memory_order_acquire);
    clv_rank_progress s = {.rank = rank,
                           .group_set = atomic_load_explicit(&comm->collective_set, memory_order_relaxed),
                           .begun = atomic_load_explicit(&comm->collectives_begun, memory_order_relaxed),
                           .collective = atomic_load_explicit(&comm->collective_index, memory_order_relaxed),
                           .waits_begun = atomic_load_explicit(&comm->waits_begun, memory_order_relaxed),
                           .known = 1,
                           .in_collective = atomic_load_explicit(&comm->in_collective, memory_order_relaxed),
                           .idle = !atomic_load_explicit(&comm->busy, memory_order_relaxed),
                           .at_local_barrier = atomic_load_explicit(&comm->at_local_barrier, memory_order_relaxed),
                           .phase = atomic_load_explicit(&comm->phase, memory_order_relaxed)};
    if (group_set >= 0 && group_set < world->n_sets) {
        s.set_begun = atomic_load_explicit(&world->sets[group_set]->slots[rank].begun, memory_order_acquire);
        s.set_tag = atomic_load_explicit(&world->sets[group_set]->slots[rank].tag, memory_order_relaxed);
    }
    read_recorder(&s, comm->recorder);
    snprintf(s.what, sizeof s.what, "%s", doing ? doing : "");
    snprintf(s.activity, sizeof s.activity, "%s", activity ? activity : "");
    return s;
}

static bool is_awaited(const clv_rank_progress *a, int i)
{
    return i < CLV_RECORDER_MAX_MEMBERS && a->awaited >> i & 1;
}

/* Whether b, member i of the group of a's collective, blocks a there. */
static bool blocks(const clv_world *world, const clv_rank_progress *b, int i, const clv_rank_progress *a)
{
    if (a->awaited && i < CLV_RECORDER_MAX_MEMBERS)
        return is_awaited(a, i);
    if (b->unresponsive || !b->known)
        return b->unresponsive;
    if (a->at_local_barrier) /* b does not wait for its messages yet, or still waits */
        return clv_world_process_of(world, a->rank) == clv_world_process_of(world, b->rank) &&
               (b->waits_begun < a->waits_begun || (b->in_collective && b->collective == a->collective && b->awaited));
    return a->at_end_barrier ? b->waits_begun < a->waits_begun : b->begun < a->collective;
}

/* Whether a waits for a message that b, member i, has sent long ago. */
static bool has_undelivered(const clv_rank_progress *a, const clv_rank_progress *b, int i)
{
    bool in_earlier_phase = b->in_collective && b->collective == a->collective && b->phase < a->phase;
    return is_awaited(a, i) && b->known && b->begun >= a->collective && !b->transferring && !in_earlier_phase;
}

static bool is_in_collective(const clv_world *world, const clv_rank_progress *s)
{
    return s->known && s->in_collective && s->group_set >= 0 && s->group_set < world->n_sets;
}

/* Marks the ranks that rank r waits for; returns whether any is new. An idle rank waits for the busy ranks of its
 * process. */
static bool add_awaited_ranks(bool *waited, const clv_world *world, const clv_rank_progress *all, int r)
{
    const clv_rank_progress *a = &all[r];
    bool more = false;
    if (is_in_collective(world, a)) {
        const clv_group *its = &world->sets[a->group_set]->view[r];
        for (int i = 0; i < its->n; i++) {
            int b = its->ranks[i];
            if (!waited[b] && b != r && blocks(world, &all[b], i, a))
                waited[b] = more = true;
        }
    } else if (a->known && a->idle) {
        int p = clv_world_process_of(world, r);
        for (int b = world->first_ranks[p]; b < world->first_ranks[p + 1]; b++)
            if (!waited[b] && all[b].known && !all[b].idle)
                waited[b] = more = true;
    }
    return more;
}

static bool has_busy_rank_in_process(const clv_world *world, const clv_rank_progress *all, int r)
{
    int p = clv_world_process_of(world, r);
    for (int b = world->first_ranks[p]; b < world->first_ranks[p + 1]; b++)
        if (all[b].known && !all[b].idle)
            return true;
    return false;
}

/* Finds the oldest collective with an undelivered message, to `me` or to a rank that is waited for. */
static clv_culprit find_undelivered(const clv_world *world, const clv_rank_progress *all, const bool *waited, int me)
{
    clv_culprit found = {-1, -1};
    for (int r = 0; r < world->ranks; r++) {
        const clv_rank_progress *a = &all[r];
        if ((!waited[r] && r != me) || !is_in_collective(world, a) ||
            (found.rank >= 0 && a->collective >= all[found.undelivered_to].collective))
            continue;
        const clv_group *its = &world->sets[a->group_set]->view[r];
        for (int i = 0; i < its->n && found.undelivered_to != r; i++)
            if (its->ranks[i] != r && has_undelivered(a, &all[its->ranks[i]], i))
                found = (clv_culprit){its->ranks[i], r};
    }
    return found;
}

clv_culprit clv_find_culprit(const clv_world *world, const clv_rank_progress *all, const clv_group *group,
                             const bool *missing, bool *scratch)
{
    bool *waited = scratch; /* ranks that some rank waits for */
    clv_culprit first = {-1, -1};
    memset(waited, 0, (size_t)world->ranks * sizeof *waited);
    for (int i = 0; i < group->n; i++)
        waited[group->ranks[i]] = missing[i];
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < world->ranks; r++)
            more = (waited[r] && add_awaited_ranks(waited, world, all, r)) || more;
    }
    for (int r = 0; r < world->ranks; r++)
        if (waited[r] && all[r].unresponsive)
            return (clv_culprit){r, -1};
    for (int r = 0; r < world->ranks; r++) {
        bool behind = waited[r] && all[r].known && (!all[r].in_collective || all[r].transferring) &&
                      !(all[r].idle && has_busy_rank_in_process(world, all, r));
        if (behind && (first.rank < 0 || all[r].begun < all[first.rank].begun))
            first.rank = r;
    }
    if (first.rank < 0)
        first = find_undelivered(world, all, waited, group->ranks[group->me]);
    for (int r = 0; first.rank < 0 && r < world->ranks; r++) /* whose process did not answer */
        first.rank = waited[r] && !all[r].known ? r : -1;
    for (int i = 0; first.rank < 0 && i < group->n; i++)
        first.rank = missing[i] ? group->ranks[i] : -1;
    return first;
}

void clv_rank_progress_describe(char *out, size_t size, const clv_rank_progress *s, const char *process)
{
    char last[96] = "", activity[112] = "", responds[64] = "";
    if (s->known && s->what[0])
        snprintf(last, sizeof last, "last in %.31s of group set %d, ", s->what, s->group_set);
    else if (s->known)
        snprintf(last, sizeof last, "no collective yet, ");
    if (s->known)
        snprintf(activity, sizeof activity, "at '%.95s'", s->activity[0] ? s->activity : "nothing");
    else if (s->unresponsive)
        snprintf(responds, sizeof responds, "its process does not answer: stopped, or cut off");
    snprintf(out, size, "rank %d (%s%s%s%s%s)", s->rank, last, activity, responds,
             (activity[0] || responds[0]) && process[0] ? "; " : "", process);
}
