/* test_prepacked_weights.c - generating with packed weights: the bits of those that are not, on every mesh; the same
 * bytes read, held and moved; and where nothing is packed. A launcher's processes share the ranks, where a mesh has as
 * many. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapters_folder.h"
#include "model_folder.h"
#include "mpi_test_job.h"
#include "must.h"
#include "sweep.h"
#include "temp_folder.h"

#include "cleave/generate.h"
#include "cleave/graph.h"
#include "cleave/program.h"
#include "base/hardware/cpu_features.h"
#include "models/families/model_family.h"
#include "models/weights/prepacked_weights.h"
#include "models/weights/parameter_map.h"
#include "ops/builtin_ops.h"
#include "tensor/quant_block.h"

enum { VOCAB = 480, MOST_SEQ = 48, EACH = 5 /* weights of a layer */ };

/* Weights large enough to be prepacked; some meshes split their last dimension into whole panels, others do not. */
static const clv_model_config llama = {.family = &clv_family_llama,
                                       .hidden = 192,
                                       .layers = 2,
                                       .heads = 6,
                                       .kv_heads = 3,
                                       .head_dim = 112,
                                       .ffn = 480,
                                       .vocab = VOCAB,
                                       .max_positions = 64,
                                       .norm_eps = 1e-5,
                                       .activation = CLV_SILU,
                                       .rope.theta = 10000,
                                       .bos = -1,
                                       .pad = -1,
                                       .mask = -1,
                                       .eos = {-1}};

/* Its files hold weights as [in, out], queries, keys and values in one; the output is the table. */
static const clv_model_config gpt2 = {.family = &clv_family_gpt2,
                                      .activation = CLV_GELU_TANH,
                                      .hidden = 288,
                                      .layers = 2,
                                      .heads = 6,
                                      .kv_heads = 6,
                                      .head_dim = 48,
                                      .ffn = 1344,
                                      .vocab = VOCAB,
                                      .max_positions = 64,
                                      .norm_eps = 1e-5,
                                      .tie_word_embeddings = true,
                                      .qkv_bias = true,
                                      .output_bias = true,
                                      .mlp_bias = true,
                                      .bos = -1,
                                      .pad = -1,
                                      .mask = -1,
                                      .eos = {-1}};

static const struct {
    const char *mesh, *rules;
} meshes[] = {{"model=1", "megatron"}, {"model=2", "megatron"}, {"model=3", "megatron"},
              {"model=5", "megatron"}, {"model=7", "megatron"}, {"data=2,model=2", "megatron"},
              {"data=2", "fsdp"},      {"X=2,Y=2", "gspmd-2d"}, {"data=2,model=3", "fsdp+megatron-sp"},
              {"data=4", "zero1"},     {"data=8", "fsdp"},      {"data=2,model=4", "megatron"}};
enum { MESHES = sizeof meshes / sizeof *meshes, RUN = MESHES - 2 /* those of 8 ranks are planned alone */ };

static float *random_values(void *arg, const clv_model_config *c, const clv_parameter *p)
{
    uint64_t *next = arg;
    const int64_t n = clv_parameter_elems(p);
    float *w = malloc((size_t)n * sizeof *w);
    for (int64_t i = 0; i < n; i++) {
        *next = *next * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        w[i] = ((float)(*next >> 40) * 0x1p-23f - 1) * (p->rank == 1 ? 0.5f : 0.1f);
    }
    return w;
}

static void write_folder(const char *path, const clv_model_config *c)
{
    uint64_t next = 11;
    write_model_folder(path, c, random_values, &next);
}

static clv_model *open_on(const char *path, int mesh, clv_dtype dtype)
{
    clv_error err = {0};
    clv_mesh axes;
    clv_axis_rules rules;
    clv_model *model;
    must(clv_mesh_parse(&axes, meshes[mesh].mesh, &err), &err);
    must(clv_axis_rules_preset(&rules, meshes[mesh].rules, &axes, &err), &err);
    const clv_model_options options = {.size = sizeof options,
                                       .mesh = &axes,
                                       .rules = &rules,
                                       .dtype = dtype,
                                       .check = 1,
                                       .job = launched_links((int)clv_mesh_rank_count(&axes)) ? launched_job() : NULL};
    must(clv_model_open(&model, path, &options, &err), &err);
    return model;
}

