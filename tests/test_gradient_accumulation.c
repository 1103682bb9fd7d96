/* test_gradient_accumulation.c - steps in microbatches whose gradients are added up: the same numbers as of the whole
 * batch at once, how often gradients are reduced and weights gathered, and the memory that the plan says. */
#include <math.h>
#include <string.h>

#include "cleave/plan.h"
#include "cleave/train.h"
#include "golden_plan.h"
#include "must.h"
#include "sweep.h"
#include "temp_folder.h"

enum { BATCH = 8, SEQ = 6, STEPS = 4, WEIGHTS = 1 << 12 };

static clv_error err;

/* ---- counts ---- */

static clv_program *plan(const char *model, const char *mesh, const char *preset, clv_plan_options how)
{
    how.batch = how.batch ? how.batch : BATCH;
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
 * will, of either dtype, and whatever is made again. Without no_sync the gradients of which ranks update shards are
 * reduce-scattered in every microbatch. */
static void test_how_often_gradients_are_reduced(void **state)
{
    static const char *const names[] = {"gpt2", "llama"}, *const presets[] = {"dp", "fsdp", "zero1"};
    for (int m = 0; m < 2; m++)
        for (int r = 0; r < 3; r++)
            for (int parts = 2; parts <= 4; parts *= 2)
                for (int dtype = 0; dtype < 2; dtype++) {
                    clv_plan_options how = {.batch = 32,
                                            .dtype = dtype ? CLV_BF16 : CLV_F32,
                                            .compile.recompute = parts == 4 ? CLV_RECOMPUTE_FULL : 0};
                    clv_program *whole = plan(names[m], "data=2", presets[r], how);
                    how.accumulate = parts;
                    clv_program *each = plan(names[m], "data=2", presets[r], how);
                    how.no_sync = true;
                    clv_program *once = plan(names[m], "data=2", presets[r], how);
                    const int norms = r == 0 ? 0 : 1; /* of gradients that are whole everywhere nothing is summed */
                    const int shards = collectives_of(whole, "reduce_scatter");
                    const int others = sums_over(once, "data") - collectives_of(once, "reduce_scatter");
                    assert_int_equal(sums_over(once, "data"), parameters_of(names[m]) + 2 + norms);
                    assert_int_equal(collectives_of(once, "all_to_all"), 0);
                    assert_true((shards > 0) == (r > 0));
                    assert_int_equal(collectives_of(each, "reduce_scatter"), parts * shards);
                    assert_int_equal(sums_over(each, "data"), parts * shards + others);
                    clv_program_free(whole);
                    clv_program_free(each);
                    clv_program_free(once);
                }
}

/* Nor are gradients reduced more often where ranks with other rows update the same shards. */
static void test_shards_of_the_same_rows(void **state)
{
    static const char json[] = "{\"rules\": [[\"batch\", \"data\"], [\"embed_kernel\", \"X\"]]}";
    clv_axis_rules rules;
    clv_mesh mesh;
    clv_plan_options how = {.size = sizeof how,
                            .model = golden_path("llama"),
                            .mesh = &mesh,
                            .rules = &rules,
                            .batch = 32,
                            .seq = SEQ,
                            .accumulate = 4};
    (void)state;
    must(clv_mesh_parse(&mesh, "data=2,X=2", &err), &err);
    must(clv_axis_rules_parse(&rules, json, strlen(json), &mesh, "rules", &err), &err);
    for (int no_sync = 0; no_sync < 2; no_sync++) {
        clv_program *program;
        how.no_sync = no_sync;
        must(clv_plan_compile(&program, &how, &err), &err);
        assert_int_equal(sums_over(program, "data"), parameters_of("llama") + 2);
        clv_program_free(program);
    }
}

/* By default each microbatch gathers weights in its forward and in its backward pass; else once a step. */
static void test_how_often_weights_are_gathered(void **state)
{
    clv_plan_options how = {.compile.reshard_after_forward = CLV_RESHARD_NONE};
    (void)state;
    clv_program *once = plan("llama", "data=2", "fsdp", how);
    for (int recompute = CLV_RECOMPUTE_NONE; recompute <= CLV_RECOMPUTE_FULL; recompute++)
        for (int no_sync = 0; no_sync < 2; no_sync++) {
            how = (clv_plan_options){.accumulate = 4, .no_sync = no_sync, .compile.recompute = recompute};
            clv_program *again = plan("llama", "data=2", "fsdp", how);
            how.compile.reshard_after_forward = CLV_RESHARD_NONE;
            clv_program *kept = plan("llama", "data=2", "fsdp", how);
            const int weights = collectives_of(once, "all_gather"); /* the backward pass does not read the embedding */
            assert_int_equal(collectives_of(kept, "all_gather"), weights);
            assert_int_equal(collectives_of(again, "all_gather"), 4 * (2 * weights - 1));
            clv_program_free(again);
            clv_program_free(kept);
        }
    clv_program_free(once);
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

/* Activations are those of a part. */
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

/* Of 30e9 parameters in bf16 over 8 ranks: a rank accumulates an eighth of the gradients in f32, and has whole ones of
 * one layer at a time; with no_sync all of them. */
static void test_memory_of_shards(void **state)
{
    enum { RANKS = 8, LAYERS = 48 };
    static const char config[] = "{\"model_type\": \"gpt2\", \"n_embd\": 7168, \"n_layer\": 48, \"n_head\": 56, "
                                 "\"n_inner\": 28672, \"vocab_size\": 50368, \"n_positions\": 2048}";
    clv_mesh mesh;
    clv_model_part_sizes sizes = {.size = sizeof sizes};
    clv_model *model;
    clv_plan_options how = {.size = sizeof how,
                            .mesh = &mesh,
                            .dtype = CLV_BF16,
                            .batch = 32,
                            .seq = 512,
                            .accumulate = 2,
                            .compile.recompute = CLV_RECOMPUTE_FULL};
    (void)state;
    FILE *file = fopen(in_folder("config.json"), "w");
    assert_non_null(file);
    fputs(config, file);
    fclose(file);
    how.model = folder;
    must(clv_mesh_parse(&mesh, "data=8", &err), &err);
    must(clv_model_open(&model, how.model, &(clv_model_options){.size = sizeof(clv_model_options), .config_only = 1},
                        &err),
         &err);
    must(clv_model_get_part_sizes(model, &sizes, &err), &err);
    const double elems = (double)(sizes.embedding + sizes.layers + sizes.head);
    static const char *const presets[] = {"fsdp", "zero1"};
    for (int r = 0; r < 2; r++)
        for (int no_sync = 0; no_sync < 2; no_sync++) {
            clv_axis_rules rules;
            clv_program *program;
            clv_memory memory = {.size = sizeof memory};
            must(clv_axis_rules_preset(&rules, presets[r], &mesh, &err), &err);
            how.rules = &rules;
            how.no_sync = no_sync;
            must(clv_plan_compile(&program, &how, &err), &err);
            must(clv_program_memory(program, &memory, &err), &err);
            const double least = 4 * elems / (no_sync ? 1 : RANKS), layer = 4 * (double)sizes.layers / LAYERS;
            if (!((double)memory.gradients >= 0.97 * least && (double)memory.gradients <= least + layer))
                fail_msg("%s, no_sync %d: gradients of %.3g bytes; %.3g expected", presets[r], no_sync,
                         (double)memory.gradients, least);
            assert_true((double)memory.gathered < layer); /* weights are gathered a layer at a time */
            clv_program_free(program);
        }
    clv_model_close(model);
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
    bool overlap, no_sync, f32_gradients;
    clv_reshard_after_forward reshard;
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
    const clv_update_options update = {.size = sizeof update,
                                       .adamw = &adamw,
                                       .clip = 1,
                                       .optimizer = w->optimizer,
                                       .accumulate = w->parts,
                                       .no_sync = w->no_sync};
    const clv_trainer_options options = {
        .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .update = &update};
    memset(out, 0, sizeof *out);
    must(clv_mesh_parse(&mesh, w->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, w->rules, &mesh, &err), &err);
    const clv_model_options how = {.size = sizeof how,
                                   .mesh = &mesh,
                                   .rules = &rules,
                                   .dtype = w->dtype,
                                   .f32_gradients = w->f32_gradients,
                                   .compile.reshard_after_forward = w->reshard,
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
                                                   .no_sync = w->no_sync,
                                                   .f32_gradients = w->f32_gradients,
                                                   .compile.reshard_after_forward = w->reshard,
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
                                            {"data=2,model=2", "zero1"},
                                            {"X=2,Y=2", "gspmd-2d"},
                                            {"data=2,model=2", "fsdp+megatron-sp"}};
    static trained whole, parts, again;
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++)
        for (size_t s = 0; s < sizeof splits / sizeof splits[0]; s++) {
            way w = {.mesh = splits[s][0], .rules = splits[s][1], .parts = 1};
            if (!sweep_takes_turn((int)m, 3, (int)(s + s / 3)) || !sweep_takes_thinned(3))
                continue;
            train(&whole, names[m], &w);
            for (w.parts = 2; w.parts <= 8; w.parts *= 2) {
                train(&parts, names[m], &w);
                assert_alike(&parts, &whole, 1e-5, names[m], &w);
            }
            w.parts = 4;
            w.no_sync = true;
            train(&parts, names[m], &w);
            assert_alike(&parts, &whole, 1e-5, names[m], &w);
            w.no_sync = false;
            train(&parts, names[m], &w);
            for (w.reshard = CLV_RESHARD_ALL; w.reshard <= CLV_RESHARD_NONE; w.reshard++) {
                train(&again, names[m], &w);
                assert_alike(&again, &parts, 1e-6, names[m], &w);
            }
            w.reshard = CLV_RESHARD_WEIGHTS;
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
    for (int how = 0; how < 4; how++) {
        w.no_sync = how % 2;
        w.f32_gradients = how / 2;
        train(&parts, "gpt2", &w);
        assert_alike(&parts, &whole, 3e-2, "bf16", &w);
    }
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
    assert_int_equal(plan_of((clv_plan_options){.batch = 6, .no_sync = true}), CLV_EINVAL);
    assert_string_equal(err.message, "no_sync is for gradient accumulation; valid: with accumulate > 1");
    err = (clv_error){0};
    must(clv_model_open(&model, golden_path("gpt2"), NULL, &err), &err);
    for (int64_t parts = -1; parts <= 5; parts += 2) {
        const clv_update_options update = {.size = sizeof update, .accumulate = parts, .no_sync = parts == 1};
        const clv_trainer_options options = {
            .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .update = &update};
        assert_int_equal(clv_trainer_new(&trainer, model, &options, &err), CLV_EINVAL);
    }
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_how_often_gradients_are_reduced),
                                       cmocka_unit_test(test_shards_of_the_same_rows),
                                       cmocka_unit_test(test_how_often_weights_are_gathered),
                                       cmocka_unit_test(test_parts_move_as_much),
                                       cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_memory_of_shards),
                                       cmocka_unit_test(test_parts_are_as_the_whole),
                                       cmocka_unit_test(test_other_ways),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
