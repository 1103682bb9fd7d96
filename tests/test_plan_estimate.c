/* test_plan_estimate.c - stages, context and experts, planned, not run: formulas of schedules, parameter counts, what
 * is equal to the program of a mesh without these axes, memory of stages, and what is refused.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cleave/plan_estimate.h"
#include "models/plan/axes/context.h"
#include "models/plan/axes/moe_config.h"
#include "models/plan/axes/pipeline.h"
#include "h100_machine.h"
#include "must.h"

static clv_error err;

/* ---- models ---- */

static const char *write_config(const char *name, const char *json)
{
    const char *path = in_folder("%s.json", name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(json, f);
    fclose(f);
    return path;
}

static const char *llama(void)
{
    return write_config("llama", "{\"model_type\": \"llama\", \"hidden_size\": 512, \"intermediate_size\": 1024, "
                                 "\"num_hidden_layers\": 8, \"num_attention_heads\": 8, \"num_key_value_heads\": 8, "
                                 "\"vocab_size\": 1024, \"max_position_embeddings\": 4096}");
}

static const char mixtral_8x7b[] =
    "{\"model_type\": \"mixtral\", \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"num_local_experts\": 8, \"num_experts_per_tok\": 2, "
    "\"vocab_size\": 32000, \"max_position_embeddings\": 32768}";

#define DEEPSEEK_V3                                                                                                    \
    "{\"model_type\": \"deepseek_v3\", \"hidden_size\": 7168, \"intermediate_size\": 18432, "                          \
    "\"moe_intermediate_size\": 2048, \"num_hidden_layers\": 61, \"num_attention_heads\": 128, "                       \
    "\"num_key_value_heads\": 128, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, "          \
    "\"qk_rope_head_dim\": 64, \"v_head_dim\": 128, \"n_routed_experts\": 256, \"n_shared_experts\": 1, "              \
    "\"num_experts_per_tok\": 8, \"first_k_dense_replace\": 3, \"vocab_size\": 129280, "                               \
    "\"max_position_embeddings\": 4096"

/* ---- schedules ---- */

static clv_pipeline pipeline_of(clv_plan_schedule schedule, int64_t stages, int64_t v, int64_t m, int64_t layers)
{
    return (clv_pipeline){schedule, stages, v, m, layers};
}

/* Equal stages of 1 s forward, 2 s backward, half of it for weights. */
static double bubble_of(clv_plan_schedule schedule, int64_t stages, int64_t v, int64_t m)
{
    clv_stage_time time[64];
    const clv_pipeline p = pipeline_of(schedule, stages, v, m, stages * v);
    for (int64_t s = 0; s < stages; s++)
        time[s] = (clv_stage_time){1, 2, 1};
    return clv_pipeline_bubble(&p, time);
}

static void test_bubble(void **state)
{
    (void)state;
    assert_float_equal(bubble_of(CLV_SCHEDULE_1F1B, 4, 1, 16), 3 * 3, 1e-12); /* (p - 1) (f + b) */
    assert_float_equal(bubble_of(CLV_SCHEDULE_GPIPE, 4, 1, 16), 3 * 3, 1e-12);
    assert_float_equal(bubble_of(CLV_SCHEDULE_INTERLEAVED, 4, 3, 16), 3, 1e-12); /* / v */
    assert_float_equal(bubble_of(CLV_SCHEDULE_ZERO_BUBBLE, 4, 1, 16), 3, 1e-12); /* (p - 1) (f + b - 2 w) */
    assert_float_equal(bubble_of(CLV_SCHEDULE_1F1B, 1, 1, 16), 0, 0);
    /* two microbatches on four stages with two virtual ones each: one round waits for two more */
    assert_float_equal(bubble_of(CLV_SCHEDULE_INTERLEAVED, 4, 2, 2), 4.5 + 3, 1e-12);
}

static void test_in_flight(void **state)
{
    (void)state;
    const clv_pipeline gpipe = pipeline_of(CLV_SCHEDULE_GPIPE, 4, 1, 16, 8);
    const clv_pipeline plain = pipeline_of(CLV_SCHEDULE_1F1B, 4, 1, 16, 8);
    const clv_pipeline few = pipeline_of(CLV_SCHEDULE_1F1B, 4, 1, 2, 8);
    const clv_pipeline interleaved = pipeline_of(CLV_SCHEDULE_INTERLEAVED, 4, 2, 16, 8);
    assert_float_equal(clv_pipeline_in_flight(&gpipe, 3), 16, 0);
    assert_float_equal(clv_pipeline_in_flight(&plain, 0), 4, 0);
    assert_float_equal(clv_pipeline_in_flight(&plain, 3), 1, 0);
    assert_float_equal(clv_pipeline_in_flight(&few, 0), 2, 0);
    /* Megatron's warm-up of the first rank: 2 (p - 1) + (v - 1) p virtual stages, and one */
    assert_float_equal(clv_pipeline_in_flight(&interleaved, 0), (2 * 3 + 4 + 1) / 2.0, 0);
    /* 11 microbatches are groups of 5 and 6, 2 are one of 2 */
    const clv_pipeline eleven = pipeline_of(CLV_SCHEDULE_INTERLEAVED, 4, 2, 11, 8);
    const clv_pipeline two = pipeline_of(CLV_SCHEDULE_INTERLEAVED, 4, 2, 2, 8);
    assert_float_equal(clv_pipeline_in_flight(&eleven, 0), (2 * 3 + 6 + 1) / 2.0, 0);
    assert_float_equal(clv_pipeline_in_flight(&two, 3), (2 + 1) / 2.0, 0);
}

/* Every layer is on one stage; the first and the last virtual stage have the fewest. */
static void test_layers(void **state)
{
    (void)state;
    for (int64_t stages = 1; stages <= 8; stages++)
        for (int64_t v = 1; v <= 4; v++)
            for (int64_t layers = stages * v; layers <= 40; layers++) {
                const clv_pipeline p = pipeline_of(CLV_SCHEDULE_INTERLEAVED, stages, v, 8, layers);
                int64_t sum = 0;
                for (int64_t s = 0; s < stages; s++)
                    sum += clv_pipeline_layers(&p, s);
                assert_int_equal(sum, layers);
            }
    const clv_pipeline llama_405b = pipeline_of(CLV_SCHEDULE_1F1B, 16, 1, 8, 126);
    assert_int_equal(clv_pipeline_layers(&llama_405b, 0), 7);
    assert_int_equal(clv_pipeline_layers(&llama_405b, 1), 8);
    assert_int_equal(clv_pipeline_layers(&llama_405b, 15), 7);
}

/* ---- context ---- */

/* A ring is hidden by attention that is long enough; without attention the cheaper one of the others is taken. */
static void test_context_exchange(void **state)
{
    (void)state;
    clv_context_layer layer = {.ranks = 4,
                               .tokens = 1000,
                               .heads = 8,
                               .kv_heads = 2,
                               .head_dim = 100,
                               .forward = 1,
                               .backward = 2,
                               .link = {0, 1e9},
                               .memory_bytes_per_s = 1e15,
                               .element_bytes = 2};
    const double block = 1000.0 * 2 * 2 * 100 * 2 / 1e9;
    clv_context_cost cost = clv_context_cheapest(&layer);
    assert_int_equal(cost.exchange, CLV_CONTEXT_RING);
    assert_float_equal(cost.exposed, 0, 0);
    assert_float_equal(cost.hidden, 9 * block, 1e-12); /* three blocks forward, twice three backward */
    const double merges = cost.ops; /* software with a ring takes it, and longer for the three blocks of others */
    layer.ring_efficiency = 0.5;
    assert_float_equal(clv_context_cheapest(&layer).ops, merges + 3 * 3.0 / 4, 1e-12);
    layer.forward = layer.backward = 0;
    assert_int_equal(clv_context_cheapest(&layer).exchange, CLV_CONTEXT_RING);
    layer.ring_efficiency = 0;
    cost = clv_context_cheapest(&layer);
    assert_int_equal(cost.exchange, CLV_CONTEXT_ALL_GATHER);
    assert_float_equal(cost.exposed, 9 * block, 1e-12);
    layer.kv_heads = 4; /* heads can be split over the ranks: queries, keys, values and results move once */
    cost = clv_context_cheapest(&layer);
    assert_int_equal(cost.exchange, CLV_CONTEXT_ALL_TO_ALL);
    assert_float_equal(cost.exposed, 2 * (1000.0 * 2 * (8 + 4) * 100 * 2 * 0.75 / 1e9), 1e-12);
    layer.ranks = 1;
    assert_int_equal(clv_context_cheapest(&layer).exchange, CLV_CONTEXT_NONE);
}

/* ---- parameters ---- */

static void test_parameters(void **state)
{
    (void)state;
    clv_moe_config c;
    must(clv_moe_config_read(&c, write_config("mixtral", mixtral_8x7b), &err), &err);
    /* a layer: q and o 2 x 4096^2, k and v 2 x 4096 x 1024, 8 experts of 3 x 4096 x 14336, router 4096 x 8, norms */
    assert_int_equal(clv_moe_parameters(&c),
                     2LL * 32000 * 4096 + 4096 +
                         32 * (2LL * 4096 * 4096 + 2LL * 4096 * 1024 + 8 * 3LL * 4096 * 14336 + 4096 * 8 + 2 * 4096));
    assert_int_equal(clv_moe_parameters(&c), 46702792704); /* as Mixtral-8x7B's checkpoint */
    assert_int_equal(clv_moe_active_parameters(&c), 12879925248);

    must(clv_moe_config_read(&c, write_config("deepseek", DEEPSEEK_V3 "}"), &err), &err);
    const int64_t attention =
        7168 * 1536 + 1536 + 1536LL * 128 * 192 + 7168 * 576 + 512 + 512LL * 128 * 256 + 128LL * 128 * 7168 + 2 * 7168;
    const int64_t expert = 3LL * 7168 * 2048;
    assert_int_equal(clv_moe_parameters(&c), 2LL * 129280 * 7168 + 7168 + 61 * attention + 3 * 3LL * 7168 * 18432 +
                                                 58 * (257 * expert + 256 * 7168 + 256));
    assert_int_equal(clv_moe_parameters(&c), 671026419200); /* as DeepSeek-V3's checkpoint without the MTP layer */

    must(clv_moe_config_read(&c, llama(), &err), &err);
    assert_null(c.family);
}

/* ---- estimates ---- */

static clv_plan_options plan_of(const char *model, const clv_mesh *mesh)
{
    return (clv_plan_options){.size = sizeof(clv_plan_options),
                              .model = model,
                              .mesh = mesh,
                              .batch = 32,
                              .seq = 256,
                              .dtype = CLV_BF16,
                              .accumulate = 8,
                              .compile.machine = h100};
}

static clv_status estimate_of(clv_plan_estimate *out, const char *model, const char *mesh, const char *rules,
                              clv_plan_schedule schedule, int64_t v)
{
    clv_mesh m;
    must(clv_mesh_parse(&m, mesh, &err), &err);
    const clv_plan_options plan = plan_of(model, &m);
    const clv_plan_estimate_options how = {
        .size = sizeof how, .plan = &plan, .rules = rules, .schedule = schedule, .virtual_stages = v};
    *out = (clv_plan_estimate){.size = sizeof *out};
    return clv_plan_estimate_step(out, &how, &err);
}

/* Axes of one rank change nothing: figures are those of the program. */
static void test_single_axes(void **state)
{
    (void)state;
    clv_plan_estimate e;
    clv_program *program;
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_memory memory = {.size = sizeof memory};
    clv_prediction predicted = {.size = sizeof predicted};
    must(clv_mesh_parse(&mesh, "data=4,model=2", &err), &err);
    must(clv_axis_rules_preset(&rules, "fsdp+megatron-sp", &mesh, &err), &err);
    clv_plan_options plan = plan_of(llama(), &mesh);
    plan.rules = &rules;
    must(clv_plan_compile(&program, &plan, &err), &err);
    must(clv_program_memory_on(program, h100, &memory, &err), &err);
    must(clv_program_predict(program, h100, &predicted, &err), &err);
    clv_program_free(program);
    const char *meshes[] = {"data=4,model=2", "pipe=1,data=4,model=2", "pipe=1,data=4,context=1,expert=1,model=2"};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        must(estimate_of(&e, llama(), meshes[i], "fsdp+megatron-sp", CLV_SCHEDULE_DEFAULT, 0), &err);
        assert_true(e.can_run);
        assert_true(e.predicted.seconds == predicted.seconds);
        assert_int_equal(e.memory.total, memory.total);
    }
}

