/* test_work_stealing.c: each piece is done once, whoever does it, by no more members than may; what others wrote is
 * there; members without work wait, and a wait says how much of it went into others' work. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads/wait.h"
#include "base/threads/work_stealing.h"
#include "comm/world/world.h"
#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/gemm/gemm_quantized.h"
#include "kernels/cpu/openmp.h"
#include "kernels/cpu/parallel_tasks.h"
#include "unit_test.h"

enum { MEMBERS = 4, PIECES = 97, WORKS = 3000 };

typedef struct tally {
    int work;
    int times[PIECES]; /* not atomic: sharing orders them */
    _Atomic int by_others;
    _Atomic int at_work[MEMBERS]; /* of those with each number */
    _Atomic int wrong;            /* numbers: of two at a time, or of who shares the work and who helps */
    int to_meet;                  /* pieces that end when so many have begun */
    _Atomic int met;
    pthread_t owner;
} tally;

static void count(void *arg, int piece, int who)
{
    tally *t = arg;
    const bool is_owner = pthread_equal(pthread_self(), t->owner);
    t->times[piece] += t->work;
    if (!is_owner)
        atomic_fetch_add_explicit(&t->by_others, 1, memory_order_relaxed);
    if ((who == 0) != is_owner || atomic_fetch_add_explicit(&t->at_work[who], 1, memory_order_relaxed) != 0)
        atomic_fetch_add_explicit(&t->wrong, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&t->met, 1, memory_order_relaxed);
    while (atomic_load_explicit(&t->met, memory_order_relaxed) < t->to_meet)
        sched_yield();
    atomic_fetch_sub_explicit(&t->at_work[who], 1, memory_order_relaxed);
}

/* Pieces of a work that so many may do at a time. */
static void count_few(void *arg, int piece, int who)
{
    tally *t = arg;
    if (who >= 1 + t->work % MEMBERS)
        atomic_fetch_add_explicit(&t->wrong, 1, memory_order_relaxed);
    count(arg, piece, who);
}

static void check(const tally *t, int n)
{
    for (int i = 0; i < PIECES; i++)
        assert_int_equal(t->times[i], i < n ? t->work : 0);
    assert_int_equal(t->wrong, 0);
}

/* Without a pool, with one member, and if no member steals, the member does all itself; also with a single task. */
static void test_alone(void **unused)
{
    clv_task_pool *one = clv_task_pool_new(1), *many = clv_task_pool_new(MEMBERS);
    const clv_task_pool_member places[] = {{NULL, 0}, {one, 0}, {many, 2}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int n = 0; n <= PIECES; n += n < 3 ? 1 : PIECES - 3) {
            tally t = {.work = 5, .owner = pthread_self()};
            clv_task_pool_run(places[i], CLV_TASK_POOL_ALL, count, &t, n);
            check(&t, n);
            assert_int_equal(t.by_others, 0);
            assert_false(clv_task_pool_steal_and_run(places[i], NULL));
        }
    clv_task_pool_free(one);
    clv_task_pool_free(many);
}

typedef struct helper {
    clv_task_pool_member place;
    _Atomic int *end;
    _Atomic int helped;
} helper;

static void *help(void *arg)
{
    helper *h = arg;
    while (!atomic_load_explicit(h->end, memory_order_acquire))
        if (clv_task_pool_steal_and_run(h->place, NULL))
            h->helped++;
        else
            clv_cpu_pause();
    return NULL;
}

/* All members but one, which help it until they are dismissed. */
typedef struct crew {
    helper helpers[MEMBERS];
    pthread_t thread[MEMBERS];
    _Atomic int end;
} crew;

static void hire(crew *c, clv_task_pool_member owner)
{
    atomic_init(&c->end, 0);
    for (int i = 1; i < MEMBERS; i++) {
        c->helpers[i] = (helper){{owner.pool, (owner.member + i) % MEMBERS}, &c->end, 0};
        assert_int_equal(pthread_create(&c->thread[i], NULL, help, &c->helpers[i]), 0);
    }
}

static void dismiss(crew *c)
{
    atomic_store_explicit(&c->end, 1, memory_order_release);
    for (int i = 1; i < MEMBERS; i++)
        assert_int_equal(pthread_join(c->thread[i], NULL), 0);
}

