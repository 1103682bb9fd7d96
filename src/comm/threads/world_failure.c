/* world_failure.c - failure of a world: records the first error, wakes all ranks, writes timeout and mismatch
 * messages.
 */
#include "comm/threads/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "comm/threads/rank_progress.h"

enum { QUIESCE_NS = 80000000, VOTE_NS = 60000000 /* until all members have come to a step that does not match */ };

/* What a rank is known to be doing; one of another process, what who speaks of it is: all go through the same steps. */
static const char *op_of(const clv_thread_comm *speaker, int rank)
{
    const char *note = atomic_load_explicit(&speaker->world->comms[rank].base.note, memory_order_acquire);

    note = note ? note : atomic_load_explicit(&speaker->base.note, memory_order_relaxed);
    return note ? note : "";
}

bool clv_world_record_failure(clv_world *world, const clv_error *error)
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
            clv_group_set *set = world->sets[s];

            clv_futex_wake_all(&set->slots[r].line[0].word);
            clv_futex_wake_all(&set->slots[r].line[1].word);
            clv_futex_wake_all(&set->hubs[set->counter_of[r]].word);
        }
    pthread_mutex_unlock(&world->lock);
    return first;
}

void clv_world_set_failure(clv_world *world, const clv_error *error)
{
    if (clv_world_record_failure(world, error) && world->processes > 1)
        world->transport->tell(world, &world->error);
}

static bool is_here(const clv_world *world, int rank)
{
    return rank >= world->first && rank < world->first + world->here;
}

/* Where all ranks stand, as far as it can be known; in a group set, too. */
static void collect_progress(clv_rank_progress *out, clv_world *world, int set)
{
    for (int r = 0; r < world->ranks; r++)
        out[r] = is_here(world, r) ? clv_rank_progress_read(world, r, set) : (clv_rank_progress){.rank = r};
    if (world->processes > 1 && world->transport->stand)
        world->transport->stand(world, set, out);
}

static void describe(char *out, size_t size, const clv_world *world, const clv_rank_progress *s)
{
    char where[160] = "";

    if (!is_here(world, s->rank) && world->transport->whose)
        world->transport->whose(where, sizeof where, world, s->rank);
    else if (!is_here(world, s->rank))
        snprintf(where, sizeof where, "of process %d", clv_world_process_of(world, s->rank));
    clv_rank_progress_describe(out, size, s, where);
}

/* Appends "rank 3 (...), of which 0 of 64 bytes came" for a member that is missing. */
static void add_missing(char *out, size_t size, const clv_thread_comm *comm, const clv_rank_progress *s,
                        const clv_byte_progress *bytes)
{
    size_t used = strlen(out);
    char one[320], came[96] = "";

    describe(one, sizeof one, comm->world, s);
    if (bytes->expected > 0)
        snprintf(came, sizeof came, ", of which %lld of %lld bytes came", (long long)bytes->came,
                 (long long)bytes->expected);
    snprintf(out + used, size - used, "%s%s%s", used ? ", " : "", one, came);
}

static void print_timeout(clv_error *error, const clv_thread_comm *comm, const clv_group *group,
                          const clv_collective_desc *post, const clv_rank_progress *all, clv_culprit culprit)
{
    const clv_world *world = comm->world;
    char who[400] = "", behind[320] = "", how[64] = " is behind, for which others wait; ";
    int missing = 0, blamed = culprit.rank;
    bool is_member = false;

    for (int pass = 0; pass < 2; pass++) /* the blamed one first */
        for (int i = 0; i < group->n; i++) {
            if (!comm->missing[i] || (group->ranks[i] == blamed) != (pass == 0))
                continue;
            missing++;
            is_member = is_member || pass == 0;
            add_missing(who, sizeof who, comm, &all[group->ranks[i]], &comm->bytes[i]);
        }
    if (missing == 0) /* came while we were looking: late all the same, but say so */
        snprintf(who, sizeof who, "none now");
    bool lost = culprit.undelivered_to >= 0;
    if (missing > 0 && (!is_member || lost))
        describe(behind, sizeof behind, world, &all[blamed]);
    if (lost)
        snprintf(how, sizeof how, " went on, and what it sent to rank %d did not come; ", culprit.undelivered_to);
    snprintf(error->message, sizeof error->message,
             "rank %d waited %lld ms in %s%s of group set %d, collective %llu; %s%smissing %d of %d: %s",
             comm->base.rank, (long long)(world->timeout_ns / 1000000), post->ends ? "the end of " : "", post->what,
             group->set, (unsigned long long)all[comm->base.rank].begun, behind, behind[0] ? how : "", missing,
             group->n, who);
}

