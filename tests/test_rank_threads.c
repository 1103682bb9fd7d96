/* test_rank_threads.c - rank threads: every rank runs, failures come back named, nothing hangs, stuck ranks are said.
 * */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hardware/resource_limits.h"
#include "base/threads/wait.h"
#include "single_step.h"
#include "kernels/cpu/openmp.h"
#include "runtime/session/rank_threads.h"
#include "unit_test.h"

enum { RANKS = 4 };

typedef struct record {
    int ran[64];
    pthread_t thread[64];
    struct {
        double in, sum;
    } memory[64];
    clv_window *window; /* over it */
    clv_rank_threads *team;
    int group_set;
    int failing;
    int words;           /* a pipe */
    _Atomic int release; /* lets a stuck rank go */
} record;

static clv_status sum_of_ranks(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    record *r = arg;
    const clv_group *group = clv_comm_group(comm, r->group_set);
    clv_shard shards[64];

    r->ran[rank]++;
    r->thread[rank] = pthread_self();
    r->memory[rank].in = rank + 1;
    clv_transfer sum = hand_all_reduce(group, r->window, &r->memory[rank].sum, &r->memory[rank].in, 1, CLV_F64, shards);
    return hand_step(clv_rank_threads_world(r->team), comm, &sum, err);
}

static clv_rank_threads *new_team(record *r, int ranks, int64_t timeout_ms)
{
    static const int whole[64];
    clv_rank_threads_options options = {.pin = -1, .timeout_ms = timeout_ms};
    clv_rank_threads *team = NULL;
    void *memory[64];

    memset(r, 0, sizeof *r);
    assert_int_equal(clv_rank_threads_new(&team, ranks, &options, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&r->group_set, clv_rank_threads_world(team), whole, NULL, NULL), CLV_OK);
    for (int i = 0; i < ranks; i++)
        memory[i] = &r->memory[i];
    r->window = hand_window(clv_rank_threads_world(team), memory);
    r->team = team;
    return team;
}

static clv_status end_team(record *r, clv_error *err)
{
    const clv_transport *transport = clv_world_transport(clv_rank_threads_world(r->team));
    clv_status status = clv_rank_threads_free(r->team, err);

    if (status == CLV_OK && r->window)
        transport->free_window(r->window);
    return status;
}

static void test_every_rank_runs(void **state)
{
    static const int sizes[] = {1, 2, 3, 8};

    for (int k = 0; k < 4; k++) {
        static record r;
        clv_rank_threads *team = new_team(&r, sizes[k], 0);
        pthread_t first = pthread_self();

        for (int run = 0; run < 50; run++) {
            assert_int_equal(clv_rank_threads_run(team, sum_of_ranks, &r, NULL), CLV_OK);
            for (int i = 0; i < sizes[k]; i++) {
                assert_int_equal(r.ran[i], run + 1);
                assert_true(r.memory[i].sum == sizes[k] * (sizes[k] + 1) / 2);
            }
            if (run > 0)
                assert_true(pthread_equal(first, r.thread[0]));
            first = r.thread[0];
        }
        assert_int_equal(end_team(&r, NULL), CLV_OK);
    }
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A team that has nothing to do for longer than its threads sleep at a time: they do sleep, with a core for each or
 * not. */
static void test_idle(void **state)
{
    static const int sizes[] = {1, RANKS};
    for (int s = 0; s < 2; s++) {
        record r;
        clv_rank_threads *team = new_team(&r, sizes[s], 60000);

        assert_int_equal(clv_rank_threads_run(team, sum_of_ranks, &r, NULL), CLV_OK);
        double before = cpu_seconds();
        nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 300000000}, NULL);
        assert_true(cpu_seconds() - before < 0.2);
        for (int k = 0; k < sizes[s]; k++)
            assert_int_equal(r.ran[k], 1);
        assert_int_equal(clv_rank_threads_run(team, sum_of_ranks, &r, NULL), CLV_OK);
        for (int k = 0; k < sizes[s]; k++)
            assert_int_equal(r.ran[k], 2);
        assert_int_equal(end_team(&r, NULL), CLV_OK);
    }
}

static clv_status one_fails(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    record *r = arg;

    if (rank == r->failing)
        return clv_fail_at(err, CLV_ESHAPE, -1, "layer 2 mlp", "rows do not fit");
    return sum_of_ranks(arg, rank, comm, err);
}

static void test_a_rank_fails(void **state)
{
    static record r;
    clv_rank_threads *team = new_team(&r, RANKS, 20000);
    clv_error err = {0}, again = {0};
    int64_t began = clv_now_ns();

    r.failing = 2;
    assert_int_equal(clv_rank_threads_run(team, one_fails, &r, &err), CLV_ESHAPE);
    assert_true(clv_now_ns() - began < 1000000000);
    assert_int_equal(err.rank, 2);
    assert_string_equal(err.op, "layer 2 mlp");
    assert_string_equal(err.message, "rows do not fit");
    memset(r.ran, 0, sizeof r.ran);
    assert_int_equal(clv_rank_threads_run(team, sum_of_ranks, &r, &again), CLV_ESHAPE);
    assert_int_equal(r.ran[0], 0);
    assert_string_equal(again.message, "rows do not fit");
    assert_int_equal(end_team(&r, NULL), CLV_OK);
}