/* Two members share work after work, of all sizes and among one to all, while two look for some: no piece is lost or
 * done twice, and none too many take part, also where a helper that looked at one work meets the next. */
static void *share_many(void *arg)
{
    const clv_task_pool_member *place = arg;
    for (int w = 1; w <= WORKS; w++) {
        tally t = {.work = w, .owner = pthread_self()};
        clv_task_pool_run(*place, 1 + w % MEMBERS, count_few, &t, w % (PIECES + 1));
        check(&t, w % (PIECES + 1));
    }
    return NULL;
}

static void test_all_at_once(void **unused)
{
    clv_task_pool *pool = clv_task_pool_new(MEMBERS);
    _Atomic int end = 0;
    helper helpers[2] = {{{pool, 2}, &end, 0}, {{pool, 3}, &end, 0}};
    clv_task_pool_member places[2] = {{pool, 0}, {pool, 1}};
    pthread_t thread[MEMBERS];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread[2 + i], NULL, help, &helpers[i]), 0);
        assert_int_equal(pthread_create(&thread[i], NULL, share_many, &places[i]), 0);
    }
    for (int i = 0; i < MEMBERS; i++) {
        if (i == 2)
            atomic_store_explicit(&end, 1, memory_order_release);
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    clv_task_pool_free(pool);
}

static void wait_for_help(void *arg, int piece, int who)
{
    tally *t = arg;
    count(arg, piece, who);
    while (atomic_load_explicit(&t->by_others, memory_order_relaxed) == 0)
        clv_cpu_pause();
}

/* The first task ends only when another member has done one: so one must be stolen. */
static void test_others_take_part(void **unused)
{
    clv_task_pool *pool = clv_task_pool_new(2);
    _Atomic int end = 0;
    helper h = {{pool, 1}, &end, 0};
    tally t = {.work = 1, .owner = pthread_self()};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    clv_task_pool_run((clv_task_pool_member){pool, 0}, 2, wait_for_help, &t, 7);
    atomic_store_explicit(&end, 1, memory_order_release);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check(&t, 7);
    assert_true(h.helped >= 1 && h.helped == t.by_others);
    clv_task_pool_free(pool);
}

/* A piece for each member, none of which ends before all have begun: each has a number of its own. */
static void test_numbers(void **unused)
{
    clv_task_pool *pool = clv_task_pool_new(MEMBERS);
    const clv_task_pool_member place = {pool, 2};
    tally t = {.work = 1, .to_meet = MEMBERS, .owner = pthread_self()};
    crew others;
    hire(&others, place);
    clv_task_pool_run(place, MEMBERS, count, &t, MEMBERS);
    dismiss(&others);
    check(&t, MEMBERS);
    assert_int_equal(t.by_others, MEMBERS - 1);
    clv_task_pool_free(pool);
}

/* Rank 1 of a world, which meets rank 0 and finds work of it meanwhile. */
typedef struct early {
    clv_comm *comm;
    const clv_group *group;
    clv_wait_log waits;
} early;

static void *come_early(void *arg)
{
    early *e = arg;
    clv_comm *comm = e->comm;
    const int64_t began = clv_now_ns();
    clv_comm_set_wait_log(comm, &e->waits);
    assert_int_equal(clv_barrier_arrive_and_wait(e->comm, e->group, &(clv_collective_desc){.what = "a meeting"}, NULL),
                     CLV_OK);
    clv_comm_add_wait(comm, began);
    clv_barrier_release(e->comm, e->group);
    return NULL;
}

