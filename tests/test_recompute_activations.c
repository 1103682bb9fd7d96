/* test_recompute_activations.c - what of blocks the backward pass makes again: the same bits as without it, the steps
 * that are repeated, counted, and the memory that is not needed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleave/plan.h"
#include "cleave/train.h"
#include "golden_plan.h"
#include "must.h"
#include "program/program.h"
#include "random_graph.h"
#include "sweep.h"
#include "unit_test.h"

enum { BATCH = 3, SEQ = 6, STEPS = 3, LAYERS = 2, MODES = 3 };

static clv_error err;

/* ---- counts ---- */

/* A training step of a model of the goldens. */
static clv_program *plan(const char *model, const char *mesh, const char *preset, clv_plan_options how)
{
    how.batch = BATCH;
    how.seq = SEQ;
    return golden_plan(model, mesh, preset, how);
}

/* How many more of a kind there are with the mode than without. */
static int more(const char *mesh, const char *preset, clv_plan_options how, clv_recompute mode, const char *kind)
{
    clv_program *without = plan("gpt2", mesh, preset, how);
    how.compile.recompute = mode;
    clv_program *with = plan("gpt2", mesh, preset, how);
    int n = collectives_of(with, kind) - collectives_of(without, kind);
    clv_program_free(without);
    clv_program_free(with);
    return n;
}

/* Megatron's forward pass of a block has two all_reduces, of which the second makes nothing that the backward pass
 * reads; under sequence parallelism it gathers twice and scatters twice. Weights are gathered as often as without. */
static void test_counts(void **state)
{
    const clv_plan_options plain = {0}, reshard_after_forward = {.compile.reshard_after_forward = CLV_RESHARD_ALL};
    (void)state;
    assert_int_equal(more("model=2", "megatron", plain, CLV_RECOMPUTE_FULL, "all_reduce"), LAYERS);
    assert_int_equal(more("model=2", "megatron-sp", plain, CLV_RECOMPUTE_FULL, "all_gather"), 2 * LAYERS);
    assert_int_equal(more("model=2", "megatron-sp", plain, CLV_RECOMPUTE_FULL, "reduce_scatter"), LAYERS);
    for (clv_reshard_after_forward how = CLV_RESHARD_WEIGHTS; how <= CLV_RESHARD_NONE; how++)
        assert_int_equal(more("data=2", "fsdp", (clv_plan_options){.compile.reshard_after_forward = how},
                              CLV_RECOMPUTE_FULL, "all_gather"),
                         0);
    static const char *const kinds[] = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all", "permute"};
    static const char *const splits[][2] = {{"model=2", "megatron"},
                                            {"model=3", "megatron-sp"},
                                            {"data=2", "fsdp"},
                                            {"data=2,model=2", "fsdp+megatron-sp"},
                                            {"X=2,Y=2", "gspmd-2d"}};
    for (size_t s = 0; s < sizeof splits / sizeof splits[0]; s++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            assert_int_equal(more(splits[s][0], splits[s][1], plain, CLV_RECOMPUTE_SELECTIVE, kinds[k]), 0);
            assert_int_equal(more(splits[s][0], splits[s][1], reshard_after_forward, CLV_RECOMPUTE_SELECTIVE, kinds[k]),
                             0);
        }
}

static int ops_named(const clv_program *program, const char *name)
{
    size_t size = clv_program_print(NULL, 0, program) + 1;
    char *text = malloc(size), *at = text;
    int n = 0;
    clv_program_print(text, size, program);
    for (; (at = strstr(at, name)) != NULL; at += strlen(name))
        n++;
    free(text);
    return n;
}

/* Norms and activations are made again; statistics, products and attention are not. */
static void test_what_is_cheap(void **state)
{
    static const struct {
        const char *name;
        int more;
    } ops[] = {{".bias_gelu(", LAYERS},
               {".normalize(", 2 * LAYERS},
               {".moments(", 0},
               {"dot_general(", 0},
               {".attention(", 0}};
    clv_program *none = plan("gpt2", "model=2", "megatron", (clv_plan_options){0});
    clv_program *selective =
        plan("gpt2", "model=2", "megatron", (clv_plan_options){.compile.recompute = CLV_RECOMPUTE_SELECTIVE});
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        assert_true(ops_named(none, ops[i].name) > 0);
        assert_int_equal(ops_named(selective, ops[i].name) - ops_named(none, ops[i].name), ops[i].more);
    }
    clv_program_free(none);
    clv_program_free(selective);
}

