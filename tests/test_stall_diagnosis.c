/* test_stall_diagnosis.c - stall diagnosis after a timeout: the culprit is the rank that is behind, and not one that
 * itself waits for it.
 */
#include <string.h>
#include <time.h>

#include "cleave/spmd.h"
#include "comm/world/stall_diagnosis.h"
#include "must.h"
#include "unit_test.h"

/* ---- by what is known ---- */

enum { RANKS = 4 };

/* Ranks 0 1 / 2 3: rows are {0, 1} and {2, 3}, columns {0, 2} and {1, 3}. */
static clv_world *square(int *rows, int *columns)
{
    clv_world *world;
    clv_error err = {0};
    must(clv_world_new(&world, RANKS, NULL, &err), &err);
    must(clv_world_add_groups(rows, world, (int[]){0, 0, 1, 1}, NULL, &err), &err);
    must(clv_world_add_groups(columns, world, (int[]){0, 1, 0, 1}, NULL, &err), &err);
    return world;
}

static clv_culprit blame_of(const clv_world *world, const clv_rank_progress *all, int group_set, int rank, int missing)
{
    const clv_group *group = &world->sets[group_set]->view[rank];
    bool is_missing[RANKS] = {false}, scratch[RANKS];
    for (int i = 0; i < group->n; i++)
        is_missing[i] = group->ranks[i] == missing;
    return clv_find_culprit(world, all, group, is_missing, scratch);
}

static int blame(const clv_world *world, const clv_rank_progress *all, int group_set, int rank, int missing)
{
    const clv_culprit found = blame_of(world, all, group_set, rank, missing);
    assert_int_equal(found.undelivered_to, -1);
    return found.rank;
}

static void test_blame(void **state)
{
    int rows, columns;
    clv_world *world = square(&rows, &columns);
    clv_rank_progress all[RANKS] = {
        {.rank = 0, .known = 1, .in_collective = 1, .group_set = rows, .begun = 7, .collective = 7},
        {.rank = 1, .known = 1, .in_collective = 0, .group_set = columns, .begun = 6},
        {.rank = 2, .known = 1, .in_collective = 1, .group_set = columns, .begun = 8, .collective = 8},
        {.rank = 3, .known = 1, .in_collective = 1, .group_set = columns, .begun = 8, .collective = 8}};
    assert_int_equal(blame(world, all, rows, 0, 1), 1);    /* it computes */
    assert_int_equal(blame(world, all, columns, 2, 0), 1); /* 0 waits for it, too */
    all[1].in_collective = 1; /* it has come to where 0 waits: no message of it does, or it waits in an earlier step */
    assert_int_equal(blame(world, all, rows, 0, 1), 1);
    all[1] = (clv_rank_progress){.rank = 1, .unresponsive = 1};
    assert_int_equal(blame(world, all, columns, 2, 0), 1);
    all[1] = (clv_rank_progress){.rank = 1}; /* it cannot be asked */
    assert_int_equal(blame(world, all, columns, 2, 0), 0);
    assert_int_equal(blame(world, all, rows, 0, 1), 1);
    assert_int_equal(blame(world, all, rows, 0, -1), -1); /* no rank is missing any more */
    all[1] = (clv_rank_progress){.rank = 1, .known = 1, .group_set = -1, .begun = 0};
    all[0] = (clv_rank_progress){
        .rank = 0, .known = 1, .in_collective = 1, .group_set = 99, .begun = 3}; /* sets that there are not */
    assert_int_equal(blame(world, all, columns, 2, 0), 0);
    all[3] =
        (clv_rank_progress){.rank = 3, .known = 1, .group_set = rows, .begun = 0}; /* idle, and no rank waits for it */
    assert_int_equal(blame(world, all, rows, 0, 1), 1);
    clv_world_free(world);
}

/* By messages: rank 0 misses one of rank 1, which has gone on to wait for it in a later step, as have the others. */
static void test_blame_lost(void **state)
{
    int rows, columns;
    clv_world *world = square(&rows, &columns);
    clv_rank_progress all[RANKS] = {{.rank = 0, .group_set = rows, .begun = 9, .collective = 7, .awaited = 1 << 1},
                                    {.rank = 1, .group_set = rows, .begun = 9, .collective = 8, .awaited = 1 << 0},
                                    {.rank = 2, .group_set = columns, .begun = 9, .collective = 9, .awaited = 1 << 0},
                                    {.rank = 3, .group_set = rows, .begun = 9, .collective = 9, .awaited = 1 << 0}};
    for (int r = 0; r < RANKS; r++)
        all[r].known = all[r].in_collective = 1;
    for (int r = 0; r < RANKS; r++) {
        int group_set = r == 2 ? columns : rows;
        const clv_culprit found = blame_of(world, all, group_set, r, r == 1 || r == 2 ? 0 : r == 0 ? 1 : 2);
        assert_int_equal(found.rank, 1);
        assert_int_equal(found.undelivered_to, 0);
    }
    all[1].collective = 7; /* it is in the same step: what is sent there goes out when it begins */
    assert_int_equal(blame_of(world, all, rows, 0, 1).undelivered_to, 0);
    all[0].phase = 1; /* but not in a later part of it */
    assert_int_equal(blame_of(world, all, rows, 0, 1).undelivered_to, 1);
    assert_int_equal(blame_of(world, all, rows, 0, 1).rank, 0); /* rank 1 misses a message of the first */
    all[1].transferring = 1;
    assert_int_equal(blame(world, all, rows, 0, 1), 1); /* it has got all, and is slow */
    clv_world_free(world);
}

