/* test_context.c - a mesh axis context: training steps with the sequence split are those of one rank, whatever
 * attention does; checkpoints move between meshes; plans are exact, and activations divide by the ranks. */
#include <math.h>
#include <string.h>

#include "cleave/plan.h"
#include "cleave/train.h"
#include "must.h"
#include "program/program.h"
#include "session_state.h"
#include "slow_link_machine.h"
#include "sweep.h"
#include "temp_folder.h"

enum { BATCH = 4, SEQ = 13, STEPS = 3, VOCAB = 40, LAYERS = 2 };

static clv_error err;

/* ---- training ---- */

typedef struct run_options {
    const char *mesh, *rules;
    clv_dtype dtype;
    int64_t heads, kv_heads; /* heads 0: 6 */
    bool padded;
    double dropout;
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
                                  .heads = o->heads ? o->heads : 6,
                                  .kv_heads = o->kv_heads,
                                  .ffn = 30,
                                  .vocab = VOCAB,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1};
    must(clv_mesh_parse(&mesh, o->mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, o->rules, &mesh, &err), &err);
    const clv_model_options options = {.mesh = &mesh, .rules = &rules, .dtype = o->dtype, .compile = o->compile};
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
                                         .padding_mask = o->padded,
                                         .dropout = o->dropout,
                                         .attention_dropout = o->dropout};
    must(clv_trainer_new(&trainer, model, &options, &err), &err);
    return trainer;
}

/* Row r has r * 3 padded positions, the first r on the left. Returns the loss of an evaluation after the steps. */
static double train(clv_trainer *trainer, const run_options *o, int steps)
{
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    uint8_t mask[BATCH * SEQ];
    double loss;
    for (int s = 0; s <= steps; s++) {
        const int64_t step = clv_trainer_steps_done(trainer);
        for (int i = 0; i < BATCH * SEQ; i++) {
            const int r = i / SEQ, at = i % SEQ;
            ids[i] = (int32_t)((i * 7 + step * 11) % VOCAB);
            mask[i] = at >= r && at < SEQ - 2 * r;
            labels[i] = i % 5 == 4 || (o->padded && !mask[i]) ? CLV_IGNORE_INDEX : (int32_t)((i * 3 + step) % VOCAB);
        }
        if (s < steps)
            must(clv_trainer_step(trainer, ids, labels, o->padded ? mask : NULL, NULL, &err), &err);
    }
    must(clv_trainer_loss(trainer, ids, labels, o->padded ? mask : NULL, &loss, &err), &err);
    return loss;
}

/* How many blocks go on to the next rank of a ring. */
static int permutes(const clv_program *program, clv_dtype dtype)
{
    int n = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        n += strcmp(c.kind, "permute") == 0 && c.type.dtype == dtype && strstr(c.cause, "go around a ring") != NULL;
    }
    return n;
}

/* On the mesh and on one rank. Returns the number of permutes of rings. */
static int expect_one_ranks_run(const run_options *split)
{
    run_options whole = *split;
    whole.mesh = "model=1";
    whole.rules = NULL;
    char where[128];
    snprintf(where, sizeof where, "%s by %s, %lld KV heads", split->mesh, split->rules, (long long)split->kv_heads);
    clv_model *models[] = {model_of(split), model_of(&whole)};
    clv_trainer *trainers[] = {trainer_of(models[0], split), trainer_of(models[1], &whole)};
    const double loss = train(trainers[0], split, STEPS), want = train(trainers[1], &whole, STEPS);
    must(clv_program_verify(clv_trainer_program(trainers[0]), &err), &err);
    assert_true(expect_session_state(clv_trainer_session(trainers[1]), clv_trainer_session(trainers[0]), 1e-9, where) >
                20);
    if (!(fabs(loss - want) <= 1e-9 * want))
        fail_msg("%s: the loss of an evaluation is %.12g, expected %.12g", where, loss, want);
    const int passed_on = permutes(clv_trainer_program(trainers[0]), split->dtype);
    for (int i = 0; i < 2; i++) {
        clv_trainer_free(trainers[i]);
        clv_model_close(models[i]);
    }
    return passed_on;
}

