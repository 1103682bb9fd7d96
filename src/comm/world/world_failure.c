/* world_failure.c - failure of a world: records the first error, wakes all ranks, writes timeout and mismatch
 * messages.
 */
#include "comm/world/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "comm/world/stall_diagnosis.h"

enum { QUIESCE_NS = 80000000, VOTE_NS = 60000000 /* timeout until all members have come to a mismatched collective */ };

/* The activity of a rank; for one of another process the caller's own, as all ranks run the same instructions. */
static const char *op_of(const clv_comm *self, int rank)
{
    const char *activity = atomic_load_explicit(&self->world->comms[rank].activity, memory_order_acquire);

    activity = activity ? activity : atomic_load_explicit(&self->activity, memory_order_relaxed);
    return activity ? activity : "";
}

bool clv_world_record_remote_failure(clv_world *world, const clv_error *error)
{
    pthread_mutex_lock(&world->lock);
    bool first = !atomic_load_explicit(&world->failed, memory_order_relaxed);
    if (first) {
        world->error = *error;
        clv_error_make_printable(&world->error);
        atomic_store_explicit(&world->failed, 1, memory_order_seq_cst);
    }
    for (int s = 0; s < world->n_sets; s++)
        for (int r = 0; r < world->ranks; r++) {
            clv_group_set *group_set = world->sets[s];

            clv_futex_wake_all(&group_set->slots[r].line[0].word);
            clv_futex_wake_all(&group_set->slots[r].line[1].word);
            clv_futex_wake_all(&group_set->counters[group_set->counter_of[r]].word);
        }
    pthread_mutex_unlock(&world->lock);
    return first;
}

void clv_world_record_local_failure(clv_world *world, const clv_error *error)
{
    if (clv_world_record_remote_failure(world, error) && world->processes > 1)
        world->transport->notify_failure(world, &world->error);
}

/* The progress of all ranks, as far as it can be known. */
static void collect_progress(clv_rank_progress *out, clv_world *world, int group_set)
{
    for (int r = 0; r < world->ranks; r++)
        out[r] = clv_world_is_local(world, r) ? clv_local_rank_progress(world, r, group_set)
                                              : (clv_rank_progress){.rank = r};
    if (world->processes > 1 && world->transport->query_progress)
        world->transport->query_progress(world, group_set, out);
}

static void describe(char *out, size_t size, const clv_world *world, const clv_rank_progress *s)
{
    char where[160] = "";

    if (!clv_world_is_local(world, s->rank) && world->transport->describe_process)
        world->transport->describe_process(where, sizeof where, world, s->rank);
    else if (!clv_world_is_local(world, s->rank))
        snprintf(where, sizeof where, "of process %d", clv_world_process_of(world, s->rank));
    clv_rank_progress_describe(out, size, s, where);
}

/* Appends "rank 3 (...), from which 0 of 64 bytes came" for a missing member. */
static void add_missing(char *out, size_t size, const clv_comm *comm, const clv_rank_progress *s,
                        const clv_byte_progress *bytes)
{
    size_t used = strlen(out);
    char one[320], came[96] = "";

    describe(one, sizeof one, comm->world, s);
    if (bytes->expected > 0)
        snprintf(came, sizeof came, ", from which %lld of %lld bytes came", (long long)bytes->received,
                 (long long)bytes->expected);
    snprintf(out + used, size - used, "%s%s%s", used ? ", " : "", one, came);
}

/* Writes "culprit: rank 1 (...), which others wait for; " unless the list of missing members begins with it. */
static void print_culprit(char *out, size_t size, const clv_world *world, const clv_rank_progress *all,
                          clv_culprit culprit)
{
    char who[320], why[80] = "which others wait for";

    describe(who, sizeof who, world, &all[culprit.rank]);
    if (culprit.undelivered_to >= 0)
        snprintf(why, sizeof why, "whose message to rank %d was not delivered", culprit.undelivered_to);
    snprintf(out, size, "culprit: %s, %s; ", who, why);
}