/* Affine in layers and microbatches: without stages to wait for, the sum is the program's. */
static void test_sum_is_whole(void **state)
{
    (void)state;
    clv_plan_estimate one, two;
    must(estimate_of(&one, llama(), "data=4,model=2", "zero1+megatron-sp", CLV_SCHEDULE_DEFAULT, 0), &err);
    must(estimate_of(&two, llama(), "pipe=2,data=4,model=2", "zero1+megatron-sp", CLV_SCHEDULE_DEFAULT, 5), &err);
    assert_false(two.can_run);
    assert_int_equal(two.layers, 4);
    assert_float_equal(two.predicted.model_flops / one.predicted.model_flops, 1, 1e-6);
    /* half the layers, and one table of two */
    assert_float_equal((double)two.memory.parameters / (double)one.memory.parameters, 0.5, 0.01);
    assert_float_equal((double)two.memory.optimizer / (double)one.memory.optimizer, 0.5, 0.01);
    assert_true(two.bubble > 0 && two.bubble < two.predicted.seconds / 8);
    double sum = two.bubble + two.send;
    for (int i = 0; i < CLV_PART_COUNT; i++)
        sum += two.parts.ops[i];
    for (int i = 0; i < CLV_PURPOSE_COUNT; i++)
        sum += two.parts.communication[i];
    assert_float_equal(sum, two.predicted.seconds, 1e-9 * sum);
}