static void test_one_ranks_results(void **state)
{
    static const struct {
        const char *mesh, *rules;
    } meshes[] = {{"context=2", "dp"},
                  {"context=3", "fsdp"},
                  {"context=7", "zero1"},
                  {"data=2,context=2", "fsdp"},
                  {"context=4,model=2", "megatron"},
                  {"context=2,model=3", "megatron-sp"},
                  {"pipe=2,context=2,data=2", "zero1"},
                  {"model=2,context=5", "zero1+megatron-sp"}};
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int k = 0; k < 6; k++) {
            if (!sweep_takes_thinned(5))
                continue;
            const run_options split = {.mesh = meshes[m].mesh,
                                       .rules = meshes[m].rules,
                                       .dtype = CLV_F64,
                                       .kv_heads = (int64_t[]){6, 3, 1}[(k + (int)m) % 3],
                                       .padded = k % 2,
                                       .dropout = k == 2 || k == 5 ? 0.1 : 0,
                                       .update = {.size = sizeof split.update,
                                                  .clip = k == 4 ? 0.5 : 0,
                                                  .accumulate = (int64_t[]){1, 2}[k == 1 || k == 4]},
                                       .compile = {.recompute = k == 3   ? CLV_RECOMPUTE_FULL
                                                                : k == 4 ? CLV_RECOMPUTE_SELECTIVE
                                                                         : CLV_RECOMPUTE_NONE,
                                                   .reshard_after_forward = k == 5 ? CLV_RESHARD_ALL : 0,
                                                   .overlap = k == 2}};
            assert_int_equal(expect_one_ranks_run(&split), 0);
        }
}

/* Blocks of keys and values go around a ring where ops take long enough to hide it: in sequences of 13 tokens, which
 * ranks never share evenly, of which a microbatch has too few for all ranks. Of each layer P - 1 blocks go on in the
 * forward pass (and where it is repeated), and in the backward pass, and P gradients of blocks. */
static void test_rings(void **state)
{
    static const struct {
        const char *mesh, *rules;
        int ranks, accumulate;
    } meshes[] = {{"context=2", "dp", 2, 4},
                  {"context=3", "fsdp", 3, 1},
                  {"context=7", "dp", 7, 2},
                  {"data=2,context=2", "fsdp", 2, 2},
                  {"context=5,model=2", "megatron", 5, 1},
                  {"pipe=2,context=3", "zero1", 3, 2}};
    clv_machine *machine = must_slow_ops();
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
        for (int k = 0; k < 4; k++) {
            if (!sweep_takes_thinned(3))
                continue;
            const run_options split = {.mesh = meshes[m].mesh,
                                       .rules = meshes[m].rules,
                                       .dtype = CLV_F64,
                                       .heads = 1 + (k % 2 && meshes[m].ranks > 2),
                                       .kv_heads = 1,
                                       .padded = k < 2,
                                       .dropout = k == 1 || k == 2 ? 0.1 : 0,
                                       .update = {.size = sizeof split.update, .accumulate = meshes[m].accumulate},
                                       .compile = {.recompute = k == 1   ? CLV_RECOMPUTE_FULL
                                                                : k == 2 ? CLV_RECOMPUTE_SELECTIVE
                                                                         : CLV_RECOMPUTE_NONE,
                                                   .reshard_after_forward = k == 3 ? CLV_RESHARD_ALL : 0,
                                                   .greedy_by_size_limit = k == 3, /* place by time */
                                                   .overlap = true,
                                                   .machine = machine}};
            const int p = meshes[m].ranks, forward = k == 1 ? 2 : 1;
            const int each = forward * (p - 1) + p - 1 + p;
            assert_int_equal(expect_one_ranks_run(&split), LAYERS * meshes[m].accumulate * each);
        }
    clv_machine_free(machine);
}

