/* test_plan_mixtures.c - plans of Mixtral-8x7B and DeepSeek-V3 on 2,048 H100s, counted by hand: parameters, KV cache,
 * and what a training step's all-to-alls of tokens move.
 *
 * Sizes: Jiang et al. 2024, arXiv:2401.04088, table 1; DeepSeek-AI 2024, arXiv:2412.19437, section 4.2 (data/configs).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/plan.h"
#include "must.h"
#include "unit_test.h"

enum { RANKS = 2048, BATCH = 2 * RANKS, SEQ = 4096, BF16 = 2, F32 = 4 };

static clv_error err;

typedef struct mixture {
    const char *name, *mesh;
    int64_t expert_ranks, layers, sparse_layers, width, top_k, experts;
    int64_t billions; /* of parameters, as published */
    int64_t others;   /* parameters of all layers and of none, but experts' */
    int64_t biases;   /* routers', in f32 */
    int64_t expert;   /* parameters of an expert */
    int64_t cached;   /* elements of a position and layer */
} mixture;

/* Embedding and head, the last norm; a layer: two norms, q and o [4096, 32, 128], k and v [4096, 8, 128], router. */
static mixture mixtral(void)
{
    const int64_t m = 4096, layer = 2 * m + 2 * m * 32 * 128 + 2 * m * 8 * 128 + m * 8;
    return (mixture){.name = "mixtral-8x7b",
                     .mesh = "data=256,expert=8",
                     .expert_ranks = 8,
                     .layers = 32,
                     .sparse_layers = 32,
                     .width = m,
                     .top_k = 2,
                     .experts = 8,
                     .billions = 47,
                     .others = 2 * 32000 * m + m + 32 * layer,
                     .expert = 3 * m * 14336,
                     .cached = 2 * 8 * 128};
}

/* As above; a layer: two norms; q by a latent of 1,536, with a norm, to 128 heads of 128 + 64; k and v by one of 512,
 * with a norm, and 64 elements that are rotated, to heads of 128 and 128; o. Three layers with a feed-forward network
 * of 18,432, the others with a router and a shared expert. */
static mixture deepseek(void)
{
    const int64_t m = 7168, q = m * 1536 + 1536 + 1536 * 128 * (128 + 64);
    const int64_t kv = m * (512 + 64) + 512 + 512 * 128 * (128 + 128), o = 128 * 128 * m;
    const int64_t expert = 3 * m * 2048;
    return (mixture){.name = "deepseek-v3",
                     .mesh = "data=32,expert=64",
                     .expert_ranks = 64,
                     .layers = 61,
                     .sparse_layers = 58,
                     .width = m,
                     .top_k = 8,
                     .experts = 256,
                     .billions = 671,
                     .others =
                         2 * 129280 * m + m + 61 * (2 * m + q + kv + o) + 3 * 3 * m * 18432 + 58 * (m * 256 + expert),
                     .biases = 58 * 256,
                     .expert = expert,
                     .cached = 512 + 64};
}

static clv_program *plan_of(const mixture *x, clv_plan_mode mode, int64_t batch, int64_t seq,
                            const clv_machine *machine)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *program;
    char config[1024];
    snprintf(config, sizeof config, "%s/data/configs/%s.json", getenv("CLV_SOURCE_DIR"), x->name);
    must(clv_mesh_parse(&mesh, x->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, "zero1", &mesh, &err), &err);
    const clv_plan_options how = {.size = sizeof how,
                                  .model = config,
                                  .mode = mode,
                                  .mesh = &mesh,
                                  .rules = &rules,
                                  .batch = batch,
                                  .seq = seq,
                                  .dtype = CLV_BF16,
                                  .compile = {.machine = machine}};
    must(clv_plan_compile(&program, &how, &err), &err);
    return program;
}

static clv_memory memory_of(const clv_program *program)
{
    clv_memory memory = {.size = sizeof memory};
    must(clv_program_memory(program, &memory, &err), &err);
    return memory;
}

/* A rank has its experts, and all of the others. */
static void check_parameters(const mixture *x, const clv_program *program)
{
    const int64_t experts = x->sparse_layers * x->experts * x->expert;
    assert_int_equal(memory_of(program).parameters, BF16 * (x->others + experts / x->expert_ranks) + F32 * x->biases);
    assert_int_equal(llround((double)(x->others + x->biases + experts) / 1e9), x->billions);
}

/* Each layer sends rows to experts and their results back, and so in the backward pass. A rank gets those of the rows
 * of each other rank of its group that choose one of its experts. */
static void check_rows(const mixture *x, const clv_program *program)
{
    const int64_t rows = BATCH / RANKS * SEQ, here = x->experts / x->expert_ranks;
    double none = 1, bytes[2] = {0};
    int n[2] = {0};
    for (int64_t k = 0; k < x->top_k; k++)
        none *= (double)(x->experts - here - k) / (double)(x->experts - k);
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        const bool back = strcmp(c.kind, "combine_rows") == 0;
        if (back || strcmp(c.kind, "dispatch_rows") == 0) {
            bytes[back] += c.bytes;
            n[back]++;
        }
    }
    for (int way = 0; way < 2; way++) {
        const double want =
            (double)(2 * x->sparse_layers * (x->expert_ranks - 1) * rows * x->width * BF16) * (1 - none);
        assert_int_equal(n[way], 2 * x->sparse_layers);
        if (!(fabs(bytes[way] - want) <= 1e-9 * want))
            fail_msg("%s: %.0f bytes, counted %.0f", x->name, bytes[way], want);
    }
}

static void check(const mixture *x)
{
    clv_machine *machine;
    must(clv_machine_open(&machine, "h100-nvlink-ib", NULL, &err), &err);
    clv_program *step = plan_of(x, CLV_PLAN_MODE_TRAIN, BATCH, SEQ, machine);
    clv_program *decode = plan_of(x, CLV_PLAN_MODE_DECODE, BATCH, SEQ, machine);
    check_parameters(x, step);
    check_parameters(x, decode);
    check_rows(x, step);
    assert_int_equal(memory_of(decode).cache, BATCH / RANKS * SEQ * x->layers * x->cached * BF16);
    clv_program_free(step);
    clv_program_free(decode);
    clv_machine_free(machine);
}

static void test_mixtral(void **state)
{
    const mixture x = mixtral();
    check(&x);
}

static void test_deepseek(void **state)
{
    const mixture x = deepseek();
    check(&x);
}

/* Ranks of context share latents by positions, of which the last have fewer, and average what they attend to by the
 * sums of their softmax; ranks of heads have the same ones. */
static void test_latents_over_context(void **state)
{
    mixture x = deepseek();
    x.mesh = "context=3,model=4";
    clv_program *decode = plan_of(&x, CLV_PLAN_MODE_DECODE, 2, 3 * SEQ - 1, NULL);
    int averages = 0;
    assert_int_equal(memory_of(decode).cache, 2 * SEQ * x.layers * x.cached * BF16);
    for (int i = 0; i < clv_program_collective_count(decode); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(decode, i, &c, &err), &err);
        averages += c.purpose == CLV_PURPOSE_SPLIT_CACHE;
        assert_true(c.type.shape[1] != SEQ); /* no cache is moved */
    }
    assert_int_equal(averages, 3 * x.layers);
    clv_program_free(decode);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mixtral), cmocka_unit_test(test_deepseek),
                                       cmocka_unit_test(test_latents_over_context)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