static void test_schedules(void **state)
{
    (void)state;
    clv_plan_estimate plain, gpipe, interleaved, zero;
    const char *mesh = "pipe=4,data=4", *model = llama();
    must(estimate_of(&plain, model, mesh, "zero1", CLV_SCHEDULE_1F1B, 0), &err);
    must(estimate_of(&gpipe, model, mesh, "zero1", CLV_SCHEDULE_GPIPE, 0), &err);
    must(estimate_of(&interleaved, model, mesh, "zero1", CLV_SCHEDULE_DEFAULT, 2), &err);
    must(estimate_of(&zero, model, mesh, "zero1", CLV_SCHEDULE_ZERO_BUBBLE, 0), &err);
    assert_int_equal(interleaved.schedule, CLV_SCHEDULE_INTERLEAVED);
    assert_float_equal(gpipe.bubble, plain.bubble, 1e-12);
    assert_true(interleaved.bubble < 0.8 * plain.bubble); /* more sends: half would be without them */
    assert_true(zero.bubble < plain.bubble);
    assert_true(gpipe.memory.total > plain.memory.total);
    assert_true(interleaved.memory.activations > plain.memory.activations);
    assert_float_equal(plain.in_flight, 4, 0);
    assert_float_equal(gpipe.in_flight, 8, 0);
}