/* Whether it spins or sleeps. */
static void test_helping_is_told(void **unused)
{
    for (int spin = 0; spin < 2; spin++) {
        static const int one_group[2];
        clv_task_pool *pool = clv_task_pool_new(2);
        clv_world *world;
        int set;
        assert_int_equal(clv_world_new(&world, 2, &(clv_world_options){.spin = spin, .pool = pool}, NULL), CLV_OK);
        assert_int_equal(clv_world_add_groups(&set, world, one_group, NULL, NULL), CLV_OK);
        clv_comm *mine = clv_world_comm(world, 0);
        early e = {.comm = clv_world_comm(world, 1)};
        e.group = clv_comm_group(e.comm, set);
        tally t = {.work = 1, .owner = pthread_self()};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, come_early, &e), 0);
        clv_task_pool_run((clv_task_pool_member){pool, 0}, CLV_TASK_POOL_ALL, wait_for_help, &t, 7);
        const clv_group *group = clv_comm_group(mine, set);
        assert_int_equal(clv_barrier_arrive_and_wait(mine, group, &(clv_collective_desc){.what = "a meeting"}, NULL),
                         CLV_OK);
        clv_barrier_release(mine, group);
        assert_int_equal(pthread_join(thread, NULL), 0);
        const int64_t took = e.waits.of[0].ended_ns - e.waits.of[0].begun_ns;
        assert_int_equal(e.waits.n, 1);
        assert_true(e.waits.of[0].stealing_ns > 0 && e.waits.of[0].stealing_ns <= took);
        assert_true(t.by_others >= 1 && e.comm->stealing_ns == 0);
        clv_world_free(world);
        clv_task_pool_free(pool);
    }
}

static float *filled(int64_t n, uint32_t seed)
{
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
    return x;
}

typedef void run_function(const void *args, void *out, clv_task_pool_member place);

static void run_gemm(const void *args, void *out, clv_task_pool_member place)
{
    clv_gemm_args g = *(const clv_gemm_args *)args;
    g.c = out;
    g.work = place;
    assert_int_equal(clv_gemm(&g, NULL), CLV_OK);
}

static void run_quant(const void *args, void *out, clv_task_pool_member place)
{
    clv_gemm_quantized_args a = *(const clv_gemm_quantized_args *)args;
    a.y = out;
    a.work = place;
    assert_int_equal(clv_gemm_quantized(&a, NULL), CLV_OK);
}

static void run_attention(const void *args, void *out, clv_task_pool_member place)
{
    clv_attention_args a = *(const clv_attention_args *)args;
    a.out.data = out;
    a.work = place;
    assert_int_equal(clv_attention_forward(&a, NULL), CLV_OK);
}

/* dq, dk and dv are concatenated. */
static void run_attention_gradient(const void *args, void *out, clv_task_pool_member place)
{
    clv_attention_args a = *(const clv_attention_args *)args;
    const int64_t rows = a.batch * a.head_dim, q = rows * a.q_rows * a.heads, kv = rows * a.k_rows * a.kv_heads;
    const int64_t elem = (int64_t)clv_dtype_size(a.dtype);
    a.dq.data = out;
    a.dk.data = (char *)out + q * elem;
    a.dv.data = (char *)out + (q + kv) * elem;
    a.work = place;
    assert_int_equal(clv_attention_backward(&a, NULL), CLV_OK);
}

/* What run makes, `bytes` of it, has the same bits where members of h's pool take some of its pieces, h among them if
 * it runs. What h took last before may yet be counted: one more must be. */
static void check_equal(run_function *run, const void *args, size_t bytes, const helper *h)
{
    enum { ROUNDS = 20, MOST = 1000 };
    const int before = h->helped;
    char *alone = malloc(bytes), *shared = malloc(bytes);
    run(args, alone, (clv_task_pool_member){0});
    for (int round = 0; round < ROUNDS || (h->end && round < MOST && h->helped <= before + 1); round++) {
        memset(shared, 0, bytes);
        run(args, shared, (clv_task_pool_member){h->place.pool, 0});
        assert_memory_equal(alone, shared, bytes);
    }
    assert_true(!h->end || h->helped > before + 1);
    free(alone);
    free(shared);
}

/* Small numbers with differing bits, not NaN. */
static void fill_halves(clv_dtype dtype, float *x, int64_t n, int64_t period)
{
    for (int64_t i = 0; i < n; i++)
        clv_dtype_store(dtype, x, i, (double)(i % period) / (double)period - 0.5);
}

/* Extents of a product, and how its operands lie. */
typedef struct kind {
    clv_dtype dtype, c_dtype;
    clv_gemm_half_path path;
    int64_t m, n, k;
    bool trans_a, trans_b, packed_b;
} kind;

