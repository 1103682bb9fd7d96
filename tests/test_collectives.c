/* test_collectives.c - collectives over every transport, compared with results computed from the inputs' formula; under
 * an MPI launcher over MPI, each process having some of the ranks.
 *
 * Every element's value is a small integer that follows from (collective, rank, index), so that each rank knows the
 * inputs of all others, and sums are exact in every dtype. Rounding and order have a test of their own.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/threads/wait.h"
#include "comm/mpi/mpi_world.h"
#include "mpi_test_job.h"
#include "single_step.h"
#include "sweep.h"
#include "unit_test.h"

enum { MAX_RANKS = 64, MAX_SETS = 8, MOST_ELEMS = 50001, HALF_BYTES = 8 * MOST_ELEMS + 64 };

/* Those of one process, or the one of a job. */
static const char *transports[] = {"threads", "mailbox"};
static int n_transports = 2;

typedef struct job job;
typedef void body(job *job, int rank, clv_comm *comm);

struct job {
    int ranks;
    int first, here; /* of this process */
    clv_world *world;
    const clv_transport *transport;
    clv_window *window;
    unsigned char *memory[MAX_RANKS]; /* operands lie in the first half, results in the second */
    body *run;
    int n_sets;
    int sets[MAX_SETS];
    uint64_t seed;
    int steps;
    void *extra;
    char failure[MAX_RANKS][700]; /* "" when the rank is content */
    char note[MAX_RANKS][64];
    clv_status status[MAX_RANKS];
    clv_error error[MAX_RANKS];
    int64_t took_ns[MAX_RANKS];
};

typedef struct thread_arg {
    job *job;
    int rank;
} thread_arg;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int64_t draw(uint64_t *state, int64_t below)
{
    return (int64_t)(mix((*state)++) % (uint64_t)below);
}

static void *rank_main(void *p)
{
    thread_arg *a = p;

    a->job->run(a->job, a->rank, clv_world_comm(a->job->world, a->rank));
    return NULL;
}

static void run_threads(job *j)
{
    pthread_t threads[MAX_RANKS];
    thread_arg args[MAX_RANKS];

    for (int r = j->first; r < j->first + j->here; r++) {
        args[r] = (thread_arg){j, r};
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &args[r]), 0);
    }
    for (int r = j->first; r < j->first + j->here; r++)
        pthread_join(threads[r], NULL);
}

static void complain(job *j, int rank)
{
    memcpy(j->failure[rank], j->error[rank].message, sizeof j->error[rank].message);
}

static void expect_content(const job *j)
{
    for (int r = j->first; r < j->first + j->here; r++)
        if (j->failure[r][0])
            fail_msg("rank %d of %d: %s", r, j->ranks, j->failure[r]);
}

/* The whole world; rows and columns of a mesh `width` wide; the world backwards, and even ranks before odd ones. */
static void add_sets(job *j, int width)
{
    int whole[MAX_RANKS] = {0}, row[MAX_RANKS], column[MAX_RANKS], backwards[MAX_RANKS], even_first[MAX_RANKS];

    for (int r = 0; r < j->ranks; r++) {
        row[r] = r / width;
        column[r] = r % width;
        backwards[r] = j->ranks - 1 - r;
        even_first[r] = r % 2 == 0 ? r / 2 : (j->ranks + 1) / 2 + r / 2;
    }
    assert_int_equal(clv_world_add_groups(&j->sets[0], j->world, whole, NULL, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&j->sets[1], j->world, row, NULL, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&j->sets[2], j->world, column, NULL, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&j->sets[3], j->world, whole, backwards, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&j->sets[4], j->world, whole, even_first, NULL), CLV_OK);
    j->n_sets = 5;
}

static bool is_threads(int t)
{
    return strcmp(transports[t], "threads") == 0;
}

/* Whether each process gets a rank. */
static bool fits(int ranks)
{
    return !launched_job() || launched_links(ranks);
}

static void start(job *j, const char *transport, int ranks, int width, int64_t timeout_ms, int spin, body *run)
{
    clv_world_options options = {
        .timeout_ms = timeout_ms, .spin = spin, .transport = transport, .links = launched_links(ranks)};
    void *memory[MAX_RANKS];

    memset(j, 0, sizeof *j);
    j->ranks = ranks;
    j->run = run;
    clv_error err = {0};
    if (clv_world_new(&j->world, ranks, &options, &err) != CLV_OK)
        fail_msg("%s", err.message);
    j->transport = clv_world_transport(j->world);
    j->first = j->world->first_local;
    j->here = j->world->n_local;
    for (int r = 0; r < ranks; r++)
        memory[r] = j->memory[r] = malloc(2 * (size_t)HALF_BYTES);
    j->window = hand_window(j->world, memory);
    add_sets(j, width);
}

static void finish(job *j)
{
    hand_window_free(j->world, j->window);
    clv_world_free(j->world);
    for (int r = 0; r < j->ranks; r++)
        free(j->memory[r]);
}

