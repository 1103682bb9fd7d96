/* test_pipeline.c - pipeline stages: steps make the bits of a mesh without them, schedules have the bubble and the
 * memory that is known of them, plans are exact, checkpoints move between meshes, and what cannot run is refused. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cleave/plan.h"
#include "cleave/train.h"
#include "must.h"
#include "program/program.h"
#include "session_state.h"
#include "sweep.h"
#include "temp_folder.h"

enum { BATCH = 8, SEQ = 6, STEPS = 3, VOCAB = 40, LAYERS = 5 };

static clv_error err;

/* ---- training ---- */

typedef struct run_options {
    const char *mesh, *rules;
    clv_dtype dtype;
    bool tied, lora;
    double dropout;
    int virtual_stages; /* 0: layers are as by default */
    int stage_layers[LAYERS], n_stages;
    clv_update_options update;
    clv_compile_options compile;
} run_options;

static clv_model *model_of(const run_options *o)
{
    clv_model *model;
    clv_mesh mesh;
    clv_axis_rules rules;
    const clv_model_info sizes = {.hidden = 24,
                                  .layers = LAYERS,
                                  .heads = 6,
                                  .kv_heads = 3,
                                  .ffn = 30,
                                  .vocab = VOCAB,
                                  .tied_embeddings = o->tied,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1};
    must(clv_mesh_parse(&mesh, o->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, o->rules, &mesh, &err), &err);
    if (o->virtual_stages > 0)
        must(clv_axis_rules_set_stages(&rules, &mesh, o->virtual_stages, o->stage_layers, o->n_stages, &err), &err);
    const clv_lora_options lora = {.size = sizeof lora, .rank = 2};
    const clv_model_options options = {
        .mesh = &mesh, .rules = &rules, .dtype = o->dtype, .compile = o->compile, .lora = o->lora ? &lora : NULL};
    must(clv_model_new(&model, &sizes, &options, &err), &err);
    return model;
}

static clv_trainer *trainer_of(const clv_model *model, const run_options *o)
{
    clv_trainer *trainer;
    const clv_lr_schedule schedule = {.peak = 1e-2, .steps = 10};
    const clv_trainer_options options = {.size = sizeof options,
                                         .batch = BATCH,
                                         .seq = SEQ,
                                         .schedule = &schedule,
                                         .seed = 5,
                                         .update = &o->update,
                                         .dropout = o->dropout};
    must(clv_trainer_new(&trainer, model, &options, &err), &err);
    return trainer;
}

static void train(clv_trainer *trainer, int steps)
{
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    for (int s = 0; s < steps; s++) {
        const int64_t step = clv_trainer_steps_done(trainer);
        for (int i = 0; i < BATCH * SEQ; i++) {
            ids[i] = (int32_t)((i * 7 + step * 11) % VOCAB);
            labels[i] = i % 5 == 4 ? CLV_IGNORE_INDEX : (int32_t)((i * 3 + step) % VOCAB);
        }
        must(clv_trainer_step(trainer, ids, labels, NULL, NULL, &err), &err);
    }
}

/* With stages and without them, everything else equal. */
static void expect_same_run(const run_options *with, const char *mesh_without)
{
    run_options without = *with;
    without.mesh = mesh_without;
    without.virtual_stages = without.n_stages = 0;
    without.compile.schedule = CLV_SCHEDULE_DEFAULT;
    clv_model *models[] = {model_of(with), model_of(&without)};
    clv_trainer *trainers[] = {trainer_of(models[0], with), trainer_of(models[1], &without)};
    for (int i = 0; i < 2; i++)
        train(trainers[i], STEPS);
    must(clv_program_verify(clv_trainer_program(trainers[0]), &err), &err);
    assert_true(
        expect_session_state(clv_trainer_session(trainers[1]), clv_trainer_session(trainers[0]), 0, with->mesh) > 40);
    for (int i = 0; i < 2; i++) {
        clv_trainer_free(trainers[i]);
        clv_model_close(models[i]);
    }
}

