/* test_comm.c - collectives over threads, against results worked out from the inputs' formula alone.
 *
 * Every element's value is a small integer that follows from (step, rank, index), so that each rank knows what every
 * other has put in, and sums are exact in every dtype. Rounding and order have a test of their own. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/wait.h"
#include "comm/comm.h"

enum { MAX_RANKS = 64, MAX_SETS = 8 };

typedef struct job job;
typedef void body(job *job, int rank, clv_comm *comm);

struct job {
    int ranks;
    clv_world *world;
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

    for (int r = 0; r < j->ranks; r++) {
        args[r] = (thread_arg){j, r};
        assert_int_equal(pthread_create(&threads[r], NULL, rank_main, &args[r]), 0);
    }
    for (int r = 0; r < j->ranks; r++)
        pthread_join(threads[r], NULL);
}

static void complain(job *j, int rank)
{
    memcpy(j->failure[rank], j->error[rank].message, sizeof j->error[rank].message);
}

static void expect_content(const job *j)
{
    for (int r = 0; r < j->ranks; r++)
        if (j->failure[r][0])
            fail_msg("rank %d of %d: %s", r, j->ranks, j->failure[r]);
}

/* The whole world; rows and columns of a mesh `width` wide; the world backwards. */
static void add_sets(job *j, int width)
{
    int whole[MAX_RANKS] = {0}, row[MAX_RANKS], column[MAX_RANKS], backwards[MAX_RANKS];

    for (int r = 0; r < j->ranks; r++) {
        row[r] = r / width;
        column[r] = r % width;
        backwards[r] = j->ranks - 1 - r;
    }
    assert_int_equal(clv_world_add_groups(&j->sets[0], j->world, whole, NULL, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&j->sets[1], j->world, row, NULL, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&j->sets[2], j->world, column, NULL, NULL), CLV_OK);
    assert_int_equal(clv_world_add_groups(&j->sets[3], j->world, whole, backwards, NULL), CLV_OK);
    j->n_sets = 4;
}

static void start(job *j, int ranks, int width, int64_t timeout_ms, int spin, body *run)
{
    clv_world_options options = {.timeout_ms = timeout_ms, .spin = spin};

    memset(j, 0, sizeof *j);
    j->ranks = ranks;
    j->run = run;
    assert_int_equal(clv_world_new(&j->world, ranks, &options, NULL), CLV_OK);
    add_sets(j, width);
}

static void finish(job *j)
{
    clv_world_free(j->world);
}

/* ---- one random collective ---- */

typedef struct step {
    uint64_t state; /* draws; alike on all members */
    uint64_t id;
    clv_comm *comm;
    const clv_comm_backend *backend;
    const clv_group *group;
    clv_dtype dtype;
    clv_reduction reduction;
    char *failure;
    size_t failure_size;
    clv_error error;
} step;

static int value(const step *s, int member, int64_t i)
{
    int v = (int)(mix(s->id * 131 + (uint64_t)member * 1000003 + (uint64_t)i) % 17);

    return s->dtype == CLV_U8 ? v : v - 8;
}

