/* test_cli_shutdown_signals.c - signals that ask to leave: the first is noted, also when another comes before its time
 * is. */
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unit_test.h"

/* As if another thread had the second signal, between the first's two notes. */
static int between;
static int time_between(clockid_t clock, struct timespec *out)
{
    int signal = between;
    between = 0;
    if (signal != 0)
        raise(signal);
    return clock_gettime(clock, out);
}

#define clock_gettime time_between
#include "cli/job/shutdown_signals.c"
#undef clock_gettime

/* What the process ended by, which is told by `first`, meanwhile by `second` (0: none), and later by `last`. */
static int ends_by(int first, int second, int last)
{
    int how = -1;
    pid_t child = fork();
    if (child == 0) {
        struct timespec later = {.tv_nsec = 2 * SAME_NS};
        clv_shutdown_signals_install();
        between = second;
        raise(first);
        if (last != 0) {
            nanosleep(&later, NULL);
            raise(last);
        }
        _exit(clv_shutdown_signal());
    }
    assert_true(child > 0 && waitpid(child, &how, 0) == child);
    return WIFSIGNALED(how) ? -WTERMSIG(how) : WEXITSTATUS(how);
}

static void test_signals(void **state)
{
    assert_int_equal(ends_by(SIGTERM, 0, 0), SIGTERM);
    assert_int_equal(ends_by(SIGTERM, SIGHUP, 0), SIGTERM);
    assert_int_equal(ends_by(SIGUSR1, SIGTERM, 0), SIGUSR1);
    assert_int_equal(ends_by(SIGTERM, SIGHUP, SIGUSR1), -SIGUSR1);
    assert_string_equal(clv_shutdown_signal_name(SIGHUP), "SIGHUP");
    assert_string_equal(clv_shutdown_signal_name(SIGSEGV), "a signal");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_signals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
