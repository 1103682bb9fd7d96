/* How the whole machine is split, for cores that this one may not have; tests/test_cpu_count.c runs commands on it. */
#include <stdlib.h>

#include "cli/options/auto_parallelism.h"
#include "unit_test.h"

static void test_split(void **state)
{
    static const struct {
        int64_t cores, kv_heads, ranks;
    } cases[] = {{1, 8, 1}, {2, 8, 2},  {2, 1, 1},  {2, 7, 1},   {3, 8, 1},   {3, 12, 3}, {4, 2, 2},  {6, 8, 2},
                 {8, 8, 8}, {8, 12, 4}, {12, 8, 4}, {16, 32, 8}, {48, 96, 8}, {7, 14, 7}, {11, 11, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_auto_parallelism split = clv_auto_parallelism_choose(cases[i].cores, cases[i].kv_heads);
        assert_int_equal(split.ranks, cases[i].ranks);
        assert_int_equal(split.ranks * split.threads, cases[i].cores);
    }
}

/* What was given stays, and nothing else is chosen then. */
static void test_given_stays(void **state)
{
    static const clv_mesh_option given[] = {{.tp = 3}, {.text = "data=2"}, {0}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        clv_mesh_option mesh = given[i];
        int64_t threads = mesh.tp || mesh.text ? 0 : 5;
        assert_false(clv_auto_parallelism_applies(&mesh, threads));
        clv_auto_parallelism chosen = clv_auto_parallelism_fill(&mesh, &threads, 8);
        assert_int_equal(chosen.ranks, 0);
        assert_int_equal(mesh.tp, given[i].tp ? given[i].tp : 1);
        assert_int_equal(threads, given[i].tp || given[i].text ? 1 : 5);
    }
}

/* Sequences that are whole are split, too, where there are ranks to split them among and no rules were given. */
static void test_scoring(void **state)
{
    static const struct {
        clv_mesh_option mesh;
        int64_t kv_heads;
        bool sp; /* where there is more than one core */
    } cases[] = {{{0}, 8, true},
                 {{.sp = true}, 8, true},
                 {{.whole_sequences = true}, 8, false},
                 {{.rules = "megatron"}, 8, false},
                 {{0}, 1, false}};
    unsetenv("OMP_NUM_THREADS"); /* of which there may be one, and nothing to split */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_mesh_option mesh = cases[i].mesh;
        int64_t threads = 0;
        clv_auto_parallelism chosen = clv_auto_parallelism_fill(&mesh, &threads, cases[i].kv_heads);
        assert_int_equal(chosen.sp, cases[i].sp && chosen.ranks > 1);
        assert_int_equal(mesh.sp, chosen.sp || cases[i].mesh.sp);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_given_stays),
        cmocka_unit_test(test_scoring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