/* The fastest one that fits, of whole programs and of estimates, by its name. */
static void test_auto(void **state)
{
    (void)state;
    static const int64_t virtual_stages[] = {0, 5}; /* 10 runs of 8 layers do not run */
    for (size_t i = 0; i < 2; i++) {
        clv_plan_estimate best, zero;
        must(estimate_of(&best, llama(), "pipe=2,data=4", "zero1", CLV_SCHEDULE_AUTO, virtual_stages[i]), &err);
        must(estimate_of(&zero, llama(), "pipe=2,data=4", "zero1", CLV_SCHEDULE_ZERO_BUBBLE, virtual_stages[i]), &err);
        assert_int_equal(best.compiled, i == 0);
        assert_int_equal(best.schedule, CLV_SCHEDULE_ZERO_BUBBLE);
        assert_true(best.predicted.seconds == zero.predicted.seconds && best.in_flight == zero.in_flight);
    }
}

/* A long interleaved step, which runs, reduces gradients in each microbatch unless it is asked not to. */
static void test_no_sync(void **state)
{
    (void)state;
    enum { MICROBATCHES = 136 };
    clv_plan_estimate each = {.size = sizeof each}, once = {.size = sizeof once};
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "pipe=2,data=2", &err), &err);
    clv_plan_options plan = plan_of(llama(), &mesh);
    plan.accumulate = MICROBATCHES;
    plan.batch = 2 * MICROBATCHES;
    const clv_plan_estimate_options how = {.size = sizeof how, .plan = &plan, .rules = "zero1", .virtual_stages = 2};
    must(clv_plan_estimate_step(&each, &how, &err), &err);
    plan.no_sync = true;
    must(clv_plan_estimate_step(&once, &how, &err), &err);
    assert_true(each.can_run && !each.compiled);
    assert_true(each.parts.bytes[CLV_PURPOSE_GRADIENT_REDUCTION] >
                MICROBATCHES / 3 * once.parts.bytes[CLV_PURPOSE_GRADIENT_REDUCTION]);
}

