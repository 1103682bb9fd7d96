/* test_llama_golden.c - our Llama against transformers' (model_golden.h), untied, tied, and with biases. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model_golden.h"

static void test_llama(void **state)
{
    (void)state;
    golden_run("llama");
}

static void test_llama_tied(void **state)
{
    (void)state;
    golden_run("llama_tied");
}

static void test_llama_bias(void **state)
{
    (void)state;
    golden_run("llama_bias");
}

static void test_decode(void **state)
{
    (void)state;
    golden_decode("llama_tied");
}

static void test_train(void **state)
{
    (void)state;
    golden_train("llama");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama),  cmocka_unit_test(test_llama_tied), cmocka_unit_test(test_llama_bias),
        cmocka_unit_test(test_decode), cmocka_unit_test(test_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