/* ---- checkpoints ---- */

static void test_checkpoints_of_any_mesh(void **state)
{
    static const char *const meshes[][2] = {
        {"context=4", "data=3"}, {"model=2", "context=3"}, {"data=2,context=2", "context=2,model=2"}};
    for (int i = 0; i < 3; i++) {
        const run_options a = {
            .mesh = meshes[i][0], .dtype = CLV_F32, .kv_heads = 3, .update = {.size = sizeof a.update}};
        run_options b = a;
        b.mesh = meshes[i][1];
        clv_model *first = model_of(&a), *second = model_of(&b);
        clv_trainer *whole = trainer_of(first, &a), *resumed = trainer_of(second, &b);
        train(whole, &a, 2);
        must(clv_trainer_checkpoint(whole, in_folder("%d", i), NULL, &err), &err);
        must(clv_trainer_resume(resumed, in_folder("%d", i), NULL, &err), &err);
        assert_true(expect_session_state(clv_trainer_session(whole), clv_trainer_session(resumed), 0, b.mesh) > 20);
        clv_trainer_free(whole);
        clv_trainer_free(resumed);
        clv_model_close(first);
        clv_model_close(second);
    }
}

/* ---- plans ---- */

static void test_plans_are_exact(void **state)
{
    clv_machine *machine = must_slow_ops();
    for (int ring = 0; ring < 2; ring++) {
        const run_options o = {.mesh = ring ? "context=3,model=2" : "context=4,model=2",
                               .dtype = CLV_F32,
                               .heads = ring ? 2 : 6,
                               .kv_heads = ring ? 2 : 3,
                               .update = {.size = sizeof o.update},
                               .compile = {.overlap = ring, .machine = ring ? machine : NULL}};
        clv_model *model = model_of(&o);
        clv_trainer *trainer = trainer_of(model, &o);
        clv_memory planned = {.size = sizeof planned};
        must(clv_program_memory(clv_trainer_program(trainer), &planned, &err), &err);
        assert_int_equal(clv_session_rank_bytes(clv_trainer_session(trainer)), planned.total);
        assert_int_equal(permutes(clv_trainer_program(trainer), CLV_F32) > 0, ring);
        clv_trainer_free(trainer);
        clv_model_close(model);
    }
    clv_machine_free(machine);
}

/* A step of 4 layers, 1024 wide, without weights. window 0: none. overlap_on: the machine, for a step of bf16 with
 * overlap; NULL: f32 without. */
static clv_program *plan(const char *mesh_text, int64_t heads, int64_t kv_heads, int64_t seq,
                         clv_reshard_after_forward reshard, int64_t window, const clv_machine *overlap_on)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *program;
    char in_text[24];
    snprintf(in_text, sizeof in_text, "%lld", (long long)window);
    const char *config = in_folder("%lld-%lld-%s.json", (long long)heads, (long long)kv_heads, in_text);
    FILE *file = fopen(config, "w");
    assert_non_null(file);
    fprintf(
        file,
        "{\"model_type\": \"mistral\", \"sliding_window\": %s, \"hidden_size\": 1024, \"intermediate_size\": 4096, "
        "\"num_hidden_layers\": 4, \"num_attention_heads\": %lld, \"num_key_value_heads\": %lld, \"vocab_size\": 4096, "
        "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0}",
        window > 0 ? in_text : "null", (long long)heads, (long long)kv_heads);
    fclose(file);
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, "dp", &mesh, &err), &err);
    must(clv_plan_compile(
             &program,
             &(clv_plan_options){
                 .size = sizeof(clv_plan_options),
                 .model = config,
                 .mesh = &mesh,
                 .rules = &rules,
                 .batch = 1,
                 .seq = seq,
                 .dtype = overlap_on ? CLV_BF16 : CLV_F32,
                 .compile = {.reshard_after_forward = reshard, .overlap = overlap_on != NULL, .machine = overlap_on}},
             &err),
         &err);
    return program;
}

