/* test_train_dropout.c - dropout: the same elements on every mesh, others in each step, none where a loss is only
 * looked at; and no rank says a word more for it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleave/plan.h"
#include "cleave/train.h"
#include "golden_path.h"
#include "graph/graph.h"
#include "must.h"
#include "ops/builtin_ops.h"
#include "temp_folder.h"
#include "unit_test.h"

enum { BATCH = 4, SEQ = 8, STEPS = 5, VOCAB = 33 };

typedef struct split {
    const char *mesh, *rules;
} split;

static const split one = {"model=1", "megatron"};
static const split splits[] = {{"model=2", "megatron"},    {"model=3", "megatron"}, {"model=2", "megatron-sp"},
                               {"model=3", "megatron-sp"}, {"data=2", "dp"},        {"data=3", "fsdp"},
                               {"data=2", "zero1"},        {"X=2,Y=2", "gspmd-2d"}, {"data=2,model=2", "megatron-sp"}};
enum { SPLITS = sizeof splits / sizeof splits[0] };

typedef struct rates {
    double hidden, attention;
} rates;

static const rates none = {0, 0}, both = {0.3, 0.3}, attention = {0, 0.3};

typedef struct trained {
    clv_model *model;
    clv_trainer *trainer;
} trained;

static clv_model *open_as(const split *on, const char *family, int threads, clv_recompute recompute)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_model *model;
    clv_error err = {0};
    must(clv_mesh_parse(&mesh, on->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, on->rules, &mesh, &err), &err);
    const clv_model_options options = {.size = sizeof options,
                                       .mesh = &mesh,
                                       .rules = &rules,
                                       .threads_per_rank = threads,
                                       .compile.recompute = recompute};
    must(clv_model_open(&model, golden_path("%s", family), &options, &err), &err);
    return model;
}

static clv_model *open_model(const split *on, const char *family)
{
    return open_as(on, family, 1, CLV_RECOMPUTE_NONE);
}

static clv_status make(clv_trainer **out, const clv_model *model, rates p, uint64_t seed, clv_error *err)
{
    const clv_lr_schedule schedule = {.peak = 0.003, .floor = 0.003, .steps = STEPS};
    const clv_trainer_options how = {.size = sizeof how,
                                     .batch = BATCH,
                                     .seq = SEQ,
                                     .schedule = &schedule,
                                     .seed = seed,
                                     .dropout = p.hidden,
                                     .attention_dropout = p.attention};
    return clv_trainer_new(out, model, &how, err);
}

static trained begin(const split *on, const char *family, rates p, uint64_t seed)
{
    trained t = {.model = open_model(on, family)};
    clv_error err = {0};
    must(make(&t.trainer, t.model, p, seed, &err), &err);
    return t;
}

static void end(const trained *t)
{
    clv_trainer_free(t->trainer);
    clv_model_close(t->model);
}

static void fill(int32_t *ids, int32_t *labels)
{
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = i * 7 % VOCAB;
        labels[i] = (i * 7 + 7) % VOCAB;
    }
}

/* The same batch in each step. */
static void train(const trained *t, int to, double *losses)
{
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    clv_error err = {0};
    fill(ids, labels);
    for (int64_t step = clv_trainer_steps_done(t->trainer); step < to; step++) {
        clv_train_step did = {.size = sizeof did};
        must(clv_trainer_step(t->trainer, ids, labels, NULL, &did, &err), &err);
        losses[step] = did.loss;
    }
}

static void train_on(const split *on, const char *family, rates p, uint64_t seed, double *losses)
{
    trained t = begin(on, family, p, seed);
    train(&t, STEPS, losses);
    end(&t);
}

static bool differ(const double *a, const double *b)
{
    double most = 0;
    for (int i = 0; i < STEPS; i++)
        most = fmax(most, fabs(a[i] - b[i]) / fabs(a[i]));
    return most > 1e-5;
}

static void test_meshes(void **state)
{
    static const char *const families[] = {"llama", "gpt2", "bert", "esm"};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        double alone[STEPS], split_up[STEPS], without[STEPS];
        train_on(&one, families[f], attention, 3, alone);
        train_on(&one, families[f], none, 3, without);
        assert_true(differ(alone, without));
        train_on(&one, families[f], both, 3, without);
        assert_true(differ(alone, without));
        for (int s = 0; s < 2 * SPLITS; s++) {
            if (s == SPLITS)
                memcpy(alone, without, sizeof alone);
            train_on(&splits[s % SPLITS], families[f], s < SPLITS ? attention : both, 3, split_up);
            if (differ(alone, split_up))
                fail_msg("%s on %s by %s: step 0 %.9g, one rank %.9g; the last %.9g, one rank %.9g", families[f],
                         splits[s % SPLITS].mesh, splits[s % SPLITS].rules, split_up[0], alone[0], split_up[STEPS - 1],
                         alone[STEPS - 1]);
        }
    }
}

