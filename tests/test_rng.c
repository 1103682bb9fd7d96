/* test_rng.c - random numbers against jax, flax and Random123. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit_test.h"
#include <jansson.h>

/* The source itself: the compiled copies for different instruction sets are compared. */
#include "base/rng.c"

typedef struct golden_key {
    uint64_t seed;
    uint32_t key[2];
    uint32_t folded[3][2]; /* fold_in of 0, 7, 2^32 - 1 */
    uint32_t split[3][2];  /* keys 0, 3, 4 of 5 */
    uint32_t bits[33];     /* shape (3, 11) */
} golden_key;

enum { PICKS = 28 };

typedef struct golden_draw {
    uint64_t seed;
    transform kind;
    float lo, hi;
    uint32_t at[PICKS];
    uint32_t bits[PICKS];
} golden_draw;

#define TRUNCATED TRUNCATED_NORMAL
#include "golden/rng.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* Distance in units of the last place of `want`. */
static double ulps(float have, float want)
{
    double unit = (double)nextafterf(fabsf(want), INFINITY) - fabs((double)want);

    return fabs((double)have - (double)want) / unit;
}

/* Random123's kat_vectors for threefry2x32, 20 rounds. */
static void threefry_gives_the_published_blocks(void **state)
{
    static const uint32_t known[3][6] = {
        {0, 0, 0, 0, 0x6b200159, 0x99ba4efe},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x1cb996fc, 0xbb002be7},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xc4923a9c, 0x483df7a0},
    };

    for (int i = 0; i < COUNT(known); i++) {
        uint32_t out[2];
        clv_threefry((clv_key){{known[i][2], known[i][3]}}, known[i][0], known[i][1], out);
        assert_int_equal(out[0], known[i][4]);
        assert_int_equal(out[1], known[i][5]);
    }
}

static void assert_key(clv_key key, const uint32_t want[2])
{
    assert_int_equal(key.word[0], want[0]);
    assert_int_equal(key.word[1], want[1]);
}

static void keys_and_bits_are_those_of_jax(void **state)
{
    static const uint32_t data[3] = {0, 7, UINT32_MAX};
    static const uint64_t part[3] = {0, 3, 4};

    for (int i = 0; i < COUNT(golden_keys); i++) {
        const golden_key *g = &golden_keys[i];
        clv_key key = clv_key_seed(g->seed);
        uint32_t bits[33];

        assert_key(key, g->key);
        for (int k = 0; k < 3; k++) {
            assert_key(clv_key_fold_in(key, data[k]), g->folded[k]);
            assert_key(clv_key_split(key, part[k]), g->split[k]);
        }
        clv_random_bits(bits, key, 0, 33);
        assert_memory_equal(bits, g->bits, sizeof bits);
    }
}

static void draw(float *out, const golden_draw *g, uint64_t first, int64_t count)
{
    clv_key key = clv_key_seed(g->seed);

    if (g->kind == UNIFORM)
        clv_random_uniform(out, key, first, count, g->lo, g->hi);
    else if (g->kind == NORMAL)
        clv_random_normal(out, key, first, count);
    else
        clv_random_truncated_normal(out, key, first, count, g->lo, g->hi);
}

static void floats_are_those_of_jax(void **state)
{
    for (int i = 0; i < COUNT(golden_draws); i++) {
        const golden_draw *g = &golden_draws[i];
        double allowed = g->kind == UNIFORM ? 0 : 4;
        for (int k = 0; k < PICKS; k++) {
            float have, want = float_of(g->bits[k]);
            draw(&have, g, g->at[k], 1);
            if (!(ulps(have, want) <= allowed))
                fail_msg("draw %d (seed %llu), element %u: %.9g, jax has %.9g: %g ulp", i, (unsigned long long)g->seed,
                         g->at[k], (double)have, (double)want, ulps(have, want));
        }
    }
}

/* Any cutting of a tensor gives the same elements: across chunks, at odd places, and past 2^32. */
static void elements_do_not_depend_on_the_cut(void **state)
{
    enum { SIZE = 1500 };
    static const uint64_t starts[] = {0, 5, UINT64_C(0xFFFFFFFF) - 700, UINT64_C(0x300000000) - 1};
    static const int64_t lengths[] = {1, 2, 7, 255, 256, 257, 300};
    static float whole[SIZE], cut[SIZE];

    for (int d = 0; d < 6; d++)
        for (int s = 0; s < COUNT(starts); s++) {
            draw(whole, &golden_draws[d], starts[s], SIZE);
            for (int64_t at = 0, k = 0; at < SIZE; k++) {
                int64_t n = lengths[k % COUNT(lengths)] < SIZE - at ? lengths[k % COUNT(lengths)] : SIZE - at;
                draw(cut + at, &golden_draws[d], starts[s] + (uint64_t)at, n);
                at += n;
            }
            assert_memory_equal(whole, cut, sizeof whole);
        }
}

static void bits_past_the_first_4_billion_use_the_high_word(void **state)
{
    clv_key key = clv_key_seed(42);
    uint32_t bits[2], low[2], high[2];

    clv_random_bits(bits, key, UINT64_C(0xFFFFFFFF), 2);
    clv_threefry(key, 0, UINT32_MAX, low);
    clv_threefry(key, 1, 0, high);
    assert_int_equal(bits[0], low[0] ^ low[1]);
    assert_int_equal(bits[1], high[0] ^ high[1]);
    clv_random_bits(bits, key, 0, 0);
    assert_int_equal(bits[0], low[0] ^ low[1]);
}

