/* test_deepseek_golden.c - DeepSeek-V3 against transformers' (model_golden.h): latent attention with and without a
 * latent of queries, by YaRN and without, values narrower and wider than keys; a sigmoid router with groups and a
 * bias; dense first layers; shared experts. */
#include "model_golden.h"
#include "must.h"
#include "cleave/nn.h"
#include "cleave/program.h"
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

/* A step to latents that are wider than a head of attention may be: keys and values are made of them. */
static void test_wide_latents(void **state)
{
    clv_error err = {0};
    clv_program *program;
    clv_graph *graph = must_graph("model=1");
    const clv_value x = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){1, 1, 8}, NULL);
    const clv_latent_attention_options how = {.size = sizeof how,
                                              .heads = 2,
                                              .kv_rank = 1020,
                                              .plain_dim = 4,
                                              .rotary_dim = 6,
                                              .value_dim = 4,
                                              .rope.theta = 1e4,
                                              .context = 4,
                                              .offset = clv_input(graph, "offset", CLV_I32, 0, NULL, NULL)};
    clv_output(graph, "y", clv_parallel_latent_attention(graph, x, NULL, &how), NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    clv_program_free(program);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results), cmocka_unit_test(test_decode), cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_greedy),  cmocka_unit_test(test_train),  cmocka_unit_test(test_wide_latents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
