/* threads_fail.c - how a world of threads fails: once, for all, and without leaving a peer in freed memory. */
#include "comm/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "comm/standing.h"

enum { QUIESCE_NS = 80000000, VOTE_NS = 60000000 /* until all members have come to a step that does not match */ };

/* What a rank is known to be doing; one of another process, what who speaks of it is: all go through the same steps. */
static const char *op_of(const clv_thread_comm *speaker, int rank)
{
    const char *note = atomic_load_explicit(&speaker->world->comms[rank].base.note, memory_order_acquire);

    note = note ? note : atomic_load_explicit(&speaker->base.note, memory_order_relaxed);
    return note ? note : "";
}

bool clv_threads_record(clv_world *world, const clv_error *error)
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
            clv_futex_wake_all(&set->hubs[set->hub_of[r]].word);
        }
    pthread_mutex_unlock(&world->lock);
    return first;
}

void clv_threads_fail(clv_world *world, const clv_error *error)
{
    if (clv_threads_record(world, error) && world->processes > 1)
        world->transport->tell(world, &world->error);
}

static bool is_here(const clv_world *world, int rank)
{
    return rank >= world->first && rank < world->first + world->here;
}

/* Where all ranks stand, as far as it can be known; in a group set, too. */
static void find_standings(clv_standing *out, clv_world *world, int set)
{
    for (int r = 0; r < world->ranks; r++)
        out[r] = is_here(world, r) ? clv_standing_of(world, r, set) : (clv_standing){.rank = r};
    if (world->processes > 1 && world->transport->stand)
        world->transport->stand(world, set, out);
}

static void describe(char *out, size_t size, const clv_world *world, const clv_standing *s)
{
    char where[160] = "";

    if (!is_here(world, s->rank) && world->transport->whose)
        world->transport->whose(where, sizeof where, world, s->rank);
    else if (!is_here(world, s->rank))
        snprintf(where, sizeof where, "of process %d", clv_threads_process(world, s->rank));
    clv_standing_describe(out, size, s, where);
}

/* Appends "rank 3 (...), of which 0 of 64 bytes came" for a member that is missing. */
static void add_missing(char *out, size_t size, const clv_thread_comm *comm, const clv_standing *s,
                        const clv_bytes *bytes)
{
    size_t used = strlen(out);
    char one[320], came[96] = "";

    describe(one, sizeof one, comm->world, s);
    if (bytes->expected > 0)
        snprintf(came, sizeof came, ", of which %lld of %lld bytes came", (long long)bytes->came,
                 (long long)bytes->expected);
    snprintf(out + used, size - used, "%s%s%s", used ? ", " : "", one, came);
}

static void write_late(clv_error *error, const clv_thread_comm *comm, const clv_group *group, const clv_post *post,
                       const clv_standing *all, clv_blame blame)
{
    const clv_world *world = comm->world;
    char who[400] = "", behind[320] = "", how[64] = " is behind, for which others wait; ";
    int missing = 0, blamed = blame.rank;
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
    bool lost = blame.lost_to >= 0;
    if (missing > 0 && (!is_member || lost))
        describe(behind, sizeof behind, world, &all[blamed]);
    if (lost)
        snprintf(how, sizeof how, " went on, and what it sent to rank %d did not come; ", blame.lost_to);
    snprintf(error->message, sizeof error->message,
             "rank %d waited %lld ms in %s%s of group set %d, collective %llu; %s%smissing %d of %d: %s",
             comm->base.rank, (long long)(world->timeout_ns / 1000000), post->ends ? "the end of " : "", post->what,
             group->set, (unsigned long long)all[comm->base.rank].begun, behind, behind[0] ? how : "", missing,
             group->n, who);
}

clv_status clv_threads_fail_late(clv_thread_comm *comm, const clv_group *group, const clv_post *post, clv_error *err)
{
    clv_world *world = comm->world;
    clv_error error = {.code = CLV_ETIMEOUT, .rank = -1};
    clv_standing *all = malloc((size_t)world->ranks * sizeof *all);
    if (!all) {
        clv_fail_memory(&error, "where ranks stand", (size_t)world->ranks * sizeof *all);
    } else {
        find_standings(all, world, group->set);
        const clv_blame blame = clv_standing_blame(world, all, group, comm->missing, comm->missing + world->ranks);
        error.rank = blame.rank;
        if (error.rank >= 0)
            snprintf(error.op, sizeof error.op, "%s",
                     all[error.rank].note[0] ? all[error.rank].note : op_of(comm, error.rank));
        write_late(&error, comm, group, post, all, blame);
    }
    free(all);
    memset(comm->bytes, 0, (size_t)world->ranks * sizeof *comm->bytes);
    clv_threads_fail(world, &error);
    return clv_threads_give_up(comm, err);
}

bool clv_threads_posts_match(const clv_post *a, const clv_post *b)
{
    return a->tag == b->tag && a->ends == b->ends && (a->what == b->what || strcmp(a->what, b->what) == 0);
}

