/* test_esm_golden.c - our ESM-2 against transformers' (model_golden.h). */
#include "model_golden.h"
#include "models/config/model_config.h"
#include "unit_test.h"

/* As published: token dropout; with padding and mask tokens. */
static void test_esm(void **state)
{
    golden_run("esm");
}

/* A LayerNorm after the embedding, no token dropout. */
static void test_esm_norm(void **state)
{
    golden_run("esm_norm");
}

/* Token dropout without padding. */
static void test_esm_whole(void **state)
{
    golden_run("esm_whole");
}

/* Frequencies rounded to f16, as published; not tied. */
static void test_esm_half(void **state)
{
    golden_run("esm_half");
    golden_bf16("esm_half");
    golden_train("esm_half");
}

static void test_no_cache(void **state)
{
    static const clv_model_config model = {.family = &clv_family_esm, .bidirectional = true};
    clv_model_build_options build = {.batch = 1, .seq = 1, .context = 8};
    clv_mesh mesh;
    clv_graph *graph;
    clv_error err = {0};
    assert_int_equal(clv_mesh_parse(&mesh, "model=1", NULL), CLV_OK);
    assert_int_equal(clv_graph_new(&graph, &mesh, NULL), CLV_OK);
    clv_build_inference(graph, &model, &build);
    assert_int_equal(clv_graph_status(graph, &err), CLV_EUNSUPPORTED);
    assert_string_equal(err.message, "a KV cache for a model of the family esm, whose attention is not causal");
    clv_graph_free(graph);
}

static void test_bf16(void **state)
{
    golden_bf16("esm");
    golden_bf16("esm_norm");
    golden_bf16("esm_whole");
}

static void test_train(void **state)
{
    golden_train("esm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_esm),      cmocka_unit_test(test_esm_norm), cmocka_unit_test(test_esm_whole),
        cmocka_unit_test(test_no_cache), cmocka_unit_test(test_bf16),     cmocka_unit_test(test_train),
        cmocka_unit_test(test_esm_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
