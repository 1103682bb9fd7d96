/* test_shm_segment.c - the shared-memory segment: slots are complete when they are published and stay so while they are
 * read, in any number of collectives; slots of a process that was killed stay; opening another file is refused.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/threads/wait.h"
#include "comm/mpi/shm_segment.h"
#include "must.h"
#include "unit_test.h"

#define PATIENCE_NS INT64_C(30000000000)

enum {
    RANKS = 3,
    SETS = 2,
    STEPS = 4000,
    MOST = 700,      /* bytes on a slot */
    BEFORE_WRAP = 77 /* steps until the numbers of steps begin anew */
};

/* ---- steps, by threads ---- */

typedef struct member {
    clv_shm_segment *segment;
    int rank;
    uint64_t drawn;
    int64_t until_ns; /* steps have ended */
    char failure[160];
} member;

static uint32_t draw(member *s, uint32_t n)
{
    s->drawn = s->drawn * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->drawn >> 33) % n;
}

static unsigned char byte_of(int rank, int set, uint32_t number)
{
    return (unsigned char)(number * 31 + (uint32_t)(rank * 7 + set));
}

/* Every byte of it is of this step. */
static bool is_right(const clv_shm_segment *segment, const clv_shm_slot *slot, int rank, int set, uint32_t number)
{
    const unsigned char *elements = clv_shm_slot_elements(segment, slot);
    bool right = slot->tag == number && strcmp(slot->what, "step") == 0;
    for (int64_t i = 0; i < slot->bytes; i++)
        right = right && elements[i] == byte_of(rank, set, number);
    return right;
}

static uint32_t publish(member *s, int set, int64_t bytes)
{
    clv_shm_slot *slot = clv_shm_next_slot(s->segment, set, s->rank);
    uint32_t number = s->segment->published[set * s->segment->ranks + s->rank] + 1;
    slot->tag = number;
    slot->bytes = bytes;
    memcpy(slot->what, "step", 5);
    memset(clv_shm_slot_elements(s->segment, slot), byte_of(s->rank, set, number), (size_t)bytes);
    assert_int_equal(clv_shm_publish_slot(s->segment, set, s->rank), number);
    return number;
}

static void *take_steps(void *arg)
{
    member *s = arg;
    for (int step = 0; step < STEPS && !s->failure[0]; step++) {
        int set = (int)((step * 7 / 3) % SETS); /* the same for all */
        uint32_t number = publish(s, set, draw(s, MOST));
        for (int k = 1; k < RANKS; k++) {
            int other = (s->rank + k) % RANKS;
            const clv_shm_slot *slot;
            while (!(slot = clv_shm_read_slot(s->segment, set, other, number)) && clv_now_ns() < s->until_ns)
                sched_yield();
            if (draw(s, 50) == 0)
                sched_yield(); /* late: the other is further then */
            if (!slot || !is_right(s->segment, slot, other, set, number))
                snprintf(s->failure, sizeof s->failure, "rank %d, step %d of set %d: %s slot of rank %d", s->rank, step,
                         set, slot ? "another" : "no", other);
        }
    }
    return NULL;
}

static void test_steps(void **state)
{
    clv_error err = {0};
    clv_shm_segment *segment;
    pthread_t threads[RANKS];
    member members[RANKS];
    must(clv_shm_segment_create(&segment, RANKS, &err), &err);
    for (int i = 0; i < SETS * RANKS; i++)
        segment->published[i] = UINT32_MAX - BEFORE_WRAP;
    for (int i = 0; i < RANKS; i++) {
        members[i] =
            (member){.segment = segment, .rank = i, .drawn = (uint64_t)i + 1, .until_ns = clv_now_ns() + PATIENCE_NS};
        assert_int_equal(pthread_create(&threads[i], NULL, take_steps, &members[i]), 0);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < RANKS; i++)
        if (members[i].failure[0])
            fail_msg("%s", members[i].failure);
    clv_shm_segment_free(segment);
}

/* A segment of the largest size overlaps with no other. */
static void test_room(void **state)
{
    clv_error err = {0};
    clv_shm_segment *segment;
    must(clv_shm_segment_create(&segment, RANKS, &err), &err);
    for (int step = 1; step <= 2; step++)
        for (int i = 0; i < RANKS; i++)
            for (int set = 0; set < SETS; set++)
                (void)publish(&(member){.segment = segment, .rank = i}, set, CLV_SHM_SLOT_BYTES);
    for (uint32_t number = 1; number <= 2; number++)
        for (int i = 0; i < RANKS; i++)
            for (int set = 0; set < SETS; set++)
                assert_true(is_right(segment, clv_shm_read_slot(segment, set, i, number), i, set, number));
    assert_null(clv_shm_read_slot(segment, 0, 0, 3));
    assert_null(clv_shm_read_slot(segment, CLV_SHM_GROUP_SETS - 1, RANKS - 1, 1));
    (void)publish(&(member){.segment = segment, .rank = RANKS - 1}, CLV_SHM_GROUP_SETS - 1,
                  CLV_SHM_SLOT_BYTES); /* the last one */
    clv_shm_segment_free(segment);
    clv_shm_segment_free(NULL);
}

