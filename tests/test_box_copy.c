/* Boxes of shards: copies against an element-by-element loop; reductions against the same in the peers' order. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tensor/box_copy.h"
#include "tensor/float16.h"
#include "unit_test.h"

static uint64_t seed = 20240607;

static int64_t below(int64_t n) /* a random number in [0, n) */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((seed >> 33) % (uint64_t)n);
}

/* Where element i (row-major in the box) lies in the shard. */
static int64_t place(const clv_shard *shard, const clv_shard *box, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int d = box->rank - 1; d >= 0; d--) {
        int64_t size = box->hi[d] - box->lo[d];
        at += (box->lo[d] + i % size - shard->lo[d]) * stride;
        i /= size;
        stride *= shard->hi[d] - shard->lo[d];
    }
    return at;
}

static void random_box(clv_shard *box, clv_shard *a, clv_shard *b)
{
    box->rank = a->rank = b->rank = (int)below(5);
    for (int d = 0; d < box->rank; d++) {
        bool tight = below(2) == 0; /* box and shards often agree, so that dimensions merge */
        box->lo[d] = below(3);
        box->hi[d] = box->lo[d] + (below(12) == 0 ? 0 : 1 + below(4));
        a->lo[d] = box->lo[d] - (tight ? 0 : below(2));
        a->hi[d] = box->hi[d] + (tight ? 0 : below(2));
        b->lo[d] = box->lo[d] - (tight ? 0 : below(3));
        b->hi[d] = box->hi[d] + (tight ? 0 : below(3));
    }
}

enum { MOST = 1 << 12 };

static void copies_boxes(void **state)
{
    static const size_t sizes[] = {1, 2, 4, 8};
    static unsigned char in[MOST * 8], out[MOST * 8], expected[MOST * 8];
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 3000; round++) {
        clv_shard box, to, from;
        size_t size = sizes[below(4)];
        random_box(&box, &to, &from);
        for (size_t i = 0; i < sizeof in; i++)
            in[i] = (unsigned char)(i * 131 + i / 251);
        memset(out, 0xee, sizeof out);
        memset(expected, 0xee, sizeof expected);
        for (int64_t i = 0; i < clv_shard_elems(&box); i++)
            memcpy(expected + (size_t)place(&to, &box, i) * size, in + (size_t)place(&from, &box, i) * size, size);
        clv_box_copy(out, &to, in, &from, &box, size);
        assert_memory_equal(out, expected, sizeof out);
    }
}

static void reduces_boxes_in_order(void **state)
{
    static float in[3][MOST], out[MOST], expected[MOST];
    printf("seed %llu\n", (unsigned long long)seed);
    for (int round = 0; round < 1000; round++) {
        clv_shard box, to, from;
        const void *peers[3] = {in[0], in[1], in[2]};
        int n = 1 + (int)below(3);
        clv_reduction reduction = below(2) == 0 ? CLV_REDUCTION_SUM : CLV_REDUCTION_MAX;
        random_box(&box, &to, &from);
        for (int i = 0; i < MOST; i++) {
            out[i] = expected[i] = -1;
            for (int p = 0; p < 3; p++)
                in[p][i] = ldexpf((float)(below(2001) - 1000), (int)below(20));
        }
        for (int64_t i = 0; i < clv_shard_elems(&box); i++) {
            float sum = in[0][place(&from, &box, i)];
            for (int p = 1; p < n; p++) {
                float x = in[p][place(&from, &box, i)];
                sum = reduction == CLV_REDUCTION_SUM ? sum + x : fmaxf(sum, x);
            }
            expected[place(&to, &box, i)] = sum;
        }
        clv_box_reduce(out, &to, peers, n, &from, &box, CLV_F32, reduction);
        assert_memory_equal(out, expected, sizeof out);
    }
}