static void check_kind(const kind *of, const helper *h)
{
    const int64_t elems[] = {of->m * of->k, of->k * of->n};
    float *a = filled(elems[0], 1), *b = filled(elems[1], 2);
    clv_gemm_args g = {.a = a,
                       .b = b,
                       .m = of->m,
                       .n = of->n,
                       .k = of->k,
                       .batch = 1,
                       .lda = of->trans_a ? of->m : of->k,
                       .ldb = of->trans_b ? of->k : of->n,
                       .ldc = of->n,
                       .trans_a = of->trans_a,
                       .trans_b = of->trans_b,
                       .packed_b = of->packed_b,
                       .dtype = of->dtype,
                       .c_dtype = of->c_dtype};
    if (g.dtype != CLV_F32) {
        fill_halves(g.dtype, a, elems[0], 1001);
        fill_halves(g.dtype, b, elems[1], 997);
    }
    const size_t room = clv_gemm_workspace(&g);
    g.workspace = room > 0 ? aligned_alloc(64, (room + 63) / 64 * 64) : NULL;
    clv_gemm_set_half_path_for_test(of->path);
    check_equal(run_gemm, &g, (size_t)(g.m * g.n) * clv_dtype_size(g.c_dtype), h);
    clv_gemm_set_half_path_for_test(CLV_GEMM_HALF_BEST);
    free(g.workspace);
    free(a);
    free(b);
}