/* ---- processes ---- */

/* Publishes three slots, and is killed while it fills the next. */
static void be_killed(clv_shm_segment *of)
{
    clv_shm_segment *segment;
    if (clv_shm_segment_open(&segment, 2, getppid(), of->file, of->name, NULL) != CLV_OK)
        _exit(1);
    clv_shm_segment_close_file(segment);
    for (int i = 0; i < 3; i++)
        (void)publish(&(member){.segment = segment, .rank = 1}, 0, CLV_SHM_SLOT_BYTES);
    clv_shm_slot *slot = clv_shm_next_slot(segment, 0, 1);
    slot->tag = 4;
    memset(clv_shm_slot_elements(segment, slot), 0xee, CLV_SHM_SLOT_BYTES / 2);
    raise(SIGKILL);
}

/* What a child by fork ends as, which has the segment and does this. */
static int end_of_child(clv_shm_segment *segment, void (*act)(clv_shm_segment *segment))
{
    int how;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        act(segment);
    assert_int_equal(waitpid(child, &how, 0), child);
    return how;
}

static void test_killed(void **state)
{
    clv_error err = {0};
    clv_shm_segment *segment;
    must(clv_shm_segment_create(&segment, 2, &err), &err);
    int how = end_of_child(segment, be_killed);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    assert_true(is_right(segment, clv_shm_read_slot(segment, 0, 1, 3), 1, 0, 3));
    assert_null(clv_shm_read_slot(segment, 0, 1, 4));
    clv_shm_segment_free(segment);
}

static void look_for_memory(clv_shm_segment *segment)
{
    _exit(msync(segment->memory, segment->bytes, MS_ASYNC) == -1 && errno == ENOMEM ? 0 : 1);
}

/* A child that lives on would keep the memory when all processes of the job are gone. */
static void test_child(void **state)
{
    clv_error err = {0};
    clv_shm_segment *segment;
    must(clv_shm_segment_create(&segment, 2, &err), &err);
    int how = end_of_child(segment, look_for_memory);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(msync(segment->memory, segment->bytes, MS_ASYNC), 0);
    clv_shm_segment_free(segment);
}

static void expect_refused(clv_status status, int64_t pid, int file, uint64_t name, int ranks, const char *says)
{
    clv_error err = {0};
    clv_shm_segment *segment = NULL;
    assert_int_equal(clv_shm_segment_open(&segment, ranks, pid, file, name, &err), status);
    assert_null(segment);
    if (!strstr(err.message, says))
        fail_msg("'%s' is not in: %s", says, err.message);
}

static void test_something_else(void **state)
{
    clv_error err = {0};
    clv_shm_segment *segment, *again;
    struct rlimit limit;
    int pipes[2];
    must(clv_shm_segment_create(&segment, 2, &err), &err);
    assert_int_equal(pipe(pipes), 0);
    expect_refused(CLV_ENOTFOUND, getpid(), segment->file, segment->name + 1, 2, "another file");
    expect_refused(CLV_ENOTFOUND, getpid(), pipes[0], segment->name, 2, "another file");
    expect_refused(CLV_EIO, getpid(), 1 << 20, segment->name, 2, strerror(ENOENT));
    expect_refused(CLV_EINVAL, getpid(), segment->file, segment->name, 3, "another size");
    must(clv_shm_segment_open(&again, 2, getpid(), segment->file, segment->name, &err), &err);
    (void)publish(&(member){.segment = segment, .rank = 1}, 0, 5);
    assert_true(is_right(again, clv_shm_read_slot(again, 0, 1, 1), 1, 0, 1));
    clv_shm_segment_free(again);
    clv_shm_segment_free(segment);
    close(pipes[0]);
    close(pipes[1]);

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit small = {.rlim_cur = 1 << 20, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(clv_shm_segment_create(&segment, 2, &err), CLV_EIO); /* and no signal */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps), cmocka_unit_test(test_room),           cmocka_unit_test(test_killed),
        cmocka_unit_test(test_child), cmocka_unit_test(test_something_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
