/* shm_transport.c - collectives among processes of one host through slots of the shared-memory segment, without MPI.
 * In each collective of a group whose members are all on this host each publishes a slot. If all operands fit into
 * slots nothing else is moved and MPI is not called. Else the slots have no elements and only serve to find mismatches;
 * the elements are sent as messages.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/mpi/mpi_world.h"
#include "tensor/box_copy.h"

enum {
    SPINS = 100,        /* polls, some 2 us, before a waiter yields, if there are cores for all ranks */
    FAILURE_POLLS = 64, /* a waiter polls for failures of other processes once in so many polls */
    MAX_ADDEND_BYTES =
        16 << 20, /* of all addends of an all_reduce, each of which every member reads; larger ones go by messages */
};

/* ---- preparing ---- */

static bool all_on_host(const struct clv_mpi_world *state, const clv_group *group)
{
    bool all = state->segment && group->group_set < CLV_SHM_GROUP_SETS;
    for (int m = 0; all && m < group->n; m++)
        all = state->shm_index[group->ranks[m]] >= 0;
    return all;
}

clv_status clv_shm_prepare(clv_mpi_prepared_collective *prepared, const clv_transfer *t, int64_t *staging,
                           clv_error *err)
{
    clv_shm_prepared_collective *shm = &prepared->shm;
    size_t n = (size_t)t->group->n;
    const clv_job *job = prepared->base.comm->world->mpi->job;
    int64_t size = (int64_t)clv_dtype_size(t->dtype);
    if (t->sends || !all_on_host(prepared->base.comm->world->mpi, t->group))
        return CLV_OK;
    shm->members = calloc(n, sizeof *shm->members);
    shm->ins = calloc(n, sizeof *shm->ins);
    if (!shm->members || !shm->ins)
        return clv_fail_memory(err, "a collective's slots", n * sizeof *shm->members);
    shm->in_slots = shm->publishes = true;
    for (int m = 0; m < t->group->n; m++) {
        clv_shm_member *its = &shm->members[m];
        its->operand = t->parts.in[m];
        its->bytes = clv_shard_elems(&its->operand) * size;
        its->receives = clv_find_transfer_box(&its->receive, &t->parts, t->group->me, m);
        its->sends = clv_find_transfer_box(&its->send, &t->parts, m, t->group->me);
        shm->in_slots = shm->in_slots && its->bytes <= job->max_shm_bytes;
    }
    shm->reduces = t->parts.reduces;
    if (shm->reduces && clv_group_shards_is_all_reduce(&t->parts))
        shm->in_slots = shm->in_slots && shm->members[0].bytes * t->group->n <= MAX_ADDEND_BYTES;
    shm->size = (size_t)size;
    if (shm->in_slots && shm->reduces && !prepared->base.out_device->backend->is_host)
        *staging = clv_shard_elems(&prepared->base.out_shard) * size;
    return CLV_OK;
}

void clv_shm_prepared_collective_free(clv_shm_prepared_collective *shm)
{
    free(shm->members);
    free(shm->ins);
}

/* ---- running ---- */

/* Copies the boxes that members need from the operand to the slot. */
static clv_status fill_slot(const clv_mpi_prepared_collective *prepared, const clv_shm_slot *slot, clv_error *err)
{
    const clv_device *device = prepared->base.in_device;
    const clv_shard *operand = &prepared->base.in_shard;
    void *elements = clv_shm_slot_elements(prepared->base.comm->world->mpi->segment, slot);
    bool all = false;
    for (int m = 0; m < prepared->base.group->n && !all; m++) {
        const clv_shm_member *its = &prepared->shm.members[m];
        if (its->sends)
            CLV_TRY(device->backend->copy(device, CLV_COPY_TO_HOST, elements, operand, prepared->base.in, operand,
                                          &its->send, prepared->shm.size, err));
        all = its->sends && clv_shard_equal(&its->send, operand);
    }
    return CLV_OK;
}

clv_status clv_shm_start(clv_mpi_prepared_collective *prepared, void *staging, clv_error *err)
{
    const struct clv_mpi_world *state = prepared->base.comm->world->mpi;
    int group_set = prepared->base.group->group_set, index = state->shm_index[prepared->base.comm->rank];
    clv_shm_slot *slot = clv_shm_next_slot(state->segment, group_set, index);
    size_t length = strnlen(prepared->desc.what, sizeof slot->what - 1);
    slot->tag = prepared->desc.tag;
    slot->bytes = prepared->shm.members[prepared->base.group->me].bytes;
    memcpy(slot->what, prepared->desc.what, length);
    slot->what[length] = '\0';
    if (prepared->shm.in_slots)
        CLV_TRY(fill_slot(prepared, slot, err));
    if (prepared->base.overlapped)
        slot->published_ns = clv_now_ns();
    prepared->staging = staging;
    prepared->shm.number = clv_shm_publish_slot(state->segment, group_set, index);
    for (int m = 0; m < prepared->base.group->n; m++)
        prepared->shm.members[m].slot = NULL;
    return CLV_OK;
}

