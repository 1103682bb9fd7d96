/* test_control.c - the connections between the processes of a job, without a launcher: where they listen. */
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "comm/control_wire.h"

/* ---- ports of a range ---- */

enum { LISTENERS = 16, TIMES = 60, TRIES = 50 };

/* The first of LISTENERS ports that are free. */
static int free_range(void)
{
    int fds[LISTENERS], found = 0;
    for (int try = 0; !found && try < TRIES; try++) {
        int first = 20000 + (getpid() % 100 * 100 + try * LISTENERS) % 12000, n = 0;
        for (; n < LISTENERS && (fds[n] = clv_control_listen_beside(first + n, first + n, 1)) >= 0; n++)
            ;
        found = n == LISTENERS ? first : 0;
        for (int i = 0; i < n; i++)
            close(fds[i]);
    }
    assert_int_not_equal(found, 0);
    return found;
}

/* A process that listens once the others may, and until all have: exits 0, or with errno. */
static void listen_once(int first, int go, int done, int end)
{
    char byte = 0;
    (void)!read(go, &byte, 1);
    int fd = clv_control_listen_beside(first, first + LISTENERS - 1, 4);
    int code = fd < 0 ? errno : 0;
    (void)!write(done, &byte, 1);
    (void)!read(end, &byte, 1);
    _exit(code);
}

static void all_listen(int first)
{
    pid_t pids[LISTENERS];
    int go[2], done[2], end[2], codes[LISTENERS];
    char bytes[LISTENERS] = {0};
    assert_int_equal(pipe(go) | pipe(done) | pipe(end), 0);
    for (int i = 0; i < LISTENERS; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            listen_once(first, go[0], done[1], end[0]);
    }
    assert_int_equal(write(go[1], bytes, sizeof bytes), sizeof bytes);
    for (int n = 0; n < LISTENERS; n++)
        assert_int_equal(read(done[0], bytes, 1), 1);
    assert_int_equal(write(end[1], bytes, sizeof bytes), sizeof bytes);
    for (int i = 0; i < LISTENERS; i++)
        assert_int_equal(waitpid(pids[i], &codes[i], 0), pids[i]);
    for (int i = 0; i < LISTENERS; i++)
        if (codes[i] != 0)
            fail_msg("of %d that listen at ports %d and on, one: %s", LISTENERS, first, strerror(codes[i] >> 8));
    for (int i = 0; i < 2; i++)
        close(go[i]), close(done[i]), close(end[i]);
}

/* As many ports as processes, all at once: each gets one. */
static void test_all_of_a_range(void **state)
{
    (void)state;
    int first = free_range();
    for (int i = 0; i < TIMES; i++)
        all_listen(first);
}

static void test_full_range(void **state)
{
    (void)state;
    int first = free_range(), fd = clv_control_listen_beside(first, first, 1);
    assert_true(fd >= 0);
    assert_int_equal(clv_control_listen_beside(first, first, 1), -1);
    assert_int_equal(errno, EADDRINUSE);
    int next = clv_control_listen_beside(first, first + 1, 1);
    assert_true(next >= 0);
    close(next);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_of_a_range),
        cmocka_unit_test(test_full_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
