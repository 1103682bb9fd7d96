/* test_shm_segment.c - memory that processes share: cards are whole when they are seen and stay so while they are read,
 * in any number of steps; what a process that was killed had shown stays; who finds something else than the memory has
 * none. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/threads/wait.h"
#include "comm/mpi/shm_segment.h"
#include "must.h"

#define PATIENCE_NS INT64_C(30000000000)

enum {
    SEATS = 3,
    SETS = 2,
    STEPS = 4000,
    MOST = 700,      /* bytes on a card */
    BEFORE_WRAP = 77 /* steps until the numbers of steps begin anew */
};

/* ---- steps, by threads ---- */

typedef struct member {
    clv_shm_segment *board;
    int seat;
    uint64_t drawn;
    int64_t until_ns; /* steps have ended */
    char failure[160];
} member;

static uint32_t draw(member *s, uint32_t n)
{
    s->drawn = s->drawn * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->drawn >> 33) % n;
}

static unsigned char byte_of(int seat, int set, uint32_t number)
{
    return (unsigned char)(number * 31 + (uint32_t)(seat * 7 + set));
}

/* Every byte of it is of this step. */
static bool is_right(const clv_shm_segment *board, const clv_shm_slot *card, int seat, int set, uint32_t number)
{
    const unsigned char *elements = clv_shm_slot_elements(board, card);
    bool right = card->tag == number && strcmp(card->what, "step") == 0;
    for (int64_t i = 0; i < card->bytes; i++)
        right = right && elements[i] == byte_of(seat, set, number);
    return right;
}

static uint32_t show(member *s, int set, int64_t bytes)
{
    clv_shm_slot *card = clv_shm_next_slot(s->board, set, s->seat);
    uint32_t number = s->board->shown[set * s->board->seats + s->seat] + 1;
    card->tag = number;
    card->bytes = bytes;
    memcpy(card->what, "step", 5);
    memset(clv_shm_slot_elements(s->board, card), byte_of(s->seat, set, number), (size_t)bytes);
    assert_int_equal(clv_shm_publish_slot(s->board, set, s->seat), number);
    return number;
}

static void *take_steps(void *arg)
{
    member *s = arg;
    for (int step = 0; step < STEPS && !s->failure[0]; step++) {
        int set = (int)((step * 7 / 3) % SETS); /* the same for all */
        uint32_t number = show(s, set, draw(s, MOST));
        for (int k = 1; k < SEATS; k++) {
            int other = (s->seat + k) % SEATS;
            const clv_shm_slot *card;
            while (!(card = clv_shm_read_slot(s->board, set, other, number)) && clv_now_ns() < s->until_ns)
                sched_yield();
            if (draw(s, 50) == 0)
                sched_yield(); /* late: the other is further then */
            if (!card || !is_right(s->board, card, other, set, number))
                snprintf(s->failure, sizeof s->failure, "seat %d, step %d of set %d: %s card of seat %d", s->seat, step,
                         set, card ? "another" : "no", other);
        }
    }
    return NULL;
}

static void test_steps(void **state)
{
    clv_error err = {0};
    clv_shm_segment *board;
    pthread_t threads[SEATS];
    member members[SEATS];
    (void)state;
    must(clv_shm_segment_create(&board, SEATS, &err), &err);
    for (int i = 0; i < SETS * SEATS; i++)
        board->shown[i] = UINT32_MAX - BEFORE_WRAP;
    for (int i = 0; i < SEATS; i++) {
        members[i] =
            (member){.board = board, .seat = i, .drawn = (uint64_t)i + 1, .until_ns = clv_now_ns() + PATIENCE_NS};
        assert_int_equal(pthread_create(&threads[i], NULL, take_steps, &members[i]), 0);
    }
    for (int i = 0; i < SEATS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SEATS; i++)
        if (members[i].failure[0])
            fail_msg("%s", members[i].failure);
    clv_shm_segment_free(board);
}

/* One that has as many bytes as there is room for lies beside all others. */
static void test_room(void **state)
{
    clv_error err = {0};
    clv_shm_segment *board;
    (void)state;
    must(clv_shm_segment_create(&board, SEATS, &err), &err);
    for (int step = 1; step <= 2; step++)
        for (int i = 0; i < SEATS; i++)
            for (int set = 0; set < SETS; set++)
                (void)show(&(member){.board = board, .seat = i}, set, CLV_SHM_SLOT_BYTES);
    for (uint32_t number = 1; number <= 2; number++)
        for (int i = 0; i < SEATS; i++)
            for (int set = 0; set < SETS; set++)
                assert_true(is_right(board, clv_shm_read_slot(board, set, i, number), i, set, number));
    assert_null(clv_shm_read_slot(board, 0, 0, 3));
    assert_null(clv_shm_read_slot(board, CLV_SHM_GROUP_SETS - 1, SEATS - 1, 1));
    (void)show(&(member){.board = board, .seat = SEATS - 1}, CLV_SHM_GROUP_SETS - 1,
               CLV_SHM_SLOT_BYTES); /* the last one */
    clv_shm_segment_free(board);
    clv_shm_segment_free(NULL);
}

/* ---- processes ---- */

