/* rank_progress.c - reads a rank's progress; finds the culprit of a timeout by following who waits for whom. */
#include "comm/threads/rank_progress.h"

#include <stdio.h>
#include <string.h>

/* For messages of whom the rank waits in its step, which its flight recorder has last. */
static void read_recorder(clv_rank_progress *s, const clv_recorder *r)
{
    uint64_t at = clv_recorder_last_slot(r);
    int phase = atomic_load_explicit(&r->records[at].phase, memory_order_relaxed);
    s->transferring = s->inside && (phase == CLV_RECORD_BEGUN || phase == CLV_RECORD_TRANSFERRING);
    s->ends = s->inside && phase == CLV_RECORD_WAITING_END;
    if (s->inside && phase == CLV_RECORD_WAITING)
        s->lacks = atomic_load_explicit(&r->steps[at].lacks, memory_order_relaxed);
}

clv_rank_progress clv_rank_progress_read(const clv_world *world, int rank, int set)
{
    const clv_thread_comm *comm = &world->comms[rank];
    const char *note = atomic_load_explicit(&comm->base.note, memory_order_acquire);
    const char *doing = atomic_load_explicit(&comm->doing, memory_order_acquire);
    clv_rank_progress s = {.rank = rank,
                           .set = atomic_load_explicit(&comm->doing_in, memory_order_relaxed),
                           .begun = atomic_load_explicit(&comm->begun, memory_order_relaxed),
                           .step = atomic_load_explicit(&comm->doing_step, memory_order_relaxed),
                           .waits_begun = atomic_load_explicit(&comm->waits_begun, memory_order_relaxed),
                           .known = 1,
                           .inside = atomic_load_explicit(&comm->inside, memory_order_relaxed),
                           .idle = !atomic_load_explicit(&comm->base.working, memory_order_relaxed),
                           .meets = atomic_load_explicit(&comm->meets, memory_order_relaxed),
                           .part = atomic_load_explicit(&comm->part, memory_order_relaxed)};
    if (set >= 0 && set < world->n_sets) {
        s.seq = atomic_load_explicit(&world->sets[set]->slots[rank].steps, memory_order_acquire);
        s.tag = atomic_load_explicit(&world->sets[set]->slots[rank].tag, memory_order_relaxed);
    }
    read_recorder(&s, comm->base.recorder);
    snprintf(s.what, sizeof s.what, "%s", doing ? doing : "");
    snprintf(s.note, sizeof s.note, "%s", note ? note : "");
    return s;
}

static bool lacks(const clv_rank_progress *a, int i)
{
    return i < CLV_RECORDER_MAX_MEMBERS && a->lacks >> i & 1;
}

/* Whether b, member i of the group that a is in a step of, blocks a there. */
static bool blocks(const clv_world *world, const clv_rank_progress *b, int i, const clv_rank_progress *a)
{
    if (a->lacks && i < CLV_RECORDER_MAX_MEMBERS)
        return lacks(a, i);
    if (b->unresponsive || !b->known)
        return b->unresponsive;
    if (a->meets) /* b has not come to where it waits for messages, or waits for them */
        return clv_world_process_of(world, a->rank) == clv_world_process_of(world, b->rank) &&
               (b->waits_begun < a->waits_begun || (b->inside && b->step == a->step && b->lacks));
    return a->ends ? b->waits_begun < a->waits_begun : b->begun < a->step;
}

/* Whether a waits for what b, member i, has sent long since. */
static bool has_undelivered(const clv_rank_progress *a, const clv_rank_progress *b, int i)
{
    bool in_earlier_part = b->inside && b->step == a->step && b->part < a->part;
    return lacks(a, i) && b->known && b->begun >= a->step && !b->transferring && !in_earlier_part;
}

static bool is_in_step(const clv_world *world, const clv_rank_progress *s)
{
    return s->known && s->inside && s->set >= 0 && s->set < world->n_sets;
}

/* Adds whom rank r waits for; returns whether it did. One that runs nothing waits for those of its process that do. */
static bool add_awaited_ranks(bool *waited, const clv_world *world, const clv_rank_progress *all, int r)
{
    const clv_rank_progress *a = &all[r];
    bool more = false;
    if (is_in_step(world, a)) {
        const clv_group *its = &world->sets[a->set]->view[r];
        for (int i = 0; i < its->n; i++) {
            int b = its->ranks[i];
            if (!waited[b] && b != r && blocks(world, &all[b], i, a))
                waited[b] = more = true;
        }
    } else if (a->known && a->idle) {
        int p = clv_world_process_of(world, r);
        for (int b = world->firsts[p]; b < world->firsts[p + 1]; b++)
            if (!waited[b] && all[b].known && !all[b].idle)
                waited[b] = more = true;
    }
    return more;
}

static bool has_busy_rank_in_process(const clv_world *world, const clv_rank_progress *all, int r)
{
    int p = clv_world_process_of(world, r);
    for (int b = world->firsts[p]; b < world->firsts[p + 1]; b++)
        if (all[b].known && !all[b].idle)
            return true;
    return false;
}

/* The oldest step in which what was sent did not come, to `me` or to one that is waited for. */
static clv_culprit find_undelivered(const clv_world *world, const clv_rank_progress *all, const bool *waited, int me)
{
    clv_culprit found = {-1, -1};
    for (int r = 0; r < world->ranks; r++) {
        const clv_rank_progress *a = &all[r];
        if ((!waited[r] && r != me) || !is_in_step(world, a) ||
            (found.rank >= 0 && a->step >= all[found.undelivered_to].step))
            continue;
        const clv_group *its = &world->sets[a->set]->view[r];
        for (int i = 0; i < its->n && found.undelivered_to != r; i++)
            if (its->ranks[i] != r && has_undelivered(a, &all[its->ranks[i]], i))
                found = (clv_culprit){its->ranks[i], r};
    }
    return found;
}

clv_culprit clv_find_culprit(const clv_world *world, const clv_rank_progress *all, const clv_group *group,
                             const bool *missing, bool *scratch)
{
    bool *waited = scratch; /* somebody waits for them */
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
        bool behind = waited[r] && all[r].known && (!all[r].inside || all[r].transferring) &&
                      !(all[r].idle && has_busy_rank_in_process(world, all, r));
        if (behind && (first.rank < 0 || all[r].begun < all[first.rank].begun))
            first.rank = r;
    }
    if (first.rank < 0)
        first = find_undelivered(world, all, waited, group->ranks[group->me]);
    for (int r = 0; first.rank < 0 && r < world->ranks; r++) /* of which nothing is known but that it is waited for */
        first.rank = waited[r] && !all[r].known ? r : -1;
    for (int i = 0; first.rank < 0 && i < group->n; i++)
        first.rank = missing[i] ? group->ranks[i] : -1;
    return first;
}

void clv_rank_progress_describe(char *out, size_t size, const clv_rank_progress *s, const char *where)
{
    const char *note = s->note[0] ? s->note : "nothing", *between = where[0] ? "; " : "";
    if (!s->known)
        snprintf(out, size, "rank %d (%s%s%s)", s->rank,
                 s->unresponsive ? "its process does not answer: stopped, or cut off" : "",
                 s->unresponsive ? between : "", where);
    else if (!s->what[0])
        snprintf(out, size, "rank %d (no step yet, noted '%.95s'%s%s)", s->rank, note, between, where);
    else
        snprintf(out, size, "rank %d (last in %.31s of group set %d, noted '%.95s'%s%s)", s->rank, s->what, s->set,
                 note, between, where);
}
