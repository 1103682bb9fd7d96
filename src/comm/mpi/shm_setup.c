/* shm_setup.c - creates the shared-memory segment of each host and hands it to the host's other processes. */
#include <stdlib.h>

#include "base/error.h"
#include "comm/mpi/mpi_world.h"

/* What the first process of each host tells of the segment that it made. */
typedef struct offer {
    uint64_t name;
    int32_t file;
    int32_t made;
} offer;

/* Numbers the ranks of this host; index -1: elsewhere. Returns how many there are. */
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

/* Whether any host has several processes of the job, as all of them find alike. */
static bool is_wanted(const clv_job *job)
{
    bool any = false;
    for (int p = 0; p < job->info.processes; p++)
        any = any || first_of_host(job, p) != p;
    return any && job->shares_memory;
}

/* Makes the segment of this host, or opens it. A process without one has messages, and so have all of its host. */
static clv_status find_segment(clv_shm_segment **segment, clv_job *job, offer *offers, int32_t *has, int ranks,
                               clv_error *err)
{
    int me = job->info.process, first = first_of_host(job, me), n = job->info.processes;
    offer mine = {0};
    if (first == me && clv_shm_segment_create(segment, ranks, NULL) == CLV_OK)
        mine = (offer){.name = (*segment)->name, .file = (*segment)->file, .made = 1};
    CLV_TRY(clv_job_all_gather(job, &mine, offers, sizeof mine, err));
    const offer *its = &offers[first];
    if (first != me && its->made)
        (void)clv_shm_segment_open(segment, ranks, job->members[first].pid, its->file, its->name, NULL);
    int32_t have = *segment != NULL;
    CLV_TRY(clv_job_all_gather(job, &have, has, sizeof have, err));
    for (int p = 0; p < n; p++)
        have = have && (has[p] || !clv_job_same_host(job, p, me));
    if (*segment && have)
        clv_shm_segment_close_file(*segment);
    if (have)
        return CLV_OK;
    clv_shm_segment_free(*segment);
    *segment = NULL;
    return CLV_OK;
}

clv_status clv_mpi_open_shm(clv_world *world, clv_error *err)
{
    struct clv_mpi_world *state = world->mpi;
    clv_job *job = state->job;
    size_t n = (size_t)job->info.processes;
    if (!is_wanted(job))
        return CLV_OK;
    state->shm_index = malloc((size_t)world->ranks * sizeof *state->shm_index);
    offer *offers = calloc(n, sizeof *offers);
    int32_t *has = calloc(n, sizeof *has);
    clv_status status = CLV_OK;
    if (state->shm_index && offers && has)
        status = find_segment(&state->segment, job, offers, has, index_host_ranks(state->shm_index, world), err);
    else
        status = clv_fail_memory(err, "a world's segment", n * sizeof *offers);
    free(offers);
    free(has);
    return status;
}
