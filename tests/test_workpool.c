/* test_workpool.c: each piece is done once, whoever does it; what others wrote is there; members without work wait. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/wait.h"
#include "base/workpool.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/threads.h"

enum { MEMBERS = 4, PIECES = 97, WORKS = 3000 };

typedef struct tally {
    int work;
    int times[PIECES]; /* not atomic: sharing orders them */
    _Atomic int by_others;
    pthread_t owner;
} tally;

static void count(void *arg, int piece)
{
    tally *t = arg;
    t->times[piece] += t->work;
    if (!pthread_equal(pthread_self(), t->owner))
        atomic_fetch_add_explicit(&t->by_others, 1, memory_order_relaxed);
}

static void check(const tally *t, int n)
{
    for (int i = 0; i < PIECES; i++)
        assert_int_equal(t->times[i], i < n ? t->work : 0);
}

/* Without a pool, with one member, and where nobody comes, the member does all itself; so it does of one piece. */
static void test_alone(void **unused)
{
    clv_workpool *one = clv_workpool_new(1), *many = clv_workpool_new(MEMBERS);
    const clv_workplace places[] = {{NULL, 0}, {one, 0}, {many, 2}};
    (void)unused;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int n = 0; n <= PIECES; n += n < 3 ? 1 : PIECES - 3) {
            tally t = {.work = 5, .owner = pthread_self()};
            clv_workpool_share(places[i], count, &t, n);
            check(&t, n);
            assert_int_equal(t.by_others, 0);
            assert_false(clv_workpool_help(places[i]));
        }
    clv_workpool_free(one);
    clv_workpool_free(many);
}

typedef struct helper {
    clv_workplace place;
    _Atomic int *end;
    _Atomic int helped;
} helper;

static void *help(void *arg)
{
    helper *h = arg;
    while (!atomic_load_explicit(h->end, memory_order_acquire))
        if (clv_workpool_help(h->place))
            h->helped++;
        else
            clv_cpu_pause();
    return NULL;
}

/* Two members share work after work, of all sizes, while two look for some: no piece is lost or done twice, also where
 * a helper that looked at one work meets the next. */
static void *share_many(void *arg)
{
    const clv_workplace *place = arg;
    for (int w = 1; w <= WORKS; w++) {
        tally t = {.work = w, .owner = pthread_self()};
        clv_workpool_share(*place, count, &t, w % (PIECES + 1));
        check(&t, w % (PIECES + 1));
    }
    return NULL;
}

static void test_all_at_once(void **unused)
{
    clv_workpool *pool = clv_workpool_new(MEMBERS);
    _Atomic int end = 0;
    helper helpers[2] = {{{pool, 2}, &end, 0}, {{pool, 3}, &end, 0}};
    clv_workplace places[2] = {{pool, 0}, {pool, 1}};
    pthread_t thread[MEMBERS];
    (void)unused;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread[2 + i], NULL, help, &helpers[i]), 0);
        assert_int_equal(pthread_create(&thread[i], NULL, share_many, &places[i]), 0);
    }
    for (int i = 0; i < MEMBERS; i++) {
        if (i == 2)
            atomic_store_explicit(&end, 1, memory_order_release);
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    }
    clv_workpool_free(pool);
}

static void wait_for_help(void *arg, int piece)
{
    tally *t = arg;
    count(arg, piece);
    while (atomic_load_explicit(&t->by_others, memory_order_relaxed) == 0)
        clv_cpu_pause();
}