/* Counts states with this suffix. */
static int packed_states(const clv_session *session)
{
    int n = 0;
    clv_state_info state = {.size = sizeof state};
    for (int i = 0; clv_session_state(session, i, &state, NULL) == CLV_OK && state.name; i++) {
        size_t length = strlen(state.name);
        n += length > 7 && strcmp(state.name + length - 7, ".packed") == 0;
    }
    return n;
}

/* What a generator has after a prompt of so many tokens, and after each of some more. */
typedef struct generated {
    float *logits; /* [STEPS, batch, VOCAB] */
    int64_t n, bytes_read, rank_bytes;
    int packed;
} generated;

static generated generate(clv_model *model, bool packs, int64_t batch, int64_t prompt)
{
    enum { STEPS = 4 };
    clv_error err = {0};
    clv_generator *g;
    generated out = {.n = STEPS * batch * VOCAB};
    const int64_t before = clv_model_bytes_read(model);
    const clv_generator_options options = {.size = sizeof options, .batch = batch, .context = MOST_SEQ};
    clv_model_set_prepacked_for_test(packs);
    must(clv_generator_new(&g, model, &options, &err), &err);
    out.logits = malloc((size_t)out.n * sizeof *out.logits);
    for (int64_t step = 0; step < STEPS; step++) {
        for (int64_t b = 0; b < batch; b++)
            for (int64_t i = 0; i < (step == 0 ? prompt : 1); i++)
                must(clv_generator_feed(g, b, &(int64_t){(i * 7 + b * 5 + step) % VOCAB}, 1, &err), &err);
        must(clv_generator_run(g, &err), &err);
        for (int64_t b = 0; b < batch; b++)
            memcpy(out.logits + (step * batch + b) * VOCAB, clv_generator_logits(g, b), VOCAB * sizeof(float));
    }
    out.bytes_read = clv_model_bytes_read(model) - before;
    out.rank_bytes = clv_session_rank_bytes(clv_generator_session(g));
    out.packed = packed_states(clv_generator_session(g));
    clv_generator_free(g);
    clv_model_set_prepacked_for_test(-1);
    return out;
}

/* More than 16 rows may go through another kernel, and so have other last bits. */
static void expect_alike(const generated *packed, const generated *plain, bool to_the_bit, double within,
                         const char *what)
{
    double most = 0;
    assert_int_equal(packed->n, plain->n);
    for (int64_t i = 0; i < plain->n; i++)
        most = fmax(most, fabs((double)plain->logits[i]));
    assert_true(most > 0.1);
    for (int64_t i = 0; i < plain->n; i++) {
        double apart = fabs((double)packed->logits[i] - (double)plain->logits[i]);
        if (!(to_the_bit ? packed->logits[i] == plain->logits[i] : apart <= within * most))
            fail_msg("%s: logit %lld is %.9g packed, %.9g else", what, (long long)i, (double)packed->logits[i],
                     (double)plain->logits[i]);
    }
    assert_int_equal(packed->bytes_read, plain->bytes_read);
    assert_int_equal(packed->rank_bytes, plain->rank_bytes);
    assert_int_equal(plain->packed, 0);
}

/* most: weights that one rank has packed; least: that every mesh has, of which one in `every` runs. */
static void same_everywhere(const clv_model_config *c, int every, int least, int most)
{
    static const struct {
        clv_dtype dtype;
        double within;
    } kinds[] = {{CLV_F32, 1e-5}, {CLV_BF16, 4e-2}, {CLV_F16, 4e-3}};
    const char *path = in_folder("%s", c->family->model_type);
    write_folder(path, c);
    for (int mesh = 0; mesh < RUN; mesh += every) {
        if (!sweep_takes_thinned(3))
            continue;
        const int k = (mesh + least) % 3;
        const bool few = (mesh / 2 + least) % 2;
        const int64_t batch = few ? 2 : 4, prompt = few ? 8 : 9;
        char what[96];
        clv_model *model = open_on(path, mesh, kinds[k].dtype);
        generated packed = generate(model, true, batch, prompt), plain = generate(model, false, batch, prompt);
        snprintf(what, sizeof what, "%s, %s, %s", c->family->model_type, meshes[mesh].mesh,
                 clv_dtype_name(kinds[k].dtype));
        expect_alike(&packed, &plain, few, kinds[k].within, what);
        if (packed.packed < (mesh == 0 ? most : least) || packed.packed > most)
            fail_msg("%s: %d weights are packed, of %d", what, packed.packed, most);
        free(packed.logits);
        free(plain.logits);
        clv_model_close(model);
    }
}

