/* test_moe_golden.c - Mixtral, Qwen2-MoE and Qwen3-MoE against transformers' (model_golden.h): experts split over their
 * own axis, over the model axis and over both, with sequence parallelism and FSDP. */
#include "model_golden.h"
#include "unit_test.h"

static void test_mixtral(void **state)
{
    golden_run("mixtral");
    golden_run("mixtral_window");
}

static void test_qwen3_moe(void **state)
{
    golden_run("qwen3_moe");
    golden_run("qwen3_moe_bias");
}

static void test_qwen2_moe(void **state)
{
    golden_run("qwen2_moe");
    golden_run("qwen2_moe_step");
    golden_run("qwen2_moe_padded");
}

static void test_decode(void **state)
{
    static const char *const names[] = {"mixtral_window", "qwen3_moe_bias", "qwen2_moe", "qwen2_moe_step"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        golden_decode(names[i]);
}

static void test_bf16(void **state)
{
    static const char *const names[] = {"mixtral", "qwen3_moe", "qwen2_moe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        golden_bf16(names[i]);
}

static void test_greedy(void **state)
{
    static const char *const names[] = {"mixtral",   "mixtral_window",   "qwen3_moe",     "qwen3_moe_bias",
                                        "qwen2_moe", "qwen2_moe_padded", "qwen2_moe_step"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        golden_greedy(names[i]);
}

static void test_train(void **state)
{
    golden_train("mixtral");
    golden_train("qwen2_moe");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixtral), cmocka_unit_test(test_qwen3_moe), cmocka_unit_test(test_qwen2_moe),
        cmocka_unit_test(test_decode),  cmocka_unit_test(test_bf16),      cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