/* ---- the model's flops ---- */

/* Products by each weight of GPT-2's golden (15 wide, 37 words) for 4 x 8 tokens, twice their elements forward and four
 * times backward; attention multiplies twice forward and four times backward by half of the 8 places. */
enum {
    WEIGHTS_OF_PRODUCTS = LAYERS * (15 * 45 + 15 * 15 + 2 * 15 * 60) + 15 * 37,
    MODEL_FLOPS = 4 * 8 * (6 * WEIGHTS_OF_PRODUCTS + LAYERS * 6 * 2 * 15 * 4)
};

/* Neither what is made again counts, nor what several ranks do alike, nor that one has more than another. */
static void test_model_flops(void **state)
{
    static const char *const meshes[][2] = {{"model=1", "megatron"},
                                            {"model=2", "megatron"},
                                            {"model=3", "megatron-sp"},
                                            {"model=8", "megatron"},
                                            {"data=2,model=2", "fsdp+megatron-sp"},
                                            {"X=2,Y=2", "gspmd-2d"}};
    for (size_t s = 0; s < sizeof meshes / sizeof meshes[0]; s++)
        for (int mode = 0; mode < MODES; mode++)
            for (int parts = 1; parts <= 4; parts += 3)
                for (int overlap = 0; overlap < 2; overlap++) {
                    clv_prediction p = {.size = sizeof p};
                    clv_program *program =
                        golden_plan("gpt2", meshes[s][0], meshes[s][1],
                                    (clv_plan_options){.batch = 4,
                                                       .seq = 8,
                                                       .compile.recompute = mode,
                                                       .accumulate = parts,
                                                       .compile.overlap = overlap,
                                                       .compile.reshard_after_forward = CLV_RESHARD_ALL});
                    must(clv_program_predict(program, NULL, &p, &err), &err);
                    int64_t ranks = clv_mesh_rank_count(clv_program_mesh(program));
                    double peak = clv_machine_flops(NULL, CLV_F32);
                    if (!(fabs(p.model_flops - MODEL_FLOPS) <= 1e-9 * MODEL_FLOPS))
                        fail_msg("%s by %s, recompute %s, %d parts: %.0f flops, not %d", meshes[s][0], meshes[s][1],
                                 clv_recompute_name((clv_recompute)mode), parts, p.model_flops, MODEL_FLOPS);
                    assert_true(fabs(p.model_utilisation * p.seconds * peak * (double)ranks / MODEL_FLOPS - 1) < 1e-9);
                    assert_true(p.model_utilisation < p.utilisation);
                    clv_program_free(program);
                }
}

/* ---- memory ---- */

static clv_memory memory_of(const char *block, const char *mesh_text, const char *preset, clv_plan_options how)
{
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_program *program;
    clv_memory memory = {.size = sizeof memory};
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, preset, &mesh, &err), &err);
    must(clv_plan_block_parse(&how.block, block, &err), &err);
    how.size = sizeof how;
    how.mode = CLV_PLAN_MODE_GRAD;
    how.batch = 4;
    how.seq = 256;
    how.mesh = &mesh;
    how.rules = &rules;
    must(clv_plan_compile(&program, &how, &err), &err);
    must(clv_program_memory(program, &memory, &err), &err);
    clv_program_free(program);
    return memory;
}

/* Of blocks one after another, the graph of which is made by hand: what is kept from the forward pass to the backward
 * pass at the beginning of this. */
