/* main.c - cleave: what a process needs before a command runs, and after. */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "cleave/job.h"
#include "cli/command.h"
#include "cli/stops.h"

enum { LEAST_STACK = 256 << 10, THREAD_STACK = 1 << 20 };

/* Whether the limit on stacks leaves the first thread enough; it would end in a segmentation fault else. Threads that
 * OpenMP starts get their size from that limit, too: no less than enough. */
static bool has_stack(void)
{
    struct rlimit limit;
    pthread_attr_t usual;
    size_t size;

    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < LEAST_STACK) {
        fprintf(stderr, "cleave: stacks are limited to %lld KiB; valid: %d or more (ulimit -s %d)\n",
                (long long)limit.rlim_cur >> 10, LEAST_STACK >> 10, LEAST_STACK >> 10);
        return false;
    }
    if (pthread_getattr_default_np(&usual) == 0) {
        if (pthread_attr_getstacksize(&usual, &size) == 0 && size < THREAD_STACK &&
            pthread_attr_setstacksize(&usual, THREAD_STACK) == 0)
            pthread_setattr_default_np(&usual);
        pthread_attr_destroy(&usual);
    }
    return true;
}

static int number_of(const char *const *variables, int otherwise)
{
    for (; *variables; variables++) {
        const char *text = getenv(*variables);
        if (text)
            return (int)strtol(text, NULL, 10);
    }
    return otherwise;
}

/* Whether this is the only process that was started: each of several would do all of the work, and write the same
 * files. The first one says so. */
static bool is_alone(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", NULL};
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
    int n = number_of(sizes, 1);

    if (!clv_job_launcher() || n <= 1)
        return true;
    if (number_of(ranks, 0) == 0)
        fprintf(
            stderr,
            "cleave: started in %d processes, by MPI's launcher; commands run in one as yet: start it without mpirun, "
            "and give -tp N for N ranks (threads); programs in C may use all (docs/processes.md)\n",
            n);
    return false;
}

int main(int argc, char **argv)
{
    static char name[] = "cleave";
    int code;

    if (argc > 0)
        argv[0] = name;
    if (!has_stack())
        return CLV_EXIT_FAILED;
    if (!is_alone())
        return CLV_EXIT_USAGE;
    clv_stops_count();
    signal(SIGXFSZ, SIG_IGN); /* a file at the limit of its size is the failure of a write, as a full disk is */
    code = clv_command_dispatch(&clv_cleave, argc, argv);
    /* A full disk or a closed pipe shows only here. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "cleave: standard output could not be written\n");
        return code == CLV_EXIT_OK ? CLV_EXIT_FAILED : code;
    }
    return code;
}
