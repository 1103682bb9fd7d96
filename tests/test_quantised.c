/* test_quantised.c - models whose weights are in blocks: the logits of a folder whose weights were quantised and
 * brought back, on every mesh; each rank reads its own bytes; and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "must.h"
#include "own_folder.h"

#include "cleave/evaluate.h"
#include "cleave/forward.h"
#include "cleave/generate.h"
#include "cleave/plan.h"
#include "cleave/train.h"
#include "kernels/cpu/quant.h"
#include "models/model_weights.h"
#include "models/quantised.h"

enum { VOCAB = 50 };

static const clv_model_config llama = {.family = &clv_family_llama,
                                       .hidden = 64,
                                       .layers = 2,
                                       .heads = 6,
                                       .kv_heads = 3,
                                       .head_dim = 32,
                                       .ffn = 160,
                                       .vocab = VOCAB,
                                       .max_positions = 64,
                                       .norm_eps = 1e-5,
                                       .activation = CLV_SILU,
                                       .rope.theta = 10000,
                                       .bos = -1,
                                       .pad = -1,
                                       .mask = -1,
                                       .eos = {-1}};

static const clv_model_config gpt2 = {.family = &clv_family_gpt2,
                                      .activation = CLV_GELU_TANH,
                                      .hidden = 96,
                                      .layers = 2,
                                      .heads = 3,
                                      .kv_heads = 3,
                                      .head_dim = 32,
                                      .ffn = 224,
                                      .vocab = VOCAB,
                                      .max_positions = 64,
                                      .norm_eps = 1e-5,
                                      .qkv_bias = true,
                                      .output_bias = true,
                                      .mlp_bias = true,
                                      .bos = -1,
                                      .pad = -1,
                                      .mask = -1,
                                      .eos = {-1}};

static uint64_t next;

static float uniform(void)
{
    next = next * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(next >> 40) * 0x1p-23f - 1;
}

/* ---- folders ---- */

/* Ours [in, rows] becomes what its blocks hold, row by row. */
static void round_to_blocks(clv_quant how, float *w, int64_t in, int64_t rows)
{
    float *row = malloc((size_t)in * sizeof *row);
    uint8_t *ints = malloc((size_t)in);
    uint16_t *scales = malloc((size_t)in * sizeof *scales);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < in; i++)
            row[i] = w[i * rows + r];
        clv_quantize(how, ints, scales, row, in / CLV_QUANT_BLOCK);
        clv_dequantize(how, row, ints, scales, in / CLV_QUANT_BLOCK);
        for (int64_t i = 0; i < in; i++)
            w[i * rows + r] = row[i];
    }
    free(row), free(ints), free(scales);
}

/* The same values by every name in each folder; CLV_QUANT_NONE: as they are. An output of its own where the table's has
 * its place in another: `head` is the table, turned. */
static float *values_of(const clv_model_config *c, const clv_parameter *p, clv_quant how, bool untied)
{
    int64_t n = clv_parameter_elems(p), in = clv_model_letters_elems(c, p->row->in);
    float *w = malloc((size_t)n * sizeof *w);
    bool head = untied && strcmp(p->name, "lm_head.weight") == 0;
    next = 7;
    for (const char *at = head ? "embed.weight" : p->name; *at; at++)
        next = next * 31 + (uint64_t)*at;
    for (int64_t i = 0; i < n; i++)
        w[head ? i % c->hidden * c->vocab + i / c->hidden : i] = uniform() * (p->rank == 1 ? 0.5f : 0.15f);
    int64_t last = p->row->in[0] ? clv_model_letters_elems(c, p->row->in + strlen(p->row->in) - 1) : 0;
    if (how != CLV_QUANT_NONE && last > 0 && last % CLV_QUANT_BLOCK == 0)
        round_to_blocks(how, w, in, n / in);
    return w;
}

static void write_folder(const char *path, const clv_model_config *c, clv_quant how, bool untied)
{
    clv_safetensors_writer *writer;
    clv_error err = {0};
    char command[600], file[600];
    snprintf(command, sizeof command, "mkdir -p %s", path);
    assert_int_equal(system(command), 0);
    snprintf(file, sizeof file, "%s/config.json", path);
    must(clv_model_config_write(c, CLV_F32, file, &err), &err);
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    must(clv_model_create_weights(&writer, c, CLV_F32, file, &err), &err);
    for (int64_t i = 0; i < clv_model_parameter_count(c); i++) {
        clv_parameter p = clv_model_parameter_at(c, i);
        float *w = values_of(c, &p, how, untied);
        must(clv_model_write_parameter(writer, c, p.name, NULL, CLV_F32, w, &err), &err);
        free(w);
    }
    must(clv_safetensors_commit(writer, &err), &err);
}