static void test_same_bits(void **state)
{
    static const struct {
        const char *with, *without, *rules;
        int virtual_stages, stage_layers[LAYERS], n_stages;
    } meshes[] = {{"pipe=2", "model=1", NULL, 2, {0}, 0},
                  {"pipe=5", "model=1", NULL, 0, {0}, 0},
                  {"pipe=3,data=2", "data=2", "zero1", 0, {0}, 0},
                  {"data=2,pipe=2", "data=2", "fsdp", 2, {2, 1, 1, 1}, 4},
                  {"pipe=2,model=3", "model=3", "megatron-sp", 1, {1, 4}, 2},
                  {"model=2,pipe=4", "model=2", "megatron", 0, {0}, 0}};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int k = 0; k < 8; k++) {
            if (!sweep_takes_thinned(6))
                continue;
            const clv_plan_schedule schedules[] = {
                CLV_SCHEDULE_DEFAULT, CLV_SCHEDULE_GPIPE,
                meshes[m].virtual_stages > 1 ? CLV_SCHEDULE_INTERLEAVED : CLV_SCHEDULE_AUTO, CLV_SCHEDULE_ZERO_BUBBLE};
            const clv_optimizer optimizers[] = {CLV_OPTIMIZER_ADAMW, CLV_OPTIMIZER_SGD, CLV_OPTIMIZER_LION};
            run_options with = {.mesh = meshes[m].with,
                                .rules = meshes[m].rules,
                                .dtype = k % 2 ? CLV_BF16 : CLV_F32,
                                .tied = k / 2 % 2,
                                .lora = k == 7,
                                .virtual_stages = meshes[m].virtual_stages,
                                .n_stages = meshes[m].n_stages,
                                .dropout = k == 3 ? 0.1 : 0,
                                .update = {.size = sizeof with.update,
                                           .clip = k % 3 == 0 ? 0.5 : 0,
                                           .optimizer = optimizers[k % 3],
                                           .accumulate = (int64_t[]){1, 2, 4}[(k + (int)m) % 3]},
                                .compile = {.schedule = schedules[k % 4],
                                            .recompute = k == 5 ? CLV_RECOMPUTE_FULL : 0,
                                            .overlap = k == 6}};
            memcpy(with.stage_layers, meshes[m].stage_layers, sizeof with.stage_layers);
            expect_same_run(&with, meshes[m].without);
        }
}

/* ---- checkpoints ---- */

static void checkpoint_moves(const char *from, const char *to, const char *where)
{
    const run_options a = {.mesh = from, .tied = true, .update = {.size = sizeof a.update, .clip = 1}};
    run_options b = a;
    b.mesh = to;
    clv_model *first = model_of(&a), *second = model_of(&b);
    clv_trainer *whole = trainer_of(first, &a), *resumed = trainer_of(second, &b);
    clv_resumed found = {.size = sizeof found};
    train(whole, 2);
    must(clv_trainer_checkpoint(whole, where, NULL, &err), &err);
    must(clv_trainer_resume(resumed, where, &found, &err), &err);
    assert_int_equal(found.steps, 2);
    assert_true(expect_session_state(clv_trainer_session(whole), clv_trainer_session(resumed), 0, to) > 40);
    clv_trainer_free(whole);
    clv_trainer_free(resumed);
    clv_model_close(first);
    clv_model_close(second);
}

static void test_checkpoints_of_any_mesh(void **state)
{
    const char *meshes[][2] = {{"model=4", "pipe=2,model=2"},
                               {"pipe=2,model=2", "model=4"},
                               {"pipe=4", "pipe=3"},
                               {"data=2,pipe=2", "pipe=5"}};
    for (int i = 0; i < 4; i++)
        checkpoint_moves(meshes[i][0], meshes[i][1], in_folder("%d", i));
}

/* ---- schedules ---- */

enum { STAGES = 4, PLANNED_LAYERS = 8 };

typedef struct planned {
    clv_plan_schedule schedule;
    int64_t microbatches, layers, vocab;
    int runs, stages;
    const int *stage_layers;   /* [runs * stages]; NULL: balanced */
    const char *mesh, *preset; /* NULL: stages alone */
    bool tied, no_sync;
    clv_recompute recompute;
} planned;

