/* test_gradient_accumulation.c - steps in parts whose gradients are added up: the same numbers as of the whole batch at
 * once, one reduction a parameter whatever the parts, and the memory that the plan says. */
#include <math.h>
#include <string.h>

#include "cleave/plan.h"
#include "cleave/train.h"
#include "golden_plan.h"
#include "must.h"
#include "sweep.h"
#include "unit_test.h"

enum { BATCH = 8, SEQ = 6, STEPS = 4, WEIGHTS = 1 << 12 };

static clv_error err;

/* ---- counts ---- */

static clv_program *plan(const char *model, const char *mesh, const char *preset, clv_plan_options how)
{
    how.batch = BATCH;
    how.seq = SEQ;
    return golden_plan(model, mesh, preset, how);
}

/* How many collectives sum what they move over an axis. */
static int sums_over(const clv_program *program, const char *axis)
{
    char from[CLV_LAYOUT_TEXT];
    int n = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        bool sums = strcmp(c.kind, "all_reduce") == 0 || strcmp(c.kind, "reduce_scatter") == 0;
        clv_layout_print(from, sizeof from, &c.from, clv_program_mesh(program));
        n += sums && strchr(from, '+') && strstr(strchr(from, '+'), axis);
    }
    return n;
}

static int parameters_of(const char *name)
{
    clv_model *model;
    const clv_model_options config = {.size = sizeof config, .config_only = 1};
    must(clv_model_open(&model, golden_path("%s", name), &config, &err), &err);
    clv_graph *graph = must_graph("");
    clv_model_forward(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 1}, NULL);
    int n = clv_graph_parameters(graph, NULL, 0);
    clv_graph_free(graph);
    clv_model_close(model);
    return n;
}

/* Over the data axis: each parameter's gradient, the labels' number, the loss, and the norm; in as many parts as one
 * will, of either dtype, and whatever is made again. */
static void test_gradients_are_reduced_once(void **state)
{
    static const char *const names[] = {"gpt2", "llama"}, *const presets[] = {"dp", "fsdp", "zero1"};
    for (int m = 0; m < 2; m++)
        for (int r = 0; r < 3; r++)
            for (int parts = 2; parts <= 4; parts *= 2)
                for (int dtype = 0; dtype < 2; dtype++) {
                    clv_program *p = plan(names[m], "data=2", presets[r],
                                          (clv_plan_options){.accumulate = parts,
                                                             .dtype = dtype ? CLV_BF16 : CLV_F32,
                                                             .compile.recompute = parts == 4 ? CLV_RECOMPUTE_FULL : 0});
                    int norms = r == 0 ? 0 : 1; /* of gradients that are whole everywhere nothing is summed */
                    assert_int_equal(sums_over(p, "data"), parameters_of(names[m]) + 2 + norms);
                    assert_int_equal(collectives_of(p, "all_to_all"), 0);
                    clv_program_free(p);
                }
    for (int parts = 1; parts <= 4; parts *= 4) { /* weights are gathered once a step, too */
        clv_program *p = plan("llama", "data=2", "fsdp", (clv_plan_options){.accumulate = parts});
        clv_program *one = plan("llama", "data=2", "fsdp", (clv_plan_options){0});
        assert_int_equal(collectives_of(p, "all_gather"), collectives_of(one, "all_gather"));
        clv_program_free(one);
        clv_program_free(p);
    }
}

/* What is moved between ranks that split tensors is moved for each part, and nothing more: an addend of the embedding's
 * gradient that nobody has cut comes cut to the sum. */
static void test_parts_move_as_much(void **state)
{
    clv_program *one = plan("gpt2", "model=2", "megatron", (clv_plan_options){0});
    clv_program *parts = plan("gpt2", "model=2", "megatron", (clv_plan_options){.accumulate = 4});
    assert_int_equal(collectives_of(parts, "reduce_scatter"), 4 * collectives_of(one, "reduce_scatter"));
    assert_int_equal(collectives_of(parts, "all_gather"), 4 * collectives_of(one, "all_gather"));
    clv_program_free(one);
    clv_program_free(parts);
}