/* Ranks that share a sequence compute what one computes. */
static void test_context(void **state)
{
    (void)state;
    clv_plan_estimate whole, parts;
    must(estimate_of(&whole, llama(), "pipe=2,data=4", "fsdp", CLV_SCHEDULE_DEFAULT, 5), &err);
    must(estimate_of(&parts, llama(), "pipe=2,data=4,context=2", "fsdp", CLV_SCHEDULE_DEFAULT, 5), &err);
    assert_float_equal(parts.predicted.model_flops / whole.predicted.model_flops, 1, 1e-6);
    assert_true(parts.exchange != CLV_CONTEXT_NONE && whole.exchange == CLV_CONTEXT_NONE);
    assert_float_equal(parts.predicted.flops / whole.predicted.flops, 0.5, 0.01);
    assert_float_equal((double)parts.memory.optimizer / (double)whole.memory.optimizer, 0.5, 0.01);
}

/* Buffers of eight microbatches, of 256 x 512 elements in bf16, and logits (32 times as wide) twice; gathered weights
 * in fp8 are half. */
static void test_kept_messages(void **state)
{
    (void)state;
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "pipe=2,data=4", &err), &err);
    const char *model =
        write_config("wide", "{\"model_type\": \"llama\", \"hidden_size\": 512, \"intermediate_size\": 1024, "
                             "\"num_hidden_layers\": 8, \"num_attention_heads\": 8, \"num_key_value_heads\": 8, "
                             "\"vocab_size\": 16384, \"max_position_embeddings\": 4096}");
    clv_plan_options plan = plan_of(model, &mesh);
    plan.compile.reshard_after_forward = CLV_RESHARD_NONE;
    const clv_plan_estimate_options how = {.size = sizeof how, .plan = &plan, .rules = "fsdp", .virtual_stages = 5};
    static const char *const keys[] = {"", ", \"stage_messages\": \"kept\"", ", \"gathered_weight_bytes\": 1"};
    clv_plan_estimate e[3];
    for (int i = 0; i < 3; i++) {
        char profile[512];
        clv_machine *machine;
        snprintf(profile, sizeof profile,
                 "{\"name\": \"m\", \"ranks_per_host\": 8, \"hosts\": 1, \"memory_bytes\": 8e10, "
                 "\"memory_bytes_per_s\": 1e12, \"flops_per_s\": {\"f32\": 1e13}, "
                 "\"host\": {\"alpha_s\": 1e-6, \"bytes_per_s\": 1e11}%s}",
                 keys[i]);
        must(clv_machine_parse(&machine, profile, strlen(profile), "profile", &err), &err);
        plan.compile.machine = machine;
        e[i] = (clv_plan_estimate){.size = sizeof e[i]};
        must(clv_plan_estimate_step(&e[i], &how, &err), &err);
        clv_machine_free(machine);
    }
    const double message = 256 * 512 * 2, messages = 8 - e[1].in_flight + 2 * 8 * 32;
    assert_int_equal(e[0].memory.software, 0);
    assert_int_equal(e[1].memory_stage, 1);
    assert_float_equal((double)e[1].memory.software, messages * message, 0);
    const double layer = 4 * 512 * 512 + 3 * 512 * 1024 + 4 * 2 * 512; /* norms are whole on four ranks */
    assert_float_equal((double)(e[0].memory.gathered - e[2].memory.gathered), 4 * layer, 0);
}