/* At the end of a step a rank waits for those that have begun it, too, and others beside it, but are not there yet. */
static void test_blame_end(void **state)
{
    int rows, columns;
    clv_world *world = square(&rows, &columns);
    clv_rank_progress all[RANKS] = {{.rank = 0,
                                     .known = 1,
                                     .in_collective = 1,
                                     .group_set = rows,
                                     .begun = 9,
                                     .collective = 7,
                                     .waits_begun = 20,
                                     .at_end_barrier = 1},
                                    {.rank = 1, .known = 1, .begun = 9, .waits_begun = 19},
                                    {.rank = 2,
                                     .known = 1,
                                     .in_collective = 1,
                                     .group_set = columns,
                                     .begun = 10,
                                     .collective = 8,
                                     .waits_begun = 22,
                                     .at_end_barrier = 1},
                                    {.rank = 3, .known = 1, .begun = 9, .waits_begun = 21}};
    assert_int_equal(blame(world, all, columns, 2, 0), 1);
    all[1].waits_begun = 20;
    assert_int_equal(blame(world, all, columns, 2, 0), 0);
    all[0].at_end_barrier = 0; /* the same where it waits for those of its process to have got their messages */
    all[0].at_local_barrier = 1;
    all[1].waits_begun = 19;
    assert_int_equal(blame(world, all, columns, 2, 0), 1);
    all[0].at_local_barrier = 0;
    assert_int_equal(blame(world, all, columns, 2, 0), 0);
    clv_world_free(world);
}

/* A rank that runs nothing waits for those of its process that do. */
static void test_blame_idle(void **state)
{
    int rows, columns;
    clv_world *world = square(&rows, &columns);
    clv_rank_progress all[RANKS] = {
        {.rank = 0, .known = 1, .in_collective = 1, .group_set = rows, .begun = 7, .collective = 7},
        {.rank = 1, .known = 1, .idle = 1, .begun = 6},
        {.rank = 2, .known = 1, .begun = 5},
        {.rank = 3, .known = 1, .idle = 1, .begun = 6}};
    assert_int_equal(blame(world, all, rows, 0, 1), 2);
    all[2].idle = 1; /* no rank there runs anything */
    assert_int_equal(blame(world, all, rows, 0, 1), 1);
    clv_world_free(world);
}

static void test_describe(void **state)
{
    char text[320];
    clv_rank_progress s = {.rank = 5};
    clv_rank_progress_describe(text, sizeof text, &s, "of process 2");
    assert_string_equal(text, "rank 5 (of process 2)");
    s.unresponsive = 1;
    clv_rank_progress_describe(text, sizeof text, &s, "process 2 of 3 (host a, pid 7)");
    assert_string_equal(text,
                        "rank 5 (its process does not answer: stopped, or cut off; process 2 of 3 (host a, pid 7))");
    s = (clv_rank_progress){.rank = 5, .known = 1, .activity = "layer 1"};
    clv_rank_progress_describe(text, sizeof text, &s, "");
    assert_string_equal(text, "rank 5 (no collective yet, at 'layer 1')");
    s = (clv_rank_progress){.rank = 5, .known = 1, .group_set = 3, .what = "all_reduce"};
    clv_rank_progress_describe(text, sizeof text, &s, "process 2");
    assert_string_equal(text, "rank 5 (last in all_reduce of group set 3, at 'nothing'; process 2)");
}

/* ---- in a run ---- */

static void sleep_ms(int64_t n)
{
    nanosleep(&(struct timespec){.tv_sec = n / 1000, .tv_nsec = n % 1000 * 1000000}, NULL);
}

enum { PATIENCE_MS = 600 };

/* Rank 1 is late; 0 waits for it, after 2 has begun to wait for 0: so it is 2 whose deadline passes first. */
static clv_status in_a_chain(void *arg, clv_spmd *spmd, const clv_local_tensor *in, clv_local_tensor *out,
                             clv_error *err)
{
    int rank = clv_spmd_rank(spmd);
    if (rank == 0)
        sleep_ms(PATIENCE_MS / 2);
    if (rank == 1)
        sleep_ms(PATIENCE_MS * 3 / 2);
    CLV_TRY(clv_spmd_barrier(spmd, "y", err));
    if (rank == 3) /* it would blame 1 without more ado */
        sleep_ms(PATIENCE_MS / 2);
    return clv_spmd_barrier(spmd, "x", err);
}

static void test_chain(void **state)
{
    static const char *const transports[] = {"threads", "mailbox"};
    for (int t = 0; t < 2; t++) {
        clv_error err = {0};
        clv_mesh mesh;
        clv_session *session;
        must(clv_mesh_parse(&mesh, "x=2,y=2", &err), &err);
        const clv_session_options options = {
            .size = sizeof options, .timeout_ms = PATIENCE_MS, .transport = transports[t], .no_pinning = 1};
        must(clv_session_new(&session, &mesh, &options, &err), &err);
        assert_int_equal(clv_spmd_run(session, in_a_chain, NULL, NULL, 0, NULL, 0, NULL, &err), CLV_ETIMEOUT);
        if (err.rank != 1 || !strstr(err.message, "culprit: rank 1 (no collective yet") ||
            !strstr(err.message, ", which others wait for; missing 1 of 2: rank 0"))
            fail_msg("%s: rank %d: %s", transports[t], err.rank, err.message);
        clv_session_free(session);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_blame),     cmocka_unit_test(test_blame_lost),
                                       cmocka_unit_test(test_blame_end), cmocka_unit_test(test_blame_idle),
                                       cmocka_unit_test(test_describe),  cmocka_unit_test(test_chain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
