/* threads_meet.c - how the members of a group meet: stamps, sleep, and the check that all came for the same thing. */
#include "comm/threads.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum {
    FLAT_MEMBERS = 16,         /* up to here every member looks at every other; beyond, at the group's hub */
    SLEEP_SLICE_NS = 20000000, /* a sleeper looks at the world's state this often, should a wake-up pass it by */
};

typedef enum wait_result { WAIT_OK, WAIT_FAILED, WAIT_LATE } wait_result;

/* One rank's patience in one meeting: shared by its waits. */
typedef struct patience {
    clv_world *world;
    int spins;
    bool timed; /* whether the deadline runs: from when spinning was not enough */
    clv_deadline deadline;
} patience;

static wait_result sleep_on(patience *p, _Atomic uint32_t *word, uint32_t stamp)
{
    if (!p->timed)
        p->deadline = clv_deadline_in(p->world->timeout_ns);
    p->timed = true;
    for (;;) {
        if (atomic_load_explicit(&p->world->failed, memory_order_acquire))
            return WAIT_FAILED;
        int64_t rest = clv_deadline_look(&p->deadline);
        if (rest == 0)
            return WAIT_LATE;
        if (clv_stamp_sleep(word, stamp, rest < SLEEP_SLICE_NS ? rest : SLEEP_SLICE_NS))
            return WAIT_OK;
    }
}

static wait_result wait_for(patience *p, _Atomic uint32_t *word, uint32_t stamp)
{
    for (;;) {
        if (clv_stamp_reached(atomic_load_explicit(word, memory_order_acquire), stamp))
            return WAIT_OK;
        if (p->spins <= 0 || atomic_load_explicit(&p->world->failed, memory_order_relaxed))
            return sleep_on(p, word, stamp);
        p->spins--;
        clv_cpu_pause();
    }
}

static clv_line *line_of(const clv_group_set *set, int rank, uint32_t stamp)
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

/* The last to arrive opens the hub. Arrivals form one chain of read-modify-writes, so that opening it publishes what
 * every member published. */
static wait_result wait_hub(patience *p, clv_hub *hub, const clv_group *group, uint32_t stamp)
{
    uint32_t all = (stamp >> 1) * (uint32_t)group->n;
    uint32_t arrived = atomic_fetch_add_explicit(&hub->arrived, 1, memory_order_acq_rel) + 1;

    /* Half a stamp has 31 bits, so compare what is left after its wrap. */
    if ((arrived - all) << 1 == 0)
        clv_stamp_publish(&hub->word, stamp);
    return wait_for(p, &hub->word, stamp);
}

static clv_status fail_late(clv_thread_comm *comm, const clv_group *group, const clv_post *post, uint32_t stamp,
                            clv_error *err)
{
    const clv_world *world = comm->world;
    const clv_group_set *set = world->sets[group->set];
    clv_error error = {.code = CLV_ETIMEOUT, .rank = -1};
    char who[320] = "";
    size_t used = 0;
    int missing = 0;

    for (int i = 0; i < group->n; i++) {
        int rank = group->ranks[i];

        if (clv_stamp_reached(atomic_load_explicit(&line_of(set, rank, stamp)->word, memory_order_acquire), stamp))
            continue;
        if (missing++ == 0) {
            const char *note = atomic_load_explicit(&world->comms[rank].base.note, memory_order_acquire);

            error.rank = rank;
            snprintf(error.op, sizeof error.op, "%s", note ? note : "");
        }
        if (used < sizeof who - 1) {
            char one[160];

            clv_threads_describe(world, rank, one, sizeof one);
            used += (size_t)snprintf(who + used, sizeof who - used, "%s%s", used ? ", " : "", one);
        }
    }
    if (missing == 0) /* came while we were looking: late all the same, but say so */
        snprintf(who, sizeof who, "none now");
    snprintf(error.message, sizeof error.message, "rank %d waited %lld ms in %s of group set %d; missing %d of %d: %s",
             comm->base.rank, (long long)(world->timeout_ns / 1000000), clv_threads_op_name(post->op), group->set,
             missing, group->n, who);
    clv_threads_fail(comm->world, &error);
    return clv_threads_give_up(comm, err);
}

/* ---- did all come for the same thing? ---- */

static int same(const clv_post *a, const clv_post *b)
{
    return a->tag == b->tag && a->count == b->count && a->root == b->root && a->op == b->op && a->dtype == b->dtype &&
           a->reduction == b->reduction;
}