/* Of each layer queries, keys and values, out, up (with the gate), down; and the output. */
static void llama_is_the_same(void **state)
{
    same_everywhere(&llama, 1, 1, 2 * EACH + 1);
}

/* But for the output, which is the table. */
static void gpt2_is_the_same(void **state)
{
    same_everywhere(&gpt2, 2, 0, 2 * EACH);
}

/* Of a graph of so many rows a sequence, packed and not. */
static void same_plan(const char *path, int mesh, int64_t seq)
{
    clv_error err = {0};
    clv_program *program[2];
    clv_memory memory[2] = {{.size = sizeof *memory}, {.size = sizeof *memory}};
    clv_model *model = open_on(path, mesh, CLV_BF16);
    clv_model_set_prepacked_for_test(1);
    for (int packs = 0; packs < 2; packs++) {
        const clv_model_graph_options how = {
            .size = sizeof how, .batch = 4, .seq = seq, .context = 32, .packed = packs};
        clv_graph *graph;
        must(clv_graph_new(&graph, clv_model_mesh(model), &err), &err);
        clv_model_inference(graph, model, &how);
        must(clv_compile(&program[packs], graph, NULL, &err), &err);
        must(clv_program_memory(program[packs], &memory[packs], &err), &err);
        clv_graph_free(graph);
    }
    assert_int_equal(memory[0].total, memory[1].total);
    assert_int_equal(memory[0].parameters, memory[1].parameters);
    assert_int_equal(clv_program_collective_count(program[0]), clv_program_collective_count(program[1]));
    for (int i = 0; i < clv_program_collective_count(program[0]); i++) {
        clv_collective plain = {.size = sizeof plain}, packed = {.size = sizeof packed};
        must(clv_program_collective(program[0], i, &plain, &err), &err);
        must(clv_program_collective(program[1], i, &packed, &err), &err);
        assert_string_equal(plain.kind, packed.kind);
        assert_true(plain.bytes == packed.bytes);
    }
    clv_program_free(program[0]);
    clv_program_free(program[1]);
    clv_model_close(model);
    clv_model_set_prepacked_for_test(-1);
}

/* Beside adapters weights are held packed as without: the bits of those that are not, and not the base's. */
static void adapted_is_the_same(void **state)
{
    const char *base = in_folder("base"), *path = in_folder("adapters");
    write_folder(base, &llama);
    write_adapters(path, base, VOCAB);
    for (int mesh = launched_job() ? clv_job_process_count(launched_job()) - 1 : 1; mesh < RUN; mesh += 3) {
        if (!sweep_takes_thinned(5))
            continue;
        clv_model *model = open_on(path, mesh, CLV_F32), *plain_model = open_on(base, mesh, CLV_F32);
        generated packed = generate(model, true, 4, 3), plain = generate(model, false, 4, 3);
        generated of_base = generate(plain_model, true, 4, 3);
        expect_alike(&packed, &plain, true, 0, meshes[mesh].mesh);
        assert_true(packed.packed > 0);
        assert_int_equal(packed.packed, of_base.packed);
        assert_memory_not_equal(packed.logits, of_base.logits, (size_t)packed.n * sizeof *packed.logits);
        free(packed.logits);
        free(plain.logits);
        free(of_base.logits);
        clv_model_close(model);
        clv_model_close(plain_model);
        same_plan(path, mesh, mesh % 2 ? 24 : 1);
    }
}

/* Nothing more is moved, nor planned, whether all is packed on every mesh, or some on some. */
static void plans_are_the_same(void **state)
{
    const char *path = in_folder("planned"), *all = in_folder("all");
    clv_model_config wide = llama;
    wide.hidden = 256;
    wide.head_dim = 128;
    wide.ffn = 512;
    wide.vocab = 512;
    write_folder(path, &llama);
    write_folder(all, &wide);
    for (int mesh = 0; mesh < MESHES; mesh++)
        for (int i = 0; i < 2; i++)
            if (sweep_takes_thinned(5))
                same_plan(i ? all : path, mesh, (mesh + i) % 2 ? 24 : 1);
}