/* Every dtype, a run longer than the kernel's chunk, in place over the first peer. */
static void reduces_every_dtype(void **state)
{
    enum { COUNT = 2500 };
    static double buffers[3][COUNT], values[3][COUNT], expected[COUNT];
    for (int t = 0; t < CLV_DTYPE_COUNT; t++)
        for (int max = 0; max < 2; max++) {
            clv_dtype dtype = (clv_dtype)t;
            const void *peers[3] = {buffers[0], buffers[1], buffers[2]};
            int is_bool = dtype == CLV_BOOL;
            for (int i = 0; i < COUNT; i++) {
                for (int p = 0; p < 3; p++) {
                    int64_t whole = is_bool ? below(2) : dtype == CLV_U8 ? below(80) : below(200) - 100;
                    clv_dtype_store(dtype, buffers[p], i, (double)whole / (clv_dtype_is_float(dtype) ? 8 : 1));
                    values[p][i] = clv_dtype_load(dtype, buffers[p], i);
                }
                double a = values[0][i], b = values[1][i], c = values[2][i];
                expected[i] = max || is_bool ? fmax(fmax(a, b), c) : a + b + c;
            }
            clv_values_reduce(buffers[0], peers, 3, 0, COUNT, dtype, max ? CLV_REDUCTION_MAX : CLV_REDUCTION_SUM);
            for (int i = 0; i < COUNT; i++) {
                char rounded[8];
                clv_dtype_store(dtype, rounded, 0, expected[i]);
                assert_true(clv_dtype_load(dtype, buffers[0], i) == clv_dtype_load(dtype, rounded, 0));
            }
        }
}

static void rounds_once_and_keeps_nan(void **state)
{
    /* 1 + 2^-8 + 2^-8 in bf16: rounded at each step it stays 1, rounded once it is 1 + 2^-7. */
    uint16_t a = clv_bf16_of_f32(1), b = clv_bf16_of_f32(0x1p-8f), out;
    clv_values_reduce(&out, (const void *const[]){&a, &b, &b}, 3, 0, 1, CLV_BF16, CLV_REDUCTION_SUM);
    assert_true(clv_f32_of_bf16(out) == 1 + 0x1p-7f);
    float nan = NAN, one = 1, max;
    clv_values_reduce(&max, (const void *const[]){&nan, &one}, 2, 0, 1, CLV_F32, CLV_REDUCTION_MAX);
    assert_true(isnan(max));
    clv_values_reduce(&max, (const void *const[]){&one, &nan}, 2, 0, 1, CLV_F32, CLV_REDUCTION_MAX);
    assert_true(isnan(max));
    int32_t most = INT32_MAX, two = 2, sum;
    clv_values_reduce(&sum, (const void *const[]){&most, &two}, 2, 0, 1, CLV_I32, CLV_REDUCTION_SUM);
    assert_int_equal(sum, INT32_MIN + 1);
}

static void identities_change_nothing(void **state)
{
    for (int t = 0; t < CLV_DTYPE_COUNT; t++)
        for (int max = 0; max < 2; max++) {
            double none[5], some[5], out[5];
            clv_reduction reduction = max ? CLV_REDUCTION_MAX : CLV_REDUCTION_SUM;
            clv_fill_reduction_identity(none, 5, (clv_dtype)t, reduction);
            for (int i = 0; i < 5; i++)
                clv_dtype_store((clv_dtype)t, some, i, i % 2 - (clv_dtype_is_float((clv_dtype)t) ? 7.5 : 0));
            clv_values_reduce(out, (const void *const[]){none, some, none}, 3, 0, 5, (clv_dtype)t, reduction);
            assert_memory_equal(out, some, 5 * clv_dtype_size((clv_dtype)t));
        }
    int32_t least;
    clv_fill_reduction_identity(&least, 1, CLV_I32, CLV_REDUCTION_MAX);
    assert_int_equal(least, INT32_MIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_boxes),
        cmocka_unit_test(reduces_boxes_in_order),
        cmocka_unit_test(reduces_every_dtype),
        cmocka_unit_test(rounds_once_and_keeps_nan),
        cmocka_unit_test(identities_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