/* By the seed, and by the step: weights that do not move have another loss in each. */
static void check_masks(rates p)
{
    double losses[STEPS], other[STEPS];
    train_on(&one, "gpt2", p, 3, losses);
    train_on(&one, "gpt2", p, 4, other);
    assert_true(fabs(losses[0] - other[0]) > 1e-4 * losses[0]);
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    const clv_lr_schedule still = {.peak = 1e-12, .floor = 1e-12, .steps = STEPS};
    const clv_trainer_options how = {.size = sizeof how,
                                     .batch = BATCH,
                                     .seq = SEQ,
                                     .schedule = &still,
                                     .seed = 3,
                                     .dropout = p.hidden,
                                     .attention_dropout = p.attention};
    clv_error err = {0};
    trained t = {.model = open_model(&one, "gpt2")};
    must(clv_trainer_new(&t.trainer, t.model, &how, &err), &err);
    fill(ids, labels);
    double before, after, looked_at;
    must(clv_trainer_loss(t.trainer, ids, labels, NULL, &before, &err), &err);
    train(&t, STEPS, losses);
    must(clv_trainer_loss(t.trainer, ids, labels, NULL, &after, &err), &err);
    end(&t);
    assert_true(fabs(before - after) < 1e-6 * before);
    for (int i = 1; i < STEPS; i++)
        assert_true(fabs(losses[i] - losses[0]) > 1e-5 * losses[0]);
    t = begin(&one, "gpt2", none, 3);
    must(clv_trainer_loss(t.trainer, ids, labels, NULL, &looked_at, &err), &err);
    end(&t);
    assert_true(before == looked_at);
}

static void test_masks(void **state)
{
    check_masks((rates){0.3, 0});
    check_masks(attention);
}

/* Recomputed, and by more threads, to the bit; in parts the same on every mesh. */
static void test_ways(void **state)
{
    static const struct {
        clv_recompute recompute;
        int threads;
        int64_t parts;
        const split *on;
    } ways[] = {{CLV_RECOMPUTE_NONE, 1, 1, &one},      {CLV_RECOMPUTE_SELECTIVE, 1, 1, &one},
                {CLV_RECOMPUTE_FULL, 1, 1, &one},      {CLV_RECOMPUTE_NONE, 3, 1, &one},
                {CLV_RECOMPUTE_NONE, 1, 2, &one},      {CLV_RECOMPUTE_FULL, 1, 2, &splits[1]},
                {CLV_RECOMPUTE_FULL, 2, 2, &splits[8]}};
    double losses[sizeof ways / sizeof *ways][STEPS];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        clv_error err = {0};
        const clv_lr_schedule schedule = {.peak = 0.003, .floor = 0.003, .steps = STEPS};
        const clv_adamw_options adamw = {.size = sizeof adamw};
        const clv_update_options update = {.size = sizeof update, .adamw = &adamw, .accumulate = ways[i].parts};
        const clv_trainer_options how = {.size = sizeof how,
                                         .batch = BATCH,
                                         .seq = SEQ,
                                         .schedule = &schedule,
                                         .seed = 3,
                                         .update = &update,
                                         .dropout = 0.3,
                                         .attention_dropout = 0.3};
        trained t = {.model = open_as(ways[i].on, "llama", ways[i].threads, ways[i].recompute)};
        must(clv_trainer_new(&t.trainer, t.model, &how, &err), &err);
        train(&t, STEPS, losses[i]);
        end(&t);
    }
    for (int i = 1; i < 4; i++)
        assert_memory_equal(losses[i], losses[0], sizeof losses[0]);
    assert_true(differ(losses[4], losses[0])); /* each part has masks of its own */
    assert_false(differ(losses[5], losses[4]) || differ(losses[6], losses[4]));
}

/* Bytes of all collectives of a step, and how many there are. */
static double moved(const split *on, rates p, int *collectives)
{
    trained t = begin(on, "gpt2", p, 3);
    const clv_program *program = clv_trainer_program(t.trainer);
    double bytes = 0;
    *collectives = clv_program_collective_count(program);
    for (int i = 0; i < *collectives; i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, NULL), &(clv_error){0});
        bytes += c.bytes;
    }
    end(&t);
    return bytes;
}

static int64_t peak_of(const split *on, rates p)
{
    trained t = begin(on, "gpt2", p, 3);
    clv_memory memory = {.size = sizeof memory};
    must(clv_program_memory(clv_trainer_program(t.trainer), &memory, NULL), &(clv_error){0});
    end(&t);
    return (int64_t)memory.total;
}