static int64_t kept_bytes(const char *mesh_text, const char *preset, int layers, clv_compile_options how)
{
    enum { B = 4, S = 64, M = 64, H = 4 };
    clv_graph *graph = must_graph(mesh_text);
    clv_axis_rules rules = clv_graph_axis_rules(graph, preset);
    clv_layout layout = clv_residual_layout(graph, &rules, 3);
    clv_block_options o = clv_block_defaults(CLV_BLOCK_GPT, H, H, 4 * M);
    clv_program *program;
    const int64_t dims[] = {B, S, M};
    clv_value x = clv_input(graph, "x", CLV_F32, 3, dims, &layout), y = x, d[64], wrt[64];
    for (int l = 0; l < layers; l++) {
        clv_graph_push_scope(graph, "layers.%d", l);
        y = clv_transformer_block(graph, y, &rules, &o);
        clv_graph_pop_scope(graph);
    }
    int n = clv_graph_parameters(graph, wrt, 63);
    clv_gradients(graph, y, clv_input(graph, "dy", CLV_F32, 3, dims, &layout), wrt, n, d);
    for (int i = 0; i < n; i++)
        clv_assign(graph, wrt[i], d[i]); /* not kept until the end */
    how.size = sizeof how;
    must(clv_compile(&program, graph, &how, &err), &err);
    clv_memory memory = {.size = sizeof memory};
    must(clv_program_memory(program, &memory, &err), &err);
    clv_program_free(program);
    clv_graph_free(graph);
    return memory.region;
}

/* What one block more takes: by full its input alone, [B,S,M] or a rank's part of it; by selective less than by none.
 */
static void test_a_block_takes_its_input(void **state)
{
    enum { INPUT = 4 * 64 * 64 * 4, AROUND = 1024 };
    static const char *const splits[][2] = {{"model=1", "megatron"}, {"model=2", "megatron-sp"}};
    for (size_t s = 0; s < sizeof splits / sizeof splits[0]; s++) {
        int64_t more_of[MODES];
        for (int mode = 0; mode < MODES; mode++) {
            const clv_compile_options how = {.recompute = mode, .reshard_after_forward = CLV_RESHARD_ALL};
            more_of[mode] =
                kept_bytes(splits[s][0], splits[s][1], 4, how) - kept_bytes(splits[s][0], splits[s][1], 3, how);
        }
        int64_t input = s == 0 ? INPUT : INPUT / 2;
        if (!(llabs(more_of[CLV_RECOMPUTE_FULL] - input) <= AROUND))
            fail_msg("%s by %s: a block more takes %lld bytes, its input is of %lld", splits[s][0], splits[s][1],
                     (long long)more_of[CLV_RECOMPUTE_FULL], (long long)input);
        assert_true(more_of[CLV_RECOMPUTE_SELECTIVE] < more_of[CLV_RECOMPUTE_NONE]);
        assert_true(more_of[CLV_RECOMPUTE_FULL] < more_of[CLV_RECOMPUTE_SELECTIVE]);
    }
}

/* Activations of t ranks that split tensors and sequences are at most 1/t of one rank's, and a tenth of that more. */
static void test_activations_are_split(void **state)
{
    static const char *const meshes[] = {"model=1", "model=2", "model=4"};
    for (int mode = 0; mode < MODES; mode++) {
        double one = 0;
        for (int t = 1; t <= 4; t *= 2) {
            const clv_plan_options how = {
                .compile.recompute = mode, .hidden = 256, .heads = 8, .compile.reshard_after_forward = CLV_RESHARD_ALL};
            clv_memory m = memory_of("gpt", meshes[t / 2], "megatron-sp", how);
            double kept = (double)(m.activations + m.gathered);
            one = t == 1 ? kept : one;
            if (!(kept <= 1.1 * one / t))
                fail_msg("recompute %s, %d ranks: %g bytes of activations; one: %g",
                         clv_recompute_name((clv_recompute)mode), t, kept, one);
        }
    }
}

/* A model of four layers of twelve heads, which 2, 3 and 4 divide: GPT-2 as a folder has it, Llama as sizes. */
static clv_model *sized(const char *family, const char *mesh_text, const char *preset, clv_model_options how)
{
    static const char config[] = "{\"model_type\": \"gpt2\", \"n_embd\": 96, \"n_head\": 12, \"n_layer\": 4,"
                                 " \"n_positions\": 64, \"vocab_size\": 48}";
    const clv_model_info sizes = {
        .size = sizeof sizes, .hidden = 96, .layers = 4, .heads = 12, .ffn = 256 - 4, .vocab = 48, .max_positions = 64};
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_model *model;
    char path[] = "/tmp/clv_recompute_XXXXXX";
    must(clv_mesh_parse(&mesh, mesh_text, &err), &err);
    must(clv_axis_rules_preset(&rules, preset, &mesh, &err), &err);
    how.size = sizeof how;
    how.mesh = &mesh;
    how.rules = &rules;
    if (strcmp(family, "llama") == 0) {
        must(clv_model_new(&model, &sizes, &how, &err), &err);
        return model;
    }
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, config, sizeof config - 1), sizeof config - 1);
    close(fd);
    how.config_only = 1;
    must(clv_model_open(&model, path, &how, &err), &err);
    unlink(path);
    return model;
}

