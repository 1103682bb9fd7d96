/* shm_setup.c - creates the shared-memory segment of each host and hands it to the host's other processes. */
#include <stdlib.h>

#include "base/error.h"
#include "comm/mpi/mpi_world.h"

/* What the first process of each host sends about its segment. */
typedef struct offer {
    uint64_t name;
    int32_t file;
    int32_t exists;
} offer;

/* Numbers the ranks of this host; -1: on another. Returns their number. */
static int index_host_ranks(int *index, const clv_world *world)
{
    int n = 0;
    for (int r = 0; r < world->ranks; r++) {
        bool here = clv_job_same_host(world->mpi->job, clv_world_process_of(world, r), world->me);
        index[r] = here ? n++ : -1;
    }
    return n;
}

static int first_of_host(const clv_job *job, int process)
{
    int first = 0;
    while (!clv_job_same_host(job, first, process))
        first++;
    return first;
}

/* Whether segments are made: memory may be shared, and some host has several processes. */
static bool needs_segments(const clv_job *job)
{
    bool any = false;
    for (int p = 0; p < job->info.processes; p++)
        any = any || first_of_host(job, p) != p;
    return any && job->shares_memory;
}

/* Creates or opens the segment of this host; none if any process of the host fails to. */
static clv_status find_segment(clv_shm_segment **segment, clv_job *job, int ranks, clv_error *err)
{
    int me = job->info.process, first = first_of_host(job, me);
    offer mine = {0};
    void *gathered;
    if (first == me && clv_shm_segment_create(segment, ranks, NULL) == CLV_OK)
        mine = (offer){.name = (*segment)->name, .file = (*segment)->file, .exists = 1};
    CLV_TRY(clv_job_all_gather(&gathered, job, &mine, sizeof mine, err));
    const offer its = ((const offer *)gathered)[first];
    free(gathered);
    if (first != me && its.exists)
        (void)clv_shm_segment_open(segment, ranks, job->members[first].pid, its.file, its.name, NULL);
    int32_t has = *segment != NULL;
    CLV_TRY(clv_job_all_gather(&gathered, job, &has, sizeof has, err));
    for (int p = 0; p < job->info.processes; p++)
        has = has && (((const int32_t *)gathered)[p] || !clv_job_same_host(job, p, me));
    free(gathered);
    if (has) {
        clv_shm_segment_close_file(*segment);
        return CLV_OK;
    }
    clv_shm_segment_free(*segment);
    *segment = NULL;
    return CLV_OK;
}

clv_status clv_mpi_open_shm(clv_world *world, clv_error *err)
{
    struct clv_mpi_world *state = world->mpi;
    if (!needs_segments(state->job))
        return CLV_OK;
    state->shm_index = malloc((size_t)world->ranks * sizeof *state->shm_index);
    if (!state->shm_index)
        return clv_fail_memory(err, "a world's segment", (size_t)world->ranks * sizeof *state->shm_index);
    return find_segment(&state->segment, state->job, index_host_ranks(state->shm_index, world), err);
}