/* ---- one random step ---- */

typedef struct random_step {
    uint64_t state; /* draws; alike on all members */
    uint64_t id;
    job *job;
    int rank;
    clv_comm *comm;
    const clv_group *group;
    clv_transfer transfer;
    int64_t n; /* elements of the whole */
    clv_shard in[MAX_RANKS], out[MAX_RANKS];
} random_step;

static int value(const random_step *s, int member, int64_t i)
{
    int v = (int)(mix(s->id * 131 + (uint64_t)member * 1000003 + (uint64_t)i) % 17);

    return s->transfer.dtype == CLV_U8 ? v : v - 8;
}

static clv_shard run_of(int64_t lo, int64_t hi)
{
    return (clv_shard){.rank = 1, .lo = {lo}, .hi = {hi}};
}

/* Mostly small, some empty, a few large. */
static int64_t draw_count(uint64_t *state)
{
    switch (draw(state, 8)) {
    case 0:
        return 0;
    case 1:
        return 12000 + draw(state, 30000);
    default:
        return draw(state, 700);
    }
}

static clv_shard draw_run(random_step *s)
{
    int64_t a = draw(&s->state, s->n + 1), b = draw(&s->state, s->n + 1);

    return a < b ? run_of(a, b) : run_of(b, a);
}

/* Cuts the whole into blocks, some empty; each member holds one, and each block is held, some by several. */
static void draw_blocks(random_step *s)
{
    int64_t cuts[MAX_RANKS + 1] = {0};
    int n = s->group->n, blocks = 1 + (int)draw(&s->state, n);

    for (int i = 1; i < blocks; i++)
        cuts[i] = cuts[i - 1] + draw(&s->state, s->n - cuts[i - 1] + 1);
    cuts[blocks] = s->n;
    for (int m = 0; m < n; m++) {
        int block = m < blocks ? m : (int)draw(&s->state, blocks);

        s->in[m] = run_of(cuts[block], cuts[block + 1]);
    }
    for (int m = n - 1; m > 0; m--) {
        int other = (int)draw(&s->state, m + 1);
        clv_shard swap = s->in[m];

        s->in[m] = s->in[other];
        s->in[other] = swap;
    }
}

/* all_gather, all_to_all, permute, broadcast are such. */
static void draw_exchange(random_step *s)
{
    bool everything = draw(&s->state, 3) == 0;

    s->transfer.what = "exchange";
    draw_blocks(s);
    for (int m = 0; m < s->group->n; m++) {
        clv_shard run = draw_run(s);

        s->out[m] = everything ? run_of(0, s->n) : run;
    }
}

static void draw_reduction(random_step *s)
{
    bool everything = draw(&s->state, 2);

    s->transfer.what = everything ? "all_reduce" : "reduce_scatter";
    s->transfer.parts.reduces = true;
    s->transfer.reduction =
        s->transfer.dtype == CLV_U8 || draw(&s->state, 3) == 0 ? CLV_REDUCTION_MAX : CLV_REDUCTION_SUM;
    for (int m = 0; m < s->group->n; m++) {
        clv_shard run = draw_run(s);

        s->in[m] = run_of(0, s->n);
        s->out[m] = everything ? s->in[m] : run;
    }
}

/* Element i of the result. What is copied is alike on all that hold it. */
static double expected(const random_step *s, int64_t i)
{
    double total = value(s, 0, i);

    if (!s->transfer.parts.reduces)
        return total;
    for (int m = 1; m < s->group->n; m++) {
        double v = value(s, m, i);

        total = s->transfer.reduction == CLV_REDUCTION_SUM ? total + v : v > total ? v : total;
    }
    return total;
}

static void complain_of(random_step *s, int64_t i, double got)
{
    snprintf(s->job->failure[s->rank], sizeof s->job->failure[s->rank],
             "%s %s of %lld over %d by %s: element %lld is %g, not %g", s->transfer.what,
             clv_dtype_name(s->transfer.dtype), (long long)s->n, s->group->n, s->job->transport->name, (long long)i,
             got, expected(s, i));
}

static void run_step(random_step *s)
{
    job *j = s->job;
    int me = s->group->me;
    const clv_shard *in = &s->in[me], *out = &s->out[me];
    unsigned char *from = j->memory[s->rank], *to = from + HALF_BYTES;
    size_t size = clv_dtype_size(s->transfer.dtype);

    for (int64_t i = in->lo[0]; i < in->hi[0]; i++)
        clv_dtype_store(s->transfer.dtype, from, i - in->lo[0], value(s, s->transfer.parts.reduces ? me : 0, i));
    memset(to, 0x55, (size_t)(out->hi[0] - out->lo[0] + 1) * size);
    s->transfer.in = from;
    s->transfer.out = to;
    s->transfer.in_window = s->transfer.out_window = j->window;
    if (hand_step(j->world, s->comm, &s->transfer, &j->error[s->rank]) != CLV_OK) {
        complain(j, s->rank);
        return;
    }
    for (int64_t i = out->lo[0]; i < out->hi[0] && !j->failure[s->rank][0]; i++) {
        double got = clv_dtype_load(s->transfer.dtype, to, i - out->lo[0]);

        if (!(got == expected(s, i)))
            complain_of(s, i, got);
    }
    for (size_t k = 0; k < size; k++)
        if (to[(size_t)(out->hi[0] - out->lo[0]) * size + k] != 0x55)
            snprintf(j->failure[s->rank], sizeof j->failure[s->rank], "%s wrote beyond its result", s->transfer.what);
}