static void print_timeout(clv_error *error, const clv_comm *comm, const clv_group *group,
                          const clv_collective_desc *desc, const clv_rank_progress *all, clv_culprit culprit)
{
    const clv_world *world = comm->world;
    char members[400] = "", first[420] = "";
    int missing = 0;
    bool is_member = false;

    for (int pass = 0; pass < 2; pass++) /* the culprit first */
        for (int i = 0; i < group->n; i++) {
            if (!comm->missing[i] || (group->ranks[i] == culprit.rank) != (pass == 0))
                continue;
            missing++;
            is_member = is_member || pass == 0;
            add_missing(members, sizeof members, comm, &all[group->ranks[i]], &comm->bytes[i]);
        }
    if (missing > 0 && (!is_member || culprit.undelivered_to >= 0))
        print_culprit(first, sizeof first, world, all, culprit);
    snprintf(error->message, sizeof error->message,
             "rank %d waited %lld ms in %s%s of group set %d, collective %llu; %smissing %d of %d: %s", comm->rank,
             (long long)(world->timeout_ns / 1000000), desc->at_end_barrier ? "the end of " : "", desc->what,
             group->group_set, (unsigned long long)all[comm->rank].begun, first, missing, group->n,
             missing > 0 ? members : "none now"); /* they came during the query: late all the same */
}

clv_status clv_world_fail_timeout(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc,
                                  clv_error *err)
{
    clv_world *world = comm->world;
    clv_error error = {.code = CLV_ETIMEOUT, .rank = -1};
    clv_rank_progress *all = malloc((size_t)world->ranks * sizeof *all);
    if (!all) {
        clv_fail_memory(&error, "the ranks' progress", (size_t)world->ranks * sizeof *all);
    } else {
        collect_progress(all, world, group->group_set);
        const clv_culprit culprit = clv_find_culprit(world, all, group, comm->missing, comm->missing + world->ranks);
        error.rank = culprit.rank;
        if (error.rank >= 0)
            snprintf(error.op, sizeof error.op, "%s",
                     all[error.rank].activity[0] ? all[error.rank].activity : op_of(comm, error.rank));
        print_timeout(&error, comm, group, desc, all, culprit);
    }
    free(all);
    memset(comm->bytes, 0, (size_t)world->ranks * sizeof *comm->bytes);
    clv_world_record_local_failure(world, &error);
    return clv_collective_give_up(comm, err);
}

bool clv_collective_desc_equal(const clv_collective_desc *a, const clv_collective_desc *b)
{
    return a->tag == b->tag && a->at_end_barrier == b->at_end_barrier &&
           (a->what == b->what || strcmp(a->what, b->what) == 0);
}

static void describe_desc(const clv_world *world, int rank, const clv_collective_desc *desc, char *out, size_t size)
{
    const char *activity = atomic_load_explicit(&world->comms[rank].activity, memory_order_acquire);

    snprintf(out, size, "rank %d is in %s%s, tag %llx (at '%s')", rank, desc->at_end_barrier ? "the end of " : "",
             desc->what, (unsigned long long)desc->tag, activity ? activity : "nothing");
}

/* Members in this rank's collective of the group; of these, those with the tag of a, and those with that of b. */
typedef struct votes {
    int here, for_a, for_b;
} votes;