/* ---- logits ---- */

static clv_model *open_on(const char *path, const char *mesh, const char *rules, clv_quant how, clv_dtype dtype)
{
    clv_error err = {0};
    clv_mesh axes;
    clv_axis_rules by;
    clv_model *model;
    must(clv_mesh_parse(&axes, mesh, &err), &err);
    must(clv_axis_rules_preset(&by, rules, &axes, &err), &err);
    const clv_model_options options = {
        .size = sizeof options, .mesh = &axes, .rules = &by, .dtype = dtype, .check = 1, .quant = how};
    must(clv_model_open(&model, path, &options, &err), &err);
    return model;
}

static float *logits(const char *path, const char *mesh, const char *rules, clv_quant how, clv_dtype dtype,
                     int64_t batch, int64_t seq)
{
    clv_error err = {0};
    clv_model *model = open_on(path, mesh, rules, how, dtype);
    clv_forwarder *f;
    int32_t *ids = malloc((size_t)(batch * seq) * sizeof *ids);
    uint8_t *mask = malloc((size_t)(batch * seq));
    float *out = calloc((size_t)(batch * seq * VOCAB), sizeof *out);
    for (int64_t i = 0; i < batch * seq; i++) {
        ids[i] = (int32_t)(i * 7 % VOCAB);
        mask[i] = 1;
    }
    must(clv_forwarder_new(&f, model, &(clv_forwarder_options){.result = CLV_FORWARD_LOGITS}, &err), &err);
    clv_forward_batch b = {.batch = batch, .seq = seq, .ids = ids, .mask = mask};
    must(clv_forwarder_run(f, &b, out, &err), &err);
    clv_forwarder_free(f);
    clv_model_close(model);
    free(ids);
    free(mask);
    return out;
}

static void expect_close(const char *what, const float *got, const float *want, int64_t n, double within)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= within * most))
            fail_msg("%s: logit %lld is %g, not %g", what, (long long)i, (double)got[i], (double)want[i]);
}

static const struct mesh_case {
    const char *mesh, *rules;
} meshes[] = {{"model=1", "megatron"},        {"model=2", "megatron"},
              {"model=3", "megatron"},        {"model=4", "megatron-sp"},
              {"model=5", "megatron"},        {"model=7", "megatron"},
              {"data=2,model=2", "megatron"}, {"data=2", "fsdp"},
              {"X=2,Y=2", "gspmd-2d"},        {"data=2,model=3", "fsdp+megatron-sp"}};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* More rows than few are products of the blocks' floats; few ones round x to 14 bits. */
static void same_logits(const clv_model_config *c, const clv_model_config *plain, bool untied)
{
    enum { MANY = 12, FEW = 3, BATCH = 2 };
    for (int how = CLV_QUANT_Q8; how < CLV_QUANT_COUNT; how++) {
        char folder_of_floats[600], what[64];
        snprintf(folder_of_floats, sizeof folder_of_floats, "%s", in_folder("rounded"));
        write_folder(folder_of_floats, plain, (clv_quant)how, untied);
        const char *path = in_folder("floats");
        write_folder(path, c, CLV_QUANT_NONE, false);
        float *many = logits(folder_of_floats, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32, BATCH, MANY);
        float *few = logits(folder_of_floats, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32, BATCH, FEW);
        float *unlike = logits(path, "model=1", "megatron", CLV_QUANT_NONE, CLV_F32, BATCH, MANY);
        double apart = 0;
        for (int64_t i = 0; i < BATCH * MANY * VOCAB; i++)
            apart = fmax(apart, fabs((double)(unlike[i] - many[i])));
        assert_true(apart > 1e-3); /* the comparison sees what quantising changes */
        for (int m = 0; m < MESHES; m++) {
            snprintf(what, sizeof what, "%s %s", clv_quant_name((clv_quant)how), meshes[m].mesh);
            float *got = logits(path, meshes[m].mesh, meshes[m].rules, (clv_quant)how, CLV_F32, BATCH, MANY);
            expect_close(what, got, many, BATCH * MANY * VOCAB, 2e-5);
            free(got);
            got = logits(path, meshes[m].mesh, meshes[m].rules, (clv_quant)how, CLV_F32, BATCH, FEW);
            expect_close(what, got, few, BATCH * FEW * VOCAB, 2e-3);
            free(got);
            got = logits(path, meshes[m].mesh, meshes[m].rules, (clv_quant)how, CLV_F64, BATCH, FEW);
            expect_close(what, got, few, BATCH * FEW * VOCAB, 2e-5);
            free(got);
        }
        float *bf16 = logits(path, "model=2", "megatron", (clv_quant)how, CLV_BF16, BATCH, MANY);
        expect_close("bf16", bf16, many, BATCH * MANY * VOCAB, 5e-2);
        free(bf16), free(many), free(few), free(unlike);
    }
}

