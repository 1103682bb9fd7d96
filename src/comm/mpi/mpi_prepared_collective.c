/* mpi_prepared_collective.c - prepares a collective over MPI: messages per peer, tags, staging offsets, all-reduce as
 * reduce-scatter + all-gather. */
#include <stdlib.h>

#include "base/error.h"
#include "comm/mpi/mpi_world.h"

enum { SMALL_REDUCE_BYTES = 64 << 10 }; /* an all_reduce in which a member sends no more than this has one phase */

void clv_mpi_release(clv_prepared_collective *base)
{
    clv_mpi_prepared_collective *prepared = (clv_mpi_prepared_collective *)base;
    if (!prepared)
        return;
    clv_mpi_prepared_collective_abandon(prepared);
    clv_threads_transport.release(prepared->threads);
    clv_shm_prepared_collective_free(&prepared->shm);
    for (int i = 0; i < CLV_MPI_PHASES; i++) {
        free(prepared->phases[i].sends);
        free(prepared->phases[i].receives);
        free(prepared->phases[i].local);
        free(prepared->phases[i].ins);
        free(prepared->phases[i].requests);
    }
    free(prepared);
}

static int64_t reserve_staging(clv_mpi_prepared_collective *prepared, int64_t bytes)
{
    int64_t at = prepared->staging_bytes;
    prepared->staging_bytes += (bytes + CLV_CACHE_LINE - 1) / CLV_CACHE_LINE * CLV_CACHE_LINE;
    return at;
}

/* Whether the elements of a box are contiguous in a shard. */
static bool is_contiguous(const clv_shard *box, const clv_shard *shard)
{
    int d = 0;
    while (d < box->rank && box->hi[d] - box->lo[d] == 1)
        d++;
    for (d++; d < box->rank; d++)
        if (box->lo[d] != shard->lo[d] || box->hi[d] != shard->hi[d])
            return false;
    return true;
}

int64_t clv_box_offset(const clv_shard *box, const clv_shard *shard)
{
    int64_t at = 0;
    for (int d = 0; d < box->rank; d++)
        at = at * (shard->hi[d] - shard->lo[d]) + (box->lo[d] - shard->lo[d]);
    return at;
}

static int64_t bytes_of(const clv_mpi_prepared_collective *prepared, const clv_shard *box)
{
    return clv_shard_elems(box) * (int64_t)clv_dtype_size(prepared->base.dtype);
}

/* The tag of messages from world rank `from` to `to`. */
static int tag_of(const clv_world *world, int group_set, int from, int to)
{
    const struct clv_mpi_world *state = world->mpi;
    int a = from - world->first_ranks[clv_world_process_of(world, from)],
        b = to - world->first_ranks[clv_world_process_of(world, to)];
    return 1 + (group_set % state->n_tagged_sets * state->max_local_ranks + a) * state->max_local_ranks + b;
}

/* Process of each member; NULL: out of memory. */
static int *find_processes(const clv_group *group, const clv_world *world)
{
    int *process = malloc((size_t)group->n * sizeof *process);
    for (int m = 0; process && m < group->n; m++)
        process[m] = clv_world_process_of(world, group->ranks[m]);
    return process;
}

/* Whether a member is the first of its process. The first members of two processes always exchange a message, so that
 * all processes learn which collective the others are in. */
static bool is_first(const int *process, int member)
{
    for (int m = 0; m < member; m++)
        if (process[m] == process[member])
            return false;
    return true;
}

/* Lists the messages that this member sends, or receives and the local reads. */
static void list_messages(clv_mpi_phase *ph, const clv_group_shards *parts, const int *process, int me, bool sends)
{
    clv_mpi_message *list = sends ? ph->sends : ph->receives;
    int n = 0;
    for (int k = 1; k < parts->n; k++) {
        int peer = (me + k) % parts->n;
        clv_receive_route way;
        bool moves = clv_find_receive_route(&way, parts, process, sends ? peer : me, sends ? me : peer);
        bool by_message = moves && way.by == (sends ? peer : me);
        if (moves && !sends && !by_message)
            ph->local[ph->n_local++] = (clv_mpi_local_read){.route = way};
        if (by_message)
            list[n++].move = (clv_transfer_box){.peer = peer, .box = way.box};
        else if (process[peer] != process[me] && is_first(process, me) && is_first(process, peer))
            list[n++].move = (clv_transfer_box){.peer = peer, .box = {.rank = 1}};
    }
    *(sends ? &ph->n_sends : &ph->n_receives) = n;
}

static void set_size(clv_mpi_message *p, const clv_world *world, int64_t bytes)
{
    const int64_t piece = world->mpi->job->max_message_bytes;
    p->bytes = bytes;
    p->n_requests = 1 + (bytes <= CLV_MPI_EAGER_BYTES ? 0 : (int)((bytes + piece - 1) / piece));
}

