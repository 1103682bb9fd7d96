/* test_failure_detector.c - the control connections of a job's processes, without a launcher: ports, handshakes, and
 * what the control thread reads of worlds.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/control/control_internal.h"
#include "comm/world/world.h"
#include "must.h"
#include "unit_test.h"

/* ---- ports of a range ---- */

static int taken; /* ports that another begins to listen at between bind and listen */

/* In place of libc's. */
int listen(int fd, int backlog)
{
    if (taken > 0) {
        taken--;
        errno = EADDRINUSE;
        return -1;
    }
    return (int)syscall(SYS_listen, fd, backlog);
}

enum { LISTENERS = 16, TIMES = 60, TRIES = 50 };

/* The first of LISTENERS ports that are free. */
static int free_range(void)
{
    int fds[LISTENERS], found = 0;
    for (int try = 0; !found && try < TRIES; try++) {
        int first = 20000 + (getpid() % 100 * 100 + try * LISTENERS) % 12000, n = 0;
        for (; n < LISTENERS && (fds[n] = clv_control_listen_loopback(first + n, first + n, 1)) >= 0; n++)
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
    int fd = clv_control_listen_loopback(first, first + LISTENERS - 1, 4);
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
    int first = free_range();
    for (int i = 0; i < TIMES; i++)
        all_listen(first);
}

static void test_full_range(void **state)
{
    int first = free_range(), fd = clv_control_listen_loopback(first, first, 1);
    assert_true(fd >= 0);
    assert_int_equal(clv_control_listen_loopback(first, first, 1), -1);
    assert_int_equal(errno, EADDRINUSE);
    int next = clv_control_listen_loopback(first, first + 1, 1);
    assert_true(next >= 0);
    close(next);
    taken = 2;
    next = clv_control_listen_loopback(first, first + 3, 1);
    assert_int_equal(taken, 0);
    assert_true(next >= 0);
    close(next);
    close(fd);
}

/* ---- who comes ---- */

static int connect_to(int listener)
{
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    int fd = socket(at.ss_family, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, size), 0);
    return fd;
}

/* Where no descriptor is free who comes waits, and is not looked for again and again; later it is taken in. */
static void test_no_descriptors(void **state)
{
    static clv_pending_connection room[1];
    static clv_control c = {.pending = room, .n_pending = 1};
    struct rlimit limit;
    room[0].fd = -1;
    c.listener = clv_control_listen_loopback(0, 0, 4);
    assert_true(c.listener >= 0);
    int other = connect_to(c.listener), next = dup(other);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = limit.rlim_max});
    clv_control_accept(&c);
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_true(c.accept_paused);
    assert_int_equal(room[0].fd, -1);
    c.accept_paused = false; /* as at the next send_heartbeats */
    clv_control_accept(&c);
    assert_false(c.accept_paused);
    assert_true(room[0].fd >= 0);
    clv_control_accept(&c); /* nobody is there */
    assert_false(c.accept_paused);
    close(room[0].fd);
    close(other);
    close(c.listener);
}

/* ---- worlds ---- */

enum { NOTES = 20000, NOTE_BYTES = 4096 };

typedef struct reader {
    clv_control control; /* one that has lost process 0 */
    clv_world *world;
    _Atomic int stop;
} reader;

static void *read_often(void *arg)
{
    reader *r = arg;
    while (!atomic_load(&r->stop)) {
        clv_control_add_world(&r->control, r->world);
        clv_control_remove_world(&r->control, r->world);
    }
    return NULL;
}

/* Nobody reads a note whose names were kept, though memory goes away at once. */
static void test_notes_go(void **state)
{
    static reader r;
    clv_error err = {0};
    pthread_t thread;
    must(clv_world_new(&r.world, 1, NULL, &err), &err);
    pthread_mutex_init(&r.control.lock, NULL);
    atomic_store(&r.control.lost, 1);
    assert_int_equal(pthread_create(&thread, NULL, read_often, &r), 0);
    for (int i = 0; i < NOTES; i++) {
        char *note = mmap(NULL, NOTE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(note != MAP_FAILED);
        memset(note, 'n', NOTE_BYTES - 1);
        clv_comm_set_activity(clv_world_comm(r.world, 0), note);
        clv_world_copy_names(r.world);
        assert_int_equal(munmap(note, NOTE_BYTES), 0);
    }
    atomic_store(&r.stop, 1);
    pthread_join(thread, NULL);
    pthread_mutex_destroy(&r.control.lock);
    free(r.control.worlds);
    clv_world_free(r.world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_of_a_range),
        cmocka_unit_test(test_full_range),
        cmocka_unit_test(test_no_descriptors),
        cmocka_unit_test(test_notes_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