/* Small weights stay, and graphs that do not ask have none. */
static void some_stay(void **state)
{
    clv_model_config small = llama;
    clv_error err = {0};
    clv_graph *graph;
    const char *path = in_folder("small");
    small.hidden = 48;
    write_folder(path, &small);
    clv_model *model = open_on(path, 0, CLV_F32);
    generated packed = generate(model, true, 1, 5), plain = generate(model, false, 1, 5);
    expect_alike(&packed, &plain, true, 0, "small");
    assert_int_equal(packed.packed, 0);
    free(packed.logits);
    free(plain.logits);
    clv_model_close(model);
    path = in_folder("large");
    write_folder(path, &llama);
    model = open_on(path, 0, CLV_F32);
    clv_model_set_prepacked_for_test(1);
    must(clv_graph_new(&graph, clv_model_mesh(model), &err), &err);
    clv_model_inference(graph, model, &(clv_model_graph_options){.batch = 1, .seq = 4, .context = 8});
    must(clv_graph_status(graph, &err), &err);
    clv_model_set_prepacked_for_test(-1);
    for (int v = 0, n = clv_graph_parameters(graph, NULL, 0); v < n; v++) {
        clv_value values[64];
        assert_in_range(n, 1, 64);
        clv_graph_parameters(graph, values, n);
        assert_null(strstr(clv_value_name(graph, values[v]), ".packed"));
    }
    clv_graph_free(graph);
    clv_model_close(model);
}

/* Nothing packed is trained. */
static void training_is_refused(void **state)
{
    clv_error err = {0};
    clv_graph *graph;
    const char *path = in_folder("trained");
    write_folder(path, &llama);
    clv_model *model = open_on(path, 0, CLV_F32);
    must(clv_graph_new(&graph, clv_model_mesh(model), &err), &err);
    clv_model_train_step(
        graph, model,
        &(clv_model_graph_options){.size = sizeof(clv_model_graph_options), .batch = 1, .seq = 4, .packed = 1}, NULL);
    assert_int_equal(clv_graph_status(graph, &err), CLV_EINVAL);
    assert_non_null(strstr(err.message, "packed"));
    clv_graph_free(graph);
    clv_model_close(model);
}

/* What is of another form, or no weight, is not known; a box has whole panels, and is inside. */
static void source_is_careful(void **state)
{
    enum { IN = 480, OUT = 192 };
    static const struct {
        const char *name;
        clv_type type;
        clv_shard box;
        clv_status status;
        int known;
    } cases[] = {
        {"mlp.down.weight.packed", {CLV_F32, 3, {12, IN, 16}}, {3, {1, 0, 0}, {2, IN, 16}}, CLV_OK, 1},
        {"mlp.down.weight.packed", {CLV_F32, 3, {12, IN, 16}}, {3, {1, 7, 0}, {1, 7, 16}}, CLV_OK, 1},
        {"mlp.down.weight.packed", {CLV_F32, 3, {12, IN, 16}}, {3, {1, 0, 0}, {2, IN, 8}}, CLV_ESHAPE, 1},
        {"mlp.down.weight.packed", {CLV_F32, 3, {12, IN, 16}}, {3, {1, 0, 0}, {13, IN, 16}}, CLV_ESHAPE, 1},
        {"mlp.down.weight.packed", {CLV_F32, 3, {12, IN, 16}}, {2, {0, 0}, {1, 2}}, CLV_ESHAPE, 1},
        {"mlp.down.weight.packed", {CLV_F64, 3, {12, IN, 16}}, {3, {1, 0, 0}, {2, IN, 16}}, CLV_OK, 0},
        {"mlp.down.weight.packed", {CLV_F32, 3, {48, IN, 4}}, {3, {1, 0, 0}, {2, IN, 4}}, CLV_OK, 0},
        {"mlp.down.weight.packed", {CLV_F32, 2, {OUT, IN}}, {2, {0, 0}, {OUT, IN}}, CLV_OK, 0},
        {"mlp.down.weight.packed", {CLV_F32, 0, {0}}, {0, {0}, {0}}, CLV_OK, 0},
        {"norm2.weight.packed", {CLV_F32, 2, {12, 16}}, {2, {0, 0}, {12, 16}}, CLV_OK, 0},
        {"nothing.packed", {CLV_F32, 2, {12, 16}}, {2, {0, 0}, {12, 16}}, CLV_OK, 0},
    };
    const char *path = in_folder("source");
    float *out = malloc(OUT * IN * sizeof *out);
    write_folder(path, &llama);
    clv_model *model = open_on(path, 0, CLV_F32);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64];
        int known = 5;
        clv_error err = {0};
        snprintf(name, sizeof name, "layers.0.%s", cases[i].name);
        clv_status status = clv_model_state_source(model, name, &cases[i].type, &cases[i].box, out, &known, &err);
        if (status != cases[i].status || known != cases[i].known)
            fail_msg("case %zu, %s: %s, known %d: %s", i, name, clv_status_name(status), known, err.message);
    }
    clv_model_close(model);
    free(out);
}