/* Products of many rows, and of few, for which weights are streamed. */
static void check_kinds(const helper *h)
{
    static const kind kinds[] = {
        {CLV_F32, CLV_F32, CLV_GEMM_HALF_F32, 1100, 70, 1100, .trans_a = false},
        {CLV_BF16, CLV_BF16, CLV_GEMM_HALF_F32, 1100, 70, 1100, .trans_a = false},
        {CLV_F16, CLV_F32, CLV_GEMM_HALF_F32, 1100, 70, 1100, .trans_a = true},
        {CLV_BF16, CLV_BF16, CLV_GEMM_HALF_VDP, 1100, 70, 1100, .trans_a = false},
        {CLV_BF16, CLV_F32, CLV_GEMM_HALF_VDP, 1100, 70, 1100, .trans_a = true},
        {CLV_BF16, CLV_BF16, CLV_GEMM_HALF_AMX, 1100, 70, 1100, .trans_a = false},
        {CLV_BF16, CLV_F32, CLV_GEMM_HALF_AMX, 1100, 70, 1100, .trans_a = true},
        {CLV_F32, CLV_F32, CLV_GEMM_HALF_BEST, 1, 720, 500, .packed_b = true},
        {CLV_BF16, CLV_BF16, CLV_GEMM_HALF_BEST, 3, 720, 500, .packed_b = true},
        {CLV_F16, CLV_F32, CLV_GEMM_HALF_BEST, 16, 720, 500, .packed_b = true},
        {CLV_F32, CLV_F32, CLV_GEMM_HALF_BEST, 1, 613, 500, .trans_b = true},
        {CLV_BF16, CLV_BF16, CLV_GEMM_HALF_BEST, 5, 613, 500, .trans_b = true},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (clv_gemm_has_half_path(kinds[i].path))
            check_kind(&kinds[i], h);
        else
            print_message("this CPU has no path %d: its products are not shared here\n", (int)kinds[i].path);
}

/* Of few rows: many are clv_gemm's. */
static void check_quantised(clv_quant how, const helper *h)
{
    enum { M = 3, N = 701, BLOCKS = 24 };
    float *x = filled(M * BLOCKS * 32, 1), *weights = filled(N * BLOCKS * 32, 2);
    uint8_t *ints = malloc((size_t)(N * BLOCKS * clv_quant_block_bytes(how)));
    uint16_t *scales = malloc(N * BLOCKS * sizeof *scales);
    clv_quantize(how, ints, scales, weights, N * BLOCKS);
    clv_gemm_quantized_args a = {how, CLV_F32, M, N, BLOCKS, M, x, ints, scales, NULL, NULL, {0}};
    a.workspace = aligned_alloc(64, (clv_gemm_quantized_workspace(&a) + 63) / 64 * 64);
    check_equal(run_quant, &a, M * N * sizeof(float), h);
    free(a.workspace);
    free(scales);
    free(ints);
    free(weights);
    free(x);
}

static clv_attention_view view_of(void *data, int64_t rows, int64_t heads, int64_t head_dim)
{
    return (clv_attention_view){data, rows * heads * head_dim, heads * head_dim, head_dim};
}

enum { SHARERS = 2, SLOTS = MEMBERS /* that would be touched, were none too many kept away */ };

/* As check_equal, of attention whose workspace takes `bytes` for so many workspace_slots: behind it nothing is touched.
 * */
static void check_in_slots(run_function *run, const clv_attention_args *args, size_t workspace, size_t bytes,
                           const helper *h)
{
    const size_t behind = workspace / SHARERS * (SLOTS - SHARERS);
    clv_attention_args a = *args;
    unsigned char *room = aligned_alloc(64, workspace + behind);
    a.workspace = room;
    memset(room + workspace, 0xA5, behind);
    check_equal(run, &a, bytes, h);
    for (size_t i = 0; i < behind; i++)
        assert_int_equal(room[workspace + i], 0xA5);
    free(room);
}

/* Of many rows, both ways, and of one. */
static void check_attention(clv_dtype dtype, int64_t q_rows, const helper *h)
{
    enum { BATCH = 5, HEADS = 4, KV_HEADS = 2, KEYS = 270, DIM = 40 };
    const int64_t q = BATCH * HEADS * q_rows * DIM, kv = BATCH * KV_HEADS * KEYS * DIM;
    float *in = filled(2 * q + 2 * kv, 1), *lse = filled(BATCH * HEADS * q_rows, 2), *out = filled(q, 3);
    if (dtype != CLV_F32)
        fill_halves(dtype, in, 2 * q + 2 * kv, 1001);
    char *data = (char *)in;
    const int64_t elem = (int64_t)clv_dtype_size(dtype);
    clv_attention_args a = {.q = view_of(data, q_rows, HEADS, DIM),
                            .d_out = view_of(data + q * elem, q_rows, HEADS, DIM),
                            .k = view_of(data + 2 * q * elem, KEYS, KV_HEADS, DIM),
                            .v = view_of(data + (2 * q + kv) * elem, KEYS, KV_HEADS, DIM),
                            .out = view_of(out, q_rows, HEADS, DIM),
                            .dq = view_of(NULL, q_rows, HEADS, DIM),
                            .dk = view_of(NULL, KEYS, KV_HEADS, DIM),
                            .dv = view_of(NULL, KEYS, KV_HEADS, DIM),
                            .lse = lse,
                            .batch = BATCH,
                            .heads = HEADS,
                            .kv_heads = KV_HEADS,
                            .q_rows = q_rows,
                            .k_rows = KEYS,
                            .head_dim = DIM,
                            .group = HEADS / KV_HEADS,
                            .causal = q_rows > 1,
                            .scale = 0.2,
                            .dtype = dtype,
                            .workspace_slots = SHARERS};
    check_in_slots(run_attention, &a, clv_attention_forward_workspace(&a), (size_t)(q * elem), h);
    if (q_rows > 1)
        check_in_slots(run_attention_gradient, &a, clv_attention_backward_workspace(&a), (size_t)((q + 2 * kv) * elem),
                       h);
    free(in);
    free(lse);
    free(out);
}

/* Products and attention with a member that takes pieces have the bits of those without, by each kernel that hands out
 * pieces; some of the pieces of each are taken. */
static void test_kernels(void **unused)
{
    clv_task_pool *pool = clv_task_pool_new(2);
    _Atomic int end = 0;
    helper h = {{pool, 1}, &end, 0};
    pthread_t thread;
    const int before = clv_threads_max();
    clv_threads_set(1);
    clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_OWN);
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    check_kinds(&h);
    check_quantised(CLV_QUANT_Q8, &h);
    check_quantised(CLV_QUANT_Q4, &h);
    check_attention(CLV_F32, 130, &h);
    check_attention(CLV_BF16, 130, &h);
    check_attention(CLV_F32, 1, &h);
    atomic_store_explicit(&end, 1, memory_order_release);
    assert_int_equal(pthread_join(thread, NULL), 0);
    clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_BEST);
    clv_threads_set(before);
    clv_task_pool_free(pool);
}

