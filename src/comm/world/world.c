/* world.c - creates and frees a world of ranks; registers group sets (process groups). */
#include "comm/world/world.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/hardware/resource_limits.h"

enum { SPINS = 4000 }; /* pauses, some 100 us together: longer than a wake-up takes */

static bool should_spin(int option, int ranks, const clv_process_links *links)
{
    int cores = links && links->cores > 0 ? links->cores : clv_usable_cpus();

    return option >= 0 ? option != 0 : ranks <= cores;
}

static void free_set(clv_group_set *group_set)
{
    if (!group_set)
        return;
    free(group_set->view);
    free(group_set->members);
    free(group_set->local);
    free(group_set->local_members);
    free(group_set->counter_of);
    free(group_set->slots);
    free(group_set->counters);
    free(group_set);
}

static void free_world(clv_world *world)
{
    if (world->opened && world->transport->close)
        world->transport->close(world);
    for (int s = 0; s < world->n_sets; s++)
        free_set(world->sets[s]);
    for (int r = 0; world->comms && r < world->ranks; r++) {
        free(world->comms[r].missing);
        free(world->comms[r].bytes);
        free(world->comms[r].recorder);
    }
    free(world->sets);
    free(world->comms);
    free(world->first_ranks);
    clv_copied_names_free(world->copied_names);
    pthread_mutex_destroy(&world->lock);
    free(world);
}

/* Assigns ranks to processes; without links all are in this one. */
static clv_status place_ranks(clv_world *world, const clv_process_links *links, clv_error *err)
{
    world->processes = links ? links->processes : 1;
    world->me = links ? links->me : 0;
    if (links && (links->processes < 1 || links->me < 0 || links->me >= links->processes || links->first[0] != 0 ||
                  links->first[links->processes] != world->ranks))
        return clv_fail(err, CLV_EINVAL, "the process links %d of %d do not fit %d ranks", links->me, links->processes,
                        world->ranks);
    world->first_ranks = calloc((size_t)world->processes + 1, sizeof *world->first_ranks);
    if (!world->first_ranks)
        return clv_fail_memory(err, "a world's processes", (size_t)world->processes * sizeof *world->first_ranks);
    for (int p = 0; p <= world->processes; p++)
        world->first_ranks[p] = links ? links->first[p] : p * world->ranks;
    for (int p = 0; p < world->processes; p++)
        if (world->first_ranks[p + 1] <= world->first_ranks[p])
            return clv_fail(err, CLV_EINVAL, "process %d has no rank", p);
    world->first_local = world->first_ranks[world->me];
    world->n_local = world->first_ranks[world->me + 1] - world->first_local;
    return CLV_OK;
}

static clv_status make_recorders(clv_world *world, clv_error *err)
{
    for (int r = world->first_local; r < world->first_local + world->n_local; r++) {
        clv_recorder *recorder = clv_cache_line_alloc(1, sizeof *recorder);
        if (!recorder)
            return clv_fail_memory(err, "a rank's flight recorder", sizeof *recorder);
        recorder->first_ticks = clv_ticks();
        recorder->first_ns = clv_now_ns();
        world->comms[r].recorder = recorder;
    }
    return CLV_OK;
}

void clv_world_copy_names(clv_world *world)
{
    pthread_mutex_lock(&world->lock); /* another process may query activities */
    for (int r = world->first_local; r < world->first_local + world->n_local; r++) {
        clv_recorder_copy_names(world->comms[r].recorder, &world->copied_names);
        atomic_store_explicit(&world->comms[r].activity, NULL, memory_order_relaxed);
    }
    pthread_mutex_unlock(&world->lock);
}