/* A work whose first piece ends when another member has done one: so one does. */
static void test_others_take_part(void **unused)
{
    clv_workpool *pool = clv_workpool_new(2);
    _Atomic int end = 0;
    helper h = {{pool, 1}, &end, 0};
    tally t = {.work = 1, .owner = pthread_self()};
    pthread_t thread;
    (void)unused;
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    clv_workpool_share((clv_workplace){pool, 0}, wait_for_help, &t, 7);
    atomic_store_explicit(&end, 1, memory_order_release);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check(&t, 7);
    assert_true(h.helped >= 1 && h.helped == t.by_others);
    clv_workpool_free(pool);
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

/* A product shared with h, some of whose pieces it takes, has the bits of the one alone. What h took last before may
 * yet be counted: one more must be. */
static void check_product(const clv_gemm_args *alone, float *shared, const helper *h)
{
    enum { ROUNDS = 20, MOST = 1000 };
    clv_gemm_args g = *alone;
    const size_t bytes = (size_t)(g.m * g.n) * clv_dtype_size(g.c_dtype);
    const int before = h->helped;
    assert_int_equal(clv_gemm(&g, NULL), CLV_OK);
    g.c = shared;
    g.work.pool = h->place.pool;
    for (int round = 0; round < ROUNDS || (round < MOST && h->helped <= before + 1); round++) {
        memset(shared, 0, bytes);
        assert_int_equal(clv_gemm(&g, NULL), CLV_OK);
        assert_memory_equal(alone->c, shared, bytes);
    }
    assert_true(h->helped > before + 1);
}

/* Small numbers, not NaN, whose bits may differ. */
static void fill_halves(clv_dtype dtype, float *x, int64_t n, int64_t period)
{
    for (int64_t i = 0; i < n; i++)
        clv_dtype_store(dtype, x, i, (double)(i % period) / (double)period - 0.5);
}

/* Products with a member that takes pieces have the bits of those without, by each kernel that hands out pieces; some
 * of the pieces of each are taken. */
static void test_products(void **unused)
{
    enum { M = 1100, N = 70, K = 1100 };
    static const struct {
        clv_dtype dtype, c_dtype;
        clv_gemm_half_path path;
        bool trans_a;
    } kinds[] = {{CLV_F32, CLV_F32, CLV_GEMM_HALF_F32, false}, {CLV_BF16, CLV_BF16, CLV_GEMM_HALF_F32, false},
                 {CLV_F16, CLV_F32, CLV_GEMM_HALF_F32, true},  {CLV_BF16, CLV_BF16, CLV_GEMM_HALF_VDP, false},
                 {CLV_BF16, CLV_F32, CLV_GEMM_HALF_VDP, true}, {CLV_BF16, CLV_BF16, CLV_GEMM_HALF_AMX, false},
                 {CLV_BF16, CLV_F32, CLV_GEMM_HALF_AMX, true}};
    clv_workpool *pool = clv_workpool_new(2);
    _Atomic int end = 0;
    helper h = {{pool, 1}, &end, 0};
    pthread_t thread;
    int before = clv_threads_max();
    float *a = filled(M * K, 1), *b = filled(K * N, 2), *alone = filled(M * N, 3), *shared = filled(M * N, 3);
    (void)unused;
    clv_threads_set(1);
    clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_OWN);
    assert_int_equal(pthread_create(&thread, NULL, help, &h), 0);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        clv_gemm_args g = {.a = a, .b = b, .c = alone, .m = M, .n = N, .k = K, .batch = 1, .ldb = N, .ldc = N};
        g.trans_a = kinds[kind].trans_a;
        g.lda = g.trans_a ? M : K;
        g.dtype = kinds[kind].dtype;
        g.c_dtype = kinds[kind].c_dtype;
        if (!clv_gemm_has_half_path(kinds[kind].path)) {
            print_message("this CPU has no path %d: its products are not shared here\n", (int)kinds[kind].path);
            continue;
        }
        clv_gemm_set_half_path_for_test(kinds[kind].path);
        g.workspace = aligned_alloc(64, clv_gemm_workspace(&g));
        if (g.dtype != CLV_F32) {
            fill_halves(g.dtype, a, M * K, 1001);
            fill_halves(g.dtype, b, K * N, 997);
        }
        check_product(&g, shared, &h);
        free(g.workspace);
    }
    atomic_store_explicit(&end, 1, memory_order_release);
    assert_int_equal(pthread_join(thread, NULL), 0);
    clv_gemm_set_f32_path_for_test(CLV_GEMM_F32_BEST);
    clv_gemm_set_half_path_for_test(CLV_GEMM_HALF_BEST);
    clv_threads_set(before);
    clv_workpool_free(pool);
    free(a);
    free(b);
    free(alone);
    free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_others_take_part),
        cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