clv_status clv_world_fail_timeout(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *post,
                                  clv_error *err)
{
    clv_world *world = comm->world;
    clv_error error = {.code = CLV_ETIMEOUT, .rank = -1};
    clv_rank_progress *all = malloc((size_t)world->ranks * sizeof *all);
    if (!all) {
        clv_fail_memory(&error, "where ranks stand", (size_t)world->ranks * sizeof *all);
    } else {
        collect_progress(all, world, group->set);
        const clv_culprit culprit = clv_find_culprit(world, all, group, comm->missing, comm->missing + world->ranks);
        error.rank = culprit.rank;
        if (error.rank >= 0)
            snprintf(error.op, sizeof error.op, "%s",
                     all[error.rank].note[0] ? all[error.rank].note : op_of(comm, error.rank));
        print_timeout(&error, comm, group, post, all, culprit);
    }
    free(all);
    memset(comm->bytes, 0, (size_t)world->ranks * sizeof *comm->bytes);
    clv_world_set_failure(world, &error);
    return clv_collective_give_up(comm, err);
}

bool clv_collective_desc_equal(const clv_collective_desc *a, const clv_collective_desc *b)
{
    return a->tag == b->tag && a->ends == b->ends && (a->what == b->what || strcmp(a->what, b->what) == 0);
}

static void describe_desc(const clv_world *world, int rank, const clv_collective_desc *post, char *out, size_t size)
{
    const char *note = atomic_load_explicit(&world->comms[rank].base.note, memory_order_acquire);

    snprintf(out, size, "rank %d is in %s%s, tag %llx ('%s')", rank, post->ends ? "the end of " : "", post->what,
             (unsigned long long)post->tag, note ? note : "no note");
}

/* How many members of a group are in this rank's step of it, and how many of these with the tag of a, and of b. */
typedef struct votes {
    int here, for_a, for_b;
} votes;