/* What is kept for the backward pass, gathered or not. */
static double activations(const char *mesh, int64_t kv_heads, clv_reshard_after_forward reshard)
{
    clv_program *program = plan(mesh, 8, kv_heads, 131072, reshard, 0, NULL);
    clv_memory memory = {.size = sizeof memory};
    must(clv_program_memory(program, &memory, &err), &err);
    clv_program_free(program);
    return (double)(memory.activations + memory.gathered);
}

/* With 1/8 of the KV heads on a rank, or a half of them to gather again; more copies are more than that. */
static void test_activations_divide_by_the_ranks(void **state)
{
    for (int64_t kv_heads = 1; kv_heads <= 8; kv_heads *= 2) {
        const double whole = activations("data=1", kv_heads, CLV_RESHARD_WEIGHTS);
        const double all = activations("context=8", kv_heads, CLV_RESHARD_ALL);
        const double kept = activations("context=8", kv_heads, CLV_RESHARD_WEIGHTS);
        assert_true(all <= 1.1 / 8 * whole && all <= kept);
        assert_true(kept <= (kv_heads >= 4 ? 1.1 : 1.15) / 8 * whole);
    }
}

/* Of each layer 7 of 8 ranks' blocks come by a permute each, in the forward pass and again in the backward pass, where
 * the 8 f32 sums of a block's gradients go around, too. No rank keeps another's keys and values. */
static void test_rings_move_and_keep_blocks(void **state)
{
    enum { SEQ_LONG = 131072, RING = 8, DEEP = 4 };
    const double block = (double)SEQ_LONG / RING * 2 * 512; /* keys and values of one head of two */
    clv_machine *machine = must_slow_ops();
    double bytes[2] = {0}, kept[2];
    for (int split = 0; split < 2; split++) {
        clv_program *program = plan(split ? "context=8" : "data=1", 2, 1, SEQ_LONG, CLV_RESHARD_WEIGHTS, 0, machine);
        clv_memory memory = {.size = sizeof memory};
        must(clv_program_memory(program, &memory, &err), &err);
        kept[split] = (double)(memory.activations + memory.gathered);
        for (int i = 0; i < clv_program_collective_count(program); i++) {
            clv_collective c = {.size = sizeof c};
            must(clv_program_collective(program, i, &c, &err), &err);
            if (strcmp(c.kind, "permute") == 0)
                bytes[c.backward] += c.bytes;
            assert_true(strcmp(c.kind, "permute") != 0 || c.purpose == CLV_PURPOSE_CONTEXT_PARALLEL);
        }
        clv_program_free(program);
    }
    clv_machine_free(machine);
    assert_true(bytes[0] == DEEP * (RING - 1) * block * 2);
    assert_true(bytes[1] == DEEP * ((RING - 1) * block * 2 + RING * block * 4));
    assert_true(kept[1] <= 1.1 / RING * kept[0]);
}

/* Most blocks are out of sight of a window. */
static void test_no_ring_for_windows(void **state)
{
    clv_machine *machine = must_slow_ops();
    for (int windows = 0; windows < 2; windows++) {
        clv_program *program = plan("context=8", 2, 1, 16384, CLV_RESHARD_WEIGHTS, windows ? 1024 : 0, machine);
        assert_int_equal(permutes(program, CLV_BF16) > 0, !windows);
        clv_program_free(program);
    }
    clv_machine_free(machine);
}

/* Causal attention is equal work on all ranks, also where they split positions: the rank with the end of the sequence
 * would have (2 - 1/8) times as much. */
static void test_ranks_have_equal_work(void **state)
{
    const char *const meshes[] = {"data=1", "context=8"};
    double flops[2];
    for (int i = 0; i < 2; i++) {
        clv_program *program = plan(meshes[i], 2, 1, 131072, CLV_RESHARD_WEIGHTS, 0, NULL);
        clv_prediction predicted = {.size = sizeof predicted};
        must(clv_program_predict(program, NULL, &predicted, &err), &err);
        flops[i] = predicted.flops;
        clv_program_free(program);
    }
    assert_true(flops[1] >= flops[0] / 8 && flops[1] <= 1.001 * flops[0] / 8);
}