/* What a trainer's step keeps from the forward pass for the backward pass where most is live, of the bytes that its
 * session has taken. */
static double kept_by_training(const char *family, const char *mesh, clv_model_options how)
{
    clv_model *model = sized(family, mesh, "megatron-sp", how);
    clv_trainer *trainer;
    clv_memory memory = {.size = sizeof memory};
    const clv_lr_schedule schedule = {.peak = 0.01, .steps = 1};
    const clv_update_options update = {.size = sizeof update, .clip = 1};
    const clv_trainer_options options = {
        .size = sizeof options, .batch = 4, .seq = 60, .schedule = &schedule, .update = &update};
    must(clv_trainer_new(&trainer, model, &options, &err), &err);
    must(clv_program_memory(clv_trainer_program(trainer), &memory, &err), &err);
    assert_int_equal(clv_session_rank_bytes(clv_trainer_session(trainer)), memory.total);
    clv_trainer_free(trainer);
    clv_model_close(model);
    return (double)(memory.activations + memory.gathered);
}

/* Whole models, too, as they are trained. Where the most is live need not be at the same op. */
static void test_activations_of_training_are_split(void **state)
{
    static const char *const meshes[] = {"model=1", "model=2", "model=3", "model=4"};
    static const char *const families[] = {"llama", "gpt2"};
    for (int f = 0; f < 2; f++)
        for (int dtype = 0; dtype < 2; dtype++) {
            const clv_model_options how = {.compile.reshard_after_forward = CLV_RESHARD_ALL,
                                           .dtype = dtype ? CLV_BF16 : CLV_F32};
            double one = kept_by_training(families[f], meshes[0], how);
            for (int t = 2; t <= 4; t++) {
                double kept = kept_by_training(families[f], meshes[t - 1], how);
                if (!(kept <= 1.1 * one / t && kept > 0.8 * one / t))
                    fail_msg("%s, %s, %d ranks: %g bytes of activations; one: %g", families[f],
                             clv_dtype_name(how.dtype), t, kept, one);
            }
        }
}

/* ---- bits ---- */

static const struct {
    const char *mesh, *rules;
} splits[] = {
    {"model=1", "megatron"}, {"model=2", "megatron"}, {"model=3", "megatron-sp"},
    {"data=2", "fsdp"},      {"data=2", "zero1"},     {"data=2,model=2", "fsdp+megatron-sp"},
};
enum { SPLITS = sizeof splits / sizeof splits[0] };

typedef struct trained {
    double loss[STEPS], norm[STEPS];
    float weight[1 << 12];
    int64_t bytes;
} trained;