static double *expected_new(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

/* A buffer of n elements and one more that nobody may write. */
static void *buffer_new(const step *s, int64_t n)
{
    size_t size = clv_dtype_size(s->dtype);
    unsigned char *p = malloc(((size_t)n + 1) * size);

    memset(p, 0x55, ((size_t)n + 1) * size);
    return p;
}

static void fill(const step *s, void *buffer, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        clv_dtype_store(s->dtype, buffer, i, value(s, s->group->me, i));
}

static void check(step *s, const char *op, clv_status status, const void *out, const double *expected, int64_t n)
{
    size_t size = clv_dtype_size(s->dtype);

    if (s->failure[0])
        return;
    if (status != CLV_OK) {
        snprintf(s->failure, s->failure_size, "%s: %s", op, s->error.message);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (!(clv_dtype_load(s->dtype, out, i) == expected[i])) {
            snprintf(s->failure, s->failure_size, "%s %s of %lld over %d: element %lld is %g, not %g", op,
                     clv_dtype_name(s->dtype), (long long)n, s->group->n, (long long)i,
                     clv_dtype_load(s->dtype, out, i), expected[i]);
            return;
        }
    for (size_t k = 0; k < size; k++)
        if (((const unsigned char *)out)[(size_t)n * size + k] != 0x55)
            snprintf(s->failure, s->failure_size, "%s wrote beyond its result", op);
}

static double reduced(const step *s, int64_t i)
{
    double total = value(s, 0, i);

    for (int m = 1; m < s->group->n; m++) {
        double v = value(s, m, i);

        total = s->reduction == CLV_REDUCE_SUM ? total + v : v > total ? v : total;
    }
    return total;
}

/* Mostly small, some empty, a few beyond a stage. */
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

static void draw_counts(uint64_t *state, int64_t *counts, int64_t *offsets, int64_t *total, int n)
{
    *total = 0;
    for (int i = 0; i < n; i++) {
        counts[i] = draw(state, 3) ? draw_count(state) : 0;
        offsets[i] = *total;
        *total += counts[i];
    }
}

static void test_all_reduce(step *s)
{
    int64_t n = draw_count(&s->state);
    int in_place = (int)draw(&s->state, 2);
    void *in = buffer_new(s, n), *out = in_place ? in : buffer_new(s, n);
    double *expected = expected_new(n);

    fill(s, in, n);
    for (int64_t i = 0; i < n; i++)
        expected[i] = reduced(s, i);
    check(s, "all_reduce", s->backend->all_reduce(s->comm, s->group, out, in, n, s->dtype, s->reduction, &s->error),
          out, expected, n);
    if (!in_place)
        free(out);
    free(in);
    free(expected);
}

static void test_reduce_scatter(step *s)
{
    int64_t counts[MAX_RANKS] = {0}, offsets[MAX_RANKS] = {0}, total;

    draw_counts(&s->state, counts, offsets, &total, s->group->n);
    int64_t n = counts[s->group->me];
    void *in = buffer_new(s, total), *out = buffer_new(s, n);
    double *expected = expected_new(n);

    fill(s, in, total);
    for (int64_t i = 0; i < n; i++)
        expected[i] = reduced(s, offsets[s->group->me] + i);
    check(s, "reduce_scatter",
          s->backend->reduce_scatter(s->comm, s->group, out, in, counts, offsets, s->dtype, s->reduction, &s->error),
          out, expected, n);
    free(in);
    free(out);
    free(expected);
}

static void test_all_gather(step *s)
{
    int64_t counts[MAX_RANKS] = {0}, offsets[MAX_RANKS] = {0}, total;

    draw_counts(&s->state, counts, offsets, &total, s->group->n);
    void *in = buffer_new(s, counts[s->group->me]), *out = buffer_new(s, total);
    double *expected = expected_new(total);

    fill(s, in, counts[s->group->me]);
    for (int m = 0; m < s->group->n; m++)
        for (int64_t i = 0; i < counts[m]; i++)
            expected[offsets[m] + i] = value(s, m, i);
    check(s, "all_gather", s->backend->all_gather(s->comm, s->group, out, in, counts, offsets, s->dtype, &s->error),
          out, expected, total);
    free(in);
    free(out);
    free(expected);
}

static void test_all_to_all(step *s)
{
    static const int64_t most[] = {5, 300, 9000};
    int n = s->group->n, me = s->group->me;
    int64_t below = most[draw(&s->state, 3)];
    int64_t count[MAX_RANKS][MAX_RANKS], send_offsets[MAX_RANKS] = {0}, recv_offsets[MAX_RANKS] = {0};
    int64_t recv_counts[MAX_RANKS], sent = 0, received = 0;

    if (below > 300 && n > 5)
        below = 2000;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++)
            count[a][b] = draw(&s->state, 3) ? draw(&s->state, below) : 0;
    for (int b = 0; b < n; b++) {
        recv_counts[b] = count[b][me];
        send_offsets[b] = sent;
        recv_offsets[b] = received;
        sent += count[me][b];
        received += count[b][me];
    }
    void *in = buffer_new(s, sent), *out = buffer_new(s, received);
    double *expected = expected_new(received);
    fill(s, in, sent);
    for (int a = 0; a < n; a++) {
        int64_t first = 0;

        for (int b = 0; b < me; b++)
            first += count[a][b];
        for (int64_t i = 0; i < count[a][me]; i++)
            expected[recv_offsets[a] + i] = value(s, a, first + i);
    }
    check(s, "all_to_all",
          s->backend->all_to_all(s->comm, s->group, out, recv_counts, recv_offsets, in, count[me], send_offsets,
                                 s->dtype, &s->error),
          out, expected, received);
    free(in);
    free(out);
    free(expected);
}

static void test_permute(step *s)
{
    int64_t counts[MAX_RANKS] = {0};
    int from = 0;

    for (int m = 0; m < s->group->n; m++) {
        int f = (int)draw(&s->state, s->group->n);

        counts[m] = draw_count(&s->state);
        if (m == s->group->me)
            from = f;
    }
    int64_t n = counts[from], mine = counts[s->group->me];
    void *in = buffer_new(s, mine), *out = buffer_new(s, n);
    double *expected = expected_new(n);

    fill(s, in, mine);
    for (int64_t i = 0; i < n; i++)
        expected[i] = value(s, from, i);
    check(s, "permute", s->backend->permute(s->comm, s->group, out, n, in, mine, from, s->dtype, &s->error), out,
          expected, n);
    free(in);
    free(out);
    free(expected);
}

static void test_broadcast(step *s)
{
    int64_t n = draw_count(&s->state);
    int root = (int)draw(&s->state, s->group->n);
    void *data = buffer_new(s, n);
    double *expected = expected_new(n);

    fill(s, data, n);
    for (int64_t i = 0; i < n; i++)
        expected[i] = value(s, root, i);
    check(s, "broadcast", s->backend->broadcast(s->comm, s->group, data, n, root, s->dtype, &s->error), data, expected,
          n);
    free(data);
    free(expected);
}

/* Each member writes its mark into every peer's buffer, and reads all marks of its own after closing. */
static void test_views(step *s)
{
    int n = s->group->n;
    void *peers[MAX_RANKS], *mine = buffer_new(s, n);
    double *expected = expected_new(n);
    clv_status status = s->backend->open_views(s->comm, s->group, mine, s->id, peers, &s->error);

    for (int m = 0; status == CLV_OK && m < n; m++)
        clv_dtype_store(s->dtype, peers[m], s->group->me, value(s, s->group->me, m));
    for (int m = 0; m < n; m++)
        expected[m] = value(s, m, s->group->me);
    if (status == CLV_OK)
        status = s->backend->close_views(s->comm, s->group, &s->error);
    check(s, "views", status, mine, expected, n);
    free(mine);
    free(expected);
}

static void test_barrier(step *s)
{
    check(s, "barrier", s->backend->barrier(s->comm, s->group, &s->error), "\x55\x55\x55\x55\x55\x55\x55\x55", NULL, 0);
}

static void random_steps(job *j, int rank, clv_comm *comm)
{
    static void (*const ops[])(step *) = {test_all_reduce, test_reduce_scatter, test_all_gather, test_all_to_all,
                                          test_permute,    test_broadcast,      test_views,      test_barrier};
    static const clv_dtype dtypes[] = {CLV_F32, CLV_F64, CLV_BF16, CLV_F16, CLV_I32, CLV_I64, CLV_U8};

    for (int k = 0; k < j->steps && !j->failure[rank][0]; k++) {
        uint64_t state = mix(j->seed + (uint64_t)k);
        const clv_group *group = clv_comm_group(comm, j->sets[draw(&state, j->n_sets)]);
        step s = {.id = mix(state + (uint64_t)group->ranks[0]),
                  .comm = comm,
                  .backend = clv_comm_get_backend(comm),
                  .group = group,
                  .failure = j->failure[rank],
                  .failure_size = sizeof j->failure[rank]};

        s.state = s.id; /* other groups do something else at the same time */
        s.dtype = dtypes[draw(&s.state, 7)];
        s.reduction = s.dtype == CLV_U8 || draw(&s.state, 3) == 0 ? CLV_REDUCE_MAX : CLV_REDUCE_SUM;
        ops[draw(&s.state, 8)](&s);
    }
}

static uint64_t print_seed(void)
{
    const char *text = getenv("CLV_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

    print_message("seed %llu (CLV_SEED)\n", (unsigned long long)seed);
    return seed;
}

static void run_random(int ranks, int width, int spin, int steps, uint64_t seed)
{
    static job j;

    start(&j, ranks, width, 20000, spin, random_steps);
    j.seed = seed;
    j.steps = steps;
    run_threads(&j);
    assert_false(clv_world_failed(j.world, NULL));
    finish(&j);
    expect_content(&j);
}

static void test_any_number_of_ranks(void **state)
{
    uint64_t seed = print_seed();

    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++)
        run_random(ranks, ranks > 4 ? 3 : 2, -1, 120, seed + (uint64_t)ranks);
    run_random(13, 4, -1, 60, seed);
}

/* Spinning with more ranks than cores works too, and so does the flat meeting over many; so does a big hub. */
static void test_both_meetings(void **state)
{
    uint64_t seed = print_seed();

    (void)state;
    run_random(3, 2, 1, 60, seed);
    run_random(2, 2, 0, 200, seed);
    run_random(20, 5, 0, 20, seed);
}

static void test_ten_thousand(void **state)
{
    (void)state;
    run_random(2, 2, -1, 10000, print_seed());
}

/* ---- order and rounding ---- */

static double rounding_input(int rank, int64_t i)
{
    return ldexp((double)(mix((uint64_t)(rank * 7919 + i)) % 2000001) - 1e6, (int)(mix((uint64_t)i) % 12) - 20);
}

static void reduce_rounding(job *j, int rank, clv_comm *comm)
{
    static const clv_dtype dtypes[] = {CLV_F32, CLV_F64, CLV_BF16, CLV_F16};
    static const int64_t sizes[] = {777, 50001};
    const clv_group *group = clv_comm_group(comm, j->sets[0]);

    for (int k = 0; k < 8; k++) {
        clv_dtype dtype = dtypes[k / 2];
        int64_t n = sizes[k % 2];
        double *in = malloc((size_t)n * 8), *out = malloc((size_t)n * 8), *scratch = malloc(8);

        for (int64_t i = 0; i < n; i++)
            clv_dtype_store(dtype, in, i, rounding_input(rank, i));
        clv_status status =
            clv_comm_get_backend(comm)->all_reduce(comm, group, out, in, n, dtype, CLV_REDUCE_SUM, &j->error[rank]);
        for (int64_t i = 0; status == CLV_OK && i < n && !j->failure[rank][0]; i++) {
            double sum = 0;

            for (int r = 0; r < j->ranks; r++) {
                clv_dtype_store(dtype, scratch, 0, rounding_input(r, i));
                double x = clv_dtype_load(dtype, scratch, 0);
                sum = r == 0 ? x : dtype == CLV_F64 ? sum + x : (double)((float)sum + (float)x);
            }
            clv_dtype_store(dtype, scratch, 0, sum);
            if (!(clv_dtype_load(dtype, out, i) == clv_dtype_load(dtype, scratch, 0)))
                snprintf(j->failure[rank], sizeof j->failure[rank], "%s element %lld of %lld: %.17g not %.17g",
                         clv_dtype_name(dtype), (long long)i, (long long)n, clv_dtype_load(dtype, out, i),
                         clv_dtype_load(dtype, scratch, 0));
        }
        if (status != CLV_OK)
            complain(j, rank);
        free(in);
        free(out);
        free(scratch);
    }
}

static void test_order_and_rounding(void **state)
{
    static job j;

    (void)state;
    start(&j, 3, 2, 10000, -1, reduce_rounding);
    run_threads(&j);
    finish(&j);
    expect_content(&j);
}

/* Every f16 and bf16 value goes through the sum of two (x + 0) and the maximum unchanged, NaN stays NaN. */
static void reduce_every_half(job *j, int rank, clv_comm *comm)
{
    static const clv_dtype dtypes[] = {CLV_BF16, CLV_F16};
    const clv_group *group = clv_comm_group(comm, j->sets[0]);
    uint16_t *in = calloc(65536, 2), *out = calloc(65536, 2);

    for (int k = 0; k < 4; k++) {
        clv_dtype dtype = dtypes[k / 2];
        clv_reduction reduction = k % 2 ? CLV_REDUCE_MAX : CLV_REDUCE_SUM;

        for (int i = 0; i < 65536; i++)
            in[i] = rank == k % 2 ? (uint16_t)i : k % 2 ? 0xff80 : 0; /* bf16 -inf; a NaN in f16 */
        if (dtype == CLV_F16 && k % 2 && rank == 0)
            for (int i = 0; i < 65536; i++)
                in[i] = 0xfc00; /* f16 -inf */
        if (clv_comm_get_backend(comm)->all_reduce(comm, group, out, in, 65536, dtype, reduction, &j->error[rank]))
            complain(j, rank);
        for (int i = 0; i < 65536; i++) {
            uint16_t x = (uint16_t)i;
            double want = clv_dtype_load(dtype, &x, 0), have = clv_dtype_load(dtype, out, i);

            if (!(have == want) && !(isnan(want) && isnan(have)))
                snprintf(j->failure[rank], sizeof j->failure[rank], "%s %04x became %04x", clv_dtype_name(dtype), i,
                         out[i]);
        }
    }
    free(in);
    free(out);
}

static void test_every_half(void **state)
{
    static job j;

    (void)state;
    start(&j, 2, 2, 10000, -1, reduce_every_half);
    run_threads(&j);
    finish(&j);
    expect_content(&j);
}

/* ---- failure ---- */

static void nap_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void abort_before(job *j, int rank, clv_comm *comm)
{
    const clv_comm_backend *backend = clv_comm_get_backend(comm);
    int large = j->steps;
    float *x = calloc((size_t)large, 4);

    if (rank == 1) {
        clv_error error = {.code = CLV_EINVAL, .op = "layer 7 mlp", .message = "the weights are gone"};

        nap_ms(30);
        j->took_ns[rank] = clv_now_ns();
        clv_comm_abort(comm, &error);
    } else {
        j->status[rank] = backend->all_reduce(comm, clv_comm_group(comm, j->sets[0]), x, x, large, CLV_F32,
                                              CLV_REDUCE_SUM, &j->error[rank]);
        j->took_ns[rank] = clv_now_ns();
        clv_error again = {0};
        if (backend->barrier(comm, clv_comm_group(comm, j->sets[1]), &again) != CLV_EPEER ||
            strcmp(again.message, j->error[rank].message) != 0)
            snprintf(j->failure[rank], sizeof j->failure[rank], "a failed world went on: %.500s", again.message);
    }
    free(x);
}

/* Rank 1 fails while the others hold views; they find out when they close. */
static void abort_inside(job *j, int rank, clv_comm *comm)
{
    const clv_comm_backend *backend = clv_comm_get_backend(comm);
    const clv_group *group = clv_comm_group(comm, j->sets[0]);
    void *peers[MAX_RANKS];
    int mine = rank;

    if (backend->open_views(comm, group, &mine, 5, peers, &j->error[rank]) != CLV_OK)
        complain(j, rank);
    if (rank == 1) {
        clv_error error = {.code = CLV_EINVAL, .op = "layer 7 mlp", .message = "the weights are gone"};

        nap_ms(30); /* else others may see the failure while they still open */
        j->took_ns[rank] = clv_now_ns();
        clv_comm_abort(comm, &error);
    } else {
        j->status[rank] = backend->close_views(comm, group, &j->error[rank]);
        j->took_ns[rank] = clv_now_ns();
    }
}

static void expect_abort_seen(job *j)
{
    run_threads(j);
    expect_content(j);
    for (int r = 0; r < j->ranks; r++) {
        if (r == 1)
            continue;
        assert_int_equal(j->status[r], CLV_EPEER);
        assert_int_equal(j->error[r].rank, 1);
        assert_string_equal(j->error[r].op, "layer 7 mlp");
        assert_non_null(strstr(j->error[r].message, "the weights are gone"));
        assert_true(j->took_ns[r] - j->took_ns[1] < 200000000);
    }
    finish(j);
}

static void test_abort(void **state)
{
    static job j;

    (void)state;
    for (int spin = 0; spin < 2; spin++) {
        start(&j, 4, 2, 20000, spin, abort_before);
        j.steps = 10;
        expect_abort_seen(&j);
        start(&j, 4, 2, 20000, spin, abort_before);
        j.steps = 100000;
        expect_abort_seen(&j);
        start(&j, 4, 2, 20000, spin, abort_inside);
        expect_abort_seen(&j);
    }
}

static void one_is_late(job *j, int rank, clv_comm *comm)
{
    const clv_comm_backend *backend = clv_comm_get_backend(comm);
    const clv_group *group = clv_comm_group(comm, j->sets[0]);
    int64_t began = clv_now_ns();
    double x = 1;

    /* written here, so that the note must publish the text as well as the pointer */
    snprintf(j->note[rank], sizeof j->note[rank], "layer %s", rank == 2 ? "3 attention" : "4 norm");
    clv_comm_note(comm, j->note[rank]);
    if (rank == 2)
        nap_ms(1200);
    j->status[rank] = backend->all_reduce(comm, group, &x, &x, 1, CLV_F64, CLV_REDUCE_SUM, &j->error[rank]);
    j->took_ns[rank] = clv_now_ns() - began;
}

static void test_timeout(void **state)
{
    static job j;

    (void)state;
    for (int spin = 0; spin < 2; spin++) {
        start(&j, 3, 2, 100, spin, one_is_late);
        run_threads(&j);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(j.status[r], CLV_ETIMEOUT);
            assert_int_equal(j.error[r].rank, 2);
            assert_string_equal(j.error[r].op, "layer 3 attention");
            assert_non_null(strstr(j.error[r].message, "rank 2"));
            assert_non_null(strstr(j.error[r].message, "layer 3 attention"));
            assert_null(strstr(j.error[r].message, "layer 4"));
            assert_non_null(strstr(j.error[r].message, "all_reduce"));
        }
        /* 100 ms from the first rank that waits, and what a loaded machine may add: rank 2 comes after 1.2 s */
        if (j.took_ns[0] < 50000000 || j.took_ns[0] > 900000000)
            fail_msg("waited %lld ns of 100 ms", (long long)j.took_ns[0]);
        finish(&j);
    }
}

