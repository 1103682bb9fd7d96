#include "comm/standing.h"

#include <stdio.h>
#include <string.h>

/* For messages of whom the rank waits in its step, which its flight recorder has last. */
static void read_recorder(clv_standing *s, const clv_recorder *r)
{
    uint64_t at = clv_recorder_last(r);
    int phase = atomic_load_explicit(&r->records[at].phase, memory_order_relaxed);
    s->moves = s->inside && (phase == CLV_RECORD_BEGUN || phase == CLV_RECORD_MOVES);
    s->ends = s->inside && phase == CLV_RECORD_WAITS_END;
    if (s->inside && phase == CLV_RECORD_WAITS)
        s->lacks = atomic_load_explicit(&r->steps[at].lacks, memory_order_relaxed);
}

clv_standing clv_standing_of(const clv_world *world, int rank, int set)
{
    const clv_thread_comm *comm = &world->comms[rank];
    const char *note = atomic_load_explicit(&comm->base.note, memory_order_acquire);
    const char *doing = atomic_load_explicit(&comm->doing, memory_order_acquire);
    clv_standing s = {.rank = rank,
                      .set = atomic_load_explicit(&comm->doing_in, memory_order_relaxed),
                      .begun = atomic_load_explicit(&comm->begun, memory_order_relaxed),
                      .step = atomic_load_explicit(&comm->doing_step, memory_order_relaxed),
                      .turns = atomic_load_explicit(&comm->turns, memory_order_relaxed),
                      .knows = 1,
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

static bool lacks(const clv_standing *a, int i)
{
    return i < CLV_RECORDED_MEMBERS && a->lacks >> i & 1;
}

/* Whether b, member i of the group that a is in a step of, keeps a there. */
static bool keeps(const clv_world *world, const clv_standing *b, int i, const clv_standing *a)
{
    if (a->lacks && i < CLV_RECORDED_MEMBERS)
        return lacks(a, i);
    if (b->silent || !b->knows)
        return b->silent;
    if (a->meets) /* b has not come to where it waits for messages, or waits for them */
        return clv_threads_process(world, a->rank) == clv_threads_process(world, b->rank) &&
               (b->turns < a->turns || (b->inside && b->step == a->step && b->lacks));
    return a->ends ? b->turns < a->turns : b->begun < a->step;
}

/* Whether a waits for what b, member i, has sent long since. */
static bool has_lost(const clv_standing *a, const clv_standing *b, int i)
{
    bool in_earlier_part = b->inside && b->step == a->step && b->part < a->part;
    return lacks(a, i) && b->knows && b->begun >= a->step && !b->moves && !in_earlier_part;
}

static bool is_in_step(const clv_world *world, const clv_standing *s)
{
    return s->knows && s->inside && s->set >= 0 && s->set < world->n_sets;
}

/* Adds whom rank r waits for; returns whether it did. One that runs nothing waits for those of its process that do. */
static bool follow(bool *waited, const clv_world *world, const clv_standing *all, int r)
{
    const clv_standing *a = &all[r];
    bool more = false;
    if (is_in_step(world, a)) {
        const clv_group *its = &world->sets[a->set]->view[r];
        for (int i = 0; i < its->n; i++) {
            int b = its->ranks[i];
            if (!waited[b] && b != r && keeps(world, &all[b], i, a))
                waited[b] = more = true;
        }
    } else if (a->knows && a->idle) {
        int p = clv_threads_process(world, r);
        for (int b = world->firsts[p]; b < world->firsts[p + 1]; b++)
            if (!waited[b] && all[b].knows && !all[b].idle)
                waited[b] = more = true;
    }
    return more;
}

static bool has_busy_mate(const clv_world *world, const clv_standing *all, int r)
{
    int p = clv_threads_process(world, r);
    for (int b = world->firsts[p]; b < world->firsts[p + 1]; b++)
        if (all[b].knows && !all[b].idle)
            return true;
    return false;
}

/* The oldest step in which what was sent did not come, to `me` or to one that is waited for. */
static clv_blame find_lost(const clv_world *world, const clv_standing *all, const bool *waited, int me)
{
    clv_blame found = {-1, -1};
    for (int r = 0; r < world->ranks; r++) {
        const clv_standing *a = &all[r];
        if ((!waited[r] && r != me) || !is_in_step(world, a) || (found.rank >= 0 && a->step >= all[found.lost_to].step))
            continue;
        const clv_group *its = &world->sets[a->set]->view[r];
        for (int i = 0; i < its->n && found.lost_to != r; i++)
            if (its->ranks[i] != r && has_lost(a, &all[its->ranks[i]], i))
                found = (clv_blame){its->ranks[i], r};
    }
    return found;
}

clv_blame clv_standing_blame(const clv_world *world, const clv_standing *all, const clv_group *group,
                             const bool *missing, bool *scratch)
{
    bool *waited = scratch; /* somebody waits for them */
    clv_blame first = {-1, -1};
    memset(waited, 0, (size_t)world->ranks * sizeof *waited);
    for (int i = 0; i < group->n; i++)
        waited[group->ranks[i]] = missing[i];
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < world->ranks; r++)
            more = (waited[r] && follow(waited, world, all, r)) || more;
    }
    for (int r = 0; r < world->ranks; r++)
        if (waited[r] && all[r].silent)
            return (clv_blame){r, -1};
    for (int r = 0; r < world->ranks; r++) {
        bool behind = waited[r] && all[r].knows && (!all[r].inside || all[r].moves) &&
                      !(all[r].idle && has_busy_mate(world, all, r));
        if (behind && (first.rank < 0 || all[r].begun < all[first.rank].begun))
            first.rank = r;
    }
    if (first.rank < 0)
        first = find_lost(world, all, waited, group->ranks[group->me]);
    for (int r = 0; first.rank < 0 && r < world->ranks; r++) /* of which nothing is known but that it is waited for */
        first.rank = waited[r] && !all[r].knows ? r : -1;
    for (int i = 0; first.rank < 0 && i < group->n; i++)
        first.rank = missing[i] ? group->ranks[i] : -1;
    return first;
}

void clv_standing_describe(char *out, size_t size, const clv_standing *s, const char *where)
{
    const char *note = s->note[0] ? s->note : "nothing", *between = where[0] ? "; " : "";
    if (!s->knows)
        snprintf(out, size, "rank %d (%s%s%s)", s->rank,
                 s->silent ? "its process does not answer: stopped, or cut off" : "", s->silent ? between : "", where);
    else if (!s->what[0])
        snprintf(out, size, "rank %d (no step yet, noted '%.95s'%s%s)", s->rank, note, between, where);
    else
        snprintf(out, size, "rank %d (last in %.31s of group set %d, noted '%.95s'%s%s)", s->rank, s->what, s->set,
                 note, between, where);
}