/* Offloaded layers hold no activations but those of two buffers, and their copies take what ops do not hide. */
static void test_offload(void **state)
{
    (void)state;
    clv_plan_estimate held, away, slow;
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "data=2", &err), &err);
    clv_machine *machine[2];
    static const char *const rate[] = {"1e15", "1e6"};
    for (int i = 0; i < 2; i++) {
        char profile[512];
        snprintf(profile, sizeof profile,
                 "{\"name\": \"m\", \"ranks_per_host\": 8, \"hosts\": 1, \"memory_bytes\": 8e10, "
                 "\"memory_bytes_per_s\": 1e12, \"flops_per_s\": {\"f32\": 1e13, \"bf16\": 1e14}, "
                 "\"offload_bytes_per_s\": %s, \"host\": {\"alpha_s\": 1e-6, \"bytes_per_s\": 1e11}}",
                 rate[i]);
        must(clv_machine_parse(&machine[i], profile, strlen(profile), "profile", &err), &err);
    }
    clv_plan_options plan = {
        .size = sizeof plan, .model = llama(), .mesh = &mesh, .batch = 4, .seq = 128, .dtype = CLV_BF16};
    clv_plan_estimate_options how = {.size = sizeof how, .plan = &plan, .rules = "fsdp"};
    clv_plan_estimate *const out[] = {&held, &away, &slow};
    for (int i = 0; i < 3; i++) {
        *out[i] = (clv_plan_estimate){.size = sizeof held};
        plan.compile.machine = machine[i == 2];
        how.offload_layers = i > 0 ? 6 : 0;
        must(clv_plan_estimate_step(out[i], &how, &err), &err);
    }
    assert_float_equal((double)away.memory.activations / (double)held.memory.activations, 4 / 8.0, 0.1);
    assert_true(away.offload == 0);
    const double copied = 2 * (double)away.memory.activations / 4 * 6 / 1e6; /* there and back, a quarter a layer */
    assert_float_equal(slow.offload / copied, 1, 0.01);
    assert_true(fabs(slow.predicted.seconds - slow.offload - away.predicted.seconds) < 1e-9);
    how.offload_layers = 100; /* all */
    must(clv_plan_estimate_step(&away, &how, &err), &err);
    plan.compile.machine = NULL;
    assert_int_equal(clv_plan_estimate_step(&away, &how, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "offload_bytes_per_s"));
    plan.compile.machine = machine[0];
    err = (clv_error){0};
    must(clv_mesh_parse(&mesh, "pipe=2,data=2", &err), &err);
    assert_int_equal(clv_plan_estimate_step(&away, &how, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "without stages"));
    clv_machine_free(machine[0]);
    clv_machine_free(machine[1]);
}

static const char gpt_oss[] =
    "{\"model_type\": \"gpt_oss\", \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128, \"num_local_experts\": 8, "
    "\"num_experts_per_tok\": 2, \"vocab_size\": 32000, \"max_position_embeddings\": 32768}";

/* A copy to each expert is more than a token to each rank with experts of it. */
static void test_dispatch(void **state)
{
    (void)state;
    clv_plan_estimate tokens, copies;
    clv_mesh mesh;
    clv_machine *machine;
    static const char *const how_many[] = {"tokens", "copies"};
    clv_plan_estimate *const out[] = {&tokens, &copies};
    must(clv_mesh_parse(&mesh, "expert=4", &err), &err);
    clv_plan_options plan = {.size = sizeof plan,
                             .model = write_config("gpt_oss", gpt_oss),
                             .mesh = &mesh,
                             .batch = 4,
                             .seq = 128,
                             .dtype = CLV_BF16};
    const clv_plan_estimate_options how = {.size = sizeof how, .plan = &plan, .rules = "zero1"};
    for (int i = 0; i < 2; i++) {
        char profile[512];
        snprintf(profile, sizeof profile,
                 "{\"name\": \"m\", \"ranks_per_host\": 8, \"hosts\": 1, \"memory_bytes\": 8e10, "
                 "\"memory_bytes_per_s\": 1e12, \"flops_per_s\": {\"f32\": 1e13, \"bf16\": 1e14}, "
                 "\"dispatch\": \"%s\", \"host\": {\"alpha_s\": 1e-9, \"bytes_per_s\": 1e9}}",
                 how_many[i]);
        must(clv_machine_parse(&machine, profile, strlen(profile), "profile", &err), &err);
        plan.compile.machine = machine;
        *out[i] = (clv_plan_estimate){.size = sizeof tokens};
        must(clv_plan_estimate_step(out[i], &how, &err), &err);
        clv_machine_free(machine);
    }
    /* of four ranks, two experts of eight: 4 (1 - (3/4)^2) places of a token, 2 copies */
    assert_float_equal(copies.expert / tokens.expert, 2 / 1.75, 1e-3);
    /* copies are sorted by expert, and back, in both passes: 256 rows of 4096 in bf16 are read and written */
    const double sorts = 32 * 4 * (2 * 256 * 4096 * 2.0) / 1e12;
    assert_float_equal(copies.parts.ops[CLV_PART_FEED_FORWARD] - tokens.parts.ops[CLV_PART_FEED_FORWARD], sorts,
                       1e-4 * sorts);
}

/* Biases and clamps of experts that are kernels of their own move bytes of each row, at a rate of their own; some again
 * with activations. Attention in a CUDA graph has starts of its own. */
