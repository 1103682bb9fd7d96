#include "comm/standing.h"

#include <stdio.h>
#include <string.h>

clv_standing clv_standing_of(const clv_world *world, int rank)
{
    const clv_thread_comm *comm = &world->comms[rank];
    const char *note = atomic_load_explicit(&comm->base.note, memory_order_acquire);
    const char *doing = atomic_load_explicit(&comm->doing, memory_order_acquire);
    clv_standing s = {.rank = rank,
                      .set = atomic_load_explicit(&comm->doing_in, memory_order_relaxed),
                      .begun = atomic_load_explicit(&comm->begun, memory_order_relaxed),
                      .knows = 1,
                      .inside = atomic_load_explicit(&comm->inside, memory_order_relaxed)};
    snprintf(s.what, sizeof s.what, "%s", doing ? doing : "");
    snprintf(s.note, sizeof s.note, "%s", note ? note : "");
    return s;
}

/* Whether b keeps a, which is in a step: it has begun fewer. */
static bool keeps(const clv_standing *b, const clv_standing *a)
{
    return b->silent || (b->knows && b->begun < a->begun);
}

/* Whether rank r, of this process, has heard nothing of member i of its group, as its flight recorder has it. */
static bool lacks(const clv_world *world, int r, int i)
{
    const clv_recorder *recorder = world->comms[r].base.recorder;
    if (!recorder || i >= CLV_RECORDED_MEMBERS)
        return false;
    uint64_t at = clv_recorder_last(recorder);
    return atomic_load_explicit(&recorder->records[at].phase, memory_order_relaxed) == CLV_RECORD_WAITS &&
           atomic_load_explicit(&recorder->steps[at].lacks, memory_order_relaxed) >> i & 1;
}

int clv_standing_blame(const clv_world *world, const clv_standing *all, const clv_group *group, const bool *missing,
                       bool *scratch)
{
    bool *waited = scratch; /* somebody waits for them */
    int first = -1;
    memset(waited, 0, (size_t)world->ranks * sizeof *waited);
    for (int i = 0; i < group->n; i++)
        waited[group->ranks[i]] = missing[i];
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < world->ranks; r++) {
            const clv_standing *a = &all[r];
            if (!waited[r] || !a->knows || !a->inside || a->set < 0 || a->set >= world->n_sets)
                continue;
            const clv_group *its = &world->sets[a->set]->view[r];
            for (int i = 0; i < its->n; i++) {
                int b = its->ranks[i];
                if (!waited[b] && b != r && (keeps(&all[b], a) || (!all[b].knows && lacks(world, r, i))))
                    waited[b] = more = true;
            }
        }
    }
    for (int r = 0; r < world->ranks; r++)
        if (waited[r] && all[r].silent)
            return r;
    for (int r = 0; r < world->ranks; r++)
        if (waited[r] && all[r].knows && !all[r].inside && (first < 0 || all[r].begun < all[first].begun))
            first = r;
    for (int r = 0; first < 0 && r < world->ranks; r++) /* of which nothing is known but that it is waited for */
        first = waited[r] && !all[r].knows ? r : -1;
    for (int i = 0; first < 0 && i < group->n; i++)
        first = missing[i] ? group->ranks[i] : -1;
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