clv_status clv_world_new(clv_world **out, int ranks, const clv_world_options *options, clv_error *err)
{
    static const clv_world_options defaults = {.spin = -1};

    if (!options)
        options = &defaults;
    if (ranks < 1 || options->timeout_ms < 0)
        return clv_fail(err, CLV_EINVAL, "a world needs ranks >= 1 and a timeout >= 0 ms, not %d and %lld", ranks,
                        (long long)options->timeout_ms);
    const clv_transport *transport;
    CLV_TRY(clv_transport_find(&transport, options->transport, err));
    clv_world *world = clv_cache_line_alloc(1, sizeof *world);
    if (!world)
        return clv_fail_memory(err, "a world", sizeof *world);
    world->transport = transport;
    world->seed = options->seed;
    world->pool = options->pool;
    world->ranks = ranks;
    world->timeout_ns = clv_timeout_ms_to_ns(options->timeout_ms);
    pthread_mutex_init(&world->lock, NULL);
    world->comms = clv_cache_line_alloc((size_t)ranks, sizeof *world->comms);
    int ok = world->comms != NULL;
    for (int r = 0; ok && r < ranks; r++) {
        clv_comm *comm = &world->comms[r];

        comm->rank = r;
        comm->world = world;
        comm->missing = calloc(2 * (size_t)ranks, sizeof *comm->missing);
        comm->bytes = calloc((size_t)ranks, sizeof *comm->bytes);
        ok = comm->missing && comm->bytes;
    }
    clv_status status = ok ? CLV_OK : clv_fail_memory(err, "a world's ranks", (size_t)ranks * sizeof(clv_comm));
    if (status == CLV_OK && options->links && !transport->notify_failure)
        status = clv_fail(err, CLV_EUNSUPPORTED, "the transport '%s' does not reach other processes", transport->name);
    if (status == CLV_OK)
        status = place_ranks(world, options->links, err);
    if (status == CLV_OK)
        status = make_recorders(world, err);
    world->spins = should_spin(options->spin, world->n_local, options->links) ? SPINS : 0;
    world->opened = status == CLV_OK;
    if (world->opened && transport->open)
        status = transport->open(world, options->links, err);
    if (status != CLV_OK) {
        free_world(world);
        return status;
    }
    *out = world;
    return CLV_OK;
}

static bool is_busy(const clv_world *world)
{
    for (int s = 0; s < world->n_sets; s++)
        for (int r = 0; r < world->ranks; r++)
            if (clv_slot_is_in_collective(&world->sets[s]->slots[r]))
                return true;
    return false;
}