static void llama_logits(void **state)
{
    (void)state;
    same_logits(&llama, &llama, false);
}

/* Weights that lie the other way round, parts of a fused tensor, biases. */
static void gpt2_logits(void **state)
{
    (void)state;
    same_logits(&gpt2, &gpt2, false);
}

/* The table is quantised for the output, and not where rows are picked of it. */
static void tied_logits(void **state)
{
    clv_model_config tied = llama;
    (void)state;
    tied.tie_word_embeddings = true;
    same_logits(&tied, &llama, true);
}

/* What cannot be cut into blocks stays, and is told of. */
static void some_stay(void **state)
{
    clv_model_config c = llama;
    char first[CLV_MODEL_NAME];
    (void)state;
    c.head_dim = 16;
    c.kv_heads = 6;
    same_logits(&c, &c, false);
    clv_model *model = open_on(in_folder("floats"), "model=1", "megatron", CLV_QUANT_Q8, CLV_F32);
    assert_int_equal(clv_model_unquantised(model, first), c.layers);
    assert_string_equal(first, "layers.0.attention.o.weight");
    assert_int_equal(clv_model_unquantised(model, NULL), c.layers);
    assert_int_equal(clv_model_quant(model), CLV_QUANT_Q8);
    clv_model_close(model);
    assert_int_equal(clv_model_weight_bytes(NULL), 0);
    assert_int_equal(clv_model_quant(NULL), CLV_QUANT_NONE);
    assert_int_equal(clv_model_unquantised(NULL, NULL), 0);
}

/* ---- bytes ---- */

