/* mpi_cards.c - steps between processes of one host, by the host's board (board.h). In each step of a group whose
 * members are all on this host each shows a card; where all their operands have room on cards nothing else is moved,
 * and MPI is not called. Others show cards without elements beside their messages, so that members that are in another
 * step are found by all. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/mpi_wire.h"
#include "tensor/view.h"

enum {
    SPINS = 100, /* looks, some 2 us, where there are cores for all: no more, as a peer may be on this core yet */
    LISTEN = 64, /* a waiter looks for failures of other hosts once in so many looks */
    SUMMED_BYTES = 16 << 20, /* of all addends: each member reads all; where there are more, slices by messages */
};

/* ---- preparing ---- */

static bool all_have_seats(const struct clv_mpi_wire *wire, const clv_group *group)
{
    bool all = wire->board && group->set < CLV_BOARD_SETS;
    for (int m = 0; all && m < group->n; m++)
        all = wire->seat[group->ranks[m]] >= 0;
    return all;
}

clv_status clv_mpi_prepare_cards(clv_mpi_plan *plan, const clv_transfer *t, int64_t *staging, clv_error *err)
{
    clv_mpi_cards *cards = &plan->cards;
    size_t n = (size_t)t->group->n;
    const clv_job *job = clv_mpi_wire_of(plan->base.comm)->job;
    int64_t size = (int64_t)clv_dtype_size(t->dtype);
    if (!all_have_seats(clv_mpi_wire_of(plan->base.comm), t->group))
        return CLV_OK;
    cards->members = calloc(n, sizeof *cards->members);
    cards->ins = calloc(n, sizeof *cards->ins);
    if (!cards->members || !cards->ins)
        return clv_fail_memory(err, "a step's cards", n * sizeof *cards->members);
    cards->hold = cards->shown = true;
    for (int m = 0; m < t->group->n; m++) {
        clv_mpi_member *its = &cards->members[m];
        its->operand = t->parts.in[m];
        its->bytes = clv_shard_elems(&its->operand) * size;
        its->gives = clv_move_between(&its->box, &t->parts, t->group->me, m);
        its->takes = clv_move_between(&its->taken, &t->parts, m, t->group->me);
        cards->hold = cards->hold && its->bytes <= job->room;
    }
    cards->reduces = t->parts.reduces;
    if (cards->reduces && clv_parts_all_get_all(&t->parts))
        cards->hold = cards->hold && cards->members[0].bytes * t->group->n <= SUMMED_BYTES;
    cards->size = (size_t)size;
    if (cards->hold && cards->reduces && !plan->base.out_device->backend->is_host)
        *staging = clv_shard_elems(&plan->base.out_shard) * size;
    return CLV_OK;
}

void clv_mpi_free_cards(clv_mpi_cards *cards)
{
    free(cards->members);
    free(cards->ins);
}

/* ---- running ---- */

/* Copies what members take of the operand to where it lies on a card. */
static clv_status fill_card(const clv_mpi_plan *plan, const clv_card *card, clv_error *err)
{
    const clv_device *device = plan->base.in_device;
    const clv_shard *operand = &plan->base.in_shard;
    void *elements = clv_board_elements(clv_mpi_wire_of(plan->base.comm)->board, card);
    bool all = false;
    for (int m = 0; m < plan->base.group->n && !all; m++) {
        const clv_mpi_member *its = &plan->cards.members[m];
        if (its->takes)
            CLV_TRY(device->backend->copy(device, CLV_COPY_TO_HOST, elements, operand, plan->base.in, operand,
                                          &its->taken, plan->cards.size, err));
        all = its->takes && clv_shard_equal(&its->taken, operand);
    }
    return CLV_OK;
}

clv_status clv_mpi_show_card(clv_mpi_plan *plan, void *staging, clv_error *err)
{
    const struct clv_mpi_wire *wire = clv_mpi_wire_of(plan->base.comm);
    int set = plan->base.group->set, seat = wire->seat[plan->base.comm->rank];
    clv_card *card = clv_board_next(wire->board, set, seat);
    size_t length = strnlen(plan->post.what, sizeof card->what - 1);
    card->tag = plan->post.tag;
    card->bytes = plan->cards.members[plan->base.group->me].bytes;
    memcpy(card->what, plan->post.what, length);
    card->what[length] = '\0';
    if (plan->cards.hold)
        CLV_TRY(fill_card(plan, card, err));
    if (plan->base.flies)
        card->shown_ns = clv_now_ns();
    plan->staging = staging;
    plan->cards.number = clv_board_show(wire->board, set, seat);
    for (int m = 0; m < plan->base.group->n; m++)
        plan->cards.members[m].card = NULL;
    return CLV_OK;
}

/* Holds what a card says against the step. */
static clv_status check_card(const clv_mpi_plan *plan, int member, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    const clv_mpi_member *its = &plan->cards.members[member];
    char *said = comm->world->mpi->said[comm->base.rank];
    if (its->card->tag == plan->post.tag && strncmp(its->card->what, plan->post.what, CLV_BOARD_WHAT - 1) == 0)
        return its->card->bytes == its->bytes ? CLV_OK
                                              : clv_threads_fail_bytes(comm, plan->base.group, &plan->post, member,
                                                                       its->bytes, its->card->bytes, err);
    memcpy(said, its->card->what, CLV_MPI_WHAT);
    said[CLV_MPI_WHAT - 1] = '\0';
    return clv_threads_fail_match(comm, plan->base.group, comm->base.rank, &plan->post, plan->base.group->ranks[member],
                                  &(clv_post){.what = said, .tag = its->card->tag}, err);
}