/* Every rank comes about when the others' patience ends, and frees its buffer the moment the call returns: whoever then
 * still reads or writes a peer's buffer is caught by the address and thread sanitizers. */
static void about_late(job *j, int rank, clv_comm *comm)
{
    const clv_comm_backend *backend = clv_comm_get_backend(comm);
    const clv_group *group = clv_comm_group(comm, j->sets[0]);
    uint64_t state = mix(j->seed * 64 + (uint64_t)rank);
    int64_t n = 20000;

    for (int k = 0; k < 4 && j->status[rank] == CLV_OK; k++) {
        float *x = calloc((size_t)n, sizeof *x);
        void *peers[MAX_RANKS];
        int64_t until = clv_now_ns() + draw(&state, 2200000);

        while (clv_now_ns() < until)
            continue;
        if (k % 2 == 0)
            j->status[rank] = backend->all_reduce(comm, group, x, x, n, CLV_F32, CLV_REDUCE_SUM, &j->error[rank]);
        else if ((j->status[rank] = backend->open_views(comm, group, x, 1, peers, &j->error[rank])) == CLV_OK) {
            until = clv_now_ns() + draw(&state, 3000000);
            while (clv_now_ns() < until)
                for (int m = 0; m < group->n; m++)
                    ((float *)peers[m])[rank] = 1;
            j->status[rank] = backend->close_views(comm, group, &j->error[rank]);
        }
        free(x);
    }
}