/* How often attention's exchange is of a kind. */
static int count(const clv_program *program, const char *kind)
{
    int n = 0;
    for (int i = 0; i < clv_program_collective_count(program); i++) {
        clv_collective c = {.size = sizeof c};
        must(clv_program_collective(program, i, &c, &err), &err);
        n += c.purpose == CLV_PURPOSE_CONTEXT_PARALLEL && strcmp(c.kind, kind) == 0;
        assert_true(c.purpose != CLV_PURPOSE_RESHARDING && c.purpose != CLV_PURPOSE_SEQUENCE_PARALLEL);
    }
    return n;
}

/* Heads are exchanged for positions where there are enough for all ranks, as attention is then equal on all; keys and
 * values are gathered where there are not. The embedding's gradient exchanges width for positions. */
static void test_exchanges_by_price(void **state)
{
    clv_program *program = plan("context=8", 8, 8, 4096, CLV_RESHARD_WEIGHTS, 0, NULL);
    assert_int_equal(count(program, "all_to_all"), 6 * 4 + 1);
    assert_int_equal(count(program, "all_gather"), 0);
    clv_program_free(program);
    program = plan("context=8", 2, 1, 4096, CLV_RESHARD_WEIGHTS, 0, NULL);
    assert_int_equal(count(program, "all_to_all"), 1);
    assert_true(count(program, "all_gather") == 4 && count(program, "reduce_scatter") == 4);
    clv_program_free(program);
}

/* ---- caches ---- */

enum { ROWS = 3, CACHED = 7, WIDTH = 24 };

typedef enum attention_kind { MASKED, MASKED_LATENT, BIDIRECTIONAL, KINDS } attention_kind;

/* One layer's attention of rows that lie behind others in a cache, of which a mask may hide some. */
static void attend(double *out, const char *mesh_text, const char *preset, attention_kind kind)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_graph *graph;
    clv_program *program;
    clv_session *session;
    double x[2 * ROWS * WIDTH];
    const uint8_t mask[2 * CACHED] = {1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1};
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, preset, &mesh, &err), &err);
    must(clv_graph_new(&graph, &mesh, &err), &err);
    const clv_value rows = clv_input(graph, "x", CLV_F64, 3, (int64_t[]){2, ROWS, WIDTH}, NULL);
    const clv_value seen = clv_input(graph, "mask", CLV_U8, 2, (int64_t[]){2, CACHED}, NULL);
    const clv_value offset = clv_input(graph, "offset", CLV_I32, 0, NULL, NULL);
    const clv_init init = {CLV_INIT_NORMAL, 0.3};
    const clv_self_attention_options plain = {.heads = 6,
                                              .kv_heads = 2,
                                              .bidirectional = kind == BIDIRECTIONAL,
                                              .mask = kind == BIDIRECTIONAL ? CLV_NONE : seen,
                                              .context = CACHED,
                                              .offset = offset,
                                              .init = init,
                                              .output_init = init};
    const clv_latent_attention_options of_latents = {.heads = 6,
                                                     .kv_rank = 5,
                                                     .plain_dim = 4,
                                                     .rotary_dim = 2,
                                                     .value_dim = 3,
                                                     .rope.theta = 1e4,
                                                     .mask = seen,
                                                     .context = CACHED,
                                                     .offset = offset,
                                                     .init = init,
                                                     .output_init = init};
    clv_output(graph, "y",
               kind == MASKED_LATENT ? clv_parallel_latent_attention(graph, rows, &rules, &of_latents)
                                     : clv_parallel_attention(graph, rows, &rules, &plain),
               NULL);
    must(clv_compile(&program, graph, NULL, &err), &err);
    must(clv_session_new(&session, &mesh, NULL, &err), &err);
    for (int32_t at = 0; at + ROWS <= CACHED; at += ROWS) {
        for (int i = 0; i < 2 * ROWS * WIDTH; i++)
            x[i] = sin(i + 100 * at);
        must(clv_session_run(session, program, (clv_input_binding[]){{"x", x}, {"mask", mask}, {"offset", &at}}, 3,
                             (clv_output_binding[]){{"y", out + at * 2 * WIDTH}}, 1, &err),
             &err);
    }
    clv_session_free(session);
    clv_program_free(program);
    clv_graph_free(graph);
}