static clv_program *plan(const planned *p)
{
    clv_model *model;
    clv_program *program;
    clv_mesh mesh = {.n_axes = 1, .axis = {{.name = "pipe", .size = p->stages}}};
    clv_graph *graph;
    const clv_model_info sizes = {.hidden = 512,
                                  .layers = p->layers,
                                  .heads = 8,
                                  .ffn = 1024,
                                  .vocab = p->vocab,
                                  .tied_embeddings = p->tied,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1};
    clv_axis_rules rules;
    if (p->mesh)
        must(clv_mesh_parse(&mesh, p->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, p->preset, &mesh, &err), &err);
    must(clv_axis_rules_set_stages(&rules, &mesh, p->runs, p->stage_layers, p->stage_layers ? p->runs * p->stages : 0,
                                   &err),
         &err);
    const clv_model_options options = {
        .mesh = &mesh, .rules = &rules, .compile = {.schedule = p->schedule, .recompute = p->recompute}};
    must(clv_model_new(&model, &sizes, &options, &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    const clv_model_graph_options shape = {
        .size = sizeof shape, .batch = 32 / p->microbatches * p->microbatches, .seq = 64};
    clv_model_train_step(graph, model, &shape,
                         &(clv_update_options){.size = sizeof(clv_update_options),
                                               .accumulate = p->microbatches,
                                               .no_sync = p->no_sync && p->microbatches > 1});
    must(clv_compile(&program, graph, &options.compile, &err), &err);
    clv_graph_free(graph);
    clv_model_close(model);
    must(clv_program_verify(program, &err), &err);
    return program;
}

/* What runs beside a send is an op of the stages that send or receive. */
static void test_beside_sends(void **state)
{
    const planned p = {.microbatches = 8, .layers = STAGES, .vocab = 32, .runs = 1, .stages = STAGES};
    clv_program *program = plan(&p);
    int n = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        int layer;
        must(clv_program_collective(program, i, &c, &err), &err);
        if (strcmp(c.kind, "send") != 0 || c.type.rank == 0 || !c.beside || sscanf(c.beside, "layers.%d.", &layer) != 1)
            continue;
        if (!((c.from.stages | c.to.stages) >> layer & 1))
            fail_msg("beside a send for %s: %s", c.op, c.beside);
        n++;
    }
    assert_true(n > 8);
    clv_program_free(program);
}

/* The share of the time in which stages wait. memory: [stages] of activations. */
static double bubble_of_plan(const planned *p, int64_t *memory)
{
    clv_program *program = plan(p);
    double busy = 0, seconds = 0;
    assert_int_equal(clv_program_stages(program), p->stages);
    for (int s = 0; s < p->stages; s++) {
        clv_stage_info stage = {.size = sizeof stage};
        must(clv_program_stage(program, NULL, s, &stage, &err), &err);
        busy += stage.busy_seconds;
        seconds = stage.seconds;
        memory[s] = stage.memory.activations;
    }
    clv_prediction all = {.size = sizeof all};
    must(clv_program_predict(program, NULL, &all, &err), &err);
    assert_float_equal(all.seconds, seconds, 1e-9 * seconds);
    clv_program_free(program);
    return 1 - busy / (p->stages * seconds);
}

/* Of equal stages: layers are wide, and the vocabulary is small. */
static double bubble_of(clv_plan_schedule schedule, int64_t microbatches, int runs, int64_t *memory)
{
    const planned p = {.schedule = schedule,
                       .microbatches = microbatches,
                       .layers = PLANNED_LAYERS,
                       .vocab = 32,
                       .runs = runs,
                       .stages = STAGES};
    return bubble_of_plan(&p, memory);
}

/* GPipe and 1F1B wait (p-1) / (m+p-1) of the time, interleaved (p-1) / (vm+p-1); 1F1B holds p-s microbatches on stage
 * s, GPipe all; zero-bubble waits half as long as 1F1B from m = 2p on, and its largest stage holds as many. Auto takes
 * the fastest. No schedule is written down: the list scheduler arrives at them. */
static void test_bubbles_and_memory(void **state)
{
    for (int64_t m = 4; m <= 16; m *= 2) {
        int64_t gpipe[STAGES], plain[STAGES], zero[STAGES], otherwise[STAGES];
        const double known = (STAGES - 1.0) / ((double)m + STAGES - 1);
        assert_float_equal(bubble_of(CLV_SCHEDULE_GPIPE, m, 1, gpipe), known, 0.01);
        assert_float_equal(bubble_of(CLV_SCHEDULE_1F1B, m, 1, plain), known, 0.01);
        assert_float_equal(bubble_of(CLV_SCHEDULE_DEFAULT, m, 1, otherwise), known, 0.01);
        assert_memory_equal(otherwise, plain, sizeof plain);
        const double least = bubble_of(CLV_SCHEDULE_ZERO_BUBBLE, m, 1, zero);
        assert_true(least < (m < 8 ? 0.55 : 0.5) * known);
        assert_float_equal(bubble_of(CLV_SCHEDULE_AUTO, m, 1, otherwise), least, 0);
        assert_memory_equal(otherwise, zero, sizeof zero);
        assert_float_equal(bubble_of(CLV_SCHEDULE_INTERLEAVED, m, 2, otherwise),
                           (STAGES - 1.0) / (2 * (double)m + STAGES - 1), 0.01);
        for (int s = 0; s < STAGES; s++)
            assert_float_equal((double)plain[s] / (double)gpipe[s], (STAGES - s) / (double)m, 0.1);
        for (int s = 0; s < STAGES; s++)
            assert_true((double)zero[s] < 1.1 * (double)plain[0]);
    }
}

/* Beside other axes, in any order, of tied weights, with recomputation, of microbatches that do not divide into groups:
 * interleaved and gpipe wait about (p-1) / (vm+p-1) of the time, zero-bubble less. */
static void test_bubbles_beside_axes(void **state)
{
    static const struct {
        const char *mesh, *preset;
    } beside[] = {{"pipe=2", NULL},
                  {"data=2,pipe=2", "dp"},
                  {"pipe=2,data=2", "fsdp"},
                  {"pipe=2,data=2", "zero1"},
                  {"pipe=2,model=2", "megatron"},
                  {"model=2,pipe=2", "megatron-sp"},
                  {"pipe=2,data=2,model=2", "zero1+megatron-sp"},
                  {"data=2,pipe=2,model=2", "fsdp+megatron-sp"}};
    static const clv_plan_schedule schedules[] = {CLV_SCHEDULE_INTERLEAVED, CLV_SCHEDULE_ZERO_BUBBLE,
                                                  CLV_SCHEDULE_GPIPE};
    for (size_t k = 0; k < sizeof beside / sizeof *beside; k++)
        for (int n = 0; n < 6; n++) {
            if (!sweep_takes_thinned(7))
                continue;
            int64_t memory[2];
            const planned p = {.schedule = schedules[n % 3],
                               .microbatches = n % 2 ? 7 : 8,
                               .layers = 4,
                               .vocab = 32,
                               .runs = 2,
                               .stages = 2,
                               .mesh = beside[k].mesh,
                               .preset = beside[k].preset,
                               .tied = n / 2 % 2,
                               .no_sync = n == 4,
                               .recompute = n == 5 ? CLV_RECOMPUTE_FULL : CLV_RECOMPUTE_NONE};
            const double formula = 1 / (2 * (double)p.microbatches + 1), bubble = bubble_of_plan(&p, memory);
            if (!(bubble <= (p.schedule == CLV_SCHEDULE_ZERO_BUBBLE ? 0.85 * formula : formula + 0.025)))
                fail_msg("%s, %s, %s, %d microbatches%s: waits %.3f of the time, by the formula %.3f", p.mesh,
                         p.preset ? p.preset : "data parallel", clv_plan_schedule_name(p.schedule), (int)p.microbatches,
                         p.tied ? ", tied" : "", bubble, formula);
        }
}

/* Gradients that are reduced once a step, many against few tokens: no stage waits for reductions of the next one. */
static void test_no_stage_waits_for_reductions(void **state)
{
    static const clv_plan_schedule schedules[] = {CLV_SCHEDULE_1F1B, CLV_SCHEDULE_INTERLEAVED};
    for (int k = 0; k < 2; k++) {
        int64_t memory[STAGES];
        const planned p = {.schedule = schedules[k],
                           .microbatches = 4,
                           .layers = PLANNED_LAYERS,
                           .vocab = 32,
                           .runs = k + 1,
                           .stages = STAGES,
                           .mesh = "pipe=4,data=16",
                           .preset = "zero1",
                           .no_sync = true};
        const double formula = (STAGES - 1) / ((double)p.microbatches * p.runs + STAGES - 1);
        const double bubble = bubble_of_plan(&p, memory);
        if (bubble > formula + 0.025)
            fail_msg("%s waits %.3f of the time, by the formula %.3f", clv_plan_schedule_name(p.schedule), bubble,
                     formula);
    }
}

/* Of a large vocabulary the last stage has fewer layers, and the step is never predicted to take longer for it. */
static void test_balanced_stages(void **state)
{
    int faster = 0;
    for (int64_t layers = 6; layers <= 12; layers += 3)
        for (int64_t vocab = 32; vocab <= 32 << 9; vocab *= 8)
            for (int stages = 2; stages <= 4; stages += 2)
                for (int runs = 1; runs * stages <= layers && runs <= 2; runs++) {
                    double seconds[2];
                    int even[8];
                    for (int k = 0; k < runs * stages; k++)
                        even[k] = (int)((k + 1) * layers / (runs * stages) - k * layers / (runs * stages));
                    for (int i = 0; i < 2; i++) {
                        const planned p = {.microbatches = 8,
                                           .layers = layers,
                                           .vocab = vocab,
                                           .runs = runs,
                                           .stages = stages,
                                           .stage_layers = i ? even : NULL};
                        clv_program *program = plan(&p);
                        clv_prediction predicted = {.size = sizeof predicted};
                        must(clv_program_predict(program, NULL, &predicted, &err), &err);
                        seconds[i] = predicted.seconds;
                        clv_program_free(program);
                    }
                    faster += seconds[0] < 0.9 * seconds[1];
                    if (!(seconds[0] <= 1.001 * seconds[1]))
                        fail_msg("%lld layers, vocab %lld, %d stages of %d: %g s, even %g s", (long long)layers,
                                 (long long)vocab, stages, runs, seconds[0], seconds[1]);
                }
    assert_true(faster > 5);
}

/* What a planned step needs of the largest stage, and its predicted seconds. */
static double measure_step(const clv_plan_options *o, double *seconds)
{
    clv_program *program;
    clv_prediction predicted = {.size = sizeof predicted};
    clv_memory memory = {.size = sizeof memory};
    must(clv_plan_compile(&program, o, &err), &err);
    must(clv_program_predict(program, NULL, &predicted, &err), &err);
    must(clv_program_memory(program, &memory, &err), &err);
    *seconds = predicted.seconds;
    clv_program_free(program);
    return (double)memory.total;
}

/* The next way to split layers over n runs; false: there is none. */
static bool next_split(int *layers, int n)
{
    for (int i = n - 1; i > 0; i--)
        if (layers[i] > 1) {
            const int left = layers[i] - 1;
            layers[i] = 1;
            layers[i - 1]++;
            layers[n - 1] = left;
            return true;
        }
    return false;
}

/* What auto compiles is the fastest that fits of schedules whose stages are fitted one by one. */
static void expect_best_schedule(const clv_plan_options *options)
{
    static const clv_plan_schedule schedules[] = {CLV_SCHEDULE_1F1B, CLV_SCHEDULE_ZERO_BUBBLE, CLV_SCHEDULE_GPIPE};
    clv_plan_options o = *options;
    const double limit = (double)o.compile.memory_limit;
    double fastest = INFINITY, seconds;
    for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
        o.compile.schedule = schedules[s];
        if (measure_step(&o, &seconds) <= limit)
            fastest = fmin(fastest, seconds);
    }
    o.compile.schedule = CLV_SCHEDULE_AUTO;
    const double needed = measure_step(&o, &seconds);
    if (isfinite(fastest) && !(needed <= limit && seconds == fastest))
        fail_msg("limit %.0f: auto needs %.0f and %g s, the best schedule takes %g s", limit, needed, seconds, fastest);
}