/* A few steps on one batch; all that a parameter of the first block holds then. */
static void train(trained *out, const char *name, int split, clv_model_options how)
{
    static const char parameter[] = "layers.0.mlp.down.weight";
    clv_mesh mesh;
    clv_axis_rules rules;
    clv_model *model;
    clv_trainer *trainer;
    int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
    const clv_lr_schedule schedule = {.peak = 0.01, .steps = STEPS};
    const clv_update_options update = {.size = sizeof update, .clip = 1};
    const clv_trainer_options options = {
        .size = sizeof options, .batch = BATCH, .seq = SEQ, .schedule = &schedule, .update = &update};
    memset(out, 0, sizeof *out);
    must(clv_mesh_parse(&mesh, splits[split].mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, splits[split].rules, &mesh, &err), &err);
    how.size = sizeof how;
    how.mesh = &mesh;
    how.rules = &rules;
    must(clv_model_open(&model, golden_path("%s", name), &how, &err), &err);
    must(clv_trainer_new(&trainer, model, &options, &err), &err);
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = (7 * i + 3) % 29;
        labels[i] = i % 5 == 0 ? CLV_IGNORE_INDEX : (5 * i + 1) % 29;
    }
    for (int i = 0; i < STEPS; i++) {
        clv_train_step did = {.size = sizeof did};
        must(clv_trainer_step(trainer, ids, labels, NULL, &did, &err), &err);
        out->loss[i] = did.loss;
        out->norm[i] = did.grad_norm;
    }
    out->bytes = clv_session_rank_bytes(clv_trainer_session(trainer));
    clv_program *planned =
        plan(name, splits[split].mesh, splits[split].rules, (clv_plan_options){.compile = how.compile});
    if (strcmp(name, "esm") != 0) /* its files hold rotary frequencies, which a plan does not read */
        assert_int_equal(clv_program_digest(planned), clv_program_digest(clv_trainer_program(trainer)));
    clv_program_free(planned);
    must(clv_session_read(clv_trainer_session(trainer), parameter, NULL, out->weight, &err), &err);
    clv_memory memory = {.size = sizeof memory};
    must(clv_program_memory(clv_trainer_program(trainer), &memory, &err), &err);
    assert_int_equal(out->bytes, memory.total);
    clv_trainer_free(trainer);
    clv_model_close(model);
}

static bool same(const trained *a, const trained *b)
{
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 && memcmp(a->norm, b->norm, sizeof a->norm) == 0 &&
           memcmp(a->weight, b->weight, sizeof a->weight) == 0;
}

static void test_families_keep_their_bits(void **state)
{
    static const char *const names[] = {"llama", "qwen2", "gpt2", "mistral", "bert", "esm"};
    static trained none, made;
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++)
        for (int s = 0; s < SPLITS; s++) {
            if (!sweep_takes_thinned(5))
                continue;
            train(&none, names[m], s, (clv_model_options){0});
            for (int mode = CLV_RECOMPUTE_SELECTIVE; mode < MODES; mode++) {
                train(&made, names[m], s, (clv_model_options){.compile.recompute = mode});
                if (!same(&none, &made))
                    fail_msg("%s on %s by %s, recompute %s: loss %.17g, without %.17g", names[m], splits[s].mesh,
                             splits[s].rules, clv_recompute_name((clv_recompute)mode), made.loss[STEPS - 1],
                             none.loss[STEPS - 1]);
            }
        }
}

/* Whatever is gathered again, where products are split alike: of the last mesh's few rows of a batch, gathered over two
 * axes, other ways are cheaper. */
static void test_gathering_again_keeps_bits(void **state)
{
    static const char *const names[] = {"llama", "gpt2", "bert"};
    static trained none, made;
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++)
        for (int s = 0; s < SPLITS; s++)
            for (int mode = CLV_RECOMPUTE_NONE; mode < MODES; mode++) {
                if (!sweep_takes_thinned(5))
                    continue;
                clv_model_options how = {.compile.recompute = mode, .compile.reshard_after_forward = CLV_RESHARD_NONE};
                train(&none, names[m], s, how);
                for (int again = CLV_RESHARD_WEIGHTS; again <= CLV_RESHARD_ALL; again++) {
                    how.compile.reshard_after_forward = again;
                    train(&made, names[m], s, how);
                    double off = fabs(made.norm[0] / none.norm[0] - 1);
                    if (!(s + 1 < SPLITS ? same(&none, &made) : off <= 1e-6))
                        fail_msg("%s on %s by %s, gathered again %s: norm %.17g, else %.17g", names[m], splits[s].mesh,
                                 splits[s].rules, clv_reshard_after_forward_name(how.compile.reshard_after_forward),
                                 made.norm[0], none.norm[0]);
                }
            }
}

/* What is carried rounded is rounded alike when it is carried again. */
static void test_keeps_its_bits_when_carried(void **state)
{
    static trained none, made;
    train(&none, "gpt2", 2, (clv_model_options){.compile.comm_dtype = CLV_COMM_BF16});
    train(&made, "gpt2", 2,
          (clv_model_options){.compile.comm_dtype = CLV_COMM_BF16, .compile.recompute = CLV_RECOMPUTE_FULL});
    assert_memory_equal(none.loss, made.loss, sizeof none.loss);
    assert_memory_equal(none.weight, made.weight, sizeof none.weight);
}

