/* threads_fail.c - how a world of threads fails: once, for all, and without leaving a peer in freed memory. */
#include "comm/threads.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

enum { QUIESCE_NS = 80000000 };

static const char *const op_names[] = {
    [CLV_OP_BARRIER] = "barrier",
    [CLV_OP_ALL_REDUCE] = "all_reduce",
    [CLV_OP_REDUCE_SCATTER] = "reduce_scatter",
    [CLV_OP_ALL_GATHER] = "all_gather",
    [CLV_OP_ALL_TO_ALL] = "all_to_all",
    [CLV_OP_PERMUTE] = "permute",
    [CLV_OP_BROADCAST] = "broadcast",
    [CLV_OP_OPEN_VIEWS] = "open_views",
    [CLV_OP_CLOSE_VIEWS] = "close_views",
    [CLV_OP_FINISH] = "the end of a collective",
};

const char *clv_threads_op_name(int op)
{
    return op_names[op];
}

void clv_threads_describe(const clv_world *world, int rank, char *out, size_t size)
{
    const clv_thread_comm *comm = &world->comms[rank];
    const char *note = atomic_load_explicit(&comm->base.note, memory_order_acquire);
    int doing = atomic_load_explicit(&comm->doing, memory_order_relaxed);

    if (doing < 0)
        snprintf(out, size, "rank %d (no collective yet, noted '%s')", rank, note ? note : "nothing");
    else
        snprintf(out, size, "rank %d (last in %s of group set %d, noted '%s')", rank, op_names[doing >> 16],
                 doing & 0xffff, note ? note : "nothing");
}

void clv_threads_fail(clv_world *world, const clv_error *error)
{
    pthread_mutex_lock(&world->lock);
    if (!atomic_load_explicit(&world->failed, memory_order_relaxed)) {
        world->error = *error;
        clv_error_make_printable(&world->error);
        atomic_store_explicit(&world->failed, 1, memory_order_seq_cst);
    }
    pthread_mutex_unlock(&world->lock);

    for (int s = 0; s < world->n_sets; s++)
        for (int r = 0; r < world->ranks; r++) {
            clv_group_set *set = world->sets[s];

            clv_futex_wake_all(&set->slots[r].line[0].word);
            clv_futex_wake_all(&set->slots[r].line[1].word);
            clv_futex_wake_all(&set->hubs[set->hub_of[r]].word);
        }
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

        slot->views = 0;
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
