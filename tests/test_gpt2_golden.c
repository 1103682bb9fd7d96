/* test_gpt2_golden.c - our GPT-2 against transformers' (model_golden.h): 5 heads of 3, tied; an exact gelu and a width
 * of its own, untied. */
#include "model_golden.h"
#include "unit_test.h"

static void test_gpt2(void **state)
{
    golden_run("gpt2");
}

static void test_gpt2_untied(void **state)
{
    golden_run("gpt2_untied");
}

static void test_decode(void **state)
{
    golden_decode("gpt2");
}

static void test_bf16(void **state)
{
    golden_bf16("gpt2");
    golden_bf16("gpt2_untied");
}

static void test_greedy(void **state)
{
    golden_greedy("gpt2");
    golden_greedy("gpt2_untied");
}

static void test_train(void **state)
{
    golden_train("gpt2_untied");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2), cmocka_unit_test(test_gpt2_untied), cmocka_unit_test(test_decode),
        cmocka_unit_test(test_bf16), cmocka_unit_test(test_greedy),      cmocka_unit_test(test_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