static void describe_post(const clv_world *world, int rank, const clv_post *post, char *out, size_t size)
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
static votes ask_members(clv_thread_comm *comm, const clv_group *group, const clv_post *a, const clv_post *b)
{
    clv_world *world = comm->world;
    clv_deadline deadline = clv_deadline_in(VOTE_NS);
    clv_standing *all = malloc((size_t)world->ranks * sizeof *all);
    votes v = {0};
    uint64_t seq = clv_standing_of(world, comm->base.rank, group->set).seq;
    for (bool more = all != NULL; more;) {
        v = (votes){0};
        find_standings(all, world, group->set);
        for (int i = 0; i < group->n; i++) {
            const clv_standing *s = &all[group->ranks[i]];
            bool here = s->knows && s->seq == seq;
            v.here += here;
            v.for_a += here && s->tag == a->tag;
            v.for_b += here && s->tag == b->tag;
        }
        more = v.here < group->n && !clv_world_failed(world, NULL) && clv_deadline_look(&deadline) > 0;
        if (more)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    free(all);
    return v;
}

clv_status clv_threads_fail_match(clv_thread_comm *comm, const clv_group *group, int a, const clv_post *says_a, int b,
                                  const clv_post *says_b, clv_error *err)
{
    const votes v = ask_members(comm, group, says_a, says_b);
    int odd = v.for_a < v.for_b ? a : b, most = v.for_a < v.for_b ? v.for_b : v.for_a;
    clv_error error = {.code = CLV_EPEER, .rank = odd};
    char one[200], other[200], by[96] = "";

    describe_post(comm->world, a, says_a, one, sizeof one);
    describe_post(comm->world, b, says_b, other, sizeof other);
    if (v.for_a != v.for_b)
        snprintf(by, sizeof by, "; rank %d is the odd one: %d of %d members do as rank %d", odd, most, group->n,
                 odd == a ? b : a);
    snprintf(error.op, sizeof error.op, "%s", op_of(comm, odd));
    snprintf(error.message, sizeof error.message, "steps of group set %d do not match: %s, %s%s%s", group->set, one,
             other, by,
             comm->world->processes > 1 ? "; valid: the same calls, of the same programs, in every process" : "");
    clv_threads_fail(comm->world, &error);
    return clv_threads_give_up(comm, err);
}

clv_status clv_threads_fail_bytes(clv_thread_comm *comm, const clv_group *group, const clv_post *post, int peer,
                                  int64_t expected, int64_t came, clv_error *err)
{
    clv_error error = {.code = CLV_EPEER, .rank = group->ranks[peer]};
    char mine[200];

    describe_post(comm->world, comm->base.rank, post, mine, sizeof mine);
    snprintf(error.op, sizeof error.op, "%s", op_of(comm, error.rank));
    snprintf(error.message, sizeof error.message,
             "%s of group set %d, and expects %lld bytes of rank %d, which sends %lld", mine, group->set,
             (long long)expected, error.rank, (long long)came);
    clv_threads_fail(comm->world, &error);
    return clv_threads_give_up(comm, err);
}

int clv_threads_inside(const clv_slot *slot)
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
            if (clv_threads_inside(&set->slots[group->ranks[i]]))
                return 1;
    }
    return 0;
}

clv_status clv_threads_give_up(clv_thread_comm *comm, clv_error *err)
{
    clv_world *world = comm->world;
    clv_deadline deadline = clv_deadline_in(QUIESCE_NS);

    for (int s = 0; s < world->n_sets; s++) {
        clv_slot *slot = &world->sets[s]->slots[comm->base.rank];

        slot->open = false;
        atomic_store_explicit(&slot->left, slot->stamp, memory_order_release);
    }
    while (peers_inside(comm) && clv_deadline_look(&deadline) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    if (err && err->code == CLV_OK)
        *err = world->error;
    return world->error.code;
}

void clv_threads_abort(clv_comm *base, const clv_error *error)
{
    clv_thread_comm *comm = (clv_thread_comm *)base;
    const char *note = atomic_load_explicit(&base->note, memory_order_relaxed);
    clv_error failure = {.code = CLV_EPEER, .rank = base->rank};

    snprintf(failure.op, sizeof failure.op, "%s", error->op[0] || !note ? error->op : note);
    snprintf(failure.message, sizeof failure.message, "rank %d failed: %.480s", base->rank, error->message);
    clv_threads_fail(comm->world, &failure);
    clv_threads_give_up(comm, NULL);
}

void clv_world_fail(clv_world *world, const clv_error *error)
{
    clv_threads_fail(world, error);
}

void clv_world_pass_on(clv_world *world)
{
    if (world->processes > 1 && clv_world_failed(world, NULL) && !atomic_exchange(&world->passed_on, true))
        world->transport->tell(world, &world->error);
}

const _Atomic int *clv_world_failed_flag(const clv_world *world)
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