static void random_steps(job *j, int rank, clv_comm *comm)
{
    static const clv_dtype dtypes[] = {CLV_F32, CLV_F64, CLV_BF16, CLV_F16, CLV_I32, CLV_I64, CLV_U8};

    for (int k = 0; k < j->steps && !j->failure[rank][0]; k++) {
        uint64_t state = mix(j->seed + (uint64_t)k);
        const clv_group *group = clv_comm_group(comm, j->sets[draw(&state, j->n_sets)]);
        random_step s = {
            .id = mix(state + (uint64_t)group->ranks[0]), .job = j, .rank = rank, .comm = comm, .group = group};

        s.state = s.id; /* other groups do something else at the same time */
        s.transfer = (clv_transfer){.tag = (uint64_t)k,
                                    .group = group,
                                    .dtype = dtypes[draw(&s.state, 7)],
                                    .parts = {.n = group->n, .in = s.in, .out = s.out}};
        s.n = draw_count(&s.state);
        if (draw(&s.state, 2))
            draw_exchange(&s);
        else
            draw_reduction(&s);
        run_step(&s);
    }
}

static uint64_t print_seed(void)
{
    const char *text = getenv("CLV_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

    print_message("seed %llu (CLV_SEED)\n", (unsigned long long)seed);
    return seed;
}

static void run_random(const char *transport, int ranks, int width, int spin, int steps, uint64_t seed)
{
    static job j;

    start(&j, transport, ranks, width, 20000, spin, random_steps);
    j.seed = seed;
    j.steps = steps;
    run_threads(&j);
    bool failed = clv_world_has_failed(j.world, NULL);
    finish(&j);
    expect_content(&j);
    assert_false(failed);
}

static void test_any_number_of_ranks(void **state)
{
    uint64_t seed = print_seed();

    for (int t = 0; t < n_transports; t++) {
        for (int ranks = 1; ranks <= 8; ranks++)
            if (fits(ranks))
                run_random(transports[t], ranks, ranks > 4 ? 3 : 2, -1, is_threads(t) && !sweep_is_thin() ? 120 : 40,
                           seed + (uint64_t)ranks);
        run_random(transports[t], 13, 4, -1, is_threads(t) ? 60 : 20, seed);
    }
}

/* Spinning with more ranks than cores works too, and so does the flat meeting over many; so does a big hub. */
static void test_both_meetings(void **state)
{
    uint64_t seed = print_seed();

    run_random("threads", 3, 2, 1, 60, seed);
    run_random("threads", 2, 2, 0, 200, seed);
    run_random("threads", 20, 5, 0, 20, seed);
}

static void test_ten_thousand(void **state)
{
    for (int t = 0; t < n_transports && fits(2); t++)
        run_random(transports[t], 2, 2, -1, is_threads(t) ? sweep_is_thin() ? 1000 : 10000 : 500, print_seed());
}

/* ---- order and rounding ---- */

/* Fills this rank's operand by the caller, sums, and returns the result; NULL when that failed. */
static const void *sum_up(job *j, int rank, clv_comm *comm, int64_t n, clv_dtype dtype, clv_reduction reduction)
{
    clv_shard shards[MAX_RANKS];
    unsigned char *to = j->memory[rank] + HALF_BYTES;
    clv_transfer sum =
        hand_all_reduce(clv_comm_group(comm, j->sets[0]), j->window, to, j->memory[rank], n, dtype, shards);

    sum.reduction = reduction;
    if (hand_step(j->world, comm, &sum, &j->error[rank]) == CLV_OK)
        return to;
    complain(j, rank);
    return NULL;
}

/* Of sizes so far apart that the order of a sum matters in every dtype. */
static double rounding_input(int rank, int64_t i)
{
    uint64_t drawn = mix((uint64_t)(rank * 7919 + i));

    return ldexp((double)(drawn % 2000001) - 1e6, (int)(mix(drawn) % 24) - 32);
}

static double rounded_sum(int ranks, clv_dtype dtype, int64_t i)
{
    double scratch, sum = 0;

    for (int r = 0; r < ranks; r++) {
        clv_dtype_store(dtype, &scratch, 0, rounding_input(r, i));
        double x = clv_dtype_load(dtype, &scratch, 0);
        sum = r == 0 ? x : dtype == CLV_F64 ? sum + x : (double)((float)sum + (float)x);
    }
    clv_dtype_store(dtype, &scratch, 0, sum);
    return clv_dtype_load(dtype, &scratch, 0);
}

static void reduce_rounding(job *j, int rank, clv_comm *comm)
{
    static const clv_dtype dtypes[] = {CLV_F32, CLV_F64, CLV_BF16, CLV_F16};
    static const int64_t sizes[] = {777, MOST_ELEMS};

    for (int k = 0; k < 8; k++) {
        clv_dtype dtype = dtypes[k / 2];
        int64_t n = sizes[k % 2];

        for (int64_t i = 0; i < n; i++)
            clv_dtype_store(dtype, j->memory[rank], i, rounding_input(rank, i));
        const void *out = sum_up(j, rank, comm, n, dtype, CLV_REDUCTION_SUM);
        for (int64_t i = 0; out && i < n && !j->failure[rank][0]; i++)
            if (!(clv_dtype_load(dtype, out, i) == rounded_sum(j->ranks, dtype, i)))
                snprintf(j->failure[rank], sizeof j->failure[rank], "%s element %lld of %lld: %.17g not %.17g",
                         clv_dtype_name(dtype), (long long)i, (long long)n, clv_dtype_load(dtype, out, i),
                         rounded_sum(j->ranks, dtype, i));
    }
}

static void test_order_and_rounding(void **state)
{
    static job j;

    for (int t = 0; t < n_transports && fits(3); t++)
        for (int ranks = 3; ranks <= 7; ranks += 2) {
            start(&j, transports[t], ranks, 2, 10000, -1, reduce_rounding);
            run_threads(&j);
            finish(&j);
            expect_content(&j);
        }
}

/* Every f16 and bf16 value goes through the sum of two (x + 0) and the maximum unchanged, NaN stays NaN. */
static void reduce_every_half(job *j, int rank, clv_comm *comm)
{
    static const clv_dtype dtypes[] = {CLV_BF16, CLV_F16};
    uint16_t *in = (uint16_t *)(void *)j->memory[rank];

    for (int k = 0; k < 4; k++) {
        clv_dtype dtype = dtypes[k / 2];
        bool max = k % 2;

        for (int i = 0; i < 65536; i++)
            in[i] = rank == max ? (uint16_t)i : !max ? 0 : dtype == CLV_BF16 ? 0xff80 : 0xfc00; /* 0, or -inf */
        const uint16_t *out = sum_up(j, rank, comm, 65536, dtype, max ? CLV_REDUCTION_MAX : CLV_REDUCTION_SUM);
        for (int i = 0; out && i < 65536; i++) {
            uint16_t x = (uint16_t)i;
            double want = clv_dtype_load(dtype, &x, 0), have = clv_dtype_load(dtype, out, i);

            if (!(have == want) && !(isnan(want) && isnan(have)))
                snprintf(j->failure[rank], sizeof j->failure[rank], "%s %04x became %04x", clv_dtype_name(dtype), i,
                         out[i]);
        }
    }
}

static void test_every_half(void **state)
{
    static job j;

    for (int t = 0; t < n_transports && fits(2); t++) {
        start(&j, transports[t], 2, 2, 10000, -1, reduce_every_half);
        run_threads(&j);
        finish(&j);
        expect_content(&j);
    }
}

/* ---- failure ---- */

static void nap_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* A step of n f32 that all take from all: out has n elements of every member. */
static clv_transfer gather(const job *j, int rank, clv_comm *comm, int64_t n, clv_shard shards[2 * MAX_RANKS])
{
    const clv_group *group = clv_comm_group(comm, j->sets[0]);

    for (int m = 0; m < group->n; m++) {
        shards[m] = run_of(m * n, (m + 1) * n);
        shards[MAX_RANKS + m] = run_of(0, group->n * n);
    }
    return (clv_transfer){.what = "all_gather",
                          .tag = 5,
                          .group = group,
                          .dtype = CLV_F32,
                          .parts = {.n = group->n, .in = shards, .out = shards + MAX_RANKS},
                          .in = j->memory[rank],
                          .out = j->memory[rank] + HALF_BYTES,
                          .in_window = j->window,
                          .out_window = j->window};
}

static const clv_error gone = {.code = CLV_EINVAL, .op = "layer 7 mlp", .message = "the weights are gone"};

static void abort_before(job *j, int rank, clv_comm *comm)
{
    clv_shard shards[2 * MAX_RANKS];
    clv_transfer step = gather(j, rank, comm, j->steps, shards);

    if (rank == 1) {
        nap_ms(30);
        j->took_ns[rank] = clv_now_ns();
        clv_comm_abort(comm, &gone);
        return;
    }
    j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
    j->took_ns[rank] = clv_now_ns();
    clv_error again = {0};
    if (hand_step(j->world, comm, &step, &again) != CLV_EPEER || strcmp(again.message, j->error[rank].message) != 0)
        snprintf(j->failure[rank], sizeof j->failure[rank], "a failed world went on: %.500s", again.message);
}

/* Rank 1 fails when it has what it waited for; the others find out at the end of the step, or in the next. */
static void abort_inside(job *j, int rank, clv_comm *comm)
{
    clv_shard shards[2 * MAX_RANKS];
    clv_transfer step = gather(j, rank, comm, 10, shards);
    clv_prepared_collective *plan = NULL;
    void *staging;

    if (hand_prepare(&plan, &staging, j->world, comm, &step, &j->error[rank]) != CLV_OK ||
        j->transport->start(plan, staging, &j->error[rank]) != CLV_OK ||
        j->transport->wait(plan, CLV_WAIT_OUTPUT_READY, &j->error[rank]) != CLV_OK)
        complain(j, rank);
    if (rank == 1) {
        nap_ms(30); /* else others may see the failure while they still begin */
        j->took_ns[rank] = clv_now_ns();
        clv_comm_abort(comm, &gone);
    } else {
        j->status[rank] = j->transport->wait(plan, CLV_WAIT_INPUT_REUSABLE, &j->error[rank]);
        if (j->status[rank] == CLV_OK)
            j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
        j->took_ns[rank] = clv_now_ns();
    }
    hand_release(j->world, plan, staging);
}

static void expect_abort_seen(job *j)
{
    run_threads(j);
    expect_content(j);
    for (int r = j->first; r < j->first + j->here; r++) {
        if (r == 1)
            continue;
        assert_int_equal(j->status[r], CLV_EPEER);
        assert_int_equal(j->error[r].rank, 1);
        assert_string_equal(j->error[r].op, "layer 7 mlp");
        assert_non_null(strstr(j->error[r].message, "the weights are gone"));
        if (clv_world_comm(j->world, 1))
            assert_true(j->took_ns[r] - j->took_ns[1] < 200000000);
    }
    finish(j);
}

static void test_abort(void **state)
{
    static job j;

    for (int t = 0; t < n_transports && fits(4); t++)
        for (int spin = !is_threads(t); spin < 2; spin++) {
            start(&j, transports[t], 4, 2, 20000, spin, abort_before);
            j.steps = 10;
            expect_abort_seen(&j);
            start(&j, transports[t], 4, 2, 20000, spin, abort_before);
            j.steps = 10000;
            expect_abort_seen(&j);
            start(&j, transports[t], 4, 2, 20000, spin, abort_inside);
            expect_abort_seen(&j);
        }
}

/* Rank 1 is busy, for which rank 0 of its process waits; the last rank, of another process, fails meanwhile. */
static void fail_elsewhere(job *j, int rank, clv_comm *comm)
{
    clv_shard shards[2 * MAX_RANKS];
    clv_transfer step = gather(j, rank, comm, 10, shards);
    clv_prepared_collective *plan = NULL;
    void *staging = NULL;
    if (rank == j->ranks - 1) {
        assert_int_equal(hand_prepare(&plan, &staging, j->world, comm, &step, NULL), CLV_OK);
        assert_int_equal(j->transport->start(plan, staging, NULL), CLV_OK);
        nap_ms(200);
        clv_comm_abort(comm, &gone);
        hand_release(j->world, plan, staging);
        return;
    }
    if (rank == 1)
        nap_ms(1500);
    j->took_ns[rank] = -clv_now_ns();
    j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
    j->took_ns[rank] += clv_now_ns();
}

/* Who waits for a rank of its own process hears of failures elsewhere, too. */
static void test_failure_elsewhere(void **state)
{
    static job j;
    start(&j, "mpi", 3 * clv_job_process_count(launched_job()), 2, 20000, 0, fail_elsewhere);
    run_threads(&j);
    for (int r = j.first; r < j.first + j.here && r < j.ranks - 1; r++) {
        assert_int_equal(j.status[r], CLV_EPEER);
        assert_int_equal(j.error[r].rank, j.ranks - 1);
    }
    if (j.first == 0 && j.took_ns[0] > 900000000)
        fail_msg("heard of it after %lld ns", (long long)j.took_ns[0]);
    finish(&j);
}

static void one_is_late(job *j, int rank, clv_comm *comm)
{
    clv_shard shards[2 * MAX_RANKS];
    clv_transfer step = gather(j, rank, comm, 1, shards);
    int64_t began = clv_now_ns();

    /* written here, so that the note must publish the text as well as the pointer */
    snprintf(j->note[rank], sizeof j->note[rank], "layer %s", rank == 2 ? "3 attention" : "4 norm");
    clv_comm_set_activity(comm, j->note[rank]);
    if (rank == 2)
        nap_ms(1200);
    j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
    if (launched_job() && j->status[rank] == CLV_OK) /* what it needs has come all the same: it finds out in the next */
        j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
    j->took_ns[rank] = clv_now_ns() - began;
}

static void test_timeout(void **state)
{
    static job j;

    for (int k = 0; k <= n_transports && fits(3); k++) { /* threads spin, or do not */
        start(&j, transports[k / 2], 3, 2, 100, k % 2, one_is_late);
        run_threads(&j);
        for (int r = j.first; r < j.first + j.here; r++) {
            assert_int_equal(j.status[r], CLV_ETIMEOUT);
            assert_int_equal(j.error[r].rank, 2);
            assert_non_null(strstr(j.error[r].message, "rank 2"));
            assert_non_null(strstr(j.error[r].message, "all_gather"));
            if (getenv("CLV_TEST_CONTROL") && j.here < 3) /* nobody says what a rank notes in another process */
                continue;
            assert_string_equal(j.error[r].op, "layer 3 attention");
            assert_non_null(strstr(j.error[r].message, "layer 3 attention"));
            assert_null(strstr(j.error[r].message, "layer 4"));
        }
        /* 100 ms from the first rank that waits, and what a loaded machine may add: rank 2 comes after 1.2 s */
        if (j.first == 0 && (j.took_ns[0] < 50000000 || j.took_ns[0] > 900000000))
            fail_msg("waited %lld ns of 100 ms", (long long)j.took_ns[0]);
        finish(&j);
    }
}

/* Every rank comes about when the others' patience ends, and frees its memory the moment a call fails: whoever then
 * still reads or writes a peer's memory is caught by the address and thread sanitizers. */
static void about_late(job *j, int rank, clv_comm *comm)
{
    uint64_t state = mix(j->seed * 64 + (uint64_t)rank);
    clv_shard shards[2 * MAX_RANKS];
    float *in = (float *)(void *)j->memory[rank];

    for (int k = 0; k < 4 && j->status[rank] == CLV_OK; k++) {
        int64_t until = clv_now_ns() + draw(&state, 2200000);

        while (clv_now_ns() < until)
            continue;
        clv_transfer step = gather(j, rank, comm, 10000, shards);
        if (k % 2 == 0)
            step = hand_all_reduce(step.group, j->window, j->memory[rank] + HALF_BYTES, in, 20000, CLV_F32, shards);
        for (int i = 0; i < 20000; i++)
            in[i] = 1;
        j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
    }
    if (j->status[rank] != CLV_OK) {
        free(j->memory[rank]);
        j->memory[rank] = NULL;
    }
}

static void test_nobody_is_in_freed_memory(void **state)
{
    static job j;
    uint64_t seed = print_seed();
    int late = 0, in_time = 0;

    for (int k = 0; k < 150; k++) {
        start(&j, transports[k % n_transports], 2 + k % 2, 2, 2, k % 4 < 2, about_late);
        j.seed = seed + (uint64_t)k;
        run_threads(&j);
        for (int r = j.first; r < j.first + j.here; r++) {
            if (j.status[r] != CLV_OK && j.status[r] != CLV_ETIMEOUT)
                fail_msg("rank %d: %s", r, j.error[r].message);
            late += j.status[r] == CLV_ETIMEOUT;
            in_time += j.status[r] == CLV_OK;
        }
        finish(&j);
    }
    print_message("%d late, %d in time\n", late, in_time);
    assert_true(late > 0);
}

/* What rank 1 says while the others gather with tag 5. */
static const struct mismatch {
    const char *what;
    uint64_t tag;
    const char *says[3];
} mismatches[] = {
    {"all_gather", 6, {"tag 5", "tag 6", "rank 1"}},
    {"all_to_all", 5, {"all_gather", "all_to_all", "rank 1"}},
};

static void mismatched(job *j, int rank, clv_comm *comm)
{
    const struct mismatch *m = j->extra;
    clv_shard shards[2 * MAX_RANKS];
    clv_transfer step = gather(j, rank, comm, 10, shards);

    clv_comm_set_activity(comm, rank == 1 ? "layer 1" : "layer 0");
    for (int k = 0; k < 5 && j->status[rank] == CLV_OK; k++) /* messages: others may be ahead, and have found it */
        j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
    if (rank == 1) {
        step.what = m->what;
        step.tag = m->tag;
    }
    if (j->status[rank] == CLV_OK)
        j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
}

static void test_mismatch(void **state)
{
    static job j;

    for (int t = 0; t < n_transports && fits(3); t++)
        for (size_t k = 0; k < sizeof mismatches / sizeof *mismatches; k++) {
            start(&j, transports[t], 3, 2, 5000, -1, mismatched);
            j.extra = (void *)&mismatches[k];
            run_threads(&j);
            expect_content(&j);
            for (int r = j.first; r < j.first + j.here; r++) {
                assert_int_equal(j.status[r], CLV_EPEER);
                for (int w = 0; w < 3; w++)
                    if (!strstr(j.error[r].message, mismatches[k].says[w]))
                        fail_msg("'%s' is not in: %s", mismatches[k].says[w], j.error[r].message);
            }
            if (is_threads(t)) { /* members compare with member 0; messages, with whom they go to */
                assert_int_equal(j.error[0].rank, 1);
                assert_string_equal(j.error[0].op, "layer 1");
            }
            finish(&j);
        }
}

/* ---- what goes over the wire ---- */

static const clv_mpi *counted; /* the module that is counted */
static int64_t wire_bytes, wire_messages;

/* Under the job's lock, as all calls of MPI. */
static int count_send(clv_mpi_request *out, clv_mpi_comm comm, const void *data, int64_t bytes, int to, int tag)
{
    wire_bytes += bytes;
    wire_messages++;
    return counted->send(out, comm, data, bytes, to, tag);
}

static void gather_counted(job *j, int rank, clv_comm *comm)
{
    clv_shard shards[2 * MAX_RANKS];
    clv_transfer step = gather(j, rank, comm, j->steps, shards);
    j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
}

static void sum_counted(job *j, int rank, clv_comm *comm)
{
    memset(j->memory[rank], 0, 4 * (size_t)j->steps);
    if (!sum_up(j, rank, comm, j->steps, CLV_F32, CLV_REDUCTION_SUM))
        complain(j, rank);
}

/* Runs a step of `elems` f32 a rank and returns the bytes of elements that this process sent; headers are told from
 * them by their size. */
static int64_t count_step(body *run, int ranks, int elems, int64_t *messages)
{
    static job j;
    clv_mpi counting = *launched_job()->mpi;
    start(&j, "mpi", ranks, 2, 20000, -1, run);
    counted = launched_job()->mpi;
    counting.send = count_send;
    wire_bytes = wire_messages = 0;
    j.steps = elems;
    launched_job()->mpi = &counting;
    run_threads(&j);
    launched_job()->mpi = counted;
    expect_content(&j);
    finish(&j);
    *messages = wire_messages;
    return wire_bytes;
}

/* Processes of one host read what they need of each other in the memory that they share: nothing is sent, unless it has
 * no room there. */
static void test_no_messages(void **state)
{
    int ranks = 3 * clv_job_process_count(launched_job());
    int64_t messages;
    if (!launched_job()->shares_memory)
        skip();
    int64_t room = launched_job()->max_shm_bytes;
    launched_job()->max_shm_bytes = CLV_SHM_SLOT_BYTES;
    assert_int_equal(count_step(gather_counted, ranks, 500, &messages), 0);
    assert_int_equal(messages, 0);
    assert_int_equal(count_step(sum_counted, ranks, 45000, &messages), 0);
    assert_int_equal(messages, 0);
    launched_job()->max_shm_bytes = 499 * 4;
    assert_true(count_step(gather_counted, ranks, 500, &messages) > 500 * 4);
    launched_job()->max_shm_bytes = 500 * 4;
    assert_int_equal(count_step(gather_counted, ranks, 500, &messages), 0);
    launched_job()->max_shm_bytes = room;
}

/* Ranks of one process read each other's memory, and what several of a process need is sent to it once. */
static void test_one_copy_a_process(void **state)
{
    int processes = clv_job_process_count(launched_job());
    int64_t here = 3, others = processes - 1, messages, room = launched_job()->max_shm_bytes;
    launched_job()->max_shm_bytes = 0;
    int64_t sent = count_step(gather_counted, 3 * processes, 500, &messages); /* first messages hold it all */
    assert_int_equal(messages, here * others);
    assert_int_equal(sent, here * others * (500 * 4 + CLV_MPI_HEADER));
    sent = count_step(sum_counted, 3 * processes, 500, &messages); /* every member's addends */
    assert_int_equal(messages, here * others);
    assert_int_equal(sent, here * others * (500 * 4 + CLV_MPI_HEADER));
    sent = count_step(sum_counted, 3 * processes, 45000, &messages); /* addends of slices, and slices */
    int64_t slice = 45000 / (3 * processes) * 4, sums = here * others * (3 * slice), slices = here * others * slice;
    assert_true(sent >= sums + slices && sent <= sums + slices + messages * CLV_MPI_HEADER);
    launched_job()->max_shm_bytes = room;
}

/* ---- arguments ---- */

/* Rank 1 gathers fewer elements than the others, who call it by the same name and tag. */
static void of_other_size(job *j, int rank, clv_comm *comm)
{
    clv_shard shards[2 * MAX_RANKS];
    clv_transfer step = gather(j, rank, comm, rank == 1 ? 5 : 10, shards);
    j->status[rank] = hand_step(j->world, comm, &step, &j->error[rank]);
}

/* Only messages show it: who reads in place looks at no size. */
static void test_other_size(void **state)
{
    static job j;
    start(&j, "mailbox", 3, 2, 5000, -1, of_other_size);
    run_threads(&j);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(j.status[r], CLV_EPEER);
        assert_non_null(strstr(j.error[r].message, "rank 1"));
    }
    finish(&j);
}