static void test_moves_nothing(void **state)
{
    for (int s = 0; s < SPLITS; s++) {
        int steps, more = 0;
        double bytes = moved(&splits[s], none, &steps);
        assert_true(steps > 0 && moved(&splits[s], both, &more) == bytes);
        assert_int_equal(more, steps);
        assert_int_equal(peak_of(&splits[s], attention), peak_of(&splits[s], none));
    }
}

/* cleave plan has it, too. */
static void test_plan(void **state)
{
    for (int s = 0; s < SPLITS; s++) {
        clv_program *program;
        clv_memory planned = {.size = sizeof planned}, taken = {.size = sizeof taken};
        clv_error err = {0};
        trained t = begin(&splits[s], "gpt2", both, 3);
        const clv_plan_options how = {.size = sizeof how,
                                      .model = golden_path("gpt2"),
                                      .mesh = clv_model_mesh(t.model),
                                      .rules = clv_model_rules(t.model),
                                      .batch = BATCH,
                                      .seq = SEQ,
                                      .dropout = 0.3,
                                      .attention_dropout = 0.3};
        must(clv_plan_compile(&program, &how, &err), &err);
        must(clv_program_memory(program, &planned, &err), &err);
        must(clv_program_memory(clv_trainer_program(t.trainer), &taken, &err), &err);
        assert_int_equal(planned.total, taken.total);
        assert_int_equal(clv_program_instruction_count(program),
                         clv_program_instruction_count(clv_trainer_program(t.trainer)));
        clv_program_free(program);
        end(&t);
    }
}

static void test_resume(void **state)
{
    double whole[STEPS], gone_on[STEPS];
    clv_error err = {0};
    train_on(&splits[0], "llama", both, 3, whole);
    trained t = begin(&splits[0], "llama", both, 3);
    train(&t, 2, gone_on);
    must(clv_trainer_checkpoint(t.trainer, in_folder("run"), NULL, &err), &err);
    end(&t);
    t = begin(&splits[0], "llama", both, 3);
    must(clv_trainer_resume(t.trainer, in_folder("run"), NULL, &err), &err);
    train(&t, STEPS, gone_on);
    end(&t);
    for (int i = 0; i < STEPS; i++)
        assert_true(whole[i] == gone_on[i]);
}

static void test_refused(void **state)
{
    static const double no_rates[] = {-0.1, 1, 1.5, NAN};
    clv_model *model = open_model(&one, "llama");
    clv_trainer *trainer;
    clv_graph *graph;
    for (size_t i = 0; i < 2 * sizeof no_rates / sizeof *no_rates; i++) {
        const double p = no_rates[i / 2];
        clv_error err = {0};
        assert_int_equal(make(&trainer, model, i % 2 ? (rates){p, 0} : (rates){0, p}, 1, &err), CLV_EINVAL);
        assert_non_null(strstr(err.message, "valid: 0 <= dropout < 1"));
    }
    clv_error err = {0};
    must(clv_graph_new(&graph, clv_model_mesh(model), &err), &err);
    const clv_model_graph_options how = {.size = sizeof how, .batch = 1, .seq = 4, .dropout = 0.1};
    clv_model_forward(graph, model, &how, NULL);
    assert_int_equal(clv_graph_status(graph, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "valid: 0, but in a training step"));
    clv_graph_free(graph);
    clv_model_close(model);
}

/* Of embeddings, of what blocks add, and of attention: each draws anew in every step. */
static void test_steps_differ(void **state)
{
    clv_model *model = open_model(&splits[0], "gpt2");
    clv_graph *graph = must_graph(splits[0].mesh);
    clv_error err = {0};
    int n = 0;
    clv_model_train_step(graph, model,
                         &(clv_model_graph_options){.size = sizeof(clv_model_graph_options),
                                                    .batch = BATCH,
                                                    .seq = SEQ,
                                                    .dropout = 0.1,
                                                    .attention_dropout = 0.1},
                         NULL);
    must(clv_graph_status(graph, &err), &err);
    for (int i = 0; i < graph->n_ops; i++)
        if (graph->ops[i].def == &clv_op_dropout) {
            assert_int_equal(graph->ops[i].n_in, 2);
            assert_string_equal(clv_value_name(graph, (clv_value){graph->ops[i].in[1]}), "step");
            n++;
        }
    assert_true(n > 2);
    clv_graph_free(graph);
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_meshes),        cmocka_unit_test(test_masks),
                                       cmocka_unit_test(test_moves_nothing), cmocka_unit_test(test_ways),
                                       cmocka_unit_test(test_plan),          cmocka_unit_test(test_resume),
                                       cmocka_unit_test(test_refused),       cmocka_unit_test(test_steps_differ)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