static void test_nobody_is_in_freed_memory(void **state)
{
    static job j;
    uint64_t seed = print_seed();
    int late = 0, in_time = 0;

    (void)state;
    for (int k = 0; k < 150; k++) {
        start(&j, 2 + k % 2, 2, 2, k % 4 < 2, about_late);
        j.seed = seed + (uint64_t)k;
        run_threads(&j);
        for (int r = 0; r < j.ranks; r++) {
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

/* Each row: what rank 1 does while the others all_reduce 8 f32 by sum. */
typedef clv_status call(clv_comm *comm, const clv_group *group, float *x, clv_error *err);

#define REDUCE(n, dtype, reduction) clv_comm_get_backend(comm)->all_reduce(comm, group, x, x, n, dtype, reduction, err)

static clv_status agreed(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return REDUCE(8, CLV_F32, CLV_REDUCE_SUM);
}
static clv_status other_count(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return REDUCE(7, CLV_F32, CLV_REDUCE_SUM);
}
static clv_status other_size(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return REDUCE(20000, CLV_F32, CLV_REDUCE_SUM);
}
static clv_status other_dtype(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return REDUCE(8, CLV_BF16, CLV_REDUCE_SUM);
}
static clv_status other_reduction(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return REDUCE(8, CLV_F32, CLV_REDUCE_MAX);
}
static clv_status other_op(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return clv_comm_get_backend(comm)->broadcast(comm, group, x, 8, 0, CLV_F32, err);
}
static clv_status root_0(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return clv_comm_get_backend(comm)->broadcast(comm, group, x, 8, 0, CLV_F32, err);
}
static clv_status root_1(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return clv_comm_get_backend(comm)->broadcast(comm, group, x, 8, 1, CLV_F32, err);
}
static clv_status gather_a(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    const int64_t counts[] = {2, 3, 4}, offsets[] = {0, 2, 5};

    return clv_comm_get_backend(comm)->all_gather(comm, group, x, x + 10, counts, offsets, CLV_F32, err);
}
static clv_status gather_b(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    const int64_t counts[] = {3, 2, 4}, offsets[] = {0, 3, 5};

    return clv_comm_get_backend(comm)->all_gather(comm, group, x, x + 10, counts, offsets, CLV_F32, err);
}
static clv_status views_a(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    void *peers[3];

    return clv_comm_get_backend(comm)->open_views(comm, group, x, 1, peers, err);
}
static clv_status views_b(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    void *peers[3];

    return clv_comm_get_backend(comm)->open_views(comm, group, x, 2, peers, err);
}
static clv_status permute_8(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return clv_comm_get_backend(comm)->permute(comm, group, x + 10, 8, x, 8, (group->me + 1) % group->n, CLV_F32, err);
}
static clv_status permute_9(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return clv_comm_get_backend(comm)->permute(comm, group, x + 10, 8, x, 9, (group->me + 1) % group->n, CLV_F32, err);
}
static clv_status exchange(clv_comm *comm, const clv_group *group, float *x, int64_t n, clv_error *err)
{
    const int64_t recv[] = {1, 1, 1}, send[] = {n, 1, 1}, offsets[] = {0, 2, 4};

    return clv_comm_get_backend(comm)->all_to_all(comm, group, x + 10, recv, offsets, x, send, offsets, CLV_F32, err);
}
static clv_status exchange_1(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return exchange(comm, group, x, 1, err);
}
static clv_status exchange_2(clv_comm *comm, const clv_group *group, float *x, clv_error *err)
{
    return exchange(comm, group, x, 2, err);
}

static const struct mismatch {
    call *others, *rank_1;
    const char *says[3];
} mismatches[] = {
    {agreed, other_count, {"count 8", "count 7", "rank 1"}},
    {agreed, other_size, {"count 8", "count 20000", "rank 1"}},
    {agreed, other_dtype, {"f32", "bf16", "rank 1"}},
    {agreed, other_reduction, {"sum", "max", "rank 1"}},
    {agreed, other_op, {"all_reduce", "broadcast", "rank 1"}},
    {root_0, root_1, {"root 0", "root 1", "rank 1"}},
    {gather_a, gather_b, {"all_gather", "tag", "rank 1"}},
    {views_a, views_b, {"tag 1", "tag 2", "rank 1"}},
    {permute_8, permute_9, {"9 elements", "expects 8", "rank 1"}},
    {exchange_1, exchange_2, {"2 elements", "expects 1", "rank 1"}},
};

static void mismatched(job *j, int rank, clv_comm *comm)
{
    const struct mismatch *m = j->extra;
    float *x = calloc(20000, sizeof *x);

    clv_comm_note(comm, rank == 1 ? "layer 1" : "layer 0");
    for (int k = 0; k < 5; k++)
        if (agreed(comm, clv_comm_group(comm, j->sets[0]), x, &j->error[rank]) != CLV_OK)
            complain(j, rank);
    j->status[rank] = (rank == 1 ? m->rank_1 : m->others)(comm, clv_comm_group(comm, j->sets[0]), x, &j->error[rank]);
    if (j->status[rank] == CLV_OK) /* a pair's mismatch is seen by that pair, by the rest in their next call */
        j->status[rank] = agreed(comm, clv_comm_group(comm, j->sets[0]), x, &j->error[rank]);
    free(x);
}

static void test_mismatch(void **state)
{
    static job j;

    (void)state;
    for (size_t k = 0; k < sizeof mismatches / sizeof *mismatches; k++) {
        start(&j, 3, 2, 5000, -1, mismatched);
        j.extra = (void *)&mismatches[k];
        run_threads(&j);
        expect_content(&j);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(j.status[r], CLV_EPEER);
            assert_int_equal(j.error[r].rank, 1);
            assert_string_equal(j.error[r].op, "layer 1");
            for (int w = 0; w < 3; w++)
                if (!strstr(j.error[r].message, mismatches[k].says[w]))
                    fail_msg("'%s' is not in: %s", mismatches[k].says[w], j.error[r].message);
        }
        finish(&j);
    }
}

/* ---- arguments ---- */

static void test_arguments(void **state)
{
    clv_world *world = NULL;
    clv_error err = {0};
    int set = -1, again = -1;
    const int bad_group[] = {0, 3, 0}, two[] = {0, 1, 1}, renamed[] = {2, 0, 0}, bad_order[] = {0, 1, 1};

    (void)state;
    assert_int_equal(clv_world_new(&world, 0, NULL, &err), CLV_EINVAL);
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
    const clv_comm_backend *backend = clv_comm_get_backend(comm);
    const int64_t one[] = {1}, zero[] = {0};
    uint8_t x = 1, y = 0;
    assert_null(clv_world_comm(world, 3));
    assert_null(clv_comm_group(comm, set + 1));
    assert_int_equal(clv_comm_rank(comm), 0);
    assert_int_equal(clv_comm_size(comm), 3);
    assert_string_equal(backend->name, "threads");
    assert_int_equal(group->n, 1);
    assert_int_equal(backend->all_reduce(comm, group, &y, &x, 1, CLV_U8, CLV_REDUCE_NONE, NULL), CLV_EINVAL);
    assert_int_equal(backend->reduce_scatter(comm, group, &y, &x, one, zero, CLV_U8, CLV_REDUCE_NONE, NULL),
                     CLV_EINVAL);
    assert_int_equal(backend->broadcast(comm, group, &x, 1, 1, CLV_U8, NULL), CLV_EINVAL);
    assert_int_equal(backend->permute(comm, group, &y, 1, &x, 1, -1, CLV_U8, NULL), CLV_EINVAL);
    assert_int_equal(backend->close_views(comm, group, NULL), CLV_EINVAL);
    assert_int_equal(backend->all_reduce(comm, group, &y, &x, 1, CLV_U8, CLV_REDUCE_MAX, NULL), CLV_OK);
    assert_int_equal(y, 1);
    assert_int_equal(backend->all_reduce(comm, group, NULL, NULL, 0, CLV_F32, CLV_REDUCE_SUM, NULL), CLV_OK);
    clv_world_free(world);
    clv_world_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_any_number_of_ranks),
        cmocka_unit_test(test_both_meetings),
        cmocka_unit_test(test_ten_thousand),
        cmocka_unit_test(test_order_and_rounding),
        cmocka_unit_test(test_every_half),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_nobody_is_in_freed_memory),
        cmocka_unit_test(test_mismatch),
    };

    return cmocka_run_group_tests_name("comm", tests, NULL, NULL);
}
