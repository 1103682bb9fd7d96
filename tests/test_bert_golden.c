/* test_bert_golden.c - our BERT against transformers' (model_golden.h): padding, token types; a bare model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model_golden.h"

static void test_bert(void **state)
{
    (void)state;
    golden_run("bert");
    golden_bf16("bert");
}

static void test_odd(void **state)
{
    (void)state;
    golden_run("bert_odd");
    golden_bf16("bert_odd");
}

static void test_bare(void **state)
{
    (void)state;
    golden_run("bert_bare");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bert),
        cmocka_unit_test(test_odd),
        cmocka_unit_test(test_bare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