void clv_mpi_set_span_sizes(clv_mpi_prepared_collective *prepared)
{
    const clv_world *world = prepared->base.comm->world;
    for (int i = 0; i < prepared->phases->n_sends; i++)
        set_size(&prepared->phases->sends[i], world, prepared->base.sends[prepared->phases->sends[i].move.peer].bytes);
    for (int i = 0; i < prepared->phases->n_receives; i++)
        set_size(&prepared->phases->receives[i], world,
                 prepared->base.receives[prepared->phases->receives[i].move.peer].bytes);
}

/* Places a message in staging; in_place: its box is contiguous in host memory, or a span is. */
static void lay_out_message(clv_mpi_prepared_collective *prepared, clv_mpi_message *p, const clv_world *world,
                            bool sends, bool in_place)
{
    int me = prepared->base.comm->rank, peer = prepared->base.group->ranks[p->move.peer];
    const clv_span *spans = sends ? prepared->base.sends : prepared->base.receives;
    set_size(p, world, spans ? spans[p->move.peer].bytes : bytes_of(prepared, &p->move.box));
    p->first = reserve_staging(prepared, CLV_MPI_FIRST_MESSAGE_BYTES);
    p->at = p->bytes <= CLV_MPI_EAGER_BYTES || in_place ? -1 : reserve_staging(prepared, p->bytes);
    p->process = clv_world_process_of(world, peer);
    p->tag = sends ? tag_of(world, prepared->base.group->group_set, me, peer)
                   : tag_of(world, prepared->base.group->group_set, peer, me);
}

static void place_requests(clv_mpi_message *messages, int n, clv_mpi_request **next)
{
    for (int i = 0; i < n; i++) {
        messages[i].requests = *next;
        *next += messages[i].n_requests;
    }
}

/* Allocates lists for the largest possible numbers of entries. */
static clv_status make_lists(clv_mpi_phase *ph, int members, clv_error *err)
{
    size_t n = (size_t)members;
    ph->sends = calloc(n, sizeof *ph->sends);
    ph->receives = calloc(n, sizeof *ph->receives);
    ph->local = calloc(n, sizeof *ph->local);
    if (ph->reduces)
        ph->ins = calloc(n, sizeof *ph->ins);
    if (ph->sends && ph->receives && ph->local && (!ph->reduces || ph->ins))
        return CLV_OK;
    return clv_fail_memory(err, "a collective's plan", n * 2 * sizeof *ph->sends);
}

/* Places the own box and local reads in staging, where they need it. */
static void lay_out_local(clv_mpi_prepared_collective *prepared, clv_mpi_phase *ph, bool in_host, bool out_host)
{
    bool contiguous = ph->has_own ? is_contiguous(&ph->own, &ph->in_shard) : true;
    bool direct = in_host && out_host && (!ph->reduces || contiguous);
    ph->own_at = !ph->has_own || direct ? -1 : reserve_staging(prepared, bytes_of(prepared, &ph->own));
    for (int i = 0; i < ph->n_local; i++) {
        clv_mpi_local_read *local = &ph->local[i];
        local->at =
            local->route.by >= 0 || direct ? -1 : reserve_staging(prepared, bytes_of(prepared, &local->route.box));
    }
}

static clv_status lay_out_all(clv_mpi_prepared_collective *prepared, clv_mpi_phase *ph, clv_error *err)
{
    const clv_world *world = prepared->base.comm->world;
    bool in_host =
        ph->slices ? prepared->base.out_device->backend->is_host : prepared->base.in_device->backend->is_host;
    bool out_host = prepared->base.out_device->backend->is_host;
    int64_t requests = 0;
    for (int i = 0; i < ph->n_sends; i++) {
        clv_mpi_message *p = &ph->sends[i];
        lay_out_message(prepared, p, world, true,
                        prepared->base.sends || (in_host && is_contiguous(&p->move.box, &ph->in_shard)));
        requests += p->n_requests;
    }
    for (int i = 0; i < ph->n_receives; i++) {
        clv_mpi_message *p = &ph->receives[i];
        lay_out_message(prepared, p, world, false,
                        prepared->base.sends ||
                            (!ph->reduces && out_host && is_contiguous(&p->move.box, &ph->out_shard)));
        requests += p->n_requests;
    }
    lay_out_local(prepared, ph, in_host, out_host);
    ph->requests = calloc((size_t)requests + 1, sizeof *ph->requests);
    if (!ph->requests)
        return clv_fail_memory(err, "a collective's plan", (size_t)requests * sizeof *ph->requests);
    clv_mpi_request *next = ph->requests;
    place_requests(ph->sends, ph->n_sends, &next);
    place_requests(ph->receives, ph->n_receives, &next);
    return CLV_OK;
}