static void describe_post(const clv_world *world, int rank, const clv_post *post, char *out, size_t size)
{
    static const char *const reductions[] = {"", " sum", " max"};
    const char *note = atomic_load_explicit(&world->comms[rank].base.note, memory_order_acquire);

    snprintf(out, size, "rank %d calls %s of %s%s, count %lld, root %d, tag %llx ('%s')", rank,
             clv_threads_op_name(post->op), clv_dtype_name((clv_dtype)post->dtype), reductions[post->reduction],
             (long long)post->count, post->root, (unsigned long long)post->tag, note ? note : "no note");
}

/* Against member 0, so that every member finds the same pair. */
static clv_status check_posts(clv_thread_comm *comm, const clv_group *group, clv_error *err)
{
    const clv_post *first = clv_threads_post(comm, group, 0);

    for (int i = 1; i < group->n; i++) {
        const clv_post *post = clv_threads_post(comm, group, i);

        if (same(first, post))
            continue;
        clv_error error = {.code = CLV_EPEER, .rank = group->ranks[i]};
        const char *note = atomic_load_explicit(&comm->world->comms[error.rank].base.note, memory_order_acquire);
        char a[200], b[200];

        describe_post(comm->world, group->ranks[0], first, a, sizeof a);
        describe_post(comm->world, error.rank, post, b, sizeof b);
        snprintf(error.op, sizeof error.op, "%s", note ? note : "");
        snprintf(error.message, sizeof error.message, "calls of group set %d do not match: %s, %s", group->set, a, b);
        clv_threads_fail(comm->world, &error);
        return clv_threads_give_up(comm, err);
    }
    return CLV_OK;
}

clv_status clv_threads_mismatch(clv_thread_comm *comm, const clv_group *group, int i, const char *what, clv_error *err)
{
    clv_error error = {.code = CLV_EPEER, .rank = group->ranks[i]};
    const char *note = atomic_load_explicit(&comm->world->comms[error.rank].base.note, memory_order_acquire);

    snprintf(error.op, sizeof error.op, "%s", note ? note : "");
    snprintf(error.message, sizeof error.message, "%s", what);
    clv_threads_fail(comm->world, &error);
    return clv_threads_give_up(comm, err);
}

/* ---- the meeting ---- */

const clv_post *clv_threads_post(const clv_thread_comm *comm, const clv_group *group, int i)
{
    const clv_group_set *set = comm->world->sets[group->set];

    return &line_of(set, group->ranks[i], set->slots[comm->base.rank].stamp)->post;
}

void *clv_threads_stage(const clv_thread_comm *comm, const clv_group *group)
{
    const clv_group_set *set = comm->world->sets[group->set];
    size_t half = ((set->slots[comm->base.rank].stamp + 2) >> 1) & 1u;

    return set->stage + ((size_t)comm->base.rank * 2 + half) * CLV_STAGE_BYTES;
}

void clv_threads_leave(clv_thread_comm *comm, const clv_group *group)
{
    clv_slot *slot = &comm->world->sets[group->set]->slots[comm->base.rank];

    if (slot->views == 0)
        atomic_store_explicit(&slot->left, slot->stamp, memory_order_release);
}

clv_status clv_threads_meet(clv_thread_comm *comm, const clv_group *group, const clv_post *post, clv_error *err)
{
    clv_world *world = comm->world;
    clv_group_set *set = world->sets[group->set];
    clv_slot *slot = &set->slots[comm->base.rank];
    patience p = {.world = world, .spins = world->spins};

    if (atomic_load_explicit(&world->failed, memory_order_acquire))
        return clv_threads_give_up(comm, err);
    atomic_store_explicit(&comm->doing, post->op << 16 | (group->set & 0xffff), memory_order_relaxed);
    slot->stamp += 2;
    clv_line *line = line_of(set, comm->base.rank, slot->stamp);
    line->post = *post;
    clv_stamp_publish(&line->word, slot->stamp);

    wait_result result = world->spins > 0 && group->n <= FLAT_MEMBERS
                             ? wait_flat(&p, set, group, slot->stamp)
                             : wait_hub(&p, &set->hubs[set->hub_of[comm->base.rank]], group, slot->stamp);
    if (result == WAIT_LATE)
        return fail_late(comm, group, post, slot->stamp, err);
    /* All have come, but a member may have given up meanwhile and be about to free its buffers. It sets `failed` and
     * then looks at our line; we published and now look at `failed`: in the one order of these, one sees the other. */
    if (result == WAIT_FAILED || atomic_load_explicit(&world->failed, memory_order_seq_cst))
        return clv_threads_give_up(comm, err);
    return check_posts(comm, group, err);
}
