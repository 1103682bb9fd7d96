/* test_bert_golden.c - our BERT against transformers' (model_golden.h): padding, token types; checkpoints as they were
 * published; a bare model. */

#include "golden_path.h"
#include "model_golden.h"
#include "models/weights/model_weights.h"
#include "unit_test.h"

static void test_bert(void **state)
{
    golden_run("bert");
    golden_bf16("bert");
}

static void test_odd(void **state)
{
    golden_run("bert_odd");
    golden_bf16("bert_odd");
}

/* The pooler, the head for next sentences, position ids and the tied projection are left over. */
static void test_published(void **state)
{
    const char *path = golden_path("bert_published");
    clv_model_config model = {0};
    clv_model_weights *weights;
    golden_run("bert_published");
    assert_int_equal(clv_model_config_read(&model, path, NULL), CLV_OK);
    assert_int_equal(clv_model_weights_open(&weights, &model, path, NULL, NULL), CLV_OK);
    assert_int_equal(weights->inventory.n_extra, 6);
    clv_model_weights_close(weights);
}

static void test_untied(void **state)
{
    golden_run("bert_untied");
    golden_bf16("bert_untied");
}

static void test_train(void **state)
{
    golden_train("bert_odd");
}

static void test_bare(void **state)
{
    golden_run("bert_bare");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bert),  cmocka_unit_test(test_odd),  cmocka_unit_test(test_published),
        cmocka_unit_test(test_train), cmocka_unit_test(test_bare), cmocka_unit_test(test_untied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