/* Looks once at the cards that were not seen yet; *missing: how many are not there. */
static clv_status look_at_cards(clv_mpi_plan *plan, int *missing, clv_error *err)
{
    const struct clv_mpi_wire *wire = clv_mpi_wire_of(plan->base.comm);
    const clv_group *group = plan->base.group;
    *missing = 0;
    for (int m = 0; m < group->n; m++) {
        clv_mpi_member *its = &plan->cards.members[m];
        if (its->card)
            continue;
        its->card = clv_board_look(wire->board, group->set, wire->seat[group->ranks[m]], plan->cards.number);
        if (!its->card) {
            (*missing)++;
            continue;
        }
        if (m == group->me)
            continue;
        if (plan->cards.hold && plan->base.flies && its->card->shown_ns > plan->base.there_ns)
            plan->base.there_ns = its->card->shown_ns;
        CLV_TRY(check_card(plan, m, err));
        if (plan->cards.hold)
            clv_recorder_hear(plan->base.comm->recorder, m, clv_shard_elems(&its->box) * (int64_t)plan->cards.size);
    }
    return CLV_OK;
}

static clv_status fail_late(const clv_mpi_plan *plan, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    for (int m = 0; m < plan->base.group->n; m++) {
        const clv_mpi_member *its = &plan->cards.members[m];
        comm->missing[m] = !its->card;
        if (!its->card && its->gives)
            comm->bytes[m] = (clv_bytes){.expected = clv_shard_elems(&its->box) * (int64_t)plan->cards.size};
    }
    return clv_threads_fail_late(comm, plan->base.group, &plan->post, err);
}

clv_status clv_mpi_await_cards(clv_mpi_plan *plan, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    clv_world *world = comm->world;
    clv_mpi_patience w = {.spins = world->spins > 0 ? SPINS : 0, .deadline = clv_deadline_in(world->timeout_ns)};
    for (bool late = false;; late = !clv_mpi_wait_a_little(&w)) { /* one more look at all, then */
        int missing;
        if (clv_world_failed(world, NULL) || clv_mpi_hear_board(world))
            return clv_threads_give_up(comm, err);
        CLV_TRY(look_at_cards(plan, &missing, err));
        if (missing == 0)
            return CLV_OK;
        bool told = (late || w.looks % LISTEN == LISTEN - 1) && clv_mpi_hear_failure(world);
        if (late && !told)
            return fail_late(plan, err);
    }
}

static clv_status reduce(const clv_mpi_plan *plan, clv_error *err)
{
    const struct clv_mpi_wire *wire = clv_mpi_wire_of(plan->base.comm);
    const clv_device *device = plan->base.out_device;
    const clv_shard *out = &plan->base.out_shard;
    bool is_host = device->backend->is_host;
    void *to = is_host ? plan->base.out : plan->staging;
    for (int m = 0; m < plan->base.group->n; m++)
        plan->cards.ins[m] = m == plan->base.group->me && plan->base.in_device->backend->is_host
                                 ? plan->base.in
                                 : clv_board_elements(wire->board, plan->cards.members[m].card);
    CLV_TRY(clv_device_host.backend->reduce(&clv_device_host, to, out, plan->cards.ins, plan->base.group->n,
                                            &plan->base.in_shard, out, plan->base.dtype, plan->base.reduction, err));
    if (is_host)
        return CLV_OK;
    return device->backend->copy(device, CLV_COPY_FROM_HOST, plan->base.out, out, to, out, out, plan->cards.size, err);
}

static clv_status take_cards(const clv_mpi_plan *plan, clv_error *err)
{
    const struct clv_mpi_wire *wire = clv_mpi_wire_of(plan->base.comm);
    const clv_device *device = plan->base.out_device;
    if (plan->cards.reduces)
        return reduce(plan, err);
    for (int m = 0; m < plan->base.group->n; m++) {
        const clv_mpi_member *its = &plan->cards.members[m];
        if (its->gives)
            CLV_TRY(device->backend->copy(device, CLV_COPY_FROM_HOST, plan->base.out, &plan->base.out_shard,
                                          clv_board_elements(wire->board, its->card), &its->operand, &its->box,
                                          plan->cards.size, err));
    }
    return CLV_OK;
}

clv_status clv_mpi_wait_cards(clv_mpi_plan *plan, clv_wait what, clv_error *err)
{
    clv_thread_comm *comm = (clv_thread_comm *)plan->base.comm;
    const clv_group *group = plan->base.group;
    int64_t began = clv_now_ns();
    if (what == CLV_WAIT_IN) { /* what is read is on the card */
        clv_threads_end(comm, group);
        return CLV_OK;
    }
    clv_threads_record_wait(comm, group, &plan->post, plan->base.take_bytes, clv_recorder_others(group->n, group->me),
                            began);
    CLV_TRY(clv_mpi_await_cards(plan, err));
    clv_comm_waited(&comm->base, began);
    clv_recorder_phase(comm->base.recorder, CLV_RECORD_MOVES);
    CLV_TRY(take_cards(plan, err));
    return clv_device_finish(plan->base.out_device, err);
}