static void test_arguments(void **state)
{
    clv_world *world = NULL;
    clv_error err = {0};
    int set = -1, again = -1;
    const int bad_group[] = {0, 3, 0}, two[] = {0, 1, 1}, renamed[] = {2, 0, 0}, bad_order[] = {0, 1, 1};

    assert_int_equal(clv_world_new(&world, 0, NULL, &err), CLV_EINVAL);
    err = (clv_error){0};
    assert_int_equal(clv_world_new(&world, 3, &(clv_world_options){.transport = "pigeons"}, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "pigeons"));
    assert_non_null(strstr(err.message, "threads"));
    assert_null(world);
    assert_int_equal(clv_world_new(&world, 3, NULL, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&set, world, bad_group, NULL, NULL), CLV_EINVAL);
    assert_int_equal(clv_world_add_groups(&set, world, two, bad_order, NULL), CLV_EINVAL);
    assert_int_equal(set, -1);
    assert_int_equal(clv_world_add_groups(&set, world, two, NULL, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&again, world, renamed, NULL, NULL), CLV_OK);
    assert_int_equal(set, again);

    clv_comm *comm = clv_world_comm(world, 0);
    const clv_group *group = clv_comm_group(comm, set);
    assert_null(clv_world_comm(world, 3));
    assert_null(clv_comm_group(comm, set + 1));
    assert_int_equal(comm->rank, 0);
    assert_string_equal(clv_world_transport(world)->name, "threads");
    assert_int_equal(group->n, 1);
    clv_world_free(world);
    clv_world_free(NULL);
}

