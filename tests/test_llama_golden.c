/* test_llama_golden.c - Llama, Mistral and Qwen2 against transformers' (model_golden.h): untied, tied, biases, rope
 * scaling, windows. */
#include "model_golden.h"
#include "unit_test.h"

static void test_llama(void **state)
{
    golden_run("llama");
}

static void test_llama_tied(void **state)
{
    golden_run("llama_tied");
}

static void test_llama_bias(void **state)
{
    golden_run("llama_bias");
}

static void test_llama_scaled(void **state)
{
    golden_run("llama_scaled");
    golden_run("llama_linear");
}

static void test_llama_padded(void **state)
{
    golden_run("llama_padded");
    golden_bf16("llama_padded");
}

static void test_llama_odd(void **state)
{
    golden_run("llama_odd");
    golden_bf16("llama_odd");
    golden_greedy("llama_odd");
}

static void test_mistral(void **state)
{
    golden_run("mistral");
    golden_run("mistral_whole");
}

static void test_qwen2(void **state)
{
    golden_run("qwen2");
    golden_run("qwen2_window");
    golden_run("qwen2_mixed");
}

static void test_decode(void **state)
{
    static const char *const names[] = {"llama_tied", "llama_scaled", "mistral",
                                        "qwen2",      "qwen2_window", "qwen2_mixed"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        golden_decode(names[i]);
}

static void test_bf16(void **state)
{
    static const char *const names[] = {"llama", "llama_scaled", "mistral", "qwen2_window", "qwen2_mixed"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        golden_bf16(names[i]);
}

static void test_greedy(void **state)
{
    static const char *const names[] = {"llama",         "llama_tied", "llama_scaled", "llama_linear", "mistral",
                                        "mistral_whole", "qwen2",      "qwen2_window", "qwen2_mixed"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        golden_greedy(names[i]);
}

static void test_train(void **state)
{
    golden_train("llama");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),        cmocka_unit_test(test_llama_tied),   cmocka_unit_test(test_llama_bias),
        cmocka_unit_test(test_llama_scaled), cmocka_unit_test(test_llama_padded), cmocka_unit_test(test_llama_odd),
        cmocka_unit_test(test_mistral),      cmocka_unit_test(test_qwen2),        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_greedy),       cmocka_unit_test(test_decode),       cmocka_unit_test(test_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