static void test_expert_bias(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"gpt_oss\", \"hidden_size\": 256, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
        "\"num_key_value_heads\": 2, \"head_dim\": 64, \"intermediate_size\": 128, \"num_local_experts\": 8, "
        "\"num_experts_per_tok\": 2, \"vocab_size\": 512, \"max_position_embeddings\": 128}";
    static const struct variant {
        const char *forward, *more;
    } variants[] = {{"0", ""},
                    {"28", ""},
                    {"36", ""},
                    {"36", ", \"expert_rows_bytes_per_s\": 5e8"},
                    {"36", ", \"instruction_s\": 0.5"},
                    {"36", ", \"instruction_s\": 0.5, \"attention_start_s\": 0.125"}};
    enum { VARIANTS = sizeof variants / sizeof *variants };
    double seconds[VARIANTS][2], attention[VARIANTS];
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "data=2", &err), &err);
    for (int i = 0; i < VARIANTS; i++) {
        char profile[512];
        clv_machine *machine;
        snprintf(
            profile, sizeof profile,
            "{\"name\": \"m\", \"ranks_per_host\": 8, \"hosts\": 1, \"memory_bytes\": 8e10, "
            "\"memory_bytes_per_s\": 1e9, \"flops_per_s\": {\"f32\": 1e13}, \"host\": {\"alpha_s\": 1e-9, "
            "\"bytes_per_s\": 1e9}, \"expert_bias_bytes\": {\"forward\": %s, \"recomputed\": 16, \"backward\": 0}%s}",
            variants[i].forward, variants[i].more);
        must(clv_machine_parse(&machine, profile, strlen(profile), "profile", &err), &err);
        for (int again = 0; again < 2; again++) {
            clv_plan_estimate e = {.size = sizeof e};
            clv_plan_options plan = {
                .size = sizeof plan,
                .model = write_config("gpt_oss", config),
                .mesh = &mesh,
                .batch = 4,
                .seq = 64,
                .dtype = CLV_BF16,
                .compile = {.machine = machine, .recompute = again ? CLV_RECOMPUTE_FULL : CLV_RECOMPUTE_NONE}};
            const clv_plan_estimate_options how = {.size = sizeof how, .plan = &plan, .rules = "dp"};
            must(clv_plan_estimate_step(&e, &how, &err), &err);
            seconds[i][again] = e.parts.ops[CLV_PART_FEED_FORWARD];
            attention[i] = e.parts.ops[CLV_PART_ATTENTION];
        }
        clv_machine_free(machine);
    }
    const double elems = 4 * (2 * 64 * 2) * 128.0; /* four layers, two sequences a rank, two experts a token */
    for (int again = 0; again < 2; again++)
        assert_float_equal(seconds[2][again] - seconds[1][again], 8 * elems / 1e9, 1e-4 * 8 * elems / 1e9);
    assert_true(seconds[0][1] - seconds[0][0] > 16 * elems / 1e9);
    assert_float_equal(seconds[3][0] - seconds[2][0], 36 * elems / 1e9, 1e-4 * 36 * elems / 1e9);
    const double starts = attention[4] - attention[2], graphed = attention[5] - attention[2];
    assert_true(starts > 0.5);
    assert_float_equal(graphed, 0.25 * starts, 1e-6 * starts);
    assert_float_equal(seconds[5][0], seconds[4][0], 1e-6 * seconds[4][0]);
}

/* Experts on eight ranks: an eighth of them each; their all-to-alls take time. */
static void test_experts(void **state)
{
    (void)state;
    clv_plan_estimate all, spread, uneven;
    const char *model = write_config("mixtral", mixtral_8x7b);
    clv_machine *ours = h100;
    must(clv_machine_open(&h100, "h100-nvlink-ib", "megatron-moe-bf16", &err), &err);
    must(estimate_of(&all, model, "data=4", "zero1", CLV_SCHEDULE_DEFAULT, 0), &err);
    must(estimate_of(&spread, model, "expert=4", "zero1", CLV_SCHEDULE_DEFAULT, 0), &err);
    must(estimate_of(&uneven, model, "expert=3", "zero1", CLV_SCHEDULE_DEFAULT, 0), &err);
    clv_machine_free(h100);
    h100 = ours;
    assert_false(all.can_run);
    assert_int_equal(all.model.parameters, 46702792704);
    assert_int_equal(all.memory.parameters, 2 * 46702792704);
    const int64_t experts = 32 * 8 * 3LL * 4096 * 14336;
    assert_int_equal(spread.memory.parameters, 2 * (46702792704 - experts * 3 / 4));
    assert_float_equal(spread.predicted.model_flops / all.predicted.model_flops, 1, 1e-9);
    assert_float_equal((double)spread.memory.optimizer / (double)all.memory.optimizer, 1, 1e-9);
    assert_true(all.expert == 0);
    assert_int_equal(uneven.memory.parameters, 2 * (46702792704 - experts * 5 / 8)); /* three of eight */
}