/* A second step of a group before the first has ended. */
static void test_one_step_at_a_time(void **state)
{
    static job j;
    clv_prepared_collective *plan[2] = {NULL, NULL};
    void *staging[2];
    clv_shard shards[2 * MAX_RANKS];
    clv_error err = {0};

    for (int t = 0; t < n_transports; t++) {
        start(&j, transports[t], 1, 1, 0, -1, NULL);
        clv_comm *comm = clv_world_comm(j.world, 0);
        clv_transfer step = gather(&j, 0, comm, 10, shards);
        for (int k = 0; k < 2; k++)
            assert_int_equal(hand_prepare(&plan[k], &staging[k], j.world, comm, &step, NULL), CLV_OK);
        assert_int_equal(j.transport->start(plan[0], staging[0], NULL), CLV_OK);
        assert_int_equal(j.transport->start(plan[1], staging[1], &err), CLV_EINVAL);
        assert_int_equal(j.transport->wait(plan[0], CLV_WAIT_OUTPUT_READY, NULL), CLV_OK);
        assert_int_equal(j.transport->wait(plan[0], CLV_WAIT_INPUT_REUSABLE, NULL), CLV_OK);
        for (int k = 0; k < 2; k++)
            hand_release(j.world, plan[k], staging[k]);
        finish(&j);
    }
}

