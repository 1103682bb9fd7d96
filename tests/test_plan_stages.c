/* test_plan_stages.c - what a plan says of pipeline stages that run is what their program needs: memory and seconds,
 * of every schedule, of dense models and mixtures, whole and extrapolated from fewer microbatches; and what searches
 * estimate of zero-bubble.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "models/plan/axes/estimate.h"
#include "h100_machine.h"
#include "must.h"
#include "sweep.h"

static clv_error err;

typedef struct plan_case {
    const char *model, *mesh, *rules;
    int64_t layers, rows, microbatches;
    clv_dtype dtype;
    clv_recompute recompute;
    clv_reshard_after_forward reshard;
    bool no_sync;
} plan_case;

/* "llama", "mixtral", "capacity" (of experts), "qwen2_moe" with five experts, "qwen3_moe". */
static const char *write_model(const char *kind, int64_t layers)
{
    static const char *const experts[][2] = {
        {"mixtral", ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2"},
        {"capacity", ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"moe_expert_capacity_factor\": 1.25"},
        {"qwen2_moe", ", \"num_experts\": 5, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 48, "
                      "\"shared_expert_intermediate_size\": 64"},
        {"qwen3_moe", ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 48"}};
    const char *more = "", *type = strcmp(kind, "capacity") == 0 ? "mixtral" : kind;
    const char *path = in_folder("%s-%d.json", kind, (int)layers);
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++)
        more = strcmp(kind, experts[i][0]) == 0 ? experts[i][1] : more;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f,
            "{\"model_type\": \"%s\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": %d, "
            "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 256, "
            "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", "
            "\"norm_topk_prob\": true, \"tie_word_embeddings\": %s%s}",
            type, (int)layers, layers % 2 ? "true" : "false", more);
    fclose(f);
    return path;
}

static clv_plan_options options_of(const plan_case *c, const clv_mesh *mesh)
{
    return (clv_plan_options){
        .size = sizeof(clv_plan_options),
        .model = write_model(c->model, c->layers),
        .mesh = mesh,
        .batch = c->rows * c->microbatches,
        .seq = 32,
        .dtype = c->dtype,
        .accumulate = c->microbatches,
        .no_sync = c->no_sync && c->microbatches > 1,
        .compile = {.machine = h100, .recompute = c->recompute, .reshard_after_forward = c->reshard}};
}

static void program_of(clv_memory *memory, clv_prediction *predicted, clv_plan_options o, const char *preset)
{
    clv_program *program;
    clv_axis_rules rules;
    *memory = (clv_memory){.size = sizeof *memory};
    *predicted = (clv_prediction){.size = sizeof *predicted};
    must(clv_axis_rules_preset(&rules, preset, o.mesh, &err), &err);
    o.rules = &rules;
    must(clv_plan_compile(&program, &o, &err), &err);
    must(clv_program_memory(program, memory, &err), &err);
    must(clv_program_predict(program, h100, predicted, &err), &err);
    clv_program_free(program);
}

/* Memory at most 3 % above and 1 % below, seconds within 1 %; without extrapolation the same. */
static void check(const plan_case *c, clv_plan_schedule schedule, bool extrapolated)
{
    clv_mesh mesh;
    clv_memory memory;
    clv_prediction predicted;
    clv_plan_estimate e = {.size = sizeof e};
    must(clv_mesh_parse(&mesh, c->mesh, &err), &err);
    clv_plan_options o = options_of(c, &mesh);
    const clv_plan_estimate_options how = {.size = sizeof how, .plan = &o, .rules = c->rules, .schedule = schedule};
    must(clv_plan_estimate_step(&e, &how, &err), &err);
    o.compile.schedule = schedule;
    program_of(&memory, &predicted, o, c->rules);
    const double more = (double)e.memory.total / (double)memory.total - 1;
    const double later = e.predicted.seconds / predicted.seconds - 1;
    const bool same = memory.total == e.memory.total && e.predicted.seconds == predicted.seconds;
    if (!e.can_run || e.extrapolated != extrapolated || !(more <= 0.03 && more >= -0.01 && fabs(later) <= 0.01) ||
        (!extrapolated && !same))
        fail_msg("%s, %d layers, %s, %s, %d microbatches, %s: memory %+.2f %%, seconds %+.2f %%", c->model,
                 (int)c->layers, c->mesh, c->rules, (int)c->microbatches, clv_plan_schedule_name(schedule), 100 * more,
                 100 * later);
    double sum = 0;
    for (int i = 0; i < CLV_PART_COUNT; i++)
        sum += e.parts.ops[i];
    for (int i = 0; i < CLV_PURPOSE_COUNT; i++)
        sum += e.parts.communication[i];
    assert_true(fabs(sum + e.bubble - e.predicted.seconds) <= 1e-6 * e.predicted.seconds);
    assert_true(e.bubble > 0 && e.stages > 1 && e.microbatches == c->microbatches);
}

static const clv_plan_schedule schedules[] = {CLV_SCHEDULE_GPIPE, CLV_SCHEDULE_1F1B, CLV_SCHEDULE_ZERO_BUBBLE};

static void test_whole(void **state)
{
    (void)state;
    static const plan_case cases[] = {
        {"llama", "pipe=2,data=2,model=2", "zero1+megatron-sp", 4, 2, 8, CLV_BF16, 0, 0, false},
        {"llama", "pipe=2,data=2,model=2", "fsdp+megatron-sp", 5, 2, 6, CLV_F32, 0, CLV_RESHARD_NONE, false},
        {"llama", "pipe=4,model=2", "megatron", 6, 2, 4, CLV_F32, CLV_RECOMPUTE_SELECTIVE, 0, false},
        {"llama", "pipe=3,data=2", "fsdp", 7, 4, 5, CLV_BF16, CLV_RECOMPUTE_FULL, CLV_RESHARD_ALL, false},
        {"llama", "pipe=4,data=2", "zero1", 4, 2, 1, CLV_F32, 0, 0, false},
        {"llama", "pipe=2,data=4", "dp", 4, 4, 12, CLV_BF16, 0, 0, true},
        {"mixtral", "data=2,pipe=3,expert=2", "zero1", 4, 4, 4, CLV_BF16, 0, 0, false},
        {"capacity", "pipe=2,data=2,expert=2", "fsdp", 4, 4, 6, CLV_F32, 0, 0, true},
        {"capacity", "pipe=2,expert=2,model=2", "zero1+megatron-sp", 5, 2, 4, CLV_BF16, 0, CLV_RESHARD_ALL, false},
        {"qwen2_moe", "pipe=2,expert=2", "zero1", 4, 2, 4, CLV_BF16, CLV_RECOMPUTE_SELECTIVE, 0, false},
        {"qwen3_moe", "pipe=3,expert=2", "fsdp", 6, 2, 5, CLV_F32, CLV_RECOMPUTE_FULL, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
            check(&cases[i], schedules[s], false);
}

/* More layers times microbatches than are compiled. */
static void test_extrapolated(void **state)
{
    (void)state;
    static const plan_case cases[] = {
        {"llama", "pipe=4,data=2", "zero1", 40, 2, 60, CLV_BF16, 0, 0, false},
        {"llama", "pipe=2,model=2", "megatron-sp", 60, 1, 40, CLV_F32, CLV_RECOMPUTE_FULL, 0, false},
        {"capacity", "pipe=3,data=2,expert=2", "zero1", 60, 4, 40, CLV_BF16, 0, 0, true},
        {"llama", "pipe=8,data=2", "fsdp", 80, 8, 24, CLV_BF16, CLV_RECOMPUTE_SELECTIVE, CLV_RESHARD_NONE, false},
    };
    const size_t n = sizeof cases / sizeof *cases;
    if (!sweep_is_whole()) {
        check(&cases[0], CLV_SCHEDULE_1F1B, true);
        check(&cases[1], CLV_SCHEDULE_GPIPE, true);
        check(&cases[3], CLV_SCHEDULE_ZERO_BUBBLE, true);
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
            check(&cases[i], schedules[s], true);
}

/* What a search goes by: operands of gradients of weights that wait are in its estimate, packing is not. Stages wait
 * less for a head as large as this one (clv_search_fits). */
static void test_zero_bubble_estimate(void **state)
{
    (void)state;
    const char *source = getenv("CLV_SOURCE_DIR");
    char config[4096];
    clv_mesh mesh;
    snprintf(config, sizeof config, "%s/data/configs/llama-3-8b.json", source ? source : ".");
    must(clv_mesh_parse(&mesh, "pipe=4,data=2,model=2", &err), &err);
    for (int i = 0; i < 6; i++) {
        clv_plan_options o = {.size = sizeof o,
                              .model = config,
                              .mesh = &mesh,
                              .batch = 16,
                              .seq = 2048,
                              .dtype = CLV_BF16,
                              .accumulate = 8,
                              .no_sync = true,
                              .compile = {.machine = h100,
                                          .recompute = (clv_recompute)(i % 3),
                                          .reshard_after_forward = i < 3 ? CLV_RESHARD_WEIGHTS : CLV_RESHARD_ALL}};
        clv_estimate *estimate;
        clv_plan_estimate e;
        clv_memory memory;
        clv_prediction predicted;
        const clv_plan_estimate_options how = {.plan = &o, .rules = "zero1+megatron-sp"};
        must(clv_estimate_new(&estimate, &how, &err), &err);
        must(clv_estimate_price(&e, estimate, CLV_SCHEDULE_ZERO_BUBBLE, 1, &err), &err);
        clv_estimate_free(estimate);
        o.compile.schedule = CLV_SCHEDULE_ZERO_BUBBLE;
        program_of(&memory, &predicted, o, how.rules);
        const double more = (double)e.memory.total / (double)memory.total - 1;
        if (!(0.87 * (1 + more) <= 1 && more >= -0.08))
            fail_msg("recompute %d, reshard %d: memory %+.2f %%", (int)o.compile.recompute,
                     (int)o.compile.reshard_after_forward, 100 * more);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole), cmocka_unit_test(test_extrapolated),
                                       cmocka_unit_test(test_zero_bubble_estimate)};
    return cmocka_run_group_tests(tests, open_h100, close_h100);
}
