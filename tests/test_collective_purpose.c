/* test_collective_purpose.c - what the collectives of each preset are for, and where the predicted time goes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cleave/plan.h"
#include "must.h"

static clv_error err;

enum { LAYERS = 32 };

/* Llama-3-8B: every purpose but a few of one collective appears once or more a layer. */
static clv_program *plan(const char *mesh_text, const char *rules_name, clv_plan_options how)
{
    static char path[4096];
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *program;
    snprintf(path, sizeof path, "%s/%s", getenv("CLV_SOURCE_DIR"),
             how.model ? how.model : "data/configs/llama-3-8b.json");
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, rules_name, &mesh, &err), &err);
    how.size = sizeof how;
    how.model = path;
    how.mesh = &mesh;
    how.rules = &rules;
    how.dtype = CLV_BF16;
    how.batch = how.batch ? how.batch : 16;
    how.seq = how.seq ? how.seq : 2048;
    must(clv_plan_compile(&program, &how, &err), &err);
    return program;
}

static clv_collective collective(const clv_program *program, int i)
{
    clv_collective c = {.size = sizeof c};
    must(clv_program_collective(program, i, &c, &err), &err);
    return c;
}

static bool moves(const clv_collective *c)
{
    return strcmp(c->kind, "slice") != 0 && strcmp(c->kind, "mask") != 0;
}

/* ---- presets ---- */

static int64_t count(const clv_program *program, clv_collective_purpose purpose, const char *pass)
{
    int64_t n = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = collective(program, i);
        n += moves(&c) && c.purpose == purpose && strcmp(c.pass, pass) == 0;
    }
    return n;
}

static const clv_plan_options training = {0}, again = {.compile.reshard_after_forward = CLV_RESHARD_ALL},
                              kept = {.compile.reshard_after_forward = CLV_RESHARD_NONE},
                              full = {.compile.recompute = CLV_RECOMPUTE_FULL}, accumulated = {.accumulate = 4},
                              compressed = {.compile.comm_dtype = CLV_COMM_Q8, .f32_gradients = true},
                              decoding = {.mode = CLV_PLAN_MODE_DECODE};