/* ---- random graphs ---- */

enum { MOST_BYTES = 1 << 16, SEEDS = 200 };

typedef struct outputs {
    int n;
    char *data[RANDOM_OUTPUTS];
    size_t bytes[RANDOM_OUTPUTS];
} outputs;

/* Runs the graph as often as it says; *steps: instructions of its program. */
static void run_random(outputs *out, const random_graph *g, const random_spec *spec, const clv_compile_options *how)
{
    clv_program *program;
    clv_session *session;
    clv_input_binding in[RANDOM_LEAVES];
    clv_output_binding bound[RANDOM_OUTPUTS];
    int n = 0;
    must(clv_compile(&program, g->graph, how, &err), &err);
    must(clv_program_verify(program, &err), &err);
    must(clv_session_new(&session, &g->mesh, &(clv_session_options){.check = 1}, &err), &err);
    must(clv_session_load(session, program, &err), &err);
    out->n = g->n_outputs;
    for (int i = 0; i < g->n_outputs; i++) {
        clv_type type = clv_graph_type(g->graph, g->output[i].value);
        out->bytes[i] = (size_t)clv_type_elems(&type) * clv_dtype_size(type.dtype);
        out->data[i] = calloc(1, out->bytes[i] + 1);
        bound[i] = (clv_output_binding){g->output[i].name, out->data[i]};
    }
    for (int i = 0; i < g->n_leaves; i++) {
        clv_type type = clv_graph_type(g->graph, g->leaf[i].value);
        char *data = calloc(1, (size_t)clv_type_elems(&type) * clv_dtype_size(type.dtype) + 1);
        random_leaf_fill(g, &g->leaf[i], spec, 1, data);
        in[n++] = (clv_input_binding){clv_value_name(g->graph, g->leaf[i].value), data};
    }
    int kept = 0;
    for (int i = 0; i < n; i++) /* state is written, not bound */
        if (clv_session_write(session, in[i].name, NULL, in[i].data, NULL) == CLV_OK)
            free((void *)in[i].data);
        else
            in[kept++] = in[i];
    for (int step = 0; step < g->steps; step++)
        must(clv_session_run(session, program, in, kept, bound, g->n_outputs, &err), &err);
    for (int i = 0; i < kept; i++)
        free((void *)in[i].data);
    clv_session_free(session);
    clv_program_free(program);
}

static void drop(outputs *o)
{
    for (int i = 0; i < o->n; i++)
        free(o->data[i]);
}

static void test_random_graphs_keep_their_bits(void **state)
{
    int with_blocks = 0;
    for (random_spec spec = {0}; spec.seed < SEEDS; spec.seed++) {
        random_graph g;
        outputs none, made;
        random_graph_build(&g, &spec, 0);
        clv_compile_options how = g.options;
        with_blocks += how.recompute != CLV_RECOMPUTE_NONE;
        how.overlap = 0; /* it may cut products, and other ones with other instructions around */
        if (how.recompute == CLV_RECOMPUTE_NONE || clv_graph_status(g.graph, NULL) != CLV_OK || !sweep_takes()) {
            random_graph_free(&g);
            continue;
        }
        how.recompute = CLV_RECOMPUTE_NONE;
        run_random(&none, &g, &spec, &how);
        for (how.recompute = CLV_RECOMPUTE_SELECTIVE; (int)how.recompute < MODES; how.recompute++) {
            run_random(&made, &g, &spec, &how);
            for (int i = 0; i < none.n; i++)
                if (memcmp(none.data[i], made.data[i], none.bytes[i]) != 0)
                    fail_msg("seed %llu, recompute %s: output %s is another", (unsigned long long)spec.seed,
                             clv_recompute_name((clv_recompute)how.recompute), g.output[i].name);
            drop(&made);
        }
        drop(&none);
        random_graph_free(&g);
    }
    assert_true(with_blocks > SEEDS / 3);
}

/* ---- blocks by hand ---- */