/* What is left of a step in staging is nothing but NaN. */
static void test_staging_is_cleared(void **state)
{
    static job j;
    clv_prepared_collective *plan = NULL;
    unsigned char *staging = NULL;
    int64_t bytes = 0;
    clv_shard shards[2 * MAX_RANKS];

    start(&j, "mailbox", 1, 1, 0, -1, NULL);
    clv_comm *comm = clv_world_comm(j.world, 0);
    clv_transfer all = gather(&j, 0, comm, 10, shards);
    memset(j.memory[0], 1, HALF_BYTES);
    assert_int_equal(j.transport->prepare(&plan, comm, &all, &bytes, NULL), CLV_OK);
    assert_true(bytes >= 2 * 10 * 4);
    staging = calloc(1, (size_t)bytes);
    assert_int_equal(j.transport->start(plan, staging, NULL), CLV_OK);
    assert_int_equal(j.transport->wait(plan, CLV_WAIT_OUTPUT_READY, NULL), CLV_OK);
    assert_int_equal(j.transport->wait(plan, CLV_WAIT_INPUT_REUSABLE, NULL), CLV_OK);
    for (int64_t i = 0; i < bytes; i++)
        assert_int_equal(staging[i], 0xff);
    assert_memory_equal(j.memory[0] + HALF_BYTES, j.memory[0], 40);
    hand_release(j.world, plan, staging);
    finish(&j);
}

int main(void)
{
    /* without what concerns one process, and patience that is shorter than it takes processes to meet */
    const struct CMUnitTest launched[] = {
        cmocka_unit_test(test_any_number_of_ranks),
        cmocka_unit_test(test_ten_thousand),
        cmocka_unit_test(test_order_and_rounding),
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_failure_elsewhere),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_no_messages),
        cmocka_unit_test(test_one_copy_a_process),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_one_step_at_a_time),
        cmocka_unit_test(test_staging_is_cleared),
        cmocka_unit_test(test_any_number_of_ranks),
        cmocka_unit_test(test_both_meetings),
        cmocka_unit_test(test_ten_thousand),
        cmocka_unit_test(test_order_and_rounding),
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_nobody_is_in_freed_memory),
        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_other_size),
    };

    if (!launched_job())
        return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
    transports[0] = "mpi";
    n_transports = 1;
    return cmocka_run_group_tests_name("comm", launched, NULL, NULL);
}
