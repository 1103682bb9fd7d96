/* forked_ranks.c - forks processes, connects them by sockets and runs a function in each. */
#include "forked_ranks.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "mpi_test_job.h"
#include "unit_test.h"

void check(bool ok, const clv_process_links *links, const char *what, const clv_error *err)
{
    if (ok)
        return;
    fprintf(stderr, "process %d of %d: %s: %s\n", links->me, links->processes, what, err ? err->message : "");
    _exit(1);
}

/* The processes are those of a job, and this is one: it does its part, if there is one for each. */
static void in_job(const int *first, int processes, child_fn *fn, void *arg)
{
    const clv_process_links *job = launched_links(first[processes]);
    if (!job || job->processes != processes)
        return;
    clv_process_links links = *job;
    links.first = first;
    fn(&links, arg);
}

/* What would be done at the end of a program is left out by _exit. */
static void check_leaks(int process)
{
#ifdef __SANITIZE_ADDRESS__
    if (__lsan_do_recoverable_leak_check() != 0) {
        fprintf(stderr, "process %d leaks\n", process);
        _exit(1);
    }
#else
#endif
}

void in_processes(const int *first, int processes, child_fn *fn, void *arg, int lost)
{
    int sockets[MOST_PROCESSES][MOST_PROCESSES];
    pid_t children[MOST_PROCESSES];
    if (launched_job()) {
        in_job(first, processes, fn, arg);
        return;
    }
    for (int p = 0; p < processes; p++)
        for (int q = 0; q < p; q++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
            sockets[p][q] = pair[0];
            sockets[q][p] = pair[1];
        }
    fflush(NULL);
    for (int p = 0; p < processes; p++) {
        children[p] = fork();
        assert_true(children[p] >= 0);
        if (children[p] > 0)
            continue;
        alarm(PATIENCE);
        for (int q = 0; q < processes; q++)
            for (int r = 0; r < processes; r++)
                if (q != p && q != r)
                    close(sockets[q][r]);
        fn(&(clv_process_links){.processes = processes, .me = p, .first = first, .sockets = sockets[p]}, arg);
        check_leaks(p);
        _exit(0);
    }
    for (int p = 0; p < processes; p++)
        for (int q = 0; q < processes; q++)
            if (p != q)
                close(sockets[p][q]);
    for (int p = 0; p < processes; p++) {
        int status;
        assert_int_equal(waitpid(children[p], &status, 0), children[p]);
        if (p != lost && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
            fail_msg("process %d of %d ended with %#x", p, processes, status);
    }
}

const int splits[SPLITS][MOST_PROCESSES + 1] = {{0, 6}, {0, 1, 6}, {0, 4, 6}, {0, 2, 4, 6}, {0, 1, 2, 3, 4, 5, 6}};
const int counts[SPLITS] = {1, 2, 2, 3, 6};

bool is_here(const clv_process_links *links, int rank)
{
    return links->first[links->me] <= rank && rank < links->first[links->me + 1];
}

const char *transport_of(const clv_process_links *links)
{
    return links->job ? "mpi" : "mailbox";
}

clv_session *new_session(const clv_mesh *mesh, const clv_process_links *links, int64_t timeout_ms, int checked)
{
    clv_session *session = NULL;
    clv_error err = {0};
    clv_session_options options = {.size = sizeof options,
                                   .timeout_ms = timeout_ms,
                                   .check = checked,
                                   .no_pinning = 1,
                                   .seed = 7,
                                   .transport = links ? transport_of(links) : NULL};
    clv_status status = clv_session_new_with_links(&session, mesh, &options, links, &err);
    if (status != CLV_OK) {
        fprintf(stderr, "a session: %s\n", err.message);
        _exit(1);
    }
    return session;
}

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