static void instruction_sets_agree_bit_for_bit(void **state)
{
#ifdef __x86_64__
    enum { SIZE = 100003 };
    static float portable[SIZE], wide[SIZE];
    const recipe recipes[] = {{.kind = BITS},
                              uniform_recipe(-0.3f, 0.7f, 1.0f),
                              normal_recipe(0.02f),
                              truncated_normal_recipe(-2.0f, 2.0f, 0.3f)};

    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        skip();
    for (int i = 0; i < COUNT(recipes); i++) {
        fill_portable(portable, clv_key_seed(7), 11, SIZE, &recipes[i]);
        fill_avx2(wide, clv_key_seed(7), 11, SIZE, &recipes[i]);
        assert_memory_equal(portable, wide, sizeof portable);
    }
#else
    skip();
#endif
}

static void truncated_normals_stay_inside(void **state)
{
    enum { SIZE = 200000 };
    static float x[SIZE];
    double sum = 0, squares = 0;

    clv_random_truncated_normal(x, clv_key_seed(3), 0, SIZE, -2.0f, 2.0f);
    for (int i = 0; i < SIZE; i++) {
        assert_true(x[i] > -2.0f && x[i] < 2.0f);
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    /* six standard errors of the mean and, generously, of the variance .87962566^2 = .7737 */
    assert_true(fabs(sum / SIZE) <= 6 * 0.88 / sqrt(SIZE));
    assert_true(fabs(squares / SIZE - 0.77374) <= 6 * 0.9 / sqrt(SIZE));
}

static void initial_values_follow_their_kind(void **state)
{
    enum { SIZE = 600 };
    float x[SIZE], base[SIZE];
    clv_key key = clv_key_seed(9);

    clv_init_fill(x, (clv_init){CLV_INIT_ZEROS, 5}, key, 0, SIZE);
    for (int i = 0; i < SIZE; i++)
        assert_true(x[i] == 0.0f);
    clv_init_fill(x, (clv_init){CLV_INIT_ONES, 0}, key, 0, SIZE);
    for (int i = 0; i < SIZE; i++)
        assert_true(x[i] == 1.0f);

    clv_random_normal(base, key, 0, SIZE);
    clv_init_fill(x, (clv_init){CLV_INIT_NORMAL, 0}, key, 0, SIZE);
    assert_memory_equal(x, base, sizeof x);
    clv_init_fill(x, (clv_init){CLV_INIT_NORMAL, 0.02}, key, 100, SIZE - 100);
    for (int i = 0; i < SIZE - 100; i++)
        assert_true(x[i] == base[100 + i] * 0.02f);

    clv_random_uniform(base, key, 0, SIZE, -0.25f, 0.25f);
    clv_init_fill(x, (clv_init){(clv_init_kind)(CLV_INIT_UNIFORM + 1), 1}, key, 0, SIZE);
    assert_true(isnan(x[0]) && isnan(x[SIZE - 1]));
    clv_init_fill(x, (clv_init){CLV_INIT_UNIFORM, 0.25}, key, 0, SIZE);
    assert_memory_equal(x, base, sizeof x);
}

/* flax nnx.Linear(in, out, rngs=nnx.Rngs(seed)): the default stream's key is key(seed); the kernel is the first to ask
 * the stream for a key, which is fold_in(key, 0) (the bias, zeros, is given fold_in(key, 1)); its values are
 * lecun_normal over (in, out), fan-in = in. */
static void lecun_normal_is_the_kernel_of_flax(void **state)
{
    char path[512];
    const char *source = getenv("CLV_SOURCE_DIR");
    snprintf(path, sizeof path, "%s/tests/golden/nnx_linear.json", source != NULL ? source : ".");
    json_error_t error;
    json_t *cases = json_load_file(path, 0, &error), *one;
    size_t i;

    if (cases == NULL)
        fail_msg("%s: %s", path, error.text);
    assert_int_equal(json_array_size(cases), 12);
    json_array_foreach(cases, i, one)
    {
        clv_key key = clv_key_seed((uint64_t)json_integer_value(json_object_get(one, "seed")));
        json_t *kernel = json_object_get(one, "kernel"), *row, *value;
        size_t rows = json_array_size(kernel), r, c;
        uint64_t index = 0;
        json_array_foreach(kernel, r, row) json_array_foreach(row, c, value)
        {
            float have, want = (float)json_number_value(value);
            clv_init_fill(&have, (clv_init){CLV_INIT_LECUN_NORMAL, (double)rows}, clv_key_fold_in(key, 0), index++, 1);
            if (!(ulps(have, want) <= 4))
                fail_msg("case %zu, kernel[%zu][%zu]: %.9g, flax has %.9g", i, r, c, (double)have, (double)want);
        }
        assert_int_equal(index, rows * (size_t)json_integer_value(json_object_get(one, "features")));
    }
    json_decref(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threefry_gives_the_published_blocks),
        cmocka_unit_test(keys_and_bits_are_those_of_jax),
        cmocka_unit_test(floats_are_those_of_jax),
        cmocka_unit_test(elements_do_not_depend_on_the_cut),
        cmocka_unit_test(bits_past_the_first_4_billion_use_the_high_word),
        cmocka_unit_test(instruction_sets_agree_bit_for_bit),
        cmocka_unit_test(truncated_normals_stay_inside),
        cmocka_unit_test(initial_values_follow_their_kind),
        cmocka_unit_test(lecun_normal_is_the_kernel_of_flax),
    };
    return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