/* A mask of a cache's positions hides the same ones of a part of it; what fills the last part up is not seen. */
static void test_caches(void **state)
{
    static const char *const meshes[][2] = {
        {"context=2", "dp"}, {"context=3", "dp"}, {"context=2,model=3", "megatron"}, {"data=2,context=5", "dp"}};
    double want[2 * CACHED * WIDTH] = {0}, got[2 * CACHED * WIDTH] = {0};
    for (int kind = 0; kind < KINDS; kind++) {
        attend(want, "model=1", "megatron", (attention_kind)kind);
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
            attend(got, meshes[m][0], meshes[m][1], (attention_kind)kind);
            for (int i = 0; i < 2 * CACHED * WIDTH; i++)
                if (!(fabs(got[i] - want[i]) <= 1e-6))
                    fail_msg("%s, kind %d: [%d] is %.9g, not %.9g", meshes[m][0], kind, i, got[i], want[i]);
        }
    }
}

/* What attention to a cache cannot be is said, whatever was wrong before. */
static void test_caches_that_are_refused(void **state)
{
    static const struct {
        int64_t head_dim, mask_columns;
        double dropout;
        clv_status status;
        const char *words;
    } cases[] = {{1030, 0, 0, CLV_EINVAL, "1030 rotated dims"},
                 {4, CACHED - 1, 0, CLV_ESHAPE, "the mask of a cache is u8[2,6]; [B,context] = [2,7] is needed"},
                 {4, 0, 0.5, CLV_EUNSUPPORTED, "dropout of attention to a cache that is split over positions"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clv_mesh mesh;
        clv_axis_rules rules;
        clv_graph *graph;
        must(clv_mesh_parse(&mesh, "context=2", &err), &err);
        must(clv_axis_rules_preset(&rules, "dp", &mesh, &err), &err);
        must(clv_graph_new(&graph, &mesh, &err), &err);
        const clv_value x = clv_input(graph, "x", CLV_F32, 3, (int64_t[]){2, ROWS, WIDTH}, NULL);
        const int64_t columns[] = {2, cases[i].mask_columns};
        clv_self_attention_options o = {.heads = 6,
                                        .head_dim = cases[i].head_dim,
                                        .rope.theta = 1e4,
                                        .context = CACHED,
                                        .offset = clv_input(graph, "offset", CLV_I32, 0, NULL, NULL),
                                        .dropout = cases[i].dropout};
        if (columns[1] > 0)
            o.mask = clv_input(graph, "mask", CLV_U8, 2, columns, NULL);
        clv_parallel_attention(graph, x, &rules, &o);
        err = (clv_error){0};
        const clv_status status = clv_graph_status(graph, &err);
        if (status != cases[i].status || !strstr(err.message, cases[i].words))
            fail_msg("case %zu: %d, %s", i, (int)status, err.message);
        clv_graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_ranks_results),
                                       cmocka_unit_test(test_rings),
                                       cmocka_unit_test(test_checkpoints_of_any_mesh),
                                       cmocka_unit_test(test_plans_are_exact),
                                       cmocka_unit_test(test_activations_divide_by_the_ranks),
                                       cmocka_unit_test(test_rings_move_and_keep_blocks),
                                       cmocka_unit_test(test_no_ring_for_windows),
                                       cmocka_unit_test(test_exchanges_by_price),
                                       cmocka_unit_test(test_ranks_have_equal_work),
                                       cmocka_unit_test(test_caches),
                                       cmocka_unit_test(test_caches_that_are_refused)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