/* Waits until all members have come to the collective, as the majority is known only then. */
static votes count_votes(clv_comm *comm, const clv_group *group, const clv_collective_desc *a,
                         const clv_collective_desc *b)
{
    clv_world *world = comm->world;
    clv_deadline deadline = clv_deadline_after(VOTE_NS);
    clv_rank_progress *all = malloc((size_t)world->ranks * sizeof *all);
    votes v = {0};
    uint64_t seq = clv_local_rank_progress(world, comm->rank, group->group_set).set_begun;
    for (bool more = all != NULL; more;) {
        v = (votes){0};
        collect_progress(all, world, group->group_set);
        for (int i = 0; i < group->n; i++) {
            const clv_rank_progress *s = &all[group->ranks[i]];
            bool here = s->known && s->set_begun == seq;
            v.here += here;
            v.for_a += here && s->set_tag == a->tag;
            v.for_b += here && s->set_tag == b->tag;
        }
        more = v.here < group->n && !clv_world_has_failed(world, NULL) && clv_deadline_remaining(&deadline) > 0;
        if (more)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    free(all);
    return v;
}

clv_status clv_world_fail_mismatch(clv_comm *comm, const clv_group *group, int a, const clv_collective_desc *desc_a,
                                   int b, const clv_collective_desc *desc_b, clv_error *err)
{
    const votes v = count_votes(comm, group, desc_a, desc_b);
    int odd = v.for_a < v.for_b ? a : b, most = v.for_a < v.for_b ? v.for_b : v.for_a;
    clv_error error = {.code = CLV_EPEER, .rank = odd};
    char one[200], other[200], by[96] = "";

    describe_desc(comm->world, a, desc_a, one, sizeof one);
    describe_desc(comm->world, b, desc_b, other, sizeof other);
    if (v.for_a != v.for_b)
        snprintf(by, sizeof by, "; rank %d differs from the majority: %d of %d members do as rank %d", odd, most,
                 group->n, odd == a ? b : a);
    snprintf(error.op, sizeof error.op, "%s", op_of(comm, odd));
    snprintf(error.message, sizeof error.message, "collectives of group set %d do not match: %s, %s%s%s",
             group->group_set, one, other, by,
             comm->world->processes > 1 ? "; valid: the same calls, of the same programs, in every process" : "");
    clv_world_record_local_failure(comm->world, &error);
    return clv_collective_give_up(comm, err);
}

clv_status clv_world_fail_wrong_size(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc, int peer,
                                     int64_t expected, int64_t came, clv_error *err)
{
    clv_error error = {.code = CLV_EPEER, .rank = group->ranks[peer]};
    char mine[200];

    describe_desc(comm->world, comm->rank, desc, mine, sizeof mine);
    snprintf(error.op, sizeof error.op, "%s", op_of(comm, error.rank));
    snprintf(error.message, sizeof error.message,
             "%s of group set %d, and expects %lld bytes from rank %d, which sends %lld", mine, group->group_set,
             (long long)expected, error.rank, (long long)came);
    clv_world_record_local_failure(comm->world, &error);
    return clv_collective_give_up(comm, err);
}

clv_status clv_world_copy_span(clv_comm *comm, const clv_group *group, const clv_collective_desc *desc, int peer,
                               const clv_span *to, const clv_span *from, clv_error *err)
{
    if (to->bytes != from->bytes)
        return clv_world_fail_wrong_size(comm, group, desc, peer, to->bytes, from->bytes, err);
    if (to->bytes > 0)
        memcpy(to->data, from->data, (size_t)to->bytes);
    return CLV_OK;
}

bool clv_slot_is_in_collective(const clv_slot *slot)
{
    uint32_t a = atomic_load_explicit(&slot->line[0].word, memory_order_seq_cst) & ~1u;
    uint32_t b = atomic_load_explicit(&slot->line[1].word, memory_order_seq_cst) & ~1u;
    uint32_t newest = (int32_t)(a - b) > 0 ? a : b;

    return (int32_t)(newest - atomic_load_explicit(&slot->released, memory_order_acquire)) > 0;
}

static bool has_peer_in_collective(const clv_comm *comm)
{
    for (int s = 0; s < comm->world->n_sets; s++) {
        const clv_group_set *group_set = comm->world->sets[s];
        const clv_group *group = &group_set->view[comm->rank];

        for (int i = 0; i < group->n; i++)
            if (clv_slot_is_in_collective(&group_set->slots[group->ranks[i]]))
                return true;
    }
    return false;
}

clv_status clv_collective_give_up(clv_comm *comm, clv_error *err)
{
    clv_world *world = comm->world;
    clv_deadline deadline = clv_deadline_after(QUIESCE_NS);

    for (int s = 0; s < world->n_sets; s++) {
        clv_slot *slot = &world->sets[s]->slots[comm->rank];

        slot->open = false;
        atomic_store_explicit(&slot->released, slot->stamp, memory_order_release);
    }
    while (has_peer_in_collective(comm) && clv_deadline_remaining(&deadline) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    if (err && err->code == CLV_OK)
        *err = world->error;
    return world->error.code;
}

void clv_comm_abort(clv_comm *comm, const clv_error *error)
{
    const char *activity = atomic_load_explicit(&comm->activity, memory_order_relaxed);
    clv_error failure = {.code = CLV_EPEER, .rank = comm->rank};

    snprintf(failure.op, sizeof failure.op, "%s", error->op[0] || !activity ? error->op : activity);
    snprintf(failure.message, sizeof failure.message, "rank %d failed: %.480s", comm->rank, error->message);
    clv_world_record_local_failure(comm->world, &failure);
    clv_collective_give_up(comm, NULL);
}

clv_status clv_comm_check(clv_comm *comm, clv_error *err)
{
    return atomic_load_explicit(&comm->world->failed, memory_order_acquire) ? clv_collective_give_up(comm, err)
                                                                            : CLV_OK;
}

void clv_world_fail(clv_world *world, const clv_error *error)
{
    clv_world_record_local_failure(world, error);
}

void clv_world_broadcast_failure(clv_world *world)
{
    if (world->processes > 1 && clv_world_has_failed(world, NULL) && !atomic_exchange(&world->broadcast_failure, true))
        world->transport->notify_failure(world, &world->error);
}

const _Atomic int *clv_world_failure_flag(const clv_world *world)
{
    return &world->failed;
}

int clv_world_has_failed(const clv_world *world, clv_error *error)
{
    if (!atomic_load_explicit(&world->failed, memory_order_acquire))
        return 0;
    if (error)
        *error = world->error;
    return 1;
}