/* Reads the slots that were not published before; *missing: number of those that still are not. */
static clv_status read_slots(clv_mpi_prepared_collective *prepared, int *missing, clv_error *err)
{
    const struct clv_mpi_world *state = prepared->base.comm->world->mpi;
    const clv_group *group = prepared->base.group;
    *missing = 0;
    for (int m = 0; m < group->n; m++) {
        clv_shm_member *its = &prepared->shm.members[m];
        if (its->slot)
            continue;
        its->slot = clv_shm_read_slot(state->segment, group->group_set, state->shm_index[group->ranks[m]],
                                      prepared->shm.number);
        if (!its->slot) {
            (*missing)++;
            continue;
        }
        if (m == group->me)
            continue;
        if (prepared->shm.in_slots && prepared->base.overlapped && its->slot->published_ns > prepared->base.arrived_ns)
            prepared->base.arrived_ns = its->slot->published_ns;
        CLV_TRY(
            clv_mpi_check_peer(prepared, m, true, its->slot->tag, its->slot->what, its->bytes, its->slot->bytes, err));
        if (prepared->shm.in_slots)
            clv_recorder_receive(prepared->base.comm->recorder, m,
                                 clv_shard_elems(&its->receive) * (int64_t)prepared->shm.size);
    }
    return CLV_OK;
}

static clv_status fail_late(const clv_mpi_prepared_collective *prepared, clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    for (int m = 0; m < prepared->base.group->n; m++) {
        const clv_shm_member *its = &prepared->shm.members[m];
        comm->missing[m] = !its->slot;
        if (!its->slot && its->receives)
            comm->bytes[m] =
                (clv_byte_progress){.expected = clv_shard_elems(&its->receive) * (int64_t)prepared->shm.size};
    }
    return clv_world_fail_timeout(comm, prepared->base.group, &prepared->desc, err);
}

clv_status clv_shm_await_members(clv_mpi_prepared_collective *prepared, clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    clv_world *world = comm->world;
    clv_mpi_backoff w = {.spins = world->spins > 0 ? SPINS : 0, .deadline = clv_deadline_after(world->timeout_ns)};
    for (bool late = false;; late = !clv_mpi_backoff_pause(&w)) { /* then polls once more */
        int missing;
        if (clv_world_has_failed(world, NULL))
            return clv_collective_give_up(comm, err);
        CLV_TRY(read_slots(prepared, &missing, err));
        if (missing == 0)
            return CLV_OK;
        bool failed_elsewhere = (late || w.polls % FAILURE_POLLS == FAILURE_POLLS - 1) && clv_mpi_poll_failure(world);
        if (late && !failed_elsewhere)
            return fail_late(prepared, err);
    }
}

static clv_status reduce(const clv_mpi_prepared_collective *prepared, clv_error *err)
{
    const struct clv_mpi_world *state = prepared->base.comm->world->mpi;
    const clv_device *device = prepared->base.out_device;
    const clv_shard *out = &prepared->base.out_shard;
    bool is_host = device->backend->is_host;
    void *to = is_host ? prepared->base.out : prepared->staging;
    for (int m = 0; m < prepared->base.group->n; m++)
        prepared->shm.ins[m] = m == prepared->base.group->me && prepared->base.in_device->backend->is_host
                                   ? prepared->base.in
                                   : clv_shm_slot_elements(state->segment, prepared->shm.members[m].slot);
    CLV_TRY(clv_device_host.backend->reduce(&clv_device_host, to, out, prepared->shm.ins, prepared->base.group->n,
                                            &prepared->base.in_shard, out, prepared->base.dtype,
                                            prepared->base.reduction, err));
    if (is_host)
        return CLV_OK;
    return device->backend->copy(device, CLV_COPY_FROM_HOST, prepared->base.out, out, to, out, out, prepared->shm.size,
                                 err);
}

static clv_status copy_from_slots(const clv_mpi_prepared_collective *prepared, clv_error *err)
{
    const struct clv_mpi_world *state = prepared->base.comm->world->mpi;
    const clv_device *device = prepared->base.out_device;
    if (prepared->shm.reduces)
        return reduce(prepared, err);
    for (int m = 0; m < prepared->base.group->n; m++) {
        const clv_shm_member *its = &prepared->shm.members[m];
        if (its->receives)
            CLV_TRY(device->backend->copy(device, CLV_COPY_FROM_HOST, prepared->base.out, &prepared->base.out_shard,
                                          clv_shm_slot_elements(state->segment, its->slot), &its->operand,
                                          &its->receive, prepared->shm.size, err));
    }
    return CLV_OK;
}

clv_status clv_shm_wait(clv_mpi_prepared_collective *prepared, clv_wait what, clv_error *err)
{
    clv_comm *comm = prepared->base.comm;
    const clv_group *group = prepared->base.group;
    int64_t began = clv_now_ns();
    if (what == CLV_WAIT_INPUT_REUSABLE) { /* peers read the slot */
        clv_collective_end(comm, group);
        return CLV_OK;
    }
    clv_collective_record_wait(comm, group, &prepared->desc, prepared->base.receive_bytes,
                               clv_recorder_peer_mask(group->n, group->me), began);
    CLV_TRY(clv_shm_await_members(prepared, err));
    clv_comm_add_wait(comm, began);
    clv_recorder_set_phase(comm->recorder, CLV_RECORD_TRANSFERRING);
    CLV_TRY(copy_from_slots(prepared, err));
    return clv_device_synchronize(prepared->base.out_device, err);
}