/* A rank that holds a part of a weight reads that part: all bytes are read once, whatever the number of ranks. */
static void bytes_read(void **state)
{
    const char *path = in_folder("bytes");
    const struct {
        const char *mesh;
        int64_t copies; /* of what all ranks hold */
    } cases[] = {{"model=1", 1}, {"model=3", 3}};
    (void)state;
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    for (int i = 0; i < 2; i++) {
        clv_error err = {0};
        clv_model *model = open_on(path, cases[i].mesh, "megatron", CLV_QUANT_Q4, CLV_F32);
        clv_graph *graph = must_graph(cases[i].mesh);
        clv_program *program;
        clv_session *session;
        int32_t ids[4] = {1, 2, 3, 4};
        float out[4 * VOCAB];
        int64_t all = 0;
        clv_model_inference(graph, model, &(clv_model_graph){.batch = 1, .seq = 4});
        must(clv_compile(&program, graph, NULL, &err), &err);
        clv_session_options options = {.source = clv_model_source, .source_arg = model};
        must(clv_session_new(&session, clv_model_mesh(model), &options, &err), &err);
        must(clv_session_run(session, program, &(clv_input_binding){"ids", ids}, 1, &(clv_binding){"logits", out}, 1,
                             &err),
             &err);
        for (int64_t p = 0; p < clv_model_parameter_count(&llama); p++) {
            clv_parameter parameter = clv_model_parameter_at(&llama, p);
            all += clv_parameter_elems(&parameter) * 4 * (parameter.rank == 1 ? cases[i].copies : 1);
        }
        assert_int_equal(clv_model_bytes_read(model), all);
        clv_memory memory = {.size = sizeof memory};
        int64_t held = clv_model_weight_bytes(model), padding = 64 * 2 * clv_model_parameter_count(&llama);
        must(clv_program_memory(program, &memory, &err), &err);
        if (cases[i].copies == 1)
            assert_in_range(memory.parameters, held, held + padding);
        clv_session_free(session);
        clv_program_free(program);
        clv_graph_free(graph);
        clv_model_close(model);
    }
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* A plan counts what is held: of q8 34 bytes for 32 elements, of q4 18. */
static void planned_bytes(void **state)
{
    const char *path = in_folder("planned");
    (void)state;
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    for (int how = CLV_QUANT_NONE; how < CLV_QUANT_COUNT; how++) {
        clv_error err = {0};
        clv_program *program;
        clv_memory memory = {.size = sizeof memory};
        const clv_plan_options options = {
            .size = sizeof options, .model = path, .mode = CLV_PLAN_MODE_DECODE, .batch = 1, .seq = 16, .quant = how};
        int64_t want = 0;
        must(clv_plan_compile(&program, &options, &err), &err);
        must(clv_program_memory(program, &memory, &err), &err);
        for (int64_t p = 0; p < clv_model_parameter_count(&llama); p++) {
            clv_parameter parameter = clv_model_parameter_at(&llama, p);
            int64_t n = clv_parameter_elems(&parameter);
            bool floats = how == CLV_QUANT_NONE || parameter.row->in[0] == '\0';
            int64_t ints = n / CLV_QUANT_BLOCK * clv_quant_bytes((clv_quant)how), scales = n / CLV_QUANT_BLOCK * 2;
            want += floats ? aligned(4 * n) : aligned(ints) + aligned(scales);
        }
        assert_int_equal(memory.parameters, want);
        clv_program_free(program);
    }
}

/* ---- refused ---- */

static void refused(void **state)
{
    clv_error err = {0};
    clv_model *model;
    clv_model_config narrow = llama;
    const char *path = in_folder("refused"), *odd = in_folder("odd");
    const clv_lora_options lora = {.size = sizeof lora, .rank = 2};
    const clv_model_options with_lora = {.size = sizeof with_lora, .lora = &lora, .quant = CLV_QUANT_Q8};
    const clv_model_options quantised = {.size = sizeof quantised, .quant = CLV_QUANT_Q8};
    const clv_model_options none_such = {.size = sizeof none_such, .quant = 9};
    const clv_model_options alone = {.size = sizeof alone, .quant = CLV_QUANT_Q8, .config_only = 1};
    const clv_model_info sizes = {.size = sizeof sizes,
                                  .hidden = 32,
                                  .layers = 1,
                                  .heads = 1,
                                  .ffn = 32,
                                  .vocab = 8,
                                  .bos = -1,
                                  .pad = -1,
                                  .mask = -1};
    (void)state;
    write_folder(path, &llama, CLV_QUANT_NONE, false);
    narrow.hidden = 48;
    narrow.head_dim = 8;
    narrow.ffn = 40;
    write_folder(odd, &narrow, CLV_QUANT_NONE, false);
    assert_int_equal(clv_model_open(&model, path, &with_lora, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "adapters beside weights in q8"));
    assert_int_equal(clv_model_open(&model, path, &none_such, NULL), CLV_EINVAL);
    err = (clv_error){0};
    assert_int_equal(clv_model_open(&model, odd, &quantised, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "multiple of 32"));
    assert_int_equal(clv_model_new(&model, &sizes, &quantised, NULL), CLV_EUNSUPPORTED);

    model = open_on(path, "model=2", "megatron", CLV_QUANT_Q8, CLV_F32);
    clv_graph *graph = must_graph("model=2");
    clv_model_train_step(graph, model, &(clv_model_graph){.batch = 1, .seq = 4}, NULL);
    err = (clv_error){0};
    assert_int_equal(clv_graph_status(graph, &err), CLV_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "weights in q8 are not trained"));
    clv_graph_free(graph);
    clv_evaluation *e;
    const int32_t ids[2] = {1, 2};
    const clv_evaluate_options gradients = {
        .size = sizeof gradients, .batch = 1, .seq = 2, .ids = ids, .labels = ids, .gradients = 1};
    assert_int_equal(clv_evaluate(&e, model, &gradients, NULL), CLV_EUNSUPPORTED);
    clv_model_close(model);

    const clv_plan_options train = {.size = sizeof train, .model = path, .quant = CLV_QUANT_Q8};
    clv_program *program;
    assert_int_equal(clv_plan_compile(&program, &train, NULL), CLV_EINVAL);

    must(clv_model_open(&model, path, &alone, &err), &err); /* there is nothing to quantise */
    clv_forwarder *f;
    uint8_t mask[2] = {1, 1};
    float out[2 * VOCAB];
    must(clv_forwarder_new(&f, model, &(clv_forwarder_options){.result = CLV_FORWARD_LOGITS}, &err), &err);
    clv_forward_batch b = {.batch = 1, .seq = 2, .ids = ids, .mask = mask};
    assert_int_equal(clv_forwarder_run(f, &b, out, NULL), CLV_EUNSUPPORTED);
    clv_forwarder_free(f);
    clv_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_logits), cmocka_unit_test(gpt2_logits), cmocka_unit_test(tied_logits),
        cmocka_unit_test(some_stay),    cmocka_unit_test(bytes_read),  cmocka_unit_test(planned_bytes),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