/* Where the stages of one split need less memory than those by time, stages within that limit are found; of one run
 * each under every limit that a split keeps, and little slower than the fastest of these splits. */
static void expect_within_memory(const char *mesh_text, int runs, int layers, int hidden, int vocab)
{
    enum { SPLITS = 64 };
    double bytes[SPLITS], seconds[SPLITS], took;
    int n = 0, moved = 0, split[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    clv_mesh mesh;
    clv_axis_rules rules;
    FILE *file = fopen(in_folder("config.json"), "we");
    assert_non_null(file);
    fprintf(file,
            "{\"model_type\": \"llama\", \"hidden_size\": %d, \"num_hidden_layers\": %d, \"num_attention_heads\": 4, "
            "\"intermediate_size\": %d, \"vocab_size\": %d, \"max_position_embeddings\": 256, \"hidden_act\": "
            "\"silu\", \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": %s}",
            hidden, layers, hidden == 64 ? 32 : 2 * hidden, vocab, hidden == 64 ? "true" : "false");
    assert_int_equal(fclose(file), 0);
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, NULL, &mesh, &err), &err);
    clv_plan_options o = {
        .size = sizeof o, .model = folder, .mesh = &mesh, .rules = &rules, .batch = 8, .seq = 128, .accumulate = 8};
    const int all = (int)mesh.axis[0].size * runs;
    split[all - 1] = layers - all + 1;
    do {
        must(clv_axis_rules_set_stages(&rules, &mesh, runs, split, all, &err), &err);
        assert_true(n < SPLITS);
        bytes[n] = measure_step(&o, &seconds[n]);
        n++;
    } while (next_split(split, all));
    must(clv_axis_rules_set_stages(&rules, &mesh, runs, NULL, 0, &err), &err);
    const double without = measure_step(&o, &took);
    for (int i = 0; i < n; i += sweep_is_thin() ? 6 : 1) {
        double fastest = INFINITY;
        for (int k = 0; k < n; k++)
            fastest = bytes[k] <= bytes[i] && seconds[k] < fastest ? seconds[k] : fastest;
        o.compile.memory_limit = (int64_t)bytes[i];
        const double needed = measure_step(&o, &took);
        if (runs == 1 && !(needed <= bytes[i] && took <= 1.1 * fastest))
            fail_msg("%s, limit %.0f: needs %.0f and %g s; a split that fits takes %g s", mesh_text, bytes[i], needed,
                     took, fastest);
        moved += needed < without;
        if (i % 6 == 0)
            expect_best_schedule(&o);
    }
    assert_true(moved > 0 || sweep_is_thin());
}

