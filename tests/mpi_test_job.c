/* mpi_test_job.c - joins the MPI job of a test program, and leaves it at exit. */
#include "mpi_test_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/job/mpi_job.h"

enum { MOST_PROCESSES = 16 };

static clv_job *job;

/* What the tests found is the program's exit code, which this does not change. */
static void leave(void)
{
    clv_error err = {0};
    if (clv_job_leave(job, &err) != CLV_OK) {
        fprintf(stderr, "leaving the job: %s\n", err.message);
        fflush(NULL);
        _exit(1);
    }
}

clv_job *launched_job(void)
{
    const char *asked = getenv("CLV_TEST_TRANSPORT"), *piece = getenv("CLV_TEST_PIECE"),
               *room = getenv("CLV_TEST_ROOM");
    clv_error err = {0};
    clv_job_options options = {.size = sizeof options,
                               .modules = getenv("CLV_BUILD_DIR"),
                               .timeout_ms = 20000,
                               .control = getenv("CLV_TEST_CONTROL")};
    if (job || !asked || strcmp(asked, "mpi") != 0)
        return job;
    if (clv_job_join(&job, &options, &err) != CLV_OK || clv_job_process_count(job) > MOST_PROCESSES) {
        fprintf(stderr, "joining the job: %s\n", err.message);
        _exit(1);
    }
    if (piece) /* so that messages are cut which would not be otherwise */
        job->max_message_bytes = strtoll(piece, NULL, 10);
    if (room) /* so that some steps go by messages which would not otherwise */
        job->max_shm_bytes = strtoll(room, NULL, 10);
    atexit(leave);
    return job;
}

void launched_left(void)
{
    job = NULL;
}

const clv_process_links *launched_links(int ranks)
{
    static int first[MOST_PROCESSES + 1];
    static clv_process_links links;
    int n = clv_job_process_count(launched_job());
    if (!job || ranks < n)
        return NULL;
    for (int p = 0; p <= n; p++)
        first[p] = p * ranks / n;
    links = (clv_process_links){
        .processes = n, .me = clv_job_process_index(job), .first = first, .job = job, .cores = clv_job_core_count(job)};
    return &links;
}