void clv_world_free(clv_world *world)
{
    if (!world)
        return;
    clv_deadline deadline = clv_deadline_after(world->timeout_ns);

    while (is_busy(world)) {
        if (clv_deadline_remaining(&deadline) == 0) { /* leaks it: a late rank still uses it */
            if (world->transport->leak)
                world->transport->leak(world);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    free_world(world);
}

const clv_transport *clv_world_transport(const clv_world *world)
{
    return world->transport;
}

clv_comm *clv_world_comm(clv_world *world, int rank)
{
    return clv_world_is_local(world, rank) ? &world->comms[rank] : NULL;
}

uint64_t clv_world_collectives_begun(const clv_world *world, int rank)
{
    return atomic_load_explicit(&world->comms[rank].collectives_begun, memory_order_relaxed);
}

bool clv_world_is_process_leader(const clv_world *world, int rank)
{
    return world->first_ranks[clv_world_process_of(world, rank)] == rank;
}

int clv_world_process_count(const clv_world *world)
{
    return world->processes;
}

int clv_world_process_index(const clv_world *world)
{
    return world->me;
}

const clv_recorder *clv_world_recorder(const clv_world *world, int rank)
{
    return world->comms[rank].recorder;
}

bool clv_world_is_busy(const clv_world *world, int rank)
{
    return atomic_load_explicit(&world->comms[rank].busy, memory_order_relaxed);
}

int clv_world_group_set_count(const clv_world *world)
{
    return world->n_sets;
}

const clv_group *clv_world_group(const clv_world *world, int group_set, int rank)
{
    return &world->sets[group_set]->view[rank];
}

void clv_world_group_set_progress(uint64_t *begun, uint64_t *ended, const clv_world *world, int group_set, int rank)
{
    const clv_slot *slot = &world->sets[group_set]->slots[rank];

    *ended = atomic_load_explicit(&slot->ended, memory_order_relaxed);
    *begun = atomic_load_explicit(&slot->begun, memory_order_relaxed);
}

/* ---- endpoints ---- */

const clv_group *clv_comm_group(const clv_comm *comm, int group_set)
{
    return group_set >= 0 && group_set < comm->world->n_sets ? &comm->world->sets[group_set]->view[comm->rank] : NULL;
}

void clv_comm_set_activity(clv_comm *comm, const char *op)
{
    /* Release: the string may have been written since the last barrier. */
    atomic_store_explicit(&comm->activity, op, memory_order_release);
}

void clv_comm_begin_instruction(clv_comm *comm, const char *name, const char *kind, int instruction)
{
    clv_comm_set_activity(comm, name);
    clv_recorder_begin(comm->recorder, name, kind, instruction);
}

void clv_comm_end_instruction(clv_comm *comm)
{
    clv_recorder_idle(comm->recorder);
}

void clv_comm_set_busy(clv_comm *comm, bool busy)
{
    atomic_store_explicit(&comm->busy, busy, memory_order_relaxed);
}

int64_t clv_comm_take_wait_ns(clv_comm *comm)
{
    int64_t waited = comm->waited_ns;

    comm->waited_ns = 0;
    return waited;
}

void clv_comm_set_wait_log(clv_comm *comm, clv_wait_log *waits)
{
    comm->waits = waits;
}

/* ---- groups ---- */

static clv_group_set *new_set(int ranks, int id)
{
    clv_group_set *group_set = calloc(1, sizeof *group_set);
    size_t n = (size_t)ranks;

    if (!group_set)
        return NULL;
    group_set->view = calloc(n, sizeof *group_set->view);
    group_set->members = calloc(n, sizeof *group_set->members);
    group_set->local = calloc(n, sizeof *group_set->local);
    group_set->local_members = calloc(n, sizeof *group_set->local_members);
    group_set->counter_of = calloc(n, sizeof *group_set->counter_of);
    group_set->slots = clv_cache_line_alloc(n, sizeof *group_set->slots);
    group_set->counters = clv_cache_line_alloc(n, sizeof *group_set->counters);
    if (!group_set->view || !group_set->members || !group_set->local || !group_set->local_members ||
        !group_set->counter_of || !group_set->slots || !group_set->counters) {
        free_set(group_set);
        return NULL;
    }
    for (int r = 0; r < ranks; r++) {
        group_set->view[r].group_set = id;
        atomic_init(&group_set->slots[r].line[1].word, (uint32_t)-2); /* the barrier before the first */
    }
    return group_set;
}

/* Fills members, views and counters; false: `order` is not 0..n-1 within each group. */
static bool fill_set(clv_group_set *group_set, int ranks, const int *group_of, const int *order)
{
    int first = 0;

    memset(group_set->members, 0xff, (size_t)ranks * sizeof *group_set->members);
    for (int g = 0; g < ranks; g++) {
        int n = 0;

        for (int r = 0; r < ranks; r++)
            n += group_of[r] == g;
        for (int r = 0, next = 0; r < ranks; r++) {
            if (group_of[r] != g)
                continue;
            int me = order ? order[r] : next++;

            if (me < 0 || me >= n || group_set->members[first + me] != -1)
                return false;
            group_set->members[first + me] = r;
            group_set->view[r].n = n;
            group_set->view[r].me = me;
            group_set->view[r].ranks = group_set->members + first;
            group_set->counter_of[r] = g;
        }
        first += n;
    }
    return true;
}

/* Finds each group's members in this process. */
static void find_local_members(clv_group_set *group_set, const clv_world *world)
{
    int found = 0;
    for (int r = world->first_local; r < world->first_local + world->n_local; r++) {
        const clv_group *whole = &group_set->view[r];
        int *local = group_set->local_members + found, n = 0;
        if (group_set->local[r].n > 0) /* done with another member of its group */
            continue;
        for (int m = 0; m < whole->n; m++)
            if (clv_world_is_local(world, whole->ranks[m]))
                local[n++] = whole->ranks[m];
        for (int m = 0; m < n; m++)
            group_set->local[local[m]] = (clv_group){.group_set = whole->group_set, .n = n, .me = m, .ranks = local};
        found += n;
    }
}

static bool equal_sets(const clv_group_set *a, const clv_group_set *b, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        const clv_group *x = &a->view[r], *y = &b->view[r];

        if (x->n != y->n || x->me != y->me || memcmp(x->ranks, y->ranks, (size_t)x->n * sizeof *x->ranks) != 0)
            return false;
    }
    return true;
}

clv_status clv_world_add_groups(int *out, clv_world *world, const int *group_of, const int *order, clv_error *err)
{
    for (int r = 0; r < world->ranks; r++)
        if (group_of[r] < 0 || group_of[r] >= world->ranks)
            return clv_fail(err, CLV_EINVAL, "rank %d is in group %d; groups are 0 to %d", r, group_of[r],
                            world->ranks - 1);
    clv_group_set *group_set = new_set(world->ranks, world->n_sets);
    if (!group_set)
        return clv_fail_memory(err, "a group set", (size_t)world->ranks * sizeof(clv_slot));
    if (!fill_set(group_set, world->ranks, group_of, order)) {
        free_set(group_set);
        return clv_fail(err, CLV_EINVAL, "the order of a group's members must be 0..n-1, each once");
    }
    find_local_members(group_set, world);
    for (int s = 0; s < world->n_sets; s++)
        if (equal_sets(world->sets[s], group_set, world->ranks)) {
            free_set(group_set);
            *out = s;
            return CLV_OK;
        }
    pthread_mutex_lock(&world->lock); /* a failure of another process may read the list meanwhile */
    clv_group_set **sets = realloc(world->sets, ((size_t)world->n_sets + 1) * sizeof *sets);
    if (sets) {
        world->sets = sets;
        sets[world->n_sets++] = group_set;
    }
    pthread_mutex_unlock(&world->lock);
    if (!sets) {
        free_set(group_set);
        return clv_fail_memory(err, "a group set", (size_t)world->ranks * sizeof(void *));
    }
    *out = world->n_sets - 1;
    return CLV_OK;
}
