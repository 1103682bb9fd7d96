/* main.c - program entry: runs one `cleave` command between process start-up (MPI launcher, stack size, OpenMP wait
 * policy) and exit.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "cli/command.h"
#include "cli/job/job_processes.h"
#include "cli/job/openmp_spin.h"
#include "cli/options/flight_recorder_option.h"
#include "cli/timing/suspensions.h"

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

int main(int argc, char **argv)
{
    static char name[] = "cleave";
    int code;

    clv_openmp_restart_with_short_spin(argv);
    if (argc > 0)
        argv[0] = name;
    if (!has_stack())
        return CLV_EXIT_FAILED;
    clv_processes_silence_all_but_first();
    clv_suspensions_install();
    signal(SIGXFSZ, SIG_IGN); /* a file at the limit of its size is the failure of a write, as a full disk is */
    code = clv_command_dispatch(&clv_root_command, argc, argv);
    /* A full disk or a closed pipe shows only here. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "cleave: standard output could not be written\n");
        code = code == CLV_EXIT_OK ? CLV_EXIT_FAILED : code;
    }
    return clv_processes_finalize(clv_flight_option_end(code));
}