/* y = tanh(tanh(x w)) v, of which the inner parts are two blocks, one of them of two that are one within the other. */
static clv_program *by_hand(clv_recompute mode)
{
    clv_graph *graph = must_graph("a=1");
    clv_program *program;
    const int64_t shape[] = {8, 8};
    const clv_init normal = {CLV_INIT_NORMAL, 1};
    clv_value x = clv_input(graph, "x", CLV_F32, 2, shape, NULL), d[2];
    clv_value wrt[] = {clv_state(graph, "w", CLV_F32, 2, shape, NULL, normal),
                       clv_state(graph, "v", CLV_F32, 2, shape, NULL, normal)};
    clv_begin_block(graph);
    clv_begin_block(graph);
    clv_value h = clv_unary(graph, CLV_TANH, clv_einsum(graph, "bm,mh->bh", x, wrt[0]));
    clv_end_block(graph);
    h = clv_unary(graph, CLV_TANH, h);
    clv_end_block(graph);
    clv_value y = clv_einsum(graph, "bh,hm->bm", h, wrt[1]);
    clv_gradients(graph, y, clv_input(graph, "dy", CLV_F32, 2, shape, NULL), wrt, 2, d);
    clv_output(graph, "y", y, NULL);
    clv_output(graph, "dw", d[0], NULL);
    clv_output(graph, "dv", d[1], NULL);
    must(clv_compile(&program, graph, &(clv_compile_options){.size = sizeof(clv_compile_options), .recompute = mode},
                     &err),
         &err);
    clv_graph_free(graph);
    return program;
}

/* The outer tanh is read by the product after the block, and kept; the inner one belongs to the block. */
static void test_blocks_by_hand(void **state)
{
    clv_program *none = by_hand(CLV_RECOMPUTE_NONE), *selective = by_hand(CLV_RECOMPUTE_SELECTIVE),
                *full = by_hand(CLV_RECOMPUTE_FULL);
    assert_int_equal(ops_named(none, "= map("), 2);
    assert_int_equal(ops_named(selective, "= map("), 2); /* the product would have to be kept in its place */
    assert_int_equal(ops_named(selective, "= dot_general("), ops_named(none, "= dot_general("));
    assert_int_equal(ops_named(full, "= map("), 3);
    assert_int_equal(ops_named(full, "= dot_general("), ops_named(none, "= dot_general(") + 1);
    clv_program_free(none);
    clv_program_free(selective);
    clv_program_free(full);
}

static void test_refused(void **state)
{
    clv_graph *graph = must_graph("a=1");
    clv_program *program;
    clv_model *model;
    (void)state;
    clv_compile_options how = {.size = sizeof how, .recompute = (clv_recompute)MODES};
    assert_int_equal(clv_compile(&program, graph, &how, &err), CLV_EINVAL);
    how.recompute = (clv_recompute)-1;
    assert_int_equal(clv_compile(&program, graph, &how, &err), CLV_EINVAL);
    err = (clv_error){0};
    how = (clv_compile_options){.size = sizeof how, .reshard_after_forward = (clv_reshard_after_forward)3};
    assert_int_equal(clv_compile(&program, graph, &how, &err), CLV_EINVAL);
    assert_string_equal(err.message, "clv_compile: reshard_after_forward is 3; valid: 0 to 2");
    assert_string_equal(clv_reshard_after_forward_name(CLV_RESHARD_WEIGHTS), "weights");
    assert_string_equal(clv_reshard_after_forward_name(how.reshard_after_forward), "unknown");
    const clv_model_options options = {.size = sizeof options, .compile.recompute = (clv_recompute)MODES};
    assert_int_equal(clv_model_open(&model, golden_path("gpt2"), &options, &err), CLV_EINVAL);
    clv_end_block(graph);
    assert_int_equal(clv_graph_status(graph, &err), CLV_EINVAL);
    clv_begin_block(NULL);
    clv_end_block(NULL);
    clv_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_what_is_cheap),
                                       cmocka_unit_test(test_model_flops),
                                       cmocka_unit_test(test_a_block_takes_its_input),
                                       cmocka_unit_test(test_activations_are_split),
                                       cmocka_unit_test(test_activations_of_training_are_split),
                                       cmocka_unit_test(test_families_keep_their_bits),
                                       cmocka_unit_test(test_gathering_again_keeps_bits),
                                       cmocka_unit_test(test_keeps_its_bits_when_carried),
                                       cmocka_unit_test(test_random_graphs_keep_their_bits),
                                       cmocka_unit_test(test_blocks_by_hand),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