static clv_status fails_in_silence(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    return rank == 1 ? CLV_ENOMEM : CLV_OK;
}

static void test_a_failure_without_words(void **state)
{
    static record r;
    clv_rank_threads *team = new_team(&r, 2, 0);
    clv_error err = {0};

    assert_int_equal(clv_rank_threads_run(team, fails_in_silence, &r, &err), CLV_ENOMEM);
    assert_int_equal(err.rank, 1);
    assert_true(err.message[0] != 0);
    assert_int_equal(end_team(&r, NULL), CLV_OK);
}

static clv_status one_is_stuck(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    record *r = arg;

    clv_comm_set_activity(comm, rank == 1 ? "layer 5 attention" : "layer 6");
    while (rank == 1 && !r->release)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return sum_of_ranks(arg, rank, comm, err);
}

static void test_a_rank_is_stuck(void **state)
{
    static record r;
    clv_rank_threads *team = new_team(&r, 3, 100);
    clv_error err = {0}, again = {0};

    assert_int_equal(clv_rank_threads_run(team, one_is_stuck, &r, &err), CLV_ETIMEOUT);
    assert_int_equal(err.rank, 1);
    assert_string_equal(err.op, "layer 5 attention");
    assert_non_null(strstr(err.message, "rank 1 did not return"));
    assert_int_equal(clv_rank_threads_run(team, one_is_stuck, &r, &again), CLV_ETIMEOUT);
    r.release = 1;
    assert_int_equal(end_team(&r, NULL), CLV_OK); /* it came back in time */
}

/* Leaked on purpose; the pointer is kept so that leak checkers see that it is known. */
static clv_rank_threads *leaked;