/* Collectives a layer, and beside the layers, of a purpose in a pass. */
static void test_presets(void **state)
{
    static const struct {
        const char *mesh, *rules;
        const clv_plan_options *how;
        clv_collective_purpose purpose;
        const char *pass;
        int a_layer, beside;
    } cases[] = {
        /* weights: q, k and v, o, gate and up, down; norms are whole. The embedding's gradient comes out reduced, where
           its operands were gathered, and may have to move */
        {"data=8", "dp", &training, CLV_PURPOSE_WEIGHT_GATHER, "forward", 0, 0},
        {"data=8", "dp", &training, CLV_PURPOSE_GRADIENT_REDUCTION, "backward", 7, 2},
        {"data=8", "fsdp", &training, CLV_PURPOSE_WEIGHT_GATHER, "forward", 5, 1},
        {"data=8", "fsdp", &kept, CLV_PURPOSE_WEIGHT_GATHER, "backward", 0, 0},
        {"data=8", "fsdp", &training, CLV_PURPOSE_WEIGHT_GATHER, "backward", 5, 1},
        {"data=8", "fsdp", &training, CLV_PURPOSE_GRADIENT_REDUCTION, "backward", 7, 2},
        {"data=8", "zero1", &training, CLV_PURPOSE_WEIGHT_GATHER, "update", 7, 3},
        {"data=8", "zero1", &training, CLV_PURPOSE_GRADIENT_REDUCTION, "backward", 7, 3},
        /* f and g of Megatron-LM; the head's input and the embedding's result are reduced over the vocabulary */
        {"model=8", "megatron", &training, CLV_PURPOSE_TP_REDUCTION, "forward", 2, 0},
        {"model=8", "megatron", &training, CLV_PURPOSE_TP_REDUCTION, "backward", 2, 0},
        {"model=8", "megatron", &training, CLV_PURPOSE_GRADIENT_REDUCTION, "backward", 0, 1},
        {"model=8", "megatron", &training, CLV_PURPOSE_VOCABULARY, "forward", 0, 3},
        {"model=8", "megatron", &decoding, CLV_PURPOSE_TP_REDUCTION, "forward", 2, 0},
        /* two gathers and two scatters; the embedding scatters, the head gathers; norms' gradients are sums */
        {"model=8", "megatron-sp", &training, CLV_PURPOSE_SEQUENCE_PARALLEL, "forward", 4, 2},
        {"model=8", "megatron-sp", &training, CLV_PURPOSE_SEQUENCE_PARALLEL, "backward", 4, 2},
        {"model=8", "megatron-sp", &again, CLV_PURPOSE_SEQUENCE_PARALLEL, "backward", 6, 3},
        {"model=8", "megatron-sp", &full, CLV_PURPOSE_SEQUENCE_PARALLEL, "backward", 7, 2},
        {"model=8", "megatron-sp", &training, CLV_PURPOSE_GRADIENT_REDUCTION, "backward", 2, 2},
        {"model=8", "megatron-sp", &training, CLV_PURPOSE_TP_REDUCTION, "forward", 0, 0},
        {"model=8", "megatron-sp", &training, CLV_PURPOSE_VOCABULARY, "forward", 0, 2},
        {"data=4,model=8", "fsdp+megatron-sp", &training, CLV_PURPOSE_WEIGHT_GATHER, "forward", 5, 1},
        {"data=4,model=8", "fsdp+megatron-sp", &training, CLV_PURPOSE_SEQUENCE_PARALLEL, "forward", 4, 2},
        {"data=4,model=8", "fsdp+megatron-sp", &training, CLV_PURPOSE_GRADIENT_REDUCTION, "backward", 7, 3},
        {"data=4,model=8", "fsdp+megatron-sp", &accumulated, CLV_PURPOSE_GRADIENT_REDUCTION, "backward", 22, 5},
        /* heads are exchanged for positions: q, kv, and back the result; backward their gradients. Weights are gathered
           and reduced over the ranks of context, too; with SP the residual stream is split over both axes */
        {"context=8", "fsdp", &training, CLV_PURPOSE_CONTEXT_PARALLEL, "forward", 3, 1},
        {"context=8", "fsdp", &training, CLV_PURPOSE_CONTEXT_PARALLEL, "backward", 3, 1},
        {"context=8", "fsdp", &training, CLV_PURPOSE_WEIGHT_GATHER, "forward", 5, 1},
        {"context=8", "fsdp", &training, CLV_PURPOSE_GRADIENT_REDUCTION, "backward", 7, 2},
        /* the largest lse of the parts of the cache, and two sums */
        {"context=8", "dp", &decoding, CLV_PURPOSE_SPLIT_CACHE, "forward", 3, 0},
        {"context=8", "dp", &decoding, CLV_PURPOSE_TP_REDUCTION, "forward", 0, 0},
        /* there is a KV head for each rank of model alone: keys and values are gathered */
        {"context=2,model=8", "megatron-sp", &training, CLV_PURPOSE_CONTEXT_PARALLEL, "forward", 1, 0},
        {"context=2,model=8", "megatron-sp", &training, CLV_PURPOSE_SEQUENCE_PARALLEL, "forward", 4, 2},
        {"context=2,model=8", "megatron-sp", &training, CLV_PURPOSE_RESHARDING, "forward", 0, 0},
        /* an 8-bit reduction is an all_to_all and a gather of the same purpose */
        {"model=8", "megatron-sp", &compressed, CLV_PURPOSE_SEQUENCE_PARALLEL, "forward", 4, 2},
        /* weights are gathered over X; activations over Y, where products are summed, as are the norms' moments */
        {"X=2,Y=4", "gspmd-2d", &training, CLV_PURPOSE_WEIGHT_GATHER, "forward", 5, 1},
        {"X=2,Y=4", "gspmd-2d", &training, CLV_PURPOSE_TP_GATHER, "forward", 2, 1},
        {"X=2,Y=4", "gspmd-2d", &training, CLV_PURPOSE_TP_REDUCTION, "forward", 4, 1},
        {"X=2,Y=4", "gspmd-2d", &training, CLV_PURPOSE_RESHARDING, "forward", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clv_program *program = plan(cases[i].mesh, cases[i].rules, *cases[i].how);
        int64_t n = count(program, cases[i].purpose, cases[i].pass), want = cases[i].a_layer * LAYERS + cases[i].beside;
        if (n != want)
            fail_msg("%zu: %s by %s, %s of the %s pass: %lld, expected %lld\n", i, cases[i].mesh, cases[i].rules,
                     clv_collective_purpose_name(cases[i].purpose), cases[i].pass, (long long)n, (long long)want);
        clv_program_free(program);
    }
}

/* The tokens and which experts they chose are gathered, results scattered; backward likewise. */
static void test_experts(void **state)
{
    clv_program *program =
        plan("data=2,expert=2", "fsdp", (clv_plan_options){.model = "tests/golden/mixtral", .batch = 4, .seq = 8});
    const int layers = 2;
    (void)state;
    assert_int_equal(count(program, CLV_PURPOSE_EXPERT_PARALLEL, "forward"), 3 * layers);
    assert_int_equal(count(program, CLV_PURPOSE_EXPERT_PARALLEL, "backward"), 3 * layers);
    assert_int_equal(count(program, CLV_PURPOSE_TP_REDUCTION, "backward"), 0);
    assert_int_equal(count(program, CLV_PURPOSE_RESHARDING, "forward"), 0);
    clv_program_free(program);
    assert_string_equal(clv_collective_purpose_name(CLV_PURPOSE_EXPERT_PARALLEL), "expert_parallel");
}

/* Collectives say whose they are, whatever the order of the rules above: weights, and gradients of weights. */
static void test_names(void **state)
{
    clv_program *program = plan("data=4,model=8", "fsdp+megatron-sp", training);
    (void)state;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = collective(program, i);
        bool gradient = strstr(c.op, ".weight.grad.constraint") != NULL;
        if (!moves(&c))
            continue;
        assert_int_equal(c.purpose == CLV_PURPOSE_GRADIENT_REDUCTION, gradient);
        assert_int_equal(c.purpose == CLV_PURPOSE_WEIGHT_GATHER, !gradient && strstr(c.tensor, ".weight") != NULL);
        assert_int_equal(c.purpose == CLV_PURPOSE_SCALAR, c.type.rank == 0);
    }
    clv_program_free(program);
    assert_string_equal(clv_collective_purpose_name(CLV_PURPOSE_SEQUENCE_PARALLEL), "sequence_parallel");
    assert_string_equal(clv_collective_purpose_name(CLV_PURPOSE_COUNT), "unknown");
    assert_string_equal(clv_model_part_name(CLV_PART_FEED_FORWARD), "feed_forward");
    assert_string_equal(clv_model_part_name(CLV_PART_COUNT), "unknown");
}