/* Members may come to the step only now; by then all that agree are known, and the odd one is, where there is one. */
static votes count_votes(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *a,
                         const clv_collective_desc *b)
{
    clv_world *world = comm->world;
    clv_deadline deadline = clv_deadline_after(VOTE_NS);
    clv_rank_progress *all = malloc((size_t)world->ranks * sizeof *all);
    votes v = {0};
    uint64_t seq = clv_rank_progress_read(world, comm->base.rank, group->set).seq;
    for (bool more = all != NULL; more;) {
        v = (votes){0};
        collect_progress(all, world, group->set);
        for (int i = 0; i < group->n; i++) {
            const clv_rank_progress *s = &all[group->ranks[i]];
            bool here = s->known && s->seq == seq;
            v.here += here;
            v.for_a += here && s->tag == a->tag;
            v.for_b += here && s->tag == b->tag;
        }
        more = v.here < group->n && !clv_world_failed(world, NULL) && clv_deadline_remaining(&deadline) > 0;
        if (more)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    free(all);
    return v;
}

clv_status clv_world_fail_mismatch(clv_thread_comm *comm, const clv_group *group, int a,
                                   const clv_collective_desc *desc_a, int b, const clv_collective_desc *desc_b,
                                   clv_error *err)
{
    const votes v = count_votes(comm, group, desc_a, desc_b);
    int odd = v.for_a < v.for_b ? a : b, most = v.for_a < v.for_b ? v.for_b : v.for_a;
    clv_error error = {.code = CLV_EPEER, .rank = odd};
    char one[200], other[200], by[96] = "";

    describe_desc(comm->world, a, desc_a, one, sizeof one);
    describe_desc(comm->world, b, desc_b, other, sizeof other);
    if (v.for_a != v.for_b)
        snprintf(by, sizeof by, "; rank %d is the odd one: %d of %d members do as rank %d", odd, most, group->n,
                 odd == a ? b : a);
    snprintf(error.op, sizeof error.op, "%s", op_of(comm, odd));
    snprintf(error.message, sizeof error.message, "steps of group set %d do not match: %s, %s%s%s", group->set, one,
             other, by,
             comm->world->processes > 1 ? "; valid: the same calls, of the same programs, in every process" : "");
    clv_world_set_failure(comm->world, &error);
    return clv_collective_give_up(comm, err);
}

clv_status clv_world_fail_wrong_size(clv_thread_comm *comm, const clv_group *group, const clv_collective_desc *post,
                                     int peer, int64_t expected, int64_t came, clv_error *err)
{
    clv_error error = {.code = CLV_EPEER, .rank = group->ranks[peer]};
    char mine[200];

    describe_desc(comm->world, comm->base.rank, post, mine, sizeof mine);
    snprintf(error.op, sizeof error.op, "%s", op_of(comm, error.rank));
    snprintf(error.message, sizeof error.message,
             "%s of group set %d, and expects %lld bytes of rank %d, which sends %lld", mine, group->set,
             (long long)expected, error.rank, (long long)came);
    clv_world_set_failure(comm->world, &error);
    return clv_collective_give_up(comm, err);
}

int clv_slot_in_collective(const clv_slot *slot)
{
    uint32_t a = atomic_load_explicit(&slot->line[0].word, memory_order_seq_cst) & ~1u;
    uint32_t b = atomic_load_explicit(&slot->line[1].word, memory_order_seq_cst) & ~1u;
    uint32_t newest = (int32_t)(a - b) > 0 ? a : b;

    return (int32_t)(newest - atomic_load_explicit(&slot->left, memory_order_acquire)) > 0;
}

static int peers_inside(const clv_thread_comm *comm)
{
    for (int s = 0; s < comm->world->n_sets; s++) {
        const clv_group_set *set = comm->world->sets[s];
        const clv_group *group = &set->view[comm->base.rank];

        for (int i = 0; i < group->n; i++)
            if (clv_slot_in_collective(&set->slots[group->ranks[i]]))
                return 1;
    }
    return 0;
}

clv_status clv_collective_give_up(clv_thread_comm *comm, clv_error *err)
{
    clv_world *world = comm->world;
    clv_deadline deadline = clv_deadline_after(QUIESCE_NS);

    for (int s = 0; s < world->n_sets; s++) {
        clv_slot *slot = &world->sets[s]->slots[comm->base.rank];

        slot->open = false;
        atomic_store_explicit(&slot->left, slot->stamp, memory_order_release);
    }
    while (peers_inside(comm) && clv_deadline_remaining(&deadline) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    if (err && err->code == CLV_OK)
        *err = world->error;
    return world->error.code;
}

void clv_threads_comm_abort(clv_comm *base, const clv_error *error)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    const char *note = atomic_load_explicit(&base->note, memory_order_relaxed);
    clv_error failure = {.code = CLV_EPEER, .rank = base->rank};

    snprintf(failure.op, sizeof failure.op, "%s", error->op[0] || !note ? error->op : note);
    snprintf(failure.message, sizeof failure.message, "rank %d failed: %.480s", base->rank, error->message);
    clv_world_set_failure(comm->world, &failure);
    clv_collective_give_up(comm, NULL);
}

void clv_world_fail(clv_world *world, const clv_error *error)
{
    clv_world_set_failure(world, error);
}

void clv_world_broadcast_failure(clv_world *world)
{
    if (world->processes > 1 && clv_world_failed(world, NULL) && !atomic_exchange(&world->broadcast_failure, true))
        world->transport->tell(world, &world->error);
}

const _Atomic int *clv_world_failure_flag(const clv_world *world)
{
    return &world->failed;
}

int clv_world_failed(const clv_world *world, clv_error *error)
{
    if (!atomic_load_explicit(&world->failed, memory_order_acquire))
        return 0;
    if (error)
        *error = world->error;
    return 1;
}