static void test_stages_within_memory(void **state)
{
    expect_within_memory("pipe=3", 1, 8, 128, 1024);
    expect_within_memory("pipe=3", 1, 8, 64, 1500); /* a table as large as many layers, on both ends */
    expect_within_memory("pipe=2", 2, 7, 128, 1024);
}

/* ---- plans ---- */

/* What is counted is what a session has, and every stage has its own. */
static void test_plans_are_exact(void **state)
{
    const run_options o = {
        .mesh = "pipe=4,model=2", .tied = true, .update = {.size = sizeof o.update, .accumulate = 4}};
    clv_model *model = model_of(&o);
    clv_trainer *trainer = trainer_of(model, &o);
    const clv_program *program = clv_trainer_program(trainer);
    clv_memory whole = {.size = sizeof whole};
    int64_t most = 0, parameters = 0;
    for (int s = 0; s < 4; s++) {
        clv_stage_info stage = {.size = sizeof stage};
        must(clv_program_stage(program, NULL, s, &stage, &err), &err);
        most = stage.memory.total > most ? stage.memory.total : most;
        parameters += stage.memory.parameters;
        assert_true(stage.sends > 0 && stage.busy_seconds > 0 && stage.busy_seconds < stage.seconds);
    }
    must(clv_program_memory(program, &whole, &err), &err);
    assert_int_equal(whole.total, most);
    assert_int_equal(clv_session_rank_bytes(clv_trainer_session(trainer)), most);
    assert_true(whole.parameters < parameters / 2);
    clv_stage_info none = {.size = sizeof none};
    assert_int_equal(clv_program_stage(program, NULL, 4, &none, &err), CLV_EINVAL);
    clv_trainer_free(trainer);
    clv_model_close(model);
}