/* More members than attention's workspace has slots: none writes past it. */
static void test_attention_in_slots(void **unused)
{
    clv_task_pool *pool = clv_task_pool_new(MEMBERS);
    const int before = clv_threads_max();
    crew others;
    clv_threads_set(1);
    hire(&others, (clv_task_pool_member){pool, 0});
    check_attention(CLV_F32, 130, &(helper){.place = {pool, 0}});
    dismiss(&others);
    clv_threads_set(before);
    clv_task_pool_free(pool);
}

/* Threads of one rank that multiply products of a batch side by side have one place in the pool: they share none. */
static void test_batch_of_threads(void **unused)
{
    enum { BATCH = 64, N = 512, K = 128, ROUNDS = 300 };
    clv_task_pool *pool = clv_task_pool_new(2);
    float *a = filled(BATCH * K, 1), *b = filled(BATCH * N * K, 2);
    float *alone = filled(BATCH * N, 3), *shared = filled(BATCH * N, 3);
    const int before = clv_threads_max();
    clv_gemm_args g = {.a = a,
                       .b = b,
                       .m = 1,
                       .n = N,
                       .k = K,
                       .lda = K,
                       .ldb = K,
                       .ldc = N,
                       .batch = BATCH,
                       .stride_a = K,
                       .stride_b = N * K,
                       .stride_c = N,
                       .trans_b = true,
                       .dtype = CLV_F32,
                       .c_dtype = CLV_F32};
    clv_threads_set(2);
    run_gemm(&g, alone, (clv_task_pool_member){0});
    for (int round = 0; round < ROUNDS; round++) {
        memset(shared, 0, BATCH * N * sizeof *shared);
        run_gemm(&g, shared, (clv_task_pool_member){pool, 0});
        assert_memory_equal(alone, shared, BATCH * N * sizeof *shared);
    }
    clv_threads_set(before);
    clv_task_pool_free(pool);
    free(a);
    free(b);
    free(alone);
    free(shared);
}

/* Pieces of which one ends only when `others` have: who has done its own takes them. */
typedef struct slow {
    _Atomic int done[256];
    _Atomic int others;
    _Atomic int team;
    _Atomic bool in_vain; /* none was stolen */
    int n, waits;
} slow;

static void run_slow(void *arg, int piece, int who)
{
    slow *s = arg;
    const int64_t end = clv_now_ns() + INT64_C(20000000000);
    while (piece == s->waits && atomic_load_explicit(&s->others, memory_order_acquire) < s->n - 1 && !s->in_vain) {
        sched_yield();
        s->in_vain = clv_now_ns() > end;
    }
    atomic_fetch_add_explicit(&s->done[piece], 1, memory_order_relaxed);
    atomic_store_explicit(&s->team, clv_threads_team(), memory_order_relaxed);
    if (piece != s->waits)
        atomic_fetch_add_explicit(&s->others, 1, memory_order_release);
}

/* Threads of a rank do each piece once, however many there are of both, and those of a thread that is held up. */
static void test_threads_take_others(void **unused)
{
    static const int counts[] = {1, 2, 3, 7, 64, 201};
    const int before = clv_threads_max();
    for (int threads = 1; threads <= 127; threads = threads * 2 + 1)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const int n = counts[c];
            clv_threads_set(threads);
            int last = n - 1;
            for (int waits = -1; waits <= last; waits += n / 4 + 1) {
                slow s = {.n = n, .waits = waits};
                clv_run_tasks((clv_task_pool_member){0}, clv_threads_max(), run_slow, &s, n);
                for (int i = 0; i < n; i++)
                    assert_int_equal(atomic_load(&s.done[i]), 1);
                assert_int_equal(atomic_load(&s.others), waits < 0 ? n : n - 1);
                assert_false(atomic_load(&s.in_vain));
                if (atomic_load(&s.team) == 1)
                    last = -1; /* one thread, as without OpenMP, waits for none */
            }
        }
    clv_threads_set(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_others_take_part),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_helping_is_told),
        cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_attention_in_slots),
        cmocka_unit_test(test_batch_of_threads),
        cmocka_unit_test(test_threads_take_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