/* A panel that is stated to be cut over its columns is brought together before it is multiplied. */
static void panels_stay_whole(void **state)
{
    enum { ROWS = 3, IN = 40, PANELS = 2, OUT = PANELS * CLV_PANEL_COLUMNS };
    float y[2][ROWS * OUT];
    for (int cut = 0; cut < 2; cut++) {
        const clv_init init = {CLV_INIT_NORMAL, 1};
        const int64_t x_shape[] = {ROWS, IN}, w_shape[] = {PANELS, IN, CLV_PANEL_COLUMNS};
        clv_error err = {0};
        clv_program *program;
        clv_session *session;
        clv_graph *graph = must_graph("model=2");
        clv_layout layout = clv_layout_replicated(3);
        const clv_subaxis model = clv_mesh_whole_axis(clv_graph_mesh(graph), 0);
        if (cut)
            must(clv_layout_set_dim(&layout, clv_graph_mesh(graph), 2, &model, 1, 1, &err), &err);
        clv_value x = clv_state(graph, "x", CLV_F32, 2, x_shape, NULL, init);
        clv_value w = clv_state(graph, "w", CLV_F32, 3, w_shape, &layout, init);
        clv_output(graph, "y", clv_prepacked_dot(graph, x, w, 1), NULL);
        must(clv_compile(&program, graph, NULL, &err), &err);
        must(clv_session_new(&session, clv_program_mesh(program), NULL, &err), &err);
        must(clv_session_run(session, program, NULL, 0, &(clv_output_binding){"y", y[cut]}, 1, &err), &err);
        clv_session_free(session);
        clv_program_free(program);
        clv_graph_free(graph);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
}

/* ---- another CPU */

#define OTHER_CPU "CLV_TEST_OTHER_CPU" /* of the environment: all processes but the first believe to have another one */

static bool has_another; /* than this one believes, or would */

/* Before it joins. */
static int set_up(void **state)
{
    const char *process = getenv("OMPI_COMM_WORLD_RANK");
    process = process ? process : getenv("PMI_RANK");
    has_another = clv_cpu_isa() != CLV_ISA_PORTABLE;
    if (getenv(OTHER_CPU) && process && strcmp(process, "0") != 0)
        clv_cpu_set_isa_for_test(CLV_ISA_PORTABLE);
    return make_folder(state);
}

/* Processes that would not all pack do not. */
static void none_is_packed(void **state)
{
    const char *path = in_folder("other");
    if (!launched_job() || !has_another)
        skip();
    write_folder(path, &llama);
    clv_model *model = open_on(path, clv_job_process_count(launched_job()) - 1, CLV_F32);
    generated stays = generate(model, true, 1, 5);
    assert_int_equal(stays.packed, 0);
    free(stays.logits);
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest other[] = {cmocka_unit_test(none_is_packed)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(llama_is_the_same),   cmocka_unit_test(gpt2_is_the_same),
                                       cmocka_unit_test(adapted_is_the_same), cmocka_unit_test(plans_are_the_same),
                                       cmocka_unit_test(some_stay),           cmocka_unit_test(training_is_refused),
                                       cmocka_unit_test(source_is_careful),   cmocka_unit_test(panels_stay_whole)};
    return getenv(OTHER_CPU) ? cmocka_run_group_tests(other, set_up, remove_folder)
                             : cmocka_run_group_tests(tests, set_up, remove_folder);
}