/* ---- what is refused ---- */

static void expect_refused(const char *part, clv_status code, const char *model, const char *mesh,
                           clv_plan_schedule schedule, int64_t v)
{
    clv_plan_estimate e;
    err = (clv_error){0};
    assert_int_equal(estimate_of(&e, model, mesh, NULL, schedule, v), code);
    if (!strstr(err.message, part))
        fail_msg("'%s' is not in '%s'", part, err.message);
    assert_null(strchr(err.message, '\n'));
}

static void test_refused(void **state)
{
    (void)state;
    const char *model = llama(), *moe = write_config("mixtral", mixtral_8x7b);
    expect_refused("16 stages for 8 layers", CLV_EINVAL, model, "pipe=16", CLV_SCHEDULE_DEFAULT, 0);
    expect_refused("virtual stages; valid: with an axis pipe", CLV_EINVAL, model, "data=2,context=2",
                   CLV_SCHEDULE_DEFAULT, 2);
    expect_refused("schedule gpipe; valid: with an axis pipe", CLV_EINVAL, model, "context=2", CLV_SCHEDULE_GPIPE, 0);
    expect_refused("this model has none", CLV_EINVAL, model, "expert=2", CLV_SCHEDULE_DEFAULT, 0);
    expect_refused("context 3 does not divide", CLV_EINVAL, model, "pipe=2,context=3", CLV_SCHEDULE_DEFAULT, 5);
    expect_refused("context 512 does not divide", CLV_EINVAL, model, "pipe=2,context=512", CLV_SCHEDULE_DEFAULT, 5);
    expect_refused("valid: pipe first", CLV_EAXIS, model, "data=2,pipe=2", CLV_SCHEDULE_DEFAULT, 5);
    expect_refused("no axis 'X'", CLV_EAXIS, model, "pipe=2,X=2", CLV_SCHEDULE_DEFAULT, 5);
    expect_refused("are neighbours", CLV_EAXIS, model, "pipe=2,data=2,model=2,context=2", CLV_SCHEDULE_DEFAULT, 5);
    expect_refused("for 8 data ranks", CLV_EINVAL, model, "pipe=2,data=8", CLV_SCHEDULE_DEFAULT, 5);
    expect_refused("one run of layers each", CLV_EINVAL, model, "pipe=2", CLV_SCHEDULE_INTERLEAVED, 0);
    assert_string_equal(clv_plan_schedule_name((clv_plan_schedule)99), "unknown");
    assert_string_equal(clv_context_exchange_name(CLV_CONTEXT_ALL_TO_ALL), "all-to-all");
    clv_mesh mesh;
    must(clv_mesh_parse(&mesh, "pipe=2,data=2", &err), &err);
    assert_true(clv_plan_needs_estimate(&mesh, NULL, false));
    assert_true(clv_plan_needs_estimate(NULL, moe, true) && !clv_plan_needs_estimate(NULL, moe, false));
    must(clv_mesh_parse(&mesh, "context=2,data=2", &err), &err);
    assert_true(clv_plan_needs_estimate(&mesh, NULL, true) && !clv_plan_needs_estimate(&mesh, NULL, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bubble),           cmocka_unit_test(test_in_flight),
                                       cmocka_unit_test(test_layers),           cmocka_unit_test(test_parameters),
                                       cmocka_unit_test(test_context_exchange), cmocka_unit_test(test_single_axes),
                                       cmocka_unit_test(test_sum_is_whole),     cmocka_unit_test(test_schedules),
                                       cmocka_unit_test(test_context),          cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_kept_messages),    cmocka_unit_test(test_offload),
                                       cmocka_unit_test(test_dispatch),         cmocka_unit_test(test_expert_bias),
                                       cmocka_unit_test(test_refused),          cmocka_unit_test(test_auto),
                                       cmocka_unit_test(test_no_sync)};
    return cmocka_run_group_tests(tests, open_h100, close_h100);
}
