/* test_barrier_memory_order.c - the barrier protocol of rank threads (src/comm/world/world.h) under every schedule
 * and every value that its memory orders allow loads to return: two and three ranks, flat and with a counter, and
 * ranks that fail on the way. x86 hides most faults of memory order, and the thread sanitizer sees only the schedules
 * that happen.
 */
#include <stdlib.h>
#include <string.h>

#include "model_checker_atomics.h"
#include "unit_test.h"

/* The protocol itself, with its atomics watched. */
#include "base/threads/wait.c"
#include "comm/threads/barrier.c"
#include "comm/world/world_failure.c"

enum { RANKS = 3 };

static struct {
    int ranks, meetings, spins;
    bool met;     /* one meeting lies behind all, so that the next uses the other line of slots */
    int aborts;   /* the rank that fails after its first meeting; -1: none */
    int hastes;   /* the rank whose deadline passes as soon as it would sleep; -1: none */
    long hurried; /* its clock */
    clv_world *world;
    int group_set;
    char post[RANKS][2], buffer[RANKS]; /* stand for a slot's posts and stages, and for what posts point to */
} run;

static void set_up(void)
{
    static const int one_group[RANKS];
    static const char *const words[RANKS][3] = {
        {"0.even", "0.odd", "0.released"}, {"1.even", "1.odd", "1.released"}, {"2.even", "2.odd", "2.released"}};
    clv_world_options options = {.timeout_ms = 60000, .spin = 0};
    if (clv_world_new(&run.world, run.ranks, &options, NULL) != CLV_OK ||
        clv_world_add_groups(&run.group_set, run.world, one_group, NULL, NULL) != CLV_OK)
        abort();
    run.world->spins = run.spins;
    run.hurried = 0;
    if (run.hastes >= 0)
        run.world->timeout_ns = 1;
    clv_group_set *group_set = run.world->sets[run.group_set];
    for (int r = 0; run.met && r < run.ranks; r++) {
        clv_slot *slot = &group_set->slots[r];
        slot->stamp = 2;
        slot->line[1].word = 2;
        slot->released = 2;
        group_set->counters[0].word = 2;
        group_set->counters[0].arrived = (uint32_t)run.ranks;
    }
    schedule_watch(&run.world->failed, "failed");
    for (int r = 0; r < run.ranks; r++) {
        schedule_watch(&group_set->slots[r].line[0].word, words[r][0]);
        schedule_watch(&group_set->slots[r].line[1].word, words[r][1]);
        schedule_watch(&group_set->slots[r].released, words[r][2]);
        schedule_watch_data(&run.post[r][0], "an even post");
        schedule_watch_data(&run.post[r][1], "an odd post");
        schedule_watch_data(&run.buffer[r], "a buffer");
    }
    schedule_watch(&group_set->counters[0].arrived, "arrived");
    schedule_watch(&group_set->counters[0].word, "counter");
    schedule_watch_data(&run.world->error, "the error");
}

static void tear_down(void)
{
    clv_group_set *group_set = run.world->sets[run.group_set];
    for (int r = 0; r < run.ranks; r++) /* whoever was cut short is no longer inside */
        group_set->slots[r].released = group_set->slots[r].stamp;
    for (int r = 0; r < run.ranks; r++)
        for (int k = 0; k < 2; k++)
            group_set->slots[r].line[k].word = group_set->slots[r].released - 2;
    clv_world_free(run.world);
}

static long hurried_clock(int rank)
{
    return rank == run.hastes ? run.hurried += 1000 : 0;
}

/* Meetings in pairs, as a collective that works in its members' buffers: posts and buffers of peers are read after the
 * first, and a rank writes its own buffer again after the second. */
static void rank_thread(int rank)
{
    clv_comm *comm = &run.world->comms[rank];
    const clv_group *group = clv_comm_group(comm, run.group_set);
    for (int k = 0; k < run.meetings; k++) {
        clv_collective_desc post = {.what = "a meeting", .tag = (uint64_t)k};
        if (rank == run.aborts && k == 1) {
            clv_error error = {.code = CLV_EIO, .rank = -1};
            clv_comm_abort(comm, &error);
            schedule_write(&run.buffer[rank]); /* freed */
            return;
        }
        int odd = (int)(comm->world->sets[run.group_set]->slots[rank].stamp >> 1 & 1);
        schedule_write(&run.post[rank][odd]);
        clv_error err = {0};
        if (clv_barrier_arrive_and_wait(comm, group, &post, &err) != CLV_OK) {
            bool as_meant = run.hastes >= 0 ? err.code == CLV_ETIMEOUT && err.rank != run.hastes
                                            : err.code == CLV_EPEER && err.rank == run.aborts;
            schedule_expect(as_meant, err.message);
            schedule_write(&run.buffer[rank]);
            return;
        }
        for (int i = 0; i < run.ranks; i++) {
            schedule_read(&run.post[i][odd]);
            schedule_expect(clv_barrier_peer_desc(comm, group, i)->tag == (uint64_t)k,
                            "a peer's post of another meeting");
            if (k % 2 == 0)
                schedule_read(&run.buffer[i]);
        }
        clv_barrier_release(comm, group);
        if (k % 2 == 1)
            schedule_write(&run.buffer[rank]);
    }
}

static void explore(int ranks, int meetings, int spins, int aborts, int hastes)
{
    schedule_result result;
    bool fails = aborts >= 0 || hastes >= 0;
    run.ranks = ranks;
    run.meetings = meetings;
    run.spins = spins;
    run.aborts = aborts;
    run.hastes = hastes;
    schedule_explore(&result, &(schedule_case){ranks, fails, set_up, rank_thread, tear_down, hurried_clock});
    print_message("%d ranks, %d meetings, %s, %s: %lld executions, %lld states\n", ranks, meetings,
                  spins ? "flat" : "by counter",
                  aborts >= 0   ? "one fails"
                  : hastes >= 0 ? "one will not wait"
                                : "all well",
                  (long long)result.executions, (long long)result.states);
    if (result.fault[0])
        fail_msg("%d ranks, %d meetings, %d spins, rank %d fails, rank %d will not wait: %s", ranks, meetings, spins,
                 aborts, hastes, result.fault);
}

static void test_two_ranks(void **state)
{
    for (int spins = 0; spins < 2; spins++)
        explore(2, 2, spins, -1, -1);
}

static void test_one_fails(void **state)
{
    explore(2, 2, 0, 0, -1);
}

/* Its stamp stands when it gives up: who comes later must not take it for one that is there. */
static void test_one_will_not_wait(void **state)
{
    for (int met = 0; met < 2; met++) {
        run.met = met;
        explore(2, 1, met, -1, 0);
    }
    run.met = false;
}

/* More meetings, so that slots are used again, and three ranks: a minute or two, for CLV_SWEEP=all. */
static void test_longer(void **state)
{
    const char *sweep = getenv("CLV_SWEEP");
    if (!sweep || strcmp(sweep, "all") != 0)
        skip();
    for (int spins = 0; spins < 2; spins++) {
        explore(2, 3, spins, -1, -1);
        explore(2, 2, spins, spins, -1);
        explore(2, 2, spins, 1 - spins, -1);
        explore(2, 2, spins, -1, 0);
        explore(3, 1, spins, -1, -1);
    }
}

int main(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    print_message("skipped: the sanitizers do not know coroutines\n");
    return 0;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_ranks),
        cmocka_unit_test(test_one_fails),
        cmocka_unit_test(test_one_will_not_wait),
        cmocka_unit_test(test_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