/* Activations go forward, cotangents back; each send says why it is there. */
static void test_sends(void **state)
{
    const run_options o = {.mesh = "pipe=2", .update = {.size = sizeof o.update}};
    clv_model *model = model_of(&o);
    clv_trainer *trainer = trainer_of(model, &o);
    const clv_program *program = clv_trainer_program(trainer);
    int forward = 0, backward = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        if (strcmp(c.kind, "send") != 0 || c.type.rank == 0)
            continue;
        assert_true(c.bytes == (double)clv_type_elems(&c.type) * 4 && c.from.stages != c.to.stages);
        forward += c.from.stages == 1 && !c.backward &&
                   strstr(c.cause, "activations from stage 0 to stage 1, for layers.2.") == c.cause;
        backward += c.from.stages == 2 && c.backward &&
                    strstr(c.cause, "cotangents from stage 1 to stage 0, for layers.1.") == c.cause;
    }
    assert_int_equal(forward, 1);
    assert_int_equal(backward, 1);
    clv_trainer_free(trainer);
    clv_model_close(model);
}

/* Sends of activations and cotangents are carried in --comm-dtype; the gradient of tied embeddings, by which two stages
 * update their copies, is not. Schedules still make the same bits. */
static void test_compressed_sends(void **state)
{
    const clv_comm_dtype wires[] = {CLV_COMM_BF16, CLV_COMM_F16, CLV_COMM_Q8};
    const clv_dtype dtypes[] = {CLV_BF16, CLV_F16, CLV_U8};
    for (int w = 0; w < 3; w++) {
        run_options o = {.mesh = "pipe=3,model=2",
                         .tied = true,
                         .update = {.size = sizeof o.update, .accumulate = 4},
                         .compile = {.comm_dtype = wires[w], .schedule = CLV_SCHEDULE_GPIPE}},
                    other = o;
        other.compile.schedule = CLV_SCHEDULE_ZERO_BUBBLE;
        clv_model *models[] = {model_of(&o), model_of(&other)};
        clv_trainer *trainers[] = {trainer_of(models[0], &o), trainer_of(models[1], &other)};
        const clv_program *program = clv_trainer_program(trainers[0]);
        int narrow = 0, whole = 0;
        for (int i = 0; i < clv_program_collective_count(program); i++) {
            clv_collective c = {.size = sizeof c};
            must(clv_program_collective(program, i, &c, &err), &err);
            if (strcmp(c.kind, "send") != 0 || c.type.rank == 0)
                continue;
            assert_int_equal(c.type.dtype, c.type.rank == 3 ? dtypes[w] : CLV_F32);
            narrow += c.type.rank == 3;
            whole += c.type.rank == 2;
        }
        assert_int_equal(narrow, 4 * 2 * 2);
        assert_true(whole > 0);
        must(clv_program_verify(program, &err), &err);
        for (int i = 0; i < 2; i++)
            train(trainers[i], STEPS);
        assert_true(expect_session_state(clv_trainer_session(trainers[0]), clv_trainer_session(trainers[1]), 0,
                                         "compressed") > 40);
        for (int i = 0; i < 2; i++) {
            clv_trainer_free(trainers[i]);
            clv_model_close(models[i]);
        }
    }
}

/* ---- the checker ---- */

static clv_instruction *find_send(const clv_program *program)
{
    for (int i = 0; i < program->n_instructions; i++)
        if (!program->instructions[i].op && program->instructions[i].step->kind == CLV_STEP_SEND)
            return &program->instructions[i];
    return NULL;
}