/* Activations are those of a part; gradients are kept whole, in f32. */
static void test_memory(void **state)
{
    clv_memory once = {.size = sizeof once}, parts = {.size = sizeof parts};
    const clv_plan_options how = {.dtype = CLV_F32};
    clv_plan_options in_parts = how;
    in_parts.accumulate = BATCH;
    clv_program *a = plan("gpt2", "data=1", "dp", how), *b = plan("gpt2", "data=1", "dp", in_parts);
    must(clv_program_memory(a, &once, &err), &err);
    must(clv_program_memory(b, &parts, &err), &err);
    assert_true(parts.region < once.region);
    assert_true(parts.parameters == once.parameters && parts.optimizer == once.optimizer);
    clv_program_free(a);
    clv_program_free(b);
}

/* ---- numbers ---- */

typedef struct trained {
    double loss[STEPS], norm[STEPS];
    float weight[WEIGHTS];
} trained;

typedef struct way {
    const char *mesh, *rules;
    clv_dtype dtype;
    clv_recompute recompute;
    int64_t parts;
    clv_optimizer optimizer;
    bool overlap;
} way;

/* Labels that count are few and uneven: none in the second part of four, all in the third. */
static void fill(int32_t *ids, int32_t *labels)
{
    for (int i = 0; i < BATCH * SEQ; i++) {
        int part = i / (BATCH * SEQ / 4);
        bool counts = part == 2 || (part != 1 && i % 4 == part % 4);
        ids[i] = (11 * i + i / 5) % 29;
        labels[i] = counts ? (5 * i + 2) % 29 : CLV_IGNORE_INDEX;
    }
}

static void train(trained *out, const char *name, const way *w)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_model *model;
    clv_trainer *trainer;
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    const clv_lr_schedule schedule = {.peak = 0.01, .steps = STEPS};
    const clv_adamw_options adamw = {.size = sizeof adamw, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3};
    const clv_update_options update = {
        .size = sizeof update, .adamw = &adamw, .clip = 1, .optimizer = w->optimizer, .accumulate = w->parts};
    const clv_trainer_options options = {
        .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .update = &update};
    memset(out, 0, sizeof *out);
    must(clv_mesh_parse(&mesh, w->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, w->rules, &mesh, &err), &err);
    const clv_model_options how = {.size = sizeof how,
                                   .mesh = &mesh,
                                   .rules = &rules,
                                   .dtype = w->dtype,
                                   .compile.recompute = w->recompute,
                                   .compile.overlap = w->overlap};
    must(clv_model_open(&model, golden_path("%s", name), &how, &err), &err);
    must(clv_trainer_new(&trainer, model, &options, &err), &err);
    fill(ids, labels);
    for (int i = 0; i < STEPS; i++) {
        clv_train_step did = {.size = sizeof did};
        must(clv_trainer_step(trainer, ids, labels, NULL, &did, &err), &err);
        out->loss[i] = did.loss;
        out->norm[i] = did.grad_norm;
    }
    if (w->dtype == CLV_F32)
        must(clv_session_read(clv_trainer_session(trainer), "layers.0.mlp.down.weight", NULL, out->weight, &err), &err);
    clv_program *planned = plan(name, w->mesh, w->rules,
                                (clv_plan_options){.accumulate = w->parts,
                                                   .compile.recompute = w->recompute,
                                                   .dtype = w->dtype,
                                                   .compile.overlap = w->overlap});
    clv_memory memory = {.size = sizeof memory};
    must(clv_program_memory(planned, &memory, &err), &err);
    if (w->optimizer == CLV_OPTIMIZER_ADAMW)
        assert_int_equal(clv_session_rank_bytes(clv_trainer_session(trainer)), memory.total);
    clv_program_free(planned);
    clv_trainer_free(trainer);
    clv_model_close(model);
}

static void assert_alike(const trained *a, const trained *b, double most, const char *what, const way *w)
{
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(a->loss[i] - b->loss[i]) <= most * b->loss[i] && fabs(a->norm[i] - b->norm[i]) <= most * b->norm[i]))
            fail_msg("%s, %s by %s, %lld parts, recompute %d, step %d: loss %.9g, norm %.9g; at once %.9g, %.9g", what,
                     w->mesh, w->rules, (long long)w->parts, w->recompute, i, a->loss[i], a->norm[i], b->loss[i],
                     b->norm[i]);
}