static void test_a_stuck_rank_is_leaked(void **state)
{
    static record r;
    clv_error err = {0};

    leaked = new_team(&r, 2, 50);
    assert_int_equal(clv_rank_threads_run(leaked, one_is_stuck, &r, NULL), CLV_ETIMEOUT);
    assert_int_equal(end_team(&r, &err), CLV_ETIMEOUT);
    assert_int_equal(err.rank, 1);
    r.release = 1; /* it wakes in memory that is still there */
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

/* Rank 0 waits for a word from outside, the others for rank 0. */
static clv_status await_word(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    record *r = arg;
    char word;

    if (rank == 0 && read(r->words, &word, 1) != 1)
        return clv_fail(err, CLV_EIO, "no word");
    return sum_of_ranks(arg, rank, comm, err);
}

/* A process stopped for longer than its deadline, as by Ctrl-Z, goes on when it is continued. */
static void test_stopped_process(void **state)
{
    enum { DEADLINE_MS = 700, STOPPED_MS = 900 };
    int words[2], status;

    assert_int_equal(pipe(words), 0);
    pid_t child = fork();
    if (child == 0) {
        static record r;
        clv_rank_threads *team = new_team(&r, 2, DEADLINE_MS);
        r.words = words[0];
        _exit(clv_rank_threads_run(team, await_word, &r, NULL) == CLV_OK ? 0 : 1);
    }
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    kill(child, SIGSTOP);
    nanosleep(&(struct timespec){.tv_nsec = STOPPED_MS * 1000000}, NULL);
    kill(child, SIGCONT);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    assert_int_equal(write(words[1], "w", 1), 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(words[0]);
    close(words[1]);
}

static clv_status count_cores(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    record *r = arg;
    cpu_set_t group_set;

    r->ran[rank] = sched_getaffinity(0, sizeof group_set, &group_set) == 0 ? CPU_COUNT(&group_set) : -1;
    for (int c = 0; c < CPU_SETSIZE && r->ran[rank] == 1; c++)
        if (CPU_ISSET(c, &group_set))
            r->memory[rank].sum = c;
    return CLV_OK;
}

static void test_pinning(void **state)
{
    static record r;
    int cores = clv_usable_cpus();
    clv_rank_threads *team = new_team(&r, 2, 0);

    assert_int_equal(clv_rank_threads_run(team, count_cores, &r, NULL), CLV_OK);
    if (clv_rank_threads_are_pinned(team)) {
        assert_int_equal(r.ran[0], 1);
        assert_int_equal(r.ran[1], 1);
        assert_true(r.memory[0].sum != r.memory[1].sum);
    } else {
        assert_true(cores < 2);
    }
    assert_int_equal(end_team(&r, NULL), CLV_OK);

    team = new_team(&r, cores + 1, 0);
    assert_false(clv_rank_threads_are_pinned(team));
    assert_int_equal(clv_rank_threads_run(team, count_cores, &r, NULL), CLV_OK);
    assert_int_equal(r.ran[0], cores);
    assert_int_equal(end_team(&r, NULL), CLV_OK);
    assert_int_equal(clv_usable_cpus(), cores); /* the caller is left where it was */
}

static clv_status count_threads(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    ((record *)arg)->ran[rank] = clv_threads_max();
    return CLV_OK;
}

static void test_threads_per_rank(void **state)
{
    int before = clv_threads_max();
    clv_threads_set(2);
    bool has_openmp = clv_threads_max() == 2; /* whatever OMP_NUM_THREADS says */
    clv_threads_set(before);
    for (int threads = 0; threads <= 3; threads++) {
        clv_rank_threads *team = NULL;
        clv_rank_threads_options options = {.pin = -1, .threads_per_rank = threads};
        record r = {0};
        assert_int_equal(clv_rank_threads_new(&team, 2, &options, NULL), CLV_OK);
        assert_int_equal(clv_rank_threads_run(team, count_threads, &r, NULL), CLV_OK);
        for (int rank = 0; rank < 2; rank++)
            assert_int_equal(r.ran[rank], threads && has_openmp ? threads : 1);
        assert_int_equal(clv_rank_threads_free(team, NULL), CLV_OK);
    }
}

static void test_arguments(void **state)
{
    clv_rank_threads *team = NULL;
    clv_rank_threads_options wrong = {.threads_per_rank = -1}, wrapped = {.pin = 1, .threads_per_rank = 2};
    record r = {0};

    assert_int_equal(clv_rank_threads_new(&team, 0, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_rank_threads_new(&team, 1, &wrong, NULL), CLV_EINVAL);
    static const struct {
        clv_rank_threads_options options;
        int ranks;
        clv_status status;
        const char *says;
    } refused[] = {{{.threads_per_rank = -1}, 1, CLV_EINVAL, "threads_per_rank is -1; valid"},
                   {{.timeout_ms = -1}, 1, CLV_EINVAL, "timeout_ms is -1; valid"},
                   {{.threads_per_rank = 1000000}, 1, CLV_ELIMIT, "threads_per_rank is 1000000; at most 1024"},
                   {{.threads_per_rank = 1024}, 17, CLV_ELIMIT, "at most 16384"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        clv_error err = {0};
        assert_int_equal(clv_rank_threads_new(&team, refused[i].ranks, &refused[i].options, &err), refused[i].status);
        assert_non_null(strstr(err.message, refused[i].says));
    }
    assert_null(team);
    assert_int_equal(clv_rank_threads_free(NULL, NULL), CLV_OK);
    assert_int_equal(clv_rank_threads_new(&team, clv_usable_cpus(), &wrapped, NULL), CLV_OK);
    assert_int_equal(clv_rank_threads_run(team, count_cores, &r, NULL), CLV_OK);
    assert_true(r.ran[0] >= 1 && r.ran[0] <= 2);
    assert_int_equal(clv_rank_threads_free(team, NULL), CLV_OK);
}

#ifdef __SANITIZE_THREAD__
enum { STACK = 64 << 10 }; /* what it keeps of a thread lies in the same memory */
#else
enum { STACK = 512 << 10 };
#endif

static clv_status use_stack(void *arg, int rank, clv_comm *comm, clv_error *err)
{
    volatile char some[STACK];
    for (size_t i = 0; i < sizeof some; i += 1024)
        some[i] = (char)rank;
    ((record *)arg)->ran[rank] = some[0] + 1;
    return CLV_OK;
}

/* Where threads have small stacks, as by `ulimit -s 64`, ranks have what ops need. */
static void test_small_stacks(void **state)
{
    record r;
    clv_rank_threads *team;
    pthread_attr_t usual, small;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_getattr_default_np(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 64 << 10), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    team = new_team(&r, RANKS, 10000);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_int_equal(clv_rank_threads_run(team, use_stack, &r, NULL), CLV_OK);
    for (int rank = 0; rank < RANKS; rank++)
        assert_int_equal(r.ran[rank], rank + 1);
    assert_int_equal(end_team(&r, NULL), CLV_OK);
    pthread_attr_destroy(&usual);
    pthread_attr_destroy(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped_process), /* first: it forks, and there are no threads yet */
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_every_rank_runs),
        cmocka_unit_test(test_a_rank_fails),
        cmocka_unit_test(test_a_failure_without_words),
        cmocka_unit_test(test_a_rank_is_stuck),
        cmocka_unit_test(test_a_stuck_rank_is_leaked),
        cmocka_unit_test(test_pinning),
        cmocka_unit_test(test_threads_per_rank),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_small_stacks),
    };

    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