static void expect_refused(clv_program *program, const char *why)
{
    clv_error fault = {0};
    assert_int_equal(clv_program_verify(program, &fault), CLV_EINVAL);
    if (!strstr(fault.message, why))
        fail_msg("%s\nis not\n%s", fault.message, why);
}

static void test_checker_of_schedules(void **state)
{
    const planned p = {.microbatches = 4, .layers = PLANNED_LAYERS, .vocab = 32, .runs = 1, .stages = STAGES};
    clv_program *program = plan(&p);
    clv_instruction *send = find_send(program), kept = *send;
    clv_group_axes *group = &program->groups[send->group], group_kept = *group;
    clv_layout *in = &program->buffers[send->in[0]].layout, in_kept = *in;
    send->stages = 1; /* nobody receives */
    expect_refused(program, "sends or receives, and does not run it");
    send->stages = 15;
    expect_refused(program, "neither sends nor receives");
    *send = kept;
    group->to = 8;
    expect_refused(program, "is no member of its group");
    *group = group_kept;
    in->stages = 8; /* made on stage 0 */
    expect_refused(program, "");
    *in = in_kept;
    must(clv_program_verify(program, &err), &err);
    clv_program_free(program);
}

/* ---- layouts ---- */

static void test_layouts_with_stages(void **state)
{
    clv_mesh mesh;
    clv_layout layout, parsed;
    char text[CLV_LAYOUT_TEXT];
    const int64_t shape[] = {6, 4};
    must(clv_mesh_parse(&mesh, "pipe=3,model=2", &err), &err);
    must(clv_layout_parse(&layout, "model,_", &mesh, 2, &err), &err);
    must(clv_layout_set_stages(&layout, &mesh, 0, 5, &err), &err);
    clv_layout_print(text, sizeof text, &layout, &mesh);
    assert_string_equal(text, "model,_ @pipe{0,2}");
    must(clv_layout_parse(&parsed, text, &mesh, 2, &err), &err);
    assert_true(clv_layout_equal(&layout, &parsed) && clv_layout_same_shards(&layout, &parsed, &mesh, shape));
    for (int r = 0; r < 6; r++) {
        clv_shard shard = clv_layout_shard(&layout, &mesh, shape, r);
        assert_int_equal(clv_layout_has_rank(&layout, &mesh, r), r / 2 != 1);
        assert_int_equal(clv_shard_elems(&shard), r / 2 == 1 ? 0 : 12);
    }
    must(clv_layout_set_stages(&parsed, &mesh, 0, 7, &err), &err); /* all: none is stated */
    clv_layout_print(text, sizeof text, &parsed, &mesh);
    assert_string_equal(text, "model,_");
    assert_false(clv_layout_equal(&layout, &parsed) || clv_layout_same_shards(&layout, &parsed, &mesh, shape));
    assert_int_equal(clv_layout_set_stages(&layout, &mesh, 0, 8, &err), CLV_EINVAL);
    assert_int_equal(clv_layout_set_stages(&layout, &mesh, 0, 0, &err), CLV_EINVAL);
    assert_int_equal(clv_layout_set_stages(&layout, &mesh, 1, 1, &err), CLV_EAXIS);
    assert_int_equal(clv_layout_set_stages(&layout, &mesh, 2, 1, &err), CLV_EAXIS);
    assert_int_equal(clv_layout_parse(&parsed, "_ @pipe{3}", &mesh, 1, &err), CLV_EINVAL);
    assert_int_equal(clv_layout_parse(&parsed, "_ @tape{0}", &mesh, 1, &err), CLV_EAXIS);
    assert_int_equal(clv_layout_parse(&parsed, "_ @pipe{0", &mesh, 1, &err), CLV_ESYNTAX);
}

/* ---- bad input ---- */

static void expect_graph_fails(clv_graph *graph, clv_status status, const char *why)
{
    clv_error fault = {0};
    assert_int_equal(clv_graph_status(graph, &fault), status);
    assert_non_null(strstr(fault.message, why));
    clv_graph_free(graph);
}

