/* test_deepseek_golden.c - DeepSeek-V3 against transformers' (model_golden.h): latent attention with and without a
 * latent of queries, by YaRN and without, values narrower and wider than keys; a sigmoid router with groups and a
 * bias; dense first layers; shared experts. */
#include "model_golden.h"
#include "unit_test.h"

static const char *const names[] = {"deepseek_v3", "deepseek_v3_yarn", "deepseek_v3_padded"};
enum { NAMES = sizeof names / sizeof *names };

static void test_results(void **state)
{
    for (int i = 0; i < NAMES; i++)
        golden_run(names[i]);
}

static void test_decode(void **state)
{
    for (int i = 0; i < 2; i++)
        golden_decode(names[i]);
}

static void test_bf16(void **state)
{
    for (int i = 0; i < NAMES; i++)
        golden_bf16(names[i]);
}

static void test_greedy(void **state)
{
    for (int i = 0; i < NAMES; i++)
        golden_greedy(names[i]);
}

static void test_train(void **state)
{
    for (int i = 0; i < 2; i++)
        golden_train(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results), cmocka_unit_test(test_decode), cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_greedy),  cmocka_unit_test(test_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