static void test_parts_are_as_the_whole(void **state)
{
    static const char *const names[] = {"gpt2", "llama", "bert"};
    static const char *const splits[][2] = {{"data=1", "dp"},
                                            {"model=2", "megatron"},
                                            {"model=3", "megatron-sp"},
                                            {"data=2", "dp"},
                                            {"data=2", "fsdp"},
                                            {"data=3", "zero1"},
                                            {"data=2,model=2", "fsdp+megatron-sp"}};
    static trained whole, parts, again;
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++)
        for (size_t s = 0; s < sizeof splits / sizeof splits[0]; s++) {
            way w = {.mesh = splits[s][0], .rules = splits[s][1], .parts = 1};
            if (!sweep_takes_thinned(4))
                continue;
            train(&whole, names[m], &w);
            for (w.parts = 2; w.parts <= 8; w.parts *= 2) {
                train(&parts, names[m], &w);
                assert_alike(&parts, &whole, 1e-5, names[m], &w);
            }
            w.parts = 4;
            train(&parts, names[m], &w);
            for (w.recompute = CLV_RECOMPUTE_SELECTIVE; w.recompute <= CLV_RECOMPUTE_FULL; w.recompute++) {
                train(&again, names[m], &w);
                assert_memory_equal(again.loss, parts.loss, sizeof parts.loss);
                assert_memory_equal(again.weight, parts.weight, sizeof parts.weight);
            }
        }
}

/* In 16 bits, by other optimizers, and with collectives beside ops. */
static void test_other_ways(void **state)
{
    static trained whole, parts;
    way w = {.mesh = "data=2,model=2", .rules = "fsdp+megatron-sp", .parts = 1, .dtype = CLV_BF16};
    train(&whole, "gpt2", &w);
    w.parts = 4;
    train(&parts, "gpt2", &w);
    assert_alike(&parts, &whole, 3e-2, "bf16", &w);
    for (clv_optimizer o = CLV_OPTIMIZER_SGD; o <= CLV_OPTIMIZER_LION; o++) {
        w = (way){.mesh = "data=2", .rules = "zero1", .parts = 1, .optimizer = o};
        train(&whole, "llama", &w);
        w.parts = 2;
        train(&parts, "llama", &w);
        assert_alike(&parts, &whole, o == CLV_OPTIMIZER_LION ? 1e-2 : 1e-5, clv_optimizer_name(o), &w);
    }
    w = (way){.mesh = "data=2", .rules = "fsdp", .parts = 4, .overlap = true, .recompute = CLV_RECOMPUTE_FULL};
    train(&parts, "llama", &w);
    w = (way){.mesh = "data=2", .rules = "fsdp", .parts = 1};
    train(&whole, "llama", &w);
    assert_alike(&parts, &whole, 1e-5, "overlap", &w);
}

/* ---- what is refused ---- */

static clv_status plan_of(clv_plan_options how)
{
    clv_program *program;
    how.size = sizeof how;
    how.model = golden_path("gpt2");
    how.seq = SEQ;
    err = (clv_error){0};
    clv_status status = clv_plan_compile(&program, &how, &err);
    if (status == CLV_OK)
        clv_program_free(program);
    return status;
}

static void test_refused(void **state)
{
    clv_trainer *trainer;
    clv_model *model;
    const clv_lr_schedule schedule = {.peak = 0.01, .steps = STEPS};
    assert_int_equal(plan_of((clv_plan_options){.batch = 6, .accumulate = 3}), CLV_OK);
    assert_int_equal(plan_of((clv_plan_options){.batch = 6, .accumulate = 4}), CLV_EINVAL);
    assert_string_equal(err.message, "accumulate 4 does not divide the batch, 6");
    assert_int_equal(plan_of((clv_plan_options){.batch = 6, .accumulate = -1}), CLV_EINVAL);
    assert_int_equal(plan_of((clv_plan_options){.batch = 6, .accumulate = 2, .mode = CLV_PLAN_MODE_PREFILL}),
                     CLV_EINVAL);
    err = (clv_error){0};
    must(clv_model_open(&model, golden_path("gpt2"), NULL, &err), &err);
    for (int64_t parts = -1; parts <= 5; parts += 6) {
        const clv_update_options update = {.size = sizeof update, .accumulate = parts};
        const clv_trainer_options options = {
            .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .update = &update};
        assert_int_equal(clv_trainer_new(&trainer, model, &options, &err), CLV_EINVAL);
    }
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gradients_are_reduced_once),
                                       cmocka_unit_test(test_parts_move_as_much),
                                       cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_parts_are_as_the_whole),
                                       cmocka_unit_test(test_other_ways),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