/* Shows three cards, and is killed while it fills the next. */
static void be_killed(clv_shm_segment *of)
{
    clv_shm_segment *board;
    if (clv_shm_segment_open(&board, 2, getppid(), of->file, of->name, NULL) != CLV_OK)
        _exit(1);
    clv_shm_segment_close_file(board);
    for (int i = 0; i < 3; i++)
        (void)show(&(member){.board = board, .seat = 1}, 0, CLV_SHM_SLOT_BYTES);
    clv_shm_slot *card = clv_shm_next_slot(board, 0, 1);
    card->tag = 4;
    memset(clv_shm_slot_elements(board, card), 0xee, CLV_SHM_SLOT_BYTES / 2);
    raise(SIGKILL);
}

/* What a child by fork ends as, which has the board and does this. */
static int end_of_child(clv_shm_segment *board, void (*act)(clv_shm_segment *board))
{
    int how;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        act(board);
    assert_int_equal(waitpid(child, &how, 0), child);
    return how;
}

static void test_killed(void **state)
{
    clv_error err = {0};
    clv_shm_segment *board;
    (void)state;
    must(clv_shm_segment_create(&board, 2, &err), &err);
    int how = end_of_child(board, be_killed);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    assert_true(is_right(board, clv_shm_read_slot(board, 0, 1, 3), 1, 0, 3));
    assert_null(clv_shm_read_slot(board, 0, 1, 4));
    clv_shm_segment_free(board);
}

static void look_for_memory(clv_shm_segment *board)
{
    _exit(msync(board->memory, board->bytes, MS_ASYNC) == -1 && errno == ENOMEM ? 0 : 1);
}

/* A child that lives on would keep the memory when all processes of the job are gone. */
static void test_child(void **state)
{
    clv_error err = {0};
    clv_shm_segment *board;
    (void)state;
    must(clv_shm_segment_create(&board, 2, &err), &err);
    int how = end_of_child(board, look_for_memory);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(msync(board->memory, board->bytes, MS_ASYNC), 0);
    clv_shm_segment_free(board);
}

static void expect_refused(clv_status status, int64_t pid, int file, uint64_t name, int seats, const char *says)
{
    clv_error err = {0};
    clv_shm_segment *board = NULL;
    assert_int_equal(clv_shm_segment_open(&board, seats, pid, file, name, &err), status);
    assert_null(board);
    if (!strstr(err.message, says))
        fail_msg("'%s' is not in: %s", says, err.message);
}

static void test_something_else(void **state)
{
    clv_error err = {0};
    clv_shm_segment *board, *again;
    struct rlimit limit;
    int pipes[2];
    (void)state;
    must(clv_shm_segment_create(&board, 2, &err), &err);
    assert_int_equal(pipe(pipes), 0);
    expect_refused(CLV_ENOTFOUND, getpid(), board->file, board->name + 1, 2, "something else");
    expect_refused(CLV_ENOTFOUND, getpid(), pipes[0], board->name, 2, "something else");
    expect_refused(CLV_EIO, getpid(), 1 << 20, board->name, 2, strerror(ENOENT));
    expect_refused(CLV_EINVAL, getpid(), board->file, board->name, 3, "another size");
    must(clv_shm_segment_open(&again, 2, getpid(), board->file, board->name, &err), &err);
    (void)show(&(member){.board = board, .seat = 1}, 0, 5);
    assert_true(is_right(again, clv_shm_read_slot(again, 0, 1, 1), 1, 0, 1));
    clv_shm_segment_free(again);
    clv_shm_segment_free(board);
    close(pipes[0]);
    close(pipes[1]);

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit small = {.rlim_cur = 1 << 20, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(clv_shm_segment_create(&board, 2, &err), CLV_EIO); /* and no signal */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* ---- failures ---- */

static void *tell(void *arg)
{
    member *s = arg;
    clv_error error = {.code = CLV_EPEER, .rank = s->seat};
    memset(error.op, 'a' + s->seat, sizeof error.op);
    memset(error.message, 'a' + s->seat, sizeof error.message);
    clv_shm_publish_failure(s->board, &error);
    return NULL;
}

static void test_failure(void **state)
{
    clv_error err = {0}, heard;
    clv_shm_segment *board;
    pthread_t threads[SEATS];
    member members[SEATS];
    (void)state;
    must(clv_shm_segment_create(&board, SEATS, &err), &err);
    assert_false(clv_shm_read_failure(board, &heard));
    for (int i = 0; i < SEATS; i++) {
        members[i] = (member){.board = board, .seat = i};
        assert_int_equal(pthread_create(&threads[i], NULL, tell, &members[i]), 0);
    }
    while (!clv_shm_read_failure(board, &heard))
        sched_yield();
    for (int i = 0; i < SEATS; i++)
        pthread_join(threads[i], NULL);
    for (int k = 0; k < 2; k++) {
        assert_true(heard.rank >= 0 && heard.rank < SEATS);
        assert_int_equal(strlen(heard.op), sizeof heard.op - 1);
        assert_int_equal(heard.message[0], 'a' + heard.rank);
        assert_int_equal(strspn(heard.message, (char[]){heard.message[0], 0}), sizeof heard.message - 1);
        clv_error first = heard;
        assert_true(clv_shm_read_failure(board, &heard));
        assert_memory_equal(&first, &heard, sizeof first); /* the others came too late */
    }
    clv_shm_segment_free(board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps), cmocka_unit_test(test_room),           cmocka_unit_test(test_killed),
        cmocka_unit_test(test_child), cmocka_unit_test(test_something_else), cmocka_unit_test(test_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