/* ---- where the time goes ---- */

static double sum(const double *of, int n)
{
    double all = 0;
    for (int i = 0; i < n; i++)
        all += of[i];
    return all;
}

static void close_to(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%.12g, expected %.12g", got, want);
}

static void check_parts(const clv_program *program, const clv_machine *machine)
{
    clv_prediction all = {.size = sizeof all};
    clv_prediction_parts parts = {.size = sizeof parts};
    double bytes = 0, ops[CLV_PART_COUNT] = {0};
    int64_t n = 0;
    must(clv_program_predict(program, machine, &all, &err), &err);
    must(clv_program_predict_parts(program, machine, &parts, &err), &err);
    close_to(sum(parts.ops, CLV_PART_COUNT) + sum(parts.communication, CLV_PURPOSE_COUNT), all.seconds);
    close_to(sum(parts.communication, CLV_PURPOSE_COUNT), all.communication);
    close_to(sum(parts.overlapped, CLV_PURPOSE_COUNT), all.overlapped);
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = collective(program, i);
        bytes += c.bytes;
        n += moves(&c);
    }
    for (int i = 0; i < clv_program_instruction_count(program); i++) {
        clv_instruction_info info = {.size = sizeof info};
        must(clv_program_instruction(program, i, &info, &err), &err);
        if (!info.moves)
            ops[info.part] += clv_program_predict_instruction(program, machine, i);
    }
    for (int p = 0; p < CLV_PART_COUNT; p++) {
        close_to(parts.ops[p], ops[p]);
        assert_true(parts.ops[p] > 0);
    }
    for (int p = 0; p < CLV_PURPOSE_COUNT; p++)
        n -= parts.collectives[p];
    assert_int_equal(n, 0);
    close_to(sum(parts.bytes, CLV_PURPOSE_COUNT), bytes);
}

static void test_parts(void **state)
{
    clv_machine *machine;
    clv_prediction_parts parts = {.size = 1};
    (void)state;
    must(clv_machine_open(&machine, "h100-nvlink-ib", NULL, &err), &err);
    for (int overlap = 0; overlap < 2; overlap++) {
        clv_plan_options how = {.compile = {.overlap = overlap != 0, .machine = machine}};
        clv_program *program = plan("data=4,model=8", "fsdp+megatron-sp", how);
        check_parts(program, machine);
        check_parts(program, NULL);
        assert_int_equal(clv_program_predict_parts(program, machine, &parts, &err), CLV_EINVAL);
        assert_int_equal(clv_program_predict_parts(program, machine, NULL, &err), CLV_EINVAL);
        clv_program_free(program);
    }
    assert_int_equal(clv_program_predict_parts(NULL, machine, &parts, &err), CLV_EINVAL);
    clv_machine_free(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_presets), cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_names), cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