static clv_status prepare_phase(clv_mpi_prepared_collective *prepared, clv_mpi_phase *ph, const clv_group_shards *parts,
                                clv_error *err)
{
    const clv_group *group = prepared->base.group;
    clv_receive_route own;
    ph->reduces = parts->reduces;
    ph->in_shard = parts->in[group->me];
    ph->out_shard = parts->out[group->me];
    CLV_TRY(make_lists(ph, group->n, err));
    int *process = find_processes(group, prepared->base.comm->world);
    if (!process)
        return clv_fail_memory(err, "a collective's plan", (size_t)group->n * sizeof *process);
    list_messages(ph, parts, process, group->me, true);
    list_messages(ph, parts, process, group->me, false);
    ph->has_own = !ph->slices && clv_find_receive_route(&own, parts, process, group->me,
                                                        group->me); /* a slice is in the result already */
    if (ph->has_own)
        ph->own = own.box;
    free(process);
    return lay_out_all(prepared, ph, err);
}

/* Plans a large all_reduce: reduces a slice per member, then gathers the slices. */
static clv_status prepare_slices(clv_mpi_prepared_collective *prepared, int64_t elems, clv_error *err)
{
    int n = prepared->base.group->n, me = prepared->base.group->me;
    int64_t size = (int64_t)clv_dtype_size(prepared->base.dtype);
    clv_shard *whole = calloc(2 * (size_t)n, sizeof *whole), *slice = whole + n;
    if (!whole)
        return clv_fail_memory(err, "a collective's slices", 2 * (size_t)n * sizeof *whole);
    for (int m = 0; m < n; m++) {
        whole[m] = (clv_shard){.rank = 1, .hi = {elems}};
        slice[m].rank = 1;
        clv_block_range(elems, 1, n, m, &slice[m].lo[0], &slice[m].hi[0]);
    }
    prepared->n_phases = 2;
    prepared->phases[0].out_at = prepared->phases[1].in_at = slice[me].lo[0] * size;
    prepared->phases[1].slices = true;
    clv_status status = prepare_phase(prepared, &prepared->phases[0],
                                      &(clv_group_shards){.n = n, .reduces = true, .in = whole, .out = slice}, err);
    if (status == CLV_OK)
        status =
            prepare_phase(prepared, &prepared->phases[1], &(clv_group_shards){.n = n, .in = slice, .out = whole}, err);
    free(whole);
    return status;
}

/* A message to and from each rank of other processes. */
static clv_status prepare_spans(clv_mpi_prepared_collective *prepared, clv_error *err)
{
    const clv_group *group = prepared->base.group;
    clv_mpi_phase *ph = prepared->phases;
    CLV_TRY(make_lists(ph, group->n, err));
    for (int k = 1; k < group->n; k++) {
        const clv_transfer_box move = {.peer = (group->me + k) % group->n, .box = {.rank = 1}};
        if (clv_world_is_local(prepared->base.comm->world, group->ranks[move.peer]))
            continue;
        ph->sends[ph->n_sends++].move = move;
        ph->receives[ph->n_receives++].move = move;
    }
    return lay_out_all(prepared, ph, err);
}

static clv_status prepare_messages(clv_mpi_prepared_collective *prepared, const clv_group_shards *parts, clv_error *err)
{
    prepared->n_phases = 1;
    if (prepared->base.sends)
        return prepare_spans(prepared, err);
    int64_t elems = clv_shard_elems(&prepared->base.in_shard), size = (int64_t)clv_dtype_size(prepared->base.dtype);
    if (parts->reduces && clv_group_shards_is_all_reduce(parts) && elems * size * (parts->n - 1) > SMALL_REDUCE_BYTES)
        return prepare_slices(prepared, elems, err);
    return prepare_phase(prepared, &prepared->phases[0], parts, err);
}

clv_status clv_mpi_prepare(clv_prepared_collective **out, clv_comm *comm, const clv_transfer *t, int64_t *staging,
                           clv_error *err)
{
    clv_mpi_prepared_collective *prepared = calloc(1, sizeof *prepared);
    if (!prepared)
        return clv_fail_memory(err, "a collective's plan", sizeof *prepared);
    *prepared = (clv_mpi_prepared_collective){.base = clv_prepared_collective_init(comm, t),
                                              .desc = {.what = t->what, .tag = t->tag}};
    prepared->local = clv_group_in_process(comm, t->group);
    bool is_local = prepared->local->n == t->group->n;
    clv_status status = is_local
                            ? clv_threads_transport.prepare(&prepared->threads, comm, t, &prepared->staging_bytes, err)
                            : clv_shm_prepare(prepared, t, &prepared->staging_bytes, err);
    if (status == CLV_OK && !is_local && !prepared->shm.in_slots)
        status = prepare_messages(prepared, &t->parts, err);
    if (status != CLV_OK) {
        clv_mpi_release(&prepared->base);
        return status;
    }
    if (prepared->n_phases > 0)
        prepared->base.receive_bytes = 0;
    for (int k = 0; k < prepared->n_phases; k++)
        for (int i = 0; i < prepared->phases[k].n_receives; i++)
            prepared->base.receive_bytes += prepared->phases[k].receives[i].bytes;
    *staging = prepared->staging_bytes;
    *out = &prepared->base;
    return CLV_OK;
}
