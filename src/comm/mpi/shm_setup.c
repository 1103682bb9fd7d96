/* shm_setup.c - creates the shared-memory segment of each host and hands it to the host's other processes. */
#include <stdlib.h>

#include "base/error.h"
#include "comm/mpi/mpi_world.h"

/* What the first process of each host tells of the board that it made. */
typedef struct offer {
    uint64_t name;
    int32_t file;
    int32_t made;
} offer;

/* Numbers the ranks of this host; seat -1: elsewhere. Returns how many there are. */
static int index_host_ranks(int *seat, const clv_world *world)
{
    int n = 0;
    for (int r = 0; r < world->ranks; r++) {
        bool here = clv_job_same_host(world->mpi->job, clv_world_process_of(world, r), world->me);
        seat[r] = here ? n++ : -1;
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
    for (int p = 0; p < job->place.processes; p++)
        any = any || first_of_host(job, p) != p;
    return any && job->shares_memory;
}

/* Makes the board of this host, or opens it. A process without one has messages, and so have all of its host. */
static clv_status find_segment(clv_shm_segment **board, clv_job *job, offer *offers, int32_t *has, int seats,
                               clv_error *err)
{
    int me = job->place.process, first = first_of_host(job, me), n = job->place.processes;
    offer mine = {0};
    if (first == me && clv_shm_segment_create(board, seats, NULL) == CLV_OK)
        mine = (offer){.name = (*board)->name, .file = (*board)->file, .made = 1};
    CLV_TRY(clv_job_all_gather(job, &mine, offers, sizeof mine, err));
    const offer *its = &offers[first];
    if (first != me && its->made)
        (void)clv_shm_segment_open(board, seats, job->members[first].pid, its->file, its->name, NULL);
    int32_t have = *board != NULL;
    CLV_TRY(clv_job_all_gather(job, &have, has, sizeof have, err));
    for (int p = 0; p < n; p++)
        have = have && (has[p] || !clv_job_same_host(job, p, me));
    if (*board && have)
        clv_shm_segment_close_file(*board);
    if (have)
        return CLV_OK;
    clv_shm_segment_free(*board);
    *board = NULL;
    return CLV_OK;
}

clv_status clv_mpi_open_shm(clv_world *world, clv_error *err)
{
    struct clv_mpi_world *wire = world->mpi;
    clv_job *job = wire->job;
    size_t n = (size_t)job->place.processes;
    if (!is_wanted(job))
        return CLV_OK;
    wire->seat = malloc((size_t)world->ranks * sizeof *wire->seat);
    offer *offers = calloc(n, sizeof *offers);
    int32_t *has = calloc(n, sizeof *has);
    clv_status status = CLV_OK;
    if (wire->seat && offers && has)
        status = find_segment(&wire->board, job, offers, has, index_host_ranks(wire->seat, world), err);
    else
        status = clv_fail_memory(err, "a world's board", n * sizeof *offers);
    free(offers);
    free(has);
    return status;
}

bool clv_shm_poll_failure(clv_world *world)
{
    clv_error error;
    if (!world->mpi->board || !clv_shm_read_failure(world->mpi->board, &error))
        return false;
    clv_world_record_failure(world, &error);
    return true;
}