static void test_refused(void **state)
{
    clv_graph *graph = must_graph("pipe=2,model=2");
    clv_graph_set_stage(graph, "pipe", 2);
    expect_graph_fails(graph, CLV_EINVAL, "stages 0x4 of axis pipe");
    graph = must_graph("pipe=2,model=2");
    clv_graph_set_stage(graph, "pipe", 0);
    clv_graph_set_stage(graph, "model", 0);
    expect_graph_fails(graph, CLV_EAXIS, "the graph has stages of axis 'pipe'");
    graph = must_graph("pipe=33");
    clv_graph_set_stage(graph, "pipe", 0);
    expect_graph_fails(graph, CLV_EAXIS, "at most 32");

    clv_program *program;
    err = (clv_error){0};
    clv_layout layout = clv_layout_replicated(1);
    graph = must_graph("pipe=2");
    must(clv_layout_shard_dim(&layout, clv_graph_mesh(graph), 0, clv_mesh_whole_axis(clv_graph_mesh(graph), 0), &err),
         &err);
    clv_value x = clv_input(graph, "x", CLV_F32, 1, (int64_t[]){4}, &layout);
    clv_graph_set_stage(graph, "pipe", 1);
    clv_output(graph, "y", clv_add(graph, x, x), NULL);
    assert_int_equal(clv_compile(&program, graph, NULL, &err), CLV_EAXIS);
    assert_non_null(strstr(err.message, "x: a layout may not name the axis of pipeline stages"));
    clv_graph_free(graph);

    graph = must_graph("pipe=2");
    const clv_compile_options interleaved = {.size = sizeof interleaved, .schedule = CLV_SCHEDULE_INTERLEAVED};
    err = (clv_error){0};
    assert_int_equal(clv_compile(&program, graph, &interleaved, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "schedule interleaved of a graph without pipeline stages"));
    clv_graph_free(graph);

    const run_options deep = {.mesh = "pipe=8", .update = {.size = sizeof deep.update}};
    const clv_lr_schedule schedule = {.peak = 1e-2, .steps = 10};
    const clv_trainer_options options = {.size = sizeof options, .batch = 1, .seq = 4, .schedule = &schedule};
    clv_model *model = model_of(&deep);
    clv_trainer *trainer;
    err = (clv_error){0};
    assert_int_equal(clv_trainer_new(&trainer, model, &options, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "axis 'pipe' of 8 stages for 5 layers; valid: 1 to 5"));
    clv_model_close(model);
}

static void expect_stages(const char *mesh_text, int runs, const int *layers, int n, clv_status status, const char *why)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_error fault = {0};
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, NULL, &mesh, &err), &err);
    assert_int_equal(clv_axis_rules_set_stages(&rules, &mesh, runs, layers, n, &fault), status);
    if (!strstr(fault.message, why))
        fail_msg("%s\nis not\n%s", fault.message, why);
}

static void test_refused_stages(void **state)
{
    expect_stages("pipe=4", 1, (int[]){8, 8, 9, 7}, 4, CLV_OK, "");
    expect_stages("pipe=2", 2, (int[]){8, 8, 9, 7}, 4, CLV_OK, "");
    expect_stages("pipe=2", 1, (int[]){8, 8, 9, 7}, 4, CLV_EINVAL, "or as many virtual stages (--virtual-stages)");
    expect_stages("pipe=4", 1, (int[]){8, 8, 9}, 3, CLV_EINVAL, "layers of 3 stages for 4 of axis 'pipe'");
    expect_stages("pipe=2", 1, (int[]){8, 0}, 2, CLV_EINVAL, "stage 1 of 0 layers; valid: 1 or more");
    expect_stages("pipe=2", 0, NULL, 0, CLV_EINVAL, "0 virtual stages; valid: 1 or more");
    expect_stages("pipe=32", 9, NULL, 0, CLV_ELIMIT, "at most 256 of all");
    expect_stages("data=2", 2, NULL, 0, CLV_EAXIS, "without an axis of stages");

    clv_model *model;
    clv_trainer *trainer;
    const clv_lr_schedule schedule = {.peak = 1e-2, .steps = 10};
    const clv_trainer_options options = {.size = sizeof options, .batch = 1, .seq = 4, .schedule = &schedule};
    const run_options wrong = {.mesh = "pipe=2", .virtual_stages = 1, .stage_layers = {2, 2}, .n_stages = 2};
    err = (clv_error){0};
    model = model_of(&wrong);
    assert_int_equal(clv_trainer_new(&trainer, model, &options, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "stages of 4 layers together, of a model of 5"));
    clv_model_close(model);

    run_options interleaved = {.mesh = "pipe=2", .compile.schedule = CLV_SCHEDULE_INTERLEAVED};
    err = (clv_error){0};
    model = model_of(&interleaved);
    assert_int_equal(clv_trainer_new(&trainer, model, &options, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "the schedule interleaved of stages with one run of layers each"));
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_checkpoints_of_any_mesh),
                                       cmocka_unit_test(test_bubbles_and_memory),
                                       cmocka_unit_test(test_bubbles_beside_axes),
                                       cmocka_unit_test(test_no_stage_waits_for_reductions),
                                       cmocka_unit_test(test_balanced_stages),
                                       cmocka_unit_test(test_stages_within_memory),
                                       cmocka_unit_test(test_plans_are_exact),
                                       cmocka_unit_test(test_sends),
                                       cmocka_unit_test(test_beside_sends),
                                       cmocka_unit_test(test_compressed_sends),
                                       cmocka_unit_test(test_checker_of_schedules),
                                       cmocka_unit_test(test_layouts_with_stages),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_refused_stages)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
